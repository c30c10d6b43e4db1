//! What the server does to a real disk, and what is left of it when the power fails.
//!
//! The server runs with a library that records what it writes, syncs, renames and sends, in
//! that order. The order is held to the rules first: nothing is said before it is on the
//! disk, no file takes the place of another before it is, and names are made durable. Then the
//! trace is played to a disk that forgets what was not synced, up to moments drawn from a
//! seed; a server is started on what is left, and asked for everything that clients had been
//! promised by then.
//!
//! `make power-loss POINTS=1000 SEED=7` draws more moments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use disque::base::rng::Rng;
use disque::proto::reply_reader::{ReplyReader, Value};
use tempfile::TempDir;

#[path = "power/disk.rs"]
mod disk;
mod environment;
#[path = "integration/support.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod support;
#[path = "power/trace.rs"]
mod trace;

use disk::Disk;
use support::{Client, TestServer, bulk, eventually, status, text};
use trace::Event;

/// Moments of one trace, without POINTS.
const POINTS: u64 = 40;
/// Commands of the client.
const STEPS: usize = 150;
const OPTIONS: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
const AOF: &str = "disque.aof";
const NODES: &str = "nodes.conf";
const CONFIG: &str = "disque.conf";
/// Whoever answers this speaks to the client whose promises count.
const MARK: &str = "the-client-of-this-test";

fn seed_bytes(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// What a command is about, so that its reply says what is promised.
#[derive(Clone, Debug)]
enum Step {
    Add,
    /// An at-most-once job, fetched when it was answered.
    FetchOnce,
    Ack(String),
    Leave(bool),
    SetMaxclients(u32),
    RewriteConfig,
    RewriteAof,
}

/// What clients were promised.
#[derive(Clone, Debug, Default)]
struct Promises {
    known: BTreeSet<String>,
    ended: BTreeSet<String>,
    is_leaving: bool,
    maxclients: u32,
    /// As the configuration's file has it.
    written_maxclients: u32,
}

impl Promises {
    fn answer(&mut self, step: &Step, reply: &Value) {
        match (step, reply) {
            (Step::Add, Value::Status(id)) => {
                self.known.insert(String::from_utf8_lossy(id).into_owned());
            }
            (Step::FetchOnce, Value::Array(rows)) => {
                let Value::Array(row) = &rows[0] else { panic!("a row is an array") };
                let id = text(row[1].clone());
                self.known.remove(&id);
                self.ended.insert(id);
            }
            (Step::FetchOnce, Value::NullArray) => {}
            (Step::Ack(id), Value::Integer(1)) => {
                self.known.remove(id);
                self.ended.insert(id.clone());
            }
            (Step::Leave(is_leaving), Value::Status(_)) => self.is_leaving = *is_leaving,
            (Step::SetMaxclients(count), Value::Status(_)) => self.maxclients = *count,
            (Step::RewriteConfig, Value::Status(_)) => self.written_maxclients = self.maxclients,
            (Step::RewriteAof, Value::Status(_) | Value::Error(_)) => {}
            _ => panic!("{step:?} answers {reply:?}"),
        }
    }
}

/// A run of a server, recorded.
struct Recording {
    /// It has ended; its configuration names its folder, which has to be there.
    _server: TestServer,
    /// What was in the folder before.
    before: BTreeMap<String, Vec<u8>>,
    events: Vec<Event>,
    node_id: String,
    steps: Vec<Step>,
}

fn record(seed: u64, busy: &[&str]) -> Recording {
    let mut rng = Rng::from_seed(seed_bytes(seed));
    let (folder, traces) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, traces) = (folder.expect("a folder"), traces.expect("a folder"));
    let trace = traces.path().join("trace");
    let mut before = BTreeMap::from([(CONFIG.to_owned(), b"maxclients 1000\n".to_vec())]);
    for name in busy.iter().filter(|name| **name != CONFIG) {
        // A mount is there before the server.
        before.insert((*name).to_owned(), Vec::new());
    }
    for (name, bytes) in &before {
        fs::write(folder.path().join(name), bytes).expect("it takes a file");
    }
    let tool = trace::recorded(&trace, folder.path(), busy);
    let tool: Vec<&str> = tool.iter().map(String::as_str).collect();
    let mut server = TestServer::start_under_in(&tool, folder, &OPTIONS);
    let mut client = server.client();
    assert_eq!(client.call(&format!("CLIENT SETNAME {MARK}")), status("OK"));
    assert_eq!(client.call("CLIENT GETNAME"), bulk(MARK));
    let node_id = text(client.call("CLUSTER MYID"));
    let mut steps = Vec::new();
    let mut jobs: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        // A node that leaves takes no jobs.
        let (step, command) = match steps.last() {
            Some(Step::Leave(true)) => leave(false),
            _ => draw_step(&mut rng, &mut jobs),
        };
        let reply = client.call(&command);
        if let (Step::Add, Value::Status(id)) = (&step, &reply)
            && !command.contains(" once ")
        {
            jobs.push(String::from_utf8_lossy(id).into_owned());
        }
        steps.push(step);
    }
    let is_over = |info: &String| info.contains("\r\naof_rewrite_in_progress:0\r\n");
    eventually(|| text(client.call("INFO persistence")), is_over);
    // What is recorded of a killed server is all that it did.
    server.stop_by(libc::SIGKILL);
    Recording { _server: server, before, events: trace::read(&trace), node_id, steps }
}

fn draw_step(rng: &mut Rng, jobs: &mut Vec<String>) -> (Step, String) {
    match rng.below(100) {
        0..35 => (Step::Add, format!("ADDJOB q {} 0 RETRY 100", "x".repeat(1 + rng.index(300)))),
        35..45 => (Step::Add, "ADDJOB once body 0 RETRY 0".into()),
        45..55 => (Step::FetchOnce, "GETJOB NOHANG FROM once".into()),
        55..75 if !jobs.is_empty() => {
            let id = jobs.swap_remove(rng.index(jobs.len()));
            let command = format!("ACKJOB {id}");
            (Step::Ack(id), command)
        }
        75..85 => leave(true),
        85..90 => {
            let count = 100 + rng.below(900);
            (Step::SetMaxclients(count), format!("CONFIG SET maxclients {count}"))
        }
        90..95 => (Step::RewriteConfig, "CONFIG REWRITE".into()),
        _ => (Step::RewriteAof, "BGREWRITEAOF".into()),
    }
}

fn leave(is_leaving: bool) -> (Step, String) {
    let word = if is_leaving { "yes" } else { "no" };
    (Step::Leave(is_leaving), format!("CLUSTER LEAVING {word}"))
}

impl Recording {
    /// The socket of the client whose promises count.
    fn socket(&self) -> u64 {
        let is_marked =
            |bytes: &[u8]| bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes());
        let mut marked = self.events.iter().filter_map(|event| match event {
            Event::Send { socket, bytes } if is_marked(bytes) => Some(*socket),
            _ => None,
        });
        marked.next().expect("the client was answered")
    }

    /// What was promised by the replies that were sent before an event.
    fn promises_before(&self, end: usize) -> (Promises, usize) {
        let socket = self.socket();
        let mut replies = ReplyReader::default();
        for event in &self.events[..end] {
            if let Event::Send { socket: to, bytes } = event
                && *to == socket
            {
                replies.feed(bytes);
            }
        }
        let mut promises =
            Promises { maxclients: 1000, written_maxclients: 1000, ..Promises::default() };
        let mut answered = 0;
        // The first three are not of the steps.
        let mut greetings = 3;
        while let Some(reply) = replies.next_value().expect("well-formed replies") {
            if greetings > 0 {
                greetings -= 1;
            } else if let Some(step) = self.steps.get(answered) {
                promises.answer(step, &reply);
                answered += 1;
            }
        }
        (promises, answered)
    }
}

#[test]
fn nothing_is_said_before_it_is_on_the_disk() {
    let recording = record(1, &[]);
    let mut disk = Disk::with(&recording.before);
    let mut sent = 0;
    for event in &recording.events {
        if let Event::Send { .. } = event {
            sent += 1;
            let unsynced = disk.unsynced();
            // A file that is not yet what it will be has nothing that was promised.
            let is_kept = |name: &&&str| [AOF, NODES, CONFIG].contains(*name);
            let said_early: Vec<_> = unsynced.iter().filter(is_kept).collect();
            assert!(said_early.is_empty(), "{event:?} while {said_early:?} are not synced");
        }
        disk.apply(event);
    }
    assert!(sent > STEPS, "the trace has the replies");
}

#[test]
fn a_file_takes_the_place_of_another_when_it_is_on_the_disk_and_has_it_for_good() {
    let recording = record(2, &[]);
    let mut disk = Disk::with(&recording.before);
    let mut replaced = BTreeSet::new();
    let mut events = recording.events.iter();
    while let Some(event) = events.next() {
        if let Event::Rename { from, to } = event {
            replaced.insert(to.as_str());
            let unsynced = disk.unsynced();
            assert!(!unsynced.contains(&from.as_str()), "{from} is renamed and not synced");
            // Until the folder is synced nobody hears of it. Another thread may do it while
            // the loop goes on with the append only file, or sync that file meanwhile.
            if to != AOF {
                let next = events.clone().find(|event| !matches!(event, Event::Sync { .. }));
                assert_eq!(next, Some(&Event::SyncFolder), "behind {event:?}");
            }
        }
        disk.apply(event);
    }
    assert_eq!(replaced, BTreeSet::from([AOF, NODES, CONFIG]), "each was replaced");
    assert!(!disk.has_unsynced_names(), "the folder was synced after the last rename");
}

#[test]
fn what_was_promised_survives_a_loss_of_power() {
    survives(3, &[]);
}

#[test]
fn what_was_promised_survives_a_loss_of_power_where_files_are_mounts() {
    survives(4, &[NODES, CONFIG]);
}

fn survives(seed: u64, busy: &[&str]) {
    let seed = environment::number("SEED").unwrap_or(seed);
    let points = environment::count("POINTS", POINTS);
    let recording = record(seed, busy);
    let mut rng = Rng::from_seed(seed_bytes(!seed));
    // The power may fail before any event, once the node has told its ID.
    let promised_from = (0..recording.events.len())
        .find(|end| recording.promises_before(*end).1 > 0)
        .expect("steps were answered");
    for _ in 0..points {
        let end = promised_from + rng.index(recording.events.len() - promised_from);
        let mut disk = Disk::with(&recording.before);
        recording.events[..end].iter().for_each(|event| disk.apply(event));
        let left = disk.after_power_loss(&mut rng);
        let (promises, answered) = recording.promises_before(end);
        let told = format!("seed {seed}: power fails before event {end}");
        check(&recording, &promises, answered, left, &told);
    }
}

/// Starts a server on what is left and asks for what was promised.
fn check(
    recording: &Recording,
    promises: &Promises,
    answered: usize,
    left: BTreeMap<String, Vec<u8>>,
    told: &str,
) {
    let folder = folder_with(&left);
    let dir = folder.path().to_str().expect("a text").to_owned();
    let server = TestServer::start_in(folder, &[&OPTIONS[..], &["--dir", &dir]].concat());
    let mut client = server.client();
    let is_loaded = |info: &String| info.contains("\r\nloading:0\r\n");
    eventually(|| text(client.call("INFO persistence")), is_loaded);
    assert_eq!(text(client.call("CLUSTER MYID")), recording.node_id, "{told}: the node's ID");
    let under_way = recording.steps.get(answered);
    let may_be_ended = match under_way {
        Some(Step::Ack(id)) => Some(id.as_str()),
        _ => None,
    };
    for id in &promises.known {
        // An at-most-once job that was being fetched is gone or there.
        let is_fetched = matches!(under_way, Some(Step::FetchOnce)) && !is_known(&mut client, id);
        let may_be_gone = may_be_ended == Some(id) || is_fetched;
        assert!(may_be_gone || is_known(&mut client, id), "{told}: {id} is lost");
    }
    for id in &promises.ended {
        assert!(!is_known(&mut client, id), "{told}: {id} is back");
    }
    if !matches!(under_way, Some(Step::Leave(_))) {
        let is_leaving = client.call("CLUSTER LEAVING") == status("yes");
        assert_eq!(is_leaving, promises.is_leaving, "{told}: whether it leaves");
    }
    if !matches!(under_way, Some(Step::RewriteConfig)) {
        let Value::Array(pair) = client.call("CONFIG GET maxclients") else { panic!("a pair") };
        let expected = promises.written_maxclients.to_string();
        assert_eq!(pair[1], bulk(expected), "{told}: the configuration");
    }
}

fn folder_with(files: &BTreeMap<String, Vec<u8>>) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(Path::new(folder.path()).join(name), bytes).expect("it takes a file");
    }
    folder
}

fn is_known(client: &mut Client, id: &str) -> bool {
    client.call(&format!("SHOW {id}")) != Value::NullBulk
}
