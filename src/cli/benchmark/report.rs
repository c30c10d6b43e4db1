//! The figures of a run as text, CSV or JSON.

use std::fmt::Write;
use std::time::Duration;

use super::options::{BenchmarkOptions, FigureFormat};
use super::worker::Measure;

/// The percentiles that are reported, with their names in CSV and JSON.
const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50_us"), (90.0, "p90_us"), (99.0, "p99_us"), (99.9, "p999_us"), (100.0, "max_us")];

/// What the servers spent on a step.
#[derive(Clone, Copy, Debug)]
pub struct ServerUse {
    pub cpu_ns: u64,
    pub resident_before: u64,
    pub resident_after: u64,
}

/// The throughput of a short stretch of a step.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The stretch's end, from the step's start.
    pub at_secs: f64,
    pub per_second: f64,
}

/// One line of figures.
#[derive(Clone, Debug)]
pub struct FigureRow {
    pub name: String,
    pub measure: Measure,
    pub elapsed: Duration,
    /// Absent without --pid, and in rows that measure a step from another side.
    pub server: Option<ServerUse>,
    pub own_cpu_ns: Option<u64>,
    pub samples: Vec<Sample>,
}

impl FigureRow {
    /// A second measurement of a step whose cost stands in another row.
    pub fn beside(name: &str, measure: Measure, elapsed: Duration) -> Self {
        let name = name.into();
        Self { name, measure, elapsed, server: None, own_cpu_ns: None, samples: Vec::new() }
    }

    fn per_second(&self) -> f64 {
        self.measure.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn us_per_operation(&self, ns: u64) -> f64 {
        ns as f64 / 1e3 / self.measure.operations.max(1) as f64
    }

    fn server_us(&self) -> Option<f64> {
        self.server.map(|server| self.us_per_operation(server.cpu_ns))
    }

    fn own_us(&self) -> Option<f64> {
        self.own_cpu_ns.map(|ns| self.us_per_operation(ns))
    }

    /// The latency that `percent` of the requests did not exceed, in microseconds.
    pub fn latency_us(&self, percent: f64) -> f64 {
        self.measure.latency.value_at_percentile(percent) as f64 / 1e3
    }

    /// The figures that every format has, in order; `None` where there is none.
    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        let resident = |pick: fn(ServerUse) -> u64| self.server.map(|server| pick(server) as f64);
        let mut figures = vec![
            ("operations", Some(self.measure.operations as f64)),
            ("refused", Some(self.measure.refused as f64)),
            ("secs", Some(self.elapsed.as_secs_f64())),
            ("per_second", Some(self.per_second())),
            ("server_us", self.server_us()),
            ("own_us", self.own_us()),
        ];
        let has_latency = !self.measure.latency.is_empty();
        for (percent, name) in PERCENTILES {
            figures.push((name, has_latency.then(|| self.latency_us(percent))));
        }
        figures.push(("resident_before", resident(|server| server.resident_before)));
        figures.push(("resident_after", resident(|server| server.resident_after)));
        figures
    }
}

/// What was run, in a few words.
pub fn title(options: &BenchmarkOptions) -> String {
    let BenchmarkOptions { clients, depth, body_len, .. } = options;
    let label = match options.label.as_str() {
        "" => options.peer.name(),
        label => label,
    };
    format!("{label}: {clients} clients, depth {depth}, {body_len} byte bodies")
}

/// The rows in the format that the options ask for.
pub fn render(options: &BenchmarkOptions, rows: &[FigureRow]) -> String {
    match options.format {
        FigureFormat::Text => render_text(options, rows),
        FigureFormat::Csv => render_csv(options, rows),
        FigureFormat::Json => render_json(options, rows),
    }
}

fn render_text(options: &BenchmarkOptions, rows: &[FigureRow]) -> String {
    let mut text = format!("{}\n", title(options));
    let heads =
        ["jobs/s", "server us", "own us", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us"];
    let _ = write!(text, "{:<14}{:>10}{:>8}", "", "jobs", "refused");
    for head in heads {
        let _ = write!(text, "{head:>11}");
    }
    text.push_str("   RSS MB\n");
    for row in rows {
        let Measure { operations, refused, .. } = row.measure;
        let _ = write!(text, "{:<14}{operations:>10}{refused:>8}", row.name);
        let _ = write!(text, "{:>11.0}", row.per_second());
        for (name, figure) in row.figures() {
            match figure {
                Some(figure) if name.ends_with("r_us") || name == "own_us" => {
                    let _ = write!(text, "{figure:>11.3}");
                }
                Some(figure) if name.ends_with("_us") => {
                    let _ = write!(text, "{figure:>11.1}");
                }
                None if name.ends_with("_us") => {
                    let _ = write!(text, "{:>11}", "-");
                }
                _ => {}
            }
        }
        match row.server {
            Some(server) => {
                let _ = writeln!(text, "{:>9.1}", server.resident_after as f64 / 1e6);
            }
            None => text.push_str("        -\n"),
        }
    }
    text
}

fn render_csv(options: &BenchmarkOptions, rows: &[FigureRow]) -> String {
    let mut text = String::from("label,peer,row");
    for (name, _) in rows.first().map(FigureRow::figures).unwrap_or_default() {
        let _ = write!(text, ",{name}");
    }
    text.push('\n');
    for row in rows {
        let label = options.label.replace('"', "\"\"");
        let _ = write!(text, "\"{label}\",{},{}", options.peer.name(), row.name);
        for (_, figure) in row.figures() {
            text.push(',');
            text.push_str(&figure.map(plain).unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

fn render_json(options: &BenchmarkOptions, rows: &[FigureRow]) -> String {
    let mut text = format!(
        "{{\"label\":{},\"peer\":\"{}\",\"clients\":{},\"depth\":{},\"body_len\":{},\"rows\":[",
        quoted(&options.label),
        options.peer.name(),
        options.clients,
        options.depth,
        options.body_len,
    );
    for (nth, row) in rows.iter().enumerate() {
        let comma = if nth > 0 { "," } else { "" };
        let _ = write!(text, "{comma}\n{{\"row\":{}", quoted(&row.name));
        for (name, figure) in row.figures() {
            let figure = figure.map_or_else(|| "null".into(), plain);
            let _ = write!(text, ",\"{name}\":{figure}");
        }
        text.push('}');
    }
    text.push_str("\n]}\n");
    text
}

/// A number without noise in its last digits.
fn plain(figure: f64) -> String {
    if figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.4}") }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::options::{self, BenchmarkRequest};
    use super::super::worker::Tally;
    use super::*;

    fn options(line: &str) -> BenchmarkOptions {
        let args = std::iter::once("disque-benchmark").chain(line.split_whitespace());
        match options::parse(args.map(Into::into)) {
            Ok(BenchmarkRequest::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn rows() -> Vec<FigureRow> {
        let mut measure = Tally::new().added;
        measure.operations = 2000;
        measure.record(1_500_000);
        let server =
            ServerUse { cpu_ns: 5_000_000, resident_before: 1_000_000, resident_after: 3_000_000 };
        let elapsed = Duration::from_millis(500);
        let row = FigureRow::beside("add", measure, elapsed);
        let silent = FigureRow::beside("drain-ack", Tally::new().acked, elapsed);
        vec![FigureRow { server: Some(server), own_cpu_ns: Some(1_000_000), ..row }, silent]
    }

    #[test]
    fn csv_has_a_head_and_a_line_a_row_of_equal_width() {
        let csv = render(&options("--format csv --label a,b"), &rows());
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("label,peer,row,operations,refused,secs,per_second,server_us")
        );
        assert!(lines[1].starts_with("\"a,b\",disque,add,2000,0,0.5000,4000,2.5000,0.5000,"));
        assert!(lines[2].ends_with(",,,,,,,,,"), "no latencies, no CPU, no memory: {}", lines[2]);
    }

    #[test]
    fn json_says_null_where_there_is_no_figure() {
        let json = render(&options("--format json --label a\"b"), &rows());
        assert!(json.starts_with("{\"label\":\"a\\\"b\",\"peer\":\"disque\","));
        assert!(json.contains("\"row\":\"add\",\"operations\":2000"));
        assert!(json.contains("\"server_us\":null"));
    }

    #[test]
    fn text_shows_cpu_latency_and_memory_of_a_step() {
        let text = render(&options("-c 7"), &rows());
        let line = text.lines().find(|line| line.starts_with("add")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..5], ["add", "2000", "0", "4000", "2.500"]);
        assert_eq!(words.last(), Some(&"3.0"));
        assert!(text.starts_with("disque: 7 clients, depth 1, 64 byte bodies"));
    }
}
