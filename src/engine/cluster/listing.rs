//! The nodes as CLUSTER NODES shows them and nodes.conf keeps them.

use core::net::SocketAddr;

use crate::base::ids::{LinkId, NodeId};
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::node_set::{ME, NodeRef};
use crate::proto::bus::{Abilities, NodeFlags};
use crate::proto::nodes_conf::{self, LinkState, NodeLine, Tombstone};

use super::Cluster;
use super::node_info::KnownInfo;
use super::nodes::{Address, Contact, Introduction};

/// Another node, as operators are shown it.
#[derive(Clone, Debug)]
pub struct PeerFigures {
    pub id: NodeId,
    /// Where clients reach it, if anybody knows.
    pub address: Option<SocketAddr>,
    /// What this node thinks of it.
    pub flags: NodeFlags,
    /// The link that this node has made to it.
    pub link: Option<LinkId>,
    /// How long the last ping that was answered took, in ms.
    pub round_trip_ms: Option<u64>,
    /// How long ago that was, in ms.
    pub heard_ms_ago: Option<u64>,
    /// As it announced; `None` before its first heartbeat.
    pub abilities: Option<Abilities>,
    /// As it said.
    pub info: KnownInfo,
    /// Empty for none.
    pub zone: String,
}

impl PeerFigures {
    /// What this node thinks of it, in a word.
    pub fn state(&self) -> &'static str {
        if self.flags.contains(NodeFlags::MYSELF) {
            "myself"
        } else if self.flags.contains(NodeFlags::FAIL) {
            "failing"
        } else if self.flags.contains(NodeFlags::PFAIL) || self.link.is_none() {
            "silent"
        } else {
            "ok"
        }
    }
}

impl Cluster {
    /// The other known nodes, in the order of their IDs.
    pub fn peers(&self, now: MonoMs) -> impl Iterator<Item = PeerFigures> {
        self.known().filter(|node| *node != ME).map(move |node| {
            let node = self.node(node);
            let contact = &node.contact;
            PeerFigures {
                id: node.id,
                address: contact.address.map(|address| address.client()),
                flags: node.shown_flags(),
                link: contact.link.up(),
                round_trip_ms: contact.round_trip_ms,
                heard_ms_ago: contact.pong_received_at.map(|at| now.ms_since(at)),
                abilities: node.abilities,
                zone: self.zone_name(node.info.zone).to_owned(),
                info: node.info.clone(),
            }
        })
    }

    /// This node, among its peers.
    pub fn myself(&self, now: Now) -> PeerFigures {
        let (ip, port) = self.my_address(now);
        let me = self.node(ME);
        PeerFigures {
            id: me.id,
            address: ip.map(|ip| SocketAddr::new(ip, port)),
            flags: me.flags(),
            link: None,
            round_trip_ms: None,
            heard_ms_ago: None,
            abilities: Some(Abilities::OURS),
            zone: self.zone_name(me.info.zone).to_owned(),
            info: me.info.clone(),
        }
    }

    /// Where clients reach this node, as far as it knows.
    pub fn my_address(&self, now: Now) -> (Option<core::net::IpAddr>, u16) {
        let line = self.node_line(now, ME);
        (line.ip, line.port)
    }

    /// Nodes in handshake.
    pub fn handshake_count(&self) -> usize {
        self.handshakes.values().filter(|handshake| handshake.is_shown()).count()
    }

    /// What CLUSTER NODES and nodes.conf say of the known nodes, in the order of their IDs.
    pub fn node_lines(&self, now: Now) -> impl Iterator<Item = NodeLine> {
        self.known().map(move |node| self.node_line(now, node))
    }

    /// The same of nodes in handshake, under temporary IDs.
    pub fn handshake_lines(&self, now: Now) -> impl Iterator<Item = NodeLine> {
        let shown = self.handshakes.iter().filter(|(_, handshake)| handshake.is_shown());
        shown
            .map(move |(id, handshake)| line_of(now, *id, NodeFlags::HANDSHAKE, &handshake.contact))
    }

    fn node_line(&self, now: Now, node: NodeRef) -> NodeLine {
        if node == ME {
            return NodeLine {
                ip: self.announce.ip.or(self.my_ip),
                port: self.announce.port.unwrap_or(self.my_port),
                link: LinkState::Connected,
                ..line_of(now, *self.my_id(), self.node(ME).flags(), &self.node(ME).contact)
            };
        }
        let node = self.node(node);
        line_of(now, node.id, node.shown_flags(), &node.contact)
    }

    /// What nodes.conf has to hold.
    pub fn nodes_conf(&self, now: Now) -> Vec<u8> {
        let mut text = Vec::new();
        for line in self.node_lines(now) {
            nodes_conf::append_line(&mut text, &line);
            nodes_conf::append_bus_port(&mut text, &line);
        }
        for tombstone in self.tombstones() {
            nodes_conf::append_tombstone(&mut text, &tombstone);
        }
        text
    }

    /// Takes in the tombstones of nodes.conf, at start, before the jobs.
    pub fn load_tombstones(&mut self, now: Now, tombstones: &[Tombstone]) {
        for tombstone in tombstones {
            self.load_tombstone(now, tombstone);
        }
    }

    /// Takes in what nodes.conf says, at start. The line of this node gives its address
    /// and whether it leaves; its ID was handed to [`Cluster::new`].
    pub fn load(&mut self, now: Now, lines: &[NodeLine]) {
        for line in lines {
            if line.flags.contains(NodeFlags::MYSELF) {
                self.my_ip = line.ip;
                let flags = NodeFlags(line.flags.0 & NodeFlags::LEAVING.0) | NodeFlags::MYSELF;
                self.set_flags(ME, flags);
            } else if !line.flags.contains(NodeFlags::HANDSHAKE) && self.find(&line.id).is_none() {
                self.load_node(now.mono, line);
            }
        }
    }

    fn load_node(&mut self, now: MonoMs, line: &NodeLine) {
        // C: clusterLoadConfig, the times in the file only tell that there was one.
        let loaded_at = |at: UnixMs| (at != UnixMs(0)).then_some(now);
        let contact = Contact {
            address: line.ip.and_then(|ip| Address::new(ip, line.port, line.unusual_bus_port)),
            ping_sent_at: loaded_at(line.ping_sent_at),
            pong_received_at: loaded_at(line.pong_received_at),
            ..Contact::default()
        };
        if let Some(node) = self.add(line.id, contact) {
            // Who is in the file was introduced; a node that forgot this one is not to be asked
            // to take it back.
            self.node_mut(node).introduction = Introduction::Done;
            let kept = NodeFlags::PFAIL | NodeFlags::FAIL | NodeFlags::LEAVING;
            self.set_flags(node, NodeFlags(line.flags.0 & kept.0));
        }
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
