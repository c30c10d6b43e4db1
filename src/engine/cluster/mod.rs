//! The nodes of the cluster as this node knows them, and the ways to speak to them.
//!
//! A node gets a [`NodeRef`] when its handshake is complete, and keeps it: forgotten
//! nodes stay in the table, since jobs may still name them. No link, no message:
//! nothing is kept for later.

pub mod dispatch;

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::base::ids::{LinkId, NodeId};
use crate::base::rng::Rng;
use crate::proto::bus::{self, Header, Message, MessageFlags, NodeFlags};

use super::Engine;
use super::node_set::{ME, NodeRef};
use super::outbox::{ConnectToken, Outbox};
use crate::base::time::Now;

/// A node that completed its handshake once, this one included.
#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub flags: NodeFlags,
    /// The link that this node made to it.
    pub link: Option<LinkId>,
}

pub struct Cluster {
    nodes: Vec<Node>,
    index: BTreeMap<NodeId, NodeRef>,
    leaving: bool,
}

/// The addresses of the two ends of a link, as its socket has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnds {
    pub local: IpAddr,
    pub peer: IpAddr,
}

impl Cluster {
    pub fn new(me: NodeId) -> Self {
        let myself = Node { id: me, ip: None, port: 0, flags: NodeFlags::MYSELF, link: None };
        Self { nodes: vec![myself], index: BTreeMap::from([(me, ME)]), leaving: false }
    }

    pub fn my_id(&self) -> &NodeId {
        &self.nodes[0].id
    }

    pub fn id(&self, node: NodeRef) -> NodeId {
        self.nodes[usize::from(node.0)].id
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
        self.leaving
    }

    /// Whether there is a link on which messages to the node can go.
    pub fn is_linked(&self, node: NodeRef) -> bool {
        self.nodes[usize::from(node.0)].link.is_some()
    }

    fn is_reachable(&self, node: NodeRef) -> bool {
        let flags = self.nodes[usize::from(node.0)].flags;
        node != ME && !flags.has(NodeFlags::PFAIL | NodeFlags::FAIL | NodeFlags::LEAVING)
    }

    /// How many nodes may get new copies of jobs.
    pub fn reachable_count(&self) -> usize {
        self.known().filter(|node| self.is_reachable(*node)).count()
    }

    /// The nodes that may get new copies of jobs, in random order.
    pub fn reachable_shuffled(&self, rng: &mut Rng) -> Vec<NodeRef> {
        let mut nodes: Vec<NodeRef> =
            self.known().filter(|node| self.is_reachable(*node)).collect();
        for i in (1..nodes.len()).rev() {
            nodes.swap(i, rng.index(i + 1));
        }
        nodes
    }

    fn header(&self, message_flags: MessageFlags) -> Header {
        let me = &self.nodes[0];
        Header {
            sender: me.id,
            ip: None,
            port: me.port,
            flags: me.flags,
            state: 0,
            message_flags,
            reserved: [0; 34],
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
            let Some(link) = self.nodes[usize::from(node.0)].link.filter(|_| node != ME) else {
                continue;
            };
            if let Some(encode) = encode.take() {
                encode(&mut out.frames.bytes, &self.header(flags));
            }
            out.frames.sends.push((link, start..out.frames.bytes.len()));
        }
    }
}

impl Engine {
    /// The cluster as this node knows it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A message of a peer came on a link.
    pub fn bus_message(
        &mut self,
        now: Now,
        _link: LinkId,
        _ends: LinkEnds,
        header: &Header,
        message: &Message<'_>,
    ) {
        self.now = now;
        if let Some(from) = self.cluster.find(&header.sender) {
            self.job_message(from, header.message_flags, message);
        }
        self.serve_ready();
    }

    /// A link that was wished for is there.
    pub fn link_up(&mut self, now: Now, _link: LinkId, _token: ConnectToken) {
        self.now = now;
    }

    /// A link that was wished for could not be made.
    pub fn link_failed(&mut self, now: Now, _token: ConnectToken) {
        self.now = now;
    }

    /// A link is gone, made by this node or by the other.
    pub fn link_down(&mut self, now: Now, _link: LinkId) {
        self.now = now;
    }

    pub(super) fn cluster_cron(&mut self) {}
}
