//! Commands with damaged arguments, over a real connection: each is answered, and the server
//! is what it was. What the engine does with them, `tests/fuzz.rs` tries more often.

use disque::base::rng::Rng;
use disque::proto::quoting;
use disque::proto::reply_reader::Value;

use crate::support::{TestServer, bulk, status};

const COMMANDS: &str = include_str!("../fuzz/commands.txt");
/// Commands that end the server or hold it up, that wait or ask for no answer, that lock the
/// client out, or that lead to the nodes of other tests.
const NOT_SENT: [&str; 8] = [
    "SHUTDOWN",
    "DEBUG",
    "MONITOR",
    "GETJOB",
    "CLIENT PAUSE",
    "CLIENT REPLY",
    "CONFIG SET",
    "CLUSTER MEET",
];
const ROUNDS: usize = 3_000;

/// The words of a command, most of them with a byte changed in one.
fn damaged(rng: &mut Rng, line: &str) -> Vec<Vec<u8>> {
    const TELLING: &[u8] = b"\0\xff*$-09\r\n\"";
    let mut words = quoting::split(line.as_bytes()).expect("quotes are balanced");
    let at = rng.index(words.len());
    match rng.below(4) {
        0 => words[at].push(TELLING[rng.index(TELLING.len())]),
        1 if at > 0 => drop(words.remove(at)),
        2 if at > 0 => words.insert(at, words[at].clone()),
        _ if at > 0 && !words[at].is_empty() => {
            let place = rng.index(words[at].len());
            words[at][place] = TELLING[rng.index(TELLING.len())];
        }
        _ => {}
    }
    words
}

#[test]
fn damaged_commands_are_each_answered_once() {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let is_sent = |line: &&str| !NOT_SENT.iter().any(|name| line.starts_with(name));
    let lines = COMMANDS.lines().filter(|line| !line.starts_with('#')).filter(is_sent);
    let lines: Vec<&str> = lines.collect();
    let mut rng = Rng::from_seed([5; 32]);
    let mut client = server.client();
    let mut job = String::from("D-61626364-abcdefghijklmnopqrstuvwx-05a1");
    for round in 0..ROUNDS {
        let line = lines[rng.index(lines.len())].replace("<job>", &job);
        let words = damaged(&mut rng, &line);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match client.call_words(&words) {
            Value::Status(id) if id.starts_with(b"D-") => {
                job = String::from_utf8(id).expect("IDs are text");
            }
            _ => {}
        }
        let mark = format!("behind {round}");
        let behind = client.call_words(&[b"PING", mark.as_bytes()]);
        assert_eq!(behind, bulk(&mark), "{words:?} is answered once");
    }
    assert_eq!(client.call("DEBUG INVARIANTS"), status("OK"));
}
