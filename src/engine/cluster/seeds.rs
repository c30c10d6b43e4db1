//! Addresses of nodes that this one is to know, from its configuration: cluster-seeds.
//!
//! Whoever drives the engine resolves the names, and hands over the addresses. Each that is no known
//! node's is met. This node's own address may be among them: the answer comes under its own ID, and
//! the address is remembered as its own. So may be further addresses of nodes that are known.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use log::{debug, warn};

use crate::base::ids::NodeId;
use crate::base::time::MonoMs;
use crate::engine::node_set::ME;

use super::handshake::{Begun, Reason};
use super::nodes::Address;
use super::{Cluster, Context};

/// Addresses that are remembered: more than a configuration can have.
const ADDRESSES_MAX: usize = 4096;
/// Whose an address is, if the node is known by another one, is asked again after this, in ms:
/// addresses go from one machine to the next.
const OWNER_VALID_MS: u64 = 600_000;
/// The log says that nobody is at an address when it was tried for so long, in ms.
const REPORT_AFTER_MS: u64 = 10_000;
/// An address that was not tried for so long, in ms, was given up.
const GIVEN_UP_MS: u64 = 180_000;

/// What is known of the addresses of seeds.
#[derive(Debug, Default)]
pub(super) struct Seeds {
    /// Which node is at an address that is not the one it is known by, and since when.
    owners: BTreeMap<SocketAddr, (NodeId, MonoMs)>,
    silent: BTreeMap<SocketAddr, Silence>,
}

/// An address at which there is no known node.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: MonoMs,
    last_at: MonoMs,
    is_reported: bool,
}

impl Seeds {
    /// An address is tried. Returns for how many ms it has been, when the log is to say so.
    fn note_try(&mut self, now: MonoMs, at: SocketAddr) -> Option<u64> {
        self.silent.retain(|_, silence| now.ms_since(silence.last_at) < GIVEN_UP_MS);
        if self.silent.len() >= ADDRESSES_MAX {
            return None;
        }
        let first = Silence { since: now, last_at: now, is_reported: false };
        let silence = self.silent.entry(at).or_insert(first);
        silence.last_at = now;
        let ms = now.ms_since(silence.since);
        let is_due = ms >= REPORT_AFTER_MS && !silence.is_reported;
        silence.is_reported |= is_due;
        is_due.then_some(ms)
    }
}

impl Cluster {
    /// Whether an address, to which clients connect, is one where no known node is.
    pub fn is_seed_missing(&self, now: MonoMs, at: SocketAddr) -> bool {
        let is_there = |(id, since): &(NodeId, MonoMs)| {
            self.find(id).is_some() && now.ms_since(*since) < OWNER_VALID_MS
        };
        if self.seeds.owners.get(&at).is_some_and(is_there) {
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
        let now = cx.now.mono;
        if !self.is_seed_missing(now, at) {
            return None;
        }
        let address = Address::new(at.ip(), at.port(), None)?;
        if let Some(ms) = self.seeds.note_try(now, at) {
            warn!(
                "Seed {at}: no node of this cluster was found there for {} s. Its bus port {} is \
                 tried: check that the node runs and that no firewall blocks this port.",
                ms / 1000,
                address.bus_port
            );
        }
        Some(self.begin_handshake(cx, Reason::Seed, address))
    }

    /// Whether a seed was met whose answer has yet to come.
    pub(super) fn meets_seeds(&self) -> bool {
        self.handshakes.values().any(|handshake| handshake.reason == Reason::Seed)
    }

    /// At the address of a seed is a node that was known, or this one.
    pub(super) fn note_seed_owner(&mut self, now: MonoMs, at: SocketAddr, id: NodeId) {
        if self.find(&id) == Some(ME) {
            debug!("Seed {at} is this node");
        }
        let Seeds { owners, silent } = &mut self.seeds;
        silent.remove(&at);
        owners.retain(|_, (_, since)| now.ms_since(*since) < OWNER_VALID_MS);
        if owners.len() < ADDRESSES_MAX {
            owners.insert(at, (id, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_is_at_a_seed_is_said_once_while_it_is_tried() {
        let mut seeds = Seeds::default();
        let at: SocketAddr = "10.0.0.1:7711".parse().expect("an address");
        let tries_ms = [0, 1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000];
        let said: Vec<u64> =
            tries_ms.iter().filter_map(|ms| seeds.note_try(MonoMs(*ms), at)).collect();
        assert_eq!(said, [15_000]);
        // It went away and is back, and nobody is there again.
        let later_ms = [1_000_000, 1_008_000, 1_016_000];
        let said = later_ms.iter().filter_map(|ms| seeds.note_try(MonoMs(*ms), at));
        assert_eq!(said.collect::<Vec<_>>(), [16_000]);
    }
}
