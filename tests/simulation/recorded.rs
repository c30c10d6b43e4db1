//! Messages recorded from C nodes, whole and damaged, taken in by a node that knows their
//! senders.

use std::net::IpAddr;

use disque::base::limits::HANDSHAKES_MAX;
use disque::base::rng::Rng;
use disque::base::time::UnixMs;
use disque::engine::config::EngineConfig;
use disque::proto::bus::{self, Message, NodeFlags};
use disque::proto::nodes_conf::{LinkState, NodeLine};

use crate::cluster::{Checks, Sim};
use crate::network::FOREIGN_LINK;
use crate::storage::AppendOnly;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 200));

/// The frames, in their order.
fn recorded() -> Vec<Vec<u8>> {
    let golden = include_str!("../golden/bus_messages.txt");
    let lines = golden.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let hex = line.rsplit(" | ").next().expect("a line ends with its frame");
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        })
        .collect()
}

/// A node that knows the senders.
fn acquainted() -> Sim {
    let mut sim = Sim::new(1, 1, &EngineConfig::default(), AppendOnly::No);
    sim.checks = Checks::WhenAsked;
    let now = sim.now(0);
    for frame in recorded() {
        let (header, _) = bus::decode(&frame).expect("C nodes send valid frames");
        let line = NodeLine {
            id: header.sender,
            ip: None,
            port: 0,
            flags: NodeFlags::NOADDR,
            ping_sent_at: UnixMs(0),
            pong_received_at: UnixMs(0),
            link: LinkState::Disconnected,
            unusual_bus_port: None,
        };
        sim.nodes[0].engine.load_nodes(now, &[line]);
    }
    assert_eq!(sim.nodes[0].engine.cluster().size(), 4);
    sim
}

#[test]
fn every_recorded_message_of_c_nodes_is_taken_in() {
    let mut sim = acquainted();
    for frame in recorded() {
        sim.deliver(0, FOREIGN_LINK, PEER, &frame);
    }
    sim.nodes[0].engine.check_invariants();
    assert_eq!(sim.nodes[0].engine.cluster().stats().received.total(), 32);
    assert!(sim.nodes[0].engine.job_count() > 0);
}

#[test]
fn a_job_that_may_be_delivered_once_and_is_lent_twice_does_not_stay_due() {
    let mut sim = acquainted();
    for frame in recorded() {
        if matches!(bus::decode(&frame), Ok((_, Message::YourJobs(_)))) {
            sim.deliver(0, FOREIGN_LINK, PEER, &frame);
            sim.deliver(0, FOREIGN_LINK, PEER, &frame);
        }
    }
    assert!(sim.nodes[0].engine.job_count() > 0);
    let due_at = sim.now(0).mono;
    sim.run_for(1000);
    let next_at = sim.nodes[0].engine.next_timeout();
    assert!(next_at > due_at.plus_ms(1000), "what was done is not due again at once");
    sim.nodes[0].engine.check_invariants();
}

#[test]
fn a_million_damaged_messages_do_no_harm() {
    let mut sim = acquainted();
    let mut rng = Rng::from_seed([1; 32]);
    let frames = recorded();
    for round in 0..1_000_000u32 {
        let mut frame = frames[rng.index(frames.len())].clone();
        for _ in 0..=rng.below(4) {
            let bit = rng.index(frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if bus::decode(&frame).is_ok() {
            sim.deliver(0, FOREIGN_LINK, PEER, &frame);
        }
        if round.is_multiple_of(10_000) {
            sim.run_for(100);
            sim.nodes[0].engine.check_invariants();
        }
    }
    let cluster = sim.nodes[0].engine.cluster();
    assert!(cluster.handshake_count() <= HANDSHAKES_MAX);
    assert_eq!(cluster.size(), 4, "nobody was added by damage");
}
