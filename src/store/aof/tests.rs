//! Tests of the append only file on a disk in memory.

use super::*;
use crate::base::ids::{JobId, NodeId};
use crate::proto::aof_record;
use crate::store::aof_load::{AofReader, LoadProgress};
use std::fs;
use std::sync::mpsc::{self, Receiver};

const OPTIONS: AofOptions = AofOptions {
    sync: SyncPolicy::EverySecond,
    sync_during_rewrite: SyncDuringRewrite::Yes,
    incremental_sync: IncrementalSync::Yes,
    checksums: Checksums::No,
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
        world.aof.open(MonoMs(10_000), FileEnd::default()).expect("a new file");
        world
    }

    fn at(path: PathBuf, sync: SyncPolicy, dir: tempfile::TempDir) -> Self {
        let (wake, wakes) = mpsc::channel();
        let wake = Box::new(move || {
            // The last event may come when nobody waits any more.
            let _ = wake.send(());
        });
        let disk = DiskThread::start(wake).expect("a thread");
        let aof = Aof::new(path, AofOptions { sync, ..OPTIONS }, disk, Rng::from_seed([3; 32]));
        Self { dir, aof, wakes, now: MonoMs(10_000) }
    }

    fn append(&mut self, records: &[u8]) {
        self.aof.append(self.now, &mut records.to_vec()).expect("the disk works");
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
    world.aof.open(MonoMs(10_000), FileEnd::default()).expect("/dev/full opens");
    world.append(b"record");
    let failure = world.aof.failure().expect("it is full").to_string();
    assert!(failure.starts_with("No space left on device"), "{failure}");
    assert_eq!(world.aof.figures(world.now).unwritten_len, 6);
    assert_eq!(world.aof.next_timeout(), world.now.plus_ms(WRITE_AGAIN_MS));
    world.aof.set_options(AofOptions { sync: SyncPolicy::Always, ..OPTIONS });
    world.aof.append(world.now, &mut []).expect_err("still full");
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
fn the_loss_window_is_the_age_of_the_oldest_byte_that_is_not_synced() {
    let mut world = World::new(SyncPolicy::EverySecond);
    let window_ms = |world: &World| world.aof.figures(world.now).loss_window_ms;
    assert_eq!(window_ms(&world), 0);
    world.append(b"one");
    world.now = world.now.plus_ms(300);
    world.append(b"two");
    assert_eq!(window_ms(&world), 300);
    world.settle(|aof| aof.sync.in_flight.is_none());
    assert_eq!(window_ms(&world), 0, "nothing waits but what came at this moment");
    world.now = world.now.plus_ms(200);
    assert_eq!(window_ms(&world), 200);
    world.aof.set_options(AofOptions { sync: SyncPolicy::Always, ..OPTIONS });
    world.append(b"three");
    assert_eq!(window_ms(&world), 0);
    world.aof.set_options(AofOptions { sync: SyncPolicy::Never, ..OPTIONS });
    world.append(b"four");
    world.now = world.now.plus_ms(100_000);
    assert_eq!(window_ms(&world), 100_000);
}

/// The records that end jobs, each on its own.
fn del_job(n: u8) -> Vec<u8> {
    let id = JobId::generate(&NodeId([b'a'; 40]), [n; 18], 60, 1);
    let mut record = Vec::new();
    aof_record::append_del_job(&mut record, &id);
    record
}

/// How the file of a world ends, which is not damaged.
fn end_of(world: &World) -> FileEnd {
    let mut reader = AofReader::open(world.aof.path()).expect("readable").expect("there");
    let progress = reader.read(usize::MAX, |_| {}).expect("not damaged");
    assert_eq!(progress, LoadProgress::Complete);
    reader.file_end()
}

#[test]
fn a_second_of_records_without_checksums_ends_in_a_carrier_and_a_stop_closes_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut world = World::at(dir.path().join("disque.aof"), SyncPolicy::Never, dir);
    world.aof.set_options(AofOptions { checksums: Checksums::Yes, ..OPTIONS });
    world.aof.open(world.now, FileEnd::default()).expect("a new file");
    world.append(&del_job(1));
    let due_at = world.now.plus_ms(GAP_MS);
    assert_eq!(world.aof.next_timeout(), due_at);
    world.now = world.now.plus_ms(GAP_MS - 1);
    world.append(&del_job(2));
    let open = end_of(&world);
    assert_eq!((open.mark, open.has_gap), (None, true));
    world.now = due_at;
    world.append(b"");
    let covered = end_of(&world);
    assert!(!covered.has_gap && !covered.is_closed && covered.mark.is_some());
    assert_eq!(world.aof.next_timeout(), MonoMs::NEVER);
    world.append(&del_job(3));
    world.aof.finish().expect("the disk works");
    assert!(end_of(&world).is_closed);
    let len = world.text().len();
    world.aof.finish().expect("the disk works");
    assert_eq!(world.text().len(), len, "it is closed once");
    // The next server goes on under the same mark.
    let end = end_of(&world);
    world.aof.open(world.now, end).expect("it is there");
    world.append(&del_job(4));
    world.aof.finish().expect("the disk works");
    assert_eq!(end_of(&world).mark, covered.mark);
}

#[test]
fn a_file_that_could_not_be_synced_is_rewritten_and_not_trusted_before() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("disque.aof");
    // It takes every write and cannot be synced.
    std::os::unix::fs::symlink("/dev/null", &path).expect("the name is free");
    let mut world = World::at(path.clone(), SyncPolicy::EverySecond, dir);
    world.aof.open(MonoMs(10_000), FileEnd::default()).expect("it opens");
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
    world.aof.open(MonoMs(10_000), FileEnd::default()).expect("it is there");
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
