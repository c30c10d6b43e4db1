//! The 144 bytes in front of every bus message, and its addresses and flags.

use std::io::Write as _;
use std::net::IpAddr;
use std::ops::BitOr;

use crate::base::ids::NodeId;
use crate::base::limits;
use crate::proto::extensions::{ability, message_flag};
use crate::proto::reader::{DecodeError, Reader};

/// How long a header is, and a frame at least.
pub const HEADER_LEN: usize = 144;

/// An address as text, padded with zeros. C: NET_IP_STR_LEN.
const IP_TEXT_LEN: usize = 46;
const RESERVED_LEN: usize = 34;
const SIGNATURE: [u8; 4] = *b"DbuZ";
const VERSION: u16 = 1;
/// Where the total length stands.
const TOTAL_LEN_AT: usize = 4;
/// Where the number of the message's type stands.
const NUMBER_AT: usize = 12;

/// What a node thinks of a node. In a header only [`NodeFlags::LEAVING`] tells a peer anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFlags(pub u16);

impl NodeFlags {
    /// Possibly failing.
    pub const PFAIL: Self = Self(1);
    /// Failing, as a majority has found.
    pub const FAIL: Self = Self(2);
    /// The node that says so.
    pub const MYSELF: Self = Self(4);
    /// Known by its address only; its ID is made up.
    pub const HANDSHAKE: Self = Self(8);
    /// Known by its ID only.
    pub const NOADDR: Self = Self(16);
    /// Is to get a MEET as its first message.
    pub const MEET: Self = Self(32);
    /// Forgotten; never seen on the wire.
    pub const DELETED: Self = Self(64);
    /// Takes no new jobs.
    pub const LEAVING: Self = Self(128);

    /// Whether any of `flags` is set.
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Gives the flags that are set here and not in `flags`.
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for NodeFlags {
    type Output = Self;

    fn bitor(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// What is special about one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageFlags {
    pub bits: u8,
    /// Of QUEUED, WORKING and WILLQUEUE: which move of the job its sender knows, as
    /// [`MoveStamp::digest`] has it; 0 for none. C nodes send 0 and do not look at it.
    ///
    /// [`MoveStamp::digest`]: crate::proto::moved::MoveStamp::digest
    pub move_digest: u16,
}

impl MessageFlags {
    /// Nothing.
    pub const NONE: Self = Self::of(0);
    /// A REPLJOB that wants no GOTJOB.
    pub const NOREPLY: Self = Self::of(1);
    /// A QUEUED that counts a NACK.
    pub const INCR_NACKS: Self = Self::of(2);
    /// A QUEUED that counts an additional delivery.
    pub const INCR_DELIV: Self = Self::of(4);
    /// A NEEDJOBS that stays in force; see [`Abilities::STANDING_ASKS`].
    pub const STANDING: Self = Self::of(message_flag::STANDING);
    /// A QUEUED because a client said so, which ends a hold: with [`Self::INCR_DELIV`] for an
    /// ENQUEUE, alone for a NACK that is not counted; see [`Abilities::HOLDS`].
    pub const BY_CLIENT: Self = Self::of(message_flag::BY_CLIENT);
    /// A SETACK of a job that was purged and not processed; to nodes with
    /// [`Abilities::ATTRIBUTES`].
    pub const PURGED: Self = Self::of(message_flag::PURGED);
    /// A NEEDJOBS that wants jobs only that are better than those of its sender; see
    /// [`Abilities::OFFER`].
    pub const BETTER_ONLY: Self = Self::of(message_flag::BETTER_ONLY);

    /// An ENQUEUE of a job of which its sender keeps no copy, and which is to get more than it has:
    /// the receiver sees to that. To nodes with [`Abilities::HOLDS`].
    pub const GO_ON: Self = Self::of(message_flag::GO_ON);

    /// Flags without a digest.
    pub const fn of(bits: u8) -> Self {
        Self { bits, move_digest: 0 }
    }

    /// These, and a digest.
    pub const fn with_digest(self, move_digest: u16) -> Self {
        Self { move_digest, ..self }
    }

    /// These, and others too.
    pub const fn with(self, others: Self) -> Self {
        Self { bits: self.bits | others.bits, ..self }
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.bits & flags.bits == flags.bits
    }
}

/// What every message says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who sent the message, as it says.
    pub sender: NodeId,
    /// The sender's own address when it announces one.
    pub ip: Option<IpAddr>,
    /// The sender's client port.
    pub port: u16,
    /// What the sender says of itself.
    pub flags: NodeFlags,
    /// The state of the cluster; always 0.
    pub state: u8,
    /// What is special about this message.
    pub message_flags: MessageFlags,
    /// Zeros from C nodes, which do not look at them. Extensions are announced here; see
    /// [`Header::announce`].
    pub reserved: [u8; RESERVED_LEN],
}

/// What a node can do beyond what C nodes can. Used only towards nodes that announced it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities(pub u16);

impl Abilities {
    /// None: a C node.
    pub const NONE: Self = Self(0);
    /// It keeps a NEEDJOBS with [`MessageFlags::STANDING`], and takes one for 0 jobs as its
    /// end.
    pub const STANDING_ASKS: Self = Self(ability::STANDING_ASKS);
    /// It keeps the attributes of jobs, and passes them on; and it knows MOVED.
    pub const ATTRIBUTES: Self = Self(ability::ATTRIBUTES);
    /// It answers QUERY.
    pub const QUERY: Self = Self(ability::QUERY);
    /// It remembers an OFFER, and lends what a NEEDJOBS with [`MessageFlags::BETTER_ONLY`] asks
    /// for.
    pub const OFFER: Self = Self(ability::OFFER);
    /// It reads NODE_INFO.
    pub const NODE_INFO: Self = Self(ability::NODE_INFO);
    /// It says with each heartbeat whether it knows the node that it is sent to, by this bit.
    pub const KNOWS_RECEIVER: Self = Self(ability::KNOWS_RECEIVER);
    /// It reads the number of QUEUED and WORKING: for how many seconds the sender holds the job.
    pub const HOLDS: Self = Self(ability::HOLDS);
    /// It says with each heartbeat that its memory is short, by this bit: it gives way to nodes
    /// that have more. Far from the others, whose numbers are given in turn.
    pub const SHORT_OF_MEMORY: Self = Self(ability::SHORT_OF_MEMORY);

    /// What this server can do.
    pub const OURS: Self = Self::STANDING_ASKS
        .with(Self::ATTRIBUTES)
        .with(Self::QUERY)
        .with(Self::OFFER)
        .with(Self::NODE_INFO)
        .with(Self::HOLDS);

    /// These, and others too.
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `abilities` are there.
    pub const fn contains(self, abilities: Self) -> bool {
        self.0 & abilities.0 == abilities.0
    }
}

/// In front of an announced bus port, at the beginning of the reserved bytes.
const BUS_PORT_MARK: [u8; 4] = *b"port";
/// In front of the abilities, behind the bus port.
const ABILITIES_MARK: [u8; 4] = *b"able";
/// In front of the hash of the cluster's name, behind the abilities.
const NAME_MARK: [u8; 4] = *b"name";
const NAME_AT: usize = 12;

impl Header {
    /// The reserved bytes: `port` and two bytes of number for a node whose bus port is not
    /// its client port + 10000, six zeros otherwise; `able` and two bytes of bits for a
    /// node with abilities.
    pub fn announce(bus_port: Option<u16>, abilities: Abilities) -> [u8; RESERVED_LEN] {
        let mut reserved = [0; RESERVED_LEN];
        let mut put = |at: usize, mark: [u8; 4], number: u16| {
            let ([a, b, c, d], [high, low]) = (mark, number.to_be_bytes());
            if number != 0
                && let Some(field) = reserved.get_mut(at..at + 6)
            {
                field.copy_from_slice(&[a, b, c, d, high, low]);
            }
        };
        put(0, BUS_PORT_MARK, bus_port.unwrap_or(0));
        put(6, ABILITIES_MARK, abilities.0);
        reserved
    }

    /// Behind what is announced, `name` and eight bytes of hash of the name of the sender's cluster,
    /// if it has one. For PING, PONG and MEET.
    pub fn with_cluster_name(mut self, hash: Option<ClusterNameHash>) -> Self {
        if let Some(ClusterNameHash(hash)) = hash {
            let field = NAME_MARK.into_iter().chain(hash);
            self.reserved.iter_mut().skip(NAME_AT).zip(field).for_each(|(byte, said)| *byte = said);
        }
        self
    }

    /// Of the cluster of which the sender is, if it says so.
    pub fn cluster_name(&self) -> Option<ClusterNameHash> {
        let mut reader = Reader::new(self.reserved.get(NAME_AT..)?);
        let mark: [u8; 4] = reader.array().ok()?;
        let hash = reader.array().ok()?;
        (mark == NAME_MARK && hash != [0; 8]).then_some(ClusterNameHash(hash))
    }

    /// The bus port that the sender announces, if it does.
    pub fn announced_bus_port(&self) -> Option<u16> {
        let [bus_port, _] = self.announced()?;
        (bus_port != 0).then_some(bus_port)
    }

    /// The abilities that the sender announces.
    pub fn abilities(&self) -> Abilities {
        self.announced().map_or(Abilities::NONE, |[_, abilities]| Abilities(abilities))
    }

    fn announced(&self) -> Option<[u16; 2]> {
        let mut reader = Reader::new(&self.reserved);
        let mut field = |expected: [u8; 4]| {
            let mark: [u8; 4] = reader.array().ok()?;
            let number = reader.u16_be().ok()?;
            Some(if mark == expected { number } else { 0 })
        };
        Some([field(BUS_PORT_MARK)?, field(ABILITIES_MARK)?])
    }
}

/// By which nodes tell the names of clusters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterNameHash([u8; 8]);

impl ClusterNameHash {
    /// `None` for the empty name, which is none.
    pub fn of(name: &str) -> Option<Self> {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (!name.is_empty()).then(|| Self(hash.max(1).to_be_bytes()))
    }
}

/// The parts of a header that belong to the message.
#[derive(Clone, Copy)]
pub(super) struct MessageHead {
    pub number: u16,
    /// Gossip entries that follow.
    pub entry_count: u16,
}

/// Tells how long the frame is that begins with `prefix`; `None` until 8 bytes are there.
///
/// An error means that the peer does not speak this protocol: its link must go. A limit for
/// peers not known yet is for the caller to set.
pub fn frame_len(prefix: &[u8]) -> Result<Option<usize>, DecodeError> {
    let mut reader = Reader::new(prefix);
    let (Ok(signature), Ok(total_len)) = (reader.array(), reader.u32_be()) else {
        return Ok(None);
    };
    if signature != SIGNATURE {
        return Err(DecodeError::BadSignature);
    }
    match usize::try_from(total_len) {
        Ok(total_len) if total_len < HEADER_LEN => Err(DecodeError::BadLength),
        Ok(total_len) if total_len <= limits::BUS_FRAME_MAX => Ok(Some(total_len)),
        _ => Err(DecodeError::TooLong),
    }
}

/// The number of the type of a frame's message; `None` when the frame ends before it.
pub(super) fn message_number(frame: &[u8]) -> Option<u16> {
    Reader::new(frame.get(NUMBER_AT..)?).u16_be().ok()
}

impl Header {
    /// Takes the header of a frame whose total length must be `frame_len`.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        frame_len: usize,
    ) -> Result<(Self, MessageHead), DecodeError> {
        if reader.array()? != SIGNATURE {
            return Err(DecodeError::BadSignature);
        }
        if usize::try_from(reader.u32_be()?) != Ok(frame_len) {
            return Err(DecodeError::BadLength);
        }
        let version = reader.u16_be()?;
        if version != VERSION {
            return Err(DecodeError::BadVersion(version));
        }
        let [_, _] = reader.array()?;
        let kind = MessageHead { number: reader.u16_be()?, entry_count: reader.u16_be()? };
        let sender = decode_node_id(reader)?;
        let ip = decode_ip(reader)?;
        let reserved = reader.array()?;
        let port = reader.u16_be()?;
        let flags = NodeFlags(reader.u16_be()?);
        let state = reader.u8()?;
        let bits = reader.u8()?;
        let message_flags = MessageFlags { bits, move_digest: reader.u16_be()? };
        Ok((Self { sender, ip, port, flags, state, message_flags, reserved }, kind))
    }

    /// Appends the header, the total length still 0.
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: MessageHead) {
        out.extend_from_slice(&SIGNATURE);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&kind.number.to_be_bytes());
        out.extend_from_slice(&kind.entry_count.to_be_bytes());
        out.extend_from_slice(&self.sender.0);
        encode_ip(out, self.ip);
        out.extend_from_slice(&self.reserved);
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        let [high, low] = self.message_flags.move_digest.to_be_bytes();
        out.extend_from_slice(&[self.state, self.message_flags.bits, high, low]);
    }
}

/// Writes the total length of the frame that begins at `start` and ends with `out`.
pub(super) fn set_total_len(out: &mut [u8], start: usize) {
    let total_len = u32::try_from(out.len() - start).expect("a frame is within BUS_FRAME_MAX");
    set_u32(out, start + TOTAL_LEN_AT, total_len);
}

/// Writes a number over the four bytes that were left for it.
pub(super) fn set_u32(out: &mut [u8], at: usize, value: u32) {
    out.get_mut(at..at + 4)
        .expect("room was left for the number")
        .copy_from_slice(&value.to_be_bytes());
}

/// Takes the ID of a node that may become known. It will stand in nodes.conf and in replies,
/// so nothing but letters and digits is let in.
pub(super) fn decode_node_id(reader: &mut Reader<'_>) -> Result<NodeId, DecodeError> {
    let id = reader.node_id()?;
    // Without an end in the middle, so that the compiler takes many bytes at a time.
    let is_valid = id.0.iter().fold(true, |so_far, byte| so_far & byte.is_ascii_alphanumeric());
    if is_valid { Ok(id) } else { Err(DecodeError::BadNodeId) }
}

pub(super) fn decode_ip(reader: &mut Reader<'_>) -> Result<Option<IpAddr>, DecodeError> {
    let field = reader.take(IP_TEXT_LEN)?;
    match field.split(|&byte| byte == 0).next() {
        None | Some([]) => Ok(None),
        Some(text) => match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(ip) => Ok(Some(ip)),
            None => Err(DecodeError::BadAddress),
        },
    }
}

pub(super) fn encode_ip(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    let mut field = [0; IP_TEXT_LEN];
    if let Some(ip) = ip {
        write!(field.as_mut_slice(), "{ip}").expect("the text of an address has 45 bytes at most");
    }
    out.extend_from_slice(&field);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_tells_its_length_in_its_first_eight_bytes() {
        assert_eq!(frame_len(b"DbuZ\0\0\0"), Ok(None));
        assert_eq!(frame_len(b"DbuZ\0\0\0\x90"), Ok(Some(144)));
        assert_eq!(frame_len(b"DbuZ\0\0\x01\x6b and more"), Ok(Some(363)));
    }

    #[test]
    fn a_foreign_or_absurd_frame_is_refused_at_once() {
        assert_eq!(frame_len(b"GET / HT"), Err(DecodeError::BadSignature));
        assert_eq!(frame_len(b"DbuZ\0\0\0\x8f"), Err(DecodeError::BadLength));
        assert_eq!(frame_len(b"DbuZ\xff\xff\xff\xff"), Err(DecodeError::TooLong));
    }

    #[test]
    fn what_is_announced_is_read_back_and_zeros_announce_nothing() {
        let announced = |reserved| {
            let sender = NodeId::from_random([7; 20]);
            let (flags, message_flags) = (NodeFlags::MYSELF, MessageFlags::NONE);
            let header =
                Header { sender, ip: None, port: 1, flags, state: 0, message_flags, reserved };
            (header.announced_bus_port(), header.abilities())
        };
        for bus_port in [None, Some(17_001)] {
            for abilities in [Abilities::NONE, Abilities::STANDING_ASKS] {
                let reserved = Header::announce(bus_port, abilities);
                assert_eq!(announced(reserved), (bus_port, abilities));
            }
        }
        let reserved = Header::announce(None, Abilities::STANDING_ASKS);
        let sender = NodeId::from_random([7; 20]);
        let (flags, message_flags) = (NodeFlags::MYSELF, MessageFlags::NONE);
        let header = Header { sender, ip: None, port: 1, flags, state: 0, message_flags, reserved };
        assert_eq!((header.cluster_name(), ClusterNameHash::of("")), (None, None));
        assert_eq!(header.with_cluster_name(None), header);
        let name = ClusterNameHash::of("prod");
        let named = header.with_cluster_name(name);
        assert_eq!((named.cluster_name(), named.abilities()), (name, Abilities::STANDING_ASKS));
        assert_ne!(name, ClusterNameHash::of("test"));
        assert_eq!(Header::announce(None, Abilities::NONE), [0; RESERVED_LEN]);
        assert_eq!(announced([1; RESERVED_LEN]), (None, Abilities::NONE));
    }

    #[test]
    fn addresses_of_both_kinds_survive_and_others_are_refused() {
        for ip in [None, Some("127.0.0.1"), Some("ffff:1:2:3:4:5:255.255.255.255"), Some("::1")] {
            let ip = ip.map(|ip| ip.parse().expect("an address"));
            let mut field = Vec::new();
            encode_ip(&mut field, ip);
            assert_eq!(field.len(), IP_TEXT_LEN);
            assert_eq!(decode_ip(&mut Reader::new(&field)), Ok(ip));
        }
        for text in [&b"localhost"[..], b"1.2.3", b"1.2.3.4\n", &[b'1'; IP_TEXT_LEN]] {
            let mut field = [0; IP_TEXT_LEN];
            field[..text.len()].copy_from_slice(text);
            assert_eq!(decode_ip(&mut Reader::new(&field)), Err(DecodeError::BadAddress));
        }
    }
}
