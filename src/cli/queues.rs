//! `queues` and `top`: every queue of the cluster in one table.
//!
//! A [`Survey`] asks each node for its queues. Rates are the difference of two surveys.
//! Nodes that cannot be reached are named on standard error and left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::connection::ServerConnection;
use super::failure::Failure;
use super::nodes::{self, NodeView};
use super::options::{CliOptions, Repeat};
use super::output::{PrintForm, write_json_string};
use super::terminal::{self, CLEAR_SCREEN};
use crate::proto::quoting;
use crate::proto::reply_reader::Value;

/// Time between two surveys.
const SURVEY_EVERY: Duration = Duration::from_secs(1);
/// Queue names asked for at once.
const SCAN_COUNT: &str = "1000";
/// Lines of `top` around the table: summary, empty line, heading, and one for the cursor.
const LINES_AROUND: usize = 4;

/// Prints all queues once. Returns the exit status.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let mut nodes = nodes::find(options)?;
    let before = Survey::take(&mut nodes);
    std::thread::sleep(options.interval.unwrap_or(SURVEY_EVERY));
    let after = Survey::take(&mut nodes);
    for (node, reason) in &after.left_out {
        eprintln!("Left out node {node}: {reason}");
    }
    let rows = rows(&before, &after);
    terminal::print(match options.format.form {
        PrintForm::Json => json(&rows),
        _ => table(&rows, usize::MAX),
    })?;
    Ok(u8::from(!after.left_out.is_empty()))
}

/// Prints all queues again and again; `-r` says how often.
pub fn top(options: &CliOptions) -> Result<u8, Failure> {
    let mut before = Survey::take(&mut nodes::find(options)?);
    let mut shown = 0;
    // Once is the default of -r, and no sensible wish here.
    let limit = match options.repeat {
        Repeat::Times(times) if times > 1 => Some(times),
        _ => None,
    };
    while limit != Some(shown) {
        std::thread::sleep(options.interval.unwrap_or(SURVEY_EVERY));
        // Found anew each time: nodes come, go and restart while somebody watches.
        let page = match nodes::find(options) {
            Ok(mut nodes) => {
                let after = Survey::take(&mut nodes);
                let page = page(&rows(&before, &after), &after);
                before = after;
                page
            }
            Err(failure) => format!("{failure}\n"),
        };
        let clear = if terminal::prints_to_terminal() { CLEAR_SCREEN } else { "" };
        terminal::print(format!("{clear}{page}"))?;
        shown += 1;
    }
    Ok(0)
}

fn page(rows: &[QueueRow], survey: &Survey) -> String {
    let queued: u64 = rows.iter().map(|row| row.length).sum();
    let mut page =
        format!("{} nodes, {} queues, {queued} jobs queued", survey.nodes.len(), rows.len());
    for (node, reason) in &survey.left_out {
        let _ = write!(page, "; without node {node}: {reason}");
    }
    page.push_str("\n\n");
    let room = terminal::height().map_or(usize::MAX, |lines| lines.saturating_sub(LINES_AROUND));
    page.push_str(&table(rows, room));
    page
}

/// One queue on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    pub length: u64,
    pub oldest_age: Option<Duration>,
    jobs_in: u64,
    jobs_out: u64,
    blocked: u64,
    pause: PauseState,
}

/// Which ways a queue is closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PauseState {
    is_in: bool,
    is_out: bool,
}

impl PauseState {
    fn parse(word: &str) -> PauseState {
        PauseState { is_in: matches!(word, "in" | "all"), is_out: matches!(word, "out" | "all") }
    }

    fn name(self) -> &'static str {
        match (self.is_in, self.is_out) {
            (false, false) => "none",
            (true, false) => "in",
            (false, true) => "out",
            (true, true) => "all",
        }
    }
}

type Queues = BTreeMap<Vec<u8>, QueueNumbers>;

/// All queues of all nodes at one moment.
struct Survey {
    taken_at: Instant,
    /// By node ID.
    nodes: BTreeMap<String, Queues>,
    /// Nodes that could not be asked, and why.
    left_out: Vec<(String, String)>,
}

impl Survey {
    fn take(nodes: &mut [NodeView]) -> Survey {
        let mut survey =
            Survey { taken_at: Instant::now(), nodes: BTreeMap::new(), left_out: Vec::new() };
        for node in nodes {
            let label = node.label();
            let asked = match &mut node.connection {
                Ok(connection) => all_queues(connection).map_err(|failure| failure.to_string()),
                Err(failure) => Err(failure.to_string()),
            };
            match asked {
                Ok(queues) => {
                    survey.nodes.insert(node.id.clone(), queues);
                }
                Err(reason) => survey.left_out.push((label, reason)),
            }
        }
        survey
    }
}

/// Asks one node for all its queues.
fn all_queues(connection: &mut ServerConnection) -> Result<Queues, Failure> {
    let names = queue_names(connection)?;
    numbers_of(connection, &names)
}

/// Asks one node for the names of all its queues.
pub fn queue_names(connection: &mut ServerConnection) -> Result<Vec<Vec<u8>>, Failure> {
    let mut names = BTreeMap::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply =
            connection.call(&[b"QSCAN", cursor.as_slice(), b"COUNT", SCAN_COUNT.as_bytes()])?;
        let [Value::Bulk(next), Value::Array(found)] = array(&reply, "QSCAN")? else {
            return Err(unexpected("QSCAN"));
        };
        for name in found {
            if let Value::Bulk(name) = name {
                names.insert(name.clone(), ());
            }
        }
        if next == b"0" {
            return Ok(names.into_keys().collect());
        }
        cursor.clone_from(next);
    }
}

/// Asks one node for these queues; one that is gone is left out.
pub fn numbers_of(connection: &mut ServerConnection, names: &[Vec<u8>]) -> Result<Queues, Failure> {
    let each = |command: &str, names: &[Vec<u8>], last: &[&str]| -> Vec<Vec<Vec<u8>>> {
        let request = |name: &Vec<u8>| {
            let mut request = vec![command.as_bytes().to_vec(), name.clone()];
            request.extend(last.iter().map(|word| word.as_bytes().to_vec()));
            request
        };
        names.iter().map(request).collect()
    };
    let mut queues = Queues::new();
    for (name, stat) in names.iter().zip(connection.call_all(&each("QSTAT", names, &[]))?) {
        if let Value::Array(fields) = stat {
            queues.insert(name.clone(), stat_numbers(&fields));
        }
    }

    let filled: Vec<Vec<u8>> = queues
        .iter()
        .filter(|(_, numbers)| numbers.length > 0)
        .map(|(name, _)| name.clone())
        .collect();
    let mut first_jobs = Vec::new();
    for (name, peeked) in filled.iter().zip(connection.call_all(&each("QPEEK", &filled, &["1"]))?) {
        if let Some(id) = first_id(&peeked) {
            first_jobs.push((name.clone(), id));
        }
    }
    let ids: Vec<Vec<u8>> = first_jobs.iter().map(|(_, id)| id.clone()).collect();
    let shown = connection.call_all(&each("SHOW", &ids, &[]))?;
    let now_ms = node_clock_ms(connection)?;
    for ((name, _), job) in first_jobs.iter().zip(shown) {
        let Value::Array(fields) = job else { continue };
        if let (Some(Value::Integer(ctime)), Some(numbers)) =
            (value_of(&fields, "ctime"), queues.get_mut(name))
        {
            // ctime counts milliseconds times a million.
            let age_ms = now_ms.saturating_sub(u64::try_from(*ctime).unwrap_or(0) / 1_000_000);
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
fn value_of<'a>(fields: &'a [Value], name: &str) -> Option<&'a Value> {
    fields.chunks_exact(2).find_map(|pair| match &pair[0] {
        Value::Bulk(found) if found == name.as_bytes() => Some(&pair[1]),
        _ => None,
    })
}

/// Takes the job ID out of a QPEEK of one job.
fn first_id(peeked: &Value) -> Option<Vec<u8>> {
    let Value::Array(rows) = peeked else { return None };
    let Some(Value::Array(row)) = rows.first() else { return None };
    match row.get(1) {
        Some(Value::Bulk(id)) => Some(id.clone()),
        _ => None,
    }
}

/// Reads the node's own clock, by which its jobs were dated.
fn node_clock_ms(connection: &mut ServerConnection) -> Result<u64, Failure> {
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
        (Some(secs), Some(micros)) => Ok(secs * 1000 + micros / 1000),
        _ => Err(unexpected("TIME")),
    }
}

fn array<'a>(reply: &'a Value, command: &str) -> Result<&'a [Value], Failure> {
    match reply {
        Value::Array(items) => Ok(items),
        Value::Error(text) => {
            Err(Failure::Told(format!("{command}: {}", String::from_utf8_lossy(text))))
        }
        _ => Err(unexpected(command)),
    }
}

fn unexpected(command: &str) -> Failure {
    Failure::Protocol(format!("an unexpected kind of reply to {command}"))
}

/// One queue of the whole cluster.
#[derive(Debug, PartialEq)]
struct QueueRow {
    name: Vec<u8>,
    length: u64,
    oldest_age: Option<Duration>,
    in_per_sec: f64,
    out_per_sec: f64,
    blocked: u64,
    pause: PauseState,
    nodes: u64,
}

/// Adds the nodes up, the longest queue first.
fn rows(before: &Survey, after: &Survey) -> Vec<QueueRow> {
    let secs = after.taken_at.duration_since(before.taken_at).as_secs_f64();
    let mut rows: BTreeMap<&[u8], QueueRow> = BTreeMap::new();
    for (node, queues) in &after.nodes {
        let earlier = before.nodes.get(node);
        for (name, numbers) in queues {
            // A node or queue that was not there before has no known rate yet.
            let then = earlier.map(|queues| queues.get(name).cloned().unwrap_or_default());
            let then = then.as_ref().unwrap_or(numbers);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / secs;
            let row = rows.entry(name).or_insert_with(|| QueueRow {
                name: name.clone(),
                length: 0,
                oldest_age: None,
                in_per_sec: 0.0,
                out_per_sec: 0.0,
                blocked: 0,
                pause: PauseState::default(),
                nodes: 0,
            });
            row.length += numbers.length;
            row.oldest_age = row.oldest_age.max(numbers.oldest_age);
            row.in_per_sec += rate(numbers.jobs_in, then.jobs_in);
            row.out_per_sec += rate(numbers.jobs_out, then.jobs_out);
            row.blocked += numbers.blocked;
            row.pause.is_in |= numbers.pause.is_in;
            row.pause.is_out |= numbers.pause.is_out;
            row.nodes += 1;
        }
    }
    let mut rows: Vec<QueueRow> = rows.into_values().collect();
    rows.sort_by(|a, b| b.length.cmp(&a.length).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn table(rows: &[QueueRow], rows_max: usize) -> String {
    let names: Vec<String> = rows.iter().map(|row| shown_name(&row.name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    let mut out = format!(
        "{:<width$} {:>9} {:>8} {:>9} {:>9} {:>7} {:>6} {:>5}\n",
        "QUEUE", "LENGTH", "OLDEST", "IN/S", "OUT/S", "BLOCKED", "PAUSED", "NODES"
    );
    for (row, name) in rows.iter().zip(names).take(rows_max) {
        let _ = writeln!(
            out,
            "{name:<width$} {:>9} {:>8} {:>9.1} {:>9.1} {:>7} {:>6} {:>5}",
            row.length,
            row.oldest_age.map_or("-".to_string(), shown_age),
            row.in_per_sec,
            row.out_per_sec,
            row.blocked,
            row.pause.name(),
            row.nodes,
        );
    }
    out
}

fn json(rows: &[QueueRow]) -> String {
    let mut out = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"queue\":" } else { b",\n {\"queue\":" });
        write_json_string(&String::from_utf8_lossy(&row.name), &mut out);
        let age =
            row.oldest_age.map_or("null".to_string(), |age| format!("{:.3}", age.as_secs_f64()));
        out.extend_from_slice(
            format!(
                ",\"length\":{},\"oldest_age_secs\":{age},\"in_per_sec\":{:.1},\
                 \"out_per_sec\":{:.1},\"blocked\":{},\"paused\":\"{}\",\"nodes\":{}}}",
                row.length,
                row.in_per_sec,
                row.out_per_sec,
                row.blocked,
                row.pause.name(),
                row.nodes
            )
            .as_bytes(),
        );
    }
    format!("[{}]\n", String::from_utf8_lossy(&out))
}

/// Shows a queue's name, quoted when it would be misread otherwise.
pub fn shown_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_empty() && !text.contains(|c: char| c.is_control() || c == ' ') => {
            text.to_string()
        }
        _ => String::from_utf8_lossy(&quoting::quote(name)).into_owned(),
    }
}

/// Shows an age in its two largest units.
pub fn shown_age(age: Duration) -> String {
    let secs = age.as_secs();
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
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
        let rows = rows(&before, &after);
        assert_eq!(
            table(&rows, usize::MAX),
            "QUEUE    LENGTH   OLDEST      IN/S     OUT/S BLOCKED PAUSED NODES\n\
             mail         12       5s       7.0       4.0       3    all     3\n\
             \"a b\"         0        -       0.0       0.0       1   none     1\n"
        );
        assert_eq!(table(&rows, 1).lines().count(), 2);
        assert_eq!(
            json(&rows[1..]),
            "[{\"queue\":\"a b\",\"length\":0,\"oldest_age_secs\":null,\"in_per_sec\":0.0,\
             \"out_per_sec\":0.0,\"blocked\":1,\"paused\":\"none\",\"nodes\":1}]\n"
        );
    }

    #[test]
    fn ages_show_two_units() {
        let shown = |secs| shown_age(Duration::from_secs(secs));
        assert_eq!(shown(59), "59s");
        assert_eq!(shown(61), "1m01s");
        assert_eq!(shown(7260), "2h01m");
        assert_eq!(shown(90_000), "1d01h");
    }
}
