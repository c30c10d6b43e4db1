//! Directives about finding out what holds the server up.

use super::{DirectiveGroup, LIVE, SET_ONLY, at_least, place, row};
use crate::server::config::form::ValueForm;

pub(super) const DIAGNOSTICS: DirectiveGroup = DirectiveGroup {
    title: "Slow log, latency monitor and watchdog",
    directives: &[
        row(
            "slowlog-log-slower-than",
            // Differs from C: CONFIG SET takes a negative number too, because the file does.
            ValueForm::Number { min: i64::MIN, max: i64::MAX, unit: "microseconds" },
            LIVE,
            place!(slowlog_log_slower_than_us),
            "Commands that ran longer are kept for SLOWLOG; 0 keeps all, a negative number \
             none.",
        ),
        row(
            "slowlog-max-len",
            at_least(0, "entries"),
            LIVE,
            place!(slowlog_max_len),
            "How many entries the slow log keeps; the oldest goes first.",
        )
        .when_set(|server, next| {
            server.slowlog.shorten(next.slowlog_max_len);
            Ok(())
        }),
        row(
            "latency-monitor-threshold",
            at_least(0, "milliseconds"),
            LIVE,
            place!(latency_monitor_threshold_ms),
            "Anything that holds the server up for at least this long is kept for LATENCY; 0 \
             turns this off.",
        ),
        row(
            "watchdog-period",
            at_least(0, "milliseconds"),
            SET_ONLY,
            place!(watchdog_period_ms),
            "Logs a report when the server has not come round for so long; 0 turns this off. \
             For finding what holds a server up; CONFIG SET only.",
        )
        .when_set(|server, next| {
            next.watchdog_period_ms = server.watchdog.set_period(next.watchdog_period_ms, next.hz);
            Ok(())
        }),
    ],
};
