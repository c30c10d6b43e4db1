//! How full memory is, and what is dropped when it is short.
//!
//! The level is measured before each command and given to the engine, which knows what each
//! one means; see `engine::memory`. The log is told when it changes.

use std::time::{Duration, Instant};

use super::Server;
use super::config::MaxmemoryPolicy;
use super::latency::LatencyEvent;
use crate::base::memory;
use crate::manual::{Command, Flags};

/// The memory level from which a node gives way to those with free memory.
const SHORT: u8 = 1;
/// The memory level from which commands that add are refused.
const OVER_LIMIT: u8 = 2;
/// Above these shares of the limit, in percent, the levels begin.
const SHORT_PERCENT: u64 = 75;
const OVER_LIMIT_PERCENT: u64 = 95;
/// The log is told of a lower level when memory has been below it by this share of the limit,
/// in percent: jobs that come and go at its edge are no news.
const CALM_PERCENT: u64 = 5;
/// Jobs evicted between two measurements of the memory in use.
const EVICTED_AT_ONCE: usize = 16;
/// How long one command may wait for eviction. C: freeMemoryIfNeeded.
const EVICTION_MAX: Duration = Duration::from_millis(2);

impl Server {
    /// Takes the engine to the memory level of the moment and has it evict what may go:
    /// over the limit before any command, and before one that adds as soon as memory is
    /// short, lest jobs that are over keep new ones out. Tells whether
    /// memory is below the limit then.
    pub(super) fn make_room(&mut self, command: &Command) -> bool {
        let too_high = if command.flags.contains(Flags::DENYOOM) { SHORT } else { OVER_LIMIT };
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
        let level = level_of(self.memory_used(), self.config.maxmemory);
        if level != self.engine.memory_level() {
            self.engine.set_memory_level(self.clock.now, level);
            self.log_memory_level();
        }
        level
    }

    /// Tells the log of another level, once.
    pub(super) fn log_memory_level(&mut self) {
        let (used, max) = (self.memory_used(), self.config.maxmemory);
        if let Some(news) = self.memory_news.next(used, max) {
            log::info!("{news}, with {used} of {max} bytes in use");
        }
    }

    pub(super) fn memory_used(&self) -> u64 {
        memory::used().saturating_sub(self.unfinished.bytes()) as u64
    }
}

fn percent_of(max: u64, percent: u64) -> u64 {
    max / 100 * percent + max % 100 * percent / 100
}

/// The memory level of so many bytes in use, with a limit of `max` bytes or, when that is 0, none.
fn level_of(used: u64, max: u64) -> u8 {
    match max {
        0 => 0,
        _ if used > percent_of(max, OVER_LIMIT_PERCENT) => OVER_LIMIT,
        _ if used > percent_of(max, SHORT_PERCENT) => SHORT,
        _ => 0,
    }
}

/// What the log was told of the memory level.
#[derive(Debug, Default)]
pub(super) struct MemoryNews {
    level: u8,
}

impl MemoryNews {
    /// Returns what there is to tell of so many bytes in use. A level that rose is told at once,
    /// one that fell when it has fallen by some more.
    fn next(&mut self, used: u64, max: u64) -> Option<&'static str> {
        let level = level_of(used, max);
        let calm = level_of(used.saturating_add(percent_of(max, CALM_PERCENT)), max);
        let earlier = self.level;
        self.level = level.max(calm.min(earlier));
        match self.level {
            _ if self.level == earlier => None,
            0 => Some("Memory is not short any more: new jobs are kept here"),
            SHORT if earlier > SHORT => Some(
                "Memory is not full any more: commands that add jobs are carried out, and jobs go \
                 to nodes with free memory",
            ),
            SHORT => {
                Some("Memory is short, over 75 % of maxmemory: jobs go to nodes with free memory")
            }
            _ => Some("Memory is full, over 95 % of maxmemory: commands that add jobs are refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_of_each_level_once_and_of_a_lower_one_when_it_lasts() {
        let mut news = MemoryNews::default();
        let told: Vec<(u64, &str)> = [
            0, 749, 750, 751, 749, 751, 950, 951, 901, 960, 900, 951, 880, 760, 701, 760, 700, 751,
            999, 10, 960,
        ]
        .into_iter()
        .filter_map(|used| Some((used, news.next(used, 1000)?)))
        .map(|(used, text)| (used, text.split([',', ':']).next().expect("a part")))
        .collect();
        let expected = [
            (751, "Memory is short"),
            (951, "Memory is full"),
            (900, "Memory is not full any more"),
            (951, "Memory is full"),
            (880, "Memory is not full any more"),
            (700, "Memory is not short any more"),
            (751, "Memory is short"),
            (999, "Memory is full"),
            (10, "Memory is not short any more"),
            (960, "Memory is full"),
        ];
        assert_eq!(told, expected);
        assert_eq!(news.next(960, 0), Some("Memory is not short any more: new jobs are kept here"));
        assert_eq!(news.next(u64::MAX, 0), None, "there is no limit");
    }
}
