//! Checksums in the append only file.
//!
//! A LOADJOB may end in a sum: an attribute of its job ([`super::attributes`]) in an entry
//! of its own, the last one, so that the sum stands right before the line end. Numbers are
//! little endian.
//!
//! ```text
//! 0   u8   what the record is: 0 a job, 1 a carrier, 2 the carrier that closes a file
//! 1   8    the file's mark: random bytes, the same in every sum of a file
//! 9   u64  where the record begins in the file
//! 17  u32  gap: CRC32C of the records since the one with the last sum, which have none
//! 21  10   zeros
//! 31  u32  CRC32C of the record, from its first byte to here
//! ```
//!
//! The gap covers DELJOBs and what servers write that know no sums. Nothing of a record
//! is left unchecked: what stands behind the sum is the line end, which is checked as such.
//!
//! A body may be a file itself, with sums and all. Mark and place tell its records from
//! those of the file: nobody knows the mark before the file is written, and at its place in
//! the body no record is where it says it is.
//!
//! A *carrier* is there for its sum alone. As a job it is empty and expired in 1970, so the
//! C server skips it.

use crc_fast::{CrcAlgorithm, Digest};

use super::aof_record::{self, SumPlace};
use super::attributes::Attributes;
use super::job_record::{JobRecord, NodeIds, STATE_ACTIVE};
use super::reader::{DecodeError, Reader};
use crate::base::ids::JobId;

const VALUE_LEN: usize = 35;
/// The checksum of the record and the line end: what the checksum does not cover.
const BEHIND_LEN: usize = 4 + LINE_END_LEN;
const LINE_END_LEN: usize = 2;
/// Long past whatever the clock says.
const EXPIRED_IN_1970: u32 = 1;

/// Tells the records of a file from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMark(pub [u8; 8]);

/// What a record with a sum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumKind {
    Job,
    /// A carrier that covers the records before it.
    Carrier,
    /// The carrier behind which nothing is missing: the file was closed.
    Close,
}

/// CRC32C (CRC-32/ISCSI) of the records since the last sum; that of none is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap(u32);

impl Gap {
    /// Covers further records.
    pub fn add(&mut self, records: &[u8]) {
        // A checksum is the inverse of the state behind its last byte.
        let state = u64::from(!self.0);
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
        digest.update(records);
        self.0 = u32::try_from(digest.finalize()).expect("the checksum has 32 bits");
    }
}

/// What a sum says, but for the checksum of the record itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub kind: SumKind,
    pub mark: FileMark,
    /// Of the record, from the beginning of the file.
    pub offset: u64,
    pub gap: Gap,
}

/// The sum of a record, as far as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundSum {
    Absent,
    /// The record is not what was written.
    Broken,
    /// The record is what was written, if it stands where the sum says.
    Sound(Sum),
}

impl Sum {
    /// Puts the sum into its place in a LOADJOB, whatever stands there.
    ///
    /// # Panics
    /// When the record is too short to have one.
    pub fn fill(&self, load_job: &mut [u8]) {
        let value_at = load_job.len() - LINE_END_LEN - VALUE_LEN;
        let value = load_job.get_mut(value_at..).and_then(<[u8]>::first_chunk_mut);
        self.write(value.expect("a value is as long as its place"));
        let crc = checksum_of(load_job);
        let crc_at = load_job.len() - BEHIND_LEN;
        let place = load_job.get_mut(crc_at..).and_then(<[u8]>::first_chunk_mut);
        *place.expect("it stands there") = crc.to_le_bytes();
    }

    /// Appends a carrier. The ID must not be any job's.
    pub fn append_carrier(&self, out: &mut Vec<u8>, id: JobId) {
        let record = JobRecord {
            id,
            state: STATE_ACTIVE,
            gc_attempts: 0,
            flags: 0,
            repl: 1,
            expiry: EXPIRED_IN_1970,
            ctime: 0,
            delay_secs: 0,
            retry_secs: 0,
            nacks: 0,
            deliveries: 0,
            queue: b"",
            body: b"",
            nodes: NodeIds::default(),
            attributes: Attributes::default(),
        };
        let begin = out.len();
        aof_record::append_load_job(out, &record, SumPlace::Yes);
        self.fill(out.get_mut(begin..).expect("the carrier begins there"));
    }

    /// Whether a LOADJOB has the mark where the mark of a sum stands: it had one, whatever
    /// became of it.
    pub fn is_marked(record: &[u8], mark: FileMark) -> bool {
        let value_at = record.len().checked_sub(VALUE_LEN + LINE_END_LEN);
        let value = value_at.and_then(|at| record.get(at + 1..)).unwrap_or_default();
        value.starts_with(&mark.0)
    }

    /// Finds the sum of a LOADJOB, given all bytes of the record and the job in it.
    pub fn find(record: &[u8], job: &JobRecord<'_>) -> FoundSum {
        let Some(value) = job.attributes.sum() else { return FoundSum::Absent };
        match Self::decode(&value) {
            Ok((sum, crc)) if crc == checksum_of(record) => FoundSum::Sound(sum),
            _ => FoundSum::Broken,
        }
    }

    fn write(&self, value: &mut [u8; VALUE_LEN]) {
        let kind = match self.kind {
            SumKind::Job => 0,
            SumKind::Carrier => 1,
            SumKind::Close => 2,
        };
        value[0] = kind;
        value[1..9].copy_from_slice(&self.mark.0);
        value[9..17].copy_from_slice(&self.offset.to_le_bytes());
        value[17..21].copy_from_slice(&self.gap.0.to_le_bytes());
        value[21..].fill(0);
    }

    fn decode(value: &[u8]) -> Result<(Self, u32), DecodeError> {
        let mut reader = Reader::new(value);
        let kind = match reader.u8()? {
            0 => SumKind::Job,
            1 => SumKind::Carrier,
            2 => SumKind::Close,
            kind => return Err(DecodeError::UnknownType(kind.into())),
        };
        let mark = FileMark(reader.array()?);
        let offset = reader.u64_le()?;
        let gap = Gap(reader.u32_le()?);
        reader.take(10)?;
        let crc = reader.u32_le()?;
        reader.finish()?;
        Ok((Self { kind, mark, offset, gap }, crc))
    }
}

fn checksum_of(record: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(record.get(..record.len() - BEHIND_LEN).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::aof_record::AofRecord;
    use crate::proto::attributes::{AttributeStream, PIECE_LEN, Tag};

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");
    const SUM: Sum =
        Sum { kind: SumKind::Job, mark: FileMark(*b"the mark"), offset: 1234, gap: Gap(7) };

    /// The first job of the file, as its record.
    fn load_job() -> &'static [u8] {
        let (len, _) = aof_record::next(GOLDEN).expect("valid").expect("whole");
        &GOLDEN[..len]
    }

    fn job(record: &[u8]) -> JobRecord<'_> {
        match aof_record::next(record) {
            Ok(Some((_, AofRecord::LoadJob(job)))) => job,
            other => panic!("it is a LOADJOB: {other:?}"),
        }
    }

    fn summed() -> Vec<u8> {
        let mut record = Vec::new();
        aof_record::append_load_job(&mut record, &job(load_job()), SumPlace::Yes);
        SUM.fill(&mut record);
        record
    }

    fn find(record: &[u8]) -> FoundSum {
        Sum::find(record, &job(record))
    }

    #[test]
    fn the_checksum_is_the_one_that_is_called_crc32c() {
        let mut gap = Gap::default();
        assert_eq!(gap, Gap(0));
        gap.add(b"1234");
        gap.add(b"56789");
        assert_eq!(gap, Gap(0xe306_9283));
    }

    #[test]
    fn a_sum_reads_back_and_leaves_the_job_as_it_was() {
        let record = summed();
        assert_eq!(record.len(), load_job().len() + 40);
        assert_eq!(find(&record), FoundSum::Sound(SUM));
        assert_eq!(find(load_job()), FoundSum::Absent);
        let read = job(&record);
        assert_eq!(JobRecord { attributes: Attributes::default(), ..read }, job(load_job()));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let record = summed();
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut damaged = record.clone();
                damaged[at] ^= 1 << bit;
                let is_found = match aof_record::next(&damaged) {
                    Ok(Some((len, AofRecord::LoadJob(job)))) => {
                        match Sum::find(&damaged[..len], &job) {
                            FoundSum::Sound(_) => false,
                            FoundSum::Broken => true,
                            FoundSum::Absent => Sum::is_marked(&damaged[..len], SUM.mark),
                        }
                    }
                    _ => true,
                };
                assert!(is_found, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_carrier_is_a_job_that_is_long_over() {
        let id = JobId(*b"D-a4d5f1c9-p8oCwlvzc9vw8CFjo57YmKBY-000b");
        for kind in [SumKind::Carrier, SumKind::Close] {
            let sum = Sum { kind, ..SUM };
            let mut carrier = Vec::new();
            sum.append_carrier(&mut carrier, id);
            assert_eq!(find(&carrier), FoundSum::Sound(sum));
            let job = job(&carrier);
            assert_eq!((job.id, job.expiry, job.queue, job.body), (id, 1, &b""[..], &b""[..]));
        }
    }

    #[test]
    fn a_sum_stands_behind_other_attributes() {
        let mut note = Vec::new();
        let mut piece = [0; PIECE_LEN];
        piece[..5].copy_from_slice(&[4, 2, 0, b'n', b'n']);
        job(load_job()).encode_with(&mut note, &piece);
        let noted = JobRecord::decode(&mut Reader::new(&note)).expect("it was just encoded");
        let mut record = Vec::new();
        aof_record::append_load_job(&mut record, &noted, SumPlace::Yes);
        assert_eq!(find(&record), FoundSum::Broken, "its place is not filled");
        SUM.fill(&mut record);
        assert_eq!(find(&record), FoundSum::Sound(SUM));
        let tags: Vec<Tag> = job(&record).attributes.iter().map(|(tag, _)| tag).collect();
        assert_eq!(tags, [Tag(4), Tag::SUM]);
        // A length that is damaged hides nothing.
        let len_at = record.len() - 2 - 40 - 40 + 3;
        assert_eq!(record[len_at], 2);
        record[len_at] = 200;
        assert_eq!(find(&record), FoundSum::Broken);
    }

    #[test]
    fn a_value_that_looks_like_a_sum_is_none() {
        let mut stream = AttributeStream::default();
        // Behind the first entry's 38 bytes the value goes on as a sum begins.
        let value = [&[b'v'; 35][..], &aof_record::SUM_PLACE].concat();
        stream.push(Tag::USER, &[&value]);
        let kept = stream.keep().expect("it has some");
        let with_attributes = JobRecord { attributes: kept.as_attributes(), ..job(load_job()) };
        let mut record = Vec::new();
        aof_record::append_load_job(&mut record, &with_attributes, SumPlace::No);
        assert_eq!(find(&record), FoundSum::Absent);
        assert_eq!(job(&record).attributes.without_sum(), kept.as_attributes());
    }
}
