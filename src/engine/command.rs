//! The shape of a command: an entry in the manual, and a row beside a function.
//!
//! The manual says how many arguments there must be and when the command may run; the
//! server checks both. The function parses all its arguments, then acts.

use super::Engine;
use super::error::CommandError;
use crate::base::ids::ClientId;
use crate::manual;
use crate::proto::reply::Resp;
use crate::proto::request::Args;

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
    /// CLUSTER PEERS, of which whoever drives the engine knows more: it answers.
    ShowPeers,
}

pub type CommandResult = Result<Outcome, CommandError>;

/// The row of a command: its name, under which the manual has the rest, and its function.
pub(super) const fn row(
    name: &str,
    run: fn(&mut Engine, &Call<'_>) -> CommandResult,
) -> EngineCommand {
    EngineCommand { manual: manual::named(name), run }
}
