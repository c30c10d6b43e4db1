//! What nodes know of each other after they met, failed, moved, left or were forgotten.

use core::net::SocketAddr;

use super::handshake::Reason;
use super::node::Address;
use super::testing::{NODE_TIMEOUT_MS, Net, PORT, State, ip, node_id};
use super::*;
use crate::base::limits::{GOSSIP_ENTRIES_MAX, HANDSHAKES_MAX};
use crate::base::time::UnixMs;
use crate::proto::bus::{Abilities, Gossip, GossipEntry, GossipKind};
use crate::proto::nodes_conf::{self, LinkState, NodeLine};

const OK: &str = "+OK\r\n";

fn seen(net: &mut Net, by: usize, whom: usize) -> String {
    net.seen(by, node_id(whom)).expect("the node is known")
}

fn line(id: NodeId, ip: IpAddr, flags: NodeFlags) -> NodeLine {
    NodeLine {
        id,
        ip: Some(ip),
        port: PORT,
        flags,
        ping_sent_at: UnixMs(0),
        pong_received_at: UnixMs(0),
        link: LinkState::Disconnected,
        unusual_bus_port: None,
    }
}

fn header_of(sender: NodeId, port: u16) -> Header {
    Header {
        sender,
        ip: None,
        port,
        flags: NodeFlags::MYSELF,
        state: 0,
        message_flags: MessageFlags::NONE,
        reserved: Header::announce(None, Abilities::NONE),
    }
}

fn entry(node: NodeId, ip: IpAddr, flags: NodeFlags) -> GossipEntry {
    GossipEntry {
        node,
        ping_sent: 0,
        pong_received: 0,
        ip: Some(ip),
        port: PORT,
        flags,
        tail: GossipEntry::announce_bus_port(None),
    }
}

fn heartbeat(kind: GossipKind, sender: NodeId, entries: &[GossipEntry]) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = header_of(sender, PORT);
    bus::encode_gossip(&mut frame, &header, kind, entries.iter().copied());
    frame
}

#[test]
fn three_nodes_met_in_a_row_become_a_full_mesh() {
    let mut net = Net::new(3);
    net.meet(0, 1);
    net.meet(1, 2);
    net.run(3000);
    for by in 0..3 {
        assert_eq!((net.size(by), net.reachable(by)), (3, 2));
        for whom in 0..3 {
            let flags = if by == whom { "myself" } else { "noflags" };
            let address = format!("{}:{PORT} {flags} connected", ip(whom));
            assert_eq!(seen(&mut net, by, whom), address);
        }
        assert!(net.nodes[by].saves > 0);
        let handshakes = net.nodes[by].engine.cluster().handshake_count();
        assert_eq!(handshakes, 0, "no handshake is left over");
    }
}

#[test]
fn a_node_that_dies_is_failing_for_all_and_forgiven_when_it_is_back() {
    for state in [State::Dead, State::Frozen, State::CutOff] {
        let mut net = Net::mesh(5);
        net.set_state(4, state);
        net.run(NODE_TIMEOUT_MS - 500);
        assert_eq!(net.reachable(0), 4, "nobody is suspected before the timeout");
        net.run(NODE_TIMEOUT_MS * 3);
        for by in 0..4 {
            assert_eq!(net.reachable(by), 3);
            let flags = seen(&mut net, by, 4);
            assert!(flags.contains(" fail "), "{state:?}: {by} sees {flags}");
        }
        net.set_state(4, State::Alive);
        net.run(NODE_TIMEOUT_MS * 2);
        for by in 0..5 {
            assert_eq!(net.reachable(by), 4, "{state:?}: all is well for {by}");
        }
    }
}

#[test]
fn with_two_nodes_there_is_no_majority_beyond_suspicion() {
    let mut net = Net::mesh(2);
    net.set_state(1, State::Dead);
    net.run(NODE_TIMEOUT_MS * 5);
    assert_eq!(seen(&mut net, 0, 1), format!("{}:{PORT} fail? disconnected", ip(1)));
    assert_eq!(net.reachable(0), 0);
}

#[test]
fn a_minority_suspects_the_others_but_fails_nobody() {
    let mut net = Net::mesh(5);
    for n in 2..5 {
        net.set_state(n, State::Frozen);
    }
    net.run(NODE_TIMEOUT_MS * 5);
    for whom in 2..5 {
        assert!(seen(&mut net, 0, whom).contains(" fail? "));
    }
}

#[test]
fn reports_are_void_after_two_timeouts_and_when_withdrawn() {
    let mut net = Net::mesh(5);
    let report =
        |flags| heartbeat(GossipKind::Ping, node_id(1), &[entry(node_id(4), ip(4), flags)]);
    let report_count = |net: &Net| {
        let cluster = net.nodes[0].engine.cluster();
        cluster.node(cluster.find(&node_id(4)).expect("known")).reports.len()
    };
    net.inject(0, ip(1), &report(NodeFlags::FAIL));
    assert_eq!(report_count(&net), 1);
    net.inject(0, ip(1), &report(NodeFlags::default()));
    assert_eq!(report_count(&net), 0);
    net.nodes[1].state = State::Frozen;
    net.inject(0, ip(1), &report(NodeFlags::PFAIL));
    net.run(NODE_TIMEOUT_MS * 2 + 100);
    let other =
        heartbeat(GossipKind::Ping, node_id(2), &[entry(node_id(4), ip(4), NodeFlags::FAIL)]);
    net.inject(0, ip(2), &other);
    assert_eq!(report_count(&net), 1, "only the new one is valid");
}

#[test]
fn a_forgotten_node_stays_away_for_a_minute_and_comes_back_under_its_old_reference() {
    let mut net = Net::mesh(3);
    let reference = net.nodes[0].engine.cluster().find(&node_id(2));
    assert_eq!(net.call(0, &format!("cluster forget {}", node_id(2))), OK);
    assert_eq!((net.size(0), net.reachable(0)), (2, 1));
    net.run(59_000);
    assert_eq!(net.size(0), 2);
    assert_eq!(net.nodes[0].engine.cluster().id(reference.expect("was known")), node_id(2));
    net.run(15_000);
    assert_eq!(net.size(0), 3);
    assert_eq!(net.nodes[0].engine.cluster().find(&node_id(2)), reference);
}

#[test]
fn meet_brings_a_forgotten_node_back_at_once() {
    let mut net = Net::mesh(3);
    for n in 0..2 {
        assert_eq!(net.call(n, &format!("cluster forget {}", node_id(2))), OK);
    }
    net.run(1000);
    assert_eq!(net.size(0), 2);
    net.meet(0, 2);
    net.run(500);
    assert_eq!((net.size(0), net.reachable(0)), (3, 2));
}

#[test]
fn forget_refuses_what_it_cannot_forget() {
    let mut net = Net::new(1);
    assert_eq!(net.call(0, "cluster forget abc"), "-ERR Invalid node identifier\r\n");
    let unknown = node_id(7);
    assert_eq!(
        net.call(0, &format!("cluster forget {unknown}")),
        format!("-ERR Unknown node {unknown}\r\n")
    );
    assert_eq!(
        net.call(0, &format!("cluster forget {}", node_id(0))),
        "-ERR I tried hard but I can't forget myself...\r\n"
    );
}

#[test]
fn reset_leaves_the_node_alone_and_a_hard_one_under_a_new_id() {
    let mut net = Net::mesh(3);
    assert_eq!(net.call(0, "cluster reset x"), "-ERR syntax error\r\n");
    assert_eq!(net.call(0, "cluster reset"), OK);
    assert_eq!((net.size(0), net.reachable(0)), (1, 0));
    assert_eq!(*net.nodes[0].engine.cluster().my_id(), node_id(0));
    net.meet(0, 1);
    net.run(3000);
    assert_eq!(net.size(0), 3, "after a soft reset it can join again");

    assert_eq!(net.call(0, "CLUSTER RESET HARD".to_lowercase().as_str()), OK);
    let id = *net.nodes[0].engine.cluster().my_id();
    assert_ne!(id, node_id(0));
    net.run(3000);
    assert_eq!(net.size(0), 1, "nobody takes in a node of another name");
    let old = format!(":0 {} disconnected", "noaddr");
    let old_seen = seen(&mut net, 1, 0);
    assert!(old_seen == old || old_seen == ":0 fail?,noaddr disconnected", "{old_seen}");
}

#[test]
fn reset_drops_jobs_and_answers_who_waits() {
    let mut net = Net::mesh(2);
    assert!(net.call(0, "addjob q body 0 replicate 1").starts_with("+D-"));
    assert_eq!(net.call(0, "getjob from empty"), "");
    // The test's only client stands for both: the one that waits is answered first.
    assert_eq!(net.call(0, "cluster reset soft"), format!("*-1\r\n{OK}"));
    assert_eq!(net.nodes[0].engine.job_count(), 0);
    assert_eq!(net.nodes[0].engine.queue_count(), 0);
}

#[test]
fn a_node_that_leaves_says_so_and_gets_no_copies() {
    let mut net = Net::mesh(3);
    assert_eq!(net.call(0, "cluster leaving"), "+no\r\n");
    assert_eq!(
        net.call(0, "cluster leaving maybe"),
        "-ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'\r\n"
    );
    assert_eq!(net.call(0, "cluster leaving yes"), OK);
    assert_eq!(net.call(0, "cluster leaving"), "+yes\r\n");
    net.run(NODE_TIMEOUT_MS);
    assert_eq!(net.reachable(1), 1);
    assert!(seen(&mut net, 1, 0).contains(" leaving "));
    assert!(seen(&mut net, 0, 0).contains(" myself,leaving "));
    assert_eq!(net.call(0, "cluster leaving no"), OK);
    net.run(NODE_TIMEOUT_MS);
    assert_eq!(net.reachable(1), 2);
}

#[test]
fn a_node_at_a_new_address_is_followed() {
    let mut net = Net::mesh(3);
    net.set_state(2, State::Dead);
    net.nodes[2].at.set_ip(ip(9));
    net.set_state(2, State::Alive);
    net.run(NODE_TIMEOUT_MS);
    for by in 0..2 {
        assert_eq!(seen(&mut net, by, 2), format!("{}:{PORT} noflags connected", ip(9)));
    }
}

#[test]
fn a_node_that_does_not_ping_is_found_by_what_others_say() {
    let mut net = Net::mesh(4);
    net.set_state(3, State::Dead);
    net.nodes[3].at.set_ip(ip(9));
    net.run(NODE_TIMEOUT_MS * 2);
    net.set_state(3, State::Alive);
    let moved = entry(node_id(3), ip(9), NodeFlags::default());
    net.inject(0, ip(1), &heartbeat(GossipKind::Ping, node_id(1), &[moved]));
    let handshakes = net.nodes[0].engine.cluster().handshake_count();
    assert_eq!(handshakes, 1);
    net.run(500);
    assert_eq!(seen(&mut net, 0, 3), format!("{}:{PORT} noflags connected", ip(9)));
}

#[test]
fn an_address_taken_over_by_another_node_is_forgotten_until_its_node_comes_back() {
    let mut net = Net::mesh(3);
    let stranger = node_id(20);
    net.set_state(2, State::Dead);
    let home = net.nodes[2].at;
    net.nodes[2].at.set_ip(ip(9));
    let client = SocketAddr::new(home.ip(), PORT);
    net.add(stranger, EngineConfig::default(), client);
    net.run(1000);
    let lost = seen(&mut net, 0, 2);
    assert!(lost == ":0 noaddr disconnected", "{lost}");
    assert_eq!(net.size(0), 3);
    assert_eq!(net.size(3), 1, "the stranger was pinged, and met nobody");
    net.set_state(2, State::Alive);
    net.run(1000);
    assert_eq!(seen(&mut net, 0, 2), format!("{}:{PORT} noflags connected", ip(9)));
}

#[test]
fn two_clusters_do_not_merge_over_an_address_in_gossip() {
    let mut net = Net::new(5);
    for (n, whom) in [(0, 1), (0, 2), (3, 4)] {
        net.meet(n, whom);
    }
    net.run(3000);
    let elsewhere = entry(node_id(30), ip(3), NodeFlags::default());
    net.inject(0, ip(1), &heartbeat(GossipKind::Ping, node_id(1), &[elsewhere]));
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), 1);
    net.run(3000);
    assert_eq!([0, 1, 2, 3, 4].map(|n| net.size(n)), [3, 3, 3, 2, 2]);
}

#[test]
fn strangers_are_answered_and_change_nothing() {
    let mut net = Net::mesh(2);
    let stranger = node_id(20);
    net.nodes[0].saves = 0;
    let friend = entry(node_id(21), ip(21), NodeFlags::default());
    let bad_news = entry(node_id(1), ip(1), NodeFlags::FAIL);
    net.inject(0, ip(20), &heartbeat(GossipKind::Ping, stranger, &[friend, bad_news]));
    assert_eq!(net.nodes[0].sent.pop().as_deref(), Some("Pong"));
    net.inject(0, ip(20), &heartbeat(GossipKind::Pong, stranger, &[friend]));
    let mut fail = Vec::new();
    bus::encode(&mut fail, &header_of(stranger, PORT), &Message::Fail(node_id(1)));
    net.inject(0, ip(20), &fail);
    let mut pause = Vec::new();
    for sender in [stranger, node_id(0)] {
        pause.clear();
        let message = Message::Pause { queue: b"q", flags: 3 };
        bus::encode(&mut pause, &header_of(sender, PORT), &message);
        net.inject(0, ip(20), &pause);
    }
    assert_eq!((net.size(0), net.reachable(0), net.nodes[0].saves), (2, 1, 0));
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), 0);
    assert_eq!(net.nodes[0].engine.queue_count(), 0);
}

#[test]
fn the_gossip_of_a_meet_from_a_stranger_adds_nobody_but_the_stranger() {
    let mut net = Net::new(1);
    let friend = entry(node_id(21), ip(21), NodeFlags::default());
    net.inject(0, ip(20), &heartbeat(GossipKind::Meet, node_id(20), &[friend]));
    let handshakes = net.call(0, "cluster nodes");
    assert!(handshakes.contains(&format!(" {}:{PORT} handshake 0 0 disconnected\n", ip(20))));
    assert!(!handshakes.contains(&ip(21).to_string()));
    assert_eq!(seen(&mut net, 0, 0), format!("{}:{PORT} myself connected", ip(0)));
}

#[test]
fn a_meet_to_nobody_is_shown_and_gone_after_the_handshake_timeout() {
    let mut net = Net::new(1);
    net.meet(0, 9);
    net.meet(0, 9);
    let now = net.now();
    let lines: Vec<NodeLine> = net.nodes[0].engine.cluster().handshake_lines(now).collect();
    assert_eq!(lines.len(), 1, "one handshake an address");
    assert_eq!((lines[0].ip, lines[0].flags), (Some(ip(9)), NodeFlags::HANDSHAKE));
    net.run(NODE_TIMEOUT_MS);
    net.nodes[0]
        .engine
        .hello(crate::base::ids::ClientId { slot: 1, generation: 1 }, Default::default());
    let hello = net.take_replies(0);
    assert!(hello.starts_with("*4\r\n:1\r\n$40\r\n"), "{hello}");
    assert!(
        hello.ends_with(&format!("${}\r\n{}\r\n$4\r\n{PORT}\r\n$1\r\n5\r\n", 9, ip(9))),
        "{hello}"
    );
    net.run(200);
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), 0);
}

#[test]
fn meet_checks_its_arguments() {
    let mut net = Net::new(1);
    for (arguments, error) in [
        ("127.0.0.1 x", "Invalid TCP port specified: x"),
        ("127.0.0.1 0", "Invalid node address specified: 127.0.0.1:0"),
        ("127.0.0.1 55536", "Invalid node address specified: 127.0.0.1:55536"),
        ("localhost 7711", "Invalid node address specified: localhost:7711"),
        ("127.0.0.1 7711 0", "Invalid node address specified: 127.0.0.1:7711"),
        ("127.0.0.1", "Wrong CLUSTER subcommand or number of arguments"),
    ] {
        let reply = net.call(0, &format!("cluster meet {arguments}"));
        assert_eq!(reply, format!("-ERR {error}\r\n"));
    }
    assert_eq!(net.call(0, "cluster meet ::1 55535"), OK);
}

#[test]
fn meeting_oneself_or_a_known_node_leaves_everything_as_it_was() {
    let mut net = Net::mesh(2);
    net.meet(0, 0);
    net.meet(0, 1);
    net.run(3000);
    assert_eq!([net.size(0), net.size(1)], [2, 2]);
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), 0);
}

#[test]
fn hello_tells_priorities() {
    let mut net = Net::mesh(5);
    net.call(1, "cluster leaving yes");
    net.set_state(2, State::Dead);
    net.run(NODE_TIMEOUT_MS * 3);
    net.set_state(3, State::Dead);
    net.nodes[0]
        .engine
        .hello(crate::base::ids::ClientId { slot: 1, generation: 1 }, Default::default());
    let hello = net.take_replies(0);
    let entry = |n: usize, priority: u32| {
        let digits = priority.to_string();
        let (id, ip) = (node_id(n), ip(n));
        format!(
            "*4\r\n$40\r\n{id}\r\n$8\r\n{ip}\r\n$4\r\n{PORT}\r\n${}\r\n{digits}\r\n",
            digits.len()
        )
    };
    let entries: Vec<String> =
        [(0, 1), (1, 100), (2, 100), (3, 5), (4, 1)].map(|(n, p)| entry(n, p)).to_vec();
    assert_eq!(hello, format!("*7\r\n:1\r\n$40\r\n{}\r\n{}", node_id(0), entries.concat()));
}

#[test]
fn info_counts_nodes_and_messages() {
    let mut net = Net::mesh(3);
    let cluster = net.nodes[0].engine.cluster();
    let stats = cluster.stats();
    assert_eq!(stats.messages_sent, net.nodes[0].sent.len() as u64);
    assert!(stats.messages_received > 0);
    let text = format!(
        "cluster_state:ok\r\ncluster_known_nodes:3\r\ncluster_reachable_nodes:2\r\n\
         cluster_size:3\r\ncluster_stats_messages_sent:{}\r\n\
         cluster_stats_messages_received:{}\r\n",
        stats.messages_sent, stats.messages_received
    );
    assert_eq!(net.call(0, "cluster info"), format!("${}\r\n{text}\r\n", text.len()));
}

#[test]
fn what_nodes_conf_holds_is_known_after_a_restart() {
    let mut net = Net::mesh(3);
    net.call(0, "cluster leaving yes");
    net.meet(0, 9);
    let text = net.nodes[0].engine.nodes_conf();
    let lines = nodes_conf::parse(&text).expect("what is written is read");
    assert_eq!(lines.len(), 3, "without handshakes");
    let mut restarted = Net::new(1);
    let now = restarted.now();
    restarted.nodes[0].engine.load_nodes(now, &lines);
    assert!(restarted.nodes[0].engine.cluster().is_leaving());
    assert_eq!((restarted.size(0), restarted.reachable(0)), (3, 2));
    assert_eq!(seen(&mut restarted, 0, 0), format!("{}:{PORT} myself,leaving connected", ip(0)));
    assert_eq!(seen(&mut restarted, 0, 1), format!("{}:{PORT} noflags disconnected", ip(1)));
}

#[test]
fn ten_thousand_dead_peers_are_tried_a_few_at_a_time() {
    let mut net = Net::new(1);
    let lines: Vec<NodeLine> = (0..10_000u32)
        .map(|n| {
            let mut random = [9; 20];
            random[..4].copy_from_slice(&n.to_be_bytes());
            line(NodeId::from_random(random), ip(5), NodeFlags::default())
        })
        .collect();
    let now = net.now();
    net.nodes[0].engine.load_nodes(now, &lines);
    assert_eq!(net.size(0), 10_001);
    net.run(1000);
    assert!((1..=640).contains(&net.connect_count), "{}", net.connect_count);
    net.add(node_id(5), EngineConfig::default(), SocketAddr::new(ip(5), PORT));
    net.nodes[1].state = State::CutOff;
    net.connect_count = 0;
    net.run(60_000);
    assert!(net.nodes[0].engine.cluster().connects.len() <= 1024);
    assert!(net.connect_count <= 600 * 64);
}

#[test]
fn handshakes_are_capped_and_strangers_cannot_keep_others_out() {
    let mut net = Net::new(1);
    for n in 0..300u32 {
        let mut random = [9; 20];
        random[..4].copy_from_slice(&n.to_be_bytes());
        let meet = heartbeat(GossipKind::Meet, NodeId::from_random(random), &[]);
        net.inject(0, ip(20), &meet);
    }
    let strangers = net.nodes[0].engine.cluster().handshake_count();
    assert!(strangers < HANDSHAKES_MAX);
    net.meet(0, 9);
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), strangers + 1);
}

#[test]
fn thousands_of_gossip_entries_are_looked_at_up_to_a_limit() {
    let mut net = Net::mesh(2);
    let entries: Vec<GossipEntry> = (0..5000u16)
        .map(|n| {
            let mut random = [9; 20];
            random[..2].copy_from_slice(&n.to_be_bytes());
            let [high, low] = n.to_be_bytes();
            let address = IpAddr::from([10, 1, high, low]);
            entry(NodeId::from_random(random), address, NodeFlags::default())
        })
        .collect();
    let frame = heartbeat(GossipKind::Ping, node_id(1), &entries);
    let (_, message) = bus::decode(&frame).expect("valid");
    let Message::Ping(gossip) = message else { panic!("a ping") };
    assert_eq!((gossip.len(), Gossip::iter(gossip).len()), (5000, GOSSIP_ENTRIES_MAX));
    net.inject(0, ip(1), &frame);
    assert_eq!(net.nodes[0].engine.cluster().handshake_count(), HANDSHAKES_MAX);
}

#[test]
fn an_announced_address_is_what_others_dial_and_show() {
    let mut net = Net::new(2);
    let announce = Announce { ip: Some(ip(8)), port: Some(7000), bus_port: Some(20_001) };
    let config = EngineConfig { announce, ..EngineConfig::default() };
    let hidden = net.add(node_id(2), config, SocketAddr::new(ip(2), PORT));
    // What is announced leads to the node: its outer address.
    net.nodes[hidden].at = SocketAddr::new(ip(8), 20_001);
    net.meet(hidden, 0);
    net.meet(0, 1);
    net.run(3000);
    for by in 0..3 {
        let flags = if by == hidden { "myself" } else { "noflags" };
        assert_eq!(seen(&mut net, by, hidden), format!("{}:7000 {flags} connected", ip(8)));
        assert_eq!(net.reachable(by), 2, "gossip carries the bus port to {by}");
    }
    let text = net.nodes[0].engine.nodes_conf();
    let lines = nodes_conf::parse(&text).expect("what is written is read");
    let mut restarted = Net::new(1);
    let now = restarted.now();
    restarted.nodes[0].engine.load_nodes(now, &lines);
    let text = String::from_utf8(restarted.nodes[0].engine.nodes_conf()).expect("ASCII");
    let vars: Vec<&str> = text.lines().filter(|line| line.starts_with("vars")).collect();
    assert_eq!(vars, [format!("vars bus-port-{} 20001", node_id(2))], "only where it is needed");
}

#[test]
fn a_broken_link_is_made_again_before_its_node_is_suspected() {
    let mut net = Net::mesh(3);
    net.connect_count = 0;
    let cluster = net.nodes[0].engine.cluster();
    let link = *cluster.links.keys().next().expect("there are links");
    let now = net.now();
    net.nodes[0].engine.link_down(now, link);
    net.run(200);
    assert_eq!(net.connect_count, 1);
    assert_eq!(net.reachable(0), 2);
}

#[test]
fn a_handshake_by_command_takes_over_one_from_gossip() {
    let mut net = Net::new(1);
    let address = Address::new(ip(9), PORT, None).expect("an address");
    net.nodes[0].engine.begin_handshake(Reason::Gossip(node_id(9)), address);
    net.meet(0, 9);
    let reasons: Vec<Reason> =
        net.nodes[0].engine.cluster.handshakes.values().map(|handshake| handshake.reason).collect();
    assert_eq!(reasons, [Reason::Command]);
}

/// Frames recorded from C nodes, in their order.
fn recorded() -> Vec<Vec<u8>> {
    let golden = include_str!("../../../tests/golden/bus_messages.txt");
    let lines = golden.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let hex = line.rsplit(" | ").next().expect("a line ends with its frame");
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        })
        .collect()
}

/// A node that knows the senders of the recorded frames.
fn acquainted() -> Net {
    let mut net = Net::new(1);
    for frame in recorded() {
        let (header, _) = bus::decode(&frame).expect("C nodes send valid frames");
        let cluster = &mut net.nodes[0].engine.cluster;
        if cluster.find(&header.sender).is_none() {
            cluster.add(header.sender, Contact::default());
        }
    }
    net
}

#[test]
fn every_recorded_message_of_c_nodes_is_taken_in() {
    let mut net = acquainted();
    for frame in recorded() {
        net.inject(0, ip(1), &frame);
    }
    assert_eq!(net.nodes[0].engine.cluster().stats().messages_received, 32);
    assert!(net.nodes[0].engine.job_count() > 0);
}

#[test]
fn a_job_that_may_be_delivered_once_and_is_lent_twice_does_not_stay_due() {
    let mut net = acquainted();
    for frame in recorded() {
        if matches!(bus::decode(&frame), Ok((_, Message::YourJobs(_)))) {
            net.inject(0, ip(1), &frame);
            net.inject(0, ip(1), &frame);
        }
    }
    assert!(net.nodes[0].engine.job_count() > 0);
    net.run(1000);
}

#[test]
fn a_million_damaged_messages_do_no_harm() {
    let mut net = acquainted();
    let mut rng = Rng::from_seed([1; 32]);
    let frames = recorded();
    let ends = LinkEnds { local: ip(0), peer: ip(1) };
    let link = LinkId { slot: 9, generation: 0 };
    for round in 0..1_000_000u32 {
        let mut frame = frames[rng.index(frames.len())].clone();
        for _ in 0..=rng.below(4) {
            let bit = rng.index(frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if let Ok((header, message)) = bus::decode(&frame) {
            let now = net.now();
            net.nodes[0].engine.bus_message(now, link, ends, &header, &message);
        }
        if round.is_multiple_of(10_000) {
            net.run(100);
        }
    }
    let cluster = net.nodes[0].engine.cluster();
    assert!(cluster.handshake_count() <= HANDSHAKES_MAX);
    assert_eq!(cluster.size(), 4, "nobody was added by damage");
}
