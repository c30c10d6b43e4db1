//! What nodes know of each other after they met, failed, moved, left or were forgotten.
//!
//! One membership machine alone is tested beside its code, in `src/engine/cluster`.

use std::net::{IpAddr, SocketAddr};

use disque::base::ids::NodeId;
use disque::engine::config::{Announce, EngineConfig};
use disque::proto::bus::{
    self, Abilities, GossipEntry, GossipKind, Header, Message, MessageFlags, NodeFlags,
};
use disque::proto::nodes_conf;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::Sim;
use crate::network::FOREIGN_LINK;
use crate::node::PORT;
use crate::storage::{AppendOnly, Crash};

const NODE_TIMEOUT_MS: u64 = 2000;

/// Nodes that do not know each other.
fn separate(count: u16) -> Sim {
    let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    Sim::new(1, count, &config, AppendOnly::No)
}

/// Nodes that all know each other and have links.
fn mesh(count: u16) -> Sim {
    let mut sim = separate(count);
    sim.meet_all();
    sim
}

/// An address that no node has.
fn elsewhere() -> IpAddr {
    IpAddr::from([10, 0, 0, 200])
}

/// An ID that no node has.
fn unknown_id() -> NodeId {
    NodeId::from_random([20; 20])
}

fn id(sim: &Sim, n: usize) -> NodeId {
    *sim.nodes[n].engine.cluster().my_id()
}

fn ip(sim: &Sim, n: usize) -> IpAddr {
    sim.nodes[n].ip
}

fn size(sim: &Sim, n: usize) -> usize {
    sim.nodes[n].engine.cluster().size()
}

fn reachable(sim: &Sim, n: usize) -> usize {
    sim.nodes[n].engine.cluster().reachable_count()
}

fn handshakes(sim: &Sim, n: usize) -> usize {
    sim.nodes[n].engine.cluster().handshake_count()
}

/// Gives a node an order, its arguments between spaces.
fn order(sim: &mut Sim, n: usize, line: &str) {
    let client = sim.connect_client(n, Resp::V2);
    let reply = sim.call(n, client, &line.split(' ').collect::<Vec<_>>());
    sim.disconnect_client(n, client);
    assert_eq!(reply, Value::Status("OK".into()), "{line}");
}

fn meet(sim: &mut Sim, n: usize, at: IpAddr) {
    order(sim, n, &format!("CLUSTER MEET {at} {PORT}"));
}

/// The line that a node shows of another, without its ID and times.
fn seen(sim: &mut Sim, by: usize, whom: usize) -> String {
    let id = id(sim, whom).to_string();
    let Value::Bulk(text) = sim.look(by, &[b"CLUSTER", b"NODES"]) else { panic!("a text") };
    let text = String::from_utf8(text).expect("lines are text");
    let line = text.lines().find(|line| line.starts_with(&id)).expect("the node is known");
    let fields: Vec<&str> = line.split(' ').collect();
    format!("{} {} {}", fields[1], fields[2], fields[5])
}

fn header_of(sender: NodeId) -> Header {
    Header {
        sender,
        ip: None,
        port: PORT,
        flags: NodeFlags::MYSELF,
        state: 0,
        message_flags: MessageFlags::NONE,
        reserved: Header::announce(None, Abilities::NONE),
    }
}

/// A ping of a node that says of another that it is well, and where.
fn ping_about(sender: NodeId, about: NodeId, at: IpAddr) -> Vec<u8> {
    let entry = GossipEntry {
        node: about,
        ping_sent: 0,
        pong_received: 0,
        ip: Some(at),
        port: PORT,
        flags: NodeFlags::default(),
        tail: GossipEntry::announce_bus_port(None),
    };
    let mut frame = Vec::new();
    bus::encode_gossip(&mut frame, &header_of(sender), GossipKind::Ping, [entry].into_iter());
    frame
}

#[test]
fn three_nodes_met_in_a_row_become_a_full_mesh() {
    let mut sim = separate(3);
    for n in 0..2 {
        let at = ip(&sim, n + 1);
        meet(&mut sim, n, at);
    }
    sim.run_for(3000);
    for by in 0..3 {
        assert_eq!((size(&sim, by), reachable(&sim, by)), (3, 2));
        for whom in 0..3 {
            let flags = if by == whom { "myself" } else { "noflags" };
            let expected = format!("{}:{PORT} {flags} connected", ip(&sim, whom));
            assert_eq!(seen(&mut sim, by, whom), expected);
        }
        let saved = sim.nodes[by].storage.nodes_conf().expect("nodes.conf is saved");
        assert_eq!(nodes_conf::parse(&saved).expect("valid lines").len(), 3);
        assert_eq!(handshakes(&sim, by), 0, "no handshake is left over");
    }
}

#[test]
fn a_node_that_dies_is_failing_for_all_and_well_again_when_it_is_back() {
    type Act = fn(&mut Sim);
    let cut: Act = |sim| {
        for n in 0..4 {
            sim.network.cut(n, 4);
            sim.network.cut(4, n);
        }
    };
    let ways: [(&str, Act, Act); 3] = [
        ("killed", |sim| sim.crash(4, Crash::Killed), |sim| sim.restart(4)),
        ("frozen", |sim| sim.freeze(4), |sim| sim.thaw(4)),
        ("cut off", cut, |sim| sim.network.heal(sim.now_ms)),
    ];
    for (how, die, come_back) in ways {
        let mut sim = mesh(5);
        die(&mut sim);
        sim.run_for(NODE_TIMEOUT_MS - 500);
        assert_eq!(reachable(&sim, 0), 4, "nobody is suspected before the timeout");
        sim.run_for(NODE_TIMEOUT_MS * 3);
        for by in 0..4 {
            assert_eq!(reachable(&sim, by), 3);
            let line = seen(&mut sim, by, 4);
            assert!(line.contains(" fail "), "{how}: {by} sees {line}");
        }
        come_back(&mut sim);
        sim.run_for(NODE_TIMEOUT_MS * 2);
        for by in 0..5 {
            assert_eq!(reachable(&sim, by), 4, "{how}: all is well for {by}");
        }
    }
}

#[test]
fn of_two_nodes_neither_finds_a_majority() {
    let mut sim = mesh(2);
    sim.crash(1, Crash::Killed);
    sim.run_for(NODE_TIMEOUT_MS * 5);
    let expected = format!("{}:{PORT} fail? disconnected", ip(&sim, 1));
    assert_eq!(seen(&mut sim, 0, 1), expected);
    assert_eq!(reachable(&sim, 0), 0);
}

#[test]
fn a_minority_suspects_the_others_but_fails_nobody() {
    let mut sim = mesh(5);
    for n in 2..5 {
        sim.freeze(n);
    }
    sim.run_for(NODE_TIMEOUT_MS * 5);
    for whom in 2..5 {
        assert!(seen(&mut sim, 0, whom).contains(" fail? "));
    }
}

#[test]
fn a_forgotten_node_stays_away_for_a_minute_and_comes_back_under_its_old_reference() {
    let mut sim = mesh(3);
    let forgotten = id(&sim, 2);
    let reference = sim.nodes[0].engine.cluster().find(&forgotten);
    order(&mut sim, 0, &format!("CLUSTER FORGET {forgotten}"));
    assert_eq!((size(&sim, 0), reachable(&sim, 0)), (2, 1));
    sim.run_for(59_000);
    assert_eq!(size(&sim, 0), 2);
    assert_eq!(sim.nodes[0].engine.cluster().id(reference.expect("was known")), forgotten);
    sim.run_for(15_000);
    assert_eq!(size(&sim, 0), 3);
    assert_eq!(sim.nodes[0].engine.cluster().find(&forgotten), reference);
}

#[test]
fn a_node_forgotten_by_all_does_not_come_back_by_itself() {
    let mut sim = mesh(3);
    let forgotten = id(&sim, 2);
    for n in 0..2 {
        order(&mut sim, n, &format!("CLUSTER FORGET {forgotten}"));
    }
    sim.run_for(300_000);
    assert_eq!([size(&sim, 0), size(&sim, 1)], [2, 2]);
    assert_eq!(size(&sim, 2), 3, "it was not told");
}

#[test]
fn two_nodes_are_a_cluster_after_one_meet_whatever_becomes_of_the_handshakes() {
    for ms in 0..400 {
        let mut sim = separate(2);
        let at = ip(&sim, 1);
        meet(&mut sim, 0, at);
        sim.run_for(ms);
        // At one of these moments one of the two knows the other and not the other way round.
        let ended = usize::try_from(ms % 2).expect("0 or 1");
        sim.crash(ended, Crash::Killed);
        sim.restart(ended);
        sim.run_for(NODE_TIMEOUT_MS * 3);
        let sizes = [size(&sim, 0), size(&sim, 1)];
        // Who had not sent its MEET, and ended, does not know that it was to meet anybody.
        let was_over = ended == 0 && sizes == [1, 1];
        assert!(sizes == [2, 2] || was_over, "{sizes:?} after {ended} ended at {ms} ms");
    }
}

#[test]
fn a_flood_of_meets_does_not_keep_a_node_from_joining() {
    let mut sim = separate(2);
    let at = ip(&sim, 1);
    // From a hundred addresses, four times each.
    let flood = |sim: &mut Sim, round: u16| {
        for n in 0..400u16 {
            let mut random = [7; 20];
            random[..2].copy_from_slice(&round.to_be_bytes());
            random[2..4].copy_from_slice(&n.to_be_bytes());
            let mut frame = Vec::new();
            let header = header_of(NodeId::from_random(random));
            bus::encode_gossip(&mut frame, &header, GossipKind::Meet, [].into_iter());
            let from = IpAddr::from([10, 0, 1, u8::try_from(n % 100).expect("a small number")]);
            sim.deliver(1, FOREIGN_LINK, from, &frame);
        }
    };
    flood(&mut sim, 1);
    meet(&mut sim, 0, at);
    for round in 2..60 {
        sim.run_for(100);
        flood(&mut sim, round);
    }
    assert_eq!([size(&sim, 0), size(&sim, 1)], [2, 2]);
}

#[test]
fn meet_brings_a_forgotten_node_back_at_once() {
    let mut sim = mesh(3);
    let (forgotten, at) = (id(&sim, 2), ip(&sim, 2));
    for n in 0..2 {
        order(&mut sim, n, &format!("CLUSTER FORGET {forgotten}"));
    }
    sim.run_for(1000);
    assert_eq!(size(&sim, 0), 2);
    meet(&mut sim, 0, at);
    sim.run_for(500);
    assert_eq!((size(&sim, 0), reachable(&sim, 0)), (3, 2));
}

#[test]
fn reset_leaves_the_node_alone_and_a_hard_one_under_a_new_id() {
    let mut sim = mesh(3);
    let (old_id, other) = (id(&sim, 0), ip(&sim, 1));
    order(&mut sim, 0, "CLUSTER RESET");
    assert_eq!((size(&sim, 0), reachable(&sim, 0)), (1, 0));
    assert_eq!(id(&sim, 0), old_id);
    meet(&mut sim, 0, other);
    sim.run_for(3000);
    assert_eq!(size(&sim, 0), 3, "after a soft reset it can join again");

    order(&mut sim, 0, "CLUSTER RESET HARD");
    assert_ne!(id(&sim, 0), old_id);
    sim.run_for(3000);
    assert_eq!(size(&sim, 0), 1, "nobody takes in a node of another name");
    let by_others = sim.nodes[1].engine.cluster().find(&old_id);
    assert!(by_others.is_some(), "what became of the old one they do not know");
}

#[test]
fn a_node_that_leaves_says_so_and_gets_no_copies() {
    let mut sim = mesh(3);
    order(&mut sim, 0, "CLUSTER LEAVING yes");
    sim.run_for(NODE_TIMEOUT_MS);
    assert_eq!(reachable(&sim, 1), 1);
    assert!(seen(&mut sim, 1, 0).contains(" leaving "));
    assert!(seen(&mut sim, 0, 0).contains(" myself,leaving "));
    order(&mut sim, 0, "CLUSTER LEAVING no");
    sim.run_for(NODE_TIMEOUT_MS);
    assert_eq!(reachable(&sim, 1), 2);
}

#[test]
fn a_node_at_a_new_address_is_followed() {
    let mut sim = mesh(3);
    sim.crash(2, Crash::Killed);
    sim.run_for(10);
    sim.nodes[2].move_to(elsewhere());
    sim.restart(2);
    sim.run_for(NODE_TIMEOUT_MS);
    for by in 0..2 {
        let expected = format!("{}:{PORT} noflags connected", elsewhere());
        assert_eq!(seen(&mut sim, by, 2), expected);
    }
}

#[test]
fn a_node_that_does_not_ping_is_found_by_what_others_say() {
    let mut sim = mesh(4);
    sim.crash(3, Crash::Killed);
    sim.run_for(10);
    sim.nodes[3].move_to(elsewhere());
    sim.run_for(NODE_TIMEOUT_MS * 2);
    sim.restart(3);
    // It cannot reach the others by itself.
    for n in 0..3 {
        sim.network.cut(3, n);
    }
    let (sender, from) = (id(&sim, 1), ip(&sim, 1));
    sim.deliver(0, FOREIGN_LINK, from, &ping_about(sender, id(&sim, 3), elsewhere()));
    assert_eq!(handshakes(&sim, 0), 1);
    sim.network.heal(sim.now_ms);
    sim.run_for(500);
    let expected = format!("{}:{PORT} noflags connected", elsewhere());
    assert_eq!(seen(&mut sim, 0, 3), expected);
}

#[test]
fn an_address_taken_over_by_another_node_is_forgotten_until_its_node_comes_back() {
    let mut sim = separate(4);
    for n in 1..3 {
        let at = ip(&sim, n);
        meet(&mut sim, 0, at);
    }
    sim.run_for(3000);
    let home = ip(&sim, 2);
    sim.crash(2, Crash::Killed);
    // What was under way has its old address.
    sim.run_for(10);
    sim.nodes[2].move_to(elsewhere());
    sim.nodes[3].move_to(home);
    sim.run_for(1000);
    let lost = seen(&mut sim, 0, 2);
    assert!([":0 noaddr disconnected", ":0 fail?,noaddr disconnected"].contains(&&*lost), "{lost}");
    assert_eq!(size(&sim, 0), 3);
    assert_eq!(size(&sim, 3), 1, "the other node was pinged, and met nobody");
    sim.restart(2);
    sim.run_for(1000);
    let expected = format!("{}:{PORT} noflags connected", elsewhere());
    assert_eq!(seen(&mut sim, 0, 2), expected);
}

#[test]
fn a_node_that_comes_back_as_another_one_is_failing_under_its_old_id() {
    let mut sim = mesh(3);
    let old_id = id(&sim, 2);
    sim.crash(2, Crash::NodesLost);
    sim.restart(2);
    assert_ne!(id(&sim, 2), old_id);
    sim.run_for(NODE_TIMEOUT_MS * 3);
    for by in 0..2 {
        let now = sim.now(by);
        let cluster = sim.nodes[by].engine.cluster();
        let line = cluster.node_lines(now).find(|line| line.id == old_id).expect("it is known");
        assert_eq!((line.ip, line.flags), (None, NodeFlags::FAIL | NodeFlags::NOADDR));
        assert_eq!(cluster.reachable_count(), 1);
    }
    let client = sim.connect_client(0, Resp::V2);
    let reply = sim.call(0, client, &["ADDJOB", "q", "body", "0"]);
    let Value::Error(text) = &reply else { panic!("two nodes are not three: {reply:?}") };
    assert!(text.starts_with(b"NOREPL "), "{reply:?}");
}

#[test]
fn two_clusters_do_not_merge_over_an_address_in_gossip() {
    let mut sim = separate(5);
    for (n, whom) in [(0, 1), (0, 2), (3, 4)] {
        let at = ip(&sim, whom);
        meet(&mut sim, n, at);
    }
    sim.run_for(3000);
    let (sender, from) = (id(&sim, 1), ip(&sim, 1));
    sim.deliver(0, FOREIGN_LINK, from, &ping_about(sender, unknown_id(), ip(&sim, 3)));
    assert_eq!(handshakes(&sim, 0), 1);
    sim.run_for(3000);
    assert_eq!([0, 1, 2, 3, 4].map(|n| size(&sim, n)), [3, 3, 3, 2, 2]);
}

#[test]
fn messages_of_unknown_nodes_and_under_the_own_id_change_nothing() {
    let mut sim = mesh(2);
    let mut frame = Vec::new();
    bus::encode(&mut frame, &header_of(unknown_id()), &Message::Fail(id(&sim, 1)));
    sim.deliver(0, FOREIGN_LINK, elsewhere(), &frame);
    for sender in [unknown_id(), id(&sim, 0)] {
        frame.clear();
        let message = Message::Pause { queue: b"q", flags: bus::PAUSE_IN };
        bus::encode(&mut frame, &header_of(sender), &message);
        sim.deliver(0, FOREIGN_LINK, elsewhere(), &frame);
    }
    assert_eq!((size(&sim, 0), reachable(&sim, 0), handshakes(&sim, 0)), (2, 1, 0));
    assert_eq!(sim.nodes[0].engine.queue_count(), 0);
}

#[test]
fn meeting_oneself_or_a_known_node_leaves_everything_as_it_was() {
    let mut sim = mesh(2);
    for n in 0..2 {
        let at = ip(&sim, n);
        meet(&mut sim, 0, at);
    }
    sim.run_for(3000);
    assert_eq!([size(&sim, 0), size(&sim, 1)], [2, 2]);
    assert_eq!(handshakes(&sim, 0), 0);
}

#[test]
fn hello_gives_priorities() {
    let mut sim = mesh(5);
    order(&mut sim, 1, "CLUSTER LEAVING yes");
    sim.crash(2, Crash::Killed);
    sim.run_for(NODE_TIMEOUT_MS * 3);
    // Its links close at once; that it is failing takes the node timeout.
    sim.crash(3, Crash::Killed);
    sim.run_for(10);
    meet(&mut sim, 0, elsewhere());
    let Value::Array(mut entries) = sim.hello(0) else { panic!("an array") };
    let bulk = |text: String| Value::Bulk(text.into_bytes());
    let head: Vec<Value> = entries.drain(..2).collect();
    assert_eq!(head, [Value::Integer(1), bulk(id(&sim, 0).to_string())]);
    for (n, priority) in [(0, 1), (1, 100), (2, 100), (3, 5), (4, 1)] {
        let fields = [id(&sim, n).to_string(), ip(&sim, n).to_string(), PORT.to_string()];
        let fields = fields.into_iter().chain([priority.to_string()]);
        let expected = Value::Array(fields.map(bulk).collect());
        let place = entries.iter().position(|entry| *entry == expected);
        entries.remove(place.unwrap_or_else(|| panic!("node {n} in {entries:?}")));
    }
    let [Value::Array(handshake)] = &entries[..] else { panic!("a handshake: {entries:?}") };
    let fields = [elsewhere().to_string(), PORT.to_string(), 5.to_string()];
    assert_eq!(handshake[1..], fields.map(bulk), "a handshake, under a temporary ID");
}

#[test]
fn info_counts_nodes_and_messages() {
    let mut sim = mesh(3);
    let stats = |sim: &Sim, n: usize| sim.nodes[n].engine.cluster().stats();
    let sent: u64 = (0..3).map(|n| stats(&sim, n).sent.total()).sum();
    assert_eq!(sent, sim.network.frame_count);
    sim.run_for(5);
    let (stats, sent) = (stats(&sim, 0), sim.network.frame_count);
    assert!((1..sent).contains(&stats.received.total()));
    let text = format!(
        "cluster_state:ok\r\ncluster_known_nodes:3\r\ncluster_reachable_nodes:2\r\n\
         cluster_size:3\r\ncluster_stats_messages_sent:{}\r\n\
         cluster_stats_messages_received:{}\r\n",
        stats.sent.total(),
        stats.received.total()
    );
    assert_eq!(sim.look(0, &[b"CLUSTER", b"INFO"]), Value::Bulk(text.into_bytes()));
}

#[test]
fn an_announced_address_is_what_others_dial_and_show() {
    let mut sim = separate(3);
    let announce = Announce { ip: Some(elsewhere()), port: Some(7000), bus_port: Some(20_001) };
    let (hidden, now) = (2, sim.now(2));
    let config = EngineConfig { announce, ..sim.nodes[hidden].engine.config().clone() };
    sim.nodes[hidden].engine.set_config(now, config);
    // What is announced leads to the node: its outer address.
    sim.nodes[hidden].bus_at = SocketAddr::new(elsewhere(), 20_001);
    for (n, whom) in [(hidden, 0), (0, 1)] {
        let at = ip(&sim, whom);
        meet(&mut sim, n, at);
    }
    sim.run_for(3000);
    for by in 0..3 {
        let flags = if by == hidden { "myself" } else { "noflags" };
        let expected = format!("{}:7000 {flags} connected", elsewhere());
        assert_eq!(seen(&mut sim, by, hidden), expected);
        assert_eq!(reachable(&sim, by), 2, "gossip carries the bus port to {by}");
    }
    sim.crash(0, Crash::Killed);
    sim.restart(0);
    let text = String::from_utf8(sim.nodes[0].engine.nodes_conf()).expect("ASCII");
    let vars: Vec<&str> = text.lines().filter(|line| line.starts_with("vars")).collect();
    let expected = format!("vars bus-port-{} 20001", id(&sim, hidden));
    assert_eq!(vars, [expected], "only where it is needed");
}

#[test]
fn a_broken_link_is_made_again_before_its_node_is_suspected() {
    let mut sim = mesh(3);
    sim.network.connect_count = 0;
    sim.reset_links(0, 1);
    sim.run_for(200);
    assert_eq!(sim.network.connect_count, 2, "each of the two makes its own again");
    assert!(sim.is_whole());
}
