//! The nodes of the cluster as this node knows them, and the ways to speak to them.
//!
//! Each node makes a link to each other one and sends on it; what it is asked on the
//! links that others made, it answers there. No link, no message: nothing is kept for
//! later.
//!
//! | room | what it decides |
//! |---|---|
//! | [`node`] | what is known of a node |
//! | [`links`] | links wished for, made and lost |
//! | [`handshake`] | from an address to a node that is known |
//! | [`heartbeat`] | PING, PONG and MEET, and what they tell of their sender |
//! | [`gossip`] | what they tell of others |
//! | [`failure`] | who does not answer, and what a majority thinks of it |
//! | [`roster`] | membership seen and changed by hand, and kept in a file |
//!
//! A node gets a [`NodeRef`] when its handshake is complete, and keeps it: forgotten
//! nodes stay in the table, since jobs may still name them, and one that comes back
//! under its ID gets its old reference.
//!
//! Invariants: every node of the table is either known or forgotten; `others` and
//! `reachable` are known nodes without this one; every link and every connect under
//! way belongs to the one node or handshake that names it.

mod failure;
mod gossip;
mod handshake;
mod heartbeat;
mod links;
mod node;
mod roster;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::base::ids::{LinkId, NodeId};
use crate::base::rng::Rng;
use crate::base::time::MonoMs;
use crate::proto::bus::{self, Abilities, Header, Message, MessageFlags, NodeFlags};

use super::Engine;
use super::config::{Announce, EngineConfig};
use super::node_set::{ME, NodeRef};
use super::outbox::{ConnectToken, Outbox};
pub(in crate::engine) use handshake::Begun;
use handshake::Handshake;
pub use links::LinkEnds;
use node::{Contact, Link, Node};
pub use roster::Stats;
pub(in crate::engine) use roster::{Forgotten, Leaving, Reset};

/// Whom a link of this node leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Node(NodeRef),
    /// By its temporary ID.
    Handshake(NodeId),
}

pub struct Cluster {
    nodes: Vec<Node>,
    /// Known nodes.
    index: BTreeMap<NodeId, NodeRef>,
    forgotten: BTreeMap<NodeId, NodeRef>,
    /// Known nodes but this one, in an order without meaning: samples are drawn here.
    others: Vec<NodeRef>,
    reachable: Vec<NodeRef>,
    handshakes: BTreeMap<NodeId, Handshake>,
    /// The handshake that had its turn last when there were more than could connect.
    last_handshake_tried: NodeId,
    links: BTreeMap<LinkId, Peer>,
    connects: BTreeMap<ConnectToken, Peer>,
    last_token: u64,
    /// Until when gossip does not bring a forgotten node back.
    blacklist: BTreeMap<NodeId, MonoMs>,
    /// As peers reached it; what is announced goes before it.
    my_ip: Option<IpAddr>,
    /// As configured; what is announced goes before it.
    my_port: u16,
    announce: Announce,
    watch: failure::Watch,
    stats: Stats,
}

impl Cluster {
    pub fn new(me: NodeId, config: &EngineConfig) -> Self {
        Self {
            nodes: vec![Node::new(me, NodeFlags::MYSELF)],
            index: BTreeMap::from([(me, ME)]),
            forgotten: BTreeMap::new(),
            others: Vec::new(),
            reachable: Vec::new(),
            handshakes: BTreeMap::new(),
            last_handshake_tried: me,
            links: BTreeMap::new(),
            connects: BTreeMap::new(),
            last_token: 0,
            blacklist: BTreeMap::new(),
            my_ip: None,
            my_port: config.port,
            announce: config.announce.clone(),
            watch: failure::Watch::default(),
            stats: Stats::default(),
        }
    }

    pub fn configure(&mut self, config: &EngineConfig) {
        self.my_port = config.port;
        self.announce = config.announce.clone();
    }

    pub fn my_id(&self) -> &NodeId {
        &self.node(ME).id
    }

    pub fn id(&self, node: NodeRef) -> NodeId {
        self.node(node).id
    }

    fn node(&self, node: NodeRef) -> &Node {
        &self.nodes[usize::from(node.0)]
    }

    fn node_mut(&mut self, node: NodeRef) -> &mut Node {
        &mut self.nodes[usize::from(node.0)]
    }

    /// A known node by its ID; forgotten ones are not known.
    pub fn find(&self, id: &NodeId) -> Option<NodeRef> {
        self.index.get(id).copied()
    }

    /// The sender of a message, if it is a known node other than this one. Messages of
    /// others are not to be believed, but for PING, PONG and MEET.
    pub fn known_sender(&self, header: &Header) -> Option<NodeRef> {
        self.find(&header.sender).filter(|node| *node != ME)
    }

    /// Counts a message that came in.
    pub fn count_received(&mut self) {
        self.stats.messages_received += 1;
    }

    /// All known nodes, this one included, in the order of their IDs.
    pub fn known(&self) -> impl Iterator<Item = NodeRef> {
        self.index.values().copied()
    }

    /// How many nodes are known, this one included. Handshakes do not count.
    pub fn size(&self) -> usize {
        self.index.len()
    }

    pub fn is_alone(&self) -> bool {
        self.size() == 1
    }

    pub fn is_leaving(&self) -> bool {
        self.node(ME).flags.contains(NodeFlags::LEAVING)
    }

    /// Whether there is a link on which messages to the node can go.
    pub fn is_linked(&self, node: NodeRef) -> bool {
        self.node(node).contact.link.up().is_some()
    }

    /// Whether a node announced abilities that C nodes do not have.
    pub fn is_able(&self, node: NodeRef, abilities: Abilities) -> bool {
        self.node(node).abilities.contains(abilities)
    }

    /// The known nodes that announced abilities, this one left out.
    pub fn able(&self, abilities: Abilities) -> Vec<NodeRef> {
        self.others.iter().copied().filter(|node| self.is_able(*node, abilities)).collect()
    }

    /// How many nodes may get new copies of jobs.
    pub fn reachable_count(&self) -> usize {
        self.reachable.len()
    }

    /// The nodes that may get new copies of jobs, in random order.
    pub fn reachable_shuffled(&self, rng: &mut Rng) -> Vec<NodeRef> {
        let mut nodes = self.reachable.clone();
        for i in (1..nodes.len()).rev() {
            nodes.swap(i, rng.index(i + 1));
        }
        nodes
    }

    /// Whether the node is known, and was not forgotten.
    pub fn is_known(&self, node: NodeRef) -> bool {
        !self.node(node).flags.contains(NodeFlags::DELETED)
    }

    /// The known node at a place of the table, this one left out.
    fn other_at(&self, place: usize) -> Option<NodeRef> {
        let node = u16::try_from(place).map(NodeRef).ok()?;
        (node != ME && self.is_known(node)).then_some(node)
    }

    /// Whether the node may get new copies of jobs.
    pub fn is_reachable(&self, node: NodeRef) -> bool {
        let out_of_reach =
            NodeFlags::PFAIL | NodeFlags::FAIL | NodeFlags::LEAVING | NodeFlags::DELETED;
        node != ME && !self.node(node).flags.intersects(out_of_reach)
    }

    /// The only way in which flags change, so that `reachable` follows.
    fn set_flags(&mut self, node: NodeRef, flags: NodeFlags) {
        let was_reachable = self.is_reachable(node);
        self.node_mut(node).flags = flags;
        match (was_reachable, self.is_reachable(node)) {
            (false, true) => self.reachable.push(node),
            (true, false) => self.reachable.retain(|reachable| *reachable != node),
            _ => {}
        }
    }

    /// Adds a node whose ID is not known; one that was forgotten comes back. `None` when
    /// no reference is left for it.
    fn add(&mut self, id: NodeId, contact: Contact) -> Option<NodeRef> {
        let node = match self.forgotten.remove(&id) {
            Some(node) => node,
            None => {
                let node = NodeRef(u16::try_from(self.nodes.len()).ok()?);
                self.nodes.push(Node::new(id, NodeFlags::DELETED));
                node
            }
        };
        self.node_mut(node).contact = contact;
        self.index.insert(id, node);
        self.others.push(node);
        self.set_flags(node, NodeFlags::default());
        Some(node)
    }

    /// Takes a node out of the cluster. What it reported is void.
    fn remove(&mut self, out: &mut Outbox, node: NodeRef) {
        self.others.retain(|other| *other != node);
        self.detach(out, node);
        for other in &mut self.nodes {
            other.reports.retain(|report| report.by != node);
        }
    }

    /// Takes all nodes but this one out of the cluster.
    fn remove_all(&mut self, out: &mut Outbox) {
        self.reachable.clear();
        for node in core::mem::take(&mut self.others) {
            self.detach(out, node);
        }
    }

    fn detach(&mut self, out: &mut Outbox, node: NodeRef) {
        let id = self.id(node);
        self.unlink(out, Peer::Node(node));
        self.index.remove(&id);
        self.forgotten.insert(id, node);
        self.set_flags(node, NodeFlags::DELETED);
        self.node_mut(node).reports.clear();
    }

    fn rename_me(&mut self, id: NodeId) {
        let old_id = core::mem::replace(&mut self.node_mut(ME).id, id);
        self.index.remove(&old_id);
        self.index.insert(id, ME);
    }

    fn header(&self, message_flags: MessageFlags) -> Header {
        let me = self.node(ME);
        Header {
            sender: me.id,
            ip: self.announce.ip,
            port: self.announce.port.unwrap_or(self.my_port),
            flags: me.flags,
            state: 0,
            message_flags,
            reserved: Header::announce(self.announce.bus_port, Abilities::STANDING_ASKS),
        }
    }

    /// Sends a message to those of the nodes that have a link, this one left out.
    pub fn send(
        &mut self,
        out: &mut Outbox,
        to: &[NodeRef],
        flags: MessageFlags,
        message: &Message<'_>,
    ) {
        self.send_with(out, to.iter().copied(), flags, |bytes, header| {
            bus::encode(bytes, header, message);
        });
    }

    /// Sends a message to all known nodes that have a link.
    pub fn broadcast(&mut self, out: &mut Outbox, flags: MessageFlags, message: &Message<'_>) {
        let known: Vec<NodeRef> = self.known().collect();
        self.send(out, &known, flags, message);
    }

    /// As [`Cluster::send`], with a frame that `encode` writes once for all.
    pub fn send_with(
        &mut self,
        out: &mut Outbox,
        to: impl IntoIterator<Item = NodeRef>,
        flags: MessageFlags,
        encode: impl FnOnce(&mut Vec<u8>, &Header),
    ) {
        let start = out.frames.bytes.len();
        let mut encode = Some(encode);
        for node in to {
            let Some(link) = self.node(node).contact.link.up() else { continue };
            if let Some(encode) = encode.take() {
                encode(&mut out.frames.bytes, &self.header(flags));
            }
            self.stats.messages_sent += 1;
            out.frames.sends.push((link, start..out.frames.bytes.len()));
        }
    }

    /// Panics unless everything that is kept twice agrees.
    pub fn check_invariants(&self) {
        assert_eq!(self.index.len() + self.forgotten.len(), self.nodes.len());
        assert_eq!(self.others.len() + 1, self.index.len(), "all known nodes but this one");
        for (id, node) in self.index.iter().chain(&self.forgotten) {
            assert_eq!(self.id(*node), *id, "a node is found by its ID");
            let is_forgotten = self.node(*node).flags.contains(NodeFlags::DELETED);
            assert_eq!(is_forgotten, self.forgotten.contains_key(id));
            self.check_link(Peer::Node(*node), &self.node(*node).contact.link);
        }
        let mut reachable = self.reachable.clone();
        reachable.sort_unstable();
        let all = (0..self.nodes.len()).filter_map(|place| u16::try_from(place).ok()).map(NodeRef);
        assert!(reachable.into_iter().eq(all.filter(|node| self.is_reachable(*node))));
        for (id, handshake) in &self.handshakes {
            self.check_link(Peer::Handshake(*id), &handshake.contact.link);
        }
        let nodes = self.nodes.iter().map(|node| &node.contact.link);
        let handshakes = self.handshakes.values().map(|handshake| &handshake.contact.link);
        let links: Vec<&Link> = nodes.chain(handshakes).collect();
        let up_count = links.iter().filter(|link| link.up().is_some()).count();
        let connecting_count =
            links.iter().filter(|link| matches!(link, Link::Connecting { .. })).count();
        assert_eq!((self.links.len(), self.connects.len()), (up_count, connecting_count));
    }

    fn check_link(&self, peer: Peer, link: &Link) {
        match link {
            Link::None => {}
            Link::Connecting { token, .. } => assert_eq!(self.connects.get(token), Some(&peer)),
            Link::Up { id, .. } => assert_eq!(self.links.get(id), Some(&peer)),
        }
    }
}

impl Engine {
    /// The cluster as this node knows it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Every 100 ms. C: cluster.c clusterCron.
    pub(super) fn cluster_cron(&mut self) {
        let mut budget = self.cluster.connect_budget();
        self.look_after_handshakes(&mut budget);
        self.ping_somebody();
        self.watch_nodes(&mut budget);
    }
}
