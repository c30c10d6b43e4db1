//! Damage to the append only file: it is noticed, whatever it is, and costs what it hits.

use std::fs;

use disque::base::rng::Rng;
use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, eventually, integer, text};
use crate::trace;

const JOBS: usize = 40;
const DAMAGED: [&str; 4] = ["--appendonly", "yes", "--aof-load-damaged", "yes"];

fn info(client: &mut Client, field: &str) -> String {
    let all = text(client.call("INFO"));
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("INFO has {field}:\n{all}")).to_owned()
}

fn loaded_client(server: &TestServer) -> Client {
    let mut client = server.client();
    eventually(|| info(&mut client, "loading"), |loading| loading == "0");
    client
}

/// A server's folder with its append only file, closed by a proper stop, and the IDs of the
/// jobs that it holds. One of them is delivered at most once.
fn closed_file() -> (Vec<u8>, Vec<String>) {
    let mut server = TestServer::start_with(&["--appendonly", "yes"]);
    let mut client = server.client();
    let once = text(client.call("ADDJOB once body 0 RETRY 0"));
    // A body that is such a file itself is never taken for records.
    let inner = fs::read(server.folder().join("disque.aof")).expect("it is kept");
    let nested = text(client.call_words(&[b"ADDJOB", b"nested", &inner, b"0"]));
    let mut ids = vec![once, nested];
    for n in 0..JOBS {
        let id = text(client.call(&format!("ADDJOB q body-{n} 0")));
        if n % 4 == 0 {
            assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
        } else {
            ids.push(id);
        }
    }
    assert!(server.stop_by(libc::SIGTERM).success());
    (fs::read(server.folder().join("disque.aof")).expect("it is kept"), ids)
}

fn damage(rng: &mut Rng, file: &[u8]) -> Vec<u8> {
    let mut damaged = file.to_vec();
    let at = rng.index(file.len());
    match rng.below(4) {
        0 | 1 => damaged[at] ^= 1 << rng.below(8),
        2 => damaged.truncate(at),
        _ => {
            let end = file.len().min(at + 1 + rng.index(200));
            damaged[at..end].fill(0xa5);
        }
    }
    damaged
}

/// Starts a server on a file; returns it when the file is loaded.
fn start_on(file: &[u8], options: &[&str]) -> (TestServer, Client) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("disque.aof"), file).expect("writable");
    let server = TestServer::start_in(folder, options);
    let client = loaded_client(&server);
    (server, client)
}

fn is_known(client: &mut Client, id: &str) -> bool {
    client.call(&format!("SHOW {id}")) != Value::NullBulk
}

#[test]
fn none_of_three_hundred_damaged_files_loses_anything_silently() {
    let (file, ids) = closed_file();
    let mut rng = Rng::from_seed([17; 32]);
    let (mut cut, mut damaged) = (0, 0);
    for round in 0..300 {
        let copy = damage(&mut rng, &file);
        let (server, mut client) = start_on(&copy, &DAMAGED);
        let log = server.log();
        let is_cut = log.contains("not closed") || log.contains("ends in the middle of a record");
        let count: usize = info(&mut client, "aof_damaged_records").parse().expect("a number");
        let lost: Vec<&String> = ids.iter().filter(|id| !is_known(&mut client, id)).collect();
        assert!(is_cut || count > 0, "round {round}: {log}");
        assert_eq!(log.contains("is damaged"), count > 0, "round {round}: {log}");
        if copy.len() == file.len() && count > 0 {
            // The records that were hit, and the at-most-once job before them.
            assert!(lost.len() <= 4, "round {round} lost {lost:?}: {log}");
            damaged += 1;
        } else {
            cut += 1;
        }
        let jobs: usize = info(&mut client, "registered_jobs").parse().expect("a number");
        assert!(jobs <= ids.len() + JOBS / 4, "round {round}: nothing comes from elsewhere");
    }
    assert!(cut > 50 && damaged > 150, "{cut} were cut and {damaged} damaged");
}

#[test]
fn damage_is_refused_with_the_command_that_repairs() {
    let (mut file, ids) = closed_file();
    let at = file.windows(7).position(|bytes| bytes == b"body-20").expect("it is in there");
    file[at] ^= 4;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disque.aof");
    fs::write(&path, &file).expect("writable");
    let run = |options: &[&str]| {
        let mut program = std::process::Command::new(crate::support::server_path());
        let port = crate::support::free_port().to_string();
        program.args(["--port", &port, "--appendonly", "yes"]).args(options);
        let output = program.current_dir(folder.path()).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, said) = run(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("a record that does not match its checksum"), "{said}");
    assert!(said.contains("disque-check-aof --salvage"), "{said}");
    assert_eq!(fs::read(&path).expect("it is there"), file, "nothing was cut");

    let tool = std::process::Command::new(env!("CARGO_BIN_EXE_disque-check-aof"))
        .args(["--salvage", "disque.aof"])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(tool.status.success(), "{}", String::from_utf8_lossy(&tool.stdout));
    assert_eq!(fs::read(folder.path().join("disque.aof.damaged")).expect("a backup"), file);
    let server = TestServer::start_in(folder, &["--appendonly", "yes"]);
    let mut client = loaded_client(&server);
    let known = ids.iter().filter(|id| is_known(&mut client, id)).count();
    // Body 20 was acknowledged; the at-most-once job may have been delivered.
    assert_eq!(known, ids.len() - 1);
    assert_eq!(info(&mut client, "aof_damaged_records"), "0");
    assert!(!server.log().contains("not closed"), "{}", server.log());
}

#[test]
fn an_at_most_once_job_before_damage_is_not_delivered_again() {
    let (file, ids) = closed_file();
    let at = file.windows(7).position(|bytes| bytes == b"body-21").expect("it is in there");
    for is_damaged in [false, true] {
        let mut copy = file.clone();
        copy[at] ^= if is_damaged { 4 } else { 0 };
        let more = ["--aof-enqueue-jobs-once", "yes", "--trace-sample", "1"];
        let options = [&DAMAGED[..], &more].concat();
        let (_server, mut client) = start_on(&copy, &options);
        assert_eq!(is_known(&mut client, &ids[0]), !is_damaged);
        let me = text(client.call("CLUSTER MYID"));
        let noted = trace::events(&trace::life(&mut client, &ids[0]), &me);
        assert_eq!(noted.contains("damaged"), is_damaged, "{noted:?}");
        assert_eq!(integer(client.call("QLEN once")), if is_damaged { 0 } else { 1 });
        assert_eq!(info(&mut client, "aof_damaged_records"), if is_damaged { "1" } else { "0" });
    }
}

#[test]
fn a_stop_closes_the_file_and_a_kill_does_not() {
    for (signal, is_closed) in [(libc::SIGTERM, true), (libc::SIGKILL, false)] {
        let mut server = TestServer::start_with(&["--appendonly", "yes"]);
        let id = text(server.client().call("ADDJOB q body 0"));
        server.stop_by(signal);
        server.start_again(&["--appendonly", "yes"]);
        let mut client = loaded_client(&server);
        assert_eq!(server.log().contains("was not closed"), !is_closed);
        assert!(is_known(&mut client, &id));
        assert_eq!(info(&mut client, "aof_damaged_records"), "0");
    }
}

#[test]
fn without_checksums_the_file_is_as_a_c_server_writes_it() {
    let options = ["--appendonly", "yes", "--aof-checksums", "no"];
    let mut server = TestServer::start_with(&options);
    let id = text(server.client().call("ADDJOB q body 0"));
    assert_eq!(integer(server.client().call(&format!("ACKJOB {id}"))), 1);
    assert!(server.stop_by(libc::SIGTERM).success());
    let plain = fs::read(server.folder().join("disque.aof")).expect("it is kept");
    // 23 bytes of framing, the record, the line end; and a DELJOB.
    assert_eq!(plain.len(), 23 + 84 + 1 + 4 + 40 + 2 + 63);
    // With them from now on, what stands there already is covered as well.
    server.start_again(&["--appendonly", "yes"]);
    let mut client = loaded_client(&server);
    text(client.call("ADDJOB q body 0"));
    let path = server.folder().join("disque.aof");
    assert!(server.stop_by(libc::SIGTERM).success());
    let mut file = fs::read(&path).expect("it is kept");
    assert_eq!(file[..plain.len()], plain);
    file[plain.len() - 10] ^= 1;
    let (_server, mut client) = start_on(&file, &DAMAGED);
    assert_eq!(info(&mut client, "aof_damaged_records"), "1");
}

#[test]
fn the_age_of_what_is_not_on_the_disk_stays_within_the_policy() {
    for (policy, max_ms) in [("always", 0), ("everysec", 2000)] {
        let server = TestServer::start_with(&["--appendonly", "yes", "--appendfsync", policy]);
        let mut client = server.client();
        for _ in 0..200 {
            text(client.call("ADDJOB q body 0"));
            let window_ms: u64 = info(&mut client, "aof_loss_window_ms").parse().expect("a number");
            assert!(window_ms <= max_ms, "{window_ms} ms under {policy}");
        }
        eventually(|| info(&mut client, "aof_loss_window_ms"), |window| window == "0");
    }
    let server = TestServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let mut client = server.client();
    text(client.call("ADDJOB q body 0"));
    let is_growing = |window: &String| window.parse::<u64>().expect("a number") > 5;
    eventually(|| info(&mut client, "aof_loss_window_ms"), is_growing);
}
