//! All nodes of a cluster, found through one of them, and how each sees the others.

use std::collections::BTreeSet;

use super::address::ServerAddress;
use super::connection::{PROBE_TIMEOUT, ServerConnection};
use super::failure::Failure;
use super::info::{Info, text_of};
use super::options::CliOptions;
use super::terminal;
use crate::proto::reply_reader::Value;

/// Most addresses that are tried. A server that lists nodes without end is no Disque.
const ADDRESSES_MAX: usize = 2000;
/// Nodes that are asked at the same time.
const ASKED_AT_ONCE: usize = 64;

/// A node, reached or not.
pub struct NodeView {
    pub id: String,
    pub address: ServerAddress,
    pub connection: Result<ServerConnection, Failure>,
    /// Another process found before it has the same ID.
    pub has_copied_id: bool,
}

impl NodeView {
    /// Returns the node as it is named to operators: the start of its ID, and its address.
    pub fn label(&self) -> String {
        format!("{} {}", short(&self.id), self.address)
    }
}

/// Shortens a node ID to what distinguishes nodes in practice.
pub fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Asks the node of the options for all nodes with HELLO and connects to each.
///
/// Fails only when that first node does.
pub fn find(options: &CliOptions) -> Result<Vec<NodeView>, Failure> {
    find_from(&options.address, options)
}

/// As [`find`], starting at another node.
///
/// Every node that answers is asked for the nodes it knows, so that one that only some know
/// is found as well. A server that answers with the ID of another is a node of its own here,
/// although the cluster takes the two for one.
pub fn find_from(address: &ServerAddress, options: &CliOptions) -> Result<Vec<NodeView>, Failure> {
    let mut entry = open(address, options)?;
    let Greeting { own_id, listed } = hello(&mut entry)?;
    let address = address.clone();
    let mut nodes =
        vec![NodeView { id: own_id, address, connection: Ok(entry), has_copied_id: false }];
    follow(&mut nodes, listed, options)?;
    Ok(nodes)
}

/// Asks the found nodes once more for the nodes they know. Two servers with one ID show when
/// the others change their minds about its address.
pub fn find_again(nodes: &mut Vec<NodeView>, options: &CliOptions) -> Result<(), Failure> {
    let greetings = ask(nodes, hello)?;
    let listed = greetings.into_iter().flatten().flat_map(|greeting| greeting.listed).collect();
    follow(nodes, listed, options)
}

/// Connects to all that are listed, and to all that those list in turn.
fn follow(
    nodes: &mut Vec<NodeView>,
    mut listed: Vec<ListedNode>,
    options: &CliOptions,
) -> Result<(), Failure> {
    let mut tried: BTreeSet<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    while !listed.is_empty() {
        listed.retain(|node| tried.insert(node.address.to_string()));
        if tried.len() > ADDRESSES_MAX {
            return Err(Failure::Protocol(format!("HELLO lists over {ADDRESSES_MAX} nodes")));
        }
        let asked = at_once(&mut listed, |node| {
            let mut connection = open(&node.address, options)?;
            let greeting = hello(&mut connection)?;
            Ok((greeting, connection))
        })?;
        let mut listed_next = Vec::new();
        for (node, asked) in listed.into_iter().zip(asked) {
            let (id, connection) = match asked {
                // A node in handshake is listed under a temporary ID.
                Ok((greeting, connection)) => {
                    listed_next.extend(greeting.listed);
                    (greeting.own_id, Ok(connection))
                }
                Err(failure) => (node.id, Err(failure)),
            };
            let address = node.address;
            add(nodes, NodeView { id, address, connection, has_copied_id: false });
        }
        listed = listed_next;
    }
    Ok(())
}

/// Reaches the node of the options alone.
pub fn find_one(options: &CliOptions) -> Result<NodeView, Failure> {
    let mut connection = open(&options.address, options)?;
    let id = hello(&mut connection)?.own_id;
    let address = options.address.clone();
    Ok(NodeView { id, address, connection: Ok(connection), has_copied_id: false })
}

/// Says what to do about a node that has the ID of another one, if it has.
pub fn copied_id(node: &NodeView, nodes: &[NodeView]) -> Option<String> {
    let original = nodes.iter().find(|other| node.has_copied_id && other.id == node.id)?;
    Some(copied_id_text(&original.address, &node.address, &node.id))
}

/// Says what to do about two servers with one ID.
pub fn copied_id_text(one: &ServerAddress, other: &ServerAddress, id: &str) -> String {
    format!(
        "{one} and {other} are two servers with one ID, {}: a nodes.conf was copied. Stop one, \
         remove its nodes.conf, start it and join it anew",
        short(id)
    )
}

/// Adds a node unless it is known already, at another address or by its neighbours alone.
fn add(nodes: &mut Vec<NodeView>, mut node: NodeView) {
    let mut is_known = false;
    for known in nodes.iter_mut().filter(|known| known.id == node.id) {
        is_known = true;
        match (&mut known.connection, &mut node.connection) {
            (_, Err(_)) => return,
            (Err(_), Ok(_)) => {
                *known = node;
                return;
            }
            (Ok(one), Ok(other)) => {
                if is_same_process(one, other) {
                    return;
                }
            }
        }
    }
    if is_known {
        node.has_copied_id = true;
    }
    nodes.push(node);
}

/// Returns whether two connections lead to one process, as far as they can say.
pub fn is_same_process(one: &mut ServerConnection, other: &mut ServerConnection) -> bool {
    let run_id = |connection: &mut ServerConnection| {
        Info::read(connection).ok()?.field("run_id").map(str::to_string)
    };
    match (run_id(one), run_id(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Asks all nodes at the same time. A node that cannot be asked has the reason in its place;
/// fails only on Ctrl-C.
pub fn ask<T: Send>(
    nodes: &mut [NodeView],
    question: impl Fn(&mut ServerConnection) -> Result<T, Failure> + Sync,
) -> Result<Vec<Result<T, String>>, Failure> {
    let answers = at_once(nodes, |node| match &mut node.connection {
        Ok(connection) => question(connection),
        Err(failure) => Err(Failure::Message(failure.to_string())),
    })?;
    Ok(answers.into_iter().map(|answer| answer.map_err(|failure| failure.to_string())).collect())
}

/// A node that could not be asked, as it is named, and why.
pub type LeftOut = (String, String);

/// Tells on standard error of nodes that could not be asked.
pub fn complain_of(left_out: &[LeftOut]) {
    for (node, reason) in left_out {
        terminal::complain(format!("Left out node {node}: {reason}"));
    }
}

/// Does something with each of many, some at the same time. Fails only on Ctrl-C.
fn at_once<I: Send, T: Send>(
    items: &mut [I],
    act: impl Fn(&mut I) -> Result<T, Failure> + Sync,
) -> Result<Vec<Result<T, Failure>>, Failure> {
    let mut results = Vec::with_capacity(items.len());
    for batch in items.chunks_mut(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let act = &act;
            let threads: Vec<_> =
                batch.iter_mut().map(|item| scope.spawn(move || act(item))).collect();
            results.extend(threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }));
        });
    }
    match results.iter().any(|result| matches!(result, Err(Failure::Interrupted))) {
        true => Err(Failure::Interrupted),
        false => Ok(results),
    }
}

/// Opens a connection that does not wait long for anything, and logs in.
pub fn open(address: &ServerAddress, options: &CliOptions) -> Result<ServerConnection, Failure> {
    ServerConnection::open(address, options.login.as_ref(), Some(PROBE_TIMEOUT))
}

/// The reply to HELLO.
pub struct Greeting {
    pub own_id: String,
    pub listed: Vec<ListedNode>,
}

/// A node as another one lists it.
pub struct ListedNode {
    pub id: String,
    pub address: ServerAddress,
}

/// Asks for the node's own ID and for the other nodes it knows.
pub fn hello(connection: &mut ServerConnection) -> Result<Greeting, Failure> {
    let unexpected =
        || Failure::Protocol("HELLO was answered by something else than Disque".into());
    let reply = connection.call(&["HELLO"])?;
    let Value::Array(items) = reply else {
        text_of(reply)?;
        return Err(unexpected());
    };
    let [Value::Integer(1), Value::Bulk(own_id), rows @ ..] = items.as_slice() else {
        return Err(unexpected());
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut listed = Vec::new();
    for row in rows {
        let Value::Array(row) = row else {
            return Err(unexpected());
        };
        let [Value::Bulk(id), Value::Bulk(ip), Value::Bulk(port), ..] = row.as_slice() else {
            return Err(unexpected());
        };
        let port = text(port).parse().map_err(|_| unexpected())?;
        // The node itself was dialled already, and may not know its address; one without an
        // address cannot be dialled.
        if id != own_id && !ip.is_empty() && port != 0 {
            let address = ServerAddress::Tcp { host: text(ip), port };
            listed.push(ListedNode { id: text(id), address });
        }
    }
    Ok(Greeting { own_id: text(own_id), listed })
}

/// One line of CLUSTER NODES: a node as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePeer {
    pub id: String,
    pub address: String,
    flags: Vec<String>,
    is_linked: bool,
}

impl NodePeer {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<NodePeer> {
        let mut words = line.split(' ');
        let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
        Some(NodePeer {
            id: id.to_string(),
            address: address.to_string(),
            flags: flags.split(',').map(str::to_string).collect(),
            is_linked: words.nth(2)? == "connected",
        })
    }

    /// Returns whether a flag is set, by its name in CLUSTER NODES.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|set| set == flag)
    }

    /// Returns whether the node that was asked would send new jobs there.
    pub fn takes_copies(&self) -> bool {
        !["myself", "handshake", "fail", "fail?", "leaving"].iter().any(|flag| self.has(flag))
    }

    /// Returns what is wrong with the node in the eyes of the one that was asked.
    pub fn trouble(&self) -> Option<&'static str> {
        if self.has("myself") {
            None
        } else if self.has("fail") {
            Some("failing")
        } else if self.has("fail?") {
            Some("possibly failing")
        } else if self.has("handshake") {
            Some("still in handshake")
        } else if self.has("noaddr") {
            Some("without an address")
        } else if self.is_linked {
            None
        } else {
            Some("without a link")
        }
    }
}

/// Asks a node how it sees the cluster, itself included.
pub fn view(connection: &mut ServerConnection) -> Result<Vec<NodePeer>, Failure> {
    let text = text_of(connection.call(&["CLUSTER", "NODES"])?)?;
    let parse = |line| {
        NodePeer::parse(line)
            .ok_or_else(|| Failure::Protocol(format!("CLUSTER NODES has a line '{line}'")))
    };
    let view: Vec<NodePeer> = text.lines().map(parse).collect::<Result<_, _>>()?;
    if !view.iter().any(|peer| peer.has("myself")) {
        return Err(Failure::Protocol("CLUSTER NODES names no node as itself".to_string()));
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cluster_nodes_tells_what_is_wrong() {
        let trouble = |flags: &str, link: &str| {
            NodePeer::parse(&format!("id 127.0.0.1:7711 {flags} 0 0 {link}"))
                .expect("a line")
                .trouble()
        };
        assert_eq!(trouble("myself", "connected"), None);
        assert_eq!(trouble("noflags", "connected"), None);
        assert_eq!(trouble("leaving", "connected"), None);
        assert_eq!(trouble("noflags", "disconnected"), Some("without a link"));
        assert_eq!(trouble("fail?", "connected"), Some("possibly failing"));
        assert_eq!(trouble("fail,leaving", "disconnected"), Some("failing"));
        assert_eq!(trouble("handshake", "disconnected"), Some("still in handshake"));
        assert_eq!(NodePeer::parse("id 127.0.0.1:7711"), None);
    }
}
