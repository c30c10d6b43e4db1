//! Holds: a job that waits for a time of its own, by a NACK with a delay or for a lease.
//!
//! The node that took the NACK or the lease *holds* the job: it is active there and comes back
//! at that time, exactly. Left alone, the other holders would queue it after a retry, so they are
//! told for how long: in the number of a QUEUED (a NACK) or of a WORKING (a lease) that is of no
//! use otherwise. They take the job out of their queue, whatever the ranks, and wait until the
//! hold is over and a retry longer: should the holding node die, they come then.
//!
//! A C node does not read the number. It gets WORKING, which takes the job out of its queue,
//! then QUEUED for the counter, then WILLQUEUE. QUEUED alone would take it out only if we
//! rank higher, and be answered QUEUED otherwise; WILLQUEUE makes one that lent us the job know
//! that we have it. So it asks with WILLQUEUE, a retry later, and then again: while the hold lasts
//! each of these is answered, by a message to that node only. Whoever queued or lent the job
//! before it learned of the hold is answered the same, as a late word must not leave the job in a
//! queue. Only a node that holds answers, so no two nodes put each other off for ever.
//!
//! What a client says later ends a hold, on whichever node it says so. A NACK or an ENQUEUE there
//! ends it in any case. A WORKING ends a lease; a job that waits for its delay waits for that, and
//! at least for the time of the client that works on it.
//!
//! Two nodes may hold one job, since two clients had it or one client speaks to both. A delay
//! goes before a lease; of two delays that of the node that ranks higher stays, of two leases the
//! longer one. Who goes on says so, and the other is a holder like all.
//!
//! The records of a job that was never moved do not know of holds: after a restart the job comes
//! when its retry is over.

use crate::proto::bus::{Abilities, Message, MessageFlags};

use super::Engine;
use super::jobs::{HeldFor, JobRef, Nack};
use super::messages::Postponed;
use super::node_set::NodeRef;
use super::trace::{By, Event};

impl Engine {
    /// NACK with a delay: an active job waits for so many ms. An at-most-once job does not
    /// (`false`).
    pub(super) fn hold_after_nack(&mut self, r: JobRef, ms: u64, nack: Nack) -> bool {
        let job = &self.jobs[r];
        if job.is_at_most_once() || !job.may_be_queued() {
            return false;
        }
        self.trace(r, || Event::Held { why: HeldFor::Delay, ms });
        self.hold(r, ms, HeldFor::Delay);
        let secs = self.hold_secs_left(r);
        let counts = nack == Nack::Yes;
        if counts {
            self.jobs.count_nack(r);
        }
        let flags = if counts { MessageFlags::INCR_NACKS } else { MessageFlags::NONE };
        let id = self.jobs[r].id;
        let (able, plain) = self.holders_by_ability(r);
        let queued = Message::Queued { id, hold_secs: secs };
        let working = Message::Working { id, hold_secs: secs };
        self.send_about(r, &able, flags, &queued);
        self.send_about(r, &plain, MessageFlags::NONE, &working);
        if counts {
            self.send_about(r, &plain, flags, &queued);
        }
        self.send_about(r, &plain, MessageFlags::NONE, &Message::WillQueue(id));
        true
    }

    /// A client has an active at-least-once job for so many seconds.
    pub(super) fn lease(&mut self, r: JobRef, secs: u32) {
        self.hold(r, u64::from(secs) * 1000, HeldFor::Work);
        let id = self.jobs[r].id;
        let (_, plain) = self.holders_by_ability(r);
        let working = Message::Working { id, hold_secs: secs };
        self.send_to_holders(r, MessageFlags::NONE, &working);
        self.send_about(r, &plain, MessageFlags::NONE, &Message::WillQueue(id));
    }

    fn hold(&mut self, r: JobRef, ms: u64, why: HeldFor) {
        self.jobs.hold(r, self.now.mono.plus_ms(ms), why);
    }

    /// Tells the holders that a client had a job queued here now, and what that counts. It ends a
    /// hold elsewhere.
    pub(super) fn tell_queued_by_client(&mut self, r: JobRef, counted: MessageFlags) {
        let queued = Message::Queued { id: self.jobs[r].id, hold_secs: 0 };
        let (able, plain) = self.holders_by_ability(r);
        self.send_about(r, &able, counted.with(MessageFlags::BY_CLIENT), &queued);
        self.send_about(r, &plain, counted, &queued);
    }

    /// A job that was held is queued, which able holders were told to expect: their retry counts
    /// from then. C nodes were told to wait for a retry whenever they asked, and would come soon.
    pub(super) fn tell_plain_of_end(&mut self, r: JobRef) {
        let (_, plain) = self.holders_by_ability(r);
        let queued = Message::Queued { id: self.jobs[r].id, hold_secs: 0 };
        self.send_about(r, &plain, MessageFlags::NONE, &queued);
    }

    /// The nodes that may have a job: those that know of holds, and C nodes. One that has not
    /// said yet what it can do is sent what both understand.
    fn holders_by_ability(&self, r: JobRef) -> (Vec<NodeRef>, Vec<NodeRef>) {
        self.cluster.by_ability(self.jobs.may_have(r), Abilities::HOLDS)
    }

    /// For how many seconds this node still holds a job, rounded up.
    pub(super) fn hold_secs_left(&self, r: JobRef) -> u32 {
        let left_ms = self.jobs[r].requeue_at().ms_since(self.now.mono);
        u32::try_from(left_ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1)
    }

    /// Answers a node that does not know of the hold of this node.
    pub(super) fn answer_hold(&mut self, to: NodeRef, r: JobRef) {
        let id = self.jobs[r].id;
        let hold_secs = self.hold_secs_left(r);
        let is_able = self.cluster.is_able(to, Abilities::HOLDS);
        let message = match self.jobs[r].held_for() {
            Some(HeldFor::Delay) if is_able => Message::Queued { id, hold_secs },
            _ => Message::Working { id, hold_secs },
        };
        self.send_about(r, &[to], MessageFlags::NONE, &message);
    }

    /// QUEUED or WORKING with a number: another node holds the job for so many seconds.
    pub(super) fn on_hold_elsewhere(
        &mut self,
        from: NodeRef,
        r: JobRef,
        why: Postponed,
        secs: u32,
    ) {
        let goes_on = match (self.jobs[r].held_for(), why) {
            (None, _) | (Some(HeldFor::Work), Postponed::Queued) => false,
            (Some(HeldFor::Delay), Postponed::Working) => true,
            (Some(HeldFor::Delay), Postponed::Queued) => !self.outranks_me(from, r),
            (Some(HeldFor::Work), Postponed::Working) => {
                let left = self.hold_secs_left(r);
                left > secs || left == secs && !self.outranks_me(from, r)
            }
        };
        if goes_on {
            self.answer_hold(from, r);
            return;
        }
        if !self.jobs[r].is_at_most_once() {
            self.trace(r, || match why {
                Postponed::Working => Event::Working(By::Node(from)),
                Postponed::Queued => Event::HeldElsewhere(from),
            });
            self.dequeue(r);
            if why == Postponed::Queued {
                self.jobs.note_elsewhere(r);
            }
            let secs = u64::from(secs) + u64::from(self.jobs[r].retry_secs);
            let retry_at = self.with_jitter(self.now.mono.plus_ms(secs * 1000));
            self.jobs.postpone(r, retry_at);
        }
    }

    /// QUEUED or WORKING without a number came for a job that this node holds.
    pub(super) fn on_postponed_while_held(
        &mut self,
        from: NodeRef,
        r: JobRef,
        why: Postponed,
        flags: MessageFlags,
    ) {
        let of_client = flags.contains(MessageFlags::INCR_NACKS)
            || flags.contains(MessageFlags::BY_CLIENT)
            || why == Postponed::Working;
        if !of_client {
            self.answer_hold(from, r);
            return;
        }
        let retry_at = self.retry_at(self.jobs[r].retry_secs);
        let is_at_work = why == Postponed::Working;
        let waits_on = is_at_work
            && self.jobs[r].held_for() == Some(HeldFor::Delay)
            && self.jobs[r].requeue_at() >= retry_at;
        if why == Postponed::Queued {
            self.jobs.note_elsewhere(r);
        }
        if !waits_on {
            self.jobs.postpone(r, retry_at);
        }
    }
}
