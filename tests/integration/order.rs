//! Priorities on real servers: the order of a queue, through a restart, and across nodes.

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, TestServer, array, bulk, error, eventually, text};

fn bodies(rows: Value) -> Vec<String> {
    array(rows).into_iter().map(|row| text(array(row).remove(2))).collect()
}

#[test]
fn urgent_jobs_go_first_and_a_kill_changes_nothing() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::start_with(&options);
    let mut client = server.client();
    for (body, priority) in [("last", " PRIORITY 7"), ("plain", ""), ("first", " PRIORITY 1")] {
        text(client.call(&format!("ADDJOB q {body} 0 RETRY 1{priority}")));
    }
    let plain = text(client.call("ADDJOB q plain2 0 RETRY 1 PRIORITY 4"));
    assert_eq!(bodies(client.call("QPEEK q 9")), ["first", "plain", "plain2", "last"]);
    assert_eq!(bodies(client.call("QPEEK q -2 SKIP 1")), ["plain2", "plain"]);
    assert_eq!(array(client.call(&format!("SHOW {plain}"))).len(), 30);
    for _ in 0..2 {
        server.stop_by(libc::SIGKILL);
        server.start_again(&options);
        let mut client = server.client();
        eventually(|| client.call("QLEN q"), |len| *len == Value::Integer(4));
        assert_eq!(bodies(client.call("QPEEK q 9")), ["first", "plain", "plain2", "last"]);
        assert!(matches!(client.call("BGREWRITEAOF"), Value::Status(_)));
        let info = |client: &mut Client| text(client.call("INFO persistence"));
        eventually(|| info(&mut client), |info| info.contains("aof_rewrite_in_progress:0\r\n"));
    }
    let mut client = server.client();
    let first = array(client.call("GETJOB FROM q")).remove(0);
    let shown = array(client.call(&format!("SHOW {}", text(array(first).remove(1)))));
    assert_eq!(shown[30..], [bulk("priority"), Value::Integer(1)]);
    let refused = error("ERR PRIORITY must be between 1 and 7");
    assert_eq!(client.call("ADDJOB q body 0 PRIORITY 8"), refused);
}

/// A node with work of its own serves an urgent job that was added to another one.
#[test]
fn an_urgent_job_of_another_node_is_served_before_bulk_work() {
    let mesh = Mesh::of(2);
    let (mut busy, mut other) = (mesh.client(0), mesh.client(1));
    for _ in 0..100 {
        text(busy.call("ADDJOB q bulk 0 REPLICATE 1"));
    }
    assert_eq!(bodies(busy.call("GETJOB FROM q")), ["bulk"]);
    text(other.call("ADDJOB q urgent 0 REPLICATE 1 PRIORITY 1"));
    eventually(|| bodies(busy.call("QPEEK q 1")), |first| first == &["urgent"]);
    assert_eq!(bodies(busy.call("GETJOB FROM q")), ["urgent"]);
    assert_eq!(bodies(busy.call("GETJOB FROM q")), ["bulk"]);
}

#[test]
fn a_queue_is_summed_up_over_the_nodes_that_answer() {
    let mesh = Mesh::of(3);
    for n in 0..3 {
        text(mesh.client(n).call("ADDJOB q body 0 REPLICATE 1"));
    }
    text(mesh.client(1).call("ADDJOB q later 0 REPLICATE 1 DELAY 1000"));
    assert_eq!(bodies(mesh.client(2).call("GETJOB FROM q")), ["body"]);
    let figure = |n: usize, name: &str| {
        let pairs = array(mesh.client(n).call("QSTAT q CLUSTER"));
        let at = pairs.iter().position(|key| *key == bulk(name)).expect("QSTAT has the figure");
        pairs[at + 1].clone()
    };
    for n in 0..3 {
        for (name, value) in
            [("len", 2), ("in-flight", 1), ("delayed", 1), ("nodes", 3), ("silent", 0)]
        {
            eventually(|| figure(n, name), |shown| *shown == Value::Integer(value));
        }
        assert_eq!(mesh.client(n).call("QSTAT other CLUSTER"), Value::NullArray);
    }
    mesh.servers[2].while_stopped(|| {
        assert_eq!(figure(0, "silent"), Value::Integer(1));
    });
    let counts = text(mesh.client(1).call("INFO jobs"));
    for line in ["jobs_queued:1\r\n", "jobs_delayed:1\r\n", "jobs_in_flight:0\r\n"] {
        assert!(counts.contains(line), "{counts}");
    }
}
