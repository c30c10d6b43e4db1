//! One server of the simulated cluster: an engine, its clients, its clock and what it keeps.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use disque::base::ids::{ClientId, NodeId};
use disque::base::limits::BUS_PORT_OFFSET;
use disque::base::rng::Rng;
use disque::base::time::Now;
use disque::engine::Engine;
use disque::engine::command::Outcome;
use disque::engine::config::{EngineConfig, EnqueueAtLoad};
use disque::proto::bus::NodeFlags;
use disque::proto::nodes_conf;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::{ReplyReader, Value};

use crate::clock::Clock;
use crate::storage::{AppendOnly, Crash, Storage};

/// The client port of every node.
pub const PORT: u16 = 7711;
/// The address of node 0; the others follow.
const FIRST_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

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

/// An end in the middle of a turn that has records to keep.
#[derive(Clone, Copy, Debug)]
pub struct Doom {
    pub moment: Moment,
    pub crash: Crash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Only so many bytes of the records are written.
    InRecords(usize),
    BeforeFrames,
    BeforeReplies,
}

pub struct Node {
    /// Of a node that is down it is what was left behind; nobody looks at it any more.
    pub engine: Engine,
    pub state: State,
    /// How often it was started before.
    pub life: u32,
    pub clients: BTreeMap<ClientId, Client>,
    /// The address of its sockets.
    pub ip: IpAddr,
    /// Where connects to its bus have to go.
    pub bus_at: SocketAddr,
    pub clock: Clock,
    pub storage: Storage,
    /// How the node ends in one of its next turns.
    pub doom: Option<Doom>,
    /// The engines that it had before, if they are kept.
    pub past: Vec<Engine>,
    pub keeps_past: bool,
    last_client: u32,
}

impl Node {
    /// A node that was never started before.
    pub fn new(
        number: u16,
        id: NodeId,
        seed: [u8; 32],
        config: &EngineConfig,
        append_only: AppendOnly,
    ) -> Self {
        let clock = Clock::default();
        let mut engine = Engine::new(config.clone(), id, seed, clock.at(0));
        count_waits(&mut engine, seed);
        let mut storage = Storage::new(Rng::from_seed(seed), append_only);
        storage.start(&mut engine, clock.at(0));
        engine.out.save_nodes = true;
        storage.save_nodes(&mut engine, 0);
        let ip = IpAddr::V4(Ipv4Addr::from_bits(FIRST_IP.to_bits() + u32::from(number)));
        Self {
            engine,
            state: State::Up,
            life: 0,
            clients: BTreeMap::new(),
            ip,
            bus_at: bus_at(ip),
            clock,
            storage,
            doom: None,
            past: Vec::new(),
            keeps_past: false,
            last_client: 0,
        }
    }

    /// Starts a node that was down, with what its disk holds.
    pub fn start(&mut self, now: Now, seed: [u8; 32], enqueue_at_load: EnqueueAtLoad) {
        let text = self.storage.nodes_conf().unwrap_or_default();
        let lines = nodes_conf::parse(&text).expect("engines write valid lines");
        let me = lines.iter().find(|line| line.flags.contains(NodeFlags::MYSELF));
        let new_id = || NodeId::from_random(Rng::from_seed(seed).bytes());
        let id = me.map_or_else(new_id, |line| line.id);
        let config = self.engine.config().clone();
        let enqueue_at_load = match self.storage.was_stopped_as_planned() {
            true => EnqueueAtLoad::Yes,
            false => enqueue_at_load,
        };
        let loading = EngineConfig { enqueue_at_load, ..config.clone() };
        let engine = Engine::new(loading, id, seed, now);
        let before = std::mem::replace(&mut self.engine, engine);
        if self.keeps_past {
            self.past.push(before);
        }
        count_waits(&mut self.engine, seed);
        self.engine.load_nodes(now, &lines);
        self.engine.load_tombstones(now, &nodes_conf::parse_tombstones(&text));
        self.engine.out.save_nodes = lines.is_empty();
        self.storage.start(&mut self.engine, now);
        self.engine.set_config(now, config);
        self.state = State::Up;
        self.life += 1;
    }

    /// Gives the machine another address. Links that are there stay.
    pub fn move_to(&mut self, ip: IpAddr) {
        self.ip = ip;
        self.bus_at = bus_at(ip);
    }

    pub fn connect(&mut self, resp: Resp) -> ClientId {
        self.last_client += 1;
        let client = ClientId { slot: self.last_client, generation: self.last_client - 1 };
        self.clients.insert(client, Client::new(resp));
        client
    }
}

/// Has half of the nodes count how long jobs wait, which changes nothing else.
fn count_waits(engine: &mut Engine, seed: [u8; 32]) {
    if seed[0] & 1 == 1 {
        engine.count_waits();
    }
}

fn bus_at(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, PORT + BUS_PORT_OFFSET)
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
    engine.call_words(now, client, resp, &words.iter().collect())
}
