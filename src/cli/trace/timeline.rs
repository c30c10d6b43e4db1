//! What happened to a job, by time: for `disque trace`, and for the simulator when it fails.
//!
//! Each node notes by its own clock. Where the node that was asked knows that another clock is
//! further off than a message takes, the times of that node are set right; the table for programs
//! has both. Waits of a second and more stand between the lines, so that a job that lay about is
//! seen to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::ids::JobId;
use crate::cli::failure::Failure;
use crate::cli::help::Colour;
use crate::cli::nodes::short;
use crate::cli::output::PrintForm;
use crate::cli::table::{Align, Cell, EndlessTable, TableColumn, TextTable};
use crate::proto::quoting;
use crate::proto::reply_reader::Value;
use crate::proto::trace::{TraceRow, put_in_order};

/// From this on a wait is shown, in ms.
const LONG_WAIT_MS: i64 = 1000;
/// Events by which a job leaves a node.
const ENDINGS: [&str; 7] =
    ["collected", "expired", "evicted", "deleted", "passed-on", "refused", "damaged"];
/// Events that a node may note of a job that it does not have.
const OF_UNKNOWN: [&str; 3] = ["acked", "purged", "refused"];

pub const COLUMNS: &[TableColumn] = &[
    TableColumn { heading: "TIME", key: "unix_ms", align: Align::Right, width_min: 13 },
    TableColumn { heading: "OFFSET", key: "offset_ms", align: Align::Right, width_min: 9 },
    TableColumn { heading: "NODE", key: "node", align: Align::Left, width_min: 8 },
    TableColumn { heading: "EVENT", key: "event", align: Align::Left, width_min: 16 },
    TableColumn { heading: "DETAIL", key: "detail", align: Align::Left, width_min: 0 },
];

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// As the node noted it, in ms since 1970.
    pub unix_ms: i64,
    /// The same by the clock of the node that was asked.
    pub at_ms: i64,
    pub node: String,
    pub event: String,
    /// Names and values.
    pub details: Vec<(String, String)>,
}

/// How a node's clock stands to that of the node that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClock {
    pub node: String,
    /// How far it is ahead.
    pub offset_ms: i64,
    pub round_trip_ms: i64,
}

/// Both clocks and the round trip are read in whole ms: clocks that agree may seem so far apart.
const CLOCK_RESOLUTION_MS: i64 = 2;

impl NodeClock {
    /// Whether it is further off than the round trip and whole milliseconds explain.
    fn is_off(&self) -> bool {
        self.offset_ms.abs() > self.round_trip_ms + CLOCK_RESOLUTION_MS
    }
}

/// The life of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeLine {
    /// The first one first.
    pub moments: Vec<Moment>,
    pub clocks: Vec<NodeClock>,
    /// Nodes that did not answer.
    pub silent: Vec<String>,
}

impl TimeLine {
    /// Reads a reply of TRACE; `None` for a job of which nothing is known.
    pub fn read(reply: &Value) -> Result<Option<Self>, Failure> {
        let rows = match reply {
            Value::NullArray => return Ok(None),
            Value::Array(rows) => rows,
            _ => return Err(not_a_trace()),
        };
        let mut line = Self::default();
        for row in rows {
            line.read_row(row).ok_or_else(not_a_trace)?;
        }
        line.set_right();
        Ok(Some(line))
    }

    fn read_row(&mut self, row: &Value) -> Option<()> {
        let Value::Array(fields) = row else { return None };
        let [Value::Integer(unix_ms), node, event, details @ ..] = fields.as_slice() else {
            return None;
        };
        let (node, event) = (text(node)?, text(event)?);
        let mut pairs = Vec::new();
        for pair in details.chunks_exact(2) {
            pairs.push((text(&pair[0])?, text(&pair[1])?));
        }
        if *unix_ms > 0 {
            self.moments.push(Moment {
                unix_ms: *unix_ms,
                at_ms: *unix_ms,
                node,
                event,
                details: pairs,
            });
        } else if event == "silent" {
            self.silent.push(node);
        } else if event == "clock" {
            let number = |name: &str| {
                let found = pairs.iter().find(|(key, _)| key == name);
                found.and_then(|(_, value)| value.parse().ok())
            };
            let (offset_ms, round_trip_ms) = (number("offset-ms")?, number("round-trip-ms")?);
            self.clocks.push(NodeClock { node, offset_ms, round_trip_ms });
        }
        Some(())
    }

    /// Puts together what nodes noted, and what is known of their clocks.
    pub fn of_nodes(
        nodes: impl IntoIterator<Item = (String, Vec<TraceRow>)>,
        clocks: Vec<NodeClock>,
    ) -> Self {
        let mut line = Self { clocks, ..Self::default() };
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (node, rows) in nodes {
            line.moments.extend(rows.into_iter().map(|row| {
                let unix_ms = i64::try_from(row.at.0).unwrap_or(i64::MAX);
                let pairs = row.details.iter();
                Moment {
                    unix_ms,
                    at_ms: unix_ms,
                    node: node.clone(),
                    event: shown(&row.event),
                    details: pairs.map(|(name, value)| (shown(name), shown(value))).collect(),
                }
            }));
        }
        line.set_right();
        line
    }

    /// Sets the times of clocks right that are off, and puts all in their order.
    fn set_right(&mut self) {
        for clock in self.clocks.iter().filter(|clock| clock.is_off()) {
            for moment in self.moments.iter_mut().filter(|moment| moment.node == clock.node) {
                moment.at_ms = moment.unix_ms.saturating_sub(clock.offset_ms);
            }
        }
        put_in_order(&mut self.moments, |moment| moment.node.clone(), |moment| moment.at_ms);
    }

    /// Whether the job has left all nodes that said something.
    pub fn is_over(&self, id: &[u8]) -> bool {
        let is_once = JobId::parse(id).is_some_and(|id| !id.is_at_least_once());
        let mut has_it: BTreeMap<&str, bool> = BTreeMap::new();
        for Moment { node, event, .. } in &self.moments {
            let is_end = ENDINGS.contains(&&**event) || is_once && event == "fetched";
            if is_end || !OF_UNKNOWN.contains(&&**event) {
                has_it.insert(node, !is_end);
            }
        }
        !self.moments.is_empty() && !has_it.values().any(|has_it| *has_it)
    }

    /// The moments as a table, for programs.
    pub fn table(&self) -> TextTable {
        let first = self.moments.first().map_or(0, |moment| moment.at_ms);
        let rows = self.moments.iter().map(|moment| cells(moment, first)).collect();
        TextTable { columns: COLUMNS, rows }
    }
}

fn not_a_trace() -> Failure {
    Failure::Protocol("what came back is no answer to TRACE".to_owned())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn cells(moment: &Moment, first: i64) -> Vec<Cell> {
    let count = |number: i64| Cell::Count(u64::try_from(number).unwrap_or(0));
    let details = moment.details.iter().map(|(name, value)| format!("{name}={value}"));
    vec![
        count(moment.unix_ms),
        count(moment.at_ms.saturating_sub(first)),
        Cell::Id(moment.node.clone()),
        Cell::Text(moment.event.clone()),
        Cell::Texts(details.collect()),
    ]
}

/// Prints a life as it goes on: each moment once.
pub struct Printer {
    colour: Colour,
    /// How many moments of each node were printed.
    printed: BTreeMap<String, usize>,
    first_ms: Option<i64>,
    last_ms: i64,
    rows: Option<EndlessTable>,
    clocks_said: Vec<String>,
}

impl Printer {
    pub fn new(colour: Colour) -> Self {
        Self {
            colour,
            printed: BTreeMap::new(),
            first_ms: None,
            last_ms: 0,
            rows: None,
            clocks_said: Vec::new(),
        }
    }

    /// The moments that were not printed yet.
    fn take_new<'a>(&mut self, line: &'a TimeLine) -> Vec<&'a Moment> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut new = Vec::new();
        for moment in &line.moments {
            // What a node dropped of its first events counts as if it were there.
            let dropped = || moment.details.iter().find(|(name, _)| name == "dropped");
            let dropped = dropped().and_then(|(_, count)| count.parse().ok()).unwrap_or(0);
            let count = counts.entry(&moment.node).or_default();
            *count += 1;
            let printed = self.printed.entry(moment.node.clone()).or_default();
            if *count > *printed {
                *printed = *count;
                new.push(moment);
            }
            if moment.event == "began-late" {
                *count += dropped;
            }
        }
        new
    }

    /// What is new, for people.
    pub fn print(&mut self, line: &TimeLine) -> String {
        let new = self.take_new(line);
        let mut out = String::new();
        for clock in line.clocks.iter().filter(|clock| clock.is_off()) {
            if !self.clocks_said.contains(&clock.node) {
                self.clocks_said.push(clock.node.clone());
                let (ahead, ms) = match clock.offset_ms {
                    ms @ 0.. => ("ahead", ms),
                    ms => ("behind", -ms),
                };
                let (node, ms) = (short(&clock.node), duration(ms));
                let _infallible = writeln!(
                    out,
                    "The clock of {node} is {ms} {ahead}; its times are set right by that."
                );
            }
        }
        for moment in new {
            let first = *self.first_ms.get_or_insert_with(|| {
                let heading = format!(
                    "{:<12}  {:>9}  {:<8}  {:<16}  DETAIL",
                    "TIME (UTC)", "OFFSET", "NODE", "EVENT"
                );
                let _infallible = writeln!(out, "{}", self.colour.dim(&heading));
                self.last_ms = moment.at_ms;
                moment.at_ms
            });
            let waited = moment.at_ms - self.last_ms;
            if waited >= LONG_WAIT_MS {
                let wait = format!("{:>23}  ... {} ...", "", duration(waited));
                let _infallible = writeln!(out, "{}", self.colour.dim(&wait));
            }
            self.last_ms = moment.at_ms.max(self.last_ms);
            out.push_str(&self.shown(moment, first));
        }
        out
    }

    fn shown(&self, moment: &Moment, first: i64) -> String {
        let details: Vec<String> = moment.details.iter().map(detail).collect();
        let event = format!("{:<16}", harmless(&moment.event));
        let line = format!(
            "{}  {:>9}  {:<8}  {}  {}",
            clock_time(moment.at_ms),
            offset(moment.at_ms - first),
            harmless(short(&moment.node)),
            self.colour.of_event(&moment.event, &event),
            details.join(", "),
        );
        line.trim_end().to_owned() + "\n"
    }

    /// What is new, for programs: rows without an end.
    pub fn print_rows(&mut self, line: &TimeLine, form: PrintForm) -> Vec<u8> {
        let new = self.take_new(line);
        let first = line.moments.first().map_or(0, |moment| moment.at_ms);
        let first = *self.first_ms.get_or_insert(first);
        let rows = self.rows.get_or_insert_with(|| EndlessTable::new(COLUMNS, form));
        new.iter().flat_map(|moment| rows.row(&cells(moment, first))).collect()
    }
}

impl Colour {
    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn of_event(self, event: &str, text: &str) -> String {
        match event {
            "acked" | "collected" | "purged" => self.paint("32", text),
            "fetched" | "working" | "lent-to" | "borrowed-from" => self.paint("36", text),
            "nacked" | "held" | "refused" | "began-late" => self.paint("33", text),
            "dead" | "expired" | "evicted" | "deleted" | "damaged" => self.paint("31", text),
            _ => text.to_owned(),
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Off => text.to_owned(),
        }
    }
}

fn detail((name, value): &(String, String)) -> String {
    let shown = match name.as_str() {
        "node" => short(value).to_owned(),
        "from" | "to" | "reason" => {
            String::from_utf8_lossy(&quoting::quote(value.as_bytes())).into_owned()
        }
        _ => value.clone(),
    };
    let ms = name.strip_suffix("-ms").or((name == "ms").then_some("for"));
    match (ms, value.parse()) {
        (Some(name), Ok(ms)) => format!("{name} {}", duration(ms)),
        _ => harmless(&format!("{name} {shown}")),
    }
}

/// Text of other nodes, for a terminal.
fn harmless(text: &str) -> String {
    crate::cli::terminal::one_line(text).into_owned()
}

fn clock_time(at_ms: i64) -> String {
    let (secs, ms) = (at_ms.div_euclid(1000), at_ms.rem_euclid(1000));
    let (hours, minutes) = (secs.rem_euclid(86_400) / 3600, secs.rem_euclid(3600) / 60);
    format!("{hours:02}:{minutes:02}:{:02}.{ms:03}", secs.rem_euclid(60))
}

fn offset(ms: i64) -> String {
    format!("{}{}.{:03}", if ms < 0 { "-" } else { "+" }, ms.abs() / 1000, ms.abs() % 1000)
}

/// A length of time with what is worth knowing of it.
fn duration(ms: i64) -> String {
    let secs = ms / 1000;
    match secs {
        0 => format!("{ms} ms"),
        1..60 => format!("{secs}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &[u8] = b"D-00000000-000000000000000000000000-05a1";
    const ONCE: &[u8] = b"D-00000000-000000000000000000000000-05a0";

    fn row(ms: i64, node: &str, event: &str, details: &[&str]) -> Value {
        let bulk = |text: &&str| Value::Bulk(text.as_bytes().to_vec());
        let head = [node, event];
        let fields = head.iter().chain(details).map(bulk);
        Value::Array(std::iter::once(Value::Integer(ms)).chain(fields).collect())
    }

    fn reply() -> Value {
        Value::Array(vec![
            row(1_000_000, "aaaaaaaaaa", "added", &["client", "7"]),
            row(1_000_000, "aaaaaaaaaa", "queued", &["why", "first"]),
            row(1_070_000, "aaaaaaaaaa", "moved", &["from", "a b", "to", "\x1b[2J"]),
            row(6_000_010, "bbbbbbbbbb", "copy-kept", &["node", "aaaaaaaaaa"]),
            row(0, "bbbbbbbbbb", "clock", &["offset-ms", "5000000", "round-trip-ms", "2"]),
            row(0, "cccccccccc", "silent", &[]),
        ])
    }

    fn line() -> TimeLine {
        TimeLine::read(&reply()).expect("a trace").expect("a known job")
    }

    #[test]
    fn a_clock_that_is_off_is_set_right_and_long_waits_are_shown() {
        let expected = "\
The clock of bbbbbbbb is 1 h 23 min ahead; its times are set right by that.
TIME (UTC)       OFFSET  NODE      EVENT             DETAIL
00:16:40.000     +0.000  aaaaaaaa  added             client 7
00:16:40.000     +0.000  aaaaaaaa  queued            why first
00:16:40.010     +0.010  bbbbbbbb  copy-kept         node aaaaaaaa
                         ... 1 min 9 s ...
00:17:50.000    +70.000  aaaaaaaa  moved             from \"a b\", to \"\\x1b[2J\"
";
        let mut printer = Printer::new(Colour::Off);
        assert_eq!(printer.print(&line()), expected);
        assert_eq!(printer.print(&line()), "", "each moment once");
        assert_eq!(line().silent, ["cccccccccc"]);
        let painted = Printer::new(Colour::On).print(&line());
        assert!(painted.contains("\x1b[2mTIME"), "{painted:?}");
    }

    #[test]
    fn programs_get_what_was_noted_and_what_is_right() {
        let csv = line().table().render(PrintForm::Csv);
        let csv = String::from_utf8(csv).expect("text");
        assert!(csv.starts_with("unix_ms,offset_ms,node,event,detail\n"), "{csv}");
        assert!(csv.contains("\n6000010,10,\"bbbbbbbbbb\",\"copy-kept\","), "{csv}");
        let mut printer = Printer::new(Colour::Off);
        let rows = printer.print_rows(&line(), PrintForm::Json);
        assert_eq!(String::from_utf8_lossy(&rows).lines().count(), 4);
        assert!(printer.print_rows(&line(), PrintForm::Json).is_empty());
    }

    #[test]
    fn what_a_node_dropped_is_not_printed_again() {
        let late = |dropped: &str, first: i64| {
            let rows = (first..first + 3).map(|ms| row(ms, "a", "working", &[]));
            let late = row(first, "a", "began-late", &["dropped", dropped]);
            let rows = std::iter::once(late).chain(rows).collect();
            TimeLine::read(&Value::Array(rows)).expect("a trace").expect("a known job")
        };
        let mut printer = Printer::new(Colour::Off);
        assert_eq!(printer.print(&late("2", 10)).lines().count(), 5);
        assert_eq!(printer.print(&late("3", 11)).lines().count(), 1);
    }

    #[test]
    fn a_job_is_over_when_it_has_left_all_nodes() {
        let events = |events: &[(&str, &str)]| {
            let rows = events.iter().zip(1..).map(|((node, event), ms)| row(ms, node, event, &[]));
            TimeLine::read(&Value::Array(rows.collect())).expect("a trace").expect("a known job")
        };
        assert!(!events(&[]).is_over(ID));
        assert!(!events(&[("a", "added"), ("a", "acked")]).is_over(ID));
        assert!(events(&[("a", "added"), ("a", "acked"), ("a", "collected")]).is_over(ID));
        let held = events(&[("a", "added"), ("b", "copy-kept"), ("a", "collected")]);
        assert!(!held.is_over(ID), "one node has it");
        let by_third = [("a", "added"), ("c", "acked"), ("a", "acked"), ("a", "collected")];
        assert!(events(&by_third).is_over(ID), "who has an ack alone has no job");
        let fetched = events(&[("a", "added"), ("a", "fetched")]);
        assert!(fetched.is_over(ONCE) && !fetched.is_over(ID));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert_eq!(TimeLine::read(&Value::NullArray).expect("nothing is known"), None);
        for reply in [
            Value::Integer(1),
            Value::Array(vec![Value::Integer(1)]),
            Value::Array(vec![Value::Array(vec![Value::Integer(1)])]),
            Value::Array(vec![row(0, "a", "clock", &["offset-ms", "x"])]),
        ] {
            assert!(TimeLine::read(&reply).is_err(), "{reply:?}");
        }
    }
}
