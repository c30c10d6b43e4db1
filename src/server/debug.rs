//! DEBUG: what tests and the curious need, and nobody in production.

use std::thread;
use std::time::Duration;

use super::server_command::{ServerCommand, row};
use crate::base::number;
use crate::engine::More;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::engine::jobs::Job;
use crate::server::shutdown::RewriteFirst;
use crate::server::{Server, config_file};

pub(super) static COMMANDS: &[ServerCommand] = &[row("debug", debug)];

/// Jobs dropped before others have their turn.
const FLUSHED_AT_ONCE: usize = 1000;

/// DEBUG SLEEP seconds -> OK after holding the server up for so long.
/// DEBUG FLUSHALL -> OK once all jobs and queues are gone.
/// DEBUG LOADAOF -> OK once memory is as the append only file says.
/// DEBUG ERROR text -> that error. DEBUG STRUCTSIZE -> sizes of structures, for people.
/// DEBUG INVARIANTS -> OK when all that the engine keeps twice agrees. Differs from C,
/// which has no such thing: the soak asks it of a server that has been ill-treated.
/// DEBUG SEGFAULT, ASSERT, OOM -> no reply: the server dies of it.
/// DEBUG RESTART [ms], CRASH-AND-RECOVER [ms] -> no reply: the program starts anew in the
/// same process, after a proper end or without.
fn debug(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let subcommand = args[1].to_ascii_lowercase();
    match (subcommand.as_slice(), args.len()) {
        (b"sleep", 3) => sleep(server, call),
        (b"flushall", _) => return flush(server, call),
        (b"loadaof", _) => load_anew(server, call),
        (b"error", 3) => server.reply(call).error(&args[2]),
        (b"structsize", 2) => {
            let sizes = format!("bits:{} job:{}", usize::BITS, size_of::<Job>());
            server.reply(call).bulk(sizes);
        }
        (b"invariants", 2) => {
            server.engine.check_invariants();
            server.reply(call).status("OK");
        }
        (b"segfault", _) => fault(),
        (b"assert", _) => panic!("DEBUG ASSERT asked for this"),
        (b"oom", _) => panic!("DEBUG OOM: out of memory, or so it was asked for"),
        (b"restart", _) => restart(server, call, RestartKind::Proper),
        (b"crash-and-recover", _) => restart(server, call, RestartKind::Crash),
        _ => server.reply(call).error(
            [
                &b"ERR Unknown DEBUG subcommand or wrong number of arguments for '"[..],
                &args[1],
                b"'",
            ]
            .concat(),
        ),
    }
    Outcome::Done
}

/// Whether a restart ends the running server properly first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestartKind {
    Proper,
    Crash,
}

fn sleep(server: &mut Server, call: &Call<'_>) {
    let secs = std::str::from_utf8(&call.args[2]).ok().and_then(|text| text.parse().ok());
    match secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok()) {
        Some(duration) => {
            thread::sleep(duration);
            server.reply(call).status("OK");
        }
        None => server.reply(call).error("ERR value is not a valid number of seconds"),
    }
}

fn flush(server: &mut Server, call: &Call<'_>) -> Outcome {
    match server.engine.flush(server.clock.now, call.client, FLUSHED_AT_ONCE) {
        More::Yes => Outcome::Again,
        More::No => {
            server.reply(call).status("OK");
            Outcome::Done
        }
    }
}

fn load_anew(server: &mut Server, call: &Call<'_>) {
    match server.load_anew(call.client) {
        Ok(()) => server.reply(call).status("OK"),
        Err(reason) => {
            log::warn!("DEBUG LOADAOF failed: {reason}");
            server.reply(call).error("ERR Error trying to load the AOF. Check server logs.");
        }
    }
}

/// Raises the signal rather than touch a wild pointer: the effect is the same and sound.
fn fault() {
    // SAFETY: raise takes a number; the handler and the default action do the rest.
    unsafe { libc::raise(libc::SIGSEGV) };
}

/// Only returns when the restart failed.
fn restart(server: &mut Server, call: &Call<'_>, ending: RestartKind) {
    let delay_ms = match call.args.get(2).map(number::parse_i64) {
        Some(None) => {
            return server.reply(call).error(CommandError::NotAnInteger.to_string());
        }
        Some(Some(ms)) => u64::try_from(ms).unwrap_or(0),
        None => 0,
    };
    if let Err(e) = try_restart(server, ending, Duration::from_millis(delay_ms)) {
        log::warn!("DEBUG RESTART failed: {e}");
        server.reply(call).error("ERR failed to restart the server. Check server logs.");
    }
}

fn try_restart(server: &mut Server, ending: RestartKind, delay: Duration) -> Result<(), String> {
    if ending == RestartKind::Proper {
        if let Some(path) = &server.config.config_file {
            config_file::rewrite(path, &server.config).map_err(|e| e.to_string())?;
        }
        server.shut_down(RewriteFirst::No)?;
        server.save_queues_for_restart();
    }
    thread::sleep(delay);
    Err(server.identity.start_again().to_string())
}
