//! NODE_INFO: what a node says of itself beyond its heartbeats.
//!
//! ```text
//! (tag u8, length u16, bytes) up to the end; numbers are big endian
//! 1  name of the cluster
//! 2  zone
//! 3  version of the server
//! 4  share of maxmemory in use, a byte of percent
//! 5  share of its time that the loop is at work, a byte of percent
//! 6  nodes that it forgot as failing: of each the ID, and u64 when, in ms since 1970
//! ```
//!
//! What is empty or not known is left out; tags that are not known are skipped. Texts have at most
//! [`NODE_INFO_TEXT_MAX`] printable bytes: others are left out when they are read, since they stand
//! in replies and logs.

use super::reader::{DecodeError, Reader};
use crate::base::ids::NodeId;
use crate::base::limits::BUS_FRAME_UNKNOWN_MAX;
use crate::base::time::UnixMs;

/// Longest name of a cluster and longest version, in bytes.
pub const NODE_INFO_TEXT_MAX: usize = 64;
/// Most forgotten nodes that one message names: who does not know its sender takes no long ones.
pub const FORGOTTEN_MAX: usize = 200;
/// Longest name of a zone, in bytes.
pub const ZONE_MAX: usize = 32;

const CLUSTER_NAME: u8 = 1;
const ZONE: u8 = 2;
const VERSION: u8 = 3;
const MEMORY: u8 = 4;
const LOOP: u8 = 5;
const FORGOTTEN: u8 = 6;
const FORGOTTEN_LEN: usize = 48;
/// Longest message, in bytes: more than all tags of today, since others may follow.
const LEN_MAX: usize = 32 * 1024;
const _: () = assert!(FORGOTTEN_MAX * FORGOTTEN_LEN < BUS_FRAME_UNKNOWN_MAX - 1024);

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo<'a> {
    /// Empty where it has none.
    pub cluster_name: &'a str,
    /// Empty where it has none.
    pub zone: &'a str,
    pub version: &'a str,
    /// `None` without a limit.
    pub memory_percent: Option<u8>,
    pub loop_percent: Option<u8>,
    pub forgotten: ForgottenNodes<'a>,
}

/// Nodes that were forgotten as failing, and when, as they stand in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenNodes<'a>(&'a [u8]);

impl<'a> ForgottenNodes<'a> {
    /// Those that were written by [`ForgottenNodes::append`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends one, to be read by [`ForgottenNodes::iter`].
    pub fn append(bytes: &mut Vec<u8>, id: &NodeId, at: UnixMs) {
        bytes.extend_from_slice(&id.0);
        bytes.extend_from_slice(&at.0.to_be_bytes());
    }

    /// Each of them; who has no right ID is left out.
    pub fn iter(self) -> impl Iterator<Item = (NodeId, UnixMs)> {
        self.0.chunks_exact(FORGOTTEN_LEN).take(FORGOTTEN_MAX).filter_map(|entry| {
            let mut reader = Reader::new(entry);
            let id = reader.node_id().ok()?;
            let is_valid = id.0.iter().all(u8::is_ascii_alphanumeric);
            is_valid.then_some((id, UnixMs(reader.u64_be().ok()?)))
        })
    }
}

impl<'a> NodeInfo<'a> {
    /// Takes everything that is left.
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if reader.len() > LEN_MAX {
            return Err(DecodeError::TooLong);
        }
        let mut info = Self::default();
        while !reader.is_empty() {
            let tag = reader.u8()?;
            let len = usize::from(reader.u16_be()?);
            let bytes = reader.take(len)?;
            match tag {
                CLUSTER_NAME => info.cluster_name = text_of(bytes, NODE_INFO_TEXT_MAX),
                ZONE => info.zone = text_of(bytes, ZONE_MAX),
                VERSION => info.version = text_of(bytes, NODE_INFO_TEXT_MAX),
                MEMORY => info.memory_percent = percent_of(bytes),
                LOOP => info.loop_percent = percent_of(bytes),
                FORGOTTEN => info.forgotten = ForgottenNodes(bytes),
                _ => {}
            }
        }
        Ok(info)
    }

    /// The body of its message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut push = |tag: u8, bytes: &[u8]| {
            if !bytes.is_empty() {
                body.push(tag);
                body.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
                body.extend_from_slice(bytes);
            }
        };
        push(CLUSTER_NAME, text_of(self.cluster_name.as_bytes(), NODE_INFO_TEXT_MAX).as_bytes());
        push(ZONE, text_of(self.zone.as_bytes(), ZONE_MAX).as_bytes());
        push(VERSION, text_of(self.version.as_bytes(), NODE_INFO_TEXT_MAX).as_bytes());
        push(MEMORY, self.memory_percent.as_slice());
        push(LOOP, self.loop_percent.as_slice());
        push(FORGOTTEN, self.forgotten.0);
        body
    }
}

/// Whether a text may be the name of a zone or a cluster: printable, without spaces, not too long.
pub fn is_node_text(text: &[u8], len_max: usize) -> bool {
    text.len() <= len_max && text.iter().all(u8::is_ascii_graphic)
}

fn text_of(bytes: &[u8], len_max: usize) -> &str {
    if is_node_text(bytes, len_max) { core::str::from_utf8(bytes).unwrap_or("") } else { "" }
}

fn percent_of(bytes: &[u8]) -> Option<u8> {
    bytes.first().copied().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::bus::{self, HEADER_LEN, Header, Message, MessageFlags, NodeFlags};

    fn header() -> Header {
        let sender = NodeId([b'a'; 40]);
        let (flags, message_flags) = (NodeFlags::MYSELF, MessageFlags::NONE);
        Header { sender, ip: None, port: 1, flags, state: 0, message_flags, reserved: [0; 34] }
    }

    fn read(frame: &[u8]) -> Result<NodeInfo<'_>, DecodeError> {
        match bus::decode(frame)?.1 {
            Message::NodeInfo(info) => Ok(info),
            other => panic!("another message: {other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read_and_unknown_tags_are_skipped() {
        let nodes = [1, 2].map(|n| (NodeId::from_random([n; 20]), UnixMs(u64::from(n))));
        let mut forgotten = Vec::new();
        nodes.iter().for_each(|(id, at)| ForgottenNodes::append(&mut forgotten, id, *at));
        assert!(ForgottenNodes(&forgotten).iter().eq(nodes));
        forgotten[0] = b' ';
        assert!(ForgottenNodes(&forgotten).iter().eq([nodes[1]]));
        let info = NodeInfo {
            cluster_name: "prod",
            zone: "eu-1a",
            version: "0.2.0",
            memory_percent: Some(76),
            loop_percent: None,
            forgotten: ForgottenNodes(&forgotten),
        };
        let mut frame = Vec::new();
        bus::encode(&mut frame, &header(), &Message::NodeInfo(info));
        assert_eq!(read(&frame), Ok(info));
        frame.extend_from_slice(&[200, 0, 2, 1, 2]);
        let len = u32::try_from(frame.len()).expect("short").to_be_bytes();
        frame[4..8].copy_from_slice(&len);
        assert_eq!(read(&frame), Ok(info));
    }

    #[test]
    fn texts_that_nobody_should_read_and_wrong_numbers_are_left_out() {
        let mut frame = Vec::new();
        bus::encode(&mut frame, &header(), &Message::NodeInfo(NodeInfo::default()));
        assert_eq!(frame.len(), HEADER_LEN, "nothing to say");
        for entry in
            [&[2, 0, 3, b'a', 27, b'b'][..], &[4, 0, 1, 101], &[2, 0, 2, b' ', b'b'], &[5, 0, 0]]
        {
            let mut frame = [&frame[..], entry].concat();
            let len = u32::try_from(frame.len()).expect("short").to_be_bytes();
            frame[4..8].copy_from_slice(&len);
            assert_eq!(read(&frame), Ok(NodeInfo::default()));
            frame.pop();
            frame[7] -= 1;
            assert!(read(&frame).is_err() || entry[0] == 5, "cut off");
        }
        frame.resize(HEADER_LEN + 4 * 10_000, 0);
        let len = u32::try_from(frame.len()).expect("short").to_be_bytes();
        frame[4..8].copy_from_slice(&len);
        assert_eq!(read(&frame), Err(DecodeError::TooLong));
    }
}
