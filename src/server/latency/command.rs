//! LATENCY: what held the server up.

use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::server::Server;
use crate::server::latency::doctor;
use crate::server::server_command::{ServerCommand, row};

pub(in crate::server) static COMMANDS: &[ServerCommand] = &[row("latency", latency)];

/// LATENCY HISTORY event -> pairs of unix time and milliseconds, oldest first.
/// LATENCY LATEST -> per event: name, time and milliseconds of the last sample, highest.
/// LATENCY GRAPH event -> a drawing. LATENCY DOCTOR -> the samples in words, with advice.
/// LATENCY RESET [event ...] -> how many events had samples to forget.
fn latency(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let subcommand = args[1].to_ascii_lowercase();
    let now_unix_secs = server.clock.now.wall.secs();
    let mut reply = server.engine.out.replies.to(call.client, call.resp);
    let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    match (subcommand.as_slice(), args.len()) {
        (b"history", 3) => {
            let series = server.latency.of(&args[2]);
            reply.array(series.map_or(0, |series| series.samples().len()));
            for sample in series.iter().flat_map(|series| series.samples()) {
                reply.array(2);
                reply.integer(integer(sample.at_unix_secs));
                reply.integer(integer(sample.latency_ms));
            }
        }
        (b"latest", 2) => {
            reply.array(server.latency.all().len());
            for series in server.latency.all() {
                let latest = series.latest();
                reply.array(4);
                reply.bulk(series.event.name());
                reply.integer(integer(latest.at_unix_secs));
                reply.integer(integer(latest.latency_ms));
                reply.integer(integer(series.highest_ms));
            }
        }
        (b"graph", 3) => match server.latency.of(&args[2]) {
            Some(series) => reply.bulk(series.graph(now_unix_secs)),
            None => reply.error([b"ERR No samples available for event '", &args[2], b"'"].concat()),
        },
        (b"doctor", 2) => {
            reply.bulk(doctor::report(&server.latency, &server.config, now_unix_secs));
        }
        (b"reset", 2) => reply.integer(integer(server.latency.reset_all() as u64)),
        (b"reset", _) => {
            let names = args.from(2);
            let count = names.iter().filter(|name| server.latency.reset(name)).count();
            reply.integer(integer(count as u64));
        }
        _ => reply.error(CommandError::Syntax.to_string()),
    }
    Outcome::Done
}
