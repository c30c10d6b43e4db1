//! Acks sent again to a node to which a link was made.
//!
//! A node that was down or cut off may have missed acks, and would deliver their jobs
//! again. The timed attempts to collect them lie up to minutes apart, so each new link
//! starts a walk over what is not collected yet. The walk is done in quanta: there may be
//! many acks.
//!
//! Differs from C, where a node that comes back gets an ack with the next timed attempt, or
//! when it warns the others that it is about to queue the job.

use std::collections::BTreeMap;

use crate::base::ids::JobId;
use crate::proto::bus::{Message, MessageFlags};

use super::jobs::JobRef;
use super::node_set::NodeRef;
use super::{Engine, More};

/// Walks over the acks that are not collected, one a node.
#[derive(Default)]
pub struct AckResend(BTreeMap<NodeRef, WalkAt>);

/// How far a walk has come: first it visits all jobs, then the acks without a job.
#[derive(Clone, Copy, Debug)]
enum WalkAt {
    /// The slot of the next one.
    Jobs(u32),
    Acks(JobId),
}

impl AckResend {
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

impl Engine {
    /// A link to a node was made: it gets all acks again that it did not confirm, of jobs whose
    /// collection was tried before. Those acked in the last second are about to be tried.
    pub(super) fn resend_acks(&mut self, node: NodeRef) {
        self.ack_resend.0.insert(node, WalkAt::Jobs(0));
    }

    /// Goes on with a walk, for up to about `budget` acks.
    pub(super) fn resend_some_acks(&mut self, budget: &mut usize) -> More {
        let Some((node, walk_at)) = self.ack_resend.0.pop_first() else { return More::No };
        let next = match walk_at {
            WalkAt::Jobs(slot) => Some(self.resend_acks_of_jobs(node, slot, budget)),
            WalkAt::Acks(from) => self.resend_acks_without_job(node, &from, budget),
        };
        if let Some(next) = next {
            self.ack_resend.0.insert(node, next);
        }
        More::Yes
    }

    fn resend_acks_of_jobs(&mut self, node: NodeRef, slot: u32, budget: &mut usize) -> WalkAt {
        let jobs: Vec<JobRef> = self.jobs.uncollected_from(slot).take(*budget).collect();
        *budget -= jobs.len();
        let next = match jobs.last() {
            Some(last) if *budget == 0 => WalkAt::Jobs(last.slot() + 1),
            _ => WalkAt::Acks(JobId([0; 40])),
        };
        for r in jobs {
            let is_holder = self.jobs.may_have(r).contains(&node);
            if is_holder && !self.jobs.acks(r).contains(&node) {
                self.send_set_ack(node, self.jobs[r].id);
            }
        }
        next
    }

    fn resend_acks_without_job(
        &mut self,
        node: NodeRef,
        from: &JobId,
        budget: &mut usize,
    ) -> Option<WalkAt> {
        for (id, ack) in self.ack_only.range(from) {
            if *budget == 0 {
                return Some(WalkAt::Acks(*id));
            }
            *budget -= 1;
            if !ack.confirmed.contains(&node) {
                let message = Message::SetAck { id: *id, may_have: 0 };
                self.cluster.send(&mut self.out, &[node], MessageFlags::NONE, &message);
            }
        }
        None
    }
}
