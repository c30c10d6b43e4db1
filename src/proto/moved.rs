//! Moves of jobs between queues: the stamp by which two nodes agree on the later one, and the
//! body of a MOVED.
//!
//! ```text
//! attribute 5, the stamp of a job that was moved; its number is little endian
//! 0   u8   1: what else the job has of attributes is not known to who wrote this
//! 1   u64  when, in milliseconds since 1970
//! 9   40   ID of the node that moved it
//!
//! MOVED; numbers are big endian
//! 0   40   job ID
//! 40  u64  when it was moved, 0 by a sender that knows of no move
//! 48  40   ID of the node that moved it
//! 88  u8   1: the sender has it queued; 2: the hold is a lease
//! 89  u8   the job's flags, of which those of its priority count
//! 90  u16  nacks
//! 92  u16  additional deliveries
//! 94  u32  seconds to live
//! 98  u32  for how many seconds the sender holds it
//! 102 u32  length of the queue's name, and the name
//!          entries of attributes: limits, and facts or history
//! ```

use std::borrow::Cow;

use super::attributes::{AttributeStream, Attributes, KeptAttributes, Tag, keep};
use super::facts;
use super::reader::{DecodeError, Reader};
use crate::base::ids::{JobId, NodeId};
use crate::base::limits;
use crate::base::time::UnixMs;

/// Which of two moves of a job is the later one: the higher stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveStamp {
    pub at: UnixMs,
    pub by: NodeId,
}

/// The last time that a stamp may have, so that there are later ones for a clock that is wrong.
const STAMP_AT_MAX: UnixMs = UnixMs(1 << 62);

const REST_IS_LOST: u8 = 1;
const STAMP_LEN: usize = 1 + 8 + 40;

impl MoveStamp {
    /// `None` for a time that no move has: 0, which is no move, or one that ends the order.
    pub fn new(at: UnixMs, by: NodeId) -> Option<Self> {
        (UnixMs(1)..=STAMP_AT_MAX).contains(&at).then_some(Self { at, by })
    }

    /// 16 bits by which nodes notice that they know different moves; never 0, which is no move.
    pub fn digest(&self) -> u16 {
        // FNV-1a, folded.
        let bytes = self.at.0.to_le_bytes().into_iter().chain(self.by.0);
        let hash = bytes
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = hash.to_be_bytes();
        u16::from_be_bytes([a ^ c, b ^ d]).max(1)
    }

    fn value(&self, rest: Rest) -> Vec<u8> {
        let mut value = Vec::with_capacity(STAMP_LEN);
        value.push(if rest == Rest::Lost { REST_IS_LOST } else { 0 });
        value.extend_from_slice(&self.at.0.to_le_bytes());
        value.extend_from_slice(&self.by.0);
        value
    }

    /// What a value says; what stands behind it is for later versions.
    fn read(value: &[u8]) -> Option<(Self, Rest)> {
        let mut reader = Reader::new(value);
        let rest = if reader.u8().ok()? & REST_IS_LOST != 0 { Rest::Lost } else { Rest::Known };
        let at = UnixMs(reader.u64_le().ok()?);
        Some((Self::new(at, reader.node_id().ok()?)?, rest))
    }
}

/// What is known of the attributes of a job beside those of its moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Known,
    Lost,
}

/// What MOVED carries, and a job has as its last move says.
fn is_carried(tag: Tag) -> bool {
    matches!(tag, Tag::LIMITS | Tag::FACTS)
}

/// What a move leaves as it is.
fn is_left_alone(tag: Tag) -> bool {
    !is_carried(tag) && tag != Tag::MOVE && tag != Tag::SUM
}

impl<'a> Attributes<'a> {
    /// The stamp of the job's last move.
    pub fn move_stamp(self) -> Option<MoveStamp> {
        self.stamp_and_rest().0
    }

    /// Whether the other attributes are known to who wrote these.
    pub fn rest(self) -> Rest {
        self.stamp_and_rest().1
    }

    /// Both of these.
    pub fn stamp_and_rest(self) -> (Option<MoveStamp>, Rest) {
        match self.find(Tag::MOVE).and_then(|value| MoveStamp::read(&value)) {
            Some((stamp, rest)) => (Some(stamp), rest),
            None => (None, Rest::Known),
        }
    }

    /// The facts of a job that is dead; see [`super::facts`].
    pub fn facts(self) -> Option<Cow<'a, [u8]>> {
        self.find(Tag::FACTS).filter(|facts| facts::are_in_force(facts))
    }

    /// What MOVED carries of them.
    pub fn of_move(self) -> Option<KeptAttributes> {
        keep(self.iter().filter(|(tag, _)| is_carried(*tag)))
    }

    /// What a job has after a move: limits and facts of the move, and these for the rest, if that
    /// is known. `None` when a record cannot hold it.
    pub fn after_move<'b>(
        rest: Option<Self>,
        stamp: MoveStamp,
        of_move: impl Iterator<Item = (Tag, Cow<'b, [u8]>)>,
    ) -> Option<KeptAttributes> {
        let state = if rest.is_some() { Rest::Known } else { Rest::Lost };
        let others = rest.into_iter().flat_map(Self::iter).filter(|(tag, _)| is_left_alone(*tag));
        let of_move = of_move.filter(|(tag, _)| is_carried(*tag));
        let stamp = stamp.value(state);
        let mut stream = AttributeStream::default();
        others.for_each(|(tag, value)| stream.push(tag, &[&value]));
        of_move.for_each(|(tag, value)| stream.push(tag, &[&value]));
        stream.push(Tag::MOVE, &[&stamp]);
        stream.keep()
    }

    /// What a node has of a job whose attributes it lost, when it is told the rest.
    pub fn with_rest(self, told: Attributes<'_>) -> Option<KeptAttributes> {
        match self.move_stamp() {
            Some(stamp) => Attributes::after_move(Some(told), stamp, self.iter()),
            None => {
                let is_taken = |tag| is_left_alone(tag) || tag == Tag::LIMITS;
                keep(told.iter().filter(|(tag, _)| is_taken(*tag)))
            }
        }
    }
}

/// MOVED: what a job is since its last move, as far as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved<'a> {
    pub id: JobId,
    /// `None` by a sender that knows of no move.
    pub stamp: Option<MoveStamp>,
    pub is_queued: bool,
    /// Whether the hold is for a client that has the job, and not a delay.
    pub is_lease: bool,
    /// The job's flags, of which those of its priority count.
    pub flags: u8,
    pub nacks: u16,
    pub deliveries: u16,
    pub ttl_secs: u32,
    /// For how long the sender holds it; 0 when it does not.
    pub hold_secs: u32,
    pub queue: &'a [u8],
    /// Limits, and facts or history.
    pub attributes: Attributes<'a>,
}

const IS_QUEUED: u8 = 1;
const IS_LEASE: u8 = 2;

impl<'a> Moved<'a> {
    /// Takes everything that is left.
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let id = reader.job_id()?;
        let (at, by) = (UnixMs(reader.u64_be()?), reader.node_id()?);
        let stamp = MoveStamp::new(at, by);
        if stamp.is_none() && at.0 > 0 {
            return Err(DecodeError::TooLong);
        }
        let said = reader.u8()?;
        Ok(Self {
            id,
            stamp,
            is_queued: said & IS_QUEUED != 0,
            is_lease: said & IS_LEASE != 0,
            flags: reader.u8()?,
            nacks: reader.u16_be()?,
            deliveries: reader.u16_be()?,
            ttl_secs: reader.u32_be()?,
            hold_secs: reader.u32_be()?,
            queue: {
                let len = usize::try_from(reader.u32_be()?).map_err(|_| DecodeError::TooLong)?;
                if len > limits::QUEUE_NAME_MAX {
                    return Err(DecodeError::TooLong);
                }
                reader.take(len)?
            },
            attributes: Attributes::decode(reader.rest())?,
        })
    }

    /// The body of its message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let no_move = MoveStamp { at: UnixMs(0), by: NodeId([0; 40]) };
        let stamp = self.stamp.unwrap_or(no_move);
        let said =
            if self.is_queued { IS_QUEUED } else { 0 } | if self.is_lease { IS_LEASE } else { 0 };
        let queue_len = u32::try_from(self.queue.len()).expect("a queue's name is within BULK_MAX");
        let parts: [&[u8]; 11] = [
            &self.id.0,
            &stamp.at.0.to_be_bytes(),
            &stamp.by.0,
            &[said, self.flags],
            &self.nacks.to_be_bytes(),
            &self.deliveries.to_be_bytes(),
            &self.ttl_secs.to_be_bytes(),
            &self.hold_secs.to_be_bytes(),
            &queue_len.to_be_bytes(),
            self.queue,
            self.attributes.entries().as_flattened(),
        ];
        parts.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(at: u64, by: u8) -> MoveStamp {
        MoveStamp { at: UnixMs(at), by: NodeId([by; 40]) }
    }

    fn kept(parts: &[(Tag, &'static [u8])]) -> KeptAttributes {
        keep(parts.iter().map(|(tag, value)| (*tag, Cow::Borrowed(*value))))
            .expect("there are some")
    }

    #[test]
    fn the_later_move_is_the_higher_and_of_two_at_once_one_is() {
        assert!(stamp(2, b'a') > stamp(1, b'b') && stamp(2, b'b') > stamp(2, b'a'));
        assert!(Some(stamp(1, b'a')) > None);
    }

    #[test]
    fn digests_differ_and_none_is_that_of_no_move() {
        let digests: std::collections::BTreeSet<u16> =
            (0..2000).map(|at| stamp(1_800_000_000_000 + at, b'a').digest()).collect();
        assert!(digests.len() > 1900 && !digests.contains(&0), "{}", digests.len());
        assert_ne!(stamp(1, b'a').digest(), stamp(1, b'b').digest());
    }

    #[test]
    fn a_move_replaces_limits_and_facts_and_leaves_the_rest() {
        let before = kept(&[(Tag::USER, b"\x01ab"), (Tag::LIMITS, b"3"), (Tag(77), b"?")]);
        let of_move = kept(&[(Tag::LIMITS, b"5"), (Tag::FACTS, b"\0why"), (Tag::USER, b"\x01xy")]);
        let rest = Some(before.as_attributes());
        let moved = Attributes::after_move(rest, stamp(7, b'a'), of_move.as_attributes().iter());
        let moved = moved.expect("a record can hold it");
        let moved = moved.as_attributes();
        assert_eq!((moved.move_stamp(), moved.rest()), (Some(stamp(7, b'a')), Rest::Known));
        assert_eq!(moved.find(Tag::LIMITS).as_deref(), Some(&b"5"[..]));
        assert_eq!(moved.facts().as_deref(), Some(&b"\0why"[..]));
        assert_eq!((moved.users().count(), moved.find(Tag(77)).is_some()), (1, true));
        assert_eq!(moved.of_move().expect("there are some").as_attributes().iter().count(), 2);
    }

    #[test]
    fn a_job_that_lost_its_attributes_gets_them_back_beside_its_move() {
        let of_move = kept(&[(Tag::FACTS, b"\x01past")]);
        let lost = Attributes::after_move(None, stamp(7, b'a'), of_move.as_attributes().iter());
        let lost = lost.expect("a record can hold it");
        assert_eq!(lost.as_attributes().rest(), Rest::Lost);
        let told = kept(&[(Tag::USER, b"\x01ab"), (Tag::FACTS, b"\0older")]);
        let whole =
            lost.as_attributes().with_rest(told.as_attributes()).expect("a record can hold it");
        let whole = whole.as_attributes();
        assert_eq!((whole.rest(), whole.users().count()), (Rest::Known, 1));
        assert_eq!(whole.move_stamp(), Some(stamp(7, b'a')));
        assert_eq!(whole.find(Tag::FACTS).as_deref(), Some(&b"\x01past"[..]));
        // What was told of a move is not the move.
        let moved =
            Attributes::after_move(Some(told.as_attributes()), stamp(9, b'b'), whole.iter());
        let moved = moved.expect("a record can hold it");
        let alone =
            Attributes::default().with_rest(moved.as_attributes()).expect("a record can hold it");
        assert_eq!(alone.as_attributes().move_stamp(), None);
        assert_eq!(alone.as_attributes().users().count(), 1);
    }
}
