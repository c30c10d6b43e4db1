//! The gates in front of commands: what a request must be, and when it may run.

use super::Server;
use super::command_names::name_behind_owner;
use super::command_table::NamedCommand;
use crate::engine::command::Call;
use crate::manual::{Command, Flags};

/// Ends a connection; it is in no table, as in C.
const QUIT: &[u8] = b"quit";

/// Whether a request passed the gates.
pub(super) enum Gate {
    /// This command may run.
    Open(NamedCommand),
    /// The client ends its connection.
    Quit,
    /// It may not; the error is written.
    Shut,
}

impl Server {
    /// Checks a request in C's order: name, number of arguments, password and user, memory, disk,
    /// loading. An unauthenticated client can find out about the first two. Evicts jobs, for up to
    /// 2 ms, before a command that memory is too short for.
    pub(super) fn admit(&mut self, call: &Call<'_>) -> Gate {
        if call.args[0].eq_ignore_ascii_case(QUIT) {
            return Gate::Quit;
        }
        let Some(named) = self.commands.find_in(|at| call.args.get(at)) else {
            let behind_owner = name_behind_owner(|at| call.args.get(at));
            if behind_owner.is_some_and(|(name, _)| name.eq_ignore_ascii_case(QUIT)) {
                return Gate::Quit;
            }
            let name_at = behind_owner.map_or(0, |(_, name_at)| name_at);
            let text = [b"ERR unknown command '", &name_as_sent(call, name_at)[..], b"'"].concat();
            return self.refuse(call, text);
        };
        let NamedCommand { place, name_at } = named;
        let command = self.commands.manual(place);
        if let Some(client) = self.client_mut(call.client) {
            client.last_command = Some(command.name);
        }
        let argument_count = call.args.len() - name_at;
        if !command.accepts(argument_count) {
            let name = match self.commands.find(&call.args[0]) {
                Some(_) => command.name.as_bytes().to_vec(),
                None => name_as_sent(call, name_at).to_ascii_lowercase(),
            };
            let text = [b"ERR wrong number of arguments for '", &name[..], b"' command"].concat();
            return self.refuse(call, text);
        }
        if self.config.has_logins()
            && let Err(refusal) = self.check_user(call, named)
        {
            return self.refuse(call, refusal.as_bytes());
        }
        if self.config.maxmemory > 0
            && !self.make_room(command)
            && command.flags.contains(Flags::DENYOOM)
            && !gives_up_jobs(command, call)
        {
            return self.refuse(call, "OOM command not allowed when used memory > 'maxmemory'.");
        }
        // Differs from C, which refuses all that writes: consumers must be able to drain a
        // node whose disk is full.
        if let Some(error) = self.persistence.write_error()
            && (command.flags.contains(Flags::DENYOOM)
                || rewrites_jobs(command)
                || command.name == "ping")
        {
            let text = format!("MISCONF Errors writing to the AOF file: {error}");
            return self.refuse(call, text);
        }
        if self.persistence.is_loading() && !command.flags.contains(Flags::LOADING) {
            return self.refuse(call, "LOADING Disque is loading the dataset in memory");
        }
        Gate::Open(named)
    }

    fn refuse(&mut self, call: &Call<'_>, text: impl AsRef<[u8]>) -> Gate {
        self.reply(call).error(text);
        Gate::Shut
    }
}

/// A command's name with all that stands in front of it.
fn name_as_sent(call: &Call<'_>, name_at: usize) -> Vec<u8> {
    call.args.up_to(name_at + 1).iter().collect::<Vec<_>>().join(&b' ')
}

/// Whether this is a NACK that has jobs die: their place is taken already, and it is how jobs
/// that fail again and again are got out of the way.
fn gives_up_jobs(command: &Command, call: &Call<'_>) -> bool {
    // The options stand behind the IDs; before the word, or behind it, may be REASON and its text,
    // which may be the same word.
    let tail = call.args.from(call.args.len().saturating_sub(4));
    let is = |word: &[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
    let mut pairs = tail.iter().zip(tail.iter().skip(1));
    command.name == "nack"
        && pairs.any(|(before, word)| is(word, b"dead") && !is(before, b"reason"))
}

/// Whether a command writes whole jobs to the append only file, though it adds none: while the file
/// cannot be written, its records would fill the memory.
fn rewrites_jobs(command: &Command) -> bool {
    matches!(command.name, "movejob" | "qmove" | "qredrive")
}
