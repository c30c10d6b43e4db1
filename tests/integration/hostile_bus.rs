//! A million damaged messages over real links, from a stranger and from a node of the
//! cluster: the server answers its clients meanwhile, and is what it was afterwards.

use std::io::{ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disque::base::ids::NodeId;
use disque::base::rng::Rng;
use disque::proto::bus::GossipKind;

use crate::bus_peer::{BusPeer, damaged, link_to, read_frame};
use crate::mesh::{OPTIONS, figure};
use crate::support::{Client, TestServer, eventually, status, text};

/// From C nodes.
const RECORDED: &str = include_str!("../golden/bus_messages.txt");
const MESSAGES: usize = 1_000_000;
/// A link lasts so many messages at most: fewer when the damage makes the server drop it.
const MESSAGES_PER_LINK: usize = 2_000;
/// The processor time that the server may spend on other things before it answers a client.
const OTHER_WORK_MAX: Duration = Duration::from_millis(100);
/// What may be left in use of the memory, in bytes, for tables that have grown.
const LEFT_MAX: i64 = 4 << 20;

/// The recorded messages as if a peer had sent them.
fn recorded_from(sender: NodeId) -> Vec<Vec<u8>> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let frames = lines.map(|line| {
        let (_, hex) = line.rsplit_once(" | ").expect("a line ends with its frame");
        let digits = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("hex"));
        let mut frame: Vec<u8> =
            digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect();
        frame[16..56].copy_from_slice(&sender.0);
        frame
    });
    frames.collect()
}

/// Sends damaged messages, link by link, each link to its end.
fn send_damaged(server: &TestServer, peer: &BusPeer, count: usize, seed: u8) {
    let recorded = recorded_from(peer.id);
    let mut rng = Rng::from_seed([seed; 32]);
    let mut left = count;
    while left > 0 {
        let mut batch = Vec::new();
        let in_batch = left.min(MESSAGES_PER_LINK);
        for _ in 0..in_batch {
            let original = &recorded[rng.index(recorded.len())];
            let frame = damaged(&mut rng, original);
            let is_cut = frame[..8] != original[..8];
            batch.extend(frame);
            left -= 1;
            // What comes behind it would not be looked at.
            if is_cut {
                break;
            }
        }
        deliver(server, &batch);
    }
}

/// Sends bytes over a link of their own and returns once the server has done with them.
fn deliver(server: &TestServer, bytes: &[u8]) {
    let link = link_to(server);
    let answers = link.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        // Answers are taken in, lest the server should wait; their end is the server's.
        scope.spawn(|| read_to_end(answers));
        let mut link = link;
        // The server may have hung up already.
        let _is_sent = link.write_all(bytes).and_then(|()| link.shutdown(Shutdown::Write));
    });
}

fn read_to_end(mut stream: TcpStream) {
    // A reset is as good an end as any; an end that does not come in time is none.
    if let Err(error) = std::io::copy(&mut stream, &mut std::io::sink()) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

/// Pings a server until it is over, once at least; returns the most processor time that went
/// by until it answered.
fn most_work_before_an_answer(server: &TestServer, is_over: &AtomicBool) -> Duration {
    let mut client = server.client();
    let mut longest = Duration::ZERO;
    loop {
        let asked_at = server.cpu_time();
        assert_eq!(client.call("PING"), status("PONG"));
        longest = longest.max(server.cpu_time() - asked_at);
        if is_over.load(Ordering::Relaxed) {
            return longest;
        }
    }
}

fn descriptor_count(server: &TestServer) -> usize {
    let folder = format!("/proc/{}/fd", server.pid());
    std::fs::read_dir(Path::new(&folder)).expect("it runs").count()
}

fn used_memory(client: &mut Client) -> i64 {
    let info = text(client.call("INFO memory"));
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("INFO has the figure").parse().expect("a number")
}

/// The IDs of all nodes that the server knows, in their order.
fn known(client: &mut Client) -> Vec<String> {
    let nodes = text(client.call("CLUSTER NODES"));
    nodes.lines().map(|line| line[..40].to_owned()).collect()
}

#[test]
fn a_million_damaged_messages_harm_neither_clients_nor_the_cluster() {
    // A line in the log for each would be most of the work.
    let options = [&OPTIONS[..], &["--loglevel", "notice"]].concat();
    let server = TestServer::start_with(&options);
    let stranger = BusPeer::silent([3; 20]);
    let peer = BusPeer::listen([4; 20]);
    peer.join(&server);
    let mut client = server.client();
    let (nodes, memory) = (known(&mut client), used_memory(&mut client));
    let descriptors = descriptor_count(&server);
    let received = figure(&mut client, "stats_messages_received");

    let is_over = AtomicBool::new(false);
    let (longest, jobs_of_stranger) = std::thread::scope(|scope| {
        let probe = scope.spawn(|| most_work_before_an_answer(&server, &is_over));
        send_damaged(&server, &stranger, MESSAGES / 2, 1);
        let jobs_of_stranger = text(client.call("INFO jobs"));
        send_damaged(&server, &peer, MESSAGES / 2, 2);
        is_over.store(true, Ordering::Relaxed);
        (probe.join().expect("the server answers"), jobs_of_stranger)
    });

    assert!(longest < OTHER_WORK_MAX, "{longest:?} of other work before a PING was answered");
    assert!(jobs_of_stranger.contains("registered_jobs:0\r\n"), "{jobs_of_stranger}");
    // Enough of them were well-formed for the server to think about.
    let received = figure(&mut client, "stats_messages_received") - received;
    assert!(received > i64::try_from(MESSAGES / 4).expect("a million"), "{received}");

    assert_eq!(client.call("DEBUG FLUSHALL"), status("OK"));
    eventually(|| figure(&mut client, "known_nodes"), |count| *count == 2);
    assert_eq!(known(&mut client), nodes);
    eventually(|| descriptor_count(&server), |count| *count <= descriptors);
    eventually(|| used_memory(&mut client), |used| *used < memory + LEFT_MAX);
    assert_eq!(client.call("DEBUG INVARIANTS"), status("OK"));
    // The peer is itself again as soon as it says where it is.
    peer.join(&server);
}

#[test]
fn a_node_that_sends_nothing_that_can_be_decoded_is_hung_up_on() {
    let server = TestServer::start_with(&OPTIONS);
    let peer = BusPeer::listen([4; 20]);
    peer.join(&server);
    // A PING whose count of entries is one too many, and a message of a type yet to come.
    let mut damaged = peer.heartbeat(GossipKind::Ping, &[]);
    damaged[15] = 1;
    let mut unknown = peer.heartbeat(GossipKind::Ping, &[]);
    unknown[12..14].copy_from_slice(&77_u16.to_be_bytes());
    let ping = peer.heartbeat(GossipKind::Ping, &[]);
    // Single ones, and any number of new messages, are passed over.
    let mut link = link_to(&server);
    for frames in [damaged.repeat(16), unknown.repeat(1000), damaged.clone(), unknown] {
        link.write_all(&[frames, ping.clone()].concat()).expect("the server reads");
        read_frame(&mut link).expect("the ping behind them is answered");
    }
    link.write_all(&damaged.repeat(17)).expect("the server reads");
    assert!(read_frame(&mut link).is_err(), "nothing else comes");
    let warning = "none of its last 16 messages could be decoded";
    assert_eq!(server.log().matches(warning).count(), 1);
}

#[test]
fn who_pings_and_does_not_read_is_hung_up_on() {
    let server = TestServer::start_with(&["--loglevel", "notice"]);
    let pings = BusPeer::silent([3; 20]).heartbeat(GossipKind::Ping, &[]).repeat(1_000);
    let mut link = link_to(&server);
    // More than the kernel holds of the answers, on both sides.
    let is_hung_up_on = (0..1_000).any(|_| link.write_all(&pings).is_err());
    assert!(is_hung_up_on, "a million answers wait for who does not read");
    assert_eq!(server.client().call("PING"), status("PONG"));
}
