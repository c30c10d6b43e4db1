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
//! Tags, for good: 1 user attribute, 2 limits, 3 dead-letter facts, 4 note, 5 move stamp,
//! 6 checksum, which never leaves the file ([`super::aof_sum`]). A tag that is not known
//! here is passed on as it is.
//!
//! Invariant: attributes never make a record invalid. A record whose entries or stream are
//! broken has no attributes, and is a job all the same.

use std::borrow::Cow;

use crate::base::ids::NODE_ID_LEN;

/// What an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u8);

impl Tag {
    /// A checksum of the append only file.
    pub const SUM: Self = Self(6);
}

/// Bytes of the stream in one entry.
pub(super) const PIECE_LEN: usize = NODE_ID_LEN - 2;

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

    /// Gives each attribute in its order. There are none when an index is not the next one
    /// or the stream ends within an attribute. A value is borrowed if it stands in one entry.
    pub fn iter(self) -> impl Iterator<Item = (Tag, Cow<'a, [u8]>)> {
        let entries = if self.is_well_formed() { self.entries } else { &[] };
        Stream { entries, at: 0 }.flatten()
    }

    /// These without the checksum, which has the last entry to itself.
    pub fn without_sum(self) -> Self {
        match (self.iter().last(), self.entries.split_last()) {
            (Some((Tag::SUM, _)), Some((_, entries))) => Self { entries },
            _ => self,
        }
    }

    fn is_well_formed(self) -> bool {
        let mut indices = self.entries.iter().map(|entry| usize::from(entry[1])).zip(0..);
        let mut stream = Stream { entries: self.entries, at: 0 };
        indices.all(|(index, expected)| index == expected) && stream.all(|read| read.is_some())
    }
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

    fn stream_of(attributes: &Listed) -> Vec<u8> {
        let mut stream = Vec::new();
        for (tag, value) in attributes {
            stream.push(tag.0);
            stream.extend_from_slice(&(value.len() as u16).to_le_bytes());
            stream.extend_from_slice(value);
        }
        stream
    }

    fn encode(attributes: &Listed) -> Vec<Entry> {
        let mut bytes = Vec::new();
        append_entries(&mut bytes, 0, &stream_of(attributes));
        let (entries, rest) = bytes.as_chunks();
        assert!(rest.is_empty(), "entries are whole");
        entries.to_vec()
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
        append_entries(&mut bytes, 2, &stream_of(&second));
        let (entries, _) = bytes.as_chunks();
        assert_eq!(entries[2][..6], [0, 2, 2, 1, 0, b'2']);
        assert_eq!(decode(entries), [first, second].concat());
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
