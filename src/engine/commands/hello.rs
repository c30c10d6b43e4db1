//! HELLO without arguments: the nodes that a client may speak to. The command's row is
//! the server's, since HELLO with arguments is about the connection.

use crate::base::ids::ClientId;
use crate::engine::Engine;
use crate::proto::bus::NodeFlags;
use crate::proto::nodes_conf::{LinkState, NodeLine};
use crate::proto::reply::Resp;

/// The version of the reply's form.
const FORM_VERSION: i64 = 1;

impl Engine {
    /// Replies `[1, own ID, [id, ip, port, priority] ...]`, this node included and those in
    /// handshake too; a smaller priority is a better node.
    ///
    /// C: this node's address is empty until it is known from a peer; clients take that for the
    /// address they dialled.
    pub(in crate::engine) fn on_hello(&mut self, client: ClientId, resp: Resp) {
        let lines = self.cluster.node_lines(self.now);
        let lines = lines.chain(self.cluster.handshake_lines(self.now));
        let memory_percent = |line: &NodeLine| {
            self.cluster.find(&line.id).and_then(|node| self.cluster.memory_percent(node))
        };
        let lines: Vec<(NodeLine, i64)> =
            lines.map(|line| (line, priority(&line, memory_percent(&line)))).collect();
        let id = *self.cluster.my_id();
        let mut reply = self.reply(client, resp);
        reply.array(2 + lines.len());
        reply.integer(FORM_VERSION);
        reply.bulk(id.0);
        for (line, priority) in &lines {
            reply.array(4);
            reply.bulk(line.id.0);
            reply.bulk(line.ip.map(|ip| ip.to_string()).unwrap_or_default());
            reply.bulk_integer(i64::from(line.port));
            reply.bulk_integer(*priority);
        }
    }
}

/// Differs from C, which has 1, 5, 10 and 100: a node whose memory is short is not the best one.
fn priority(line: &NodeLine, memory_percent: Option<u8>) -> i64 {
    if line.flags.intersects(NodeFlags::FAIL | NodeFlags::LEAVING) {
        100
    } else if line.flags.contains(NodeFlags::PFAIL) {
        10
    } else if line.link == LinkState::Disconnected {
        5
    } else {
        match memory_percent {
            Some(96..) => 3,
            Some(76..) => 2,
            _ => 1,
        }
    }
}
