//! The load generator against real servers: what it counts is what the servers hold, and
//! what it calls a latency is one.
//!
//! Redis and beanstalkd are found on PATH. A server is there once it can be connected to, and ends with
//! its test.

#[path = "integration/support.rs"]
#[allow(dead_code, reason = "the integration tests use the rest of it")]
mod support;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::program::{self, Program};
use support::{PATIENCE, eventually, free_port, server_path};

/// A server that belongs to one test.
struct Server {
    program: Program,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    fn redis() -> Self {
        Self::start("redis-server".into(), |port| {
            ["--port", port, "--bind", "127.0.0.1", "--save", ""].map(str::to_owned).to_vec()
        })
    }

    fn disque() -> Self {
        Self::start(server_path(), |port| {
            ["--port", port, "--bind", "127.0.0.1"].map(str::to_owned).to_vec()
        })
    }

    fn beanstalkd() -> Self {
        Self::start("beanstalkd".into(), |port| {
            ["-l", "127.0.0.1", "-p", port].map(str::to_owned).to_vec()
        })
    }

    fn start(path: OsString, arguments: impl Fn(&str) -> Vec<String>) -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().expect("a folder for the server");
        let mut command = Command::new(&path);
        command.args(arguments(&port.to_string())).current_dir(folder.path());
        let mut program = Program::start(command.stdout(Stdio::null()));
        let is_there = || {
            assert_eq!(program.ended(), None, "{} ended before it listened", path.display());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        eventually(is_there, |&is_there| is_there);
        Self { program, port, _folder: folder }
    }

    /// Sends a command and returns what one read brings.
    fn ask(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
        stream.write_all(format!("{words}\r\n").as_bytes()).expect("the server reads");
        let mut bytes = [0; 16 * 1024];
        let received = stream.read(&mut bytes).expect("the server answers");
        String::from_utf8_lossy(&bytes[..received]).into_owned()
    }

    /// Runs the tool and returns its rows.
    fn load(&self, line: &str) -> Vec<Row> {
        let pid = self.program.pid().to_string();
        rows(&benchmark(&format!("-p {} --pid {pid} {line}", self.port)))
    }
}

/// A line of the tool's CSV.
#[derive(Debug)]
struct Row {
    name: String,
    figures: Vec<(String, f64)>,
}

impl Row {
    fn figure(&self, name: &str) -> f64 {
        let found = self.figures.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("{} has no {name}", self.name)).1
    }

    fn latencies(&self) -> [f64; 5] {
        ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(|name| self.figure(name))
    }
}

fn benchmark(line: &str) -> String {
    run(&line.split_whitespace().collect::<Vec<_>>())
}

fn run(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disque-benchmark"));
    let output = program::run(command.args(words).args(["--format", "csv"]), b"");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("the tool prints text")
}

fn rows(csv: &str) -> Vec<Row> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heads = lines.next().expect("CSV has a head");
    lines
        .map(|cells| {
            let pairs = heads.iter().zip(&cells).skip(3);
            let told = pairs.filter(|(_, cell)| !cell.is_empty());
            let number = |cell: &str| cell.parse().expect("figures are numbers");
            let figures = told.map(|(head, cell)| (head.to_string(), number(cell))).collect();
            Row { name: cells[2].into(), figures }
        })
        .collect()
}

/// Every row stands for so many jobs, nothing was refused, percentiles rise, and both
/// sides spent time.
fn assert_whole(rows: &[Row], names: &[&str], jobs: f64) {
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), names);
    for row in rows {
        assert_eq!(row.figure("operations"), jobs, "{row:?}");
        assert_eq!(row.figure("refused"), 0.0, "{row:?}");
        let latencies = row.latencies();
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{row:?}");
    }
    assert!(rows[0].figure("own_us") > 0.0 && rows[0].figure("resident_after") > 0.0);
}

/// Stops the server for a while in the middle of an open loop.
fn assert_a_stall_shows(server: &Server, peer: &str) {
    const STALL: Duration = Duration::from_millis(600);
    std::thread::scope(|scope| {
        let line = format!("--peer {peer} -w mix --rate 500 --seconds 2 -c 2");
        let load = scope.spawn(move || server.load(&line));
        let mut asked = 0;
        // An INFO counts itself once it is answered.
        let processed_for_load = || {
            let count = commands_processed(server) - asked;
            asked += 1;
            count
        };
        eventually(processed_for_load, |count| *count >= 100);
        server.program.signal(libc::SIGSTOP);
        std::thread::sleep(STALL);
        server.program.signal(libc::SIGCONT);
        let rows = load.join().expect("the load runs to its end");
        let mix = &rows[0];
        assert_eq!(mix.figure("operations"), 1000.0);
        // Of 1000 jobs 300 were due in the stall; a third of those waited 400 ms and more.
        assert!(mix.figure("p90_us") > 300_000.0, "{mix:?}");
        assert!(mix.figure("max_us") > 500_000.0, "{mix:?}");
    });
}

fn commands_processed(server: &Server) -> u64 {
    let info = server.ask("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.and_then(|count| count.trim().parse().ok()).expect("INFO counts commands")
}

fn jobs_held(server: &Server) -> u64 {
    let info = server.ask("INFO jobs");
    let line = info.lines().find_map(|line| line.strip_prefix("registered_jobs:"));
    line.and_then(|count| count.trim().parse().ok()).expect("INFO counts jobs")
}

#[test]
fn what_is_added_to_a_redis_list_is_fetched() {
    let server = Server::redis();
    let rows = server.load("--peer list -n 3000 -P 7 -w add,get --threads 2");
    assert_whole(&rows, &["add", "get"], 3000.0);
    assert_eq!(server.ask("LLEN q"), ":0\r\n");
    let rows = server.load("--peer list -n 3000 -w add");
    assert_whole(&rows, &["add"], 3000.0);
    assert_eq!(server.ask("LLEN q"), ":3000\r\n");
}

#[test]
fn what_is_fetched_from_a_reliable_list_is_removed() {
    let server = Server::redis();
    let rows = server.load("--peer reliable -n 2000 -P 16 -w add,get,ack --random-acks");
    assert_whole(&rows, &["add", "get", "ack"], 2000.0);
    assert_eq!(server.ask("EXISTS q processing"), ":0\r\n");
}

#[test]
fn what_is_fetched_from_a_stream_is_acknowledged_and_deleted() {
    let server = Server::redis();
    let rows = server.load("--peer stream -n 2000 -P 4 --count 10 -w add-drain");
    assert_whole(&rows, &["add", "drain", "drain-ack"], 2000.0);
    assert_eq!(server.ask("XLEN q"), ":0\r\n");
}

#[test]
fn every_job_of_a_flow_reaches_a_waiting_consumer() {
    let server = Server::redis();
    let rows = server.load("--peer stream -n 2000 -w mix -c 8 --threads 2");
    assert_whole(&rows, &["mix", "mix-add", "mix-ack"], 2000.0);
    let rows = server.load("--peer list -n 2000 -w mix -c 8 --queue l --queues 4 --idle 20");
    assert_whole(&rows, &["mix", "mix-add"], 2000.0);
    assert_eq!(server.ask("EXISTS l0 l1 l2 l3"), ":0\r\n");
}

#[test]
fn jobs_are_spread_over_all_queues_and_found_there() {
    let server = Server::redis();
    server.load("--peer list -n 100 -w add --queues 100 -c 1");
    assert_eq!(server.ask("DBSIZE"), ":100\r\n");
    server.load("--peer list -n 300 -w add --queues 100 -c 4");
    let rows = server.load("--peer list -n 400 -w get --queues 100 -c 4");
    assert_whole(&rows, &["get"], 400.0);
    assert_eq!(server.ask("DBSIZE"), ":0\r\n");
}

#[test]
fn error_replies_are_counted_as_refusals() {
    let server = Server::redis();
    assert_eq!(server.ask("SET q 1"), "+OK\r\n");
    let rows = server.load("--peer list -n 50 -w add");
    assert_eq!(rows[0].figure("operations"), 0.0);
    assert_eq!(rows[0].figure("refused"), 50.0);
}

#[test]
fn what_is_acknowledged_is_gone() {
    let server = Server::disque();
    let line = "-n 3000 -P 7 -w add,get,ack --threads 2 --random-acks";
    assert_whole(&server.load(line), &["add", "get", "ack"], 3000.0);
    let line = "-n 3000 -P 3 --count 10 -w add,get,fastack --queues 20";
    assert_whole(&server.load(line), &["add", "get", "fastack"], 3000.0);
    assert_whole(&server.load("-n 500 -w add-drain"), &["add", "drain", "drain-ack"], 500.0);
    assert_eq!(jobs_held(&server), 0);
    server.load("-n 700 -w add --replicate 1");
    assert_eq!(server.ask("QLEN q"), ":700\r\n");
}

#[test]
fn a_consumer_that_works_spends_that_much_on_each_job_it_fetched() {
    let server = Server::disque();
    let rows = server.load("-n 1000 -w add,get,ack --work 200");
    assert_whole(&rows, &["add", "get", "ack"], 1000.0);
    // Of the process's own time, which a busy machine does not stretch as it does a clock's.
    assert!(rows[1].figure("secs") >= 0.2, "{rows:?}");
    assert!(rows[1].figure("own_us") > rows[0].figure("own_us"), "{rows:?}");
    let rows = server.load("-n 500 -w mix -c 4 --work 200");
    assert_whole(&rows, &["mix", "mix-add", "mix-ack"], 500.0);
    assert!(rows[0].figure("secs") >= 0.05, "{rows:?}");
}

#[test]
fn every_job_of_a_disque_flow_is_delivered_and_acknowledged() {
    let server = Server::disque();
    let rows = server.load("-n 2000 -w mix -c 8 --threads 2 --queues 3");
    assert_whole(&rows, &["mix", "mix-add", "mix-ack"], 2000.0);
    assert_eq!(jobs_held(&server), 0);
}

#[test]
fn what_is_put_into_beanstalkd_is_reserved_and_deleted() {
    let server = Server::beanstalkd();
    let rows = server.load("--peer beanstalkd -n 1000 -P 4 -w add,drain -c 5");
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>()[..2], ["add", "drain"]);
    assert!(rows.iter().all(|row| row.figure("operations") == 1000.0), "{rows:?}");
    server.load("--peer beanstalkd -n 300 -w add");
    assert!(server.ask("stats").contains("\ncurrent-jobs-ready: 300\n"));
    let rows = server.load("--peer beanstalkd -n 1000 -w mix -c 8 --queue other");
    assert_eq!(rows[0].name, "mix");
    assert!(rows.iter().all(|row| row.figure("operations") == 1000.0), "{rows:?}");
}

#[test]
fn producers_on_one_node_reach_consumers_on_the_others() {
    let nodes = [Server::disque(), Server::disque(), Server::disque()];
    for node in &nodes[1..] {
        let reply = nodes[0].ask(&format!("CLUSTER MEET 127.0.0.1 {}", node.port));
        assert_eq!(reply, "+OK\r\n");
    }
    let all_meet = |info: &String| info.contains("reachable_nodes:2\r\n");
    for node in &nodes {
        eventually(|| node.ask("CLUSTER INFO"), all_meet);
    }
    let servers = nodes.each_ref().map(|node| format!("--server 127.0.0.1:{}", node.port));
    let line = format!("{} -n 2000 -w federation -c 8 --replicate 2", servers.join(" "));
    assert_eq!(operations(&rows(&benchmark(&line))), [2000.0; 3]);
    let counts = |node: &Server, command: &str| {
        let stats = node.ask("INFO commandstats");
        stats.contains(&format!("cmdstat_{command}:"))
    };
    assert_eq!(nodes.each_ref().map(|node| counts(node, "addjob")), [true, false, false]);
    assert_eq!(nodes.each_ref().map(|node| counts(node, "getjob")), [false, true, true]);
    let line = format!("{} -n 600 -w add -c 6 --replicate 3 --queue spread", servers.join(" "));
    assert_eq!(operations(&rows(&benchmark(&line))), [600.0]);
    let length = |node: &Server| {
        let reply = node.ask("QLEN spread");
        reply.strip_prefix(':').and_then(|text| text.trim().parse().ok()).expect("a number")
    };
    let lengths: [u64; 3] = nodes.each_ref().map(length);
    assert!(lengths.iter().all(|&length| length > 0), "{lengths:?}");
    assert!(lengths.iter().sum::<u64>() >= 600, "{lengths:?}");
}

fn operations(rows: &[Row]) -> Vec<f64> {
    rows.iter().map(|row| row.figure("operations")).collect()
}

#[test]
fn jobs_are_what_the_options_say() {
    let server = Server::disque();
    let port = server.port.to_string();
    let words = "DELAY 500 RETRY 7";
    run(&["-p", &port, "-n", "1", "-w", "add", "-d", "300", "--async", "--with", words]);
    let jobs = server.ask("JSCAN REPLY all");
    for part in ["delay\r\n:500", "retry\r\n:7", "body\r\n$300"] {
        assert!(jobs.contains(&format!("\r\n{part}\r\n")), "no {part} in {jobs}");
    }
}

#[test]
fn a_wait_measures_how_late_a_timeout_is() {
    let rows = Server::disque().load("-n 20 -c 20 -w wait --timeout 50");
    assert_eq!(rows[0].figure("operations"), 20.0);
    assert!(rows[0].figure("secs") >= 0.05, "{rows:?}");
}

#[test]
fn a_stall_of_disque_shows_in_all_jobs_that_were_due_meanwhile() {
    assert_a_stall_shows(&Server::disque(), "disque");
}

#[test]
fn a_stall_of_redis_shows_in_all_jobs_that_were_due_meanwhile() {
    assert_a_stall_shows(&Server::redis(), "list");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let rows = Server::redis().load("--peer list -w add --rate 1000 --seconds 0.5 -c 4");
    assert_whole(&rows, &["add"], 500.0);
    assert!(rows[0].figure("secs") > 0.49, "{rows:?}");
}

#[test]
fn a_picture_is_written_where_plot_says() {
    let server = Server::redis();
    let folder = tempfile::tempdir().expect("a folder for the picture");
    let path = folder.path().join("run.svg");
    server.load(&format!("--peer list -n 1000 -w add,get --plot {}", path.display()));
    let picture = std::fs::read_to_string(path).expect("the picture is there");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_disque-benchmark"));
    let output = program::run(command.args(["-p", &port.to_string()]), b"");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(&format!("127.0.0.1:{port}")), "{errors}");
}

#[test]
fn a_server_with_a_password_is_loaded_with_it_and_not_without() {
    let server = Server::start(server_path(), |port| {
        ["--port", port, "--bind", "127.0.0.1", "--requirepass", "secret"]
            .map(str::to_owned)
            .to_vec()
    });
    let rows = server.load("-a secret -n 100 -c 2 --idle 1");
    assert_whole(&rows, &["add", "get", "ack"], 100.0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_disque-benchmark"));
    command.args(["-h", &format!("127.0.0.1:{}", server.port), "-n", "1"]);
    let output = program::run(command.env("DISQUE_AUTH", "wrong"), b"");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("disque-benchmark: AUTH failed: ERR invalid password."), "{errors}");
}
