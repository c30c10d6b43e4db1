//! The table of all commands, the engine's and the server's, and COMMAND.
//!
//! A new command is an entry in the manual, and a row beside its function.

use std::borrow::Cow;

use super::command_names::{self, CommandNames};
use super::server_command::{ServerCommand, row};
use super::{
    Server, authentication, client, clock, config, debug, info, keyspace, latency, monitor,
    persistence, ping, shutdown, slowlog,
};
use crate::base::glob::{self, Case};
use crate::engine::command::{Call, EngineCommand, Outcome};
use crate::engine::commands as engine_commands;
use crate::engine::error::CommandError;
use crate::manual::{self, Argument, Command, Kind, Repetition, Usage};
use crate::proto::reply::ReplyWriter;

/// The server's commands; each file has its rows beside their functions.
static TABLES: [&[ServerCommand]; 14] = [
    authentication::COMMANDS,
    ping::COMMANDS,
    clock::COMMANDS,
    client::command::COMMANDS,
    COMMANDS,
    info::COMMANDS,
    config::command::COMMANDS,
    persistence::COMMANDS,
    slowlog::COMMANDS,
    latency::command::COMMANDS,
    monitor::COMMANDS,
    shutdown::COMMANDS,
    debug::COMMANDS,
    keyspace::COMMANDS,
];

static COMMANDS: &[ServerCommand] = &[row("command", command), row("module", module)];

/// Who carries out a command.
#[derive(Clone, Copy)]
pub enum Implementation {
    Engine(&'static EngineCommand),
    Server(&'static ServerCommand),
}

/// The command that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCommand {
    pub place: usize,
    /// Where its name stands in the request: in front, or behind the word `DISQUE`.
    pub name_at: usize,
}

/// All commands under the names they have now; a place is that of a command in the manual.
pub struct CommandTable {
    names: CommandNames,
    rows: Vec<Implementation>,
}

impl CommandTable {
    /// The table after renaming; an error says which pair makes no sense.
    ///
    /// # Panics
    /// When the manual has a command that nobody carries out.
    pub fn new(renames: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, String> {
        let engine = || engine_commands::all().map(Implementation::Engine);
        let server = || TABLES.iter().copied().flatten().map(Implementation::Server);
        let row = |command: &Command| {
            engine().chain(server()).find(|row| row.manual().name == command.name)
        };
        let rows = manual::all().map(|command| row(command).expect("every command has a row"));
        Ok(Self { names: CommandNames::new(renames)?, rows: rows.collect() })
    }

    /// The place of a command, whatever the case of its name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.find(name)
    }

    /// The command that a request names by its first argument, or behind its owner.
    pub fn find_in<'a>(
        &self,
        argument: impl Fn(usize) -> Option<&'a [u8]>,
    ) -> Option<NamedCommand> {
        if let Some(place) = self.find(argument(0)?) {
            return Some(NamedCommand { place, name_at: 0 });
        }
        let (name, name_at) = command_names::name_behind_owner(argument)?;
        self.find(name).map(|place| NamedCommand { place, name_at })
    }

    /// The command of a name, and the name it goes by in a reply: its own, or one that tells
    /// whose it is as well.
    fn describable(&self, name: &[u8]) -> Option<(Cow<'static, str>, &'static Command)> {
        if let Some(place) = self.find(name) {
            let command = self.manual(place);
            return Some((command.name.into(), command));
        }
        let place = self.find(command_names::without_owner(name)?)?;
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        Some((name.into(), self.manual(place)))
    }

    /// Who carries out the command at a place.
    pub fn implementation(&self, place: usize) -> Implementation {
        self.rows[place]
    }

    /// What the manual says of the command at a place.
    pub fn manual(&self, place: usize) -> &'static Command {
        self.rows[place].manual()
    }

    /// The commands that are there, under whatever names.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &'static Command> {
        self.names.places().map(|place| self.manual(place))
    }
}

impl Implementation {
    fn manual(self) -> &'static Command {
        match self {
            Self::Engine(command) => command.manual,
            Self::Server(command) => command.manual,
        }
    }
}

/// COMMAND -> an array for each command: name, arity, flags, and 0 0 0 where Redis has the
/// places of keys.
/// COMMAND COUNT -> how many there are.
/// COMMAND INFO name ... -> their arrays; null for an unknown name.
/// COMMAND DOCS [name ...] -> a map from names to what the manual says. Differs from C,
/// which has no such thing: redis-cli asks when it starts.
/// COMMAND LIST [FILTERBY MODULE name|ACLCAT category|PATTERN pattern] -> an array of names.
fn command(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let commands = &server.commands;
    let mut reply = server.engine.out.replies.to(call.client, call.resp);
    let is = |word: &str| args.len() > 1 && args[1].eq_ignore_ascii_case(word.as_bytes());
    if args.len() == 1 {
        reply.array(commands.all().len());
        commands.all().for_each(|command| describe(&mut reply, command.name, command));
    } else if is("info") {
        reply.array(args.len() - 2);
        for name in args.from(2).iter() {
            match commands.describable(name) {
                Some((name, command)) => describe(&mut reply, &name, command),
                None => reply.null_bulk(),
            }
        }
    } else if is("count") && args.len() == 2 {
        reply.integer(i64::try_from(commands.all().len()).expect("there are dozens"));
    } else if is("docs") {
        let documented: Vec<_> = match args.len() {
            2 => commands.all().map(|command| (command.name.into(), command)).collect(),
            _ => args.from(2).iter().filter_map(|name| commands.describable(name)).collect(),
        };
        reply.map(documented.len());
        for (name, command) in documented {
            reply.bulk(name.as_bytes());
            document(&mut reply, command);
        }
    } else if is("list") && matches!(args.len(), 2 | 5) {
        match filter(call) {
            Ok(is_listed) => {
                let names: Vec<&str> =
                    commands.all().map(|command| command.name).filter(is_listed).collect();
                reply.array(names.len());
                names.into_iter().for_each(|name| reply.bulk(name));
            }
            Err(error) => reply.error(error.to_string()),
        }
    } else {
        reply.error("ERR Unknown subcommand or wrong number of arguments.");
    }
    Outcome::Done
}

/// Which names COMMAND LIST is to show.
fn filter<'a>(call: &Call<'a>) -> Result<impl Fn(&&str) -> bool + 'a, CommandError> {
    let args = call.args;
    let is = |at: usize, word: &str| {
        args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    // `None`: there are no modules, and no categories.
    let pattern = match args.get(4) {
        None => Some(&b"*"[..]),
        Some(_) if !is(2, "filterby") => return Err(CommandError::Syntax),
        Some(pattern) if is(3, "pattern") => Some(pattern),
        Some(_) if is(3, "module") || is(3, "aclcat") => None,
        Some(_) => return Err(CommandError::Syntax),
    };
    Ok(move |name: &&str| {
        pattern.is_some_and(|pattern| glob::matches(pattern, name.as_bytes(), Case::Insensitive))
    })
}

/// MODULE LIST -> an empty array: all commands are the server's own.
fn module(server: &mut Server, call: &Call<'_>) -> Outcome {
    let mut reply = server.reply(call);
    if call.args.len() == 2 && call.args[1].eq_ignore_ascii_case(b"list") {
        reply.array(0);
    } else {
        reply.error(
            "ERR Unknown MODULE subcommand or wrong number of arguments: there are no modules",
        );
    }
    Outcome::Done
}

fn describe(reply: &mut ReplyWriter<'_>, name: &str, command: &Command) {
    let flags = command.flags.names();
    reply.array(6);
    reply.bulk(name);
    reply.integer(i64::from(command.arity));
    reply.array(flags.clone().count());
    flags.for_each(|name| reply.status(name));
    for _ in 0..3 {
        reply.integer(0);
    }
}

/// A command as COMMAND DOCS of Redis describes one.
fn document(reply: &mut ReplyWriter<'_>, command: &Command) {
    let is_whole = |usage: &&Usage| usage.subcommand.is_empty();
    let arguments = command.usages.iter().find(is_whole).map(|usage| usage.arguments);
    let arguments = arguments.filter(|arguments| !arguments.is_empty());
    let subcommands = || command.usages.iter().filter(|usage| !is_whole(usage));
    let has_subcommands = subcommands().next().is_some();
    reply.map(3 + usize::from(arguments.is_some()) + usize::from(has_subcommands));
    write_origin(reply, command.summary, command);
    if let Some(arguments) = arguments {
        write_arguments(reply, arguments);
    }
    if has_subcommands {
        reply.bulk("subcommands");
        reply.map(subcommands().count());
        for usage in subcommands() {
            reply.bulk(format!("{}|{}", command.name, usage.subcommand.to_lowercase()));
            reply.map(3 + usize::from(!usage.arguments.is_empty()));
            write_origin(reply, usage.summary, command);
            if !usage.arguments.is_empty() {
                write_arguments(reply, usage.arguments);
            }
        }
    }
}

fn write_origin(reply: &mut ReplyWriter<'_>, summary: &str, command: &Command) {
    let facts = [("summary", summary), ("since", command.since), ("group", command.group.name())];
    for (name, value) in facts {
        reply.bulk(name);
        reply.bulk(value);
    }
}

fn write_arguments(reply: &mut ReplyWriter<'_>, arguments: &[Argument]) {
    reply.bulk("arguments");
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_argument(reply, argument));
}

fn write_argument(reply: &mut ReplyWriter<'_>, argument: &Argument) {
    let (kind, parts) = match argument.kind {
        Kind::Text | Kind::Queue | Kind::Job => ("string", None),
        Kind::Integer => ("integer", None),
        Kind::Double => ("double", None),
        Kind::Pattern => ("pattern", None),
        Kind::Word => ("pure-token", None),
        Kind::OneOf(alternatives) => ("oneof", Some(alternatives)),
        Kind::Block(parts) => ("block", Some(parts)),
    };
    let token = if matches!(argument.kind, Kind::Word) { Some(argument.name) } else { None };
    let token = argument.token.or(token);
    let flags = [
        (argument.is_optional, "optional"),
        (argument.repetition != Repetition::Once, "multiple"),
        (argument.repetition == Repetition::Tokens, "multiple_token"),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
    let flag_count = flags.clone().count();
    let is_named = parts.is_none();
    let more = [is_named, token.is_some(), flag_count > 0, parts.is_some()];
    reply.map(2 + more.into_iter().filter(|is_there| *is_there).count());
    reply.bulk("name");
    reply.bulk(argument.name.to_lowercase());
    reply.bulk("type");
    reply.bulk(kind);
    if is_named {
        reply.bulk("display_text");
        reply.bulk(argument.name);
    }
    if let Some(token) = token {
        reply.bulk("token");
        reply.bulk(token);
    }
    if flag_count > 0 {
        reply.bulk("flags");
        reply.array(flag_count);
        flags.for_each(|name| reply.status(name));
    }
    if let Some(parts) = parts {
        write_arguments(reply, parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_manual_has_one_row() {
        let table = CommandTable::new(&[]).expect("nothing is renamed");
        for (place, command) in manual::all().enumerate() {
            assert_eq!(table.manual(place).name, command.name);
        }
        let row_count = engine_commands::all().count() + TABLES.iter().copied().flatten().count();
        assert_eq!(row_count, manual::all().count());
    }
}
