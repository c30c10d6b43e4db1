//! One machine alone, without jobs or a network: inputs in, requests, frames and events out.
//!
//! What several nodes make of each other is in `tests/simulation/membership.rs`.

use super::handshake::Reason;
use super::nodes::Address;
use super::*;
use crate::base::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE_MAX};
use crate::base::time::UnixMs;
use crate::engine::outbox::LinkRequest;
use crate::proto::bus::{GossipEntry, GossipKind, NodeFlags};
use crate::proto::node_info::NodeInfo;
use crate::proto::nodes_conf::{self, LinkState, NodeLine};

const PORT: u16 = 7711;
const NODE_TIMEOUT_MS: u64 = 2000;
const TICK_MS: u64 = 100;
/// A link that a peer made.
const FOREIGN_LINK: LinkId = LinkId { slot: u32::MAX, generation: 0 };

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn id(n: u8) -> NodeId {
    NodeId::from_random([n; 20])
}

/// One of many IDs.
fn nth_id(n: u32) -> NodeId {
    let mut random = [9; 20];
    random[..4].copy_from_slice(&n.to_be_bytes());
    NodeId::from_random(random)
}

fn line(id: NodeId, ip: IpAddr) -> NodeLine {
    NodeLine {
        id,
        ip: Some(ip),
        port: PORT,
        flags: NodeFlags::default(),
        ping_sent_at: UnixMs(0),
        pong_received_at: UnixMs(0),
        link: LinkState::Disconnected,
        unusual_bus_port: None,
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

/// Node 0, and what its driver would hand it.
struct Machine {
    cluster: Cluster,
    rng: Rng,
    out: Outbox,
    now: Now,
    events: Vec<Event>,
}

impl Machine {
    /// Knows the nodes 1, 2 … from its nodes.conf.
    fn knowing(count: u8) -> Self {
        let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
        let now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(10_000) };
        let mut cluster = Cluster::new(id(0), &config);
        let lines: Vec<NodeLine> = (1..=count).map(|n| line(id(n), ip(n))).collect();
        cluster.load(now, &lines);
        let (rng, out) = (Rng::from_seed([0; 32]), Outbox::default());
        Self { cluster, rng, out, now, events: Vec::new() }
    }

    fn run<T>(&mut self, input: impl FnOnce(&mut Cluster, &mut Context<'_>) -> T) -> T {
        let mut cx = Context { now: self.now, rng: &mut self.rng, out: &mut self.out };
        let result = input(&mut self.cluster, &mut cx);
        self.events.extend(core::iter::from_fn(|| self.cluster.poll_event()));
        result
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / TICK_MS {
            self.now.mono = self.now.mono.plus_ms(TICK_MS);
            self.run(Cluster::tick);
        }
        self.cluster.check_invariants();
    }

    /// A heartbeat comes in from somewhere.
    fn receive(
        &mut self,
        from: (LinkId, IpAddr),
        kind: GossipKind,
        sender: NodeId,
        entries: &[GossipEntry],
    ) {
        self.receive_flagged(from, kind, sender, NodeFlags::MYSELF, entries);
    }

    /// The same, with what the sender says of itself.
    fn receive_flagged(
        &mut self,
        (link, from): (LinkId, IpAddr),
        kind: GossipKind,
        sender: NodeId,
        flags: NodeFlags,
        entries: &[GossipEntry],
    ) {
        let ends = LinkEnds { local: ip(0), peer: from };
        self.receive_frame((link, ends), kind, Header { flags, ..header_of(sender) }, entries);
    }

    /// The same, with all that a header says.
    fn receive_frame(
        &mut self,
        (link, ends): (LinkId, LinkEnds),
        kind: GossipKind,
        header: Header,
        entries: &[GossipEntry],
    ) {
        let mut frame = Vec::new();
        bus::encode_gossip(&mut frame, &header, kind, entries.iter().copied());
        let (header, message) = bus::decode(&frame).expect("a valid frame");
        let (Message::Ping(gossip) | Message::Pong(gossip) | Message::Meet(gossip)) = message
        else {
            unreachable!("a heartbeat was encoded");
        };
        self.run(|cluster, cx| cluster.heartbeat(cx, (link, ends), &header, kind, gossip));
        self.cluster.check_invariants();
    }

    /// The messages that were sent since this was asked last.
    fn sent(&mut self) -> Vec<(LinkId, Vec<u8>)> {
        let frames = core::mem::take(&mut self.out.frames);
        let bytes = |range: core::ops::Range<usize>| frames.bytes[range].to_vec();
        frames.sends.into_iter().map(|(link, range)| (link, bytes(range))).collect()
    }

    /// The connects that were requested since this was asked last.
    fn connects(&mut self) -> Vec<(ConnectToken, IpAddr)> {
        let requests = core::mem::take(&mut self.out.links);
        let connect = |request| match request {
            LinkRequest::Connect { token, addr } => Some((token, addr.ip())),
            LinkRequest::Cancel(_) | LinkRequest::Drop(_) => None,
        };
        requests.into_iter().filter_map(connect).collect()
    }

    /// Brings up the links that were requested since this was asked last. Their slots are the
    /// last bytes of their addresses.
    fn connect_all(&mut self) {
        for (token, at) in self.connects() {
            let IpAddr::V4(at) = at else { unreachable!("addresses of these tests") };
            let link = LinkId { slot: u32::from(at.octets()[3]), generation: 0 };
            self.run(|cluster, cx| cluster.link_up(cx, link, token));
        }
    }

    /// The events since this was asked last.
    fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    fn find(&self, n: u8) -> NodeRef {
        self.cluster.find(&id(n)).expect("the node is known")
    }

    fn node(&self, n: u8) -> &Node {
        self.cluster.node(self.find(n))
    }
}

/// Whether all frames are of this kind.
fn are_all(frames: &[(LinkId, Vec<u8>)], is_kind: fn(&Message<'_>) -> bool) -> bool {
    frames.iter().all(|(_, frame)| is_kind(&bus::decode(frame).expect("a valid frame").1))
}

#[test]
fn a_node_at_an_address_from_a_meet_becomes_known_by_its_answer_and_is_pinged() {
    let mut machine = Machine::knowing(0);
    let begun = machine.run(|cluster, cx| cluster.meet(cx, ip(1), PORT, None));
    assert_eq!(begun, Some(Begun::Yes));
    machine.pass(TICK_MS);
    let connects = machine.connects();
    let [(token, at)] = connects[..] else { panic!("one connect: {connects:?}") };
    assert_eq!(at, ip(1));
    let link = LinkId { slot: 1, generation: 0 };
    machine.run(|cluster, cx| cluster.link_up(cx, link, token));
    let meet = machine.sent();
    assert!(meet.len() == 1 && are_all(&meet, |message| matches!(message, Message::Meet(_))));
    assert_eq!((machine.cluster.size(), &machine.events[..]), (1, &[][..]));

    machine.receive((link, ip(1)), GossipKind::Pong, id(1), &[]);
    let node = machine.find(1);
    let joined = [Event::Joined(node), Event::AbilitiesKnown(node)];
    assert_eq!(machine.events, joined);
    assert!(machine.cluster.is_reachable(node) && machine.out.save_nodes);

    machine.cluster.link_down(link);
    machine.pass(TICK_MS);
    let (token, _) = machine.connects()[0];
    machine.run(|cluster, cx| cluster.link_up(cx, link, token));
    let ping = machine.sent();
    assert!(ping.len() == 1 && are_all(&ping, |message| matches!(message, Message::Ping(_))));
    assert_eq!(machine.events, [&joined[..], &[Event::LinkUp(node)]].concat());
}

#[test]
fn a_link_that_nobody_wants_any_more_is_dropped_when_it_comes_up() {
    let mut machine = Machine::knowing(1);
    machine.pass(TICK_MS);
    let (token, _) = machine.connects()[0];
    machine.run(|cluster, cx| cluster.forget(cx, &id(1)));
    assert_eq!(machine.out.links, [LinkRequest::Cancel(token)]);
    machine.out.links.clear();
    let link = LinkId { slot: 1, generation: 0 };
    machine.run(|cluster, cx| cluster.link_up(cx, link, token));
    assert_eq!(machine.out.links, [LinkRequest::Drop(link)]);
    assert!(machine.sent().is_empty(), "nobody is greeted on it");
}

#[test]
fn each_change_of_a_node_is_one_event() {
    let mut machine = Machine::knowing(3);
    let [node, other, third] = [1, 2, 3].map(|n| machine.find(n));
    machine.pass(TICK_MS);
    machine.connect_all();
    machine.events();
    let pong = |machine: &mut Machine, n: u8, flags| {
        let link = LinkId { slot: u32::from(n), generation: 0 };
        let flags = NodeFlags::MYSELF | flags;
        machine.receive_flagged((link, ip(n)), GossipKind::Pong, id(n), flags, &[]);
    };
    // Nodes 2 and 3 answer for as long as node 1 does not.
    for _ in 0..10 {
        machine.pass(NODE_TIMEOUT_MS / 4);
        pong(&mut machine, 2, NodeFlags::default());
        pong(&mut machine, 3, NodeFlags::default());
    }
    let known = [other, third].map(Event::AbilitiesKnown);
    assert_eq!(machine.events(), [&known[..], &[Event::PossiblyFailing(node)]].concat());
    for by in [2, 3, 2, 3] {
        let from = (FOREIGN_LINK, ip(by));
        machine.receive(from, GossipKind::Ping, id(by), &[entry(id(1), ip(1), NodeFlags::PFAIL)]);
        machine.run(|cluster, _| cluster.fail(other, id(1)));
    }
    assert_eq!(machine.events(), [Event::Failing(node)]);
    machine.connect_all();
    machine.events();
    for _ in 0..2 {
        pong(&mut machine, 1, NodeFlags::default());
    }
    assert_eq!(machine.events(), [Event::AbilitiesKnown(node), Event::AnswersAgain(node)]);
    for flags in [NodeFlags::LEAVING, NodeFlags::LEAVING, NodeFlags::default()] {
        pong(&mut machine, 1, flags);
    }
    assert_eq!(machine.events(), [Event::Leaving(node), Event::Stays(node)]);
    // Another node answers on its link.
    let link = LinkId { slot: 1, generation: 0 };
    for _ in 0..2 {
        machine.receive((link, ip(1)), GossipKind::Pong, id(20), &[]);
    }
    let address = (ip(1), PORT).into();
    assert_eq!(machine.events(), [Event::AddressLost { node, address, other: id(20) }]);
    for _ in 0..2 {
        machine.run(|cluster, cx| cluster.forget(cx, &id(1)));
        machine.run(|cluster, cx| cluster.set_leaving(cx, Leaving::Yes));
    }
    assert_eq!(machine.events(), [Event::Forgotten(node), Event::Leaving(ME)]);
    machine.run(|cluster, cx| cluster.reset(cx, Reset::Hard));
    assert_eq!(machine.events(), [Event::Reset]);
}

#[test]
fn reports_are_void_after_two_timeouts_and_when_withdrawn() {
    let mut machine = Machine::knowing(4);
    let report = |machine: &mut Machine, by: u8, flags| {
        let from = (FOREIGN_LINK, ip(by));
        machine.receive(from, GossipKind::Ping, id(by), &[entry(id(4), ip(4), flags)]);
        machine.node(4).reports.len()
    };
    assert_eq!(report(&mut machine, 1, NodeFlags::FAIL), 1);
    assert_eq!(report(&mut machine, 1, NodeFlags::default()), 0);
    assert_eq!(report(&mut machine, 1, NodeFlags::PFAIL), 1);
    machine.now.mono = machine.now.mono.plus_ms(NODE_TIMEOUT_MS * 2 + 1);
    assert_eq!(report(&mut machine, 2, NodeFlags::FAIL), 1, "only the new one is valid");
}

#[test]
fn unknown_nodes_are_answered_and_change_nothing() {
    let mut machine = Machine::knowing(1);
    let unknown = (FOREIGN_LINK, ip(20));
    // This node's own address is learned from whoever comes first.
    machine.receive(unknown, GossipKind::Ping, id(20), &[]);
    machine.sent();
    machine.out.save_nodes = false;
    let entries =
        [entry(id(21), ip(21), NodeFlags::default()), entry(id(1), ip(1), NodeFlags::FAIL)];
    machine.receive(unknown, GossipKind::Ping, id(20), &entries);
    let pong = machine.sent();
    assert!(pong.len() == 1 && are_all(&pong, |message| matches!(message, Message::Pong(_))));
    machine.receive(unknown, GossipKind::Pong, id(20), &entries);
    assert!(machine.sent().is_empty() && machine.connects().is_empty());
    assert_eq!((machine.cluster.size(), machine.cluster.handshake_count()), (2, 0));
    assert!(machine.node(1).reports.is_empty() && !machine.out.save_nodes);
}

#[test]
fn a_node_that_meets_itself_learns_no_address_of_its_own() {
    let mut machine = Machine::knowing(1);
    machine.receive((FOREIGN_LINK, ip(1)), GossipKind::Ping, id(1), &[]);
    let my_ip = |machine: &Machine| machine.cluster.my_address(machine.now).0;
    assert_eq!(my_ip(&machine), Some(ip(0)));
    let loopback = IpAddr::from([127, 0, 1, 1]);
    let ends = LinkEnds { local: loopback, peer: loopback };
    machine.receive_frame((FOREIGN_LINK, ends), GossipKind::Meet, header_of(id(0)), &[]);
    machine.pass(10_000);
    assert_eq!(my_ip(&machine), Some(ip(0)), "others cannot reach it there");
    machine.receive((FOREIGN_LINK, ip(1)), GossipKind::Meet, id(1), &[]);
    assert_eq!(my_ip(&machine), Some(ip(0)));
}

#[test]
fn zones_that_nobody_is_in_any_more_make_room() {
    let mut machine = Machine::knowing(2);
    let (first, second, now) = (machine.find(1), machine.find(2), machine.now);
    let mut say = |node: NodeRef, zone: &str| {
        let info = NodeInfo { zone, ..NodeInfo::default() };
        machine.cluster.note_node_info(now, node, &info);
        let zone = machine.cluster.zone(node);
        machine.cluster.zone_name(zone).to_owned()
    };
    assert_eq!(say(second, "south"), "south");
    for n in 0..5000 {
        let name = format!("z{n}");
        assert_eq!(say(first, &name), name);
    }
    assert_eq!(say(second, "south"), "south");
}

#[test]
fn the_gossip_of_a_meet_from_an_unknown_node_adds_nobody_but_its_sender() {
    let mut machine = Machine::knowing(0);
    let friend = entry(id(21), ip(21), NodeFlags::default());
    machine.receive((FOREIGN_LINK, ip(20)), GossipKind::Meet, id(20), &[friend]);
    let lines: Vec<NodeLine> = machine.cluster.handshake_lines(machine.now).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].ip, lines[0].flags), (Some(ip(20)), NodeFlags::HANDSHAKE));
    let me = machine.cluster.node_lines(machine.now).next().expect("this node");
    assert_eq!(me.ip, Some(ip(0)), "the MEET came in at this address");
}

#[test]
fn a_meet_to_nobody_is_shown_and_gone_after_the_handshake_timeout() {
    let mut machine = Machine::knowing(0);
    for _ in 0..2 {
        machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    }
    let lines: Vec<NodeLine> = machine.cluster.handshake_lines(machine.now).collect();
    assert_eq!(lines.len(), 1, "one handshake an address");
    assert_eq!((lines[0].ip, lines[0].flags), (Some(ip(9)), NodeFlags::HANDSHAKE));
    machine.pass(NODE_TIMEOUT_MS);
    assert_eq!(machine.cluster.handshake_count(), 1);
    machine.pass(TICK_MS);
    assert_eq!(machine.cluster.handshake_count(), 0);
}

#[test]
fn who_meets_again_has_the_whole_time_from_then_on() {
    let mut machine = Machine::knowing(0);
    machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    machine.pass(NODE_TIMEOUT_MS);
    machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    machine.pass(NODE_TIMEOUT_MS);
    assert_eq!(machine.cluster.handshake_count(), 1);
    machine.pass(TICK_MS);
    assert_eq!(machine.cluster.handshake_count(), 0);
}

#[test]
fn a_handshake_by_command_takes_over_one_from_gossip() {
    let mut machine = Machine::knowing(0);
    let address = Address::new(ip(9), PORT, None).expect("an address");
    machine.run(|cluster, cx| cluster.begin_handshake(cx, Reason::Gossip(id(9)), address));
    machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    let reasons: Vec<Reason> =
        machine.cluster.handshakes.values().map(|handshake| handshake.reason).collect();
    assert_eq!(reasons, [Reason::Command]);
}

#[test]
fn one_address_has_few_handshakes_for_unknown_nodes_and_gives_way_to_others() {
    let mut machine = Machine::knowing(0);
    for n in 0..300 {
        machine.receive((FOREIGN_LINK, ip(20)), GossipKind::Meet, nth_id(n), &[]);
    }
    assert_eq!(machine.cluster.handshake_count(), HANDSHAKES_PER_SOURCE_MAX);
    machine.now.mono = machine.now.mono.plus_ms(1);
    for n in 1..HANDSHAKES_MAX as u32 {
        let [_, _, high, low] = n.to_be_bytes();
        let from = IpAddr::from([10, 1, high, low]);
        machine.receive((FOREIGN_LINK, from), GossipKind::Meet, nth_id(1000 + n), &[]);
    }
    assert_eq!(machine.cluster.handshake_count(), HANDSHAKES_MAX);
    let now = machine.now;
    let ips = machine.cluster.handshake_lines(now).map(|line| line.ip);
    assert_eq!(ips.filter(|at| *at == Some(ip(20))).count(), 1, "each has its share");
}

#[test]
fn what_an_operator_orders_has_its_place_and_comes_first() {
    let mut machine = Machine::knowing(1);
    let entries: Vec<GossipEntry> = (0..300u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            entry(nth_id(n), IpAddr::from([10, 1, high, low]), NodeFlags::default())
        })
        .collect();
    machine.receive((FOREIGN_LINK, ip(1)), GossipKind::Ping, id(1), &entries);
    for n in 0..HANDSHAKES_MAX as u32 {
        let [_, _, high, low] = n.to_be_bytes();
        let from = IpAddr::from([10, 2, high, low]);
        machine.receive((FOREIGN_LINK, from), GossipKind::Meet, nth_id(1000 + n), &[]);
    }
    assert_eq!(machine.cluster.handshake_count(), 2 * HANDSHAKES_MAX);
    let begun = machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    assert_eq!(begun, Some(Begun::Yes));
    machine.pass(TICK_MS);
    assert!(machine.connects().iter().any(|(_, at)| *at == ip(9)));
}

#[test]
fn an_unknown_node_has_others_connected_to_once_a_second_and_to_no_port_of_the_system() {
    let mut machine = Machine::knowing(0);
    let victim = ip(99);
    let ends = LinkEnds { local: ip(0), peer: ip(20) };
    for (n, bus_port) in [(1, 25), (2, 2500)] {
        let reserved = Header::announce(Some(bus_port), Abilities::NONE);
        let header = Header { ip: Some(victim), reserved, ..header_of(id(n)) };
        machine.receive_frame((FOREIGN_LINK, ends), GossipKind::Meet, header, &[]);
    }
    assert_eq!(machine.cluster.handshake_count(), 1);
    let mut connect_count = 0;
    for _ in 0..NODE_TIMEOUT_MS / TICK_MS {
        machine.pass(TICK_MS);
        for (token, at) in machine.connects() {
            assert_eq!(at, victim);
            connect_count += 1;
            machine.cluster.link_failed(token, &"refused");
        }
    }
    assert_eq!(connect_count, 2);
}

#[test]
fn heartbeats_from_two_addresses_in_turn_change_little_and_are_saved_seldom() {
    let mut machine = Machine::knowing(1);
    let mut changes = 0;
    let mut saves = 0;
    let mut last = None;
    for round in 0..1000 {
        let turn = u8::from(round % 2 == 0);
        let (local, peer) = (ip(30 + turn), ip(40 + turn));
        let ends = LinkEnds { local, peer };
        machine.receive_frame((FOREIGN_LINK, ends), GossipKind::Meet, header_of(id(20)), &[]);
        machine.receive_frame((FOREIGN_LINK, ends), GossipKind::Ping, header_of(id(1)), &[]);
        saves += u32::from(core::mem::take(&mut machine.out.save_nodes));
        let now = machine.now;
        let ips: Vec<_> = machine.cluster.node_lines(now).map(|line| line.ip).collect();
        changes += u32::from(last.replace(ips.clone()) != Some(ips));
    }
    assert_eq!((changes, saves), (5, 0));
    machine.pass(TICK_MS);
    assert!(machine.out.save_nodes, "what changed is saved all the same");
    machine.pass(10_000);
    let ips: Vec<_> = machine.cluster.node_lines(machine.now).map(|line| line.ip).collect();
    assert!(ips.contains(&Some(ip(30))) && ips.contains(&Some(ip(40))), "the latest: {ips:?}");
}

#[test]
fn a_node_that_joined_is_sent_meet_until_it_knows_this_one() {
    let knows =
        |abilities| Header { reserved: Header::announce(None, abilities), ..header_of(id(1)) };
    let link = LinkId { slot: 1, generation: 0 };
    let own_link = (link, LinkEnds { local: ip(0), peer: ip(1) });
    let foreign_link = (FOREIGN_LINK, own_link.1);
    let joined = |header: Header| {
        let mut machine = Machine::knowing(0);
        machine.run(|cluster, cx| cluster.meet(cx, ip(1), PORT, None));
        machine.pass(TICK_MS);
        let (token, _) = machine.connects()[0];
        machine.run(|cluster, cx| cluster.link_up(cx, link, token));
        machine.receive_frame(own_link, GossipKind::Pong, header, &[]);
        machine.sent();
        machine
    };
    let kinds = |machine: &mut Machine, header: Header| {
        let mut kinds = String::new();
        for _ in 0..2 {
            // In a second there is one ping, whatever else is due.
            machine.pass(1000);
            for (_, frame) in machine.sent() {
                let (_, message) = bus::decode(&frame).expect("a valid frame");
                kinds.push(if matches!(message, Message::Meet(_)) { 'M' } else { 'P' });
            }
            machine.receive_frame(own_link, GossipKind::Pong, header, &[]);
        }
        kinds
    };
    let able = Abilities::STANDING_ASKS;
    // It says whom it knows.
    let mut machine = joined(knows(able));
    assert_eq!(kinds(&mut machine, knows(able)), "MM");
    machine.receive_frame(foreign_link, GossipKind::Ping, knows(able), &[]);
    machine.sent();
    assert_eq!(kinds(&mut machine, knows(able)), "MM", "a ping of its handshake says nothing");
    let knowing = knows(able.with(Abilities::KNOWS_RECEIVER));
    machine.receive_frame(own_link, GossipKind::Pong, knowing, &[]);
    assert_eq!(kinds(&mut machine, knows(able)), "PP", "and never again");
    // It does not say.
    let mut machine = joined(knows(Abilities::NONE));
    assert_eq!(kinds(&mut machine, knows(Abilities::NONE)), "MM");
    for _ in 0..2 {
        machine.receive_frame(foreign_link, GossipKind::Ping, knows(Abilities::NONE), &[]);
    }
    machine.sent();
    assert_eq!(kinds(&mut machine, knows(Abilities::NONE)), "PP");
}

#[test]
fn thousands_of_gossip_entries_are_taken_in_up_to_a_limit() {
    let mut machine = Machine::knowing(1);
    let entries: Vec<GossipEntry> = (0..5000u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            entry(nth_id(n), IpAddr::from([10, 1, high, low]), NodeFlags::default())
        })
        .collect();
    machine.receive((FOREIGN_LINK, ip(1)), GossipKind::Ping, id(1), &entries);
    assert_eq!(machine.cluster.handshake_count(), HANDSHAKES_MAX);
}

#[test]
fn ten_thousand_dead_peers_are_tried_a_few_at_a_time() {
    let mut machine = Machine::knowing(0);
    let lines: Vec<NodeLine> = (0..10_000).map(|n| line(nth_id(n), ip(5))).collect();
    machine.cluster.load(machine.now, &lines);
    assert_eq!(machine.cluster.size(), 10_001);
    machine.pass(1000);
    let connects = machine.connects();
    assert!((1..=640).contains(&connects.len()), "{}", connects.len());
    for (token, _) in connects {
        machine.cluster.link_failed(token, &"refused");
    }
    // From now on nothing answers at all.
    machine.pass(60_000);
    assert!(machine.cluster.connects.len() <= 1024);
    assert!(machine.connects().len() <= 600 * 64);
}

#[test]
fn what_nodes_conf_holds_is_known_after_a_restart() {
    let mut machine = Machine::knowing(2);
    machine.run(|cluster, cx| cluster.set_leaving(cx, Leaving::Yes));
    machine.run(|cluster, cx| cluster.meet(cx, ip(9), PORT, None));
    machine.receive((FOREIGN_LINK, ip(1)), GossipKind::Ping, id(1), &[]);
    let text = machine.cluster.nodes_conf(machine.now);
    let lines = nodes_conf::parse(&text).expect("what is written is read");
    assert_eq!(lines.len(), 3, "without handshakes");
    let mut restarted = Machine::knowing(0);
    restarted.cluster.load(restarted.now, &lines);
    assert!(restarted.cluster.is_leaving());
    assert_eq!((restarted.cluster.size(), restarted.cluster.reachable_count()), (3, 2));
    let restarted_lines: Vec<NodeLine> = restarted.cluster.node_lines(restarted.now).collect();
    let lines: Vec<NodeLine> = machine.cluster.node_lines(machine.now).collect();
    for (old, new) in lines.iter().zip(&restarted_lines) {
        assert_eq!((old.id, old.ip, old.port, old.flags), (new.id, new.ip, new.port, new.flags));
    }
}
