//! What the hot commands cost, without a clock: instructions, reads, writes and allocations
//! of the server, from socket to socket, held against the budget in `budget.txt`.
//!
//! The server runs under callgrind, which counts and does not measure. It counts within
//! [`ENTRIES`] only, the functions that serve clients and peers: timers run as often as time
//! passes, and so do the turns of the loop that they cause. One client sends a request, or
//! sixteen, and waits for the replies: over TCP, or where requests are large over a Unix socket,
//! which hands over each send in one piece, but has the server wake up once more when its
//! client has read. So on any machine with the same toolchain two runs differ by about one in a
//! hundred, those of large requests and a busy machine by more. Before and after each
//! work the client sends a QSTAT, on which callgrind writes down what it has counted since the
//! one before.
//!
//! A figure may exceed its budget by a tenth. `REWRITE=1` writes the budget anew.
#![cfg(feature = "jemalloc")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use disque::proto::reply_reader::Value;

#[path = "integration/support.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod support;

use support::{Client, TestServer, eventually, request, text};

const CALLGRIND: &[&str] = &[
    "valgrind",
    "--tool=callgrind",
    "--callgrind-out-file=counts",
    "--compress-strings=no",
    "--compress-pos=no",
    "--dump-before=*::qstat*",
];
/// Where counting begins and ends: a socket is served, and the answers go out. Neither calls
/// the other here, which would end the counting: these works never fill the lanes so far that
/// they are drained before the end of the turn.
const ENTRIES: [&str; 2] = ["disque::server::Server::handle", "Server>::drain"];
const SOCKET: &str = "disque.sock";

/// Operations of a work.
const COUNT: usize = 512;
/// A Unix socket hands over 32 KiB in one piece.
static LARGE: [u8; 30_000] = [b'x'; 30_000];
const SMALL: [u8; 64] = [b'x'; 64];

/// What is counted, an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    instructions: f64,
    reads: f64,
    writes: f64,
    allocations: f64,
}

const HEADINGS: [&str; 4] = ["instructions", "reads", "writes", "allocations"];
/// Beside its tenth a figure may exceed its budget by this: a ping of the other node's or a
/// table that grows, a few in five hundred operations, are nobody's fault.
const STRAYS: [f64; 4] = [0.0, 0.03, 0.03, 0.1];

impl Cost {
    fn figures(self) -> [f64; 4] {
        [self.instructions, self.reads, self.writes, self.allocations]
    }

    /// Reads what callgrind wrote.
    fn read(counts: &str, operations: usize) -> Self {
        let mut totals = Self::default();
        let mut called = "";
        for line in counts.lines() {
            if let Some(name) = line.strip_prefix("cfn=") {
                called = name;
            } else if let Some(rest) = line.strip_prefix("calls=") {
                let calls = number(rest);
                match called {
                    "recv" | "recvfrom" | "read" => totals.reads += calls,
                    "send" | "sendto" | "write" | "writev" => totals.writes += calls,
                    "_rjem_malloc" | "_rjem_mallocx" | "_rjem_calloc" | "_rjem_realloc"
                    | "_rjem_rallocx" => totals.allocations += calls,
                    _ => {}
                }
            } else if let Some(rest) = line.strip_prefix("totals: ") {
                totals.instructions = number(rest);
            }
        }
        assert!(totals.instructions > 0.0 && totals.reads > 0.0, "callgrind counted");
        let [instructions, reads, writes, allocations] =
            totals.figures().map(|total| total / operations as f64);
        Self { instructions, reads, writes, allocations }
    }
}

fn number(text: &str) -> f64 {
    let digits = text.split(' ').next().unwrap_or_default();
    digits.parse().expect("callgrind writes numbers")
}

/// A server under callgrind and the costs seen so far.
struct Meter {
    server: TestServer,
    client: Client,
    dumps: usize,
    costs: Vec<(String, Cost)>,
    /// Those of [`ENTRIES`] that callgrind has not come across yet.
    missing: Vec<&'static str>,
}

impl Meter {
    fn start() -> Self {
        let tool = std::process::Command::new("valgrind").arg("--version").output();
        assert!(tool.is_ok(), "valgrind is not installed: apt-get install valgrind");
        let toggles = ENTRIES.map(|entry| format!("--toggle-collect=*{entry}"));
        let tool = [CALLGRIND, &toggles.each_ref().map(String::as_str)].concat();
        // A busy machine makes slow commands, which are nothing that the commands cost.
        let options = ["--slowlog-log-slower-than", "-1", "--loglevel", "notice"];
        let options = [&options[..], &["--unixsocket", SOCKET]].concat();
        let server = TestServer::start_under(&tool, &options);
        let client = server.client();
        Self { server, client, dumps: 0, costs: Vec::new(), missing: ENTRIES.to_vec() }
    }

    /// Has callgrind write down what it counted, and gives it.
    fn dump(&mut self) -> String {
        assert_eq!(self.client.call("QSTAT nothing"), Value::NullArray);
        self.dumps += 1;
        let path = self.server.folder().join(format!("counts.{}", self.dumps));
        eventually(
            || fs::read_to_string(&path).unwrap_or_default(),
            |text| text.contains("\ntotals: "),
        )
    }

    /// Runs a work and notes what each of its operations cost. Gives the replies.
    fn note(
        &mut self,
        name: String,
        operations: usize,
        work: impl FnOnce(&mut Client) -> Vec<Value>,
    ) -> Vec<Value> {
        self.dump();
        let replies = work(&mut self.client);
        let counts = self.dump();
        let has =
            |entry| counts.lines().any(|line| line.starts_with("fn=") && line.ends_with(entry));
        self.missing.retain(|entry| !has(*entry));
        self.costs.push((name, Cost::read(&counts, operations)));
        replies
    }

    /// Notes what it costs to add, fetch and acknowledge jobs.
    fn note_jobs(&mut self, title: &str, body: &[u8], depth: usize) {
        // Tables and queues grow to their size first.
        let ids = run(&mut self.client, &adds(body, &[]), depth);
        run(&mut self.client, &gets(), depth);
        run(&mut self.client, &acks(&ids), depth);

        let add = |client: &mut Client| run(client, &adds(body, &[]), depth);
        let ids = self.note(format!("ADDJOB {title}"), COUNT, add);
        self.note(format!("GETJOB {title}"), COUNT, |client| run(client, &gets(), depth));
        self.note(format!("ACKJOB {title}"), COUNT, |client| run(client, &acks(&ids), depth));
    }

    /// Notes what it costs, a job, to fetch and acknowledge jobs by the hundred.
    fn note_hundreds(&mut self) {
        let ids = run(&mut self.client, &adds(&SMALL, &[]), 16);
        let get = vec![request(&[b"GETJOB", b"COUNT", b"100", b"FROM", b"q"]); COUNT / 100];
        self.note("GETJOB COUNT 100, a job".into(), COUNT / 100 * 100, |client| {
            run(client, &get, 1)
        });
        let ids: Vec<String> = ids.into_iter().map(text).collect();
        let hundreds: Vec<Vec<u8>> = ids
            .chunks_exact(100)
            .map(|ids| {
                let words = std::iter::once("ACKJOB").chain(ids.iter().map(String::as_str));
                request(&words.map(str::as_bytes).collect::<Vec<_>>())
            })
            .collect();
        self.note("ACKJOB of 100, a job".into(), hundreds.len() * 100, |client| {
            run(client, &hundreds, 1)
        });
        run(&mut self.client, &gets()[..COUNT % 100], 1);
    }

    /// Notes what a job on two nodes costs the one that its producer asked, and the other.
    fn note_copies(&mut self) {
        let other = TestServer::start();
        self.client.ok(&format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
        let replicated: &[&[u8]] = &[b"REPLICATE", b"2"];
        let add = adds(&SMALL, replicated);
        let mut far = other.client();
        for client in [&mut self.client, &mut far] {
            let one = || run(client, &add[..1], 1).remove(0);
            eventually(one, |reply| !matches!(reply, Value::Error(_)));
            run(client, &add, 1);
        }
        self.note("ADDJOB REPLICATE 2, 1x1".into(), COUNT, |client| run(client, &add, 1));
        self.note("the same, the other node".into(), COUNT, |_| run(&mut far, &add, 1));
    }
}

/// Sends requests, so many at a time, and waits for their replies.
fn run(client: &mut Client, requests: &[Vec<u8>], depth: usize) -> Vec<Value> {
    let mut replies = Vec::new();
    for batch in requests.chunks(depth) {
        client.send(batch.concat());
        replies.extend(batch.iter().map(|_| client.reply()));
    }
    replies
}

fn adds(body: &[u8], options: &[&[u8]]) -> Vec<Vec<u8>> {
    let words = [[b"ADDJOB".as_slice(), b"q", body, b"0"].as_slice(), options].concat();
    vec![request(&words); COUNT]
}

fn gets() -> Vec<Vec<u8>> {
    vec![request(&[b"GETJOB", b"FROM", b"q"]); COUNT]
}

fn acks(ids: &[Value]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| request(&[b"ACKJOB", text(id.clone()).as_bytes()])).collect()
}

fn budget_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budget.txt")
}

/// The budget as a table: the name of a work, two blanks or more, and the figures.
fn table(costs: &[(String, Cost)]) -> String {
    let mut table = format!("{:<26}", "an operation");
    for heading in HEADINGS {
        write!(table, "{heading:>14}").expect("a string takes it");
    }
    for (name, cost) in costs {
        write!(table, "\n{name:<26}{:>14.0}", cost.instructions).expect("a string takes it");
        for figure in &cost.figures()[1..] {
            write!(table, "{figure:>14.2}").expect("a string takes it");
        }
    }
    table + "\n"
}

fn read_table(text: &str) -> BTreeMap<&str, Vec<f64>> {
    let row = |line| {
        let (name, figures) = str::split_once(line, "  ").expect("a name and figures");
        let figures = figures.split_whitespace().map(|figure| figure.parse().expect("a figure"));
        (name, figures.collect())
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn the_hot_commands_keep_to_their_budget() {
    let mut meter = Meter::start();
    meter.note_jobs("1x1", &SMALL, 1);
    meter.note_jobs("1x16", &SMALL, 16);
    meter.note_hundreds();
    meter.client = Client::over_unix(&meter.server.folder().join(SOCKET));
    meter.note_jobs("of 30,000 bytes, 1x1", &LARGE, 1);
    meter.client = meter.server.client();
    meter.note_copies();
    let missing = &meter.missing;
    assert!(missing.is_empty(), "{missing:?}: renamed or inlined, so nothing of it was counted");
    let now = table(&meter.costs);
    if std::env::var_os("REWRITE").is_some() {
        fs::write(budget_file(), &now).expect("the budget can be written");
    }
    let text = fs::read_to_string(budget_file()).expect("the budget is there");
    let budget = read_table(&text);
    assert_eq!(budget.len(), meter.costs.len(), "each work has a budget:\n{now}");
    let mut over = String::new();
    for (name, cost) in &meter.costs {
        let limits =
            budget[&**name].iter().zip(STRAYS).map(|(figure, strays)| figure * 1.1 + strays);
        for ((heading, figure), limit) in HEADINGS.iter().zip(cost.figures()).zip(limits) {
            if figure > limit {
                writeln!(over, "{name}: {figure:.2} {heading}, allowed are {limit:.2}")
                    .expect("a string takes it");
            }
        }
    }
    assert!(over.is_empty(), "{over}\nall of it:\n{now}");
}
