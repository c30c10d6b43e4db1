//! Attributes of a job: what its record carries beside the fields that the C server knows.
//!
//! They stand behind the IDs of the job's nodes, in entries as long as an ID. The C server
//! looks every entry up among the nodes that it knows, does not find these, and skips them.
//!
//! ```text
//! entry    u8   0, with which the ID of no node begins
//!          u8   index: the entries of a record count from 0
//!          38   a piece of the stream
//! stream   attributes, one behind another:
//!          u8   tag
//!          u16  length, little endian
//!               value, of that length
//!          or u8 0, which is padding
//! ```
//!
//! The tags stand in [`super::extensions`]. A user attribute is a u8 with the length of its name, the
//! name and the value; a note is text. A tag that is not known here is passed on as it is.
//!
//! A job with attributes has [`super::job_record::FLAG_HAD_ATTRIBUTES`] in its record. The
//! C server keeps the flag, and so shows that it lost them. Without it nobody looks for
//! attributes.
//!
//! Invariant: attributes never make a record invalid. A record whose entries or stream are
//! broken has no attributes, and is a job all the same.

use std::borrow::Cow;
use std::iter;

use super::extensions::tag;
use super::reader::{DecodeError, Reader};
use crate::base::ids::{JobId, NODE_ID_LEN};

/// Most attributes that a user may give a job.
pub const USER_ATTRIBUTES_MAX: usize = 16;
/// Longest name of a user attribute, in bytes.
pub const USER_NAME_MAX: usize = 32;
/// Most bytes of a job's user attributes, names and values together.
pub const USER_BYTES_MAX: usize = 1024;

/// What an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u8);

impl Tag {
    /// A name and a value, given by the job's producer.
    pub const USER: Self = Self(tag::USER);
    /// How often the job may be delivered, and where it goes then.
    pub const LIMITS: Self = Self(tag::LIMITS);
    /// Why the job is dead, or was; see [`super::moved`].
    pub const FACTS: Self = Self(tag::FACTS);
    /// Why a client gave the job back last.
    pub const NOTE: Self = Self(tag::NOTE);
    /// When the job was last moved to another queue, and by whom.
    pub const MOVE: Self = Self(tag::MOVE);
    /// A checksum of the append only file.
    pub const SUM: Self = Self(tag::SUM);
}

/// Bytes of the stream in one entry.
pub(super) const PIECE_LEN: usize = NODE_ID_LEN - 2;
/// Most entries that a job has: an index has 8 bits, and the last one is left for a checksum.
const ENTRIES_MAX: usize = 255;

const PADDING: u8 = 0;

/// As long as the ID of a node.
pub(super) type Entry = [u8; NODE_ID_LEN];

/// The attributes of one record, as they stand in its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    entries: &'a [Entry],
}

impl<'a> Attributes<'a> {
    /// Splits the entries of a record into the IDs of nodes and the attributes behind them.
    pub(super) fn split_off(entries: &'a [Entry]) -> (&'a [Entry], Self) {
        let count = entries.iter().rev().take_while(|entry| entry.starts_with(&[0])).count();
        let (nodes, entries) = entries.split_at(entries.len() - count);
        (nodes, Self { entries })
    }

    /// The entries, broken or not.
    pub(super) fn entries(self) -> &'a [Entry] {
        self.entries
    }

    /// Whether there is nothing behind the nodes. Where there is, it may be broken.
    pub fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes their entries have.
    pub fn byte_count(self) -> usize {
        self.entries.len() * NODE_ID_LEN
    }

    /// Takes entries that stand alone, broken or not.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.as_chunks() {
            (entries, []) if entries.len() <= ENTRIES_MAX => Ok(Self { entries }),
            _ => Err(DecodeError::BadCount),
        }
    }

    /// Copies what is to be kept of them: all but checksums. `None` when that is nothing, or
    /// more than a record has room for.
    pub fn to_kept(self) -> Option<KeptAttributes> {
        keep(self.iter().filter(|(tag, _)| *tag != Tag::SUM))
    }

    /// The value of the first attribute with this tag.
    pub fn find(self, wanted: Tag) -> Option<Cow<'a, [u8]>> {
        self.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }

    /// Gives the user attributes in their order, each as [`user_attribute`] reads it.
    pub fn users(self) -> impl Iterator<Item = Cow<'a, [u8]>> {
        self.iter().filter_map(|(tag, value)| {
            (tag == Tag::USER && user_attribute(&value).is_some()).then_some(value)
        })
    }

    /// The note, if there is one.
    pub fn note(self) -> Option<Cow<'a, [u8]>> {
        self.find(Tag::NOTE)
    }

    /// Copies what is to be kept of them, with another note. `None` when that is more than a
    /// record has room for.
    pub fn with_note(self, note: &[u8]) -> Option<KeptAttributes> {
        let others = self.iter().filter(|(tag, _)| ![Tag::SUM, Tag::NOTE].contains(tag));
        keep(others.chain([(Tag::NOTE, Cow::Borrowed(note))]))
    }

    /// Gives each attribute in its order. There are none when an index is not the next one
    /// or the stream ends within an attribute. A value is borrowed if it stands in one entry.
    pub fn iter(self) -> impl Iterator<Item = (Tag, Cow<'a, [u8]>)> {
        let entries = if self.is_well_formed() { self.entries } else { &[] };
        Stream { entries, at: 0 }.flatten()
    }

    /// The value of the checksum, which has the last entry to itself. Of a broken stream it is
    /// what stands there: that something is broken, the checksum is to show.
    pub(super) fn sum(self) -> Option<Cow<'a, [u8]>> {
        if self.is_well_formed() {
            return self.iter().last().filter(|(tag, _)| *tag == Tag::SUM).map(|(_, value)| value);
        }
        let mut last = Stream { entries: self.entries.last_chunk::<1>()?, at: 0 };
        last.next().flatten().filter(|(tag, _)| *tag == Tag::SUM).map(|(_, value)| value)
    }

    /// These without the checksum.
    pub fn without_sum(self) -> Self {
        match (self.sum(), self.entries.split_last()) {
            (Some(_), Some((_, entries))) => Self { entries },
            _ => self,
        }
    }

    fn is_well_formed(self) -> bool {
        let mut indices = self.entries.iter().map(|entry| usize::from(entry[1])).zip(0..);
        let mut stream = Stream { entries: self.entries, at: 0 };
        indices.all(|(index, expected)| index == expected) && stream.all(|read| read.is_some())
    }
}

/// The name and the value of a user attribute; `None` if it is none.
pub fn user_attribute(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name_len, rest) = value.split_first()?;
    rest.split_at_checked(usize::from(*name_len))
}

/// A stream being written.
#[derive(Debug, Default)]
pub struct AttributeStream(Vec<u8>);

impl AttributeStream {
    /// Whether nothing has been written yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends an attribute whose value consists of these parts.
    ///
    /// # Panics
    /// When the value has more than 65,535 bytes.
    pub fn push(&mut self, tag: Tag, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u16::try_from(len).expect("a value's length has 16 bits");
        self.0.push(tag.0);
        self.0.extend_from_slice(&len.to_le_bytes());
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    /// Appends a user attribute.
    ///
    /// # Panics
    /// When the name has more than 255 bytes, or both together more than 65,534.
    pub fn push_user(&mut self, name: &[u8], value: &[u8]) {
        let name_len = u8::try_from(name.len()).expect("a name's length has 8 bits");
        self.push(Tag::USER, &[&[name_len], name, value]);
    }

    /// Keeps what was written. `None` when that is nothing, or more than a record has room for.
    pub fn keep(self) -> Option<KeptAttributes> {
        let count = self.0.len().div_ceil(PIECE_LEN);
        if count == 0 || count > ENTRIES_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(count * NODE_ID_LEN);
        append_entries(&mut bytes, 0, &self.0);
        Some(KeptAttributes(bytes.as_chunks().0.into()))
    }
}

/// Keeps some attributes. `None` when there are none, or more than a record can hold.
pub(super) fn keep<'a>(
    attributes: impl IntoIterator<Item = (Tag, Cow<'a, [u8]>)>,
) -> Option<KeptAttributes> {
    let mut stream = AttributeStream::default();
    attributes.into_iter().for_each(|(tag, value)| stream.push(tag, &[&value]));
    stream.keep()
}

/// The attributes of a job that is kept: entries, as its next record has them.
///
/// Invariant: there is at least one, no checksum, and room for one more entry in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAttributes(Box<[Entry]>);

impl KeptAttributes {
    /// Gives them as those of a record.
    pub fn as_attributes(&self) -> Attributes<'_> {
        Attributes { entries: &self.0 }
    }
}

/// Appends to the answer to a question for attributes those of a job.
///
/// ```text
/// 40   job ID
/// u8   number of entries
///      the entries
/// ```
///
/// # Panics
/// When there are more than 255 entries; of a job that is kept there never are.
pub fn append_answer(out: &mut Vec<u8>, id: &JobId, attributes: Attributes<'_>) {
    let count = u8::try_from(attributes.entries.len()).expect("a job has at most 255 entries");
    out.extend_from_slice(&id.0);
    out.push(count);
    out.extend_from_slice(attributes.entries.as_flattened());
}

/// Gives the jobs of such an answer, and their attributes, up to where it is malformed.
pub fn read_answer(payload: &[u8]) -> impl Iterator<Item = (JobId, Attributes<'_>)> {
    let mut reader = Reader::new(payload);
    iter::from_fn(move || {
        let id = reader.job_id().ok()?;
        let count = usize::from(reader.u8().ok()?);
        let (entries, _) = reader.take(count * NODE_ID_LEN).ok()?.as_chunks();
        Some((id, Attributes { entries }))
    })
}

/// Reads a stream. What ends within an attribute gives `None` in its place, and ends.
struct Stream<'a> {
    entries: &'a [Entry],
    at: usize,
}

impl<'a> Stream<'a> {
    fn take(&mut self, len: usize) -> Option<Cow<'a, [u8]>> {
        let (at, end) = (self.at, self.at + len);
        if end > self.entries.len() * PIECE_LEN {
            return None;
        }
        self.at = end;
        let offset = at % PIECE_LEN;
        let piece = self.entries.get(at / PIECE_LEN).map(piece_of);
        if let Some(value) = piece.and_then(|piece| piece.get(offset..offset + len)) {
            return Some(Cow::Borrowed(value));
        }
        Some(self.entries.iter().flat_map(piece_of).skip(at).take(len).copied().collect())
    }

    fn take_attribute(&mut self, tag: u8) -> Option<(Tag, Cow<'a, [u8]>)> {
        let len = self.take(2)?;
        let len = u16::from_le_bytes(len.as_ref().try_into().ok()?);
        Some((Tag(tag), self.take(usize::from(len))?))
    }
}

impl<'a> Iterator for Stream<'a> {
    type Item = Option<(Tag, Cow<'a, [u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let tag = *self.take(1)?.first()?;
            if tag != PADDING {
                let attribute = self.take_attribute(tag);
                if attribute.is_none() {
                    self.at = self.entries.len() * PIECE_LEN;
                }
                return Some(attribute);
            }
        }
    }
}

fn piece_of(entry: &Entry) -> &[u8; PIECE_LEN] {
    let [_, _, piece @ ..] = entry;
    piece
}

/// Appends entries with this stream, to stand behind the nodes of a record and
/// `entries_before` entries of other attributes.
///
/// # Panics
/// When there are more than 256 entries then.
pub(super) fn append_entries(out: &mut Vec<u8>, entries_before: usize, stream: &[u8]) {
    let (pieces, rest) = stream.as_chunks();
    let mut count = entries_before;
    for piece in pieces {
        out.extend_from_slice(&entry_of(count, *piece));
        count += 1;
    }
    if !rest.is_empty() {
        let mut piece = [PADDING; PIECE_LEN];
        piece.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        out.extend_from_slice(&entry_of(count, piece));
    }
}

fn entry_of(index: usize, piece: [u8; PIECE_LEN]) -> Entry {
    let mut entry = [0; NODE_ID_LEN];
    entry[1] = u8::try_from(index).expect("a record has at most 256 entries");
    entry[2..].copy_from_slice(&piece);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::NodeId;
    use proptest::prelude::*;

    type Listed = Vec<(Tag, Vec<u8>)>;

    fn stream_of(attributes: &Listed) -> AttributeStream {
        let mut stream = AttributeStream::default();
        attributes.iter().for_each(|(tag, value)| stream.push(*tag, &[value]));
        stream
    }

    fn encode(attributes: &Listed) -> Vec<Entry> {
        stream_of(attributes).keep().map_or(Vec::new(), |kept| kept.0.to_vec())
    }

    fn decode(entries: &[Entry]) -> Listed {
        let (nodes, attributes) = Attributes::split_off(entries);
        assert!(nodes.iter().all(|node| node[0] != 0) || attributes == Attributes::default());
        attributes.iter().map(|(tag, value)| (tag, value.into_owned())).collect()
    }

    fn node(byte: u8) -> Entry {
        NodeId::from_random([byte; 20]).0
    }

    #[test]
    fn an_attribute_stands_where_the_drawing_says() {
        let entries = encode(&vec![(Tag(1), vec![b'x'; 36]), (Tag(9), vec![])]);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0][..6], [0, 0, 1, 36, 0, b'x']);
        assert_eq!(entries[1][..7], [0, 1, b'x', 9, 0, 0, 0]);
    }

    #[test]
    fn nodes_stand_before_the_attributes_and_are_none() {
        let listed = vec![(Tag(200), b"value".to_vec())];
        assert_eq!(decode(&[vec![node(1), node(2)], encode(&listed)].concat()), listed);
        assert_eq!(decode(&[node(1), node(2)]), []);
        assert_eq!(decode(&[]), []);
        // Nothing stands behind attributes but attributes.
        assert_eq!(decode(&[encode(&listed), vec![node(1)]].concat()), []);
    }

    #[test]
    fn more_attributes_may_be_added_in_entries_of_their_own() {
        let (first, second) = (vec![(Tag(1), vec![b'1'; 40])], vec![(Tag(2), vec![b'2'])]);
        let mut bytes = encode(&first).concat();
        append_entries(&mut bytes, 2, &stream_of(&second).0);
        let (entries, _) = bytes.as_chunks();
        assert_eq!(entries[2][..6], [0, 2, 2, 1, 0, b'2']);
        assert_eq!(decode(entries), [first, second].concat());
    }

    #[test]
    fn what_is_kept_has_no_checksum_and_no_gaps_and_room_for_one_more_entry() {
        let listed = vec![(Tag(1), vec![b'1'; 40]), (Tag(77), b"unknown".to_vec())];
        let mut bytes = encode(&listed).concat();
        append_entries(&mut bytes, 2, &stream_of(&vec![(Tag::SUM, vec![0; 35])]).0);
        let kept = Attributes { entries: bytes.as_chunks().0 }.to_kept().expect("some are left");
        assert_eq!(kept.0.to_vec(), encode(&listed));
        let sum_alone = encode(&vec![(Tag::SUM, vec![0; 35])]);
        assert_eq!(Attributes { entries: &sum_alone }.to_kept(), None);
        assert_eq!(Attributes::default().to_kept(), None);
        // 255 entries and a byte, of which 3 are the tag and the length.
        for (len, is_kept) in [(255 * 38 - 3, true), (255 * 38 - 2, false)] {
            assert_eq!(stream_of(&vec![(Tag(9), vec![b'x'; len])]).keep().is_some(), is_kept);
        }
    }

    #[test]
    fn a_note_replaces_the_one_before_and_nothing_else() {
        let mut stream = AttributeStream::default();
        stream.push_user(b"type", b"text");
        let kept = stream.keep().expect("it has one");
        assert_eq!(kept.as_attributes().note(), None);
        let first = kept.as_attributes().with_note(b"no route").expect("it has room");
        let second = first.as_attributes().with_note(b"timed out").expect("it has room");
        assert_eq!(second.as_attributes().note().as_deref(), Some(&b"timed out"[..]));
        assert_eq!(second.as_attributes().users().count(), 1);
        assert_eq!(second.as_attributes().iter().count(), 2);
    }

    #[test]
    fn user_attributes_are_told_from_others_and_read_back() {
        let mut stream = AttributeStream::default();
        stream.push_user(b"traceparent", b"00-abc-01");
        stream.push(Tag(2), &[b"\x03abc"]);
        stream.push(Tag::USER, &[b"\x09short"]);
        stream.push_user(b"empty", b"");
        let kept = stream.keep().expect("it has some");
        let users: Vec<_> = kept.as_attributes().users().collect();
        let pairs: Vec<_> = users.iter().filter_map(|user| user_attribute(user)).collect();
        assert_eq!(pairs, [(&b"traceparent"[..], &b"00-abc-01"[..]), (b"empty", b"")]);
        assert_eq!(kept.as_attributes().iter().count(), 4, "the others are kept");
    }

    #[test]
    fn an_answer_reads_back_up_to_where_it_is_cut_off() {
        let id = |text: &[u8]| JobId::parse(text).expect("valid");
        let first = id(b"D-4f34f40c-BSFzs+DYWKutLatQkA1Cwov4-ffff");
        let second = id(b"D-4f34f40c-CSFzs+DYWKutLatQkA1Cwov4-ffff");
        let long = encode(&vec![(Tag(1), vec![b'x'; 50])]);
        let mut payload = Vec::new();
        append_answer(&mut payload, &first, Attributes { entries: &long });
        append_answer(&mut payload, &second, Attributes::default());
        let read: Vec<_> = read_answer(&payload).collect();
        assert_eq!(read, [(first, Attributes { entries: &long }), (second, Attributes::default())]);
        for len in 0..payload.len() {
            let expected = usize::from(len >= 40 + 1 + 80);
            assert_eq!(read_answer(&payload[..len]).count(), expected, "{len} bytes");
        }
    }

    #[test]
    fn a_broken_stream_is_no_attributes() {
        let entries = encode(&vec![(Tag(1), vec![b'x'; 50]), (Tag(2), vec![b'y'; 10])]);
        assert_eq!(entries.len(), 2);
        assert_eq!(decode(&entries[..1]), [], "an entry is missing");
        assert_eq!(decode(&entries[1..]), [], "the first is missing");
        assert_eq!(decode(&[entries[1], entries[0]]), [], "they are not in order");
        assert_eq!(decode(&[entries[0], entries[0]]), [], "one is there twice");
        let mut longer = entries.clone();
        longer[0][3] = 200;
        assert_eq!(decode(&longer), [], "a length goes beyond the end");
    }

    proptest! {
        #[test]
        fn attributes_read_back_whatever_their_tags(
            listed in prop::collection::vec(
                (1u8..=255).prop_flat_map(|tag| {
                    (Just(Tag(tag)), prop::collection::vec(any::<u8>(), 0..120))
                }),
                0..20,
            ),
            nodes in 0u8..4,
        ) {
            let entries: Vec<Entry> = (0..nodes).map(node).chain(encode(&listed)).collect();
            prop_assert_eq!(decode(&entries), listed);
        }

        #[test]
        fn any_entries_are_read_or_are_no_attributes(
            entries in prop::collection::vec(any::<[u8; 38]>(), 0..6),
            breaks in any::<bool>(),
        ) {
            let index = |at: usize| if breaks && at == 1 { 7 } else { at as u8 };
            let entries: Vec<Entry> = entries
                .iter()
                .enumerate()
                .map(|(at, piece)| {
                    let mut entry = [0; NODE_ID_LEN];
                    entry[1] = index(at);
                    entry[2..].copy_from_slice(piece);
                    entry
                })
                .collect();
            let read = decode(&entries);
            prop_assert!(!breaks || entries.len() < 2 || read.is_empty());
            // What was read is passed on as it is.
            prop_assert_eq!(decode(&encode(&read)), read);
        }
    }
}
