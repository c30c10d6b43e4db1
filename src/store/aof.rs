//! The append only file while the server runs: records go in, and to the disk.
//!
//! Once a loop turn, before anybody hears of what was done, the server hands over the
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
//! While the file is rewritten ([`super::aof_rewrite`]) its successor gets every record
//! too.

use std::io;
use std::path::{Path, PathBuf};

use super::aof_rewrite::{self, IncrementalSync, RecordStream, Rewrite, SyncMoment};
use super::append_file::AppendFile;
use super::disk::{Disk, DiskEvent, DiskTask, Ticket};
use super::fsync::DiskThread;
pub use super::rewrite_history::LastRewrite;
use super::rewrite_history::{RewriteHistory, Urgency};
use crate::base::time::MonoMs;

/// How long written bytes may wait for their sync under `EverySecond`, in ms.
const SYNC_PERIOD_MS: u64 = 1000;
/// A write error that lasts is logged again after so long, in ms.
const LOG_AGAIN_MS: u64 = 30_000;
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
    /// Bytes were written since the last sync was begun.
    is_due: bool,
    in_flight: Option<Ticket>,
    begun_at: MonoMs,
    /// Why a sync failed. The system may have forgotten what it did not bring to the disk,
    /// so a later sync that works means nothing: only another file is good again.
    error: Option<io::Error>,
    /// The sync in flight was counted as one that others wait for.
    is_counted: bool,
    /// INFO: aof_delayed_fsync.
    delayed_count: u64,
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
    state: AofState,
    /// There is one if and only if the state is `On`.
    current: Option<AppendFile<D::File>>,
    base_len: u64,
    /// The current file is not the one under the path, which is yet to be written.
    is_elsewhere: bool,
    sync: BackgroundSync,
    write_error: Option<io::Error>,
    written_at: MonoMs,
    error_logged_at: Option<MonoMs>,
    rewrite: Option<Rewrite<D::File>>,
    rewrites: RewriteHistory,
}

impl<D: Disk> Aof<D> {
    /// An append only file that is off, under this path. Whenever the disk has an event,
    /// [`Aof::handle_events`] is to be called.
    pub fn new(path: PathBuf, options: AofOptions, disk: D) -> Self {
        Self {
            path,
            options,
            disk,
            state: AofState::Off,
            current: None,
            base_len: 0,
            is_elsewhere: false,
            sync: BackgroundSync::default(),
            write_error: None,
            written_at: MonoMs(0),
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

    /// Turns it on with the file as it stands, which was loaded before.
    pub fn open(&mut self) -> io::Result<()> {
        let (file, len) = self.disk.open(&self.path)?;
        self.base_len = len;
        self.current = Some(AppendFile::new(file, len));
        self.state = AofState::On;
        // Whoever wrote it last may not have lived to sync it.
        self.sync.is_due = len > 0;
        Ok(())
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

    /// Takes the records of one loop turn, of which there may be none. An error means
    /// that the policy promises what the disk does not keep: the server must end.
    pub fn append(&mut self, now: MonoMs, records: &[u8]) -> io::Result<()> {
        let moment = self.sync_moment();
        let mut result = Ok(());
        if let Some(current) = &mut self.current {
            self.sync.is_due |= !records.is_empty() || current.unwritten_len() > 0;
            result = current.append(records);
            if self.sync.is_due && result.is_ok() && moment == SyncMoment::InTurn {
                result = current.sync();
                self.sync.is_due = result.is_err();
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
            || !self.sync.is_due
            || !period_is_over
            || self.syncs_rest()
        {
            return;
        }
        if self.sync.in_flight.is_some() {
            if !self.sync.is_counted {
                self.sync.is_counted = true;
                self.sync.delayed_count += 1;
            }
            return;
        }
        let Some(current) = &self.current else { return };
        self.sync.in_flight = Some(self.disk.submit(DiskTask::Sync(current.file().clone())));
        self.sync.is_due = false;
        self.sync.is_counted = false;
        self.sync.begun_at = now;
    }

    /// Why records are not safe at the moment, if so.
    pub fn failure(&self) -> Option<&io::Error> {
        self.write_error.as_ref().or(self.sync.error.as_ref())
    }

    /// When the loop has to come round for the file's sake.
    pub fn next_timeout(&self) -> MonoMs {
        let sync_at = if self.sync.is_due
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
        let rewrite_at =
            if self.waits_for_rewrite() { self.rewrites.next_at() } else { MonoMs::NEVER };
        let jobs_at = if self.wants_jobs() { MonoMs(0) } else { MonoMs::NEVER };
        sync_at.min(write_at).min(rewrite_at).min(jobs_at)
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
        match Rewrite::begin(&self.path, self.options.incremental_sync, &mut self.disk) {
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
        if self.state == AofState::Off {
            self.disk.submit(DiskTask::Close(file.into_file()));
            return;
        }
        self.base_len = file.len();
        self.state = AofState::On;
        self.is_elsewhere = false;
        // Whatever the thread has to say of the old file does not matter any more.
        self.sync = BackgroundSync {
            is_due: true,
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
        next_records: impl FnMut(&mut Vec<u8>) -> RecordStream,
    ) -> io::Result<()> {
        self.abandon_rewrite();
        aof_rewrite::rewrite_at_once(&self.path, &mut self.disk, next_records)?;
        self.open()
    }

    /// Writes and syncs what was not yet, for the end of the server.
    pub fn finish(&mut self) -> io::Result<()> {
        self.abandon_rewrite();
        match &mut self.current {
            Some(current) => current.append(&[]).and_then(|()| current.sync()),
            None => Ok(()),
        }
    }

    /// The figures of INFO.
    pub fn figures(&self, now: MonoMs) -> AofFigures {
        AofFigures {
            current_len: self.current.as_ref().map_or(0, AppendFile::len),
            base_len: self.base_len,
            unwritten_len: self.current.as_ref().map_or(0, AppendFile::unwritten_len),
            rewrite_unwritten_len: self.rewrite.as_ref().map_or(0, Rewrite::unwritten_len),
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

    /// Why the last rewrite failed, if it did.
    pub fn rewrite_error(&self) -> Option<&str> {
        self.rewrites.error()
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&mut self) {
        self.sync.delayed_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::{self, Receiver};

    const OPTIONS: AofOptions = AofOptions {
        sync: SyncPolicy::EverySecond,
        sync_during_rewrite: SyncDuringRewrite::Yes,
        incremental_sync: IncrementalSync::Yes,
    };

    /// An append only file that is on, in a directory of its own, and what wakes the loop.
    struct World {
        dir: tempfile::TempDir,
        aof: Aof,
        wakes: Receiver<()>,
        now: MonoMs,
    }

    impl World {
        fn new(sync: SyncPolicy) -> Self {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let mut world = Self::at(dir.path().join("disque.aof"), sync, dir);
            world.aof.open().expect("a new file");
            world
        }

        fn at(path: PathBuf, sync: SyncPolicy, dir: tempfile::TempDir) -> Self {
            let (wake, wakes) = mpsc::channel();
            let wake = Box::new(move || {
                // The last event may come when nobody waits any more.
                let _ = wake.send(());
            });
            let disk = DiskThread::start(wake).expect("a thread");
            let aof = Aof::new(path, AofOptions { sync, ..OPTIONS }, disk);
            Self { dir, aof, wakes, now: MonoMs(10_000) }
        }

        fn append(&mut self, records: &[u8]) {
            self.aof.append(self.now, records).expect("the disk works");
        }

        /// Lets the thread finish until there is nothing to wait for.
        fn settle(&mut self, is_settled: impl Fn(&Aof) -> bool) {
            self.aof.handle_events(self.now);
            while !is_settled(&self.aof) {
                self.wakes.recv().expect("the thread lives");
                self.aof.handle_events(self.now);
            }
        }

        fn text(&self) -> Vec<u8> {
            fs::read(self.aof.path()).expect("the file is there")
        }

        fn files(&self) -> usize {
            fs::read_dir(self.dir.path()).expect("a directory").count()
        }
    }

    fn no_rewrite(aof: &Aof) -> bool {
        !aof.is_rewriting()
    }

    #[test]
    fn records_are_in_the_file_when_the_turn_goes_on() {
        for sync in [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never] {
            let mut world = World::new(sync);
            world.append(b"one ");
            world.append(b"");
            world.append(b"two");
            assert_eq!(world.text(), b"one two");
            assert_eq!(world.aof.figures(world.now).current_len, 7);
        }
    }

    #[test]
    fn under_everysec_a_failure_is_told_and_under_always_it_is_final() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut world = World::at("/dev/full".into(), SyncPolicy::EverySecond, dir);
        world.aof.open().expect("/dev/full opens");
        world.append(b"record");
        let failure = world.aof.failure().expect("it is full").to_string();
        assert!(failure.starts_with("No space left on device"), "{failure}");
        assert_eq!(world.aof.figures(world.now).unwritten_len, 6);
        assert_eq!(world.aof.next_timeout(), world.now.plus_ms(WRITE_AGAIN_MS));
        world.aof.set_options(AofOptions { sync: SyncPolicy::Always, ..OPTIONS });
        world.aof.append(world.now, b"").expect_err("still full");
    }

    #[test]
    fn everysec_syncs_once_a_second_without_further_records() {
        let mut world = World::new(SyncPolicy::EverySecond);
        assert_eq!(world.aof.next_timeout(), MonoMs::NEVER);
        world.append(b"one");
        assert_eq!(world.aof.figures(world.now).syncs_in_flight, 1);
        world.settle(|aof| aof.sync.in_flight.is_none());
        world.append(b"two");
        let due_at = world.now.plus_ms(SYNC_PERIOD_MS);
        assert_eq!(world.aof.next_timeout(), due_at);
        world.now = due_at;
        world.append(b"");
        world.settle(|aof| aof.sync.in_flight.is_none());
        assert_eq!(world.aof.next_timeout(), MonoMs::NEVER);
        assert_eq!(world.aof.figures(world.now).delayed_sync_count, 0);
    }

    #[test]
    fn a_file_that_could_not_be_synced_is_rewritten_and_not_trusted_before() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("disque.aof");
        // It takes every write and cannot be synced.
        std::os::unix::fs::symlink("/dev/null", &path).expect("the name is free");
        let mut world = World::at(path.clone(), SyncPolicy::EverySecond, dir);
        world.aof.open().expect("it opens");
        world.append(b"record");
        world.settle(|aof| aof.failure().is_some());
        assert!(world.aof.is_rewrite_due(world.now, 0, 0));
        fs::remove_file(path).expect("removed");
        world.aof.begin_rewrite(world.now).expect("begun");
        world.aof.job_stream().expect("it begins with jobs").extend_from_slice(b"jobs");
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        assert!(world.aof.failure().is_none());
        assert!(!world.aof.is_rewrite_due(world.now, 0, 0));
        assert_eq!(world.text(), b"jobs");
    }

    #[test]
    fn what_was_found_at_the_start_is_synced_as_well() {
        let mut world = World::new(SyncPolicy::Never);
        world.append(b"record");
        world.aof.set_options(OPTIONS);
        world.aof.open().expect("it is there");
        world.append(b"");
        assert_eq!(world.aof.figures(world.now).syncs_in_flight, 1);
    }

    #[test]
    fn a_rewrite_is_one_stream_of_jobs_and_records_in_the_order_they_came() {
        for sync in [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never] {
            let mut world = World::new(sync);
            world.append(b"old records ");
            world.aof.begin_rewrite(world.now).expect("begun");
            world.aof.job_stream().expect("it begins with jobs").extend_from_slice(b"job1 ");
            world.append(b"record1 ");
            world.aof.job_stream().expect("there is room").extend_from_slice(b"job2 ");
            world.aof.end_of_jobs();
            assert!(world.aof.job_stream().is_none());
            world.append(b"record2 ");
            world.settle(no_rewrite);
            world.append(b"record3");
            assert_eq!(world.text(), b"job1 record1 job2 record2 record3");
            assert_eq!(world.files(), 1);
            let figures = world.aof.figures(world.now);
            assert_eq!(figures.last_rewrite, LastRewrite::Ok);
            assert_eq!((figures.current_len, figures.base_len), (33, 26));
        }
    }

    #[test]
    fn the_old_file_has_every_record_until_the_new_one_is_in_its_place() {
        let mut world = World::new(SyncPolicy::Never);
        world.append(b"a");
        world.aof.begin_rewrite(world.now).expect("begun");
        world.append(b"b");
        world.aof.job_stream().expect("it begins with jobs").extend_from_slice(b"jobs");
        assert_eq!(world.text(), b"ab");
        world.aof.end_of_jobs();
        world.append(b"c");
        let text = world.text();
        assert!(text == b"abc" || text == b"bjobsc", "{text:?}");
        world.settle(no_rewrite);
        assert_eq!(world.text(), b"bjobsc");
    }

    #[test]
    fn the_thread_s_backlog_is_bounded() {
        let mut world = World::new(SyncPolicy::Never);
        world.aof.begin_rewrite(world.now).expect("begun");
        let mut streamed = 0;
        while streamed < 64 * 1024 * 1024 {
            if let Some(stream) = world.aof.job_stream() {
                stream.extend_from_slice(&[b'x'; 128 * 1024]);
                streamed += 128 * 1024;
            } else {
                world.wakes.recv().expect("the thread lives");
                world.aof.handle_events(world.now);
            }
            let waiting = world.aof.figures(world.now).rewrite_unwritten_len;
            assert!(waiting < 10 * 1024 * 1024, "{waiting} bytes");
        }
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        assert_eq!(world.text().len(), streamed);
    }

    #[test]
    fn turning_it_on_waits_for_a_rewrite_and_off_ends_one() {
        let mut world = World::new(SyncPolicy::EverySecond);
        world.append(b"early ");
        world.aof.turn_off();
        assert_eq!((world.aof.state(), world.aof.takes_records()), (AofState::Off, false));
        world.append(b"lost ");
        world.aof.turn_on(world.now).expect("begun");
        assert_eq!((world.aof.state(), world.aof.takes_records()), (AofState::WaitRewrite, true));
        world.aof.turn_off();
        assert!(!world.aof.is_rewriting());
        assert_eq!(world.text(), b"early ");
        world.aof.turn_on(world.now).expect("begun");
        world.append(b"late");
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        assert_eq!(world.aof.state(), AofState::On);
        assert_eq!(world.text(), b"late");
        assert_eq!(world.files(), 1);
    }

    #[test]
    fn a_rewrite_while_it_is_off_leaves_a_file_and_it_off() {
        let mut world = World::new(SyncPolicy::EverySecond);
        world.aof.turn_off();
        world.aof.begin_rewrite(world.now).expect("begun");
        assert!(world.aof.takes_records());
        world.aof.job_stream().expect("it begins with jobs").extend_from_slice(b"jobs");
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        assert_eq!(world.text(), b"jobs");
        assert_eq!((world.aof.state(), world.aof.takes_records()), (AofState::Off, false));
    }

    #[test]
    fn a_rewrite_that_fails_leaves_the_old_file_and_is_tried_again_when_it_is_needed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("disque.aof");
        let mut world = World::at(path.clone(), SyncPolicy::Always, dir);
        world.aof.turn_on(world.now).expect("begun");
        // No file can be renamed over this.
        fs::create_dir_all(path.join("x")).expect("created");
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        let figures = world.aof.figures(world.now);
        assert_eq!((figures.last_rewrite, figures.waits_for_rewrite), (LastRewrite::Failed, true));
        assert_eq!(world.files(), 1);
        fs::remove_dir_all(path).expect("removed");
        assert!(!world.aof.is_rewrite_due(world.now, 0, 0));
        world.now = world.aof.next_timeout();
        assert!(world.aof.is_rewrite_due(world.now, 0, 0));
        world.aof.begin_rewrite(world.now).expect("begun");
        world.aof.end_of_jobs();
        world.settle(no_rewrite);
        assert_eq!(world.aof.state(), AofState::On);
        assert_eq!(world.aof.figures(world.now).last_rewrite, LastRewrite::Ok);
    }

    #[test]
    fn a_file_outgrows_what_it_was_after_its_last_rewrite() {
        let mut world = World::new(SyncPolicy::Never);
        world.append(&[b'x'; 100]);
        world.aof.base_len = 100;
        assert!(!world.aof.is_rewrite_due(world.now, 100, 0));
        world.append(&[b'x'; 100]);
        assert!(world.aof.is_rewrite_due(world.now, 100, 0));
        assert!(!world.aof.is_rewrite_due(world.now, 101, 0));
        assert!(!world.aof.is_rewrite_due(world.now, 100, 200));
        assert!(!world.aof.is_rewrite_due(world.now, 0, 0));
        world.aof.begin_rewrite(world.now).expect("begun");
        assert!(!world.aof.is_rewrite_due(world.now, 100, 0));
    }
}
