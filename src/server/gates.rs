//! The gates in front of commands: what a request must be, and when it may run.

use super::Server;
use crate::base::ids::ClientId;
use crate::engine::command::Call;
use crate::manual::{Command, Flags};

/// Whether a request passed the gates.
pub(super) enum Gate {
    /// The command at this place may run.
    Open(usize),
    /// It may not; the error is written.
    Shut,
}

impl Server {
    /// Checks a request in C's order: name, number of arguments, password, memory, disk,
    /// loading. An unauthenticated client can find out about the first two. Evicts jobs, for up to
    /// 2 ms, before a command that memory is too short for.
    pub(super) fn admit(&mut self, call: &Call<'_>) -> Gate {
        let Some(place) = self.commands.find(&call.args[0]) else {
            let text = [b"ERR unknown command '", &call.args[0], b"'"].concat();
            return self.refuse(call, text);
        };
        let command = self.commands.manual(place);
        if let Some(client) = self.client_mut(call.client) {
            client.last_command = Some(command.name);
        }
        if !command.accepts(call.args.len()) {
            let name = command.name;
            return self
                .refuse(call, format!("ERR wrong number of arguments for '{name}' command"));
        }
        if self.is_unauthenticated(call.client) && !lets_in(command, call) {
            return self.refuse(call, "NOAUTH Authentication required.");
        }
        if self.config.maxmemory > 0
            && !self.make_room(command)
            && command.flags.contains(Flags::DENYOOM)
        {
            return self.refuse(call, "OOM command not allowed when used memory > 'maxmemory'.");
        }
        // Differs from C, which refuses all that writes: consumers must be able to drain a
        // node whose disk is full.
        if let Some(error) = self.persistence.write_error()
            && (command.flags.contains(Flags::DENYOOM) || command.name == "ping")
        {
            let text = format!("MISCONF Errors writing to the AOF file: {error}");
            return self.refuse(call, text);
        }
        if self.persistence.is_loading() && !command.flags.contains(Flags::LOADING) {
            return self.refuse(call, "LOADING Disque is loading the dataset in memory");
        }
        Gate::Open(place)
    }

    fn refuse(&mut self, call: &Call<'_>, text: impl AsRef<[u8]>) -> Gate {
        self.reply(call).error(text);
        Gate::Shut
    }

    /// Whether the client has yet to send the password.
    pub(super) fn is_unauthenticated(&self, client: ClientId) -> bool {
        self.config.requirepass.is_some()
            && !self.client(client).is_some_and(|client| client.is_authenticated)
    }
}

/// Whether an unauthenticated client may try this command, which may authenticate it.
fn lets_in(command: &Command, call: &Call<'_>) -> bool {
    command.name == "auth" || command.name == "hello" && call.args.len() > 1
}
