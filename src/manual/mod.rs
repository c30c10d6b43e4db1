//! The manual: what each command is, as plain data.
//!
//! A command's name, its signature and its description stand here and nowhere else, each
//! group in a file. The tables of engine and server take name, arity and flags from here
//! and add the function; COMMAND and COMMAND DOCS, the help and the completion of the
//! command line client, and `docs/commands.md` are made from it.
//!
//! ```text
//! Command ── name, arity, flags, roles, group, summary, errors
//!    └─ Usage, one for each subcommand or one for all ── reply
//!          └─ Argument, in their order ── name, kind, token, whether it may be left out
//! ```
//!
//! How a command is written ([`Usage::syntax`]) and how many arguments it needs at least
//! follow from its arguments.

use core::fmt::{self, Display};

mod cluster;
mod connection;
mod jobs;
mod keyspace;
pub mod named_arguments;
mod queues;
pub mod reference;
mod roles;
mod server;

pub use roles::Roles;

/// A command.
#[derive(Debug)]
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// The number of arguments with the name; a negative number means "at least", 0 any
    /// number. C's, since clients read it.
    pub arity: i8,
    pub flags: Flags,
    /// Which users may run it, beside those of the role admin. Of a command with subcommands those
    /// that may run whichever says nothing else.
    pub roles: Roles,
    pub group: Group,
    /// Which version has it first: [`SINCE_C`], or one of this server.
    pub since: &'static str,
    /// One sentence, without its full stop.
    pub summary: &'static str,
    /// One for most commands, one for each subcommand of the others.
    pub usages: &'static [Usage],
    /// Error texts, what differs from call to call in angle brackets.
    pub errors: &'static [&'static str],
}

/// One way to call a command.
#[derive(Debug)]
pub struct Usage {
    /// In upper case; empty for a command without subcommands.
    pub subcommand: &'static str,
    /// One sentence, without its full stop; empty for a command without subcommands, whose
    /// own summary says it.
    pub summary: &'static str,
    /// Which users may call it so, where that is not said for the whole command.
    pub roles: Option<Roles>,
    /// What follows the name and the subcommand.
    pub arguments: &'static [Argument],
    pub reply: &'static str,
}

/// An argument of a command, described as Redis describes those of its commands.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub kind: Kind,
    /// The word in front of the argument.
    pub token: Option<&'static str>,
    pub is_optional: bool,
    pub repetition: Repetition,
}

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// The name of a queue.
    Queue,
    /// The ID of a job.
    Job,
    Integer,
    Double,
    /// A glob pattern.
    Pattern,
    /// Its name itself, in any case.
    Word,
    /// One of several.
    OneOf(&'static [Argument]),
    /// Several, in their order.
    Block(&'static [Argument]),
}

/// How often an argument may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    Once,
    /// Again and again, behind one token if it has one.
    Values,
    /// Again and again, its token each time.
    Tokens,
}

/// The chapters of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Jobs,
    Queues,
    Cluster,
    Connection,
    Server,
    Keyspace,
}

/// What COMMAND reports of a command, and what the server checks before it runs one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

/// The version of the C server whose commands this server has.
pub const SINCE_C: &str = "1.0.0";
/// The first version of this server with commands that the C server does not have.
pub const SINCE_OURS: &str = "0.2.0";

/// The commands of each group, in the order of [`Group::ALL`].
static GROUPS: [&[Command]; 6] = [
    jobs::COMMANDS,
    queues::COMMANDS,
    cluster::COMMANDS,
    connection::COMMANDS,
    server::COMMANDS,
    keyspace::COMMANDS,
];

/// Every command, those of a group together.
pub fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().copied().flatten()
}

/// The command of that name, in lower case; for tables that are made by the compiler.
///
/// # Panics
/// When the manual has no such command.
pub const fn named(name: &str) -> &'static Command {
    let mut group = 0;
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            if is_same(GROUPS[group][at].name, name) {
                return &GROUPS[group][at];
            }
            at += 1;
        }
        group += 1;
    }
    panic!("the manual has no command of this name");
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl Command {
    /// Whether a call may have this many arguments, the name included.
    /// C: an arity above 0 is exact, below 0 the least, 0 anything.
    pub fn accepts(&self, argument_count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity > 0 { argument_count == least } else { argument_count >= least }
    }
}

impl Usage {
    /// Other users may call it so than the rest of the command.
    const fn for_roles(mut self, roles: Roles) -> Self {
        self.roles = Some(roles);
        self
    }

    /// How this way of calling `command` is written: its name, then its arguments, `[x]` for
    /// what may be left out, `a|b` for one of them, `...` for more of the same.
    pub fn syntax(&self, command: &Command) -> String {
        let mut text = command.name.to_uppercase();
        for part in [self.subcommand.to_owned(), self.parameters()] {
            if !part.is_empty() {
                text.push(' ');
                text.push_str(&part);
            }
        }
        text
    }

    /// The part of the syntax behind the name and the subcommand.
    pub fn parameters(&self) -> String {
        joined(self.arguments, " ")
    }
}

impl Argument {
    /// The argument may be left out.
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// The argument comes behind this word.
    pub const fn after(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    /// There may be more of the same.
    pub const fn repeated(mut self) -> Self {
        self.repetition = Repetition::Values;
        self
    }

    /// There may be more of the same, each behind its token.
    pub const fn repeated_with_token(mut self) -> Self {
        self.repetition = Repetition::Tokens;
        self
    }

    fn is_simple(&self) -> bool {
        !matches!(self.kind, Kind::OneOf(_) | Kind::Block(_))
    }
}

const fn argument(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, token: None, is_optional: false, repetition: Repetition::Once }
}

const fn text(name: &'static str) -> Argument {
    argument(name, Kind::Text)
}

const fn queue(name: &'static str) -> Argument {
    argument(name, Kind::Queue)
}

const fn job(name: &'static str) -> Argument {
    argument(name, Kind::Job)
}

const fn integer(name: &'static str) -> Argument {
    argument(name, Kind::Integer)
}

const fn word(name: &'static str) -> Argument {
    argument(name, Kind::Word)
}

const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Argument {
    argument(name, Kind::OneOf(arguments))
}

const fn block(name: &'static str, arguments: &'static [Argument]) -> Argument {
    argument(name, Kind::Block(arguments))
}

/// The only usage of a command.
const fn usage(arguments: &'static [Argument], reply: &'static str) -> Usage {
    Usage { subcommand: "", summary: "", roles: None, arguments, reply }
}

const fn subcommand(
    subcommand: &'static str,
    summary: &'static str,
    arguments: &'static [Argument],
    reply: &'static str,
) -> Usage {
    Usage { subcommand, summary, roles: None, arguments, reply }
}

/// What stands in the syntax for an argument.
impl Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self.kind {
            Kind::OneOf(alternatives) => {
                let is_long = alternatives.iter().any(|one| matches!(one.kind, Kind::Block(_)));
                joined(alternatives, if is_long { " | " } else { "|" })
            }
            Kind::Block(parts) => joined(parts, " "),
            _ => self.name.to_owned(),
        };
        let (opening, closing) = if self.is_optional { ("[", "]") } else { ("", "") };
        f.write_str(opening)?;
        if let Some(token) = self.token {
            write!(f, "{token} ")?;
        }
        f.write_str(&value)?;
        match (self.repetition, self.is_optional) {
            (Repetition::Once, _) => {}
            (Repetition::Values, false) if self.is_simple() => write!(f, " [{value} ...]")?,
            (_, false) => f.write_str(" [...]")?,
            (_, true) => f.write_str(" ...")?,
        }
        f.write_str(closing)
    }
}

fn joined(arguments: &[Argument], separator: &str) -> String {
    arguments.iter().map(Argument::to_string).collect::<Vec<_>>().join(separator)
}

impl Group {
    /// In the order of the manual.
    pub const ALL: [Self; 6] =
        [Self::Jobs, Self::Queues, Self::Cluster, Self::Connection, Self::Server, Self::Keyspace];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Queues => "queues",
            Self::Cluster => "cluster",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Keyspace => "keyspace",
        }
    }
}

impl Flags {
    /// Changes jobs.
    pub const WRITE: Self = Self(1);
    pub const READONLY: Self = Self(2);
    /// Refused while memory is over its limit, or the append only file cannot be written.
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

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const TIMEOUT_NOT_AN_INTEGER: &str = "ERR timeout is not an integer or out of range";
const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
const LEAVING: &str = "LEAVING This node is leaving the cluster, please connect to a different one";
const BAD_ID: &str = "BADID Invalid Job ID format.";
const QUEUE_NAME_TOO_LONG: &str = "ERR Queue names have at most 1048576 bytes";
const PAUSED: &str = "PAUSED Queue paused in input, try later";
const BAD_CURSOR: &str = "ERR invalid cursor or option name";

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use super::*;

    /// How many arguments a call has at the least.
    fn least(arguments: &[Argument]) -> usize {
        let needed = arguments.iter().filter(|argument| !argument.is_optional);
        needed.map(|argument| usize::from(argument.token.is_some()) + least_of(argument)).sum()
    }

    fn least_of(argument: &Argument) -> usize {
        match argument.kind {
            Kind::OneOf(alternatives) => {
                let lens = alternatives.iter().map(|one| least(std::slice::from_ref(one)));
                lens.min().expect("there is an alternative")
            }
            Kind::Block(parts) => least(parts),
            _ => 1,
        }
    }

    #[test]
    fn a_command_takes_the_fewest_arguments_that_its_manual_shows() {
        for command in all() {
            let count = |usage: &Usage| {
                1 + usize::from(!usage.subcommand.is_empty()) + least(usage.arguments)
            };
            let fewest = command.usages.iter().map(count).min().expect("it has a usage");
            assert!(command.accepts(fewest), "{} wants {}", command.name, command.arity);
        }
    }

    #[test]
    fn names_are_told_apart_and_lie_in_their_group() {
        let names: BTreeSet<&str> = all().map(|command| command.name).collect();
        assert_eq!(names.len(), all().count(), "no name stands twice");
        for (group, commands) in Group::ALL.into_iter().zip(GROUPS) {
            assert!(commands.iter().all(|command| command.group == group), "{}", group.name());
        }
        for command in all() {
            assert_eq!(command.name, command.name.to_lowercase());
            let subcommands: BTreeSet<&str> =
                command.usages.iter().map(|usage| usage.subcommand).collect();
            assert_eq!(subcommands.len(), command.usages.len(), "{}", command.name);
        }
    }

    #[test]
    fn a_subcommand_has_a_summary_of_its_own() {
        for command in all() {
            for usage in command.usages {
                assert_eq!(
                    usage.subcommand.is_empty(),
                    usage.summary.is_empty(),
                    "{} {}",
                    command.name,
                    usage.subcommand
                );
            }
        }
    }

    #[test]
    fn every_command_has_roles_and_who_watches_changes_nothing() {
        let has = |roles: Roles, role: Roles| {
            roles.names().any(|name| role.names().any(|one| one == name))
        };
        for command in all() {
            let of_usages = command.usages.iter().filter_map(|usage| usage.roles);
            for roles in of_usages.chain([command.roles]) {
                assert!(roles.names().count() > 0, "{}", command.name);
            }
            let writes = command.flags.contains(Flags::WRITE);
            assert!(!(writes && has(command.roles, Roles::WATCH)), "{}", command.name);
            let deviate = |usage: &Usage| usage.roles.is_some() && usage.subcommand.is_empty();
            assert!(!command.usages.iter().any(deviate), "{}: one column", command.name);
        }
        for admins in ["config", "shutdown", "debug", "monitor", "slowlog", "loadjob"] {
            assert_eq!(named(admins).roles, Roles::ADMIN, "{admins}");
        }
    }

    #[test]
    fn an_arity_is_exact_or_the_least() {
        let accepts = |arity, count| Command { arity, ..*named_copy() }.accepts(count);
        assert!(accepts(2, 2) && !accepts(2, 1) && !accepts(2, 3));
        assert!(accepts(-2, 2) && accepts(-2, 9) && !accepts(-2, 1));
        assert!(accepts(0, 1) && accepts(0, 9));
    }

    fn named_copy() -> &'static Command {
        named("ping")
    }

    #[test]
    fn a_syntax_is_made_of_the_arguments() {
        let syntax = |arguments: &[Argument]| joined(arguments, " ");
        assert_eq!(syntax(&[]), "");
        assert_eq!(syntax(&[text("a"), integer("b").optional()]), "a [b]");
        assert_eq!(syntax(&[text("a").repeated(), word("B").optional()]), "a [a ...] [B]");
        assert_eq!(syntax(&[text("a").optional().repeated()]), "[a ...]");
        assert_eq!(syntax(&[text("q").after("FROM").repeated()]), "FROM q [q ...]");
        const WAYS: &[Argument] = &[word("IN"), word("OUT")];
        assert_eq!(syntax(&[one_of("way", WAYS)]), "IN|OUT");
        assert_eq!(syntax(&[one_of("way", WAYS).after("TO").repeated()]), "TO IN|OUT [...]");
        const PAIR: &[Argument] = &[text("user"), text("password")];
        assert_eq!(syntax(&[block("who", PAIR).after("AUTH").optional()]), "[AUTH user password]");
    }

    /// What the C server says of its commands, as recorded: name, arity, flags.
    /// Those that differ on purpose, and how.
    const DIFFERENT: [(&str, i8); 5] = [
        // Both take what Redis 6 takes as well.
        ("auth", -2),
        ("hello", -1),
        // Takes a LEASE.
        ("working", -2),
        // Takes a SKIP.
        ("qpeek", -3),
        // Takes the word CLUSTER.
        ("qstat", -2),
    ];

    #[test]
    fn names_arities_and_flags_are_the_c_servers() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/c-commands.txt");
        let recorded = fs::read_to_string(path).expect("it is there");
        let different = BTreeMap::from(DIFFERENT);
        assert_eq!(recorded.lines().count(), 32);
        for line in recorded.lines() {
            let name = line.split(' ').next().expect("a line begins with a name");
            let command = named(name);
            let flags: Vec<&str> = command.flags.names().collect();
            let ours = format!("{name} {} {}", command.arity, flags.join(" "));
            match different.get(name) {
                Some(&arity) => assert_eq!(command.arity, arity),
                None => assert_eq!(ours, line),
            }
        }
    }
}
