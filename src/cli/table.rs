//! Tables: rows of the same columns, printed for people, as CSV or as JSON.
//!
//! A column has a heading for people and a key for programs. Every table of the tools is
//! one of these, so that `--json` and `--csv` work wherever a table is printed.

use std::fmt::Write as _;
use std::time::Duration;

use super::nodes::short;
use super::output::PrintForm;
use crate::base::json;
use crate::base::number::human_bytes;
use crate::proto::quoting;

/// Rows of a table without end between two headings.
const HEADING_EVERY: u64 = 20;

/// A column of a table.
#[derive(Debug)]
pub struct TableColumn {
    pub heading: &'static str,
    /// The name of the value in JSON and in the first line of CSV. It never changes.
    pub key: &'static str,
    pub align: Align,
    /// Fewest characters, so that a table that is printed again and again stands still.
    pub width_min: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Bytes somebody has chosen, such as a queue's name.
    Name(Vec<u8>),
    Text(String),
    /// The ID of a node, shortened for people.
    Id(String),
    /// Texts that belong together; a list in JSON.
    Texts(Vec<String>),
    Count(u64),
    PerSecond(f64),
    Age(Duration),
    Bytes(u64),
    Flag(bool),
    /// Not known, or there is none.
    Nothing,
}

/// Rows of cells, each as long as the columns.
#[derive(Debug)]
pub struct TextTable {
    pub columns: &'static [TableColumn],
    pub rows: Vec<Vec<Cell>>,
}

impl TextTable {
    /// Renders the whole table.
    pub fn render(&self, form: PrintForm) -> Vec<u8> {
        match form {
            PrintForm::Json => self.json(),
            PrintForm::Csv => self.csv(),
            PrintForm::Standard | PrintForm::Raw => self.text(usize::MAX).into_bytes(),
        }
    }

    /// Renders the heading and at most so many rows for people.
    pub fn text(&self, rows_max: usize) -> String {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        let width_of = |(index, column): (usize, &TableColumn)| {
            let shown = rows.iter().filter_map(|row| row.get(index));
            let widest = shown.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(column.width_min).max(column.heading.len())
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(width_of).collect();
        let mut out = text_line(self.columns, &widths, &headings(self.columns));
        for row in rows.iter().take(rows_max) {
            out.push_str(&text_line(self.columns, &widths, row));
        }
        out
    }

    /// An array with an object for each row, in a line of its own.
    fn json(&self) -> Vec<u8> {
        let mut out = vec![b'['];
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b",\n ");
            }
            write_json_row(self.columns, row, &mut out);
        }
        out.extend_from_slice(b"]\n");
        out
    }

    fn csv(&self) -> Vec<u8> {
        let mut out = csv_heading(self.columns).into_bytes();
        for row in &self.rows {
            write_csv_row(row, &mut out);
        }
        out
    }
}

/// A table without a last row. For people its columns keep their least widths.
#[derive(Debug)]
pub struct EndlessTable {
    columns: &'static [TableColumn],
    form: PrintForm,
    rows: u64,
}

impl EndlessTable {
    /// Prepares a table of no rows.
    pub fn new(columns: &'static [TableColumn], form: PrintForm) -> EndlessTable {
        EndlessTable { columns, form, rows: 0 }
    }

    /// Renders the next row: a JSON object, a line of CSV with the keys in front of the first,
    /// or a line of text with headings now and then.
    pub fn row(&mut self, row: &[Cell]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.form {
            PrintForm::Json => {
                write_json_row(self.columns, row, &mut out);
                out.push(b'\n');
            }
            PrintForm::Csv => {
                if self.rows == 0 {
                    out.extend_from_slice(csv_heading(self.columns).as_bytes());
                }
                write_csv_row(row, &mut out);
            }
            PrintForm::Standard | PrintForm::Raw => {
                let widths: Vec<usize> =
                    self.columns.iter().map(|column| column.width_min).collect();
                if self.rows.is_multiple_of(HEADING_EVERY) {
                    out.extend(text_line(self.columns, &widths, &headings(self.columns)).bytes());
                }
                let cells: Vec<String> = row.iter().map(Cell::shown).collect();
                out.extend(text_line(self.columns, &widths, &cells).bytes());
            }
        }
        self.rows += 1;
        out
    }
}

fn headings(columns: &[TableColumn]) -> Vec<String> {
    columns.iter().map(|column| column.heading.to_string()).collect()
}

fn text_line(columns: &[TableColumn], widths: &[usize], cells: &[String]) -> String {
    let mut line = String::new();
    for ((cell, column), width) in cells.iter().zip(columns).zip(widths) {
        let _infallible = match column.align {
            Align::Left => write!(line, "{cell:<width$} "),
            Align::Right => write!(line, "{cell:>width$} "),
        };
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn write_json_row(columns: &[TableColumn], row: &[Cell], out: &mut Vec<u8>) {
    for (index, (column, cell)) in columns.iter().zip(row).enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        json::write_string(column.key, out);
        out.push(b':');
        cell.write_json(out);
    }
    out.push(b'}');
}

fn csv_heading(columns: &[TableColumn]) -> String {
    let keys: Vec<&str> = columns.iter().map(|column| column.key).collect();
    keys.join(",") + "\n"
}

fn write_csv_row(row: &[Cell], out: &mut Vec<u8>) {
    for (index, cell) in row.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        cell.write_csv(out);
    }
    out.push(b'\n');
}

impl Cell {
    fn shown(&self) -> String {
        match self {
            Cell::Name(name) => shown_name(name),
            Cell::Text(text) => shown_name(text.as_bytes()),
            Cell::Id(id) => shown_name(short(id).as_bytes()),
            Cell::Texts(texts) => texts.join(", "),
            Cell::Count(number) => number.to_string(),
            Cell::PerSecond(rate) => format!("{rate:.1}"),
            Cell::Age(age) => shown_age(*age),
            Cell::Bytes(bytes) => human_bytes(*bytes),
            Cell::Flag(flag) => if *flag { "yes" } else { "no" }.to_string(),
            Cell::Nothing => "-".to_string(),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Name(name) => json::write_bytes(name, out),
            Cell::Text(text) | Cell::Id(text) => json::write_string(text, out),
            Cell::Texts(texts) => {
                for (index, text) in texts.iter().enumerate() {
                    out.push(if index == 0 { b'[' } else { b',' });
                    json::write_string(text, out);
                }
                out.extend_from_slice(if texts.is_empty() { b"[]" } else { b"]" });
            }
            Cell::Flag(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
            Cell::Nothing => out.extend_from_slice(b"null"),
            number => out.extend_from_slice(number.digits().as_bytes()),
        }
    }

    fn write_csv(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Name(name) => quoting::append_quoted(out, name),
            Cell::Text(text) | Cell::Id(text) => quoting::append_quoted(out, text.as_bytes()),
            Cell::Texts(texts) => quoting::append_quoted(out, texts.join(", ").as_bytes()),
            Cell::Flag(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
            Cell::Nothing => {}
            number => out.extend_from_slice(number.digits().as_bytes()),
        }
    }

    /// A number as programs read it: seconds, bytes, counts. Empty for what is none.
    fn digits(&self) -> String {
        match self {
            Cell::Count(number) | Cell::Bytes(number) => number.to_string(),
            Cell::PerSecond(rate) => format!("{rate:.1}"),
            Cell::Age(age) => format!("{:.3}", age.as_secs_f64()),
            Cell::Name(_)
            | Cell::Text(_)
            | Cell::Id(_)
            | Cell::Texts(_)
            | Cell::Flag(_)
            | Cell::Nothing => String::new(),
        }
    }
}

/// Shows a name, quoted when it would be misread otherwise.
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

/// Names a number of things: "1 node", "3 nodes".
pub fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::super::{cluster, config_all, latency, queues, roster, stat, trace};
    use super::*;

    const COLUMNS: &[TableColumn] = &[
        TableColumn { heading: "QUEUE", key: "queue", align: Align::Left, width_min: 5 },
        TableColumn {
            heading: "OLDEST",
            key: "oldest_age_secs",
            align: Align::Right,
            width_min: 8,
        },
        TableColumn { heading: "IN/S", key: "in_per_sec", align: Align::Right, width_min: 0 },
    ];

    fn table() -> TextTable {
        let row = |name: &[u8], age: Option<u64>, rate| {
            let age = age.map_or(Cell::Nothing, |secs| Cell::Age(Duration::from_secs(secs)));
            vec![Cell::Name(name.to_vec()), age, Cell::PerSecond(rate)]
        };
        TextTable {
            columns: COLUMNS,
            rows: vec![
                row(b"mail", Some(61), 7.0),
                row(b"a \x1b", None, 10.25),
                row(b"\xff", None, 0.0),
            ],
        }
    }

    #[test]
    fn a_table_is_for_people_or_for_programs() {
        assert_eq!(
            table().text(2),
            "QUEUE      OLDEST IN/S\n\
             mail        1m01s  7.0\n\
             \"a \\x1b\"        - 10.2\n"
        );
        assert_eq!(
            String::from_utf8_lossy(&table().render(PrintForm::Json)),
            "[{\"queue\":\"mail\",\"oldest_age_secs\":61.000,\"in_per_sec\":7.0},\n \
             {\"queue\":\"a \\u001b\",\"oldest_age_secs\":null,\"in_per_sec\":10.2},\n \
             {\"queue\":{\"base64\":\"/w==\"},\"oldest_age_secs\":null,\"in_per_sec\":0.0}]\n"
        );
        assert_eq!(
            String::from_utf8_lossy(&table().render(PrintForm::Csv)),
            "queue,oldest_age_secs,in_per_sec\n\
             \"mail\",61.000,7.0\n\
             \"a \\x1b\",,10.2\n\
             \"\\xff\",,0.0\n"
        );
    }

    #[test]
    fn no_rows_are_an_empty_array() {
        let table = TextTable { columns: COLUMNS, rows: Vec::new() };
        assert_eq!(table.render(PrintForm::Json), b"[]\n");
    }

    #[test]
    fn a_table_without_end_is_printed_row_by_row() {
        let row = |form| {
            let mut endless = EndlessTable::new(COLUMNS, form);
            let rows = [endless.row(&table().rows[0]), endless.row(&table().rows[1])];
            String::from_utf8(rows.concat()).expect("UTF-8")
        };
        assert_eq!(
            row(PrintForm::Json),
            "{\"queue\":\"mail\",\"oldest_age_secs\":61.000,\"in_per_sec\":7.0}\n\
             {\"queue\":\"a \\u001b\",\"oldest_age_secs\":null,\"in_per_sec\":10.2}\n"
        );
        assert_eq!(
            row(PrintForm::Csv),
            "queue,oldest_age_secs,in_per_sec\n\"mail\",61.000,7.0\n\"a \\x1b\",,10.2\n"
        );
        assert_eq!(
            row(PrintForm::Raw),
            "QUEUE   OLDEST IN/S\nmail     1m01s 7.0\n\"a \\x1b\"        - 10.2\n"
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

    #[test]
    fn the_documents_have_every_shape() {
        let documents = include_str!("../../docs/tools.md");
        for columns in [
            cluster::CHECK_COLUMNS,
            cluster::MEMBER_COLUMNS,
            config_all::COLUMNS,
            latency::COLUMNS,
            queues::COLUMNS,
            roster::COLUMNS,
            stat::COLUMNS,
            trace::timeline::COLUMNS,
        ] {
            let keys = csv_heading(columns);
            assert!(documents.contains(&format!("\n    {keys}")), "{keys}");
        }
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(counted(1, "node"), "1 node");
        assert_eq!(counted(0, "node"), "0 nodes");
    }
}
