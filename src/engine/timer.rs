//! Recurring work. A new kind is a variant, its place in `ALL`, a period, and an arm in
//! the engine's `run_timer`; the compiler asks for the last two.

use crate::base::time::MonoMs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Links, pings, failure detection. C: clusterCron.
    Cluster,
    /// Ask other nodes for jobs that clients here wait for; see after those who still
    /// wait on a node that leaves. C: clientsCron.
    Waiters,
    /// Drop queues that are empty, idle and watched by nobody.
    IdleQueues,
}

impl Timer {
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Waiters, Self::IdleQueues];

    const fn period_ms(self) -> u64 {
        match self {
            Self::Cluster | Self::Waiters | Self::IdleQueues => 100,
        }
    }
}

pub struct TimerTable([MonoMs; Timer::ALL.len()]);

impl TimerTable {
    pub fn new(now: MonoMs) -> Self {
        Self(Timer::ALL.map(|timer| now.plus_ms(timer.period_ms())))
    }

    pub fn next_at(&self) -> MonoMs {
        self.0.into_iter().min().expect("there is at least one timer")
    }

    /// Hands out one due timer and arms it again, counting from `now`: after a stall,
    /// work that takes longer than its period must not be called to catch up.
    pub fn pop_due(&mut self, now: MonoMs) -> Option<Timer> {
        let (timer, due_at) =
            Timer::ALL.into_iter().zip(&mut self.0).find(|(_, due_at)| **due_at <= now)?;
        *due_at = now.plus_ms(timer.period_ms());
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_not_caught_up_with() {
        let mut timers = TimerTable::new(MonoMs(0));
        let due = |timers: &mut TimerTable, now| {
            core::iter::from_fn(|| timers.pop_due(MonoMs(now))).count()
        };
        assert_eq!(due(&mut timers, 99), 0);
        assert_eq!(due(&mut timers, 10_000), Timer::ALL.len());
        assert_eq!(timers.next_at(), MonoMs(10_100));
    }
}
