//! CLUSTER: membership, seen and changed by hand.

use core::net::IpAddr;
use std::fmt::Write as _;

use crate::base::ids::NodeId;
use crate::base::limits::CLIENT_PORT_MAX;
use crate::base::number::parse_i64;
use crate::engine::arguments::is;
use crate::engine::cluster::{Begun, Forgotten, Leaving, Reset};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::{Engine, More};
use crate::proto::nodes_conf;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("cluster", cluster)];

/// Jobs and queues that CLUSTER RESET drops before others have their turn.
const RESET_SLICE: usize = 4096;

/// CLUSTER subcommand [argument ...]
pub fn cluster(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let word = &call.args[1];
    let run = match call.args.len() {
        4 | 5 if is(word, "meet") => meet,
        2 if is(word, "nodes") => nodes,
        2 if is(word, "peers") => peers,
        2 if is(word, "myid") => my_id,
        2 if is(word, "info") => info,
        2 if is(word, "saveconfig") => save_config,
        3 if is(word, "forget") => forget,
        2 | 3 if is(word, "reset") => reset,
        2 | 3 if is(word, "leaving") => leaving,
        _ => return Err(error("Wrong CLUSTER subcommand or number of arguments")),
    };
    run(engine, call)
}

fn error(text: impl Into<String>) -> CommandError {
    CommandError::Other(format!("ERR {}", text.into()))
}

fn ok(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    engine.reply(call.client, call.resp).status("OK");
    Ok(Outcome::Done)
}

/// CLUSTER MEET ip port [bus-port] -> OK, also when a handshake with that address is under
/// way. C has no third argument: its bus port is always the port + 10000.
fn meet(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let number = |index| {
        let word = &call.args[index];
        parse_i64(word)
            .ok_or_else(|| error(format!("Invalid TCP port specified: {}", text_of(word))))
    };
    let port = number(3)?;
    let bus_port = if call.args.len() == 5 { Some(number(4)?) } else { None };
    let begun = (|| {
        let ip: IpAddr = core::str::from_utf8(&call.args[2]).ok()?.parse().ok()?;
        let port = u16::try_from(port).ok().filter(|port| *port <= CLIENT_PORT_MAX)?;
        let bus_port = match bus_port {
            Some(bus_port) => Some(u16::try_from(bus_port).ok().filter(|port| *port != 0)?),
            None => None,
        };
        engine.with_cluster(|cluster, cx| cluster.meet(cx, ip, port, bus_port))
    })();
    match begun {
        Some(Begun::Yes) => ok(engine, call),
        Some(Begun::No) => Err(error("Too many handshakes in progress, try later")),
        None => Err(error(format!(
            "Invalid node address specified: {}:{}",
            text_of(&call.args[2]),
            text_of(&call.args[3])
        ))),
    }
}

fn text_of(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// CLUSTER NODES -> a line a node, those in handshake under temporary IDs.
fn nodes(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut text = Vec::new();
    let lines = engine.cluster.node_lines(engine.now);
    for line in lines.chain(engine.cluster.handshake_lines(engine.now)) {
        nodes_conf::append_line(&mut text, &line);
    }
    engine.reply(call.client, call.resp).bulk(text);
    Ok(Outcome::Done)
}

/// CLUSTER MYID -> this node's ID.
fn my_id(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let id = *engine.cluster.my_id();
    engine.reply(call.client, call.resp).bulk(id.0);
    Ok(Outcome::Done)
}

/// CLUSTER INFO -> figures, one a line.
fn info(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let cluster = &engine.cluster;
    let stats = cluster.stats();
    let figures = [
        ("known_nodes", (cluster.size() + cluster.handshake_count()) as u64),
        ("reachable_nodes", cluster.reachable_count() as u64),
        ("size", cluster.size() as u64),
        ("stats_messages_sent", stats.sent.total()),
        ("stats_messages_received", stats.received.total()),
    ];
    // C: clusterUpdateState, the state is always ok.
    let mut text = String::from("cluster_state:ok\r\n");
    for (name, figure) in figures {
        write!(text, "cluster_{name}:{figure}\r\n").expect("writing to a string does not fail");
    }
    engine.reply(call.client, call.resp).bulk(text);
    Ok(Outcome::Done)
}

/// CLUSTER SAVECONFIG -> OK once nodes.conf is on the disk, or an error. Whoever drives the
/// engine answers.
fn save_config(_: &mut Engine, _: &Call<'_>) -> CommandResult {
    Ok(Outcome::SaveNodes)
}

/// CLUSTER PEERS -> array of maps, one a node, this one first. Whoever drives the engine answers.
fn peers(_: &mut Engine, _: &Call<'_>) -> CommandResult {
    Ok(Outcome::ShowPeers)
}

/// CLUSTER FORGET id -> OK. Jobs may still name the node.
fn forget(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let word = &call.args[2];
    let id = NodeId::parse(word).ok_or_else(|| error("Invalid node identifier"))?;
    match engine.with_cluster(|cluster, cx| cluster.forget(cx, &id)) {
        Forgotten::Yes => ok(engine, call),
        Forgotten::Unknown => Err(error(format!("Unknown node {}", text_of(word)))),
        Forgotten::Myself => Err(error("I tried hard but I can't forget myself...")),
    }
}

/// CLUSTER RESET [SOFT|HARD] -> OK. Drops all jobs and queues and forgets all nodes; HARD
/// takes a new ID as well. Waiting GETJOB clients get a null array.
///
/// The jobs go first, so that peers can still be told of those that wait for copies.
fn reset(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let reset = match call.args.get(2) {
        None => Reset::Soft,
        Some(word) if is(word, "soft") => Reset::Soft,
        Some(word) if is(word, "hard") => Reset::Hard,
        Some(_) => return Err(CommandError::Syntax),
    };
    if engine.flush_some(call.client, RESET_SLICE) == More::Yes {
        return Ok(Outcome::Again);
    }
    engine.with_cluster(|cluster, cx| cluster.reset(cx, reset));
    ok(engine, call)
}

/// CLUSTER LEAVING [yes|no] -> OK, or what it is. Clients that wait on a node that leaves
/// are turned away by its next look at them.
fn leaving(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let leaving = match call.args.get(2) {
        None => {
            let is_leaving = engine.cluster.is_leaving();
            engine.reply(call.client, call.resp).status(if is_leaving { "yes" } else { "no" });
            return Ok(Outcome::Done);
        }
        Some(word) if is(word, "yes") => Leaving::Yes,
        Some(word) if is(word, "no") => Leaving::No,
        Some(_) => {
            return Err(error("Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"));
        }
    };
    engine.with_cluster(|cluster, cx| cluster.set_leaving(cx, leaving));
    ok(engine, call)
}
