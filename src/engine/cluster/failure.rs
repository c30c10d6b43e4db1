//! Who does not answer, and what a majority thinks of it.
//!
//! A ping that stays unanswered for the node timeout makes a node *possibly failing*,
//! for this node alone. It is *failing* when a majority of the cluster, this node
//! included, finds so; then everybody is told. A pong ends both. Neither decides
//! more than whom new copies go to.

use log::debug;

use crate::base::ids::NodeId;
use crate::engine::Engine;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Message, MessageFlags, NodeFlags};

use super::Peer;
use super::node::FailureReport;

/// Nodes looked at in one tick of the cron. In larger clusters it takes several to
/// look at all.
const NODES_PER_TICK: usize = 1000;
/// A report is valid for so many node timeouts. C: CLUSTER_FAIL_REPORT_VALIDITY_MULT.
const REPORT_VALIDITY_TIMEOUTS: u64 = 2;

/// How far the cron is.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub ticks: u32,
    /// Place in the table of the node that is looked at next.
    next: usize,
    /// Place in the table of the node that is connected to next.
    next_connect: usize,
}

impl Engine {
    /// Connects to and looks at all nodes, some in each tick if there are many.
    pub(super) fn watch_nodes(&mut self, budget: &mut usize) {
        let node_count = self.cluster.nodes.len();
        for _ in 0..node_count.min(NODES_PER_TICK) {
            if *budget == 0 {
                break;
            }
            let place = self.cluster.watch.next_connect % node_count;
            self.cluster.watch.next_connect = place + 1;
            if let Some(node) = self.cluster.other_at(place) {
                self.cluster.connect(&mut self.out, self.now.mono, Peer::Node(node), budget);
            }
        }
        for _ in 0..node_count.min(NODES_PER_TICK) {
            let place = self.cluster.watch.next % node_count;
            self.cluster.watch.next = place + 1;
            if let Some(node) = self.cluster.other_at(place) {
                self.watch_node(node);
            }
        }
    }

    fn watch_node(&mut self, node: NodeRef) {
        let now = self.now.mono;
        let timeout_ms = self.config.node_timeout_ms;
        let contact = &self.cluster.node(node).contact;
        if contact.address.is_none() {
            return;
        }
        let Some(ping_sent_at) = contact.ping_sent_at else {
            let pong_age_ms = contact.pong_received_at.map_or(u64::MAX, |at| now.ms_since(at));
            if pong_age_ms > timeout_ms / 2 {
                self.ping(node);
            }
            return;
        };
        let waited_ms = now.ms_since(ping_sent_at);
        // Perhaps it is the link that is broken, not the node.
        if waited_ms > timeout_ms / 2
            && contact.link.age_ms(now).is_some_and(|age_ms| age_ms > timeout_ms)
        {
            self.cluster.unlink(&mut self.out, Peer::Node(node));
        }
        if waited_ms > timeout_ms && !self.cluster.node(node).is_failing() {
            debug!("Node {} is possibly failing", self.cluster.id(node));
            let flags = self.cluster.node(node).flags | NodeFlags::PFAIL;
            self.cluster.set_flags(node, flags);
        }
    }

    /// A known node tells what it thinks of another.
    pub(super) fn hear_of_node(&mut self, sender: NodeRef, about: NodeRef, flags: NodeFlags) {
        let node = self.cluster.node_mut(about);
        let reported = node.reports.iter_mut().find(|report| report.by == sender);
        if !flags.intersects(NodeFlags::PFAIL | NodeFlags::FAIL) {
            if reported.is_some() {
                node.reports.retain(|report| report.by != sender);
                debug!(
                    "Node {} finds node {} back",
                    self.cluster.id(sender),
                    self.cluster.id(about)
                );
            }
            return;
        }
        match reported {
            Some(report) => report.at = self.now.mono,
            None => {
                node.reports.push(FailureReport { by: sender, at: self.now.mono });
                let (sender, about) = (self.cluster.id(sender), self.cluster.id(about));
                debug!("Node {sender} reports node {about} as not reachable");
            }
        }
        self.judge(about);
    }

    /// Takes a node that this one cannot reach for failing once a majority does.
    fn judge(&mut self, node: NodeRef) {
        let now = self.now.mono;
        let validity_ms = self.config.node_timeout_ms.saturating_mul(REPORT_VALIDITY_TIMEOUTS);
        let majority = self.cluster.size() / 2 + 1;
        let about = self.cluster.node_mut(node);
        about.reports.retain(|report| now.ms_since(report.at) <= validity_ms);
        if !about.flags.contains(NodeFlags::PFAIL) || about.reports.len() + 1 < majority {
            return;
        }
        let id = about.id;
        debug!("Node {id} is failing: a majority cannot reach it.");
        self.set_failing(node);
        self.cluster.broadcast(&mut self.out, MessageFlags::NONE, &Message::Fail(id));
    }

    fn set_failing(&mut self, node: NodeRef) {
        let flags = self.cluster.node(node).flags.without(NodeFlags::PFAIL) | NodeFlags::FAIL;
        self.cluster.set_flags(node, flags);
        self.out.save_nodes = true;
    }

    /// FAIL: a majority cannot reach a node.
    pub(in crate::engine) fn on_fail(&mut self, from: NodeRef, about: NodeId) {
        let Some(node) = self.cluster.find(&about).filter(|node| *node != ME) else { return };
        if !self.cluster.node(node).flags.contains(NodeFlags::FAIL) {
            debug!("FAIL message received from {} about {about}", self.cluster.id(from));
            self.set_failing(node);
        }
    }
}
