//! Real nodes, each in a folder of its own, and what the client shows of them.
//!
//! `DISQUE_SERVER=path` runs these tests against another server.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use disque::cli::help;

use crate::{client, run, told, told_by};

/// How long anything may take before a test fails. Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);
const BUS_PORT_OFFSET: u16 = 10_000;

/// A running node. It is killed when it goes out of scope.
struct Node {
    port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Node {
        let program = std::env::var("DISQUE_SERVER")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_disque-server").to_string());
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--cluster-node-timeout", "3000"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("the server starts");
        let node = Node { port, process, _folder: folder };
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        node
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn stop(&mut self) {
        // It may have been stopped before; either way it is gone after this.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that is free together with its bus port. Tests of this process never ask for the
/// same one, and other processes begin elsewhere.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 9_000).expect("below 9,000");
    loop {
        let port = 12_000 + (start + TRIED.fetch_add(1, Ordering::Relaxed)) % 9_000;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + BUS_PORT_OFFSET) {
            return port;
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up_at, "it never happens that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn three_nodes() -> ([Node; 3], String) {
    let nodes = [Node::start(), Node::start(), Node::start()];
    let addresses = nodes.each_ref().map(Node::address).join(" ");
    let create = format!("cluster create {addresses}");
    let (stdout, stderr, status) = told_by(client(nodes[0].port, &create));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: a cluster of 3 nodes\n"), "{stdout}");
    (nodes, create)
}

#[test]
fn create_makes_one_cluster_and_check_names_the_node_that_is_down() {
    let (mut nodes, create) = three_nodes();
    let port = nodes[0].port;
    // Once more changes nothing.
    let (stdout, _, status) = told_by(client(port, &create));
    assert_eq!((stdout.lines().count(), status), (4, 0), "{stdout}");
    let pair = format!("cluster create {} {}", nodes[0].address(), nodes[1].address());
    let (_, stderr, status) = told_by(client(port, &pair));
    let sentence = format!(
        "{} is in a cluster with 1 other nodes: name those too, or take it out with \
         CLUSTER RESET.\n",
        nodes[0].address()
    );
    assert_eq!((stderr, status), (sentence, 1));

    let (stdout, stderr, status) = told_by(client(port, "cluster check"));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: 3 nodes see each other\n"), "{stdout}");
    let (stdout, _, status) = told_by(client(port, "--check"));
    assert!(stdout.starts_with("OK: 3 nodes, memory "), "{stdout}");
    assert_eq!(status, 0);

    let lost = nodes[2].address();
    nodes[2].stop();
    let (stdout, _, status) = told_by(client(port, "cluster check"));
    let line = format!("{lost}: Could not connect to Disque at {lost}: Connection refused\n");
    assert!(stdout.contains(&line), "{stdout}");
    assert!(stdout.contains("TROUBLE: at "), "{stdout}");
    assert_eq!(status, 1);
    wait_until("the node is found failing", || {
        let (stdout, _, status) = told_by(client(port, "--check"));
        status == 1 && stdout.contains(&format!("{lost} failing"))
    });
    let (_, stderr, status) = told_by(client(port, "-i 0.01 queues"));
    assert!(stderr.starts_with("Left out node "), "{stderr}");
    assert_eq!(status, 1);
}

#[test]
fn queues_and_top_add_up_what_all_nodes_hold() {
    let (nodes, _) = three_nodes();
    for node in &nodes {
        let (id, _, _) = told_by(client(node.port, "addjob mail body 5000 replicate 1 retry 0"));
        assert!(id.starts_with("D-"), "{id}");
    }
    let pause = told_by(client(nodes[1].port, "pause mail out"));
    assert_eq!(pause.0, "out\n");
    let (stdout, stderr, status) = told_by(client(nodes[2].port, "-i 0.01 --json queues"));
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert!(
        stdout.starts_with("[{\"queue\":\"mail\",\"length\":3,\"oldest_age_secs\":"),
        "{stdout}"
    );
    assert!(
        stdout.ends_with(
            ",\"in_per_sec\":0.0,\"out_per_sec\":0.0,\"blocked\":0,\"paused\":\"out\",\
             \"nodes\":3}]\n"
        ),
        "{stdout}"
    );
    let (stdout, _, status) = told_by(client(nodes[0].port, "-r 2 -i 0.01 top"));
    assert_eq!(stdout.matches("3 nodes, 1 queues, 3 jobs queued\n\nQUEUE ").count(), 2, "{stdout}");
    assert_eq!(status, 0);
}

#[test]
fn pipe_sends_jobs_to_a_real_server() {
    let node = Node::start();
    let jobs = b"ADDJOB bulk body 0\r\n".repeat(1000);
    let (stdout, stderr, status) = told(&run(client(node.port, "--pipe"), &jobs));
    assert!(stdout.ends_with("errors: 0, replies: 1000\n"), "{stdout}");
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert_eq!(told_by(client(node.port, "qlen bulk")).0, "1000\n");
    let (stdout, _, status) = told_by(client(node.port, "--max-length 999 --check"));
    assert_eq!(stdout, "WARNING: queue bulk holds 1000 jobs, over 999\n");
    assert_eq!(status, 1);
    assert_eq!(told_by(client(node.port, "--max-length 1000 --check bulk")).2, 0);
}

#[test]
fn the_client_has_help_on_every_command_of_the_server() {
    let node = Node::start();
    let (stdout, _, _) = told_by(client(node.port, "--csv command"));
    // Rows of name, arity, flags and positions: the names are those before a number.
    let words: Vec<&str> = stdout.trim_end().split(',').collect();
    let mut served: BTreeSet<String> = words
        .windows(2)
        .filter(|pair| pair[0].starts_with('"') && pair[1].parse::<i64>().is_ok_and(|n| n != 0))
        .map(|pair| pair[0].trim_matches('"').to_string())
        .collect();
    served.insert("command".to_string());
    served.insert("quit".to_string());
    let helped: BTreeSet<String> = help::COMMANDS
        .iter()
        .filter_map(|help| help.name.split(' ').next())
        .map(str::to_ascii_lowercase)
        .collect();
    assert_eq!(served, helped);
}
