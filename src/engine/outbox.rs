//! Everything the engine asks of the outside world, in lanes.
//!
//! The engine only appends. The driver drains the lanes at the end of a turn, and before that
//! when much is in them, always in this order: AOF bytes, save-nodes, frames, link requests,
//! replies. Persist, then speak. Clients that are resumed go on with their requests before.
//! Everything is encoded when it is emitted: a value that names
//! a job deleted later in the same turn would dangle.

use core::net::SocketAddr;
use core::ops::Range;

use crate::base::ids::{ClientId, LinkId};
use crate::proto::reply::{ReplyWriter, Resp};

#[derive(Default)]
pub struct Outbox {
    /// Records for the append only file, encoded.
    pub aof: Vec<u8>,
    /// The cluster's membership changed: nodes.conf has to be written.
    pub save_nodes: bool,
    pub frames: Frames,
    pub links: Vec<LinkRequest>,
    pub replies: Replies,
    /// Clients whose wait is over, answered or not; their next command may run.
    pub resumed: Vec<ClientId>,
}

/// Frames for peers. One frame may go to many links and is encoded once.
#[derive(Default)]
pub struct Frames {
    pub bytes: Vec<u8>,
    pub sends: Vec<(LinkId, Range<usize>)>,
}

/// Names a connection that the engine requested, until it has a [`LinkId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectToken(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkRequest {
    /// Connect to a peer's bus; answered by `link_up` or `link_failed`.
    Connect { token: ConnectToken, addr: SocketAddr },
    /// Give up a connect, if it is still under way; not answered.
    Cancel(ConnectToken),
    /// Close a link; not answered.
    Drop(LinkId),
}

/// Replies of one turn in one arena.
#[derive(Default)]
pub struct Replies {
    pub bytes: Vec<u8>,
    pub segments: Vec<Segment>,
    /// What muted clients are not sent: the last of it, until it is written over.
    pub muted: Vec<u8>,
}

/// The replies from `start` up to the next segment's start belong to `client`.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub client: ClientId,
    pub start: usize,
}

impl Replies {
    /// A writer whose output goes to `client`, after everything written to it before; or
    /// nowhere, when the client is muted.
    pub fn to(&mut self, client: ClientId, resp: Resp) -> ReplyWriter<'_> {
        if resp == Resp::Muted {
            self.muted.clear();
            return ReplyWriter::new(&mut self.muted, resp);
        }
        self.open_segment(client);
        ReplyWriter::new(&mut self.bytes, resp)
    }

    /// Sends `client` what is encoded already, after everything written to it before; or
    /// nothing, when the client is muted.
    pub fn append(&mut self, client: ClientId, resp: Resp, encoded: &[u8]) {
        if resp == Resp::Muted {
            return;
        }
        self.open_segment(client);
        self.bytes.extend_from_slice(encoded);
    }

    fn open_segment(&mut self, client: ClientId) {
        if self.segments.last().is_none_or(|last| last.client != client) {
            self.segments.push(Segment { client, start: self.bytes.len() });
        }
    }
}

impl Outbox {
    /// Bytes waiting in all lanes.
    pub fn len(&self) -> usize {
        self.aof.len() + self.frames.bytes.len() + self.replies.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.save_nodes && self.links.is_empty() && self.resumed.is_empty()
    }
}
