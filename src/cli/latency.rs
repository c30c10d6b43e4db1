//! How long things take: the round trip of a PING, and what the system itself adds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::connection::ServerConnection;
use super::failure::Failure;
use super::options::{CliOptions, LatencyReport};
use super::output::PrintForm;
use super::table::{Align, Cell, EndlessTable, TableColumn};
use super::{terminal, wait};
use crate::base::reason::reason;

/// Pause between two samples. C: LATENCY_SAMPLE_RATE.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Time between the lines of the history. C: LATENCY_HISTORY_DEFAULT_INTERVAL.
const HISTORY_EVERY: Duration = Duration::from_secs(15);
/// Time between the lines of percentiles.
const DISTRIBUTION_EVERY: Duration = Duration::from_secs(1);

pub const COLUMNS: &[TableColumn] = &[
    column("samples", "samples"),
    column("min_us", "min us"),
    column("p50_us", "50%"),
    column("p90_us", "90%"),
    column("p99_us", "99%"),
    column("p999_us", "99.9%"),
    column("max_us", "max us"),
];

const fn column(key: &'static str, heading: &'static str) -> TableColumn {
    TableColumn { heading, key, align: Align::Right, width_min: 9 }
}

/// Samples and reports until the process is ended or the server is gone.
pub fn run(options: &CliOptions, report: LatencyReport) -> Result<u8, Failure> {
    let mut connection = ServerConnection::open(&options.address, options.login.as_ref(), None)?;
    let form = options.format.form;
    let period = options.interval.unwrap_or(match report {
        LatencyReport::History => HISTORY_EVERY,
        LatencyReport::Running | LatencyReport::Distribution => DISTRIBUTION_EVERY,
    });
    let sampled = match report {
        // Programs get percentiles, whichever report it is.
        _ if form.is_for_programs() => return distribution(&mut connection, period, form),
        LatencyReport::Distribution => return distribution(&mut connection, period, form),
        LatencyReport::History => sample(&mut connection, Some(period)),
        LatencyReport::Running => sample(&mut connection, None),
    };
    // The running line has no end yet.
    if !matches!(sampled, Err(Failure::Output(_))) {
        terminal::print("\n")?;
    }
    sampled
}

fn ping(connection: &mut ServerConnection) -> Result<Duration, Failure> {
    let start = Instant::now();
    connection.call(&["PING"])?;
    Ok(start.elapsed())
}

/// Rewrites one line with every sample; with a period, begins a new one after it.
fn sample(connection: &mut ServerConnection, period: Option<Duration>) -> Result<u8, Failure> {
    let (mut min, mut max, mut total, mut count) = (u128::MAX, 0, 0, 0);
    let mut start = Instant::now();
    loop {
        let ms = ping(connection)?.as_millis();
        min = min.min(ms);
        max = max.max(ms);
        total += ms;
        count += 1;
        let average = total as f64 / f64::from(count);
        terminal::draw(format!(
            "\x1b[0G\x1b[2Kmin: {min}, max: {max}, avg: {average:.2} ({count} samples)"
        ))?;
        let range = start.elapsed();
        if period.is_some_and(|period| range > period) {
            terminal::print(format!(" -- {:.2} seconds range\n", range.as_secs_f64()))?;
            (min, max, total, count) = (u128::MAX, 0, 0, 0);
            start = Instant::now();
        }
        wait::pause(SAMPLE_EVERY)?;
    }
}

/// Prints a row of percentiles, in microseconds, for each period.
fn distribution(
    connection: &mut ServerConnection,
    period: Duration,
    form: PrintForm,
) -> Result<u8, Failure> {
    let mut table = EndlessTable::new(COLUMNS, form);
    loop {
        let mut samples =
            Histogram::<u64>::new(3).expect("three significant digits are a valid precision");
        let start = Instant::now();
        while start.elapsed() < period {
            let micros = ping(connection)?.as_micros();
            samples.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
            wait::pause(SAMPLE_EVERY)?;
        }
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|q| samples.value_at_quantile(q));
        let row =
            [samples.len(), samples.min()].into_iter().chain(quantiles).chain([samples.max()]);
        terminal::print(table.row(&row.map(Cell::Count).collect::<Vec<_>>()))?;
    }
}

/// Measures how long the system keeps a process waiting that only computes.
///
/// Ends after the given time, or at once on SIGINT, with a summary.
pub fn intrinsic(secs: u64) -> Result<u8, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted)).map_err(
        |error| Failure::Message(format!("Cannot watch for Ctrl-C: {}", reason(&error))),
    )?;
    let begin = Instant::now();
    let limit = Duration::from_secs(secs);
    let (mut runs, mut worst) = (0_u64, 0);
    loop {
        let start = Instant::now();
        std::hint::black_box(busy_work());
        let micros = start.elapsed().as_micros();
        runs += 1;
        if micros > worst {
            worst = micros;
            terminal::print(format!("Max latency so far: {worst} microseconds.\n"))?;
        }
        if begin.elapsed() >= limit || interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    // Differs from C: nanoseconds are a thousandth of a microsecond, because C is ten times off.
    let average_us = begin.elapsed().as_secs_f64() * 1e6 / runs as f64;
    terminal::print(format!(
        "\n{runs} total runs (avg latency: {average_us:.4} microseconds / {:.2} nanoseconds per run).\n\
         Worst run took {:.0}x longer than the average latency.\n",
        average_us * 1e3,
        worst as f64 / average_us,
    ))?;
    Ok(0)
}

/// A few microseconds of computation without a system call in it.
fn busy_work() -> u64 {
    (0..4000_u64).fold(1, |state, step| {
        std::hint::black_box(state ^ step).rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}
