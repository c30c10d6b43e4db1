//! From an address to a node that is known.
//!
//! A handshake has an address and a temporary ID. It begins with CLUSTER MEET, with the
//! MEET of a node that is not known, or with gossip. The first answer on its link says
//! who is there, and then it is a node; without one it ends at its timeout.
//!
//! Why an address is not enough: addresses are handed from one machine to the next, and
//! nodes of another cluster may get one. C takes in whoever answers, and sends MEET to
//! addresses it has from gossip: then two clusters merge once a node of one takes over an
//! address of the other.
//!
//! Differs from C: an address that came with an ID must answer with that ID. Only CLUSTER
//! MEET accepts whoever answers.
//!
//! A node becomes known to another one by its MEET, which may be lost, or come when the other
//! one has no place for a handshake, or dies. Then one would know the other, and never the
//! other way round: pings of unknown nodes are answered and no more. So both say with each
//! heartbeat whether they know the receiver, and who joined is sent MEET instead of PING until it
//! does. C nodes do not say; they know who they have pinged twice. Differs from C, which
//! sends one MEET.
//!
//! That is over once it was achieved, since a node that an operator had forgotten later
//! must not come back by itself.
//!
//! Whoever reaches the bus can send MEET, and have this node connect to any address. So each
//! source may have a few such handshakes under way, and the connects of each are rare. They
//! have places of their own, as those of gossip and those of CLUSTER MEET have, so that no
//! flood keeps out what an operator orders. When their places are taken, the oldest of the
//! source that has most gives way.

use core::cmp::Reverse;
use core::fmt::Display;
use core::mem::discriminant;
use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;

use log::{debug, warn};

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE_MAX};
use crate::base::time::MonoMs;
use crate::engine::node_set::{ME, NodeRef};
use crate::engine::outbox::LinkRequest;
use crate::proto::bus::{Abilities, GossipKind, Header};

use super::nodes::{Address, Contact, Introduction};
use super::{Cluster, Context, Event, LinkEnds, Peer};

/// C: clusterCron, handshake_timeout.
const TIMEOUT_MIN_MS: u64 = 1000;
/// From one connect for the handshake of an unknown or a forgotten node to the next, in ms.
const PATIENT_RECONNECT_MS: u64 = 1000;
/// An unknown node is not believed that its bus is at a lower port: other protocols are there.
const UNKNOWN_BUS_PORT_MIN: u16 = 1024;
/// Of a node that does not say whom it knows, so many pings show that it knows this one: the
/// first comes before its handshake is complete.
const PINGS_OF_ACQUAINTANCE: u8 = 2;

/// For so many node timeouts a node may not know this one before that is held against it.
const DEAF_AFTER_TIMEOUTS: u64 = 2;

/// What a handshake was begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// CLUSTER MEET.
    Command,
    /// Its address is one of cluster-seeds.
    Seed,
    /// A MEET of an unknown node.
    Meet { sender: NodeId, source: SourceNetwork },
    /// A known node reported that this one is there.
    Gossip(NodeId),
    /// This one was forgotten as failing, and may be back. Nobody is shown such an attempt.
    Return(NodeId),
}

impl Reason {
    fn source(&self) -> Option<SourceNetwork> {
        match self {
            Self::Meet { source, .. } => Some(*source),
            Self::Command | Self::Seed | Self::Gossip(_) | Self::Return(_) => None,
        }
    }
}

/// Where a MEET came from: an address, or of IPv6 the network that its owner has at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceNetwork(IpAddr);

impl From<IpAddr> for SourceNetwork {
    fn from(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::from([a, b, c, d, 0, 0, 0, 0]))
            }
            v4 => v4,
        })
    }
}

#[derive(Debug)]
pub(super) struct Handshake {
    pub reason: Reason,
    began_at: MonoMs,
    connected_at: Option<MonoMs>,
    pub contact: Contact,
    /// The log says already that the bus port cannot be reached.
    is_reported: bool,
}

impl Handshake {
    fn is_at(&self, address: &Address) -> bool {
        self.contact.address.is_some_and(|own| (own.ip, own.port) == (address.ip, address.port))
    }

    /// Whether operators and clients are shown it.
    pub fn is_shown(&self) -> bool {
        !matches!(self.reason, Reason::Return(_))
    }

    fn is_patient(&self) -> bool {
        matches!(self.reason, Reason::Meet { .. } | Reason::Return(_))
    }

    fn may_connect(&self, now: MonoMs) -> bool {
        !self.is_patient()
            || self.connected_at.is_none_or(|at| now.ms_since(at) >= PATIENT_RECONNECT_MS)
    }
}

/// Whether a handshake could be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Or is under way already.
    Yes,
    /// Too many are under way.
    No,
}

impl Cluster {
    /// A node that is not known asks to be met at an address.
    pub(super) fn meet_unknown(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeId,
        source: IpAddr,
        address: Address,
    ) {
        if address.bus_port < UNKNOWN_BUS_PORT_MIN {
            debug!("MEET of {sender} ignored: its bus would be at {}", address.bus());
            return;
        }
        let reason = Reason::Meet { sender, source: source.into() };
        self.begin_handshake(cx, reason, address);
    }

    /// Begins a handshake, unless one with that address is under way. An unknown node gets
    /// its own, whatever others say of its address.
    pub(super) fn begin_handshake(
        &mut self,
        cx: &mut Context<'_>,
        reason: Reason,
        address: Address,
    ) -> Begun {
        let now = cx.now.mono;
        let is_same = |other: &Handshake| {
            other.is_at(&address) && (matches!(reason, Reason::Gossip(_)) || other.reason == reason)
        };
        if let Some(same) = self.handshakes.values_mut().find(|other| is_same(other)) {
            if matches!(reason, Reason::Command | Reason::Meet { .. }) {
                // An operator or a node that asks again counts on an attempt that lasts from now
                // on, so this one is not to time out.
                same.began_at = now;
            }
            return Begun::Yes;
        }
        if reason == Reason::Command {
            // Its peer has to get a MEET, which the others may have no occasion to send.
            self.end_handshakes(cx, |other| other.is_at(&address));
        }
        if self.make_place(cx, reason) == Begun::No {
            return Begun::No;
        }
        let handshake = Handshake {
            reason,
            began_at: now,
            connected_at: None,
            contact: Contact { address: Some(address), ..Contact::default() },
            is_reported: false,
        };
        self.handshakes.insert(NodeId::from_random(cx.rng.bytes()), handshake);
        Begun::Yes
    }

    /// Sees to it that there is a place for one more handshake, if there may be one.
    fn make_place(&mut self, cx: &mut Context<'_>, reason: Reason) -> Begun {
        let reasons = || self.handshakes.values().map(|other| other.reason);
        let is_of_kind = |other: &Reason| discriminant(other) == discriminant(&reason);
        let is_full = reasons().filter(is_of_kind).count() >= HANDSHAKES_MAX;
        if let Reason::Meet { source, .. } = reason {
            let is_from_there = |other: &Reason| other.source() == Some(source);
            if reasons().filter(is_from_there).count() >= HANDSHAKES_PER_SOURCE_MAX {
                return Begun::No;
            }
            if is_full {
                self.end_one_for_unknown(cx);
            }
        } else if is_full {
            return Begun::No;
        }
        Begun::Yes
    }

    /// Ends the oldest handshake of the source that has most of those for unknown nodes.
    fn end_one_for_unknown(&mut self, cx: &mut Context<'_>) {
        let sources = || self.handshakes.values().filter_map(|other| other.reason.source());
        let mut counts: BTreeMap<SourceNetwork, usize> = BTreeMap::new();
        sources().for_each(|source| *counts.entry(source).or_default() += 1);
        let of_unknown = self.handshakes.iter().filter_map(|(id, other)| {
            let source = other.reason.source()?;
            Some(((counts[&source], Reverse(other.began_at)), *id))
        });
        if let Some((_, id)) = of_unknown.max() {
            self.end_handshake(cx, id);
        }
    }

    /// Ends all handshakes of a kind.
    pub(super) fn end_handshakes(
        &mut self,
        cx: &mut Context<'_>,
        is_such: impl Fn(&Handshake) -> bool,
    ) {
        let such = self.handshakes.iter().filter(|(_, handshake)| is_such(handshake));
        for id in such.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_handshake(cx, id);
        }
    }

    /// Ends a handshake, come to nothing or not needed any more.
    pub(super) fn end_handshake(&mut self, cx: &mut Context<'_>, id: NodeId) {
        self.unlink(cx.out, Peer::Handshake(id));
        self.handshakes.remove(&id);
    }

    /// Somebody answered on the link of a handshake. Returns the node that it has become.
    pub(super) fn handshake_answered(
        &mut self,
        cx: &mut Context<'_>,
        id: NodeId,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
    ) -> Option<NodeRef> {
        let sender = header.sender;
        if let Some(known) = self.find(&sender) {
            if let Reason::Seed = self.handshakes[&id].reason
                && let Some(at) = self.handshakes[&id].contact.address
            {
                self.note_seed_owner(cx.now.mono, at.client(), sender);
                if known == ME || self.is_linked(known) {
                    // It is reached where it is known to be, and here too.
                    self.end_handshake(cx, id);
                    return None;
                }
            }
            debug!("Handshake: node {sender} is known, updating its address if needed.");
            self.update_address(cx, known, ends, header);
            self.end_handshake(cx, id);
            return None;
        }
        let reason = self.handshakes[&id].reason;
        if self.is_of_other_cluster(header) {
            match reason {
                Reason::Command | Reason::Seed => {
                    let address = self.handshakes[&id].contact.address;
                    self.warn_of_other_cluster(cx.now.mono, sender, address);
                }
                // Who knows nodes of both names goes on to mention it.
                Reason::Gossip(_) => self.blacklist(cx.now.mono, sender),
                Reason::Meet { .. } | Reason::Return(_) => {}
            }
            self.end_handshake(cx, id);
            return None;
        }
        let is_welcome = match reason {
            Reason::Command | Reason::Seed => true,
            Reason::Meet { sender: expected, .. } => expected == sender,
            Reason::Gossip(expected) | Reason::Return(expected) => {
                expected == sender && !self.is_blacklisted(cx.now.mono, &sender)
            }
        };
        if !is_welcome {
            debug!("Handshake: node {sender} answered where another one was expected.");
            self.end_handshake(cx, id);
            return None;
        }
        let handshake = self.handshakes.remove(&id)?;
        let Some(node) = self.add(sender, handshake.contact) else {
            warn!("No place for node {sender}: too many nodes were known since the start.");
            self.links.remove(&link);
            cx.out.links.push(LinkRequest::Drop(link));
            return None;
        };
        self.links.insert(link, Peer::Node(node));
        cx.out.save_nodes = true;
        self.warn_of_nameless(node, header);
        self.events.push_back(Event::Joined(node));
        if matches!(reason, Reason::Gossip(_) | Reason::Return(_)) {
            self.send_gossip(cx, link, GossipKind::Meet, Some(node));
        }
        Some(node)
    }

    /// A node of another cluster was to be met, or asks to be.
    pub(super) fn warn_of_other_cluster(
        &mut self,
        now: MonoMs,
        node: NodeId,
        address: Option<Address>,
    ) {
        if self.name_warnings.take(now) {
            let at = address.map_or_else(String::new, |at| format!(" at {}", at.client()));
            warn!("Node {node}{at} is of another cluster: its cluster-name differs.");
        }
    }

    /// Whether the sender says that it is of a cluster of another name.
    pub(super) fn is_of_other_cluster(&self, header: &Header) -> bool {
        match (self.cluster_name, header.cluster_name()) {
            (Some(ours), Some(theirs)) => ours != theirs,
            _ => false,
        }
    }

    /// A node without a name may be of any cluster, as C nodes are.
    fn warn_of_nameless(&mut self, node: NodeRef, header: &Header) {
        if self.cluster_name.is_some()
            && header.cluster_name().is_none()
            && !self.is_warned_of_nameless
        {
            self.is_warned_of_nameless = true;
            warn!(
                "Node {} has no cluster-name, and was taken in; so will others.",
                self.name(node)
            );
        }
    }

    /// A known node sent a heartbeat: perhaps it shows that this one is known there.
    pub(super) fn advance_introduction(&mut self, from: NodeRef, kind: GossipKind) {
        let node = self.node_mut(from);
        let Introduction::UnderWay { pings } = &mut node.introduction else { return };
        let abilities = node.abilities.unwrap_or_default();
        if kind == GossipKind::Ping && abilities == Abilities::NONE {
            *pings += 1;
        }
        if *pings >= PINGS_OF_ACQUAINTANCE || abilities.contains(Abilities::KNOWS_RECEIVER) {
            node.introduction = Introduction::Done;
            self.events.push_back(Event::Acquainted(from));
        }
    }

    /// A known node sent a heartbeat, and says whether it knows this one.
    pub(super) fn note_acquaintance(&mut self, now: MonoMs, from: NodeRef, says: Abilities) {
        if says == Abilities::NONE || says.contains(Abilities::KNOWS_RECEIVER) {
            self.node_mut(from).unknown_there_since = None;
            if self.node(from).is_deaf {
                self.set_deaf(from, false);
                self.events.push_back(Event::Acquainted(from));
            }
        } else {
            self.node_mut(from).unknown_there_since.get_or_insert(now);
        }
    }

    /// A node that answers and does not know this one ignores all else that it is sent. It may have
    /// forgotten it, or be of another cluster by now.
    pub(super) fn check_acquaintance(&mut self, now: MonoMs, node: NodeRef) {
        let Some(since) = self.node(node).unknown_there_since else { return };
        let wait_ms = self.node_timeout_ms.saturating_mul(DEAF_AFTER_TIMEOUTS);
        if !self.node(node).is_deaf && now.ms_since(since) > wait_ms {
            self.set_deaf(node, true);
            warn!(
                "Node {} answers, but does not know this one: it gets no jobs until it does. \
                 Perhaps this node was forgotten there, or its cluster-name is another one there.",
                self.name(node)
            );
        }
    }

    /// What a node is pinged with on a link on which it has answered: MEET until it knows this
    /// one. The first message on a link is PING, lest another node that is there now is asked.
    pub(super) fn ping_kind(&self, node: NodeRef) -> GossipKind {
        match self.node(node).introduction {
            Introduction::Done => GossipKind::Ping,
            Introduction::UnderWay { .. } => GossipKind::Meet,
        }
    }

    /// Ends the handshakes that take too long, and connects the others.
    pub(super) fn advance_handshakes(&mut self, cx: &mut Context<'_>, budget: &mut usize) {
        let now = cx.now.mono;
        let timeout_ms = self.node_timeout_ms.max(TIMEOUT_MIN_MS);
        let mut ids: Vec<NodeId> = self.handshakes.keys().copied().collect();
        // Known nodes need some of the budget too, and all handshakes have their turn, those
        // that an operator asked for first.
        let begin = ids.partition_point(|id| *id <= self.last_handshake_tried);
        ids.rotate_left(begin);
        ids.sort_by_key(|id| !matches!(self.handshakes[id].reason, Reason::Command | Reason::Seed));
        let share = *budget / 2;
        let mut left = share;
        for id in ids {
            let handshake = &self.handshakes[&id];
            if now.ms_since(handshake.began_at) > timeout_ms {
                if handshake.contact.link.up().is_none() {
                    self.report_unreachable(id, &"no answer");
                }
                self.end_handshake(cx, id);
            } else if handshake.may_connect(now) {
                let left_before = left;
                self.connect(cx.out, now, Peer::Handshake(id), &mut left);
                if left < left_before {
                    self.last_handshake_tried = id;
                    let tried = self.handshakes.get_mut(&id).expect("it was connected just now");
                    tried.connected_at = Some(now);
                }
            }
        }
        *budget -= share - left;
    }

    /// Logs, once, that a handshake finds nobody.
    pub(super) fn report_unreachable(&mut self, id: NodeId, reason: &dyn Display) {
        let Some(handshake) = self.handshakes.get_mut(&id) else { return };
        let Some(address) = handshake.contact.address else { return };
        if core::mem::replace(&mut handshake.is_reported, true) {
            return;
        }
        if handshake.reason == Reason::Command {
            warn!(
                "CLUSTER MEET {} {}: the bus port {} could not be reached: {reason}. Nodes speak \
                 to each other on their client port + 10000: check that the node runs and that \
                 no firewall blocks this port, in both directions.",
                address.ip, address.port, address.bus_port
            );
        } else {
            debug!("Handshake with {}: {reason}", address.bus());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source_and_a_mapped_address_is_the_one_in_it() {
        let source = |text: &str| SourceNetwork::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(source("2001:db8::1"), source("2001:db8:0:0:ffff::2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
