//! Jobs whose producers were answered before all copies were there (SYNC): which nodes said that
//! they have one.
//!
//! An entry is there until all nodes that may have the job have said so and they are as many as
//! were asked for; it outlives the acknowledgement of its job, since copies may be under way then.
//! Invariant: the jobs that are counted are those that lack copies and are not acked.

use std::collections::BTreeMap;

use super::{JobRef, Jobs};
use crate::engine::node_set::{NodeRef, NodeSet};

#[derive(Debug)]
struct Shortage {
    /// Who has a copy, this node included.
    confirmed: NodeSet,
    /// Whether it is to get further copies.
    is_short: bool,
    /// A walk over all of them has come by.
    was_visited: bool,
}

#[derive(Default)]
pub(super) struct Shortages {
    by_job: BTreeMap<JobRef, Shortage>,
    short_count: usize,
}

impl Jobs {
    /// A job lacks copies, or some are not confirmed. These nodes have one.
    pub fn begin_shortage(&mut self, r: JobRef, copies: &[NodeRef]) {
        self.end_shortage(r);
        let confirmed = NodeSet::default();
        let shortage = Shortage { confirmed, is_short: true, was_visited: false };
        self.shortages.by_job.insert(r, shortage);
        self.shortages.short_count += 1;
        copies.iter().for_each(|node| self.confirm_copy(r, *node));
    }

    /// A node has a copy of a job that may lack some.
    pub fn confirm_copy(&mut self, r: JobRef, node: NodeRef) {
        let Some(shortage) = self.shortages.by_job.get_mut(&r) else { return };
        // Anybody may say it, long after they had it.
        if !self.sets.contains(&self.table[r].may_have, node) {
            return;
        }
        self.sets.add(&mut shortage.confirmed, node);
        let confirmed = self.sets.as_slice(&shortage.confirmed);
        let job = &self.table[r];
        if shortage.is_short && confirmed.len() >= usize::from(job.repl) {
            shortage.is_short = false;
            self.shortages.short_count -= 1;
        }
        let may_have = self.sets.as_slice(&job.may_have);
        if !shortage.is_short && may_have.iter().all(|node| confirmed.contains(node)) {
            self.end_shortage(r);
        }
    }

    /// A job gets no further copies: it was acknowledged.
    pub(super) fn stop_copying(&mut self, r: JobRef) {
        if let Some(shortage) = self.shortages.by_job.get_mut(&r)
            && core::mem::take(&mut shortage.is_short)
        {
            self.shortages.short_count -= 1;
        }
    }

    pub(super) fn end_shortage(&mut self, r: JobRef) {
        if let Some(shortage) = self.shortages.by_job.remove(&r) {
            self.shortages.short_count -= usize::from(shortage.is_short);
            self.sets.release(shortage.confirmed);
        }
    }

    /// How many copies a job lacks; 0 for one of which that is not known.
    pub fn lacking_copies(&self, r: JobRef) -> usize {
        let shortage = self.shortages.by_job.get(&r).filter(|shortage| shortage.is_short);
        shortage.map_or(0, |shortage| {
            let confirmed = self.sets.as_slice(&shortage.confirmed);
            usize::from(self.table[r].repl).saturating_sub(confirmed.len())
        })
    }

    /// Holders of a job with SYNC that did not say that they have it.
    pub fn unconfirmed(&self, r: JobRef) -> Vec<NodeRef> {
        let Some(shortage) = self.shortages.by_job.get(&r) else { return Vec::new() };
        let confirmed = self.sets.as_slice(&shortage.confirmed);
        let may_have = self.sets.as_slice(&self.table[r].may_have);
        may_have.iter().copied().filter(|node| !confirmed.contains(node)).collect()
    }

    /// Nodes that said that they have a copy of a job that lacks some.
    pub(super) fn late_copies(&self, r: JobRef) -> &[NodeRef] {
        let shortage = self.shortages.by_job.get(&r);
        shortage.map_or(&[], |shortage| self.sets.as_slice(&shortage.confirmed))
    }

    /// Notes that a walk comes by; tells whether one did before.
    pub fn note_visit(&mut self, r: JobRef) -> bool {
        let shortage = self.shortages.by_job.get_mut(&r);
        shortage.is_some_and(|shortage| core::mem::replace(&mut shortage.was_visited, true))
    }

    /// The first job from a slot on that may lack copies.
    pub fn next_short_from(&self, slot: u32) -> Option<JobRef> {
        self.shortages.by_job.range(JobRef::from_slot(slot)..).next().map(|(r, _)| *r)
    }

    /// How many jobs that are not acked have fewer copies than they are to get.
    pub fn short_count(&self) -> usize {
        self.shortages.short_count
    }

    /// Whether there is nothing that copies might be under way of.
    pub fn has_no_shortages(&self) -> bool {
        self.shortages.by_job.is_empty()
    }

    /// Panics unless the jobs that are counted lack copies.
    pub(super) fn check_shortages(&self) {
        let short = self.shortages.by_job.iter().filter(|(_, shortage)| shortage.is_short);
        assert_eq!(short.count(), self.shortages.short_count, "jobs short of copies are counted");
        for (r, shortage) in &self.shortages.by_job {
            let job = &self.table[*r];
            let confirmed = self.sets.as_slice(&shortage.confirmed);
            let may_have = self.sets.as_slice(&job.may_have);
            assert!(confirmed.iter().all(|node| may_have.contains(node)), "who has it may have it");
            let lacks = confirmed.len() < usize::from(job.repl);
            assert_eq!(shortage.is_short, lacks && !job.is_acked(), "who is short lacks copies");
        }
    }
}
