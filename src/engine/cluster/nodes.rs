//! What is known of each node: who it is, where it is reached, and the link to it.
//!
//! All nodes stand in one table, which only grows, so that a [`NodeRef`] means the same
//! node for as long as the process lives. Flags change in one place, since `reachable`
//! follows them.

use core::net::{IpAddr, SocketAddr};

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::BUS_PORT_OFFSET;
use crate::base::rng::Rng;
use crate::base::time::MonoMs;
use crate::engine::node_set::{ME, NodeRef};
use crate::engine::outbox::{ConnectToken, Outbox};
use crate::proto::bus::{Abilities, NodeFlags};

use super::allowance::Damped;
use super::node_info::KnownInfo;
use super::{ADDRESS_CHANGES, Cluster, Peer};

/// A connect that takes so long, in ms, may lead to nobody.
const SLOW_CONNECT_MS: u64 = 500;

/// A node that completed its handshake once, this one included.
#[derive(Debug)]
pub(super) struct Node {
    pub id: NodeId,
    /// What this node thinks of it. [`NodeFlags::NOADDR`] is not kept: it is a
    /// [`Contact`] without an address. [`NodeFlags::DELETED`]: forgotten.
    flags: NodeFlags,
    pub contact: Contact,
    /// As it announced with its latest heartbeat; not known before the first one.
    pub abilities: Option<Abilities>,
    /// Which nodes reported it as failing.
    pub reports: Vec<FailureReport>,
    pub introduction: Introduction,
    /// Since when it has said that it does not know this one.
    pub unknown_there_since: Option<MonoMs>,
    /// It has done so for long, and so ignores what it is sent.
    pub is_deaf: bool,
    /// Since when this process has seen it failing in the eyes of a majority.
    pub failing_since: Option<MonoMs>,
    pub new_address: Damped<Address>,
    /// As it said last.
    pub info: KnownInfo,
}

/// Whether a node is known to know this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Introduction {
    /// Not yet: it is sent MEET instead of PING. It sent so many PINGs.
    UnderWay {
        pings: u8,
    },
    Done,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FailureReport {
    pub by: NodeRef,
    pub at: MonoMs,
}

impl Node {
    /// This node.
    pub fn me(id: NodeId) -> Self {
        Self::new(id, NodeFlags::MYSELF)
    }

    /// One that is not known any more.
    pub fn forgotten(id: NodeId) -> Self {
        Self::new(id, NodeFlags::DELETED)
    }

    fn new(id: NodeId, flags: NodeFlags) -> Self {
        Self {
            id,
            flags,
            contact: Contact::default(),
            abilities: None,
            reports: Vec::new(),
            introduction: Introduction::Done,
            unknown_there_since: None,
            is_deaf: false,
            failing_since: None,
            new_address: Damped::new(ADDRESS_CHANGES),
            info: KnownInfo::default(),
        }
    }

    pub fn flags(&self) -> NodeFlags {
        self.flags
    }

    pub fn is_failing(&self) -> bool {
        self.flags.intersects(NodeFlags::PFAIL | NodeFlags::FAIL)
    }

    /// Whether gossip to others mentions it. Differs from C, which mentions a failing node
    /// only while a connect to it is under way, and none without an address: then a majority
    /// may never form.
    pub fn is_gossiped(&self) -> bool {
        !matches!(self.contact.link, OutgoingLink::None) || self.is_failing()
    }

    /// What this node thinks of it, as others are to see it.
    pub fn shown_flags(&self) -> NodeFlags {
        match self.contact.address {
            Some(_) => self.flags,
            None => self.flags | NodeFlags::NOADDR,
        }
    }
}

/// Where a node is reached, and how it answers there.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// `None`: nobody knows, until the node itself comes.
    pub address: Option<Address>,
    pub link: OutgoingLink,
    /// When the ping that is unanswered was sent, or would have been, had there been
    /// a link.
    pub ping_sent_at: Option<MonoMs>,
    pub pong_received_at: Option<MonoMs>,
    /// How long the last ping that was answered took, in ms.
    pub round_trip_ms: Option<u64>,
    /// Attempts in a row to make a link that came to nothing.
    pub failed_connects: u32,
}

impl Contact {
    /// Whether it could not be connected to, or not within half a second.
    pub fn is_out_of_reach(&self, now: MonoMs) -> bool {
        match self.link {
            OutgoingLink::Up { .. } => false,
            OutgoingLink::None => self.failed_connects > 0,
            OutgoingLink::Connecting { since, .. } => {
                self.failed_connects > 0 || now.ms_since(since) >= SLOW_CONNECT_MS
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub ip: IpAddr,
    /// The port clients connect to.
    pub port: u16,
    pub bus_port: u16,
}

impl Address {
    /// An address with the bus port that was announced, or the usual one. `None` when
    /// the port is 0 or leaves no room for the bus port.
    pub fn new(ip: IpAddr, port: u16, announced_bus_port: Option<u16>) -> Option<Self> {
        let bus_port = announced_bus_port.or_else(|| port.checked_add(BUS_PORT_OFFSET))?;
        (port != 0).then_some(Self { ip, port, bus_port })
    }

    /// The bus port when it is not the usual one.
    pub fn unusual_bus_port(&self) -> Option<u16> {
        (Some(self.bus_port) != self.port.checked_add(BUS_PORT_OFFSET)).then_some(self.bus_port)
    }

    pub fn client(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    pub fn bus(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.bus_port)
    }
}

/// The link that this node makes to another one, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum OutgoingLink {
    #[default]
    None,
    Connecting {
        token: ConnectToken,
        since: MonoMs,
    },
    Up {
        id: LinkId,
        since: MonoMs,
    },
}

impl OutgoingLink {
    /// The link on which messages can go.
    pub fn up(&self) -> Option<LinkId> {
        match self {
            Self::Up { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// How long ago it was begun.
    pub fn age_ms(&self, now: MonoMs) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Connecting { since, .. } | Self::Up { since, .. } => Some(now.ms_since(*since)),
        }
    }
}

impl Cluster {
    pub fn my_id(&self) -> &NodeId {
        &self.node(ME).id
    }

    pub fn id(&self, node: NodeRef) -> NodeId {
        self.node(node).id
    }

    /// A node as log lines name it: its ID, and where clients reach it.
    pub fn name(&self, node: NodeRef) -> String {
        let Node { id, contact, .. } = self.node(node);
        match contact.address {
            Some(address) => format!("{id} at {}", address.client()),
            None => id.to_string(),
        }
    }

    pub(super) fn node(&self, node: NodeRef) -> &Node {
        &self.nodes[usize::from(node.0)]
    }

    pub(super) fn node_mut(&mut self, node: NodeRef) -> &mut Node {
        &mut self.nodes[usize::from(node.0)]
    }

    /// A known node by its ID; forgotten ones are not known.
    pub fn find(&self, id: &NodeId) -> Option<NodeRef> {
        self.index.get(id).copied()
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
        self.node(node).abilities.is_some_and(|known| known.contains(abilities))
    }

    /// Nodes that are able, and the others: C nodes, and those that have yet to say whether they are.
    pub fn by_ability(
        &self,
        nodes: &[NodeRef],
        abilities: Abilities,
    ) -> (Vec<NodeRef>, Vec<NodeRef>) {
        nodes.iter().partition(|node| self.is_able(**node, abilities))
    }

    /// Whether a node is able, or has yet to say whether it is.
    pub fn may_be_able(&self, node: NodeRef, abilities: Abilities) -> bool {
        self.node(node).abilities.is_none_or(|known| known.contains(abilities))
    }

    /// The known nodes that announced abilities, this one left out.
    pub fn able(&self, abilities: Abilities) -> Vec<NodeRef> {
        self.others.iter().copied().filter(|node| self.is_able(*node, abilities)).collect()
    }

    /// How many nodes may get new copies of jobs.
    pub fn reachable_count(&self) -> usize {
        self.reachable.len()
    }

    /// Whether a node said that its memory is short. C nodes do not say it.
    pub fn is_short_of_memory(&self, node: NodeRef) -> bool {
        self.is_able(node, Abilities::SHORT_OF_MEMORY)
    }

    /// How many nodes can be sent new copies of jobs now and are not short of memory.
    pub fn count_with_memory(&self) -> usize {
        let has_memory = |node: NodeRef| self.is_linked(node) && !self.is_short_of_memory(node);
        self.reachable.iter().filter(|node| has_memory(**node)).count()
    }

    /// Takes note of this node's memory level, which peers learn with the next ping.
    pub fn set_memory_level(&mut self, level: u8) {
        self.memory = if level > 0 { Abilities::SHORT_OF_MEMORY } else { Abilities::NONE };
    }

    /// Has those come first that may be able when nodes are drawn for new copies of a job;
    /// returns how many they are.
    pub fn put_able_first(&mut self, abilities: Abilities) -> usize {
        let mut reachable = core::mem::take(&mut self.reachable);
        reachable.sort_by_key(|node| !self.may_be_able(*node, abilities));
        let is_first = |node: &&NodeRef| self.may_be_able(**node, abilities);
        let count = reachable.iter().take_while(is_first).count();
        self.reachable = reachable;
        count
    }

    /// Draws one of the nodes that may get new copies of jobs, when `drawn` of them were drawn
    /// already, one after the other: none comes twice, and the `first` ones before the others. Of
    /// two that are drawn it is the less loaded, as far as is known.
    pub fn draw_reachable(&mut self, rng: &mut Rng, drawn: usize, first: usize) -> Option<NodeRef> {
        let end = if drawn < first { first } else { self.reachable.len() };
        let left = end.checked_sub(drawn).filter(|left| *left > 0)?;
        self.reachable.swap(drawn, drawn + rng.index(left));
        if left > 1 && self.has_loads() {
            let second = drawn + 1 + rng.index(left - 1);
            if self.is_less_loaded(self.reachable[second], self.reachable[drawn]) {
                self.reachable.swap(drawn, second);
            }
        }
        Some(self.reachable[drawn])
    }

    /// Whether the node is known, and was not forgotten.
    pub fn is_known(&self, node: NodeRef) -> bool {
        !self.node(node).flags.contains(NodeFlags::DELETED)
    }

    /// The known node at a place of the table, this one left out.
    pub(super) fn other_at(&self, place: usize) -> Option<NodeRef> {
        let node = u16::try_from(place).map(NodeRef).ok()?;
        (node != ME && self.is_known(node)).then_some(node)
    }

    /// Whether the node may get new copies of jobs.
    pub fn is_reachable(&self, node: NodeRef) -> bool {
        let out_of_reach =
            NodeFlags::PFAIL | NodeFlags::FAIL | NodeFlags::LEAVING | NodeFlags::DELETED;
        let state = self.node(node);
        node != ME && !state.flags.intersects(out_of_reach) && !state.is_deaf
    }

    /// The only way in which flags change, so that `reachable` follows.
    pub(super) fn set_flags(&mut self, node: NodeRef, flags: NodeFlags) {
        self.change(node, |node| node.flags = flags);
    }

    /// Whether a node ignores what it is sent.
    pub(super) fn set_deaf(&mut self, node: NodeRef, is_deaf: bool) {
        self.change(node, |node| node.is_deaf = is_deaf);
    }

    fn change(&mut self, node: NodeRef, change: impl FnOnce(&mut Node)) {
        let was_reachable = self.is_reachable(node);
        change(self.node_mut(node));
        match (was_reachable, self.is_reachable(node)) {
            (false, true) => self.reachable.push(node),
            (true, false) => self.reachable.retain(|reachable| *reachable != node),
            _ => {}
        }
    }

    /// Adds a node whose ID is not known; one that was forgotten comes back. `None` when
    /// no reference is left for it.
    pub(super) fn add(&mut self, id: NodeId, contact: Contact) -> Option<NodeRef> {
        let node = match self.forgotten.remove(&id) {
            Some(node) => node,
            None => {
                let node = NodeRef(u16::try_from(self.nodes.len()).ok()?);
                self.nodes.push(Node::new(id, NodeFlags::DELETED));
                node
            }
        };
        self.drop_tombstone(&id);
        self.node_mut(node).contact = contact;
        self.node_mut(node).introduction = Introduction::UnderWay { pings: 0 };
        self.index.insert(id, node);
        self.others.push(node);
        self.set_flags(node, NodeFlags::default());
        Some(node)
    }

    /// Takes a node out of the cluster. What it reported is void.
    pub(super) fn remove(&mut self, out: &mut Outbox, node: NodeRef) {
        self.others.retain(|other| *other != node);
        self.detach(out, node);
        for other in &mut self.nodes {
            other.reports.retain(|report| report.by != node);
        }
    }

    /// Takes all nodes but this one out of the cluster.
    pub(super) fn remove_all(&mut self, out: &mut Outbox) {
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
        let node = self.node_mut(node);
        node.reports.clear();
        // Should it come back, it says what it is, and is told what this one is.
        node.abilities = None;
        (node.unknown_there_since, node.is_deaf) = (None, false);
        node.info = KnownInfo::default();
    }

    pub(super) fn rename_me(&mut self, id: NodeId) {
        let old_id = core::mem::replace(&mut self.node_mut(ME).id, id);
        self.index.remove(&old_id);
        self.index.insert(id, ME);
    }

    /// Panics unless the table, the index and the lists of nodes agree.
    pub(super) fn check_nodes_agree(&self) {
        assert_eq!(self.index.len() + self.forgotten.len(), self.nodes.len());
        assert_eq!(self.others.len() + 1, self.index.len(), "all known nodes but this one");
        for (id, node) in self.index.iter().chain(&self.forgotten) {
            assert_eq!(self.id(*node), *id, "a node is found by its ID");
            assert_eq!(!self.is_known(*node), self.forgotten.contains_key(id));
        }
        let mut reachable = self.reachable.clone();
        reachable.sort_unstable();
        let all = (0..self.nodes.len()).filter_map(|place| u16::try_from(place).ok()).map(NodeRef);
        assert!(reachable.into_iter().eq(all.filter(|node| self.is_reachable(*node))));
    }
}
