//! Copies that are spread over zones, and zones that are lost whole.

use disque::base::ids::ClientId;
use disque::base::rng::Rng;
use disque::engine::cluster::NodeLoad;
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim, seed_bytes};
use crate::node::State;
use crate::storage::{AppendOnly, Crash};

const NODE_TIMEOUT_MS: u64 = 1000;
const ZONES: [&str; 3] = ["north", "south", "west"];

/// Two nodes in each zone, which all know that.
fn zoned(seed: u64) -> Sim {
    let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    let mut sim = Sim::new(seed, 6, &config, AppendOnly::No);
    for n in 0..6 {
        set_zone(&mut sim, n, ZONES[n / 2]);
    }
    sim.meet_all();
    sim.run_for(500);
    sim
}

fn set_zone(sim: &mut Sim, n: usize, zone: &str) {
    let now = sim.now(n);
    let engine = &mut sim.nodes[n].engine;
    let config = EngineConfig { zone: zone.to_owned(), ..engine.config().clone() };
    engine.set_config(now, config);
}

fn add(sim: &mut Sim, n: usize, options: &str) -> Value {
    let client = sim.connect_client(n, Resp::V2);
    let line = format!("ADDJOB q body 1000 {options}");
    sim.send(n, client, line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    for _ in 0..60 {
        sim.run_for(20);
        if let Some((_, reply)) = sim.take_replies(n, client).pop() {
            sim.disconnect_client(n, client);
            return reply;
        }
    }
    panic!("it is answered within its timeout")
}

fn zones_of(sim: &Sim, holders: &[String]) -> Vec<usize> {
    let id_of = |n: usize| sim.nodes[n].engine.cluster().my_id().to_string();
    let place = |id: &String| (0..sim.nodes.len()).position(|n| id_of(n) == *id);
    let mut zones: Vec<usize> =
        holders.iter().map(|id| place(id).expect("a node of ours") / 2).collect();
    zones.sort_unstable();
    zones
}

#[test]
fn a_zone_is_lost_whole_while_producers_go_on() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0x20));
        let mut sim = zoned(seed);
        let mut promised = Vec::new();
        let lost = rng.index(ZONES.len());
        for step in 0..60 {
            if step == 30 {
                sim.crash(lost * 2, Crash::Killed);
                sim.crash(lost * 2 + 1, Crash::Killed);
            }
            let n = rng.index(6);
            if sim.nodes[n].state != State::Up {
                continue;
            }
            let options = ["REPLICATE 2 ZONES 2", "REPLICATE 2", "REPLICATE 3 SYNC 2 ZONES 2"];
            match add(&mut sim, n, options[rng.index(3)]) {
                Value::Status(id) => promised.push(id),
                other => panic!("two zones are enough: {other:?}"),
            }
        }
        let copies = sim.survey();
        for id in &promised {
            let alive = copies.get(id).map_or(0, Vec::len);
            assert!(alive > 0, "seed {seed}: {} outlives the zone", id.escape_ascii());
        }
        sim.run_for(NODE_TIMEOUT_MS * 3);
        let other = (lost + 1) % ZONES.len();
        sim.crash(other * 2, Crash::Killed);
        sim.crash(other * 2 + 1, Crash::Killed);
        sim.run_for(NODE_TIMEOUT_MS * 3);
        let last = (lost + 2) % ZONES.len() * 2;
        let text = "NOREPL Not enough reachable zones for the requested replication level";
        assert_eq!(add(&mut sim, last, "REPLICATE 2 ZONES 2"), Value::Error(text.into()));
        assert!(matches!(add(&mut sim, last, "REPLICATE 2"), Value::Status(_)));
    }
}

#[test]
fn copies_are_spread_over_zones() {
    let mut sim = zoned(1);
    for step in 0..30 {
        assert!(matches!(add(&mut sim, step % 6, "REPLICATE 3"), Value::Status(_)));
        assert!(matches!(add(&mut sim, step % 6, "REPLICATE 4"), Value::Status(_)));
    }
    for (id, copies) in sim.survey() {
        let mut zones = zones_of(&sim, &copies[0].holders);
        zones.dedup();
        assert_eq!(zones, [0, 1, 2], "{} is in each zone", id.escape_ascii());
    }
}

#[test]
fn copies_of_one_zone_are_not_enough_for_two() {
    let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    let mut sim = Sim::new(5, 3, &config, AppendOnly::No);
    for (n, zone) in [(0, ZONES[0]), (1, ZONES[0]), (2, ZONES[1])] {
        set_zone(&mut sim, n, zone);
    }
    sim.meet_all();
    sim.run_for(500);
    // The other zone gets its copy, and its confirmation does not come.
    sim.network.cut(2, 0);
    let text = "NOREPL Timeout reached before replicating to the requested number of nodes";
    assert_eq!(add(&mut sim, 0, "REPLICATE 3 SYNC 2 ZONES 2"), Value::Error(text.into()));
    sim.network.heal(sim.now_ms);
    sim.run_for(2000);
    assert!(matches!(add(&mut sim, 0, "REPLICATE 3 SYNC 2 ZONES 2"), Value::Status(_)));
}

#[test]
fn who_waits_far_away_has_its_turn_though_others_wait_nearer() {
    let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    let mut sim = Sim::new(6, 3, &config, AppendOnly::No);
    for (n, zone) in [(0, ZONES[0]), (1, ZONES[0]), (2, ZONES[1])] {
        set_zone(&mut sim, n, zone);
    }
    sim.meet_all();
    sim.run_for(500);
    let words =
        |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let producer = sim.connect_client(0, Resp::V2);
    let clients = [1, 2].map(|n| (n, sim.connect_client(n, Resp::V2)));
    clients.iter().for_each(|(n, client)| sim.send(*n, *client, words("GETJOB FROM q")));
    sim.run_for(20);
    let mut got = [0, 0];
    for _ in 0..150 {
        sim.send(0, producer, words("ADDJOB q body 0 REPLICATE 1"));
        for _ in 0..4 {
            sim.run_for(5);
            for ((n, client), got) in clients.iter().zip(&mut got) {
                if !sim.take_replies(*n, *client).is_empty() {
                    *got += 1;
                    sim.send(*n, *client, words("GETJOB FROM q"));
                }
            }
        }
    }
    let [near, far] = got;
    assert!(far >= 2, "its turn comes once a second: {got:?}");
    assert!(near > 10 * far, "those that are near go first: {got:?}");
}

#[test]
fn of_two_nodes_of_a_zone_the_less_loaded_gets_more() {
    let mut sim = zoned(2);
    for n in [2, 4] {
        sim.nodes[n].engine.set_load(NodeLoad { memory_percent: Some(70), loop_percent: Some(3) });
        sim.nodes[n + 1].engine.set_load(NodeLoad { memory_percent: Some(9), loop_percent: None });
    }
    sim.run_for(11_000);
    for _ in 0..30 {
        assert!(matches!(add(&mut sim, 0, "REPLICATE 3"), Value::Status(_)));
    }
    let jobs = |n: usize| sim.nodes[n].engine.job_count();
    assert_eq!([jobs(2), jobs(3), jobs(4), jobs(5)], [0, 30, 0, 30]);
}

#[test]
fn c_nodes_count_for_copies_and_for_no_zone() {
    let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    let mut sim = Sim::new(3, 3, &config, AppendOnly::No);
    sim.network.speak_plainly(2);
    (0..2).for_each(|n| set_zone(&mut sim, n, ZONES[n]));
    sim.meet_all();
    sim.run_for(500);
    assert!(matches!(add(&mut sim, 0, "REPLICATE 3 ZONES 2"), Value::Status(_)));
    let text = "NOREPL Not enough reachable zones for the requested replication level";
    assert_eq!(add(&mut sim, 0, "REPLICATE 3 ZONES 3"), Value::Error(text.into()));
    for options in ["REPLICATE 2 ZONES 3", "ZONES 0", "ZONES 1 ASYNC"] {
        let reply = add(&mut sim, 0, options);
        let is_refused = matches!(&reply, Value::Error(text) if text.starts_with(b"ERR ZONES"));
        assert!(is_refused, "{options}: {reply:?}");
    }
}

/// Who was forgotten and comes back is told what the others are.
#[test]
fn a_node_that_comes_back_learns_all_zones() {
    let mut sim = zoned(7);
    for n in 0..6 {
        let now = sim.now(n);
        let engine = &mut sim.nodes[n].engine;
        let config = EngineConfig { forget_after_secs: 3, ..engine.config().clone() };
        engine.set_config(now, config);
    }
    sim.crash(5, Crash::Killed);
    sim.run_for(NODE_TIMEOUT_MS * 3 + 5000);
    assert_eq!(sim.nodes[0].engine.cluster().size(), 5);
    sim.restart(5);
    sim.run_for(5000);
    assert!(sim.is_whole());
    let reply = add(&mut sim, 5, "REPLICATE 3 ZONES 3");
    assert!(matches!(reply, Value::Status(_)), "it knows three zones: {reply:?}");
}

/// A node that is in no zone keeps a copy that counts for none: there are more copies then.
#[test]
fn a_node_in_no_zone_promises_zones_by_the_others() {
    let mut sim = zoned(5);
    for n in 0..2 {
        set_zone(&mut sim, n, "");
    }
    sim.run_for(100);
    for options in ["REPLICATE 1 ZONES 1", "REPLICATE 2 ZONES 2", "REPLICATE 2 ZONES 1 SYNC 1"] {
        for delay in ["", " DELAY 1"] {
            let asked_at = sim.now_ms;
            let reply = add(&mut sim, 0, &format!("{options}{delay}"));
            let Value::Status(id) = reply else { panic!("{options}: {reply:?}") };
            assert!(sim.now_ms - asked_at < 40, "{options}: nobody waits for the second try");
            let copies = sim.survey();
            let of_ours: Vec<String> =
                copies[&id].iter().map(|copy| copy.node_id.clone()).collect();
            let mut zones = zones_of(&sim, &of_ours);
            zones.retain(|zone| *zone > 0);
            zones.dedup();
            let wanted = if options.contains("ZONES 2") { 2 } else { 1 };
            assert!(zones.len() >= wanted, "{options}: {zones:?}");
        }
    }
    let text = "NOREPL Not enough reachable zones for the requested replication level";
    let refused = Value::Error(text.into());
    assert_eq!(add(&mut sim, 0, "REPLICATE 1 ZONES 1 RETRY 0"), refused, "it is there alone");
    assert!(matches!(add(&mut sim, 2, "REPLICATE 1 ZONES 1 RETRY 0"), Value::Status(_)));
    let asked_at = sim.now_ms;
    assert!(matches!(add(&mut sim, 2, "REPLICATE 1 ZONES 1 DELAY 1"), Value::Status(_)));
    assert!(sim.now_ms - asked_at <= 20, "it is where it is to be at once");
}

/// Where one zone is short of memory, and nodes are in none, a promise of zones takes no more copies.
#[test]
fn a_zone_that_is_short_of_memory_costs_no_further_copies() {
    let mut sim = zoned(6);
    for n in 2..4 {
        sim.set_memory_level(n, 1);
    }
    (4..6).for_each(|n| set_zone(&mut sim, n, ""));
    sim.run_for(5000);
    for step in 0..20 {
        let Value::Status(id) = add(&mut sim, step % 2, "REPLICATE 2 ZONES 2") else {
            panic!("there are two zones")
        };
        let copies = sim.survey()[&id].len();
        assert_eq!(copies, 2, "one in each zone, and no others");
    }
}

/// A producer's jobs go to waiters in its zone first; those elsewhere are served all the same.
#[test]
fn near_waiters_come_first_and_starve_nobody() {
    for seed in 0..10 {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0x2a));
        let mut sim = zoned(seed);
        sim.checks = Checks::WhenAsked;
        let every_ms = 2 + u64::from(rng.below(8));
        // Node 0 has jobs and no waiters; node 1 is near it and always wants some; the others are far.
        let far = 1 + rng.index(4);
        let places = [1; 8].into_iter().chain(2..2 + far);
        let waiters: Vec<(usize, ClientId)> =
            places.map(|n| (n, sim.connect_client(n, Resp::V2))).collect();
        let get = || ["GETJOB", "FROM", "q"].map(|word| word.as_bytes().to_vec()).to_vec();
        waiters.iter().for_each(|(n, client)| sim.send(*n, *client, get()));
        let producer = sim.connect_client(0, Resp::V2);
        let began_at = sim.now_ms;
        let mut served_at = [began_at; 6];
        let mut served = [0; 6];
        let mut added = 0;
        while sim.now_ms < began_at + 15_000 {
            let reply = sim.call(0, producer, &["ADDJOB", "q", "x", "0", "REPLICATE", "1"]);
            assert!(matches!(reply, Value::Status(_)), "{reply:?}");
            added += 1;
            sim.run_for(every_ms);
            for (n, client) in &waiters {
                if sim.take_replies(*n, *client).is_empty() {
                    continue;
                }
                (served[*n], served_at[*n]) = (served[*n] + 1, sim.now_ms);
                sim.send(*n, *client, get());
            }
            for (n, _) in &waiters[8..] {
                let waited_ms = sim.now_ms - served_at[*n];
                assert!(
                    waited_ms < 1200,
                    "seed {seed}: node {n} was not served for {waited_ms} ms"
                );
            }
        }
        assert!(served[1] * 10 >= added * 8, "seed {seed}: {served:?} of {added}");
    }
}

#[test]
fn a_full_node_is_not_the_first_that_clients_are_sent_to() {
    let mut sim = zoned(4);
    // Small steps are not said, but for those across a mark.
    for loads in [[(1, 74), (2, 94), (3, 73)], [(1, 76), (2, 96), (3, 75)]] {
        for (n, percent) in loads {
            let load = NodeLoad { memory_percent: Some(percent), loop_percent: None };
            sim.nodes[n].engine.set_load(load);
        }
        sim.run_for(11_000);
    }
    let Value::Array(entries) = sim.hello(0) else { panic!("an array") };
    let priority_of = |n: usize| {
        let id = Value::Bulk(sim.nodes[n].engine.cluster().my_id().0.to_vec());
        let entry = entries.iter().find_map(|entry| match entry {
            Value::Array(fields) if fields[0] == id => fields.last().cloned(),
            _ => None,
        });
        entry.expect("all nodes are listed")
    };
    let expected = ["1", "2", "3", "1", "1", "1"].map(|digit| Value::Bulk(digit.into()));
    assert_eq!((0..6).map(priority_of).collect::<Vec<_>>(), expected);
}
