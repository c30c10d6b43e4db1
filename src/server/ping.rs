//! PING and ECHO: whether the server is there.

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::engine::command::{Call, Outcome};

pub(super) static COMMANDS: &[ServerCommand] = &[row("ping", ping), row("echo", echo)];

/// PING [message] -> PONG, or the message.
fn ping(server: &mut Server, call: &Call<'_>) -> Outcome {
    let mut reply = server.reply(call);
    match call.args.len() {
        1 => reply.status("PONG"),
        2 => reply.bulk(&call.args[1]),
        _ => reply.error("ERR wrong number of arguments for 'ping' command"),
    }
    Outcome::Done
}

/// ECHO message -> the message.
fn echo(server: &mut Server, call: &Call<'_>) -> Outcome {
    server.reply(call).bulk(&call.args[1]);
    Outcome::Done
}
