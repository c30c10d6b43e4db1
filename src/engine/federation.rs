//! Lending jobs: a node with waiting clients and an empty queue asks the others.
//!
//! NEEDJOBS goes to everybody now and then, to find out who has jobs, and more often to
//! the nodes that sent some lately. Whoever has jobs and does not import any itself
//! sends up to half of them in one YOURJOBS. Waits between requests double while
//! nothing comes.

use std::collections::BTreeMap;

use crate::base::limits::JOBS_PER_MESSAGE_MAX;
use crate::base::time::MonoMs;
use crate::proto::bus::{Jobs, Message, MessageFlags};
use crate::proto::job_record::JobRecord;

use super::Engine;
use super::delivery::Nack;
use super::job::{JobFlags, JobRef};
use super::node_set::{ME, NodeRef};
use super::persistence::Form;
use super::queue::QueueRef;

const ASK_MIN: u64 = 5;
const ASK_MAX: u64 = 100;
const BROADCAST_MIN_MS: u64 = 2000;
const BROADCAST_MAX_MS: u64 = 30_000;
const ASK_AGAIN_MIN_MS: u64 = 25;
const ASK_AGAIN_MAX_MS: u64 = 2000;
/// A node that sent jobs counts as a source for this long.
const SOURCE_VALID_MS: u64 = 5000;
/// Without an import for this long the rate is 0.
const RATE_VALID_MS: u64 = 5000;
const RATE_WINDOW_MS: u64 = 1000;
/// The rate is never taken over less than this, so as not to overestimate it.
const RATE_ELAPSED_MIN_MS: u64 = 50;

/// No further job goes into a YOURJOBS once its bodies have this many bytes.
const LENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a queue knows of jobs that came from other nodes.
#[derive(Debug, Default)]
pub struct Imports {
    /// Nodes that sent jobs, and when they last did.
    sources: BTreeMap<NodeRef, MonoMs>,
    current: Window,
    previous: Window,
    broadcast: Backoff,
    ask: Backoff,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began_at: MonoMs,
    count: u64,
}

/// A wait that doubles with each try.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    /// 0 before the first try.
    tried_at: MonoMs,
    tries: u32,
}

impl Backoff {
    fn is_due(&self, now: MonoMs, min_ms: u64, max_ms: u64) -> bool {
        let wait_ms = min_ms.checked_shl(self.tries).unwrap_or(max_ms).min(max_ms);
        self.tried_at == MonoMs(0) || now.ms_since(self.tried_at) > wait_ms
    }

    fn tried(&mut self, now: MonoMs) {
        self.tried_at = now;
        self.tries = (self.tries + 1).min(20);
    }
}

/// Why a queue wants jobs of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A client found it empty, or waits for it.
    ClientsWaiting,
    /// A fetch just emptied it.
    ReachedZero,
}

impl Imports {
    /// Imported jobs per second, rounded up.
    pub fn rate(&self, now: MonoMs) -> u64 {
        if self.current.count == 0 || now.ms_since(self.current.began_at) > RATE_VALID_MS {
            return 0;
        }
        let elapsed_ms = now.ms_since(self.previous.began_at).max(RATE_ELAPSED_MIN_MS);
        ((self.current.count + self.previous.count) * 1000).div_ceil(elapsed_ms)
    }

    /// The nodes that are taken for sources, in order.
    pub fn sources(&self, now: MonoMs) -> impl Iterator<Item = NodeRef> {
        self.sources
            .iter()
            .filter(move |(_, at)| now.ms_since(**at) <= SOURCE_VALID_MS)
            .map(|(&node, _)| node)
    }

    /// Counts a job that came from a node.
    pub fn count(&mut self, now: MonoMs, source: NodeRef) {
        self.sources.retain(|_, at| now.ms_since(*at) <= SOURCE_VALID_MS);
        if self.sources.insert(source, now).is_none() {
            self.broadcast.tries = 0;
        }
        if now.ms_since(self.current.began_at) > RATE_WINDOW_MS {
            self.previous = self.current;
            self.current = Window { began_at: now, count: 0 };
        }
        self.current.count += 1;
        self.ask.tries = 0;
    }
}

impl Engine {
    /// Asks other nodes for jobs of a live queue, as often as its waits allow.
    pub(super) fn need_jobs(&mut self, q: QueueRef, need: Need) {
        let now = self.now.mono;
        if self.cluster.is_alone() || self.cluster.is_leaving() {
            return;
        }
        let entry = &mut self.queues[q];
        let Some(queue) = entry.live_mut() else { return };
        let imports = &mut queue.imports;
        let rate = imports.rate(now);
        if need == Need::ReachedZero && rate == 0 {
            return;
        }
        let broadcast = imports.broadcast.is_due(now, BROADCAST_MIN_MS, BROADCAST_MAX_MS);
        if broadcast {
            imports.broadcast.tried(now);
        }
        let sources: Vec<NodeRef> = imports.sources(now).collect();
        let ask = !sources.is_empty()
            && (need == Need::ReachedZero
                || imports.ask.is_due(now, ASK_AGAIN_MIN_MS, ASK_AGAIN_MAX_MS));
        if ask {
            imports.ask.tried(now);
        }
        let queue = &entry.name;
        if broadcast {
            self.cluster.broadcast(
                &mut self.out,
                MessageFlags::NONE,
                &Message::NeedJobs { queue, count: 1 },
            );
        }
        if ask {
            let count = (rate / sources.len() as u64).clamp(ASK_MIN, ASK_MAX) as u32;
            let message = Message::NeedJobs { queue, count };
            self.cluster.send(&mut self.out, &sources, MessageFlags::NONE, &message);
        }
    }

    /// NEEDJOBS: a node wants up to `count` jobs of a queue.
    pub(super) fn on_need_jobs(&mut self, from: NodeRef, name: &[u8], count: u32) {
        let Some(q) = self.queues.find(name) else { return };
        let Some(queue) = self.queues[q].live() else { return };
        let len = queue.jobs.len();
        if len == 0
            || queue.pause.is_out()
            || queue.imports.rate(self.now.mono) > 0
            || !self.cluster.is_linked(from)
        {
            return;
        }
        let asked = usize::try_from(count).unwrap_or(usize::MAX).min(JOBS_PER_MESSAGE_MAX);
        let lent = if len < asked * 2 { len / 2 } else { asked }.max(1);
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < lent && bytes < LENT_BYTES_MAX {
            let Some(r) = self.fetch(q) else { break };
            bytes += self.jobs[r].body.len();
            jobs.push(r);
        }
        self.send_your_jobs(from, &jobs);
        for r in jobs {
            if self.jobs[r].is_at_most_once() {
                self.unregister(r);
            }
        }
    }

    /// YOURJOBS: a node lends jobs; they go straight to their queues, paused or not.
    pub(super) fn on_your_jobs(&mut self, from: NodeRef, jobs: Jobs<'_>) {
        for record in jobs.iter() {
            if self.is_acked_here(&record.id) {
                self.send_set_ack(from, record.id);
                continue;
            }
            let r = match self.jobs.find(&record.id) {
                Some(r) if self.jobs.replication(r).is_some() => continue,
                Some(r) => {
                    self.add_holders(r, record.nodes);
                    r
                }
                None => self.take_in(&record),
            };
            self.jobs.add_may_have(r, from);
            self.jobs[r].flags.clear(JobFlags::BROADCAST_QUEUED);
            if self.jobs[r].is_at_most_once() {
                self.jobs[r].requeue_at = self.now.mono;
            }
            let queued = self.enqueue(r, Nack::No);
            self.jobs.reschedule(r);
            if queued {
                let queue = self.queues.revive(self.jobs[r].queue, self.now.mono);
                queue.imports.count(self.now.mono, from);
            }
        }
    }

    /// A job that came from its holders and is new here.
    fn take_in(&mut self, record: &JobRecord<'_>) -> JobRef {
        let r = self.register_record(record, Form::Message);
        self.jobs.add_may_have(r, ME);
        self.log_loadjob(r);
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_two_windows_and_ends_five_seconds_after_the_last_began() {
        let mut imports = Imports::default();
        assert_eq!(imports.rate(MonoMs(10_000)), 0);
        for i in 0..10 {
            imports.count(MonoMs(10_000 + i), NodeRef(1));
        }
        imports.count(MonoMs(11_500), NodeRef(1));
        assert_eq!(imports.rate(MonoMs(12_000)), 6, "11 jobs in 2 seconds");
        assert_eq!(imports.rate(MonoMs(16_501)), 0);
    }

    #[test]
    fn waits_between_requests_double_and_saturate() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_due(MonoMs(5), 2000, 30_000));
        for _ in 0..100 {
            backoff.tried(MonoMs(1000));
        }
        assert!(!backoff.is_due(MonoMs(31_000), 2000, 30_000));
        assert!(backoff.is_due(MonoMs(31_001), 2000, 30_000));
    }

    #[test]
    fn a_source_is_forgotten_five_seconds_after_its_last_jobs() {
        let mut imports = Imports::default();
        imports.count(MonoMs(10_000), NodeRef(1));
        imports.count(MonoMs(13_000), NodeRef(2));
        assert_eq!(imports.sources(MonoMs(15_001)).collect::<Vec<_>>(), [NodeRef(2)]);
    }
}
