//! Asks that stay in force: a client that waits is served at once when a job comes anywhere.

use disque::base::ids::ClientId;
use disque::engine::config::EngineConfig;
use disque::engine::your_jobs::ASK_VALID_MS;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::Sim;
use crate::storage::AppendOnly;

/// How long before an ask would be over the first job comes, and after it the last one.
const AROUND_MS: u64 = 2000;
/// From one job to the next.
const STEP_MS: u64 = 20;
/// There and back, and some.
const AT_ONCE_MS: u64 = 10;

#[test]
fn a_client_that_waits_is_served_at_once_however_long_it_has_waited() {
    let mut sim = Sim::new(1, 2, &EngineConfig::default(), AppendOnly::No);
    sim.meet_all();
    let queues: Vec<String> = (0..2 * AROUND_MS / STEP_MS).map(|n| format!("q{n}")).collect();
    let consumers: Vec<ClientId> = queues
        .iter()
        .map(|queue| {
            let consumer = sim.connect_client(0, Resp::V2);
            let words = ["GETJOB", "FROM", queue].map(|word| word.as_bytes().to_vec());
            sim.send(0, consumer, words.to_vec());
            consumer
        })
        .collect();
    let producer = sim.connect_client(1, Resp::V2);
    sim.run_for(ASK_VALID_MS - AROUND_MS);
    for (queue, consumer) in queues.iter().zip(consumers) {
        let id = sim.call(1, producer, &["ADDJOB", queue, "body", "0", "REPLICATE", "1"]);
        assert!(matches!(id, Value::Status(_)), "{id:?}");
        sim.run_for(AT_ONCE_MS);
        let served = sim.take_replies(0, consumer).pop();
        assert!(matches!(served, Some((_, Value::Array(_)))), "{queue} is served: {served:?}");
        sim.run_for(STEP_MS - AT_ONCE_MS);
    }
}
