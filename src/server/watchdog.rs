//! The watchdog: a thread that logs when the loop has not come round.
//!
//! The loop beats with its periodic work, and names each command it runs. The thread
//! exists only while `watchdog-period` is not 0, and these two are all it can read, so
//! its report is short: how long, and in which command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Checks of the thread in one period.
const CHECKS: u64 = 4;

/// The loop's end of the watchdog.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    started_at: Instant,
    /// 0 ends the thread.
    period_ms: AtomicU64,
    beat_at_ms: AtomicU64,
    /// The command that runs.
    running: Mutex<Option<&'static str>>,
}

impl Default for Watchdog {
    /// A watchdog that sleeps.
    fn default() -> Self {
        let shared = Shared {
            started_at: Instant::now(),
            period_ms: AtomicU64::new(0),
            beat_at_ms: AtomicU64::new(0),
            running: Mutex::new(None),
        };
        Self { shared: Arc::new(shared), thread: None }
    }
}

impl Watchdog {
    /// Watches for silences of this length from now on; 0 stops. Returns the period in
    /// force: at least two turns of the loop's periodic work.
    pub fn set_period(&mut self, period_ms: u64, hz: u32) -> u64 {
        let least_ms = 2 * 1000 / u64::from(hz.max(1));
        let period_ms = if period_ms == 0 { 0 } else { period_ms.max(least_ms) };
        self.shared.beat();
        self.shared.period_ms.store(period_ms, Ordering::Relaxed);
        match (&self.thread, period_ms) {
            (Some(_), 0) => self.stop(),
            (Some(thread), _) => thread.thread().unpark(),
            (None, 0) => {}
            (None, _) => self.start(),
        }
        period_ms
    }

    fn start(&mut self) {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("watchdog".into());
        match thread.spawn(move || watch(&shared)) {
            Ok(thread) => self.thread = Some(thread),
            Err(e) => log::warn!("Can't start the watchdog: {e}"),
        }
    }

    fn stop(&mut self) {
        self.shared.period_ms.store(0, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It waits for nothing but this, and a panic of it has been reported.
            let _ended = thread.join();
        }
    }

    /// The loop has come round.
    pub fn beat(&self) {
        if self.thread.is_some() {
            self.shared.beat();
        }
    }

    /// This command is about to run; `None`: it has.
    pub fn runs(&self, command: Option<&'static str>) {
        if self.thread.is_some() {
            *self.shared.running.lock().unwrap_or_else(PoisonError::into_inner) = command;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self) {
        self.beat_at_ms.store(self.now_ms(), Ordering::Relaxed);
    }
}

/// Reports each silence once.
fn watch(shared: &Shared) {
    let mut reported_at_ms = None;
    loop {
        let period_ms = shared.period_ms.load(Ordering::Relaxed);
        if period_ms == 0 {
            return;
        }
        let beat_at_ms = shared.beat_at_ms.load(Ordering::Relaxed);
        let silent_ms = shared.now_ms().saturating_sub(beat_at_ms);
        if silent_ms > period_ms && reported_at_ms != Some(beat_at_ms) {
            reported_at_ms = Some(beat_at_ms);
            let running = *shared.running.lock().unwrap_or_else(PoisonError::into_inner);
            log::warn!(
                "--- WATCHDOG: the loop has not come round for {silent_ms} ms, running {} ---",
                running.unwrap_or("no command")
            );
        }
        thread::park_timeout(Duration::from_millis((period_ms / CHECKS).max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_lives_while_there_is_a_period_of_two_turns_at_least() {
        let mut watchdog = Watchdog::default();
        assert!(watchdog.thread.is_none());
        assert_eq!(watchdog.set_period(1, 10), 200);
        assert!(watchdog.thread.is_some());
        assert_eq!(watchdog.set_period(0, 10), 0);
        assert!(watchdog.thread.is_none());
    }
}
