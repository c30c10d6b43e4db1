//! What a command answers when it cannot do what it was asked: one variant a text.
//!
//! Clients match on these texts, so each is C's to the letter; of what C does not have, they
//! name the option that is wrong.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    Syntax,
    BadId,
    NotAnInteger,
    TimeoutNotAnInteger,
    TimeoutNegative,
    Replicate,
    Sync,
    SyncWithAsync,
    Zones,
    NotEnoughZones,
    Ttl,
    Retry,
    Delay,
    Maxlen,
    Priority,
    RetryZeroNeedsOneCopy,
    DelayBeyondTtl,
    Count,
    NotEnoughNodes,
    /// Not enough nodes by one, and this one could not take a copy for the reason given.
    NotEnoughNodesWithoutMe(&'static str),
    ReplicationTimeout,
    JobRemoved,
    QueueTooLong,
    Paused,
    Leaving,
    NoJob,
    TooLate,
    Acked,
    BadCursor,
    BadStateName,
    BadReplyType,
    LoadJobFromClient,
    IdBehindOptions,
    MoveWithinQueue,
    CountOfJobs,
    TooManyIds,
    TooManyQueues,
    TraceTimeout,
    Lease,
    Reason,
    DeadWithDelay,
    DeadAndSilent,
    MaxDeliveries,
    DeadQueue,
    QueueNameTooLong,
    AttributeIncomplete,
    AttributeName,
    /// The name.
    AttributeTwice(String),
    TooManyAttributes,
    AttributesTooLong,
    /// Any other text, its code word included.
    Other(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "ERR syntax error",
            Self::BadId => "BADID Invalid Job ID format.",
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::TimeoutNotAnInteger => "ERR timeout is not an integer or out of range",
            Self::TimeoutNegative => "ERR timeout is negative",
            Self::Replicate => "ERR REPLICATE must be between 1 and 65535",
            Self::Sync => "ERR SYNC must be between 1 and REPLICATE",
            Self::SyncWithAsync => "ERR SYNC and ASYNC exclude each other",
            Self::Zones => "ERR ZONES must be between 1 and REPLICATE, and not with ASYNC",
            Self::NotEnoughZones => {
                "NOREPL Not enough reachable zones for the requested replication level"
            }
            Self::Ttl => "ERR TTL must be a number > 0",
            Self::Retry => "ERR RETRY time must be a non negative number",
            Self::Delay => "ERR DELAY time must be a non negative number",
            Self::TraceTimeout => "ERR TIMEOUT must be between 1 and 60000 milliseconds",
            Self::TooManyQueues => "ERR JSCAN takes at most 1000 queues",
            Self::TooManyIds => "ERR WAITJOB takes at most 10000 IDs",
            Self::Priority => "ERR PRIORITY must be between 1 and 7",
            Self::Maxlen => "ERR MAXLEN must be a positive number",
            Self::RetryZeroNeedsOneCopy => {
                "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
            }
            Self::DelayBeyondTtl => {
                "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
            }
            Self::Count => "ERR COUNT must be a number greater than zero",
            Self::NotEnoughNodes => {
                "NOREPL Not enough reachable nodes for the requested replication level"
            }
            Self::NotEnoughNodesWithoutMe(reason) => {
                return write!(
                    f,
                    "{}, since I'm unable to hold a copy of the message for the following reason: {reason}",
                    Self::NotEnoughNodes
                );
            }
            Self::ReplicationTimeout => {
                "NOREPL Timeout reached before replicating to the requested number of nodes"
            }
            Self::JobRemoved => {
                "NOREPL job removed (expired?) before the requested replication level was achieved"
            }
            Self::QueueTooLong => "MAXLEN Queue is already longer than the specified MAXLEN count",
            Self::Paused => "PAUSED Queue paused in input, try later",
            Self::Leaving => {
                "LEAVING This node is leaving the cluster, please connect to a different one"
            }
            Self::NoJob => "NOJOB Job not known in the context of this node.",
            Self::TooLate => {
                "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
            }
            Self::Acked => "ACKED Job already acknowledged.",
            Self::BadCursor => "ERR invalid cursor or option name",
            Self::BadStateName => "ERR Invalid job state name",
            Self::BadReplyType => "ERR Invalid REPLY type, try ID or ALL",
            Self::LoadJobFromClient => {
                "ERR LOADJOB is a special command only processed from AOF"
            }
            Self::IdBehindOptions => "ERR Job IDs stand in front of the options",
            Self::MoveWithinQueue => "ERR Source and target must be different queues",
            Self::CountOfJobs => "ERR COUNT must be between 1 and 10000",
            Self::Reason => "ERR REASON must be a text of at most 256 bytes",
            Self::DeadWithDelay => "ERR DELAY and DEAD exclude each other",
            Self::DeadAndSilent => "ERR SILENT and DEAD exclude each other",
            Self::MaxDeliveries => "ERR MAXDELIVERIES must be between 0 and 65535",
            Self::DeadQueue => "ERR DEADQUEUE must be a name of 1 to 255 bytes",
            Self::Lease => "ERR LEASE must be a number of seconds greater than zero",
            Self::QueueNameTooLong => "ERR Queue names have at most 1048576 bytes",
            Self::AttributeIncomplete => "ERR ATTR needs a name and a value",
            Self::AttributeName => {
                "ERR ATTR names must have 1 to 32 printable ASCII characters and no spaces"
            }
            Self::AttributeTwice(name) => return write!(f, "ERR ATTR {name} is given twice"),
            Self::TooManyAttributes => "ERR ATTR can be given at most 16 times",
            Self::AttributesTooLong => {
                "ERR ATTR names and values can have at most 1024 bytes together"
            }
            Self::Other(text) => text,
        })
    }
}
