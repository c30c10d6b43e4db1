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
//! Differs from C: an address that came with an ID must answer with that ID, and gets its
//! MEET afterwards. Only CLUSTER MEET accepts whoever answers.

use core::fmt::Display;

use log::{debug, warn};

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::HANDSHAKES_MAX;
use crate::base::time::MonoMs;
use crate::engine::node_set::NodeRef;
use crate::engine::outbox::LinkRequest;
use crate::proto::bus::{GossipKind, Header};

use super::nodes::{Address, Contact};
use super::{Cluster, Context, Event, LinkEnds, Peer};

/// Unknown nodes that sent MEET take no more of [`HANDSHAKES_MAX`] than this, so that they
/// cannot keep others out.
const UNKNOWN_MAX: usize = HANDSHAKES_MAX / 2;
/// C: clusterCron, handshake_timeout.
const TIMEOUT_MIN_MS: u64 = 1000;

/// What a handshake was begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// CLUSTER MEET.
    Command,
    /// A MEET of this node came from there.
    Meet(NodeId),
    /// A known node reported that this one is there.
    Gossip(NodeId),
}

#[derive(Debug)]
pub(super) struct Handshake {
    pub reason: Reason,
    began_at: MonoMs,
    pub contact: Contact,
    /// The log says already that the bus port cannot be reached.
    is_reported: bool,
}

impl Handshake {
    fn is_at(&self, address: &Address) -> bool {
        self.contact.address.is_some_and(|own| (own.ip, own.port) == (address.ip, address.port))
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
    /// Begins a handshake, unless one with that address is under way. A node that sent
    /// MEET gets one in any case: the other one may be about to time out.
    pub(super) fn begin_handshake(
        &mut self,
        cx: &mut Context<'_>,
        reason: Reason,
        address: Address,
    ) -> Begun {
        let under_way = self.handshakes.iter().find(|(_, handshake)| handshake.is_at(&address));
        match (reason, under_way.map(|(&id, handshake)| (id, handshake.reason))) {
            (Reason::Meet(_), _) | (_, None) => {}
            // This one was asked for by hand: its peer has to get a MEET.
            (Reason::Command, Some((id, Reason::Meet(_) | Reason::Gossip(_)))) => {
                self.end_handshake(cx, id);
            }
            (Reason::Command | Reason::Gossip(_), Some(_)) => return Begun::Yes,
        }
        let handshakes_max =
            if matches!(reason, Reason::Meet(_)) { UNKNOWN_MAX } else { HANDSHAKES_MAX };
        if self.handshakes.len() >= handshakes_max {
            return Begun::No;
        }
        let contact = Contact { address: Some(address), ..Contact::default() };
        let began_at = cx.now.mono;
        let handshake = Handshake { reason, began_at, contact, is_reported: false };
        self.handshakes.insert(NodeId::from_random(cx.rng.bytes()), handshake);
        Begun::Yes
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
            debug!("Handshake: node {sender} is known, updating its address if needed.");
            self.update_address(cx, known, ends, header);
            self.end_handshake(cx, id);
            return None;
        }
        let reason = self.handshakes[&id].reason;
        let is_welcome = match reason {
            Reason::Command => true,
            Reason::Meet(expected) => expected == sender,
            Reason::Gossip(expected) => {
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
            warn!("No room for node {sender}: too many nodes were known since the start.");
            self.links.remove(&link);
            cx.out.links.push(LinkRequest::Drop(link));
            return None;
        };
        debug!("Handshake with node {sender} completed.");
        self.links.insert(link, Peer::Node(node));
        cx.out.save_nodes = true;
        self.events.push_back(Event::Joined(node));
        if matches!(reason, Reason::Gossip(_)) {
            self.send_gossip(cx, link, GossipKind::Meet, Some(node));
        }
        Some(node)
    }

    /// Ends the handshakes that take too long, and connects the others.
    pub(super) fn advance_handshakes(&mut self, cx: &mut Context<'_>, budget: &mut usize) {
        let timeout_ms = self.node_timeout_ms.max(TIMEOUT_MIN_MS);
        let mut ids: Vec<NodeId> = self.handshakes.keys().copied().collect();
        // Known nodes need some of the budget too, and all handshakes have their turn.
        let begin = ids.partition_point(|id| *id <= self.last_handshake_tried);
        ids.rotate_left(begin);
        let share = *budget / 2;
        let mut left = share;
        for id in ids {
            let handshake = &self.handshakes[&id];
            if cx.now.mono.ms_since(handshake.began_at) > timeout_ms {
                if handshake.contact.link.up().is_none() {
                    self.report_unreachable(id, &"no answer");
                }
                self.end_handshake(cx, id);
            } else {
                let left_before = left;
                self.connect(cx.out, cx.now.mono, Peer::Handshake(id), &mut left);
                if left < left_before {
                    self.last_handshake_tried = id;
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
