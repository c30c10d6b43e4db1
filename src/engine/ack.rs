//! Acknowledgement and collection.
//!
//! A job that was acknowledged here may have copies elsewhere, and each of these comes back
//! when its retry is over. If this node forgot the job at once, it could not answer who is
//! about to queue it again. So it keeps the job, *acked*, until every node that may have a copy
//! has it acked too, and only then is it dropped everywhere: the job is *collected*. Until then
//! whatever another node says of the job is answered with SETACK.
//!
//! The node that took the ACKJOB sends SETACK to the holders that it knows, and each answers
//! GOTACK. Messages get lost and holders may be down for long, so the attempt is repeated, after
//! waits that double up to three minutes; each holder that learned of the ack makes attempts of
//! its own, since the one that began may die. The SETACK says how many holders its sender knows.
//! A receiver that knows more takes the collection over, because the sender cannot reach all of
//! them; one that knows no more leaves it to the sender.
//!
//! An ACKJOB may also reach a node that never had the job. It keeps the ack alone, see
//! [`super::ack_only`], and sends SETACK of 0 holders to everybody: who knows the job knows more
//! holders than that, and takes over.

use crate::base::ids::{ClientId, JobId};
use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags};

use super::Engine;
use super::ack_only::AckOnlyJob;
use super::endings::JobEnding;
use super::jobs::{EXPIRE_GRACE_MS, JobFlags, JobRef, JobState};
use super::node_set::{ME, NodeRef};
use super::replication::Kept;
use super::trace::{By, Event, Gone};

/// Waits between attempts to collect. C: JOB_GC_RETRY_MIN_PERIOD, JOB_GC_RETRY_MAX_PERIOD.
const COLLECT_AGAIN_MIN_MS: u64 = 1000;
const COLLECT_AGAIN_MAX_MS: u64 = 180_000;

/// Whether a job was known here and not yet acked until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewlyAcked {
    No,
    Yes,
}

/// Whether the node that answers a SETACK knows the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnowsJob {
    No,
    Yes,
}

/// Whether a job, or an ack without one, was here to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    No,
    Yes,
}

impl Engine {
    /// When to repeat a message that was sent so often before, and that other nodes have to
    /// confirm.
    pub(super) fn collect_again_at(&mut self, attempts: u8) -> MonoMs {
        let wait_ms = (COLLECT_AGAIN_MIN_MS << attempts).min(COLLECT_AGAIN_MAX_MS);
        let at = self.now.mono.plus_ms(wait_ms);
        self.with_jitter(at)
    }

    /// ACKJOB for one job.
    pub(super) fn ack(&mut self, id: &JobId, client: ClientId) -> NewlyAcked {
        let Some(r) = self.jobs.find(id) else {
            if !self.ack_only.contains(id) {
                self.trace_unknown(id, JobFlags::default(), Event::Acked(By::Client(client)));
                self.keep_ack(id);
            } else {
                self.collect_ack_only(id);
            }
            return NewlyAcked::No;
        };
        if self.jobs[r].is_acked() {
            self.collect(r);
            return NewlyAcked::No;
        }
        self.trace(r, || Event::Acked(By::Client(client)));
        if self.end_wait_by_ack(r) == Kept::No {
            // It was on its way to other nodes, which need the ack.
            self.keep_ack(id);
        } else if self.is_acked_everywhere(r) {
            log::debug!("collected {id}: no other node may have it");
            self.note_ending(r, self.ending_by_ack(r));
            self.unregister(r, Gone::Collected);
        } else {
            self.acknowledge(r);
            self.collect(r);
        }
        NewlyAcked::Yes
    }

    /// QPURGE for one queued job: it is acknowledged, and able nodes learn why.
    pub(super) fn purge(&mut self, r: JobRef, client: ClientId) -> NewlyAcked {
        let id = self.jobs[r].id;
        self.trace(r, || Event::Purged(By::Client(client)));
        self.jobs.note_purged(r);
        self.ack(&id, client)
    }

    /// Keeps an ack of a job that is not known here.
    ///
    /// Differs from C, which keeps none of an at-most-once job: nobody would deliver it again,
    /// but its holder would keep it, delivered, until its TTL is over. As in C, a node that leaves
    /// keeps none: it would not be there to collect it, and the job comes back after its retry.
    fn keep_ack(&mut self, id: &JobId) {
        if self.cluster.is_alone_for_good() || self.cluster.is_leaving() {
            return;
        }
        let ttl_ms = u64::from(id.ttl_minutes()) * 60_000;
        let expire_at = self.now.mono.plus_ms(ttl_ms);
        self.ack_only.insert(*id, expire_at, self.now.mono);
        self.note_ack_only(id);
        self.collect_ack_only(id);
        let due_at = self.collect_again_at(0);
        self.ack_only.reschedule(id, due_at);
    }

    /// A job that is acknowledged while its producer waits for copies has been delivered, so
    /// copies are there.
    fn end_wait_by_ack(&mut self, r: JobRef) -> Kept {
        match self.jobs[r].state() {
            JobState::WaitRepl => self.replication_achieved(r),
            JobState::Active | JobState::Queued | JobState::Acked => Kept::Yes,
        }
    }

    /// Turns an active or queued job into an acked one, and schedules its collection.
    fn acknowledge(&mut self, r: JobRef) {
        self.note_ending(r, self.ending_by_ack(r));
        self.dequeue(r);
        if !self.jobs[r].is_spent() {
            self.log_deljob(r);
        }
        let collect_at = self.collect_again_at(0);
        self.jobs.acknowledge(r, collect_at);
        self.keep_acked_for_longer(r);
    }

    /// The timed attempt to collect an acked job.
    pub(super) fn collect_due(&mut self, r: JobRef) {
        if self.collect(r) == Kept::Yes {
            let collect_at = self.collect_again_at(self.jobs[r].gc_attempts());
            self.jobs.collect_again(r, collect_at);
        }
    }

    /// One attempt to collect an acked job.
    fn collect(&mut self, r: JobRef) -> Kept {
        self.jobs.count_gc_attempt(r);
        if self.is_acked_everywhere(r) {
            log::debug!("collected {}: acked by all holders", self.jobs[r].id);
            self.unregister(r, Gone::Collected);
            return Kept::No;
        }
        self.jobs.add_ack(r, ME);
        let id = self.jobs[r].id;
        let holders = self.jobs.may_have(r);
        let may_have = u32::try_from(holders.len()).unwrap_or(u32::MAX);
        let acks = self.jobs.acks(r);
        let targets: Vec<NodeRef> =
            holders.iter().copied().filter(|node| !acks.contains(node)).collect();
        self.send_set_ack_of(r, &targets, &Message::SetAck { id, may_have });
        Kept::Yes
    }

    /// Sends SETACK of a job that is known here: able nodes learn of a purge.
    fn send_set_ack_of(&mut self, r: JobRef, to: &[NodeRef], message: &Message<'_>) {
        if !self.jobs.is_purged(r) {
            self.cluster.send(&mut self.out, to, MessageFlags::NONE, message);
            return;
        }
        let (able, plain) = self.cluster.by_ability(to, Abilities::ATTRIBUTES);
        self.cluster.send(&mut self.out, &able, MessageFlags::PURGED, message);
        self.cluster.send(&mut self.out, &plain, MessageFlags::NONE, message);
    }

    /// Whether every other node that may have the job has it acked.
    ///
    /// Differs from C, which compares the sizes of the two sets: a node that acked a job it is
    /// no holder of would then be counted for a holder that never got the ack. And nobody waits
    /// for a holder that was forgotten.
    fn is_acked_everywhere(&self, r: JobRef) -> bool {
        let acks = self.jobs.acks(r);
        let holders = self.jobs.may_have(r);
        !holders.is_empty()
            && holders
                .iter()
                .all(|node| *node == ME || acks.contains(node) || !self.cluster.is_awaited(*node))
    }

    /// The timed attempt to collect an ack without a job.
    pub(super) fn collect_ack_only_due(&mut self, id: JobId) {
        let Some(ack) = self.ack_only.get(&id) else { return };
        if ack.expire_at <= self.now.mono {
            self.ack_only.remove(&id);
            return;
        }
        self.collect_ack_only(&id);
        if let Some(ack) = self.ack_only.get(&id) {
            let (attempts, removal_at) = (ack.gc_attempts, ack.expire_at.plus_ms(EXPIRE_GRACE_MS));
            let due_at = self.collect_again_at(attempts).min(removal_at);
            self.ack_only.reschedule(&id, due_at);
        }
    }

    /// Asks all nodes that did not answer yet whether they know the job.
    fn collect_ack_only(&mut self, id: &JobId) {
        if self.cluster.is_alone_for_good() {
            self.ack_only.remove(id);
            return;
        }
        let Some(ack) = self.ack_only.get_mut(id) else { return };
        ack.count_gc_attempt();
        ack.confirm(ME);
        let targets: Vec<NodeRef> =
            self.cluster.awaited().filter(|node| !ack.confirmed.contains(node)).collect();
        if targets.is_empty() {
            // The last one that did not answer was forgotten.
            self.ack_only.remove(id);
            return;
        }
        let message = Message::SetAck { id: *id, may_have: 0 };
        self.cluster.send(&mut self.out, &targets, MessageFlags::NONE, &message);
    }

    /// SETACK: a node has this job acked, or purged, and knows of `may_have` holders.
    pub(super) fn on_set_ack(
        &mut self,
        from: NodeRef,
        id: JobId,
        may_have: u32,
        flags: MessageFlags,
    ) {
        let Some(r) = self.jobs.find(&id) else {
            // Differs from C: towards another ack without a job this node does not
            // claim to know the job. In C both drop theirs, each leaving the
            // collection to the other.
            let knows_job = if self.ack_only.contains(&id) && may_have > 0 {
                KnowsJob::Yes
            } else {
                KnowsJob::No
            };
            self.send_got_ack(from, id, knows_job);
            return;
        };
        let newly = if self.jobs[r].is_acked() {
            NewlyAcked::No
        } else {
            self.trace(r, || Event::Acked(By::Node(from)));
            if self.end_wait_by_ack(r) == Kept::No {
                return;
            }
            if flags.contains(MessageFlags::PURGED) {
                self.trace(r, || Event::Purged(By::Node(from)));
                self.jobs.note_purged(r);
            }
            self.acknowledge(r);
            NewlyAcked::Yes
        };
        let holders = u32::try_from(self.jobs.may_have(r).len()).unwrap_or(u32::MAX);
        if holders <= may_have && self.has_copies_under_way(r, from) {
            // The ack of the sender may overtake a copy that this node sent. Its own does not; and
            // it sends that once, and then with its timed attempts: two nodes may be at it, and
            // would answer each other for ever.
            if newly == NewlyAcked::Yes {
                self.collect(r);
            }
        } else if holders <= may_have {
            self.send_got_ack(from, id, KnowsJob::Yes);
            if newly == NewlyAcked::Yes {
                self.pass_ack_on(r, from);
            }
        } else {
            // The sender has the ack and not the job. The answer lets it drop the ack; collecting
            // is this node's business from now on.
            if may_have == 0 {
                self.send_got_ack(from, id, KnowsJob::Yes);
            }
            self.collect(r);
        }
    }

    /// Where more nodes may have a job than copies were asked for, it was lent to some of them,
    /// and perhaps only the lender knows. So each node that gets the ack sends it on to the
    /// holders that it knows.
    ///
    /// Differs from C, where a node that was lent a job is left out when the collector
    /// knows as many holders as the lender, but others: it would deliver the job again.
    fn pass_ack_on(&mut self, r: JobRef, from: NodeRef) {
        let job = &self.jobs[r];
        let holders = self.jobs.may_have(r);
        if holders.len() <= usize::from(job.repl) {
            return;
        }
        let id = job.id;
        let may_have = u32::try_from(holders.len()).unwrap_or(u32::MAX);
        let others: Vec<NodeRef> = holders.iter().copied().filter(|node| *node != from).collect();
        self.send_set_ack_of(r, &others, &Message::SetAck { id, may_have });
    }

    fn send_got_ack(&mut self, to: NodeRef, id: JobId, knows_job: KnowsJob) {
        let message = Message::GotAck { id, known: knows_job == KnowsJob::Yes };
        self.cluster.send(&mut self.out, &[to], MessageFlags::NONE, &message);
    }

    /// Answers a node that takes an acked job for a live one.
    pub(super) fn send_set_ack(&mut self, to: NodeRef, id: JobId) {
        let known = self.jobs.find(&id);
        let holders = known.map_or(0, |r| self.jobs.may_have(r).len());
        let may_have = u32::try_from(holders).unwrap_or(u32::MAX);
        let message = Message::SetAck { id, may_have };
        match known {
            Some(r) => self.send_set_ack_of(r, &[to], &message),
            None => self.cluster.send(&mut self.out, &[to], MessageFlags::NONE, &message),
        }
    }

    /// GOTACK: a node answers a SETACK.
    pub(super) fn on_got_ack(&mut self, from: NodeRef, id: JobId, knows_job: KnowsJob) {
        if self.ack_only.contains(&id) {
            self.on_got_ack_of_ack_only(from, id, knows_job);
            return;
        }
        let Some(r) = self.jobs.find(&id).filter(|r| self.jobs[*r].is_acked()) else { return };
        if knows_job == KnowsJob::Yes || self.jobs.may_have(r).contains(&from) {
            self.jobs.add_may_have(r, from);
            if self.jobs.is_collecting(r) {
                self.jobs.add_ack(r, from);
            }
        }
        if self.jobs.is_collecting(r) && self.is_acked_everywhere(r) {
            log::debug!("collected {id}: acked by all holders");
            self.send_to_holders(r, MessageFlags::NONE, &Message::DelJob(id));
            self.unregister(r, Gone::Collected);
        }
    }

    fn on_got_ack_of_ack_only(&mut self, from: NodeRef, id: JobId, knows_job: KnowsJob) {
        if knows_job == KnowsJob::Yes {
            // The other node collects.
            self.ack_only.remove(&id);
            return;
        }
        let Some(ack) = self.ack_only.get_mut(&id) else { return };
        ack.confirm(from);
        if is_known_to_nobody(ack, self.cluster.awaited()) {
            self.ack_only.remove(&id);
        }
    }

    /// FASTACK for one job: dropped here and, with a message that may get lost, elsewhere.
    pub(super) fn fast_ack(&mut self, id: &JobId) -> Removed {
        if let Some(r) = self.jobs.find(id) {
            self.send_to_holders(r, MessageFlags::NONE, &Message::DelJob(*id));
            self.note_ending(r, JobEnding::Deleted);
            self.unregister(r, Gone::Deleted);
            return Removed::Yes;
        }
        let removed = self.ack_only.remove(id);
        self.cluster.broadcast(&mut self.out, MessageFlags::NONE, &Message::DelJob(*id));
        removed
    }

    /// Drops a job here and nowhere else, for DELJOB the command and the message.
    pub(super) fn delete(&mut self, id: &JobId, gone: Gone) -> Removed {
        match self.jobs.find(id) {
            Some(r) => {
                self.note_ending(r, JobEnding::Deleted);
                self.unregister(r, gone);
                Removed::Yes
            }
            None => self.ack_only.remove(id),
        }
    }
}

fn is_known_to_nobody(ack: &AckOnlyJob, mut known_nodes: impl Iterator<Item = NodeRef>) -> bool {
    known_nodes.all(|node| node == ME || ack.confirmed.contains(&node))
}
