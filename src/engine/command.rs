//! The shape of a command: an entry in the manual, and a row beside a function.
//!
//! The manual says how many arguments there must be and when the command may run; the
//! server checks both. The function parses all its arguments, then acts.

use super::Engine;
use super::commands;
use super::error::CommandError;
use crate::base::ids::ClientId;
use crate::base::time::Now;
use crate::manual;
use crate::proto::reply::Resp;
use crate::proto::request::{Args, OwnedArgs};

/// A command that the engine carries out.
#[derive(Clone, Copy, Debug)]
pub struct EngineCommand {
    pub manual: &'static manual::Command,
    pub run: fn(&mut Engine, &Call<'_>) -> CommandResult,
}

/// One call of a command: who asked, in which protocol, and with which arguments
/// (`args[0]` is the name).
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub client: ClientId,
    pub resp: Resp,
    pub args: Args<'a>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Done,
    /// The client waits; it will be among the `resumed`.
    Blocked,
    /// A slice of a long command is done: call it again with the same arguments, after
    /// others had their turn.
    Again,
    /// nodes.conf is to be saved; whoever drives the engine answers then.
    SaveNodes,
}

pub type CommandResult = Result<Outcome, CommandError>;

/// The row of a command: its name, under which the manual has the rest, and its function.
pub(super) const fn row(
    name: &str,
    run: fn(&mut Engine, &Call<'_>) -> CommandResult,
) -> EngineCommand {
    EngineCommand { manual: manual::named(name), run }
}

/// The engine's commands; each file has its rows beside their functions.
static TABLES: [&[EngineCommand]; 7] = [
    commands::addjob::COMMANDS,
    commands::getjob::COMMANDS,
    commands::ack::COMMANDS,
    commands::job::COMMANDS,
    commands::queue::COMMANDS,
    commands::scan::COMMANDS,
    commands::cluster::COMMANDS,
];

/// Every command of the engine.
pub fn all() -> impl Iterator<Item = &'static EngineCommand> {
    TABLES.iter().copied().flatten()
}

/// The engine's command of a name, whatever its case.
pub fn find(name: &[u8]) -> Option<&'static EngineCommand> {
    all().find(|command| command.manual.name.as_bytes().eq_ignore_ascii_case(name))
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
