//! Links requested, made and lost. The cluster requests; the driver makes them.
//!
//! A message may come in on any link. Only those that this node made belong to
//! somebody; of the others nothing is known here but what comes in on them.

use core::fmt::Display;
use core::net::IpAddr;

use log::info;

use crate::base::ids::LinkId;
use crate::base::time::MonoMs;
use crate::engine::node_set::NodeRef;
use crate::engine::outbox::{ConnectToken, LinkRequest, Outbox};
use crate::proto::bus::GossipKind;

use super::handshake::Reason;
use super::nodes::{Contact, OutgoingLink};
use super::{Cluster, Context, Event, Peer};

/// Connects begun in one tick, so that thousands of dead nodes do not hold up the loop.
const CONNECTS_PER_TICK: usize = 64;
/// Connects under way at once, so that they do not use up the descriptors.
const CONNECTS_MAX: usize = 1024;

/// The addresses of the two ends of a link, as its socket has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnds {
    pub local: IpAddr,
    pub peer: IpAddr,
}

impl Cluster {
    /// A link that was requested is there. Its first message is a ping, or the MEET that an
    /// operator asked for.
    pub fn link_up(&mut self, cx: &mut Context<'_>, link: LinkId, token: ConnectToken) {
        let Some(peer) = self.connects.remove(&token) else {
            cx.out.links.push(LinkRequest::Drop(link));
            return;
        };
        let contact = self.contact_mut(peer);
        let OutgoingLink::Connecting { since, .. } = contact.link else {
            unreachable!("a connect under way belongs to who requested it");
        };
        contact.link = OutgoingLink::Up { id: link, since };
        let failed_connects = core::mem::take(&mut contact.failed_connects);
        self.links.insert(link, peer);
        let (kind, to) = match peer {
            Peer::Node(node) => {
                if failed_connects > 0 {
                    let name = self.name(node);
                    info!("Connected to node {name} after {failed_connects} failed attempts.");
                }
                self.events.push_back(Event::LinkUp(node));
                (GossipKind::Ping, Some(node))
            }
            Peer::Handshake(id) => match self.handshakes[&id].reason {
                Reason::Command | Reason::Seed => (GossipKind::Meet, None),
                Reason::Meet { .. } | Reason::Gossip(_) | Reason::Return(_) => {
                    (GossipKind::Ping, None)
                }
            },
        };
        self.send_gossip(cx, link, kind, to);
    }

    /// A link that was requested could not be made, for the reason that is given.
    pub fn link_failed(&mut self, token: ConnectToken, reason: &dyn Display) {
        let Some(peer) = self.connects.remove(&token) else { return };
        self.contact_mut(peer).link = OutgoingLink::None;
        match peer {
            Peer::Node(node) => self.count_failed_connect(node, reason),
            Peer::Handshake(id) => self.report_unreachable(id, reason),
        }
    }

    /// Logs the first of several failed attempts in a row, and counts the others.
    pub(super) fn count_failed_connect(&mut self, node: NodeRef, reason: &dyn Display) {
        let contact = &mut self.node_mut(node).contact;
        contact.failed_connects = contact.failed_connects.saturating_add(1);
        if contact.failed_connects == 1
            && let Some(address) = contact.address
        {
            let (name, bus_port) = (self.name(node), address.bus_port);
            info!(
                "Cannot connect to node {name}, bus port {bus_port}: {reason}. It is tried again \
                 and again."
            );
        }
    }

    /// A link is gone, made by this node or by the other.
    pub fn link_down(&mut self, link: LinkId) {
        if let Some(peer) = self.links.remove(&link) {
            self.contact_mut(peer).link = OutgoingLink::None;
        }
    }

    /// How many connects may be begun now.
    pub(super) fn connect_budget(&self) -> usize {
        CONNECTS_PER_TICK.min(CONNECTS_MAX.saturating_sub(self.connects.len()))
    }

    fn contact_mut(&mut self, peer: Peer) -> &mut Contact {
        match peer {
            Peer::Node(node) => &mut self.node_mut(node).contact,
            Peer::Handshake(id) => {
                let handshake = self.handshakes.get_mut(&id);
                &mut handshake.expect("a handshake that ends gives up its link").contact
            }
        }
    }

    /// Requests a link when there is none. The ping that will be its first message
    /// counts from now on: otherwise a node that cannot be reached would never be found
    /// failing.
    pub(super) fn connect(
        &mut self,
        out: &mut Outbox,
        now: MonoMs,
        peer: Peer,
        budget: &mut usize,
    ) {
        let token = ConnectToken(self.last_token + 1);
        let contact = self.contact_mut(peer);
        let (Some(address), OutgoingLink::None, 1..) = (contact.address, &contact.link, *budget)
        else {
            return;
        };
        *budget -= 1;
        contact.ping_sent_at.get_or_insert(now);
        contact.link = OutgoingLink::Connecting { token, since: now };
        self.last_token = token.0;
        self.connects.insert(token, peer);
        out.links.push(LinkRequest::Connect { token, addr: address.bus() });
    }

    /// Gives up the link, if there is one or will be.
    pub(super) fn unlink(&mut self, out: &mut Outbox, peer: Peer) {
        match core::mem::take(&mut self.contact_mut(peer).link) {
            OutgoingLink::None => {}
            OutgoingLink::Connecting { token, .. } => {
                self.connects.remove(&token);
                out.links.push(LinkRequest::Cancel(token));
            }
            OutgoingLink::Up { id, .. } => {
                self.links.remove(&id);
                out.links.push(LinkRequest::Drop(id));
            }
        }
    }

    /// Panics unless each link and each connect belongs to the one that names it.
    pub(super) fn check_links_agree(&self) {
        let nodes = self.index.values().chain(self.forgotten.values());
        let nodes = nodes.map(|node| (Peer::Node(*node), &self.node(*node).contact.link));
        let handshakes = self.handshakes.iter();
        let handshakes =
            handshakes.map(|(id, handshake)| (Peer::Handshake(*id), &handshake.contact.link));
        let (mut up_count, mut connecting_count) = (0, 0);
        for (peer, link) in nodes.chain(handshakes) {
            match link {
                OutgoingLink::None => {}
                OutgoingLink::Connecting { token, .. } => {
                    connecting_count += 1;
                    assert_eq!(self.connects.get(token), Some(&peer));
                }
                OutgoingLink::Up { id, .. } => {
                    up_count += 1;
                    assert_eq!(self.links.get(id), Some(&peer));
                }
            }
        }
        assert_eq!((self.links.len(), self.connects.len()), (up_count, connecting_count));
    }
}
