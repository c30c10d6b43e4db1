//! `nodes`: every node of the cluster in one table.
//!
//! Jobs are counted where they are held, so that one with three copies counts three times.

use std::time::Duration;

use super::condition::NodeCondition;
use super::connection::ServerConnection;
use super::failure::{Failure, STATUS_FAILED};
use super::nodes::{self, LeftOut, NodePeer, NodeView};
use super::options::CliOptions;
use super::survey;
use super::table::{Align, Cell, TableColumn, TextTable};
use super::terminal;

pub const COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "NODE", key: "id", align: Align::Left, width_min: 8 },
    TableColumn { heading: "ADDRESS", key: "address", align: Align::Left, width_min: 15 },
    TableColumn { heading: "VERSION", key: "version", align: Align::Left, width_min: 0 },
    TableColumn { heading: "STATE", key: "state", align: Align::Left, width_min: 0 },
    TableColumn { heading: "MEMORY", key: "memory_bytes", align: Align::Right, width_min: 8 },
    TableColumn { heading: "LIMIT", key: "memory_max_bytes", align: Align::Right, width_min: 8 },
    TableColumn { heading: "JOBS", key: "jobs", align: Align::Right, width_min: 8 },
    TableColumn { heading: "QUEUED", key: "queued", align: Align::Right, width_min: 8 },
    // With a consumer, delayed, acknowledged and not collected yet, or a copy of what another
    // node has in its queue.
    TableColumn { heading: "UNQUEUED", key: "unqueued", align: Align::Right, width_min: 8 },
    TableColumn { heading: "CLIENTS", key: "clients", align: Align::Right, width_min: 0 },
    TableColumn { heading: "BLOCKED", key: "blocked", align: Align::Right, width_min: 0 },
    TableColumn { heading: "UP", key: "uptime_secs", align: Align::Right, width_min: 6 },
];

/// Prints all nodes. Returns 1 when one could not be asked.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let (table, left_out) = take(options)?;
    nodes::complain_of(&left_out);
    terminal::print(table.render(options.format.form))?;
    Ok(if left_out.is_empty() { 0 } else { STATUS_FAILED })
}

/// Asks all nodes. Those that could not be asked are in the table all the same, and returned
/// with the reason.
pub fn take(options: &CliOptions) -> Result<(TextTable, Vec<LeftOut>), Failure> {
    let mut nodes = nodes::find(options)?;
    let answers = nodes::ask(&mut nodes, NodeNumbers::read)?;
    let view: Vec<&NodePeer> =
        answers.iter().flatten().take(1).flat_map(|first| first.condition.members()).collect();
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for (node, answer) in nodes.iter().zip(&answers) {
        if let Err(reason) = answer {
            left_out.push((node.label(), reason.clone()));
        }
        rows.push(row(node, answer.as_ref().ok(), &view));
    }
    Ok((TextTable { columns: COLUMNS, rows }, left_out))
}

/// What one node says of itself.
struct NodeNumbers {
    condition: NodeCondition,
    queued: u64,
}

impl NodeNumbers {
    fn read(connection: &mut ServerConnection) -> Result<NodeNumbers, Failure> {
        let condition = NodeCondition::read(connection)?;
        Ok(NodeNumbers { condition, queued: survey::jobs_queued(connection)? })
    }

    fn version(&self) -> Cell {
        let version = self.condition.info.version();
        version.map_or(Cell::Nothing, |version| Cell::Text(version.to_string()))
    }
}

/// The row of a node; `view` is how the first node sees the cluster.
fn row(node: &NodeView, numbers: Option<&NodeNumbers>, view: &[&NodePeer]) -> Vec<Cell> {
    let peer = view.iter().find(|peer| peer.id == node.id).copied();
    let state = state(node, numbers, peer);
    let mut row = vec![
        Cell::Id(node.id.clone()),
        Cell::Text(node.address.to_string()),
        numbers.map_or(Cell::Nothing, NodeNumbers::version),
        Cell::Text(state.to_string()),
    ];
    match numbers {
        None => row.resize(COLUMNS.len(), Cell::Nothing),
        Some(numbers) => {
            let jobs = numbers.condition.info.number("registered_jobs");
            row.extend([
                Cell::Bytes(numbers.condition.memory_used()),
                numbers.condition.memory_max.map_or(Cell::Nothing, Cell::Bytes),
                Cell::Count(jobs),
                Cell::Count(numbers.queued),
                Cell::Count(jobs.saturating_sub(numbers.queued)),
                Cell::Count(numbers.condition.info.number("connected_clients")),
                Cell::Count(numbers.condition.info.number("blocked_clients")),
                Cell::Age(Duration::from_secs(numbers.condition.info.number("uptime_in_seconds"))),
            ]);
        }
    }
    row
}

/// The state of a node in one word: what is worst comes first.
fn state(node: &NodeView, numbers: Option<&NodeNumbers>, peer: Option<&NodePeer>) -> &'static str {
    let Some(numbers) = numbers else { return "unreachable" };
    let has = |flag| peer.is_some_and(|peer| peer.has(flag));
    if node.has_copied_id {
        "copied-id"
    } else if has("fail") || has("fail?") {
        "failing"
    } else if numbers.condition.is_leaving() {
        "leaving"
    } else if numbers.condition.refusal().is_some() {
        "refusing"
    } else {
        "ok"
    }
}
