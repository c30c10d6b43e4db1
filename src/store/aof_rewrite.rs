//! Writes the successor of the append only file while that is in use.
//!
//! The successor is one ordered stream of two kinds of records: those of the jobs that
//! there are, taken a slice at a time, and those of what happens meanwhile. So a record
//! that ends a job never stands before the one that begins it.
//!
//! ```text
//! phase      who writes the successor        a record of the present goes to
//! Jobs       the thread, as it is handed     the stream, and the old file
//! Draining   the thread, what is left        a tail in memory, and the old file
//! Renaming   the loop, appending             both files
//! ```
//!
//! The thread syncs as it goes, then all of it, renames the successor over the old file and
//! syncs the directory. From before the rename until after it both files have every
//! record, so a crash at any moment leaves one under the name that is whole.
//!
//! The successor has a name of its own until then; one that a crash left behind is
//! removed by [`remove_leftovers`] at the next start.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::process;

use super::aof_sums::{FileEnd, SumWriter};
use super::append_file::AppendFile;
use super::disk::{Disk, DiskEvent, DiskFile, DiskTask, Ticket, write_all};
use super::replacement::folder_of;
use crate::proto::aof_sum::SumKind;

/// Whether a successor is synced while it grows, or all at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncrementalSync {
    No,
    Yes,
}

/// Whether written records must be on the disk before the turn goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncMoment {
    InTurn,
    Later,
}

/// Bytes gathered before the thread is handed them.
const HAND_OVER_LEN: usize = 256 * 1024;
/// With more bytes than this in the thread's hands, no further jobs are asked for.
const BACKLOG_MAX: usize = 8 * 1024 * 1024;
/// Bytes between two syncs on the way: few enough that each is short.
const SYNC_EVERY: usize = 4 * 1024 * 1024;

const LEFTOVER_PREFIX: &str = "temp-rewriteaof-";
const BACKGROUND: &str = "bg-";
const LEFTOVER_SUFFIX: &str = ".aof";

enum Phase<F> {
    Jobs,
    Draining { tail: Vec<u8> },
    Renaming(Box<AppendFile<F>>),
}

/// What the thread was told to do and has not yet done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RewriteStep {
    Write {
        len: usize,
    },
    Sync,
    /// The sync behind the last byte that the thread writes.
    LastSync,
    Replace,
}

/// A rewrite under way.
pub struct Rewrite<F> {
    path: PathBuf,
    temporary_path: PathBuf,
    file: F,
    phase: Phase<F>,
    incremental: IncrementalSync,
    /// Of the successor, while the thread writes it.
    sums: Option<SumWriter>,
    /// Records not yet handed to the thread.
    stream: Vec<u8>,
    steps: VecDeque<(Ticket, RewriteStep)>,
    handed_len: u64,
    /// Of `handed_len`, what no sync was asked for yet.
    unsynced_len: usize,
    /// Of `handed_len`, what the thread has not written yet.
    backlog_len: usize,
}

impl<F: DiskFile> Rewrite<F> {
    /// Creates the successor of the file at `path`.
    pub fn begin(
        path: &Path,
        incremental: IncrementalSync,
        sums: Option<SumWriter>,
        disk: &mut impl Disk<File = F>,
    ) -> io::Result<Self> {
        let temporary_path = temporary_path(path, BACKGROUND);
        let file = disk.create(&temporary_path, path)?;
        Ok(Self {
            path: path.into(),
            temporary_path,
            file,
            phase: Phase::Jobs,
            incremental,
            sums,
            stream: Vec::new(),
            steps: VecDeque::new(),
            handed_len: 0,
            unsynced_len: 0,
            backlog_len: 0,
        })
    }

    /// Takes the records of a turn. In the last phase they are written at once.
    pub(super) fn append(&mut self, records: &mut [u8], moment: SyncMoment) -> io::Result<()> {
        match &mut self.phase {
            Phase::Jobs => self.stream.extend_from_slice(records),
            Phase::Draining { tail } => tail.extend_from_slice(records),
            Phase::Renaming(file) => {
                let is_touched = !records.is_empty() || file.unwritten_len() > 0;
                file.append(records)?;
                if is_touched && moment == SyncMoment::InTurn {
                    file.sync()?;
                }
            }
        }
        Ok(())
    }

    /// Where records of jobs go; `None` when no more are wanted now.
    pub fn job_stream(&mut self, disk: &mut impl Disk<File = F>) -> Option<&mut Vec<u8>> {
        if self.stream.len() >= HAND_OVER_LEN && matches!(self.phase, Phase::Jobs) {
            self.hand_over(disk);
        }
        self.wants_jobs().then_some(&mut self.stream)
    }

    /// Whether there is room for more records of jobs.
    pub fn wants_jobs(&self) -> bool {
        matches!(self.phase, Phase::Jobs) && self.backlog_len < BACKLOG_MAX
    }

    /// All jobs are in the stream.
    pub fn end_of_jobs(&mut self, disk: &mut impl Disk<File = F>) {
        if matches!(self.phase, Phase::Jobs) {
            self.hand_over(disk);
            self.submit(disk, DiskTask::Sync(self.file.clone()), RewriteStep::LastSync);
            self.phase = Phase::Draining { tail: Vec::new() };
        }
    }

    fn hand_over(&mut self, disk: &mut impl Disk<File = F>) {
        let mut bytes = mem::replace(&mut self.stream, Vec::with_capacity(HAND_OVER_LEN));
        if let Some(sums) = &mut self.sums {
            sums.fill(&mut bytes, self.handed_len);
        }
        let len = bytes.len();
        self.handed_len += len as u64;
        self.backlog_len += len;
        self.unsynced_len += len;
        let task = DiskTask::Write { file: self.file.clone(), bytes };
        self.submit(disk, task, RewriteStep::Write { len });
        if self.incremental == IncrementalSync::Yes && self.unsynced_len >= SYNC_EVERY {
            self.unsynced_len = 0;
            self.submit(disk, DiskTask::Sync(self.file.clone()), RewriteStep::Sync);
        }
    }

    fn submit(&mut self, disk: &mut impl Disk<File = F>, task: DiskTask<F>, step: RewriteStep) {
        let ticket = disk.submit(task);
        self.steps.push_back((ticket, step));
    }

    /// Goes on when the thread is done with something. The end is the successor under the
    /// file's name, or an error, after which the rewrite is to be abandoned.
    pub(super) fn handle_event(
        &mut self,
        event: DiskEvent,
        disk: &mut impl Disk<File = F>,
        moment: SyncMoment,
    ) -> Option<io::Result<AppendFile<F>>> {
        // Tasks of earlier rewrites that were abandoned are still being done.
        let &(_, step) = self.steps.front().filter(|(ticket, _)| *ticket == event.ticket)?;
        self.steps.pop_front();
        if let Err(e) = event.result {
            return Some(Err(e));
        }
        match step {
            RewriteStep::Write { len } => self.backlog_len -= len,
            RewriteStep::Sync => {}
            RewriteStep::LastSync => {
                if let Err(e) = self.begin_renaming(disk, moment) {
                    return Some(Err(e));
                }
            }
            RewriteStep::Replace => {
                let Phase::Renaming(file) = mem::replace(&mut self.phase, Phase::Jobs) else {
                    unreachable!("only this phase replaces")
                };
                return Some(Ok(*file));
            }
        }
        None
    }

    fn begin_renaming(
        &mut self,
        disk: &mut impl Disk<File = F>,
        moment: SyncMoment,
    ) -> io::Result<()> {
        let mut file = AppendFile::new(self.file.clone(), self.handed_len, self.sums.take());
        if let Phase::Draining { tail } = &mut self.phase {
            file.append(tail)?;
        }
        if moment == SyncMoment::InTurn {
            file.sync()?;
        }
        self.phase = Phase::Renaming(Box::new(file));
        let task = DiskTask::Replace {
            file: self.file.clone(),
            from: self.temporary_path.clone(),
            to: self.path.clone(),
        };
        self.submit(disk, task, RewriteStep::Replace);
        Ok(())
    }

    /// Bytes that are not in the successor yet.
    pub fn unwritten_len(&self) -> usize {
        let behind = match &self.phase {
            Phase::Jobs => 0,
            Phase::Draining { tail } => tail.len(),
            Phase::Renaming(file) => file.unwritten_len(),
        };
        self.stream.len() + self.backlog_len + behind
    }

    /// Ends the rewrite unfinished; the file is for closing. A rename that was asked for
    /// then fails, unless it is done, and the successor is as good as the old file.
    pub fn abandon(self, disk: &mut impl Disk<File = F>) -> F {
        if let Err(e) = disk.remove(&self.temporary_path) {
            log::debug!("Can't remove {}: {e}", self.temporary_path.display());
        }
        self.file
    }
}

/// Whether a stream of records goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStream {
    GoesOn,
    Ends,
}

/// Writes a new file at once, while everything waits, and puts it in the place of the old
/// one, if there is one. It is closed, and how it ends is returned.
pub fn rewrite_at_once(
    path: &Path,
    mut sums: Option<SumWriter>,
    disk: &mut impl Disk,
    mut next_records: impl FnMut(&mut Vec<u8>) -> RecordStream,
) -> io::Result<FileEnd> {
    let temporary_path = temporary_path(path, "");
    let mut write = || {
        let file = disk.create(&temporary_path, path)?;
        let mut records = Vec::new();
        let mut len = 0;
        loop {
            let stream = next_records(&mut records);
            if stream == RecordStream::Ends || records.len() >= HAND_OVER_LEN {
                if let Some(sums) = &mut sums {
                    sums.fill(&mut records, len);
                }
                write_all(&file, &records).1?;
                len += records.len() as u64;
                records.clear();
            }
            if stream == RecordStream::Ends {
                break;
            }
        }
        if let Some(sums) = &mut sums {
            write_all(&file, &sums.carrier(SumKind::Close, len)).1?;
        }
        disk.replace(&file, &temporary_path, path)?;
        Ok(sums.take().map(|sums| *sums.end()).unwrap_or_default())
    };
    let written = write();
    if written.is_err()
        && let Err(e) = disk.remove(&temporary_path)
    {
        log::warn!("Can't remove {}: {e}", temporary_path.display());
    }
    written
}

fn temporary_path(path: &Path, kind: &str) -> PathBuf {
    path.with_file_name(format!("{LEFTOVER_PREFIX}{kind}{}{LEFTOVER_SUFFIX}", process::id()))
}

/// Removes what rewrites of servers that crashed left beside the file at `path`. Those of
/// servers that run are left alone.
pub fn remove_leftovers(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().and_then(leftover_owner).is_some_and(|pid| !is_another_running(pid)) {
            log::info!("Removing {}, left behind by a rewrite", entry.path().display());
            remove(&entry.path());
        }
    }
    Ok(())
}

/// The process that wrote a file of this name.
fn leftover_owner(name: &str) -> Option<u32> {
    let pid = name.strip_prefix(LEFTOVER_PREFIX)?.strip_suffix(LEFTOVER_SUFFIX)?;
    pid.strip_prefix(BACKGROUND).unwrap_or(pid).parse().ok()
}

fn is_another_running(pid: u32) -> bool {
    let Ok(raw_pid) = libc::pid_t::try_from(pid) else { return false };
    if pid == process::id() || raw_pid == 0 {
        return false;
    }
    // SAFETY: signal 0 is not sent; the call only asks whether there is such a process.
    let answer = unsafe { libc::kill(raw_pid, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

fn remove(path: &Path) {
    if let Err(e) = fs::remove_file(path) {
        log::warn!("Can't remove {}: {e}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fsync::DiskThread;
    use super::*;

    fn thread() -> DiskThread {
        DiskThread::start(Box::new(|| {})).expect("a thread")
    }

    #[test]
    fn a_rewrite_at_once_replaces_the_file_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("disque.aof");
        fs::write(&path, b"old").expect("write");
        let mut slices = 0;
        let written = rewrite_at_once(&path, None, &mut thread(), |out| {
            out.extend_from_slice(&[b'x'; 100_000]);
            slices += 1;
            if slices == 7 { RecordStream::Ends } else { RecordStream::GoesOn }
        });
        written.expect("written");
        assert_eq!(fs::read(&path).expect("read"), [b'x'; 700_000]);
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_rewrite_at_once_that_fails_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("disque.aof");
        // A directory that is not empty cannot be replaced by a file.
        fs::create_dir_all(path.join("x")).expect("create");
        rewrite_at_once(&path, None, &mut thread(), |_| RecordStream::Ends)
            .expect_err("no rename over a directory");
        assert!(path.join("x").exists());
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn leftovers_of_the_dead_go_and_others_stay() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        let mut child = process::Command::new("true").spawn().expect("true");
        let dead = child.id();
        child.wait().expect("it ends");
        let mut running = process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let gone = [
            format!("temp-rewriteaof-{dead}.aof"),
            format!("temp-rewriteaof-bg-{dead}.aof"),
            format!("temp-rewriteaof-bg-{}.aof", process::id()),
        ];
        let kept = [
            format!("temp-rewriteaof-{}.aof", running.id()),
            "temp-rewriteaof-x.aof".into(),
            "disque.aof".into(),
        ];
        for name in gone.iter().chain(&kept) {
            fs::write(path(name), b"x").expect("write");
        }
        remove_leftovers(&path("disque.aof")).expect("removed");
        running.kill().expect("it runs");
        running.wait().expect("it ends");
        assert!(gone.iter().all(|name| !path(name).exists()));
        assert!(kept.iter().all(|name| path(name).exists()));
    }
}
