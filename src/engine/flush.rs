//! Everything that is here is dropped: DEBUG FLUSHALL and CLUSTER RESET.
//!
//! It is done in quanta, and producers go on meanwhile. What was here when it began is
//! dropped; what came later may stay. So it ends, however fast jobs are added.

use core::ops::Bound;

use crate::base::ids::ClientId;

use super::ack::Removed;
use super::blocked::WaitOrder;
use super::commands::LongCommand;
use super::endings::JobEnding;
use super::trace::Gone;
use super::{Engine, More};

/// How far a flush has come, and what was here when it began.
#[derive(Debug)]
pub struct Flush {
    stage: Stage,
    last_waiter: WaitOrder,
    jobs_end: u32,
    queues_end: u32,
    last_ack: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Clients that wait for jobs, behind this one.
    Waiters(Bound<ClientId>),
    /// Jobs from a slot on.
    Jobs(u32),
    /// Queues from a slot on.
    Queues(u32),
    /// Acks without a job.
    Acks,
}

impl Engine {
    /// Goes on with the flush of a client, or begins one, for up to `max` things.
    pub(super) fn flush_some(&mut self, client: ClientId, max: usize) -> More {
        let mut flush = match self.long_commands.remove(&client) {
            Some(LongCommand::Flush(flush)) => flush,
            _ => Flush {
                stage: Stage::Waiters(Bound::Unbounded),
                last_waiter: self.blocked.last_waiter(),
                jobs_end: self.jobs.slots_end(),
                queues_end: self.queues.slots_end(),
                last_ack: self.ack_only.last_serial(),
            },
        };
        for _ in 0..max {
            match self.flush_next(&flush) {
                Some(stage) => flush.stage = stage,
                None => return More::No,
            }
        }
        self.long_commands.insert(client, LongCommand::Flush(flush));
        More::Yes
    }

    /// Drops one thing. Returns how far the flush has come then; `None` at its end.
    fn flush_next(&mut self, flush: &Flush) -> Option<Stage> {
        match flush.stage {
            Stage::Waiters(after) => {
                let Some((client, order)) = self.blocked.next_waiting(after) else {
                    // Who was turned away leaves its queues, which go later.
                    let more = self.leave_a_queue() == More::Yes;
                    return Some(if more { flush.stage } else { Stage::Jobs(0) });
                };
                if order.is_some_and(|order| order <= flush.last_waiter) {
                    self.on_deadline(client);
                }
                Some(Stage::Waiters(Bound::Excluded(client)))
            }
            Stage::Jobs(slot) => match self.jobs.next_from(slot) {
                Some(r) if r.slot() < flush.jobs_end => {
                    self.note_ending(r, JobEnding::Deleted);
                    self.unregister(r, Gone::Deleted);
                    Some(Stage::Jobs(r.slot() + 1))
                }
                _ => Some(Stage::Queues(0)),
            },
            Stage::Queues(slot) => match self.queues.next_from(slot) {
                Some(q) if q.slot() < flush.queues_end => {
                    self.queues.flush(q);
                    Some(Stage::Queues(q.slot() + 1))
                }
                _ => Some(Stage::Acks),
            },
            Stage::Acks => match self.ack_only.drop_oldest_until(flush.last_ack) {
                Removed::Yes => Some(Stage::Acks),
                Removed::No => None,
            },
        }
    }
}
