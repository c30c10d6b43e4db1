//! The append only file under load: kills at any moment, and a disk that is full for a while.
//!
//! The full disk is a limit on the size of files, set and lifted while the server runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use disque::proto::aof_record::{self, AofRecord};
use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, integer, status, text};

/// What a client did, as far as it was answered.
#[derive(Default)]
struct Diary {
    added: Vec<String>,
    ended: BTreeSet<String>,
    /// The server was gone before it answered.
    uncertain: BTreeSet<String>,
}

/// Adds jobs, and acknowledges every second, until the server is gone.
fn add_and_acknowledge(mut client: Client, answered: &AtomicUsize) -> Diary {
    let mut diary = Diary::default();
    while let Some(reply) = client.call_if_open("ADDJOB q body 0 RETRY 3600") {
        let id = text(reply);
        diary.added.push(id.clone());
        answered.fetch_add(1, Ordering::Relaxed);
        if diary.added.len().is_multiple_of(2) {
            match client.call_if_open(&format!("ACKJOB {id}")) {
                Some(reply) => {
                    assert_eq!(integer(reply), 1);
                    diary.ended.insert(id);
                }
                None => {
                    diary.uncertain.insert(id);
                }
            }
        }
    }
    diary
}

fn is_known(client: &mut Client, id: &str) -> bool {
    match client.call(&format!("SHOW {id}")) {
        Value::NullBulk => false,
        Value::Array(_) => true,
        other => panic!("SHOW answers fields or nothing: {other:?}"),
    }
}

fn wait_until_loaded(client: &mut Client) {
    let is_loaded = |info: &String| info.contains("\r\nloading:0\r\n");
    eventually(|| text(client.call("INFO persistence")), is_loaded);
}

/// How many records begin each job in a server's file.
fn beginnings(server: &TestServer) -> BTreeMap<String, u32> {
    let file = fs::read(server.folder().join("disque.aof")).expect("it is kept");
    let mut counts = BTreeMap::new();
    let mut rest = file.as_slice();
    while let Some((len, record)) = aof_record::next(rest).expect("nothing is damaged") {
        if let AofRecord::LoadJob(job) = record {
            let id = String::from_utf8(job.id.0.to_vec()).expect("IDs are text");
            *counts.entry(id).or_default() += 1;
        }
        rest = &rest[len..];
    }
    counts
}

#[test]
fn a_kill_at_any_moment_under_load_keeps_what_was_answered() {
    for policy in ["always", "everysec", "no"] {
        // Rewrites are under way most of the time.
        let options = ["--appendonly", "yes", "--appendfsync", policy];
        let options = [&options[..], &["--auto-aof-rewrite-min-size", "2kb"]].concat();
        let mut server = TestServer::start_with(&options);
        let mut diaries: Vec<Diary> = Vec::new();
        for round in 1..=4 {
            let answered = AtomicUsize::new(0);
            let clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
            diaries.extend(thread::scope(|scope| {
                let work = |client| scope.spawn(|| add_and_acknowledge(client, &answered));
                let threads: Vec<_> = clients.into_iter().map(work).collect();
                eventually(|| answered.load(Ordering::Relaxed), |&count| count > round * 60);
                server.stop_by(libc::SIGKILL);
                threads.into_iter().map(|it| it.join().expect("it ends")).collect::<Vec<_>>()
            }));
            server.start_again(&options);
            let mut client = server.client();
            wait_until_loaded(&mut client);
            for diary in &diaries {
                for id in diary.added.iter().filter(|id| !diary.uncertain.contains(*id)) {
                    let is_over = diary.ended.contains(id);
                    assert_eq!(is_known(&mut client, id), !is_over, "{id} under {policy}");
                }
            }
        }
    }
}

#[test]
fn a_disk_that_was_full_gets_room_again_and_everything_is_in_the_file_once() {
    let options = ["--appendonly", "yes"];
    let mut server = TestServer::start_with(&options);
    let mut client = server.client();
    server.limit_files(64 * 1024);
    let body = "x".repeat(1000);
    let full = error("MISCONF Errors writing to the AOF file: File too large");
    let mut ids = Vec::new();
    let refusal = loop {
        assert!(ids.len() < 64, "they do not fit into 64 KiB");
        match client.call(&format!("ADDJOB q {body} 0 RETRY 3600")) {
            Value::Status(id) => ids.push(String::from_utf8(id).expect("IDs are text")),
            other => break other,
        }
    };
    assert_eq!(refusal, full);
    assert_eq!(client.call("PING"), full);
    assert!(text(client.call("INFO persistence")).contains("aof_last_write_status:err\r\n"));
    // Consumers drain the node.
    let (ended, kept) = ids.split_at(ids.len() / 2);
    let fetched = client.call("GETJOB COUNT 10 FROM q");
    assert!(matches!(&fetched, Value::Array(jobs) if jobs.len() == 10), "{fetched:?}");
    assert_eq!(integer(client.call(&format!("ACKJOB {}", ended.join(" ")))), ended.len() as i64);
    assert_eq!(client.call("PING"), full);
    let told = |text: &str| server.log().matches(text).count();
    assert_eq!(told("Error writing to the AOF file: File too large"), 1);
    server.limit_files(libc::RLIM_INFINITY);
    eventually(|| client.call("PING"), |reply| *reply == status("PONG"));
    assert!(text(client.call("INFO persistence")).contains("aof_last_write_status:ok\r\n"));
    assert_eq!(told("AOF write error looks solved, Disque can write again."), 1);
    let late = text(client.call("ADDJOB q late 0 RETRY 3600"));
    server.stop_by(libc::SIGKILL);
    let counts = beginnings(&server);
    assert!(ids.iter().chain([&late]).all(|id| counts[id] == 1), "each begins once: {counts:?}");
    server.start_again(&options);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    let loaded = format!(" seconds, {} jobs", kept.len() + 1);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("DB loaded from append only file: "));
    assert!(line.is_some_and(|line| line.ends_with(&loaded)), "{log}");
    assert!(ended.iter().all(|id| !is_known(&mut client, id)));
    assert!(kept.iter().chain([&late]).all(|id| is_known(&mut client, id)));
}

#[test]
fn nodes_conf_is_saved_when_the_disk_has_room_again() {
    let mut server = TestServer::start();
    let mut client = server.client();
    let saved = |server: &TestServer| {
        fs::read_to_string(server.folder().join("nodes.conf")).expect("it is kept")
    };
    let before = saved(&server);
    server.limit_files(0);
    assert_eq!(client.call("CLUSTER RESET HARD"), status("OK"));
    let id = text(client.call("CLUSTER MYID"));
    assert_eq!(saved(&server), before, "what cannot be replaced stays whole");
    server.limit_files(libc::RLIM_INFINITY);
    eventually(|| saved(&server), |text| text.contains(&id));
    // Until then the log took no line either.
    let told = || server.log().matches("nodes.conf is saved again").count();
    eventually(told, |&count| count == 1);
    server.stop_by(libc::SIGKILL);
    server.start_again(&[]);
    assert_eq!(server.client().call("CLUSTER MYID"), bulk(&id));
}
