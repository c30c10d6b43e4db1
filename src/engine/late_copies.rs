//! Copies that nobody waits for: a job whose producer was answered at n copies (SYNC) goes on to as
//! many as REPLICATE says.
//!
//! All nodes that are to have a copy are asked at once, and most confirm within milliseconds. What
//! is left then is a matter of nodes that are down or cut off. So when a node can be reached again
//! a walk goes over the jobs that lack copies, and those that it was asked to keep, or may keep,
//! are sent to it; and once a minute over all of them, for what was lost or refused otherwise, and
//! to ask further nodes. There is no timer a job. A walk sends a few MiB, and goes on when the
//! last of them is confirmed, or after a second: a node that comes back is not sent a million jobs
//! at once, which its link would not hold.
//!
//! **A late copy must not outlive the ack.** A consumer may acknowledge the job anywhere while
//! REPLJOB is under way to a holder, which has nothing to confirm the ack for yet, and says so;
//! then the job would be collected, and the copy come after all. So the sender of an unconfirmed
//! REPLJOB does not confirm an ack that it is sent. It collects the job itself: on that link its
//! SETACK runs behind its REPLJOB. See [`Engine::has_copies_under_way`].
//!
//! A node that is restarted does not go on with the copies of jobs that were added before.

use std::collections::BTreeMap;

use crate::base::ids::{JobId, LinkId};
use crate::base::time::MonoMs;
use crate::proto::bus::MessageFlags;

use super::jobs::{CopyWait, JobRef, JobState};
use super::node_set::{ME, NodeRef};
use super::replication::Confirm;
use super::{Engine, More};

/// All jobs that lack copies are visited this often, in ms.
const PERIOD_MS: u64 = 60_000;
/// A walk pauses after so many bytes of bodies, or jobs.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
const BATCH_JOBS: usize = 1000;
/// For this long at most, in ms.
const PAUSE_MS: u64 = 1000;

/// For so many attempts to collect a job its acks are not confirmed while copies are under way.
const WITHHELD_ATTEMPTS: u8 = 3;

/// Whether what is under way to a node may have been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resend {
    No,
    Yes,
}

/// The walks under way.
#[derive(Default)]
pub(super) struct LateCopies {
    /// One for each node that came back.
    to_nodes: BTreeMap<NodeRef, Walk>,
    to_all: Option<Walk>,
    /// How often a node could be reached again, for one reason or another.
    pub changes: u64,
    /// The link on which each node sent its last ping.
    pinged_on: BTreeMap<NodeRef, LinkId>,
    /// When the next walk over all of them begins; `NEVER` while there are none.
    period_ends_at: Option<MonoMs>,
}

struct Walk {
    /// Of the next job.
    slot: u32,
    resend: Resend,
    /// Sent since the last pause.
    bytes: usize,
    jobs: usize,
    /// The last job that was sent, whose confirmation ends the pause.
    last: Option<JobId>,
    resume_at: MonoMs,
}

impl Walk {
    fn new(resend: Resend, now: MonoMs) -> Self {
        Self { slot: 0, resend, bytes: 0, jobs: 0, last: None, resume_at: now }
    }

    fn note_sent(&mut self, id: JobId, bytes: usize, now: MonoMs) {
        self.bytes += bytes;
        self.jobs += 1;
        if self.bytes >= BATCH_BYTES || self.jobs >= BATCH_JOBS {
            (self.bytes, self.jobs, self.last) = (0, 0, Some(id));
            self.resume_at = now.plus_ms(PAUSE_MS);
        }
    }
}

impl LateCopies {
    pub fn next_at(&self) -> MonoMs {
        let walks = self.to_nodes.values().chain(&self.to_all);
        let resumed_at = walks.map(|walk| walk.resume_at).min();
        let ends_at = self.period_ends_at.unwrap_or(MonoMs::NEVER);
        resumed_at.map_or(ends_at, |at| at.min(ends_at))
    }

    fn note_confirmed(&mut self, from: NodeRef, id: &JobId, now: MonoMs) {
        if let Some(walk) = self.to_nodes.get_mut(&from).filter(|walk| walk.last == Some(*id)) {
            walk.resume_at = now;
        }
    }
}

impl Engine {
    /// A producer's wait is over, with fewer copies than the job is to get. Links that were made
    /// during the wait were not walked for it.
    pub(super) fn go_on_after_wait(&mut self, r: JobRef, wait: &CopyWait) {
        self.begin_late_copies(r, &wait.copies);
        if wait.changes_before != self.late_copies.changes {
            self.request_lacking_copies(r);
        }
    }

    /// A job was promised with the copies that these nodes have, and is to get more.
    pub(super) fn begin_late_copies(&mut self, r: JobRef, copies: &[NodeRef]) {
        self.jobs.begin_shortage(r, copies);
        let ends_at = self.now.mono.plus_ms(PERIOD_MS);
        self.late_copies.period_ends_at.get_or_insert(ends_at);
    }

    /// Another node, which could take no copy itself, promised a job that this one keeps, and
    /// leaves it to this one to see to the other copies. Who has some is not known here.
    pub(super) fn take_over_late_copies(&mut self, r: JobRef) {
        if self.jobs[r].repl > 1
            && !self.jobs[r].is_acked()
            && self.jobs[r].state() != JobState::WaitRepl
        {
            self.begin_late_copies(r, &[ME]);
            self.request_lacking_copies(r);
        }
    }

    /// Asks holders again that did not confirm the job, and further nodes if all of these together
    /// are too few.
    fn request_lacking_copies(&mut self, r: JobRef) {
        let asked = self.jobs.unconfirmed(r).len();
        let further = self.jobs.lacking_copies(r).saturating_sub(asked);
        self.send_late_copies(r, further);
    }

    /// GOTJOB for a job that does not wait for copies any more.
    pub(super) fn note_late_copy(&mut self, r: JobRef, from: NodeRef) {
        self.jobs.confirm_copy(r, from);
        let id = self.jobs[r].id;
        self.late_copies.note_confirmed(from, &id, self.now.mono);
    }

    /// A node can be reached again: jobs that lack copies go there.
    pub(super) fn copy_to(&mut self, node: NodeRef, resend: Resend) {
        self.late_copies.changes += 1;
        if self.jobs.has_no_shortages() {
            return;
        }
        let walk = match self.late_copies.to_nodes.remove(&node) {
            // A node comes back in several ways at once: the walk begins anew, after its pause.
            Some(before) => Walk { slot: 0, resend: resend.max(before.resend), ..before },
            None => Walk::new(resend, self.now.mono),
        };
        self.late_copies.to_nodes.insert(node, walk);
    }

    /// A node pinged on a link of its own. If that is a new one, confirmations may have been lost
    /// with the one before, or could not be sent.
    pub(super) fn note_ping_for_copies(&mut self, node: NodeRef, link: LinkId) {
        if self.late_copies.pinged_on.insert(node, link) != Some(link) {
            self.copy_to(node, Resend::Yes);
        }
    }

    /// Goes on with a walk that does not pause, for up to about `budget` jobs.
    pub(super) fn make_late_copies(&mut self, budget: &mut usize) -> More {
        let now = self.now.mono;
        if self.late_copies.period_ends_at.is_some_and(|at| at <= now) {
            let goes_on = !self.jobs.has_no_shortages();
            self.late_copies.period_ends_at = goes_on.then(|| now.plus_ms(PERIOD_MS));
            if goes_on {
                self.late_copies.to_all.get_or_insert(Walk::new(Resend::Yes, now));
            }
        }
        let ready = |walk: &Walk| walk.resume_at <= now;
        let node = self.late_copies.to_nodes.iter().find(|(_, walk)| ready(walk));
        if let Some(node) = node.map(|(node, _)| *node) {
            let walk = self.late_copies.to_nodes.remove(&node).expect("it was found");
            if let Some(walk) = self.walk_late_copies(walk, Some(node), budget) {
                self.late_copies.to_nodes.insert(node, walk);
            }
            return More::Yes;
        }
        if let Some(walk) = self.late_copies.to_all.take_if(|walk| ready(walk)) {
            self.late_copies.to_all = self.walk_late_copies(walk, None, budget);
            return More::Yes;
        }
        More::No
    }

    /// Returns the walk unless it is over.
    fn walk_late_copies(
        &mut self,
        mut walk: Walk,
        to: Option<NodeRef>,
        budget: &mut usize,
    ) -> Option<Walk> {
        let now = self.now.mono;
        walk.last = None;
        while *budget > 0 && walk.last.is_none() {
            let r = self.jobs.next_short_from(walk.slot)?;
            walk.slot = r.slot() + 1;
            *budget -= 1;
            let lacking = self.jobs.lacking_copies(r);
            if lacking == 0 {
                continue;
            }
            let sent = match to {
                Some(node) => self.send_late_copy(r, node, lacking, walk.resend),
                // What has begun just now is under way.
                None if !self.jobs.note_visit(r) => false,
                // Whoever was asked and did not take it may never do so. But most do in the end,
                // and then there are more copies than are wanted: twice as many at most.
                None => {
                    let most = usize::from(self.jobs[r].repl) * 2;
                    let further_max = most.saturating_sub(self.jobs.may_have(r).len());
                    self.send_late_copies(r, lacking.min(further_max))
                }
            };
            if sent {
                let job = &self.jobs[r];
                walk.note_sent(job.id, job.body.len(), now);
            }
        }
        Some(walk)
    }

    /// Sends a job that lacks copies to a node, if it is to have one and may not have it yet.
    fn send_late_copy(&mut self, r: JobRef, to: NodeRef, lacking: usize, resend: Resend) -> bool {
        if !self.cluster.is_linked(to) {
            return false;
        }
        let asked = self.jobs.unconfirmed(r);
        if self.jobs.may_have(r).contains(&to) {
            let is_lost = resend == Resend::Yes && asked.contains(&to);
            if is_lost {
                self.send_job(r, &[to], MessageFlags::NONE);
            }
            return is_lost;
        }
        let answers = |node: &&NodeRef| self.cluster.is_reachable(**node);
        if !self.cluster.is_reachable(to)
            || self.cluster.is_short_of_memory(to)
            || asked.iter().filter(answers).count() >= lacking
        {
            return false;
        }
        self.jobs.add_may_have(r, to);
        self.send_copies(r, 1, Confirm::Yes);
        self.log_more_holders(r);
        true
    }

    /// Asks holders of a job again that did not confirm it, and so many further nodes. Tells
    /// whether anything was sent.
    fn send_late_copies(&mut self, r: JobRef, further: usize) -> bool {
        let mut again = self.jobs.unconfirmed(r);
        again.retain(|node| self.cluster.is_linked(*node));
        let added = self.add_holders(r, further);
        if added > 0 {
            self.send_copies(r, added, Confirm::Yes);
            self.log_more_holders(r);
        } else {
            self.send_job(r, &again, MessageFlags::NONE);
        }
        added > 0 || !again.is_empty()
    }

    /// The append only file learns of further holders too: who acknowledges the job after a
    /// restart has to reach them.
    fn log_more_holders(&mut self, r: JobRef) {
        if self.jobs[r].is_for_file() {
            self.log_loadjob(r);
        }
    }

    /// Whether a copy of a job may be under way from here, on a link that is there, to a node
    /// other than the one that says that the job is acked.
    pub(super) fn has_copies_under_way(&self, r: JobRef, from: NodeRef) -> bool {
        // Two nodes may have copies under way to each other or in a ring, and each would wait for
        // ever for the other to confirm its ack. By then it is behind what was under way.
        if self.jobs.has_no_shortages() || self.jobs[r].gc_attempts() > WITHHELD_ATTEMPTS {
            return false;
        }
        let acks = self.jobs.acks(r);
        let is_open =
            |node: &NodeRef| *node != from && self.cluster.is_linked(*node) && !acks.contains(node);
        self.jobs.unconfirmed(r).iter().any(is_open)
    }
}
