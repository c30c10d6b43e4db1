//! `config-all`: one setting on every node of a cluster, read or set.
//!
//! Nodes do not tell each other their settings, so that each can be managed by itself. What is
//! to be the same everywhere, as policies of queues are, is set with this, and `cluster check`
//! names the nodes whose policies differ.

use std::collections::BTreeMap;

use super::connection::ServerConnection;
use super::failure::{Failure, STATUS_FAILED};
use super::info::text_of;
use super::nodes::{self, NodeView};
use super::options::CliOptions;
use super::table::{Align, Cell, TableColumn, TextTable};
use super::terminal;
use crate::proto::reply_reader::Value;

pub const COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "NODE", key: "id", align: Align::Left, width_min: 8 },
    TableColumn { heading: "ADDRESS", key: "address", align: Align::Left, width_min: 15 },
    TableColumn { heading: "DIRECTIVE", key: "directive", align: Align::Left, width_min: 0 },
    TableColumn { heading: "VALUE", key: "value", align: Align::Left, width_min: 0 },
];

const USAGE: &str = "config-all takes 'get DIRECTIVE' or 'set DIRECTIVE VALUE'.";

/// Reads or sets a directive on all nodes, and prints its value on each. Returns 1 when a node was
/// left out or refused it.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let words: Vec<&[u8]> = options.command.iter().map(Vec::as_slice).collect();
    let (directive, value) = match words.as_slice() {
        [verb, directive] if verb.eq_ignore_ascii_case(b"get") => (*directive, None),
        [verb, directive, value] if verb.eq_ignore_ascii_case(b"set") => (*directive, Some(*value)),
        _ => return Err(Failure::Message(USAGE.to_owned())),
    };
    let mut found = nodes::find(options)?;
    let answers = nodes::ask(&mut found, |connection| {
        if let Some(value) = value {
            text_of(connection.call(&[&b"CONFIG"[..], b"SET", directive, value])?)?;
        }
        value_of(connection, directive)
    })?;
    let mut rows = Vec::new();
    for (node, answer) in found.iter().zip(&answers) {
        match answer {
            Ok(values) => rows.extend(values.iter().map(|pair| row(node, pair))),
            Err(reason) => nodes::complain_of(&[(node.label(), reason.clone())]),
        }
    }
    terminal::print(TextTable { columns: COLUMNS, rows }.render(options.format.form))?;
    Ok(if answers.iter().all(Result::is_ok) { 0 } else { STATUS_FAILED })
}

fn row(node: &NodeView, (directive, value): &(String, String)) -> Vec<Cell> {
    vec![
        Cell::Id(node.id.clone()),
        Cell::Text(node.address.to_string()),
        Cell::Text(directive.clone()),
        Cell::Text(value.clone()),
    ]
}

/// The directives of a node that match a glob, and their values.
pub fn value_of(
    connection: &mut ServerConnection,
    directive: &[u8],
) -> Result<Vec<(String, String)>, Failure> {
    let reply = connection.call(&[&b"CONFIG"[..], b"GET", directive])?;
    let Value::Array(items) = reply else {
        text_of(reply)?;
        return Err(Failure::Protocol("CONFIG GET is answered by no array".to_owned()));
    };
    items
        .chunks(2)
        .map(|pair| match pair {
            [name, value] => Ok((text_of(name.clone())?, text_of(value.clone())?)),
            _ => Err(Failure::Protocol("CONFIG GET names a directive without a value".to_owned())),
        })
        .collect()
}

/// The policies of a node as it shows them; `None` for one that has no such directive.
pub fn policies_of(connection: &mut ServerConnection) -> Result<Option<String>, Failure> {
    Ok(value_of(connection, b"queue-policy")?.pop().map(|(_, value)| value))
}

/// What each of some nodes has otherwise in its policies than most; of equally many the first node
/// is right.
pub fn which_differ(policies: &[Option<String>]) -> Vec<Option<String>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for known in policies.iter().flatten() {
        *counts.entry(known).or_default() += 1;
    }
    let most = counts.values().max().copied().unwrap_or(0);
    let usual = policies.iter().flatten().find(|known| counts[known.as_str()] == most);
    let difference = |known: &Option<String>| {
        let (known, usual) = (known.as_ref()?, usual?);
        (known != usual).then(|| difference(known, usual))
    };
    policies.iter().map(difference).collect()
}

/// The first line that only one of two has, of each.
fn difference(policies: &str, usual: &str) -> String {
    let only = |one: &str, other: &str| {
        let mut lines = one.lines().filter(|line| other.lines().all(|known| known != *line));
        lines.next().map(str::to_owned)
    };
    match (only(policies, usual), only(usual, policies)) {
        (Some(line), Some(missed)) => format!("'{line}', not '{missed}'"),
        (Some(line), None) => format!("'{line}' is further"),
        (None, Some(missed)) => format!("'{missed}' is missing"),
        (None, None) => "its lines have another order".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_differs_from_most_is_named_and_c_nodes_are_not() {
        let differ = |policies: &[Option<&str>]| {
            let known: Vec<_> = policies.iter().map(|known| known.map(str::to_owned)).collect();
            let differ = which_differ(&known);
            differ.into_iter().map(Option::unwrap_or_default).collect::<Vec<String>>()
        };
        assert_eq!(differ(&[Some("a"), Some("b"), Some("b")]), ["'a', not 'b'", "", ""]);
        assert_eq!(differ(&[Some("a\nb"), Some("a")]), ["", "'b' is missing"]);
        assert_eq!(differ(&[Some("a"), Some("a\nb")]), ["", "'b' is further"]);
        assert_eq!(differ(&[Some("a\nb"), Some("b\na")]), ["", "its lines have another order"]);
        assert_eq!(differ(&[None, Some("b"), None]), [""; 3]);
        assert_eq!(differ(&[None, None]), [""; 2]);
    }
}
