//! Replies as a client reads them: for the command line tools and the tests.
//!
//! Bytes go in as they come, values come out whole. Nothing is read twice and nothing
//! is allocated on the word of a length. Arrays within arrays wait on a stack of their
//! own, of at most [`DEPTH_MAX`]: no reply of this server is deeper than three.

use std::fmt;

use crate::base::{limits, number};

/// Arrays within arrays that are followed.
pub const DEPTH_MAX: usize = 16;

/// Elements for which room is made before they have come.
const ELEMENTS_AHEAD: usize = 1024;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Status(Vec<u8>),
    /// The code word and text, without the dash.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    NullBulk,
    NullArray,
    Array(Vec<Value>),
    /// RESP3: keys and values.
    Map(Vec<(Value, Value)>),
    /// RESP3: the one null there is.
    Null,
}

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    UnknownType(u8),
    BadNumber,
    BadLength,
    LineTooLong,
    TooDeep,
    MissingLineEnd,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => {
                write!(f, "unknown reply type '{}'", std::ascii::escape_default(*byte))
            }
            Self::BadNumber => f.write_str("a number in a reply is malformed"),
            Self::BadLength => f.write_str("a length in a reply is malformed or too large"),
            Self::LineTooLong => f.write_str("a line of a reply is too long"),
            Self::TooDeep => f.write_str("a reply is nested too deeply"),
            Self::MissingLineEnd => f.write_str("a bulk string of a reply has no line end"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Turns a stream of bytes into replies.
#[derive(Default)]
pub struct ReplyReader {
    buffer: Vec<u8>,
    /// Where the next line or the current bulk begins.
    at: usize,
    /// The length of the current bulk once its line has been read.
    bulk_len: Option<usize>,
    /// Arrays and maps whose elements are still coming, the outermost first.
    open: Vec<Open>,
}

struct Open {
    kind: OpenKind,
    remaining: usize,
    elements: Vec<Value>,
}

#[derive(Clone, Copy)]
enum OpenKind {
    Array,
    Map,
}

impl ReplyReader {
    /// Takes bytes as they came from the server.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives the next whole reply, or `None` until more bytes have been fed. After an error
    /// the stream cannot be trusted: the connection should be closed.
    pub fn next_value(&mut self) -> Result<Option<Value>, ReplyError> {
        while let Some(piece) = self.next_piece()? {
            if let Some(value) = self.close(piece) {
                return Ok(Some(value));
            }
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        Ok(None)
    }

    /// Reads one value that is no opened array or map.
    fn next_piece(&mut self) -> Result<Option<Value>, ReplyError> {
        loop {
            if let Some(bulk_len) = self.bulk_len {
                let rest = self.buffer.get(self.at..).unwrap_or_default();
                let Some(bulk) = rest.get(..bulk_len + 2) else { return Ok(None) };
                let bytes = bulk.strip_suffix(b"\r\n").ok_or(ReplyError::MissingLineEnd)?.to_vec();
                self.at += bulk_len + 2;
                self.bulk_len = None;
                return Ok(Some(Value::Bulk(bytes)));
            }
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            let Some(line) = find_line(rest)? else { return Ok(None) };
            self.at += line.len() + 2;
            let [kind, text @ ..] = line else { return Err(ReplyError::UnknownType(b'\r')) };
            match kind {
                b'+' => return Ok(Some(Value::Status(text.to_vec()))),
                b'-' => return Ok(Some(Value::Error(text.to_vec()))),
                b':' => {
                    let value = parse_integer(text).ok_or(ReplyError::BadNumber)?;
                    return Ok(Some(Value::Integer(value)));
                }
                b'_' if text.is_empty() => return Ok(Some(Value::Null)),
                b'$' => match parse_length(text)? {
                    None => return Ok(Some(Value::NullBulk)),
                    Some(len) if len <= limits::BULK_MAX => self.bulk_len = Some(len),
                    Some(_) => return Err(ReplyError::BadLength),
                },
                b'*' => match parse_length(text)? {
                    None => return Ok(Some(Value::NullArray)),
                    Some(0) => return Ok(Some(Value::Array(Vec::new()))),
                    Some(len) => open(&mut self.open, OpenKind::Array, len)?,
                },
                b'%' => match parse_length(text)? {
                    Some(0) => return Ok(Some(Value::Map(Vec::new()))),
                    Some(len) => {
                        let len = len.checked_mul(2).ok_or(ReplyError::BadLength)?;
                        open(&mut self.open, OpenKind::Map, len)?;
                    }
                    None => return Err(ReplyError::BadLength),
                },
                other => return Err(ReplyError::UnknownType(*other)),
            }
        }
    }

    /// Puts a value where it belongs, and closes what it completes; gives the value that is
    /// part of nothing else.
    fn close(&mut self, piece: Value) -> Option<Value> {
        let mut value = piece;
        while let Some(mut parent) = self.open.pop() {
            parent.elements.push(value);
            parent.remaining -= 1;
            if parent.remaining > 0 {
                self.open.push(parent);
                return None;
            }
            value = match parent.kind {
                OpenKind::Array => Value::Array(parent.elements),
                OpenKind::Map => {
                    let mut elements = parent.elements.into_iter();
                    let pair = || Some((elements.next()?, elements.next()?));
                    Value::Map(std::iter::from_fn(pair).collect())
                }
            };
        }
        Some(value)
    }
}

fn open(stack: &mut Vec<Open>, kind: OpenKind, len: usize) -> Result<(), ReplyError> {
    if stack.len() == DEPTH_MAX {
        return Err(ReplyError::TooDeep);
    }
    let elements = Vec::with_capacity(len.min(ELEMENTS_AHEAD));
    stack.push(Open { kind, remaining: len, elements });
    Ok(())
}

/// Gives the line at the beginning of `rest`, without its end.
fn find_line(rest: &[u8]) -> Result<Option<&[u8]>, ReplyError> {
    let window = rest.get(..=limits::INLINE_MAX).unwrap_or(rest);
    match memchr::memchr(b'\n', window) {
        Some(end) => {
            let line = window.get(..end).unwrap_or_default();
            line.strip_suffix(b"\r").map(Some).ok_or(ReplyError::MissingLineEnd)
        }
        None if rest.len() > limits::INLINE_MAX => Err(ReplyError::LineTooLong),
        None => Ok(None),
    }
}

fn parse_integer(text: &[u8]) -> Option<i64> {
    if text.is_empty() { None } else { number::parse_i64(text) }
}

/// Reads a length; -1 is `None`.
fn parse_length(text: &[u8]) -> Result<Option<usize>, ReplyError> {
    match text {
        b"-1" => Ok(None),
        _ => number::parse_digits(text)
            .and_then(|len| usize::try_from(len).ok())
            .map(Some)
            .ok_or(ReplyError::BadLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::reply::{ReplyWriter, Resp};
    use proptest::prelude::*;

    fn read_all(pieces: &[&[u8]]) -> Result<Vec<Value>, ReplyError> {
        let mut reader = ReplyReader::default();
        let mut values = Vec::new();
        for piece in pieces {
            reader.feed(piece);
            while let Some(value) = reader.next_value()? {
                values.push(value);
            }
        }
        Ok(values)
    }

    #[test]
    fn malformed_replies_are_refused_with_a_reason() {
        for (text, error) in [
            (&b"?\r\n"[..], ReplyError::UnknownType(b'?')),
            (b"\r\n", ReplyError::UnknownType(b'\r')),
            (b":\r\n", ReplyError::BadNumber),
            (b":1x\r\n", ReplyError::BadNumber),
            (b"$-2\r\n", ReplyError::BadLength),
            (b"$536870913\r\n", ReplyError::BadLength),
            (b"*x\r\n", ReplyError::BadLength),
            (b"%-1\r\n", ReplyError::BadLength),
            (b"%9223372036854775808\r\n", ReplyError::BadLength),
            (b"$1\r\nabc", ReplyError::MissingLineEnd),
            (b"+OK\n", ReplyError::MissingLineEnd),
            (&b"+".repeat(limits::INLINE_MAX + 1), ReplyError::LineTooLong),
            (&b"*1\r\n".repeat(DEPTH_MAX + 1), ReplyError::TooDeep),
        ] {
            assert_eq!(read_all(&[text]), Err(error), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_huge_length_costs_nothing_until_its_elements_come() {
        let mut reader = ReplyReader::default();
        reader.feed(b"*99999999999\r\n:1\r\n");
        assert_eq!(reader.next_value(), Ok(None));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = || prop::collection::vec(b' '..=b'~', 0..20);
        let leaf = prop_oneof![
            text().prop_map(Value::Status),
            text().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bulk),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
            ]
        })
    }

    fn write(reply: &mut ReplyWriter<'_>, value: &Value) {
        match value {
            Value::Status(text) => reply.status(text),
            Value::Error(text) => reply.error(text),
            Value::Integer(value) => reply.integer(*value),
            Value::Bulk(bytes) => reply.bulk(bytes),
            Value::NullBulk | Value::Null => reply.null_bulk(),
            Value::NullArray => reply.null_array(),
            Value::Array(elements) => {
                reply.array(elements.len());
                elements.iter().for_each(|element| write(reply, element));
            }
            Value::Map(pairs) => {
                reply.map(pairs.len());
                for (key, value) in pairs {
                    write(reply, key);
                    write(reply, value);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn written_replies_read_back_whole_and_byte_by_byte(
            values in prop::collection::vec(any_value(), 1..4),
        ) {
            let mut text = Vec::new();
            let mut reply = ReplyWriter::new(&mut text, Resp::V3);
            values.iter().for_each(|value| write(&mut reply, value));
            prop_assert_eq!(read_all(&[&text]), Ok(values.clone()));
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(read_all(&bytes), Ok(values));
        }
    }

    #[test]
    fn resp2_nulls_keep_their_kinds() {
        let mut text = Vec::new();
        let mut reply = ReplyWriter::new(&mut text, Resp::V2);
        reply.null_bulk();
        reply.null_array();
        assert_eq!(read_all(&[&text]), Ok(vec![Value::NullBulk, Value::NullArray]));
    }
}
