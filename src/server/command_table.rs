//! The table of all commands, the engine's and the server's, and the gates in front.
//!
//! A name is looked up once a request, so the table is a small open hash of what differs
//! most between names: length, first and last letter. Renamed commands are found under
//! their new name only; everything else knows them by their own.
//!
//! A new command is a row, a function, and a page in [`crate::manual`] that says what it does.

use std::time::{Duration, Instant};

use super::Server;
use super::commands::{command, info, monitor, persistence, shutdown, slowlog};
use super::config::MaxmemoryPolicy;
use super::latency::Event;
use super::{authentication, client, config, debug, latency};
use crate::base::ids::ClientId;
use crate::base::memory;
use crate::engine::command::{COMMANDS, Call, Command, Flags, Outcome, Spec};

/// The memory level from which a node takes no copies.
const NO_COPIES: u8 = 1;
/// The memory level from which commands that add are refused.
const OVER_LIMIT: u8 = 2;
/// Jobs evicted between two looks at the memory in use.
const EVICTED_AT_ONCE: usize = 16;
/// How long one command may wait for eviction. C: freeMemoryIfNeeded.
const EVICTION_MAX: Duration = Duration::from_millis(2);

/// A command that the server carries out.
pub struct ServerCommand {
    pub spec: Spec,
    pub run: fn(&mut Server, &Call<'_>) -> Outcome,
}

/// Who carries out a command.
#[derive(Clone, Copy)]
pub enum Row {
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
    row("ping", -1, R.and(F), authentication::ping),
    row("time", 1, R.and(F), authentication::time),
    row("hello", -1, R.and(F), authentication::hello),
    row("client", -2, A.and(R), client::command::client),
    row("command", 0, R.and(L), command::command),
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
    rows: Vec<Row>,
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
        let engine = COMMANDS.iter().map(Row::Engine);
        let server = SERVER_COMMANDS.iter().map(Row::Server);
        let rows: Vec<Row> = engine.chain(server).collect();
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

    pub fn row(&self, place: usize) -> Row {
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

impl Row {
    pub fn spec(&self) -> &'static Spec {
        match self {
            Self::Engine(command) => &command.spec,
            Self::Server(command) => &command.spec,
        }
    }
}

/// Whether a request passed the gates.
pub(super) enum Gate {
    /// The command at this place may run.
    Open(usize),
    /// It may not; the client has been told.
    Shut,
}

impl Server {
    /// Checks a request in C's order: name, number of words, password, memory, disk,
    /// loading. A stranger can find out about the first two.
    pub(super) fn admit(&mut self, call: &Call<'_>) -> Gate {
        let Some(place) = self.commands.find(&call.args[0]) else {
            let text = [b"ERR unknown command '", &call.args[0], b"'"].concat();
            return self.refuse(call, text);
        };
        let spec = self.commands.spec(place);
        if let Some(client) = self.client_mut(call.client) {
            client.last_command = Some(spec.name);
        }
        if !spec.accepts(call.args.len()) {
            let name = spec.name;
            return self
                .refuse(call, format!("ERR wrong number of arguments for '{name}' command"));
        }
        if self.is_stranger(call.client) && !lets_in(spec, call) {
            return self.refuse(call, "NOAUTH Authentication required.");
        }
        if self.config.maxmemory > 0 && !self.make_room(spec) && spec.flags.has(Flags::DENYOOM) {
            return self.refuse(call, "OOM command not allowed when used memory > 'maxmemory'.");
        }
        // Differs from C, which refuses all that writes: consumers must be able to drain a
        // node whose disk is full.
        if let Some(error) = self.persistence.write_error()
            && (spec.flags.has(Flags::DENYOOM) || spec.name == "ping")
        {
            let text = format!("MISCONF Errors writing to the AOF file: {error}");
            return self.refuse(call, text);
        }
        if self.persistence.is_loading() && !spec.flags.has(Flags::LOADING) {
            return self.refuse(call, "LOADING Disque is loading the dataset in memory");
        }
        Gate::Open(place)
    }

    fn refuse(&mut self, call: &Call<'_>, text: impl AsRef<[u8]>) -> Gate {
        self.reply(call).error(text);
        Gate::Shut
    }

    /// Whether the client has yet to say the password.
    pub(super) fn is_stranger(&self, client: ClientId) -> bool {
        self.config.requirepass.is_some()
            && !self.client(client).is_some_and(|client| client.is_authenticated)
    }

    /// Takes the engine to the memory level of the moment and has it evict what may go:
    /// over the limit before any command, and before one that adds as soon as the engine
    /// would take no copies, lest jobs that are over keep new ones out. Tells whether
    /// memory is below the limit then.
    fn make_room(&mut self, spec: &Spec) -> bool {
        let too_high = if spec.flags.has(Flags::DENYOOM) { NO_COPIES } else { OVER_LIMIT };
        if self.measure_memory() >= too_high
            && self.config.maxmemory_policy != MaxmemoryPolicy::NoEviction
        {
            let started = Instant::now();
            self.evict_below(too_high, started + EVICTION_MAX);
            self.note_latency(Event::EvictionCycle, started.elapsed());
        }
        self.engine.memory_level() < OVER_LIMIT
    }

    /// Evicts until memory is below a level, nothing is found, or time is up.
    fn evict_below(&mut self, level: u8, give_up_at: Instant) {
        loop {
            let evicted = self.engine.evict(self.clock.now, EVICTED_AT_ONCE);
            if self.measure_memory() < level
                || evicted < EVICTED_AT_ONCE
                || Instant::now() > give_up_at
            {
                return;
            }
        }
    }

    /// Tells the engine how full memory is; see `engine::memory`.
    pub(super) fn measure_memory(&mut self) -> u8 {
        let (used, max) = (memory::used() as u64, self.config.maxmemory);
        let percent = |percent: u64| max / 100 * percent + max % 100 * percent / 100;
        let level = match max {
            0 => 0,
            _ if used > percent(95) => OVER_LIMIT,
            _ if used > percent(75) => NO_COPIES,
            _ => 0,
        };
        if level != self.engine.memory_level() {
            self.engine.set_memory_level(self.clock.now, level);
        }
        level
    }
}

/// Whether a stranger may try this command: it may make him known.
fn lets_in(spec: &Spec, call: &Call<'_>) -> bool {
    spec.name == "auth" || spec.name == "hello" && call.args.len() > 1
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
            let flags = Flags::NAMES.iter().filter(|(flag, _)| spec.flags.has(*flag));
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
