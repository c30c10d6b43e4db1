//! The Rust clients of the registry, `disque` 0.2 and `redis` 1, as their users call them.
//!
//! Each test has a server of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use disque_client::{AddJobBuilder, Disque, JobQueryBuilder, QueueQueryBuilder};
use redis::{Commands, Value};

#[path = "integration/support.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod support;

use support::{PATIENCE, TestServer, eventually};

fn url(server: &TestServer) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

fn disque(server: &TestServer) -> Disque {
    Disque::open(&*url(server)).expect("the client connects")
}

fn redis(server: &TestServer) -> redis::Connection {
    let client = redis::Client::open(url(server)).expect("the address is well formed");
    let connection = client.get_connection().expect("the client connects");
    connection.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
    connection
}

fn add(client: &Disque, queue: &[u8], body: &[u8]) -> String {
    AddJobBuilder::new(queue, body, 0).run(client).expect("the job is added")
}

#[test]
fn disque_crate_greets_and_reads_info() {
    let server = TestServer::start();
    let client = disque(&server);
    let (version, node_id, nodes) = client.hello().expect("HELLO");
    assert_eq!((version, node_id.len()), (1, 40));
    assert_eq!(nodes, [(node_id, String::new(), server.port(), 1)]);
    let info = client.info().expect("INFO");
    // The old `redis` below it keeps every value of INFO as text.
    assert_eq!(info.get::<String>("tcp_port"), Some(server.port().to_string()));
    assert_eq!(info.get::<String>("registered_jobs").as_deref(), Some("0"));
}

#[test]
fn disque_crate_produces_consumes_and_acknowledges() {
    let server = TestServer::start();
    let client = disque(&server);
    let ids = [add(&client, b"q", b"first"), add(&client, b"q", b"\x00\r\n\xff")];
    assert!(ids.iter().all(|id| id.len() == 40 && id.starts_with("D-")), "{ids:?}");
    assert_eq!(client.qlen(b"q").expect("QLEN"), 2);
    let jobs = client.getjob_count(false, None, 10, &[b"q", b"other"]).expect("GETJOB");
    assert_eq!(
        jobs,
        [
            (b"q".to_vec(), ids[0].clone(), b"first".to_vec()),
            (b"q".to_vec(), ids[1].clone(), b"\x00\r\n\xff".to_vec()),
        ]
    );
    let id = ids[0].as_bytes();
    assert!(client.ackjob(id).expect("ACKJOB"));
    assert!(!client.ackjob(id).expect("ACKJOB again"));
    assert!(client.show(id).expect("SHOW").is_none());
    assert!(client.fastackjob(ids[1].as_bytes()).expect("FASTACK"));
    assert_eq!(client.jscan_id(0, 10, true, None, &[]).expect("JSCAN").count(), 0);
}

#[test]
fn disque_crate_blocks_until_a_job_comes() {
    let server = TestServer::start();
    let producer = disque(&server);
    let consumer = disque(&server);
    let waiting = std::thread::spawn(move || {
        consumer.getjob(false, Some(Duration::from_millis(900)), &[b"q"]).expect("GETJOB")
    });
    let blocked = || producer.info().expect("INFO").get::<String>("blocked_clients");
    eventually(blocked, |count| count.as_deref() == Some("1"));
    let id = add(&producer, b"q", b"at last");
    let job = waiting.join().expect("the consumer lives");
    assert_eq!(job, Some((b"q".to_vec(), id, b"at last".to_vec())));
}

#[test]
fn disque_crate_gives_back_and_postpones() {
    let server = TestServer::start();
    let client = disque(&server);
    let id = AddJobBuilder::new(b"q", b"hard", 0).retry(60).run(&client).expect("ADDJOB");
    client.getjob(true, None, &[b"q"]).expect("GETJOB").expect("the job is there");
    assert_eq!(client.working(id.as_bytes()).expect("WORKING"), Duration::from_secs(60));
    assert!(client.nackjob(id.as_bytes()).expect("NACK"));
    let job = client.getjob_withcounters(true, None, &[b"q"]).expect("GETJOB");
    assert_eq!(job, Some((b"q".to_vec(), id, b"hard".to_vec(), 1, 0)));
    let error = client.working(b"nonsense").expect_err("no such ID");
    assert_eq!(error.extension_error_code(), Some("BADID"));
}

#[test]
fn disque_crate_is_told_why_a_job_is_refused() {
    let server = TestServer::start();
    let client = disque(&server);
    add(&client, b"q", b"fits");
    let full = AddJobBuilder::new(b"q", b"does not", 0).maxlen(1).run(&client);
    let alone = AddJobBuilder::new(b"q", b"copies", 0).replicate(3).run(&client);
    let codes = [full, alone]
        .map(|result| result.expect_err("refused").extension_error_code().map(str::to_string));
    assert_eq!(codes, [Some("MAXLEN".to_string()), Some("NOREPL".to_string())]);
}

#[test]
fn disque_crate_moves_peeks_and_deletes() {
    let server = TestServer::start();
    let client = disque(&server);
    let id = add(&client, b"q", b"x");
    assert_eq!(client.dequeue(&[id.as_bytes()]).expect("DEQUEUE"), 1);
    assert_eq!(client.qpeek(b"q", 1).expect("QPEEK"), Vec::<Vec<Vec<u8>>>::new());
    assert_eq!(client.enqueue(&[id.as_bytes()]).expect("ENQUEUE"), 1);
    let row = vec![b"q".to_vec(), id.clone().into_bytes(), b"x".to_vec()];
    assert_eq!(client.qpeek(b"q", 1).expect("QPEEK"), [row]);
    assert_eq!(client.qstat(b"q").expect("QSTAT").len(), 10);
    assert_eq!(client.show(id.as_bytes()).expect("SHOW").expect("known").len(), 15);
    assert!(client.deljob(id.as_bytes()).expect("DELJOB"));
    assert_eq!(client.qlen(b"q").expect("QLEN"), 0);
}

#[test]
fn disque_crate_scans_to_the_end_by_itself() {
    let server = TestServer::start();
    let client = disque(&server);
    let names: BTreeSet<Vec<u8>> = (0..50).map(|n| format!("queue-{n}").into_bytes()).collect();
    let ids: BTreeSet<String> = names.iter().map(|name| add(&client, name, b"x")).collect();
    let mut queues = QueueQueryBuilder::new();
    let found: Vec<Vec<u8>> = queues.count(7).iter(&client).expect("QSCAN").collect();
    assert_eq!((found.len(), found.into_iter().collect()), (50, names));
    let mut jobs = JobQueryBuilder::new();
    let found: Vec<String> = jobs.count(7).iter_ids(&client).expect("JSCAN").collect();
    assert_eq!((found.len(), found.into_iter().collect()), (50, ids));
    let mut jobs = JobQueryBuilder::new();
    jobs.busyloop(true).queue(b"queue-7").state("queued");
    assert_eq!(jobs.iter_all(&client).expect("JSCAN").count(), 1);
}

#[test]
fn redis_crate_pings_and_reads_info_and_settings() {
    let server = TestServer::start();
    let mut client = redis(&server);
    assert_eq!(client.ping::<String>().expect("PING"), "PONG");
    let info: redis::InfoDict = redis::cmd("INFO").query(&mut client).expect("INFO");
    assert_eq!(info.get::<u16>("tcp_port"), Some(server.port()));
    let setting = |client: &mut redis::Connection| -> Vec<String> {
        redis::cmd("CONFIG").arg("GET").arg("slowlog-max-len").query(client).expect("CONFIG GET")
    };
    assert_eq!(setting(&mut client), ["slowlog-max-len", "128"]);
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("slowlog-max-len").arg(64).exec(&mut client).expect("CONFIG SET");
    assert_eq!(setting(&mut client), ["slowlog-max-len", "64"]);
}

#[test]
fn redis_crate_pipelines_jobs() {
    let server = TestServer::start();
    let mut client = redis(&server);
    let mut pipeline = redis::pipe();
    for n in 0..100 {
        pipeline.cmd("ADDJOB").arg("q").arg(n).arg(0);
    }
    let ids: Vec<String> = pipeline.query(&mut client).expect("all are added");
    let jobs: Vec<(String, String, u32)> = redis::cmd("GETJOB")
        .arg("COUNT")
        .arg(1000)
        .arg("FROM")
        .arg("q")
        .query(&mut client)
        .expect("GETJOB");
    let expected = ids.iter().zip(0..).map(|(id, n)| ("q".to_string(), id.clone(), n));
    assert_eq!(jobs, expected.collect::<Vec<_>>());
    let acked: u32 = redis::cmd("ACKJOB").arg(&ids).query(&mut client).expect("ACKJOB");
    assert_eq!(acked, 100);
    let nothing: Value =
        redis::cmd("GETJOB").arg("NOHANG").arg("FROM").arg("q").query(&mut client).expect("GETJOB");
    assert_eq!(nothing, Value::Nil);
}

#[test]
fn redis_crate_logs_in() {
    let server = TestServer::start();
    let mut admin = redis(&server);
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("requirepass").arg("secret").exec(&mut admin).expect("CONFIG SET");
    let open = |password: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}/", server.port());
        redis::Client::open(url).expect("well formed").get_connection()
    };
    assert!(open("wrong").is_err());
    assert_eq!(open("secret").expect("logs in").ping::<String>().expect("PING"), "PONG");
}
