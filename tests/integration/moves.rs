//! Jobs that are moved to another queue, by clients of nodes that have copies.

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, TestServer, array, bulk, error, eventually, integer, status, text};

/// The field of a job that SHOW has, on a node.
fn shown(client: &mut Client, id: &str, name: &str) -> Value {
    let Value::Array(fields) = client.call(&format!("SHOW {id}")) else {
        panic!("the node has the job");
    };
    let at = fields.iter().position(|field| *field == bulk(name)).expect("SHOW has the field");
    fields[at + 1].clone()
}

fn row(queue: &str, id: &str, body: &str) -> Value {
    Value::Array(vec![bulk(queue), bulk(id), bulk(body)])
}

#[test]
fn a_moved_job_is_in_its_new_queue_on_all_nodes_and_is_acknowledged_anywhere() {
    let mesh = Mesh::of(3);
    let id = text(mesh.client(0).call("ADDJOB old body 5000 REPLICATE 3"));
    assert_eq!(integer(mesh.client(0).call(&format!("MOVEJOB new {id}"))), 1);
    for n in 0..3 {
        eventually(|| shown(&mut mesh.client(n), &id, "queue"), |queue| *queue == bulk("new"));
    }
    let rows = array(mesh.client(1).call("GETJOB FROM old new"));
    assert_eq!(rows, [row("new", &id, "body")]);
    assert_eq!(integer(mesh.client(2).call(&format!("ACKJOB {id}"))), 1);
    for n in 0..3 {
        eventually(
            || mesh.client(n).call(&format!("SHOW {id}")),
            |shown| *shown == Value::NullBulk,
        );
    }
}

#[test]
fn a_waiting_client_gets_what_is_moved_to_its_queue_and_its_order_is_kept() {
    let server = TestServer::start();
    let (mut producer, mut worker) = (server.client(), server.client());
    let ids: Vec<String> =
        (0..1000).map(|n| text(producer.call(&format!("ADDJOB source {n} 0 RETRY 60")))).collect();
    worker.send_command("GETJOB FROM target");
    assert_eq!(integer(producer.call("QMOVE source target COUNT 1000")), 1000);
    assert_eq!(worker.reply(), Value::Array(vec![row("target", &ids[0], "0")]));
    let rows = array(producer.call("GETJOB COUNT 2000 FROM target"));
    let expected: Vec<Value> =
        ids.iter().zip(0..).skip(1).map(|(id, n)| row("target", id, &n.to_string())).collect();
    assert_eq!(rows, expected);
    assert_eq!(integer(producer.call("QLEN source")), 0);
}

#[test]
fn a_purged_queue_stays_empty_after_a_restart_and_what_was_moved_is_where_it_was_moved() {
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--aof-enqueue-jobs-once"];
    let mut server = TestServer::start_with(&options[..4]);
    let mut client = server.client();
    for n in 0..600 {
        text(client.call(&format!("ADDJOB purged {n} 0 RETRY 1")));
    }
    let kept = text(client.call("ADDJOB old body 0 ATTR type mail"));
    assert_eq!(integer(client.call("QPURGE purged")), 100);
    assert_eq!(integer(client.call("QPURGE purged COUNT 10000")), 500);
    assert_eq!(integer(client.call(&format!("MOVEJOB new {kept}"))), 1);
    drop(client);
    server.stop_by(libc::SIGKILL);
    server.start_again(&[&options[..], &["yes"]].concat());
    let mut client = server.client();
    assert_eq!(integer(client.call("QLEN purged")), 0);
    assert_eq!(array(client.call("JSCAN 0 QUEUE purged"))[1], Value::Array(vec![]));
    let attributes = Value::Array(vec![bulk("type"), bulk("mail")]);
    let expected = vec![bulk("new"), bulk(&kept), bulk("body"), bulk("attrs"), attributes];
    let rows = array(client.call("GETJOB NOHANG WITHATTRS FROM old new"));
    assert_eq!(rows, [Value::Array(expected)]);
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_moved() {
    let server = TestServer::start();
    let mut client = server.client();
    let id = text(client.call("ADDJOB q body 0"));
    for (line, text) in [
        (format!("MOVEJOB r {id} nonsense"), "BADID Invalid Job ID format."),
        (format!("MOVEJOB r {id} PRIORITY 0"), "ERR PRIORITY must be between 1 and 7"),
        (format!("MOVEJOB r {id} DELAY soon"), "ERR DELAY time must be a non negative number"),
        (format!("MOVEJOB r {id} DELAY 1 {id}"), "ERR Job IDs stand in front of the options"),
        ("QMOVE q q".into(), "ERR Source and target must be different queues"),
        ("QMOVE q r COUNT 10001".into(), "ERR COUNT must be between 1 and 10000"),
        ("QREDRIVE q COUNT 0".into(), "ERR COUNT must be between 1 and 10000"),
        ("QPURGE q COUNT many".into(), "ERR COUNT must be between 1 and 10000"),
        ("QPURGE q REASON nack".into(), "ERR syntax error"),
    ] {
        assert_eq!(client.call(&line), error(text), "{line}");
    }
    assert_eq!(client.call("PAUSE r in"), status("in"));
    let paused = error("PAUSED Queue paused in input, try later");
    assert_eq!(client.call(&format!("MOVEJOB r {id}")), paused);
    assert_eq!(client.call("QMOVE q r"), paused);
    assert_eq!(integer(client.call("QLEN q")), 1);
}
