//! The slow log: the last commands that ran longer than a limit, in memory, newest first.
//!
//! Time spent waiting (for a job, for replication, for the client to read) does not
//! count: only how long the command held the server.

use std::collections::VecDeque;

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::base::number;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;

pub(super) static COMMANDS: &[ServerCommand] = &[row("slowlog", slowlog)];

/// Most arguments kept of a command; the last one then says how many there were.
/// C: SLOWLOG_ENTRY_MAX_ARGC.
const ARGUMENTS_MAX: usize = 32;
/// Most bytes kept of an argument. C: SLOWLOG_ENTRY_MAX_STRING.
const ARGUMENT_MAX: usize = 128;

/// A command that was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCommand {
    /// Never given twice while the server runs.
    pub id: u64,
    pub at_unix_secs: u64,
    pub duration_us: u64,
    pub arguments: Vec<Vec<u8>>,
}

#[derive(Default)]
pub struct SlowLog {
    /// Newest first.
    entries: VecDeque<SlowCommand>,
    next_id: u64,
}

impl SlowLog {
    /// Keeps a command that ran for at least `slower_than_us` (never, when that is
    /// negative) and drops entries over `len_max`.
    pub fn note<'a>(
        &mut self,
        arguments: impl ExactSizeIterator<Item = &'a [u8]>,
        duration_us: u64,
        at_unix_secs: u64,
        slower_than_us: i64,
        len_max: u64,
    ) {
        if u64::try_from(slower_than_us).is_ok_and(|limit_us| duration_us >= limit_us) {
            let id = self.next_id;
            self.next_id += 1;
            let arguments = shortened(arguments);
            self.entries.push_front(SlowCommand { id, at_unix_secs, duration_us, arguments });
        }
        self.shorten(len_max);
    }

    /// Drops the oldest entries over `len_max`.
    pub fn shorten(&mut self, len_max: u64) {
        self.entries.truncate(usize::try_from(len_max).unwrap_or(usize::MAX));
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &SlowCommand> {
        self.entries.iter()
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

fn shortened<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let kept = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
    let mut list: Vec<Vec<u8>> = arguments.take(kept).map(shortened_argument).collect();
    if kept < count {
        list.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    list
}

fn shortened_argument(argument: &[u8]) -> Vec<u8> {
    match argument.split_at_checked(ARGUMENT_MAX) {
        Some((kept, rest)) if !rest.is_empty() => {
            [kept, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => argument.to_vec(),
    }
}

/// Entries shown when no number is given.
const SHOWN: usize = 10;

/// SLOWLOG GET [n] -> the newest n entries: ID, unix time, microseconds, arguments. A
/// negative n shows all.
/// SLOWLOG LEN -> how many there are. SLOWLOG RESET -> OK, none.
fn slowlog(server: &mut Server, call: &Call<'_>) -> Outcome {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &mut SlowLog, words: &[&[u8]], duration_us: u64, slower_than_us: i64) {
        log.note(words.iter().copied(), duration_us, 1000, slower_than_us, 3);
    }

    #[test]
    fn only_slow_commands_are_kept_and_only_so_many() {
        let mut log = SlowLog::default();
        note(&mut log, &[b"fast"], 9, 10);
        note(&mut log, &[b"off"], 1_000_000, -1);
        assert_eq!(log.entries().len(), 0);
        for word in [&b"a"[..], b"b", b"c", b"d"] {
            note(&mut log, &[word], 10, 10);
        }
        let kept: Vec<(u64, &[u8])> =
            log.entries().map(|entry| (entry.id, &entry.arguments[0][..])).collect();
        assert_eq!(kept, [(3, &b"d"[..]), (2, b"c"), (1, b"b")]);
        log.clear();
        note(&mut log, &[b"e"], 0, 0);
        assert_eq!(log.entries().next().map(|entry| entry.id), Some(4));
    }

    #[test]
    fn many_and_long_arguments_are_cut_with_a_note() {
        let mut log = SlowLog::default();
        let long = [b'x'; 130];
        note(&mut log, &[&long[..]; 40], 1, 0);
        let entry = log.entries().next().expect("it was slow");
        assert_eq!(entry.arguments.len(), 32);
        assert_eq!(entry.arguments[31], b"... (9 more arguments)");
        assert_eq!(entry.arguments[0], [&long[..128], b"... (2 more bytes)"].concat());
        note(&mut log, &[&long[..128]; 32], 1, 0);
        let entry = log.entries().next().expect("it was slow");
        assert_eq!(entry.arguments, vec![long[..128].to_vec(); 32]);
    }
}
