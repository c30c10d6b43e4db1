//! How the rewrites of the append only file went, and when the next one may begin by itself.
//!
//! A rewrite writes all jobs before it finds out that it fails, so attempts that fail in a
//! row lie further and further apart. The first failure is logged, and one for another
//! reason; the others are counted.

use std::io;

use crate::base::time::MonoMs;

/// The pause after the first failure, in ms; it doubles with each further one.
const FIRST_PAUSE_MS: u64 = 1000;
/// The longest pause, in ms.
const PAUSE_MAX_MS: u64 = 3_600_000;
/// The longest pause while jobs are not safe before a rewrite works, in ms.
const URGENT_PAUSE_MAX_MS: u64 = 60_000;

/// How much depends on the next rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The file would be shorter.
    Low,
    /// Until it is rewritten there is no file, or none that can be trusted.
    High,
}

/// How the last rewrite ended; `Ok` as well when there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRewrite {
    Ok,
    Failed,
}

#[derive(Debug, Default)]
pub struct RewriteHistory {
    begun_at: MonoMs,
    last_secs: Option<u64>,
    /// Failures since the last rewrite that worked.
    failure_count: u32,
    /// Why the last rewrite failed, if it did.
    error: Option<String>,
    /// No rewrite begins by itself before this.
    next_at: MonoMs,
}

impl RewriteHistory {
    pub fn note_begun(&mut self, now: MonoMs) {
        self.begun_at = now;
    }

    /// Somebody asks for a rewrite: whatever failed before may be mended.
    pub fn note_request(&mut self) {
        self.failure_count = 0;
        self.next_at = MonoMs(0);
    }

    pub fn note_worked(&mut self, now: MonoMs, len: u64) {
        let secs = self.running_secs(now);
        match self.failure_count {
            0 => log::info!("AOF rewritten: {len} bytes in {secs} s"),
            count => log::warn!("AOF rewritten: {len} bytes in {secs} s, after {count} failures"),
        }
        *self = Self { begun_at: self.begun_at, last_secs: Some(secs), ..Self::default() };
    }

    pub fn note_failed(&mut self, now: MonoMs, error: &io::Error, urgency: Urgency) {
        let pause_max_ms = match urgency {
            Urgency::Low => PAUSE_MAX_MS,
            Urgency::High => URGENT_PAUSE_MAX_MS,
        };
        let doublings = self.failure_count.min(PAUSE_MAX_MS.ilog2());
        let pause_ms = (FIRST_PAUSE_MS << doublings).min(pause_max_ms);
        let error = error.to_string();
        if self.error.as_ref() == Some(&error) && self.failure_count > 0 {
            log::debug!("AOF rewrite failed again, the next is due in {pause_ms} ms");
        } else {
            log::warn!(
                "AOF rewrite failed: {error}. It is tried again after pauses that grow up to {} s",
                pause_max_ms / 1000
            );
        }
        self.failure_count = self.failure_count.saturating_add(1);
        self.error = Some(error);
        self.last_secs = Some(self.running_secs(now));
        self.next_at = now.plus_ms(pause_ms);
    }

    /// How long the rewrite that was begun last takes by now, in seconds.
    pub fn running_secs(&self, now: MonoMs) -> u64 {
        now.ms_since(self.begun_at) / 1000
    }

    /// How long the last rewrite took, in seconds, if there was one.
    pub fn last_secs(&self) -> Option<u64> {
        self.last_secs
    }

    pub fn last(&self) -> LastRewrite {
        if self.error.is_some() { LastRewrite::Failed } else { LastRewrite::Ok }
    }

    /// Why the last rewrite failed, if it did.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub fn failure_count(&self) -> u32 {
        self.failure_count
    }

    /// When a rewrite may begin by itself again.
    pub fn next_at(&self) -> MonoMs {
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses_ms(urgency: Urgency, count: usize) -> Vec<u64> {
        let mut history = RewriteHistory::default();
        let mut now = MonoMs(5000);
        let mut pause_ms = || {
            history.note_begun(now);
            history.note_failed(now, &io::Error::other("no space"), urgency);
            let pause_ms = history.next_at().ms_since(now);
            now = history.next_at();
            pause_ms
        };
        (0..count).map(|_| pause_ms()).collect()
    }

    #[test]
    fn failures_in_a_row_lie_further_and_further_apart() {
        assert_eq!(pauses_ms(Urgency::Low, 4), [1000, 2000, 4000, 8000]);
        assert_eq!(pauses_ms(Urgency::Low, 100)[99], PAUSE_MAX_MS);
        assert_eq!(pauses_ms(Urgency::High, 100)[99], URGENT_PAUSE_MAX_MS);
    }

    #[test]
    fn a_request_and_a_rewrite_that_works_end_the_pause() {
        let mut history = RewriteHistory::default();
        let now = MonoMs(5000);
        for _ in 0..10 {
            history.note_failed(now, &io::Error::other("no space"), Urgency::Low);
        }
        assert_eq!((history.failure_count(), history.last()), (10, LastRewrite::Failed));
        history.note_request();
        assert!(history.next_at() <= now);
        assert_eq!(history.error(), Some("no space"));
        history.note_failed(now, &io::Error::other("no space"), Urgency::Low);
        assert_eq!(history.next_at(), now.plus_ms(FIRST_PAUSE_MS));
        history.note_worked(now, 7);
        assert_eq!((history.failure_count(), history.last()), (0, LastRewrite::Ok));
        assert!(history.next_at() <= now);
    }
}
