//! One server of the simulated cluster: an engine, its clients, its clock and its disk.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use disque::base::ids::{ClientId, NodeId};
use disque::base::time::Now;
use disque::engine::Engine;
use disque::engine::command::{COMMANDS, Call, Outcome};
use disque::engine::config::EngineConfig;
use disque::proto::aof_record;
use disque::proto::bus::NodeFlags;
use disque::proto::nodes_conf;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::{ReplyReader, Value};
use disque::proto::request::{Args, Parsed, RequestParser};

use crate::clock::Clock;
use crate::disk::Disk;

pub type Words = Vec<Vec<u8>>;

/// A connection to a node: commands go in, replies come out in order.
pub struct Client {
    pub resp: Resp,
    pub pipeline: VecDeque<Words>,
    pub blocked: bool,
    reader: ReplyReader,
    /// What came, and when, in ms.
    pub replies: VecDeque<(u64, Value)>,
}

/// Whether a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Up,
    /// Stopped for a while: time passes it by.
    Frozen,
    Down,
}

pub struct Node {
    /// Of a node that is down it is what was left behind; nobody looks at it any more.
    pub engine: Engine,
    pub state: State,
    /// How often it was started before.
    pub life: u32,
    pub clients: BTreeMap<ClientId, Client>,
    pub ip: IpAddr,
    pub clock: Clock,
    pub disk: Disk,
    last_client: u32,
}

impl Node {
    /// A node that was never started before.
    pub fn new(number: u8, id: NodeId, seed: [u8; 32], config: &EngineConfig) -> Self {
        let clock = Clock::default();
        let engine = Engine::new(config.clone(), id, seed, clock.at(0));
        let disk = Disk::new(engine.nodes_conf());
        Self {
            engine,
            state: State::Up,
            life: 0,
            clients: BTreeMap::new(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number + 1)),
            clock,
            disk,
            last_client: 0,
        }
    }

    /// Starts a node that was down, with what its disk holds.
    pub fn start(&mut self, now: Now, seed: [u8; 32]) {
        let lines = nodes_conf::parse(&self.disk.nodes_conf).expect("engines write valid lines");
        let me = lines.iter().find(|line| line.flags.has(NodeFlags::MYSELF)).expect("one is me");
        self.engine = Engine::new(self.engine.config().clone(), me.id, seed, now);
        self.engine.load_nodes(now, &lines);
        let mut rest = self.disk.aof.as_slice();
        while let Some((len, record)) = aof_record::next(rest).expect("engines write records") {
            self.engine.load(now, &record);
            rest = &rest[len..];
        }
        self.state = State::Up;
        self.life += 1;
    }

    pub fn connect(&mut self, resp: Resp) -> ClientId {
        self.last_client += 1;
        let client = ClientId { slot: self.last_client, generation: 0 };
        self.clients.insert(client, Client::new(resp));
        client
    }
}

impl Client {
    fn new(resp: Resp) -> Self {
        let (pipeline, replies) = Default::default();
        Self { resp, pipeline, blocked: false, reader: ReplyReader::default(), replies }
    }

    pub fn take_in(&mut self, now_ms: u64, bytes: &[u8]) {
        self.reader.feed(bytes);
        while let Some(value) = self.reader.next_value().expect("engines send whole replies") {
            self.replies.push_back((now_ms, value));
        }
    }
}

/// Runs a command, or one slice of a long one, behind the server's gates.
pub fn run_slice(
    engine: &mut Engine,
    now: Now,
    client: ClientId,
    resp: Resp,
    words: &Words,
) -> Outcome {
    let mut input = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        input.extend_from_slice(word);
        input.extend_from_slice(b"\r\n");
    }
    let mut ranges = Vec::new();
    let parsed = RequestParser::default().parse(&mut input, &mut ranges);
    assert!(matches!(parsed, Ok(Parsed::Request { .. })), "a request is whole: {parsed:?}");
    let call = Call { client, resp, args: Args::new(&input, &ranges) };
    let name = words[0].to_ascii_lowercase();
    let command = COMMANDS
        .iter()
        .find(|command| command.spec.name.as_bytes() == name)
        .unwrap_or_else(|| panic!("{} is a command of the engine", words[0].escape_ascii()));
    let arity = isize::from(command.spec.arity);
    let fits =
        if arity > 0 { words.len() as isize == arity } else { words.len() as isize >= -arity };
    assert!(fits, "{} has the right number of words", command.spec.name);
    engine.call(now, command, &call)
}
