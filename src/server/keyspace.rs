//! What clients and tools of Redis ask of databases and keys: there is one database, and no key.

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::base::number;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;

pub(super) static COMMANDS: &[ServerCommand] = &[
    row("select", select),
    row("dbsize", dbsize),
    row("scan", scan),
    row("keys", keys),
    row("type", type_of_key),
];

/// SELECT index -> OK for 0.
fn select(server: &mut Server, call: &Call<'_>) -> Outcome {
    let mut reply = server.reply(call);
    match number::parse_i64(&call.args[1]) {
        Some(0) => reply.status("OK"),
        Some(_) => reply.error("ERR DB index is out of range"),
        None => reply.error(CommandError::NotAnInteger.to_string()),
    }
    Outcome::Done
}

/// DBSIZE -> integer: the jobs that this node knows.
fn dbsize(server: &mut Server, call: &Call<'_>) -> Outcome {
    let job_count = server.engine.job_count();
    server.reply(call).integer(i64::try_from(job_count).unwrap_or(i64::MAX));
    Outcome::Done
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type] -> the end, and no keys.
fn scan(server: &mut Server, call: &Call<'_>) -> Outcome {
    let checked = check_scan(call);
    let mut reply = server.reply(call);
    match checked {
        Ok(()) => {
            reply.array(2);
            reply.bulk("0");
            reply.array(0);
        }
        Err(error) => reply.error(error),
    }
    Outcome::Done
}

fn check_scan(call: &Call<'_>) -> Result<(), String> {
    if number::parse_u64(&call.args[1]).is_none() {
        return Err("ERR invalid cursor".to_owned());
    }
    let mut at = 2;
    while let Some(option) = call.args.get(at) {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        match call.args.get(at + 1) {
            Some(_) if is("match") || is("type") => {}
            Some(count) if is("count") => match number::parse_i64(count) {
                Some(1..) => {}
                Some(_) => return Err(CommandError::Syntax.to_string()),
                None => return Err(CommandError::NotAnInteger.to_string()),
            },
            _ => return Err(CommandError::Syntax.to_string()),
        }
        at += 2;
    }
    Ok(())
}

/// KEYS pattern -> an empty array.
fn keys(server: &mut Server, call: &Call<'_>) -> Outcome {
    server.reply(call).array(0);
    Outcome::Done
}

/// TYPE key -> none.
fn type_of_key(server: &mut Server, call: &Call<'_>) -> Outcome {
    server.reply(call).status("none");
    Outcome::Done
}
