//! Consumers that stay away for a while, and what must hold of the queues meanwhile.
//!
//! While nobody takes jobs, each job that is due waits in one queue, and stays there: a node
//! that is about to requeue asks first, and of two that did so at once one gives in. A second
//! queue would mean a second delivery, no queue a late one.
//!
//! Jobs that are lent are queued silently, so a few are in two queues when the
//! consumers go, and where a lent copy is not known to all others it may get a second queue:
//! of these nothing is demanded.

use std::collections::BTreeMap;

use disque::proto::priority::Priority;

use super::story::Wanted;
use super::{Storm, Weather};
use crate::survey::Copy;

/// What was sent before the consumers went has arrived after this.
pub(super) const UNDER_WAY_MS: u64 = 700;
/// A requeue that meets another one is settled within this.
const SETTLED_MS: u64 = 700;
/// A job is requeued no later than this after its retry: the spread, and messages that put
/// it off and were sent before it was delivered.
const REQUEUE_ERROR_MS: u64 = 800;

/// Whether consumers are there.
#[derive(Debug, Default)]
pub struct Rest {
    is_away: bool,
    changed_at: u64,
    changes_at: u64,
    /// When each job was last seen in at most one queue, or where its holders did not know each
    /// other, since the consumers went.
    single_at: BTreeMap<Vec<u8>, u64>,
    /// Since when each job waits in one queue, and how often it was queued again before it
    /// had come to rest there.
    waiting: BTreeMap<Vec<u8>, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: u64,
    requeues: Option<i64>,
}

impl Storm {
    /// Whether consumers fetch jobs now. In haze they come and go.
    pub(super) fn consumers_are_here(&mut self) -> bool {
        if self.weather != Weather::Hazy || self.healed_at.is_some() {
            return true;
        }
        let now = self.sim.now_ms;
        if now >= self.rest.changes_at {
            self.rest.is_away = !self.rest.is_away;
            let ms = if self.rest.is_away { 3000 + self.rng.below(4000) } else { 1000 };
            self.rest.changed_at = now;
            self.rest.changes_at = now + u64::from(ms);
            self.rest.single_at.clear();
            self.rest.waiting.clear();
            if self.rest.is_away {
                self.collect();
                (0..self.sim.nodes.len()).for_each(|n| self.hang_up(n));
            }
        }
        !self.rest.is_away
    }

    /// Looks at all jobs, when nobody takes any out of the queues; and, where nothing can
    /// get lost, at those that may be on one node only.
    pub(super) fn check_rest(&mut self) {
        if self.weather == Weather::Stormy {
            return;
        }
        let copies = self.sim.survey();
        for (id, copies) in &copies {
            let told = || format!("{} at {}: {copies:?}", id.escape_ascii(), self.sim.now_ms);
            // A node that has it stored elsewhere knows it until it is there.
            let count = copies.iter().filter(|copy| copy.state != "wait-repl").count();
            let many = copies[0].retry_secs == 0 && count > 1;
            assert!(!many, "an at-most-once job is on one node, {}", told());
            self.check_copies(id, copies);
            self.check_priorities(id, copies);
        }
        let now = self.sim.now_ms;
        if !self.rest.is_away || now < self.rest.changed_at + UNDER_WAY_MS {
            return;
        }
        for (id, copies) in &copies {
            let Some(story) = self.stories.get(id).filter(|story| story.acked_at.is_none()) else {
                continue;
            };
            let told = format!("{} at {now}: {story:?}, {copies:?}", id.escape_ascii());
            if self.was_just_moved(id) {
                self.rest.waiting.remove(id);
                self.rest.single_at.remove(id);
                continue;
            }
            if !waits_twice(copies) || !know_each_other(copies) {
                self.rest.single_at.insert(id.clone(), now);
            } else if let Some(at) = self.rest.single_at.get(id) {
                // Urgent jobs are lent while consumers are away, in silence; who is about to queue
                // them asks, and that settles it.
                let asked_within_ms = match story.wanted.as_ref() {
                    Some(wanted) if wanted.priority < Priority::DEFAULT.number() => wanted.retry_ms,
                    _ => 0,
                };
                let settled_by = at + SETTLED_MS + asked_within_ms;
                assert!(now < settled_by, "a job waits in one queue, {told}");
            }
            // One that dies of its end is in no queue before it is in the dead one.
            let is_ending = |wanted: &Wanted| now + 2 * UNDER_WAY_MS > wanted.expires_at;
            if story.wanted.as_ref().is_some_and(is_ending) {
                self.rest.waiting.remove(id);
                continue;
            }
            let waits = copies.iter().any(Copy::is_queued);
            let late_ms = story.is_due_by().map_or(0, |by| now.saturating_sub(by));
            let is_under_way = self.is_under_way(id, waits);
            assert!(
                waits || is_under_way || late_ms <= REQUEUE_ERROR_MS,
                "a due job is queued, {told}"
            );
            if !waits || waits_twice(copies) || !know_each_other(copies) {
                self.rest.waiting.remove(id);
                continue;
            }
            let waiting = self.rest.waiting.entry(id.clone());
            let waiting = waiting.or_insert(Waiting { since: now, requeues: None });
            if now >= waiting.since + SETTLED_MS {
                let requeues = copies.iter().map(|copy| copy.requeues).max();
                let before = *waiting.requeues.get_or_insert(requeues.unwrap_or(0));
                assert!(requeues == Some(before), "who waits is not queued again, {told}");
            }
        }
    }
}

fn waits_twice(copies: &[Copy]) -> bool {
    copies.iter().filter(|copy| copy.is_queued()).count() > 1
}

pub(super) fn know_each_other(copies: &[Copy]) -> bool {
    copies.iter().all(|copy| copies.iter().all(|other| copy.holders.contains(&other.node_id)))
}
