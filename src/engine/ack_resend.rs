//! Acks told again to a node to which a link was made.
//!
//! A node that was down or cut off may have missed acks, and would deliver their jobs
//! again. The timed attempts to collect them lie up to minutes apart, so each new link
//! starts a walk over what is not collected yet. The walk is done in quanta: there may be
//! many acks.
//!
//! Differs from C, where a node that comes back hears of an ack with the next timed
//! attempt, or when it tells the others that it is about to queue the job.
//!
//! Invariant: `uncollected` holds acked jobs only, all that outlived a timed attempt.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::JobId;
use crate::proto::bus::{Message, MessageFlags};

use super::jobs::job::JobRef;
use super::node_set::NodeRef;
use super::{Engine, More};

#[derive(Default)]
pub struct AckResend {
    pub uncollected: BTreeSet<JobRef>,
    /// The nodes that are told, and how far each walk has come.
    walks: BTreeMap<NodeRef, WalkAt>,
}

/// What a walk looks at next: first all jobs, then the acks without a job.
#[derive(Clone, Copy, Debug)]
enum WalkAt {
    Jobs(JobRef),
    Acks(JobId),
}

impl AckResend {
    pub fn is_over(&self) -> bool {
        self.walks.is_empty()
    }
}

impl Engine {
    /// A link to a node was made: it hears all acks again that it did not confirm.
    pub(super) fn resend_acks(&mut self, node: NodeRef) {
        self.ack_resend.walks.insert(node, WalkAt::Jobs(JobRef::from_slot(0)));
    }

    /// Goes on with a walk, for up to about `budget` acks.
    pub(super) fn resend_some_acks(&mut self, budget: &mut usize) -> More {
        let Some((node, place)) = self.ack_resend.walks.pop_first() else { return More::No };
        let next = match place {
            WalkAt::Jobs(from) => Some(self.resend_acks_of_jobs(node, from, budget)),
            WalkAt::Acks(from) => self.resend_acks_without_job(node, &from, budget),
        };
        if let Some(next) = next {
            self.ack_resend.walks.insert(node, next);
        }
        More::Yes
    }

    fn resend_acks_of_jobs(&mut self, node: NodeRef, from: JobRef, budget: &mut usize) -> WalkAt {
        let jobs: Vec<JobRef> =
            self.ack_resend.uncollected.range(from..).take(*budget).copied().collect();
        *budget -= jobs.len();
        let next = if *budget == 0 { jobs.last() } else { None };
        let next = next.map_or(WalkAt::Acks(JobId([0; 40])), |last| {
            WalkAt::Jobs(JobRef::from_slot(last.slot() + 1))
        });
        for r in jobs {
            let is_told =
                !self.jobs.may_have(r).contains(&node) || self.jobs.confirmed(r).contains(&node);
            if !is_told {
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
