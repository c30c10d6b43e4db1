//! Counters since the start, or since CONFIG RESETSTAT.
//!
//! Who collects them over time needs counters that never fall: [`ServerStats::since_start`]
//! has what a reset took away in it. Histograms of commands are kept for them alone, and only
//! where somebody can ask for them.

use std::fmt::{self, Display};
use std::ops::Add;

use crate::base::histogram::{DURATION_BOUNDS_US, DurationHistogram};
use crate::base::time::MonoMs;

/// Samples a rate is the mean of. C: STATS_METRIC_SAMPLES.
const SAMPLES: usize = 16;
/// Time between two samples.
pub const SAMPLE_PERIOD_MS: u64 = 100;

/// The counters that are plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub connections_received: u64,
    pub connections_rejected: u64,
    pub commands_processed: u64,
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    /// Of links to other nodes.
    pub bus_input_bytes: u64,
    pub bus_output_bytes: u64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connections_received: self.connections_received + other.connections_received,
            connections_rejected: self.connections_rejected + other.connections_rejected,
            commands_processed: self.commands_processed + other.commands_processed,
            net_input_bytes: self.net_input_bytes + other.net_input_bytes,
            net_output_bytes: self.net_output_bytes + other.net_output_bytes,
            bus_input_bytes: self.bus_input_bytes + other.bus_input_bytes,
            bus_output_bytes: self.bus_output_bytes + other.bus_output_bytes,
        }
    }
}

/// What the server counts of its own doings.
#[derive(Default)]
pub struct ServerStats {
    /// Since the last reset.
    pub counters: Counters,
    /// By place in the command table.
    pub commands: Vec<CommandStats>,
    command_rate: Rate,
    input_rate: Rate,
    output_rate: Rate,
    /// By place in the command table; only where somebody can ask for them.
    durations: Option<Vec<DurationHistogram>>,
    /// What resets took away.
    before_reset: Counters,
}

/// How often a command ran, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStats {
    pub calls: u64,
    pub total_us: u64,
}

/// As INFO shows it.
impl Display for CommandStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, total_us } = self;
        let per_call = *total_us as f64 / *calls as f64;
        write!(f, "calls={calls},usec={total_us},usec_per_call={per_call:.2}")
    }
}

impl ServerStats {
    /// Counts a call of the command at this place of the table.
    pub fn count_call(&mut self, place: usize, duration_us: u64) {
        if self.commands.len() <= place {
            self.commands.resize(place + 1, CommandStats::default());
        }
        self.commands[place].calls += 1;
        self.commands[place].total_us += duration_us;
        self.counters.commands_processed += 1;
        if self.durations.is_some() {
            self.note_duration(place, duration_us);
        }
    }

    /// Cold, so that a server without an HTTP port pays one test.
    #[cold]
    fn note_duration(&mut self, place: usize, duration_us: u64) {
        let Some(durations) = &mut self.durations else { return };
        if durations.len() <= place {
            durations.resize(place + 1, DurationHistogram::default());
        }
        durations[place].note(&DURATION_BOUNDS_US, duration_us);
    }

    /// From now on the durations of commands are kept.
    pub fn count_durations(&mut self) {
        self.durations = Some(Vec::new());
    }

    /// The durations of commands by place in the command table, of those that ran.
    pub fn durations(&self) -> impl Iterator<Item = (usize, &DurationHistogram)> {
        self.durations.iter().flatten().enumerate().filter(|(_, histogram)| histogram.count() > 0)
    }

    /// The counters since the start, whatever resets there were.
    pub fn since_start(&self) -> Counters {
        self.before_reset + self.counters
    }

    /// Takes a sample of every rate; called each [`SAMPLE_PERIOD_MS`].
    pub fn sample(&mut self, now: MonoMs) {
        self.command_rate.sample(now, self.counters.commands_processed);
        self.input_rate.sample(now, self.counters.net_input_bytes);
        self.output_rate.sample(now, self.counters.net_output_bytes);
    }

    pub fn commands_per_sec(&self) -> u64 {
        self.command_rate.mean()
    }

    pub fn input_bytes_per_sec(&self) -> u64 {
        self.input_rate.mean()
    }

    pub fn output_bytes_per_sec(&self) -> u64 {
        self.output_rate.mean()
    }

    /// Starts from nothing again, but for what is counted since the start.
    pub fn reset(&mut self) {
        *self = Self {
            before_reset: self.since_start(),
            durations: self.durations.take(),
            ..Self::default()
        };
    }
}

/// The mean speed of a counter over the last samples.
#[derive(Default)]
struct Rate {
    per_sec: [u64; SAMPLES],
    next: usize,
    last: Option<(MonoMs, u64)>,
}

impl Rate {
    fn sample(&mut self, now: MonoMs, count: u64) {
        if let Some((at, before)) = self.last {
            let ms = now.ms_since(at).max(1);
            self.per_sec[self.next] = count.saturating_sub(before).saturating_mul(1000) / ms;
            self.next = (self.next + 1) % SAMPLES;
        }
        self.last = Some((now, count));
    }

    fn mean(&self) -> u64 {
        self.per_sec.iter().sum::<u64>() / SAMPLES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_of_its_last_sixteen_samples() {
        let mut stats = ServerStats::default();
        stats.sample(MonoMs(1000));
        for turn in 1..=16 {
            (0..10).for_each(|_| stats.count_call(3, 5));
            stats.sample(MonoMs(1000 + turn * 100));
        }
        assert_eq!(stats.commands_per_sec(), 100);
        (17..=24).for_each(|turn| stats.sample(MonoMs(1000 + turn * 100)));
        assert_eq!(stats.commands_per_sec(), 50);
        assert_eq!(stats.commands[3], CommandStats { calls: 160, total_us: 800 });
    }

    #[test]
    fn a_reset_forgets_counts_and_rates() {
        let mut stats = ServerStats::default();
        stats.sample(MonoMs(0));
        stats.count_call(0, 1);
        stats.sample(MonoMs(100));
        stats.reset();
        assert_eq!((stats.counters.commands_processed, stats.commands_per_sec()), (0, 0));
        assert!(stats.commands.is_empty());
    }

    #[test]
    fn what_is_counted_since_the_start_outlives_a_reset() {
        let mut stats = ServerStats::default();
        stats.counters.net_input_bytes = 7;
        stats.count_durations();
        stats.count_call(2, 300);
        stats.reset();
        stats.count_call(2, 99);
        stats.counters.net_input_bytes = 4;
        let counters = stats.since_start();
        assert_eq!((counters.commands_processed, counters.net_input_bytes), (2, 11));
        let durations: Vec<_> = stats.durations().map(|(place, it)| (place, it.sum())).collect();
        assert_eq!(durations, [(2, 399)]);
    }
}
