//! Jobs that are given back for a while, and jobs that a client has for a while, on nodes that
//! have copies.

use std::time::{Duration, Instant};

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, bulk, eventually, integer, text};

/// The field of a job that SHOW has, on a node.
fn shown(client: &mut Client, id: &str, name: &str) -> Value {
    let Value::Array(fields) = client.call(&format!("SHOW {id}")) else {
        panic!("the node has the job");
    };
    let at = fields.iter().position(|field| *field == bulk(name)).expect("SHOW has the field");
    fields[at + 1].clone()
}

/// Waits on all nodes for a job, and returns after what time it came to one of them: a few
/// milliseconds early at most, as servers count whole ones.
fn comes_after(mesh: &Mesh, id: &str, since: Instant) -> Duration {
    let job = Value::Array(vec![Value::Array(vec![bulk("q"), bulk(id), bulk("body")])]);
    let mut clients: Vec<Client> = (0..mesh.servers.len()).map(|n| mesh.client(n)).collect();
    loop {
        for client in &mut clients {
            match client.call("GETJOB TIMEOUT 50 FROM q") {
                Value::NullArray => {}
                reply => {
                    assert_eq!(reply, job);
                    return since.elapsed();
                }
            }
        }
    }
}

#[test]
fn a_job_that_is_given_back_for_a_while_is_kept_back_on_all_nodes() {
    let mesh = Mesh::of(3);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3 RETRY 1"));
    assert_ne!(mesh.client(0).call("GETJOB FROM q"), Value::NullArray);
    let since = Instant::now();
    assert_eq!(integer(mesh.client(0).call(&format!("NACK {id} DELAY 4"))), 1);
    for n in 0..3 {
        eventually(
            || shown(&mut mesh.client(n), &id, "nacks"),
            |nacks| *nacks == Value::Integer(1),
        );
    }
    let delayed = mesh.client(0).call("JSCAN STATE delayed");
    assert_eq!(
        delayed,
        Value::Array(vec![bulk("0"), Value::Array(vec![Value::Status(id.clone().into())])])
    );
    assert!(comes_after(&mesh, &id, since) >= Duration::from_millis(3990));
    assert_eq!(integer(mesh.client(1).call(&format!("ACKJOB {id}"))), 1);
}

#[test]
fn a_lease_is_longer_than_the_retry_on_all_nodes() {
    let mesh = Mesh::of(3);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 3 RETRY 1"));
    let since = Instant::now();
    assert_ne!(mesh.client(0).call("GETJOB LEASE 2 FROM q"), Value::NullArray);
    assert_eq!(integer(mesh.client(0).call(&format!("WORKING {id} LEASE 4"))), 4);
    assert!(comes_after(&mesh, &id, since) >= Duration::from_millis(3990));
    let deliveries = shown(&mut mesh.client(0), &id, "additional-deliveries");
    assert_eq!(deliveries, Value::Integer(1));
}

#[test]
fn a_worker_that_shuts_down_gives_a_job_back_uncounted() {
    let mesh = Mesh::of(2);
    let id = text(mesh.client(0).call("ADDJOB q body 5000 REPLICATE 2 RETRY 600"));
    assert_ne!(mesh.client(0).call("GETJOB FROM q"), Value::NullArray);
    assert_eq!(integer(mesh.client(0).call(&format!("NACK {id} SILENT"))), 1);
    assert_ne!(mesh.client(0).call("GETJOB NOHANG FROM q"), Value::NullArray);
    assert_eq!(shown(&mut mesh.client(0), &id, "nacks"), Value::Integer(0));
    assert_eq!(shown(&mut mesh.client(0), &id, "additional-deliveries"), Value::Integer(0));
}
