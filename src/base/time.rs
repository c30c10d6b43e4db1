//! Time as a value. Nothing here reads a clock: the loop does, once a turn, and
//! hands the result to everybody as a [`Now`] that stands still while it is used.
//!
//! Two clocks run side by side. *Wall* time is what clients, peers and files
//! speak of. *Mono* time never steps and drives every timer, so setting the
//! system's clock moves no deadline.

/// A point in wall time: milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

/// A point in mono time: milliseconds since the machine started (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoMs(pub u64);

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub wall: UnixMs,
    pub mono: MonoMs,
}

impl UnixMs {
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since 1970.
    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }
}

impl MonoMs {
    /// Later than every timer: "never".
    pub const NEVER: Self = Self(u64::MAX);

    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Now {
    /// The wall time that a point in mono time will have, as the clocks stand now.
    pub const fn wall_at(self, at: MonoMs) -> UnixMs {
        if at.0 >= self.mono.0 {
            UnixMs(self.wall.0.saturating_add(at.0 - self.mono.0))
        } else {
            UnixMs(self.wall.0.saturating_sub(self.mono.0 - at.0))
        }
    }

    /// The mono time of a point in wall time; a point before the machine started is 0.
    pub const fn mono_at(self, at: UnixMs) -> MonoMs {
        if at.0 >= self.wall.0 {
            MonoMs(self.mono.0.saturating_add(at.0 - self.wall.0))
        } else {
            MonoMs(self.mono.0.saturating_sub(self.wall.0 - at.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_and_mono_convert_both_ways() {
        let now = Now { wall: UnixMs(1_000_000), mono: MonoMs(5_000) };
        assert_eq!(now.wall_at(MonoMs(7_500)), UnixMs(1_002_500));
        assert_eq!(now.wall_at(MonoMs(1_000)), UnixMs(996_000));
        assert_eq!(now.mono_at(UnixMs(1_002_500)), MonoMs(7_500));
        assert_eq!(now.mono_at(UnixMs(0)), MonoMs(0));
    }
}
