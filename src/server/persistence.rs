//! What is kept on disk, as the loop sees it: when records are written, when the file is
//! loaded, when it is rewritten, and what clients may do meanwhile.
//!
//! The file is loaded at start in slices, between which clients that need no jobs are
//! served. Afterwards each turn ends with [`Server::persist`]: the turn's records are on
//! their way to the disk before anything is sent that depends on them. Right behind them in the stream
//! come the jobs of a rewrite under way, a few at a time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::Server;
use super::banner;
use super::config::{AppendFsync, Config};
use super::config_file;
use super::lanes::empty;
use super::latency::LatencyEvent;
use super::server_command::{ServerCommand, row};
use super::shutdown::RewriteFirst;
use crate::base::ids::ClientId;
use crate::base::reason::reason;
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::More;
use crate::engine::command::{Call, Outcome};
use crate::engine::config::EnqueueAtLoad;
use crate::engine::records::Storage;
use crate::store::aof::{Aof, AofOptions, AofState, Checksums, SyncDuringRewrite, SyncPolicy};
use crate::store::aof_load::{AofReader, LoadError, LoadProgress};
use crate::store::aof_rewrite::{IncrementalSync, RecordStream, remove_leftovers};
use crate::store::aof_sums::FileEnd;
use crate::store::fsync::{DiskThread, Wake};
use crate::store::{replacement, stop_note};

pub(super) static COMMANDS: &[ServerCommand] = &[row("bgrewriteaof", bgrewriteaof)];

/// The kind of the token under which the disk's thread wakes the loop.
pub const DISK_TOKENS: u8 = 5;
/// How long a turn loads before others are served.
const LOAD_MAX: Duration = Duration::from_millis(2);
/// Records loaded between two readings of the clock.
const LOADED_AT_ONCE: usize = 256;
/// How long a turn adds jobs to a rewrite before others are served.
const REWRITE_MAX: Duration = Duration::from_micros(500);
/// Jobs rewritten between two readings of the clock.
const REWRITTEN_AT_ONCE: usize = 32;
/// Jobs dropped in one go before the file is loaded again.
const FLUSHED_AT_ONCE: usize = 10_000;

/// What the loop hands to the disk, and what the disk keeps clients from.
pub struct Persistence {
    aof: Aof,
    load: Option<Load>,
    /// How often damage was passed over in the file that was loaded.
    damage_count: u64,
    /// From where on the engine's jobs are not yet in the rewrite's stream.
    rewrite_from: u32,
}

/// The loading of the append only file.
pub struct Load {
    pub reader: AofReader<File>,
    pub begun_at: Now,
    /// The file was left by a planned stop, and jobs go back into their queues.
    restores_queues: bool,
    /// When the file was last written.
    written_at: UnixMs,
}

impl Persistence {
    /// Clears up after a crash and opens the file to be loaded, if any is to be. An error
    /// is the sentence to exit with.
    pub fn start(config: &Config, now: Now, seed: [u8; 32], wake: Wake) -> Result<Self, String> {
        let path = &path_in(&config.dir, config).map_err(|e| {
            format!("Can't find the append only file {}: {e}", config.appendfilename)
        })?;
        if let Err(e) = remove_leftovers(path) {
            log::warn!("Can't look for files that a rewrite left behind: {e}");
        }
        let disk =
            DiskThread::start(wake).map_err(|e| format!("Can't start the disk's thread: {e}"))?;
        let aof = Aof::new(path.clone(), options(config), disk, Rng::from_seed(seed));
        let mut persistence = Self { aof, load: None, damage_count: 0, rewrite_from: 0 };
        if config.appendonly || config.aof_enqueue_jobs_once {
            let reader = AofReader::open(path).map_err(|e| unreadable(&e))?;
            if let Some(reader) = reader {
                let restores_queues = persistence.take_stop_note() && config.aof_restore_queues;
                let written_at = written_at(path);
                persistence.load =
                    Some(Load { reader, begun_at: now, written_at, restores_queues });
            }
        }
        if config.appendonly && persistence.load.is_none() {
            persistence.open(now.mono, FileEnd::default())?;
        }
        Ok(persistence)
    }

    fn open(&mut self, now: MonoMs, end: FileEnd) -> Result<(), String> {
        let path = self.aof.path().display().to_string();
        self.aof.open(now, end).map_err(|e| format!("Can't open the append only file {path}: {e}"))
    }

    /// Closes the file behind the records of the last turn.
    pub fn close(&mut self) {
        if let Err(e) = self.aof.finish() {
            log::warn!("Can't close the append only file: {e}");
        }
    }

    /// Takes the note of a planned stop, and tells whether there was one that counts. It must
    /// not count again: if it cannot be removed, it does not count at all.
    fn take_stop_note(&mut self) -> bool {
        let path = self.aof.path().to_owned();
        stop_note::take(self.aof.disk(), &path).unwrap_or_else(|e| {
            log::warn!("Can't take the note of a planned stop, jobs wait for their retry: {e}");
            false
        })
    }

    /// Whether jobs of the file go back into their queues.
    pub fn enqueue_at_load(&self, config: &Config) -> EnqueueAtLoad {
        let restores_queues = self.load.as_ref().is_some_and(|load| load.restores_queues);
        match config.aof_enqueue_jobs_once || restores_queues {
            true => EnqueueAtLoad::Yes,
            false => EnqueueAtLoad::No,
        }
    }

    /// Why records are not safe at the moment, if so, as the C server words it.
    pub fn write_error(&self) -> Option<String> {
        self.aof.failure().map(|error| reason(&error))
    }

    /// Whether jobs are still being read from the append only file.
    pub fn is_loading(&self) -> bool {
        self.load.is_some()
    }

    /// The loading, while it goes on.
    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// How often damage was passed over in the file. INFO: aof_damaged_records.
    pub fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// When the loop has to come round for the disk's sake.
    pub fn next_timeout(&self) -> MonoMs {
        if self.is_loading() { MonoMs(0) } else { self.aof.next_timeout() }
    }

    pub fn aof(&self) -> &Aof {
        &self.aof
    }

    /// Takes over changed settings.
    pub fn set_config(&mut self, config: &Config) {
        self.aof.set_options(options(config));
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&mut self) {
        self.aof.reset_statistics();
    }

    /// How the file is doing, for the engine.
    pub fn storage(&self) -> Storage {
        if let Some(load) = &self.load {
            Storage::Loading { written_at: load.written_at }
        } else if !self.aof.takes_records() {
            Storage::Off
        } else if self.aof.failure().is_some() {
            Storage::Fails
        } else {
            Storage::Works
        }
    }
}

/// The append only file of a working directory. It is followed to where links lead, so that
/// they stay when it is rewritten.
fn path_in(dir: &Path, config: &Config) -> io::Result<PathBuf> {
    replacement::resolve(&dir.join(&config.appendfilename))
}

fn options(config: &Config) -> AofOptions {
    AofOptions {
        sync: match config.appendfsync {
            AppendFsync::Always => SyncPolicy::Always,
            AppendFsync::EverySec => SyncPolicy::EverySecond,
            AppendFsync::No => SyncPolicy::Never,
        },
        sync_during_rewrite: match config.no_appendfsync_on_rewrite {
            true => SyncDuringRewrite::No,
            false => SyncDuringRewrite::Yes,
        },
        incremental_sync: match config.aof_rewrite_incremental_fsync {
            true => IncrementalSync::Yes,
            false => IncrementalSync::No,
        },
        checksums: match config.aof_checksums {
            true => Checksums::Yes,
            false => Checksums::No,
        },
    }
}

/// When a file was last written; 1970 when nobody can say.
fn written_at(path: &Path) -> UnixMs {
    let modified_at = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since_1970 = modified_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    UnixMs(since_1970.map_or(0, |ms| u64::try_from(ms.as_millis()).unwrap_or(u64::MAX)))
}

fn unreadable(error: &LoadError) -> String {
    let remedy = if error.is_damage() {
        ". disque-check-aof --salvage repairs it and keeps a backup; aof-load-damaged yes starts \
         without what is damaged."
    } else {
        ""
    };
    format!("Can't load the append only file: {error}{remedy}")
}

/// Loading.
impl Server {
    /// Puts in force what was opened, for a start with or without a file to be loaded. An
    /// error is the sentence to exit with.
    pub(super) fn begin_loading(&mut self) -> Result<(), String> {
        self.report_storage();
        if self.persistence.is_loading() { Ok(()) } else { self.use_up_enqueue_once() }
    }

    /// Loads for a while. An error is the sentence to exit with.
    pub(super) fn load_some(&mut self) -> Result<(), String> {
        let Some(mut load) = self.persistence.load.take() else { return Ok(()) };
        let started = Instant::now();
        loop {
            let progress = self.load_slice(&mut load.reader, LOADED_AT_ONCE)?;
            if progress != LoadProgress::More {
                return self.finish_loading(&load, progress);
            }
            if started.elapsed() >= LOAD_MAX {
                self.persistence.load = Some(load);
                return Ok(());
            }
        }
    }

    /// Loads up to `max` records; passes over damage where that is wanted.
    fn load_slice(
        &mut self,
        reader: &mut AofReader<File>,
        max: usize,
    ) -> Result<LoadProgress, String> {
        let now = self.clock.now;
        loop {
            match reader.read(max, |record| self.engine.load(now, record)) {
                Ok(progress) => return Ok(progress),
                Err(damage) if damage.is_damage() && self.config.aof_load_damaged => {
                    let damaged_from = reader.loaded_len();
                    reader.pass_damage().map_err(|e| unreadable(&e))?;
                    log::warn!(
                        "The append only file is damaged: {damage}. Going on at byte {}, {} bytes \
                         on, because aof-load-damaged is yes",
                        reader.loaded_len(),
                        reader.loaded_len() - damaged_from
                    );
                    self.persistence.damage_count += 1;
                    self.engine.damage(now);
                }
                Err(e) => return Err(unreadable(&e)),
            }
        }
    }

    fn finish_loading(&mut self, load: &Load, progress: LoadProgress) -> Result<(), String> {
        self.cut_tail(load, progress)?;
        let elapsed_ms = self.clock.now.mono.ms_since(load.begun_at.mono);
        log::info!(
            "DB loaded from append only file: {}.{:03} seconds, {} jobs",
            elapsed_ms / 1000,
            elapsed_ms % 1000,
            self.engine.job_count()
        );
        if load.restores_queues {
            log::info!("The stop was planned: jobs are in their queues again");
        }
        let end = load.reader.file_end();
        if end.is_unclean() {
            log::warn!(
                "The append only file was not closed: the server that wrote it last was killed, \
                 lost power or writes no checksums"
            );
        }
        if self.config.appendonly {
            self.persistence.open(self.clock.now.mono, end)?;
        }
        self.use_up_enqueue_once()?;
        self.report_storage();
        banner::show_ready(&self.config);
        Ok(())
    }

    fn cut_tail(&mut self, load: &Load, progress: LoadProgress) -> Result<(), String> {
        let LoadProgress::Truncated { valid_len } = progress else { return Ok(()) };
        let path = self.persistence.aof.path();
        let shown = path.display();
        if !self.config.aof_load_truncated {
            return Err(format!(
                "The append only file {shown} ends in the middle of a record at byte \
                 {valid_len}. disque-check-aof --fix cuts it there, and so does the server with \
                 aof-load-truncated yes."
            ));
        }
        log::warn!(
            "The append only file {shown} ends in the middle of a record: cutting the last {} of \
             its {} bytes, because aof-load-truncated is yes",
            load.reader.total_len() - valid_len,
            load.reader.total_len()
        );
        let cut = File::options().write(true).open(path).and_then(|file| {
            file.set_len(valid_len)?;
            file.sync_all()
        });
        cut.map_err(|e| format!("Can't cut the append only file {shown}: {e}"))
    }

    /// From now on jobs wait for their retry when they are loaded. The directive
    /// aof-enqueue-jobs-once has had its effect: it goes off, here and in its file, before any
    /// client can fetch a job.
    fn use_up_enqueue_once(&mut self) -> Result<(), String> {
        let was_once = std::mem::take(&mut self.config.aof_enqueue_jobs_once);
        self.engine.set_config(self.clock.now, self.config.for_engine(EnqueueAtLoad::No));
        if was_once { self.turn_off_enqueue_once() } else { Ok(()) }
    }

    fn turn_off_enqueue_once(&mut self) -> Result<(), String> {
        if let Some(path) = &self.config.config_file {
            match config_file::rewrite(path, &self.config) {
                Ok(()) => {
                    log::info!("aof-enqueue-jobs-once is now off in {}", path.display());
                    return Ok(());
                }
                Err(e) => log::warn!("Can't write {}: {e}", path.display()),
            }
        }
        log::warn!(
            "aof-enqueue-jobs-once stays on where it was set: take it away before the next start"
        );
        if self.config.appendonly { Ok(()) } else { self.put_used_file_aside() }
    }

    /// A file that was loaded and is not kept up must not be loaded again: it would bring
    /// back at-most-once jobs that are delivered by then.
    fn put_used_file_aside(&self) -> Result<(), String> {
        let path = self.persistence.aof.path();
        let aside = format!("{}.loaded", path.display());
        match fs::rename(path, &aside) {
            Ok(()) => log::warn!("{} is now {aside}", path.display()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("Can't put {} aside: {e}", path.display())),
        }
        Ok(())
    }

    /// Forgets all jobs and loads the append only file at once. For DEBUG LOADAOF.
    pub fn load_anew(&mut self, client: ClientId) -> Result<(), String> {
        self.persist();
        if self.persistence.aof.is_rewriting() {
            // It goes by the places of jobs in memory, which would change.
            return Err("the append only file is being rewritten".into());
        }
        let reader = AofReader::open(self.persistence.aof.path()).map_err(|e| unreadable(&e))?;
        let mut reader = reader.ok_or("there is no append only file")?;
        let now = self.clock.now;
        // The jobs go from memory only.
        self.engine.set_storage(now, Storage::Loading { written_at: now.wall });
        while self.engine.flush(now, client, FLUSHED_AT_ONCE) == More::Yes {}
        let loaded = self.load_slice(&mut reader, usize::MAX);
        self.report_storage();
        loaded.map(|_| ())
    }
}

/// Writing.
impl Server {
    /// Has the turn's records written, and synced where the policy says so. When they
    /// cannot be and must, the server ends here: nothing may be sent that depends on them.
    pub(super) fn persist(&mut self) {
        let now = self.clock.now.mono;
        let persistence = &mut self.persistence;
        persistence.aof.handle_events(now);
        let started = (self.config.latency_monitor_threshold_ms > 0
            && !self.engine.out.aof.is_empty())
        .then(Instant::now);
        if let Err(e) = persistence.aof.append(now, &mut self.engine.out.aof) {
            log::error!(
                "Can't recover from AOF write error when the AOF fsync policy is 'always': {e}. \
                 Exiting..."
            );
            process::exit(1);
        }
        empty(&mut self.engine.out.aof);
        if let Some(started) = started {
            self.note_write_latency(started.elapsed());
        }
        self.rewrite_some();
        self.report_storage();
    }

    fn note_write_latency(&mut self, elapsed: Duration) {
        let aof = &self.persistence.aof;
        let events: &[LatencyEvent] = if self.config.appendfsync == AppendFsync::Always {
            &[LatencyEvent::AofFsyncAlways]
        } else if aof.figures(self.clock.now.mono).syncs_in_flight > 0 {
            &[LatencyEvent::AofWrite, LatencyEvent::AofWritePendingFsync]
        } else if aof.is_rewriting() {
            &[LatencyEvent::AofWrite, LatencyEvent::AofWriteActiveChild]
        } else {
            &[LatencyEvent::AofWrite, LatencyEvent::AofWriteAlone]
        };
        for &event in events {
            self.note_latency(event, elapsed);
        }
    }

    /// Reports to the engine how the append only file is doing.
    fn report_storage(&mut self) {
        self.engine.set_storage(self.clock.now, self.persistence.storage());
    }

    /// Turns the append only file on or off. For CONFIG SET; an error is for its client.
    pub fn switch_append_only(&mut self, appendonly: bool) -> Result<(), String> {
        self.persist();
        if appendonly {
            if !self.persistence.aof.is_rewriting() {
                self.persistence.rewrite_from = 0;
            }
            if let Err(e) = self.persistence.aof.turn_on(self.clock.now.mono) {
                log::warn!("Can't turn the append only file on: {e}");
                return Err("Unable to turn on AOF. Check server logs.".into());
            }
        } else {
            self.persistence.aof.turn_off();
        }
        self.report_storage();
        Ok(())
    }

    /// Writes and syncs everything for the end, and the whole file anew where that is
    /// wanted. An error says why the server must go on.
    pub(super) fn persist_for_shutdown(&mut self, rewrite: RewriteFirst) -> Result<(), String> {
        if self.persistence.is_loading() {
            return Ok(());
        }
        if self.persistence.aof.state() == AofState::WaitRewrite {
            return Err("the append only file is still being written for the first time".into());
        }
        self.persist();
        let aof = &mut self.persistence.aof;
        aof.finish().map_err(|e| format!("the append only file cannot be written: {e}"))?;
        if rewrite == RewriteFirst::Yes {
            self.rewrite_at_once()
                .map_err(|e| format!("the append only file cannot be rewritten: {e}"))?;
        }
        self.report_storage();
        Ok(())
    }

    fn rewrite_at_once(&mut self) -> io::Result<()> {
        let mut from_slot = 0;
        let engine = &self.engine;
        self.persistence.aof.rewrite_at_once(self.clock.now.mono, |out| {
            let (slot, more) = engine.rewrite_slice(from_slot, REWRITTEN_AT_ONCE, out);
            from_slot = slot;
            if more == More::Yes { RecordStream::GoesOn } else { RecordStream::Ends }
        })
    }

    /// The last that a server does that was told to end: leaves the queues to the next start,
    /// if that is wanted. Whatever fails here, the jobs are safe; the queued ones come back
    /// within their retry then.
    pub(super) fn save_queues_for_restart(&mut self) {
        let is_left = match &self.persistence.load {
            // Nothing has happened to what the last stop left.
            Some(load) if load.restores_queues => self.leave_stop_note(),
            Some(_) => return,
            None if !self.config.aof_restore_queues => return,
            None if self.persistence.aof.state() != AofState::On => return,
            None => self.rewrite_at_once().and_then(|()| self.leave_stop_note()),
        };
        match is_left {
            Ok(()) => log::info!("The queues are left to the next start"),
            Err(e) => log::warn!("Can't leave the queues to the next start: {e}"),
        }
    }

    fn leave_stop_note(&mut self) -> io::Result<()> {
        let path = self.persistence.aof.path().to_owned();
        stop_note::leave(self.persistence.aof.disk(), &path)
    }
}

/// Rewriting.
impl Server {
    /// Begins to rewrite the append only file, on or off.
    pub fn begin_rewrite(&mut self) -> io::Result<()> {
        // What the stream begins with must not have been in this turn's records.
        self.persist();
        if self.persistence.aof.is_rewriting() {
            return Ok(());
        }
        self.persistence.rewrite_from = 0;
        self.persistence.aof.begin_rewrite(self.clock.now.mono)?;
        log::info!("Rewriting the append only file");
        self.report_storage();
        Ok(())
    }

    /// Goes on with the append only file of another working directory: one that is on is
    /// written there, and until that is done records still go to the present one.
    pub(super) fn move_aof(&mut self, dir: &Path) -> Result<(), String> {
        self.persist();
        let path = path_in(dir, &self.config).map_err(|e| reason(&e))?;
        self.persistence.rewrite_from = 0;
        self.persistence.aof.move_to(self.clock.now.mono, path).map_err(|e| reason(&e))?;
        self.report_storage();
        Ok(())
    }

    /// Begins a rewrite if it is time for one, and adds some of the engine's jobs to the
    /// one under way.
    fn rewrite_some(&mut self) {
        let Self { persistence, engine, config, clock, .. } = self;
        let aof = &mut persistence.aof;
        let percentage = config.auto_aof_rewrite_percentage;
        if aof.is_rewrite_due(clock.now.mono, percentage, config.auto_aof_rewrite_min_size) {
            if aof.figures(clock.now.mono).rewrite_failure_count == 0 {
                log::info!("The append only file has grown by {percentage}% or more: rewriting it");
            }
            persistence.rewrite_from = 0;
            // A failure is logged, and shown by INFO.
            let _ = aof.begin_due_rewrite(clock.now.mono);
        }
        if !aof.is_rewriting() {
            return;
        }
        let started = Instant::now();
        while let Some(stream) = aof.job_stream() {
            let (slot, more) =
                engine.rewrite_slice(persistence.rewrite_from, REWRITTEN_AT_ONCE, stream);
            persistence.rewrite_from = slot;
            if more == More::No {
                aof.end_of_jobs();
            }
            if started.elapsed() >= REWRITE_MAX {
                break;
            }
        }
    }
}

/// BGREWRITEAOF -> a status: the append only file is written anew while the server goes
/// on. An error when that is under way already. Works with the file off as well: the file
/// is there afterwards, and stays as it is.
fn bgrewriteaof(server: &mut Server, call: &Call<'_>) -> Outcome {
    if server.persistence.aof().is_rewriting() {
        server.reply(call).error("ERR Background append only file rewriting already in progress");
        return Outcome::Done;
    }
    match server.begin_rewrite() {
        Ok(()) => {
            server.reply(call).status("Background append only file rewriting started");
        }
        Err(e) => server.reply(call).error(format!("ERR Can't rewrite the AOF file: {e}")),
    }
    Outcome::Done
}
