//! `cluster create`, `cluster check` and `cluster forget`: several nodes seen together.
//!
//! Create introduces nodes to each other with CLUSTER MEET and waits until every one sees
//! every other. Check asks each node for its view and names what does not agree. Forget is
//! CLUSTER FORGET for people, who know a node by its address.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::address::ServerAddress;
use super::config_all;
use super::connection::ServerConnection;
use super::differences::{self, Difference, NodeAnswers, NodeTraits};
use super::failure::{Failure, STATUS_FAILED};
use super::info::text_of;
use super::nodes::{self, NodePeer, NodeView, short};
use super::options::CliOptions;
use super::session;
use super::table::{Align, Cell, TableColumn, TextTable, counted};
use super::{terminal, wait};
use crate::base::limits::BUS_PORT_OFFSET;

/// Time the nodes get to find each other: two handshake timeouts of the default settings.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two questions to the nodes.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Time after which the nodes are searched once more: about the time in which every node is
/// pinged by another one.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);
/// Digits of a whole node ID.
const ID_LEN: usize = 40;

pub const MEMBER_COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "NODE", key: "id", align: Align::Left, width_min: 0 },
    TableColumn { heading: "ADDRESS", key: "address", align: Align::Left, width_min: 0 },
];

/// For programs.
pub const CHECK_COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "NODE", key: "id", align: Align::Left, width_min: 0 },
    TableColumn { heading: "ADDRESS", key: "address", align: Align::Left, width_min: 0 },
    TableColumn { heading: "LEAVING", key: "leaving", align: Align::Left, width_min: 0 },
    TableColumn { heading: "TROUBLES", key: "troubles", align: Align::Left, width_min: 0 },
    TableColumn { heading: "VERSION", key: "version", align: Align::Left, width_min: 0 },
    TableColumn { heading: "ZONE", key: "zone", align: Align::Left, width_min: 0 },
    TableColumn { heading: "CLUSTER", key: "cluster_name", align: Align::Left, width_min: 0 },
    TableColumn { heading: "ABILITIES", key: "abilities", align: Align::Left, width_min: 0 },
    TableColumn { heading: "WARNINGS", key: "warnings", align: Align::Left, width_min: 0 },
];

/// For people, who read troubles and warnings below.
const CHECK_COLUMNS_SHOWN: &[TableColumn] = &[
    TableColumn { heading: "NODE", key: "id", align: Align::Left, width_min: 8 },
    TableColumn { heading: "ADDRESS", key: "address", align: Align::Left, width_min: 15 },
    TableColumn { heading: "VERSION", key: "version", align: Align::Left, width_min: 0 },
    TableColumn { heading: "ZONE", key: "zone", align: Align::Left, width_min: 0 },
    TableColumn { heading: "CLUSTER", key: "cluster_name", align: Align::Left, width_min: 0 },
    TableColumn { heading: "LACKS", key: "lacks", align: Align::Left, width_min: 0 },
    TableColumn { heading: "STATE", key: "state", align: Align::Left, width_min: 0 },
];

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
    refuse_shared_ids(&mut members)?;
    let ids: BTreeSet<String> = members.iter().map(|member| member.id.clone()).collect();
    for member in &mut members {
        let others = nodes::view(&mut member.connection)?
            .into_iter()
            .filter(|peer| !ids.contains(&peer.id) && !peer.has("handshake"))
            .count();
        if others > 0 {
            return Err(told(format!(
                "{0} is in a cluster with {1}: name those too. Or take it out of there: have \
                 the others CLUSTER FORGET it, then send it CLUSTER RESET, which deletes all its \
                 jobs (CLUSTER LEAVING yes beforehand lets others take them).",
                member.address,
                counted(others as u64, "other node"),
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
        wait::pause(ASK_EVERY)?;
    }
    let cells = |member: &Member| {
        vec![Cell::Text(member.id.clone()), Cell::Text(member.address.to_string())]
    };
    let table = TextTable { columns: MEMBER_COLUMNS, rows: members.iter().map(cells).collect() };
    if options.format.form.is_for_programs() {
        terminal::print(table.render(options.format.form))?;
    } else {
        for member in &members {
            terminal::print(format!("{} {}\n", member.id, member.address))?;
        }
        terminal::print(format!("OK: a cluster of {} nodes\n", members.len()))?;
    }
    Ok(0)
}

/// Two members with one ID are one node named twice, or two whose nodes.conf was copied.
fn refuse_shared_ids(members: &mut [Member]) -> Result<(), Failure> {
    for at in 1..members.len() {
        let (before, rest) = members.split_at_mut(at);
        let Some(member) = rest.first_mut() else { continue };
        let Some(other) = before.iter_mut().find(|other| other.id == member.id) else { continue };
        if nodes::is_same_process(&mut other.connection, &mut member.connection) {
            return Err(told(format!(
                "{} and {} lead to the same node.",
                other.address, member.address
            )));
        }
        return Err(told(nodes::copied_id_text(&other.address, &member.address, &member.id) + "."));
    }
    Ok(())
}

fn open_members(options: &CliOptions) -> Result<Vec<Member>, Failure> {
    let addresses = &options.command;
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
        let id = nodes::hello(&mut connection)?.own_id;
        members.push(Member { address, socket, id, connection });
    }
    Ok(members)
}

/// Searches for a member that another one does not see, or for a handshake under way, and names it.
///
/// A node that two others report is in two handshakes for a moment. The second comes to nothing,
/// and only then do all nodes show the same.
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
        if let Some(new) = view.iter().find(|peer| peer.has("handshake")) {
            return Ok(Some(format!(
                "{} is in handshake with {} after {} seconds: see its log.",
                member.address,
                new.address,
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

/// What `cluster check` found at one node.
struct NodeFinding<'a> {
    node: &'a NodeView,
    is_leaving: bool,
    troubles: Vec<String>,
}

impl NodeFinding<'_> {
    fn state(&self) -> &'static str {
        match (self.is_leaving, self.troubles.is_empty()) {
            (_, false) => "trouble",
            (true, true) => "leaving",
            (false, true) => "ok",
        }
    }
}

/// Compares the views of all nodes that can be found, and what they are. Returns 1 when something
/// is wrong; that nodes differ is a warning.
pub fn check(options: &CliOptions) -> Result<u8, Failure> {
    let mut found = match options.command.as_slice() {
        [] => nodes::find(options)?,
        [entry] => nodes::find_from(&node_address(entry)?, options)?,
        _ => {
            return Err(told(
                "cluster check takes one node as HOST:PORT and finds the others.".to_string(),
            ));
        }
    };
    if found.len() > 1 {
        wait::pause(SECOND_LOOK_AFTER)?;
        nodes::find_again(&mut found, options)?;
    }
    let views = nodes::ask(&mut found, nodes::view)?;
    let policies = nodes::ask(&mut found, config_all::policies_of)?;
    let answers = nodes::ask(&mut found, NodeAnswers::read)?;
    let answers: Vec<Option<NodeAnswers>> = answers.into_iter().map(Result::ok).collect();
    let traits = differences::traits_of(&found, &answers);
    let mut findings = compare(&found, &views);
    let policies: Vec<Option<String>> = policies.into_iter().map(|it| it.ok().flatten()).collect();
    for (finding, difference) in findings.iter_mut().zip(config_all::which_differ(&policies)) {
        let trouble = difference.map(|it| format!("has another queue-policy than most: {it}"));
        finding.troubles.extend(trouble);
    }
    for (finding, answers) in findings.iter_mut().zip(&answers) {
        let mistaken = answers.iter().flat_map(|it| differences::mistaken(it, &traits));
        finding.troubles.extend(mistaken);
    }
    let names: Vec<String> = found.iter().map(|node| node.address.to_string()).collect();
    let warnings = differences::find(&names, &traits, &answers);
    if options.format.form.is_for_programs() {
        let rows = check_rows(&findings, &traits, &warnings);
        let table = TextTable { columns: CHECK_COLUMNS, rows };
        terminal::print(table.render(options.format.form))?;
    } else {
        let rows = check_rows_shown(&findings, &traits);
        let table = TextTable { columns: CHECK_COLUMNS_SHOWN, rows };
        terminal::print(table.render(options.format.form))?;
        print_findings(&findings, &warnings, differences::zone_count(&traits))?;
    }
    let is_well = findings.iter().all(|finding| finding.troubles.is_empty());
    Ok(if is_well { 0 } else { STATUS_FAILED })
}

fn check_rows(
    findings: &[NodeFinding<'_>],
    traits: &[NodeTraits],
    warnings: &[Difference],
) -> Vec<Vec<Cell>> {
    let row = |(place, (finding, traits)): (usize, (&NodeFinding<'_>, &NodeTraits))| {
        let own = warnings.iter().filter(|warning| warning.nodes.contains(&place));
        vec![
            Cell::Text(finding.node.id.clone()),
            Cell::Text(finding.node.address.to_string()),
            Cell::Flag(finding.is_leaving),
            Cell::Texts(finding.troubles.clone()),
            known(&traits.version),
            known(&traits.zone),
            known(&traits.cluster_name),
            traits.abilities.clone().map_or(Cell::Nothing, Cell::Texts),
            Cell::Texts(own.map(|warning| warning.text.clone()).collect()),
        ]
    };
    findings.iter().zip(traits).enumerate().map(row).collect()
}

fn check_rows_shown(findings: &[NodeFinding<'_>], traits: &[NodeTraits]) -> Vec<Vec<Cell>> {
    let row = |(finding, node): (&NodeFinding<'_>, &NodeTraits)| {
        let lacking = differences::lacking(node, traits);
        vec![
            Cell::Id(finding.node.id.clone()),
            Cell::Text(finding.node.address.to_string()),
            known(&node.version),
            known(&node.zone),
            known(&node.cluster_name),
            match (&node.abilities, lacking.is_empty()) {
                (None, false) => Cell::Text("all".to_owned()),
                (_, true) => Cell::Nothing,
                (Some(_), false) => Cell::Text(lacking.join(",")),
            },
            Cell::Text(finding.state().to_owned()),
        ]
    };
    findings.iter().zip(traits).map(row).collect()
}

fn known(text: &Option<String>) -> Cell {
    text.clone().map_or(Cell::Nothing, Cell::Text)
}

/// Prints a line for each node with troubles, one for each difference, and what it comes to.
fn print_findings(
    findings: &[NodeFinding<'_>],
    warnings: &[Difference],
    zone_count: usize,
) -> Result<(), Failure> {
    let bad = findings.iter().filter(|finding| !finding.troubles.is_empty());
    for NodeFinding { node, troubles, .. } in bad.clone() {
        let found = troubles.join(", ");
        terminal::print(format!("{}: {}\n", node.label(), terminal::one_line(&found)))?;
    }
    for warning in warnings {
        terminal::print(format!("WARNING: {}\n", terminal::one_line(&warning.text)))?;
    }
    let all = counted(findings.len() as u64, "node");
    let zones = match zone_count {
        0 => String::new(),
        zones => format!(" in {}", counted(zones as u64, "zone")),
    };
    terminal::print(match bad.count() {
        0 if findings.len() == 1 => "OK: 1 node, and it knows no other\n".to_string(),
        0 => format!("OK: {all}{zones} see each other\n"),
        bad => format!(
            "TROUBLE: at {bad} of {all}. Start what is down, or have every other node \
             CLUSTER FORGET it; set policies everywhere with config-all.\n"
        ),
    })
}

/// Finds what the nodes do not agree on.
fn compare<'a>(
    found: &'a [NodeView],
    views: &[Result<Vec<NodePeer>, String>],
) -> Vec<NodeFinding<'a>> {
    // Nodes in handshake have temporary IDs that no other node can know.
    let known: BTreeSet<&str> = views
        .iter()
        .flatten()
        .flatten()
        .filter(|peer| !peer.has("handshake"))
        .map(|peer| peer.id.as_str())
        .collect();
    let finding = |(node, view): (&'a NodeView, &Result<Vec<NodePeer>, String>)| {
        let mut troubles: Vec<String> = nodes::copied_id(node, found).into_iter().collect();
        match view {
            Err(reason) => troubles.push(reason.clone()),
            Ok(view) => {
                troubles.extend(view.iter().filter_map(|peer| {
                    Some(format!("sees {} {}", short(&peer.id), peer.trouble()?))
                }));
                let missed = known.iter().filter(|id| view.iter().all(|peer| peer.id != **id));
                troubles.extend(missed.map(|id| format!("does not know {}", short(id))));
            }
        }
        let mut own = view.iter().flatten().filter(|peer| peer.has("myself"));
        NodeFinding { node, is_leaving: own.any(|peer| peer.has("leaving")), troubles }
    };
    found.iter().zip(views).map(finding).collect()
}

/// Sends CLUSTER FORGET for a node that is named by its ID, the start of it, or its address
/// as the server of the options knows it. Prints the reply.
pub fn forget(options: &CliOptions) -> Result<u8, Failure> {
    let [name] = options.command.as_slice() else {
        return Err(told(
            "cluster forget takes one node: its ID, the start of it, or its HOST:PORT.".to_string(),
        ));
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let id = if name.len() == ID_LEN {
        name
    } else {
        let mut connection = nodes::open(&options.address, options)?;
        let view = nodes::view(&mut connection)?;
        named_node(&name, &view)?.id.clone()
    };
    session::run(options, &["CLUSTER", "FORGET", &id].map(|word| word.as_bytes().to_vec()))
}

/// Finds the one node that is called so.
fn named_node<'a>(name: &str, view: &'a [NodePeer]) -> Result<&'a NodePeer, Failure> {
    let is_called =
        |peer: &&NodePeer| peer.address == name || !name.is_empty() && peer.id.starts_with(name);
    let candidates: Vec<&NodePeer> = view.iter().filter(is_called).collect();
    match candidates.as_slice() {
        [peer] => Ok(peer),
        [] => Err(told(format!("No known node is called {name}: see CLUSTER NODES."))),
        several => {
            let named = several.iter().map(|peer| format!("{} {}", short(&peer.id), peer.address));
            let named = named.collect::<Vec<_>>().join(", ");
            Err(told(format!("Several nodes are called {name}: {named}. Give more of the ID.")))
        }
    }
}

fn node_address(word: &[u8]) -> Result<ServerAddress, Failure> {
    let text = String::from_utf8_lossy(word);
    ServerAddress::parse(&text).ok_or_else(|| told(format!("A node is HOST:PORT, not '{text}'.")))
}

fn told(sentence: String) -> Failure {
    Failure::Message(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_its_address_or_the_start_of_its_id() {
        let line = |id: &str, port| format!("{id} 10.0.0.1:{port} noflags 0 0 connected");
        let view: Vec<NodePeer> = [line("aab1", 1), line("aab2", 2), line("ccc3", 3)]
            .iter()
            .map(|line| NodePeer::parse(line).expect("a line"))
            .collect();
        let named = |name| named_node(name, &view).map(|peer| peer.id.clone());
        assert_eq!(named("aab2").expect("one node"), "aab2");
        assert_eq!(named("c").expect("one node"), "ccc3");
        assert_eq!(named("10.0.0.1:1").expect("one node"), "aab1");
        for (name, sentence) in [
            (
                "aab",
                "Several nodes are called aab: aab1 10.0.0.1:1, aab2 10.0.0.1:2. Give more of the ID.",
            ),
            ("d", "No known node is called d: see CLUSTER NODES."),
            ("", "No known node is called : see CLUSTER NODES."),
            ("10.0.0.1:9", "No known node is called 10.0.0.1:9: see CLUSTER NODES."),
        ] {
            assert_eq!(named(name).expect_err(name).to_string(), sentence);
        }
    }
}
