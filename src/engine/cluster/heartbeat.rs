//! PING, PONG and MEET: whether their sender is there, and what they say of it.
//!
//! Whoever pings gets an answer, on the link that the ping came in on. All else is
//! believed of known nodes only: a frame costs nothing to forge, and what it says of
//! others would reach every node of the cluster.

use log::warn;

use crate::base::ids::{LinkId, NodeId};
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Gossip, GossipKind, Header, NodeFlags};

use super::handshake::Reason;
use super::nodes::Address;
use super::{Cluster, Context, Event, LinkEnds, Peer};

/// Ticks from one random ping to the next.
const TICKS_PER_PING: u32 = 10;
/// Random nodes of which the one with the oldest pong is pinged.
const PING_CANDIDATES: usize = 5;

/// Where a node is reached that sends on a link: where it says, or where it comes from.
fn address_of_sender(ends: LinkEnds, header: &Header) -> Option<Address> {
    Address::new(header.ip.unwrap_or(ends.peer), header.port, header.announced_bus_port())
}

impl Cluster {
    /// A PING, PONG or MEET came in on a link.
    pub fn heartbeat(
        &mut self,
        cx: &mut Context<'_>,
        (link, ends): (LinkId, LinkEnds),
        header: &Header,
        kind: GossipKind,
        gossip: Gossip<'_>,
    ) {
        if kind != GossipKind::Pong {
            self.answer_ping(cx, link, ends, header, kind);
        }
        let peer = self.links.get(&link).copied();
        let node_on_link = match peer {
            None => None,
            Some(Peer::Node(node)) if self.id(node) == header.sender => Some(node),
            Some(Peer::Node(node)) => {
                self.lose_address(cx, node, header.sender);
                return;
            }
            Some(Peer::Handshake(id)) => {
                let Some(node) = self.handshake_answered(cx, id, link, ends, header) else {
                    return;
                };
                Some(node)
            }
        };
        let Some(sender) = self.known_sender(header) else { return };
        self.node_mut(sender).abilities = header.abilities();
        if kind == GossipKind::Ping && node_on_link.is_none() {
            self.update_address(cx, sender, ends, header);
        }
        if kind == GossipKind::Pong && node_on_link.is_some() {
            self.pong_received(cx, sender);
        }
        self.copy_leaving(cx, sender, header.flags);
        self.receive_gossip(cx, sender, gossip);
    }

    fn answer_ping(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
        kind: GossipKind,
    ) {
        let sender = self.find(&header.sender);
        let is_meet = kind == GossipKind::Meet;
        // Who sends MEET was given this address, or has it from somebody who was.
        if (is_meet || self.my_ip.is_none()) && self.my_ip != Some(ends.local) {
            warn!("IP address for this node updated to {}", ends.local);
            self.my_ip = Some(ends.local);
            cx.out.save_nodes = true;
        }
        if is_meet
            && sender.is_none()
            && let Some(address) = address_of_sender(ends, header)
        {
            self.begin_handshake(cx, Reason::Meet(header.sender), address);
        }
        self.send_gossip(cx, link, GossipKind::Pong, sender);
    }

    /// A known node sends from where it is reached now.
    pub(super) fn update_address(
        &mut self,
        cx: &mut Context<'_>,
        node: NodeRef,
        ends: LinkEnds,
        header: &Header,
    ) {
        let Some(address) = address_of_sender(ends, header) else { return };
        if node == ME || self.node(node).contact.address == Some(address) {
            return;
        }
        let id = self.id(node);
        warn!("Address updated for node {id}, now {}:{}", address.ip, address.port);
        self.unlink(cx.out, Peer::Node(node));
        self.node_mut(node).contact.address = Some(address);
        cx.out.save_nodes = true;
    }

    /// Another node answers at its address: it is not there any more.
    fn lose_address(&mut self, cx: &mut Context<'_>, node: NodeRef, other: NodeId) {
        self.unlink(cx.out, Peer::Node(node));
        let contact = &mut self.node_mut(node).contact;
        if let Some(address) = contact.address.take() {
            let address = address.client();
            self.events.push_back(Event::AddressLost { node, address, other });
        }
        let contact = &mut self.node_mut(node).contact;
        contact.ping_sent_at.get_or_insert(cx.now.mono);
        cx.out.save_nodes = true;
    }

    fn pong_received(&mut self, cx: &mut Context<'_>, from: NodeRef) {
        let node = self.node_mut(from);
        node.contact.pong_received_at = Some(cx.now.mono);
        node.contact.ping_sent_at = None;
        if node.is_failing() {
            let flags = node.flags().without(NodeFlags::PFAIL | NodeFlags::FAIL);
            self.set_flags(from, flags);
            self.events.push_back(Event::AnswersAgain(from));
            cx.out.save_nodes = true;
        }
    }

    /// A node says of itself whether it leaves.
    fn copy_leaving(&mut self, cx: &mut Context<'_>, sender: NodeRef, reported: NodeFlags) {
        let flags = self.node(sender).flags();
        if flags.contains(NodeFlags::LEAVING) != reported.contains(NodeFlags::LEAVING) {
            let flags = NodeFlags(flags.0 ^ NodeFlags::LEAVING.0);
            self.set_flags(sender, flags);
            self.events.push_back(if flags.contains(NodeFlags::LEAVING) {
                Event::Leaving(sender)
            } else {
                Event::Stays(sender)
            });
            cx.out.save_nodes = true;
        }
    }

    /// Pings a node. Without a link the ping counts from now on, and goes out when the link
    /// is up.
    pub(super) fn ping(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        let contact = &mut self.node_mut(node).contact;
        contact.ping_sent_at = Some(cx.now.mono);
        if let Some(link) = contact.link.up() {
            self.send_gossip(cx, link, GossipKind::Ping, Some(node));
        }
    }

    /// Once a second, of some random nodes, pings the one whose last pong is oldest.
    pub(super) fn ping_somebody(&mut self, cx: &mut Context<'_>) {
        self.rounds.ticks = self.rounds.ticks.wrapping_add(1);
        if !self.rounds.ticks.is_multiple_of(TICKS_PER_PING) {
            return;
        }
        let candidates = self.sample(cx.rng, PING_CANDIDATES).to_vec();
        let oldest = candidates
            .into_iter()
            .filter(|node| {
                let contact = &self.node(*node).contact;
                contact.link.up().is_some() && contact.ping_sent_at.is_none()
            })
            .min_by_key(|node| self.node(*node).contact.pong_received_at);
        if let Some(node) = oldest {
            self.ping(cx, node);
        }
    }
}
