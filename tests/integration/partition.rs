//! Nodes whose network is cut, slow, deaf on one side or damages what it carries, and what
//! becomes of them and their jobs, then and once it is whole again.

use std::fs;
use std::time::{Duration, Instant};

use disque::proto::reply_reader::Value;

use crate::bus_proxy::{Fate, ProxiedMesh};
use crate::mesh::{Mesh, figure};
use crate::support::{PATIENCE, eventually, integer, text};

/// Waits until a job has left all nodes.
#[track_caller]
fn wait_until_gone(mesh: &Mesh, id: &str) {
    for n in 0..mesh.servers.len() {
        let shown = || mesh.client(n).call(&format!("SHOW {id}"));
        eventually(shown, |shown| *shown == Value::NullBulk);
    }
}

#[test]
fn two_nodes_that_a_third_reaches_suspect_each_other_and_are_not_failing() {
    let net = ProxiedMesh::of(3);
    let mesh = &net.mesh;
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3"));
    net.split(&[0], &[1]);
    mesh.wait_for(0, 1, "fail?");
    mesh.wait_for(1, 0, "fail?");
    let other = mesh.add_on_at_most(0, 2, "body");
    assert_eq!(integer(mesh.client(1).call(&format!("ACKJOB {id}"))), 1);
    // Not known there: the acknowledgement alone is kept, and told to all.
    assert_eq!(integer(mesh.client(1).call(&format!("ACKJOB {other}"))), 0);
    for whom in 0..2 {
        mesh.wait_for(2, whom, "noflags");
        mesh.wait_for(1 - whom, whom, "fail?");
    }
    net.wires.heal();
    mesh.wait_until_whole();
    wait_until_gone(mesh, &id);
    wait_until_gone(mesh, &other);
}

#[test]
fn both_sides_of_a_split_work_on_and_are_one_again_afterwards() {
    let net = ProxiedMesh::of(5);
    let mesh = &net.mesh;
    let (minority, majority) = ([0, 1], [2, 3, 4]);
    let before = text(mesh.client(0).call("ADDJOB q before 5000 REPLICATE 5"));
    net.split(&minority, &majority);
    mesh.wait_for_each(&majority, &minority, "fail");
    mesh.wait_for_each(&minority, &majority, "fail?");
    mesh.add_on_at_most(0, 2, "0");
    mesh.add_on_at_most(4, 3, "4");
    // Acked where only some of its copies can hear of it.
    assert_eq!(integer(mesh.client(4).call(&format!("ACKJOB {before}"))), 1);
    net.wires.heal();
    mesh.wait_until_whole();
    wait_until_gone(mesh, &before);
    // What each side added is delivered, wherever one asks.
    let mut bodies = Vec::new();
    let mut client = mesh.client(2);
    while bodies.len() < 2 {
        let Value::Array(jobs) = client.call("GETJOB FROM q") else { panic!("jobs are an array") };
        for job in jobs {
            let Value::Array(job) = job else { panic!("a job has three fields") };
            let [_, id, body] = <[Value; 3]>::try_from(job).expect("a job has three fields");
            assert_eq!(integer(client.call(&format!("ACKJOB {}", text(id)))), 1);
            bodies.push(text(body));
        }
    }
    bodies.sort();
    assert_eq!(bodies, ["0", "4"]);
}

#[test]
fn a_node_that_hears_nobody_is_failing_for_all_and_nobody_else_is() {
    let net = ProxiedMesh::of(3);
    let mesh = &net.mesh;
    net.set(&[0, 1], &[2], Fate::Swallow);
    for by in 0..2 {
        mesh.wait_for(by, 2, "fail");
        // The deaf node suspects them, and says so.
        mesh.wait_for(2, by, "fail?");
    }
    for (by, whom) in [(0, 1), (1, 0)] {
        mesh.wait_for(by, whom, "noflags");
    }
    net.wires.heal();
    mesh.wait_until_whole();
}

#[test]
fn a_slow_network_is_no_failure() {
    let net = ProxiedMesh::of(3);
    let mesh = &net.mesh;
    // Slow, and far from the timeout even on a busy machine.
    (0..3).for_each(|n| mesh.client(n).ok("CONFIG SET cluster-node-timeout 10000"));
    net.set(&[0, 1, 2], &[0, 1, 2], Fate::Late(Duration::from_millis(300)));
    let mut client = mesh.client(0);
    let id = text(client.call("ADDJOB q body 0 REPLICATE 3"));
    assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
    wait_until_gone(mesh, &id);
    let received = figure(&mut client, "stats_messages_received");
    eventually(|| figure(&mut client, "stats_messages_received"), |now| *now > received + 10);
    for whom in 1..3 {
        assert_eq!(mesh.seen(0, whom).expect("it is known").flags, "noflags");
    }
}

/// The link that the job is on is given up while the job is on its way, and the
/// acknowledgement takes the next one.
#[test]
fn a_job_does_not_come_after_its_acknowledgement() {
    let net = ProxiedMesh::of(2);
    let mesh = &net.mesh;
    let mut client = mesh.client(0);
    net.set(&[0], &[1], Fate::Late(Duration::from_secs(5)));
    let ended = net.links(0, 1).ended;
    let id = text(client.call("ADDJOB q body 0 REPLICATE 2 ASYNC RETRY 3600"));
    // Nothing is answered in time on this link.
    eventually(|| net.links(0, 1).ended, |now| *now > ended);
    net.wires.heal();
    mesh.wait_until_whole();
    assert_eq!(integer(client.call(&format!("ACKJOB {id}"))), 1);
    wait_until_gone(mesh, &id);
    eventually(|| net.wires.on_the_way_count(), |count| *count == 0);
    // Whatever has arrived has been looked at once messages that came later have been.
    let mut peer = mesh.client(1);
    let received = figure(&mut peer, "stats_messages_received");
    eventually(|| figure(&mut peer, "stats_messages_received"), |now| *now > received + 5);
    assert_eq!(peer.call(&format!("SHOW {id}")), Value::NullBulk);
}

#[test]
fn links_that_damage_what_they_carry_change_no_table_for_good() {
    const ENOUGH: usize = 150;
    let net = ProxiedMesh::of(3);
    let mesh = &net.mesh;
    net.set(&[0, 1, 2], &[0, 1, 2], Fate::Damage);
    let mut client = mesh.client(0);
    let started = Instant::now();
    while net.wires.damaged_count() < ENOUGH {
        assert!(started.elapsed() < PATIENCE, "the wires damage what they carry");
        // Some of its frames are damaged, so that the copy may not come or not be confirmed.
        let reply = client.call("ADDJOB q body 100 REPLICATE 2 RETRY 1");
        let is_right = match &reply {
            Value::Status(id) => id.starts_with(b"D-"),
            Value::Error(reason) => reason.starts_with(b"NOREPL "),
            _ => false,
        };
        assert!(is_right, "{reply:?}");
    }
    net.wires.heal();
    mesh.wait_until_whole();
    for n in 0..3 {
        assert_eq!(mesh.servers[n].log().matches("panicked").count(), 0);
    }
}

#[test]
fn the_bus_port_that_a_peer_announced_is_dialled_after_a_restart() {
    let mut net = ProxiedMesh::of(2);
    let conf = fs::read_to_string(net.mesh.servers[0].folder().join("nodes.conf"));
    let vars = format!("vars bus-port-{} ", net.mesh.ids[1]);
    assert!(conf.expect("it was saved").contains(&vars));
    // The peer cannot come by itself, and its proxy counts who dials it.
    net.mesh.servers[1].signal(libc::SIGSTOP);
    net.mesh.servers[0].stop_by(libc::SIGKILL);
    let made = net.links(0, 1).made;
    net.start_again(0);
    eventually(|| net.links(0, 1).made, |now| *now > made);
    net.mesh.servers[1].signal(libc::SIGCONT);
    net.mesh.wait_until_whole();
}
