//! The clock of one machine: it drifts, and its wall time is set now and then.

use disque::base::time::{MonoMs, Now, UnixMs};

/// The simulated day begins here: 2026-01-01, in ms.
const EPOCH_MS: u64 = 1_767_225_600_000;
/// The machines have been up for a day, so that nothing is near time 0.
const UPTIME_MS: u64 = 86_400_000;

/// Turns the simulator's time into a machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Parts in a million by which it is too fast.
    pub drift_ppm: i64,
    /// By how much its wall time was set, in ms.
    pub wall_offset_ms: i64,
}

impl Clock {
    pub fn at(&self, sim_ms: u64) -> Now {
        let elapsed_ms = sim_ms.saturating_add_signed(drifted(sim_ms, self.drift_ppm));
        let wall_ms = (EPOCH_MS + elapsed_ms).saturating_add_signed(self.wall_offset_ms);
        Now { wall: UnixMs(wall_ms), mono: MonoMs(UPTIME_MS + elapsed_ms) }
    }

    /// The first simulated ms at which the machine's time has come.
    pub fn when(&self, at: MonoMs) -> u64 {
        let elapsed_ms = at.0.saturating_sub(UPTIME_MS);
        if at == MonoMs::NEVER || self.drift_ppm == 0 {
            return elapsed_ms;
        }
        let about = elapsed_ms.saturating_add_signed(-drifted(elapsed_ms, self.drift_ppm));
        (about.saturating_sub(2)..).find(|ms| self.at(*ms).mono >= at).expect("time goes on")
    }
}

fn drifted(ms: u64, ppm: i64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 1_000_000) * ppm / 1_000_000
}

#[test]
fn a_point_in_time_is_found_on_a_clock_that_drifts() {
    for drift_ppm in [-200, 0, 37, 200] {
        let clock = Clock { drift_ppm, wall_offset_ms: 0 };
        for at in [UPTIME_MS, UPTIME_MS + 1, UPTIME_MS + 123_456, UPTIME_MS + 9_999_999] {
            let ms = clock.when(MonoMs(at));
            assert!(clock.at(ms).mono >= MonoMs(at));
            assert!(ms == 0 || clock.at(ms - 1).mono < MonoMs(at));
        }
    }
}
