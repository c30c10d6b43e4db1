//! Acks without a job: a client acknowledged here what this node never saw.
//!
//! The ack is kept, and sent to everybody again and again, until a node that knows the job
//! takes over, or all nodes said that they do not know it, or the TTL that the ID carries is
//! over. C calls it a dummy ack and keeps it as a job with an empty set of nodes; here it is
//! its own kind, so that no message can queue it. At most [`ACK_ONLY_JOBS_MAX`] are kept, and
//! the oldest is dropped first.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::JobId;
use crate::base::limits::ACK_ONLY_JOBS_MAX;
use crate::base::time::MonoMs;

use super::ack::Removed;
use super::jobs::GC_ATTEMPTS_MAX;
use super::node_set::NodeRef;

#[derive(Debug)]
pub struct AckOnlyJob {
    pub expire_at: MonoMs,
    /// Place in the order of arrival.
    serial: u64,
    /// When the next attempt to collect it is made.
    pub due_at: MonoMs,
    pub gc_attempts: u8,
    /// Nodes that said they do not know the job, this one included.
    pub confirmed: Vec<NodeRef>,
}

#[derive(Default)]
pub struct AckOnlyJobs {
    acks: BTreeMap<JobId, AckOnlyJob>,
    due: BTreeSet<(MonoMs, JobId)>,
    by_age: BTreeMap<u64, JobId>,
    last_serial: u64,
}

impl AckOnlyJobs {
    pub fn len(&self) -> usize {
        self.acks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.acks.is_empty()
    }

    pub fn get(&self, id: &JobId) -> Option<&AckOnlyJob> {
        self.acks.get(id)
    }

    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut AckOnlyJob> {
        self.acks.get_mut(id)
    }

    /// The acks from an ID on, in the order of IDs.
    pub fn range(&self, from: &JobId) -> impl Iterator<Item = (&JobId, &AckOnlyJob)> {
        self.acks.range(*from..)
    }

    pub fn contains(&self, id: &JobId) -> bool {
        self.acks.contains_key(id)
    }

    /// Keeps an ack that is not known yet, due at `due_at`.
    pub fn insert(&mut self, id: JobId, expire_at: MonoMs, due_at: MonoMs) {
        if self.acks.len() == ACK_ONLY_JOBS_MAX {
            self.drop_oldest();
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        let ack = AckOnlyJob { expire_at, serial, due_at, gc_attempts: 0, confirmed: Vec::new() };
        let known = self.acks.insert(id, ack);
        assert!(known.is_none(), "an ack that is known is not kept again");
        self.due.insert((due_at, id));
        self.by_age.insert(serial, id);
    }

    pub fn remove(&mut self, id: &JobId) -> Removed {
        let Some(ack) = self.acks.remove(id) else { return Removed::No };
        let was_due = self.due.remove(&(ack.due_at, *id));
        let had_age = self.by_age.remove(&ack.serial).is_some();
        assert!(was_due && had_age, "every ack is due once and has one age");
        Removed::Yes
    }

    /// The place of the latest in the order of arrival.
    pub fn last_serial(&self) -> u64 {
        self.last_serial
    }

    /// Drops the oldest, if it came no later than the one at this place.
    pub fn drop_oldest_until(&mut self, serial: u64) -> Removed {
        let oldest = self.by_age.first_key_value().filter(|(age, _)| **age <= serial);
        let oldest = oldest.map(|(_, &id)| id);
        oldest.map_or(Removed::No, |id| self.remove(&id))
    }

    /// Drops the oldest, if there is one.
    pub fn drop_oldest(&mut self) -> Removed {
        self.drop_oldest_until(u64::MAX)
    }

    /// Schedules the next attempt to collect an ack.
    pub fn reschedule(&mut self, id: &JobId, due_at: MonoMs) {
        if let Some(ack) = self.acks.get_mut(id) {
            self.due.remove(&(ack.due_at, *id));
            ack.due_at = due_at;
            self.due.insert((due_at, *id));
        }
    }

    /// An ack that is due; the caller reschedules or removes it.
    pub fn first_due(&self, now: MonoMs) -> Option<JobId> {
        self.due.first().filter(|(at, _)| *at <= now).map(|&(_, id)| id)
    }

    pub fn next_at(&self) -> MonoMs {
        self.due.first().map_or(MonoMs::NEVER, |&(at, _)| at)
    }

    /// Panics unless the three indexes agree.
    pub fn check_invariants(&self) {
        assert_eq!(self.acks.len(), self.due.len(), "every ack is due once");
        assert_eq!(self.acks.len(), self.by_age.len(), "every ack has one age");
        assert!(self.acks.len() <= ACK_ONLY_JOBS_MAX, "acks without a job are bounded");
    }
}

impl AckOnlyJob {
    pub fn count_gc_attempt(&mut self) {
        self.gc_attempts = (self.gc_attempts + 1).min(GC_ATTEMPTS_MAX);
    }

    pub fn confirm(&mut self, node: NodeRef) {
        if !self.confirmed.contains(&node) {
            self.confirmed.push(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_any_number_of_acks_the_latest_are_kept() {
        let id = |n: usize| {
            JobId(format!("D-00000000-{n:024}-05a1").into_bytes().try_into().expect("40 bytes"))
        };
        let mut acks = AckOnlyJobs::default();
        for n in 0..200_000 {
            acks.insert(id(n), MonoMs(1_000_000), MonoMs(n as u64));
        }
        acks.check_invariants();
        assert_eq!(acks.len(), ACK_ONLY_JOBS_MAX);
        let kept = 200_000 - ACK_ONLY_JOBS_MAX;
        assert!(acks.contains(&id(kept)) && !acks.contains(&id(kept - 1)));
        assert_eq!(acks.next_at(), MonoMs(kept as u64));
    }
}
