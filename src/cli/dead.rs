//! `dead`: the queues that hold dead letters, and what these died of.
//!
//! A queue holds dead letters if its first job is one. Of each node the first hundred letters of a
//! queue are looked at for their reasons and for where they lived; the lengths are whole.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::connection::ServerConnection;
use super::failure::{Failure, STATUS_FAILED};
use super::nodes::{self, LeftOut};
use super::options::CliOptions;
use super::survey::{first_jobs, node_clock_ms, queue_names_like, show_each, value_of};
use super::table::{Align, Cell, TableColumn, TextTable, shown_name};
use super::terminal;
use crate::proto::facts::DeathReason;
use crate::proto::reply_reader::Value;

/// Letters of a queue that are looked at on each node.
const LETTERS_MAX: usize = 100;

pub const COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "QUEUE", key: "queue", align: Align::Left, width_min: 5 },
    TableColumn { heading: "LETTERS", key: "letters", align: Align::Right, width_min: 8 },
    TableColumn { heading: "LIVED IN", key: "lived_in", align: Align::Left, width_min: 8 },
    TableColumn { heading: "REASONS", key: "reasons", align: Align::Left, width_min: 8 },
    TableColumn { heading: "LAST DIED", key: "last_death_secs", align: Align::Right, width_min: 9 },
];

/// The dead letters of one queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct DeadLetters {
    count: u64,
    /// The queues in which they lived.
    origins: BTreeSet<Vec<u8>>,
    /// How many of those that were looked at died of what.
    reasons: BTreeMap<&'static str, u64>,
    /// How long ago the last of these died.
    last_death: Option<Duration>,
}

impl DeadLetters {
    /// Adds what another node has in the same queue.
    fn add(&mut self, other: DeadLetters) {
        self.count = self.count.saturating_add(other.count);
        self.origins.extend(other.origins);
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.last_death = match (self.last_death, other.last_death) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
    }

    /// Looks at a job as SHOW has it; whether it is dead.
    fn look_at(&mut self, job: &Value, now_ms: u64) -> bool {
        let Value::Array(fields) = job else { return false };
        let Some(Value::Array(facts)) = value_of(fields, "dead") else { return false };
        if let Some(Value::Bulk(origin)) = value_of(facts, "queue") {
            self.origins.insert(origin.clone());
        }
        if let Some(Value::Bulk(reason)) = value_of(facts, "reason") {
            // A server may have reasons that are not known here, and says what it likes.
            let known = DeathReason::ALL.iter().find(|known| known.name().as_bytes() == reason);
            let reason = known.map_or("other", |known| known.name());
            *self.reasons.entry(reason).or_default() += 1;
        }
        if let Some(Value::Integer(died_at)) = value_of(facts, "died-at") {
            let ago_ms = now_ms.saturating_sub(u64::try_from(*died_at).unwrap_or(0));
            let ago = Duration::from_millis(ago_ms);
            self.last_death = Some(self.last_death.map_or(ago, |last| last.min(ago)));
        }
        true
    }
}

/// Prints the queues with dead letters whose names match the words of the command, or all. Returns
/// 1 when a node could not be asked.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let (table, left_out) = take(options, &options.command)?;
    nodes::complain_of(&left_out);
    terminal::print(table.render(options.format.form))?;
    Ok(if left_out.is_empty() { 0 } else { STATUS_FAILED })
}

/// Asks all nodes. Returns those that could not be asked too, with the reason.
pub fn take(
    options: &CliOptions,
    patterns: &[Vec<u8>],
) -> Result<(TextTable, Vec<LeftOut>), Failure> {
    let mut nodes = nodes::find(options)?;
    let answers = nodes::ask(&mut nodes, |connection| letters_of(connection, patterns))?;
    let mut queues: BTreeMap<Vec<u8>, DeadLetters> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(found) => found
                .into_iter()
                .for_each(|(name, letters)| queues.entry(name).or_default().add(letters)),
            Err(reason) => left_out.push((node.label(), reason)),
        }
    }
    let mut queues: Vec<_> = queues.into_iter().collect();
    // By name already, which a stable sort keeps.
    queues.sort_by_key(|(_, letters)| std::cmp::Reverse(letters.count));
    let rows = queues.into_iter().map(|(name, letters)| row(name, &letters)).collect();
    Ok((TextTable { columns: COLUMNS, rows }, left_out))
}

fn row(name: Vec<u8>, letters: &DeadLetters) -> Vec<Cell> {
    let reasons = letters.reasons.iter().map(|(reason, count)| format!("{reason} {count}"));
    vec![
        Cell::Name(name),
        Cell::Count(letters.count),
        Cell::Texts(letters.origins.iter().map(|origin| shown_name(origin)).collect()),
        Cell::Texts(reasons.collect()),
        letters.last_death.map_or(Cell::Nothing, Cell::Age),
    ]
}

/// Asks one node for its queues with dead letters.
fn letters_of(
    connection: &mut ServerConnection,
    patterns: &[Vec<u8>],
) -> Result<Vec<(Vec<u8>, DeadLetters)>, Failure> {
    let names = queue_names_like(connection, patterns)?;
    let now_ms = node_clock_ms(connection)?;
    let firsts = first_jobs(connection, &names, 1)?;
    let mut found: Vec<(Vec<u8>, DeadLetters)> = Vec::new();
    show_each(connection, &firsts, |index, job| {
        if DeadLetters::default().look_at(job, now_ms) {
            found.push((names[index].clone(), DeadLetters::default()));
        }
    })?;
    let names: Vec<Vec<u8>> = found.iter().map(|(name, _)| name.clone()).collect();
    let lengths: Vec<_> = names.iter().map(|name| vec![b"QLEN".as_slice(), name]).collect();
    connection.call_all(&lengths, |index, length| {
        if let Value::Integer(length) = length {
            found[index].1.count = u64::try_from(length).unwrap_or(0);
        }
    })?;
    let letters = first_jobs(connection, &names, LETTERS_MAX)?;
    show_each(connection, &letters, |index, job| {
        found[index].1.look_at(job, now_ms);
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn letter(queue: &str, reason: &str, died_at: i64) -> Value {
        let facts = vec![
            bulk("reason"),
            bulk(reason),
            bulk("queue"),
            bulk(queue),
            bulk("died-at"),
            Value::Integer(died_at),
        ];
        Value::Array(vec![bulk("id"), bulk("D-1"), bulk("dead"), Value::Array(facts)])
    }

    #[test]
    fn letters_of_all_nodes_are_added_up() {
        let mut here = DeadLetters { count: 2, ..DeadLetters::default() };
        assert!(here.look_at(&letter("mail", "nack", 4000), 10_000));
        assert!(here.look_at(&letter("mail", "expired", 9000), 10_000));
        let mut there = DeadLetters { count: 1, ..DeadLetters::default() };
        assert!(there.look_at(&letter("a b", "\u{1b}[31m", 1000), 10_000));
        assert!(!there.look_at(&Value::Array(vec![bulk("id"), bulk("D-2")]), 10_000));
        assert!(!there.look_at(&Value::NullArray, 10_000));
        here.add(there);
        let table = TextTable { columns: COLUMNS, rows: vec![row(b"mail.dead".to_vec(), &here)] };
        assert_eq!(
            table.text(usize::MAX),
            "QUEUE      LETTERS LIVED IN    REASONS                    LAST DIED\n\
             mail.dead        3 \"a b\", mail expired 1, nack 1, other 1        1s\n"
        );
    }
}
