//! WAITJOB on real servers.

use std::time::Duration;

use disque::proto::reply_reader::Value;

use crate::mesh::Mesh;
use crate::support::{Client, TestServer, array, bulk, error, eventually, integer, text};

/// Clients that wait while nothing happens.
const IDLE_WAITERS: usize = 1000;
/// Jobs for which they wait.
const IDLE_JOBS: usize = 10_000;
/// What they may cost while nothing ends, in the time that the server is watched: the timers of
/// the server alone cost some.
const IDLE_CPU_MAX: Duration = Duration::from_millis(100);

fn ended(rows: &[(&str, &str)]) -> Value {
    let row = |(id, how): &(&str, &str)| Value::Array(vec![bulk(id), bulk(how)]);
    Value::Array(rows.iter().map(row).collect())
}

#[test]
fn a_producer_waits_until_its_job_is_done() {
    let server = TestServer::start();
    let (mut producer, mut worker) = (server.client(), server.client());
    let id = text(producer.call("ADDJOB q body 0"));
    producer.send_command(&format!("WAITJOB TIMEOUT 60000 {id}"));
    eventually(|| text(worker.call("INFO clients")), |info| info.contains("blocked_clients:1\r\n"));
    assert_eq!(array(worker.call("GETJOB FROM q")).len(), 1);
    assert_eq!(worker.call(&format!("ACKJOB {id}")), Value::Integer(1));
    assert_eq!(producer.reply(), ended(&[(&id, "acked")]));
    // Whoever comes later finds it too.
    assert_eq!(worker.call(&format!("WAITJOB ALL {id}")), ended(&[(&id, "acked")]));
    assert_eq!(
        worker.call(&format!("WAITJOB TIMEOUT 1 {id} x")),
        error("BADID Invalid Job ID format.")
    );
    let open = text(producer.call("ADDJOB q body 0"));
    assert_eq!(producer.call(&format!("WAITJOB ALL TIMEOUT 1 {open} {id}")), Value::NullArray);
    assert_eq!(producer.call("PING"), Value::Status("PONG".into()));
}

#[test]
fn what_ends_on_another_node_ends_the_wait() {
    let mesh = Mesh::of(2);
    let (mut here, mut there) = (mesh.client(0), mesh.client(1));
    let add = |client: &mut Client| text(client.call("ADDJOB q body 5000 REPLICATE 2"));
    let (acked, deleted) = (add(&mut here), add(&mut here));
    here.send_command(&format!("WAITJOB ALL {acked} {deleted}"));
    assert_eq!(there.call(&format!("FASTACK {deleted}")), Value::Integer(1));
    assert_eq!(there.call(&format!("ACKJOB {acked}")), Value::Integer(1));
    let Value::Array(rows) = here.reply() else { panic!("both ended") };
    let Value::Array(expected) = ended(&[(&deleted, "deleted"), (&acked, "acked")]) else {
        panic!("two rows")
    };
    assert!(expected.iter().all(|row| rows.contains(row)) && rows.len() == 2, "{rows:?}");
}

/// Ten thousand waits cost nothing while no job ends, and each is over when its job ends.
#[test]
fn who_waits_costs_nothing_until_a_job_ends() {
    let server = TestServer::start();
    let mut client = server.client();
    let ids: Vec<String> =
        (0..IDLE_JOBS).map(|_| text(client.call("ADDJOB q body 0 RETRY 10000"))).collect();
    let mut waiting: Vec<Client> = ids
        .chunks(IDLE_JOBS / IDLE_WAITERS)
        .map(|ids| {
            let mut waiting = server.client();
            waiting.send_command(&format!("WAITJOB ALL {}", ids.join(" ")));
            waiting
        })
        .collect();
    let blocked = format!("blocked_clients:{IDLE_WAITERS}\r\n");
    eventually(|| text(client.call("INFO clients")), |info| info.contains(&blocked));
    let before = server.cpu_time();
    // A second in which the server only waits.
    assert_eq!(client.call("GETJOB TIMEOUT 1000 FROM nothing"), Value::NullArray);
    let spent = server.cpu_time() - before;
    assert!(spent < IDLE_CPU_MAX, "waits cost {spent:?} in a second");
    for ids in ids.chunks(1000) {
        let acked = integer(client.call(&format!("ACKJOB {}", ids.join(" "))));
        assert_eq!(acked, 1000);
    }
    for client in &mut waiting {
        assert_eq!(array(client.reply()).len(), IDLE_JOBS / IDLE_WAITERS);
    }
    let info = text(client.call("INFO clients"));
    assert!(info.contains("blocked_clients:0\r\n"), "{info}");
}
