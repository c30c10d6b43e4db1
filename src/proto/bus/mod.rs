//! The cluster bus: one frame, one message, sixteen kinds of them, and five that only able
//! nodes know.
//!
//! ```text
//! header 144 bytes, see header.rs
//! PING PONG MEET      gossip entries, 104 bytes each; the header says how many
//! FAIL                node ID
//! REPLJOB YOURJOBS    number of jobs u32, bytes of them u32, job records
//! QUERY ANSWER        token u64, kind u16, payload up to the end
//! MOVED               see [`super::moved`]
//! NODE_INFO           see [`super::node_info`]
//! NEEDJOBS PAUSE OFFER  number u32, length of the queue's name u32, name
//! all others          job ID, number u32
//! ```
//!
//! The link cuts the stream into frames by [`frame_len`]; [`decode`] takes a frame whole
//! or refuses it. Numbers are big endian, but for those within job records. A message
//! borrows from its frame, and nothing in it is believed: that its sender is known, and
//! what it says makes sense just now, is for the engine to judge.
//!
//! A node that is not reached at its socket's address and client port + 10000 says so:
//! its address stands in the header's own field, its client port in the place of the
//! real one, its bus port behind a mark in the reserved bytes, and in the last four bytes
//! of entries about it. C nodes read the client port alone. What a node can do beyond
//! what C nodes can, it announces in the reserved bytes too.
//!
//! Invariant: what [`encode`] writes, C nodes read, and the other way round, byte for byte.

mod gossip;
mod header;
mod jobs;

pub use gossip::{Gossip, GossipEntry};
pub use header::{
    Abilities, ClusterNameHash, HEADER_LEN, Header, MessageFlags, NodeFlags, frame_len,
};
pub use jobs::{JobsFrame, YourJobs, encode_repl_job};

use crate::base::ids::{JobId, NodeId};
use crate::base::limits;
use crate::proto::job_record::JobRecord;
use crate::proto::moved::Moved;
use crate::proto::node_info::NodeInfo;
use crate::proto::reader::{DecodeError, Reader};
use header::MessageHead;

/// A queue paused for input, as PAUSE says it.
pub const PAUSE_IN: u32 = 1;
/// A queue paused for output, as PAUSE says it.
pub const PAUSE_OUT: u32 = 2;

/// The types' numbers on the wire.
mod kind {
    use crate::proto::extensions::message_type;

    pub const PING: u16 = 0;
    pub const PONG: u16 = 1;
    pub const MEET: u16 = 2;
    pub const FAIL: u16 = 3;
    pub const REPLJOB: u16 = 4;
    pub const GOTJOB: u16 = 5;
    pub const ENQUEUE: u16 = 6;
    pub const QUEUED: u16 = 7;
    pub const SETACK: u16 = 8;
    pub const WILLQUEUE: u16 = 9;
    pub const GOTACK: u16 = 10;
    pub const DELJOB: u16 = 11;
    pub const NEEDJOBS: u16 = 12;
    pub const YOURJOBS: u16 = 13;
    pub const WORKING: u16 = 14;
    pub const PAUSE: u16 = 15;
    pub const NODE_INFO: u16 = message_type::NODE_INFO;
    pub const QUERY: u16 = message_type::QUERY;
    pub const ANSWER: u16 = message_type::ANSWER;
    pub const OFFER: u16 = message_type::OFFER;
    pub const MOVED: u16 = message_type::MOVED;
}

/// What one node sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Are you there? Answered with a PONG.
    Ping(Gossip<'a>),
    /// I am here.
    Pong(Gossip<'a>),
    /// A ping that also asks to be let into the cluster.
    Meet(Gossip<'a>),
    /// A majority has found this node to be failing.
    Fail(NodeId),
    /// Keep a copy of this job.
    ReplJob(JobRecord<'a>),
    /// I keep a copy.
    GotJob {
        id: JobId,
        /// Of the job's last move, as [`MoveStamp::digest`] has it; 0 when there was none. C nodes
        /// do not look at it.
        ///
        /// [`MoveStamp::digest`]: super::moved::MoveStamp::digest
        move_digest: u32,
    },
    /// Put the job in its queue, after a delay.
    Enqueue { id: JobId, delay_secs: u32 },
    /// I have put the job in its queue; or, with a number, a client gave it back and I hold it for
    /// so many seconds.
    Queued {
        id: JobId,
        /// 0 in messages of C nodes, which do not look at it.
        hold_secs: u32,
    },
    /// The job is acknowledged.
    SetAck {
        id: JobId,
        /// How many nodes may have the job, as the sender knows.
        may_have: u32,
    },
    /// I am about to put the job in its queue.
    WillQueue(JobId),
    /// I have taken note of the acknowledgement.
    GotAck {
        id: JobId,
        /// Whether the sender had the job.
        known: bool,
    },
    /// Remove the job.
    DelJob(JobId),
    /// I have consumers for this queue: send so many jobs.
    NeedJobs {
        queue: &'a [u8],
        /// With [`MessageFlags::BETTER_ONLY`] the priority of the jobs that its sender has, and the
        /// count, see [`split_priority`].
        count: u32,
    },
    /// Here are jobs you asked for; put them in their queue.
    YourJobs(YourJobs<'a>),
    /// A consumer here is still at work on the job; or, with a number, I hold it for so many
    /// seconds.
    Working {
        id: JobId,
        /// 0 in messages of C nodes, which do not look at it.
        hold_secs: u32,
    },
    /// Pause the queue, or end its pause.
    Pause {
        queue: &'a [u8],
        /// [`PAUSE_IN`], [`PAUSE_OUT`], both or 0.
        flags: u32,
    },
    /// A question, to a node with [`Abilities::QUERY`].
    Query(Query<'a>),
    /// I have jobs of this queue for which nobody comes, to a node with [`Abilities::OFFER`].
    Offer {
        queue: &'a [u8],
        /// The best priority of these, and how many there are, see [`split_priority`].
        number: u32,
    },
    /// What a node answers, under the token and the kind of the question.
    Answer(Query<'a>),
    /// The job was moved to another queue; to a node with [`Abilities::ATTRIBUTES`].
    Moved(Moved<'a>),
    /// What a node says of itself; to a node with [`Abilities::NODE_INFO`].
    NodeInfo(NodeInfo<'a>),
}

impl Message<'_> {
    /// The number of its type on the wire.
    const fn number(&self) -> u16 {
        match self {
            Self::Ping(_) => kind::PING,
            Self::Pong(_) => kind::PONG,
            Self::Meet(_) => kind::MEET,
            Self::Fail(_) => kind::FAIL,
            Self::ReplJob(_) => kind::REPLJOB,
            Self::GotJob { .. } => kind::GOTJOB,
            Self::Enqueue { .. } => kind::ENQUEUE,
            Self::Queued { .. } => kind::QUEUED,
            Self::SetAck { .. } => kind::SETACK,
            Self::WillQueue(_) => kind::WILLQUEUE,
            Self::GotAck { .. } => kind::GOTACK,
            Self::DelJob(_) => kind::DELJOB,
            Self::NeedJobs { .. } => kind::NEEDJOBS,
            Self::YourJobs(_) => kind::YOURJOBS,
            Self::Working { .. } => kind::WORKING,
            Self::Pause { .. } => kind::PAUSE,
            Self::Query(_) => kind::QUERY,
            Self::Offer { .. } => kind::OFFER,
            Self::Answer(_) => kind::ANSWER,
            Self::Moved(_) => kind::MOVED,
            Self::NodeInfo(_) => kind::NODE_INFO,
        }
    }
}

/// A question to a node, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Drawn at random by who asks.
    pub token: u64,
    pub kind: QueryKind,
    /// At most [`limits::QUERY_PAYLOAD_MAX`] bytes.
    pub payload: &'a [u8],
}

/// What is asked. Who does not know a kind does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryKind(pub u16);

impl QueryKind {
    /// For the attributes of jobs. Payload: their IDs, [`limits::JOBS_PER_MESSAGE_MAX`] at
    /// most; of the answer see [`super::attributes::append_answer`].
    pub const ATTRIBUTES: Self = Self(1);
    /// For what a node knows of a queue. Payload: its name; of the answer see
    /// [`super::queue_figures`].
    pub const QUEUE: Self = Self(2);
    /// For what happened to a job. Payload: its ID; of the answer see [`super::trace`].
    pub const TRACE: Self = Self(3);
}

/// What the types are called.
const TYPE_NAMES: [(u16, &str); 21] = [
    (kind::PING, "PING"),
    (kind::PONG, "PONG"),
    (kind::MEET, "MEET"),
    (kind::FAIL, "FAIL"),
    (kind::REPLJOB, "REPLJOB"),
    (kind::GOTJOB, "GOTJOB"),
    (kind::ENQUEUE, "ENQUEUE"),
    (kind::QUEUED, "QUEUED"),
    (kind::SETACK, "SETACK"),
    (kind::WILLQUEUE, "WILLQUEUE"),
    (kind::GOTACK, "GOTACK"),
    (kind::DELJOB, "DELJOB"),
    (kind::NEEDJOBS, "NEEDJOBS"),
    (kind::YOURJOBS, "YOURJOBS"),
    (kind::WORKING, "WORKING"),
    (kind::PAUSE, "PAUSE"),
    (kind::NODE_INFO, "NODE_INFO"),
    (kind::QUERY, "QUERY"),
    (kind::ANSWER, "ANSWER"),
    (kind::OFFER, "OFFER"),
    (kind::MOVED, "MOVED"),
];
/// One more than the highest number of a type.
const NUMBERS: usize = 22;

/// How many messages of each type there were.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageCounts([u64; NUMBERS]);

impl MessageCounts {
    /// Counts a message that came in.
    pub fn count(&mut self, message: &Message<'_>) {
        self.add(message.number(), 1);
    }

    /// Counts a frame of ours that went to so many nodes.
    pub fn count_frame(&mut self, frame: &[u8], times: u64) {
        if let Some(number) = header::message_number(frame) {
            self.add(number, times);
        }
    }

    fn add(&mut self, number: u16, times: u64) {
        if let Some(count) = self.0.get_mut(usize::from(number)) {
            *count += times;
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each type's name and count.
    pub fn by_type(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        TYPE_NAMES.iter().filter_map(|(number, name)| {
            let count = self.0.get(usize::from(*number))?;
            Some((*name, *count))
        })
    }
}

/// Which of the three messages a gossip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GossipKind {
    Ping,
    Pong,
    Meet,
}

/// Takes a whole frame apart. The total length in it must be that of `frame`, and exactly
/// what its type implies.
pub fn decode(frame: &[u8]) -> Result<(Header, Message<'_>), DecodeError> {
    let mut reader = Reader::new(frame);
    let (header, kind) = Header::decode(&mut reader, frame.len())?;
    let message = match kind.number {
        kind::PING => Message::Ping(Gossip::decode(&mut reader, kind.entry_count)?),
        kind::PONG => Message::Pong(Gossip::decode(&mut reader, kind.entry_count)?),
        kind::MEET => Message::Meet(Gossip::decode(&mut reader, kind.entry_count)?),
        kind::FAIL => Message::Fail(reader.node_id()?),
        kind::REPLJOB => Message::ReplJob(jobs::decode_one(&mut reader)?),
        kind::YOURJOBS => Message::YourJobs(YourJobs::decode(&mut reader)?),
        kind::NEEDJOBS => {
            let (count, queue) = decode_queue(&mut reader)?;
            Message::NeedJobs { queue, count }
        }
        kind::PAUSE => {
            let (flags, queue) = decode_queue(&mut reader)?;
            Message::Pause { queue, flags }
        }
        kind::OFFER => {
            let (number, queue) = decode_queue(&mut reader)?;
            Message::Offer { queue, number }
        }
        kind::QUERY => Message::Query(Query::decode(&mut reader)?),
        kind::ANSWER => Message::Answer(Query::decode(&mut reader)?),
        kind::MOVED => Message::Moved(Moved::decode(&mut reader)?),
        kind::NODE_INFO => Message::NodeInfo(NodeInfo::decode(&mut reader)?),
        number => decode_job_message(&mut reader, number)?,
    };
    reader.finish()?;
    Ok((header, message))
}

/// Takes a job ID and a number; the number means something in six of the types.
fn decode_job_message<'a>(
    reader: &mut Reader<'_>,
    number: u16,
) -> Result<Message<'a>, DecodeError> {
    let message: fn(JobId, u32) -> Message<'a> = match number {
        kind::GOTJOB => |id, move_digest| Message::GotJob { id, move_digest },
        kind::ENQUEUE => |id, delay_secs| Message::Enqueue { id, delay_secs },
        kind::QUEUED => |id, hold_secs| Message::Queued { id, hold_secs },
        kind::SETACK => |id, may_have| Message::SetAck { id, may_have },
        kind::WILLQUEUE => |id, _| Message::WillQueue(id),
        kind::GOTACK => |id, known| Message::GotAck { id, known: known != 0 },
        kind::DELJOB => |id, _| Message::DelJob(id),
        kind::WORKING => |id, hold_secs| Message::Working { id, hold_secs },
        unknown => return Err(DecodeError::UnknownType(unknown)),
    };
    Ok(message(reader.job_id()?, reader.u32_be()?))
}

/// Takes a number and a queue's name.
fn decode_queue<'a>(reader: &mut Reader<'a>) -> Result<(u32, &'a [u8]), DecodeError> {
    let number = reader.u32_be()?;
    let name_len = usize::try_from(reader.u32_be()?).map_err(|_| DecodeError::TooLong)?;
    if name_len > limits::BULK_MAX {
        return Err(DecodeError::TooLong);
    }
    Ok((number, reader.take(name_len)?))
}

impl<'a> Query<'a> {
    /// Takes everything that is left.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let token = reader.u64_be()?;
        let kind = QueryKind(reader.u16_be()?);
        let payload = reader.rest();
        if payload.len() > limits::QUERY_PAYLOAD_MAX {
            return Err(DecodeError::TooLong);
        }
        Ok(Self { token, kind, payload })
    }

    fn encode(&self, out: &mut Vec<u8>, header: &Header, number: u16) {
        let parts = [&self.token.to_be_bytes()[..], &self.kind.0.to_be_bytes(), self.payload];
        encode_frame(out, header, number, &parts);
    }
}

/// The number of an OFFER, or of a NEEDJOBS with [`MessageFlags::BETTER_ONLY`]: a priority in the
/// upper half, a count of jobs, at its maximum if it is more, in the lower.
pub fn join_priority(priority: u16, count: usize) -> u32 {
    let [a, b] = priority.to_be_bytes();
    let [c, d] = u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The priority and the count of such a number.
pub fn split_priority(number: u32) -> (u16, usize) {
    let [a, b, c, d] = number.to_be_bytes();
    (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])))
}

/// Appends a frame. Gossip and jobs that are not bytes yet have ways of their own, without
/// a copy between: [`encode_gossip`], [`encode_repl_job`] and [`JobsFrame`].
pub fn encode(out: &mut Vec<u8>, header: &Header, message: &Message<'_>) {
    let number = message.number();
    let mut encode_of_job =
        |id: JobId, aux: u32| encode_frame(out, header, number, &[&id.0, &aux.to_be_bytes()]);
    match *message {
        Message::GotJob { id, move_digest: aux }
        | Message::Enqueue { id, delay_secs: aux }
        | Message::Queued { id, hold_secs: aux }
        | Message::Working { id, hold_secs: aux }
        | Message::SetAck { id, may_have: aux } => encode_of_job(id, aux),
        Message::GotAck { id, known } => encode_of_job(id, u32::from(known)),
        Message::WillQueue(id) | Message::DelJob(id) => encode_of_job(id, 0),
        Message::Ping(gossip) => encode_gossip(out, header, GossipKind::Ping, gossip.iter()),
        Message::Pong(gossip) => encode_gossip(out, header, GossipKind::Pong, gossip.iter()),
        Message::Meet(gossip) => encode_gossip(out, header, GossipKind::Meet, gossip.iter()),
        Message::Fail(about) => encode_frame(out, header, number, &[&about.0]),
        Message::ReplJob(record) => encode_repl_job(out, header, &record),
        Message::YourJobs(jobs) => {
            let mut frame = JobsFrame::your_jobs(out, header);
            for record in jobs.iter() {
                frame.push(&record);
            }
            frame.finish();
        }
        Message::NeedJobs { queue, count: aux }
        | Message::Pause { queue, flags: aux }
        | Message::Offer { queue, number: aux } => encode_queue(out, header, number, aux, queue),
        Message::Query(query) | Message::Answer(query) => query.encode(out, header, number),
        Message::Moved(moved) => encode_frame(out, header, number, &[&moved.encode()]),
        Message::NodeInfo(info) => encode_frame(out, header, number, &[&info.encode()]),
    }
}

/// Appends a PING, PONG or MEET with its entries, of which the first 65,535 fit.
pub fn encode_gossip(
    out: &mut Vec<u8>,
    header: &Header,
    kind: GossipKind,
    entries: impl ExactSizeIterator<Item = GossipEntry>,
) {
    let start = out.len();
    let entry_count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    let number = match kind {
        GossipKind::Ping => kind::PING,
        GossipKind::Pong => kind::PONG,
        GossipKind::Meet => kind::MEET,
    };
    header.encode(out, MessageHead { number, entry_count });
    for entry in entries.take(usize::from(entry_count)) {
        entry.encode(out);
    }
    header::set_total_len(out, start);
}

fn encode_queue(out: &mut Vec<u8>, header: &Header, number: u16, aux: u32, queue: &[u8]) {
    let queue_len = u32::try_from(queue.len()).expect("a queue's name is within BULK_MAX");
    let parts: [&[u8]; 3] = [&aux.to_be_bytes(), &queue_len.to_be_bytes(), queue];
    encode_frame(out, header, number, &parts);
}

fn encode_frame(out: &mut Vec<u8>, header: &Header, number: u16, parts: &[&[u8]]) {
    let start = out.len();
    header.encode(out, MessageHead { number, entry_count: 0 });
    for part in parts {
        out.extend_from_slice(part);
    }
    header::set_total_len(out, start);
}

#[cfg(test)]
mod tests;
