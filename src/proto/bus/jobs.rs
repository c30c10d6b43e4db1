//! Frames that carry jobs, written straight from the jobs: a body is copied once.

use super::header::{self, Header, MessageHead};
use super::kind;
use crate::base::ids::NodeId;
use crate::base::limits;
use crate::proto::job_record::{JobRecord, RECORD_LEN_MIN};
use crate::proto::reader::{DecodeError, Reader};

/// The number of jobs and of their bytes, in front of them.
const COUNTS_LEN: usize = 8;

/// The records of a YOURJOBS, as they stand in its bytes; all have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YourJobs<'a> {
    records: Reader<'a>,
    count: usize,
}

impl<'a> YourJobs<'a> {
    /// Takes everything that is left: how many, how many bytes, and the records.
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (count, records) = decode_counts(reader)?;
        if count > limits::JOBS_PER_MESSAGE_MAX {
            return Err(DecodeError::BadCount);
        }
        let mut rest = records;
        for _ in 0..count {
            JobRecord::decode(&mut rest)?;
        }
        rest.finish()?;
        Ok(Self { records, count })
    }

    /// Gives the records one after another.
    pub fn iter(self) -> impl ExactSizeIterator<Item = JobRecord<'a>> {
        let mut rest = self.records;
        (0..self.count)
            .map(move |_| JobRecord::decode(&mut rest).expect("records were checked on arrival"))
    }

    /// Returns how many jobs there are.
    pub fn len(self) -> usize {
        self.count
    }

    /// Whether there are no jobs.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }
}

/// Takes the record of a REPLJOB, which must be one and all that is left.
pub(super) fn decode_one<'a>(reader: &mut Reader<'a>) -> Result<JobRecord<'a>, DecodeError> {
    let (count, mut records) = decode_counts(reader)?;
    if count != 1 {
        return Err(DecodeError::BadCount);
    }
    let record = JobRecord::decode(&mut records)?;
    records.finish()?;
    Ok(record)
}

fn decode_counts<'a>(reader: &mut Reader<'a>) -> Result<(usize, Reader<'a>), DecodeError> {
    let count = usize::try_from(reader.u32_be()?).map_err(|_| DecodeError::BadCount)?;
    let records_len = usize::try_from(reader.u32_be()?).map_err(|_| DecodeError::BadLength)?;
    let records = Reader::new(reader.rest());
    if records.len() != records_len {
        return Err(DecodeError::BadLength);
    }
    if count > records_len / RECORD_LEN_MIN {
        return Err(DecodeError::BadCount);
    }
    Ok((count, records))
}

/// A REPLJOB or YOURJOBS being written.
#[must_use = "a frame that is not finished has no length"]
pub struct JobsFrame<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u32,
}

impl<'a> JobsFrame<'a> {
    /// Begins a YOURJOBS at the end of `out`.
    pub fn your_jobs(out: &'a mut Vec<u8>, header: &Header) -> Self {
        Self::begin(out, header, kind::YOURJOBS)
    }

    fn begin(out: &'a mut Vec<u8>, header: &Header, number: u16) -> Self {
        let start = out.len();
        header.encode(out, MessageHead { number, entry_count: 0 });
        out.extend_from_slice(&[0; COUNTS_LEN]);
        Self { out, start, count: 0 }
    }

    /// Appends one job.
    pub fn push<N>(&mut self, record: &JobRecord<'_, N>)
    where
        N: IntoIterator<Item = NodeId> + Clone,
        N::IntoIter: ExactSizeIterator,
    {
        record.encode(self.out);
        self.count += 1;
    }

    /// Returns how long the frame is so far, in bytes.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether no job has been appended yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sets the counts and lengths that were not known in front.
    pub fn finish(self) {
        let counts_at = self.start + header::HEADER_LEN;
        let records_at = counts_at + COUNTS_LEN;
        let records_len = u32::try_from(self.out.len() - records_at)
            .expect("a frame is shorter than 32 bits can count");
        header::set_u32(self.out, counts_at, self.count);
        header::set_u32(self.out, counts_at + 4, records_len);
        header::set_total_len(self.out, self.start);
    }
}

/// Appends a REPLJOB.
pub fn encode_repl_job<N>(out: &mut Vec<u8>, header: &Header, record: &JobRecord<'_, N>)
where
    N: IntoIterator<Item = NodeId> + Clone,
    N::IntoIter: ExactSizeIterator,
{
    out.reserve(header::HEADER_LEN + COUNTS_LEN + record.encoded_len());
    let mut frame = JobsFrame::begin(out, header, kind::REPLJOB);
    frame.push(record);
    frame.finish();
}
