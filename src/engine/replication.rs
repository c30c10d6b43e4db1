//! A job on enough nodes before its producer gets its ID.
//!
//! `REPLICATE n` promises that the job outlives the loss of any n - 1 nodes. So the ID is sent
//! when n nodes have said that they hold a copy, and not before; and the job is queued only then,
//! since a consumer must not get a job whose producer may yet be told that it was refused.
//!
//! REPLJOB goes to as many random reachable nodes as copies are wanted. They join the job's set
//! of holders first, so that each copy names them all, the ones that never get theirs as well:
//! whoever queues or acknowledges the job later has to reach every node that might have it. A
//! name too many costs a message, a missing one delivers an acknowledged job again. For the same
//! reason who has a copy already gets it again, for the set's sake, when the set has grown.
//!
//! GOTJOB confirms a copy. REPLJOB or GOTJOB may be lost with its link, or a node may be slow; so
//! while the producer waits, one more node is asked now and then, and those that did not
//! confirm are asked again. There may be more copies than were asked for in the end. When the
//! wait ends without enough of them, DELJOB goes to all that may have one: the producer gets an
//! error, will add its job again under another ID, and the first attempt should not be delivered
//! beside the second.
//!
//! A node that takes no copy itself (memory is short, or it leaves the cluster) replicates
//! *externally*: when enough others have the job, one of them is asked by ENQUEUE to queue it,
//! and the job is dropped here; copies that are under way still are called back by DELJOB. What SYNC
//! leaves for later (see [`super::late_copies`]) is that node's to see to: it asks the same nodes. When it turns out that the others do not take it, and memory is
//! not quite full here, this node becomes one of its holders. Not of an at-most-once job, which
//! has one holder: another node may have it already.

use crate::base::ids::{JobId, NodeId};
use crate::base::time::MonoMs;
use crate::proto::bus::{self, Abilities, JobsFrame, Message, MessageFlags};
use crate::proto::job_record::JobRecord;

use super::Engine;
use super::blocked::Wait;
use super::cluster::WantedHolder;
use super::command::Call;
use super::jobs::{CopyWait, JobFlags, JobRef, Knows, Nack, NewJob};
use super::node_set::{ME, NodeRef};
use super::records::{RecordForm, Storage, record_of};
use super::trace::{Event, Gone, Refusal};

/// One more node is asked this often. C: DELAYED_JOB_ADD_NODE_MIN_PERIOD.
const ADD_NODE_AFTER_MS: u64 = 50;
/// A large body is not sent again before it had time to arrive: bytes a millisecond
/// that any link of a cluster carries.
const SLOW_LINK_BYTES_PER_MS: u64 = 10_000;

/// Whether receivers of REPLJOB shall confirm their copy with GOTJOB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirm {
    No,
    Yes,
}

/// The copies that a producer waits for.
#[derive(Clone, Copy, Debug)]
pub struct WantedCopies {
    /// How many, this node's included.
    pub wanted: u16,
    /// In how many zones they have to be; 0 for any.
    pub zones: u16,
    /// So many other nodes are asked at once.
    pub asked: usize,
}

/// Whether this node still has the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    No,
    Yes,
}

impl Engine {
    /// Adds up to `count` reachable nodes to those that may have the job, and sends it to all of
    /// them that did not confirm it (and, when the set grew, to those that did, so that their
    /// copies name the new ones). Nodes whose memory is short come last; of a job with attributes,
    /// those that keep attributes come first. Returns how many were added.
    pub(super) fn replicate(&mut self, r: JobRef, count: usize, confirm: Confirm) -> usize {
        let added = self.add_holders(r, count);
        self.send_copies(r, added, confirm);
        added
    }

    /// Adds up to `count` nodes to those that may have the job, of which nothing is sent to them
    /// yet. Returns how many were added.
    pub(super) fn add_holders(&mut self, r: JobRef, count: usize) -> usize {
        if self.cluster.has_zones() {
            return self.add_holders_by_zone(r, count);
        }
        let (mut drawn, mut added) = (0, 0);
        let mut short_of_memory = Vec::new();
        let first = if self.jobs[r].flags().contains(JobFlags::HAD_ATTRIBUTES) {
            self.cluster.put_able_first(Abilities::ATTRIBUTES)
        } else {
            0
        };
        while added < count
            && let Some(node) = self.cluster.draw_reachable(&mut self.rng, drawn, first)
        {
            drawn += 1;
            if self.cluster.is_short_of_memory(node) {
                short_of_memory.push(node);
            } else if self.cluster.is_linked(node) && self.jobs.add_may_have(r, node) {
                added += 1;
            }
        }
        for node in short_of_memory {
            if added < count && self.cluster.is_linked(node) && self.jobs.add_may_have(r, node) {
                added += 1;
            }
        }
        added
    }

    /// The same where nodes are in zones: spread over these. While a producer waits for copies in
    /// more of them than were asked, nodes in further zones come first, whatever else is wanted.
    fn add_holders_by_zone(&mut self, r: JobRef, count: usize) -> usize {
        let has_attributes = self.jobs[r].flags().contains(JobFlags::HAD_ATTRIBUTES);
        let abilities = if has_attributes { Abilities::ATTRIBUTES } else { Abilities::NONE };
        let zones = self.jobs.copy_wait(r).map_or(0, |wait| usize::from(wait.zones));
        let mut added = 0;
        while added < count {
            let may_have = self.jobs.may_have(r);
            let in_new_zone =
                zones > 0 && self.cluster.count_zones(may_have.iter().copied()) < zones;
            let wanted = WantedHolder { abilities, in_new_zone };
            let Some(node) = self.cluster.draw_by_zone(&mut self.rng, may_have, wanted) else {
                break;
            };
            self.jobs.add_may_have(r, node);
            added += 1;
        }
        added
    }

    /// Sends the job to its holders; to those that confirmed it only when it has `added` new
    /// ones.
    pub(super) fn send_copies(&mut self, r: JobRef, added: usize, confirm: Confirm) {
        let copies = self.jobs.copies(r);
        let (done, waiting): (Vec<NodeRef>, Vec<NodeRef>) = self
            .jobs
            .may_have(r)
            .iter()
            .copied()
            .filter(|node| *node != ME)
            .partition(|node| confirm == Confirm::No || copies.contains(node));
        self.send_job(r, &waiting, MessageFlags::NONE);
        if confirm == Confirm::No || added > 0 {
            self.send_job(r, &done, MessageFlags::NOREPLY);
        }
    }

    pub(super) fn send_job(&mut self, r: JobRef, to: &[NodeRef], flags: MessageFlags) {
        if to.is_empty() {
            return;
        }
        if self.jobs[r].is_traced() {
            to.iter().for_each(|node| self.note_event(r, Event::CopySent(*node)));
        }
        let queue = &self.queues[self.jobs[r].queue].name;
        let holders: Vec<NodeId> =
            self.jobs.may_have(r).iter().map(|node| self.cluster.id(*node)).collect();
        let nodes = holders.iter().copied();
        let record = record_of(&self.jobs, r, queue, self.now, RecordForm::ForPeers, nodes);
        self.cluster.send_with(&mut self.out, to.iter().copied(), flags, |bytes, header| {
            bus::encode_repl_job(bytes, header, &record)
        });
    }

    /// Takes in a job that is new here, and whose producer waits for copies until the deadline.
    pub(super) fn await_copies(
        &mut self,
        call: &Call<'_>,
        new: NewJob,
        copies: WantedCopies,
        deadline: MonoMs,
    ) {
        let wait = CopyWait {
            client: call.client,
            resp: call.resp,
            wanted: copies.wanted,
            zones: copies.zones,
            copies: if self.jobs.sets().contains(&new.may_have, ME) { vec![ME] } else { vec![] },
            ask_at: self.next_target_at(new.body.len()),
            changes_before: self.late_copies.changes,
        };
        self.queues.use_name(new.queue);
        let r = self.jobs.insert_waiting(new, wait);
        self.begin_trace(r, || Event::Added(call.client));
        self.blocked.begin(call.client, Wait::Copies(r), deadline);
        self.replicate(r, copies.asked, Confirm::Yes);
    }

    fn next_target_at(&self, body_len: usize) -> MonoMs {
        let transfer_ms = body_len as u64 / SLOW_LINK_BYTES_PER_MS;
        self.now.mono.plus_ms(ADD_NODE_AFTER_MS + transfer_ms)
    }

    /// The producer still waits: one more node is asked, and when all were, this one takes the
    /// job after all.
    pub(super) fn replicate_again(&mut self, r: JobRef) {
        if self.has_enough_copies(r) && self.has_enough_zones(r) {
            // A zone became known after its copy was confirmed.
            self.replication_achieved(r);
            return;
        }
        let ask_at = self.next_target_at(self.jobs[r].body.len());
        self.jobs.set_next_target_at(r, ask_at);
        // One holder is all that an at-most-once job may have: that one is asked again.
        let is_once = self.jobs[r].is_at_most_once();
        if self.replicate(r, usize::from(!is_once), Confirm::Yes) == 0
            && !is_once
            && self.may_take_copies()
            && self.jobs.add_may_have(r, ME)
        {
            self.send_copies(r, 1, Confirm::Yes);
            self.note_copy(r, ME);
        }
    }

    /// GOTJOB: a node has a copy.
    pub(super) fn on_got_job(&mut self, from: NodeRef, id: JobId, move_digest: u32) {
        if let Some(r) = self.jobs.find(&id) {
            self.on_move_confirmed(from, r, move_digest);
            self.note_copy(r, from);
        }
    }

    /// GOTJOB: this node has the job, and knows of this move.
    pub(super) fn confirm_copy(&mut self, to: NodeRef, r: JobRef) {
        let move_digest = u32::from(self.jobs.move_digest(r));
        let message = Message::GotJob { id: self.jobs[r].id, move_digest };
        self.cluster.send(&mut self.out, &[to], MessageFlags::NONE, &message);
    }

    /// A node has a copy of a job that waits for some, or waited.
    fn note_copy(&mut self, r: JobRef, from: NodeRef) {
        match self.jobs.add_copy(r, from) {
            Some(false) => {}
            Some(true) if !self.has_enough_zones(r) => {}
            Some(true) => _ = self.replication_achieved(r),
            None if self.jobs.has_no_shortages() => {}
            None => self.note_late_copy(r, from),
        }
    }

    fn has_enough_copies(&self, r: JobRef) -> bool {
        let is_enough = |wait: &CopyWait| wait.copies.len() >= usize::from(wait.wanted);
        self.jobs.copy_wait(r).is_some_and(is_enough)
    }

    /// Of so many zones that a job is to be in, those for which a copy here does not do.
    pub(super) fn zones_elsewhere(&self, zones: u16, is_external: bool) -> usize {
        let here = self.cluster.count_zones((!is_external).then_some(ME).into_iter());
        usize::from(zones).saturating_sub(here)
    }

    fn has_enough_zones(&self, r: JobRef) -> bool {
        let wanted = self.jobs.copy_wait(r).map_or(0, |wait| usize::from(wait.zones));
        wanted == 0 || self.cluster.count_zones(self.jobs.copies(r).iter().copied()) >= wanted
    }

    /// Enough nodes have the job, or a consumer has it acknowledged already: the
    /// producer gets its ID. An external job is then gone from here.
    pub(super) fn replication_achieved(&mut self, r: JobRef) -> Kept {
        let wait = self.jobs.end_wait(r);
        let id = self.jobs[r].id;
        self.blocked.end(wait.client);
        self.reply(wait.client, wait.resp).status(id.0);
        self.resume(wait.client);
        let goes_on = wait.wanted < self.jobs[r].repl;
        if !self.jobs.may_have(r).contains(&ME) {
            self.enqueue_elsewhere(r, &wait.copies, goes_on);
            if !goes_on {
                self.call_back_copies(r, &wait.copies);
            }
            self.forget(r, Gone::PassedOn);
            return Kept::No;
        }
        if goes_on {
            self.go_on_after_wait(r, &wait);
        }
        self.release_to_queue(r);
        Kept::Yes
    }

    /// A job that this node forgets has enough copies. Further ones may be under way still: they
    /// would come after the job was acknowledged, and with it once more. On each link DELJOB runs
    /// behind REPLJOB.
    fn call_back_copies(&mut self, r: JobRef, copies: &[NodeRef]) {
        let asked = self.jobs.may_have(r).iter().copied();
        let late: Vec<NodeRef> = asked.filter(|node| !copies.contains(node)).collect();
        let id = self.jobs[r].id;
        self.cluster.send(&mut self.out, &late, MessageFlags::NONE, &Message::DelJob(id));
    }

    /// A job that its producer was promised goes to its queue, unless it is delayed, and into
    /// the append only file.
    pub(super) fn release_to_queue(&mut self, r: JobRef) {
        if self.jobs[r].delay_secs == 0 {
            self.enqueue(r, Nack::No);
        }
        self.log_loadjob(r);
    }

    /// Tells one of the nodes that have a copy to queue the job, after its delay; and, if it is
    /// able and that is wanted, to see to the copies that are lacking. Nothing is sent when all
    /// links to them are down.
    pub(super) fn enqueue_elsewhere(&mut self, r: JobRef, holders: &[NodeRef], goes_on: bool) {
        let mut linked: Vec<NodeRef> =
            holders.iter().copied().filter(|node| self.cluster.is_linked(*node)).collect();
        if linked.is_empty() {
            return;
        }
        if self.jobs[r].flags().contains(JobFlags::HAD_ATTRIBUTES) {
            let keeps = |node: &NodeRef| self.cluster.may_be_able(*node, Abilities::ATTRIBUTES);
            if linked.iter().any(keeps) {
                linked.retain(keeps);
            }
        }
        let mut flags = MessageFlags::NONE;
        if goes_on {
            let (able, _) = self.cluster.by_ability(&linked, Abilities::HOLDS);
            if !able.is_empty() {
                linked = able;
                flags = MessageFlags::GO_ON;
            }
        }
        let to = linked[self.rng.index(linked.len())];
        let (id, delay_secs) = (self.jobs[r].id, self.jobs[r].delay_secs);
        let message = Message::Enqueue { id, delay_secs };
        self.cluster.send(&mut self.out, &[to], flags, &message);
    }

    /// Nobody waits for the copies of this job any more: it is dropped wherever it may be.
    pub(super) fn abandon_replication(&mut self, r: JobRef, why: Refusal) {
        let id = self.jobs[r].id;
        self.send_to_holders(r, MessageFlags::NONE, &Message::DelJob(id));
        self.forget(r, Gone::Refused(why));
    }

    /// REPLJOB: a node wants a copy kept here.
    ///
    /// What is here already is confirmed whatever may keep new copies out: the producer waits for
    /// no more than that, and the job's other holders have to be known. Differs from C, where
    /// memory that is short comes first.
    pub(super) fn on_repl_job(&mut self, from: NodeRef, record: &JobRecord<'_>, confirm: Confirm) {
        if self.is_acked_here(&record.id) {
            self.send_set_ack(from, record.id);
            return;
        }
        let r = match self.jobs.find(&record.id) {
            Some(r) => {
                let agrees = self.learn_place(from, r, record);
                self.on_further_record(r, record);
                if !agrees && self.cluster.is_able(from, Abilities::ATTRIBUTES) {
                    self.send_moved(r, &[from]);
                }
                r
            }
            None if self.refuses_copies(record.queue) => {
                let refused = Event::Refused(Refusal::Copy);
                self.trace_unknown(&record.id, JobFlags(record.flags), refused);
                return;
            }
            None => {
                let mut new = self.describe_copy(record);
                new.flags = new.flags.with(JobFlags::BROADCAST_QUEUED);
                let r = self.register(new, || Event::CopyKept(from));
                self.jobs.add_may_have(r, ME);
                self.jobs.note_knows(r, from, Knows::Place);
                self.log_loadjob(r);
                r
            }
        };
        if confirm == Confirm::Yes {
            self.confirm_copy(from, r);
        }
    }

    /// Whether no new copies of a queue's jobs are taken. Above 75 % of the memory they are: who
    /// is able asks nodes with free memory first, and has reasons when it asks this one.
    fn refuses_copies(&self, queue: &[u8]) -> bool {
        !self.may_take_copies()
            || self.storage == Storage::Fails
            || self.queues.find_live(queue).is_some_and(|queue| queue.pause.is_in())
    }

    /// A peer's record of a job that is known here: it may name further holders, and have
    /// attributes that were lost on the way here.
    pub(super) fn on_further_record(&mut self, r: JobRef, record: &JobRecord<'_>) {
        for id in record.nodes {
            if let Some(node) = self.cluster.find_holder(&id) {
                self.jobs.add_may_have(r, node);
            }
        }
        let flags = JobFlags(record.flags);
        if flags.contains(JobFlags::HAD_ATTRIBUTES) {
            self.take_over_attributes(r, record.attributes);
        }
        if flags.contains(JobFlags::TRACE) {
            self.jobs.trace_as_asked(r);
        }
    }

    /// Whether the job is acked here, known or not.
    pub(super) fn is_acked_here(&self, id: &JobId) -> bool {
        self.ack_only.contains(id) || self.jobs.find(id).is_some_and(|r| self.jobs[r].is_acked())
    }

    /// Whether a job that wants so many copies has to be stored elsewhere; see
    /// [`super::memory`].
    pub(super) fn must_store_elsewhere(&self, repl: u16) -> bool {
        !self.may_take_copies()
            || self.memory_level == 1 && self.cluster.count_with_memory() >= usize::from(repl)
    }

    fn may_take_copies(&self) -> bool {
        self.memory_level < 2 && !self.cluster.is_leaving()
    }

    /// Sends jobs that were fetched for another node, which becomes one of their holders.
    pub(super) fn send_your_jobs(&mut self, to: NodeRef, jobs: &[JobRef]) {
        for &r in jobs {
            if self.jobs.add_may_have(r, to) {
                self.jobs.note_knows(r, to, Knows::Place);
            }
            self.trace(r, || Event::LentTo(to));
        }
        let holders: Vec<Vec<NodeId>> = jobs
            .iter()
            .map(|r| self.jobs.may_have(*r).iter().map(|node| self.cluster.id(*node)).collect())
            .collect();
        let (table, queues, now) = (&self.jobs, &self.queues, self.now);
        self.cluster.send_with(&mut self.out, [to], MessageFlags::NONE, |bytes, header| {
            let mut frame = JobsFrame::your_jobs(bytes, header);
            for (&r, nodes) in jobs.iter().zip(&holders) {
                let queue = &queues[table[r].queue].name;
                let nodes = nodes.iter().copied();
                frame.push(&record_of(table, r, queue, now, RecordForm::ForPeers, nodes));
            }
            frame.finish();
        });
    }
}
