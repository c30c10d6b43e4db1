//! Who does not answer, and what a majority thinks of it.
//!
//! A ping that stays unanswered for the node timeout makes a node *possibly failing*,
//! for this node alone. It is *failing* when a majority of the cluster, this node
//! included, finds so; then all nodes are notified. A pong ends both.
//!
//! A ping that cannot be sent counts as one that is not answered. So every node that may get
//! copies has answered within one and a half node timeouts, whatever became of its link and
//! its address. Differs from C, which checks no node without an address: one whose disk was
//! lost comes back under another ID, and its old one would get copies for ever.
//!
//! Why two steps: a node that one other cannot reach may be well, with only the way between
//! the two broken. Each node avoids what it cannot reach itself, at once and without asking.
//! That a node is failing for everybody takes a majority, so that a minority that was cut
//! off does not write off the rest. Neither decides more than which nodes new copies go to.

use log::debug;

use crate::base::ids::NodeId;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Message, MessageFlags, NodeFlags};

use super::nodes::{FailureReport, OutgoingLink};
use super::{Cluster, Context, Event, Peer};

/// Nodes checked in one tick. In larger clusters it takes several to check all.
const NODES_PER_TICK: usize = 1000;
/// A report is valid for so many node timeouts. C: CLUSTER_FAIL_REPORT_VALIDITY_MULT.
const REPORT_VALIDITY_TIMEOUTS: u64 = 2;

/// How far the work is that is done a part in each tick.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub ticks: u32,
    /// Place in the table of the node that is checked next.
    next_check: usize,
    /// Place in the table of the node that is connected to next.
    next_connect: usize,
}

impl Cluster {
    /// Connects to the nodes that have no link, as far as the budget goes.
    pub(super) fn connect_nodes(&mut self, cx: &mut Context<'_>, budget: &mut usize) {
        let node_count = self.nodes.len();
        for _ in 0..node_count.min(NODES_PER_TICK) {
            if *budget == 0 {
                break;
            }
            let place = self.rounds.next_connect % node_count;
            self.rounds.next_connect = place + 1;
            if let Some(node) = self.other_at(place) {
                self.connect(cx.out, cx.now.mono, Peer::Node(node), budget);
            }
        }
    }

    /// Checks whether the nodes answer, some of them in each tick if there are many.
    pub(super) fn check_nodes(&mut self, cx: &mut Context<'_>) {
        let node_count = self.nodes.len();
        for _ in 0..node_count.min(NODES_PER_TICK) {
            let place = self.rounds.next_check % node_count;
            self.rounds.next_check = place + 1;
            if let Some(node) = self.other_at(place) {
                self.check_node(cx, node);
            }
        }
    }

    fn check_node(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        let now = cx.now.mono;
        let timeout_ms = self.node_timeout_ms;
        self.check_acquaintance(now, node);
        if let Some(address) = self.node_mut(node).new_address.due(now) {
            self.change_address(cx, node, address);
        }
        let contact = &self.node(node).contact;
        let Some(ping_sent_at) = contact.ping_sent_at else {
            let pong_age_ms = contact.pong_received_at.map_or(u64::MAX, |at| now.ms_since(at));
            if pong_age_ms > timeout_ms / 2 {
                self.ping(cx, node);
            }
            return;
        };
        let waited_ms = now.ms_since(ping_sent_at);
        // Perhaps it is the link that is broken, not the node.
        if waited_ms > timeout_ms / 2
            && contact.link.age_ms(now).is_some_and(|age_ms| age_ms > timeout_ms)
        {
            let was_connecting = matches!(contact.link, OutgoingLink::Connecting { .. });
            self.unlink(cx.out, Peer::Node(node));
            if was_connecting {
                self.count_failed_connect(node, &"no answer");
            }
        }
        if waited_ms > timeout_ms && !self.node(node).is_failing() {
            let flags = self.node(node).flags() | NodeFlags::PFAIL;
            self.set_flags(node, flags);
            self.events.push_back(Event::PossiblyFailing(node));
        }
        self.forget_if_long_failing(cx, node);
    }

    /// A known node says what it thinks of another.
    pub(super) fn receive_report(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeRef,
        about: NodeRef,
        flags: NodeFlags,
    ) {
        let node = self.node_mut(about);
        let reported = node.reports.iter_mut().find(|report| report.by == sender);
        if !flags.intersects(NodeFlags::PFAIL | NodeFlags::FAIL) {
            // It is away for this node alone, if it is: nobody forgets it for that.
            node.failing_since = None;
            if reported.is_some() {
                node.reports.retain(|report| report.by != sender);
                debug!("Node {} finds node {} back", self.id(sender), self.id(about));
            }
            return;
        }
        match reported {
            Some(report) => report.at = cx.now.mono,
            None => {
                node.reports.push(FailureReport { by: sender, at: cx.now.mono });
                let (sender, about) = (self.id(sender), self.id(about));
                debug!("Node {sender} reports node {about} as not reachable");
            }
        }
        self.judge(cx, about);
    }

    /// Takes a node that this one cannot reach for failing once a majority does.
    fn judge(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        let now = cx.now.mono;
        let validity_ms = self.node_timeout_ms.saturating_mul(REPORT_VALIDITY_TIMEOUTS);
        let majority = self.size() / 2 + 1;
        let about = self.node_mut(node);
        about.reports.retain(|report| now.ms_since(report.at) <= validity_ms);
        if !about.flags().contains(NodeFlags::PFAIL) || about.reports.len() + 1 < majority {
            return;
        }
        let id = about.id;
        self.set_failing(node);
        self.broadcast(cx.out, MessageFlags::NONE, &Message::Fail(id));
    }

    fn set_failing(&mut self, node: NodeRef) {
        let flags = self.node(node).flags().without(NodeFlags::PFAIL) | NodeFlags::FAIL;
        self.set_flags(node, flags);
        self.events.push_back(Event::Failing(node));
        self.save_soon();
    }

    /// FAIL: a majority cannot reach a node.
    pub fn fail(&mut self, from: NodeRef, about: NodeId) {
        let Some(node) = self.find(&about).filter(|node| *node != ME) else { return };
        if !self.node(node).flags().contains(NodeFlags::FAIL) {
            debug!("FAIL message received from {} about {about}", self.id(from));
            self.set_failing(node);
        }
    }
}
