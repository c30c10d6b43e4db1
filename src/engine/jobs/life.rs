//! The life of a job: every change of its state and of what its schedule is derived from.
//!
//! Each call here is a step that means something, makes all of its changes together, and
//! leaves the job scheduled for what is to be done next. What a step means to others (the
//! queue, clients, peers, the append only file) is decided by those who call.

use crate::base::time::MonoMs;

use super::counts::Situation;
use super::job::WILLQUEUE_ADVANCE_MS;
use super::{CopyWait, HeldFor, Job, JobFlags, JobRef, JobState, Jobs, NewJob};
use crate::engine::node_set::NodeRef;

/// Whether a job is enqueued because a client gave it back unprocessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nack {
    No,
    Yes,
    /// It did, and that is not counted.
    Uncounted,
    /// It did not: a client wants it queued.
    Enqueued,
}

/// Whether the holders of a job are to be sent QUEUED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    No,
    Yes,
}

impl Jobs {
    /// A new job, active.
    pub fn insert(&mut self, new: NewJob) -> JobRef {
        let (job, attributes) = Job::new(new);
        let r = self.register(job, attributes);
        self.counts.add(self.table[r].queue, self.table[r].situation());
        self.wheel.insert(&mut self.table, r);
        r
    }

    /// A new job that is queued at once, and comes back at `retry_at` (`NEVER`: it does not).
    /// As each first enqueue, this one is not announced.
    pub fn insert_queued(&mut self, new: NewJob, retry_at: MonoMs) -> JobRef {
        let (mut job, attributes) = Job::new(new);
        job.flags = job.flags.with(JobFlags::BROADCAST_QUEUED);
        enter_queue(&mut job, retry_at);
        self.counts.add(job.queue, Situation::Queued);
        let r = self.register(job, attributes);
        self.wheel.insert(&mut self.table, r);
        r
    }

    /// A new job whose producer waits for copies.
    pub fn insert_waiting(&mut self, new: NewJob, wait: CopyWait) -> JobRef {
        let (job, attributes) = Job::new(new);
        let r = self.register(job, attributes);
        let wait = self.copy_waits.begin(r, wait);
        self.table[r].set_copy_wait(wait);
        self.counts.add(self.table[r].queue, Situation::WaitRepl);
        self.wheel.insert(&mut self.table, r);
        r
    }

    /// Ends a wait for copies, whether they are there or not: the job is active, and goes to
    /// its queue when its delay is over.
    ///
    /// # Panics
    /// When the job does not wait.
    pub fn end_wait(&mut self, r: JobRef) -> CopyWait {
        let wait = self.table[r].copy_wait().expect("the job waits for copies");
        let wait = self.copy_waits.end(r, wait);
        self.change(r, |job| job.set_state(JobState::Active));
        self.schedule(r);
        wait
    }

    /// An active job goes to its queue, and comes back at `retry_at` (`NEVER`: it does not).
    ///
    /// The first enqueue is silent, later ones are announced and count as a delivery; a
    /// client's NACK is announced in any case, and counted as one. After a NACK with a delay,
    /// which was, the enqueue is silent again.
    ///
    /// # Panics
    /// When the job is not one that may be queued.
    pub fn queue(&mut self, r: JobRef, retry_at: MonoMs, nack: Nack) -> Announced {
        assert!(self.table[r].may_be_queued(), "an active job goes to its queue");
        let was_given_back = self.table[r].is_given_back();
        let job = self.change(r, |job| enter_queue(job, retry_at));
        let announced = match nack {
            Nack::Yes => {
                job.nack_count = job.nack_count.saturating_add(1);
                Announced::Yes
            }
            Nack::Uncounted => Announced::Yes,
            Nack::No if was_given_back => Announced::No,
            Nack::No | Nack::Enqueued if job.flags.contains(JobFlags::BROADCAST_QUEUED) => {
                job.delivery_count = job.delivery_count.saturating_add(1);
                Announced::Yes
            }
            Nack::No | Nack::Enqueued => {
                job.flags = job.flags.with(JobFlags::BROADCAST_QUEUED);
                Announced::No
            }
        };
        self.schedule(r);
        announced
    }

    /// A job that was moved enters its queue, and comes back at `retry_at`: its holders are told
    /// of the move, and it counts nothing.
    pub fn queue_as_moved(&mut self, r: JobRef, retry_at: MonoMs) {
        self.change(r, |job| {
            assert!(job.is_active() && !job.is_spent(), "an active job goes to its queue");
            enter_queue(job, retry_at);
            job.flags = job.flags.with(JobFlags::BROADCAST_QUEUED);
        });
        self.schedule(r);
    }

    /// A queued job is here because a node lent it. If that is a C node, its own time for the
    /// job goes on, and is not known.
    pub fn note_borrowed(&mut self, r: JobRef, of_able: bool) {
        let job = &mut self.table[r];
        assert!(job.is_queued(), "a job that was lent is queued");
        job.note_borrowed(of_able);
    }

    /// A job leaves its queue undelivered. Its time of requeue stays.
    pub fn dequeue(&mut self, r: JobRef) {
        self.leave_queue(r, |_| {});
    }

    /// A job leaves its queue for a client of this node. Its time of requeue stays.
    #[inline]
    pub fn deliver(&mut self, r: JobRef) {
        self.leave_queue(r, |job| {
            job.flags = job.flags.with(JobFlags::DELIVERED);
            job.note_in_flight();
        });
    }

    /// A job leaves its queue for another node. Its time of requeue stays.
    pub fn lend(&mut self, r: JobRef) {
        self.leave_queue(r, |job| job.flags = job.flags.with(JobFlags::DELIVERED));
    }

    /// A job is queued or held on another node: it is not in flight here any more, and the next
    /// time that it is queued here is not the first.
    pub fn note_elsewhere(&mut self, r: JobRef) {
        self.change(r, |job| {
            job.land();
            job.flags = job.flags.with(JobFlags::BROADCAST_QUEUED);
        });
    }

    fn leave_queue(&mut self, r: JobRef, note: impl FnOnce(&mut Job)) {
        let job = &mut self.table[r];
        assert!(job.is_queued(), "a job in a queue is queued");
        // Active and queued are the same to the schedule.
        job.set_state(JobState::Active);
        note(job);
        // As in `change`, of which half is known here: this is what a fetch costs.
        let (queue, situation) = (job.queue, job.situation());
        self.counts.remove(queue, Situation::Queued);
        self.counts.add(queue, situation);
    }

    /// The next requeue of an at-least-once job is at `retry_at`, and its holders are warned.
    pub fn postpone(&mut self, r: JobRef, retry_at: MonoMs) {
        self.change(r, |job| {
            assert!(!job.is_acked(), "an acked job does not come back");
            job.set_requeue_at(retry_at);
            job.forget_given_back();
            job.flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
        });
        self.schedule(r);
    }

    /// This node holds an active job until `at`, and holders are warned before.
    pub fn hold(&mut self, r: JobRef, at: MonoMs, why: HeldFor) {
        self.change(r, |job| {
            assert!(job.is_active(), "an active job is held");
            job.requeue_at = at;
            job.note_held(why);
            job.flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
        });
        self.schedule(r);
    }

    /// An active job waits until `at`; what its next enqueue is, stays.
    pub fn wait_until(&mut self, r: JobRef, at: MonoMs) {
        self.change(r, |job| {
            assert!(job.is_active(), "an active job waits");
            job.set_requeue_at(at);
        });
        self.schedule(r);
    }

    /// An active job waits until `at`, and this node is the first to queue it then: the
    /// enqueue is silent.
    pub fn wait_as_first(&mut self, r: JobRef, at: MonoMs) {
        self.change(r, |job| job.flags = job.flags.without(JobFlags::BROADCAST_QUEUED));
        self.wait_until(r, at);
    }

    /// A job that is due waits for the end of a pause until `at`, and holders are warned before.
    pub fn wait_for_pause(&mut self, r: JobRef, at: MonoMs) {
        let job = &mut self.table[r];
        job.flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
        self.wait_until(r, at);
    }

    /// The TTL of an active job is over, and it is buried at `at`; its holders are warned before.
    pub fn await_burial(&mut self, r: JobRef, at: MonoMs) {
        self.change(r, |job| {
            assert!(job.is_active(), "a job that waits for its burial has left its queue");
            job.note_end_of_ttl();
            job.requeue_at = at;
            job.flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
        });
        self.schedule(r);
    }

    /// An acked job is kept for so many ms beyond the end of its TTL.
    pub fn outlive(&mut self, r: JobRef, ms: u64) {
        let job = &mut self.table[r];
        job.expire_at = job.expire_at.plus_ms(ms);
        self.schedule(r);
    }

    /// An active job goes to its queue soon, unless a holder that is asked first has it queued, or
    /// held. If it does, it is as silent as a first enqueue.
    pub fn announce_and_queue(&mut self, r: JobRef, now: MonoMs) {
        let at = now.plus_ms(WILLQUEUE_ADVANCE_MS);
        let job = &self.table[r];
        if job.may_be_queued() && job.requeue_at > at {
            self.change(r, |job| {
                let flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
                job.flags = flags.without(JobFlags::BROADCAST_QUEUED);
            });
            self.wait_until(r, at);
        }
    }

    /// An active job will not be queued any more: it stays until its TTL is over.
    pub fn retire(&mut self, r: JobRef) {
        self.wait_until(r, MonoMs::NEVER);
    }

    /// The holders were warned of the next requeue.
    pub fn note_warned(&mut self, r: JobRef) {
        let job = &mut self.table[r];
        job.flags = job.flags.without(JobFlags::BROADCAST_WILLQUEUE);
        self.schedule(r);
    }

    /// An active job is acknowledged; the next attempt to collect it is made at `collect_at`.
    pub fn acknowledge(&mut self, r: JobRef, collect_at: MonoMs) {
        self.change(r, |job| {
            assert!(job.is_active(), "an acknowledged job has left its queue");
            job.set_state(JobState::Acked);
            job.requeue_at = collect_at;
        });
        if self.table[r].flags.contains(JobFlags::HAD_ATTRIBUTES) {
            self.stop_telling(r);
        }
        if !self.has_no_shortages() {
            self.stop_copying(r);
        }
        self.schedule(r);
    }

    /// An acked job outlived a timed attempt to collect it; the next is made at `collect_at`.
    pub fn collect_again(&mut self, r: JobRef, collect_at: MonoMs) {
        let job = &mut self.table[r];
        assert!(job.acks().is_some(), "collection has begun");
        job.requeue_at = collect_at;
        self.uncollected.insert(r);
        self.schedule(r);
    }

    /// Counts an attempt to collect an acked job.
    pub fn count_gc_attempt(&mut self, r: JobRef) {
        self.table[r].count_gc_attempt();
    }

    /// Counts a NACK on another node.
    pub fn count_nack(&mut self, r: JobRef) {
        let job = &mut self.table[r];
        job.nack_count = job.nack_count.saturating_add(1);
    }

    /// Counts a further delivery by another node.
    pub fn count_delivery(&mut self, r: JobRef) {
        let job = &mut self.table[r];
        job.delivery_count = job.delivery_count.saturating_add(1);
    }

    /// Notes that a node may have a copy; `false` when that was known.
    pub fn add_may_have(&mut self, r: JobRef, node: NodeRef) -> bool {
        self.sets.add(&mut self.table[r].may_have, node)
    }

    /// Notes that a node has a copy of a job that waits for some; tells whether these are enough
    /// now. `None` when it does not wait.
    pub fn add_copy(&mut self, r: JobRef, node: NodeRef) -> Option<bool> {
        let wait = self.table[r].copy_wait()?;
        self.copy_waits.add_copy(wait, node);
        let wait = self.copy_waits.get(wait);
        Some(wait.copies.len() >= usize::from(wait.wanted))
    }

    /// One more node is asked for a copy of a waiting job at `ask_at`.
    pub fn set_next_target_at(&mut self, r: JobRef, ask_at: MonoMs) {
        let wait = self.table[r].copy_wait().expect("only waiting jobs ask again");
        self.copy_waits.set_next_target_at(r, wait, ask_at);
    }

    /// Notes that a node has this acked job acked too.
    pub fn add_ack(&mut self, r: JobRef, node: NodeRef) {
        assert!(self.table[r].is_acked(), "acks are of acked jobs");
        let acks = match self.table[r].acks() {
            Some(acks) => acks,
            None => {
                let acks = self.acks.insert(Vec::new());
                self.table[r].set_acks(acks);
                acks
            }
        };
        let nodes = &mut self.acks[acks];
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }

    /// Changes a job, and counts it where it is then.
    pub(super) fn change(&mut self, r: JobRef, change: impl FnOnce(&mut Job)) -> &mut Job {
        let job = &mut self.table[r];
        let (queue_before, before) = (job.queue, job.situation());
        change(job);
        let (queue, after) = (job.queue, job.situation());
        if (queue, after) != (queue_before, before) {
            self.counts.remove(queue_before, before);
            self.counts.add(queue, after);
        }
        job
    }

    /// Moves the job to the place in the schedule that its fields now say.
    pub(super) fn schedule(&mut self, r: JobRef) {
        self.wheel.remove(&mut self.table, r);
        self.wheel.insert(&mut self.table, r);
    }
}

fn enter_queue(job: &mut Job, retry_at: MonoMs) {
    job.set_state(JobState::Queued);
    job.requeue_at = retry_at;
    if retry_at != MonoMs::NEVER {
        job.flags = job.flags.with(JobFlags::BROADCAST_WILLQUEUE);
    }
}
