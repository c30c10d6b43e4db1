//! `--check` in front of servers in every kind of trouble.

use crate::fake_server::{FakeServer, Words, array, bulk};
use crate::{client, told_by};

const MY_ID: &str = "aaaaaaaaaa";
const ME: &str = "aaaaaaaaaa :7711 myself 0 0 connected\n";
const GOOD: &str = "bbbbbbbbbb 10.0.0.2:7711 noflags 0 0 connected\n";
const LOST: &str = "cccccccccc 10.0.0.3:7711 fail 0 0 disconnected\n";

/// A node that knows others and lists none, so that it alone is asked.
fn node(info: &str, nodes: &str) -> FakeServer {
    let info = bulk(&format!("registered_jobs:5\r\nregistered_queues:2\r\n{info}\r\n"));
    let nodes = bulk(nodes);
    FakeServer::with_rule(move |request| answer(request, &info, &nodes))
}

fn answer(request: &Words, info: &[u8], nodes: &[u8]) -> Option<Vec<u8>> {
    match request.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["HELLO"] => Some(array(&[b":1\r\n".to_vec(), bulk(MY_ID)])),
        ["INFO"] => Some(info.to_vec()),
        ["CONFIG", "GET", "maxmemory"] => Some(array(&[bulk("maxmemory"), bulk("1000")])),
        ["CLUSTER", "NODES"] => Some(nodes.to_vec()),
        // As a C server answers it.
        ["QPOLICY", _] => Some(b"-ERR unknown command 'QPOLICY'\r\n".to_vec()),
        _ => None,
    }
}

#[test]
fn check_tells_the_health_in_one_line_and_a_status() {
    let alone = ME.to_string();
    let cluster = |lines: &[&str]| lines.concat();
    let cases = [
        (
            "used_memory:100",
            alone.clone(),
            "OK: 1 node, memory 10% of 1000B, 5 jobs in 2 queues",
            0,
        ),
        (
            "used_memory:800",
            cluster(&[
                ME,
                GOOD,
                "d 10.0.0.4:7711 noflags 0 0 connected\n",
                "e 10.0.0.5:7711 noflags 0 0 connected\n",
            ]),
            "WARNING: memory 80% of 1000B: new jobs go to nodes with free memory",
            1,
        ),
        (
            "used_memory:800",
            cluster(&[ME, GOOD]),
            "WARNING: memory 80% of 1000B: new jobs go to nodes with free memory",
            1,
        ),
        (
            "used_memory:940",
            alone.clone(),
            "WARNING: memory 94% of 1000B: new jobs go to nodes with free memory",
            1,
        ),
        (
            "used_memory:800",
            cluster(&[ME, LOST]),
            "CRITICAL: new jobs are refused: 1 other node must take a copy, and 0 can; 1 of 2 \
             nodes out of reach: cccccccc 10.0.0.3:7711 failing",
            2,
        ),
        (
            "used_memory:960",
            alone.clone(),
            "CRITICAL: memory 96% of 1000B: new jobs are refused",
            2,
        ),
        (
            "used_memory:1",
            cluster(&[ME, GOOD, "d 10.0.0.4:7711 noflags 0 0 connected\n", LOST]),
            "WARNING: 1 of 4 nodes out of reach: cccccccc 10.0.0.3:7711 failing",
            1,
        ),
        (
            "used_memory:1",
            cluster(&[ME, GOOD, LOST]),
            "CRITICAL: new jobs are refused: 2 other nodes must take a copy, and 1 can; 1 of 3 \
             nodes out of reach: cccccccc 10.0.0.3:7711 failing",
            2,
        ),
        (
            "used_memory:1",
            cluster(&[ME, LOST]),
            "CRITICAL: new jobs are refused: 1 other node must take a copy, and 0 can; 1 of 2 \
             nodes out of reach: cccccccc 10.0.0.3:7711 failing",
            2,
        ),
        (
            "aof_last_write_status:err",
            alone.clone(),
            "CRITICAL: cannot write the append only file: make room on the disk and see the log",
            2,
        ),
        (
            "aof_last_bgrewrite_status:err",
            alone.clone(),
            "WARNING: the last rewrite of the append only file failed: see the log",
            1,
        ),
        (
            "aof_last_bgrewrite_status:err\r\naof_rewrites_consecutive_failures:3\r\n\
             aof_rewrite_pause_sec:4\r\naof_last_bgrewrite_error:No space left on device",
            alone.clone(),
            "WARNING: 3 rewrites of the append only file failed, the next is due in 4 s: No space \
             left on device",
            1,
        ),
        (
            "used_memory:1",
            cluster(&[
                "aaaaaaaaaa :7711 myself,leaving 0 0 connected\n",
                GOOD,
                "d 10.0.0.4:7711 leaving 0 0 connected\n",
            ]),
            "CRITICAL: leaving the cluster: new jobs are refused: 3 other nodes must take a copy, \
             and 1 can",
            2,
        ),
        (
            "used_memory:1",
            cluster(&[
                "aaaaaaaaaa :7711 myself,leaving 0 0 connected\n",
                GOOD,
                "d 10.0.0.4:7711 noflags 0 0 connected\n",
                "e 10.0.0.5:7711 noflags 0 0 connected\n",
            ]),
            "WARNING: leaving the cluster",
            1,
        ),
        (
            "used_memory:1",
            String::new(),
            "CRITICAL: Error: CLUSTER NODES names no node as itself",
            2,
        ),
    ];
    for (info, nodes, line, status) in cases {
        let server = node(info, &nodes);
        let told = told_by(client(server.port, "--check"));
        assert_eq!(told, (format!("{line}\n"), String::new(), status));
    }
}

#[test]
fn check_speaks_json() {
    let server = node("used_memory:100", ME);
    let (stdout, _, status) = told_by(client(server.port, "--check --json"));
    assert_eq!(
        stdout,
        "{\"status\":\"OK\",\"summary\":\"1 node, memory 10% of 1000B, 5 jobs in 2 queues\",\
         \"reasons\":[]}\n"
    );
    assert_eq!(status, 0);
    let server = node("used_memory:960", ME);
    let (stdout, _, status) = told_by(client(server.port, "--json --check"));
    assert!(
        stdout.ends_with(
            "\"reasons\":[{\"status\":\"CRITICAL\",\"reason\":\"memory 96% of 1000B: new jobs are \
             refused\"}]}\n"
        ),
        "{stdout}"
    );
    assert_eq!(status, 2);
}

#[test]
fn what_answers_like_no_disque_is_critical() {
    for (reply, line) in [
        (&b"$0\r\n\r\n"[..], "Error: HELLO was answered by something else than Disque"),
        (b"*0\r\n", "Error: HELLO was answered by something else than Disque"),
        (b"-LOADING wait\r\n", "ERROR: LOADING wait"),
        (b"-ERR a\x1b[2J\x07b\r\n", "ERROR: ERR a\\x1b[2J\\x07b"),
        (b"HTTP/1.1 400 Bad Request\r\n", "Error: unknown reply type 'H'"),
    ] {
        let server = FakeServer::with_replies(&[reply]);
        let (stdout, _, status) = told_by(client(server.port, "--check"));
        assert_eq!((stdout, status), (format!("CRITICAL: {line}\n"), 2));
    }
    let empty = bulk("");
    let server = FakeServer::with_rule(move |request| answer(request, &empty, &bulk(ME)));
    let (stdout, _, status) = told_by(client(server.port, "--check"));
    assert_eq!(stdout, "CRITICAL: Error: INFO was answered by something else than Disque\n");
    assert_eq!(status, 2);
    let server = FakeServer::with_rule(|_| None);
    let (stdout, _, status) = told_by(client(server.port, "--check"));
    assert_eq!(stdout, "CRITICAL: Error: Server closed the connection\n");
    assert_eq!(status, 2);
}

#[test]
fn what_a_server_says_stays_in_the_line_and_leaves_the_terminal_alone() {
    let evil = "cc\x1b[2Jcccc 10.0.0.3:7711\x07\r\u{9b} fail 0 0 disconnected\n";
    let server = node("used_memory:1", &[ME, GOOD, "d d:1 noflags 0 0 connected\n", evil].concat());
    let (stdout, _, status) = told_by(client(server.port, "--check"));
    assert_eq!(
        stdout,
        "WARNING: 1 of 4 nodes out of reach: cc\\x1b[2Jcc 10.0.0.3:7711\\x07\\r\\x9b failing\n"
    );
    assert_eq!(status, 1);
    let server = FakeServer::with_replies(&[b"-ERR \x1b]0;title\x07\tOK: fine\r\n"]);
    let (stdout, _, _) = told_by(client(server.port, "--check"));
    assert_eq!(stdout, "CRITICAL: ERROR: ERR \\x1b]0;title\\x07\\tOK: fine\n");
}

#[test]
fn a_missing_password_is_asked_for() {
    let server = FakeServer::with_replies(&[b"-NOAUTH Authentication required.\r\n"]);
    let (stdout, _, status) = told_by(client(server.port, "--check"));
    assert_eq!(
        stdout,
        "CRITICAL: ERROR: NOAUTH Authentication required. Give the password in DISQUE_AUTH or \
         with --askpass.\n"
    );
    assert_eq!(status, 2);
}

/// A healthy node with a queue `mail` of 12 jobs, the oldest of them 125 seconds old.
fn node_with_mail(pause: &'static str) -> FakeServer {
    let info = bulk("registered_jobs:12\r\nused_memory:1\r\n");
    FakeServer::with_rule(move |request| {
        let field = |name: &str, value: &str| [bulk(name), value.as_bytes().to_vec()].concat();
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        Some(match words.as_slice() {
            ["QSCAN", ..] => array(&[bulk("0"), array(&[bulk("mail")])]),
            ["QSTAT", "mail"] => {
                [b"*4\r\n".to_vec(), field("len", ":12\r\n"), bulk("pause"), bulk(pause)].concat()
            }
            ["QPEEK", "mail", "1"] => {
                array(&[array(&[bulk("mail"), bulk("the ID"), bulk("body")])])
            }
            ["SHOW", "the ID"] => {
                [b"*2\r\n".to_vec(), field("ctime", ":1000000000000000007\r\n")].concat()
            }
            ["TIME"] => array(&[bulk("1000000125"), bulk("900000")]),
            _ => return answer(request, &info, &bulk(ME)),
        })
    })
}

#[test]
fn check_warns_of_long_queues_and_old_jobs() {
    let server = node_with_mail("none");
    let (stdout, stderr, status) =
        told_by(client(server.port, "--check mail --max-length 10 --max-age 60"));
    assert_eq!(
        stdout,
        "WARNING: queue mail holds 12 jobs, over 10, queue mail has a job 2m05s old, over 60s\n"
    );
    assert_eq!((stderr.as_str(), status), ("", 1));
    assert_eq!(told_by(client(server.port, "--check mail --max-length 12 --max-age 125")).2, 0);
}

#[test]
fn check_names_queues_that_are_unknown_or_paused() {
    let server = node_with_mail("none");
    let (stdout, _, status) = told_by(client(server.port, "--check mial ma*"));
    assert_eq!(stdout, "WARNING: queue mial is known to no node\n");
    assert_eq!(status, 1);
    assert_eq!(told_by(client(server.port, "--check mail")).2, 0);

    let server = node_with_mail("in");
    let (stdout, _, status) = told_by(client(server.port, "--check mail"));
    assert_eq!(stdout, "CRITICAL: queue mail is paused for input: ADDJOB is refused\n");
    assert_eq!(status, 2);
    // Who asks for all queues has not asked for this one.
    let (stdout, _, status) = told_by(client(server.port, "--check --max-length 100"));
    assert_eq!(stdout, "WARNING: queue mail is paused for input: ADDJOB is refused\n");
    assert_eq!(status, 1);
    assert_eq!(told_by(client(server.port, "--check")).2, 0);

    let server = node_with_mail("out");
    let (stdout, _, status) = told_by(client(server.port, "--check mail"));
    assert_eq!(stdout, "WARNING: queue mail is paused for output: GETJOB gets nothing\n");
    assert_eq!(status, 1);
}
