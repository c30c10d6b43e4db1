//! The numbers of all that C servers do not have: on the bus, and in records. Each is given out
//! here and for good, whichever file reads and writes it. Reserved ones stand in the tables only.
//!
//! How such a thing travels, and what a C server does with it: bits of a job's flags and of
//! abilities it ignores, those of jobs it passes on as well; the number of QUEUED, WORKING and
//! GOTJOB and the bytes behind the message flags it does not look at; attributes it skips, and
//! loses; a message of a type that it does not know costs it a line in its log, so such a one
//! goes to nodes alone that announced the ability.
//!
//! | ability | bit | |
//! |---|---|---|
//! | STANDING_ASKS | 1 | |
//! | ATTRIBUTES | 2 | and MOVED |
//! | QUERY | 4 | |
//! | OFFER | 8 | |
//! | NODE_INFO | 16 | |
//! | BATCH | 32 | reserved |
//! | TLS | 64 | reserved |
//! | HOLDS | 128 | |
//! | KNOWS_RECEIVER | 1 << 14 | said of each receiver by itself |
//! | SHORT_OF_MEMORY | 1 << 15 | said of the moment |
//!
//! | message type | number | |
//! |---|---|---|
//! | NODE_INFO | 16 | see [`super::node_info`] |
//! | QUERY | 17 | |
//! | ANSWER | 18 | |
//! | OFFER | 19 | |
//! | BATCH | 20 | reserved |
//! | MOVED | 21 | |
//!
//! | message flag | bit | on |
//! |---|---|---|
//! | STANDING | 8 | NEEDJOBS |
//! | BY_CLIENT | 16 | QUEUED |
//! | GO_ON | 16 | ENQUEUE |
//! | PURGED | 16 | SETACK |
//! | BETTER_ONLY | 16 | NEEDJOBS |
//! | | bytes 1 and 2 | the digest of a move, on QUEUED, WORKING and WILLQUEUE |
//!
//! | flag of a job | bit | |
//! |---|---|---|
//! | priority | 8, 16, 32 | see [`super::priority`] |
//! | TRACE | 64 | its producer wants it traced |
//! | HAD_ATTRIBUTES | 128 | |
//!
//! | attribute | tag | |
//! |---|---|---|
//! | user attribute | 1 | |
//! | limits | 2 | see [`super::job_limits`] |
//! | facts of a death | 3 | see [`super::facts`] |
//! | note | 4 | |
//! | stamp of a move | 5 | see [`super::moved`] |
//! | checksum | 6 | see [`super::aof_sum`]; it never leaves the file |

/// Bits of [`super::bus::Abilities`].
pub mod ability {
    pub const STANDING_ASKS: u16 = 1;
    pub const ATTRIBUTES: u16 = 2;
    pub const QUERY: u16 = 4;
    pub const OFFER: u16 = 8;
    pub const NODE_INFO: u16 = 16;
    pub const HOLDS: u16 = 128;
    pub const KNOWS_RECEIVER: u16 = 1 << 14;
    pub const SHORT_OF_MEMORY: u16 = 1 << 15;
}

/// Numbers of message types.
pub mod message_type {
    pub const NODE_INFO: u16 = 16;
    pub const QUERY: u16 = 17;
    pub const ANSWER: u16 = 18;
    pub const OFFER: u16 = 19;
    pub const MOVED: u16 = 21;
}

/// Bits of [`super::bus::MessageFlags`].
pub mod message_flag {
    pub const STANDING: u8 = 8;
    pub const BY_CLIENT: u8 = 16;
    pub const PURGED: u8 = 16;
    pub const GO_ON: u8 = 16;
    pub const BETTER_ONLY: u8 = 16;
}

/// Bits of a job's flags.
pub mod job_flag {
    pub const PRIORITY: u8 = 8 | 16 | 32;
    pub const TRACE: u8 = 64;
    pub const HAD_ATTRIBUTES: u8 = 128;
}

/// Tags of attributes.
pub mod tag {
    pub const USER: u8 = 1;
    pub const LIMITS: u8 = 2;
    pub const FACTS: u8 = 3;
    pub const NOTE: u8 = 4;
    pub const MOVE: u8 = 5;
    pub const SUM: u8 = 6;
}
