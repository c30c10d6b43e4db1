//! One function a command: it parses all of its arguments, then acts, then replies.
//!
//! A command that may take long works in slices of [`COMMAND_SLICE`] items: it keeps
//! what was asked for and what it has so far as its client's [`LongCommand`], and returns
//! `Again`. A long answer is sent in slices as well, once it is known how many rows it has.
//!
//! [`COMMAND_SLICE`]: crate::base::limits::COMMAND_SLICE

use std::collections::VecDeque;

use super::Engine;
use super::command::{Call, EngineCommand, Outcome};
use super::flush::Flush;
use crate::base::ids::ClientId;
use crate::base::limits::SLICE_BYTES;
use crate::base::time::Now;
use crate::proto::reply::Resp;
use crate::proto::request::OwnedArgs;

pub mod ack;
pub mod addjob;
pub mod cluster;
pub mod getjob;
pub mod hello;
pub mod job;
pub mod moves;
pub mod nack;
pub mod queue;
pub mod scan;
pub mod trace;
pub mod waitjob;

/// The engine's commands; each file has its rows beside their functions.
static TABLES: [&[EngineCommand]; 11] = [
    addjob::COMMANDS,
    getjob::COMMANDS,
    ack::COMMANDS,
    job::COMMANDS,
    moves::COMMANDS,
    nack::COMMANDS,
    queue::COMMANDS,
    scan::COMMANDS,
    trace::COMMANDS,
    waitjob::COMMANDS,
    cluster::COMMANDS,
];

/// Every command of the engine.
pub fn all() -> impl Iterator<Item = &'static EngineCommand> {
    TABLES.iter().copied().flatten()
}

/// The engine's command of a name, whatever its case.
pub fn find(name: &[u8]) -> Option<&'static EngineCommand> {
    all().find(|command| command.manual.name.as_bytes().eq_ignore_ascii_case(name))
}

/// A command that is not finished.
pub enum LongCommand {
    IdsProgress(ack::IdsProgress),
    OfQueue(moves::VisitedJobs),
    GetJob(getjob::GetJob),
    Scan(scan::Scan),
    Peek(queue::Peek),
    WaitJob(waitjob::WaitJob),
    Flush(Flush),
    /// The rest of an answer whose beginning is sent.
    Answer(Blocks),
}

/// Encoded rows, in blocks of about [`SLICE_BYTES`]: one buffer that grows to 64 MiB and is
/// copied at its end held all others up for 170 ms.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: VecDeque<Vec<u8>>,
    byte_count: usize,
}

impl Blocks {
    /// Appends what `write` writes.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.blocks.back().is_none_or(|last| last.len() >= SLICE_BYTES) {
            self.blocks.push_back(Vec::new());
        }
        let last = self.blocks.back_mut().expect("one was pushed if there was none");
        let len_before = last.len();
        write(last);
        self.byte_count += last.len() - len_before;
    }

    /// How many bytes there are.
    pub fn byte_count(&self) -> usize {
        self.byte_count
    }
}

impl Engine {
    /// Sends the next block of an answer whose beginning is sent.
    fn send_block(&mut self, call: &Call<'_>, mut rest: Blocks) -> Outcome {
        if let Some(block) = rest.blocks.pop_front() {
            self.out.replies.append(call.client, call.resp, &block);
        }
        if rest.blocks.is_empty() {
            return Outcome::Done;
        }
        self.long_commands.insert(call.client, LongCommand::Answer(rest));
        Outcome::Again
    }
}

impl Engine {
    /// Runs a command without a server around it: for tests, the simulator and benchmarks.
    ///
    /// # Panics
    /// When the engine has no such command, or when it does not take that many arguments.
    pub fn call_words(
        &mut self,
        now: Now,
        client: ClientId,
        resp: Resp,
        words: &OwnedArgs,
    ) -> Outcome {
        let args = words.args();
        let command = args.get(0).and_then(find);
        let command = command.unwrap_or_else(|| panic!("{args:?} is a command of the engine"));
        assert!(command.manual.accepts(args.len()), "{args:?} has the right number of arguments");
        self.call(now, command, &Call { client, resp, args })
    }
}
