//! Clusters that form by cluster-seeds, and find themselves again at new addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim};
use crate::node::PORT;
use crate::storage::{AppendOnly, Crash};

/// A cluster that was stopped is whole again within this.
const WHOLE_AGAIN_MS: u64 = 5000;

fn separate(count: u16, append_only: AppendOnly) -> Sim {
    let mut sim = Sim::new(u64::from(count), count, &EngineConfig::default(), append_only);
    sim.checks = Checks::WhenAsked;
    sim
}

fn addresses(sim: &Sim) -> Vec<SocketAddr> {
    sim.nodes.iter().map(|node| SocketAddr::new(node.ip, PORT)).collect()
}

fn set_name(sim: &mut Sim, n: usize, name: &str) {
    let now = sim.now(n);
    let engine = &mut sim.nodes[n].engine;
    let config = EngineConfig { cluster_name: name.to_owned(), ..engine.config().clone() };
    engine.set_config(now, config);
}

/// Has all nodes meet their seeds each second; returns after how many ms the cluster was whole.
fn form(sim: &mut Sim, seeds: &[SocketAddr], within_ms: u64) -> u64 {
    let began_at = sim.now_ms;
    let mut meet_at = began_at;
    while !sim.is_whole() {
        if sim.now_ms >= meet_at {
            (0..sim.nodes.len()).for_each(|n| sim.meet_seeds(n, seeds));
            meet_at += 1000;
        }
        sim.run_for(50);
        let took_ms = sim.now_ms - began_at;
        assert!(took_ms <= within_ms, "{} nodes are whole in time", sim.nodes.len());
    }
    sim.now_ms - began_at
}

fn size(sim: &Sim, n: usize) -> usize {
    sim.nodes[n].engine.cluster().size()
}

#[test]
fn a_cluster_forms_by_the_addresses_of_all_its_nodes() {
    for count in [3, 10, 100] {
        let mut sim = separate(count, AppendOnly::No);
        let seeds = addresses(&sim);
        let took_ms = form(&mut sim, &seeds, WHOLE_AGAIN_MS);
        println!("{count} nodes know each other after {took_ms} ms");
        sim.run_for(5000);
        assert!(sim.is_whole(), "and go on so");
        let handshakes = sim.nodes.iter().map(|node| node.engine.cluster().handshake_count());
        assert_eq!(handshakes.sum::<usize>(), 0, "nobody is met any more");
    }
}

#[test]
fn a_cluster_forms_by_the_address_of_one() {
    for count in [3, 10] {
        let mut sim = separate(count, AppendOnly::No);
        let seeds = vec![addresses(&sim)[0]];
        form(&mut sim, &seeds, 10_000);
    }
}

#[test]
fn whose_seeds_are_known_meets_nobody_and_not_itself() {
    let mut sim = separate(3, AppendOnly::No);
    let seeds = addresses(&sim);
    form(&mut sim, &seeds, WHOLE_AGAIN_MS);
    sim.run_for(5000);
    (0..3).for_each(|n| sim.meet_seeds(n, &seeds));
    let handshakes = sim.nodes.iter().map(|node| node.engine.cluster().handshake_count());
    assert_eq!(handshakes.sum::<usize>(), 0, "all seeds are known, the own address is too");
}

#[test]
fn all_nodes_stop_and_come_back_at_new_addresses() {
    for (count, seed_count) in [(3, 3), (3, 1), (5, 2), (30, 30)] {
        let mut sim = separate(count, AppendOnly::Yes);
        let seeds = addresses(&sim);
        form(&mut sim, &seeds, WHOLE_AGAIN_MS);
        let client = sim.connect_client(0, Resp::V2);
        let mut ids = Vec::new();
        for _ in 0..20 {
            sim.send(0, client, ["ADDJOB", "q", "x", "0"].map(|word| word.into()).to_vec());
            sim.run_for(20);
            let (_, reply) = sim.take_replies(0, client).pop().expect("it is answered");
            let Value::Status(id) = reply else { panic!("a job is taken: {reply:?}") };
            ids.push(id);
        }
        sim.run_for(2000);
        (0..sim.nodes.len()).for_each(|n| sim.crash(n, Crash::Killed));
        sim.run_for(30_000);
        for n in 0..sim.nodes.len() {
            let ip = Ipv4Addr::new(10, 7, (n / 200) as u8, (n % 200) as u8 + 1);
            sim.nodes[n].move_to(IpAddr::V4(ip));
            sim.restart(n);
        }
        let seeds = addresses(&sim)[..seed_count].to_vec();
        let took_ms = form(&mut sim, &seeds, WHOLE_AGAIN_MS);
        println!("{count} nodes, {seed_count} seeds: whole again after {took_ms} ms");
        let copies = sim.survey();
        assert!(ids.iter().all(|id| copies.contains_key(id)), "no job is lost");
        let known = (0..sim.nodes.len()).map(|n| size(&sim, n));
        assert!(known.into_iter().all(|size| size == usize::from(count)), "nobody is known twice");
    }
}

#[test]
fn clusters_of_different_names_do_not_merge_by_a_wrong_seed() {
    let mut sim = separate(5, AppendOnly::No);
    let all = addresses(&sim);
    for n in 0..5 {
        set_name(&mut sim, n, if n < 3 { "prod" } else { "test" });
    }
    for _ in 0..5 {
        (0..5).for_each(|n| sim.meet_seeds(n, &all));
        sim.run_for(1000);
    }
    assert_eq!((0..5).map(|n| size(&sim, n)).collect::<Vec<_>>(), [3, 3, 3, 2, 2]);

    // Who is known stays known, whatever its name is by now; but the others are not followed to.
    set_name(&mut sim, 2, "test");
    sim.run_for(5000);
    assert_eq!(size(&sim, 0), 3);
    assert_eq!(sim.nodes[0].engine.cluster().reachable_count(), 2);
    (0..5).for_each(|n| sim.meet_seeds(n, &all));
    sim.run_for(5000);
    assert_eq!(size(&sim, 0), 3, "node 2 knows nodes of both names now, and node 0 learns of them");
}

/// A seed was this node's own address once, and is another node's now.
#[test]
fn a_seed_that_changed_hands_is_met_again() {
    let mut sim = separate(2, AppendOnly::No);
    let seed = addresses(&sim)[0];
    sim.meet_seeds(0, &[seed]);
    sim.run_for(1000);
    sim.nodes[0].move_to(IpAddr::V4(Ipv4Addr::new(10, 7, 0, 1)));
    sim.nodes[1].move_to(seed.ip());
    for _ in 0..15 {
        sim.run_for(60_000);
        sim.meet_seeds(0, &[seed]);
    }
    sim.run_for(1000);
    assert!(sim.is_whole(), "it is not taken for this node's own for ever");
}

#[test]
fn a_node_without_a_name_and_a_c_node_are_taken_in() {
    let mut sim = separate(3, AppendOnly::No);
    set_name(&mut sim, 0, "prod");
    sim.network.speak_plainly(2);
    let seeds = addresses(&sim);
    form(&mut sim, &seeds[..1], 10_000);
}
