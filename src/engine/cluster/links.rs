//! Links wished for, made and lost. The engine wishes; the driver makes them.
//!
//! A message may come in on any link. Only those that this node made belong to
//! somebody; of the others nothing is known here but what comes in on them.

use core::net::IpAddr;

use crate::base::ids::LinkId;
use crate::base::time::{MonoMs, Now};
use crate::engine::Engine;
use crate::engine::outbox::{ConnectToken, LinkRequest, Outbox};
use crate::proto::bus::GossipKind;

use super::handshake::Reason;
use super::node::{Contact, Link};
use super::{Cluster, Peer};

/// Connects begun in one tick of the cron, so that thousands of dead nodes do not hold
/// up the loop.
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

    /// Wishes for a link when there is none. The ping that will be its first message
    /// counts from now on, lest a node that cannot be reached stays above suspicion.
    pub(super) fn connect(
        &mut self,
        out: &mut Outbox,
        now: MonoMs,
        peer: Peer,
        budget: &mut usize,
    ) {
        let token = ConnectToken(self.last_token + 1);
        let contact = self.contact_mut(peer);
        let (Some(address), Link::None, 1..) = (contact.address, &contact.link, *budget) else {
            return;
        };
        *budget -= 1;
        contact.ping_sent_at.get_or_insert(now);
        contact.link = Link::Connecting { token, since: now };
        self.last_token = token.0;
        self.connects.insert(token, peer);
        out.links.push(LinkRequest::Connect { token, addr: address.bus() });
    }

    /// Gives up the link, if there is one or will be.
    pub(super) fn unlink(&mut self, out: &mut Outbox, peer: Peer) {
        match core::mem::take(&mut self.contact_mut(peer).link) {
            Link::None => {}
            Link::Connecting { token, .. } => {
                self.connects.remove(&token);
                out.links.push(LinkRequest::Cancel(token));
            }
            Link::Up { id, .. } => {
                self.links.remove(&id);
                out.links.push(LinkRequest::Drop(id));
            }
        }
    }
}

impl Engine {
    /// A link that was wished for is there. Its first message is a ping.
    pub fn link_up(&mut self, now: Now, link: LinkId, token: ConnectToken) {
        self.now = now;
        let Some(peer) = self.cluster.connects.remove(&token) else {
            self.out.links.push(LinkRequest::Drop(link));
            return;
        };
        let contact = self.cluster.contact_mut(peer);
        let Link::Connecting { since, .. } = contact.link else {
            unreachable!("a connect under way belongs to who wished for it");
        };
        contact.link = Link::Up { id: link, since };
        self.cluster.links.insert(link, peer);
        if let Peer::Node(node) = peer {
            self.retell_acks(node);
            self.ask_anew();
        }
        let (kind, to) = match peer {
            Peer::Node(node) => (GossipKind::Ping, Some(node)),
            Peer::Handshake(id) => match self.cluster.handshakes[&id].reason {
                Reason::Command => (GossipKind::Meet, None),
                Reason::Meet(_) | Reason::Gossip(_) => (GossipKind::Ping, None),
            },
        };
        self.send_gossip(link, kind, to);
    }

    /// A link that was wished for could not be made.
    pub fn link_failed(&mut self, now: Now, token: ConnectToken) {
        self.now = now;
        let Some(peer) = self.cluster.connects.remove(&token) else { return };
        self.cluster.contact_mut(peer).link = Link::None;
        if let Peer::Handshake(id) = peer {
            self.handshake_unreachable(id);
        }
    }

    /// A link is gone, made by this node or by the other.
    pub fn link_down(&mut self, now: Now, link: LinkId) {
        self.now = now;
        if let Some(peer) = self.cluster.links.remove(&link) {
            self.cluster.contact_mut(peer).link = Link::None;
        }
    }
}
