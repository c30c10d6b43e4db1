//! Who belongs to a cluster, in meshes of real processes: many that die, nodes that move,
//! clusters that must stay apart, and a file full of the dead.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use disque::base::ids::NodeId;
use disque::proto::bus::{GossipEntry, GossipKind, NodeFlags};
use disque::proto::reply_reader::Value;

use crate::bus_peer::{BusPeer, link_to};
use crate::mesh::{Mesh, OPTIONS, figure};
use crate::support::{TestServer, eventually, free_port, integer, status, text};

#[test]
fn of_seven_nodes_three_may_die_and_be_themselves_again() {
    let mut mesh = Mesh::of(7);
    for n in 0..2 {
        mesh.servers[n].stop_by(libc::SIGKILL);
    }
    mesh.servers[2].signal(libc::SIGSTOP);
    mesh.wait_for_each(&[3, 4, 5, 6], &[0, 1, 2], "fail");
    mesh.add_on_at_most(3, 4, "body");
    for n in 0..2 {
        mesh.servers[n].start_again(&OPTIONS);
        assert_eq!(text(mesh.client(n).call("CLUSTER MYID")), mesh.ids[n]);
    }
    mesh.servers[2].signal(libc::SIGCONT);
    mesh.wait_until_whole();
}

#[test]
fn three_nodes_of_seven_suspect_the_others_and_fail_nobody() {
    let mesh = Mesh::of(7);
    for n in 3..7 {
        mesh.servers[n].signal(libc::SIGSTOP);
    }
    mesh.wait_for_each(&[0, 1, 2], &[3, 4, 5, 6], "fail?");
    mesh.add_on_at_most(0, 3, "body");
    for n in 3..7 {
        mesh.servers[n].signal(libc::SIGCONT);
    }
    mesh.wait_until_whole();
}

#[test]
fn a_node_that_moves_to_another_port_or_address_is_followed() {
    let mut mesh = Mesh::of(3);
    mesh.servers[2].stop_by(libc::SIGTERM);
    mesh.servers[2].start_again_on(free_port(), &OPTIONS);
    mesh.wait_until_whole();
    mesh.servers[2].stop_by(libc::SIGKILL);
    let moved = [&OPTIONS[..], &["--bind", "127.0.0.2", "127.0.0.1"]].concat();
    mesh.servers[2].start_again(&moved);
    let address = format!("127.0.0.2:{}", mesh.servers[2].port());
    for by in 0..2 {
        eventually(
            || mesh.seen(by, 2),
            |seen| seen.as_ref().is_some_and(|seen| seen.address == address),
        );
    }
    mesh.wait_until_whole();
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3"));
    assert_ne!(mesh.client(2).call(&format!("SHOW {id}")), Value::NullBulk);
}

#[test]
fn an_address_taken_over_by_a_node_of_another_cluster_does_not_join_the_two() {
    let (mut ours, mut theirs) = (Mesh::of(2), Mesh::of(2));
    let (port, their_port) = (ours.servers[1].port(), theirs.servers[1].port());
    ours.servers[1].stop_by(libc::SIGKILL);
    theirs.servers[1].stop_by(libc::SIGKILL);
    theirs.servers[1].start_again_on(port, &OPTIONS);
    theirs.wait_until_whole();
    let has_lost_address = |flags: &str| flags.split(',').any(|flag| flag == "noaddr");
    eventually(
        || ours.seen(0, 1),
        |seen| seen.as_ref().is_some_and(|seen| has_lost_address(&seen.flags)),
    );
    ours.servers[1].start_again_on(their_port, &OPTIONS);
    // Being whole includes that nobody else is known.
    ours.wait_until_whole();
    theirs.wait_until_whole();
}

#[test]
fn who_answers_at_an_address_under_another_id_than_was_said_is_not_taken_in() {
    let (server, other) = (TestServer::start_with(&OPTIONS), TestServer::start_with(&OPTIONS));
    let said = NodeId::from_random([9; 20]);
    let refusals = || server.log().matches("answered where another one was expected").count();
    // A stranger that wants to be met where somebody else listens.
    let stranger = BusPeer { id: said, port: other.port() };
    link_to(&server).write_all(&stranger.heartbeat(GossipKind::Meet, &[])).expect("it reads");
    eventually(refusals, |count| *count == 1);
    // A known node that says the same of a third.
    let peer = BusPeer::listen([7; 20]);
    peer.join(&server);
    let entry = GossipEntry {
        node: said,
        ping_sent: 0,
        pong_received: 0,
        ip: Some([127, 0, 0, 1].into()),
        port: other.port(),
        flags: NodeFlags::default(),
        tail: GossipEntry::announce_bus_port(None),
    };
    link_to(&server).write_all(&peer.heartbeat(GossipKind::Ping, &[entry])).expect("it reads");
    eventually(refusals, |count| *count == 2);
    assert_eq!(figure(&mut server.client(), "known_nodes"), 2);
    assert_eq!(figure(&mut other.client(), "known_nodes"), 1);
}

#[test]
fn two_servers_with_one_nodes_conf_find_out_and_say_what_to_do() {
    let first = TestServer::start_with(&OPTIONS);
    let folder = tempfile::tempdir().expect("a folder");
    let copied = fs::copy(first.folder().join("nodes.conf"), folder.path().join("nodes.conf"));
    copied.expect("the server has saved it");
    let second = TestServer::start_in(folder, &OPTIONS);
    let third = TestServer::start_with(&OPTIONS);
    for _ in 0..3 {
        let meet = format!("CLUSTER MEET 127.0.0.1 {}", second.port());
        assert_eq!(first.client().call(&meet), status("OK"));
        eventually(|| figure(&mut first.client(), "known_nodes"), |count| *count == 1);
    }
    let warnings = |server: &TestServer| server.log().matches("uses the ID of this one").count();
    for server in [&first, &second] {
        assert_eq!(warnings(server), 1, "{}", server.log());
    }
    // Who knows both sees one node that is in two places.
    for twin in [&first, &second] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {}", third.port());
        assert_eq!(twin.client().call(&meet), status("OK"));
    }
    let is_told = |log: &String| log.contains("in turn. If two servers were started with copies");
    eventually(|| third.log(), is_told);
}

#[test]
fn a_node_can_be_forgotten_while_queues_and_jobs_name_it() {
    let mesh = Mesh::of(3);
    let mut client = mesh.client(0);
    // Lent by node 1, which is a source of the queue from then on.
    text(mesh.client(1).call("ADDJOB lent body 5000 REPLICATE 1"));
    assert!(matches!(client.call("GETJOB FROM lent"), Value::Array(_)));
    let id = text(client.call("ADDJOB held body 5000 REPLICATE 3 RETRY 1"));
    assert!(matches!(client.call("GETJOB FROM held"), Value::Array(_)));
    assert_eq!(client.call(&format!("CLUSTER FORGET {}", mesh.ids[1])), status("OK"));
    let Value::Array(stat) = client.call("QSTAT lent") else { panic!("the queue is there") };
    assert_eq!(stat.len(), 20);
    let Value::Array(job) = client.call(&format!("SHOW {id}")) else { panic!("the job is there") };
    assert_eq!(job.len(), 30);
    // What the source lent is asked for again, and the job is requeued.
    assert_eq!(client.call("GETJOB TIMEOUT 100 FROM lent"), Value::NullArray);
    assert!(matches!(client.call("GETJOB FROM held"), Value::Array(_)));
    assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
    eventually(
        || mesh.client(2).call(&format!("SHOW {id}")),
        |shown| !format!("{shown:?}").contains("queued"),
    );
    mesh.meet(0, 1);
    mesh.wait_until_whole();
}

/// Ten thousand nodes in nodes.conf, none of which is there.
#[test]
fn ten_thousand_dead_nodes_hold_up_neither_start_nor_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut conf = String::new();
    for n in 0..=10_000_u16 {
        let id = NodeId::from_random(core::array::from_fn(|at| n.to_le_bytes()[at % 2]));
        let [high, low] = n.to_be_bytes();
        let flags = if n == 0 { "myself" } else { "noflags" };
        conf += &format!("{id} 127.1.{high}.{low}:1 {flags} 0 0 disconnected\n");
    }
    fs::write(folder.path().join("nodes.conf"), conf).expect("the folder is ours");
    let server = TestServer::start_in(folder, &[&OPTIONS[..], &["--loglevel", "notice"]].concat());
    let work = server.cpu_time();
    assert!(work < Duration::from_millis(250), "{work:?} of work to start");
    let mut client = server.client();
    assert_eq!(figure(&mut client, "known_nodes"), 10_001);
    let mut most_work = Duration::ZERO;
    // Suspected are those that were tried and did not answer for the node timeout.
    let pinged = || {
        let asked_at = server.cpu_time();
        assert_eq!(client.call("PING"), status("PONG"));
        most_work = most_work.max(server.cpu_time() - asked_at);
        figure(&mut client, "reachable_nodes")
    };
    eventually(pinged, |count| *count <= 9_000);
    assert!(most_work < Duration::from_millis(100), "{most_work:?} before a PING was answered");
}
