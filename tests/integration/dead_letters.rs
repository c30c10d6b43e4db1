//! Jobs that fail for good: on one server that is killed meanwhile, and on nodes that have copies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use disque::proto::reply_reader::Value;

use crate::mesh::{Mesh, OPTIONS};
use crate::support::{Client, TestServer, bulk, eventually, integer, text};

const POLICY: [&str; 4] = ["--queue-policy", "q", "max-deliveries", "1"];

/// A field of a job that SHOW has; `None` where the node does not know the job, or it has no such
/// field.
fn shown(client: &mut Client, id: &str, name: &str) -> Option<Value> {
    let Value::Array(fields) = client.call(&format!("SHOW {id}")) else { return None };
    let at = fields.iter().step_by(2).position(|field| *field == bulk(name))?;
    fields.get(2 * at + 1).cloned()
}

/// Why a job is dead, if it is.
fn death_reason(client: &mut Client, id: &str) -> Option<Value> {
    let Value::Array(facts) = shown(client, id, "dead")? else { panic!("facts are an array") };
    assert_eq!(facts[0], bulk("reason"));
    Some(facts[1].clone())
}

/// What became of a job, as far as its client was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Dead(&'static str),
    Acked,
    /// The server was gone before it answered.
    Uncertain,
}

/// Adds jobs and has most of them end in one way or another, until the server is gone.
fn let_jobs_die(mut client: Client, queue: &str, answered: &AtomicUsize) -> BTreeMap<String, Fate> {
    let mut fates = BTreeMap::new();
    while let Some(reply) = client.call_if_open(&format!("ADDJOB {queue} body 0 RETRY 3600")) {
        let id = text(reply);
        fates.insert(id.clone(), Fate::Uncertain);
        if client.call_if_open(&format!("GETJOB FROM {queue}")).is_none() {
            break;
        }
        let steps: &[(&str, Fate)] = match fates.len() % 5 {
            0 => &[("NACK", Fate::Dead("max-deliveries"))],
            1 => &[("NACK DEAD", Fate::Dead("nack"))],
            2 => &[("NACK", Fate::Dead("max-deliveries")), ("ACKJOB", Fate::Acked)],
            3 => &[("ACKJOB", Fate::Acked)],
            _ => &[],
        };
        let mut fate = Fate::Kept;
        for (command, next) in steps {
            let line = match *command {
                "NACK DEAD" => format!("NACK {id} DEAD"),
                command => format!("{command} {id}"),
            };
            fate = match client.call_if_open(&line) {
                Some(reply) => {
                    assert_eq!(integer(reply), 1, "{line}");
                    *next
                }
                None => Fate::Uncertain,
            };
        }
        fates.insert(id, fate);
        answered.fetch_add(1, Ordering::Relaxed);
    }
    fates
}

#[test]
fn what_died_or_was_acknowledged_before_a_kill_is_so_after_it() {
    let policy = ["--queue-policy", "q?", "max-deliveries", "1"];
    let options =
        [&["--appendonly", "yes", "--auto-aof-rewrite-min-size", "2kb"][..], &policy].concat();
    let mut server = TestServer::start_with(&options);
    let mut fates: BTreeMap<String, Fate> = BTreeMap::new();
    for round in 1..=4 {
        let answered = AtomicUsize::new(0);
        let clients: Vec<(Client, String)> =
            (0..3).map(|n| (server.client(), format!("q{n}"))).collect();
        let diaries: Vec<_> = thread::scope(|scope| {
            let answered = &answered;
            let work = |(client, queue): (Client, String)| {
                scope.spawn(move || let_jobs_die(client, &queue, answered))
            };
            let threads: Vec<_> = clients.into_iter().map(work).collect();
            eventually(|| answered.load(Ordering::Relaxed), |&count| count > round * 40);
            server.stop_by(libc::SIGKILL);
            threads.into_iter().map(|it| it.join().expect("it ends")).collect()
        });
        fates.extend(diaries.into_iter().flatten());
        server.start_again(&options);
        let mut client = server.client();
        let is_loaded = |info: &String| info.contains("\r\nloading:0\r\n");
        eventually(|| text(client.call("INFO persistence")), is_loaded);
        for (id, fate) in fates.iter().filter(|(_, fate)| **fate != Fate::Uncertain) {
            let is_known = matches!(client.call(&format!("SHOW {id}")), Value::Array(_));
            assert_eq!(is_known, *fate != Fate::Acked, "{id} is {fate:?}");
            let reason = match fate {
                Fate::Dead(reason) => Some(bulk(reason)),
                _ => None,
            };
            assert_eq!(death_reason(&mut client, id), reason, "{id} is {fate:?}");
        }
    }
    let dead = fates.values().filter(|fate| matches!(fate, Fate::Dead(_))).count();
    assert!(dead > 20, "{dead} of {}", fates.len());
}

#[test]
fn all_nodes_know_who_is_dead_and_a_restart_does_not_change_it() {
    let options = [&OPTIONS[..], &["--appendonly", "yes"], &POLICY].concat();
    let servers = (0..3).map(|_| TestServer::start_with(&options)).collect();
    let mut mesh = Mesh::at("127.0.0.1", servers);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3 RETRY 600 ATTR a b"));
    assert_ne!(mesh.client(0).call("GETJOB FROM q"), Value::NullArray);
    assert_eq!(integer(mesh.client(1).call(&format!("NACK {id} REASON why"))), 1);
    let is_dead = |reason: &Option<Value>| *reason == Some(bulk("max-deliveries"));
    for n in 0..3 {
        eventually(|| death_reason(&mut mesh.client(n), &id), is_dead);
        assert_eq!(shown(&mut mesh.client(n), &id, "queue"), Some(bulk("q.dead")));
    }
    mesh.servers[2].stop_by(libc::SIGKILL);
    mesh.servers[2].start_again(&options);
    eventually(|| death_reason(&mut mesh.client(2), &id), is_dead);
    mesh.wait_until_whole();

    // It is one job, wherever it is fetched.
    let Value::Array(rows) = mesh.client(1).call("GETJOB WITHATTRS FROM q.dead") else {
        panic!("the dead letter is there");
    };
    let Value::Array(row) = &rows[0] else { panic!("a row") };
    assert_eq!(row[..3], [bulk("q.dead"), bulk(&id), bulk("body")]);
    assert_eq!(row[3..6], [bulk("attrs"), Value::Array(vec![bulk("a"), bulk("b")]), bulk("dead")]);
    assert_eq!(integer(mesh.client(2).call(&format!("ACKJOB {id}"))), 1);
    for n in 0..3 {
        eventually(|| shown(&mut mesh.client(n), &id, "state"), Option::is_none);
    }
}

#[test]
fn a_job_can_die_where_memory_is_full() {
    let server = TestServer::start_with(&POLICY);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0"));
    let other = text(client.call("ADDJOB q body 0"));
    assert_ne!(client.call("GETJOB COUNT 2 FROM q"), Value::NullArray);
    client.ok("CONFIG SET maxmemory 1");
    let refused = client.call(&format!("NACK {other}"));
    assert!(matches!(refused, Value::Error(text) if text.starts_with(b"OOM ")));
    assert_eq!(integer(client.call(&format!("NACK {id} DEAD REASON full"))), 1);
    assert_eq!(death_reason(&mut client, &id), Some(bulk("nack")));
}
