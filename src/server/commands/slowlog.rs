//! SLOWLOG: the last slow commands.

use crate::base::number;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::server::Server;

/// Entries shown when no number is given.
const SHOWN: usize = 10;

/// SLOWLOG GET [n] -> the newest n entries: ID, unix time, microseconds, arguments. A
/// negative n shows all.
/// SLOWLOG LEN -> how many there are. SLOWLOG RESET -> OK, none.
pub fn slowlog(server: &mut Server, call: &Call<'_>) -> Outcome {
    let subcommand = call.args[1].to_ascii_lowercase();
    match (subcommand.as_slice(), call.args.get(2), call.args.len()) {
        (b"get", count, 2 | 3) => match count.map(number::parse_i64) {
            Some(None) => server.reply(call).error(CommandError::NotAnInteger.to_string()),
            Some(Some(count)) => show(server, call, usize::try_from(count).unwrap_or(usize::MAX)),
            None => show(server, call, SHOWN),
        },
        (b"len", _, 2) => {
            let count = server.slowlog.entries().len();
            server.reply(call).integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
        (b"reset", _, 2) => {
            server.slowlog.clear();
            server.reply(call).status("OK");
        }
        _ => server
            .reply(call)
            .error("ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."),
    }
    Outcome::Done
}

fn show(server: &mut Server, call: &Call<'_>, max: usize) {
    let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let entries = server.slowlog.entries().take(max);
    let mut reply = server.engine.out.replies.to(call.client, call.resp);
    reply.array(entries.len());
    for entry in entries {
        reply.array(4);
        reply.integer(integer(entry.id));
        reply.integer(integer(entry.at_unix_secs));
        reply.integer(integer(entry.duration_us));
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.bulk(argument));
    }
}
