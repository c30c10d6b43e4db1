//! How often something may happen that others cause: so many times at once, and once more
//! after each period.

use crate::base::time::MonoMs;

#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    burst: u32,
    period_ms: u64,
    used: u32,
    /// Since when the next one is regained.
    since: MonoMs,
}

impl Allowance {
    pub const fn new(burst: u32, period_ms: u64) -> Self {
        Self { burst, period_ms, used: 0, since: MonoMs(0) }
    }

    /// Takes one, if there is one left; tells whether there was.
    pub fn take(&mut self, now: MonoMs) -> bool {
        let periods = now.ms_since(self.since) / self.period_ms;
        let regained = u32::try_from(periods).unwrap_or(u32::MAX);
        if regained >= self.used {
            (self.used, self.since) = (0, now);
        } else {
            self.used -= regained;
            self.since = self.since.plus_ms(periods * self.period_ms);
        }
        let is_left = self.used < self.burst;
        self.used += u32::from(is_left);
        is_left
    }
}

/// A value that others may change, but only so often: of further ones the latest waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Damped<T> {
    allowance: Allowance,
    waiting: Option<T>,
}

impl<T> Damped<T> {
    pub const fn new(allowance: Allowance) -> Self {
        Self { allowance, waiting: None }
    }

    /// A new value came. Returns it when it may be taken over now.
    pub fn offer(&mut self, now: MonoMs, value: T) -> Option<T> {
        self.waiting = Some(value);
        self.due(now)
    }

    /// The value that waited, once it may be taken over.
    pub fn due(&mut self, now: MonoMs) -> Option<T> {
        if self.waiting.is_some() && self.allowance.take(now) { self.waiting.take() } else { None }
    }

    /// The present value came again: none waits any more.
    pub fn confirm(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_many_values_is_taken_over_in_the_end() {
        let mut damped = Damped::new(Allowance::new(2, 1000));
        let taken: Vec<u32> =
            (0..10).filter_map(|value| damped.offer(MonoMs(5000), value)).collect();
        assert_eq!(taken, [0, 1]);
        assert_eq!(damped.due(MonoMs(5999)), None);
        assert_eq!(damped.due(MonoMs(6000)), Some(9));
        assert_eq!(damped.due(MonoMs(9000)), None);
        damped.offer(MonoMs(9000), 1);
        damped.offer(MonoMs(9000), 2);
        assert_eq!(damped.offer(MonoMs(9000), 3), None);
        damped.confirm();
        assert_eq!(damped.due(MonoMs(99_000)), None);
    }

    #[test]
    fn a_burst_is_allowed_and_then_one_a_period() {
        let mut allowance = Allowance::new(3, 1000);
        let mut taken_by = |at_ms: u64| (0..10).filter(|_| allowance.take(MonoMs(at_ms))).count();
        assert_eq!(taken_by(5000), 3);
        assert_eq!(taken_by(5999), 0);
        assert_eq!(taken_by(6000), 1);
        assert_eq!(taken_by(8500), 2, "half a period is kept");
        assert_eq!(taken_by(9000), 1);
        assert_eq!(taken_by(99_000), 3, "no more than at first");
    }
}
