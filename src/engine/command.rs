//! The shape of a command: a row in a table and a function.
//!
//! The row says how many arguments there must be and when the command may run; the
//! server checks both. The function parses all its arguments, then acts.

use super::Engine;
use super::commands;
use super::error::CommandError;
use crate::base::ids::ClientId;
use crate::base::time::Now;
use crate::proto::reply::Resp;
use crate::proto::request::{Args, OwnedArgs};

/// What COMMAND reports of a command, and what the server's gates ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Changes jobs: refused while the append only file cannot be written.
    pub const WRITE: Self = Self(1);
    pub const READONLY: Self = Self(2);
    /// Refused when memory is over its limit.
    pub const DENYOOM: Self = Self(4);
    pub const ADMIN: Self = Self(8);
    /// Allowed while the data set is loading.
    pub const LOADING: Self = Self(16);
    pub const FAST: Self = Self(32);

    /// The names COMMAND reports, in its order.
    pub const NAMES: [(Self, &'static str); 6] = [
        (Self::WRITE, "write"),
        (Self::READONLY, "readonly"),
        (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::LOADING, "loading"),
        (Self::FAST, "fast"),
    ];

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The signature of a command.
#[derive(Debug)]
pub struct Spec {
    /// In lower case.
    pub name: &'static str,
    /// Number of arguments with the name; a negative number means "at least", 0 any number.
    pub arity: i8,
    pub flags: Flags,
}

impl Spec {
    /// Whether a call may have this many arguments, the name included.
    /// C: an arity above 0 is exact, below 0 the least, 0 anything.
    pub fn accepts(&self, argument_count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity > 0 { argument_count == least } else { argument_count >= least }
    }
}

/// A command that the engine carries out.
pub struct Command {
    pub spec: Spec,
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
}

pub type CommandResult = Result<Outcome, CommandError>;

const fn row(
    name: &'static str,
    arity: i8,
    flags: Flags,
    run: fn(&mut Engine, &Call<'_>) -> CommandResult,
) -> Command {
    Command { spec: Spec { name, arity, flags }, run }
}

const W: Flags = Flags::WRITE;
const R: Flags = Flags::READONLY;
const M: Flags = Flags::DENYOOM;
const A: Flags = Flags::ADMIN;
const F: Flags = Flags::FAST;

/// The engine's commands. Arities and flags are C's: clients read them with COMMAND.
pub static COMMANDS: &[Command] = &[
    row("addjob", -4, W.and(M).and(F), commands::addjob::addjob),
    row("getjob", -2, W.and(F), commands::getjob::getjob),
    row("ackjob", -1, W.and(F), commands::ack::ackjob),
    row("fastack", -1, W.and(F), commands::ack::fastack),
    row("deljob", -1, W.and(F), commands::job::deljob),
    row("show", 2, R.and(F), commands::job::show),
    row("enqueue", -1, M.and(W).and(F), commands::job::enqueue),
    row("nack", -1, M.and(W).and(F), commands::job::nack),
    row("dequeue", -1, W.and(F), commands::job::dequeue),
    row("working", 2, W.and(F), commands::job::working),
    row("loadjob", 2, W, commands::job::loadjob),
    row("qlen", 2, R.and(F), commands::queue::qlen),
    row("qpeek", 3, R, commands::queue::qpeek),
    row("qstat", 2, R.and(F), commands::queue::qstat),
    row("qscan", -1, R, commands::scan::qscan),
    row("jscan", -1, R, commands::scan::jscan),
    row("pause", -3, R.and(F), commands::queue::pause),
    row("cluster", -2, R.and(A), commands::cluster::cluster),
];

/// The engine's command of a name, whatever its case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.spec.name.as_bytes().eq_ignore_ascii_case(name))
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
        assert!(command.spec.accepts(args.len()), "{args:?} has the right number of arguments");
        self.call(now, command, &Call { client, resp, args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arity_is_exact_or_the_least() {
        let accepts = |arity, count| Spec { name: "", arity, flags: W }.accepts(count);
        assert!(accepts(2, 2) && !accepts(2, 1) && !accepts(2, 3));
        assert!(accepts(-2, 2) && accepts(-2, 9) && !accepts(-2, 1));
        assert!(accepts(0, 1) && accepts(0, 9));
    }
}
