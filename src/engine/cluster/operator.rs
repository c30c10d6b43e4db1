//! What an operator orders: CLUSTER MEET, FORGET, RESET and LEAVING.

use core::net::IpAddr;

use crate::base::ids::NodeId;
use crate::base::time::MonoMs;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::NodeFlags;

use super::handshake::{Begun, Reason};
use super::nodes::Address;
use super::{Cluster, Context, Event};

/// How long gossip does not bring a forgotten node back. C: CLUSTER_BLACKLIST_TTL.
const BLACKLIST_MS: u64 = 60_000;

/// What became of CLUSTER FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    Yes,
    Unknown,
    Myself,
}

/// Whether this node is about to leave the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    No,
    Yes,
}

/// Whether CLUSTER RESET keeps this node's ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    Soft,
    Hard,
}

impl Cluster {
    /// CLUSTER MEET. `None` when there can be no node at the address.
    pub fn meet(
        &mut self,
        cx: &mut Context<'_>,
        ip: IpAddr,
        port: u16,
        bus_port: Option<u16>,
    ) -> Option<Begun> {
        let address = Address::new(ip, port, bus_port)?;
        Some(self.begin_handshake(cx, Reason::Command, address))
    }

    /// CLUSTER FORGET: the node is not known any more, and gossip does not bring it back
    /// for a minute. A handshake, by its temporary ID, just ends.
    ///
    /// Why gossip has to wait: the other nodes still know the forgotten one and mention it
    /// with every heartbeat. The minute is the operator's time to forget it on all of them.
    pub fn forget(&mut self, cx: &mut Context<'_>, id: &NodeId) -> Forgotten {
        match self.find(id) {
            Some(ME) => return Forgotten::Myself,
            Some(node) => self.forget_node(cx, node),
            None if self.handshakes.contains_key(id) => self.end_handshake(cx, *id),
            None if self.drop_tombstone(id) => {
                self.blacklist(cx.now.mono, *id);
                cx.out.save_nodes = true;
            }
            None => return Forgotten::Unknown,
        }
        Forgotten::Yes
    }

    fn forget_node(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        self.blacklist(cx.now.mono, self.id(node));
        self.remove(cx.out, node);
        self.events.push_back(Event::Forgotten(node));
        cx.out.save_nodes = true;
    }

    /// Gossip does not bring a node in for a while.
    pub(super) fn blacklist(&mut self, now: MonoMs, id: NodeId) {
        self.blacklist.retain(|_, until| *until > now);
        self.blacklist.insert(id, now.plus_ms(BLACKLIST_MS));
    }

    /// CLUSTER RESET: this node is alone, under its old ID or a new one.
    pub fn reset(&mut self, cx: &mut Context<'_>, reset: Reset) {
        self.remove_all(cx.out);
        self.tombstones.clear();
        self.end_handshakes(cx, |_| true);
        if reset == Reset::Hard {
            let id = NodeId::from_random(cx.rng.bytes());
            self.rename_me(id);
        }
        self.events.push_back(Event::Reset);
        cx.out.save_nodes = true;
    }

    /// CLUSTER LEAVING: whether this node is about to leave. Peers learn it from the next
    /// ping.
    pub fn set_leaving(&mut self, cx: &mut Context<'_>, leaving: Leaving) {
        let (flags, event) = match leaving {
            Leaving::No => (NodeFlags::MYSELF, Event::Stays(ME)),
            Leaving::Yes => (NodeFlags::MYSELF | NodeFlags::LEAVING, Event::Leaving(ME)),
        };
        if self.node(ME).flags() != flags {
            self.set_flags(ME, flags);
            self.events.push_back(event);
            cx.out.save_nodes = true;
        }
    }
}
