//! `cluster create` and `cluster check`: several nodes looked at together.
//!
//! Create introduces nodes to each other with CLUSTER MEET and waits until every one sees
//! every other. Check asks each node for its view and names what does not agree.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::connection::{ServerAddress, ServerConnection};
use super::failure::{Failure, STATUS_FAILED};
use super::info::text_of;
use super::nodes::{self, short};
use super::options::CliOptions;
use super::terminal;
use crate::base::limits::BUS_PORT_OFFSET;

/// Time the nodes get to find each other: two handshake timeouts of the default settings.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A node to be made part of a cluster.
struct Member {
    address: ServerAddress,
    /// What CLUSTER MEET takes, which resolves no names.
    socket: SocketAddr,
    id: String,
    connection: ServerConnection,
}

/// Makes one cluster of the nodes named after `cluster create`.
///
/// Nodes that are one cluster already are fine; a node that knows others is refused before
/// anything is done, because MEET would join their clusters for good.
pub fn create(options: &CliOptions) -> Result<u8, Failure> {
    let mut members = open_members(options)?;
    let ids: BTreeSet<String> = members.iter().map(|member| member.id.clone()).collect();
    if ids.len() < members.len() {
        return Err(told("Two of the addresses lead to the same node.".to_string()));
    }
    for member in &mut members {
        let strangers = nodes::view(&mut member.connection)?
            .into_iter()
            .filter(|peer| !ids.contains(&peer.id) && !peer.has("handshake"))
            .count();
        if strangers > 0 {
            return Err(told(format!(
                "{} is in a cluster with {strangers} other nodes: \
                 name those too, or take it out with CLUSTER RESET.",
                member.address
            )));
        }
    }
    let known = nodes::view(&mut members[0].connection)?;
    let is_known = |id: &str| known.iter().any(|peer| peer.id == id && peer.trouble().is_none());
    let unmet: Vec<SocketAddr> =
        members.iter().filter(|member| !is_known(&member.id)).map(|member| member.socket).collect();
    for socket in unmet {
        let (ip, port) = (socket.ip().to_string(), socket.port().to_string());
        text_of(members[0].connection.call(&["CLUSTER", "MEET", &ip, &port])?)?;
    }
    let started = Instant::now();
    while let Some(missing) = first_missing(&mut members)? {
        if started.elapsed() > JOIN_TIMEOUT {
            return Err(told(missing));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    for member in &members {
        terminal::print(format!("{} {}\n", member.id, member.address))?;
    }
    terminal::print(format!("OK: a cluster of {} nodes\n", members.len()))?;
    Ok(0)
}

fn open_members(options: &CliOptions) -> Result<Vec<Member>, Failure> {
    let addresses = &options.command[2..];
    if addresses.len() < 2 {
        return Err(told("cluster create takes two or more nodes, each as HOST:PORT.".to_string()));
    }
    let mut members = Vec::new();
    for address in addresses {
        let address = node_address(address)?;
        let socket = address
            .resolve()?
            .first()
            .copied()
            .ok_or_else(|| told(format!("{address} resolves to no address.")))?;
        let mut connection = nodes::open(&address, options)?;
        let (id, _) = nodes::hello(&mut connection)?;
        members.push(Member { address, socket, id, connection });
    }
    Ok(members)
}

/// Looks for a member that another one does not see, or for a handshake under way, and says so.
///
/// A node that two others tell of is greeted twice for a moment; the second greeting comes to
/// nothing, and only then do all nodes show the same.
fn first_missing(members: &mut [Member]) -> Result<Option<String>, Failure> {
    let others: Vec<(String, ServerAddress, u32)> = members
        .iter()
        .map(|member| {
            let bus_port = u32::from(member.socket.port()) + u32::from(BUS_PORT_OFFSET);
            (member.id.clone(), member.address.clone(), bus_port)
        })
        .collect();
    for member in members {
        let view = nodes::view(&mut member.connection)?;
        if let Some(greeted) = view.iter().find(|peer| peer.has("handshake")) {
            return Ok(Some(format!(
                "{} is in handshake with {} after {} seconds: see its log.",
                member.address,
                greeted.address,
                JOIN_TIMEOUT.as_secs()
            )));
        }
        for (id, address, bus_port) in &others {
            let seen = view.iter().find(|peer| peer.id == *id);
            if seen.is_none_or(|peer| peer.trouble().is_some()) {
                return Ok(Some(format!(
                    "{} has no link to {address} after {} seconds: let its bus port {bus_port} \
                     be reached from there.",
                    member.address,
                    JOIN_TIMEOUT.as_secs()
                )));
            }
        }
    }
    Ok(None)
}

/// Compares the views of all nodes that can be found. Returns 1 when something is wrong.
pub fn check(options: &CliOptions) -> Result<u8, Failure> {
    let mut found = match &options.command[2..] {
        [] => nodes::find(options)?,
        [entry] => nodes::find_from(&node_address(entry)?, options)?,
        _ => {
            return Err(told(
                "cluster check takes one node as HOST:PORT and finds the others.".to_string(),
            ));
        }
    };
    let mut views = Vec::new();
    for node in &mut found {
        views.push(match &mut node.connection {
            Ok(connection) => nodes::view(connection).map_err(|failure| failure.to_string()),
            Err(failure) => Err(failure.to_string()),
        });
    }
    // Nodes in handshake have temporary IDs that no other node can know.
    let known: BTreeSet<&str> = views
        .iter()
        .flatten()
        .flatten()
        .filter(|peer| !peer.has("handshake"))
        .map(|peer| peer.id.as_str())
        .collect();

    let mut bad = 0;
    for (node, view) in found.iter().zip(&views) {
        let troubles = match view {
            Err(reason) => vec![reason.clone()],
            Ok(view) => {
                let mut troubles: Vec<String> = view
                    .iter()
                    .filter_map(|peer| {
                        Some(format!("sees {} {}", short(&peer.id), peer.trouble()?))
                    })
                    .collect();
                let missed = known.iter().filter(|id| view.iter().all(|peer| peer.id != **id));
                troubles.extend(missed.map(|id| format!("does not know {}", short(id))));
                troubles
            }
        };
        let leaving = view.iter().flatten().any(|peer| peer.has("myself") && peer.has("leaving"));
        let mark = if leaving { " (leaving)" } else { "" };
        if troubles.is_empty() {
            terminal::print(format!("{}{mark}: ok\n", node.label()))?;
        } else {
            bad += 1;
            terminal::print(format!("{}{mark}: {}\n", node.label(), troubles.join(", ")))?;
        }
    }
    if bad == 0 {
        terminal::print(format!("OK: {} nodes see each other\n", found.len()))?;
        Ok(0)
    } else {
        terminal::print(format!(
            "TROUBLE: at {bad} of {} nodes. Start what is down, or have every other node \
             CLUSTER FORGET it.\n",
            found.len()
        ))?;
        Ok(STATUS_FAILED)
    }
}

fn node_address(word: &[u8]) -> Result<ServerAddress, Failure> {
    let text = String::from_utf8_lossy(word);
    ServerAddress::parse(&text).ok_or_else(|| told(format!("A node is HOST:PORT, not '{text}'.")))
}

fn told(sentence: String) -> Failure {
    Failure::Told(sentence)
}
