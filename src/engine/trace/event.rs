//! What can happen to a job on a node.

use crate::base::ids::ClientId;
use crate::base::time::UnixMs;
use crate::engine::cluster::Cluster;
use crate::engine::jobs::HeldFor;
use crate::engine::node_set::NodeRef;
use crate::proto::facts::DeathReason;
use crate::proto::trace::TraceRow;

/// Longest text that is kept of a queue's name or a reason, in bytes.
pub(super) const TEXT_MAX: usize = 64;

/// Text of an event, cut to its first [`TEXT_MAX`] bytes.
#[derive(Debug)]
pub struct Text(Box<[u8]>);

impl Text {
    pub fn new(text: &[u8]) -> Self {
        Self(text[..text.len().min(TEXT_MAX)].into())
    }
}

/// Who caused an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Client(ClientId),
    Node(NodeRef),
}

/// Why a job went to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuedFor {
    /// It is new, or its delay is over.
    First,
    /// Nobody acknowledged it in time.
    Retry,
    /// A client gave it back.
    Nack,
    /// ENQUEUE, or a NACK that does not count.
    Enqueue,
    /// It was moved.
    Move,
    /// It was queued when this server was stopped.
    Restart,
}

impl QueuedFor {
    const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Nack => "nack",
            Self::Enqueue => "enqueue",
            Self::Move => "move",
            Self::Restart => "restart",
        }
    }
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The producer's timeout came before the copies.
    Timeout,
    /// No node could be sent the only copy.
    Nodes,
    /// The producer hung up before the copies were there.
    ClientGone,
    /// A copy, as this node leaves or is short of memory, cannot write its file, or the queue is
    /// paused.
    Copy,
}

impl Refusal {
    const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Nodes => "nodes",
            Self::ClientGone => "client-gone",
            Self::Copy => "copy",
        }
    }
}

/// How a job left a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Every holder has it acked.
    Collected,
    /// Its TTL is over.
    Expired,
    /// Memory was short.
    Evicted,
    /// By DELJOB, FASTACK, a flush, or as a node said so.
    Deleted,
    /// It may be had once, and another node has it, or it was stored on others only.
    PassedOn,
    /// Its producer got an error.
    Refused(Refusal),
    /// The append only file has it once more, further on.
    Replaced,
    /// The record that it was fetched may have been among damaged ones.
    Damaged,
}

/// Something that happened to a job, and what is worth knowing of it.
#[derive(Debug)]
pub enum Event {
    /// A client added it.
    Added(ClientId),
    /// It was found in the append only file.
    Loaded,
    CopySent(NodeRef),
    /// A copy came from a node and is kept.
    CopyKept(NodeRef),
    Queued(QueuedFor),
    LentTo(NodeRef),
    BorrowedFrom(NodeRef),
    Fetched(ClientId),
    /// A client is still at work on it, here or on another node.
    Working(By),
    /// Another node has it queued: its retry counts anew here.
    QueuedElsewhere(NodeRef),
    /// Another node holds it.
    HeldElsewhere(NodeRef),
    /// It left its queue undelivered.
    Dequeued,
    Nacked {
        /// 0 where the client did not say one.
        delay_secs: u32,
        reason: Option<Text>,
    },
    /// This node holds it.
    Held {
        why: HeldFor,
        ms: u64,
    },
    Acked(By),
    /// A client purged the queue.
    Purged(By),
    Moved(Box<MovedBetween>),
    Dead(DeathReason),
    Refused(Refusal),
    Gone(Gone),
}

/// From which queue to which a job went.
#[derive(Debug)]
pub struct MovedBetween {
    pub from: Text,
    pub to: Text,
    /// The node from which this one learned of the move; `None` where it was made here.
    pub by: Option<NodeRef>,
}

const _: () = assert!(size_of::<(UnixMs, Event)>() == 32);

impl Event {
    /// Whether a trace that begins with this is whole.
    pub(super) fn is_beginning(&self) -> bool {
        matches!(
            self,
            Self::Added(_)
                | Self::Loaded
                | Self::CopyKept(_)
                | Self::BorrowedFrom(_)
                | Self::Refused(_)
        )
    }

    /// The event as it is answered.
    pub(super) fn row(&self, at: UnixMs, cluster: &Cluster) -> TraceRow {
        let row = TraceRow::new(at, self.name());
        let node_row = |row: TraceRow, node: NodeRef| row.with("node", cluster.id(node).0);
        let by = |row: TraceRow, by: By| match by {
            By::Client(client) => row.with("client", client.number().to_string()),
            By::Node(node) => node_row(row, node),
        };
        match self {
            Self::Added(client) | Self::Fetched(client) => by(row, By::Client(*client)),
            Self::CopySent(node)
            | Self::CopyKept(node)
            | Self::LentTo(node)
            | Self::BorrowedFrom(node)
            | Self::QueuedElsewhere(node)
            | Self::HeldElsewhere(node) => node_row(row, *node),
            Self::Queued(why) => row.with("why", why.name()),
            Self::Working(who) | Self::Acked(who) | Self::Purged(who) => by(row, *who),
            Self::Nacked { delay_secs, reason } => {
                let row = match delay_secs {
                    0 => row,
                    secs => row.with("delay-ms", (u64::from(*secs) * 1000).to_string()),
                };
                match reason {
                    Some(reason) => row.with("reason", &*reason.0),
                    None => row,
                }
            }
            Self::Held { why, ms } => {
                let why = match why {
                    HeldFor::Delay => "delay",
                    HeldFor::Work => "lease",
                };
                row.with("why", why).with("ms", ms.to_string())
            }
            Self::Moved(moved) => {
                let row = row.with("from", &*moved.from.0).with("to", &*moved.to.0);
                match moved.by {
                    Some(node) => node_row(row, node),
                    None => row,
                }
            }
            Self::Dead(reason) => row.with("reason", reason.name()),
            Self::Refused(why) | Self::Gone(Gone::Refused(why)) => row.with("why", why.name()),
            Self::Loaded | Self::Dequeued | Self::Gone(_) => row,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Loaded => "loaded",
            Self::CopySent(_) => "copy-sent",
            Self::CopyKept(_) => "copy-kept",
            Self::Queued(_) => "queued",
            Self::LentTo(_) => "lent-to",
            Self::BorrowedFrom(_) => "borrowed-from",
            Self::Fetched(_) => "fetched",
            Self::Working(_) => "working",
            Self::QueuedElsewhere(_) => "queued-elsewhere",
            Self::HeldElsewhere(_) => "held-elsewhere",
            Self::Dequeued => "dequeued",
            Self::Nacked { .. } => "nacked",
            Self::Held { .. } => "held",
            Self::Acked(_) => "acked",
            Self::Purged(_) => "purged",
            Self::Moved(_) => "moved",
            Self::Dead(_) => "dead",
            Self::Refused(_) | Self::Gone(Gone::Refused(_)) => "refused",
            Self::Gone(gone) => match gone {
                Gone::Collected => "collected",
                Gone::Expired => "expired",
                Gone::Evicted => "evicted",
                Gone::Deleted => "deleted",
                Gone::PassedOn => "passed-on",
                Gone::Replaced => "replaced",
                Gone::Damaged => "damaged",
                Gone::Refused(_) => "refused",
            },
        }
    }
}
