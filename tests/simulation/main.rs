//! Engines on a virtual clock, over a simulated network, from one seed.
//!
//! Nothing here waits: time jumps to whatever happens next. A run is a function of its
//! seed, so a failure prints the seed and `SEED=n` repeats it.
//!
//! `cluster` holds the nodes, their clients and the loop; `network` the links between
//! them; `script` runs the scenarios in `scripts/`, one transcript each; `workload`
//! draws producers and consumers from a seed; `checkers` judges what they saw.

mod checkers;
mod cluster;
mod network;
mod script;
mod workload;

/// `SEED=123` repeats one run; `SEEDS=100000` is for the night.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(300),
    }
}

#[test]
fn every_scenario_plays_as_written() {
    script::play_all();
}

/// One node, producers and consumers that are slow, forget, give back and hang up:
/// every promise of a node alone, with the invariants checked after every input.
#[test]
fn one_node_keeps_its_promises() {
    for seed in seeds() {
        workload::one_node(seed);
    }
}

/// If this fails, some engine read a clock, drew its own randomness or walked a table in
/// hash order, and every seed printed by the other tests is worthless.
#[test]
fn same_seed_same_run() {
    assert_eq!(workload::one_node(7), workload::one_node(7));
}
