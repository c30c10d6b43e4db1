//! What must hold of everything that clients saw.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of one job from outside.
#[derive(Debug, Default)]
pub struct Story {
    pub retry_secs: u64,
    pub added_at_ms: u64,
    pub delay_ms: u64,
    pub ttl_ms: u64,
    /// When it was delivered, in order.
    pub deliveries: Vec<u64>,
    pub acked_at_ms: Option<u64>,
    /// When a client last put it back or took it out by hand.
    pub touched_at_ms: Option<u64>,
}

/// The jobs that producers were promised, by ID.
#[derive(Debug, Default)]
pub struct Stories(pub BTreeMap<Vec<u8>, Story>);

/// Clocks and timers may be this far apart, in ms: the spread of requeue times, and one
/// turn.
const TIME_ERROR_MS: u64 = 260;

impl Stories {
    pub fn delivered(&mut self, id: &[u8], now_ms: u64) {
        let story = self.0.get_mut(id).expect("only promised jobs are delivered");
        assert!(story.acked_at_ms.is_none(), "{} came back after its ack: {story:?}", text(id));
        story.deliveries.push(now_ms);
        story.check(id);
    }
}

fn text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}

impl Story {
    /// What must hold after each delivery, on a node alone.
    fn check(&self, id: &[u8]) {
        let id = text(id);
        let &last_at = self.deliveries.last().expect("it was just delivered");
        assert!(
            last_at + TIME_ERROR_MS >= self.added_at_ms + self.delay_ms,
            "{id} came before its delay was over: {self:?}"
        );
        // It is removed a second after its TTL, which counts whole seconds.
        assert!(
            last_at <= self.added_at_ms + self.ttl_ms + 1000,
            "{id} came after it had expired: {self:?}"
        );
        if self.retry_secs == 0 {
            assert_eq!(self.deliveries.len(), 1, "{id} is delivered at most once: {self:?}");
        }
    }

    /// Whether a job that is left over has been waiting for its delivery for too long.
    pub fn is_overdue(&self, now_ms: u64) -> bool {
        let due_ms = match (self.deliveries.last(), self.retry_secs) {
            (Some(_), 0) => return false,
            (Some(last_at), retry_secs) => last_at + retry_secs * 1000,
            (None, _) => self.added_at_ms + self.delay_ms,
        };
        let due_ms = due_ms.max(self.touched_at_ms.unwrap_or(0) + self.retry_secs * 1000);
        now_ms > due_ms + 2 * TIME_ERROR_MS + 100
    }
}

/// The number of different IDs among these.
pub fn distinct(ids: &[Vec<u8>]) -> usize {
    ids.iter().collect::<BTreeSet<_>>().len()
}
