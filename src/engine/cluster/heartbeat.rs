//! PING, PONG and MEET: whether their sender is there, and what they tell of it.
//!
//! Whoever pings gets an answer, on the link that the ping came in on. All else is
//! believed of known nodes only.

use log::{debug, warn};

use crate::base::ids::LinkId;
use crate::engine::Engine;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Gossip, GossipKind, Header, NodeFlags};

use super::handshake::Reason;
use super::node::Address;
use super::{LinkEnds, Peer};

/// The cron's ticks from one random ping to the next.
const TICKS_PER_PING: u32 = 10;
/// Random nodes of which the one with the oldest pong is pinged.
const PING_CANDIDATES: usize = 5;

/// Where a node is reached that speaks on a link: where it says, or where it comes from.
fn address_of_sender(ends: LinkEnds, header: &Header) -> Option<Address> {
    Address::new(header.ip.unwrap_or(ends.peer), header.port, header.announced_bus_port())
}

impl Engine {
    pub(in crate::engine) fn on_heartbeat(
        &mut self,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
        kind: GossipKind,
        gossip: Gossip<'_>,
    ) {
        if kind != GossipKind::Pong {
            self.answer_ping(link, ends, header, kind);
        }
        let peer = self.cluster.links.get(&link).copied();
        let node_on_link = match peer {
            None => None,
            Some(Peer::Node(node)) if self.cluster.id(node) == header.sender => Some(node),
            Some(Peer::Node(node)) => {
                self.lose_address(node);
                return;
            }
            Some(Peer::Handshake(id)) => {
                let Some(node) = self.handshake_answered(id, link, ends, header) else { return };
                Some(node)
            }
        };
        let Some(sender) = self.cluster.known_sender(header) else { return };
        self.cluster.node_mut(sender).abilities = header.abilities();
        if kind == GossipKind::Ping && node_on_link.is_none() {
            self.update_address(sender, ends, header);
        }
        if kind == GossipKind::Pong && node_on_link.is_some() {
            self.pong_came(sender);
        }
        self.copy_leaving(sender, header.flags);
        self.hear_gossip(sender, gossip);
    }

    fn answer_ping(&mut self, link: LinkId, ends: LinkEnds, header: &Header, kind: GossipKind) {
        let sender = self.cluster.find(&header.sender);
        let is_meet = kind == GossipKind::Meet;
        // Who sends MEET was told this address to meet, or has it from somebody who was.
        if (is_meet || self.cluster.my_ip.is_none()) && self.cluster.my_ip != Some(ends.local) {
            warn!("IP address for this node updated to {}", ends.local);
            self.cluster.my_ip = Some(ends.local);
            self.out.save_nodes = true;
        }
        if is_meet
            && sender.is_none()
            && let Some(address) = address_of_sender(ends, header)
        {
            self.begin_handshake(Reason::Meet(header.sender), address);
        }
        self.send_gossip(link, GossipKind::Pong, sender);
    }

    /// A known node speaks from where it is reached now.
    pub(super) fn update_address(&mut self, node: NodeRef, ends: LinkEnds, header: &Header) {
        let Some(address) = address_of_sender(ends, header) else { return };
        if node == ME || self.cluster.node(node).contact.address == Some(address) {
            return;
        }
        let id = self.cluster.id(node);
        warn!("Address updated for node {id}, now {}:{}", address.ip, address.port);
        self.cluster.unlink(&mut self.out, Peer::Node(node));
        self.cluster.node_mut(node).contact.address = Some(address);
        self.out.save_nodes = true;
    }

    /// Another node answers at its address: it is not there any more.
    fn lose_address(&mut self, node: NodeRef) {
        debug!("Another node answers at the address of node {}", self.cluster.id(node));
        self.cluster.unlink(&mut self.out, Peer::Node(node));
        self.cluster.node_mut(node).contact.address = None;
        self.out.save_nodes = true;
    }

    fn pong_came(&mut self, from: NodeRef) {
        let node = self.cluster.node_mut(from);
        node.contact.pong_received_at = Some(self.now.mono);
        node.contact.ping_sent_at = None;
        if node.is_failing() {
            debug!("Node {} answers again.", node.id);
            let flags = node.flags.without(NodeFlags::PFAIL | NodeFlags::FAIL);
            self.cluster.set_flags(from, flags);
            self.out.save_nodes = true;
        }
    }

    /// A node says of itself whether it leaves.
    fn copy_leaving(&mut self, sender: NodeRef, reported: NodeFlags) {
        let flags = self.cluster.node(sender).flags;
        if flags.contains(NodeFlags::LEAVING) != reported.contains(NodeFlags::LEAVING) {
            let flags = NodeFlags(flags.0 ^ NodeFlags::LEAVING.0);
            self.cluster.set_flags(sender, flags);
            self.out.save_nodes = true;
        }
    }

    /// Pings a node that has a link.
    pub(super) fn ping(&mut self, node: NodeRef) {
        let Some(link) = self.cluster.node(node).contact.link.up() else { return };
        self.cluster.node_mut(node).contact.ping_sent_at = Some(self.now.mono);
        self.send_gossip(link, GossipKind::Ping, Some(node));
    }

    /// Once a second: of some random nodes, the one not heard of for longest is pinged.
    pub(super) fn ping_somebody(&mut self) {
        self.cluster.watch.ticks = self.cluster.watch.ticks.wrapping_add(1);
        if !self.cluster.watch.ticks.is_multiple_of(TICKS_PER_PING) {
            return;
        }
        let candidates = self.cluster.sample(&mut self.rng, PING_CANDIDATES).to_vec();
        let oldest = candidates
            .into_iter()
            .filter(|node| {
                let contact = &self.cluster.node(*node).contact;
                contact.link.up().is_some() && contact.ping_sent_at.is_none()
            })
            .min_by_key(|node| self.cluster.node(*node).contact.pong_received_at);
        if let Some(node) = oldest {
            self.ping(node);
        }
    }
}
