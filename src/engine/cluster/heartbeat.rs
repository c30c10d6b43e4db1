//! PING, PONG and MEET: whether their sender is there, and what they say of it.
//!
//! Whoever pings gets an answer, on the link that the ping came in on. All else is
//! believed of known nodes only: a frame costs nothing to forge, and what it says of
//! others would reach every node of the cluster.

use core::net::IpAddr;

use log::warn;

use crate::base::ids::{LinkId, NodeId};
use crate::base::time::MonoMs;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Gossip, GossipKind, Header, NodeFlags};

use super::nodes::Address;
use super::{Cluster, Context, Event, LinkEnds, Peer};

/// Ticks from one random ping to the next.
const TICKS_PER_PING: u32 = 10;
/// Random nodes of which the one with the oldest pong is pinged.
const PING_CANDIDATES: usize = 5;

/// What to do about two servers with one ID.
const TWIN_ADVICE: &str = "If two servers were started with copies of one nodes.conf, stop one of \
                           them, remove its nodes.conf and start it again: it gets an ID of its \
                           own, and can be met.";

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
        let abilities = Some(header.abilities());
        if core::mem::replace(&mut self.node_mut(sender).abilities, abilities) != abilities {
            self.events.push_back(Event::AbilitiesKnown(sender));
        }
        self.note_acquaintance(cx.now.mono, sender, header.abilities());
        self.advance_introduction(sender, kind);
        if kind == GossipKind::Ping && node_on_link.is_none() {
            self.update_address(cx, sender, ends, header);
        }
        if kind == GossipKind::Pong && node_on_link.is_some() {
            self.pong_received(cx, sender);
        }
        self.copy_leaving(sender, header.flags);
        let follows = !self.is_of_other_cluster(header);
        self.receive_gossip(cx, sender, gossip, follows);
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
        // Who sends MEET was given this address, or has it from somebody who was. Differs from
        // C, where it may change with each MEET. This node itself, which may be one of its seeds,
        // has ways to itself that others have not.
        if (is_meet || self.my_ip.is_none()) && sender != Some(ME) {
            if self.my_ip == Some(ends.local) {
                self.new_ip.confirm();
            } else if let Some(ip) = self.new_ip.offer(cx.now.mono, ends.local) {
                self.change_my_ip(ip);
            }
        }
        if sender.is_none()
            && (is_meet || self.has_tombstone(&header.sender))
            && let Some(address) = address_of_sender(ends, header)
        {
            if self.is_of_other_cluster(header) {
                self.warn_of_other_cluster(cx.now.mono, header.sender, Some(address));
            } else {
                self.meet_unknown(cx, header.sender, ends.peer, address);
            }
        }
        // A MEET may be this node's own, by way of one of its seeds.
        if sender == Some(ME) && !(is_meet && self.meets_seeds()) {
            self.warn_of_twin(cx.now.mono, ends, header);
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
        let now = cx.now.mono;
        if node == ME {
            self.warn_of_twin(now, ends, header);
            return;
        }
        if self.node(node).contact.address == Some(address) {
            self.node_mut(node).new_address.confirm();
        } else if let Some(address) = self.node_mut(node).new_address.offer(now, address) {
            self.change_address(cx, node, address);
        } else if self.twin_warnings.take(now) {
            let (name, other) = (self.name(node), address.client());
            warn!("Node {name} also sends from {other}, in turn. {TWIN_ADVICE}");
        }
    }

    /// A node is reached somewhere else from now on.
    pub(super) fn change_address(&mut self, cx: &mut Context<'_>, node: NodeRef, address: Address) {
        let id = self.id(node);
        warn!("Address updated for node {id}, now {}:{}", address.ip, address.port);
        self.unlink(cx.out, Peer::Node(node));
        self.node_mut(node).contact.address = Some(address);
        self.save_soon();
    }

    /// Takes over the address of this node that had to wait.
    pub(super) fn check_my_ip(&mut self, now: MonoMs) {
        if let Some(ip) = self.new_ip.due(now) {
            self.change_my_ip(ip);
        }
    }

    fn change_my_ip(&mut self, ip: IpAddr) {
        warn!("IP address for this node updated to {ip}");
        self.my_ip = Some(ip);
        self.save_soon();
    }

    /// A message came under this node's own ID. Perhaps this node was told to meet itself, at
    /// an address of its own; otherwise another server has the same nodes.conf.
    fn warn_of_twin(&mut self, now: MonoMs, ends: LinkEnds, header: &Header) {
        let is_from_me = header.port == self.announce.port.unwrap_or(self.my_port)
            && (ends.peer == ends.local || Some(ends.peer) == self.my_ip);
        if !is_from_me && self.twin_warnings.take(now) {
            warn!(
                "Another server, at {} with client port {}, uses the ID of this one, {}. \
                 {TWIN_ADVICE}",
                ends.peer,
                header.port,
                self.my_id()
            );
        }
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
        self.save_soon();
    }

    fn pong_received(&mut self, cx: &mut Context<'_>, from: NodeRef) {
        let node = self.node_mut(from);
        node.contact.pong_received_at = Some(cx.now.mono);
        if let Some(sent_at) = node.contact.ping_sent_at.take() {
            node.contact.round_trip_ms = Some(cx.now.mono.ms_since(sent_at));
        }
        if node.is_failing() {
            let flags = node.flags().without(NodeFlags::PFAIL | NodeFlags::FAIL);
            self.set_flags(from, flags);
            self.events.push_back(Event::AnswersAgain(from));
            self.save_soon();
        }
    }

    /// A node says of itself whether it leaves.
    fn copy_leaving(&mut self, sender: NodeRef, reported: NodeFlags) {
        let flags = self.node(sender).flags();
        if flags.contains(NodeFlags::LEAVING) != reported.contains(NodeFlags::LEAVING) {
            let flags = NodeFlags(flags.0 ^ NodeFlags::LEAVING.0);
            self.set_flags(sender, flags);
            self.events.push_back(if flags.contains(NodeFlags::LEAVING) {
                Event::Leaving(sender)
            } else {
                Event::Stays(sender)
            });
            self.save_soon();
        }
    }

    /// Pings a node. Without a link the ping counts from now on, and goes out when the link
    /// is up.
    pub(super) fn ping(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        let contact = &mut self.node_mut(node).contact;
        contact.ping_sent_at = Some(cx.now.mono);
        if let Some(link) = contact.link.up() {
            self.send_gossip(cx, link, self.ping_kind(node), Some(node));
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
