//! The checksums of one append only file ([`crate::proto::aof_sum`]): how they get into it,
//! and what they say when it is read.
//!
//! Each LOADJOB gets a sum. A DELJOB has none and is covered by the next sum, as are
//! records of servers that know no sums. Where none follows within a second, a carrier is
//! written for them; another closes the file when the server stops. A file that is not
//! closed ended uncleanly, which is no damage.

use crate::base::ids::{JobId, NodeId};
use crate::base::rng::Rng;
use crate::proto::aof_record::{self, AofDamage, AofRecord};
use crate::proto::aof_sum::{FileMark, FoundSum, Gap, Sum, SumKind};

/// How a file ends, for whoever goes on behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileEnd {
    /// `None` if there is no sum in the file.
    pub mark: Option<FileMark>,
    /// Covers what stands behind the last sum.
    pub gap: Gap,
    /// Whether anything stands there.
    pub has_gap: bool,
    /// The file was closed, and nothing stands behind that.
    pub is_closed: bool,
}

impl FileEnd {
    fn behind(sum: &Sum) -> Self {
        let is_closed = sum.kind == SumKind::Close;
        Self { mark: Some(sum.mark), gap: Gap::default(), has_gap: false, is_closed }
    }

    fn add_to_gap(&mut self, bytes: &[u8]) {
        self.gap.add(bytes);
        self.has_gap = true;
        self.is_closed = false;
    }

    /// Whether the server that wrote the file last was killed, or lost power, or writes no
    /// sums.
    pub fn is_unclean(&self) -> bool {
        self.mark.is_some() && !self.is_closed
    }
}

/// Adds the sums to what is appended to one file.
pub struct SumWriter {
    rng: Rng,
    mark: FileMark,
    end: FileEnd,
}

impl SumWriter {
    /// Goes on at the end of a file, which may be empty.
    pub fn new(mut rng: Rng, end: FileEnd) -> Self {
        let mark = end.mark.unwrap_or_else(|| FileMark(rng.bytes()));
        Self { rng, mark, end }
    }

    /// Fills the sums of records that go to `offset` bytes from the beginning of the file.
    pub fn fill(&mut self, records: &mut [u8], offset: u64) {
        let total_len = records.len();
        let mut rest = records;
        while !rest.is_empty() {
            let (before, load_job);
            (before, load_job, rest) = aof_record::split_at_load_job(rest);
            if !before.is_empty() {
                self.end.add_to_gap(before);
            }
            if !load_job.is_empty() {
                let begin = total_len - rest.len() - load_job.len();
                self.take_sum(SumKind::Job, offset + begin as u64).fill(load_job);
            }
        }
    }

    /// A carrier that goes to this place.
    pub fn carrier(&mut self, kind: SumKind, offset: u64) -> Vec<u8> {
        let node = NodeId::from_random(self.rng.bytes());
        let id = JobId::generate(&node, self.rng.bytes(), 0, 0);
        let mut carrier = Vec::new();
        self.take_sum(kind, offset).append_carrier(&mut carrier, id);
        carrier
    }

    /// How the file ends now.
    pub fn end(&self) -> &FileEnd {
        &self.end
    }

    fn take_sum(&mut self, kind: SumKind, offset: u64) -> Sum {
        let sum = Sum { kind, mark: self.mark, offset, gap: self.end.gap };
        self.end = FileEnd::behind(&sum);
        sum
    }
}

/// What a record is, as far as its sum tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordUse {
    Take,
    /// It is there for its sum alone.
    Skip,
}

/// Checks the sums of one file while it is read from its beginning.
#[derive(Debug, Default)]
pub struct SumReader {
    end: FileEnd,
    /// Damage was passed over since the last sum, so the gap is not known.
    is_gap_lost: bool,
}

impl SumReader {
    /// Checks the next record, given its bytes and their place in the file.
    pub fn check(
        &mut self,
        bytes: &[u8],
        offset: u64,
        record: &AofRecord<'_>,
    ) -> Result<RecordUse, AofDamage> {
        let AofRecord::LoadJob(job) = record else {
            self.end.add_to_gap(bytes);
            return Ok(RecordUse::Take);
        };
        match Sum::find(bytes, job) {
            FoundSum::Absent if self.end.mark.is_some_and(|mark| Sum::is_marked(bytes, mark)) => {
                Err(AofDamage::WrongSum)
            }
            FoundSum::Absent => {
                self.end.add_to_gap(bytes);
                Ok(RecordUse::Take)
            }
            FoundSum::Sound(sum) if self.is_ours(&sum, offset) => self.take_sum(&sum),
            FoundSum::Sound(_) | FoundSum::Broken => Err(AofDamage::WrongSum),
        }
    }

    /// Whether this is a record that was written to this file at this place. Unlike
    /// [`SumReader::check`] it takes nobody's word for that, so records that have no sum
    /// are not.
    pub fn is_sound(&self, bytes: &[u8], offset: u64, record: &AofRecord<'_>) -> bool {
        let AofRecord::LoadJob(job) = record else { return false };
        match Sum::find(bytes, job) {
            FoundSum::Sound(sum) => self.is_ours(&sum, offset),
            FoundSum::Absent | FoundSum::Broken => false,
        }
    }

    /// Begins a gap, as behind a record that had a sum and is damaged.
    pub fn begin_gap(&mut self) {
        self.end = FileEnd { mark: self.end.mark, has_gap: true, ..FileEnd::default() };
    }

    /// As [`SumReader::begin_gap`], where records of the gap are not known: the next sum
    /// cannot tell whether the others are sound.
    pub fn lose_gap(&mut self) {
        self.begin_gap();
        self.is_gap_lost = true;
    }

    /// How the file ends behind the last record.
    pub fn end(&self) -> FileEnd {
        self.end
    }

    fn is_ours(&self, sum: &Sum, offset: u64) -> bool {
        sum.offset == offset && self.end.mark.is_none_or(|mark| mark == sum.mark)
    }

    fn take_sum(&mut self, sum: &Sum) -> Result<RecordUse, AofDamage> {
        if sum.gap != self.end.gap && !self.is_gap_lost {
            return Err(AofDamage::WrongGap);
        }
        self.is_gap_lost = false;
        self.end = FileEnd::behind(sum);
        Ok(if sum.kind == SumKind::Job { RecordUse::Take } else { RecordUse::Skip })
    }
}

#[cfg(test)]
mod tests {
    use super::super::aof_load::{AofReader, LoadError, LoadFault, LoadProgress};
    use super::*;
    use crate::proto::aof_record::SumPlace;
    use crate::proto::job_record::JobRecord;
    use std::path::Path;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");

    fn rng(seed: u8) -> Rng {
        Rng::from_seed([seed; 32])
    }

    fn golden_job() -> JobRecord<'static> {
        match aof_record::next(GOLDEN) {
            Ok(Some((_, AofRecord::LoadJob(job)))) => job,
            other => panic!("the file begins with a job: {other:?}"),
        }
    }

    fn id(n: u32) -> JobId {
        JobId::parse(format!("D-4f34f40c-BSFzs+DYWKutLatQkA{n:06x}-05a1").as_bytes())
            .expect("an ID")
    }

    /// A file that is written turn by turn.
    struct Written {
        sums: SumWriter,
        bytes: Vec<u8>,
        /// Where each record ends.
        ends: Vec<usize>,
    }

    impl Written {
        fn new() -> Self {
            let sums = SumWriter::new(rng(1), FileEnd::default());
            Self { sums, bytes: Vec::new(), ends: Vec::new() }
        }

        fn append(&mut self, mut record: Vec<u8>) {
            self.sums.fill(&mut record, self.bytes.len() as u64);
            self.bytes.append(&mut record);
            self.ends.push(self.bytes.len());
        }

        fn add(&mut self, n: u32, body: &[u8]) {
            let mut record = Vec::new();
            let job = JobRecord { id: id(n), body, ..golden_job() };
            aof_record::append_load_job(&mut record, &job, SumPlace::Yes);
            self.append(record);
        }

        fn delete(&mut self, n: u32) {
            let mut record = Vec::new();
            aof_record::append_del_job(&mut record, &id(n));
            self.append(record);
        }

        fn carry(&mut self, kind: SumKind) {
            self.bytes.append(&mut self.sums.carrier(kind, self.bytes.len() as u64));
            self.ends.push(self.bytes.len());
        }
    }

    /// Jobs that come and go, DELJOBs between carriers, and an end.
    fn written() -> Written {
        let mut file = Written::new();
        file.add(1, b"one");
        file.add(2, b"two");
        file.delete(1);
        file.delete(3);
        file.carry(SumKind::Carrier);
        file.add(4, &[b'x'; 500]);
        file.delete(2);
        file.add(5, GOLDEN);
        file.delete(5);
        file.carry(SumKind::Close);
        file
    }

    /// What a file says of the jobs, and what was damaged.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        added: Vec<JobId>,
        deleted: Vec<JobId>,
        damage: Vec<AofDamage>,
        truncated_at: Option<u64>,
        end: FileEnd,
    }

    fn read(bytes: &[u8]) -> Seen {
        let mut reader = AofReader::new(Path::new("x"), bytes, bytes.len() as u64);
        let mut seen = Seen::default();
        loop {
            let progress = reader.read(usize::MAX, |record| match record {
                AofRecord::LoadJob(job) => seen.added.push(job.id),
                AofRecord::DelJob(id) => seen.deleted.push(*id),
            });
            match progress {
                Ok(LoadProgress::More) => {}
                Ok(LoadProgress::Complete) => break,
                Ok(LoadProgress::Truncated { valid_len }) => {
                    seen.truncated_at = Some(valid_len);
                    break;
                }
                Err(LoadError { reason: LoadFault::Damage(damage), .. }) => {
                    seen.damage.push(damage);
                    reader.pass_damage().expect("a slice can be read");
                }
                Err(error) => panic!("{error}"),
            }
        }
        seen.end = reader.file_end();
        seen
    }

    #[test]
    fn a_file_with_sums_reads_as_it_was_written() {
        let file = written();
        let seen = read(&file.bytes);
        assert_eq!(seen.added, [id(1), id(2), id(4), id(5)]);
        assert_eq!(seen.deleted, [id(1), id(3), id(2), id(5)]);
        assert_eq!((seen.damage, seen.truncated_at), (vec![], None));
        assert!(seen.end.is_closed && !seen.end.has_gap && !seen.end.is_unclean());
        assert_eq!(seen.end, *file.sums.end());
    }

    #[test]
    fn a_file_that_was_not_closed_ended_uncleanly_and_is_not_damaged() {
        let file = written();
        for end in &file.ends[..file.ends.len() - 1] {
            let seen = read(&file.bytes[..*end]);
            assert_eq!((seen.damage, seen.truncated_at), (vec![], None), "up to {end}");
            assert!(seen.end.is_unclean(), "up to {end}");
        }
        assert!(!read(GOLDEN).end.is_unclean(), "a C server closes nothing");
    }

    #[test]
    fn a_file_goes_on_under_its_mark_and_what_no_sum_covers_is_covered() {
        let mut file = Written::new();
        file.add(1, b"one");
        file.delete(1);
        // Another server goes on, of the C kind first.
        file.bytes.extend_from_slice(GOLDEN);
        let end = read(&file.bytes).end;
        assert!(end.has_gap && end.is_unclean());
        let mark = end.mark;
        file.sums = SumWriter::new(rng(2), end);
        file.add(2, b"two");
        let seen = read(&file.bytes);
        assert_eq!((seen.damage, seen.end.mark), (vec![], mark));
        // A bit of what the C server wrote, in a body.
        let at = file.bytes.windows(5).position(|bytes| bytes == b"hello").expect("a body");
        file.bytes[at] ^= 1;
        assert_eq!(read(&file.bytes).damage, [AofDamage::WrongGap]);
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_costs_one_record_or_those_up_to_the_next_sum() {
        let file = written();
        let whole = read(&file.bytes);
        for at in 0..file.bytes.len() {
            for bit in 0..8 {
                let mut bytes = file.bytes.clone();
                bytes[at] ^= 1 << bit;
                let seen = read(&bytes);
                let told = format!("bit {bit} of byte {at}: {seen:?}");
                let is_at_end = seen.truncated_at.is_some_and(|len| len <= at as u64);
                assert!(!seen.damage.is_empty() || is_at_end, "{told}");
                let lost = whole.added.iter().filter(|id| !seen.added.contains(id)).count();
                assert!(lost <= 1, "{told}");
                // Nothing comes that was not written, except for a damaged DELJOB, which
                // ends no job that there is.
                assert!(seen.added.iter().all(|id| whole.added.contains(id)), "{told}");
                let strange = seen.deleted.iter().filter(|id| !whole.deleted.contains(id)).count();
                assert!(strange <= 1, "{told}");
            }
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_cut_off_and_not_damaged() {
        let file = written();
        for len in 0..file.bytes.len() {
            let seen = read(&file.bytes[..len]);
            let valid_len = file.ends.iter().rev().find(|end| **end <= len).copied().unwrap_or(0);
            let cut_at = (valid_len < len).then_some(valid_len as u64);
            assert_eq!((seen.damage, seen.truncated_at), (vec![], cut_at), "length {len}");
        }
    }

    #[test]
    fn bytes_that_are_lost_or_moved_in_the_middle_are_damage() {
        let file = written();
        for (from, to) in [(0, 1), (1, 2), (0, 300), (file.ends[1], file.ends[2])] {
            let shorter = [&file.bytes[..from], &file.bytes[to..]].concat();
            assert!(!read(&shorter).damage.is_empty(), "without {from} to {to}");
        }
        let twice = [&file.bytes[..file.ends[1]], &file.bytes[file.ends[0]..]].concat();
        assert!(!read(&twice).damage.is_empty(), "a record stands there twice");
        let mut other = Written::new();
        other.sums = SumWriter::new(rng(9), FileEnd::default());
        other.add(1, b"one");
        let mixed = [&other.bytes[..], &file.bytes[file.ends[0]..]].concat();
        assert_eq!(read(&mixed).damage, [AofDamage::WrongSum; 5], "the rest is another file's");
    }

    #[test]
    fn a_body_that_is_a_file_is_never_taken_for_records() {
        let inner = written().bytes;
        let mut file = Written::new();
        file.add(100, &inner);
        file.add(101, b"behind");
        let expected = [id(100), id(101)];
        assert_eq!(read(&file.bytes).added, expected);
        // Wherever the record around it is damaged, what is in it is no record.
        for at in 0..file.ends[0] {
            let mut bytes = file.bytes.clone();
            bytes[at] ^= 0x10;
            let seen = read(&bytes);
            assert!(!seen.damage.is_empty(), "byte {at}");
            assert!(seen.added.iter().all(|id| expected.contains(id)), "byte {at}: {seen:?}");
            assert!(seen.added.contains(&id(101)), "byte {at}: {seen:?}");
            assert_eq!(seen.deleted, [], "byte {at}");
        }
    }
}
