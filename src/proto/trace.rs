//! What happened to a job on a node, as nodes answer it to each other.
//!
//! ```text
//! the time on the node u64, in ms since 1970, then the rows:
//! time u64, number of fields u8, fields: length u16, bytes
//! ```
//!
//! The first field of a row is the event, the others are names and values in turn. Numbers are big
//! endian. Who knows nothing of the job answers its time alone. Events and names that are new are
//! shown as they are: nobody has to know them.

use std::collections::BTreeMap;

use super::reader::{DecodeError, Reader};
use crate::base::time::UnixMs;

/// Most rows that are read of one node: those of its table, and what it says of them.
pub const ROWS_MAX: usize = 80;
/// Most fields that are read of a row.
const FIELDS_MAX: usize = 32;

/// One event, or something that a node says of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// By the clock of the node.
    pub at: UnixMs,
    pub event: Vec<u8>,
    /// Names and values.
    pub details: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TraceRow {
    /// A row without details.
    pub fn new(at: UnixMs, event: impl Into<Vec<u8>>) -> Self {
        Self { at, event: event.into(), details: Vec::new() }
    }

    /// The same with one detail more.
    pub fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.details.push((name.into(), value.into()));
        self
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let details = self.details.iter().take((FIELDS_MAX - 1) / 2);
        let details = details.flat_map(|(name, value)| [name, value]);
        let fields: Vec<&Vec<u8>> = std::iter::once(&self.event).chain(details).collect();
        out.extend_from_slice(&self.at.0.to_be_bytes());
        out.push(u8::try_from(fields.len()).unwrap_or(u8::MAX));
        for field in fields {
            let len = u16::try_from(field.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(field.get(..usize::from(len)).unwrap_or_default());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = UnixMs(reader.u64_be()?);
        let count = usize::from(reader.u8()?);
        if count == 0 || count > FIELDS_MAX {
            return Err(DecodeError::BadCount);
        }
        let mut field = || {
            let len = usize::from(reader.u16_be()?);
            Ok(reader.take(len)?.to_vec())
        };
        let mut row = Self::new(at, field()?);
        for _ in 0..(count - 1) / 2 {
            row.details.push((field()?, field()?));
        }
        if count.is_multiple_of(2) {
            field()?;
        }
        Ok(row)
    }
}

/// Puts rows of several nodes in order, by time and then by node. Those of one node come as it noted
/// them and stay so, also where its clock was set back meanwhile.
pub fn put_in_order<T, N: Ord + Clone>(
    rows: &mut Vec<T>,
    node: impl Fn(&T) -> N,
    at: impl Fn(&T) -> i64,
) {
    let mut latest: BTreeMap<N, i64> = BTreeMap::new();
    let place = |row: T| {
        let node = node(&row);
        let latest = latest.entry(node.clone()).or_insert(i64::MIN);
        *latest = at(&row).max(*latest);
        ((*latest, node), row)
    };
    let mut placed: Vec<((i64, N), T)> = rows.drain(..).map(place).collect();
    placed.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows.extend(placed.into_iter().map(|(_, row)| row));
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTrace {
    /// What its clock says.
    pub now: UnixMs,
    pub rows: Vec<TraceRow>,
}

impl NodeTrace {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.now.0.to_be_bytes().to_vec();
        self.rows.iter().take(ROWS_MAX).for_each(|row| row.encode(&mut out));
        out
    }

    /// Takes an answer apart, up to what is no row.
    pub fn decode(answer: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(answer);
        let now = UnixMs(reader.u64_be()?);
        let mut rows = Vec::new();
        while rows.len() < ROWS_MAX
            && let Ok(row) = TraceRow::decode(&mut reader)
        {
            rows.push(row);
        }
        Ok(Self { now, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> NodeTrace {
        let rows = vec![
            TraceRow::new(UnixMs(5), "added").with("client", "7"),
            TraceRow::new(UnixMs(6), "nacked").with("delay-ms", "50").with("reason", "no\0thing"),
            TraceRow::new(UnixMs(u64::MAX), ""),
        ];
        NodeTrace { now: UnixMs(9), rows }
    }

    #[test]
    fn an_answer_comes_back_as_it_was() {
        assert_eq!(NodeTrace::decode(&trace().encode()), Ok(trace()));
        let nothing = NodeTrace { now: UnixMs(9), rows: Vec::new() };
        assert_eq!(NodeTrace::decode(&nothing.encode()), Ok(nothing));
    }

    #[test]
    fn of_an_answer_that_is_cut_or_damaged_the_rows_before_count() {
        let encoded = trace().encode();
        for len in 0..encoded.len() {
            match NodeTrace::decode(&encoded[..len]) {
                Ok(read) => assert!(len >= 8 && trace().rows.starts_with(&read.rows)),
                Err(error) => assert!(len < 8, "{error}"),
            }
        }
        let odd = [&encoded[..8], &1u64.to_be_bytes(), &[2], &[0, 1, b'x', 0, 0]].concat();
        let read = NodeTrace::decode(&odd).expect("there is a time");
        assert_eq!(read.rows, [TraceRow::new(UnixMs(1), "x")], "a name without a value is none");
        let none = [&encoded[..8], &1u64.to_be_bytes(), &[0]].concat();
        assert_eq!(NodeTrace::decode(&none).expect("there is a time").rows, []);
    }

    #[test]
    fn rows_are_in_order_and_those_of_a_node_stay_in_theirs() {
        // The clock of a is set back after its second event.
        let mut rows = vec![("a", 1), ("a", 9), ("a", 4), ("b", 4), ("b", 9), ("a", 10), ("b", 11)];
        put_in_order(&mut rows, |row| row.0, |row| row.1);
        let expected = [("a", 1), ("b", 4), ("a", 9), ("a", 4), ("b", 9), ("a", 10), ("b", 11)];
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_is_too_much_is_left_out() {
        let mut row = TraceRow::new(UnixMs(1), vec![b'x'; 70_000]);
        for n in 0..40 {
            row = row.with("n", n.to_string());
        }
        let rows = vec![row; ROWS_MAX + 5];
        let read = NodeTrace::decode(&NodeTrace { now: UnixMs(1), rows }.encode());
        let rows = read.expect("there is a time").rows;
        assert_eq!(rows.len(), ROWS_MAX);
        assert_eq!((rows[0].event.len(), rows[0].details.len()), (65_535, 15));
    }
}
