//! Replies as a client reads them: for the command line tools and the tests.
//!
//! Bytes go in as they come, values come out whole. Nothing is read twice and nothing
//! is allocated on the word of a length. Arrays within arrays wait on a stack of their
//! own, of at most [`DEPTH_MAX`]: no reply of this server is deeper than three. Whatever a
//! server sends, one reply takes about [`limits::REPLY_MAX`] bytes of memory at most.

use std::fmt;
use std::ops::Range;

use crate::base::{limits, number};

/// Arrays within arrays that are followed.
pub const DEPTH_MAX: usize = 16;

/// Elements for which memory is reserved before they have come.
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

impl Value {
    /// Returns the value that follows a name, in a map or in a flat list of names and values.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let is_name = |key: &Value| matches!(key, Value::Bulk(key) if key == name.as_bytes());
        match self {
            Value::Map(pairs) => {
                pairs.iter().find_map(|(key, value)| is_name(key).then_some(value))
            }
            Value::Array(items) => items.chunks_exact(2).find_map(|pair| match pair {
                [key, value] if is_name(key) => Some(value),
                _ => None,
            }),
            _ => None,
        }
    }
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
    TooLarge,
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
            Self::TooLarge => f.write_str("a reply is too large"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Turns a stream of bytes into replies.
#[derive(Default)]
pub struct ReplyReader {
    buffer: Vec<u8>,
    /// Where the next line or the rest of the current bulk begins.
    at: usize,
    /// How many bytes from `at` on are known to hold no line end.
    scanned: usize,
    bulk: Option<PartialBulk>,
    /// Arrays and maps whose elements are still coming, the outermost first.
    open: Vec<Open>,
    /// What the current reply takes so far, in bytes.
    taken: usize,
}

/// A bulk string that is still coming.
struct PartialBulk {
    bytes: Vec<u8>,
    /// Length of the bytes with their line end.
    whole_len: usize,
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
                self.taken = 0;
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
            if let Some(bulk) = &mut self.bulk {
                self.at += bulk.take(self.buffer.get(self.at..).unwrap_or_default());
                if !bulk.is_whole() {
                    return Ok(None);
                }
                let bulk = self.bulk.take().expect("there is one, and it is whole");
                return bulk.finish().map(Value::Bulk).map(Some);
            }
            let Some(line) = self.next_line()? else { return Ok(None) };
            let Some((kind, text)) = self.buffer.get(line).and_then(<[u8]>::split_first) else {
                return Err(ReplyError::UnknownType(b'\r'));
            };
            match kind {
                b'+' | b'-' => {
                    let text = text.to_vec();
                    let is_error = *kind == b'-';
                    self.reserve(text.len())?;
                    return Ok(Some(if is_error {
                        Value::Error(text)
                    } else {
                        Value::Status(text)
                    }));
                }
                b':' => {
                    let value = parse_integer(text).ok_or(ReplyError::BadNumber)?;
                    return Ok(Some(Value::Integer(value)));
                }
                b'_' if text.is_empty() => return Ok(Some(Value::Null)),
                b'$' => match parse_length(text)? {
                    None => return Ok(Some(Value::NullBulk)),
                    Some(len) if len <= limits::BULK_MAX => {
                        self.reserve(len)?;
                        self.bulk = Some(PartialBulk { bytes: Vec::new(), whole_len: len + 2 });
                    }
                    Some(_) => return Err(ReplyError::BadLength),
                },
                b'*' => match parse_length(text)? {
                    None => return Ok(Some(Value::NullArray)),
                    Some(0) => return Ok(Some(Value::Array(Vec::new()))),
                    Some(len) => self.open(OpenKind::Array, len)?,
                },
                b'%' => match parse_length(text)? {
                    Some(0) => return Ok(Some(Value::Map(Vec::new()))),
                    Some(len) => {
                        let len = len.checked_mul(2).ok_or(ReplyError::BadLength)?;
                        self.open(OpenKind::Map, len)?;
                    }
                    None => return Err(ReplyError::BadLength),
                },
                other => return Err(ReplyError::UnknownType(*other)),
            }
        }
    }

    /// Moves past the next whole line. Returns where it stands in the buffer, without its end.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, ReplyError> {
        let rest = self.buffer.get(self.at..).unwrap_or_default();
        let unscanned = rest.get(self.scanned..).unwrap_or_default();
        let end = memchr::memchr(b'\n', unscanned).map(|end| self.scanned + end);
        if end.unwrap_or(rest.len()) > limits::REPLY_LINE_MAX {
            return Err(ReplyError::LineTooLong);
        }
        let Some(end) = end else {
            self.scanned = rest.len();
            return Ok(None);
        };
        let line = rest.get(..end).and_then(|line| line.strip_suffix(b"\r"));
        let line_len = line.ok_or(ReplyError::MissingLineEnd)?.len();
        let start = self.at;
        self.at += end + 1;
        self.scanned = 0;
        Ok(Some(start..start + line_len))
    }

    /// Counts so many bytes as taken by the current reply.
    fn reserve(&mut self, len: usize) -> Result<(), ReplyError> {
        self.taken = self.taken.saturating_add(len);
        if self.taken > limits::REPLY_MAX { Err(ReplyError::TooLarge) } else { Ok(()) }
    }

    /// Begins an array or map of so many elements, whose memory is counted at once: what
    /// could never be held is refused before it comes.
    fn open(&mut self, kind: OpenKind, len: usize) -> Result<(), ReplyError> {
        if self.open.len() == DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        self.reserve(len.saturating_mul(size_of::<Value>()))?;
        let elements = Vec::with_capacity(len.min(ELEMENTS_AHEAD));
        self.open.push(Open { kind, remaining: len, elements });
        Ok(())
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

impl PartialBulk {
    /// Moves what belongs to the bulk out of `rest`. Returns how much that is.
    fn take(&mut self, rest: &[u8]) -> usize {
        let missing = self.whole_len - self.bytes.len();
        let part = rest.get(..missing).unwrap_or(rest);
        if self.bytes.capacity() - self.bytes.len() < part.len() {
            // Doubles, but never takes more than the bulk will need.
            self.bytes.reserve_exact(self.bytes.len().max(part.len()).min(missing));
        }
        self.bytes.extend_from_slice(part);
        part.len()
    }

    fn is_whole(&self) -> bool {
        self.bytes.len() == self.whole_len
    }

    fn finish(mut self) -> Result<Vec<u8>, ReplyError> {
        match self.bytes.as_slice() {
            [.., b'\r', b'\n'] => self.bytes.truncate(self.whole_len - 2),
            _ => return Err(ReplyError::MissingLineEnd),
        }
        Ok(self.bytes)
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
            (&b"+".repeat(limits::REPLY_LINE_MAX + 1), ReplyError::LineTooLong),
            (&b"*1\r\n".repeat(1_000_000), ReplyError::TooDeep),
            (b"*99999999999\r\n", ReplyError::TooLarge),
        ] {
            assert_eq!(read_all(&[text]), Err(error), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_length_costs_nothing_until_its_bytes_come() {
        let mut reader = ReplyReader::default();
        reader.feed(b"*10000000\r\n$536870000\r\nabc");
        assert_eq!(reader.next_value(), Ok(None));
        assert!(reader.open[0].elements.capacity() <= ELEMENTS_AHEAD);
        assert!(reader.bulk.is_some_and(|bulk| bulk.bytes.capacity() < 100));
    }

    #[test]
    fn parts_that_each_are_allowed_may_be_too_much_together() {
        let half = limits::REPLY_MAX / size_of::<Value>() / 2 + 1;
        let text = format!("*2\r\n*{half}\r\n*{half}\r\n");
        assert_eq!(read_all(&[text.as_bytes()]), Err(ReplyError::TooLarge));
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
