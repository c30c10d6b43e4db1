//! LATENCY DOCTOR: the samples in words, and what one can do about them.

use std::fmt::Write as _;

use super::{LatencyEvent, LatencyMonitor, Series};
use crate::server::config::{AppendFsync, Config};

/// What an operator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    TurnSlowLogOn,
    LowerSlowLogLimit,
    ReadSlowLog,
    SmallerRequests,
    GiveItACpu,
    LocalDisk,
    FasterDisk,
    LessDiskLoad,
    NoFsyncOnRewrite,
    RelaxFsync,
}

/// The report.
pub fn report(monitor: &LatencyMonitor, config: &Config, now_unix_secs: u64) -> String {
    if monitor.all().is_empty() {
        return if config.latency_monitor_threshold_ms == 0 {
            "The latency monitor is off. Turn it on with CONFIG SET latency-monitor-threshold \
             <milliseconds>, wait for trouble, and ask again.\n"
                .to_owned()
        } else {
            "Nothing took longer than the threshold since the monitor was started or reset.\n"
                .to_owned()
        };
    }
    let mut text = String::from("These held the server up:\n\n");
    let mut advice = Vec::new();
    for (at, series) in monitor.all().iter().enumerate() {
        let _infallible = writeln!(text, "{}. {}", at + 1, summary(series, now_unix_secs));
        for new in advice_on(series.event, config) {
            if !advice.contains(&new) {
                advice.push(new);
            }
        }
    }
    if advice.is_empty() {
        text.push_str("\nThere is no simple advice on these.\n");
    } else {
        text.push_str("\nWhat to try:\n\n");
        for advice in advice {
            let _infallible = writeln!(text, "- {}", advice_text(advice, config));
        }
    }
    text
}

fn summary(series: &Series, now_unix_secs: u64) -> String {
    let count = series.samples().len() as u64;
    let average_ms = series.samples().map(|sample| sample.latency_ms).sum::<u64>() / count;
    let deviation_ms =
        series.samples().map(|sample| sample.latency_ms.abs_diff(average_ms)).sum::<u64>() / count;
    let oldest = series.samples().map(|sample| sample.at_unix_secs).min().unwrap_or(now_unix_secs);
    let secs = now_unix_secs.saturating_sub(oldest).max(1);
    format!(
        "{}: {count} spikes, {average_ms} ms on average (mean deviation {deviation_ms} ms), one \
         every {:.2} seconds. The worst ever took {} ms.",
        series.event.name(),
        secs as f64 / count as f64,
        series.highest_ms,
    )
}

fn advice_on(event: LatencyEvent, config: &Config) -> Vec<Advice> {
    let threshold_us = i64::try_from(config.latency_monitor_threshold_ms.saturating_mul(1000));
    match event {
        LatencyEvent::Command => {
            let mut advice = match config.slowlog_log_slower_than_us {
                ..0 => vec![Advice::TurnSlowLogOn],
                limit_us if threshold_us.is_ok_and(|us| limit_us > us) => {
                    vec![Advice::LowerSlowLogLimit]
                }
                _ => vec![],
            };
            advice.extend([Advice::ReadSlowLog, Advice::SmallerRequests]);
            advice
        }
        LatencyEvent::FastCommand => vec![Advice::GiveItACpu],
        LatencyEvent::AofWritePendingFsync => {
            vec![Advice::LocalDisk, Advice::LessDiskLoad, Advice::FasterDisk]
        }
        LatencyEvent::AofWriteActiveChild => vec![Advice::NoFsyncOnRewrite, Advice::FasterDisk],
        LatencyEvent::AofWriteAlone => vec![Advice::LocalDisk, Advice::FasterDisk],
        LatencyEvent::AofFsyncAlways if config.appendfsync == AppendFsync::Always => {
            vec![Advice::RelaxFsync, Advice::FasterDisk]
        }
        LatencyEvent::EvictionCycle => vec![Advice::SmallerRequests],
        LatencyEvent::JobsProcessing | LatencyEvent::AofWrite | LatencyEvent::AofFsyncAlways => {
            vec![]
        }
    }
}

fn advice_text(advice: Advice, config: &Config) -> String {
    let threshold_us = config.latency_monitor_threshold_ms.saturating_mul(1000);
    match advice {
        Advice::TurnSlowLogOn => format!(
            "The slow log is off, so the slow commands are not known. CONFIG SET \
             slowlog-log-slower-than {threshold_us} would catch them."
        ),
        Advice::LowerSlowLogLimit => format!(
            "The slow log catches only commands slower than those seen here. CONFIG SET \
             slowlog-log-slower-than {threshold_us} would catch these too."
        ),
        Advice::ReadSlowLog => "SLOWLOG GET shows which commands were slow.".to_owned(),
        Advice::SmallerRequests => {
            "Send less at once: smaller bodies, fewer IDs a call, smaller COUNTs.".to_owned()
        }
        Advice::GiveItACpu => "Commands that cannot be slow were slow, so the machine did not let \
                               the server run. Take load off it, look for noisy neighbours on a \
                               virtual one, and see what 'disque --intrinsic-latency 100' measures."
            .to_owned(),
        Advice::LocalDisk => "Keep the append only file on a local disk.".to_owned(),
        Advice::FasterDisk => "A faster disk, above all one that syncs faster, helps.".to_owned(),
        Advice::LessDiskLoad => "Let other programs use this disk less.".to_owned(),
        Advice::NoFsyncOnRewrite => "If losing a little more in a crash is acceptable, \
                                     no-appendfsync-on-rewrite spares the disk during rewrites."
            .to_owned(),
        Advice::RelaxFsync => "appendfsync always waits for the disk before each reply; everysec \
                               does not."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_says_when_the_monitor_is_off_and_when_all_is_well() {
        let monitor = LatencyMonitor::default();
        let off = Config::default();
        assert!(report(&monitor, &off, 1).contains("is off"));
        let on = Config { latency_monitor_threshold_ms: 10, ..off };
        assert!(report(&monitor, &on, 1).starts_with("Nothing took longer"));
    }

    #[test]
    fn each_advice_is_given_once() {
        let mut monitor = LatencyMonitor::default();
        let config = Config {
            latency_monitor_threshold_ms: 10,
            slowlog_log_slower_than_us: -1,
            ..Config::default()
        };
        monitor.note(LatencyEvent::Command, 30, 100, 10);
        monitor.note(LatencyEvent::Command, 50, 104, 10);
        monitor.note(LatencyEvent::EvictionCycle, 30, 100, 10);
        let text = report(&monitor, &config, 110);
        assert!(
            text.contains(
                "1. command: 2 spikes, 40 ms on average (mean deviation 10 ms), one every 5.00 \
                 seconds. The worst ever took 50 ms."
            ),
            "{text}"
        );
        assert_eq!(text.matches("Send less at once").count(), 1);
        assert!(text.contains("slowlog-log-slower-than 10000 would catch them"));
    }
}
