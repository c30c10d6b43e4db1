//! Priorities of jobs, and what must hold of them: a job keeps the one it was added with, on
//! every node and through everything that befalls it; and in fair weather nobody gets a job while a
//! better one waits.

use std::collections::BTreeMap;

use disque::base::rng::Rng;
use disque::proto::reply_reader::Value;

use super::{QUEUES, Storm, Weather};
use crate::survey::Copy;
use crate::urgent::{Delivery, LOOK_EVERY_MS, Watch};

/// What is lent arrives within this in haze, and some: nobody looks in between.
const LENT_WITHIN_MS: u64 = 500;
/// That of a job of which nothing is said.
pub const DEFAULT: u8 = 4;
/// That of jobs for which nobody asks because they are better.
const LAST: u8 = 7;

/// Whether jobs have priorities.
pub struct Priorities {
    /// Draws apart from the rest, so that runs without priorities stay what they are.
    rng: Rng,
    are_used: bool,
    watch: Watch,
    /// What came since the queues were looked into.
    deliveries: Vec<Delivery>,
    /// Since when jobs wait in no queue, of those that have not been seen in one since.
    missing_since: BTreeMap<Vec<u8>, u64>,
}

impl Priorities {
    pub fn new(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        let (deliveries, missing_since) = Default::default();
        Self { rng, are_used, watch: Watch::default(), deliveries, missing_since }
    }
}

impl Storm {
    /// The priority of a job that is added to a node, and the words that say so.
    pub(super) fn draw_priority(&mut self, n: usize) -> (u8, Vec<Vec<u8>>) {
        if !self.priorities.are_used || self.sim.network.is_plain(n) {
            return (DEFAULT, Vec::new());
        }
        let priority = 1 + self.priorities.rng.below(7) as u8;
        (priority, vec![b"PRIORITY".to_vec(), priority.to_string().into_bytes()])
    }

    /// Whether urgent jobs that wait are watched.
    pub(super) fn watches_urgent(&self) -> bool {
        self.priorities.are_used && self.weather == Weather::Fair && self.is_acting
    }

    /// Time passes, and the queues are looked into again and again.
    pub(super) fn run_watched(&mut self, ms: u64) {
        let until = self.sim.now_ms + ms;
        while self.sim.now_ms < until {
            self.sim.run_for(LOOK_EVERY_MS.min(until - self.sim.now_ms));
            self.collect();
            let deliveries = std::mem::take(&mut self.priorities.deliveries);
            self.priorities.watch.look(&mut self.sim, &QUEUES, &deliveries);
            let passed_over = &self.priorities.watch.passed_over;
            assert!(passed_over.is_empty(), "urgent jobs go first: {passed_over:?}");
        }
    }

    /// A consumer of a node got a job.
    pub(super) fn note_delivery(&mut self, node: usize, at: u64, row: &[Value]) {
        if let [Value::Bulk(queue), Value::Bulk(id), ..] = row
            && self.watches_urgent()
        {
            let (queue, id) = (queue.clone(), id.clone());
            self.priorities.deliveries.push(Delivery { node, at, queue, id });
        }
    }

    /// Whether a job that waits in no queue may be on its way to one: nodes that were served a
    /// moment ago still ask for better jobs.
    pub(super) fn is_under_way(&mut self, id: &[u8], waits: bool) -> bool {
        let now = self.sim.now_ms;
        let wanted = self.stories.get(id).and_then(|story| story.wanted.as_ref());
        let may_be_better = wanted.is_some_and(|wanted| wanted.priority < LAST);
        if waits || !may_be_better || !self.priorities.are_used {
            self.priorities.missing_since.remove(id);
            return false;
        }
        let since = *self.priorities.missing_since.entry(id.to_vec()).or_insert(now);
        now < since + LENT_WITHIN_MS
    }

    /// Every copy has the priority that its job was added with.
    pub(super) fn check_priorities(&self, id: &[u8], copies: &[Copy]) {
        let Some(wanted) = self.stories.get(id).and_then(|story| story.wanted.as_ref()) else {
            return;
        };
        // An ack without a job shows none.
        let are_kept =
            copies.iter().all(|copy| copy.priority == wanted.priority || copy.body.is_empty());
        let id = id.escape_ascii();
        assert!(are_kept, "{id} keeps priority {}: {copies:?}", wanted.priority);
    }
}
