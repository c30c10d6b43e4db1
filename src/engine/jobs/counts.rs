//! How many jobs are in which situation, on this node and by queue.
//!
//! They are kept where the steps of [`super::life`] change a job, since nobody can count millions of
//! jobs whenever somebody asks. Invariant: they are what a count of all jobs gives.

use super::{Job, JobState};
use crate::base::time::MonoMs;
use crate::engine::queue::QueueRef;

/// What a job is waiting for, here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Its producer waits for copies.
    WaitRepl,
    Queued,
    /// A client of this node has it.
    InFlight,
    /// It waits for a time of its own.
    Delayed,
    /// It is a copy, was lent, or left its queue without a client.
    Passive,
    Acked,
}

/// The number of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    pub wait_repl: usize,
    pub queued: usize,
    pub in_flight: usize,
    pub delayed: usize,
    pub passive: usize,
    pub acked: usize,
}

/// Those that are kept by queue. How many are queued it knows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub in_flight: u32,
    pub delayed: u32,
}

/// All counts, those of queues by the queue's slot.
#[derive(Debug, Default)]
pub struct Counts {
    /// By [`Situation`], in its order.
    all: [usize; 6],
    by_queue: Vec<QueueCounts>,
}

impl Job {
    /// What it is waiting for.
    pub fn situation(&self) -> Situation {
        match self.state() {
            JobState::WaitRepl => Situation::WaitRepl,
            JobState::Queued => Situation::Queued,
            JobState::Acked => Situation::Acked,
            JobState::Active if self.is_in_flight() => Situation::InFlight,
            JobState::Active if self.requeue_at() == MonoMs::NEVER => Situation::Passive,
            JobState::Active if self.is_delayed() => Situation::Delayed,
            JobState::Active => Situation::Passive,
        }
    }
}

impl Counts {
    pub fn all(&self) -> JobCounts {
        let [wait_repl, queued, in_flight, delayed, passive, acked] = self.all;
        JobCounts { wait_repl, queued, in_flight, delayed, passive, acked }
    }

    pub fn of_queue(&self, q: QueueRef) -> QueueCounts {
        self.by_queue.get(q.slot() as usize).copied().unwrap_or_default()
    }

    /// One job more is in this situation.
    pub fn add(&mut self, q: QueueRef, situation: Situation) {
        self.all[situation as usize] += 1;
        if let Some(count) = self.of_queue_mut(q, situation) {
            *count += 1;
        }
    }

    /// One job fewer is in this situation.
    pub fn remove(&mut self, q: QueueRef, situation: Situation) {
        let count = &mut self.all[situation as usize];
        *count = count.checked_sub(1).expect("a job that is there is counted");
        if let Some(count) = self.of_queue_mut(q, situation) {
            *count = count.checked_sub(1).expect("a job of a queue is counted");
        }
    }

    fn of_queue_mut(&mut self, q: QueueRef, situation: Situation) -> Option<&mut u32> {
        if !matches!(situation, Situation::InFlight | Situation::Delayed) {
            return None;
        }
        let slot = q.slot() as usize;
        if slot >= self.by_queue.len() {
            self.by_queue.resize(slot + 1, QueueCounts::default());
        }
        let counts = &mut self.by_queue[slot];
        Some(match situation {
            Situation::InFlight => &mut counts.in_flight,
            _ => &mut counts.delayed,
        })
    }

    /// Panics unless these jobs are those that are counted.
    pub fn check_invariants<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        let mut recount = Self::default();
        jobs.for_each(|job| recount.add(job.queue, job.situation()));
        assert_eq!(self.all, recount.all, "jobs are counted by their situation");
        recount.by_queue.resize(self.by_queue.len(), QueueCounts::default());
        assert_eq!(self.by_queue, recount.by_queue, "and so are those of each queue");
    }
}
