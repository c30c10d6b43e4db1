//! Replies as text: the forms a reply can be printed in.
//!
//! Pure: a [`Value`] goes in, bytes come out, piece by piece: a body that grows fourfold when
//! it is quoted is never held as a whole. The standard, raw and CSV forms are those of the C
//! client to the byte, oddities included, since scripts cut them apart.

use crate::base::json;
use crate::base::sink::Sink;
use crate::proto::quoting;
use crate::proto::reply_reader::Value;

/// Bytes of a string that are quoted at once.
const QUOTED_AT_ONCE: usize = 64 * 1024;

/// A way to print replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintForm {
    /// Types shown, strings quoted, arrays numbered: for people.
    Standard,
    /// Just the bytes: for pipes.
    Raw,
    /// Comma separated, strings quoted.
    Csv,
    /// One JSON value a line.
    Json,
}

impl PrintForm {
    /// Returns whether programs read it, and so nothing but values may be printed.
    pub fn is_for_programs(self) -> bool {
        matches!(self, PrintForm::Json | PrintForm::Csv)
    }
}

/// How a reply is printed.
#[derive(Clone, Debug)]
pub struct Format {
    pub form: PrintForm,
    /// What stands between the elements of an array in raw form.
    pub delimiter: Vec<u8>,
}

impl Format {
    /// Writes the reply to a command.
    ///
    /// Replies that are texts (see [`replies_with_text`]) are shown as they are in every
    /// form but JSON. C: disque-cli.c cliReadReply.
    pub fn write(&self, args: &[Vec<u8>], value: &Value, out: &mut dyn Sink) {
        match self.form {
            PrintForm::Json => write_json(value, out),
            _ if replies_with_text(args) => return write_raw(value, &self.delimiter, out),
            PrintForm::Standard => return write_standard(value, "", out),
            PrintForm::Raw => write_raw(value, &self.delimiter, out),
            PrintForm::Csv => write_csv(value, out),
        }
        out.put(b"\n");
    }
}

/// Returns whether a command answers with lines of text to be read as they are.
pub fn replies_with_text(args: &[Vec<u8>]) -> bool {
    let word = |index: usize, expected: &str| {
        args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(expected.as_bytes()))
    };
    match args.len() {
        2 if word(0, "cluster") => word(1, "nodes") || word(1, "info"),
        2 if word(0, "client") => word(1, "list"),
        2 if word(0, "latency") => word(1, "doctor"),
        3 if word(0, "latency") => word(1, "graph"),
        _ => word(0, "info"),
    }
}

fn write_standard(value: &Value, prefix: &str, out: &mut dyn Sink) {
    match value {
        Value::Error(text) => {
            out.put(b"(error) ");
            out.put(text);
            out.put(b"\n");
        }
        Value::Status(text) => {
            out.put(text);
            out.put(b"\n");
        }
        Value::Integer(number) => {
            out.put(format!("(integer) {number}\n").as_bytes());
        }
        Value::Bulk(bytes) => {
            put_quoted(bytes, out);
            out.put(b"\n");
        }
        Value::NullBulk | Value::NullArray | Value::Null => out.put(b"(nil)\n"),
        Value::Array(_) | Value::Map(_) => {
            let items = elements(value);
            if items.is_empty() {
                out.put(b"(empty list or set)\n");
            }
            let width = items.len().to_string().len();
            let inner = format!("{prefix}{:1$}", "", width + 2);
            for (index, item) in items.iter().enumerate() {
                // The line of the first element was begun by the array it is in.
                let indent = if index == 0 { "" } else { prefix };
                out.put(format!("{indent}{:width$}) ", index + 1).as_bytes());
                write_standard(item, &inner, out);
            }
        }
    }
}

fn write_raw(value: &Value, delimiter: &[u8], out: &mut dyn Sink) {
    match value {
        Value::NullBulk | Value::NullArray | Value::Null => {}
        Value::Error(text) => {
            out.put(text);
            out.put(b"\n");
        }
        Value::Status(bytes) | Value::Bulk(bytes) => out.put(bytes),
        Value::Integer(number) => out.put(number.to_string().as_bytes()),
        Value::Array(_) | Value::Map(_) => {
            for (index, item) in elements(value).into_iter().enumerate() {
                if index > 0 {
                    out.put(delimiter);
                }
                write_raw(item, delimiter, out);
            }
        }
    }
}

fn write_csv(value: &Value, out: &mut dyn Sink) {
    match value {
        Value::Error(text) => {
            out.put(b"ERROR,");
            put_quoted(text, out);
        }
        Value::Status(bytes) | Value::Bulk(bytes) => put_quoted(bytes, out),
        Value::Integer(number) => out.put(number.to_string().as_bytes()),
        // C: disque-cli.c cliFormatReplyCSV, the line end after NIL.
        Value::NullBulk | Value::NullArray | Value::Null => out.put(b"NIL\n"),
        Value::Array(_) | Value::Map(_) => {
            for (index, item) in elements(value).into_iter().enumerate() {
                if index > 0 {
                    out.put(b",");
                }
                write_csv(item, out);
            }
        }
    }
}

/// Writes bytes in quotes, some at a time.
fn put_quoted(bytes: &[u8], out: &mut dyn Sink) {
    out.put(b"\"");
    for part in bytes.chunks(QUOTED_AT_ONCE) {
        let quoted = quoting::quote(part);
        out.put(quoted.get(1..quoted.len() - 1).unwrap_or_default());
    }
    out.put(b"\"");
}

/// The elements of an array; of a map, each key and its value in turn.
fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(key, item)| [key, item]).collect(),
        _ => Vec::new(),
    }
}

/// JSON: statuses and strings are strings, nulls are null, an error is `{"error":"..."}`, and
/// bytes that are no UTF-8 are `{"base64":"..."}`, so that nothing is lost.
fn write_json(value: &Value, out: &mut dyn Sink) {
    match value {
        Value::Error(text) => {
            out.put(b"{\"error\":");
            json::write_string(&String::from_utf8_lossy(text), out);
            out.put(b"}");
        }
        Value::Status(bytes) | Value::Bulk(bytes) => json::write_bytes(bytes, out),
        Value::Integer(number) => out.put(number.to_string().as_bytes()),
        Value::NullBulk | Value::NullArray | Value::Null => out.put(b"null"),
        Value::Array(items) => {
            out.put(b"[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.put(b",");
                }
                write_json(item, out);
            }
            out.put(b"]");
        }
        Value::Map(pairs) => {
            out.put(b"{");
            for (index, (key, item)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.put(b",");
                }
                let mut name = Vec::new();
                write_raw(key, b" ", &mut name);
                json::write_string(&String::from_utf8_lossy(&name), out);
                out.put(b":");
                write_json(item, out);
            }
            out.put(b"}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn render(form: PrintForm, value: &Value) -> String {
        let format = Format { form, delimiter: b"\n".to_vec() };
        let mut out = Vec::new();
        format.write(&[b"ANY".to_vec()], value, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn arrays_in_arrays_are_indented_under_their_number() {
        let row = Value::Array(vec![bulk("q"), Value::Integer(7)]);
        let mut items = vec![row];
        items.extend((0..9).map(|_| Value::NullBulk));
        let text = render(PrintForm::Standard, &Value::Array(items));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(" 1) 1) \"q\""));
        assert_eq!(lines.next(), Some("    2) (integer) 7"));
        assert_eq!(lines.next(), Some(" 2) (nil)"));
        assert_eq!(lines.last(), Some("10) (nil)"));
    }

    #[test]
    fn json_keeps_every_byte() {
        let value = Value::Array(vec![
            bulk("a\"\n\u{1}é"),
            Value::Bulk(vec![0xff, 0xfe]),
            Value::NullArray,
            Value::Error(b"ERR no".to_vec()),
        ]);
        assert_eq!(
            render(PrintForm::Json, &value),
            "[\"a\\\"\\n\\u0001é\",{\"base64\":\"//4=\"},null,{\"error\":\"ERR no\"}]\n"
        );
    }

    #[test]
    fn a_long_string_is_quoted_as_a_whole() {
        let bytes = vec![b'"'; QUOTED_AT_ONCE + 1];
        let text = render(PrintForm::Standard, &Value::Bulk(bytes));
        assert_eq!(text, format!("\"{}\"\n", "\\\"".repeat(QUOTED_AT_ONCE + 1)));
    }

    #[test]
    fn texts_are_shown_as_they_are() {
        let words = |line: &str| line.split(' ').map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>();
        for line in ["INFO", "info memory all", "CLUSTER NODES", "latency graph x", "client LIST"] {
            assert!(replies_with_text(&words(line)), "{line}");
        }
        for line in ["cluster", "cluster nodes x", "latency graph", "client getname"] {
            assert!(!replies_with_text(&words(line)), "{line}");
        }
    }
}
