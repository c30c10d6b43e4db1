//! The append only file while the server runs: records go in, and to the disk.
//!
//! Once a loop turn, before anybody is notified of what was done, the server hands over the
//! turn's records with [`Aof::append`]. They are written at once; when they are synced
//! is the [`SyncPolicy`]'s:
//!
//! | policy | synced |
//! |---|---|
//! | `Always` | before `append` returns, with one fdatasync for the whole turn |
//! | `EverySecond` | by the disk's thread, at most a second later; writing never waits for it |
//! | `Never` | when the system sees fit |
//!
//! Records that cannot be written are kept and tried again at each call; meanwhile
//! [`Aof::failure`] says why. Under `Always` an error is final: replies would have to
//! wait for a disk that may never come back.
//!
//! With checksums ([`crate::store::aof_sums`]) each record gets one on its way into the file, and
//! records that have none are covered within a second.
//!
//! While the file is rewritten ([`crate::store::aof_rewrite`]) its successor gets every record
//! too.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use crate::base::rng::Rng;
use crate::base::time::MonoMs;
use crate::store::aof_rewrite::{self, IncrementalSync, RecordStream, Rewrite, SyncMoment};
use crate::store::aof_sums::{FileEnd, SumWriter};
use crate::store::append_file::AppendFile;
use crate::store::disk::{Disk, DiskEvent, DiskTask, Ticket};
use crate::store::fsync::DiskThread;
pub use crate::store::rewrite_history::LastRewrite;
use crate::store::rewrite_history::{RewriteHistory, Urgency};

/// How long written bytes may wait for their sync under `EverySecond`, in ms.
const SYNC_PERIOD_MS: u64 = 1000;
/// A write error that lasts is logged again after so long, in ms.
const LOG_AGAIN_MS: u64 = 30_000;
/// Records without a checksum are covered by a carrier after so long, in ms.
const GAP_MS: u64 = 1000;
/// While records cannot be written, the loop comes round at least this often, in ms.
const WRITE_AGAIN_MS: u64 = 100;

/// When written records are forced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    Always,
    EverySecond,
    Never,
}

/// What the server wants of the file; changed while it runs by CONFIG SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofOptions {
    pub sync: SyncPolicy,
    pub sync_during_rewrite: SyncDuringRewrite,
    pub incremental_sync: IncrementalSync,
    pub checksums: Checksums,
}

/// Whether files get checksums. Stays as it is while the process runs: records have places
/// for their sums, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncDuringRewrite {
    No,
    Yes,
}

/// Whether records are kept. INFO: aof_state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AofState {
    Off,
    On,
    /// Turned on while the server runs: until the first rewrite is done there is no file
    /// that records could be added to.
    WaitRewrite,
}

/// The syncs of the current file by the thread.
#[derive(Debug, Default)]
struct BackgroundSync {
    /// Since when there are bytes that no sync was begun for; `None` when there are none.
    due_since: Option<MonoMs>,
    in_flight: Option<Ticket>,
    begun_at: MonoMs,
    /// Since when there are bytes that the sync in flight, or one that failed, is for.
    unsynced_since: Option<MonoMs>,
    /// Why a sync failed. The system may have forgotten what it did not bring to the disk,
    /// so a later sync that works means nothing: only another file is good again.
    error: Option<io::Error>,
    /// The sync in flight was counted as one that others wait for.
    is_counted: bool,
    /// INFO: aof_delayed_fsync.
    delayed_count: u64,
}

/// What is counted of a file since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AofCounters {
    /// Syncs of the file that were done, in a turn or by the thread.
    pub syncs: u64,
    /// Syncs that were still under way when the next one was due.
    pub delayed_syncs: u64,
    /// Rewrites that came to their end.
    pub rewrites: u64,
}

impl BackgroundSync {
    fn oldest(&self) -> Option<MonoMs> {
        self.unsynced_since.into_iter().chain(self.due_since).min()
    }
}

/// What INFO tells, where it is not asked for otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofFigures {
    pub current_len: u64,
    /// Length after the last rewrite or at start.
    pub base_len: u64,
    pub unwritten_len: usize,
    /// What a rewrite has not yet written of its file.
    pub rewrite_unwritten_len: usize,
    pub syncs_in_flight: usize,
    /// Age of the oldest byte that is not known to be on the disk, in ms; 0 when all are.
    pub loss_window_ms: u64,
    pub delayed_sync_count: u64,
    pub last_rewrite_secs: Option<u64>,
    pub current_rewrite_secs: Option<u64>,
    pub last_rewrite: LastRewrite,
    /// Rewrites that failed in a row.
    pub rewrite_failure_count: u32,
    /// How long no rewrite begins by itself because one failed, in seconds, rounded up.
    pub rewrite_pause_secs: u64,
    /// A rewrite has to be done and is not under way. INFO: aof_rewrite_scheduled.
    pub waits_for_rewrite: bool,
}

pub struct Aof<D: Disk = DiskThread> {
    path: PathBuf,
    options: AofOptions,
    disk: D,
    /// Draws the marks of files and the IDs of carriers.
    rng: Rng,
    state: AofState,
    /// There is one if and only if the state is `On`.
    current: Option<AppendFile<D::File>>,
    base_len: u64,
    /// The current file is not the one under the path, which is yet to be written.
    is_elsewhere: bool,
    sync: BackgroundSync,
    counters: AofCounters,
    write_error: Option<io::Error>,
    written_at: MonoMs,
    /// Since when records of the current file are not covered by a checksum.
    gap_since: Option<MonoMs>,
    error_logged_at: Option<MonoMs>,
    rewrite: Option<Rewrite<D::File>>,
    rewrites: RewriteHistory,
}

impl<D: Disk> Aof<D> {
    /// An append only file that is off, under this path. Whenever the disk has an event,
    /// [`Aof::handle_events`] is to be called.
    pub fn new(path: PathBuf, options: AofOptions, disk: D, rng: Rng) -> Self {
        Self {
            path,
            options,
            disk,
            rng,
            state: AofState::Off,
            current: None,
            base_len: 0,
            is_elsewhere: false,
            sync: BackgroundSync::default(),
            counters: AofCounters::default(),
            write_error: None,
            written_at: MonoMs(0),
            gap_since: None,
            error_logged_at: None,
            rewrite: None,
            rewrites: RewriteHistory::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    pub fn set_options(&mut self, options: AofOptions) {
        self.options = options;
    }

    pub fn state(&self) -> AofState {
        self.state
    }

    /// Whether records have a place to go: a file, a successor, or both.
    pub fn takes_records(&self) -> bool {
        self.current.is_some() || self.rewrite.is_some()
    }

    /// Turns it on with the file as it stands, which was read to this end before.
    pub fn open(&mut self, now: MonoMs, end: FileEnd) -> io::Result<()> {
        let (file, len) = self.disk.open(&self.path)?;
        self.base_len = len;
        self.current = Some(AppendFile::new(file, len, self.sums_from(end)));
        self.state = AofState::On;
        // Whoever wrote it last may not have lived to sync it.
        self.sync.due_since = (len > 0).then_some(now);
        Ok(())
    }

    fn sums_from(&mut self, end: FileEnd) -> Option<SumWriter> {
        let rng = Rng::from_seed(self.rng.bytes());
        (self.options.checksums == Checksums::Yes).then(|| SumWriter::new(rng, end))
    }

    /// Turns it on while the server runs: begins with a rewrite.
    pub fn turn_on(&mut self, now: MonoMs) -> io::Result<()> {
        if self.state != AofState::Off {
            return Ok(());
        }
        if self.rewrite.is_none() {
            self.begin_rewrite(now)?;
        }
        self.state = AofState::WaitRewrite;
        Ok(())
    }

    /// Turns it off: what can be written is written and synced; a rewrite ends unfinished.
    pub fn turn_off(&mut self) {
        if let Err(e) = self.finish() {
            log::warn!("Can't write the end of {}: {e}", self.path.display());
        }
        if let Some(current) = self.current.take() {
            self.disk.submit(DiskTask::Close(current.into_file()));
        }
        self.state = AofState::Off;
        self.is_elsewhere = false;
        self.write_error = None;
        self.gap_since = None;
        self.sync =
            BackgroundSync { delayed_count: self.sync.delayed_count, ..BackgroundSync::default() };
    }

    /// Goes on under another path. When it is on, the file there is the result of a rewrite
    /// that begins now, and until that is done records go to the present one. After an error
    /// nothing has changed but that a rewrite under way has ended unfinished.
    pub fn move_to(&mut self, now: MonoMs, path: PathBuf) -> io::Result<()> {
        if path == self.path {
            return Ok(());
        }
        self.abandon_rewrite();
        let old = std::mem::replace(&mut self.path, path);
        if self.state == AofState::Off {
            return Ok(());
        }
        let begun = self.begin_rewrite(now);
        match begun {
            Ok(()) => self.is_elsewhere = true,
            Err(_) => self.path = old,
        }
        begun
    }

    /// Takes the records of one loop turn, of which there may be none, and fills their sums.
    /// With checksums each LOADJOB must have a place for its sum. An error means that the
    /// policy promises what the disk does not keep: the server must end.
    pub fn append(&mut self, now: MonoMs, records: &mut [u8]) -> io::Result<()> {
        let moment = self.sync_moment();
        let mut result = Ok(());
        if let Some(current) = &mut self.current {
            let is_gap_due = self.gap_since.is_some_and(|since| now.ms_since(since) >= GAP_MS);
            if !records.is_empty() || current.unwritten_len() > 0 || is_gap_due {
                self.sync.due_since.get_or_insert(now);
            }
            result = current.append(records);
            if is_gap_due {
                result = result.and(current.cover_gap());
            }
            self.gap_since = current.has_gap().then(|| self.gap_since.unwrap_or(now));
            if self.sync.due_since.is_some() && result.is_ok() && moment == SyncMoment::InTurn {
                result = current.sync();
                if result.is_ok() {
                    self.sync.due_since = None;
                    self.counters.syncs += 1;
                }
            }
        }
        if let Some(rewrite) = &mut self.rewrite {
            result = result.and(rewrite.append(records, moment));
        }
        self.note_write(now, result)?;
        self.sync_in_background(now);
        Ok(())
    }

    fn sync_moment(&self) -> SyncMoment {
        if self.options.sync == SyncPolicy::Always && !self.syncs_rest() {
            SyncMoment::InTurn
        } else {
            SyncMoment::Later
        }
    }

    /// Whether syncs are left out because the file is being rewritten.
    fn syncs_rest(&self) -> bool {
        self.options.sync_during_rewrite == SyncDuringRewrite::No && self.rewrite.is_some()
    }

    fn note_write(&mut self, now: MonoMs, result: io::Result<()>) -> io::Result<()> {
        self.written_at = now;
        match result {
            Err(e) if self.options.sync == SyncPolicy::Always => return Err(e),
            Err(e) => {
                if self.error_logged_at.is_none_or(|at| now.ms_since(at) >= LOG_AGAIN_MS) {
                    log::warn!("Error writing to the AOF file: {e}");
                    self.error_logged_at = Some(now);
                }
                self.write_error = Some(e);
            }
            Ok(()) if self.write_error.take().is_some() => {
                log::warn!("AOF write error looks solved, Disque can write again.");
                self.error_logged_at = None;
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn sync_in_background(&mut self, now: MonoMs) {
        let period_is_over = now.ms_since(self.sync.begun_at) >= SYNC_PERIOD_MS;
        if self.options.sync != SyncPolicy::EverySecond
            || self.sync.due_since.is_none()
            || !period_is_over
            || self.syncs_rest()
        {
            return;
        }
        if self.sync.in_flight.is_some() {
            if !self.sync.is_counted {
                self.sync.is_counted = true;
                self.sync.delayed_count += 1;
                self.counters.delayed_syncs += 1;
            }
            return;
        }
        let Some(current) = &self.current else { return };
        self.sync.in_flight = Some(self.disk.submit(DiskTask::Sync(current.file().clone())));
        self.sync.unsynced_since = self.sync.oldest();
        self.sync.due_since = None;
        self.sync.is_counted = false;
        self.sync.begun_at = now;
    }

    /// Why records are not safe at the moment, if so.
    pub fn failure(&self) -> Option<&io::Error> {
        self.write_error.as_ref().or(self.sync.error.as_ref())
    }

    /// When the loop has to come round for the file's sake.
    pub fn next_timeout(&self) -> MonoMs {
        let sync_at = if self.sync.due_since.is_some()
            && self.sync.in_flight.is_none()
            && self.options.sync == SyncPolicy::EverySecond
            && !self.syncs_rest()
        {
            self.sync.begun_at.plus_ms(SYNC_PERIOD_MS)
        } else {
            MonoMs::NEVER
        };
        let write_at = match self.write_error {
            Some(_) => self.written_at.plus_ms(WRITE_AGAIN_MS),
            None => MonoMs::NEVER,
        };
        let gap_at = self.gap_since.map_or(MonoMs::NEVER, |since| since.plus_ms(GAP_MS));
        let rewrite_at =
            if self.waits_for_rewrite() { self.rewrites.next_at() } else { MonoMs::NEVER };
        let jobs_at = if self.wants_jobs() { MonoMs(0) } else { MonoMs::NEVER };
        sync_at.min(write_at).min(gap_at).min(rewrite_at).min(jobs_at)
    }

    /// Learns what the thread has done.
    pub fn handle_events(&mut self, now: MonoMs) {
        while let Some(event) = self.disk.poll() {
            if self.sync.in_flight == Some(event.ticket) {
                self.note_synced(event.result);
            } else {
                self.pass_to_rewrite(now, event);
            }
        }
    }

    fn note_synced(&mut self, result: io::Result<()>) {
        self.sync.in_flight = None;
        if let Err(e) = result {
            log::warn!("Can't sync the AOF file, which will be rewritten: {e}");
            self.sync.error = Some(e);
        } else if self.sync.error.is_none() {
            self.sync.unsynced_since = None;
            self.counters.syncs += 1;
        }
    }
}

/// Rewriting.
impl<D: Disk> Aof<D> {
    /// Whether there is no file before a rewrite works, or none that can be trusted.
    fn needs_rewrite(&self) -> bool {
        self.state == AofState::WaitRewrite || self.is_elsewhere || self.sync.error.is_some()
    }

    fn waits_for_rewrite(&self) -> bool {
        self.needs_rewrite() && self.rewrite.is_none()
    }

    pub fn is_rewriting(&self) -> bool {
        self.rewrite.is_some()
    }

    /// Whether it is time for a rewrite that nobody asked for: the file has grown by the
    /// percentage since the last one, or there is none yet, or none that can be trusted.
    /// 0 percent is never.
    pub fn is_rewrite_due(&self, now: MonoMs, percentage: u32, len_min: u64) -> bool {
        if self.rewrite.is_some() || now < self.rewrites.next_at() {
            return false;
        }
        if self.waits_for_rewrite() {
            return true;
        }
        let Some(current) = &self.current else { return false };
        let growth = current.len().saturating_sub(self.base_len);
        let growth_percent = u128::from(growth) * 100 / u128::from(self.base_len.max(1));
        percentage > 0 && current.len() > len_min && growth_percent >= u128::from(percentage)
    }

    /// Begins a rewrite that somebody asked for. From the next record on all must be handed
    /// to [`Aof::append`]; the jobs, from the first one on, go to [`Aof::job_stream`].
    pub fn begin_rewrite(&mut self, now: MonoMs) -> io::Result<()> {
        self.rewrites.note_request();
        self.begin_due_rewrite(now)
    }

    /// Begins a rewrite because [`Aof::is_rewrite_due`].
    pub fn begin_due_rewrite(&mut self, now: MonoMs) -> io::Result<()> {
        self.rewrites.note_begun(now);
        let sums = self.sums_from(FileEnd::default());
        let options = self.options;
        match Rewrite::begin(&self.path, options.incremental_sync, sums, &mut self.disk) {
            Ok(rewrite) => {
                self.rewrite = Some(rewrite);
                Ok(())
            }
            Err(e) => {
                self.note_rewrite_failed(now, &e);
                Err(e)
            }
        }
    }

    /// Whether the loop should come round for [`Aof::job_stream`].
    fn wants_jobs(&self) -> bool {
        self.rewrite.as_ref().is_some_and(Rewrite::wants_jobs)
    }

    /// Where the records of jobs go at present. `None` when there is no rewrite, when it
    /// has all of them, or while its thread has enough to do. To be asked for right after
    /// the turn's records were appended, or the stream would not be in order.
    pub fn job_stream(&mut self) -> Option<&mut Vec<u8>> {
        self.rewrite.as_mut()?.job_stream(&mut self.disk)
    }

    /// The last job is in the stream.
    pub fn end_of_jobs(&mut self) {
        if let Some(rewrite) = &mut self.rewrite {
            rewrite.end_of_jobs(&mut self.disk);
        }
    }

    fn pass_to_rewrite(&mut self, now: MonoMs, event: DiskEvent) {
        let moment = self.sync_moment();
        let Some(rewrite) = &mut self.rewrite else { return };
        match rewrite.handle_event(event, &mut self.disk, moment) {
            None => {}
            Some(Ok(file)) => {
                self.rewrite = None;
                self.note_replaced(now, file);
            }
            Some(Err(e)) => self.note_rewrite_failed(now, &e),
        }
    }

    fn note_replaced(&mut self, now: MonoMs, file: AppendFile<D::File>) {
        self.rewrites.note_worked(now, file.len());
        self.counters.rewrites += 1;
        if self.state == AofState::Off {
            self.disk.submit(DiskTask::Close(file.into_file()));
            return;
        }
        self.base_len = file.len();
        self.state = AofState::On;
        self.is_elsewhere = false;
        // Whatever the thread has to say of the old file does not matter any more.
        self.sync = BackgroundSync {
            due_since: Some(now),
            delayed_count: self.sync.delayed_count,
            ..BackgroundSync::default()
        };
        if let Some(old) = self.current.replace(file) {
            self.disk.submit(DiskTask::Close(old.into_file()));
        }
    }

    fn note_rewrite_failed(&mut self, now: MonoMs, error: &io::Error) {
        let urgency = if self.needs_rewrite() { Urgency::High } else { Urgency::Low };
        self.rewrites.note_failed(now, error, urgency);
        self.abandon_rewrite();
    }

    fn abandon_rewrite(&mut self) {
        if let Some(rewrite) = self.rewrite.take() {
            let file = rewrite.abandon(&mut self.disk);
            self.disk.submit(DiskTask::Close(file));
        }
    }

    /// Writes the whole file anew while everything waits, on or off, for the end of the
    /// server. Records that still come are appended to it.
    pub fn rewrite_at_once(
        &mut self,
        now: MonoMs,
        next_records: impl FnMut(&mut Vec<u8>) -> RecordStream,
    ) -> io::Result<()> {
        self.abandon_rewrite();
        let sums = self.sums_from(FileEnd::default());
        let end = aof_rewrite::rewrite_at_once(&self.path, sums, &mut self.disk, next_records)?;
        self.open(now, end)
    }

    /// Writes and syncs what was not yet, and closes the file, for the end of the server.
    /// Records that still come are appended to it.
    pub fn finish(&mut self) -> io::Result<()> {
        self.abandon_rewrite();
        let Some(current) = &mut self.current else { return Ok(()) };
        current.append(&mut [])?;
        current.close()?;
        current.sync()
    }

    /// The figures of INFO.
    pub fn figures(&self, now: MonoMs) -> AofFigures {
        AofFigures {
            current_len: self.current.as_ref().map_or(0, AppendFile::len),
            base_len: self.base_len,
            unwritten_len: self.current.as_ref().map_or(0, AppendFile::unwritten_len),
            rewrite_unwritten_len: self.rewrite.as_ref().map_or(0, Rewrite::unwritten_len),
            loss_window_ms: self.sync.oldest().map_or(0, |since| now.ms_since(since)),
            syncs_in_flight: usize::from(self.sync.in_flight.is_some()),
            delayed_sync_count: self.sync.delayed_count,
            last_rewrite_secs: self.rewrites.last_secs(),
            current_rewrite_secs: self.rewrite.as_ref().map(|_| self.rewrites.running_secs(now)),
            last_rewrite: self.rewrites.last(),
            rewrite_failure_count: self.rewrites.failure_count(),
            rewrite_pause_secs: self.rewrites.next_at().ms_since(now).div_ceil(1000),
            waits_for_rewrite: self.waits_for_rewrite(),
        }
    }

    /// What is counted since the start, whatever CONFIG RESETSTAT forgets.
    pub fn counters(&self) -> AofCounters {
        self.counters
    }

    /// Why the last rewrite failed, if it did.
    pub fn rewrite_error(&self) -> Option<&str> {
        self.rewrites.error()
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&mut self) {
        self.sync.delayed_count = 0;
    }
}
