//! `queues`: every queue of the cluster in one table.
//!
//! Rates are the difference of two surveys. Nodes that cannot be reached are named and left
//! out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failure::{Failure, STATUS_FAILED};
use super::nodes;
use super::options::CliOptions;
use super::survey::{QueueNumbers, Survey};
use super::table::{Align, Cell, TableColumn, TextTable, shown_name};
use super::terminal;
use super::wait;

/// Time between two surveys.
pub const SURVEY_EVERY: Duration = Duration::from_secs(1);

pub const COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "QUEUE", key: "queue", align: Align::Left, width_min: 5 },
    TableColumn { heading: "LENGTH", key: "length", align: Align::Right, width_min: 9 },
    TableColumn { heading: "OLDEST", key: "oldest_age_secs", align: Align::Right, width_min: 8 },
    TableColumn { heading: "IN/S", key: "in_per_sec", align: Align::Right, width_min: 9 },
    TableColumn { heading: "OUT/S", key: "out_per_sec", align: Align::Right, width_min: 9 },
    TableColumn { heading: "BLOCKED", key: "blocked", align: Align::Right, width_min: 7 },
    TableColumn { heading: "PAUSED", key: "paused", align: Align::Right, width_min: 6 },
    TableColumn { heading: "NODES", key: "nodes", align: Align::Right, width_min: 5 },
];

/// Prints the queues whose names match the words of the command, or all. Returns 1 when a
/// node could not be asked, or when nothing matches a word.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let patterns = &options.command;
    let mut nodes = nodes::find(options)?;
    let before = Survey::take(&mut nodes, patterns)?;
    wait::pause(options.interval.unwrap_or(SURVEY_EVERY))?;
    let after = Survey::take(&mut nodes, patterns)?;
    nodes::complain_of(&after.left_out);
    let unmatched = after.unmatched(patterns);
    for pattern in &unmatched {
        terminal::complain(format!("No queue is called {}.", shown_name(pattern)));
    }
    terminal::print(table(&rows(&before, &after)).render(options.format.form))?;
    let is_whole = after.left_out.is_empty() && unmatched.is_empty();
    Ok(if is_whole { 0 } else { STATUS_FAILED })
}

/// One queue of the whole cluster.
#[derive(Debug, Default, PartialEq)]
pub struct QueueRow {
    pub name: Vec<u8>,
    pub numbers: QueueNumbers,
    pub in_per_sec: f64,
    pub out_per_sec: f64,
    pub nodes: u64,
}

/// Adds the nodes up, the longest queue first.
pub fn rows(before: &Survey, after: &Survey) -> Vec<QueueRow> {
    let secs = after.taken_at.duration_since(before.taken_at).as_secs_f64();
    let mut rows: BTreeMap<&[u8], QueueRow> = BTreeMap::new();
    for (node, queues) in &after.nodes {
        let earlier = before.nodes.get(node);
        for (name, numbers) in queues {
            // A node or queue that was not there before has no known rate yet.
            let then = earlier.map(|queues| queues.get(name).cloned().unwrap_or_default());
            let then = then.as_ref().unwrap_or(numbers);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / secs;
            let row = rows.entry(name).or_default();
            row.numbers.add(numbers);
            row.in_per_sec += rate(numbers.jobs_in, then.jobs_in);
            row.out_per_sec += rate(numbers.jobs_out, then.jobs_out);
            row.nodes += 1;
        }
    }
    let named = |(name, row): (&[u8], QueueRow)| QueueRow { name: name.to_vec(), ..row };
    let mut rows: Vec<QueueRow> = rows.into_iter().map(named).collect();
    // By name already, which a stable sort keeps.
    rows.sort_by_key(|row| std::cmp::Reverse(row.numbers.length));
    rows
}

/// The rows as a table.
pub fn table(rows: &[QueueRow]) -> TextTable {
    let cells = |row: &QueueRow| {
        vec![
            Cell::Name(row.name.clone()),
            Cell::Count(row.numbers.length),
            row.numbers.oldest_age.map_or(Cell::Nothing, Cell::Age),
            Cell::PerSecond(row.in_per_sec),
            Cell::PerSecond(row.out_per_sec),
            Cell::Count(row.numbers.blocked),
            Cell::Text(row.numbers.pause.name().to_string()),
            Cell::Count(row.nodes),
        ]
    };
    TextTable { columns: COLUMNS, rows: rows.iter().map(cells).collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::survey::PauseState;
    use super::*;

    fn numbers(length: u64, jobs_in: u64, pause: &str) -> QueueNumbers {
        QueueNumbers {
            length,
            oldest_age: (length > 0).then(|| Duration::from_secs(length)),
            jobs_in,
            jobs_out: jobs_in - length,
            blocked: 1,
            pause: PauseState::parse(pause),
        }
    }

    fn survey(taken_at: Instant, nodes: &[(&str, &[(&str, QueueNumbers)])]) -> Survey {
        let queues = |list: &[(&str, QueueNumbers)]| {
            list.iter().map(|(name, numbers)| (name.as_bytes().to_vec(), numbers.clone())).collect()
        };
        Survey {
            taken_at,
            nodes: nodes.iter().map(|(id, list)| (id.to_string(), queues(list))).collect(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn nodes_are_added_up_and_the_longest_queue_comes_first() {
        let start = Instant::now();
        let before = survey(start, &[("a", &[("mail", numbers(1, 10, "none"))]), ("b", &[])]);
        let after = survey(
            start + Duration::from_secs(2),
            &[
                ("a", &[("mail", numbers(3, 20, "in")), ("a b", numbers(0, 0, "none"))]),
                ("b", &[("mail", numbers(4, 4, "out"))]),
                ("new", &[("mail", numbers(5, 500, "none"))]),
            ],
        );
        assert_eq!(
            table(&rows(&before, &after)).text(usize::MAX),
            "QUEUE    LENGTH   OLDEST      IN/S     OUT/S BLOCKED PAUSED NODES\n\
             mail         12       5s       7.0       4.0       3    all     3\n\
             \"a b\"         0        -       0.0       0.0       1   none     1\n"
        );
    }
}
