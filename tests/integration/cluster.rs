//! Nodes that meet, fail, come back, leave and forget each other, over real sockets.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;

use disque::proto::reply_reader::Value;

use crate::mesh::{Mesh, NOT_ENOUGH, OPTIONS, figure};
use crate::support::{Client, TestServer, bulk, error, eventually, integer, status, text};

#[test]
fn nodes_that_met_are_told_to_clients_by_each_of_them() {
    let mesh = Mesh::of(3);
    for n in 0..3 {
        let mut client = mesh.client(n);
        let Value::Array(hello) = client.call("HELLO") else { panic!("HELLO gives an array") };
        assert_eq!(hello[..2], [Value::Integer(1), bulk(&mesh.ids[n])]);
        let entry = |n: usize| {
            let port = mesh.servers[n].port().to_string();
            Value::Array(vec![bulk(&mesh.ids[n]), bulk("127.0.0.1"), bulk(port), bulk("1")])
        };
        assert_eq!(hello.len(), 5);
        for n in 0..3 {
            assert!(hello.contains(&entry(n)), "{hello:?}");
        }
        assert_eq!(figure(&mut client, "size"), 3);
        assert_eq!(figure(&mut client, "reachable_nodes"), 2);
    }
}

#[test]
fn a_job_acknowledged_on_one_node_is_gone_from_all() {
    let mesh = Mesh::of(3);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3"));
    assert_ne!(mesh.client(2).call(&format!("SHOW {id}")), Value::NullBulk);
    assert_eq!(integer(mesh.client(1).call(&format!("ACKJOB {id}"))), 1);
    for n in 0..3 {
        eventually(
            || mesh.client(n).call(&format!("SHOW {id}")),
            |shown| *shown == Value::NullBulk,
        );
    }
}

#[test]
fn a_job_comes_to_the_node_where_somebody_waits_for_it() {
    let mesh = Mesh::of(2);
    let mut waiting = mesh.client(1);
    waiting.send_command("GETJOB FROM q");
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 1"));
    let job = Value::Array(vec![bulk("q"), bulk(id), bulk("body")]);
    assert_eq!(waiting.reply(), Value::Array(vec![job]));
}

#[test]
fn a_killed_node_fails_and_is_itself_again_after_its_restart() {
    let mut mesh = Mesh::of(3);
    mesh.servers[2].stop_by(libc::SIGKILL);
    mesh.wait_for_each(&[0, 1], &[2], "fail");
    assert_eq!(mesh.client(0).call("ADDJOB q body 5000"), error(NOT_ENOUGH));
    mesh.add_on_at_most(0, 2, "body");
    mesh.servers[2].start_again(&OPTIONS);
    assert_eq!(text(mesh.client(2).call("CLUSTER MYID")), mesh.ids[2]);
    mesh.wait_until_whole();
}

#[test]
fn a_frozen_node_fails_until_it_goes_on() {
    let mesh = Mesh::of(3);
    mesh.servers[2].signal(libc::SIGSTOP);
    mesh.wait_for_each(&[0, 1], &[2], "fail");
    mesh.servers[2].signal(libc::SIGCONT);
    mesh.wait_until_whole();
}

#[test]
fn a_forgotten_node_is_not_brought_back_by_gossip() {
    let mesh = Mesh::of(3);
    let mut client = mesh.client(0);
    assert_eq!(client.call(&format!("CLUSTER FORGET {}", mesh.ids[2])), status("OK"));
    let received = figure(&mut client, "stats_messages_received");
    eventually(|| figure(&mut client, "stats_messages_received"), |now| *now > received + 20);
    assert_eq!(figure(&mut client, "known_nodes"), 2);
    assert_eq!(mesh.seen(0, 2), None);
    let conf = fs::read_to_string(mesh.servers[0].folder().join("nodes.conf")).expect("a file");
    assert_eq!(conf.lines().count(), 2);
}

#[test]
fn a_node_that_leaves_turns_its_clients_away_and_stores_elsewhere() {
    let mesh = Mesh::of(2);
    let mut waiting = mesh.client(0);
    waiting.send_command("GETJOB FROM q");
    eventually(
        || text(mesh.client(0).call("INFO clients")),
        |info| info.contains("blocked_clients:1"),
    );
    let mut client = mesh.client(0);
    assert_eq!(client.call("CLUSTER LEAVING yes"), status("OK"));
    let leaving = "LEAVING This node is leaving the cluster, please connect to a different one";
    assert_eq!(waiting.reply(), error(leaving));
    // Who still waits at the next look after waiters, every 100 ms, is turned away too.
    let added = eventually(
        || client.call("ADDJOB q body 5000 REPLICATE 1"),
        |reply| matches!(reply, Value::Status(_)),
    );
    let id = text(added);
    assert_eq!(client.call(&format!("SHOW {id}")), Value::NullBulk);
    eventually(|| integer(mesh.client(1).call("QLEN q")), |len| *len == 1);
    mesh.wait_for(1, 0, "leaving");
    assert_eq!(client.call("CLUSTER LEAVING no"), status("OK"));
    mesh.wait_until_whole();
}

/// A mesh of two whose first node has a job, and a client that waits for others.
fn mesh_with_somebody_waiting() -> (Mesh, Client) {
    let mesh = Mesh::of(2);
    let mut waiting = mesh.client(0);
    waiting.send_command("GETJOB FROM others");
    let mut client = mesh.client(0);
    eventually(|| text(client.call("INFO clients")), |info| info.contains("blocked_clients:1"));
    assert!(text(client.call("ADDJOB q body 5000 REPLICATE 1")).starts_with("D-"));
    (mesh, waiting)
}

#[test]
fn a_node_that_was_reset_hard_is_alone_under_a_new_id() {
    let (mesh, mut waiting) = mesh_with_somebody_waiting();
    let mut client = mesh.client(0);
    assert_eq!(client.call("CLUSTER RESET HARD"), status("OK"));
    assert_eq!(waiting.reply(), Value::NullArray);
    assert_ne!(text(client.call("CLUSTER MYID")), mesh.ids[0]);
    assert_eq!(figure(&mut client, "known_nodes"), 1);
    assert_eq!(integer(client.call("QLEN q")), 0);
    mesh.wait_for(1, 0, "noaddr");
}

#[test]
fn a_node_that_was_reset_keeps_its_id_and_is_found_again_by_meet() {
    let (mesh, mut waiting) = mesh_with_somebody_waiting();
    let mut client = mesh.client(0);
    assert_eq!(client.call("CLUSTER RESET"), status("OK"));
    assert_eq!(waiting.reply(), Value::NullArray);
    assert_eq!(text(client.call("CLUSTER MYID")), mesh.ids[0]);
    assert_eq!(figure(&mut client, "known_nodes"), 1);
    assert_eq!(integer(client.call("QLEN q")), 0);
    mesh.meet(0, 1);
    mesh.wait_until_whole();
}

#[test]
fn nodes_meet_over_ipv6() {
    let options = [&OPTIONS[..], &["--bind", "::1", "127.0.0.1"]].concat();
    let servers = (0..3).map(|_| TestServer::start_with(&options)).collect();
    let mut mesh = Mesh::at("::1", servers);
    for n in 0..3 {
        let nodes = text(mesh.client(n).call("CLUSTER NODES"));
        for server in &mesh.servers {
            assert!(nodes.contains(&format!(" ::1:{} ", server.port())), "{nodes}");
        }
    }
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3"));
    assert_ne!(mesh.client(2).call(&format!("SHOW {id}")), Value::NullBulk);
    mesh.servers[2].stop_by(libc::SIGKILL);
    mesh.wait_for_each(&[0, 1], &[2], "fail");
    mesh.servers[2].start_again(&options);
    mesh.wait_until_whole();
}

#[test]
fn meeting_nobody_is_shown_then_over_and_leaves_advice_in_the_log() {
    let server = TestServer::start_with(&OPTIONS);
    let mut client = server.client();
    // Nobody listens on the bus port of the server's own bus port.
    let port = server.port() + 10_000;
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {port}")), status("OK"));
    let Value::Array(hello) = client.call("HELLO") else { panic!("HELLO gives an array") };
    let Value::Array(entry) = &hello[3] else { panic!("a node has four fields") };
    assert_eq!(entry[3], bulk("5"));
    eventually(|| figure(&mut client, "known_nodes"), |count| *count == 1);
    let log = fs::read_to_string(server.folder().join("log")).expect("a log");
    let advice = format!(
        "the bus port {} could not be reached: Connection refused (os error 111).",
        port + 10_000
    );
    assert!(log.contains(&advice), "{log}");
}

/// On a busy machine a node may be suspected once more than the test makes it, but never twice
/// in a row.
#[test]
fn the_log_at_notice_says_once_what_became_of_a_node() {
    let options = [&OPTIONS[..], &["--loglevel", "notice"]].concat();
    let servers = (0..3).map(|_| TestServer::start_with(&options)).collect();
    let mut mesh = Mesh::at("127.0.0.1", servers);
    mesh.servers[2].stop_by(libc::SIGKILL);
    mesh.wait_for(0, 2, "fail");
    mesh.servers[2].start_again(&options);
    mesh.wait_until_whole();
    for (order, flags) in [("yes", "leaving"), ("no", "noflags")] {
        assert_eq!(mesh.client(2).call(&format!("CLUSTER LEAVING {order}")), status("OK"));
        mesh.wait_for(0, 2, flags);
    }
    assert_eq!(mesh.client(0).call(&format!("CLUSTER FORGET {}", mesh.ids[2])), status("OK"));

    const ENDS: [&str; 9] = [
        " joined the cluster.",
        ": Connection refused (os error 111). It is tried again and again.",
        " does not answer: it gets no jobs until it does.",
        " is failing: a majority of the nodes cannot reach it.",
        " failed attempts.",
        " answers again.",
        " is leaving the cluster: it gets no new jobs.",
        " stays in the cluster.",
        " was forgotten.",
    ];
    let log = mesh.servers[0].log();
    let name = format!("ode {} at 127.0.0.1:{}", mesh.ids[2], mesh.servers[2].port());
    let ends: Vec<usize> = log
        .lines()
        .filter(|line| line.contains(&name))
        .map(|line| ENDS.iter().position(|end| line.ends_with(end)).expect("one of these lines"))
        .collect();
    assert!(ends.windows(2).all(|pair| pair[0] != pair[1]), "{log}");
    let mut rest = ends.iter();
    for (end, text) in ENDS.iter().enumerate() {
        assert!(rest.any(|there| *there == end), "{text} in its place: {log}");
    }
}

#[test]
fn an_address_that_cannot_be_reached_from_where_the_node_is_bound_is_told_as_such() {
    let server = TestServer::start_with(&OPTIONS);
    // A server of these tests is bound to a loopback address.
    assert_eq!(server.client().call("CLUSTER MEET 203.0.113.1 7711"), status("OK"));
    let advice = "the bus port 17711 could not be reached: from 127.0.0.1: ";
    eventually(|| server.log(), |log| log.contains(advice));
}

#[test]
fn who_does_not_speak_the_bus_is_hung_up_on() {
    let server = TestServer::start();
    let mut stream =
        TcpStream::connect(("127.0.0.1", server.port() + 10_000)).expect("the bus listens");
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n").expect("the bus reads");
    let mut answer = Vec::new();
    // A reset is as good an end as any.
    let _either_way = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    assert_eq!(server.client().call("PING"), status("PONG"));
}
