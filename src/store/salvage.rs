//! Repairs a damaged append only file, for `disque-check-aof --salvage`.
//!
//! The file is read as a server reads it with `aof-load-damaged yes`, and what it would take
//! is written to a new file, with new checksums. Jobs that are delivered at most once and
//! stand before damage are left out: the record that one was fetched may be what is damaged.
//!
//! The new file takes the place of the old one in one step, and the old one is kept beside
//! it. A file that is not damaged stays as it is. No server may use it meanwhile.
//!
//! The new file has the time of writing of the old one: a server that loads it takes that for
//! the time up to which another one ran, and queues at once what became due later.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::aof_load::{AofReader, LoadError, LoadFault, LoadProgress};
use super::aof_sums::{FileEnd, SumWriter};
use super::replacement;
use crate::base::rng::Rng;
use crate::proto::aof_record::SumPlace;
use crate::proto::aof_record::{self, AofRecord};
use crate::proto::aof_sum::{FileMark, SumKind};
use crate::proto::job_record::JobRecord;

/// Bytes gathered before they are written.
const CHUNK_LEN: usize = 1024 * 1024;

/// What of a file was kept and what was not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub record_count: u64,
    /// Where there was damage, and what it was.
    pub damage: Vec<(u64, String)>,
    pub lost_len: u64,
    /// Jobs that are delivered at most once and may have been.
    pub doubtful_count: u64,
    pub backup: PathBuf,
}

/// Repairs the file. `None` when it is not damaged.
pub fn salvage(path: &Path) -> Result<Option<Salvaged>, LoadError> {
    let failed = |e| LoadError { path: path.into(), offset: 0, reason: LoadFault::Io(e) };
    // The file itself, wherever links lead.
    let path = &replacement::resolve(path).map_err(failed)?;
    let mut salvaged = Salvaged::default();
    let mut damaged_to = 0;
    let end = read_all(
        path,
        |_, _| Ok(()),
        |offset, what, lost_len| {
            salvaged.damage.push((offset, what));
            salvaged.lost_len += lost_len;
            damaged_to = offset;
        },
    )?;
    if salvaged.damage.is_empty() {
        return Ok(None);
    }
    salvaged.backup = beside(path, ".damaged");
    if salvaged.backup.exists() {
        let message = format!("{} is there already", salvaged.backup.display());
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, message)));
    }
    let new_path = beside(path, ".salvaged");
    let mut writer = SalvageWriter::create(&new_path, path, end.mark).map_err(failed)?;
    read_all(
        path,
        |offset, record| {
            let is_doubtful = matches!(record, AofRecord::LoadJob(job) if job.retry_secs == 0)
                && offset < damaged_to;
            if is_doubtful {
                salvaged.doubtful_count += 1;
                return Ok(());
            }
            salvaged.record_count += 1;
            writer.append(record)
        },
        |_, _, _| {},
    )?;
    let file = writer.close().map_err(failed)?;
    let written_at = fs::metadata(path).and_then(|damaged| damaged.modified()).map_err(failed)?;
    file.set_modified(written_at).map_err(failed)?;
    fs::hard_link(path, &salvaged.backup).map_err(failed)?;
    replacement::take_place(&file, &new_path, path).map_err(failed)?;
    Ok(Some(salvaged))
}

/// Reads a whole file: hands each record on with its place, and all damage with its place and
/// how many bytes it takes.
fn read_all(
    path: &Path,
    mut take: impl FnMut(u64, &AofRecord<'_>) -> io::Result<()>,
    mut note: impl FnMut(u64, String, u64),
) -> Result<FileEnd, LoadError> {
    let failed = |e| LoadError { path: path.into(), offset: 0, reason: LoadFault::Io(e) };
    let missing = || failed(io::ErrorKind::NotFound.into());
    let mut reader = AofReader::open(path)?.ok_or_else(missing)?;
    loop {
        let offset = reader.loaded_len();
        let mut taken = Ok(());
        let progress = reader.read(1, |record| taken = take(offset, record));
        taken.map_err(failed)?;
        match progress {
            Ok(LoadProgress::More) => {}
            Ok(LoadProgress::Complete) => return Ok(reader.file_end()),
            Ok(LoadProgress::Truncated { valid_len }) => {
                let what = "the file ends before its last record does".into();
                note(valid_len, what, reader.total_len() - valid_len);
                return Ok(reader.file_end());
            }
            Err(error) if error.is_damage() => {
                reader.pass_damage()?;
                note(error.offset, error.reason.to_string(), reader.loaded_len() - offset);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes the new file, with sums if the old one had them.
struct SalvageWriter {
    file: File,
    records: Vec<u8>,
    len: u64,
    sums: Option<SumWriter>,
}

impl SalvageWriter {
    fn create(temporary: &Path, path: &Path, mark: Option<FileMark>) -> io::Result<Self> {
        let sums = mark.map(|mark| {
            // The mark was random, so what follows from it is another that nobody knows.
            let seed = std::array::from_fn(|at| mark.0[at % mark.0.len()]);
            SumWriter::new(Rng::from_seed(seed), FileEnd::default())
        });
        let file = replacement::create(temporary, path)?;
        Ok(Self { file, records: Vec::new(), len: 0, sums })
    }

    fn append(&mut self, record: &AofRecord<'_>) -> io::Result<()> {
        let place = if self.sums.is_some() { SumPlace::Yes } else { SumPlace::No };
        match record {
            AofRecord::LoadJob(job) => {
                let job = JobRecord { attributes: job.attributes.without_sum(), ..*job };
                aof_record::append_load_job(&mut self.records, &job, place);
            }
            AofRecord::DelJob(id) => aof_record::append_del_job(&mut self.records, id),
        }
        if self.records.len() < CHUNK_LEN { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(sums) = &mut self.sums {
            sums.fill(&mut self.records, self.len);
        }
        self.file.write_all(&self.records)?;
        self.len += self.records.len() as u64;
        self.records.clear();
        Ok(())
    }

    fn close(mut self) -> io::Result<File> {
        self.write()?;
        if let Some(sums) = &mut self.sums {
            self.file.write_all(&sums.carrier(SumKind::Close, self.len))?;
        }
        Ok(self.file)
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
