//! Addresses of nodes that this one is to know, from its configuration: cluster-seeds.
//!
//! Whoever drives the engine resolves the names, and hands over the addresses. Each that is no known
//! node's is met. This node's own address may be among them: the answer comes under its own ID, and
//! the address is remembered as its own. So may be further addresses of nodes that are known.

use core::net::SocketAddr;

use crate::base::ids::NodeId;
use crate::engine::node_set::ME;

use super::handshake::{Begun, Reason};
use super::nodes::Address;
use super::{Cluster, Context};

/// Addresses whose owners are remembered: more than a configuration can have.
const OWNERS_MAX: usize = 4096;

impl Cluster {
    /// Whether an address, to which clients connect, is one where no known node is.
    pub fn is_seed_missing(&self, at: SocketAddr) -> bool {
        let is_there = |id: &NodeId| self.find(id).is_some();
        if self.seed_owners.get(&at).is_some_and(is_there) {
            return false;
        }
        let is_its = |address: &Address| address.client() == at;
        !self.known().any(|node| {
            let node = self.node(node);
            node.contact.address.as_ref().is_some_and(is_its)
        })
    }

    /// Whether a known node has no link.
    pub fn lacks_links(&self) -> bool {
        self.others.iter().any(|node| !self.is_linked(*node))
    }

    /// Meets whoever is at an address, unless it is known who that is.
    pub fn meet_seed(&mut self, cx: &mut Context<'_>, at: SocketAddr) -> Option<Begun> {
        if !self.is_seed_missing(at) {
            return None;
        }
        let address = Address::new(at.ip(), at.port(), None)?;
        Some(self.begin_handshake(cx, Reason::Seed, address))
    }

    /// Whether a seed was met whose answer has yet to come.
    pub(super) fn meets_seeds(&self) -> bool {
        self.handshakes.values().any(|handshake| handshake.reason == Reason::Seed)
    }

    /// At the address of a seed is a node that was known, or this one.
    pub(super) fn note_seed_owner(&mut self, at: SocketAddr, id: NodeId) {
        if self.find(&id) == Some(ME) {
            log::debug!("Seed {at} is this node");
        }
        if self.seed_owners.len() < OWNERS_MAX {
            self.seed_owners.insert(at, id);
        }
    }
}
