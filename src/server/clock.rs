//! The clocks, read in one place, and TIME.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::command::{Call, Outcome};

pub(super) static COMMANDS: &[ServerCommand] = &[row("time", time)];

/// How far the turn's time may fall behind while commands run.
const LAG_MAX: Duration = Duration::from_millis(1);

/// The time of the turn. It stands still while commands run, but for long ones.
pub struct Clock {
    pub now: Now,
    /// A point in time is compared for much less than a difference is taken.
    stale_at: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { now: read(), stale_at: Instant::now() + LAG_MAX }
    }

    /// Reads the clocks anew.
    pub fn read(&mut self) {
        *self = Self::start();
    }

    /// Reads the clocks anew if commands have run for a while until `instant`.
    pub fn catch_up(&mut self, instant: Instant) {
        if instant > self.stale_at {
            self.read();
        }
    }
}

fn read() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = UnixMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
    Now { wall, mono: boot_time() }
}

/// Time since the machine started, sleep included: a timer set before the machine slept
/// is due after it.
#[cfg(target_os = "linux")]
fn boot_time() -> MonoMs {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec to the pointer it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) } != 0;
    assert!(!failed, "Linux has had this clock since 2.6.39");
    MonoMs(time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
fn boot_time() -> MonoMs {
    use std::sync::OnceLock;
    static STARTED_AT: OnceLock<Instant> = OnceLock::new();
    let elapsed = STARTED_AT.get_or_init(Instant::now).elapsed();
    MonoMs(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// TIME -> unix time in seconds, and microseconds within the second.
fn time(server: &mut Server, call: &Call<'_>) -> Outcome {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut reply = server.reply(call);
    reply.array(2);
    reply.bulk_integer(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX));
    reply.bulk_integer(i64::from(since_epoch.subsec_micros()));
    Outcome::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go_forward() {
        let mut clock = Clock::start();
        let before = clock.now;
        clock.read();
        assert!(clock.now.mono >= before.mono);
        assert!(clock.now.wall.secs() > 1_600_000_000);
    }
}
