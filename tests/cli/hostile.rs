//! Servers that mean harm: the client ends with an error, in bounded memory, and a terminal
//! is sent nothing that it would obey.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::fake_server::{FakeServer, array, bulk, listen};
use crate::terminal::Terminal;
use crate::{client, told_by};

const MIB: u64 = 1024 * 1024;
/// Address space for a line of a reply in a buffer that has just been doubled, and what a
/// client needs at the start.
const SPACE_FOR_A_LINE: u64 = 512 * MIB;
/// The length of a large body, and address space for not much more.
const LARGE_LEN: usize = 32 * MIB as usize;
const SPACE_FOR_A_LARGE_BODY: u64 = 128 * MIB;

/// A server that sends these bytes again and again, whatever it is asked.
fn endless(start: &'static [u8], again: &'static [u8]) -> u16 {
    listen(move |mut stream, _| {
        if stream.write_all(start).is_ok() {
            let batch = again.repeat(64 * 1024 / again.len());
            // Until the client has had enough.
            while stream.write_all(&batch).is_ok() {}
        }
    })
}

/// Limits the address space of a command, in bytes.
fn within(space_max: u64, mut command: Command) -> Command {
    // SAFETY: setrlimit may be called between fork and exec; the struct lives through the call.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: space_max, rlim_max: space_max };
            match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command
}

#[test]
fn replies_without_measure_end_in_an_error_and_in_little_memory() {
    for (start, again, error) in [
        (&b"+"[..], &b"x"[..], "a line of a reply is too long"),
        (b"*1\r\n", b"*1\r\n", "a reply is nested too deeply"),
        (b"*99999999999\r\n", b":1\r\n", "a reply is too large"),
        (b"%99999999999\r\n", b":1\r\n", "a reply is too large"),
        (
            b"*9999999999999999999999\r\n",
            b":1\r\n",
            "a length in a reply is malformed or too large",
        ),
        (b"$99999999999\r\n", b"x", "a length in a reply is malformed or too large"),
    ] {
        let command = within(SPACE_FOR_A_LINE, client(endless(start, again), "ping"));
        assert_eq!(told_by(command), (String::new(), format!("Error: {error}\n"), 1), "{error}");
    }
}

#[test]
fn a_large_body_takes_little_more_than_its_own_memory() {
    let head = format!("${LARGE_LEN}\r\n").into_bytes();
    let reply = [head, vec![0xff; LARGE_LEN], b"\r\n".to_vec()].concat();
    let server = FakeServer::with_rule(move |_| Some(reply.clone()));
    for (form, len) in [("--no-raw", 4 * LARGE_LEN + 3), ("--json", LARGE_LEN.div_ceil(3) * 4 + 14)]
    {
        let command = client(server.port, &format!("{form} ping"));
        let command = within(SPACE_FOR_A_LARGE_BODY, command);
        let (stdout, stderr, status) = told_by(command);
        assert_eq!((stdout.len(), stderr.as_str(), status), (len, "", 0), "{form}");
    }
}

#[test]
fn types_of_resp3_that_no_disque_sends_are_an_error() {
    for reply in [
        ",1.5\r\n",
        "#t\r\n",
        "~1\r\n:1\r\n",
        ">1\r\n:1\r\n",
        "(1\r\n",
        "=5\r\ntxt:a\r\n",
        "|1\r\n",
        "!1\r\na\r\n",
    ] {
        let kind = reply.chars().next().expect("a type");
        let server = FakeServer::with_rule(move |_| Some(reply.as_bytes().to_vec()));
        let told = told_by(client(server.port, "ping"));
        assert_eq!(told, (String::new(), format!("Error: unknown reply type '{kind}'\n"), 1));
        let (stdout, _, status) = told_by(client(server.port, "--check"));
        assert_eq!(
            (stdout, status),
            (format!("CRITICAL: Error: unknown reply type '{kind}'\n"), 2)
        );
    }
}

const EVIL: &str = "a\x1b[2J\x07\u{9b}b";
const TAMED: &str = "a\\x1b[2J\\x07\\x9bb";

/// What a terminal shows of a run.
fn shown(command: Command) -> String {
    Terminal::run(command).wait_for_end().1
}

#[test]
fn nothing_a_terminal_obeys_gets_through_in_any_form() {
    let replies = [
        format!("+{EVIL}\r\n"),
        format!("-ERR {EVIL}\r\n"),
        format!("${}\r\n{EVIL}\r\n", EVIL.len()),
    ];
    for form in ["--no-raw", "--raw", "--csv", "--json"] {
        for command in ["x", "info", "cluster nodes", "client list"] {
            for reply in &replies {
                let server = FakeServer::with_replies(&[reply.as_bytes()]);
                let screen = shown(client(server.port, &format!("{form} {command}")));
                assert!(
                    !screen.contains(['\x1b', '\x07', '\u{9b}']),
                    "{form} {command}: {screen:?}"
                );
                assert!(screen.contains("[2J"), "{form} {command}: {screen:?}");
            }
        }
    }
    let server = FakeServer::with_replies(&[replies[0].as_bytes()]);
    assert_eq!(shown(client(server.port, "x")), format!("{TAMED}\r\n"));
    // What is no terminal gets every byte.
    let server = FakeServer::with_replies(&[replies[0].as_bytes()]);
    assert_eq!(told_by(client(server.port, "x")).0, format!("{EVIL}\n"));
}

#[test]
fn error_lines_never_carry_what_a_terminal_obeys() {
    let refusal = format!("-ERR {EVIL}\r\n");
    let server = FakeServer::with_replies(&[refusal.as_bytes(), b"-NOAUTH no\r\n"]);
    let (_, stderr, status) = told_by(client(server.port, "-a wrong ping"));
    assert!(stderr.starts_with(&format!("AUTH failed: ERR {TAMED}. ")), "{stderr:?}");
    assert_eq!(status, 1);
    for mode in ["queues", "nodes", "cluster check", "--stat"] {
        let server = FakeServer::with_replies(&[refusal.as_bytes()]);
        let (_, stderr, _) = told_by(client(server.port, mode));
        assert_eq!(stderr, format!("ERROR: ERR {TAMED}\n"), "{mode}");
    }
}

/// A node whose queue, version and peers have evil names.
fn evil_node() -> FakeServer {
    FakeServer::with_rule(|request| {
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        Some(match words.as_slice() {
            ["HELLO"] => array(&[b":1\r\n".to_vec(), bulk(EVIL)]),
            ["INFO"] => bulk(&format!("registered_jobs:1\r\nserver_version:{EVIL}\r\n")),
            ["CLUSTER", "NODES"] => bulk(&format!(
                "{EVIL} :1 myself 0 0 connected\nc{EVIL} {EVIL}:1 fail 0 0 disconnected\n"
            )),
            ["QSCAN", ..] => array(&[bulk("0"), array(&[bulk(EVIL)])]),
            ["QSTAT", _] => array(&[bulk("pause"), bulk(EVIL)]),
            ["TIME"] => array(&[bulk("1"), bulk("1")]),
            _ => b"-ERR unknown\r\n".to_vec(),
        })
    })
}

#[test]
fn tables_show_evil_names_and_terminals_do_not_obey_them() {
    let server = evil_node();
    for verb in ["queues -i 0.01", "nodes", "cluster check", "--check"] {
        for form in ["", "--json", "--csv"] {
            let screen = shown(client(server.port, &format!("{form} {verb}")));
            assert!(!screen.contains(['\x1b', '\x07', '\u{9b}']), "{form} {verb}: {screen:?}");
            assert!(screen.contains("[2J"), "{form} {verb}: {screen:?}");
        }
    }
    // A page of `top` begins by clearing the screen, and that is all.
    let screen = shown(client(server.port, "top -r 2 -i 0.01"));
    assert_eq!(screen.replace("\x1b[H\x1b[2J", "").find('\x1b'), None, "{screen:?}");
    assert!(screen.contains("[2J"), "{screen:?}");
}

#[test]
fn lists_without_end_are_an_error() {
    let listed =
        |index: usize| array(&[bulk(&index.to_string()), bulk("127.0.0.1"), bulk("1"), bulk("1")]);
    let many: Vec<Vec<u8>> = (0..3000)
        .map(|index| {
            array(&[
                bulk("id"),
                bulk(&format!("127.0.{}.{}", index / 250, index % 250)),
                bulk("1"),
                bulk("1"),
            ])
        })
        .collect();
    let hello = |rows: &[Vec<u8>]| array(&[&[b":1\r\n".to_vec(), bulk("me")], rows].concat());
    let too_many = hello(&many);
    let server = FakeServer::with_rule(move |_| Some(too_many.clone()));
    let (_, stderr, status) = told_by(client(server.port, "nodes"));
    assert_eq!((stderr.as_str(), status), ("Error: HELLO lists over 2000 nodes\n", 1));

    // The same address over and over is one address.
    let same = hello(&(0..3000).map(listed).collect::<Vec<_>>());
    let server = FakeServer::with_rule(move |request| match request[0].as_str() {
        "HELLO" => Some(same.clone()),
        "INFO" => Some(bulk("registered_jobs:1\r\n")),
        "CLUSTER" => Some(bulk("me :1 myself 0 0 connected\n")),
        _ => Some(array(&[bulk("0"), array(&[])])),
    });
    let (stdout, _, _) = told_by(client(server.port, "nodes --csv"));
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
}
