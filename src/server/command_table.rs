//! The table of all commands, the engine's and the server's, and COMMAND.
//!
//! A name is looked up once a request, so the table is a small open hash of what differs
//! most between names: length, first and last letter. Renamed commands are found under
//! their new name only; everything else knows them by their own.
//!
//! A new command is a row, a function, and a page in [`crate::manual`] that says what it does.

use super::{
    Server, authentication, client, clock, config, debug, info, latency, monitor, persistence,
    ping, shutdown, slowlog,
};
use crate::engine::command::{COMMANDS, Call, Command, Flags, Outcome, Spec};
use crate::manual;
use crate::proto::reply::ReplyWriter;

/// A command that the server carries out.
pub struct ServerCommand {
    pub spec: Spec,
    pub run: fn(&mut Server, &Call<'_>) -> Outcome,
}

/// Who carries out a command.
#[derive(Clone, Copy)]
pub enum Implementation {
    Engine(&'static Command),
    Server(&'static ServerCommand),
}

const fn row(
    name: &'static str,
    arity: i8,
    flags: Flags,
    run: fn(&mut Server, &Call<'_>) -> Outcome,
) -> ServerCommand {
    ServerCommand { spec: Spec { name, arity, flags }, run }
}

const R: Flags = Flags::READONLY;
const A: Flags = Flags::ADMIN;
const L: Flags = Flags::LOADING;
const F: Flags = Flags::FAST;

/// The server's commands. Arities and flags are C's, but for HELLO's, which takes options.
static SERVER_COMMANDS: &[ServerCommand] = &[
    row("auth", 2, R.and(L).and(F), authentication::auth),
    row("ping", -1, R.and(F), ping::ping),
    row("time", 1, R.and(F), clock::time),
    row("hello", -1, R.and(F), authentication::hello),
    row("client", -2, A.and(R), client::command::client),
    row("command", 0, R.and(L), command),
    row("info", -1, R.and(L), info::info),
    row("config", -2, A.and(R), config::command::config),
    row("bgrewriteaof", 1, A.and(R), persistence::bgrewriteaof),
    row("slowlog", -2, R, slowlog::slowlog),
    row("latency", -2, A.and(R).and(L), latency::command::latency),
    row("monitor", 1, A.and(R), monitor::monitor),
    row("shutdown", -1, A.and(R).and(L), shutdown::shutdown),
    row("debug", -2, A, debug::debug),
];

/// All commands under the names they have now.
pub struct CommandTable {
    rows: Vec<Implementation>,
    names: Vec<(Box<[u8]>, usize)>,
    /// Numbers of names by hash; a taken place means the next one.
    index: [u8; INDEX_LEN],
}

const INDEX_LEN: usize = 256;
const VACANT: u8 = u8::MAX;

impl CommandTable {
    /// The table after renaming, in order, old names to new ones; an empty new name takes
    /// the command away. An error says which pair makes no sense.
    pub fn new(renames: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, String> {
        let engine = COMMANDS.iter().map(Implementation::Engine);
        let server = SERVER_COMMANDS.iter().map(Implementation::Server);
        let rows: Vec<Implementation> = engine.chain(server).collect();
        let names = rows.iter().enumerate();
        let names = names.map(|(place, row)| (row.spec().name.as_bytes().into(), place)).collect();
        let mut table = Self { rows, names, index: [VACANT; INDEX_LEN] };
        table.rename(renames)?;
        table.build_index();
        Ok(table)
    }

    fn rename(&mut self, renames: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        for (old, new) in renames {
            let number_of = |name: &[u8]| {
                self.names.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))
            };
            let number = number_of(old).ok_or_else(|| {
                format!("rename-command: no such command '{}'", old.escape_ascii())
            })?;
            if new.is_empty() {
                self.names.remove(number);
            } else if number_of(new).is_none() {
                self.names[number].0 = new.to_ascii_lowercase().into();
            } else {
                return Err(format!(
                    "rename-command: there is a command '{}' already",
                    new.escape_ascii()
                ));
            }
        }
        Ok(())
    }

    fn build_index(&mut self) {
        assert!(self.names.len() < INDEX_LEN / 2, "the index stays sparse");
        for (number, (name, _)) in self.names.iter().enumerate() {
            let mut at = hash(name);
            while self.index[at] != VACANT {
                at = (at + 1) % INDEX_LEN;
            }
            self.index[at] = number as u8;
        }
    }

    /// The place of a command, whatever the case of its name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let mut at = hash(name);
        loop {
            let number = self.index[at];
            if number == VACANT {
                return None;
            }
            let (known, place) = &self.names[usize::from(number)];
            if known.eq_ignore_ascii_case(name) {
                return Some(*place);
            }
            at = (at + 1) % INDEX_LEN;
        }
    }

    pub fn row(&self, place: usize) -> Implementation {
        self.rows[place]
    }

    pub fn spec(&self, place: usize) -> &'static Spec {
        self.rows[place].spec()
    }

    /// The commands that are there, under whatever names.
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &'static Spec> {
        self.names.iter().map(|&(_, place)| self.spec(place))
    }
}

/// Something different for nearly every name, whatever its case.
fn hash(name: &[u8]) -> usize {
    let letter = |byte: Option<&u8>| usize::from(byte.map_or(0, |byte| byte | 0x20));
    (name.len() * 61 + letter(name.first()) * 7 + letter(name.last()) * 29) % INDEX_LEN
}

impl Implementation {
    pub fn spec(&self) -> &'static Spec {
        match self {
            Self::Engine(command) => &command.spec,
            Self::Server(command) => &command.spec,
        }
    }
}

/// COMMAND -> a row for each command: name, arity, flags, and 0 0 0 where Redis tells the
/// places of keys.
/// COMMAND COUNT -> how many there are.
/// COMMAND INFO name ... -> their rows; null for an unknown name.
/// COMMAND DOCS [name ...] -> a map from names to what their pages say. Differs from C,
/// which has no such thing: redis-cli asks when it starts.
pub fn command(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let commands = &server.commands;
    let mut reply = server.engine.out.replies.to(call.client, call.resp);
    let is = |word: &str| args.len() > 1 && args[1].eq_ignore_ascii_case(word.as_bytes());
    if args.len() == 1 {
        reply.array(commands.specs().len());
        commands.specs().for_each(|spec| describe(&mut reply, spec));
    } else if is("info") {
        reply.array(args.len() - 2);
        for name in args.from(2).iter() {
            match commands.find(name) {
                Some(place) => describe(&mut reply, commands.spec(place)),
                None => reply.null_bulk(),
            }
        }
    } else if is("count") && args.len() == 2 {
        reply.integer(i64::try_from(commands.specs().len()).expect("there are dozens"));
    } else if is("docs") {
        let all = commands.specs().map(|spec| spec.name.as_bytes());
        let names: Vec<&[u8]> =
            if args.len() == 2 { all.collect() } else { args.from(2).iter().collect() };
        let specs: Vec<&Spec> = names
            .into_iter()
            .filter_map(|name| commands.find(name))
            .map(|place| commands.spec(place))
            .collect();
        reply.map(specs.len());
        for spec in specs {
            reply.bulk(spec.name);
            let page = manual::page(spec.name).expect("a test holds the pages to the tables");
            reply.map(3);
            reply.bulk("summary");
            reply.bulk(page.summary);
            reply.bulk("since");
            reply.bulk("1.0.0");
            reply.bulk("group");
            reply.bulk(page.group.name());
        }
    } else {
        reply.error("ERR Unknown subcommand or wrong number of arguments.");
    }
    Outcome::Done
}

fn describe(reply: &mut ReplyWriter<'_>, spec: &Spec) {
    let flags = Flags::NAMES.into_iter().filter(|&(flag, _)| spec.flags.contains(flag));
    reply.array(6);
    reply.bulk(spec.name);
    reply.integer(i64::from(spec.arity));
    reply.array(flags.clone().count());
    flags.for_each(|(_, name)| reply.status(name));
    for _ in 0..3 {
        reply.integer(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(renames: &[(&str, &str)]) -> Result<CommandTable, String> {
        let pair = |(old, new): &(&str, &str)| (old.as_bytes().to_vec(), new.as_bytes().to_vec());
        CommandTable::new(&renames.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        let table = table(&[]).expect("nothing is renamed");
        for spec in table.specs() {
            for name in [spec.name.to_uppercase(), spec.name.to_owned()] {
                let place = table.find(name.as_bytes()).expect("it is there");
                assert_eq!(table.spec(place).name, spec.name);
            }
        }
        assert_eq!(table.find(b"nosuch"), None);
        assert_eq!(table.find(b""), None);
    }

    /// As the C server's COMMAND tells them; only HELLO takes words here.
    const ROWS: &str = "\
        ackjob -1 write fast
        addjob -4 write denyoom fast
        auth 2 readonly loading fast
        bgrewriteaof 1 readonly admin
        client -2 readonly admin
        cluster -2 readonly admin
        command 0 readonly loading
        config -2 readonly admin
        debug -2 admin
        deljob -1 write fast
        dequeue -1 write fast
        enqueue -1 write denyoom fast
        fastack -1 write fast
        getjob -2 write fast
        hello -1 readonly fast
        info -1 readonly loading
        jscan -1 readonly
        latency -2 readonly admin loading
        loadjob 2 write
        monitor 1 readonly admin
        nack -1 write denyoom fast
        pause -3 readonly fast
        ping -1 readonly fast
        qlen 2 readonly fast
        qpeek 3 readonly
        qscan -1 readonly
        qstat 2 readonly fast
        show 2 readonly fast
        shutdown -1 readonly admin loading
        slowlog -2 readonly
        time 1 readonly fast
        working 2 write fast";

    #[test]
    fn names_arities_and_flags_are_the_c_servers() {
        let row = |spec: &Spec| {
            let flags = Flags::NAMES.iter().filter(|(flag, _)| spec.flags.contains(*flag));
            let flags: String = flags.map(|(_, name)| format!(" {name}")).collect();
            format!("{} {}{flags}", spec.name, spec.arity)
        };
        let mut rows: Vec<String> =
            table(&[]).expect("nothing is renamed").specs().map(row).collect();
        rows.sort();
        assert_eq!(rows, ROWS.lines().map(str::trim).collect::<Vec<_>>());
    }

    #[test]
    fn a_renamed_command_has_its_new_name_only() {
        let table = table(&[("TIME", "clock"), ("ping", "")]).expect("both are there");
        assert_eq!(table.find(b"time"), None);
        assert_eq!(table.find(b"ping"), None);
        let place = table.find(b"CLOCK").expect("the new name");
        assert_eq!(table.spec(place).name, "time");
    }

    #[test]
    fn senseless_renames_are_refused() {
        assert!(table(&[("nosuch", "x")]).is_err());
        assert!(table(&[("time", "ping")]).is_err());
    }
}
