//! Reads an append only file from its beginning, a slice at a time.
//!
//! The file is read in large chunks and records are decoded where they lie. Reading stops
//! at the length the file had when it was opened, so that it may be appended to meanwhile.
//! How a file may end badly is explained in [`crate::proto::aof_record`]: a cut-off tail
//! ends the reading with [`LoadProgress::Truncated`], and whoever reads decides; damage is a
//! [`LoadError`] that names the file and the offset. Where the file has checksums
//! ([`super::aof_sums`]), records that do not match theirs are damage too, and what looks
//! like a cut-off tail is damage if a record that is sound stands in it.
//!
//! Whoever reads may go on behind damage ([`AofReader::pass_damage`]). A record that is
//! whole and does not match its checksum is left out, and no other. Elsewhere it is not
//! known where the next record begins, and only a checksum tells it from the inside of a
//! body: all up to the next record with a sum is left out.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::aof_sums::{FileEnd, RecordUse, SumReader};
use super::replacement::not_regular;
use crate::proto::aof_record::{self, AofDamage, AofRecord, LOADJOB_HEAD};
use crate::proto::job_record::RECORD_LEN_MAX;

/// Bytes asked of the system at once.
const CHUNK_LEN: usize = 1024 * 1024;
/// Nothing longer than this is one record, its framing included.
const PENDING_MAX: usize = RECORD_LEN_MAX + 64;

/// How far the reading has come after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadProgress {
    /// There is more.
    More,
    /// Every byte was part of a record.
    Complete,
    /// The last record is cut off; all up to `valid_len` is whole.
    Truncated { valid_len: u64 },
}

/// Why a file cannot be loaded.
#[derive(Debug)]
pub struct LoadError {
    pub path: PathBuf,
    /// In the file.
    pub offset: u64,
    pub reason: LoadFault,
}

#[derive(Debug)]
pub enum LoadFault {
    Damage(AofDamage),
    /// More bytes than a record can have make none.
    Endless,
    Io(io::Error),
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damage(damage) => damage.fmt(f),
            Self::Endless => f.write_str("a record without an end"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: byte {}: {}", self.path.display(), self.offset, self.reason)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Whether the file could be read and is not what was written.
    pub fn is_damage(&self) -> bool {
        !matches!(self.reason, LoadFault::Io(_))
    }
}

/// What a search for a sound record has come to.
enum SoundSearch {
    Found(usize),
    /// There is none before this; more bytes are needed to tell what stands there.
    Open(usize),
    Absent,
}

pub struct AofReader<R> {
    path: PathBuf,
    input: R,
    total_len: u64,
    /// Bytes read of the file so far.
    read_len: u64,
    /// The bytes from `start` to `end` are read and not yet taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    sums: SumReader,
}

impl AofReader<File> {
    /// Opens a file; one that does not exist is `None`.
    pub fn open(path: &Path) -> Result<Option<Self>, LoadError> {
        let failed = |e| LoadError { path: path.into(), offset: 0, reason: LoadFault::Io(e) };
        // Opening a pipe must not wait for somebody to write to it.
        let file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let attributes = file.metadata().map_err(failed)?;
        if attributes.file_type().is_fifo() || attributes.is_dir() {
            return Err(failed(not_regular()));
        }
        Ok(Some(Self::new(path, file, attributes.len())))
    }
}

impl<R: Read> AofReader<R> {
    /// Reads `total_len` bytes of an input; the path is for errors.
    pub fn new(path: &Path, input: R, total_len: u64) -> Self {
        Self {
            path: path.into(),
            input,
            total_len,
            read_len: 0,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            sums: SumReader::default(),
        }
    }

    pub fn total_len(&self) -> u64 {
        self.total_len
    }

    /// Length of the records taken so far.
    pub fn loaded_len(&self) -> u64 {
        self.read_len - (self.end - self.start) as u64
    }

    /// How the file ends behind the records taken so far.
    pub fn file_end(&self) -> FileEnd {
        self.sums.end()
    }

    /// Takes up to `max` records. Those that are there for their checksum alone are not
    /// handed out.
    pub fn read(
        &mut self,
        max: usize,
        mut take: impl FnMut(&AofRecord<'_>),
    ) -> Result<LoadProgress, LoadError> {
        for _ in 0..max {
            match self.read_one(&mut take)? {
                LoadProgress::More => {}
                end => return Ok(end),
            }
        }
        Ok(LoadProgress::More)
    }

    fn read_one(
        &mut self,
        take: &mut impl FnMut(&AofRecord<'_>),
    ) -> Result<LoadProgress, LoadError> {
        loop {
            match aof_record::next(&self.buffer[self.start..self.end]) {
                Ok(Some((len, record))) => {
                    let bytes = &self.buffer[self.start..self.start + len];
                    match self.sums.check(bytes, self.loaded_len(), &record) {
                        Ok(RecordUse::Take) => take(&record),
                        Ok(RecordUse::Skip) => {}
                        Err(damage) => return Err(self.error(LoadFault::Damage(damage))),
                    }
                    self.start += len;
                    return Ok(LoadProgress::More);
                }
                Ok(None) if self.read_len < self.total_len => self.read_chunk()?,
                Ok(None) if self.start == self.end => return Ok(LoadProgress::Complete),
                Ok(None) if matches!(self.find_sound(self.start), SoundSearch::Found(_)) => {
                    return Err(self.error(LoadFault::Damage(AofDamage::TooFar)));
                }
                Ok(None) => return Ok(LoadProgress::Truncated { valid_len: self.loaded_len() }),
                Err(damage) => {
                    let offset = self.loaded_len() + damage.offset as u64;
                    let reason = LoadFault::Damage(damage.reason);
                    return Err(LoadError { path: self.path.clone(), offset, reason });
                }
            }
        }
    }

    /// Goes on behind damage that [`AofReader::read`] returned: with the next record that
    /// is known to be one, or at the end of the file. Everything up to
    /// [`AofReader::loaded_len`] is done with then.
    pub fn pass_damage(&mut self) -> Result<(), LoadError> {
        if let Ok(Some((len, record))) = aof_record::next(&self.buffer[self.start..self.end]) {
            let bytes = &self.buffer[self.start..self.start + len];
            if self.sums.is_sound(bytes, self.loaded_len(), &record) {
                // The records before it are the damaged ones.
                self.sums.lose_gap();
            } else {
                self.sums.begin_gap();
                self.start += len;
            }
            return Ok(());
        }
        self.sums.lose_gap();
        loop {
            match self.find_sound(self.start) {
                SoundSearch::Found(at) => {
                    self.start = at;
                    return Ok(());
                }
                SoundSearch::Open(at) => {
                    self.start = at;
                    self.read_chunk()?;
                }
                SoundSearch::Absent => {
                    self.start = self.end;
                    return Ok(());
                }
            }
        }
    }

    /// Looks for a sound record in the buffer, from an index on.
    fn find_sound(&self, from: usize) -> SoundSearch {
        let is_all = self.read_len == self.total_len;
        let bytes = &self.buffer[..self.end];
        for at in memmem::find_iter(&bytes[from..], LOADJOB_HEAD).map(|at| from + at) {
            match aof_record::next(&bytes[at..]) {
                Ok(Some((len, record))) => {
                    let offset = self.read_len - (self.end - at) as u64;
                    if self.sums.is_sound(&bytes[at..at + len], offset, &record) {
                        return SoundSearch::Found(at);
                    }
                }
                Ok(None) if !is_all => return SoundSearch::Open(at),
                Ok(None) | Err(_) => {}
            }
        }
        if is_all {
            return SoundSearch::Absent;
        }
        // The beginning of one may stand at the end.
        SoundSearch::Open(from.max((self.end + 1).saturating_sub(LOADJOB_HEAD.len())))
    }

    /// Reads on behind what is pending. The room doubles while one record does not fit.
    fn read_chunk(&mut self) -> Result<(), LoadError> {
        let pending = self.end - self.start;
        if pending > PENDING_MAX {
            return Err(self.error(LoadFault::Endless));
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, pending);
        let room = CHUNK_LEN.max(pending * 2);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        let unread = usize::try_from(self.total_len - self.read_len).unwrap_or(usize::MAX);
        let wanted = unread.min(self.buffer.len() - self.end);
        let len = loop {
            match self.input.read(&mut self.buffer[self.end..self.end + wanted]) {
                Ok(len) => break len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(LoadFault::Io(e))),
            }
        };
        self.end += len;
        self.read_len += len as u64;
        if len == 0 {
            // The file has been cut since it was opened.
            self.total_len = self.read_len;
        }
        Ok(())
    }

    fn error(&self, reason: LoadFault) -> LoadError {
        LoadError { path: self.path.clone(), offset: self.loaded_len(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");

    /// An input that gives few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(self.0.len()).min(buffer.len());
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn reader(bytes: &[u8], step: usize) -> AofReader<Dribble<'_>> {
        AofReader::new(Path::new("x.aof"), Dribble(bytes, step), bytes.len() as u64)
    }

    fn read_all(bytes: &[u8], step: usize) -> (usize, Result<LoadProgress, LoadError>) {
        let mut count = 0;
        let progress = reader(bytes, step).read(usize::MAX, |_| count += 1);
        (count, progress)
    }

    #[test]
    fn records_are_the_same_however_the_bytes_come() {
        let (count, progress) = read_all(GOLDEN, usize::MAX);
        assert!(count > 5);
        assert_eq!(progress.expect("a good file"), LoadProgress::Complete);
        for step in 1..100 {
            let (again, progress) = read_all(GOLDEN, step);
            assert_eq!((again, progress.expect("a good file")), (count, LoadProgress::Complete));
        }
    }

    #[test]
    fn slices_are_bounded_and_progress_is_told() {
        let mut reader = reader(GOLDEN, usize::MAX);
        let mut count = 0;
        let mut last_len = 0;
        while reader.read(1, |_| count += 1).expect("a good file") == LoadProgress::More {
            assert!(reader.loaded_len() > last_len);
            last_len = reader.loaded_len();
        }
        assert_eq!(count, read_all(GOLDEN, 7).0);
        assert_eq!(reader.loaded_len(), reader.total_len());
    }

    #[test]
    fn a_cut_tail_tells_how_much_is_whole() {
        let len = GOLDEN.len() - 1;
        let (count, progress) = read_all(&GOLDEN[..len], 10);
        let Ok(LoadProgress::Truncated { valid_len }) = progress else { panic!("{progress:?}") };
        let valid = &GOLDEN[..usize::try_from(valid_len).expect("small")];
        let (again, progress) = read_all(valid, 10);
        assert_eq!((again, progress.expect("whole records")), (count, LoadProgress::Complete));
    }

    #[test]
    fn damage_is_an_error_with_file_and_offset() {
        let mut bytes = GOLDEN.to_vec();
        bytes.extend_from_slice(b"*2\r\n$7\r\nLOADJOX\r\n");
        let (_, progress) = read_all(&bytes, 3);
        let error = progress.expect_err("damaged");
        assert_eq!(error.offset, GOLDEN.len() as u64 + 14);
        let text = error.to_string();
        let expected = format!("x.aof: byte {}: a command other than", error.offset);
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn zeros_before_more_records_are_damage_even_when_they_come_alone_first() {
        let bytes = [GOLDEN, &[0; 50], GOLDEN].concat();
        for step in [1, 50, GOLDEN.len(), usize::MAX] {
            let (_, progress) = read_all(&bytes, step);
            assert_eq!(progress.expect_err("damaged").offset, GOLDEN.len() as u64);
        }
    }

    #[test]
    fn a_file_cut_while_it_is_read_is_truncated() {
        let mut reader = AofReader::new(Path::new("x"), Dribble(GOLDEN, 100), 1 << 30);
        let progress = reader.read(usize::MAX, |_| {}).expect("no damage");
        assert_eq!(progress, LoadProgress::Complete);
        assert_eq!(reader.loaded_len(), GOLDEN.len() as u64);
    }

    #[test]
    fn pipes_and_folders_are_refused_at_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipe = folder.path().join("pipe");
        crate::store::nodes_file::tests::make_pipe(&pipe);
        for path in [&*pipe, folder.path()] {
            let Err(error) = AofReader::open(path) else { panic!("{} opens", path.display()) };
            assert!(error.to_string().ends_with("it is not a regular file"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_none() {
        let missing = Path::new("/nonexistent/disque.aof");
        assert!(AofReader::open(missing).expect("no error").is_none());
    }
}
