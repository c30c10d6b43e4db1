//! The latency monitor: what held the server up, when and for how long.
//!
//! Each [`LatencyEvent`] keeps the worst sample of each of the last 160 seconds in which it was
//! slow. Whoever did the work calls [`LatencyMonitor::note`] with how long it took; under
//! the threshold nothing is kept, and with the threshold at 0 nothing ever is.

pub mod command;
pub mod doctor;

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Most samples kept of an event. C: LATENCY_TS_LEN.
const SAMPLES_MAX: usize = 160;
const GRAPH_COLUMNS: usize = 80;
const GRAPH_ROWS: u64 = 4;
/// What a cell of the graph shows from its lowest to its highest step.
const GRAPH_STEPS: [u8; 3] = *b"_o#";

/// What can hold the server up. The C server has four more, for what does not happen here:
/// a fork, asking for the length of the append only file, renaming it, writing what came
/// during a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyEvent {
    /// A command.
    Command,
    /// A command that is fast whatever its arguments.
    FastCommand,
    /// Due jobs.
    JobsProcessing,
    /// Dropping jobs for memory.
    EvictionCycle,
    /// Writing to the append only file, in any of the next three cases.
    AofWrite,
    /// The same while nothing else was under way.
    AofWriteAlone,
    /// The same during a rewrite.
    AofWriteActiveChild,
    /// The same while the file was being synced.
    AofWritePendingFsync,
    /// Syncing before a reply.
    AofFsyncAlways,
}

impl LatencyEvent {
    const ALL: [Self; 9] = [
        Self::Command,
        Self::FastCommand,
        Self::JobsProcessing,
        Self::EvictionCycle,
        Self::AofWrite,
        Self::AofWriteAlone,
        Self::AofWriteActiveChild,
        Self::AofWritePendingFsync,
        Self::AofFsyncAlways,
    ];

    /// The name clients know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::FastCommand => "fast-command",
            Self::JobsProcessing => "jobs-processing",
            Self::EvictionCycle => "eviction-cycle",
            Self::AofWrite => "aof-write",
            Self::AofWriteAlone => "aof-write-alone",
            Self::AofWriteActiveChild => "aof-write-active-child",
            Self::AofWritePendingFsync => "aof-write-pending-fsync",
            Self::AofFsyncAlways => "aof-fsync-always",
        }
    }

    /// The event of that name; names are case-sensitive here as in C.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name().as_bytes() == name)
    }
}

/// The worst of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    pub at_unix_secs: u64,
    pub latency_ms: u64,
}

/// What is known of one event.
#[derive(Clone, Debug)]
pub struct Series {
    pub event: LatencyEvent,
    /// Oldest first, never empty.
    samples: VecDeque<LatencySample>,
    /// The worst since the event was reset, kept samples or not.
    pub highest_ms: u64,
}

#[derive(Default)]
pub struct LatencyMonitor {
    series: Vec<Series>,
}

impl LatencyMonitor {
    /// Keeps what took at least `threshold_ms`; a threshold of 0 keeps nothing.
    pub fn note(
        &mut self,
        event: LatencyEvent,
        latency_ms: u64,
        at_unix_secs: u64,
        threshold_ms: u64,
    ) {
        if threshold_ms == 0 || latency_ms < threshold_ms {
            return;
        }
        let sample = LatencySample { at_unix_secs, latency_ms };
        match self.series.iter_mut().find(|series| series.event == event) {
            Some(series) => series.add(sample),
            None => self.series.push(Series {
                event,
                samples: VecDeque::from([sample]),
                highest_ms: latency_ms,
            }),
        }
    }

    /// The events that have samples.
    pub fn all(&self) -> &[Series] {
        &self.series
    }

    pub fn of(&self, name: &[u8]) -> Option<&Series> {
        let event = LatencyEvent::named(name)?;
        self.series.iter().find(|series| series.event == event)
    }

    /// Forgets one event, named in any case; returns whether there was something to forget.
    pub fn reset(&mut self, name: &[u8]) -> bool {
        let count = self.series.len();
        self.series.retain(|series| !series.event.name().as_bytes().eq_ignore_ascii_case(name));
        self.series.len() < count
    }

    /// Forgets everything; returns how many events had samples.
    pub fn reset_all(&mut self) -> usize {
        let count = self.series.len();
        self.series.clear();
        count
    }
}

impl Series {
    fn add(&mut self, sample: LatencySample) {
        self.highest_ms = self.highest_ms.max(sample.latency_ms);
        match self.samples.back_mut() {
            Some(last) if last.at_unix_secs == sample.at_unix_secs => {
                last.latency_ms = last.latency_ms.max(sample.latency_ms);
            }
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(sample);
            }
        }
    }

    /// Oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &LatencySample> {
        self.samples.iter()
    }

    pub fn latest(&self) -> LatencySample {
        *self.samples.back().expect("a series begins with a sample")
    }

    /// The samples as a drawing of 80 columns, with how long ago they were below it.
    pub fn graph(&self, now_unix_secs: u64) -> String {
        let latencies = || self.samples.iter().map(|sample| sample.latency_ms);
        let high_ms = latencies().max().unwrap_or(0);
        let low_ms = latencies().min().unwrap_or(0);
        let mut graph = format!(
            "{} - high {high_ms} ms, low {low_ms} ms (all time high {} ms)\n{}\n",
            self.event.name(),
            self.highest_ms,
            "-".repeat(GRAPH_COLUMNS),
        );
        let columns: Vec<Column> = self
            .samples
            .iter()
            .map(|sample| Column {
                step: step(sample.latency_ms - low_ms, high_ms - low_ms),
                label: ago(now_unix_secs.saturating_sub(sample.at_unix_secs)),
            })
            .collect();
        for (at, part) in columns.chunks(GRAPH_COLUMNS).enumerate() {
            if at > 0 {
                graph.push('\n');
            }
            draw(&mut graph, part);
        }
        graph
    }
}

struct Column {
    /// How high the bar is, from 0.
    step: u64,
    /// Written downwards below the bar.
    label: String,
}

/// The height of a value in a range from 0 to `highest`.
fn step(value: u64, highest: u64) -> u64 {
    let steps = GRAPH_ROWS * GRAPH_STEPS.len() as u64;
    (value.saturating_mul(steps) / highest.max(1)).min(steps - 1)
}

fn ago(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{}m", secs / 60),
        3600..86_400 => format!("{}h", secs / 3600),
        _ => format!("{}d", secs / 86_400),
    }
}

fn draw(graph: &mut String, columns: &[Column]) {
    let steps = GRAPH_STEPS.len() as u64;
    for row in (0..GRAPH_ROWS).rev() {
        let cells = columns.iter().map(|column| match column.step.checked_sub(row * steps) {
            None => ' ',
            Some(above) if above < steps => char::from(GRAPH_STEPS[above as usize]),
            Some(_) => '|',
        });
        graph.extend(cells.chain(['\n']));
    }
    let _infallible = writeln!(graph, "{:1$}", "", columns.len());
    let label_max = columns.iter().map(|column| column.label.len()).max().unwrap_or(0);
    for at in 0..label_max {
        let cells = columns.iter().map(|column| column.label.chars().nth(at).unwrap_or(' '));
        graph.extend(cells.chain(['\n']));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(monitor: &mut LatencyMonitor, latency_ms: u64, at_unix_secs: u64) {
        monitor.note(LatencyEvent::Command, latency_ms, at_unix_secs, 10);
    }

    fn samples(monitor: &LatencyMonitor) -> Vec<(u64, u64)> {
        let series = monitor.of(b"command").expect("it was noted");
        series.samples().map(|sample| (sample.at_unix_secs, sample.latency_ms)).collect()
    }

    #[test]
    fn a_second_keeps_its_worst_sample() {
        let mut monitor = LatencyMonitor::default();
        for (latency_ms, at) in [(10, 100), (30, 100), (20, 100), (9, 101), (15, 102)] {
            note(&mut monitor, latency_ms, at);
        }
        assert_eq!(samples(&monitor), [(100, 30), (102, 15)]);
        let series = monitor.of(b"command").expect("it was noted");
        assert_eq!((series.latest().latency_ms, series.highest_ms), (15, 30));
    }

    #[test]
    fn only_the_last_160_samples_are_kept_but_the_highest_is_remembered() {
        let mut monitor = LatencyMonitor::default();
        note(&mut monitor, 500, 1);
        (2..=200).for_each(|at| note(&mut monitor, 10, at));
        let kept = samples(&monitor);
        assert_eq!((kept.len(), kept[0].0), (160, 41));
        assert_eq!(monitor.all()[0].highest_ms, 500);
    }

    #[test]
    fn a_threshold_of_zero_keeps_nothing() {
        let mut monitor = LatencyMonitor::default();
        monitor.note(LatencyEvent::Command, 1000, 1, 0);
        assert!(monitor.all().is_empty());
    }

    #[test]
    fn events_are_reset_by_name_in_any_case_or_all_at_once() {
        let mut monitor = LatencyMonitor::default();
        for event in LatencyEvent::ALL {
            monitor.note(event, 10, 1, 1);
        }
        assert!(monitor.reset(b"AOF-Write"));
        assert!(!monitor.reset(b"aof-write"));
        assert!(monitor.of(b"aof-write-alone").is_some());
        assert_eq!(monitor.reset_all(), LatencyEvent::ALL.len() - 1);
    }

    #[test]
    fn the_graph_shows_heights_and_ages() {
        let mut monitor = LatencyMonitor::default();
        for (latency_ms, at) in [(10, 0), (130, 3600), (70, 3600 * 24 - 90), (40, 3600 * 24 - 5)] {
            note(&mut monitor, latency_ms, at);
        }
        let graph = monitor.all()[0].graph(3600 * 24);
        let lines: Vec<&str> = graph.lines().collect();
        assert_eq!(lines[0], "command - high 130 ms, low 10 ms (all time high 130 ms)");
        assert_eq!(lines[1], "-".repeat(80));
        assert_eq!(lines[2..6], [" #  ", " |_ ", " ||_", "_|||"]);
        assert_eq!(lines[6..], ["    ", "1215", "d3ms", " h  "]);
    }
}
