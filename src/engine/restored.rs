//! Jobs that a start put back into their queues are announced to their other holders.
//!
//! **Why.** While this node was down, a holder may have queued such a job as well, or a
//! client may have acknowledged it there. Two nodes that queue a job settle it when one of
//! them says so, and whoever has an ack sends it to a node that queues the job. So this node
//! announces the jobs with the message that precedes a requeue, WILLQUEUE: a holder that has
//! the job queued answers with QUEUED, and one that has it acked with SETACK. C nodes do, too.
//!
//! The answers come over the link that the holder makes, which may be there later than the
//! one to it. Its first message is a ping, so a node is sent the announcements once it has pinged and
//! there is a link to it. All queued jobs are visited, in quanta; one that was queued since is
//! announced in vain.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::bus::{Message, MessageFlags};

use super::cluster::Cluster;
use super::node_set::NodeRef;
use super::records::Storage;
use super::{Engine, More};

#[derive(Default)]
pub struct Restored {
    /// Whether a start put jobs back into their queues. Else nothing is announced.
    is_any: bool,
    /// The nodes for which a walk has begun.
    begun: BTreeSet<NodeRef>,
    /// The slot of the next job, for each node whose walk goes on.
    walks: BTreeMap<NodeRef, u32>,
}

impl Restored {
    /// A job was put back into its queue.
    pub fn note_job(&mut self) {
        self.is_any = true;
    }

    /// A node pinged this one.
    pub fn note_ping(&mut self, node: NodeRef) {
        if self.is_any && self.begun.insert(node) {
            self.walks.insert(node, 0);
        }
    }

    /// Whether nothing is left to announce. It is asked in every turn.
    pub fn is_over(&self) -> bool {
        self.walks.is_empty()
    }

    /// The node whose walk goes on next.
    fn next(&self, cluster: &Cluster, storage: Storage) -> Option<NodeRef> {
        let mut nodes = self.walks.keys().copied();
        nodes.find(|node| !storage.is_loading() && cluster.is_linked(*node))
    }
}

impl Engine {
    /// Whether there is something to announce now.
    pub(super) fn has_restored_to_announce(&self) -> bool {
        !self.restored.is_over() && self.restored.next(&self.cluster, self.storage).is_some()
    }

    /// Announces to one node its share of the queued jobs, among about `budget` jobs.
    pub(super) fn announce_some_restored(&mut self, budget: &mut usize) -> More {
        let Some(node) = self.restored.next(&self.cluster, self.storage) else { return More::No };
        let mut slot = self.restored.walks[&node];
        while let Some(r) = self.jobs.next_from(slot) {
            if *budget == 0 {
                self.restored.walks.insert(node, slot);
                return More::Yes;
            }
            *budget -= 1;
            slot = r.slot() + 1;
            if self.jobs[r].is_queued() && self.jobs.may_have(r).contains(&node) {
                let message = Message::WillQueue(self.jobs[r].id);
                self.send_about(r, &[node], MessageFlags::NONE, &message);
            }
        }
        self.restored.walks.remove(&node);
        More::Yes
    }
}
