//! Attributes of jobs that were lost on the way here, and how they come back.
//!
//! A C server drops what it does not know of a job's record, but for the job's flags. So a
//! job that comes from one says that it had attributes and has none. What this node does not
//! know it takes over from the first record that has them; and it asks an able holder for
//! them, once a job. Many jobs are asked for in one question, and no more than 1,000 in a
//! second, since a C node may lend jobs for as long as it lives. A job that is delivered
//! before the answer came has no attributes that are known.
//!
//! After a restart no node has said yet what it is able to, and a holder may be away: then
//! the question waits until it may be asked.

use std::collections::BTreeMap;

use crate::base::ids::{JOB_ID_LEN, JobId};
use crate::base::limits::JOBS_PER_MESSAGE_MAX;
use crate::base::time::MonoMs;
use crate::proto::attributes::{Attributes, append_answer, read_answer};
use crate::proto::bus::{Abilities, QueryKind};
use crate::proto::moved::Rest;

use super::Engine;
use super::jobs::{JobFlags, JobRef};
use super::node_set::{ME, NodeRef};
use super::queries::{Asked, SILENT_AFTER_MS};

/// For each job that was asked for, the next question waits so long, in ms.
const WAIT_AFTER_A_JOB_MS: u64 = 1;
/// Who knows attributes and says so.
const SOURCE: Abilities = Abilities::ATTRIBUTES.with(Abilities::QUERY);

impl Engine {
    /// When nodes may be asked for attributes; `NEVER` while there is nothing to ask.
    pub(super) fn attributes_asked_at(&self) -> MonoMs {
        if self.jobs.is_searching_for_attributes() && !self.storage.is_loading() {
            self.ask_for_attributes_at.max(self.now.mono)
        } else {
            MonoMs::NEVER
        }
    }

    /// Asks for the attributes of some jobs, those of each source together.
    pub(super) fn query_lost_attributes(&mut self) {
        let mut batches: BTreeMap<NodeRef, Vec<JobRef>> = BTreeMap::new();
        for r in self.jobs.next_without_attributes(JOBS_PER_MESSAGE_MAX) {
            if let Some(source) = self.source_of_attributes(r) {
                batches.entry(source).or_default().push(r);
            }
        }
        self.ask_for_attributes_at = self.now.mono;
        for (source, batch) in batches {
            let ids: Vec<u8> = batch.iter().flat_map(|r| self.jobs[*r].id.0).collect();
            let wait_ms = match self.query(source, QueryKind::ATTRIBUTES, &ids) {
                Asked::Yes => {
                    batch.iter().for_each(|r| self.jobs.note_asked_for_attributes(*r));
                    batch.len() as u64 * WAIT_AFTER_A_JOB_MS
                }
                Asked::Silent => 0,
                Asked::TooMany => {
                    self.jobs.search_for_attributes();
                    SILENT_AFTER_MS
                }
            };
            self.ask_for_attributes_at = self.ask_for_attributes_at.plus_ms(wait_ms);
        }
    }

    /// A holder that may know the attributes of a job, one that answers if there is one.
    fn source_of_attributes(&self, r: JobRef) -> Option<NodeRef> {
        let is_source = |node: &NodeRef| {
            *node != ME && self.cluster.is_able(*node, SOURCE) && self.cluster.is_linked(*node)
        };
        let sources = self.jobs.may_have(r).iter().copied().filter(is_source);
        sources.max_by_key(|node| self.cluster.is_reachable(*node))
    }

    /// What is known of the attributes of these jobs; `None` for what is no list of IDs. Who lost
    /// them may have lost a move too, which is sent by itself.
    pub(super) fn answer_attributes(&mut self, to: NodeRef, ids: &[u8]) -> Option<Vec<u8>> {
        let (ids, rest) = ids.as_chunks::<JOB_ID_LEN>();
        if !rest.is_empty() || ids.len() > JOBS_PER_MESSAGE_MAX {
            return None;
        }
        self.send_moves_of(ids.iter().map(|id| JobId(*id)), to);
        let mut answer = Vec::new();
        for id in ids.iter().map(|id| JobId(*id)) {
            let attributes = self.jobs.find(&id).and_then(|r| self.jobs.attributes(r));
            if let Some(attributes) = attributes.filter(|attributes| !attributes.is_empty()) {
                append_answer(&mut answer, &id, attributes);
            }
        }
        Some(answer)
    }

    /// Another node knows the attributes of some jobs.
    pub(super) fn on_attributes_answered(&mut self, answer: &[u8]) {
        for (id, attributes) in read_answer(answer) {
            if let Some(r) = self.jobs.find(&id) {
                self.take_over_attributes(r, attributes);
            }
        }
    }

    /// A client gave a job back and said why: it stands in the job's next record. Where the job had
    /// attributes that are not known here, it waits for them: alone it would be taken for all.
    pub(super) fn set_note(&mut self, r: JobRef, note: &[u8]) {
        let Some(known) = self.jobs.attributes(r) else {
            self.jobs.keep_note(r, note);
            return;
        };
        if let Some(kept) = known.with_note(note) {
            self.jobs.set_attributes(r, kept);
        }
    }

    /// Another node knows attributes of a job: they are those of the job, if none are known
    /// here. The append only file gets the job again, with them.
    pub(super) fn take_over_attributes(&mut self, r: JobRef, attributes: Attributes<'_>) {
        let is_known = self.jobs[r].flags().contains(JobFlags::HAD_ATTRIBUTES)
            && self.jobs.attributes(r).is_some();
        if is_known {
            // A note is what a client said last, as far as a node knows.
            if let Some(note) = attributes.note() {
                self.set_note(r, &note);
            }
            return;
        }
        let is_nothing = attributes.iter().next().is_none() || attributes.rest() == Rest::Lost;
        let kept = self.jobs.record_attributes(r).with_rest(attributes);
        if let Some(kept) = kept.filter(|_| !is_nothing) {
            self.jobs.set_attributes(r, kept);
            if let Some(note) = self.jobs.take_note(r) {
                self.set_note(r, &note);
            }
            if self.jobs[r].is_for_file() {
                self.log_loadjob(r);
            }
        }
    }
}
