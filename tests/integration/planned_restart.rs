//! What `systemctl restart` does: a server that is told to end finds its queues as they were
//! when it starts again, once, and only if nothing came in between.

use std::fs;
use std::io::Write as _;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, bulk, error, eventually, integer, request, status, text};

const OPTIONS: [&str; 4] = ["--appendonly", "yes", "--aof-restore-queues", "yes"];

/// Starts a server that has ended again, and waits until its jobs are loaded.
fn start_again(server: &mut TestServer, options: &[&str]) -> Client {
    server.start_again(options);
    let mut client = server.client();
    let is_loaded = |info: &String| info.contains("\r\nloading:0\r\n");
    eventually(|| text(client.call("INFO persistence")), is_loaded);
    client
}

fn add(client: &mut Client, queue: &str, body: &str, retry_secs: u32) -> String {
    text(client.call(&format!("ADDJOB {queue} {body} 0 REPLICATE 1 RETRY {retry_secs}")))
}

fn state(client: &mut Client, id: &str) -> Value {
    let Value::Array(fields) = client.call(&format!("SHOW {id}")) else { return Value::NullBulk };
    let at = fields.iter().position(|name| *name == bulk("state")).expect("a field of SHOW");
    fields[at + 1].clone()
}

/// The bodies in a queue, in their order, without taking them out.
fn bodies(client: &mut Client, queue: &str) -> Vec<String> {
    let Value::Array(rows) = client.call(&format!("QPEEK {queue} 100")) else { return Vec::new() };
    let body = |row: Value| match row {
        Value::Array(row) => text(row[2].clone()),
        other => panic!("a row is an array: {other:?}"),
    };
    rows.into_iter().map(body).collect()
}

#[test]
fn a_server_that_is_told_to_end_finds_its_queues_as_they_were() {
    let mut server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    let worked_on = add(&mut client, "q", "worked-on", 100);
    assert!(matches!(client.call("GETJOB FROM q"), Value::Array(_)));
    let once = add(&mut client, "once", "never-delivered", 0);
    let delivered = add(&mut client, "other", "delivered", 0);
    assert!(matches!(client.call("GETJOB FROM other"), Value::Array(_)));
    for body in ["first", "second", "third"] {
        add(&mut client, "q", body, 100);
    }
    for end in ["SIGTERM", "SIGINT", "SHUTDOWN", "SHUTDOWN REWRITE-AOF"] {
        let code = match end {
            "SIGTERM" => server.stop_by(libc::SIGTERM),
            "SIGINT" => server.stop_by(libc::SIGINT),
            command => {
                assert!(client.send_command(command).is_closed());
                server.wait()
            }
        };
        assert_eq!(code.code(), Some(0), "{end}");
        client = start_again(&mut server, &OPTIONS);
        assert_eq!(bodies(&mut client, "q"), ["first", "second", "third"], "{end}");
        assert_eq!(state(&mut client, &worked_on), bulk("active"), "{end}");
        assert_eq!(state(&mut client, &once), bulk("queued"), "{end}");
        assert_eq!(state(&mut client, &delivered), Value::NullBulk, "{end}");
    }
    assert_eq!(server.log().matches("The queues are left to the next start").count(), 4);
    assert_eq!(server.log().matches("The stop was planned: jobs are in their queues").count(), 4);
    assert!(matches!(client.call("GETJOB FROM once"), Value::Array(_)));
    server.stop_by(libc::SIGTERM);
    let mut client = start_again(&mut server, &OPTIONS);
    assert_eq!(client.call("GETJOB NOHANG FROM once"), Value::NullArray);
}

#[test]
fn debug_restart_is_a_planned_restart() {
    let server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    add(&mut client, "q", "body", 100);
    client.send_command("DEBUG RESTART");
    let bodies_again = || {
        let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", server.port())) else {
            return Vec::new();
        };
        let mut client = Client::over(stream);
        match client.call_if_open("INFO persistence") {
            Some(info) if text(info.clone()).contains("\r\nloading:0\r\n") => {
                bodies(&mut client, "q")
            }
            _ => Vec::new(),
        }
    };
    assert!(client.is_closed());
    eventually(bodies_again, |bodies| bodies == &["body"]);
}

#[test]
fn a_kill_after_the_start_finds_them_as_any_kill_does() {
    let mut server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    let id = add(&mut client, "q", "body", 100);
    server.stop_by(libc::SIGTERM);
    start_again(&mut server, &OPTIONS);
    server.stop_by(libc::SIGKILL);
    let mut client = start_again(&mut server, &OPTIONS);
    assert_eq!(state(&mut client, &id), bulk("active"));
}

#[test]
fn a_file_that_was_changed_meanwhile_is_not_trusted_with_queues() {
    let mut server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    let id = add(&mut client, "q", "body", 100);
    server.stop_by(libc::SIGTERM);
    // As a C server does that acknowledges a job.
    let other = format!("D-dcb833cf-{}-05a1", "a".repeat(24));
    let mut file = fs::File::options()
        .append(true)
        .open(server.folder().join("disque.aof"))
        .expect("it is there");
    file.write_all(&request(&[b"DELJOB", other.as_bytes()])).expect("it is ours");
    let mut client = start_again(&mut server, &OPTIONS);
    assert_eq!(state(&mut client, &id), bulk("active"));
}

#[test]
fn without_the_directive_queued_jobs_wait_for_their_retry_then_and_later() {
    let on = ["--appendonly", "yes"];
    let mut server = TestServer::start_with(&on);
    let mut client = server.client();
    let id = add(&mut client, "q", "body", 100);
    server.stop_by(libc::SIGTERM);
    let mut client = start_again(&mut server, &OPTIONS);
    assert_eq!(state(&mut client, &id), bulk("active"));
    assert_eq!(integer(client.call(&format!("ENQUEUE {id}"))), 1);
    server.stop_by(libc::SIGTERM);
    for options in [&on[..], &OPTIONS] {
        let mut client = start_again(&mut server, options);
        assert_eq!(state(&mut client, &id), bulk("active"));
        server.stop_by(libc::SIGKILL);
    }
}

#[test]
fn a_server_ends_though_its_queues_cannot_be_left() {
    let mut server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    let ids: Vec<String> = (0..20).map(|_| add(&mut client, "q", "body", 100)).collect();
    // A rewrite needs a file of its own, and there is no room for it.
    let in_the_way = format!("temp-rewriteaof-{}.aof", server.pid());
    fs::create_dir(server.folder().join(in_the_way)).expect("the name is free");
    assert_eq!(server.stop_by(libc::SIGTERM).code(), Some(0));
    let log = server.log();
    assert!(log.contains("Can't leave the queues to the next start: Is a directory"), "{log}");
    let mut client = start_again(&mut server, &OPTIONS);
    for id in ids {
        assert_eq!(state(&mut client, &id), bulk("active"));
    }
}

#[test]
fn a_stop_while_jobs_are_loaded_leaves_what_the_last_one_left() {
    const COUNT: i64 = 50_000;
    let mut server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    for _ in 0..COUNT / 1000 {
        client.send("ADDJOB q body 0 REPLICATE 1 RETRY 1000\r\n".repeat(1000));
        (0..1000).for_each(|_| drop(text(client.reply())));
    }
    for _ in 0..3 {
        server.stop_by(libc::SIGTERM);
        // It serves while it loads; most likely it still does when it is stopped.
        server.start_again(&OPTIONS);
    }
    server.stop_by(libc::SIGTERM);
    let mut client = start_again(&mut server, &OPTIONS);
    assert_eq!(integer(client.call("QLEN q")), COUNT);
}

#[test]
fn a_server_without_a_file_says_what_ends_with_it() {
    let mut server = TestServer::start();
    let mut client = server.client();
    for _ in 0..3 {
        add(&mut client, "q", "body", 100);
    }
    let acknowledged = add(&mut client, "q", "body", 100);
    assert_eq!(integer(client.call(&format!("ACKJOB {acknowledged}"))), 1);
    server.stop_by(libc::SIGTERM);
    let log = server.log();
    let line = "The append only file is off: 3 jobs end with this server, 3 of them without a copy";
    assert!(log.contains(line), "{log}");
}

#[test]
fn the_directive_is_shown_and_set() {
    let server = TestServer::start();
    let mut client = server.client();
    let shown = |value: &str| Value::Array(vec![bulk("aof-restore-queues"), bulk(value)]);
    assert_eq!(client.call("CONFIG GET aof-restore-queues"), shown("no"));
    assert_eq!(client.call("CONFIG SET aof-restore-queues yes"), status("OK"));
    assert_eq!(client.call("CONFIG GET aof-restore-queues"), shown("yes"));
    let wrong = error("ERR Invalid argument 'x' for CONFIG SET 'aof-restore-queues'");
    assert_eq!(client.call("CONFIG SET aof-restore-queues x"), wrong);
}
