//! Recurring work and single appointments, as points in time.
//!
//! A table of a handful of events, walked in full: it is asked twice a turn. Times
//! are milliseconds of a clock of the owner's choice, which never steps.
//!
//! Periodic events run on the first turn after they are due. They do not end a
//! wait for themselves until a whole further period has passed: on a server that
//! wakes for other reasons they ride along, and one that sleeps is woken by one
//! timer, not by each of them in its own phase.

/// The events of one loop; `E` distinguishes them.
pub struct TimeTable<E> {
    rows: Vec<Row<E>>,
}

struct Row<E> {
    event: E,
    due_at_ms: u64,
    repeat: Recurrence,
}

#[derive(Clone, Copy)]
enum Recurrence {
    EveryMs(u64),
    Once,
}

const NEVER: u64 = u64::MAX;

impl<E: Copy + PartialEq> TimeTable<E> {
    pub const fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Has `event` happen every `period_ms` from now on; a second call changes the period.
    pub fn every(&mut self, event: E, period_ms: u64, now_ms: u64) {
        let due_at_ms = now_ms.saturating_add(period_ms);
        self.put(Row { event, due_at_ms, repeat: Recurrence::EveryMs(period_ms) });
    }

    /// Has `event` happen once, at `at_ms`; a second call moves it.
    pub fn once(&mut self, event: E, at_ms: u64) {
        self.put(Row { event, due_at_ms: at_ms, repeat: Recurrence::Once });
    }

    /// Keeps `event` from happening until it is set up again.
    pub fn cancel(&mut self, event: E) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.event == event) {
            row.due_at_ms = NEVER;
        }
    }

    fn put(&mut self, row: Row<E>) {
        match self.rows.iter_mut().find(|present| present.event == row.event) {
            Some(present) => *present = row,
            None => self.rows.push(row),
        }
    }

    /// The point in time at which a wait has to end for the sake of these events;
    /// `u64::MAX` when there are none.
    pub fn wake_at_ms(&self) -> u64 {
        self.rows.iter().map(Row::wake_at_ms).min().unwrap_or(NEVER)
    }

    /// Hands out one due event and re-arms it. Its next time counts from `now_ms`:
    /// after a stall it does not run again and again to catch up.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<E> {
        let row = self.rows.iter_mut().find(|row| row.due_at_ms <= now_ms)?;
        row.due_at_ms = match row.repeat {
            Recurrence::EveryMs(period_ms) => now_ms.saturating_add(period_ms),
            Recurrence::Once => NEVER,
        };
        Some(row.event)
    }
}

impl<E: Copy + PartialEq> Default for TimeTable<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Row<E> {
    fn wake_at_ms(&self) -> u64 {
        match self.repeat {
            Recurrence::EveryMs(period_ms) => self.due_at_ms.saturating_add(period_ms),
            Recurrence::Once => self.due_at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_periodic_event_rides_along_once_due_and_wakes_alone_a_period_later() {
        let mut table = TimeTable::new();
        table.every('a', 100, 1000);
        assert_eq!(table.wake_at_ms(), 1200);
        assert_eq!(table.pop_due(1099), None);
        assert_eq!(table.pop_due(1100), Some('a'));
        assert_eq!(table.pop_due(1100), None);
        assert_eq!(table.wake_at_ms(), 1300);
    }

    #[test]
    fn after_a_stall_an_event_runs_once() {
        let mut table = TimeTable::new();
        table.every('a', 100, 0);
        assert_eq!(table.pop_due(5000), Some('a'));
        assert_eq!(table.pop_due(5000), None);
        assert_eq!(table.pop_due(5100), Some('a'));
    }

    #[test]
    fn an_appointment_is_kept_on_time_and_once() {
        let mut table = TimeTable::new();
        table.once('b', 50);
        assert_eq!(table.wake_at_ms(), 50);
        assert_eq!(table.pop_due(50), Some('b'));
        assert_eq!(table.wake_at_ms(), u64::MAX);
        table.once('b', 70);
        table.once('b', 90);
        table.cancel('b');
        assert_eq!(table.pop_due(1000), None);
    }
}
