//! How full memory is, and what is dropped when it is short.
//!
//! The level is measured before each command and given to the engine, which knows what each
//! one means; see `engine::memory`.

use std::time::{Duration, Instant};

use super::Server;
use super::config::MaxmemoryPolicy;
use super::latency::LatencyEvent;
use crate::base::memory;
use crate::manual::{Command, Flags};

/// The memory level from which a node takes no copies.
const NO_COPIES: u8 = 1;
/// The memory level from which commands that add are refused.
const OVER_LIMIT: u8 = 2;
/// Jobs evicted between two looks at the memory in use.
const EVICTED_AT_ONCE: usize = 16;
/// How long one command may wait for eviction. C: freeMemoryIfNeeded.
const EVICTION_MAX: Duration = Duration::from_millis(2);

impl Server {
    /// Takes the engine to the memory level of the moment and has it evict what may go:
    /// over the limit before any command, and before one that adds as soon as the engine
    /// would take no copies, lest jobs that are over keep new ones out. Tells whether
    /// memory is below the limit then.
    pub(super) fn make_room(&mut self, command: &Command) -> bool {
        let too_high = if command.flags.contains(Flags::DENYOOM) { NO_COPIES } else { OVER_LIMIT };
        if self.measure_memory() >= too_high
            && self.config.maxmemory_policy != MaxmemoryPolicy::NoEviction
        {
            let started = Instant::now();
            self.evict_below(too_high, started + EVICTION_MAX);
            self.note_latency(LatencyEvent::EvictionCycle, started.elapsed());
        }
        self.engine.memory_level() < OVER_LIMIT
    }

    /// Evicts until memory is below a level, nothing is found, or time is up.
    fn evict_below(&mut self, level: u8, give_up_at: Instant) {
        loop {
            let evicted = self.engine.evict(self.clock.now, EVICTED_AT_ONCE);
            if self.measure_memory() < level
                || evicted < EVICTED_AT_ONCE
                || Instant::now() > give_up_at
            {
                return;
            }
        }
    }

    /// Gives the engine the level of the memory in use; see `engine::memory`. Unfinished input
    /// does not count: it has a bound of its own, and whoever sends some must not have jobs
    /// refused or evicted.
    pub(super) fn measure_memory(&mut self) -> u8 {
        let used = memory::used().saturating_sub(self.unfinished.bytes()) as u64;
        let max = self.config.maxmemory;
        let percent = |percent: u64| max / 100 * percent + max % 100 * percent / 100;
        let level = match max {
            0 => 0,
            _ if used > percent(95) => OVER_LIMIT,
            _ if used > percent(75) => NO_COPIES,
            _ => 0,
        };
        if level != self.engine.memory_level() {
            self.engine.set_memory_level(self.clock.now, level);
        }
        level
    }
}
