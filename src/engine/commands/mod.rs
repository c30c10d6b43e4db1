//! One function a command: it parses all of its words, then acts, then replies.
//!
//! A command that may take long works in slices of [`COMMAND_SLICE`] items: it keeps
//! what it has so far as its client's [`Progress`] and answers `Again`.
//!
//! [`COMMAND_SLICE`]: crate::base::limits::COMMAND_SLICE

pub mod ack;
pub mod addjob;
pub mod cluster;
pub mod getjob;
pub mod hello;
pub mod job;
pub mod queue;
pub mod scan;

/// What a long command has done so far.
#[derive(Debug)]
pub enum Progress {
    /// Commands with many IDs.
    Ids(Ids),
    /// GETJOB.
    Rows(Rows),
    /// Scans.
    Scan(Scan),
}

#[derive(Debug, Default)]
pub struct Ids {
    /// Words handled.
    pub done: usize,
    /// What will be answered.
    pub count: i64,
}

#[derive(Debug, Default)]
pub struct Rows {
    pub encoded: Vec<u8>,
    pub count: usize,
    /// Where the current pass over the queues goes on.
    pub next_queue: usize,
    pub found_in_pass: bool,
}

#[derive(Debug, Default)]
pub struct Scan {
    pub encoded: Vec<u8>,
    pub count: usize,
    /// Where the scan goes on.
    pub slot: u32,
    /// Slots looked at.
    pub looks: usize,
}
