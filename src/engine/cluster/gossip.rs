//! What PING, PONG and MEET tell of other nodes: some random ones, failing ones first.

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::{BUS_FRAME_UNKNOWN_MAX, GOSSIP_ENTRIES_MAX};
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now};
use crate::engine::Engine;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{
    self, Gossip, GossipEntry, GossipKind, HEADER_LEN, MessageFlags, NodeFlags,
};

use super::Cluster;
use super::handshake::Reason;
use super::node::Address;

const ENTRIES_MIN: usize = 3;
/// A tenth of the cluster in each message, so that a majority's reports on a failing
/// node come in within the time that a report is valid. C: clusterSendPing.
const NODES_PER_ENTRY: usize = 10;
/// Nodes looked at for each entry, so that failing ones are found.
const LOOKS_PER_ENTRY: usize = 3;
/// Entries for a node that may not know this one: it may take no larger frame.
const ENTRIES_TO_STRANGERS_MAX: usize = 100;
const _: () = assert!(HEADER_LEN + 104 * ENTRIES_TO_STRANGERS_MAX <= BUS_FRAME_UNKNOWN_MAX);

impl Cluster {
    /// Up to `count` random nodes, each once, this one left out.
    pub(super) fn sample(&mut self, rng: &mut Rng, count: usize) -> &[NodeRef] {
        let len = self.others.len();
        let count = count.min(len);
        for i in 0..count {
            self.others.swap(i, i + rng.index(len - i));
        }
        &self.others[..count]
    }

    /// The nodes that a message tells of; its receiver knows of itself.
    fn pick_gossip(&mut self, rng: &mut Rng, to: Option<NodeRef>) -> Vec<NodeRef> {
        let entries_max = if to.is_some() { GOSSIP_ENTRIES_MAX } else { ENTRIES_TO_STRANGERS_MAX };
        let wanted = (self.size() / NODES_PER_ENTRY).clamp(ENTRIES_MIN, entries_max);
        let seen = self.sample(rng, wanted * LOOKS_PER_ENTRY).to_vec();
        let (mut picked, fine): (Vec<NodeRef>, Vec<NodeRef>) = seen
            .into_iter()
            .filter(|node| Some(*node) != to && self.node(*node).is_gossiped())
            .partition(|node| self.node(*node).is_failing());
        picked.extend(fine);
        picked.truncate(wanted);
        picked
    }

    fn gossip_entry(&self, now: Now, node: NodeRef) -> GossipEntry {
        let node = self.node(node);
        let low_bits = |at: Option<MonoMs>| at.map_or(0, |at| now.wall_at(at).0 as u32);
        let address = node.contact.address;
        GossipEntry {
            node: node.id,
            ping_sent: low_bits(node.contact.ping_sent_at),
            pong_received: low_bits(node.contact.pong_received_at),
            ip: address.map(|address| address.ip),
            port: address.map_or(0, |address| address.port),
            flags: node.flags,
            tail: GossipEntry::announce_bus_port(
                address.and_then(|address| address.unusual_bus_port()),
            ),
        }
    }
}

impl Engine {
    /// Sends PING, PONG or MEET on a link; `to` is who is at its end, if known.
    pub(super) fn send_gossip(&mut self, link: LinkId, kind: GossipKind, to: Option<NodeRef>) {
        let picked = self.cluster.pick_gossip(&mut self.rng, to);
        let header = self.cluster.header(MessageFlags::NONE);
        let start = self.out.frames.bytes.len();
        let (cluster, now) = (&self.cluster, self.now);
        let entries = picked.iter().map(|node| cluster.gossip_entry(now, *node));
        bus::encode_gossip(&mut self.out.frames.bytes, &header, kind, entries);
        self.out.frames.sends.push((link, start..self.out.frames.bytes.len()));
        self.cluster.stats.messages_sent += 1;
    }

    /// Takes in what a known node tells of others.
    pub(super) fn hear_gossip(&mut self, sender: NodeRef, gossip: Gossip<'_>) {
        for entry in gossip.iter() {
            let address =
                entry.ip.and_then(|ip| Address::new(ip, entry.port, entry.announced_bus_port()));
            match self.cluster.find(&entry.node) {
                Some(ME) => {}
                Some(node) => {
                    self.hear_of_node(sender, node, entry.flags);
                    if let Some(address) = address {
                        self.look_for_node(node, address);
                    }
                }
                None => {
                    if let Some(address) = address
                        && !entry.flags.contains(NodeFlags::NOADDR)
                        && !self.is_blacklisted(&entry.node)
                    {
                        self.begin_handshake(Reason::Gossip(entry.node), address);
                    }
                }
            }
        }
    }

    /// A failing node is said to be somewhere else: perhaps it is.
    fn look_for_node(&mut self, node: NodeRef, address: Address) {
        let node = self.cluster.node(node);
        let is_elsewhere =
            node.contact.address.is_none_or(|own| (own.ip, own.port) != (address.ip, address.port));
        if node.is_failing() && is_elsewhere {
            self.begin_handshake(Reason::Gossip(node.id), address);
        }
    }

    /// Whether gossip may not bring a node back, since it was forgotten a short while ago.
    pub(super) fn is_blacklisted(&self, id: &NodeId) -> bool {
        self.cluster.blacklist.get(id).is_some_and(|until| *until > self.now.mono)
    }
}
