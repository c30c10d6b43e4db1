//! Damaged copies of recorded files and of typical requests and replies, into every
//! decoder, and of commands, into the engine. Nothing may panic, no decoder may take more than
//! the bytes it was given, and every command is answered once or waits. Each decoder reads some
//! of the copies and refuses others: one that does neither of the two is not tested.
//!
//! The damage is drawn from a seed, so a failure happens again. `FUZZ_ROUNDS` asks for
//! more of it.

use disque::base::glob;
use disque::base::ids::{ClientId, NodeId};
use disque::base::number;
use disque::base::rng::Rng;
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::command::Outcome;
use disque::engine::commands;
use disque::engine::config::EngineConfig;
use disque::engine::outbox::Outbox;
use disque::engine::{Engine, More};
use disque::proto::aof_record;
use disque::proto::attributes::{self, user_attribute};
use disque::proto::bus::{
    self, Abilities, Header, Message, MessageFlags, NodeFlags, Query, QueryKind,
};
use disque::proto::job_record::JobRecord;
use disque::proto::nodes_conf;
use disque::proto::quoting;
use disque::proto::reader::Reader;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::{ReplyReader, Value};
use disque::proto::request::{Args, OwnedArgs, Parsed, RequestError, RequestParser, Sender};
use disque::server::http::request::{self as http_request, HEADER_MAX};

#[path = "environment/mod.rs"]
#[allow(dead_code, reason = "the simulator uses the rest of it")]
mod environment;

const BUS_MESSAGES: &str = include_str!("golden/bus_messages.txt");
const AOF: &[u8] = include_bytes!("golden/disque.aof");
const NODES_CONF: &[u8] = include_bytes!("golden/nodes.conf");
const COMMANDS: &str = include_str!("fuzz/commands.txt");
const REQUESTS: &[u8] = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$4\r\nbody\r\n$1\r\n0\r\nPING\r\n\
    GETJOB NOHANG FROM \"a \\x41\" 'b'\n*2\r\n$4\r\nQLEN\r\n$12\r\nabcdefghijkl\r\n*-1\r\n*0\r\nQUIT\n";
const REPLIES: &[u8] = b"+OK\r\n-ERR syntax error\r\n:-12\r\n$4\r\nbody\r\n$-1\r\n*-1\r\n\
    *2\r\n*2\r\n$1\r\na\r\n_\r\n:1\r\n%1\r\n+key\r\n*0\r\n";

const HTTP_REQUEST: &[u8] = b"GET /api/queue?name=a%20b%ff+c&x HTTP/1.1\r\nHost: [::1]:9711\r\n\
    Authorization: Bearer s3cret\r\nAccept: text/plain;q=0.5\r\nConnection: close\r\n\r\n";

fn rounds() -> u64 {
    environment::count("FUZZ_ROUNDS", 100_000)
}

/// What became of a damaged copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The decoder found nothing wrong with it.
    Taken,
    Refused,
}

impl Verdict {
    fn of<T, E>(decoded: &Result<T, E>) -> Self {
        if decoded.is_ok() { Self::Taken } else { Self::Refused }
    }
}

/// Runs `decode` on damaged copies of `seed`, of which it has to take some and to refuse some.
fn fuzz_both_ways(seed: &[u8], mut decode: impl FnMut(&mut Rng, Vec<u8>) -> Verdict) {
    let mut rng = Rng::from_seed([42; 32]);
    let mut verdicts = Verdicts::default();
    for _ in 0..rounds() {
        let copy = damaged(&mut rng, seed);
        verdicts.note(decode(&mut rng, copy));
    }
    verdicts.check();
}

/// How many copies were taken, and how many were refused.
#[derive(Debug, Default)]
struct Verdicts {
    taken: u64,
    refused: u64,
}

impl Verdicts {
    /// Fewer copies than this may all have been of one kind.
    const ENOUGH: u64 = 500;
    /// Of so many copies one at least has to be taken, and one refused. A fifth of them is not
    /// damaged at all.
    const SHARE: u64 = 50;

    fn note(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Taken => self.taken += 1,
            Verdict::Refused => self.refused += 1,
        }
    }

    fn check(&self) {
        let count = self.taken + self.refused;
        let is_both = self.taken.min(self.refused) * Self::SHARE >= count;
        assert!(
            is_both || count < Self::ENOUGH,
            "the decoder takes or refuses nearly all: {self:?}"
        );
    }
}

fn damaged(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    const TELLING: &[u8] = b"\0\xff\x7f\x80*$-09\r\n\"'\\ ";
    let mut bytes = seed.to_vec();
    for _ in 0..rng.below(5) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.index(bytes.len());
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = TELLING[rng.index(TELLING.len())],
            2 => bytes.insert(at, TELLING[rng.index(TELLING.len())]),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => {
                let from = rng.index(bytes.len());
                let end = bytes.len().min(from + 1 + rng.index(40));
                let piece = bytes[from..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// What the parser makes of a client's input that comes in pieces: the arguments of its
/// requests, and the error that ended them.
type Parse = (Vec<Vec<Vec<u8>>>, Option<RequestError>);

fn parse_pieces<'a>(sender: Sender, pieces: impl Iterator<Item = &'a [u8]>) -> Parse {
    let mut parser = RequestParser::default();
    let (mut buffer, mut ranges, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let consumed = match parser.parse(&mut buffer, &mut ranges, sender) {
                Ok(Parsed::Incomplete { missing }) => {
                    assert!(missing > 0);
                    assert!(parser.memory() <= 16 * buffer.len(), "it holds what has come");
                    break;
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Request { consumed }) => {
                    let args = Args::new(&buffer, &ranges);
                    assert!(!args.is_empty());
                    assert!(args.iter().map(<[u8]>::len).sum::<usize>() < consumed);
                    requests.push(args.iter().map(<[u8]>::to_vec).collect());
                    consumed
                }
                Err(error) => return (requests, Some(error)),
            };
            assert!(consumed > 0 && consumed <= buffer.len());
            assert_eq!(parser.memory(), 0);
            buffer.drain(..consumed);
        }
    }
    (requests, None)
}

#[test]
fn requests() {
    fuzz_both_ways(REQUESTS, |rng, text| {
        let mut verdict = Verdict::Taken;
        for sender in [Sender::Authenticated, Sender::Unauthenticated] {
            let whole = parse_pieces(sender, std::iter::once(&text[..]));
            let mut rest = &text[..];
            let pieces = std::iter::from_fn(|| {
                let (piece, behind) = rest.split_at(rest.len().min(1 + rng.index(64)));
                rest = behind;
                (!piece.is_empty()).then_some(piece)
            });
            assert_eq!(parse_pieces(sender, pieces), whole);
            if let Some(error) = whole.1 {
                assert!(error.to_string().starts_with("Protocol error: "));
                verdict = Verdict::Refused;
            }
        }
        verdict
    });
}

/// One command of the engine after the other, with other arguments than it expects.
#[test]
fn commands() {
    /// The engine is made anew after so many, before its jobs make a scan long.
    const COMMANDS_PER_ENGINE: u64 = 1_000;
    let lines: Vec<&str> = COMMANDS.lines().filter(|line| !line.starts_with('#')).collect();
    let mut rng = Rng::from_seed([9; 32]);
    let (mut carried_out, mut left) = (0_u64, rounds());
    while left > 0 {
        let mut node = Node::new(&mut rng);
        for _ in 0..left.min(COMMANDS_PER_ENGINE) {
            left -= 1;
            let line = lines[rng.index(lines.len())].replace("<job>", &node.job(&mut rng));
            let line = damaged(&mut rng, line.as_bytes());
            carried_out += u64::from(quoting::split(&line).is_ok_and(|words| node.run(&words)));
        }
        node.engine.check_invariants();
    }
    assert!(carried_out > rounds() / 8, "{carried_out} commands of the engine were carried out");
}

/// An engine and the jobs that were added to it.
struct Node {
    engine: Engine,
    now: Now,
    jobs: Vec<String>,
}

impl Node {
    const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };

    fn new(rng: &mut Rng) -> Self {
        let now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };
        let engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), rng.bytes(), now);
        Self { engine, now, jobs: Vec::new() }
    }

    /// The ID of one of the jobs, or of one that was never there.
    fn job(&self, rng: &mut Rng) -> String {
        let unknown = || "D-61626364-abcdefghijklmnopqrstuvwx-05a1".to_owned();
        let from = self.jobs.len().saturating_sub(20);
        self.jobs.get(from + rng.index(21)).cloned().unwrap_or_else(unknown)
    }

    /// Runs a command to its end; tells whether the engine has it.
    fn run(&mut self, words: &[Vec<u8>]) -> bool {
        let Some(command) = words.first().and_then(|name| commands::find(name)) else {
            return false;
        };
        if !command.manual.accepts(words.len()) {
            return false;
        }
        self.now = Now { wall: self.now.wall.plus_ms(7), mono: self.now.mono.plus_ms(7) };
        let words: OwnedArgs = words.iter().collect();
        let call =
            |engine: &mut Engine| engine.call_words(self.now, Self::CLIENT, Resp::V2, &words);
        let mut outcome = call(&mut self.engine);
        while outcome == Outcome::Again {
            outcome = call(&mut self.engine);
        }
        let mut reader = ReplyReader::default();
        reader.feed(&self.engine.out.replies.bytes);
        let reply = reader.next_value().expect("replies are well-formed");
        assert_eq!(reader.next_value(), Ok(None), "it is answered once");
        if let Some(Value::Status(id)) = &reply
            && id.starts_with(b"D-")
        {
            self.jobs.push(String::from_utf8_lossy(id).into_owned());
        }
        let is_left = matches!(outcome, Outcome::Blocked | Outcome::SaveNodes | Outcome::ShowPeers);
        assert_eq!(is_left, reply.is_none(), "{:?} is answered, or waits", words.args());
        self.engine.client_gone(self.now, Self::CLIENT);
        while self.engine.handle_timeout(self.now, 64) == More::Yes {}
        self.engine.out = Outbox::default();
        true
    }
}

#[test]
fn requests_cut_at_every_byte() {
    let whole = parse_pieces(Sender::Unauthenticated, std::iter::once(REQUESTS));
    assert_eq!((whole.0.len(), whole.1), (5, None));
    for at in 0..=REQUESTS.len() {
        let (head, tail) = REQUESTS.split_at(at);
        assert_eq!(parse_pieces(Sender::Unauthenticated, [head, tail].into_iter()), whole);
    }
}

#[test]
fn replies() {
    fuzz_both_ways(REPLIES, |rng, text| {
        let mut reader = ReplyReader::default();
        for piece in text.chunks(1 + rng.index(32)) {
            reader.feed(piece);
            loop {
                match reader.next_value() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return Verdict::Refused,
                }
            }
        }
        Verdict::Taken
    });
}

#[test]
fn bus_frames() {
    let frames = BUS_MESSAGES.lines().filter_map(|line| line.rsplit(" | ").next());
    for hex in frames.filter(|hex| hex.starts_with("4462755a")) {
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("hex") as u8;
        let frame: Vec<u8> =
            hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let mut rng = Rng::from_seed([7; 32]);
        let mut verdicts = Verdicts::default();
        for _ in 0..rounds() / 8 {
            verdicts.note(check_frame(&mut damaged(&mut rng, &frame)));
        }
        verdicts.check();
    }
}

/// Decodes a damaged frame; what it is taken for is encoded to what says the same.
fn check_frame(copy: &mut [u8]) -> Verdict {
    let _length = bus::frame_len(copy);
    // With the length put right most copies get past the header.
    let total_len = u32::try_from(copy.len()).expect("a short frame").to_be_bytes();
    if let Some(field) = copy.get_mut(4..8) {
        field.copy_from_slice(&total_len);
    }
    let Ok((header, message)) = bus::decode(copy) else { return Verdict::Refused };
    let mut again = Vec::new();
    bus::encode(&mut again, &header, &message);
    let (header_again, message_again) = bus::decode(&again).expect("it was encoded");
    assert_eq!(header_again, header);
    assert!(say_the_same(&message_again, &message), "{message_again:?}, {message:?}");
    Verdict::Taken
}

/// Whether two messages are the same to a reader: what stands behind the end of an address of
/// gossip is not passed on.
fn say_the_same(a: &Message<'_>, b: &Message<'_>) -> bool {
    match (a, b) {
        (Message::Ping(a), Message::Ping(b))
        | (Message::Pong(a), Message::Pong(b))
        | (Message::Meet(a), Message::Meet(b)) => a.iter().eq(b.iter()),
        _ => a == b,
    }
}

/// A record whose attributes take two entries.
fn record_with_attributes() -> Vec<u8> {
    let file = AOF.split(|&byte| byte == b'$').nth(2).expect("a LOADJOB has two arguments");
    let record = file.splitn(2, |&byte| byte == b'\n').nth(1).expect("behind its length");
    let job = JobRecord::decode(&mut Reader::new(record)).expect("the server wrote it");
    let mut bytes = record[..job.encoded_len()].to_vec();
    let count_at = bytes.len() - job.nodes.len() * 40 - 4;
    bytes[count_at] += 2;
    let len = bytes.len() as u32 + 76;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&[0, 0, 1, 40, 0]);
    bytes.extend_from_slice(&[b'v'; 35]);
    bytes.extend_from_slice(&[0, 1]);
    bytes.extend_from_slice(&[b'v'; 5]);
    bytes.extend_from_slice(&[200, 2, 0, b'x', b'y']);
    bytes.resize(bytes.len() + 28, 0);
    bytes
}

#[test]
fn attributes() {
    let record = record_with_attributes();
    let job = JobRecord::decode(&mut Reader::new(&record)).expect("it has its lengths");
    let lengths: Vec<usize> = job.attributes.iter().map(|(_, value)| value.len()).collect();
    assert_eq!(lengths, [40, 2]);
    fuzz_both_ways(&record, |_, bytes| {
        let Ok(job) = JobRecord::decode(&mut Reader::new(&bytes)) else { return Verdict::Refused };
        let total: usize = job.attributes.iter().map(|(_, value)| value.len()).sum();
        assert!(total < bytes.len());
        if let Some(kept) = job.attributes.to_kept() {
            let kept = kept.as_attributes();
            assert!(kept.iter().eq(job.attributes.iter()), "there is no checksum among them");
            assert!(kept.users().all(|user| user_attribute(&user).is_some()));
        }
        // A broken stream is no attributes, and the job is taken.
        if total > 0 { Verdict::Taken } else { Verdict::Refused }
    });
}

#[test]
fn answers_with_attributes() {
    let record = record_with_attributes();
    let job = JobRecord::decode(&mut Reader::new(&record)).expect("it has its lengths");
    let mut payload = Vec::new();
    attributes::append_answer(&mut payload, &job.id, job.attributes);
    attributes::append_answer(&mut payload, &job.id, job.attributes);
    fuzz_both_ways(&payload, |_, bytes| {
        let lengths = attributes::read_answer(&bytes)
            .map(|(_, attributes)| 41 + attributes.byte_count())
            .collect::<Vec<usize>>();
        let total: usize = lengths.iter().sum();
        assert!(total <= bytes.len());
        if lengths.len() == 2 { Verdict::Taken } else { Verdict::Refused }
    });
}

#[test]
fn questions_and_offers() {
    let header = Header {
        sender: NodeId([b'a'; 40]),
        ip: None,
        port: 7711,
        flags: NodeFlags::MYSELF,
        state: 0,
        message_flags: MessageFlags::NONE,
        reserved: Header::announce(None, Abilities::OURS),
    };
    let query = Query { token: 77, kind: QueryKind::ATTRIBUTES, payload: &[b'D'; 80] };
    let offer = Message::Offer { queue: b"queue", number: bus::join_priority(1, 77) };
    for message in [Message::Query(query), Message::Answer(query), offer] {
        let mut frame = Vec::new();
        bus::encode(&mut frame, &header, &message);
        fuzz_both_ways(&frame, |_, mut copy| check_frame(&mut copy));
    }
}

#[test]
fn job_records() {
    let record = AOF.split(|&byte| byte == b'$').nth(2).expect("a LOADJOB has two arguments");
    let record = record.splitn(2, |&byte| byte == b'\n').nth(1).expect("behind its length");
    assert!(JobRecord::decode(&mut Reader::new(record)).is_ok());
    fuzz_both_ways(record, |_, bytes| {
        let mut reader = Reader::new(&bytes);
        let decoded = JobRecord::decode(&mut reader);
        if let Ok(job) = &decoded {
            let mut again = Vec::new();
            job.encode(&mut again);
            assert_eq!(again, bytes[..bytes.len() - reader.len()]);
        }
        Verdict::of(&decoded)
    });
}

#[test]
fn append_only_files() {
    fuzz_both_ways(AOF, |_, file| {
        let mut at = 0;
        loop {
            let next = aof_record::next(&file[at..]);
            let Ok(Some((len, _))) = next else { return Verdict::of(&next) };
            assert!(len > 0 && at + len <= file.len());
            at += len;
        }
    });
}

#[test]
fn nodes_files() {
    fuzz_both_ways(NODES_CONF, |_, text| {
        let Ok(nodes) = nodes_conf::parse(&text) else { return Verdict::Refused };
        let mut again = Vec::new();
        nodes.iter().for_each(|node| nodes_conf::append_line(&mut again, node));
        assert_eq!(nodes_conf::parse(&again), Ok(nodes));
        Verdict::Taken
    });
}

#[test]
fn lines_patterns_and_numbers() {
    fuzz_both_ways(b"set \"a\\n\\x41\" 'b' [^a-c]*?\\x -0012345678901234567890kb", |rng, text| {
        let (pattern, subject) = text.split_at(rng.index(text.len() + 1));
        glob::matches(pattern, subject, glob::Case::Insensitive);
        Verdict::of(&quoting::split(&text))
    });
    let verdict = |is_taken| if is_taken { Verdict::Taken } else { Verdict::Refused };
    for numbers in [&b"-0012345678901"[..], b"+17", b"9223372036854775807"] {
        fuzz_both_ways(numbers, |_, text| verdict(number::parse_i64(&text).is_some()));
    }
    for sizes in [&b"0012345678901kb"[..], b"16", b"4GB"] {
        fuzz_both_ways(sizes, |_, text| verdict(number::parse_memory(&text).is_some()));
    }
    fuzz_both_ways(b"[^a-c]*?\\x", |_, pattern| {
        verdict(glob::matches(&pattern, b"dedx", glob::Case::Insensitive))
    });
}

#[test]
fn damaged_http_requests_are_read_once_they_are_whole_or_refused() {
    fuzz_both_ways(HTTP_REQUEST, |rng, copy| {
        let whole = http_request::parse(&copy);
        if let Ok(Some((request, len))) = &whole {
            assert!(*len <= copy.len().min(HEADER_MAX) && request.path.starts_with('/'));
            // What comes behind a request is none of its business, and no less will do.
            let longer = [&copy[..*len], b"\0\xffGET"].concat();
            assert_eq!(http_request::parse(&longer), whole);
            let shorter = rng.index(*len);
            assert!(!matches!(http_request::parse(&copy[..shorter]), Ok(Some(_))));
        }
        Verdict::of(&whole)
    });
}
