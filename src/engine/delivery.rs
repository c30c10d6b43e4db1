//! A job's way into its queue, out of it to a client, back again, and out of the world.
//!
//! Retry counts from the moment a job is queued, not from its delivery: a fetch leaves
//! the requeue time alone.

use crate::base::time::MonoMs;
use crate::proto::bus::{Message, MessageFlags};

use super::Engine;
use super::blocked::{Counters, Wait};
use super::error::CommandError;
use super::jobs::job::{Job, JobFlags, JobRef, JobState, WILLQUEUE_ADVANCE_MS};
use super::need_jobs::Need;
use super::queue::QueueRef;
use crate::proto::reply::ReplyWriter;

/// Whether a job is enqueued because a client gave it back unprocessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nack {
    No,
    Yes,
}

impl Engine {
    /// When a job that is queued now comes back if nobody acknowledges it.
    pub(super) fn retry_at(&mut self, r: JobRef) -> MonoMs {
        let retry_ms = u64::from(self.jobs[r].retry_secs) * 1000;
        let at = self.now.mono.plus_ms(retry_ms);
        self.with_time_error(at)
    }

    /// Puts a job into its queue. Refused (`false`) for one that is queued, one that
    /// will not be queued again, and an at-most-once job that was delivered here.
    ///
    /// The first enqueue of a job is silent; later ones are told to the nodes that may
    /// have it, so that they do not requeue it too.
    pub(super) fn enqueue(&mut self, r: JobRef, nack: Nack) -> bool {
        let job = &self.jobs[r];
        if job.is_queued()
            || job.requeue_at == MonoMs::NEVER
            || (job.is_at_most_once() && job.flags.has(JobFlags::DELIVERED))
        {
            return false;
        }
        let at_most_once = job.is_at_most_once();
        let requeue_at = if at_most_once { MonoMs::NEVER } else { self.retry_at(r) };
        let job = &mut self.jobs[r];
        job.set_state(JobState::Queued);
        job.requeue_at = requeue_at;
        if !at_most_once {
            job.flags.set(JobFlags::BROADCAST_WILLQUEUE);
        }
        if nack == Nack::Yes || job.flags.has(JobFlags::BROADCAST_QUEUED) {
            let flags = match nack {
                Nack::Yes => {
                    job.nack_count = job.nack_count.saturating_add(1);
                    MessageFlags::INCR_NACKS
                }
                Nack::No => {
                    job.delivery_count = job.delivery_count.saturating_add(1);
                    MessageFlags::INCR_DELIV
                }
            };
            let id = job.id;
            self.tell_holders(r, flags, &Message::Queued(id));
        } else {
            job.flags.set(JobFlags::BROADCAST_QUEUED);
        }
        self.insert_into_queue(r);
        true
    }

    /// Queues a job that a controlled restart found queued: nobody has to hear of it.
    pub(super) fn enqueue_silently(&mut self, r: JobRef) {
        let flags = self.jobs[r].flags;
        self.jobs[r].flags.clear(JobFlags::BROADCAST_QUEUED);
        if self.jobs[r].requeue_at == MonoMs::NEVER {
            self.jobs[r].requeue_at = self.now.mono;
        }
        self.enqueue(r, Nack::No);
        if flags.has(JobFlags::BROADCAST_QUEUED) {
            self.jobs[r].flags.set(JobFlags::BROADCAST_QUEUED);
        }
    }

    fn insert_into_queue(&mut self, r: JobRef) {
        let q = self.jobs[r].queue;
        let queue = self.queues.revive(q, self.now.mono);
        queue.accessed_at = self.now.mono;
        queue.jobs_in += 1;
        queue.jobs.insert(self.jobs.table(), r);
        self.jobs.reschedule(r);
        self.queues.mark_ready(q);
    }

    /// Takes a job out of its queue without delivering it; `false` when it is not queued.
    pub(super) fn dequeue(&mut self, r: JobRef) -> bool {
        if !self.jobs[r].is_queued() {
            return false;
        }
        let queue =
            self.queues[self.jobs[r].queue].live_mut().expect("a queued job's queue is live");
        let was_there = queue.jobs.remove(self.jobs.table(), r);
        assert!(was_there, "a queued job is in its queue");
        self.jobs[r].set_state(JobState::Active);
        true
    }

    /// A client works on the job, here or elsewhere: it leaves the queue, and its next
    /// delivery is a retry away from now.
    pub(super) fn postpone(&mut self, r: JobRef) {
        self.dequeue(r);
        self.put_off_requeue(r);
    }

    /// The next requeue is a retry away from now. An at-most-once job keeps its time.
    pub(super) fn put_off_requeue(&mut self, r: JobRef) {
        if !self.jobs[r].is_at_most_once() {
            let retry_at = self.retry_at(r);
            let job = &mut self.jobs[r];
            job.flags.set(JobFlags::BROADCAST_WILLQUEUE);
            job.requeue_at = retry_at;
            self.jobs.reschedule(r);
        }
    }

    /// Takes the oldest job of a queue for delivery, here or on another node. An
    /// at-most-once job leaves the append only file before it leaves the server.
    pub(super) fn fetch(&mut self, q: QueueRef) -> Option<JobRef> {
        let queue = self.queues[q].live_mut()?;
        let r = queue.jobs.pop_first()?;
        queue.accessed_at = self.now.mono;
        queue.jobs_out += 1;
        let job = &mut self.jobs[r];
        job.set_state(JobState::Active);
        job.flags.set(JobFlags::DELIVERED);
        if job.is_at_most_once() {
            self.log_deljob(r);
        }
        Some(r)
    }

    /// Takes the oldest job of a queue for a client, unless the queue is paused for output.
    pub(super) fn fetch_for_client(&mut self, q: QueueRef) -> Option<JobRef> {
        if self.queues[q].live()?.pause.is_out() {
            return None;
        }
        self.fetch(q)
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
            && let Some((_, &client)) = queue.waiters.first_key_value()
            && let Some(r) = self.fetch_for_client(q)
        {
            let Some(Wait::Jobs(wait)) = self.blocked.end(client) else {
                unreachable!("who stands in line waits for jobs");
            };
            self.leave_lines(&wait);
            let mut reply = self.out.replies.to(client, wait.resp);
            reply.array(1);
            write_row(&mut reply, &self.queues[q].name, &self.jobs[r], wait.counters);
            self.resume(client);
            self.note_emptied(q);
        }
        if self.queues.get(q).is_some() {
            self.keep_asking(q);
            self.serve_asks(q);
        }
    }

    /// After a fetch: an emptied queue with traffic from other nodes wants more.
    pub(super) fn note_emptied(&mut self, q: QueueRef) {
        if self.queues[q].live().is_some_and(|queue| queue.jobs.is_empty()) {
            self.need_jobs(q, Need::ReachedZero);
        }
    }

    /// Sends a message about a job to the other nodes that may have it.
    pub(super) fn tell_holders(&mut self, r: JobRef, flags: MessageFlags, message: &Message<'_>) {
        self.cluster.send(&mut self.out, self.jobs.may_have(r), flags, message);
    }

    /// A timer of a job has come.
    pub(super) fn process_due(&mut self, r: JobRef) {
        let now = self.now.mono;
        let job = &self.jobs[r];
        if job.expire_at <= now {
            log::debug!("expired {}", job.id);
            self.unregister(r);
            return;
        }
        if job.is_acked() {
            self.collect_due(r);
            return;
        }
        if job.flags.has(JobFlags::BROADCAST_WILLQUEUE)
            && job.requeue_at.minus_ms(WILLQUEUE_ADVANCE_MS) <= now
        {
            if job.is_active() {
                let id = job.id;
                self.tell_holders(r, MessageFlags::NONE, &Message::WillQueue(id));
            }
            self.jobs[r].flags.clear(JobFlags::BROADCAST_WILLQUEUE);
        }
        if self.jobs[r].requeue_at <= now {
            self.requeue(r);
        }
        self.jobs.reschedule(r);
    }

    /// The requeue time of an active or queued job has come.
    fn requeue(&mut self, r: JobRef) {
        let job = &self.jobs[r];
        let paused = self.queues[job.queue].live().is_some_and(|queue| queue.pause.is_in());
        if job.is_queued() {
            if !job.is_at_most_once() {
                let retry_at = self.retry_at(r);
                let job = &mut self.jobs[r];
                job.flags.set(JobFlags::BROADCAST_WILLQUEUE);
                job.requeue_at = retry_at;
            }
        } else if job.is_active() {
            if paused && !job.is_at_most_once() {
                // At-most-once jobs are queued all the same: nobody else has them.
                self.jobs[r].requeue_at = self.retry_at(r);
            } else if !self.enqueue(r, Nack::No) {
                self.jobs[r].requeue_at = MonoMs::NEVER;
            }
        }
    }

    /// Forgets a job and hands it to the caller, who is then its only owner. A producer
    /// that waits for its copies is told, and so are the nodes that may have one.
    pub(super) fn unregister(&mut self, r: JobRef) -> Job {
        match self.jobs[r].state() {
            JobState::WaitRepl(_) => {
                let id = self.jobs[r].id;
                self.tell_holders(r, MessageFlags::NONE, &Message::DelJob(id));
                if let Some(replication) = self.end_replication(r) {
                    self.blocked.end(replication.client);
                    self.reply_error(
                        replication.client,
                        replication.resp,
                        &CommandError::JobRemoved,
                    );
                    self.resume(replication.client);
                }
            }
            JobState::Queued => {
                self.dequeue(r);
                self.log_deljob(r);
            }
            // A delivered at-most-once job left the file when it was fetched.
            JobState::Active if !self.jobs[r].is_spent() => self.log_deljob(r),
            JobState::Active => {}
            JobState::Acked(_) => {
                self.ack_resend.uncollected.remove(&r);
            }
        }
        let job = self.jobs.remove(r);
        self.queues.release_name(job.queue);
        job
    }
}

/// One job in a reply: `[queue, id, body]`, or seven elements with the counters.
pub fn write_row(reply: &mut ReplyWriter<'_>, queue: &[u8], job: &Job, counters: Counters) {
    reply.array(if counters == Counters::Yes { 7 } else { 3 });
    reply.bulk(queue);
    reply.bulk(job.id.0);
    reply.bulk(&job.body);
    if counters == Counters::Yes {
        reply.bulk(b"nacks");
        reply.integer(i64::from(job.nack_count));
        reply.bulk(b"additional-deliveries");
        reply.integer(i64::from(job.delivery_count));
    }
}
