//! What must hold after every input, wherever the engine keeps something twice.

use std::collections::BTreeMap;

use crate::base::ranked::Ranked as _;

use super::Engine;
use super::blocked::Wait;
use super::jobs::Job;
use super::queue::QueueRef;

impl Engine {
    /// Panics unless everything that is kept twice agrees. Costs time in proportion to
    /// all there is: for tests, the simulator and DEBUG.
    pub fn check_invariants(&self) {
        self.cluster.check_invariants();
        self.jobs.check_invariants();
        self.blocked.check_invariants();
        self.ack_only.check_invariants();
        self.check_ends();
        self.check_traces();
        let (users, queued) = self.check_jobs();
        self.queues.check_invariants(&users);
        self.check_queues(&queued);
    }

    /// How many jobs name a queue, and how many of them are queued.
    fn check_jobs(&self) -> (BTreeMap<QueueRef, u32>, BTreeMap<QueueRef, usize>) {
        let mut users: BTreeMap<QueueRef, u32> = BTreeMap::new();
        let mut queued: BTreeMap<QueueRef, usize> = BTreeMap::new();
        for (r, job) in self.jobs.iter() {
            *users.entry(job.queue).or_default() += 1;
            if job.is_queued() {
                *queued.entry(job.queue).or_default() += 1;
            }
            assert!(!self.ack_only.contains(&job.id), "an ack has its job, or has none");
            if let Some(wait) = self.jobs.copy_wait(r) {
                assert!(
                    matches!(self.blocked.wait(wait.client), Some(Wait::Copies(w)) if *w == r),
                    "a job that waits for copies has a producer that waits"
                );
            }
        }
        (users, queued)
    }

    fn check_queues(&self, queued: &BTreeMap<QueueRef, usize>) {
        for (q, entry) in self.queues.iter() {
            let Some(queue) = entry.live() else {
                assert!(!queued.contains_key(&q), "queued jobs are in a live queue");
                continue;
            };
            assert_eq!(
                queue.jobs.len(),
                queued.get(&q).copied().unwrap_or(0),
                "a job is queued if and only if its queue has it"
            );
            assert!(
                (queue.waiters.is_empty() && !queue.imports.is_asking()) || self.blocked.visits(q),
                "a queue that is waited or asked for is visited in turn"
            );
            let has_urgent = (0..Job::COMMON).any(|rank| queue.jobs.len_of(rank) > 0);
            let due_at = entry.urgent.as_ref().and_then(|urgent| urgent.due_at());
            assert!(
                !has_urgent || queue.pause.is_out() || due_at.is_some(),
                "urgent jobs that wait are offered"
            );
            assert!(due_at.is_none_or(|at| self.offers.contains(at, q)), "a time is kept twice");
            if let Some(times) = &self.queued_times {
                let age_ms = self.now.mono.ms_since(queue.created_at);
                assert!(
                    queue.jobs.iter().all(|r| times.waited_ms(r, self.now.mono) <= age_ms),
                    "a job waits in its queue from when it came there"
                );
                let counted = queue.waits.as_ref().map_or(0, |waits| waits.count());
                assert!(counted <= queue.jobs_out, "only who left a queue has waited there");
            }
            let key = |r| (self.jobs[r].priority(), self.jobs[r].ctime, self.jobs[r].id);
            let keys: Vec<_> = queue.jobs.iter().map(key).collect();
            assert!(keys.is_sorted(), "a queue is in order");
            for (order, client) in &queue.waiters {
                let waits = matches!(self.blocked.wait(*client), Some(Wait::Jobs(w)) if w.order == *order && w.queues.contains(&q));
                assert!(
                    waits || self.blocked.is_to_leave(*order, q),
                    "a waiter of a queue waits for the queue, or is about to leave it"
                );
            }
            assert!(
                queue.waiters.is_empty() || queue.jobs.is_empty() || queue.pause.is_out(),
                "nobody waits for a job that is there"
            );
        }
    }
}
