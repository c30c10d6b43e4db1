//! The nodes of the cluster as this node knows them, and the ways to reach them.
//!
//! [`Cluster`] is a machine of its own. Its inputs are links that come and go, heartbeats, an
//! operator's orders and the time; it emits frames and requests for links into the outbox,
//! and [`Event`]s for the rest of the engine. It knows no job and no queue: which nodes get
//! copies, and what they are sent, others decide, with the nodes and links that it keeps.
//!
//! Why nodes keep a membership at all: a copy of a job is worth something only on a node that
//! answers, and a consumer finds a job anywhere only while every node can reach every other.
//! So each node makes a link to each other one, pings it, and tells it of others. Nothing is
//! elected and no two nodes have to agree. What a node thinks of another decides only whom
//! it chooses for new copies; when it is wrong, a job costs a few more messages.
//!
//! Each node makes a link to each other one and sends on it; what it is asked on the
//! links that others made, it answers there. No link, no message: nothing is kept for
//! later.
//!
//! | module | what it decides |
//! |---|---|
//! | [`nodes`] | what is known of a node, and the table of all |
//! | [`links`] | links requested, made and lost |
//! | [`handshake`] | from an address to a node that is known |
//! | [`heartbeat`] | PING, PONG and MEET, and what they say of their sender |
//! | [`gossip`] | what they say of others |
//! | [`failure`] | who does not answer, and what a majority thinks of it |
//! | [`forgetting`] | who failed for so long that it is forgotten, and what if it comes back |
//! | [`operator`] | CLUSTER MEET, FORGET, RESET and LEAVING |
//! | [`node_info`] | what nodes say of themselves: zone, version, load |
//! | [`placement`] | which nodes get copies of a job |
//! | [`seeds`] | addresses that the configuration names |
//! | [`listing`] | the nodes as CLUSTER NODES shows them and nodes.conf keeps them |
//!
//! A node gets a [`NodeRef`] when its handshake is complete, and keeps it: forgotten
//! nodes stay in the table, since jobs may still name them, and one that comes back
//! under its ID gets its old reference.
//!
//! What a node may be to this one, and what ends it. No state lasts because nothing comes:
//!
//! ```text
//! CLUSTER MEET, its MEET, gossip
//!       |                                +-------- pong --------+---------- pong ---------+
//!       v                                v                      |                         |
//!   handshake --- first answer ---> reachable --- silence ---> possibly failing ---> failing
//!       |                                                                   a majority
//!       v  timeout                  any known node --- CLUSTER FORGET, RESET ---> forgotten
//! ```
//!
//! | state | ends |
//! |---|---|
//! | handshake | with the first answer on its link, or the node timeout after it began |
//! | no link | at the next tick, which requests one |
//! | link requested | when it is up, or cannot be made; it is given up after the node timeout |
//! | link up, ping unanswered | with the pong; the link is given up after half the node timeout, if it is as old as the whole |
//! | joined, and does not know this node | when it says that it does; each ping is a MEET until then |
//! | no address | when the node comes by itself, or gossip has another address |
//! | reachable | when a ping was not answered, or could not be sent, for the node timeout |
//! | possibly failing, failing | with a pong: it is tried for ever, and was not forgotten |
//! | leaving | with the node's next heartbeat that says otherwise |
//! | ignores this one, which it does not know | with its next heartbeat that says otherwise |
//! | reported as failing | when the reporter says otherwise, or after two node timeouts |
//! | forgotten | with CLUSTER MEET or a MEET of the node; by gossip after a minute |
//! | forgotten as failing | with CLUSTER MEET, a PING or MEET of the node, or its answer: it is tried now and then |
//!
//! Invariants: every node of the table is either known or forgotten; `others` and
//! `reachable` are known nodes without this one; every link and every connect under
//! way belongs to the one node or handshake that names it.

mod allowance;
mod failure;
mod forgetting;
mod gossip;
mod handshake;
mod heartbeat;
mod links;
mod listing;
mod node_info;
mod nodes;
mod operator;
mod placement;
mod seeds;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::{LinkId, NodeId};
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::proto::bus::{
    self, Abilities, ClusterNameHash, Header, Message, MessageCounts, MessageFlags,
};

use super::config::{Announce, EngineConfig};
use super::node_set::{ME, NodeRef};
use super::outbox::{ConnectToken, Outbox};
use allowance::{Allowance, Damped};
use forgetting::Watch;
pub use handshake::Begun;
use handshake::Handshake;
pub use links::LinkEnds;
pub use listing::PeerFigures;
use node_info::OwnInfo;
pub use node_info::{KnownInfo, NodeLoad, ZoneRef};
use nodes::Node;
pub use operator::{Forgotten, Leaving, Reset};
pub use placement::WantedHolder;
use seeds::Seeds;

/// What the cluster is handed with each input, beside the input itself.
pub struct Context<'a> {
    pub now: Now,
    pub rng: &'a mut Rng,
    pub out: &'a mut Outbox,
}

/// What happened in the cluster: one event for each change of what a node is to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node completed its handshake. There is a link to it.
    Joined(NodeRef),
    /// A node that joined knows this one, and from now on attends to what it is sent.
    Acquainted(NodeRef),
    /// There is a link again to a node that was known before.
    LinkUp(NodeRef),
    /// A node said for the first time what it is able to, or that this has changed.
    AbilitiesKnown(NodeRef),
    /// A node does not answer this one.
    PossiblyFailing(NodeRef),
    /// A node does not answer a majority.
    Failing(NodeRef),
    /// A node answers that was failing, possibly or for a majority.
    AnswersAgain(NodeRef),
    /// Another node answers at the address of this one.
    AddressLost { node: NodeRef, address: SocketAddr, other: NodeId },
    /// A node, or this one, begins to leave the cluster.
    Leaving(NodeRef),
    /// A node, or this one, was leaving and is not any more.
    Stays(NodeRef),
    /// An operator had a node forgotten.
    Forgotten(NodeRef),
    /// A node was failing for so long that it was forgotten.
    ForgottenAsFailing(NodeRef),
    /// An operator had all nodes forgotten.
    Reset,
}

/// How often an address may change at the word of a heartbeat, which costs nothing to forge:
/// several times in a row when machines move, then every five seconds.
const ADDRESS_CHANGES: Allowance = Allowance::new(5, 5000);
/// How often the log warns of two servers that use one ID, in ms.
const TWIN_WARNING_PERIOD_MS: u64 = 600_000;

/// Whom a link of this node leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Node(NodeRef),
    /// By its temporary ID.
    Handshake(NodeId),
}

/// Messages between this node and others since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub sent: MessageCounts,
    pub received: MessageCounts,
}

/// See the head of this file.
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
    new_ip: Damped<IpAddr>,
    /// As configured; what is announced goes before it.
    my_port: u16,
    announce: Announce,
    node_timeout_ms: u64,
    rounds: failure::Rounds,
    stats: Stats,
    events: VecDeque<Event>,
    /// Whether nodes.conf is to be written at the next tick.
    is_unsaved: bool,
    /// Warnings that two servers use one ID.
    twin_warnings: Allowance,
    /// [`Abilities::SHORT_OF_MEMORY`] when that is so.
    memory: Abilities,
    own_info: OwnInfo,
    /// Nodes that were forgotten as failing, and when.
    tombstones: BTreeMap<NodeId, UnixMs>,
    watch: Watch,
    /// 0: never.
    forget_after_secs: u64,
    cluster_name: Option<ClusterNameHash>,
    /// Warnings of nodes of other clusters.
    name_warnings: Allowance,
    /// A node without a name was warned of.
    is_warned_of_nameless: bool,
    seeds: Seeds,
}

impl Cluster {
    /// This node alone.
    pub fn new(me: NodeId, config: &EngineConfig) -> Self {
        let mut cluster = Self {
            nodes: vec![Node::me(me)],
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
            new_ip: Damped::new(ADDRESS_CHANGES),
            my_port: config.port,
            announce: config.announce.clone(),
            node_timeout_ms: config.node_timeout_ms,
            rounds: failure::Rounds::default(),
            stats: Stats::default(),
            events: VecDeque::new(),
            is_unsaved: false,
            twin_warnings: Allowance::new(1, TWIN_WARNING_PERIOD_MS),
            memory: Abilities::NONE,
            own_info: OwnInfo::default(),
            tombstones: BTreeMap::new(),
            watch: Watch::default(),
            forget_after_secs: 0,
            cluster_name: None,
            name_warnings: Allowance::new(1, TWIN_WARNING_PERIOD_MS),
            is_warned_of_nameless: false,
            seeds: Seeds::default(),
        };
        cluster.configure(config);
        cluster
    }

    /// Takes over the settings that are about the cluster.
    pub fn configure(&mut self, config: &EngineConfig) {
        self.my_port = config.port;
        self.announce = config.announce.clone();
        self.node_timeout_ms = config.node_timeout_ms;
        self.forget_after_secs = config.forget_after_secs;
        self.cluster_name = ClusterNameHash::of(&config.cluster_name);
        self.describe_me(&config.cluster_name, &config.zone, config.version);
    }

    /// Every 100 ms. C: cluster.c clusterCron.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        let mut budget = self.connect_budget();
        self.advance_handshakes(cx, &mut budget);
        self.ping_somebody(cx);
        self.connect_nodes(cx, &mut budget);
        self.watch_majority(cx.now);
        self.try_forgotten(cx);
        self.check_nodes(cx);
        self.check_my_ip(cx.now.mono);
        self.spread_info(cx);
        cx.out.save_nodes |= core::mem::take(&mut self.is_unsaved);
    }

    /// Something changed that a peer caused, and is to be in nodes.conf before long. Who joined
    /// and what an operator ordered is saved at once.
    ///
    /// Why not all of it: each save writes and syncs the whole file, and whoever reaches the
    /// bus can cause changes as fast as it can send.
    fn save_soon(&mut self) {
        self.is_unsaved = true;
    }

    /// What happened, the oldest first. Asked for after each input until there is no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counts a message that came in.
    pub fn count_received(&mut self, message: &Message<'_>) {
        self.stats.received.count(message);
    }

    /// How many messages were sent and received.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The sender of a message, if it is a known node other than this one. Messages of
    /// others are not to be believed, but for PING, PONG and MEET.
    pub fn known_sender(&self, header: &Header) -> Option<NodeRef> {
        self.find(&header.sender).filter(|node| *node != ME)
    }

    fn header(&self, message_flags: MessageFlags, abilities: Abilities) -> Header {
        let me = self.node(ME);
        Header {
            sender: me.id,
            ip: self.announce.ip,
            port: self.announce.port.unwrap_or(self.my_port),
            flags: me.flags(),
            state: 0,
            message_flags,
            reserved: Header::announce(self.announce.bus_port, abilities),
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
        let mut sends = 0;
        for node in to {
            let Some(link) = self.node(node).contact.link.up() else { continue };
            if let Some(encode) = encode.take() {
                encode(&mut out.frames.bytes, &self.header(flags, Abilities::OURS));
            }
            sends += 1;
            out.frames.sends.push((link, start..out.frames.bytes.len()));
        }
        if sends > 0 {
            self.stats.sent.count_frame(out.frames.bytes.get(start..).unwrap_or(&[]), sends);
        }
    }

    /// Panics unless everything that is kept twice agrees.
    pub fn check_invariants(&self) {
        assert!(self.events.is_empty(), "events are taken after each input");
        self.check_nodes_agree();
        self.check_links_agree();
    }
}
