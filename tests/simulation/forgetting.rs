//! Nodes that are forgotten since they failed for long, and come back after all.

use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim, seed_bytes};
use crate::storage::{AppendOnly, Crash};

const NODE_TIMEOUT_MS: u64 = 1000;
const FORGET_AFTER_SECS: u64 = 20;
const FORGET_AFTER_MS: u64 = FORGET_AFTER_SECS * 1000;
/// Failing is found within this, and what is due is done.
const SLACK_MS: u64 = 5000;

fn mesh(seed: u64, count: u16) -> Sim {
    mesh_with_plain(seed, count, None)
}

/// One of them may be to the others as a C node, which forgets nobody.
fn mesh_with_plain(seed: u64, count: u16, plain: Option<usize>) -> Sim {
    let config = EngineConfig {
        node_timeout_ms: NODE_TIMEOUT_MS,
        forget_after_secs: FORGET_AFTER_SECS,
        ..EngineConfig::default()
    };
    let mut sim = Sim::new(seed, count, &config, AppendOnly::Yes);
    sim.checks = Checks::WhenAsked;
    if let Some(plain) = plain {
        sim.network.speak_plainly(plain);
        let (now, engine) = (sim.now(plain), &mut sim.nodes[plain].engine);
        let config = EngineConfig { forget_after_secs: 0, ..engine.config().clone() };
        engine.set_config(now, config);
    }
    sim.meet_all();
    sim
}

fn size(sim: &Sim, n: usize) -> usize {
    sim.nodes[n].engine.cluster().size()
}

fn sizes(sim: &Sim) -> Vec<usize> {
    (0..sim.nodes.len()).map(|n| size(sim, n)).collect()
}

fn call(sim: &mut Sim, n: usize, line: &str) -> Value {
    sim.call_within(n, line, 100)
}

/// Adds a job, and returns its ID.
fn add(sim: &mut Sim, n: usize, options: &str) -> String {
    let reply = call(sim, n, &format!("ADDJOB q body 1000 {options}"));
    let Value::Status(id) = reply else { panic!("a job is taken: {reply:?}") };
    String::from_utf8(id).expect("IDs are text")
}

/// A node dies, and the others have forgotten it.
fn lose(sim: &mut Sim, n: usize) {
    sim.crash(n, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS + SLACK_MS);
}

/// A job is acknowledged, of which node 3 had a copy; the ack waits for that node, which comes back.
fn it_is_acked_and_does_not_come_back_with_node_3(sim: &mut Sim, id: &str) {
    assert_eq!(call(sim, 1, &format!("ACKJOB {id}")), Value::Integer(1));
    sim.run_for(60_000);
    let acked = (0..3).map(|n| sim.nodes[n].engine.job_count()).sum::<usize>();
    assert!(acked > 0, "the ack waits for the one that is away");
    it_comes_back_and_has_no_job(sim);
}

fn wait_until_whole(sim: &mut Sim, within_ms: u64) {
    let until = sim.now_ms + within_ms;
    while !sim.is_whole() {
        sim.run_for(100);
        assert!(sim.now_ms < until, "nobody live is forgotten for good: {:?}", sizes(sim));
    }
    sim.nodes.iter().for_each(|node| node.engine.check_invariants());
}

/// Node 3 comes back, and what was acknowledged meanwhile is neither delivered nor kept.
fn it_comes_back_and_has_no_job(sim: &mut Sim) {
    sim.restart(3);
    wait_until_whole(sim, SLACK_MS);
    for _ in 0..3 {
        let client = sim.connect_client(3, Resp::V2);
        let words = ["GETJOB", "NOHANG", "FROM", "q"].map(|word| word.as_bytes().to_vec());
        sim.send(3, client, words.to_vec());
        sim.run_for(10_000);
        let replies = sim.take_replies(3, client);
        assert!(replies.iter().all(|(_, reply)| *reply == Value::NullArray), "{replies:?}");
    }
    let left = sim.nodes.iter().map(|node| node.engine.job_count()).sum::<usize>();
    assert_eq!(left, 0, "and it is collected then");
}

#[test]
fn the_dead_are_forgotten_and_acks_wait_for_them() {
    let mut sim = mesh(1, 4);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(add(&mut sim, 0, "REPLICATE 4 RETRY 30"));
    }
    sim.crash(3, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS - 1000);
    assert_eq!(sizes(&sim)[..3], [4, 4, 4], "not before the time");
    sim.run_for(SLACK_MS);
    assert_eq!(sizes(&sim)[..3], [3, 3, 3]);
    // Jobs are acknowledged without it, by nodes that know them and by one that is new.
    for (n, id) in ids.iter().enumerate() {
        let reply = call(&mut sim, n % 3, &format!("ACKJOB {id}"));
        assert_eq!(reply, Value::Integer(1));
    }
    // Who forgot it knows that after a restart too.
    for n in 0..3 {
        sim.crash(n, Crash::Killed);
        sim.restart(n);
    }
    sim.run_for(SLACK_MS);
    assert_eq!(sizes(&sim)[..3], [3, 3, 3]);
    sim.restart(3);
    wait_until_whole(&mut sim, SLACK_MS);
    sim.run_for(5000);
    assert_eq!(sizes(&sim), [4, 4, 4, 4]);
}

#[test]
fn what_was_acknowledged_meanwhile_does_not_come_back_with_it() {
    let mut sim = mesh(2, 4);
    let id = add(&mut sim, 0, "REPLICATE 4 RETRY 10");
    lose(&mut sim, 3);
    assert_eq!(size(&sim, 0), 3);
    it_is_acked_and_does_not_come_back_with_node_3(&mut sim, &id);
}

#[test]
fn who_was_restarted_meanwhile_still_waits_for_the_forgotten() {
    let mut sim = mesh(7, 4);
    let id = add(&mut sim, 0, "REPLICATE 4 RETRY 10");
    lose(&mut sim, 3);
    // Their files name a node that they know by its tombstone only.
    for n in 0..3 {
        sim.crash(n, Crash::Killed);
        sim.restart(n);
    }
    sim.run_for(SLACK_MS);
    assert_eq!(sizes(&sim)[..3], [3, 3, 3]);
    it_is_acked_and_does_not_come_back_with_node_3(&mut sim, &id);
}

#[test]
fn an_ack_without_a_job_waits_for_the_forgotten_node_that_has_it() {
    let mut sim = mesh(8, 4);
    let id = add(&mut sim, 3, "REPLICATE 1 RETRY 10");
    lose(&mut sim, 3);
    assert_eq!(sizes(&sim)[..3], [3, 3, 3]);
    assert_eq!(call(&mut sim, 0, &format!("ACKJOB {id}")), Value::Integer(0), "it has no job");
    sim.run_for(60_000);
    assert_eq!(sim.nodes[0].engine.job_count(), 1, "the ack waits for the one that is away");
    it_comes_back_and_has_no_job(&mut sim);
}

#[test]
fn a_minority_forgets_nobody_and_comes_back() {
    let mut sim = mesh(3, 5);
    for a in 0..2 {
        for b in 2..5 {
            sim.network.cut(a, b);
            sim.network.cut(b, a);
        }
    }
    sim.run_for(FORGET_AFTER_MS * 3);
    assert_eq!(sizes(&sim), [5, 5, 3, 3, 3]);
    sim.network.heal(sim.now_ms);
    wait_until_whole(&mut sim, NODE_TIMEOUT_MS * 10);
}

#[test]
fn who_failed_before_the_cluster_fell_apart_is_not_forgotten_by_minorities() {
    let mut sim = mesh(9, 5);
    sim.crash(4, Crash::Killed);
    sim.run_for(SLACK_MS);
    assert_eq!(sizes(&sim)[..4], [5, 5, 5, 5], "it is failing, and not for long");
    for a in 0..2 {
        for b in 2..4 {
            sim.network.cut(a, b);
            sim.network.cut(b, a);
        }
    }
    sim.run_for(FORGET_AFTER_MS * 3);
    assert_eq!(sizes(&sim)[..4], [5, 5, 5, 5], "two of five are no majority");
    sim.network.heal(sim.now_ms);
    sim.run_for(FORGET_AFTER_MS + SLACK_MS);
    assert_eq!(sizes(&sim)[..4], [4, 4, 4, 4]);
}

#[test]
fn of_two_halves_neither_forgets_the_other() {
    let mut sim = mesh(4, 4);
    sim.crash(2, Crash::Killed);
    sim.crash(3, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS * 3);
    assert_eq!(sizes(&sim)[..2], [4, 4]);
}

#[test]
fn who_does_not_forget_brings_nobody_back() {
    let mut sim = mesh_with_plain(5, 5, Some(4));
    sim.crash(0, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS * 4);
    assert_eq!(sizes(&sim)[1..], [4, 4, 4, 5], "a C node goes on with it, and is not followed");
    sim.restart(0);
    wait_until_whole(&mut sim, SLACK_MS);
}

#[test]
fn an_operator_who_forgets_it_has_nothing_wait_for_it() {
    let mut sim = mesh(6, 4);
    let gone = sim.nodes[3].engine.cluster().my_id().to_string();
    let id = add(&mut sim, 0, "REPLICATE 4");
    lose(&mut sim, 3);
    assert_eq!(call(&mut sim, 0, &format!("ACKJOB {id}")), Value::Integer(1));
    for n in 0..3 {
        let forgotten = call(&mut sim, n, &format!("CLUSTER FORGET {gone}"));
        assert_eq!(forgotten, Value::Status("OK".into()));
    }
    sim.run_for(200_000);
    let left = (0..3).map(|n| sim.nodes[n].engine.job_count()).sum::<usize>();
    assert_eq!(left, 0);
}

/// Cuts all ways between some nodes and the others.
fn cut_off(sim: &mut Sim, side: &[usize]) {
    for a in 0..sim.nodes.len() {
        for b in 0..sim.nodes.len() {
            if side.contains(&a) != side.contains(&b) {
                sim.network.cut(a, b);
            }
        }
    }
}

/// The cut moves, so that both sides of it were a majority of what they still knew.
#[test]
fn two_sides_that_forgot_each_other_become_one_again() {
    let mut sim = mesh(8, 5);
    cut_off(&mut sim, &[0, 1, 2]);
    sim.run_for(FORGET_AFTER_MS * 2);
    assert_eq!(sizes(&sim), [3, 3, 3, 5, 5]);
    sim.network.heal(sim.now_ms);
    cut_off(&mut sim, &[0, 1]);
    sim.run_for(FORGET_AFTER_MS * 3);
    assert_eq!(sizes(&sim)[2..], [3, 3, 3]);
    assert_eq!(sizes(&sim)[..2], [3, 3], "they were five: two of them are a minority");
    sim.network.heal(sim.now_ms);
    wait_until_whole(&mut sim, 60_000);
}

/// As above, and all of them were restarted: where the others are stands in the file.
#[test]
fn who_was_forgotten_is_found_after_a_restart() {
    let mut sim = mesh(9, 3);
    cut_off(&mut sim, &[0, 1]);
    sim.run_for(FORGET_AFTER_MS * 2);
    assert_eq!(sizes(&sim), [2, 2, 3]);
    // The third one loses what it knows, and the others do not ping it.
    sim.network.heal(sim.now_ms);
    sim.crash(2, Crash::Killed);
    for n in 0..3 {
        sim.crash(n, Crash::Killed);
        sim.restart(n);
    }
    let id = sim.nodes[2].engine.cluster().my_id().to_string();
    assert_eq!(call(&mut sim, 2, "CLUSTER RESET"), Value::Status("OK".into()));
    assert_eq!(sim.nodes[2].engine.cluster().my_id().to_string(), id);
    wait_until_whole(&mut sim, 60_000);
}

#[test]
fn an_ack_at_a_node_that_joined_after_a_death_waits_for_the_dead_one() {
    let mut sim = mesh(10, 4);
    // Node 3 is new: the others do not know it yet.
    let new = sim.nodes[3].engine.cluster().my_id().to_string();
    assert_eq!(call(&mut sim, 3, "CLUSTER RESET"), Value::Status("OK".into()));
    for n in 0..3 {
        call(&mut sim, n, &format!("CLUSTER FORGET {new}"));
    }
    let id = add(&mut sim, 2, "REPLICATE 1 RETRY 5");
    lose(&mut sim, 2);
    assert_eq!(sizes(&sim)[..2], [2, 2]);
    let at = sim.nodes[0].ip;
    assert_eq!(call(&mut sim, 3, &format!("CLUSTER MEET {at} 7711")), Value::Status("OK".into()));
    sim.run_for(SLACK_MS);
    assert_eq!(size(&sim, 3), 3);
    assert_eq!(call(&mut sim, 3, &format!("ACKJOB {id}")), Value::Integer(0));
    sim.run_for(60_000);
    sim.restart(2);
    wait_until_whole(&mut sim, SLACK_MS);
    for _ in 0..3 {
        sim.run_for(10_000);
        let reply = call(&mut sim, 2, "GETJOB NOHANG FROM q");
        assert_eq!(reply, Value::NullArray, "it was acknowledged");
    }
}

#[test]
fn who_missed_the_verdict_forgets_the_dead_as_well() {
    let mut sim = mesh(11, 5);
    cut_off(&mut sim, &[4]);
    sim.crash(3, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS + SLACK_MS);
    sim.crash(4, Crash::Killed);
    sim.restart(4);
    sim.network.heal(sim.now_ms);
    sim.run_for(FORGET_AFTER_MS * 2 + SLACK_MS);
    sim.nodes.iter().for_each(|node| node.engine.check_invariants());
    assert_eq!([0, 1, 2, 4].map(|n| size(&sim, n)), [4; 4]);
}

fn set_name(sim: &mut Sim, n: usize, name: &str) {
    let (now, engine) = (sim.now(n), &mut sim.nodes[n].engine);
    let config = EngineConfig { cluster_name: name.to_owned(), ..engine.config().clone() };
    engine.set_config(now, config);
}

/// It was away while the cluster was renamed, and knows the others, which ignore it.
#[test]
fn who_comes_back_under_an_old_name_does_not_count_on_the_others() {
    let mut sim = mesh(14, 3);
    (0..3).for_each(|n| set_name(&mut sim, n, "old"));
    sim.crash(2, Crash::Killed);
    sim.run_for(FORGET_AFTER_MS + SLACK_MS);
    (0..2).for_each(|n| set_name(&mut sim, n, "new"));
    sim.restart(2);
    sim.run_for(SLACK_MS);
    assert_eq!(sizes(&sim), [2, 2, 3]);
    let reply = call(&mut sim, 2, "ADDJOB q body 1000 REPLICATE 2");
    let text = "NOREPL Not enough reachable nodes for the requested replication level";
    assert_eq!(reply, Value::Error(text.into()), "they would not take it");
    set_name(&mut sim, 2, "new");
    wait_until_whole(&mut sim, SLACK_MS);
    let reply = call(&mut sim, 2, "ADDJOB q body 1000 REPLICATE 3");
    assert!(matches!(reply, Value::Status(_)), "{reply:?}");
}

#[test]
fn a_majority_that_finds_a_node_well_keeps_it_for_one_that_does_not() {
    let mut sim = mesh(12, 5);
    sim.crash(1, Crash::Killed);
    sim.run_for(SLACK_MS);
    sim.network.cut(0, 1);
    sim.network.cut(1, 0);
    sim.restart(1);
    sim.run_for(FORGET_AFTER_MS * 3);
    assert_eq!(sizes(&sim), [5; 5], "the way between the two is broken, and nothing else");
}

/// Just started, it has not found out yet that it is alone; and the time is short.
#[test]
fn a_node_that_starts_in_a_minority_forgets_nobody() {
    let mut sim = mesh(13, 5);
    sim.crash(4, Crash::Killed);
    sim.run_for(SLACK_MS);
    cut_off(&mut sim, &[0]);
    sim.crash(0, Crash::Killed);
    let (now, engine) = (sim.now(0), &mut sim.nodes[0].engine);
    let node_timeout_ms = NODE_TIMEOUT_MS * 3;
    let config = EngineConfig { forget_after_secs: 1, node_timeout_ms, ..engine.config().clone() };
    engine.set_config(now, config);
    sim.restart(0);
    sim.run_for(FORGET_AFTER_MS);
    assert_eq!(size(&sim, 0), 5);
}

#[test]
fn whatever_falls_apart_is_whole_in_the_end() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0xf0));
        let count = 3 + rng.below(5) as u16;
        let mut sim = mesh(seed, count);
        for _ in 0..8 {
            let part_count = 2 + rng.below(2);
            let sides: Vec<u32> = (0..count).map(|_| rng.below(part_count)).collect();
            for a in 0..usize::from(count) {
                for b in 0..usize::from(count) {
                    if sides[a] != sides[b] {
                        sim.network.cut(a, b);
                    }
                }
                match rng.below(8) {
                    0 => sim.crash(a, Crash::Killed),
                    1 => sim.restart(a),
                    _ => {}
                }
            }
            sim.run_for(u64::from(rng.below(40_000)));
            sim.network.heal(sim.now_ms);
            // Mostly it falls apart otherwise before anything is mended.
            sim.run_for([0, u64::from(rng.below(3000))][rng.index(2)]);
        }
        (0..usize::from(count)).for_each(|n| sim.restart(n));
        wait_until_whole(&mut sim, 60_000);
    }
}
