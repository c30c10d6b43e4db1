//! Queues: jobs in order under a name, and what is known about each.
//!
//! A name is one counted entry, whether or not there is a live queue behind it: a job
//! names its queue for as long as it lives, while the queue itself comes into being
//! when it is needed and is dropped when it has been empty and idle for long enough.

use core::ops::{Index, IndexMut};
use std::collections::{BTreeMap, BTreeSet};

use crate::base::id_index::{IdHasher, IdIndex};
use crate::base::ids::ClientId;
use crate::base::ranked::RankedRefs;
use crate::base::table::{Ref, Table};
use crate::base::time::MonoMs;
use crate::proto::bus;

use super::Engine;
use super::blocked::WaitOrder;
use super::jobs::Job;
use super::need_jobs::Imports;
use super::offers::Urgent;
use super::policy::KeptPolicy;
use super::waits::WaitHistogram;
use super::your_jobs::Asks;

pub type QueueRef = Ref<QueueEntry>;

/// A queue's name, who uses it, and the queue while there is one.
pub struct QueueEntry {
    pub name: Box<[u8]>,
    /// Jobs that name this queue, queued or not.
    jobs: u32,
    live: Option<Box<Queue>>,
    /// Other nodes that want jobs of this queue.
    pub asks: Asks,
    /// Its urgent jobs, here and elsewhere, as long as there are some.
    pub urgent: Option<Box<Urgent>>,
}

/// A queue that somebody uses.
pub struct Queue {
    /// Queued jobs: by priority, and then by age.
    pub jobs: RankedRefs<Job>,
    pub created_at: MonoMs,
    pub accessed_at: MonoMs,
    /// When a client last fetched a job.
    pub served_at: Option<MonoMs>,
    pub jobs_in: u64,
    pub jobs_out: u64,
    pub pause: Pause,
    /// Clients blocked here, first come first.
    pub waiters: BTreeMap<WaitOrder, ClientId>,
    /// Whether the queue is in the list of those to serve.
    is_ready: bool,
    pub imports: Imports,
    /// What the policies say of it, if that was asked.
    pub policy: Option<Box<KeptPolicy>>,
    /// Only where waits are counted.
    pub waits: Option<Box<WaitHistogram>>,
}

/// Which ways a queue is paused, as the flags of a PAUSE message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause(pub u32);

impl Pause {
    pub const NONE: Self = Self(0);
    pub const IN: Self = Self(bus::PAUSE_IN);
    pub const OUT: Self = Self(bus::PAUSE_OUT);
    pub const ALL: Self = Self(bus::PAUSE_IN | bus::PAUSE_OUT);

    pub const fn with(self, other: Self) -> Self {
        Self((self.0 | other.0) & Self::ALL.0)
    }

    pub const fn is_in(self) -> bool {
        self.0 & Self::IN.0 != 0
    }

    pub const fn is_out(self) -> bool {
        self.0 & Self::OUT.0 != 0
    }

    pub const fn name(self) -> &'static str {
        match (self.is_in(), self.is_out()) {
            (false, false) => "none",
            (true, false) => "in",
            (false, true) => "out",
            (true, true) => "all",
        }
    }
}

impl Queue {
    fn new(now: MonoMs) -> Self {
        Self {
            jobs: RankedRefs::default(),
            created_at: now,
            accessed_at: now,
            served_at: None,
            jobs_in: 0,
            jobs_out: 0,
            pause: Pause::NONE,
            waiters: BTreeMap::new(),
            is_ready: false,
            imports: Imports::default(),
            policy: None,
            waits: None,
        }
    }

    /// Whether the queue may be dropped once it has been idle for long enough.
    fn is_disposable(&self) -> bool {
        self.jobs.is_empty()
            && self.waiters.is_empty()
            && self.pause == Pause::NONE
            && !self.imports.is_asking()
    }
}

impl QueueEntry {
    pub fn live(&self) -> Option<&Queue> {
        self.live.as_deref()
    }

    pub fn live_mut(&mut self) -> Option<&mut Queue> {
        self.live.as_deref_mut()
    }

    /// The queue and what is known of its urgent jobs, where there are both.
    pub fn live_and_urgent(&mut self) -> Option<(&Queue, &mut Urgent)> {
        Some((self.live.as_deref()?, self.urgent.as_deref_mut()?))
    }

    fn is_unused(&self) -> bool {
        self.jobs == 0 && self.live.is_none() && self.asks.is_empty() && self.urgent.is_none()
    }
}

/// Jobs that went into queues and out of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub jobs_in: u64,
    pub jobs_out: u64,
}

pub struct Queues {
    table: Table<QueueEntry>,
    index: IdIndex<QueueEntry>,
    hasher: IdHasher,
    /// How many of the entries have a live queue.
    live_count: usize,
    /// Queues in which a waiting client might now find a job.
    ready: Vec<QueueRef>,
    /// Queues with jobs that other nodes want, after one of these nodes had its share. Some
    /// are over by the time that they have their turn.
    more_to_lend: BTreeSet<QueueRef>,
    /// Where the next search for idle queues begins.
    idle_cursor: u32,
    /// What went through the queues that are gone.
    traffic_of_closed: Traffic,
}

impl Queues {
    pub fn new(hash_key: [u8; 16]) -> Self {
        Self {
            table: Table::default(),
            index: IdIndex::default(),
            hasher: IdHasher::new(&hash_key),
            live_count: 0,
            ready: Vec::new(),
            more_to_lend: BTreeSet::new(),
            idle_cursor: 0,
            traffic_of_closed: Traffic::default(),
        }
    }

    /// How many queues there are, names without a queue left out.
    pub fn len(&self) -> usize {
        self.live_count
    }

    pub fn is_empty(&self) -> bool {
        self.live_count == 0
    }

    /// The entry of a name, with or without a live queue.
    pub fn find(&self, name: &[u8]) -> Option<QueueRef> {
        self.index.find(self.hasher.hash(name), |q| *self.table[q].name == *name)
    }

    /// The live queue of a name.
    pub fn find_live(&self, name: &[u8]) -> Option<&Queue> {
        self.find(name).and_then(|q| self.table[q].live())
    }

    /// The entry of a name, which comes into being. It needs a use: a job that names it, a
    /// live queue, or a node that asks for it.
    pub fn entry(&mut self, name: &[u8]) -> QueueRef {
        let hash = self.hasher.hash(name);
        if let Some(q) = self.index.find(hash, |q| *self.table[q].name == *name) {
            return q;
        }
        let q = self.table.insert(QueueEntry {
            name: name.into(),
            jobs: 0,
            live: None,
            asks: Asks::default(),
            urgent: None,
        });
        self.index.insert(hash, q);
        q
    }

    /// One job more names this queue.
    pub fn use_name(&mut self, q: QueueRef) {
        self.table[q].jobs += 1;
    }

    /// One job fewer names this queue.
    pub fn release_name(&mut self, q: QueueRef) {
        let jobs = &mut self.table[q].jobs;
        *jobs = jobs.checked_sub(1).expect("every job that names a queue is counted");
        self.drop_unused(q);
    }

    /// The queue of a name, entry and all, made now if missing.
    pub fn open(&mut self, name: &[u8], now: MonoMs) -> QueueRef {
        let q = self.entry(name);
        self.revive(q, now);
        q
    }

    /// The queue behind an entry, made now if missing.
    pub fn revive(&mut self, q: QueueRef, now: MonoMs) -> &mut Queue {
        let entry = &mut self.table[q];
        if entry.live.is_none() {
            self.live_count += 1;
        }
        entry.live.get_or_insert_with(|| Box::new(Queue::new(now)))
    }

    /// Forgets what is known of urgent jobs of a queue, when it is out of date.
    pub fn drop_urgent(&mut self, q: QueueRef, now: MonoMs) {
        let entry = &mut self.table[q];
        if entry.urgent.as_mut().is_some_and(|urgent| urgent.drop_expired(now)) {
            entry.urgent = None;
            self.drop_unused(q);
        }
    }

    /// Drops an entry that nothing uses any longer.
    pub fn drop_unused(&mut self, q: QueueRef) {
        if self.table[q].is_unused() {
            self.drop_entry(q);
        }
    }

    fn drop_entry(&mut self, q: QueueRef) {
        let hash = self.hasher.hash(&self.table[q].name);
        self.index.remove(hash, |candidate| candidate == q);
        self.table.remove(q);
    }

    /// Drops the queue behind an entry. It holds no job and nobody waits for it.
    pub fn close(&mut self, q: QueueRef) {
        let entry = &mut self.table[q];
        if let Some(queue) = entry.live.take() {
            assert!(queue.jobs.is_empty() && queue.waiters.is_empty(), "nobody uses the queue");
            self.live_count -= 1;
            self.traffic_of_closed.jobs_in += queue.jobs_in;
            self.traffic_of_closed.jobs_out += queue.jobs_out;
            if queue.is_ready {
                self.ready.retain(|&ready| ready != q);
            }
        }
        self.drop_unused(q);
    }

    /// Drops the queue behind an entry if nobody uses it, and what other nodes asked of it.
    pub fn flush(&mut self, q: QueueRef) {
        let entry = &mut self.table[q];
        entry.asks = Asks::default();
        let is_unused =
            entry.live().is_none_or(|queue| queue.jobs.is_empty() && queue.waiters.is_empty());
        if is_unused {
            self.close(q);
        }
    }

    /// What went through the queues that are gone.
    pub fn traffic_of_closed(&self) -> Traffic {
        self.traffic_of_closed
    }

    /// One more than the highest slot in use or used before.
    pub fn slots_end(&self) -> u32 {
        self.table.slots_end()
    }

    /// Notes that clients waiting for this queue, or nodes that asked for its jobs, may
    /// be served now.
    pub fn mark_ready(&mut self, q: QueueRef) {
        let entry = &mut self.table[q];
        let is_asked_for = !entry.asks.is_empty();
        if let Some(queue) = entry.live_mut()
            && !queue.is_ready
            && (is_asked_for || !queue.waiters.is_empty())
            && !queue.jobs.is_empty()
            && !queue.pause.is_out()
        {
            queue.is_ready = true;
            self.ready.push(q);
        }
    }

    /// Takes a client's place out of the waiters of a queue, if it is there.
    pub fn leave(&mut self, q: QueueRef, order: WaitOrder) {
        if let Some(queue) = self.table.get_mut(q).and_then(QueueEntry::live_mut) {
            queue.waiters.remove(&order);
        }
    }

    /// The queues to serve, each once.
    pub fn take_ready(&mut self) -> Vec<QueueRef> {
        let ready = core::mem::take(&mut self.ready);
        for &q in &ready {
            if let Some(queue) = self.table[q].live_mut() {
                queue.is_ready = false;
            }
        }
        ready
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes that jobs of this queue are to be lent in a later turn.
    pub fn lend_later(&mut self, q: QueueRef) {
        self.more_to_lend.insert(q);
    }

    pub fn has_more_to_lend(&self) -> bool {
        !self.more_to_lend.is_empty()
    }

    /// A queue whose jobs were to be lent later.
    pub fn pop_more_to_lend(&mut self) -> Option<QueueRef> {
        self.more_to_lend.pop_first()
    }

    /// Drops queues that have been idle for `idle_ms`, visiting no more than `max` of
    /// them, in turn.
    pub fn drop_idle(&mut self, now: MonoMs, idle_ms: u64, max: usize) {
        for _ in 0..max {
            let Some(q) = self.table.next_from(self.idle_cursor) else {
                self.idle_cursor = 0;
                return;
            };
            self.idle_cursor = q.slot() + 1;
            let entry = &mut self.table[q];
            entry.asks.drop_expired(now);
            if entry.urgent.as_mut().is_some_and(|urgent| urgent.drop_expired(now)) {
                entry.urgent = None;
            }
            let is_idle = entry.live().is_none_or(|queue| {
                queue.is_disposable() && now.ms_since(queue.accessed_at) > idle_ms
            });
            if is_idle {
                self.close(q);
            }
        }
    }

    pub fn get(&self, q: QueueRef) -> Option<&QueueEntry> {
        self.table.get(q)
    }

    pub fn get_mut(&mut self, q: QueueRef) -> Option<&mut QueueEntry> {
        self.table.get_mut(q)
    }

    /// The first entry at or behind a slot, for scans.
    pub fn next_from(&self, slot: u32) -> Option<QueueRef> {
        self.table.next_from(slot)
    }

    /// All entries, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (QueueRef, &QueueEntry)> {
        let mut slot = 0;
        core::iter::from_fn(move || {
            let q = self.table.next_from(slot)?;
            slot = q.slot() + 1;
            Some((q, &self.table[q]))
        })
    }

    /// Panics unless names, counts and live queues agree. `jobs_of` counts the jobs
    /// that name an entry.
    pub fn check_invariants(&self, jobs_of: &BTreeMap<QueueRef, u32>) {
        let mut live_count = 0;
        for (q, entry) in self.iter() {
            assert_eq!(self.find(&entry.name), Some(q), "a queue is found by its name");
            let users = jobs_of.get(&q).copied().unwrap_or(0);
            assert_eq!(entry.jobs, users, "every job that names a queue is counted");
            assert!(!entry.is_unused(), "an entry has a use");
            live_count += usize::from(entry.live.is_some());
        }
        assert_eq!(self.live_count, live_count, "live queues are counted");
        assert_eq!(self.index.len(), self.table.len(), "one index entry a name");
    }
}

impl Engine {
    /// Sets a queue's pause; one that ends serves the clients that wait.
    pub(super) fn set_pause(&mut self, name: &[u8], pause: Pause) {
        if pause == Pause::NONE && self.queues.find_live(name).is_none() {
            return;
        }
        let q = self.queues.open(name, self.now.mono);
        self.queues.revive(q, self.now.mono).pause = pause;
        self.queues.mark_ready(q);
        self.see_to_urgent_now(q);
    }
}

impl Index<QueueRef> for Queues {
    type Output = QueueEntry;

    fn index(&self, q: QueueRef) -> &QueueEntry {
        &self.table[q]
    }
}

impl IndexMut<QueueRef> for Queues {
    fn index_mut(&mut self, q: QueueRef) -> &mut QueueEntry {
        &mut self.table[q]
    }
}
