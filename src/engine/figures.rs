//! What operators are shown of queues and jobs: figures to be read, one queue or job at a time,
//! so that whoever shows many of them can leave off between two.

use std::borrow::Cow;

use crate::base::ids::JobId;
use crate::base::time::{MonoMs, Now};
use crate::proto::attributes::Attributes;
use crate::proto::priority::Priority;

use super::Engine;
use super::dead::DeathCounts;
use super::jobs::{JobRef, rank_of};
use super::queue::{Pause, Queue, QueueEntry, QueueRef, Traffic};
use super::waits::WaitHistogram;

/// A queue on this node.
#[derive(Clone, Debug)]
pub struct QueueReport<'a> {
    /// Its place in the table: another queue may have it once this one is gone.
    pub slot: u32,
    pub name: &'a [u8],
    /// Jobs queued.
    pub length: usize,
    /// How long ago the oldest job was made, or its delay ended, in ms; `None` without jobs.
    pub oldest_ms: Option<u64>,
    /// The same by priority, where there are others than the default.
    pub priorities: Vec<PriorityFigures>,
    /// Jobs that clients of this node have, and those that wait for a time of their own.
    pub in_flight: u64,
    pub delayed: u64,
    /// Clients that wait here.
    pub blocked: usize,
    /// Jobs that were put into the queue since it came into being, again and again if they were.
    pub jobs_in: u64,
    /// Jobs that were fetched by clients and lent to nodes.
    pub jobs_out: u64,
    /// Jobs of other nodes a second.
    pub import_rate: u64,
    pub pause: Pause,
    /// Only where waits are counted, and once a client got a job.
    pub waits: Option<&'a WaitHistogram>,
    /// Jobs that lived in it and died on this node.
    pub deaths: DeathCounts,
}

/// The jobs of one priority in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityFigures {
    /// 1 comes first.
    pub priority: usize,
    pub length: usize,
    pub oldest_ms: u64,
}

/// A job that is known on this node.
#[derive(Clone, Debug)]
pub struct JobFigures<'a> {
    pub id: JobId,
    pub queue: &'a [u8],
    pub state: &'static str,
    pub body: &'a [u8],
    /// How long ago it was made, in ms.
    pub age_ms: u64,
    /// Until it expires, in ms.
    pub ttl_ms: u64,
    pub delay_secs: u32,
    /// 0 for at most once.
    pub retry_secs: u32,
    pub repl: u16,
    pub nacks: u16,
    pub additional_deliveries: u16,
    /// Until it goes to its queue, in ms; `None` if it does not by itself.
    pub requeue_ms: Option<u64>,
    /// IDs of the nodes that may have a copy, this one left out.
    pub holders: Vec<String>,
    /// The facts of its death, for [`crate::proto::facts::Facts::decode`], if it is dead.
    pub facts: Option<Cow<'a, [u8]>>,
}

/// A step of a walk over all queues.
pub enum QueueVisit<'a> {
    Queue(QueueReport<'a>),
    /// A name that jobs have, without a queue.
    NameOnly,
}

impl Engine {
    /// Visits the first entry at or behind a slot; with the slot behind it. A walk that goes on
    /// from there meets each queue that was there all the time once.
    pub fn visit_queue(&self, now: Now, slot: u32) -> Option<(QueueVisit<'_>, u32)> {
        let q = self.queues.next_from(slot)?;
        let entry = &self.queues[q];
        let visit = match entry.live() {
            Some(queue) => QueueVisit::Queue(self.queue_report_of(now, entry, queue, q)),
            None => QueueVisit::NameOnly,
        };
        Some((visit, q.slot() + 1))
    }

    /// A queue by its name.
    pub fn queue_report(&self, now: Now, name: &[u8]) -> Option<QueueReport<'_>> {
        let q = self.queues.find(name)?;
        let entry = &self.queues[q];
        Some(self.queue_report_of(now, entry, entry.live()?, q))
    }

    fn queue_report_of<'a>(
        &'a self,
        now: Now,
        entry: &'a QueueEntry,
        queue: &'a Queue,
        q: QueueRef,
    ) -> QueueReport<'a> {
        let age_ms = |r| {
            let job = &self.jobs[r];
            let made_at_ms = job.ctime / 1_000_000 + u64::from(job.delay_secs) * 1000;
            now.wall.0.saturating_sub(made_at_ms)
        };
        let priorities = || {
            queue.jobs.firsts().map(|(rank, first, length)| PriorityFigures {
                priority: rank + 1,
                length,
                oldest_ms: age_ms(first),
            })
        };
        let common = rank_of(Priority::DEFAULT) + 1;
        let is_plain = queue.jobs.firsts().all(|(rank, ..)| rank + 1 == common);
        let oldest_ms = priorities().map(|figures| figures.oldest_ms).max();
        let counts = self.jobs.counts_of(q);
        QueueReport {
            slot: q.slot(),
            in_flight: counts.in_flight.into(),
            delayed: counts.delayed.into(),
            name: &entry.name,
            length: queue.jobs.len(),
            oldest_ms,
            priorities: if is_plain { Vec::new() } else { priorities().collect() },
            blocked: queue.waiters.len(),
            jobs_in: queue.jobs_in,
            jobs_out: queue.jobs_out,
            import_rate: queue.imports.rate(now.mono),
            pause: queue.pause,
            waits: queue.waits.as_deref(),
            deaths: self.deaths.of_queue(&entry.name),
        }
    }

    /// What went through queues that are gone.
    pub fn traffic_of_closed_queues(&self) -> Traffic {
        self.queues.traffic_of_closed()
    }

    /// The jobs of a queue that are next, at most `max` of them.
    pub fn first_jobs(&self, now: Now, name: &[u8], max: usize) -> Vec<JobFigures<'_>> {
        let Some(queue) = self.queues.find_live(name) else { return Vec::new() };
        queue.jobs.iter().take(max).map(|r| self.job_figures_of(now, r)).collect()
    }

    /// The jobs of a queue that are next, if they are dead letters: its first job tells.
    pub fn first_dead_letters(&self, now: Now, name: &[u8], max: usize) -> Vec<JobFigures<'_>> {
        let first = self.queues.find_live(name).and_then(|queue| queue.jobs.iter().next());
        let is_dead = first
            .is_some_and(|r| self.jobs.attributes(r).is_some_and(|known| known.facts().is_some()));
        if is_dead { self.first_jobs(now, name, max) } else { Vec::new() }
    }

    /// A job by its ID, if it is here.
    pub fn job_figures(&self, now: Now, id: &JobId) -> Option<JobFigures<'_>> {
        self.jobs.find(id).map(|r| self.job_figures_of(now, r))
    }

    fn job_figures_of(&self, now: Now, r: JobRef) -> JobFigures<'_> {
        let job = &self.jobs[r];
        let requeue_at = if job.is_acked() { MonoMs::NEVER } else { job.requeue_at() };
        JobFigures {
            id: job.id,
            queue: &self.queues[job.queue].name,
            state: job.state().name(),
            body: &job.body,
            age_ms: now.wall.0.saturating_sub(job.ctime / 1_000_000),
            ttl_ms: job.expire_at().ms_since(now.mono),
            delay_secs: job.delay_secs,
            retry_secs: job.retry_secs,
            repl: job.repl,
            nacks: job.nack_count(),
            additional_deliveries: job.delivery_count(),
            requeue_ms: (requeue_at != MonoMs::NEVER).then(|| requeue_at.ms_since(now.mono)),
            holders: self
                .jobs
                .may_have(r)
                .iter()
                .map(|node| self.cluster.id(*node))
                .filter(|id| id != self.cluster.my_id())
                .map(|id| id.to_string())
                .collect(),
            facts: self.jobs.attributes(r).and_then(Attributes::facts),
        }
    }
}
