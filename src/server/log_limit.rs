//! Lines of the log that anybody on the network could cause without end.

use crate::base::time::MonoMs;

/// There is a line of one kind at most this often.
const LINE_PERIOD_MS: u64 = 60_000;

/// When the log had a line of one kind last, and how often it would have had one since.
#[derive(Default)]
pub struct LogLimit {
    at: Option<MonoMs>,
    unlogged: u64,
}

impl LogLimit {
    /// How often it happened since the last line, this time included; `None` if it is too early
    /// for the next.
    pub fn count(&mut self, now: MonoMs) -> Option<u64> {
        self.unlogged += 1;
        if self.at.is_some_and(|at| now.ms_since(at) < LINE_PERIOD_MS) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_a_minute_and_the_next_one_counts() {
        let mut limit = LogLimit::default();
        let lines = [0, 1, 59_999, 60_000, 60_001, 200_000].map(|ms| limit.count(MonoMs(5 + ms)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
