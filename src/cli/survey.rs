//! The queues of all nodes at one moment, as each node reports its own.
//!
//! What a server sends is counted: names without end are an error, and a body that comes
//! with the oldest job of a queue is dropped as soon as its ID has been read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::connection::ServerConnection;
use super::failure::Failure;
use super::nodes::{self, LeftOut, NodeView};
use crate::base::glob::{self, Case};
use crate::base::limits;
use crate::proto::reply_reader::Value;

/// Queue names asked for at once.
const SCAN_COUNT: &str = "1000";
/// What a page of queue names counts for, however little is on it, in bytes.
const PAGE_COST: usize = 64;

/// One queue on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    pub length: u64,
    pub oldest_age: Option<Duration>,
    pub jobs_in: u64,
    pub jobs_out: u64,
    pub blocked: u64,
    pub pause: PauseState,
}

impl QueueNumbers {
    /// Adds what another node says of the same queue. It is paused when it is so on one node.
    pub fn add(&mut self, other: &QueueNumbers) {
        self.length = self.length.saturating_add(other.length);
        self.oldest_age = self.oldest_age.max(other.oldest_age);
        self.jobs_in = self.jobs_in.saturating_add(other.jobs_in);
        self.jobs_out = self.jobs_out.saturating_add(other.jobs_out);
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.pause.is_in |= other.pause.is_in;
        self.pause.is_out |= other.pause.is_out;
    }
}

/// Which ways a queue is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseState {
    pub is_in: bool,
    pub is_out: bool,
}

impl PauseState {
    /// Reads the word of QSTAT and PAUSE.
    pub fn parse(word: &str) -> PauseState {
        PauseState { is_in: matches!(word, "in" | "all"), is_out: matches!(word, "out" | "all") }
    }

    /// Returns the word of QSTAT and PAUSE.
    pub fn name(self) -> &'static str {
        match (self.is_in, self.is_out) {
            (false, false) => "none",
            (true, false) => "in",
            (false, true) => "out",
            (true, true) => "all",
        }
    }
}

/// The queues of one node by their names.
pub type NodeQueues = BTreeMap<Vec<u8>, QueueNumbers>;

/// The queues of all nodes at one moment.
#[derive(Debug)]
pub struct Survey {
    pub taken_at: Instant,
    /// By node label.
    pub nodes: BTreeMap<String, NodeQueues>,
    /// Nodes that could not be asked, and why.
    pub left_out: Vec<LeftOut>,
}

impl Survey {
    /// Asks all nodes for the queues whose names match one of the patterns; without
    /// patterns, for all.
    pub fn take(nodes: &mut [NodeView], patterns: &[Vec<u8>]) -> Result<Survey, Failure> {
        let taken_at = Instant::now();
        let answers = nodes::ask(nodes, |connection| queues_of(connection, patterns))?;
        let mut survey = Survey { taken_at, nodes: BTreeMap::new(), left_out: Vec::new() };
        for (node, answer) in nodes.iter().zip(answers) {
            match answer {
                Ok(queues) => {
                    survey.nodes.insert(node.label(), queues);
                }
                Err(reason) => survey.left_out.push((node.label(), reason)),
            }
        }
        Ok(survey)
    }

    /// Returns the patterns that no queue matches.
    pub fn unmatched<'a>(&self, patterns: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let is_known = |pattern: &[u8]| {
            self.nodes.values().flat_map(NodeQueues::keys).any(|name| matches(pattern, name))
        };
        patterns.iter().map(Vec::as_slice).filter(|pattern| !is_known(pattern)).collect()
    }
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // A name with brackets is no pattern for itself, and is meant all the same.
    pattern == name || glob::matches(pattern, name, Case::Sensitive)
}

/// Asks one node for its queues; see [`Survey::take`].
fn queues_of(
    connection: &mut ServerConnection,
    patterns: &[Vec<u8>],
) -> Result<NodeQueues, Failure> {
    let names = queue_names_like(connection, patterns)?;
    numbers_of(connection, &names)
}

/// Asks one node for the names of its queues, in order, that match one of the patterns; without
/// patterns, for all.
pub(super) fn queue_names_like(
    connection: &mut ServerConnection,
    patterns: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut names = queue_names(connection)?;
    names.retain(|name| {
        patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
    });
    Ok(names)
}

/// Asks one node for the first jobs of each of these queues. Returns their IDs, each with the place
/// of its queue among the names.
pub(super) fn first_jobs(
    connection: &mut ServerConnection,
    names: &[Vec<u8>],
    count: usize,
) -> Result<Vec<(usize, Vec<u8>)>, Failure> {
    let shown = count.to_string();
    let peek = |name| vec![b"QPEEK".as_slice(), name, shown.as_bytes()];
    let requests: Vec<_> = names.iter().map(|name| peek(name)).collect();
    let mut ids = Vec::new();
    connection.call_all(&requests, |index, peeked| {
        let Value::Array(rows) = peeked else { return };
        for row in rows.into_iter().take(count) {
            if let Value::Array(row) = row
                && let Some(Value::Bulk(id)) = row.get(1)
            {
                ids.push((index, id.clone()));
            }
        }
    })?;
    Ok(ids)
}

/// Shows the jobs that [`first_jobs`] found, each with the place of its queue. One that is gone
/// meanwhile is null.
pub(super) fn show_each(
    connection: &mut ServerConnection,
    ids: &[(usize, Vec<u8>)],
    mut take: impl FnMut(usize, &Value),
) -> Result<(), Failure> {
    let show: Vec<_> = ids.iter().map(|(_, id)| vec![b"SHOW".as_slice(), id]).collect();
    connection.call_all(&show, |index, job| {
        if let Some((of_queue, _)) = ids.get(index) {
            take(*of_queue, &job);
        }
    })
}

/// Asks one node how many jobs are in its queues.
pub fn jobs_queued(connection: &mut ServerConnection) -> Result<u64, Failure> {
    let names = queue_names(connection)?;
    let requests: Vec<_> = names.iter().map(|name| vec![b"QLEN".as_slice(), name]).collect();
    let mut queued = 0;
    connection.call_all(&requests, |_, length| {
        if let Value::Integer(length) = length {
            queued = u64::saturating_add(queued, u64::try_from(length).unwrap_or(0));
        }
    })?;
    Ok(queued)
}

/// Asks one node for the names of all its queues, in order.
fn queue_names(connection: &mut ServerConnection) -> Result<Vec<Vec<u8>>, Failure> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut taken = 0;
    let mut cursor = b"0".to_vec();
    loop {
        let reply =
            connection.call(&[b"QSCAN", cursor.as_slice(), b"COUNT", SCAN_COUNT.as_bytes()])?;
        let [Value::Bulk(next), Value::Array(found)] = array(&reply, "QSCAN")? else {
            return Err(unexpected("QSCAN"));
        };
        taken += PAGE_COST;
        for name in found {
            if let Value::Bulk(name) = name {
                taken += name.len() + size_of::<Vec<u8>>();
                names.push(name.clone());
            }
        }
        if taken > limits::REPLY_MAX {
            return Err(Failure::Protocol("QSCAN does not come to an end".to_string()));
        }
        if next == b"0" {
            // A queue that was there all the time may come twice.
            names.sort_unstable();
            names.dedup();
            return Ok(names);
        }
        cursor.clone_from(next);
    }
}

/// Asks one node for these queues; one that is gone is left out.
fn numbers_of(connection: &mut ServerConnection, names: &[Vec<u8>]) -> Result<NodeQueues, Failure> {
    let stats: Vec<_> = names.iter().map(|name| vec![b"QSTAT".as_slice(), name]).collect();
    let mut queues = NodeQueues::new();
    connection.call_all(&stats, |index, stat| {
        if let (Some(name), Value::Array(fields)) = (names.get(index), stat) {
            queues.insert(name.clone(), stat_numbers(&fields));
        }
    })?;

    let filled: Vec<Vec<u8>> = queues
        .iter()
        .filter(|(_, numbers)| numbers.length > 0)
        .map(|(name, _)| name.clone())
        .collect();
    let firsts = first_jobs(connection, &filled, 1)?;
    let mut ctimes = Vec::new();
    show_each(connection, &firsts, |index, job| {
        if let (Some(name), Value::Array(fields)) = (filled.get(index), job)
            && let Some(Value::Integer(ctime)) = value_of(fields, "ctime")
        {
            ctimes.push((name, *ctime));
        }
    })?;
    let now_ms = node_clock_ms(connection)?;
    for (name, ctime) in ctimes {
        if let Some(numbers) = queues.get_mut(name) {
            // ctime counts milliseconds times a million.
            let age_ms = now_ms.saturating_sub(u64::try_from(ctime).unwrap_or(0) / 1_000_000);
            numbers.oldest_age = Some(Duration::from_millis(age_ms));
        }
    }
    Ok(queues)
}

fn stat_numbers(fields: &[Value]) -> QueueNumbers {
    let number = |name| match value_of(fields, name) {
        Some(Value::Integer(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    };
    let pause = match value_of(fields, "pause") {
        Some(Value::Bulk(word)) => PauseState::parse(&String::from_utf8_lossy(word)),
        _ => PauseState::default(),
    };
    QueueNumbers {
        length: number("len"),
        oldest_age: None,
        jobs_in: number("jobs-in"),
        jobs_out: number("jobs-out"),
        blocked: number("blocked"),
        pause,
    }
}

/// Finds the value that follows a name in a flat list of both.
pub(super) fn value_of<'a>(fields: &'a [Value], name: &str) -> Option<&'a Value> {
    fields.chunks_exact(2).find_map(|pair| match &pair[0] {
        Value::Bulk(found) if found == name.as_bytes() => Some(&pair[1]),
        _ => None,
    })
}

/// Reads the node's own clock, by which its jobs were dated.
pub(super) fn node_clock_ms(connection: &mut ServerConnection) -> Result<u64, Failure> {
    let reply = connection.call(&["TIME"])?;
    let number = |value: &Value| -> Option<u64> {
        match value {
            Value::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        }
    };
    let [secs, micros] = array(&reply, "TIME")? else {
        return Err(unexpected("TIME"));
    };
    match (number(secs), number(micros)) {
        (Some(secs), Some(micros)) => Ok(secs.saturating_mul(1000).saturating_add(micros / 1000)),
        _ => Err(unexpected("TIME")),
    }
}

fn array<'a>(reply: &'a Value, command: &str) -> Result<&'a [Value], Failure> {
    match reply {
        Value::Array(items) => Ok(items),
        Value::Error(text) => {
            Err(Failure::Message(format!("{command}: {}", String::from_utf8_lossy(text))))
        }
        _ => Err(unexpected(command)),
    }
}

fn unexpected(command: &str) -> Failure {
    Failure::Protocol(format!("an unexpected kind of reply to {command}"))
}
