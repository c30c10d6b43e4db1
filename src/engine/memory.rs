//! What is given up when memory is short. The server measures and sets the level:
//!
//! | level | used | effect |
//! |---|---|---|
//! | 0 | below 75 % | none |
//! | 1 | above 75 % | gives way to nodes with free memory; delivered at-most-once jobs may go |
//! | 2 | above 95 % | no copies are taken; acked jobs may go too |
//!
//! A node that gives way keeps no copy of a job that its clients add and for which enough others
//! have free memory. It keeps one of any other, and takes the copies that nodes ask it to, which
//! go to those with free memory first, up to 95 %: a cluster that is as full everywhere, or of
//! which the rest is out of reach, goes on as long as it can. Nodes say with each ping whether
//! they have free memory.
//!
//! Differs from C, which takes no copies at all above 75 %: a node alone refused every job there,
//! with a fifth of its memory still to be had.

use super::Engine;
use super::ack::Removed;
use super::config::Eviction;
use super::trace::Gone;

/// Random picks that find nothing to evict, in a row, before an attempt gives up.
const MISSES_MAX: usize = 11;

/// How long a queue must have been idle to be dropped, in ms.
pub(super) const fn idle_queue_ms(memory_level: u8) -> u64 {
    match memory_level {
        0 => 300_000,
        1 => 10_000,
        _ => 2000,
    }
}

impl Engine {
    /// See [`Engine::evict`].
    pub(super) fn evict_some(&mut self, max: usize) -> usize {
        if self.config.eviction == Eviction::None {
            return 0;
        }
        let mut evicted = 0;
        let mut misses = 0;
        while evicted < max && misses < MISSES_MAX {
            if self.evict_one() {
                evicted += 1;
                misses = 0;
            } else {
                misses += 1;
            }
        }
        evicted
    }

    fn evict_one(&mut self) -> bool {
        let acks_may_go = self.memory_level > 1;
        let candidates = self.jobs.len() + self.ack_only.len();
        if candidates == 0 {
            return false;
        }
        if self.rng.index(candidates) < self.ack_only.len() {
            return acks_may_go && self.ack_only.drop_oldest() == Removed::Yes;
        }
        let slot = self.rng.index(self.jobs.slots_end() as usize) as u32;
        let Some(r) = self.jobs.next_from(slot).or_else(|| self.jobs.next_from(0)) else {
            return false;
        };
        let job = &self.jobs[r];
        if job.is_spent() || (acks_may_go && job.is_acked()) {
            self.unregister(r, Gone::Evicted);
            return true;
        }
        false
    }
}
