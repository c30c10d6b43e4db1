//! Moves: a job goes to another queue and stays what it is. Its ID, its body and its copies stay,
//! so there is nothing to be copied, and acknowledgements find it wherever it is.
//!
//! **One place.** Each holder has the name of the job's queue, and two that differ would each
//! deliver the job from a queue of its own. So a move has a *stamp*, its time and the node that made
//! it, and of two moves the higher stamp wins on every node, whichever it learns of first. A move
//! that knows of another is always higher; the clock decides only between moves that do not know of
//! each other.
//!
//! **Everybody is told.** MOVED carries the whole place: queue, priority, limits and facts, the end
//! of the TTL, counters, and whether the sender has the job queued. A holder that has it queued
//! too keeps it so and says so, unless the sender does: then it gives way, as it would to a QUEUED.
//! It confirms by GOTJOB with the digest of the stamp. The mover tells again who did not, after a
//! second, then after waits that double as those of acks do, and whenever a link comes up. Who
//! learns of a move passes it on, once, where more nodes may have the job than copies were asked
//! for: some were lent it, and perhaps only their lender knows them.
//!
//! **Messages that crossed it.** QUEUED, WORKING and WILLQUEUE carry the digest of the move that
//! their sender knows. One that differs speaks of a job in another place: it changes nothing, and is
//! answered by MOVED. A lower stamp is answered by MOVED too, so of two nodes that differ one
//! always learns. Records carry the stamp, and are a MOVED for those who know less.
//!
//! **C nodes** know nothing of all this and keep the job in its old queue. They are sent WORKING
//! once, which takes it out of there and has them wait for a retry, and ask before they queue it,
//! which they would not do after a producer's delay; then WILLQUEUE, which makes this node one of
//! those that they ask. Whenever they ask, or say that they queued it, they are answered
//! WORKING again. It is not lent to a C node that has it in another queue. If no able
//! holder is left, the job comes back in the queue where C nodes have it: at least once.
//!
//! A job with RETRY 0 has one holder, which may have delivered it already; it is moved only where it
//! cannot have been, and nobody is told.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::base::ids::JobId;
use crate::base::time::{MonoMs, UnixMs};
use crate::proto::attributes::{Attributes, KeptAttributes, Tag};
use crate::proto::bus::{Abilities, Message, MessageFlags};
use crate::proto::facts::{self, Facts};
use crate::proto::job_record::{JobRecord, STATE_QUEUED};
use crate::proto::moved::{MoveStamp, Moved};
use crate::proto::priority::Priority;

use super::jobs::{HeldFor, JobFlags, JobPlace, JobRef, JobState, Knows};
use super::messages::Postponed;
use super::node_set::{ME, NodeRef};
use super::records::Storage;
use super::trace::{Event, QueuedFor};
use super::{Engine, More};

/// The end of a job's TTL travels in seconds; one that differs by no more than this is the same.
const SAME_END_MS: u64 = 2000;

/// What a move makes of a job.
#[derive(Clone, Copy)]
pub(super) struct Move<'a> {
    /// Where it goes; the queue's own name promotes a job within it. Pauses do not matter here.
    pub queue: &'a [u8],
    /// The facts of a job that dies by this move, as attribute 3 has them. Facts of an earlier
    /// death become history by any move.
    pub facts: Option<&'a [u8]>,
    /// Another end of the TTL.
    pub expire_at: Option<MonoMs>,
    /// Another priority.
    pub priority: Option<Priority>,
    pub then: Then,
}

/// What a job does in its new queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It is queued if it was; an active one stays so until its time.
    Stays,
    /// It is queued at once, which counts nothing.
    IsQueued,
    /// It is queued in so many seconds.
    IsHeld(u32),
}

/// Walks over the moves that are being told, for nodes to which a link was made: the slot of the
/// next job.
#[derive(Default)]
pub(super) struct MoveResend(BTreeMap<NodeRef, u32>);

impl MoveResend {
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Moves made on this node.
impl Engine {
    /// Moves a job, here and on its other holders. Counters begin anew for a job that dies by it, or
    /// was dead. `false`, with nothing done, for a job that waits for copies or is acked, for one
    /// with RETRY 0 that may have been delivered, for one that is about to die as its TTL is over,
    /// unless it gets another, and where a record cannot hold what the job has.
    pub(super) fn move_job(&mut self, r: JobRef, to: &Move<'_>) -> bool {
        if !self.may_be_moved(r) || (self.jobs[r].awaits_burial() && to.expire_at.is_none()) {
            return false;
        }
        let Some(stamp) = self.next_stamp(r) else { return false };
        let known = self.jobs.record_attributes(r);
        let begins_anew = to.facts.is_some() || known.facts().is_some();
        let Some(attributes) = self.attributes_of_move(r, stamp, to.facts) else { return false };
        self.jobs.set_attributes(r, attributes);
        if self.jobs[r].is_traced() {
            self.trace_move(r, to.queue, None);
        }
        let queue = self.queues.entry(to.queue);
        let job = &self.jobs[r];
        let place = JobPlace {
            queue,
            priority: to.priority.unwrap_or(job.priority()),
            expire_at: to.expire_at.unwrap_or(job.expire_at()),
            nack_count: if begins_anew { 0 } else { job.nack_count() },
            delivery_count: if begins_anew { 0 } else { job.delivery_count() },
        };
        // One that was never queued goes on waiting for its first time.
        let is_new = job.is_at_most_once() || (job.is_delayed() && !job.is_held());
        let was_queued = self.dequeue(r);
        self.relocate(r, place);
        match to.then {
            Then::Stays if !was_queued => {}
            Then::Stays | Then::IsQueued => {
                let retry_at = self.retry_at(self.jobs[r].retry_secs);
                self.jobs.queue_as_moved(r, retry_at);
                self.insert_into_queue(r);
                self.trace(r, || Event::Queued(QueuedFor::Move));
            }
            Then::IsHeld(secs) => {
                let ms = u64::from(secs) * 1000;
                self.trace(r, || Event::Held { why: HeldFor::Delay, ms });
                let at = self.now.mono.plus_ms(u64::from(secs) * 1000);
                if is_new {
                    self.jobs.wait_as_first(r, at);
                } else {
                    self.jobs.hold(r, at, HeldFor::Delay);
                }
            }
        }
        self.log_loadjob(r);
        if !self.jobs[r].is_at_most_once() {
            self.tell_move(r);
        }
        true
    }

    /// Moves a dead letter to the queue where it died, with the TTL that it was added with; if its
    /// reason is what is wanted, and that queue takes jobs.
    pub(super) fn redrive(&mut self, r: JobRef, wants: impl Fn(&Facts<'_>) -> bool) -> bool {
        let Some(value) = self.jobs.record_attributes(r).facts() else { return false };
        let value = value.into_owned();
        let Some(facts) = Facts::decode(&value).filter(wants) else { return false };
        if facts.origin.is_empty() {
            return false;
        }
        if self.queues.find_live(facts.origin).is_some_and(|queue| queue.pause.is_in()) {
            return false;
        }
        let expire_at = self.now.mono.plus_ms(u64::from(facts.ttl_secs) * 1000);
        let to = Move {
            queue: facts.origin,
            facts: None,
            expire_at: Some(expire_at),
            priority: None,
            then: Then::IsQueued,
        };
        self.move_job(r, &to)
    }

    fn may_be_moved(&self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        let was_delivered = job.flags().contains(JobFlags::DELIVERED);
        match job.state() {
            JobState::WaitRepl | JobState::Acked => false,
            JobState::Queued => !job.is_at_most_once() || !was_delivered,
            JobState::Active => !job.is_at_most_once() || job.is_delayed(),
        }
    }

    /// Later than what is known of the job's moves. `None` behind the last stamp that there is.
    fn next_stamp(&self, r: JobRef) -> Option<MoveStamp> {
        let after = self.jobs.move_stamp(r).map_or(UnixMs(1), |stamp| stamp.at.plus_ms(1));
        MoveStamp::new(self.now.wall.max(after), *self.cluster.my_id())
    }

    fn attributes_of_move(
        &self,
        r: JobRef,
        stamp: MoveStamp,
        facts: Option<&[u8]>,
    ) -> Option<KeptAttributes> {
        let known = self.jobs.record_attributes(r);
        let limits = known.find(Tag::LIMITS).map(|limits| (Tag::LIMITS, limits));
        let facts = match facts {
            Some(facts) => Some(Cow::Borrowed(facts)),
            None => known.find(Tag::FACTS).map(|facts| Cow::Owned(facts::as_history(&facts))),
        };
        let facts = facts.map(|facts| (Tag::FACTS, facts));
        let of_move = limits.into_iter().chain(facts);
        Attributes::after_move(self.jobs.attributes(r), stamp, of_move)
    }

    /// Changes the place of a job that is in no queue.
    fn relocate(&mut self, r: JobRef, place: JobPlace) {
        let before = self.jobs[r].queue;
        self.queues.use_name(place.queue);
        self.jobs.relocate(r, place);
        self.queues.release_name(before);
        self.note_if_dead(r);
    }
}

/// Telling others.
impl Engine {
    /// Tells the holders of a job's last move, those that do not know it yet, and tells them again
    /// until they do.
    pub(super) fn tell_move(&mut self, r: JobRef) {
        let untold: Vec<NodeRef> =
            self.jobs.may_have(r).iter().copied().filter(|node| self.is_untold(r, *node)).collect();
        self.tell_nodes(r, &untold);
        if untold.iter().any(|node| self.is_untold(r, *node)) {
            let at = self.collect_again_at(self.jobs.tell_attempts(r));
            self.jobs.tell_again(r, at);
        } else {
            self.jobs.stop_telling(r);
        }
    }

    /// A job was loaded from the file. What the others know of its last move is not in there: if
    /// this node made the move, they are told again.
    pub(super) fn tell_own_move_again(&mut self, r: JobRef) {
        let is_own = self.jobs.move_stamp(r).is_some_and(|stamp| stamp.by == *self.cluster.my_id());
        if is_own && !self.jobs[r].is_at_most_once() {
            let at = self.collect_again_at(0);
            self.jobs.tell_again(r, at);
        }
    }

    fn is_untold(&self, r: JobRef, node: NodeRef) -> bool {
        let knows_enough = match self.jobs.knows(r, node) {
            Some(Knows::Place) => true,
            // A C node that came back as one that understands more.
            Some(Knows::Holder) => !self.cluster.is_able(node, Abilities::ATTRIBUTES),
            None => false,
        };
        node != ME && self.cluster.is_known(node) && !knows_enough
    }

    fn tell_nodes(&mut self, r: JobRef, nodes: &[NodeRef]) {
        let (able, others) = self.cluster.by_ability(nodes, Abilities::ATTRIBUTES);
        self.send_moved(r, &able);
        // Who has yet to say what it is able to is told when it has.
        let is_plain = |node: &NodeRef| {
            self.cluster.is_linked(*node) && !self.cluster.may_be_able(*node, Abilities::ATTRIBUTES)
        };
        let plain: Vec<NodeRef> = others.into_iter().filter(is_plain).collect();
        let id = self.jobs[r].id;
        let working = Message::Working { id, hold_secs: 0 };
        self.send_about(r, &plain, MessageFlags::NONE, &working);
        self.send_about(r, &plain, MessageFlags::NONE, &Message::WillQueue(id));
        plain.iter().for_each(|node| self.jobs.note_knows(r, *node, Knows::Holder));
    }

    /// Says where a job is, as far as this node knows.
    pub(super) fn send_moved(&mut self, r: JobRef, to: &[NodeRef]) {
        if to.is_empty() {
            return;
        }
        let attributes = self.jobs.record_attributes(r).of_move();
        let job = &self.jobs[r];
        let ttl_secs = job.expire_at().ms_since(self.now.mono).div_ceil(1000);
        let moved = Moved {
            id: job.id,
            stamp: self.jobs.move_stamp(r),
            is_queued: job.is_queued(),
            is_lease: job.held_for() == Some(HeldFor::Work),
            flags: self.jobs.flags_of_record(r).0,
            nacks: job.nack_count(),
            deliveries: job.delivery_count(),
            ttl_secs: u32::try_from(ttl_secs).unwrap_or(u32::MAX),
            hold_secs: match job.is_held() || job.is_delayed() {
                true => self.hold_secs_left(r),
                false => 0,
            },
            queue: &self.queues[job.queue].name,
            attributes: attributes.as_ref().map(KeptAttributes::as_attributes).unwrap_or_default(),
        };
        self.cluster.send(&mut self.out, to, MessageFlags::NONE, &Message::Moved(moved));
    }

    /// GOTJOB with a digest: a node knows of a move, perhaps of the last one.
    pub(super) fn on_move_confirmed(&mut self, from: NodeRef, r: JobRef, move_digest: u32) {
        if move_digest != 0 && move_digest == u32::from(self.jobs.move_digest(r)) {
            self.jobs.note_knows(r, from, Knows::Place);
            if !self.jobs.may_have(r).iter().any(|node| self.is_untold(r, *node)) {
                self.jobs.stop_telling(r);
            }
        }
    }

    /// A link to a node was made, or it said what it is able to: it is told of the moves that it
    /// does not know of.
    pub(super) fn resend_moves(&mut self, node: NodeRef) {
        if self.jobs.next_to_tell(0).is_some() {
            self.move_resend.0.insert(node, 0);
        }
    }

    /// Goes on with a walk, for up to about `budget` moves.
    pub(super) fn resend_some_moves(&mut self, budget: &mut usize) -> More {
        let Some((node, mut slot)) = self.move_resend.0.pop_first() else { return More::No };
        while let Some(r) = self.jobs.next_to_tell(slot) {
            if *budget == 0 {
                self.move_resend.0.insert(node, slot);
                return More::Yes;
            }
            *budget -= 1;
            slot = r.slot() + 1;
            if self.jobs.may_have(r).contains(&node) && self.is_untold(r, node) {
                self.tell_nodes(r, &[node]);
            }
        }
        More::Yes
    }

    /// The moves of the jobs that a node asked about, whose attributes it lost.
    pub(super) fn send_moves_of(&mut self, ids: impl Iterator<Item = JobId>, to: NodeRef) {
        for id in ids {
            if let Some(r) = self.jobs.find(&id)
                && self.jobs.move_stamp(r).is_some()
            {
                self.send_moved(r, &[to]);
            }
        }
    }
}

/// What others say.
impl Engine {
    /// MOVED: where a job is, as far as another node knows.
    pub(super) fn on_moved(&mut self, from: NodeRef, moved: &Moved<'_>) {
        if self.is_acked_here(&moved.id) {
            self.send_set_ack(from, moved.id);
            return;
        }
        let Some(r) = self.jobs.find(&moved.id) else { return };
        self.jobs.add_may_have(r, from);
        let known = self.jobs.move_stamp(r);
        if moved.stamp < known {
            self.send_moved(r, &[from]);
            return;
        }
        if moved.stamp > known {
            self.take_over_move(from, r, moved);
        } else if self.follows_others(r) && (moved.is_queued || moved.hold_secs > 0) {
            // The move was known, passed on by another holder that does not have it so.
            let why = if moved.is_lease { Postponed::Working } else { Postponed::Queued };
            self.give_way(from, r, why, moved.hold_secs, MessageFlags::NONE);
        }
        if moved.stamp.is_some() {
            self.jobs.note_knows(r, from, Knows::Place);
            self.confirm_copy(from, r);
        }
    }

    /// Takes over the move in a record of a job that is known here, if it is the later one. Returns
    /// whether the record knows at least as much as this node.
    pub(super) fn learn_place(&mut self, from: NodeRef, r: JobRef, record: &JobRecord<'_>) -> bool {
        let known = self.jobs.move_stamp(r);
        let had_attributes = JobFlags(record.flags).contains(JobFlags::HAD_ATTRIBUTES);
        let stamp = if had_attributes { record.attributes.move_stamp() } else { None };
        if stamp > known {
            let moved = Moved {
                id: record.id,
                stamp,
                is_queued: record.state == STATE_QUEUED,
                is_lease: false,
                flags: record.flags,
                nacks: record.nacks,
                deliveries: record.deliveries,
                ttl_secs: record.expiry,
                hold_secs: record.delay_secs,
                queue: record.queue,
                attributes: record.attributes,
            };
            self.take_over_move(from, r, &moved);
            self.jobs.note_knows(r, from, Knows::Place);
        }
        stamp >= known
    }

    /// Another node moved a job, later than what is known here. Nothing is done while the append
    /// only file fails: whole records would gather in memory, and the mover tells it again.
    fn take_over_move(&mut self, from: NodeRef, r: JobRef, moved: &Moved<'_>) {
        let Some(stamp) = moved.stamp.filter(|_| self.storage != Storage::Fails) else { return };
        let attributes =
            Attributes::after_move(self.jobs.attributes(r), stamp, moved.attributes.iter());
        let Some(attributes) = attributes else { return };
        // They begin anew where the job died, or was dead; else each node may have missed some.
        let facts_before = self.jobs.record_attributes(r).find(Tag::FACTS).map(Cow::into_owned);
        let begins_anew =
            attributes.as_attributes().find(Tag::FACTS).as_deref() != facts_before.as_deref();
        self.jobs.set_attributes(r, attributes);
        if self.jobs[r].is_traced() {
            self.trace_move(r, moved.queue, Some(from));
        }
        let was_queued = self.jobs[r].is_queued();
        if was_queued {
            self.take_out_of_queue(r);
        }
        let queue = self.queues.entry(moved.queue);
        let told_end = self.now.mono.plus_ms(u64::from(moved.ttl_secs) * 1000);
        let known_end = self.jobs[r].expire_at();
        let differ_ms = told_end.ms_since(known_end).max(known_end.ms_since(told_end));
        let place = JobPlace {
            queue,
            priority: Priority::of_flags(moved.flags),
            expire_at: if differ_ms > SAME_END_MS { told_end } else { known_end },
            nack_count: match begins_anew {
                true => moved.nacks,
                false => moved.nacks.max(self.jobs[r].nack_count()),
            },
            delivery_count: match begins_anew {
                true => moved.deliveries,
                false => moved.deliveries.max(self.jobs[r].delivery_count()),
            },
        };
        self.relocate(r, place);
        let gives_way = self.follows_others(r) && (moved.is_queued || moved.hold_secs > 0);
        if was_queued && gives_way {
            self.jobs.dequeue(r);
        } else if was_queued {
            self.insert_into_queue(r);
            // What was said of that before the move changes nothing any more.
            let queued = Message::Queued { id: moved.id, hold_secs: 0 };
            self.send_about(r, &[from], MessageFlags::NONE, &queued);
        }
        if gives_way && moved.is_queued {
            self.jobs.note_elsewhere(r);
            self.postpone(r);
        } else if gives_way {
            let why = if moved.is_lease { Postponed::Working } else { Postponed::Queued };
            self.on_hold_elsewhere(from, r, why, moved.hold_secs);
        }
        if self.jobs[r].is_for_file() {
            self.log_loadjob(r);
        }
        self.pass_move_on(r, from);
    }

    /// Whether it matters here what other nodes have of a job. An at-most-once job has no second
    /// holder that could deliver it; one that waits for copies is nobody else's to queue.
    fn follows_others(&self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        !job.is_at_most_once()
            && !job.awaits_burial()
            && matches!(job.state(), JobState::Active | JobState::Queued)
    }

    fn pass_move_on(&mut self, r: JobRef, from: NodeRef) {
        let holders = self.jobs.may_have(r);
        if holders.len() <= usize::from(self.jobs[r].repl) {
            return;
        }
        let is_other = |node: &NodeRef| {
            *node != ME && *node != from && self.cluster.is_able(*node, Abilities::ATTRIBUTES)
        };
        let others: Vec<NodeRef> = holders.iter().copied().filter(is_other).collect();
        self.send_moved(r, &others);
    }

    /// Whether a message about a job comes from a node that knows of another move of it. Then the
    /// node is told where the job is.
    pub(super) fn answer_other_move(
        &mut self,
        from: NodeRef,
        r: JobRef,
        flags: MessageFlags,
    ) -> bool {
        if flags.move_digest == self.jobs.move_digest(r) {
            return false;
        }
        let is_able = flags.move_digest != 0 || self.cluster.is_able(from, Abilities::ATTRIBUTES);
        if is_able {
            self.send_moved(r, &[from]);
        }
        is_able
    }

    /// Whether a C node that queues a job, or is about to, has it in another queue. Then it is
    /// told to wait: the job will come from here.
    pub(super) fn answer_from_old_queue(&mut self, from: NodeRef, r: JobRef) -> bool {
        if !self.is_elsewhere_on(from, r) {
            return false;
        }
        let job = &self.jobs[r];
        if !job.is_queued() && !job.may_be_queued() {
            return false;
        }
        let working = Message::Working { id: job.id, hold_secs: 0 };
        self.send_about(r, &[from], MessageFlags::NONE, &working);
        true
    }

    /// Whether a node may have a job that was moved, and does not know so.
    pub(super) fn is_elsewhere_on(&self, node: NodeRef, r: JobRef) -> bool {
        self.jobs.move_stamp(r).is_some()
            && !self.cluster.is_able(node, Abilities::ATTRIBUTES)
            && self.jobs.may_have(r).contains(&node)
            && self.jobs.knows(r, node) != Some(Knows::Place)
    }
}
