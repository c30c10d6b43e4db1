//! A job as bytes: what REPLJOB and YOURJOBS carry and LOADJOB keeps on disk.
//!
//! ```text
//! 0   u32  length of what follows; all numbers are little endian
//! 4   40   job ID
//! 44  u8   state in the low four bits, collection attempts in the high four
//! 45  u8   flags
//! 46  u16  repl
//! 48  u32  expiry
//! 52  u64  ctime
//! 60  u32  delay
//! 64  u32  retry
//! 68  u16  nacks
//! 70  u16  additional deliveries
//! 72  u32  length of the queue's name, and the name
//!     u32  length of the body, and the body
//!     u32  number of nodes, and their IDs, 40 bytes each; entries of attributes
//!          ([`super::attributes`]) count among them and stand behind them
//! ```
//!
//! A record is taken whole or refused: every length within it must agree with the one in
//! front. What the expiry counts from and which flags travel is for the caller to know;
//! SER_MESSAGE and SER_STORAGE in C.

use std::{iter, slice};

use super::attributes::{self, Attributes, Entry, PIECE_LEN};
use super::extensions::job_flag;
use super::reader::{DecodeError, Reader};
use crate::base::ids::{JobId, NODE_ID_LEN, NodeId};
use crate::base::limits;

/// Waits for copies before it is promised to its producer.
pub const STATE_WAIT_REPL: u8 = 0;
/// Known and not queued here.
pub const STATE_ACTIVE: u8 = 1;
/// In its queue.
pub const STATE_QUEUED: u8 = 2;
/// Acknowledged, to be collected.
pub const STATE_ACKED: u8 = 3;

/// QUEUED is broadcast on the next enqueue.
pub const FLAG_BROADCAST_QUEUED: u8 = 1;
/// WILLQUEUE is broadcast before the next requeue.
pub const FLAG_BROADCAST_WILLQUEUE: u8 = 2;
/// Delivered at least once by the node that holds this copy; never sent to peers.
pub const FLAG_DELIVERED: u8 = 4;
/// The job has attributes, or had some that a C server lost; see [`super::attributes`].
pub const FLAG_HAD_ATTRIBUTES: u8 = job_flag::HAD_ATTRIBUTES;
/// The producer wants the job traced, wherever it comes to.
pub const FLAG_TRACE: u8 = job_flag::TRACE;

/// From the job ID to the deliveries: what every record has.
const FIXED_LEN: usize = 68;
/// The shortest record: nothing in the queue's name, the body and the nodes.
pub const RECORD_LEN_MIN: usize = 4 + FIXED_LEN + 4 + 4 + 4;
/// The longest record: a name and a body of the longest argument, and room for the rest.
pub const RECORD_LEN_MAX: usize = 2 * limits::BULK_MAX + 64 * 1024 * 1024;

/// The largest number that the four bits of the collection attempts hold.
const GC_ATTEMPTS_MAX: u8 = 15;

/// One job's record, its queue, body and nodes borrowed.
///
/// To be encoded, the nodes may be any iterator that knows its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord<'a, N = NodeIds<'a>> {
    pub id: JobId,
    /// One of the `STATE_` numbers.
    pub state: u8,
    /// C: `gc_retry`.
    pub gc_attempts: u8,
    /// `FLAG_` bits; the others are passed on as they are.
    pub flags: u8,
    /// Copies asked for.
    pub repl: u16,
    /// C: `etime`. In messages seconds left, on disk seconds since 1970.
    pub expiry: u32,
    /// Milliseconds since 1970 times 1,000,000, plus a count.
    pub ctime: u64,
    pub delay_secs: u32,
    pub retry_secs: u32,
    pub nacks: u16,
    /// C: `num_deliv`, additional deliveries.
    pub deliveries: u16,
    pub queue: &'a [u8],
    pub body: &'a [u8],
    /// C: `nodes_delivered`, nodes that may have a copy.
    pub nodes: N,
    /// C has no such thing.
    pub attributes: Attributes<'a>,
}

impl<'a> JobRecord<'a> {
    /// Takes one record, its length first.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let record = reader.bytes_le(RECORD_LEN_MAX)?;
        let mut inner = Reader::new(record);
        Self::decode_fields(&mut inner).map_err(|error| match error {
            // The record is there in full, so it is a length within it that lies.
            DecodeError::Truncated | DecodeError::TooLong => DecodeError::BadLength,
            other => other,
        })
    }

    fn decode_fields(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let id = reader.job_id()?;
        let state_and_attempts = reader.u8()?;
        let state = state_and_attempts & 15;
        if state > STATE_ACKED {
            return Err(DecodeError::BadState(state));
        }
        let record = Self {
            id,
            state,
            gc_attempts: state_and_attempts >> 4,
            flags: reader.u8()?,
            repl: reader.u16_le()?,
            expiry: reader.u32_le()?,
            ctime: reader.u64_le()?,
            delay_secs: reader.u32_le()?,
            retry_secs: reader.u32_le()?,
            nacks: reader.u16_le()?,
            deliveries: reader.u16_le()?,
            queue: reader.bytes_le(limits::BULK_MAX)?,
            body: reader.bytes_le(limits::BULK_MAX)?,
            nodes: NodeIds::default(),
            attributes: Attributes::default(),
        };
        let (nodes, attributes) = Attributes::split_off(take_entries(reader)?);
        Ok(Self { nodes: NodeIds(nodes), attributes, ..record })
    }
}

impl<N> JobRecord<'_, N>
where
    N: IntoIterator<Item = NodeId> + Clone,
    N::IntoIter: ExactSizeIterator,
{
    /// Tells how many bytes [`JobRecord::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        let entry_count = self.nodes.clone().into_iter().len() + self.attributes.entries().len();
        RECORD_LEN_MIN + self.queue.len() + self.body.len() + entry_count * NODE_ID_LEN
    }

    /// Appends the record, its length first.
    ///
    /// # Panics
    /// When the name or the body is longer than 32 bits can say; the limits of requests
    /// and frames see to it that none is.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_before(out, 0);
    }

    /// As [`JobRecord::encode`], with another piece of the stream behind the attributes.
    pub(super) fn encode_with(&self, out: &mut Vec<u8>, piece: &[u8; PIECE_LEN]) {
        self.encode_before(out, 1);
        attributes::append_entries(out, self.attributes.entries().len(), piece);
    }

    /// Appends the record but for its last entries.
    fn encode_before(&self, out: &mut Vec<u8>, missing_entries: usize) {
        let nodes = self.nodes.clone().into_iter();
        let attributes = self.attributes.entries();
        let encoded_len = self.encoded_len() + missing_entries * NODE_ID_LEN;
        out.reserve(encoded_len);
        let mut fixed = [0; 4 + FIXED_LEN];
        fixed[0..4].copy_from_slice(&len_u32(encoded_len - 4));
        fixed[4..44].copy_from_slice(&self.id.0);
        fixed[44] = self.gc_attempts.min(GC_ATTEMPTS_MAX) << 4 | self.state;
        fixed[45] = self.flags;
        fixed[46..48].copy_from_slice(&self.repl.to_le_bytes());
        fixed[48..52].copy_from_slice(&self.expiry.to_le_bytes());
        fixed[52..60].copy_from_slice(&self.ctime.to_le_bytes());
        fixed[60..64].copy_from_slice(&self.delay_secs.to_le_bytes());
        fixed[64..68].copy_from_slice(&self.retry_secs.to_le_bytes());
        fixed[68..70].copy_from_slice(&self.nacks.to_le_bytes());
        fixed[70..72].copy_from_slice(&self.deliveries.to_le_bytes());
        out.extend_from_slice(&fixed);
        out.extend_from_slice(&len_u32(self.queue.len()));
        out.extend_from_slice(self.queue);
        out.extend_from_slice(&len_u32(self.body.len()));
        out.extend_from_slice(self.body);
        out.extend_from_slice(&len_u32(nodes.len() + attributes.len() + missing_entries));
        for node in nodes {
            out.extend_from_slice(&node.0);
        }
        out.extend_from_slice(attributes.as_flattened());
    }
}

fn len_u32(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("a record is shorter than 32 bits can count").to_le_bytes()
}

/// Takes the count of entries and the entries, which must be all that is left.
fn take_entries<'a>(reader: &mut Reader<'a>) -> Result<&'a [Entry], DecodeError> {
    let count = reader.u32_le()?;
    let (entries, rest) = reader.rest().as_chunks();
    if rest.is_empty() && usize::try_from(count) == Ok(entries.len()) {
        Ok(entries)
    } else {
        Err(DecodeError::BadCount)
    }
}

/// The node IDs of a record, as they stand in its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeIds<'a>(&'a [Entry]);

impl<'a> NodeIds<'a> {
    /// Tells how many nodes there are.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Gives the IDs one after another.
    pub fn iter(self) -> <Self as IntoIterator>::IntoIter {
        self.into_iter()
    }
}

impl<'a> IntoIterator for NodeIds<'a> {
    type Item = NodeId;
    type IntoIter =
        iter::Map<slice::Iter<'a, [u8; NODE_ID_LEN]>, fn(&'a [u8; NODE_ID_LEN]) -> NodeId>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|id| NodeId(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<JobRecord<'_>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let record = JobRecord::decode(&mut reader)?;
        reader.finish()?;
        Ok(record)
    }

    fn example() -> Vec<u8> {
        let record = JobRecord {
            id: JobId(*b"D-a4d5f1c9-p8oCwlvzc9vw8CFjo57YmKBY-000b"),
            state: STATE_QUEUED,
            gc_attempts: 3,
            flags: FLAG_BROADCAST_QUEUED,
            repl: 3,
            expiry: 601,
            ctime: 1_795_968_465_291_000_000,
            delay_secs: 4,
            retry_secs: 2,
            nacks: 1,
            deliveries: 7,
            queue: b"q1",
            body: b"body",
            nodes: [NodeId([b'a'; 40]), NodeId([b'b'; 40])],
            attributes: Attributes::default(),
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len(), record.encoded_len());
        bytes
    }

    #[test]
    fn fields_stand_where_the_c_server_puts_them() {
        let bytes = example();
        assert_eq!(bytes[..4], [166, 0, 0, 0]);
        assert_eq!(bytes[44..48], [0x32, 1, 3, 0]);
        assert_eq!(bytes[48..52], 601u32.to_le_bytes());
        assert_eq!(bytes[60..72], [4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 7, 0]);
        assert_eq!(bytes[72..82], *b"\x02\0\0\0q1\x04\0\0\0");
        assert_eq!(bytes.len(), RECORD_LEN_MIN + 6 + 80);
    }

    #[test]
    fn every_prefix_is_truncated_and_a_byte_more_is_left_over() {
        let bytes = example();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Err(DecodeError::Truncated));
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(decode(&longer), Err(DecodeError::TrailingBytes));
    }

    #[test]
    fn inner_lengths_must_agree_with_the_outer_one() {
        for (at, value, error) in [
            (0, 165, DecodeError::BadCount),
            (72, 1, DecodeError::BadLength),
            (75, 0x7f, DecodeError::BadLength),
            (78, 3, DecodeError::BadCount),
            (81, 0x7f, DecodeError::BadLength),
            (86, 1, DecodeError::BadCount),
            (89, 0x7f, DecodeError::BadCount),
        ] {
            let mut bytes = example();
            bytes[at] = value;
            assert_eq!(decode(&bytes), Err(error), "byte {at} as {value}");
        }
    }

    #[test]
    fn an_unknown_state_is_refused() {
        let mut bytes = example();
        bytes[44] = 0x14;
        assert_eq!(decode(&bytes), Err(DecodeError::BadState(4)));
    }

    proptest! {
        #[test]
        fn encoded_records_decode_to_the_same(
            numbers: (u16, u32, u64, u32, u32, u16, u16),
            state in 0u8..4,
            gc_attempts in 0u8..16,
            flags: u8,
            queue: Vec<u8>,
            body: Vec<u8>,
            nodes in prop::collection::vec(any::<[u8; 20]>().prop_map(NodeId::from_random), 0..5),
        ) {
            let (repl, expiry, ctime, delay_secs, retry_secs, nacks, deliveries) = numbers;
            let record = JobRecord {
                id: JobId(*b"D-a4d5f1c9-p8oCwlvzc9vw8CFjo57YmKBY-000b"),
                state, gc_attempts, flags, repl, expiry, ctime, delay_secs, retry_secs, nacks,
                deliveries, queue: &queue, body: &body, nodes: nodes.iter().copied(),
                attributes: Attributes::default(),
            };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let decoded = decode(&bytes).expect("encoded records are well-formed");
            prop_assert_eq!(decoded.nodes.iter().collect::<Vec<_>>(), nodes.clone());
            let mut again = Vec::new();
            decoded.encode(&mut again);
            prop_assert_eq!(&bytes, &again);
            let fields = JobRecord {
                id: record.id, state, gc_attempts, flags, repl, expiry, ctime, delay_secs,
                retry_secs, nacks, deliveries, queue: &queue, body: &body, nodes: decoded.nodes,
                attributes: Attributes::default(),
            };
            prop_assert_eq!(decoded, fields);
        }
    }
}
