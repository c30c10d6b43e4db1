//! The life of a job on real servers: TRACE.

use std::collections::BTreeSet;

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, TestServer, error, eventually, integer, text};

/// What TRACE answers, as times, nodes and the rest.
pub fn life(client: &mut Client, id: &str) -> Vec<(i64, String, Vec<String>)> {
    let rows = match client.call(&format!("TRACE {id} TIMEOUT 5000")) {
        Value::Array(rows) => rows,
        Value::NullArray => Vec::new(),
        other => panic!("TRACE answers rows: {other:?}"),
    };
    let row = |row: Value| {
        let Value::Array(fields) = row else { panic!("a row is an array") };
        let mut fields = fields.into_iter();
        let (Some(at), Some(node)) = (fields.next(), fields.next()) else { panic!("a short row") };
        (integer(at), text(node), fields.map(text).collect())
    };
    rows.into_iter().map(row).collect()
}

/// The events that are noted on a node.
pub fn events(rows: &[(i64, String, Vec<String>)], node: &str) -> BTreeSet<String> {
    let of_node = rows.iter().filter(|(at, name, _)| *at > 0 && name == node);
    of_node.map(|(_, _, fields)| fields[0].clone()).collect()
}

#[test]
fn a_life_is_told_from_any_node_by_time() {
    let mesh = Mesh::of(3);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3 TRACE"));
    let mut worker = mesh.client(1);
    let number = integer(worker.call("CLIENT ID")).to_string();
    assert!(matches!(worker.call("GETJOB FROM q"), Value::Array(_)));
    assert_eq!(integer(mesh.client(2).call(&format!("ACKJOB {id}"))), 1);
    let is_collected = |rows: &Vec<(i64, String, Vec<String>)>| {
        mesh.ids.iter().all(|node| events(rows, node).contains("collected"))
    };
    for n in 0..3 {
        let rows = eventually(|| life(&mut mesh.client(n), &id), is_collected);
        assert!(rows.iter().is_sorted_by_key(|(at, node, _)| (*at == 0, *at, node.clone())));
        let node = |n: usize| events(&rows, &mesh.ids[n]);
        assert!(node(0).is_superset(&["added", "copy-sent", "lent-to"].map(str::to_owned).into()));
        assert!(node(1).is_superset(&["copy-kept", "fetched", "acked"].map(str::to_owned).into()));
        let fetched = rows.iter().find(|(_, _, fields)| fields[0] == "fetched");
        let (_, _, fields) = fetched.expect("it was fetched");
        assert_eq!(fields[1..], ["client".to_owned(), number.clone()], "as CLIENT LIST has it");
        let clocks = rows.iter().filter(|(_, _, fields)| fields[0] == "clock");
        for (_, _, fields) in clocks.clone() {
            let offset_ms: i64 = fields[2].parse().expect("a number");
            assert!(offset_ms.abs() < 5000, "one machine has one clock: {fields:?}");
        }
        assert_eq!(clocks.count(), 2);
    }
}

#[test]
fn what_a_restarted_node_noted_is_gone_and_its_file_knows_what_is_traced() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::start_with(&options);
    let id = text(server.client().call("ADDJOB q body 0 TRACE"));
    let other = text(server.client().call("ADDJOB q body 0"));
    server.client().ok("CONFIG SET trace-sample 1");
    let sampled = text(server.client().call("ADDJOB q body 0"));
    let me = text(server.client().call("CLUSTER MYID"));
    let noted = |server: &TestServer, id: &str| events(&life(&mut server.client(), id), &me);
    assert_eq!(noted(&server, &id), ["added", "queued"].map(str::to_owned).into());
    assert_eq!(noted(&server, &sampled), ["added", "queued"].map(str::to_owned).into());
    assert!(noted(&server, &other).is_empty());
    server.stop_by(libc::SIGKILL);
    server.start_again(&options);
    assert_eq!(noted(&server, &id), ["loaded"].map(str::to_owned).into());
    assert!(noted(&server, &sampled).is_empty(), "nobody asked for it, and it is not sampled now");
    server.client().ok("CONFIG SET trace-max 0");
    assert!(noted(&server, &id).is_empty());
}

#[test]
fn who_does_not_answer_is_silent() {
    let mut mesh = Mesh::of(2);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 2 TRACE"));
    mesh.servers[1].stop_by(libc::SIGKILL);
    let silent = (0, mesh.ids[1].clone(), vec!["silent".to_owned()]);
    let rows = eventually(|| life(&mut mesh.client(0), &id), |rows| rows.contains(&silent));
    assert_eq!(rows.last(), Some(&silent));
    assert!(events(&rows, &mesh.ids[0]).contains("copy-sent"));
}

#[test]
fn what_is_wrong_is_named() {
    let server = TestServer::start();
    let mut client = server.client();
    let id = "D-00000000-000000000000000000000000-05a1";
    assert_eq!(client.call(&format!("TRACE {id}")), Value::NullArray);
    let timeout = "ERR TIMEOUT must be between 1 and 60000 milliseconds";
    for (line, text) in [
        ("TRACE nothing".to_owned(), "BADID Invalid Job ID format."),
        (format!("TRACE {id} TIMEOUT 0"), timeout),
        (format!("TRACE {id} TIMEOUT 60001"), timeout),
        (format!("TRACE {id} TIMEOUT soon"), timeout),
        (format!("TRACE {id} TIMEOUT"), "ERR syntax error"),
        (format!("TRACE {id} {id}"), "ERR syntax error"),
        (
            "CONFIG SET trace-sample -1".to_owned(),
            "ERR Invalid argument '-1' for CONFIG SET 'trace-sample'",
        ),
    ] {
        assert_eq!(client.call(&line), error(text), "{line}");
    }
}
