//! The queues that are shown, and the sums of all: a walk over every queue in small steps that
//! keeps the best ones, and then their figures at one moment.
//!
//! There may be any number of queues with names of any length. Those that are not among the
//! best, and those with long names, are in the sums only.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::More;
use crate::engine::dead::DeathCounts;
use crate::engine::figures::{PriorityFigures, QueueReport, QueueVisit};
use crate::engine::queue::Pause;
use crate::engine::queue::Traffic;
use crate::engine::waits::WaitHistogram;
use crate::server::Server;

/// Longest name that is shown, in bytes.
pub const NAME_MAX: usize = 255;
/// Entries visited in a step, and rows taken.
const STEP: usize = 64;

/// Which queues are the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    Longest,
    Oldest,
    MostIn,
    MostOut,
    MostBlocked,
}

impl QueueOrder {
    const NAMES: [(&'static str, Self); 5] = [
        ("length", Self::Longest),
        ("oldest", Self::Oldest),
        ("in", Self::MostIn),
        ("out", Self::MostOut),
        ("blocked", Self::MostBlocked),
    ];

    pub fn named(name: &[u8]) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, order)| *order)
    }

    fn key(self, queue: &QueueReport<'_>) -> u64 {
        match self {
            Self::Longest => queue.length as u64,
            Self::Oldest => queue.oldest_ms.map_or(0, |ms| ms + 1),
            Self::MostIn => queue.jobs_in,
            Self::MostOut => queue.jobs_out,
            Self::MostBlocked => queue.blocked as u64,
        }
    }
}

/// A queue as it is shown.
#[derive(Clone, Debug)]
pub struct ShownQueue {
    pub slot: u32,
    pub name: Box<[u8]>,
    pub length: u64,
    pub oldest_ms: Option<u64>,
    pub priorities: Vec<PriorityFigures>,
    pub in_flight: u64,
    pub delayed: u64,
    pub blocked: u64,
    pub jobs_in: u64,
    pub jobs_out: u64,
    pub import_rate: u64,
    pub pause: Pause,
    pub waits: WaitHistogram,
    pub deaths: DeathCounts,
}

impl ShownQueue {
    pub fn new(queue: &QueueReport<'_>) -> Self {
        Self {
            slot: queue.slot,
            name: queue.name.into(),
            length: queue.length as u64,
            oldest_ms: queue.oldest_ms,
            priorities: queue.priorities.clone(),
            in_flight: queue.in_flight,
            delayed: queue.delayed,
            blocked: queue.blocked as u64,
            jobs_in: queue.jobs_in,
            jobs_out: queue.jobs_out,
            import_rate: queue.import_rate,
            pause: queue.pause,
            waits: queue.waits.copied().unwrap_or_default(),
            deaths: queue.deaths,
        }
    }
}

/// What several queues come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSums {
    pub count: u64,
    pub length: u64,
    pub oldest_ms: Option<u64>,
    pub blocked: u64,
    pub paused: u64,
}

impl QueueSums {
    fn add(&mut self, queue: &QueueReport<'_>) {
        self.count += 1;
        self.length += queue.length as u64;
        self.oldest_ms = self.oldest_ms.max(queue.oldest_ms);
        self.blocked += queue.blocked as u64;
        self.paused += u64::from(queue.pause != Pause::NONE);
    }
}

/// How a queue is ranked in a walk: what it is asked for, whatever else decides, and its place.
type Rank = (u64, u64, Reverse<u32>);
type RankOf = Box<dyn Fn(&QueueReport<'_>) -> (u64, u64)>;

/// A walk over all queues. Steps until it says that there is no more, then there are rows.
pub struct QueueListing {
    rank: RankOf,
    /// Only queues with this in their names are shown, in any case.
    filter: Vec<u8>,
    max: usize,
    slot: u32,
    best: BinaryHeap<Reverse<Rank>>,
    /// The best, found again from the last to the first.
    found: Vec<u32>,
    is_over: bool,
    /// All queues.
    pub sums: QueueSums,
    /// Those that the filter lets through.
    pub matching: u64,
    /// Those that are not shown, in the end.
    pub rest: QueueSums,
    /// Of all queues, and of those that are gone.
    pub traffic: Traffic,
    pub rows: Vec<ShownQueue>,
}

impl QueueListing {
    /// Shows at most `max` queues with `filter` in their names, the best of an order.
    pub fn by_order(server: &Server, order: QueueOrder, max: usize, filter: &[u8]) -> Self {
        Self::new(server, Box::new(move |queue| (order.key(queue), 0)), max, filter)
    }

    /// Shows the longest, but those that were `shown` before stay unless another one is twice as
    /// long: series that come and go with each scrape cost whoever keeps them more than they say.
    pub fn longest(server: &Server, shown: Vec<u32>, max: usize) -> Self {
        let rank = move |queue: &QueueReport<'_>| {
            let was_shown = shown.binary_search(&queue.slot).is_ok();
            let magnitude = u64::from((queue.length as u64).checked_ilog2().map_or(0, |n| n + 1));
            (2 * magnitude + u64::from(was_shown), queue.length as u64)
        };
        Self::new(server, Box::new(rank), max, b"")
    }

    fn new(server: &Server, rank: RankOf, max: usize, filter: &[u8]) -> Self {
        Self {
            rank,
            filter: filter.to_vec(),
            max,
            slot: 0,
            best: BinaryHeap::new(),
            found: Vec::new(),
            is_over: false,
            sums: QueueSums::default(),
            matching: 0,
            rest: QueueSums::default(),
            traffic: server.engine.traffic_of_closed_queues(),
            rows: Vec::new(),
        }
    }

    /// Goes on; `No` once there are rows.
    pub fn step(&mut self, server: &Server) -> More {
        if !self.is_over {
            self.visit_some(server);
            return More::Yes;
        }
        let now = server.clock.now;
        for _ in 0..STEP {
            let Some(slot) = self.found.pop() else { return More::No };
            if let Some((QueueVisit::Queue(queue), _)) = server.engine.visit_queue(now, slot)
                && queue.slot == slot
                && self.is_shown(&queue)
            {
                self.rows.push(ShownQueue::new(&queue));
                self.rest.count = self.rest.count.saturating_sub(1);
                self.rest.length = self.rest.length.saturating_sub(queue.length as u64);
                self.rest.blocked = self.rest.blocked.saturating_sub(queue.blocked as u64);
            }
        }
        More::Yes
    }

    fn visit_some(&mut self, server: &Server) {
        for _ in 0..STEP {
            let visited = server.engine.visit_queue(server.clock.now, self.slot);
            let Some((visit, next)) = visited else {
                self.is_over = true;
                self.rest = self.sums;
                let best = std::mem::take(&mut self.best).into_sorted_vec();
                // The last is the first to be taken.
                self.found = best.into_iter().rev().map(|Reverse((.., Reverse(at)))| at).collect();
                return;
            };
            self.slot = next;
            let QueueVisit::Queue(queue) = visit else { continue };
            self.sums.add(&queue);
            self.traffic.jobs_in += queue.jobs_in;
            self.traffic.jobs_out += queue.jobs_out;
            if !self.is_shown(&queue) {
                continue;
            }
            self.matching += 1;
            let (first, second) = (self.rank)(&queue);
            let rank = (first, second, Reverse(queue.slot));
            if self.best.len() < self.max {
                self.best.push(Reverse(rank));
            } else if let Some(mut worst) = self.best.peek_mut()
                && worst.0 < rank
            {
                *worst = Reverse(rank);
            }
        }
    }

    fn is_shown(&self, queue: &QueueReport<'_>) -> bool {
        queue.name.len() <= NAME_MAX
            && (self.filter.is_empty()
                || queue
                    .name
                    .windows(self.filter.len())
                    .any(|part| part.eq_ignore_ascii_case(&self.filter)))
    }
}
