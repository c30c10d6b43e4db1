//! What one node says of itself and of the others, and whether it takes jobs.

use super::connection::ServerConnection;
use super::failure::Failure;
use super::info::Info;
use super::nodes::{self, NodePeer};
use super::table::counted;
use crate::base::number::human_bytes;
use crate::proto::reply_reader::Value;

/// Shares of maxmemory, in percent, above which a node gives way to those with free memory, and
/// refuses jobs.
pub const MEMORY_SHORT: u64 = 75;
const MEMORY_FULL: u64 = 95;
/// Copies of a job when ADDJOB does not say, in a cluster that has as many nodes.
const REPLICATE_DEFAULT: usize = 3;
/// A queue that only policies for all queues are about.
const ANY_QUEUE: &str = "disque --check";

/// A node as it sees itself and its cluster.
#[derive(Debug)]
pub struct NodeCondition {
    pub info: Info,
    /// In bytes. None: no limit, or CONFIG is not for us.
    pub memory_max: Option<u64>,
    /// All nodes it knows, itself among them.
    view: Vec<NodePeer>,
    /// Copies that a job has when its ADDJOB is answered, if it does not say how many.
    copies: usize,
}

impl NodeCondition {
    /// Asks a node.
    pub fn read(connection: &mut ServerConnection) -> Result<NodeCondition, Failure> {
        let info = Info::read(connection)?;
        let memory_max = memory_max(&connection.call(&["CONFIG", "GET", "maxmemory"])?);
        let view = nodes::view(connection)?;
        let mut condition = NodeCondition { info, memory_max, view, copies: 0 };
        condition.copies = condition.members().count().min(REPLICATE_DEFAULT);
        if condition.lacks_takers() {
            // A policy for all queues may ask for fewer. C servers have none.
            let policy = connection.call(&["QPOLICY", ANY_QUEUE])?;
            let said = ["default-replicate", "default-sync"].map(|word| number_of(&policy, word));
            condition.copies = said.into_iter().flatten().fold(condition.copies, usize::min);
        }
        Ok(condition)
    }

    /// Returns whether too few other nodes can take copies of a job whose ADDJOB says nothing of
    /// them.
    fn lacks_takers(&self) -> bool {
        self.copies_elsewhere() > self.takers()
    }

    fn copies_elsewhere(&self) -> usize {
        if self.is_leaving() { self.copies } else { self.copies.saturating_sub(1) }
    }

    fn takers(&self) -> usize {
        self.members().filter(|peer| peer.takes_copies()).count()
    }

    /// Returns the memory in use, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.info.number("used_memory")
    }

    /// Returns the share of maxmemory in use, in percent, when there is a limit.
    pub fn memory_percent(&self) -> Option<u64> {
        Some(self.memory_used().saturating_mul(100) / self.memory_max?)
    }

    /// Returns whether CLUSTER LEAVING was sent to the node.
    pub fn is_leaving(&self) -> bool {
        self.view.iter().any(|peer| peer.has("myself") && peer.has("leaving"))
    }

    /// Returns the known nodes, this one among them. One in handshake is somebody who may
    /// join, and nobody who is missed.
    pub fn members(&self) -> impl Iterator<Item = &NodePeer> {
        self.view.iter().filter(|peer| !peer.has("handshake"))
    }

    /// Returns why the node refuses an ADDJOB without options, if it does.
    pub fn refusal(&self) -> Option<String> {
        if self.info.field("aof_last_write_status") == Some("err") {
            let text = "cannot write the append only file: make room on the disk and see the log";
            return Some(text.to_string());
        }
        let percent = self.memory_percent().unwrap_or(0);
        if percent >= MEMORY_FULL {
            let max = human_bytes(self.memory_max.unwrap_or(0));
            return Some(format!("memory {percent}% of {max}: new jobs are refused"));
        }
        if !self.lacks_takers() {
            return None;
        }
        let (elsewhere, takers) = (self.copies_elsewhere(), self.takers());
        let leaving = if self.is_leaving() { "leaving the cluster: " } else { "" };
        Some(format!(
            "{leaving}new jobs are refused: {} must take a copy, and {takers} can",
            counted(elsewhere as u64, "other node")
        ))
    }
}

/// Finds what a policy says with a word that takes a number: a field of the value and the glob that
/// says it.
fn number_of(policy: &Value, word: &str) -> Option<usize> {
    let Value::Array(value) = policy.field(word)? else { return None };
    match value.first() {
        Some(Value::Integer(number)) => usize::try_from(*number).ok(),
        _ => None,
    }
}

/// Reads the reply to CONFIG GET maxmemory. It is an error where CONFIG was renamed away.
fn memory_max(reply: &Value) -> Option<u64> {
    let Value::Array(items) = reply else { return None };
    let [_, Value::Bulk(digits)] = items.as_slice() else { return None };
    let max: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (max > 0).then_some(max)
}
