//! What PING, PONG and MEET say of other nodes: some random ones, failing ones first.
//!
//! Why at random: a node that joined has to become known to all, and a majority has to
//! learn that a node fails, without any message that grows with the cluster's square. Each
//! heartbeat mentions a tenth of the cluster, so a report reaches every node within a few
//! rounds with near certainty, and no node has a special part in it.

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::{BUS_FRAME_UNKNOWN_MAX, GOSSIP_ENTRIES_MAX};
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now};
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{
    self, Abilities, Gossip, GossipEntry, GossipKind, HEADER_LEN, Message, MessageFlags, NodeFlags,
};

use super::handshake::Reason;
use super::nodes::Address;
use super::{Cluster, Context};

const ENTRIES_MIN: usize = 3;
/// A tenth of the cluster in each message, so that a majority's reports on a failing
/// node come in within the time that a report is valid. C: clusterSendPing.
const NODES_PER_ENTRY: usize = 10;
/// Nodes considered for each entry, so that failing ones are found.
const CANDIDATES_PER_ENTRY: usize = 3;
/// Entries for a node that may not know this one: it may accept no larger frame.
const ENTRIES_TO_UNKNOWN_MAX: usize = 100;
const _: () = assert!(HEADER_LEN + 104 * ENTRIES_TO_UNKNOWN_MAX <= BUS_FRAME_UNKNOWN_MAX);

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

    /// The nodes that a message mentions; its receiver needs no word of itself.
    fn pick_gossip(&mut self, rng: &mut Rng, to: Option<NodeRef>) -> Vec<NodeRef> {
        let entries_max = if to.is_some() { GOSSIP_ENTRIES_MAX } else { ENTRIES_TO_UNKNOWN_MAX };
        let wanted = (self.size() / NODES_PER_ENTRY).clamp(ENTRIES_MIN, entries_max);
        let candidates = self.sample(rng, wanted * CANDIDATES_PER_ENTRY).to_vec();
        let (mut picked, fine): (Vec<NodeRef>, Vec<NodeRef>) = candidates
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
            flags: node.shown_flags(),
            tail: GossipEntry::announce_bus_port(
                address.and_then(|address| address.unusual_bus_port()),
            ),
        }
    }

    /// Sends PING, PONG or MEET on a link; `to` is who is at its end, if known.
    pub(super) fn send_gossip(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        kind: GossipKind,
        to: Option<NodeRef>,
    ) {
        let picked = self.pick_gossip(cx.rng, to);
        let abilities = match to {
            Some(_) => Abilities::OURS.with(Abilities::KNOWS_RECEIVER),
            None => Abilities::OURS,
        };
        let abilities = abilities.with(self.memory);
        let header = self.header(MessageFlags::NONE, abilities);
        let header = header.with_cluster_name(self.cluster_name);
        let frames = &mut cx.out.frames;
        let start = frames.bytes.len();
        let entries = picked.iter().map(|node| self.gossip_entry(cx.now, *node));
        bus::encode_gossip(&mut frames.bytes, &header, kind, entries);
        frames.sends.push((link, start..frames.bytes.len()));
        self.stats.sent.count_frame(frames.bytes.get(start..).unwrap_or(&[]), 1);
    }

    /// Takes in what a known node says of others; it `follows` to unknown ones unless the sender is of
    /// another cluster.
    pub(super) fn receive_gossip(
        &mut self,
        cx: &mut Context<'_>,
        sender: NodeRef,
        gossip: Gossip<'_>,
        follows: bool,
    ) {
        for entry in gossip.iter() {
            let address =
                entry.ip.and_then(|ip| Address::new(ip, entry.port, entry.announced_bus_port()));
            match self.find(&entry.node) {
                Some(ME) => {}
                Some(node) => {
                    self.receive_report(cx, sender, node, entry.flags);
                    if let Some(address) = address {
                        self.try_other_address(cx, node, address);
                    }
                }
                None => {
                    if entry.flags.contains(NodeFlags::PFAIL) && self.has_tombstone(&entry.node) {
                        // It was away when a majority found so; and who has forgotten the node
                        // reports nothing of it any more.
                        let message = Message::Fail(entry.node);
                        self.send(cx.out, &[sender], MessageFlags::NONE, &message);
                    }
                    if let Some(address) = address
                        && follows
                        && !entry.flags.contains(NodeFlags::NOADDR)
                        && !self.is_blacklisted(cx.now.mono, &entry.node)
                        && !self.is_long_gone(&entry)
                    {
                        self.begin_handshake(cx, Reason::Gossip(entry.node), address);
                    }
                }
            }
        }
    }

    /// A node that is failing, or that cannot be connected to, is said to be somewhere else: perhaps
    /// it is. After a start all may have moved, and nobody is failing yet.
    fn try_other_address(&mut self, cx: &mut Context<'_>, node: NodeRef, address: Address) {
        let node = self.node(node);
        let is_elsewhere =
            node.contact.address.is_none_or(|own| (own.ip, own.port) != (address.ip, address.port));
        let is_lost = node.is_failing() || node.contact.is_out_of_reach(cx.now.mono);
        if is_lost && is_elsewhere {
            self.begin_handshake(cx, Reason::Gossip(node.id), address);
        }
    }

    /// Whether a node was forgotten as failing, and is not said to be well. If it is, it comes back
    /// when it answers: two nodes may each have forgotten the other, and neither pings.
    fn is_long_gone(&self, entry: &GossipEntry) -> bool {
        self.has_tombstone(&entry.node)
            && entry.flags.intersects(NodeFlags::PFAIL | NodeFlags::FAIL)
    }

    /// Whether gossip may not bring a node back, since it was forgotten a short while ago.
    pub(super) fn is_blacklisted(&self, now: MonoMs, id: &NodeId) -> bool {
        self.blacklist.get(id).is_some_and(|until| *until > now)
    }
}
