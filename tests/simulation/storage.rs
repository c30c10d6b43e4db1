//! What a node keeps: its append only file and its nodes.conf, on a disk that may fail.
//!
//! It stands where `server::persistence` and `server::nodes` stand, and drives the same
//! code: `store` writes, rewrites and reads the file. It also knows what the policy
//! promises, so that a crash can say what may be gone and what must not.

use std::io;
use std::path::Path;

use disque::base::rng::Rng;
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::commands;
use disque::engine::records::Storage as Health;
use disque::engine::{Engine, More};
use disque::manual::Flags;
use disque::proto::aof_record::SumPlace;
use disque::store::aof::{
    Aof, AofOptions, AofState, Checksums, LastRewrite, SyncDuringRewrite, SyncPolicy,
};
use disque::store::aof_load::{AofReader, LoadProgress};
use disque::store::aof_rewrite::{IncrementalSync, RecordStream};
use disque::store::stop_note;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::node::Words;

const AOF_PATH: &str = "disque.aof";
const NODES_PATH: &str = "nodes.conf";
/// As the server has it.
const LEFTOVER_PREFIX: &str = "temp-rewriteaof-";
/// A failed save of nodes.conf is tried again after so long, in ms.
const SAVE_AGAIN_MS: u64 = 1000;
/// A step behind the node's back takes up to so long, in ms.
const STEP_MS_MAX: u32 = 30;
/// Between two slices of a rewrite others have their turn for so long, in ms.
const SLICE_MS: u64 = 4;
/// Under everysec nothing older than this is lost, in ms.
const EVERYSEC_MS: u64 = 2000;

const OPTIONS: AofOptions = AofOptions {
    sync: SyncPolicy::EverySecond,
    sync_during_rewrite: SyncDuringRewrite::Yes,
    incremental_sync: IncrementalSync::Yes,
    checksums: Checksums::Yes,
};

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: what it wrote is there.
    Killed,
    /// The machine lost power: what was not synced may be gone.
    PowerLost,
    /// The append only file is gone.
    FileLost,
    /// The process is killed, and a bit of the append only file flips, before its last record
    /// with a checksum.
    BitFlipped,
    /// The process is killed, and the end of the append only file is gone.
    FileCut,
    /// The process is killed, and nodes.conf is gone: the node comes back with another ID.
    NodesLost,
}

/// At or after this time, in ms, what a node promised may have been lost with it; what it
/// promised before must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostSince(pub u64);

impl LostSince {
    pub const NOTHING: Self = Self(u64::MAX);
    pub const EVERYTHING: Self = Self(0);
}

/// Whether a node keeps an append only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOnly {
    No,
    Yes,
}

pub struct Storage {
    append_only: AppendOnly,
    /// When records were last written, by the node's clock.
    written_at: UnixMs,
    pub disk: Disk,
    rng: Rng,
    aof: Aof<Disk>,
    options: AofOptions,
    rewrite_from: u32,
    next_slice_at: u64,
    save_again_at: Option<u64>,
    /// Since when records wait for a disk that takes none.
    unwritten_since: Option<u64>,
    /// Since when the node says that records are not safe.
    failing_since: Option<u64>,
    rewrite_begun_at: u64,
    /// When the last rewrite that came to its end was begun: what was there then is synced.
    rewritten_at: u64,
    /// When the process was started, or syncs went on after a rest.
    started_at: Option<u64>,
    /// What was unsynced then, until there was time to make up for it.
    inherited: LostSince,
    /// The file was damaged while the process was down; the next start must notice.
    was_damaged: bool,
}

impl Storage {
    /// An empty disk.
    pub fn new(mut rng: Rng, append_only: AppendOnly) -> Self {
        let disk_rng = Rng::from_seed(rng.bytes());
        Self::on(Disk::new(disk_rng, STEP_MS_MAX), append_only, rng)
    }

    /// Nothing is known yet of what the disk holds.
    fn on(disk: Disk, append_only: AppendOnly, mut rng: Rng) -> Self {
        let aof = Aof::new(AOF_PATH.into(), OPTIONS, disk.clone(), Rng::from_seed(rng.bytes()));
        Self {
            append_only,
            written_at: UnixMs(0),
            disk,
            rng,
            aof,
            options: OPTIONS,
            rewrite_from: 0,
            next_slice_at: 0,
            save_again_at: None,
            unwritten_since: None,
            failing_since: None,
            rewrite_begun_at: 0,
            rewritten_at: 0,
            started_at: None,
            inherited: LostSince::NOTHING,
            was_damaged: false,
        }
    }

    /// Sets a policy. Whether there are checksums is for the engine to say.
    pub fn set_options(&mut self, options: AofOptions) {
        self.options = AofOptions { checksums: self.options.checksums, ..options };
        self.aof.set_options(self.options);
    }

    pub fn aof_bytes(&self) -> Vec<u8> {
        self.disk.read(Path::new(AOF_PATH)).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// What nodes.conf says; `None` when it is not there.
    pub fn nodes_conf(&self) -> Option<Vec<u8>> {
        self.disk.read(Path::new(NODES_PATH)).map(|bytes| bytes.to_vec())
    }

    /// Loads the file, if one is kept, and goes on at its end.
    pub fn start(&mut self, engine: &mut Engine, now: Now) {
        for path in self.disk.paths() {
            if path.to_string_lossy().starts_with(LEFTOVER_PREFIX) {
                self.disk.lose(&path);
            }
        }
        if self.append_only == AppendOnly::No {
            return;
        }
        let checksums = match engine.config().aof_sums {
            SumPlace::Yes => Checksums::Yes,
            SumPlace::No => Checksums::No,
        };
        self.options.checksums = checksums;
        self.aof.set_options(self.options);
        engine.set_storage(now, Health::Loading { written_at: self.written_at });
        let bytes = self.aof_bytes();
        let mut reader = AofReader::new(Path::new(AOF_PATH), &bytes[..], bytes.len() as u64);
        let mut is_noticed = false;
        let progress = loop {
            match reader.read(usize::MAX, |record| engine.load(now, record)) {
                Ok(progress) => break progress,
                Err(error) => {
                    assert!(error.is_damage(), "{error}");
                    reader.pass_damage().expect("it is in memory");
                    engine.damage(now);
                    is_noticed = true;
                }
            }
        };
        match progress {
            LoadProgress::Truncated { valid_len } => {
                let len = usize::try_from(valid_len).expect("it was in memory");
                self.disk.cut(Path::new(AOF_PATH), len);
                is_noticed = true;
            }
            LoadProgress::Complete => {}
            LoadProgress::More => unreachable!("it was read to the end"),
        }
        let end = reader.file_end();
        let is_damage_noticed = is_noticed || end.is_unclean() || !self.was_damaged;
        assert!(is_damage_noticed, "no damage goes unnoticed");
        self.was_damaged = false;
        self.aof.open(now.mono, end).expect("it is there");
        engine.set_storage(now, Health::Works);
    }

    /// Keeps the turn's records. An error ends the node before anybody hears of them.
    pub fn persist(
        &mut self,
        engine: &mut Engine,
        now: Now,
        sim_ms: u64,
        slice: usize,
    ) -> io::Result<()> {
        self.disk.pass_time(sim_ms);
        let was_rewriting = self.aof.is_rewriting();
        self.aof.handle_events(now.mono);
        if was_rewriting && !self.aof.is_rewriting() {
            self.note_rewritten(now);
        }
        if !engine.out.aof.is_empty() {
            self.written_at = now.wall;
        }
        let appended = self.aof.append(now.mono, &mut engine.out.aof);
        engine.out.aof.clear();
        appended?;
        if self.aof.is_rewrite_due(now.mono, 0, 0) {
            self.begin_rewrite(now, sim_ms);
        }
        if sim_ms >= self.next_slice_at {
            self.next_slice_at = sim_ms + SLICE_MS;
            self.rewrite_some(engine, slice);
        }
        self.note_failure(now, sim_ms);
        engine.set_storage(now, self.health());
        self.check_length();
        Ok(())
    }

    fn health(&self) -> Health {
        match self.append_only {
            AppendOnly::No => Health::Off,
            AppendOnly::Yes if self.fails() => Health::Fails,
            AppendOnly::Yes => Health::Works,
        }
    }

    pub fn fails(&self) -> bool {
        self.aof.failure().is_some()
    }

    /// Whether a command is refused because records cannot be kept at the moment.
    pub fn refuses(&self, words: &Words) -> bool {
        let command = commands::find(&words[0]).expect("a command of the engine");
        self.fails() && command.manual.flags.contains(Flags::DENYOOM)
    }

    fn note_rewritten(&mut self, now: Now) {
        if self.aof.figures(now.mono).last_rewrite == LastRewrite::Ok {
            self.rewritten_at = self.rewrite_begun_at;
            self.inherited = LostSince::NOTHING;
        }
    }

    fn note_failure(&mut self, now: Now, sim_ms: u64) {
        if self.aof.figures(now.mono).unwritten_len == 0 {
            if let Some(since) = self.unwritten_since.take() {
                // What a disk takes at last is as safe as what is written now.
                self.inherited = self.inherited.min(LostSince(since));
                self.started_at = Some(sim_ms);
            }
        } else {
            self.unwritten_since.get_or_insert(sim_ms);
        }
        let started_at = *self.started_at.get_or_insert(sim_ms);
        if self.fails() {
            self.failing_since.get_or_insert(sim_ms);
        } else {
            self.failing_since = None;
        }
        if self.rests() && self.aof.is_rewriting() {
            self.started_at = None;
        } else if sim_ms >= started_at + EVERYSEC_MS && self.failing_since.is_none() {
            self.inherited = LostSince::NOTHING;
        }
    }

    /// Nothing is in the file that the node does not know of.
    fn check_length(&self) {
        if self.aof.state() == AofState::On && !self.aof.is_rewriting() {
            let there = self.disk.read(Path::new(AOF_PATH)).expect("it is kept").len() as u64;
            let known = self.aof.figures(MonoMs(0)).current_len;
            assert_eq!(there, known, "every byte is written once");
        }
    }

    /// BGREWRITEAOF.
    pub fn begin_rewrite(&mut self, now: Now, sim_ms: u64) {
        if self.aof.state() == AofState::On && !self.aof.is_rewriting() {
            self.rewrite_from = 0;
            self.rewrite_begun_at = sim_ms;
            if self.rests() {
                self.inherited = self.unsynced_since(sim_ms).min(everysec(sim_ms));
            }
            // One that cannot begin is tried again.
            let _ = self.aof.begin_rewrite(now.mono);
        }
    }

    fn rewrite_some(&mut self, engine: &Engine, slice: usize) {
        let Some(stream) = self.aof.job_stream() else { return };
        let (slot, more) = engine.rewrite_slice(self.rewrite_from, slice, stream);
        self.rewrite_from = slot;
        if more == More::No {
            self.aof.end_of_jobs();
        }
    }

    /// SHUTDOWN REWRITE-AOF, to the end of the process.
    pub fn rewrite_at_once(&mut self, engine: &Engine, now: Now, sim_ms: u64) -> io::Result<()> {
        self.aof.finish()?;
        let mut from_slot = 0;
        self.aof.rewrite_at_once(now.mono, |out| {
            let (slot, more) = engine.rewrite_slice(from_slot, 1, out);
            from_slot = slot;
            if more == More::Yes { RecordStream::GoesOn } else { RecordStream::Ends }
        })?;
        self.unwritten_since = None;
        self.rewritten_at = sim_ms;
        Ok(())
    }

    /// The end of a process that was told to end, with aof-restore-queues. An error says that
    /// it ends without leaving its queues to the next start.
    pub fn stop_as_planned(&mut self, engine: &Engine, now: Now, sim_ms: u64) -> io::Result<()> {
        self.rewrite_at_once(engine, now, sim_ms)?;
        stop_note::leave(&mut self.disk, Path::new(AOF_PATH))
    }

    /// Whether the start finds the queues as they were at the end. Asked for once, before the
    /// file is loaded.
    pub fn was_stopped_as_planned(&mut self) -> bool {
        self.append_only == AppendOnly::Yes
            && stop_note::take(&mut self.disk, Path::new(AOF_PATH)).unwrap_or(false)
    }

    /// Writes nodes.conf where that is wished, or where it failed before.
    pub fn save_nodes(&mut self, engine: &mut Engine, sim_ms: u64) {
        let is_wished = std::mem::take(&mut engine.out.save_nodes);
        if is_wished || self.save_again_at.is_some_and(|at| at <= sim_ms) {
            let saved = self.disk.save(Path::new(NODES_PATH), &engine.nodes_conf());
            self.save_again_at = saved.err().map(|_| sim_ms + SAVE_AGAIN_MS);
        }
    }

    /// When the node has to come round for its disk.
    pub fn next_at(&self, clock: &Clock) -> u64 {
        let aof_at = clock.when(self.aof.next_timeout()).max(self.next_slice_at);
        let step_at = self.disk.next_step_at().unwrap_or(u64::MAX);
        aof_at.min(step_at).min(self.save_again_at.unwrap_or(u64::MAX))
    }

    /// The process stops for a while, and syncs nothing meanwhile.
    pub fn stop(&mut self, sim_ms: u64) {
        self.inherited = self.unsynced_since(sim_ms);
        self.started_at = None;
    }

    /// What is left after a crash is on the disk. Returns since when jobs and their ends may be
    /// missing, and since when the ends of at-most-once jobs that are not.
    pub fn crash(&mut self, sim_ms: u64, crash: Crash) -> (LostSince, LostSince) {
        let unsynced_since = self.unsynced_since(sim_ms);
        let unwritten_since = self.unwritten_since.map_or(LostSince::NOTHING, LostSince);
        let lost_since = match crash {
            Crash::Killed | Crash::NodesLost => (unwritten_since, unwritten_since),
            Crash::PowerLost => (unsynced_since, unsynced_since),
            Crash::FileLost => (LostSince::EVERYTHING, LostSince::NOTHING),
            Crash::BitFlipped => (LostSince::EVERYTHING, unwritten_since),
            Crash::FileCut => (LostSince::EVERYTHING, LostSince::EVERYTHING),
        };
        match crash {
            Crash::Killed => self.disk.kill(),
            Crash::PowerLost => self.disk.lose_power(),
            Crash::FileLost => {
                self.disk.kill();
                self.disk.lose(Path::new(AOF_PATH));
            }
            Crash::BitFlipped => {
                self.disk.kill();
                self.flip_bit();
            }
            Crash::FileCut => {
                self.disk.kill();
                let len = self.aof_bytes().len();
                if len > 0 {
                    self.disk.cut(Path::new(AOF_PATH), self.rng.index(len));
                }
            }
            Crash::NodesLost => {
                self.disk.kill();
                self.disk.lose(Path::new(NODES_PATH));
            }
        }
        let inherited = if crash == Crash::PowerLost { LostSince::NOTHING } else { unsynced_since };
        let rng = Rng::from_seed(self.rng.bytes());
        let next = Self::on(self.disk.clone(), self.append_only, rng);
        let (options, was_damaged, written_at) = (self.options, self.was_damaged, self.written_at);
        *self = Self { options, inherited, was_damaged, written_at, ..next };
        self.aof.set_options(options);
        lost_since
    }

    /// Flips a bit before the last record with a checksum, if there is any.
    fn flip_bit(&mut self) {
        let bytes = self.aof_bytes();
        let mut reader = AofReader::new(Path::new(AOF_PATH), &bytes[..], bytes.len() as u64);
        let (mut begin, mut covered_len) = (0, 0);
        loop {
            match reader.read(1, |_| {}) {
                Ok(LoadProgress::More) if !reader.file_end().has_gap => covered_len = begin,
                Ok(LoadProgress::More) => {}
                Ok(LoadProgress::Complete | LoadProgress::Truncated { .. }) => break,
                Err(_) => reader.pass_damage().expect("it is in memory"),
            }
            begin = reader.loaded_len();
        }
        if covered_len > 0 {
            let at = self.rng.index(usize::try_from(covered_len).expect("it is in memory"));
            self.disk.flip_bit(Path::new(AOF_PATH), at, self.rng.below(8));
            self.was_damaged = true;
        }
    }

    /// Whether nothing is synced during a rewrite.
    fn rests(&self) -> bool {
        self.options.sync_during_rewrite == SyncDuringRewrite::No
    }

    fn unsynced_since(&self, sim_ms: u64) -> LostSince {
        let at = |at: Option<u64>| at.map_or(LostSince::NOTHING, LostSince);
        let policy = match self.options.sync {
            SyncPolicy::Always => LostSince::NOTHING,
            SyncPolicy::EverySecond => everysec(sim_ms),
            SyncPolicy::Never => LostSince::EVERYTHING,
        };
        let failing = self.failing_since.map_or(LostSince::NOTHING, everysec);
        let weakest = policy.min(failing).min(at(self.unwritten_since)).min(self.inherited);
        weakest.max(LostSince(self.rewritten_at))
    }
}

fn everysec(at_ms: u64) -> LostSince {
    LostSince(at_ms.saturating_sub(EVERYSEC_MS))
}
