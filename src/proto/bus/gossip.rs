//! What PING, PONG and MEET say of other nodes: 104 bytes each.

use std::net::IpAddr;

use super::header::{NodeFlags, decode_ip, decode_node_id, encode_ip};
use crate::base::ids::NodeId;
use crate::base::limits;
use crate::proto::reader::{DecodeError, Reader};

const ENTRY_LEN: usize = 104;

/// One node as the sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GossipEntry {
    pub node: NodeId,
    /// When the open ping was sent, 0 without one: low 32 bits of milliseconds.
    pub ping_sent: u32,
    /// When the latest pong came: low 32 bits of milliseconds.
    pub pong_received: u32,
    pub ip: Option<IpAddr>,
    /// The node's client port.
    pub port: u16,
    pub flags: NodeFlags,
    /// Zeros from C nodes, which do not read them. The last four bytes are a number: the
    /// node's bus port when that is not its client port + 10000.
    pub tail: [u8; 6],
}

impl GossipEntry {
    /// The tail of an entry; zeros for `None`.
    pub fn announce_bus_port(bus_port: Option<u16>) -> [u8; 6] {
        let [high, low] = bus_port.unwrap_or(0).to_be_bytes();
        [0, 0, 0, 0, high, low]
    }

    /// The node's bus port, if the sender announces one.
    pub fn announced_bus_port(&self) -> Option<u16> {
        let [_, _, number @ ..] = self.tail;
        u16::try_from(u32::from_be_bytes(number)).ok().filter(|bus_port| *bus_port != 0)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            node: decode_node_id(reader)?,
            ping_sent: reader.u32_be()?,
            pong_received: reader.u32_be()?,
            ip: decode_ip(reader)?,
            port: reader.u16_be()?,
            flags: NodeFlags(reader.u16_be()?),
            tail: reader.array()?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0);
        out.extend_from_slice(&self.ping_sent.to_be_bytes());
        out.extend_from_slice(&self.pong_received.to_be_bytes());
        encode_ip(out, self.ip);
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        out.extend_from_slice(&self.tail);
    }
}

/// The entries of one message, as they stand in its bytes.
///
/// Invariant: the first [`limits::GOSSIP_ENTRIES_MAX`] have been checked. The others are
/// counted but never read, so a message of 65,535 cannot hold up the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gossip<'a>(&'a [[u8; ENTRY_LEN]]);

impl<'a> Gossip<'a> {
    /// Takes everything that is left, which must be `count` entries.
    pub(super) fn decode(reader: &mut Reader<'a>, count: u16) -> Result<Self, DecodeError> {
        let (entries, rest) = reader.rest().as_chunks();
        if !rest.is_empty() || entries.len() != usize::from(count) {
            return Err(DecodeError::BadCount);
        }
        for entry in entries.iter().take(limits::GOSSIP_ENTRIES_MAX) {
            GossipEntry::decode(&mut Reader::new(entry))?;
        }
        Ok(Self(entries))
    }

    /// Gives the entries, [`limits::GOSSIP_ENTRIES_MAX`] of them at most.
    pub fn iter(self) -> impl ExactSizeIterator<Item = GossipEntry> {
        self.0.iter().take(limits::GOSSIP_ENTRIES_MAX).map(|entry| {
            GossipEntry::decode(&mut Reader::new(entry)).expect("entries were checked on arrival")
        })
    }

    /// Returns how many entries the message has.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the message has no entries.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}
