//! All nodes of a cluster, found through one of them, and how each sees the others.

use super::connection::{PROBE_TIMEOUT, ServerAddress, ServerConnection};
use super::failure::Failure;
use super::info::text_of;
use super::options::CliOptions;
use crate::proto::reply_reader::Value;

/// A node, reached or not.
pub struct NodeView {
    pub id: String,
    pub address: ServerAddress,
    pub connection: Result<ServerConnection, Failure>,
}

impl NodeView {
    /// Returns the node as it is named to operators: the start of its ID, and its address.
    pub fn label(&self) -> String {
        format!("{} {}", short(&self.id), self.address)
    }
}

/// Shortens a node ID to what tells nodes apart in practice.
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
pub fn find_from(address: &ServerAddress, options: &CliOptions) -> Result<Vec<NodeView>, Failure> {
    let mut entry = open(address, options)?;
    let (own_id, rows) = hello(&mut entry)?;
    let mut nodes = vec![NodeView { id: own_id, address: address.clone(), connection: Ok(entry) }];
    for (listed_id, address) in rows {
        if nodes.iter().any(|node| node.id == listed_id) {
            continue;
        }
        // A node in handshake is listed under a temporary ID, maybe beside its real one.
        let asked = open(&address, options).and_then(|mut connection| {
            let (id, _) = hello(&mut connection)?;
            Ok((id, connection))
        });
        let (id, connection) = match asked {
            Ok((id, connection)) => (id, Ok(connection)),
            Err(failure) => (listed_id, Err(failure)),
        };
        if nodes.iter().all(|node| node.id != id) {
            nodes.push(NodeView { id, address, connection });
        }
    }
    Ok(nodes)
}

/// Opens a connection that does not wait long for anything.
pub fn open(address: &ServerAddress, options: &CliOptions) -> Result<ServerConnection, Failure> {
    ServerConnection::open(address, options.password.as_deref(), Some(PROBE_TIMEOUT))
}

/// Asks for the node's own ID and for all nodes it knows.
pub fn hello(
    connection: &mut ServerConnection,
) -> Result<(String, Vec<(String, ServerAddress)>), Failure> {
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
    let mut nodes = Vec::new();
    for row in rows {
        let Value::Array(row) = row else {
            return Err(unexpected());
        };
        let [Value::Bulk(id), Value::Bulk(ip), Value::Bulk(port), ..] = row.as_slice() else {
            return Err(unexpected());
        };
        let address = ServerAddress::Tcp {
            host: text(ip),
            port: text(port).parse().map_err(|_| unexpected())?,
        };
        nodes.push((text(id), address));
    }
    Ok((text(own_id), nodes))
}

/// One line of CLUSTER NODES: a node as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePeer {
    pub id: String,
    pub address: String,
    flags: Vec<String>,
    is_linked: bool,
}

impl NodePeer {
    fn parse(line: &str) -> Option<NodePeer> {
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

/// Asks a node how it sees the cluster.
pub fn view(connection: &mut ServerConnection) -> Result<Vec<NodePeer>, Failure> {
    let text = text_of(connection.call(&["CLUSTER", "NODES"])?)?;
    text.lines()
        .map(|line| {
            NodePeer::parse(line)
                .ok_or_else(|| Failure::Protocol(format!("CLUSTER NODES has a line '{line}'")))
        })
        .collect()
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
