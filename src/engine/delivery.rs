//! A job's way into its queue, out of it to a client, back again, and out of this node.
//!
//! Nobody is in charge of a job. Each holder has a copy and a time of its own at which the job
//! goes back to its queue if no acknowledgement came, so that the loss of any holder delays a
//! delivery and does not prevent it. Left alone, each holder would deliver the job again after
//! each retry. Three messages keep them in step. A holder that queues a job once more sends
//! QUEUED, and the others count their retry anew from then on. Half a second before its time it
//! sends WILLQUEUE: who has the job queued answers QUEUED, who has it acked answers SETACK, and
//! it need not be queued again. A client's WORKING postpones it on all of them. None of these is
//! confirmed. One that is lost costs a delivery too many, never one too few; that is the side
//! on which an at-least-once queue has to err. Times are drawn with a jitter of half a second,
//! since holders that count from the same message would otherwise all come at once.
//!
//! The first enqueue of a job is silent. It is made by the node that took the job from its
//! producer, or by one that was asked for it or borrowed it, and the other holders wait for a
//! whole retry anyhow. So a job that is acknowledged in time costs no message but its copies and
//! its ack.
//!
//! Retry counts from the moment a job is queued and not from its delivery: the other holders
//! know when it was queued, and no message says when a client fetched it. A fetch therefore
//! leaves the requeue time alone. With `retry-from delivery` it counts from the fetch where that
//! makes a difference: a job that waited here for a quarter of its retry or longer, or for an
//! unknown time, is postponed as by a client's WORKING. A lender does so too, with QUEUED, but for
//! the borrower, which is about to queue the job. What a C node lent may come back from it at any
//! moment, so its wait counts as unknown.
//!
//! An at-most-once job has one copy, which is queued once. It leaves the append only file
//! before it leaves the server, lest a restart deliver it again.

use crate::base::ranked::Ranked as _;
use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags};
use crate::proto::facts::DeathReason;

use super::Engine;
use super::blocked::Wait;
use super::endings::JobEnding;
use super::error::CommandError;
use super::jobs::{Announced, Job, JobRef, JobState, Nack, NewJob};
use super::need_jobs::Need;
use super::node_set::NodeRef;
use super::policy::RetryFrom;
use super::queue::QueueRef;
use super::trace::{Event, Gone};

/// Whom a job is fetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A client, which may say for how long it is to have the job.
    Client { lease_secs: Option<u32> },
    /// A node that the job is lent to, where a client waits for it.
    Node(NodeRef),
    /// A node that it is lent to because jobs there are worse. It may wait there.
    NodeWithWorse(NodeRef),
}

impl Engine {
    /// When a job that is queued now comes back if nobody acknowledges it. `NEVER` for an
    /// at-most-once job.
    pub(super) fn retry_at(&mut self, retry_secs: u32) -> MonoMs {
        if retry_secs == 0 {
            return MonoMs::NEVER;
        }
        let at = self.now.mono.plus_ms(u64::from(retry_secs) * 1000);
        self.with_jitter(at)
    }

    /// Takes in a job that is new here, active, and came by this event.
    pub(super) fn register(&mut self, new: NewJob, came: impl FnOnce() -> Event) -> JobRef {
        self.queues.use_name(new.queue);
        let r = self.jobs.insert(new);
        self.begin_trace(r, came);
        r
    }

    /// Takes in a job that is new here and queued at once. Holders are not sent QUEUED; those of
    /// a job that was restored at a start are asked about it later, see [`super::restored`].
    pub(super) fn register_queued(&mut self, new: NewJob, came: impl FnOnce() -> Event) -> JobRef {
        self.queues.use_name(new.queue);
        let retry_at = self.retry_at(new.retry_secs);
        let r = self.jobs.insert_queued(new, retry_at);
        self.begin_trace(r, came);
        self.insert_into_queue(r);
        if self.jobs[r].is_traced() {
            self.trace_first_queued(r);
        }
        r
    }

    /// Puts a job into its queue. Refused (`false`) for one that is queued, one that
    /// will not be queued again, and an at-most-once job that was delivered here.
    pub(super) fn enqueue(&mut self, r: JobRef, nack: Nack) -> bool {
        let job = &self.jobs[r];
        if !job.may_be_queued() {
            return false;
        }
        let (id, was_held, retry_secs) = (job.id, job.is_held(), job.retry_secs);
        if job.is_traced() {
            self.trace_queued(r, nack);
        }
        let retry_at = self.retry_at(retry_secs);
        if self.jobs.queue(r, retry_at, nack) == Announced::No {
            if was_held {
                self.tell_plain_of_end(r);
            }
        } else {
            let queued = Message::Queued { id, hold_secs: 0 };
            match nack {
                Nack::Yes => self.send_to_holders(r, MessageFlags::INCR_NACKS, &queued),
                Nack::No => self.send_to_holders(r, MessageFlags::INCR_DELIV, &queued),
                Nack::Uncounted => self.tell_queued_by_client(r, MessageFlags::NONE),
                Nack::Enqueued => self.tell_queued_by_client(r, MessageFlags::INCR_DELIV),
            }
        }
        self.insert_into_queue(r);
        true
    }

    /// ENQUEUE: a client has an active job queued, unless that would be a delivery too many.
    pub(super) fn enqueue_by_hand(&mut self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        // One that waits since it was given back has been counted then.
        let nack = if job.is_given_back() { Nack::Uncounted } else { Nack::Enqueued };
        if job.is_in_flight()
            && self.is_at_its_limit(r)
            && self.bury(r, DeathReason::MaxDeliveries, Nack::No)
        {
            return true;
        }
        self.enqueue(r, nack)
    }

    /// A queued job that is in no queue yet goes into its own.
    pub(super) fn insert_into_queue(&mut self, r: JobRef) {
        let q = self.jobs[r].queue;
        let queue = self.queues.revive(q, self.now.mono);
        queue.accessed_at = self.now.mono;
        queue.jobs_in += 1;
        queue.jobs.insert(self.jobs.table(), r);
        self.queues.mark_ready(q);
        if self.queued_times.is_some() {
            self.note_queued(r);
        }
        let rank = self.jobs[r].rank();
        if rank < Job::COMMON {
            self.note_urgent(q, rank);
        }
    }

    /// Takes a job out of its queue without delivering it; `false` when it is not queued.
    pub(super) fn dequeue(&mut self, r: JobRef) -> bool {
        if !self.jobs[r].is_queued() {
            return false;
        }
        self.take_out_of_queue(r);
        self.jobs.dequeue(r);
        true
    }

    /// Takes a queued job out of its queue. It is still queued as far as it knows: its queue is
    /// about to be another one.
    pub(super) fn take_out_of_queue(&mut self, r: JobRef) {
        let queue =
            self.queues[self.jobs[r].queue].live_mut().expect("a queued job's queue is live");
        let was_there = queue.jobs.remove(self.jobs.table(), r);
        assert!(was_there, "a queued job is in its queue");
    }

    /// The next requeue is a retry away from now. An at-most-once job keeps its time.
    pub(super) fn postpone(&mut self, r: JobRef) {
        if !self.jobs[r].is_at_most_once() {
            let retry_at = self.retry_at(self.jobs[r].retry_secs);
            self.jobs.postpone(r, retry_at);
        }
    }

    /// Takes the first job of a queue for delivery, here or on another node. An
    /// at-most-once job leaves the append only file before it leaves the server.
    pub(super) fn fetch(&mut self, q: QueueRef, taker: Taker) -> Option<JobRef> {
        let r = match taker {
            Taker::Client { .. } => self.queues[q].live_mut()?.jobs.pop_first()?,
            Taker::Node(node) | Taker::NodeWithWorse(node) => {
                // Behind the jobs that this node has in another queue.
                match self.first_to_lend(q, node)? {
                    None => self.queues[q].live_mut()?.jobs.pop_first()?,
                    Some(r) => {
                        self.fetch_this(q, r, taker);
                        return Some(r);
                    }
                }
            }
        };
        self.hand_out(q, r, taker);
        Some(r)
    }

    /// As [`Engine::fetch`], for a job of the queue that need not be the first.
    #[cold]
    pub(super) fn fetch_this(&mut self, q: QueueRef, r: JobRef, taker: Taker) {
        let queue = self.queues[q].live_mut().expect("a queued job's queue is live");
        let was_there = queue.jobs.remove(self.jobs.table(), r);
        assert!(was_there, "a queued job is in its queue");
        self.hand_out(q, r, taker);
    }

    /// What a fetch is beside taking the job out of its queue.
    #[inline]
    fn hand_out(&mut self, q: QueueRef, r: JobRef, taker: Taker) {
        let entry = &mut self.queues[q];
        let has_urgent = entry.urgent.is_some();
        let queue = entry.live_mut().expect("a queued job's queue is live");
        queue.accessed_at = self.now.mono;
        queue.jobs_out += 1;
        if matches!(taker, Taker::Client { .. }) {
            queue.served_at = Some(self.now.mono);
            if self.queued_times.is_some() {
                self.note_waited(q, r);
            }
            if has_urgent {
                self.note_taken(q);
            }
        }
        // What waits on in another queue would be queued here again meanwhile.
        let is_queued_anew = matches!(taker, Taker::NodeWithWorse(_));
        let may_count_anew = is_queued_anew
            || self.config.retry_from == RetryFrom::Delivery
            || !self.config.policies.is_empty();
        if may_count_anew
            && self.jobs[r].waited_long(self.now.mono)
            && (is_queued_anew || self.retry_from(q) == RetryFrom::Delivery)
            && !matches!(taker, Taker::Client { lease_secs: Some(_) })
        {
            self.deliver_anew(r, taker);
        } else {
            self.hand_over(r, taker);
        }
        if self.jobs[r].is_at_most_once() {
            self.note_ending(r, JobEnding::Delivered);
            self.log_deljob(r);
        } else if let Taker::Client { lease_secs: Some(secs) } = taker {
            self.lease(r, secs);
        }
    }

    /// What the retries of a queue's jobs count from.
    fn retry_from(&mut self, q: QueueRef) -> RetryFrom {
        let said = self.policy_of_queue(q).and_then(|policy| policy.retry_from());
        said.unwrap_or(self.config.retry_from)
    }

    fn hand_over(&mut self, r: JobRef, taker: Taker) {
        match taker {
            Taker::Client { .. } => self.jobs.deliver(r),
            Taker::Node(_) | Taker::NodeWithWorse(_) => self.jobs.lend(r),
        }
    }

    /// Delivers a job whose retry counts from now on, on all holders.
    fn deliver_anew(&mut self, r: JobRef, taker: Taker) {
        let is_borrowed = self.jobs[r].is_queued_as_borrowed();
        self.hand_over(r, taker);
        self.postpone(r);
        let id = self.jobs[r].id;
        let (borrower, message) = match taker {
            Taker::Client { .. } => (None, Message::Working { id, hold_secs: 0 }),
            // The borrower may have lent the job on to one of these already: WORKING would take it
            // out of that queue.
            Taker::Node(borrower) | Taker::NodeWithWorse(borrower) => {
                (Some(borrower), Message::Queued { id, hold_secs: 0 })
            }
        };
        let told = self.holders_but(r, borrower);
        self.send_about(r, &told, MessageFlags::NONE, &message);
        if is_borrowed {
            // A C node that lent the job does not ask us before it queues it, unless we asked.
            let (_, plain) = self.cluster.by_ability(&told, Abilities::HOLDS);
            let will_queue = Message::WillQueue(id);
            self.send_about(r, &plain, MessageFlags::NONE, &will_queue);
        }
    }

    /// Takes the first job of a queue for a client, unless the queue is paused for output.
    pub(super) fn fetch_for_client(
        &mut self,
        q: QueueRef,
        lease_secs: Option<u32>,
    ) -> Option<JobRef> {
        if self.queues[q].live()?.pause.is_out() {
            return None;
        }
        self.fetch(q, Taker::Client { lease_secs })
    }

    /// Gives jobs to the clients that wait for them, first come first served.
    pub(super) fn serve_ready(&mut self) {
        while self.queues.has_ready() {
            for q in self.queues.take_ready() {
                self.serve_queue(q);
            }
        }
    }

    fn serve_queue(&mut self, q: QueueRef) {
        while let Some(queue) = self.queues.get(q).and_then(|entry| entry.live())
            && let Some((&order, &client)) = queue.waiters.first_key_value()
        {
            if self.blocked.is_over(client, order) {
                self.queues.leave(q, order);
                continue;
            }
            let lease_secs = self.blocked.lease_secs(client);
            let Some(r) = self.fetch_for_client(q, lease_secs) else { break };
            if self.jobs[r].is_traced() {
                self.trace_fetched(r, client, lease_secs);
            }
            let Some(Wait::Jobs(wait)) = self.blocked.end(client) else {
                unreachable!("a waiter of a queue waits for jobs");
            };
            let (view, out) = self.view_and_out();
            let mut reply = out.replies.to(client, wait.resp);
            reply.array(1);
            view.write_row(&mut reply, r, wait.extras);
            self.leave_queues(wait);
            self.resume(client);
            self.note_emptied(q);
        }
        if self.queues.get(q).is_some() {
            self.renew_standing_ask(q);
            self.serve_asks(q);
        }
    }

    /// After a fetch: an emptied queue with traffic from other nodes wants more.
    pub(super) fn note_emptied(&mut self, q: QueueRef) {
        if self.queues[q].live().is_some_and(|queue| queue.jobs.is_empty()) {
            self.request_jobs(q, Need::ReachedZero);
        }
    }

    /// Sends a message about a job to the other nodes that may have it.
    pub(super) fn send_to_holders(
        &mut self,
        r: JobRef,
        flags: MessageFlags,
        message: &Message<'_>,
    ) {
        let flags = flags.with_digest(self.jobs.move_digest(r));
        self.cluster.send(&mut self.out, self.jobs.may_have(r), flags, message);
    }

    /// The nodes that may have a job, but for one.
    pub(super) fn holders_but(&self, r: JobRef, left_out: Option<NodeRef>) -> Vec<NodeRef> {
        let holders = self.jobs.may_have(r).iter().copied();
        holders.filter(|node| left_out != Some(*node)).collect()
    }

    /// Sends some nodes a message about a job, and which move of it this node knows.
    pub(super) fn send_about(
        &mut self,
        r: JobRef,
        to: &[NodeRef],
        flags: MessageFlags,
        message: &Message<'_>,
    ) {
        let flags = flags.with_digest(self.jobs.move_digest(r));
        self.cluster.send(&mut self.out, to, flags, message);
    }

    /// A job is due: its TTL is over, its collection is to be tried, its holders are to be warned
    /// of its retry, or it goes back to its queue.
    pub(super) fn process_due(&mut self, r: JobRef) {
        let now = self.now.mono;
        let job = &self.jobs[r];
        if job.expire_at() <= now && !job.awaits_burial() {
            if !self.outlives_its_end(r) {
                log::debug!("expired {}", self.jobs[r].id);
                self.note_ending(r, JobEnding::Expired);
                self.unregister(r, Gone::Expired);
            }
            return;
        }
        if job.is_acked() {
            self.collect_due(r);
            return;
        }
        if job.warn_at() <= now {
            if job.is_active() {
                let id = job.id;
                self.send_to_holders(r, MessageFlags::NONE, &Message::WillQueue(id));
            }
            self.jobs.note_warned(r);
        }
        if self.jobs[r].requeue_at() <= now {
            self.requeue(r);
        }
    }

    /// The requeue time of an active or queued job has come.
    fn requeue(&mut self, r: JobRef) {
        let job = &self.jobs[r];
        let is_paused = self.queues[job.queue].live().is_some_and(|queue| queue.pause.is_in());
        let was_with_client = job.is_in_flight();
        if job.is_queued() {
            self.postpone(r);
        } else if job.awaits_burial() {
            if !self.bury(r, DeathReason::Expired, Nack::No) {
                self.unregister(r, Gone::Expired);
            }
        } else if was_with_client
            && self.is_at_its_limit(r)
            && self.bury(r, DeathReason::MaxDeliveries, Nack::No)
        {
            // Its worker is gone, and it was the last one.
        } else if is_paused && !self.jobs[r].is_at_most_once() {
            // At-most-once jobs are queued all the same: nobody else has them.
            let retry_at = self.retry_at(self.jobs[r].retry_secs);
            self.jobs.wait_for_pause(r, retry_at);
        } else if !self.enqueue(r, Nack::No) {
            self.jobs.retire(r);
        }
    }

    /// Ends a job here. A producer that waits for its copies gets an error, and the nodes
    /// that may have one drop it.
    pub(super) fn unregister(&mut self, r: JobRef, gone: Gone) {
        match self.jobs[r].state() {
            JobState::WaitRepl => {
                let id = self.jobs[r].id;
                self.send_to_holders(r, MessageFlags::NONE, &Message::DelJob(id));
                let wait = self.jobs.end_wait(r);
                self.blocked.end(wait.client);
                self.reply_error(wait.client, wait.resp, &CommandError::JobRemoved);
                self.resume(wait.client);
            }
            JobState::Queued => {
                self.dequeue(r);
                self.log_deljob(r);
            }
            // A delivered at-most-once job left the file when it was fetched.
            JobState::Active if !self.jobs[r].is_spent() => self.log_deljob(r),
            JobState::Active | JobState::Acked => {}
        }
        self.forget(r, gone);
    }

    /// Drops a job of which nothing outside has to know. It is in no queue.
    pub(super) fn forget(&mut self, r: JobRef, gone: Gone) -> Job {
        let job = self.jobs.remove(r);
        if job.is_traced() {
            self.end_trace(&job.id, gone);
        }
        self.queues.release_name(job.queue);
        self.note_gone(&job.id);
        job
    }
}
