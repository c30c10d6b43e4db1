//! Work comes in quanta: however much is due, one call of the engine does no more of it than
//! it was told, and the rest the next time. Counted, not timed; `docs/performance.md` lists
//! how large the quanta are.

use core::net::IpAddr;

use disque::base::ids::{ClientId, LinkId, NodeId};
use disque::base::limits::{
    COMMAND_SLICE, JOBS_PER_MESSAGE_MAX, JSCAN_REPLY_MAX, QUEUE_NAME_MAX, SLICE_BYTES,
};
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::cluster::LinkEnds;
use disque::engine::command::{Call, Outcome};
use disque::engine::commands;
use disque::engine::config::EngineConfig;
use disque::engine::outbox::LinkRequest;
use disque::engine::records::Storage;
use disque::engine::{Engine, More};
use disque::proto::bus::{Header, Message, MessageFlags, NodeFlags};
use disque::proto::nodes_conf::{LinkState, NodeLine};
use disque::proto::reply::Resp;
use disque::proto::request::{self, Args, RequestParser, Sender};

const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };
const JOBS: usize = 5000;
const QUANTUM: usize = 64;

fn after_secs(secs: u64) -> Now {
    Now { wall: UnixMs(1_767_225_600_000 + secs * 1000), mono: MonoMs(86_400_000 + secs * 1000) }
}

/// What a command answered.
struct Answer {
    text: String,
    /// How many calls it took.
    calls: usize,
    /// The most bytes that one call wrote.
    piece_len_max: usize,
}

/// Calls a command until it is done.
fn call(engine: &mut Engine, now: Now, words: &str) -> Answer {
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    let mut input = Vec::new();
    request::encode(&words, &mut input);
    let mut ranges = Vec::new();
    RequestParser::default()
        .parse(&mut input, &mut ranges, Sender::Authenticated)
        .expect("a request");
    let name = String::from_utf8_lossy(words[0]).to_lowercase();
    let command = commands::find(name.as_bytes()).expect("a command");
    let call = Call { client: CLIENT, resp: Resp::V2, args: Args::new(&input, &ranges) };
    let (mut calls, mut piece_len_max) = (0, 0);
    let mut outcome = Outcome::Again;
    while outcome == Outcome::Again {
        let told = engine.out.replies.bytes.len();
        outcome = engine.call(now, command, &call);
        calls += 1;
        piece_len_max = piece_len_max.max(engine.out.replies.bytes.len() - told);
    }
    engine.out.replies.segments.clear();
    let bytes = core::mem::take(&mut engine.out.replies.bytes);
    Answer { text: String::from_utf8_lossy(&bytes).into(), calls, piece_len_max }
}

/// An engine with many jobs, added with these options.
fn engine(options: &str) -> Engine {
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    for _ in 0..JOBS {
        let reply = call(&mut engine, now, &format!("ADDJOB q body 0 {options}")).text;
        assert!(reply.starts_with("+D-"), "{reply}");
    }
    engine
}

fn queued(engine: &mut Engine, now: Now) -> usize {
    let reply = call(engine, now, "QLEN q").text;
    reply.trim_matches([':', '\r', '\n']).parse().expect("a number")
}

#[test]
fn jobs_due_at_once_are_queued_a_quantum_at_a_time() {
    let mut engine = engine("DELAY 10 RETRY 60");
    let now = after_secs(11);
    let (mut before, mut more) = (0, More::Yes);
    while more == More::Yes {
        more = engine.handle_timeout(now, QUANTUM);
        let after = queued(&mut engine, now);
        assert!(after - before <= QUANTUM, "{} in one call", after - before);
        before = after;
    }
    assert_eq!(before, JOBS);
}

#[test]
fn jobs_that_expire_at_once_go_a_quantum_at_a_time() {
    let mut engine = engine("TTL 10");
    let now = after_secs(20);
    let mut before = engine.job_count();
    assert_eq!(before, JOBS);
    while engine.handle_timeout(now, QUANTUM) == More::Yes {
        assert!(before - engine.job_count() <= QUANTUM);
        before = engine.job_count();
    }
    assert_eq!(engine.job_count(), 0);
}

#[test]
fn a_flush_drops_a_quantum_at_a_time() {
    let mut engine = engine("RETRY 60");
    let mut before = engine.job_count();
    while engine.flush(after_secs(0), CLIENT, QUANTUM) == More::Yes {
        assert!(before - engine.job_count() <= QUANTUM);
        before = engine.job_count();
    }
    assert_eq!((engine.job_count(), engine.queue_count()), (0, 0));
}

#[test]
fn a_flush_drops_what_was_there_when_it_began_however_fast_jobs_are_added() {
    let mut engine = engine("RETRY 60");
    let now = after_secs(0);
    let operator = ClientId { slot: 1, generation: 0 };
    let mut quanta = 0;
    while engine.flush(now, operator, QUANTUM) == More::Yes {
        quanta += 1;
        for _ in 0..2 * QUANTUM {
            call(&mut engine, now, "ADDJOB q body 0 RETRY 60");
        }
        assert!(quanta <= 2 * JOBS / QUANTUM, "a flush has an end");
    }
    engine.check_invariants();
    assert_eq!(queued(&mut engine, now), engine.job_count(), "what came later may stay");
}

#[test]
fn a_long_command_lets_others_in_between() {
    let mut engine = engine("RETRY 60");
    let now = after_secs(0);
    for command in ["JSCAN 0 COUNT 100000", "QPEEK q 100000", "GETJOB NOHANG COUNT 100000 FROM q"] {
        let answer = call(&mut engine, now, command);
        assert_eq!(answer.text.matches("D-aaaaaaaa-").count(), JOBS, "{command}");
        assert!(answer.calls >= JOBS / COMMAND_SLICE, "{} calls of {command}", answer.calls);
    }
}

#[test]
fn a_queue_is_moved_and_purged_a_slice_at_a_time_and_so_are_large_bodies() {
    let now = after_secs(0);
    let mut engine = engine("RETRY 60");
    for command in ["QMOVE q target COUNT 10000", "QPURGE target COUNT 10000"] {
        let answer = call(&mut engine, now, command);
        assert_eq!(answer.text, format!(":{JOBS}\r\n"), "{command}");
        assert!(answer.calls >= JOBS / COMMAND_SLICE, "{} calls of {command}", answer.calls);
    }
    engine.set_storage(now, Storage::Works);
    let body = "x".repeat(64 * 1024);
    let ids: Vec<String> = (0..20)
        .map(|_| call(&mut engine, now, &format!("ADDJOB q {body} 0")).text[1..41].to_owned())
        .collect();
    let move_all = format!("MOVEJOB other {}", ids.join(" "));
    for command in [move_all.as_str(), "QMOVE other q"] {
        engine.out.aof.clear();
        let answer = call(&mut engine, now, command);
        assert_eq!(answer.text, ":20\r\n");
        let calls_min = engine.out.aof.len() / (SLICE_BYTES + 2 * body.len());
        assert!(answer.calls >= calls_min && calls_min > 1, "{} calls", answer.calls);
    }
}

#[test]
fn a_long_answer_is_told_a_piece_at_a_time() {
    let body = "x".repeat(8 * 1024);
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    for _ in 0..500 {
        call(&mut engine, now, &format!("ADDJOB q {body} 0"));
    }
    let commands =
        ["JSCAN 0 COUNT 100000 REPLY all", "QPEEK q -100000", "GETJOB NOHANG COUNT 100000 FROM q"];
    for command in commands {
        let answer = call(&mut engine, now, command);
        assert_eq!(answer.text.matches(&body).count(), 500, "{command}");
        let len_max = SLICE_BYTES + 2 * body.len();
        assert!(answer.piece_len_max <= len_max, "{} by {command}", answer.piece_len_max);
    }
}

#[test]
fn a_peek_shows_each_job_that_stays_once_and_in_order_whatever_comes_and_goes() {
    for (count, direction) in [("100000", 1), ("-100000", -1), ("700", 1), ("-700", -1)] {
        let mut engine = engine("RETRY 60");
        let now = after_secs(0);
        let ids = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("D-")).map(String::from).collect()
        };
        let all = ids(&call(&mut engine, now, "QPEEK q 100000").text);
        assert_eq!(all.len(), JOBS);
        let mut slice = 0;
        let reader = ClientId { slot: 7, generation: 0 };
        let peek = ["QPEEK", "q", count].map(String::from);
        let mut outcome = Outcome::Again;
        let mut told = Vec::new();
        while outcome == Outcome::Again {
            outcome = engine.call_words(now, reader, Resp::V2, &peek.iter().collect());
            told.append(&mut engine.out.replies.bytes);
            slice += 1;
            if slice % 2 == 0 {
                // Every other one of two hundred, far from the ends of the peeks of 700.
                let gone = &all[2000 + slice * 100..][..100];
                call(&mut engine, now, &format!("DELJOB {}", gone.join(" ")));
                call(&mut engine, now, "ADDJOB q late 0");
            }
        }
        let shown = ids(&String::from_utf8_lossy(&told));
        let left = ids(&call(&mut engine, now, "QPEEK q 100000").text);
        let mut expected: Vec<&String> = all.iter().filter(|id| left.contains(id)).collect();
        let mut shown: Vec<&String> =
            shown.iter().filter(|id| left.contains(id) && all.contains(id)).collect();
        if direction < 0 {
            shown.reverse();
            expected.drain(..expected.len() - shown.len());
        }
        expected.truncate(shown.len());
        assert!(shown == expected, "QPEEK q {count}");
        let len: usize = count.trim_start_matches('-').parse().expect("a number");
        assert!(shown.len() >= len.min(3000) - 10, "{} rows of {count}", shown.len());
    }
}

#[test]
fn queues_that_are_waited_for_are_visited_a_quantum_at_a_time() {
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    let peers = add_peers(&mut engine, now);
    let names: Vec<String> = (0..3000).map(|n| format!("q{n}")).collect();
    let getjob = format!("GETJOB FROM {}", names.join(" "));
    assert!(call(&mut engine, now, &getjob).calls >= 2 * names.len() / COMMAND_SLICE);
    let later = after_secs(5);
    let mut asked = 0;
    let mut more = More::Yes;
    while more == More::Yes {
        engine.out.frames.sends.clear();
        more = engine.handle_timeout(later, QUANTUM);
        let sent = engine.out.frames.sends.len();
        // A NEEDJOBS for each queue, and some pings.
        assert!(sent <= (QUANTUM + 10) * peers.len(), "{sent} messages in one call");
        asked += sent;
    }
    assert!(asked >= 1000, "{asked} messages ask for jobs of the queues that were visited");
}

#[test]
fn a_scan_of_whole_jobs_ends_at_a_bound_and_its_cursor_goes_on() {
    let body = "x".repeat(1024 * 1024);
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    for _ in 0..40 {
        call(&mut engine, now, &format!("ADDJOB q {body} 0"));
    }
    let (mut cursor, mut scans, mut found) = (String::from("0"), 0, 0);
    while scans == 0 || cursor != "0" {
        let command = format!("JSCAN {cursor} COUNT 1000 BUSYLOOP REPLY all");
        let answer = call(&mut engine, now, &command).text;
        assert!(answer.len() < JSCAN_REPLY_MAX + 2 * body.len(), "{} bytes", answer.len());
        found += answer.matches("additional-deliveries").count();
        cursor = answer.split("\r\n").nth(2).expect("a cursor").to_owned();
        scans += 1;
    }
    assert_eq!((scans, found), (3, 40));
    let ids = call(&mut engine, now, "JSCAN 0 COUNT 1000").text;
    assert_eq!(ids.matches("D-aaaaaaaa-").count(), 40);
}

#[test]
fn a_queue_whose_name_fits_no_frame_beside_a_body_is_refused() {
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    let longest = "q".repeat(QUEUE_NAME_MAX);
    assert!(call(&mut engine, now, &format!("ADDJOB {longest} body 0")).text.starts_with("+D-"));
    for refused in ["ADDJOB q{} body 0", "GETJOB NOHANG FROM p q{}", "PAUSE q{} in"] {
        let reply = call(&mut engine, now, &refused.replace("{}", &longest)).text;
        assert_eq!(reply, "-ERR Queue names have at most 1048576 bytes\r\n");
    }
    assert_eq!(engine.queue_count(), 1, "nothing was done");
}

/// Two nodes that are known and have links.
fn add_peers(engine: &mut Engine, now: Now) -> Vec<NodeId> {
    let ids: Vec<NodeId> = [b'b', b'c'].map(|letter| NodeId([letter; 40])).to_vec();
    let line = |id: &NodeId| NodeLine {
        id: *id,
        ip: Some(IpAddr::from([127, 0, 0, 1])),
        port: 7712,
        flags: NodeFlags(0),
        ping_sent_at: UnixMs(0),
        pong_received_at: UnixMs(0),
        link: LinkState::Disconnected,
        unusual_bus_port: None,
    };
    engine.load_nodes(now, &ids.iter().map(line).collect::<Vec<_>>());
    let soon = Now { wall: now.wall.plus_ms(100), mono: now.mono.plus_ms(100) };
    while engine.handle_timeout(soon, QUANTUM) == More::Yes {}
    let requests = core::mem::take(&mut engine.out.links);
    for (slot, request) in (1..).zip(requests) {
        let LinkRequest::Connect { token, .. } = request else { panic!("{request:?}") };
        engine.link_up(soon, LinkId { slot, generation: 0 }, token);
    }
    ids
}

/// A node's standing ask for as many jobs of a queue as there may be in a message.
fn ask(engine: &mut Engine, now: Now, from: NodeId) {
    let header = Header {
        sender: from,
        ip: None,
        port: 7712,
        flags: NodeFlags(0),
        state: 0,
        message_flags: MessageFlags::STANDING,
        reserved: [0; 34],
    };
    let address = IpAddr::from([127, 0, 0, 1]);
    let ends = LinkEnds { local: address, peer: address };
    let message = Message::NeedJobs { queue: b"q", count: JOBS_PER_MESSAGE_MAX as u32 };
    engine.bus_message(now, LinkId { slot: 9, generation: 0 }, ends, &header, &message);
}

#[test]
fn jobs_are_lent_one_message_at_a_time() {
    let now = after_secs(0);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], now);
    let peers = add_peers(&mut engine, now);
    call(&mut engine, now, "PAUSE q out");
    for _ in 0..3 * JOBS_PER_MESSAGE_MAX {
        call(&mut engine, now, "ADDJOB q body 0 REPLICATE 1");
    }
    peers.iter().for_each(|peer| ask(&mut engine, now, *peer));
    call(&mut engine, now, "PAUSE q none");
    assert_eq!(queued(&mut engine, now), 2 * JOBS_PER_MESSAGE_MAX);
    assert_eq!(engine.next_timeout(), now.mono, "the rest is due at once");
    engine.handle_timeout(now, QUANTUM);
    assert_eq!(queued(&mut engine, now), JOBS_PER_MESSAGE_MAX, "nobody wants the rest");
}
