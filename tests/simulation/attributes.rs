//! How fast attributes come back that C nodes lost.

use disque::engine::config::EngineConfig;
use disque::proto::bus::{self, Message};
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim};
use crate::storage::{AppendOnly, Crash};

const JOBS: usize = 2500;

/// How many jobs of a node have their attributes.
fn count_restored(sim: &mut Sim) -> usize {
    let known = Value::Array(vec![Value::Bulk(b"type".to_vec()), Value::Bulk(b"mail".to_vec())]);
    let has_them = |copies: &Vec<crate::survey::Copy>, id: &str| {
        copies.iter().any(|copy| copy.node_id == id && copy.attributes.as_ref() == Some(&known))
    };
    let id = sim.nodes[1].engine.cluster().my_id().to_string();
    sim.survey().values().filter(|copies| has_them(copies, &id)).count()
}

/// A node that was a C node, and lost the attributes of thousands of jobs, asks for a thousand
/// in a second, a hundred in a question, until all are there, and for none twice.
#[test]
fn lost_attributes_come_back_a_thousand_a_second() {
    let mut sim = Sim::new(1, 2, &EngineConfig::default(), AppendOnly::Yes);
    sim.checks = Checks::WhenAsked;
    sim.network.speak_plainly(1);
    sim.meet_all();
    let producer = sim.connect_client(0, Resp::V2);
    for _ in 0..JOBS {
        let words = "ADDJOB q body 0 REPLICATE 2 RETRY 1000 ATTR type mail";
        sim.send(0, producer, words.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        sim.run_for(10);
    }
    assert_eq!(sim.take_replies(0, producer).len(), JOBS);
    sim.crash(1, Crash::Killed);
    sim.network.speak_ably(1);
    sim.restart(1);
    assert_eq!(count_restored(&mut sim), 0);
    let mut questions = Vec::new();
    sim.network.record();
    let (mut counts, began_at) = (Vec::new(), sim.now_ms);
    while counts.last() != Some(&JOBS) && sim.now_ms < began_at + 10_000 {
        sim.run_for(500);
        for frame in sim.network.record() {
            let (_, message) = bus::decode(&frame).expect("engines send whole frames");
            if let Message::Query(query) = message {
                questions.push(query.payload.to_vec());
            }
        }
        counts.push(count_restored(&mut sim));
    }
    sim.nodes[1].engine.check_invariants();
    let most = counts.windows(3).map(|three| three[2] - three[0]).max();
    assert!(most.is_some_and(|most| (900..=1100).contains(&most)), "in a second: {counts:?}");
    assert_eq!(counts.last(), Some(&JOBS), "all of them: {counts:?}");
    assert!(questions.iter().all(|ids| ids.len() <= 100 * 40));
    assert_eq!(questions.concat().len(), JOBS * 40, "each once");
}
