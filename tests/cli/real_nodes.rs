//! Real nodes, each in a folder of its own, and what the client shows of them.

use std::collections::BTreeSet;

use disque::cli::help::{self, Colour};

use crate::support::{TestServer, eventually};
use crate::{client, run, told, told_by};

fn start() -> TestServer {
    TestServer::start_with(&["--cluster-node-timeout", "3000"])
}

fn address(node: &TestServer) -> String {
    format!("127.0.0.1:{}", node.port())
}

fn three_nodes() -> ([TestServer; 3], String) {
    let nodes = [start(), start(), start()];
    let addresses = nodes.each_ref().map(address).join(" ");
    let create = format!("cluster create {addresses}");
    let (stdout, stderr, status) = told_by(client(nodes[0].port(), &create));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: a cluster of 3 nodes\n"), "{stdout}");
    (nodes, create)
}

#[test]
fn create_makes_one_cluster_and_check_names_the_node_that_is_down() {
    let (mut nodes, create) = three_nodes();
    let port = nodes[0].port();
    // Once more changes nothing.
    let (stdout, _, status) = told_by(client(port, &create));
    assert_eq!((stdout.lines().count(), status), (4, 0), "{stdout}");
    let pair = format!("cluster create {} {}", address(&nodes[0]), address(&nodes[1]));
    let (_, stderr, status) = told_by(client(port, &pair));
    let sentence = format!(
        "{} is in a cluster with 1 other nodes: name those too, or take it out with \
         CLUSTER RESET.\n",
        address(&nodes[0])
    );
    assert_eq!((stderr, status), (sentence, 1));

    let (stdout, stderr, status) = told_by(client(port, "cluster check"));
    assert_eq!((stderr.as_str(), status), ("", 0), "{stdout}");
    assert!(stdout.ends_with("OK: 3 nodes see each other\n"), "{stdout}");
    let (stdout, _, status) = told_by(client(port, "--check"));
    assert!(stdout.starts_with("OK: 3 nodes, memory "), "{stdout}");
    assert_eq!(status, 0);

    let lost = address(&nodes[2]);
    nodes[2].stop_by(libc::SIGKILL);
    let (stdout, _, status) = told_by(client(port, "cluster check"));
    let line = format!("{lost}: Could not connect to Disque at {lost}: Connection refused\n");
    assert!(stdout.contains(&line), "{stdout}");
    assert!(stdout.contains("TROUBLE: at "), "{stdout}");
    assert_eq!(status, 1);
    eventually(
        || told_by(client(port, "--check")),
        |(stdout, _, status)| *status == 1 && stdout.contains(&format!("{lost} failing")),
    );
    let (_, stderr, status) = told_by(client(port, "-i 0.01 queues"));
    assert!(stderr.starts_with("Left out node "), "{stderr}");
    assert_eq!(status, 1);
}

#[test]
fn queues_and_top_add_up_what_all_nodes_hold() {
    let (nodes, _) = three_nodes();
    for node in &nodes {
        let (id, _, _) = told_by(client(node.port(), "addjob mail body 5000 replicate 1 retry 0"));
        assert!(id.starts_with("D-"), "{id}");
    }
    let pause = told_by(client(nodes[1].port(), "pause mail out"));
    assert_eq!(pause.0, "out\n");
    let (stdout, stderr, status) = told_by(client(nodes[2].port(), "-i 0.01 --json queues"));
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
    let (stdout, _, status) = told_by(client(nodes[0].port(), "-r 2 -i 0.01 top"));
    assert_eq!(stdout.matches("3 nodes, 1 queues, 3 jobs queued\n\nQUEUE ").count(), 2, "{stdout}");
    assert_eq!(status, 0);
}

#[test]
fn pipe_sends_jobs_to_a_real_server() {
    let node = start();
    let jobs = b"ADDJOB bulk body 0\r\n".repeat(1000);
    let (stdout, stderr, status) = told(&run(client(node.port(), "--pipe"), &jobs));
    assert!(stdout.ends_with("errors: 0, replies: 1000\n"), "{stdout}");
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert_eq!(told_by(client(node.port(), "qlen bulk")).0, "1000\n");
    let (stdout, _, status) = told_by(client(node.port(), "--max-length 999 --check"));
    assert_eq!(stdout, "WARNING: queue bulk holds 1000 jobs, over 999\n");
    assert_eq!(status, 1);
    assert_eq!(told_by(client(node.port(), "--max-length 1000 --check bulk")).2, 0);
}

#[test]
fn the_client_has_help_on_every_command_of_the_server() {
    let node = start();
    let (stdout, _, _) = told_by(client(node.port(), "--csv command"));
    // Rows of name, arity, flags and positions: the names are those before a number.
    let words: Vec<&str> = stdout.trim_end().split(',').collect();
    let mut served: BTreeSet<String> = words
        .windows(2)
        .filter(|pair| pair[0].starts_with('"') && pair[1].parse::<i64>().is_ok_and(|n| n != 0))
        .map(|pair| pair[0].trim_matches('"').to_string())
        .collect();
    served.insert("command".to_string());
    for name in served {
        let asked = help::render(&[name.clone().into_bytes()], Colour::Off);
        assert!(asked.contains("summary: "), "{name}");
    }
}
