//! Copies that are made late, since their nodes were away when the job was added.

use disque::engine::config::EngineConfig;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim};
use crate::storage::{AppendOnly, Crash};

fn mesh(count: u16) -> Sim {
    let config = EngineConfig { node_timeout_ms: 1000, ..EngineConfig::default() };
    let mut sim = Sim::new(1, count, &config, AppendOnly::Yes);
    sim.meet_all();
    sim
}

fn call(sim: &mut Sim, n: usize, line: &str) -> Value {
    sim.call_within(n, line, 20)
}

/// Whoever added the job is gone when it is due: the copy that came late is queued in time, and the
/// delay is not served once more.
#[test]
fn a_late_copy_of_a_delayed_job_comes_when_the_job_is_due() {
    for restarts in [false, true] {
        let mut sim = mesh(3);
        sim.crash(2, Crash::Killed);
        sim.run_for(5000);
        let line = "ADDJOB q body 1000 REPLICATE 3 SYNC 2 DELAY 40 TTL 70 RETRY 5";
        assert!(matches!(call(&mut sim, 0, line), Value::Status(_)));
        sim.run_for(30_000);
        sim.restart(2);
        sim.run_for(3000);
        let short = sim.nodes[0].engine.short_of_copies_count();
        assert_eq!(short, 0, "the copy is there");
        for n in 0..2 {
            sim.crash(n, Crash::Killed);
        }
        if restarts {
            sim.crash(2, Crash::Killed);
            sim.restart(2);
        }
        sim.run_for(2000);
        assert_eq!(call(&mut sim, 2, "GETJOB NOHANG FROM q"), Value::NullArray, "not early");
        sim.run_for(15_000);
        let reply = call(&mut sim, 2, "GETJOB NOHANG FROM q");
        assert!(matches!(reply, Value::Array(_)), "it is due: {reply:?}");
    }
}

/// Nodes that do not take a copy are asked again, and not more and more of them.
#[test]
fn jobs_that_nobody_takes_do_not_spread_over_all_nodes() {
    let mut sim = mesh(10);
    sim.checks = Checks::WhenAsked;
    for n in 1..10 {
        assert_eq!(call(&mut sim, n, "PAUSE q in"), Value::Status("in".into()));
    }
    let Value::Status(id) = call(&mut sim, 0, "ADDJOB q body 1000 REPLICATE 3 SYNC 1 RETRY 3600")
    else {
        panic!("one copy is enough")
    };
    sim.run_for(600_000);
    for n in 1..10 {
        assert_eq!(call(&mut sim, n, "PAUSE q none"), Value::Status("none".into()));
    }
    sim.run_for(130_000);
    let copies = sim.survey()[&id].len();
    assert!((3..=6).contains(&copies), "{copies} copies");
}
