//! Lending jobs to nodes that asked for them.
//!
//! A NEEDJOBS is answered at once with what is there: to a C node at most half of the
//! queue, and nothing by a node that imports for it itself; to an able node, whose
//! clients are known to wait, as much as it wants. The rest of what was asked for is
//! remembered for a while, and sent as jobs come for which no client waits here. So a
//! job goes to where somebody waits, and never stays on a node that no longer needs it.

use std::collections::BTreeMap;

use crate::base::limits::JOBS_PER_MESSAGE_MAX;
use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Jobs};
use crate::proto::job_record::JobRecord;

use super::Engine;
use super::delivery::Nack;
use super::job::{JobFlags, JobRef};
use super::node_set::{ME, NodeRef};
use super::persistence::Form;
use super::queue::QueueRef;

/// How long an ask is remembered, in ms.
pub const ASK_VALID_MS: u64 = 30_000;
/// No further job goes into a YOURJOBS once its bodies have this many bytes.
const LENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The nodes that want jobs of a queue.
#[derive(Debug, Default)]
pub struct Asks(BTreeMap<NodeRef, Ask>);

#[derive(Clone, Copy, Debug)]
struct Ask {
    /// Jobs still wanted.
    credit: usize,
    expire_at: MonoMs,
    /// The one that was served longest ago is served next.
    served_at: MonoMs,
}

impl Asks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers what a node wants, at least what it wanted before.
    fn remember(&mut self, node: NodeRef, count: usize, now: MonoMs) {
        let expire_at = now.plus_ms(ASK_VALID_MS);
        let ask = self.0.entry(node).or_insert(Ask { credit: 0, expire_at, served_at: now });
        ask.credit = ask.credit.max(count);
        ask.expire_at = expire_at;
    }

    fn forget(&mut self, node: NodeRef) {
        self.0.remove(&node);
    }

    /// Takes note of jobs sent.
    fn sent(&mut self, node: NodeRef, count: usize, now: MonoMs) {
        if let Some(ask) = self.0.get_mut(&node) {
            ask.credit = ask.credit.saturating_sub(count);
            ask.served_at = now;
            if ask.credit == 0 {
                self.0.remove(&node);
            }
        }
    }

    /// The node to be served next, and how many jobs it wants.
    fn next(&mut self, now: MonoMs) -> Option<(NodeRef, usize)> {
        self.0.retain(|_, ask| ask.expire_at > now);
        let (node, ask) = self.0.iter().min_by_key(|(_, ask)| ask.served_at)?;
        Some((*node, ask.credit))
    }
}

impl Engine {
    /// NEEDJOBS: a node wants up to `count` jobs of a queue; an able one that says 0
    /// wants none any longer.
    pub(super) fn on_need_jobs(&mut self, from: NodeRef, name: &[u8], count: u32) {
        let now = self.now.mono;
        let is_able = self.cluster.is_able(from, Abilities::STANDING_ASKS);
        if count == 0 {
            if let Some(q) = self.queues.find(name)
                && let Some(queue) = self.queues[q].live_mut()
            {
                queue.asks.forget(from);
            }
            return;
        }
        let asked = usize::try_from(count).unwrap_or(usize::MAX).min(JOBS_PER_MESSAGE_MAX);
        let q = self.queues.open(name, now);
        let queue = self.queues.revive(q, now);
        queue.asks.remember(from, asked, now);
        let len = queue.jobs.len();
        if is_able {
            self.queues.mark_ready(q);
        } else if len > 0 && !queue.pause.is_out() && queue.imports.rate(now) == 0 {
            let lent = if len < asked * 2 { len / 2 } else { asked };
            self.lend(q, from, lent.max(1));
        }
    }

    /// Sends jobs of a queue, for which no client waits here, to the nodes that want some.
    pub(super) fn serve_asks(&mut self, q: QueueRef) {
        while let Some(queue) = self.queues[q].live_mut()
            && !queue.jobs.is_empty()
            && !queue.pause.is_out()
            && let Some((node, wanted)) = queue.asks.next(self.now.mono)
        {
            if self.cluster.is_linked(node) {
                self.lend(q, node, wanted);
            } else {
                queue.asks.forget(node);
            }
        }
    }

    /// Sends up to `count` of a queue's oldest jobs. At-most-once jobs leave this node.
    fn lend(&mut self, q: QueueRef, to: NodeRef, count: usize) {
        if !self.cluster.is_linked(to) {
            return;
        }
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < count && bytes < LENT_BYTES_MAX {
            let Some(r) = self.fetch(q) else { break };
            bytes += self.jobs[r].body.len();
            jobs.push(r);
        }
        if let Some(queue) = self.queues[q].live_mut() {
            queue.asks.sent(to, jobs.len(), self.now.mono);
        }
        self.send_your_jobs(to, &jobs);
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
    fn an_ask_is_served_in_turn_until_its_credit_or_its_time_is_over() {
        let mut asks = Asks::default();
        asks.remember(NodeRef(1), 2, MonoMs(10));
        asks.remember(NodeRef(2), 5, MonoMs(11));
        assert_eq!(asks.next(MonoMs(20)), Some((NodeRef(1), 2)));
        asks.sent(NodeRef(1), 1, MonoMs(20));
        assert_eq!(asks.next(MonoMs(21)), Some((NodeRef(2), 5)));
        asks.sent(NodeRef(2), 5, MonoMs(21));
        assert_eq!(asks.next(MonoMs(22)), Some((NodeRef(1), 1)));
        assert_eq!(asks.next(MonoMs(10 + ASK_VALID_MS)), None);
        assert!(asks.is_empty());
    }

    #[test]
    fn asking_again_does_not_lower_what_is_wanted() {
        let mut asks = Asks::default();
        asks.remember(NodeRef(1), 9, MonoMs(10));
        asks.remember(NodeRef(1), 1, MonoMs(12));
        assert_eq!(asks.next(MonoMs(20)), Some((NodeRef(1), 9)));
        asks.forget(NodeRef(1));
        assert!(asks.is_empty());
    }
}
