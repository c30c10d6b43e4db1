//! SLOWLOG, LATENCY, MONITOR, DEBUG: what an operator looks into and breaks on purpose.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;

use disque::proto::reply_reader::Value;

use crate::support::{Client, TestServer, array, bulk, error, eventually, integer, status, text};

fn log_of(server: &TestServer) -> String {
    fs::read_to_string(server.folder().join("log")).expect("the server logs")
}

#[test]
fn the_slow_log_keeps_what_was_slow_newest_first() {
    let server = TestServer::start_with(&["--slowlog-log-slower-than", "20000"]);
    let mut client = server.client();
    assert_eq!(client.call("SLOWLOG LEN"), Value::Integer(0));
    client.ok("DEBUG SLEEP 0.03");
    client.ok("DEBUG SLEEP 0.04");
    assert_eq!(client.call("PING"), status("PONG"));
    assert_eq!(client.call("SLOWLOG LEN"), Value::Integer(2));
    let entries = array(client.call("SLOWLOG GET"));
    assert_eq!(entries.len(), 2);
    let newest = array(entries[0].clone());
    assert_eq!(newest.len(), 4);
    assert_eq!(newest[0], Value::Integer(1));
    assert!(integer(newest[1].clone()) > 1_600_000_000);
    assert!(integer(newest[2].clone()) >= 40_000);
    assert_eq!(newest[3], Value::Array(vec![bulk("DEBUG"), bulk("SLEEP"), bulk("0.04")]));
    assert_eq!(array(client.call("SLOWLOG GET 1")).len(), 1);
    assert_eq!(array(client.call("SLOWLOG GET 0")).len(), 0);
    assert_eq!(array(client.call("SLOWLOG GET -1")).len(), 2);
    assert_eq!(client.call("SLOWLOG GET x"), error("ERR value is not an integer or out of range"));
    client.ok("CONFIG SET slowlog-max-len 1");
    assert_eq!(client.call("SLOWLOG LEN"), Value::Integer(1));
    assert_eq!(client.call("SLOWLOG RESET"), status("OK"));
    assert_eq!(client.call("SLOWLOG LEN"), Value::Integer(0));
    assert_eq!(
        client.call("SLOWLOG TRIM"),
        error("ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.")
    );
}

#[test]
fn passwords_are_in_neither_slow_log_nor_monitor() {
    let server = TestServer::start_with(&["--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    let mut monitor = server.client();
    assert_eq!(monitor.call("MONITOR"), status("OK"));
    client.ok("CONFIG SET requirepass hidden-word");
    assert_eq!(client.call("AUTH hidden-word"), status("OK"));
    assert!(matches!(client.call("HELLO 3 AUTH default hidden-word"), Value::Map(_)));
    let entries = format!("{:?}", client.call("SLOWLOG GET 100"));
    let hidden = format!("{:?}", bulk("hidden-word"));
    assert!(!entries.contains(&hidden), "{entries}");
    for command in ["CONFIG", "AUTH", "HELLO", "SLOWLOG"] {
        let line = text(monitor.reply());
        assert!(line.contains(&format!("\"{command}\"")), "{line}");
        assert!(!line.contains("hidden-word"), "{line}");
    }
}

#[test]
fn a_monitor_sees_each_command_of_each_client() {
    let server = TestServer::start();
    let mut monitor = server.client();
    assert_eq!(monitor.call("MONITOR"), status("OK"));
    let stream = server.connect();
    let address = stream.local_addr().expect("it is connected").to_string();
    let mut client = Client::over(stream);
    assert_eq!(client.call("nosuch command"), error("ERR unknown command 'nosuch'"));
    text(client.call_words(&[b"ADDJOB", b"a \"q\"", b"\r\n\xff", b"0"]));
    let line = text(monitor.reply());
    let (time, rest) = line.split_once(' ').expect("time and the rest");
    let (secs, micros) = time.split_once('.').expect("seconds and microseconds");
    assert!(secs.parse::<u64>().is_ok_and(|secs| secs > 1_600_000_000));
    assert!(micros.len() == 6 && micros.parse::<u32>().is_ok());
    assert_eq!(rest, format!(r#"[{address}] "ADDJOB" "a \"q\"" "\r\n\xff" "0""#));
    // A second MONITOR is not answered; what follows it is.
    let own = text(monitor.call("MONITOR"));
    assert!(own.ends_with(r#""MONITOR""#), "{own}");
    assert_eq!(client.call("PING"), status("PONG"));
    let next = text(monitor.reply());
    assert!(next.ends_with(r#""PING""#), "{next}");
}

#[test]
fn a_monitor_shows_unix_clients_by_their_socket() {
    let server = TestServer::start_with(&["--unixsocket", "disque.sock"]);
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    let mut client = Client::over_unix(&server.folder().join("disque.sock"));
    assert_eq!(client.call("PING"), status("PONG"));
    let line = text(monitor.reply());
    assert!(line.ends_with(r#" [unix:disque.sock] "PING""#), "{line}");
}

#[test]
fn latency_is_kept_from_the_threshold_on() {
    let server = TestServer::start();
    let mut client = server.client();
    client.ok("DEBUG SLEEP 0.03");
    assert_eq!(client.call("LATENCY LATEST"), Value::Array(vec![]));
    assert!(text(client.call("LATENCY DOCTOR")).contains("CONFIG SET latency-monitor-threshold"));
    client.ok("CONFIG SET latency-monitor-threshold 20");
    client.ok("DEBUG SLEEP 0.03");
    let latest = array(client.call("LATENCY LATEST"));
    assert_eq!(latest.len(), 1);
    let latest = array(latest[0].clone());
    assert_eq!(latest[0], bulk("command"));
    let latency_ms = integer(latest[2].clone());
    assert!(latency_ms >= 30);
    assert_eq!(latest[3], Value::Integer(latency_ms));
    assert_eq!(
        client.call("LATENCY HISTORY command"),
        Value::Array(vec![Value::Array(vec![latest[1].clone(), latest[2].clone()])])
    );
    assert_eq!(client.call("LATENCY HISTORY nosuch"), Value::Array(vec![]));
    let graph = text(client.call("LATENCY GRAPH command"));
    assert!(graph.starts_with(&format!("command - high {latency_ms} ms, low {latency_ms} ms")));
    assert_eq!(graph.lines().nth(1), Some("-".repeat(80).as_str()));
    assert_eq!(
        client.call("LATENCY GRAPH nosuch"),
        error("ERR No samples available for event 'nosuch'")
    );
    assert!(text(client.call("LATENCY DOCTOR")).contains("1. command: 1 spikes"));
    assert_eq!(client.call("LATENCY RESET fork"), Value::Integer(0));
    assert_eq!(client.call("LATENCY RESET"), Value::Integer(1));
    assert_eq!(
        client.call("LATENCY"),
        error("ERR wrong number of arguments for 'latency' command")
    );
    assert_eq!(client.call("LATENCY NOSUCH"), error("ERR syntax error"));
}

/// The events that LATENCY LATEST lists.
fn latency_events(client: &mut Client) -> Vec<String> {
    let events = array(client.call("LATENCY LATEST")).into_iter();
    events.map(|event| text(array(event)[0].clone())).collect()
}

#[test]
fn latency_of_the_disk_is_kept_by_what_the_server_waited_for() {
    let server = TestServer::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "no",
        "--latency-monitor-threshold",
        "1",
    ]);
    let mut client = server.client();
    let body = vec![b'x'; 50_000_000];
    text(client.call_words(&[b"ADDJOB", b"q", &body, b"0"]));
    let events = latency_events(&mut client);
    for event in ["fast-command", "aof-write", "aof-write-alone"] {
        assert!(events.contains(&event.to_owned()), "no {event} in {events:?}");
    }
    assert_eq!(client.call("LATENCY RESET aof-write aof-write-alone fork"), Value::Integer(2));
    client.ok("CONFIG SET appendfsync always");
    text(client.call_words(&[b"ADDJOB", b"q", &body, b"0"]));
    let events = latency_events(&mut client);
    assert!(events.contains(&"aof-fsync-always".to_owned()), "{events:?}");
}

#[test]
fn latency_of_due_jobs_and_of_eviction_is_kept() {
    const JOBS: usize = 40_000;
    let server = TestServer::start();
    let mut client = server.client();
    let add = b"ADDJOB q body 0 DELAY 1 RETRY 0 REPLICATE 1\r\n".repeat(1000);
    client.ok("CONFIG SET latency-monitor-threshold 1");
    let mut count = 0;
    let add_jobs_that_are_due_at_once = || {
        for _ in 0..JOBS / 1000 {
            client.send(&add);
            (0..1000).for_each(|_| drop(text(client.reply())));
        }
        client.ok("DEBUG SLEEP 1.1");
        count += JOBS;
        eventually(|| integer(client.call("QLEN q")), |len| *len == count as i64);
        latency_events(&mut client)
    };
    // They are not due at once if adding them takes longer than their delay.
    let is_kept = |events: &Vec<String>| events.contains(&"jobs-processing".to_owned());
    eventually(add_jobs_that_are_due_at_once, is_kept);
    for _ in 0..count / 1000 {
        assert_eq!(array(client.call("GETJOB NOHANG COUNT 1000 FROM q")).len(), 1000);
    }
    assert_eq!(client.call("QLEN q"), Value::Integer(0));
    // What was delivered at most once may go, and there is more of it than goes at once.
    client.ok("CONFIG SET maxmemory 1mb");
    assert_eq!(client.call("PING"), status("PONG"));
    client.ok("CONFIG SET maxmemory 0");
    let events = latency_events(&mut client);
    assert!(events.contains(&"eviction-cycle".to_owned()), "{events:?}");
}

#[test]
fn debug_flushall_leaves_nothing_and_answers_who_waits() {
    let server = TestServer::start();
    let mut client = server.client();
    for at in 0..3000 {
        client.send_command(&format!("ADDJOB q{} body 0", at % 10));
    }
    (0..3000).for_each(|_| drop(text(client.reply())));
    let mut waiting = server.client();
    waiting.send_command("GETJOB FROM elsewhere");
    let is_blocked = |info: &String| info.contains("blocked_clients:1\r\n");
    eventually(|| text(client.call("INFO clients")), is_blocked);
    assert_eq!(client.call("DEBUG FLUSHALL"), status("OK"));
    assert_eq!(waiting.reply(), Value::NullArray);
    assert!(text(client.call("INFO jobs")).contains("registered_jobs:0\r\n"));
    assert!(text(client.call("INFO queues")).contains("registered_queues:0\r\n"));
}

#[test]
fn debug_answers_what_it_is_asked() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.call("DEBUG ERROR CODE"), error("CODE"));
    assert_eq!(client.call_words(&[b"DEBUG", b"ERROR", b"a\r\nb"]), error("a  b"));
    assert!(text(client.call("DEBUG STRUCTSIZE")).starts_with("bits:64 job:"));
    assert_eq!(client.call("DEBUG INVARIANTS"), status("OK"));
    for words in ["DEBUG NOSUCH", "DEBUG SLEEP", "DEBUG ERROR"] {
        let subcommand = words.split(' ').nth(1).expect("a subcommand");
        assert_eq!(
            client.call(words),
            error(&format!(
                "ERR Unknown DEBUG subcommand or wrong number of arguments for '{subcommand}'"
            ))
        );
    }
}

#[test]
fn a_segfault_is_logged_and_ends_the_process_by_its_signal() {
    let mut server = TestServer::start();
    assert!(server.client().send_command("DEBUG SEGFAULT").is_closed());
    assert_eq!(server.wait().signal(), Some(libc::SIGSEGV));
    let log = log_of(&server);
    let line = log.lines().last().expect("a line");
    assert!(line.contains(":signal-handler (") && line.ends_with("crashed by signal: 11"), "{log}");
}

#[test]
fn a_panic_is_reported_with_the_clients_and_aborts() {
    for subcommand in ["ASSERT", "OOM"] {
        let mut server = TestServer::start();
        assert!(server.client().send_command(&format!("DEBUG {subcommand}")).is_closed());
        assert_eq!(server.wait().signal(), Some(libc::SIGABRT));
        let log = log_of(&server);
        for part in [
            "=== DISQUE BUG REPORT START",
            "panicked",
            "server/debug.rs",
            "Last command: debug",
            "registered_jobs:0",
            "addr=127.0.0.1:",
            "=== DISQUE BUG REPORT END",
        ] {
            assert!(log.contains(part), "no {part} in {log}");
        }
    }
}

#[test]
fn debug_restart_starts_the_program_anew_in_the_same_process() {
    for subcommand in ["RESTART", "CRASH-AND-RECOVER 10"] {
        let server = TestServer::start_with_config("timeout 0\n", &[]);
        let mut client = server.client();
        let run_id = |info: &str| {
            let line = info.split("\r\n").find(|line| line.starts_with("run_id:"));
            line.expect("INFO tells it").to_owned()
        };
        let before = run_id(&text(client.call("INFO server")));
        client.ok("CONFIG SET timeout 77");
        assert!(client.send_command(&format!("DEBUG {subcommand}")).is_closed());
        eventually(|| is_served(&server), |&is_served| is_served);
        let mut client = server.client();
        let after = text(client.call("INFO server"));
        assert_ne!(run_id(&after), before);
        assert!(after.contains(&format!("process_id:{}\r\n", server.pid())));
        let expected = if subcommand == "RESTART" { "77" } else { "0" };
        let timeout = client.call("CONFIG GET timeout");
        assert_eq!(timeout, Value::Array(vec![bulk("timeout"), bulk(expected)]));
    }
}

fn is_served(server: &TestServer) -> bool {
    let stream = TcpStream::connect(("127.0.0.1", server.port()));
    stream.is_ok_and(|stream| Client::over(stream).call_if_open("PING").is_some())
}

/// Whether a line of the log is the watchdog's, of a DEBUG that holds the loop up.
fn is_report(line: &str) -> bool {
    line.contains("WATCHDOG") && line.contains("running debug")
}

#[test]
fn the_watchdog_reports_a_loop_that_does_not_come_round() {
    let server = TestServer::start();
    let mut client = server.client();
    client.ok("CONFIG SET watchdog-period 200");
    client.ok("DEBUG SLEEP 2");
    let log = log_of(&server);
    // A busy machine may hold the loop up as well, but not within a command.
    let reports = |log: &str| log.lines().filter(|line| is_report(line)).count();
    assert_eq!(reports(&log), 1, "a silence is reported once: {log}");
    client.ok("CONFIG SET watchdog-period 0");
    client.ok("DEBUG SLEEP 0.6");
    assert_eq!(reports(&log_of(&server)), 1);
}
