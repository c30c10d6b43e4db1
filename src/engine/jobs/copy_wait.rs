//! The waits of jobs for copies on other nodes, by the time at which one more node is asked.
//!
//! Invariant: each wait is in the order of asks once, at its own time.

use std::collections::BTreeSet;

use crate::base::ids::ClientId;
use crate::base::table::{Ref, Table};
use crate::base::time::MonoMs;
use crate::proto::reply::Resp;

use super::JobRef;
use crate::engine::node_set::NodeRef;

/// A job that waits for copies on other nodes, and the producer that waits for it.
#[derive(Debug)]
pub struct CopyWait {
    pub client: ClientId,
    pub resp: Resp,
    /// How many copies its producer waits for.
    pub wanted: u16,
    /// In how many zones they have to be; 0 for any.
    pub zones: u16,
    /// Nodes that said they have a copy; this one counts when it holds one.
    pub copies: Vec<NodeRef>,
    /// When one more node is asked.
    pub ask_at: MonoMs,
    /// How often nodes had come back into reach when it began.
    pub changes_before: u64,
}

#[derive(Default)]
pub(super) struct CopyWaits {
    waits: Table<CopyWait>,
    asks: BTreeSet<(MonoMs, JobRef)>,
}

impl CopyWaits {
    pub fn len(&self) -> usize {
        self.waits.len()
    }

    pub fn begin(&mut self, r: JobRef, wait: CopyWait) -> Ref<CopyWait> {
        let is_new = self.asks.insert((wait.ask_at, r));
        assert!(is_new, "a job waits once");
        self.waits.insert(wait)
    }

    pub fn end(&mut self, r: JobRef, wait: Ref<CopyWait>) -> CopyWait {
        let wait = self.waits.remove(wait);
        let was_there = self.asks.remove(&(wait.ask_at, r));
        assert!(was_there, "a job that waits asks again");
        wait
    }

    pub fn get(&self, wait: Ref<CopyWait>) -> &CopyWait {
        &self.waits[wait]
    }

    /// Notes that a node has a copy.
    pub fn add_copy(&mut self, wait: Ref<CopyWait>, node: NodeRef) {
        let copies = &mut self.waits[wait].copies;
        if !copies.contains(&node) {
            copies.push(node);
        }
    }

    pub fn set_next_target_at(&mut self, r: JobRef, wait: Ref<CopyWait>, ask_at: MonoMs) {
        let earlier_at = core::mem::replace(&mut self.waits[wait].ask_at, ask_at);
        let was_there = self.asks.remove(&(earlier_at, r));
        assert!(was_there, "a job that waits asks again");
        self.asks.insert((ask_at, r));
    }

    /// The job for which one more node is asked first, and when.
    pub fn first_ask(&self) -> Option<(MonoMs, JobRef)> {
        self.asks.first().copied()
    }

    /// Panics unless there is one ask a wait.
    pub fn check_invariants(&self) {
        assert_eq!(self.waits.len(), self.asks.len(), "a job that waits asks again");
    }
}
