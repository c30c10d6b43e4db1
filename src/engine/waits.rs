//! How long jobs waited in their queues on this node, from there to a client.
//!
//! A job does not say when it was queued, and whoever does not ask for this is not to pay
//! for it. So the times stand in a table of their own, by the slots of the jobs, that is there
//! once [`Engine::count_waits`] was called: four bytes a job, and a histogram a queue.
//!
//! What is lent to another node waits on there, and counts there, from when it came.

use crate::base::histogram::Histogram;
use crate::base::time::MonoMs;

use super::Engine;
use super::jobs::JobRef;
use super::queue::QueueRef;

/// The bounds of the histograms, in ms: from a worker that was waiting to a backlog of hours.
pub const WAIT_BOUNDS_MS: [u64; 11] =
    [5, 25, 100, 500, 1000, 5000, 30_000, 120_000, 600_000, 3_600_000, u64::MAX];

/// How long the jobs of a queue waited before a client got them, in ms.
pub type WaitHistogram = Histogram<{ WAIT_BOUNDS_MS.len() }>;

/// Slots of one part of the table: it grows without being copied.
const PART_LEN: usize = 16 * 1024;

/// When each queued job was queued.
#[derive(Debug, Default)]
pub(super) struct QueuedTimes {
    /// By slot: milliseconds, of which the low 32 bits tell apart what is 49 days old.
    parts: Vec<Box<[u32]>>,
}

impl QueuedTimes {
    /// A job is queued now.
    pub fn note(&mut self, r: JobRef, now: MonoMs) {
        let (part, place) = place_of(r);
        while self.parts.len() <= part {
            self.parts.push(vec![0; PART_LEN].into_boxed_slice());
        }
        self.parts[part][place] = low_bits(now);
    }

    /// How long ago a job was queued that is fetched now, in ms.
    pub fn waited_ms(&self, r: JobRef, now: MonoMs) -> u64 {
        let (part, place) = place_of(r);
        let queued_at = self.parts.get(part).map_or(0, |part| part[place]);
        u64::from(low_bits(now).wrapping_sub(queued_at))
    }
}

fn place_of(r: JobRef) -> (usize, usize) {
    let slot = r.slot() as usize;
    (slot / PART_LEN, slot % PART_LEN)
}

fn low_bits(at: MonoMs) -> u32 {
    at.0 as u32
}

impl Engine {
    /// From now on it is counted how long jobs wait. For the start, before there are jobs.
    pub fn count_waits(&mut self) {
        self.queued_times = Some(Box::default());
    }

    /// A job is put into its queue. Cold, so that whoever does not count pays one test.
    #[cold]
    pub(super) fn note_queued(&mut self, r: JobRef) {
        if let Some(times) = &mut self.queued_times {
            times.note(r, self.now.mono);
        }
    }

    /// A client gets a job that was queued.
    #[cold]
    pub(super) fn note_waited(&mut self, q: QueueRef, r: JobRef) {
        if let Some(times) = &self.queued_times
            && let Some(queue) = self.queues[q].live_mut()
        {
            let waited_ms = times.waited_ms(r, self.now.mono);
            queue.waits.get_or_insert_default().note(&WAIT_BOUNDS_MS, waited_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_across_the_end_of_the_low_bits() {
        let mut times = QueuedTimes::default();
        let at = |slot| JobRef::from_slot(slot);
        let start = MonoMs((7 << 32) - 10);
        times.note(at(0), start);
        times.note(at(40_000), start.plus_ms(5));
        assert_eq!(times.waited_ms(at(0), start.plus_ms(90)), 90);
        assert_eq!(times.waited_ms(at(40_000), start.plus_ms(5)), 0);
        assert_eq!(times.parts.len(), 3);
    }
}
