//! The append only file: what is promised survives, whatever ends the server.

use std::fs;
use std::path::Path;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, array, bulk, error, eventually, integer, status, text};

const ON: [&str; 2] = ["--appendonly", "yes"];

fn info(client: &mut Client, field: &str) -> String {
    let all = text(client.call("INFO persistence"));
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("INFO has {field}:\n{all}")).to_owned()
}

fn show(client: &mut Client, id: &str, field: &str) -> Value {
    let Value::Array(fields) = client.call(&format!("SHOW {id}")) else { return Value::NullBulk };
    let at = fields.iter().position(|name| *name == bulk(field)).expect("a field of SHOW");
    fields[at + 1].clone()
}

fn wait_until_loaded(client: &mut Client) {
    eventually(|| info(client, "loading"), |loading| loading == "0");
}

fn wait_until_rewritten(client: &mut Client) {
    eventually(|| info(client, "aof_rewrite_in_progress"), |is_rewriting| is_rewriting == "0");
    assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok");
}

/// Ends a server without warning and starts it again on its files.
fn crash(server: &mut TestServer, options: &[&str]) -> Client {
    server.stop_by(libc::SIGKILL);
    start_again(server, options)
}

fn start_again(server: &mut TestServer, options: &[&str]) -> Client {
    server.start_again(options);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client
}

fn folder_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    entries.map(|entry| name(entry).into_string().expect("a text")).collect()
}

#[test]
fn what_was_answered_survives_a_kill_under_every_policy() {
    for policy in ["always", "everysec", "no"] {
        let options = ["--appendonly", "yes", "--appendfsync", policy];
        let mut server = TestServer::start_with(&options);
        let mut client = server.client();
        let ids: Vec<String> = (0..100)
            .map(|n| text(client.call(&format!("ADDJOB q body-{n} 0 RETRY 3600"))))
            .collect();
        assert_eq!(integer(client.call(&format!("ACKJOB {}", ids[..50].join(" ")))), 50);
        let mut client = crash(&mut server, &options);
        for (n, id) in ids.iter().enumerate() {
            let state = show(&mut client, id, "state");
            let expected = if n < 50 { Value::NullBulk } else { bulk("active") };
            assert_eq!(state, expected, "job {n} under {policy}");
        }
        assert!(text(client.call("INFO jobs")).contains("registered_jobs:50\r\n"));
    }
}

#[test]
fn a_job_fetched_at_most_once_is_never_seen_again() {
    let options = ["--appendonly", "yes", "--aof-enqueue-jobs-once", "yes"];
    let mut server = TestServer::start_with(&options);
    let mut client = server.client();
    let fetched = text(client.call("ADDJOB q fetched 0 RETRY 0"));
    assert_eq!(array(client.call("GETJOB FROM q")).len(), 1);
    text(client.call("ADDJOB q waiting 0 RETRY 0"));
    let mut client = crash(&mut server, &options);
    assert_eq!(show(&mut client, &fetched, "state"), Value::NullBulk);
    assert_eq!(integer(client.call("QLEN q")), 1);
    assert_eq!(array(client.call("GETJOB FROM q")).len(), 1);
    let mut client = crash(&mut server, &options);
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::NullArray);
}

#[test]
fn a_rewrite_shrinks_the_file_and_keeps_the_jobs() {
    let mut server = TestServer::start_with(&ON);
    let mut client = server.client();
    for n in 0..500 {
        let id = text(client.call(&format!("ADDJOB q body-{n} 0 RETRY 3600")));
        if n % 10 != 0 {
            assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
        }
    }
    let kept = text(client.call("ADDJOB q kept 0 RETRY 3600"));
    assert_eq!(array(client.call("GETJOB COUNT 100 FROM q")).len(), 51);
    assert_eq!(integer(client.call(&format!("NACK {kept}"))), 1);
    let before: u64 = info(&mut client, "aof_current_size").parse().expect("a number");
    let started = status("Background append only file rewriting started");
    assert_eq!(client.call("BGREWRITEAOF"), started);
    wait_until_rewritten(&mut client);
    let after: u64 = info(&mut client, "aof_current_size").parse().expect("a number");
    assert!(after * 4 < before, "{before} bytes became {after}");
    assert_eq!(info(&mut client, "aof_base_size"), after.to_string());
    let late = text(client.call("ADDJOB q late 0 RETRY 3600"));
    assert!(!folder_names(server.folder()).iter().any(|name| name.starts_with("temp-")));
    let mut client = crash(&mut server, &ON);
    assert!(text(client.call("INFO jobs")).contains("registered_jobs:52\r\n"));
    assert_eq!(show(&mut client, &kept, "nacks"), Value::Integer(1));
    assert_eq!(show(&mut client, &late, "state"), bulk("active"));
}

#[test]
fn the_file_is_rewritten_by_itself_when_it_has_grown() {
    let options = ["--appendonly", "yes", "--auto-aof-rewrite-min-size", "4kb"];
    let server = TestServer::start_with(&options);
    let mut client = server.client();
    for _ in 0..100 {
        let id = text(client.call("ADDJOB q body 0"));
        assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
    }
    eventually(|| info(&mut client, "aof_base_size"), |size| size != "0");
    wait_until_rewritten(&mut client);
}

#[test]
fn a_kill_during_a_rewrite_loses_nothing_and_leaves_nothing_behind() {
    let mut server = TestServer::start_with(&ON);
    let mut client = server.client();
    let body = "x".repeat(1000);
    let ids: Vec<String> =
        (0..3000).map(|_| text(client.call(&format!("ADDJOB q {body} 0 RETRY 3600")))).collect();
    for round in 0..5 {
        client.send_command("BGREWRITEAOF");
        let more: Vec<String> =
            (0..round * 20).map(|_| format!("ADDJOB q round-{round} 0 RETRY 3600")).collect();
        let started = status("Background append only file rewriting started");
        assert_eq!(client.reply(), started);
        for command in &more {
            text(client.call(command));
        }
        client = crash(&mut server, &ON);
        assert!(!folder_names(server.folder()).iter().any(|name| name.starts_with("temp-")));
    }
    for id in &ids {
        assert_eq!(show(&mut client, id, "state"), bulk("active"));
    }
    let count = 3000 + (20 + 40 + 60 + 80);
    assert!(text(client.call("INFO jobs")).contains(&format!("registered_jobs:{count}\r\n")));
}

#[test]
fn the_file_can_be_turned_on_and_off_while_the_server_runs() {
    let mut server = TestServer::start();
    let mut client = server.client();
    let early = text(client.call("ADDJOB q early 0 RETRY 3600"));
    assert_eq!(info(&mut client, "aof_state"), "off");
    assert_eq!(client.call("CONFIG SET appendonly yes"), status("OK"));
    let on = eventually(|| info(&mut client, "aof_state"), |state| state != "wait-rewrite");
    assert_eq!(on, "on");
    let late = text(client.call("ADDJOB q late 0 RETRY 3600"));
    assert_eq!(client.call("CONFIG SET appendonly no"), status("OK"));
    assert_eq!(info(&mut client, "aof_state"), "off");
    let lost = text(client.call("ADDJOB q lost 0 RETRY 3600"));
    server.stop_by(libc::SIGKILL);
    let mut client = start_again(&mut server, &ON);
    assert_eq!(show(&mut client, &early, "state"), bulk("active"));
    assert_eq!(show(&mut client, &late, "state"), bulk("active"));
    assert_eq!(show(&mut client, &lost, "state"), Value::NullBulk);
}

#[test]
fn a_planned_restart_puts_every_job_where_it_was() {
    let mut server = TestServer::start_with(&[]);
    let config = server.folder().join("disque.conf");
    fs::write(&config, "aof-enqueue-jobs-once yes\n").expect("it takes a file");
    let mut client = server.client();
    let once = text(client.call("ADDJOB q once 0 RETRY 0"));
    let active = text(client.call("ADDJOB other active 0 RETRY 3600"));
    assert_eq!(array(client.call("GETJOB FROM other")).len(), 1);
    client.send_command("SHUTDOWN REWRITE-AOF");
    assert!(client.is_closed());
    server.wait();
    let mut client = start_again(&mut server, &[]);
    assert_eq!(show(&mut client, &once, "state"), bulk("queued"));
    assert_eq!(show(&mut client, &active, "state"), bulk("active"));
    assert_eq!(
        client.call("CONFIG GET aof-enqueue-jobs-once"),
        Value::Array(vec![bulk("aof-enqueue-jobs-once"), bulk("no")])
    );
    let rewritten = fs::read_to_string(config).expect("the file is there");
    assert!(rewritten.contains("aof-enqueue-jobs-once no"), "{rewritten}");
}

#[test]
fn a_file_loaded_once_and_not_kept_up_is_not_loaded_again() {
    let mut server = TestServer::start();
    let mut client = server.client();
    text(client.call("ADDJOB q once 0 RETRY 0"));
    client.send_command("SHUTDOWN REWRITE-AOF");
    assert!(client.is_closed());
    server.wait();
    // Nothing can be turned off on a command line.
    let options = ["--aof-enqueue-jobs-once", "yes"];
    let mut client = start_again(&mut server, &options);
    assert!(matches!(client.call("GETJOB FROM q"), Value::Array(jobs) if jobs.len() == 1));
    let mut client = crash(&mut server, &options);
    assert_eq!(client.call("GETJOB NOHANG FROM q"), Value::NullArray);
    assert!(server.folder().join("disque.aof.loaded").exists());
}

#[test]
fn a_cut_off_tail_is_cut_with_a_warning() {
    let mut server = TestServer::start_with(&ON);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0 RETRY 3600"));
    server.stop_by(libc::SIGKILL);
    let path = server.folder().join("disque.aof");
    let mut file = fs::read(&path).expect("the file is there");
    let whole_len = file.len();
    file.extend_from_slice(b"*2\r\n$6\r\nDELJOB\r\n$40\r\nD-");
    fs::write(&path, &file).expect("it is ours");
    let mut client = start_again(&mut server, &ON);
    assert_eq!(show(&mut client, &id, "state"), bulk("active"));
    assert_eq!(info(&mut client, "aof_current_size"), whole_len.to_string());
    let log = fs::read_to_string(server.folder().join("log")).expect("a log");
    assert!(log.contains("cutting the last 23 of its"), "{log}");
}

#[test]
fn a_copy_that_was_not_written_is_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("disque.aof"))
        .expect("the name is free");
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut full = TestServer::start_in(folder, &options);
    let server = TestServer::start_with(&options);
    let mut client = server.client();
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {}", full.port())), status("OK"));
    // Both ways: a copy goes one, its confirmation the other.
    for mut client in [server.client(), full.client()] {
        let is_whole = |nodes: &String| nodes.matches(" connected\n").count() == 2;
        eventually(|| text(client.call("CLUSTER NODES")), is_whole);
    }
    let Value::Error(reply) = client.call("ADDJOB q body 1000 REPLICATE 2") else {
        panic!("nobody has a second copy")
    };
    assert!(reply.starts_with(b"NOREPL"), "{}", reply.escape_ascii());
    assert_eq!(full.wait().code(), Some(1));
}

#[test]
fn a_full_disk_stops_producers_and_lets_consumers_drain() {
    // Nothing fits on this device.
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("disque.aof"))
        .expect("the name is free");
    let server = TestServer::start_in(folder, &ON);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    let id = text(client.call("ADDJOB q body 0 RETRY 3600"));
    let full = error("MISCONF Errors writing to the AOF file: No space left on device");
    assert_eq!(client.call("ADDJOB q body 0"), full);
    assert_eq!(client.call("PING"), full);
    assert_eq!(client.call(&format!("NACK {id}")), full);
    assert_eq!(info(&mut client, "aof_last_write_status"), "err");
    assert_eq!(integer(client.call("QLEN q")), 1);
    assert!(matches!(client.call("GETJOB FROM q"), Value::Array(jobs) if jobs.len() == 1));
    assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
}

#[test]
fn under_always_a_full_disk_ends_the_server_before_anybody_is_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("disque.aof"))
        .expect("the name is free");
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::start_in(folder, &options);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.send_command("ADDJOB q body 0");
    assert!(client.is_closed());
    assert_eq!(server.wait().code(), Some(1));
}

#[test]
fn the_file_can_be_loaded_again_by_hand() {
    let server = TestServer::start_with(&ON);
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0 RETRY 3600"));
    assert_eq!(integer(client.call("QLEN q")), 1);
    assert_eq!(client.call("DEBUG LOADAOF"), status("OK"));
    assert_eq!(show(&mut client, &id, "state"), bulk("active"));
    assert_eq!(integer(client.call("QLEN q")), 0);
    let size = info(&mut client, "aof_current_size");
    assert_eq!(client.call("DEBUG LOADAOF"), status("OK"));
    assert_eq!(info(&mut client, "aof_current_size"), size, "loading writes nothing");
}
