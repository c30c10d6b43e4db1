//! The codec against frames of C nodes, against itself, and against damaged frames.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::base::rng::Rng;
use crate::base::time::UnixMs;
use crate::proto::attributes::{AttributeStream, Attributes, Tag};
use crate::proto::moved::MoveStamp;

const GOLDEN: &str = include_str!("../../../tests/golden/bus_messages.txt");

/// A recorded message: its type, what it says, its bytes.
struct Recorded {
    text: String,
    frame: Vec<u8>,
}

fn golden() -> Vec<Recorded> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    let recorded: Vec<Recorded> = lines
        .map(|line| {
            let (text, hex) = line.rsplit_once(" | ").expect("a line ends with its frame");
            let byte = |pair: &[u8]| {
                let pair = std::str::from_utf8(pair).expect("hex is text");
                u8::from_str_radix(pair, 16).expect("the frame is in hex")
            };
            let frame = hex.as_bytes().chunks(2).map(byte).collect();
            Recorded { text: text.to_owned(), frame }
        })
        .collect();
    assert_eq!(recorded.len(), 32);
    recorded
}

fn describe_job(record: &JobRecord<'_>) -> String {
    let nodes: Vec<String> = record.nodes.iter().map(|node| node.to_string()).collect();
    format!(
        "{} {}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}/{} {}",
        record.id,
        record.state,
        record.gc_attempts,
        record.flags,
        record.repl,
        record.expiry,
        record.ctime,
        record.delay_secs,
        record.retry_secs,
        record.nacks,
        record.deliveries,
        record.queue.escape_ascii(),
        record.body.escape_ascii(),
        nodes.join("+")
    )
}

/// Says of a message what the recording says of it.
fn describe(header: &Header, message: &Message<'_>) -> String {
    let gossip = |gossip: &Gossip<'_>| {
        gossip.iter().fold("gossip".to_owned(), |mut text, entry| {
            let ip = entry.ip.map(|ip| ip.to_string()).unwrap_or_default();
            write!(
                text,
                " {}/{}/{}/{ip}/{}/{}",
                entry.node, entry.ping_sent, entry.pong_received, entry.port, entry.flags.0
            )
            .expect("writing to a string does not fail");
            text
        })
    };
    let job = |id: &JobId, number: u32| format!("job {id} {number}");
    let queue = |name: &[u8], number: u32| format!("queue {} {number}", name.escape_ascii());
    let (name, body) = match message {
        Message::Ping(entries) => ("PING", gossip(entries)),
        Message::Pong(entries) => ("PONG", gossip(entries)),
        Message::Meet(entries) => ("MEET", gossip(entries)),
        Message::Fail(about) => ("FAIL", format!("about {about}")),
        Message::ReplJob(record) => ("REPLJOB", format!("jobs {}", describe_job(record))),
        Message::YourJobs(jobs) => {
            let records: Vec<String> = jobs.iter().map(|record| describe_job(&record)).collect();
            ("YOURJOBS", format!("jobs {}", records.join(" ")))
        }
        Message::GotJob { id, move_digest } => ("GOTJOB", job(id, *move_digest)),
        Message::Enqueue { id, delay_secs } => ("ENQUEUE", job(id, *delay_secs)),
        Message::Queued { id, hold_secs } => ("QUEUED", job(id, *hold_secs)),
        Message::SetAck { id, may_have } => ("SETACK", job(id, *may_have)),
        Message::WillQueue(id) => ("WILLQUEUE", job(id, 0)),
        Message::GotAck { id, known } => ("GOTACK", job(id, u32::from(*known))),
        Message::DelJob(id) => ("DELJOB", job(id, 0)),
        Message::Working { id, hold_secs } => ("WORKING", job(id, *hold_secs)),
        Message::NeedJobs { queue: name, count } => ("NEEDJOBS", queue(name, *count)),
        Message::Pause { queue: name, flags } => ("PAUSE", queue(name, *flags)),
        Message::Offer { queue: name, number } => ("OFFER", queue(name, *number)),
        Message::Query(query) => ("QUERY", format!("{query:?}")),
        Message::Answer(answer) => ("ANSWER", format!("{answer:?}")),
        Message::Moved(moved) => ("MOVED", format!("{moved:?}")),
        Message::NodeInfo(info) => ("NODE_INFO", format!("{info:?}")),
    };
    let Header { sender, port, flags, message_flags, .. } = header;
    format!("{name} | {sender} {port} {} {} | {body}", flags.0, message_flags.bits)
}

#[test]
fn every_recorded_message_decodes_to_what_was_recorded_and_encodes_to_its_bytes() {
    for recorded in golden() {
        let (header, message) = decode(&recorded.frame).expect("C nodes send valid frames");
        assert_eq!(describe(&header, &message), recorded.text);
        let mut frame = b"before".to_vec();
        encode(&mut frame, &header, &message);
        assert_eq!(frame[6..], recorded.frame, "{}", recorded.text);
        assert_eq!(frame_len(&recorded.frame), Ok(Some(recorded.frame.len())));
    }
}

/// Makes the total length right, so that the other checks have to find the fault.
fn with_true_length(mut frame: Vec<u8>) -> Vec<u8> {
    header::set_total_len(&mut frame, 0);
    frame
}

#[test]
fn every_prefix_is_refused_and_so_is_a_byte_too_many() {
    for Recorded { frame, text } in golden() {
        for len in 0..frame.len() {
            let prefix = frame[..len].to_vec();
            assert!(decode(&prefix).is_err(), "{len} bytes of {text}");
            if len >= 8 {
                assert!(decode(&with_true_length(prefix)).is_err(), "{len} bytes of {text}");
            }
        }
        let longer = [&frame[..], b"\0"].concat();
        assert_eq!(decode(&longer), Err(DecodeError::BadLength), "{text}");
        assert!(decode(&with_true_length(longer)).is_err(), "{text}");
    }
}

#[test]
fn two_hundred_thousand_damaged_frames_are_decoded_or_refused() {
    let golden = golden();
    let mut rng = Rng::from_seed([8; 32]);
    for _ in 0..200_000 {
        let mut frame = golden[rng.index(golden.len())].frame.clone();
        for _ in 0..=rng.index(6) {
            // Bits of the body and of single header fields rather than of the signature.
            let at = 8 + rng.index(frame.len() - 8);
            frame[at] ^= 1 << rng.below(8);
        }
        if rng.below(4) == 0 {
            frame.truncate(8 + rng.index(frame.len() - 8));
            frame = with_true_length(frame);
        }
        if let Ok((header, message)) = decode(&frame) {
            let mut again = Vec::new();
            encode(&mut again, &header, &message);
            let (header_again, message_again) = decode(&again).expect("encoded frames are valid");
            // As text, since what follows the end of an address is not kept.
            assert_eq!(describe(&header_again, &message_again), describe(&header, &message));
        }
    }
}

fn header() -> Header {
    Header {
        sender: NodeId([b'a'; 40]),
        ip: None,
        port: 7711,
        flags: NodeFlags::MYSELF | NodeFlags::LEAVING,
        state: 0,
        message_flags: MessageFlags::NOREPLY,
        reserved: [0; 34],
    }
}

/// A recorded frame of the given type.
fn recorded(name: &str) -> Vec<u8> {
    let found = golden().into_iter().find(|recorded| recorded.text.starts_with(name));
    found.expect("every type was recorded").frame
}

#[test]
fn counts_are_checked_against_the_bytes_before_anything_else() {
    let with = |name: &str, at: usize, bytes: &[u8]| {
        let mut frame = recorded(name);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    for (frame, error) in [
        (with("PING", 14, &[0xff, 0xff]), DecodeError::BadCount),
        (with("REPLJOB", 144, &[0xff; 4]), DecodeError::BadCount),
        (with("REPLJOB", 144, &[0, 0, 0, 2]), DecodeError::BadCount),
        (with("REPLJOB", 148, &[0xff; 4]), DecodeError::BadLength),
        (with("YOURJOBS", 144, &[0; 4]), DecodeError::TrailingBytes),
        (with("YOURJOBS", 152, &[0xff; 4]), DecodeError::TooLong),
        (with("NEEDJOBS", 148, &[0xff; 4]), DecodeError::TooLong),
        (with("PING", 8, &[0, 2]), DecodeError::BadVersion(2)),
        (with("PING", 12, &[0, 20]), DecodeError::UnknownType(20)),
        (with("PING", 16, b"\n"), DecodeError::BadNodeId),
        (with("PING", 56, b"x"), DecodeError::BadAddress),
        (with("GOTJOB", 144, b"X"), DecodeError::BadJobId),
    ] {
        assert_eq!(decode(&frame), Err(error));
    }
}

#[test]
fn a_question_stands_where_the_drawing_says_and_has_a_longest_payload() {
    let mut frame = Vec::new();
    let query = Query { token: 0x0102_0304_0506_0708, kind: QueryKind::ATTRIBUTES, payload: b"id" };
    encode(&mut frame, &header(), &Message::Query(query));
    assert_eq!(frame[12..14], [0, 17]);
    assert_eq!(frame[144..], *b"\x01\x02\x03\x04\x05\x06\x07\x08\0\x01id");
    for len in 8..154 {
        assert!(decode(&with_true_length(frame[..len].to_vec())).is_err(), "{len} bytes");
    }
    let payload = vec![b'x'; limits::QUERY_PAYLOAD_MAX + 1];
    for (len, is_valid) in [(payload.len() - 1, true), (payload.len(), false)] {
        let mut frame = Vec::new();
        let answer = Query { payload: &payload[..len], ..query };
        encode(&mut frame, &header(), &Message::Answer(answer));
        assert_eq!(decode(&frame).is_ok(), is_valid, "{len} bytes");
    }
}

#[test]
fn a_move_stands_where_the_drawing_says() {
    let mut stream = AttributeStream::default();
    stream.push(Tag::LIMITS, &[b"5"]);
    let limits = stream.keep().expect("there are some");
    let moved = Moved {
        id: JobId(*b"D-a4d5f1c9-p8oCwlvzc9vw8CFjo57YmKBY-000b"),
        stamp: Some(MoveStamp { at: UnixMs(0x0102_0304), by: NodeId([b'b'; 40]) }),
        is_queued: true,
        is_lease: false,
        flags: 8,
        nacks: 2,
        deliveries: 3,
        ttl_secs: 4,
        hold_secs: 5,
        queue: b"mail",
        attributes: limits.as_attributes(),
    };
    let mut frame = Vec::new();
    encode(&mut frame, &header(), &Message::Moved(moved));
    assert_eq!(frame[12..14], [0, 21]);
    assert_eq!(frame[144 + 40..144 + 48], [0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(frame[144 + 88..144 + 94], [1, 8, 0, 2, 0, 3]);
    assert_eq!(frame[144 + 94..144 + 110], *b"\0\0\0\x04\0\0\0\x05\0\0\0\x04mail");
    assert_eq!(frame[254..260], [0, 0, 2, 1, 0, b'5']);
    assert_eq!(decode(&frame), Ok((header(), Message::Moved(moved))));
    let whole = [254, 294];
    for len in (8..frame.len()).filter(|len| !whole.contains(len)) {
        assert!(decode(&with_true_length(frame[..len].to_vec())).is_err(), "{len} bytes");
    }
    let mut unknown = Moved { stamp: None, ..moved };
    unknown.attributes = Attributes::default();
    frame.clear();
    encode(&mut frame, &header(), &Message::Moved(unknown));
    assert_eq!(decode(&frame), Ok((header(), Message::Moved(unknown))));
}

#[test]
fn an_unknown_type_is_told_apart_whatever_its_body() {
    let mut frame = recorded("FAIL");
    frame[12..14].copy_from_slice(&999u16.to_be_bytes());
    assert_eq!(decode(&frame), Err(DecodeError::UnknownType(999)));
}

#[test]
fn jobs_over_the_limit_of_one_message_are_refused() {
    let frame = recorded("YOURJOBS");
    let (_, Message::YourJobs(jobs)) = decode(&frame).expect("valid") else {
        panic!("a YOURJOBS decodes as such")
    };
    let record = jobs.iter().next().expect("it has a job");
    for (count, valid) in [(100, true), (101, false)] {
        let mut out = Vec::new();
        let mut frame = JobsFrame::your_jobs(&mut out, &header());
        for _ in 0..count {
            frame.push(&record);
        }
        frame.finish();
        assert_eq!(decode(&out).is_ok(), valid);
    }
}

#[test]
fn gossip_beyond_the_limit_is_not_looked_at() {
    let entry = GossipEntry {
        node: NodeId([b'b'; 40]),
        ping_sent: 1,
        pong_received: 2,
        ip: Some([10, 0, 0, 1].into()),
        port: 7712,
        flags: NodeFlags::PFAIL,
        tail: [0, 0, 0, 0, 0x27, 0x0f],
    };
    let mut frame = Vec::new();
    let entries = std::iter::repeat_n(entry, 5000);
    encode_gossip(&mut frame, &header(), GossipKind::Meet, entries);
    let (_, Message::Meet(gossip)) = decode(&frame).expect("valid") else {
        panic!("a MEET decodes as such")
    };
    assert_eq!(gossip.len(), 5000);
    assert_eq!(gossip.iter().len(), limits::GOSSIP_ENTRIES_MAX);
    assert!(gossip.iter().all(|seen| seen == entry));
}

fn any_message() -> impl Strategy<Value = Message<'static>> {
    let id = || {
        "[0-9a-z]{8}".prop_map(|prefix| {
            JobId::parse(format!("D-{prefix}-{}-05a1", "x".repeat(24)).as_bytes()).expect("valid")
        })
    };
    let name = || prop::sample::select(vec![&b""[..], b"q", b"\0\r\n\xff"]);
    let query = || {
        (any::<u64>(), any::<u16>(), name()).prop_map(|(token, kind, payload)| Query {
            token,
            kind: QueryKind(kind),
            payload,
        })
    };
    let stamp = || {
        (1..=1_u64 << 62, any::<[u8; 20]>())
            .prop_map(|(at, by)| MoveStamp { at: UnixMs(at), by: NodeId::from_random(by) })
    };
    let moved = || {
        let numbers = any::<(u8, u16, u16, u32, u32)>();
        (id(), prop::option::of(stamp()), any::<(bool, bool)>(), numbers, name()).prop_map(
            |(id, stamp, (is_queued, is_lease), numbers, queue)| {
                let (flags, nacks, deliveries, ttl_secs, hold_secs) = numbers;
                let attributes = Attributes::default();
                Moved {
                    id,
                    stamp,
                    is_queued,
                    is_lease,
                    flags,
                    nacks,
                    deliveries,
                    ttl_secs,
                    hold_secs,
                    queue,
                    attributes,
                }
            },
        )
    };
    prop_oneof![
        (id(), any::<u32>()).prop_map(|(id, move_digest)| Message::GotJob { id, move_digest }),
        (id(), any::<u32>()).prop_map(|(id, delay_secs)| Message::Enqueue { id, delay_secs }),
        (id(), any::<u32>()).prop_map(|(id, hold_secs)| Message::Queued { id, hold_secs }),
        (id(), any::<u32>()).prop_map(|(id, may_have)| Message::SetAck { id, may_have }),
        id().prop_map(Message::WillQueue),
        (id(), any::<bool>()).prop_map(|(id, known)| Message::GotAck { id, known }),
        id().prop_map(Message::DelJob),
        (id(), any::<u32>()).prop_map(|(id, hold_secs)| Message::Working { id, hold_secs }),
        (name(), any::<u32>()).prop_map(|(queue, count)| Message::NeedJobs { queue, count }),
        (name(), any::<u32>()).prop_map(|(queue, flags)| Message::Pause { queue, flags }),
        (name(), any::<u32>()).prop_map(|(queue, number)| Message::Offer { queue, number }),
        query().prop_map(Message::Query),
        query().prop_map(Message::Answer),
        moved().prop_map(Message::Moved),
    ]
}

proptest! {
    #[test]
    fn encoded_messages_decode_to_the_same(
        message in any_message(),
        sender in any::<[u8; 20]>().prop_map(NodeId::from_random),
        ip: Option<std::net::IpAddr>,
        port: u16,
        flags in any::<u16>().prop_map(NodeFlags),
        message_flags in any::<(u8, u16)>()
            .prop_map(|(bits, move_digest)| MessageFlags { bits, move_digest }),
        reserved: [u8; 32],
    ) {
        let mut padded = [0; 34];
        padded[1..33].copy_from_slice(&reserved);
        let header =
            Header { sender, ip, port, flags, state: 0, message_flags, reserved: padded };
        let mut frame = Vec::new();
        encode(&mut frame, &header, &message);
        prop_assert_eq!(decode(&frame), Ok((header, message)));
    }
}

#[test]
fn a_number_has_a_priority_and_a_count() {
    assert_eq!(join_priority(3, 258), 0x0003_0102);
    assert_eq!(split_priority(0x0003_0102), (3, 258));
    assert_eq!(split_priority(join_priority(u16::MAX, usize::MAX)), (u16::MAX, 65_535));
}
