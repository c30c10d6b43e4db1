//! Membership seen and changed by hand, and kept in nodes.conf.

use core::net::IpAddr;

use crate::base::ids::NodeId;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::Engine;
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::NodeFlags;
use crate::proto::nodes_conf::{self, LinkState, NodeLine};

use super::Cluster;
use super::handshake::{Begun, Reason};
use super::node::{Address, Contact};

/// How long gossip does not bring a forgotten node back. C: CLUSTER_BLACKLIST_TTL.
const BLACKLIST_MS: u64 = 60_000;

/// Figures of CLUSTER INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub messages_sent: u64,
    pub messages_received: u64,
}

/// What became of CLUSTER FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Forgotten {
    Yes,
    Unknown,
    Myself,
}

/// Whether this node is about to leave the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Leaving {
    No,
    Yes,
}

/// Whether CLUSTER RESET keeps this node's ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Reset {
    Soft,
    Hard,
}

impl Cluster {
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Nodes in handshake.
    pub fn handshake_count(&self) -> usize {
        self.handshakes.len()
    }

    /// What CLUSTER NODES and nodes.conf say of the known nodes, in the order of their IDs.
    pub fn node_lines(&self, now: Now) -> impl Iterator<Item = NodeLine> {
        self.known().map(move |node| self.node_line(now, node))
    }

    /// The same of nodes in handshake, under temporary IDs.
    pub fn handshake_lines(&self, now: Now) -> impl Iterator<Item = NodeLine> {
        self.handshakes
            .iter()
            .map(move |(id, handshake)| line_of(now, *id, NodeFlags::HANDSHAKE, &handshake.contact))
    }

    fn node_line(&self, now: Now, node: NodeRef) -> NodeLine {
        let Contact { address, .. } = self.node(node).contact;
        let flags = self.node(node).flags;
        if node == ME {
            return NodeLine {
                ip: self.announce.ip.or(self.my_ip),
                port: self.announce.port.unwrap_or(self.my_port),
                link: LinkState::Connected,
                ..line_of(now, *self.my_id(), flags, &self.node(ME).contact)
            };
        }
        let flags = if address.is_some() { flags } else { flags | NodeFlags::NOADDR };
        line_of(now, self.id(node), flags, &self.node(node).contact)
    }
}

fn line_of(now: Now, id: NodeId, flags: NodeFlags, contact: &Contact) -> NodeLine {
    let wall_at = |at: Option<MonoMs>| at.map_or(UnixMs(0), |at| now.wall_at(at));
    NodeLine {
        id,
        ip: contact.address.map(|address| address.ip),
        port: contact.address.map_or(0, |address| address.port),
        flags,
        ping_sent_at: wall_at(contact.ping_sent_at),
        pong_received_at: wall_at(contact.pong_received_at),
        link: match contact.link.up() {
            Some(_) => LinkState::Connected,
            None => LinkState::Disconnected,
        },
        unusual_bus_port: contact.address.and_then(|address| address.unusual_bus_port()),
    }
}

impl Engine {
    /// Takes in what nodes.conf says, at start. The line of this node gives its address
    /// and whether it leaves; its ID was handed to [`Engine::new`].
    pub fn load_nodes(&mut self, now: Now, lines: &[NodeLine]) {
        self.now = now;
        for line in lines {
            if line.flags.contains(NodeFlags::MYSELF) {
                self.cluster.my_ip = line.ip;
                let flags = NodeFlags(line.flags.0 & NodeFlags::LEAVING.0) | NodeFlags::MYSELF;
                self.cluster.set_flags(ME, flags);
            } else if !line.flags.contains(NodeFlags::HANDSHAKE)
                && self.cluster.find(&line.id).is_none()
            {
                self.load_node(line);
            }
        }
    }

    fn load_node(&mut self, line: &NodeLine) {
        // C: clusterLoadConfig, the times in the file only tell that there was one.
        let loaded_at = |at: UnixMs| (at != UnixMs(0)).then_some(self.now.mono);
        let contact = Contact {
            address: line.ip.and_then(|ip| Address::new(ip, line.port, line.unusual_bus_port)),
            ping_sent_at: loaded_at(line.ping_sent_at),
            pong_received_at: loaded_at(line.pong_received_at),
            ..Contact::default()
        };
        if let Some(node) = self.cluster.add(line.id, contact) {
            let kept = NodeFlags::PFAIL | NodeFlags::FAIL | NodeFlags::LEAVING;
            self.cluster.set_flags(node, NodeFlags(line.flags.0 & kept.0));
        }
    }

    /// What nodes.conf has to hold.
    pub fn nodes_conf(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for line in self.cluster.node_lines(self.now) {
            nodes_conf::append_line(&mut text, &line);
            nodes_conf::append_bus_port(&mut text, &line);
        }
        text
    }

    /// CLUSTER MEET. `None` when there can be no node at the address.
    pub(in crate::engine) fn meet(
        &mut self,
        ip: IpAddr,
        port: u16,
        bus_port: Option<u16>,
    ) -> Option<Begun> {
        let address = Address::new(ip, port, bus_port)?;
        Some(self.begin_handshake(Reason::Command, address))
    }

    /// CLUSTER FORGET: the node is not known any more, and gossip does not bring it back
    /// for a minute. A handshake, by its temporary ID, just ends.
    pub(in crate::engine) fn forget_node(&mut self, id: &NodeId) -> Forgotten {
        match self.cluster.find(id) {
            Some(ME) => return Forgotten::Myself,
            Some(node) => self.forget_known_node(node),
            None if self.cluster.handshakes.contains_key(id) => self.end_handshake(*id),
            None => return Forgotten::Unknown,
        }
        Forgotten::Yes
    }

    fn forget_known_node(&mut self, node: NodeRef) {
        let now = self.now.mono;
        self.cluster.blacklist.retain(|_, until| *until > now);
        self.cluster.blacklist.insert(self.cluster.id(node), now.plus_ms(BLACKLIST_MS));
        self.cluster.remove(&mut self.out, node);
        self.out.save_nodes = true;
    }

    /// CLUSTER RESET, the cluster's part: this node is alone, under its old ID or a new one.
    pub(in crate::engine) fn forget_cluster(&mut self, reset: Reset) {
        self.cluster.remove_all(&mut self.out);
        let handshakes: Vec<NodeId> = self.cluster.handshakes.keys().copied().collect();
        for id in handshakes {
            self.end_handshake(id);
        }
        if reset == Reset::Hard {
            let id = NodeId::from_random(self.rng.bytes());
            self.cluster.rename_me(id);
        }
        self.out.save_nodes = true;
    }

    /// CLUSTER LEAVING: whether this node is about to leave. Peers hear of it with the
    /// next ping.
    pub(in crate::engine) fn set_leaving(&mut self, leaving: Leaving) {
        let flags = match leaving {
            Leaving::No => NodeFlags::MYSELF,
            Leaving::Yes => NodeFlags::MYSELF | NodeFlags::LEAVING,
        };
        if self.cluster.node(ME).flags != flags {
            self.cluster.set_flags(ME, flags);
            self.out.save_nodes = true;
        }
    }
}
