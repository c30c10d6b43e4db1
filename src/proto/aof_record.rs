//! The records of the append only file: `LOADJOB <job record>` and `DELJOB <id>`, each
//! written as a client would write the command.
//!
//! Whoever reads a file calls [`next`] again and again, and must tell two kinds of bad
//! end apart. Where the bytes stop, or turn into zeros, before a record is whole, a
//! write was cut off: `Ok(None)`, more bytes may help, and at the end of the file the
//! tail may be cut. Anything else that is no record is damage, and an [`AofError`] says
//! where and why: a file is never cut there.
//!
//! Invariant: a record is taken only when its framing and everything within it is right.

use std::fmt;

use super::attributes::{PIECE_LEN, Tag};
use super::job_record::{JobRecord, RECORD_LEN_MAX};
use super::reader::{DecodeError, Reader};
use crate::base::ids::{JOB_ID_LEN, JobId, NODE_ID_LEN, NodeId};
use crate::base::number;

/// One change of the set of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AofRecord<'a> {
    LoadJob(JobRecord<'a>),
    DelJob(JobId),
}

/// Where the bytes are damaged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofError {
    /// From the beginning of the record.
    pub offset: usize,
    pub reason: AofDamage,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AofDamage {
    /// This byte should stand here.
    Expected(u8),
    BadNumber,
    /// Neither command has this many arguments, the name included.
    WrongArity(usize),
    UnknownCommand,
    /// An argument is longer than any record can be.
    TooLong,
    BadJobId,
    BadJob(DecodeError),
    /// The record does not match its checksum.
    WrongSum,
    /// The records before it do not match the checksum in it.
    WrongGap,
    /// The record goes on beyond the end of the file, and over records that are sound.
    TooFar,
}

impl fmt::Display for AofDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(byte) => {
                write!(f, "expected '{}'", std::ascii::escape_default(*byte))
            }
            Self::BadNumber => f.write_str("malformed number"),
            Self::WrongArity(count) => write!(f, "a command of {count} words instead of 2"),
            Self::UnknownCommand => f.write_str("a command other than LOADJOB and DELJOB"),
            Self::TooLong => f.write_str("an argument that is too long"),
            Self::BadJobId => f.write_str("malformed job ID"),
            Self::BadJob(error) => write!(f, "malformed job: {error}"),
            Self::WrongSum => f.write_str("a record that does not match its checksum"),
            Self::WrongGap => f.write_str("records that do not match the next checksum"),
            Self::TooFar => f.write_str("a record that reaches over others"),
        }
    }
}

impl fmt::Display for AofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the record", self.reason, self.offset)
    }
}

impl std::error::Error for AofError {}

/// What a LOADJOB begins with, up to the length of its job's record.
pub const LOADJOB_HEAD: &[u8] = b"*2\r\n$7\r\nLOADJOB\r\n$";
const DELJOB_HEAD: &[u8] = b"*2\r\n$6\r\nDELJOB\r\n$40\r\n";
const DELJOB_LEN: usize = DELJOB_HEAD.len() + JOB_ID_LEN + 2;

/// Whether a LOADJOB is written with a place for a sum, to be filled where the record goes
/// to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumPlace {
    No,
    Yes,
}

/// The place of a sum ([`super::aof_sum`]): the attribute, with nothing in it.
pub(super) const SUM_PLACE: [u8; PIECE_LEN] = {
    let mut piece = [0; PIECE_LEN];
    piece[0] = Tag::SUM.0;
    // The length, whose other byte is 0.
    piece[1] = 35;
    piece
};

/// Appends a LOADJOB, with a place for its sum behind its attributes if there is to be one.
pub fn append_load_job<N>(out: &mut Vec<u8>, record: &JobRecord<'_, N>, place: SumPlace)
where
    N: IntoIterator<Item = NodeId> + Clone,
    N::IntoIter: ExactSizeIterator,
{
    match place {
        SumPlace::No => {
            append_head(out, record.encoded_len());
            record.encode(out);
        }
        SumPlace::Yes => {
            append_head(out, record.encoded_len() + NODE_ID_LEN);
            record.encode_with(out, &SUM_PLACE);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn append_head(out: &mut Vec<u8>, record_len: usize) {
    // The head has 18 bytes, the number of the length up to 10, the line ends 4.
    out.reserve(record_len + 32);
    out.extend_from_slice(LOADJOB_HEAD);
    number::append_u64(out, u64::try_from(record_len).expect("a length fits 64 bits"));
    out.extend_from_slice(b"\r\n");
}

/// Splits records that were encoded here: those before the first LOADJOB, that one, and the
/// rest.
///
/// # Panics
/// When the records are anything else.
pub fn split_at_load_job(records: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let mut at = 0;
    // The length of the name tells which it is.
    while records.get(at + 5) == DELJOB_HEAD.get(5) {
        at += DELJOB_LEN;
    }
    let (before, rest) = records.split_at_mut(at);
    let len = load_job_len(rest).expect("records are encoded whole");
    let (load_job, rest) = rest.split_at_mut(len);
    (before, load_job, rest)
}

/// The length of the LOADJOB that records begin with; 0 if there are none.
fn load_job_len(records: &[u8]) -> Option<usize> {
    if records.is_empty() {
        return Some(0);
    }
    let mut record_len = 0;
    for (digit, len) in records.get(LOADJOB_HEAD.len()..)?.iter().zip(LOADJOB_HEAD.len()..) {
        match digit {
            b'0'..=b'9' => record_len = record_len * 10 + usize::from(digit - b'0'),
            _ => return Some(len + 2 + record_len + 2),
        }
    }
    None
}

/// Appends a DELJOB.
pub fn append_del_job(out: &mut Vec<u8>, id: &JobId) {
    out.extend_from_slice(DELJOB_HEAD);
    out.extend_from_slice(&id.0);
    out.extend_from_slice(b"\r\n");
}

/// Takes the record at the beginning of `input`, and tells how long it is. `None` when the
/// input ends before the record does, or has nothing but zeros from some byte of its
/// framing on.
pub fn next(input: &[u8]) -> Result<Option<(usize, AofRecord<'_>)>, AofError> {
    let mut cursor = RecordCursor { input, at: 0 };
    match take_record(&mut cursor) {
        Ok(record) => Ok(Some((cursor.at, record))),
        Err(RecordStop::InputEnds) => Ok(None),
        Err(RecordStop::Damaged(error)) => {
            let rest = input.get(error.offset..).unwrap_or_default();
            // A file that had grown before its bytes were written ends in zeros.
            if rest.iter().all(|&byte| byte == 0) { Ok(None) } else { Err(error) }
        }
    }
}

enum RecordStop {
    InputEnds,
    Damaged(AofError),
}

enum RecordKind {
    LoadJob,
    DelJob,
}

fn take_record<'a>(cursor: &mut RecordCursor<'a>) -> Result<AofRecord<'a>, RecordStop> {
    let start = cursor.at;
    let word_count = cursor.number_line(b'*')?;
    if word_count != 2 {
        return Err(damaged(start, AofDamage::WrongArity(word_count)));
    }
    match take_command(cursor)? {
        RecordKind::LoadJob => {
            let (at, bytes) = cursor.argument(RECORD_LEN_MAX)?;
            let mut reader = Reader::new(bytes);
            JobRecord::decode(&mut reader)
                .and_then(|record| reader.finish().map(|()| AofRecord::LoadJob(record)))
                .map_err(|error| damaged(at, AofDamage::BadJob(error)))
        }
        RecordKind::DelJob => {
            let (at, bytes) = cursor.argument(JOB_ID_LEN)?;
            let id = JobId::parse(bytes).ok_or(damaged(at, AofDamage::BadJobId))?;
            Ok(AofRecord::DelJob(id))
        }
    }
}

/// Takes the name, in either case as the C server does.
fn take_command(cursor: &mut RecordCursor<'_>) -> Result<RecordKind, RecordStop> {
    let start = cursor.at;
    let (name, command): (&[u8], _) = match cursor.number_line(b'$')? {
        7 => (b"LOADJOB", RecordKind::LoadJob),
        6 => (b"DELJOB", RecordKind::DelJob),
        _ => return Err(damaged(start, AofDamage::UnknownCommand)),
    };
    for expected in name {
        if !cursor.byte()?.eq_ignore_ascii_case(expected) {
            return Err(damaged(cursor.at - 1, AofDamage::UnknownCommand));
        }
    }
    cursor.line_end()?;
    Ok(command)
}

fn damaged(offset: usize, reason: AofDamage) -> RecordStop {
    RecordStop::Damaged(AofError { offset, reason })
}

struct RecordCursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> RecordCursor<'a> {
    fn byte(&mut self) -> Result<u8, RecordStop> {
        let byte = *self.input.get(self.at).ok_or(RecordStop::InputEnds)?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, expected: u8) -> Result<(), RecordStop> {
        if self.byte()? == expected {
            Ok(())
        } else {
            Err(damaged(self.at - 1, AofDamage::Expected(expected)))
        }
    }

    fn line_end(&mut self) -> Result<(), RecordStop> {
        self.expect(b'\r')?;
        self.expect(b'\n')
    }

    /// Takes a line of a type byte and a number.
    fn number_line(&mut self, kind: u8) -> Result<usize, RecordStop> {
        self.expect(kind)?;
        let mut value = None;
        loop {
            let byte = self.byte()?;
            let at = self.at - 1;
            let digit = match (byte, value) {
                (b'\r', Some(value)) => {
                    self.expect(b'\n')?;
                    return Ok(value);
                }
                (b'0'..=b'9', _) => usize::from(byte - b'0'),
                _ => return Err(damaged(at, AofDamage::BadNumber)),
            };
            let longer = value.unwrap_or(0usize).checked_mul(10);
            let longer = longer.and_then(|tens| tens.checked_add(digit));
            value = Some(longer.ok_or(damaged(at, AofDamage::BadNumber))?);
        }
    }

    /// Takes an argument with its length in front, and tells where its bytes begin.
    fn argument(&mut self, len_max: usize) -> Result<(usize, &'a [u8]), RecordStop> {
        let line_at = self.at;
        let len = self.number_line(b'$')?;
        if len > len_max {
            return Err(damaged(line_at, AofDamage::TooLong));
        }
        let at = self.at;
        let bytes = self.input.get(at..at + len).ok_or(RecordStop::InputEnds)?;
        self.at += len;
        self.line_end()?;
        Ok((at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::job_record::STATE_QUEUED;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");

    /// Reads records until there are none, and tells where the reading stopped.
    fn read_all(file: &[u8]) -> (Vec<AofRecord<'_>>, usize, Option<AofError>) {
        let (mut records, mut at) = (Vec::new(), 0);
        loop {
            match next(&file[at..]) {
                Ok(Some((len, record))) => {
                    records.push(record);
                    at += len;
                }
                Ok(None) => return (records, at, None),
                Err(error) => return (records, at, Some(error)),
            }
        }
    }

    #[test]
    fn a_file_of_the_c_server_reads_back_and_is_written_to_its_bytes() {
        let (records, at, error) = read_all(GOLDEN);
        assert_eq!((at, error), (GOLDEN.len(), None));
        let mut written = Vec::new();
        for record in &records {
            match record {
                AofRecord::LoadJob(job) => append_load_job(&mut written, job, SumPlace::No),
                AofRecord::DelJob(id) => append_del_job(&mut written, id),
            }
        }
        assert!(written == GOLDEN);
        let AofRecord::LoadJob(job) = records[0] else { panic!("the first record is a LOADJOB") };
        assert_eq!((job.queue, job.body), (&b"plain"[..], &b"hello"[..]));
        assert_eq!((job.state, job.retry_secs, job.repl), (STATE_QUEUED, 60, 1));
        assert!(records.iter().any(|record| matches!(record, AofRecord::DelJob(_))));
    }

    /// Where each record of the file ends.
    fn ends() -> Vec<usize> {
        let mut ends = vec![0];
        while let Ok(Some((len, _))) = next(&GOLDEN[ends[ends.len() - 1]..]) {
            ends.push(ends[ends.len() - 1] + len);
        }
        ends
    }

    #[test]
    fn a_file_cut_anywhere_is_truncated_behind_its_last_whole_record() {
        let ends = ends();
        for len in 0..GOLDEN.len() {
            let (_, at, error) = read_all(&GOLDEN[..len]);
            let last = ends.iter().rev().find(|&&end| end <= len).expect("0 is an end");
            assert_eq!((at, error), (*last, None), "cut at {len}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_a_truncated_tail() {
        let ends = ends();
        for len in 0..GOLDEN.len() {
            let file = [&GOLDEN[..len], &[0; 4096]].concat();
            let (_, at, error) = read_all(&file);
            let last = ends.iter().rev().find(|&&end| end <= len).expect("0 is an end");
            assert_eq!((at, error), (*last, None), "zeros from {len}");
        }
    }

    #[test]
    fn zeros_in_the_middle_are_damage() {
        let file = [&GOLDEN[..ends()[1]], &[0; 100], GOLDEN].concat();
        let (records, at, error) = read_all(&file);
        assert_eq!((records.len(), at), (1, ends()[1]));
        assert_eq!(error, Some(AofError { offset: 0, reason: AofDamage::Expected(b'*') }));
    }

    #[test]
    fn a_changed_byte_is_read_as_something_else_or_named_but_never_panics() {
        for at in 0..GOLDEN.len() {
            for bit in 0..8 {
                let mut file = GOLDEN.to_vec();
                file[at] ^= 1 << bit;
                let (_, stopped_at, error) = read_all(&file);
                assert!(stopped_at + error.map_or(0, |error| error.offset) <= file.len());
            }
        }
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let id = "D-4f34f40c-BSFzs+DYWKutLatQkA1Cwov4-ffff";
        for (text, offset, reason) in [
            ("PING\r\n".to_owned(), 0, AofDamage::Expected(b'*')),
            ("*x\r\n".to_owned(), 1, AofDamage::BadNumber),
            ("*\r\n".to_owned(), 1, AofDamage::BadNumber),
            ("*99999999999999999999\r\n".to_owned(), 20, AofDamage::BadNumber),
            ("*1\r\n$6\r\nDELJOB\r\n".to_owned(), 0, AofDamage::WrongArity(1)),
            (format!("*3\r\n$6\r\nDELJOB\r\n$40\r\n{id}\r\n"), 0, AofDamage::WrongArity(3)),
            ("*2\r\n:7\r\n".to_owned(), 4, AofDamage::Expected(b'$')),
            ("*2\r\n$8\r\nSHUTDOWN\r\n".to_owned(), 4, AofDamage::UnknownCommand),
            ("*2\r\n$6\r\nADDJOB\r\n".to_owned(), 8, AofDamage::UnknownCommand),
            ("*2\r\n$6\r\nDELJOBxx".to_owned(), 14, AofDamage::Expected(b'\r')),
            ("*2\r\n$6\r\nDELJOB\r\n$41\r\n".to_owned(), 16, AofDamage::TooLong),
            ("*2\r\n$6\r\nDELJOB\r\n$3\r\nabc\r\n".to_owned(), 20, AofDamage::BadJobId),
            ("*2\r\n$7\r\nLOADJOB\r\n$9999999999\r\n".to_owned(), 17, AofDamage::TooLong),
            (
                "*2\r\n$7\r\nLOADJOB\r\n$4\r\n\x08\0\0\0\r\n".to_owned(),
                21,
                AofDamage::BadJob(DecodeError::Truncated),
            ),
        ] {
            let error = AofError { offset, reason };
            assert_eq!(next(text.as_bytes()), Err(error), "{}", text.escape_default());
        }
    }

    #[test]
    fn names_are_read_in_either_case() {
        let id = "D-4f34f40c-BSFzs+DYWKutLatQkA1Cwov4-ffff";
        let text = format!("*2\r\n$6\r\ndeljob\r\n$40\r\n{id}\r\n");
        let (len, record) = next(text.as_bytes()).expect("valid").expect("whole");
        assert_eq!(len, text.len());
        assert!(matches!(record, AofRecord::DelJob(read) if read.to_string() == id));
    }
}
