//! What is known of another node: who it is, where it is reached, and the link to it.

use core::net::{IpAddr, SocketAddr};

use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::BUS_PORT_OFFSET;
use crate::base::time::MonoMs;
use crate::engine::node_set::NodeRef;
use crate::engine::outbox::ConnectToken;
use crate::proto::bus::{Abilities, NodeFlags};

/// A node that completed its handshake once, this one included.
#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    /// What this node thinks of it. [`NodeFlags::NOADDR`] is not kept: it is a
    /// [`Contact`] without an address. [`NodeFlags::DELETED`]: forgotten.
    pub flags: NodeFlags,
    pub contact: Contact,
    /// As it announced with its latest heartbeat.
    pub abilities: Abilities,
    /// Which nodes reported it as failing.
    pub reports: Vec<FailureReport>,
}

#[derive(Clone, Copy, Debug)]
pub struct FailureReport {
    pub by: NodeRef,
    pub at: MonoMs,
}

impl Node {
    pub fn new(id: NodeId, flags: NodeFlags) -> Self {
        Self {
            id,
            flags,
            contact: Contact::default(),
            abilities: Abilities::NONE,
            reports: Vec::new(),
        }
    }

    pub fn is_failing(&self) -> bool {
        self.flags.intersects(NodeFlags::PFAIL | NodeFlags::FAIL)
    }

    /// Whether others are told of it. Differs from C, which tells of a failing node
    /// only while a connect to it is under way: then a majority may never form.
    pub fn is_gossiped(&self) -> bool {
        let has_link = !matches!(self.contact.link, Link::None);
        self.contact.address.is_some() && (has_link || self.is_failing())
    }
}

/// Where a node is reached, and how it answers there.
#[derive(Debug, Default)]
pub struct Contact {
    /// `None`: nobody knows, until the node itself comes.
    pub address: Option<Address>,
    pub link: Link,
    /// When the ping that is unanswered was sent, or would have been, had there been
    /// a link.
    pub ping_sent_at: Option<MonoMs>,
    pub pong_received_at: Option<MonoMs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
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

    pub fn bus(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.bus_port)
    }
}

/// The link that this node makes to another one, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub enum Link {
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

impl Link {
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
