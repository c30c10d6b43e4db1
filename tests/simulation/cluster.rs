//! The nodes of a simulated cluster, the clients connected to them, and the loop.
//!
//! The simulator stands where the server's loop stands: it runs clients' pipelines,
//! hands messages and the time to the engines, and drains their lanes in order.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use disque::base::ids::{ClientId, LinkId, NodeId};
use disque::base::limits::BUS_PORT_OFFSET;
use disque::base::rng::Rng;
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::cluster::LinkEnds;
use disque::engine::command::{COMMANDS, Call, Outcome};
use disque::engine::config::EngineConfig;
use disque::engine::outbox::LinkWish;
use disque::engine::{Engine, More};
use disque::proto::bus;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::{ReplyReader, Value};
use disque::proto::request::{Args, Parsed, RequestParser};

use crate::network::{Arrival, Network};

const PORT: u16 = 7711;
/// The simulated day begins here: 2026-01-01, in ms.
const EPOCH_MS: u64 = 1_767_225_600_000;
/// The machines have been up for a day, so that nothing is near time 0.
const UPTIME_MS: u64 = 86_400_000;

pub type Words = Vec<Vec<u8>>;

/// A connection to a node: commands go in, replies come out in order.
pub struct Client {
    resp: Resp,
    pipeline: VecDeque<Words>,
    blocked: bool,
    reader: ReplyReader,
    /// What came, and when, in ms.
    replies: VecDeque<(u64, Value)>,
}

pub struct Node {
    pub engine: Engine,
    pub clients: BTreeMap<ClientId, Client>,
    pub ip: IpAddr,
    last_client: u32,
    /// What the append only file would hold.
    pub aof: Vec<u8>,
    pub nodes_saved: u32,
}

pub struct Sim {
    pub now_ms: u64,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub rng: Rng,
    /// A hash over everything that happened, to compare runs.
    pub trace: u64,
    /// Most things that an engine does between two looks at the clock.
    pub quantum_max: usize,
    /// Commands that other clients get in between the slices of long commands.
    pub between_slices: VecDeque<(ClientId, Words)>,
    pub checks: Checks,
}

/// When the engines' invariants are looked at, which costs time for every job there is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    EveryInput,
    WhenAsked,
}

fn seed_bytes(seed: u64, salt: u8) -> [u8; 32] {
    let mut bytes = [salt; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

impl Sim {
    pub fn new(seed: u64, node_count: usize, config: &EngineConfig) -> Self {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0xff));
        let now = now_at(0);
        let nodes = (0..node_count)
            .map(|n| {
                let id = NodeId::from_random(rng.bytes());
                let config = EngineConfig { port: PORT, ..config.clone() };
                Node {
                    engine: Engine::new(config, id, seed_bytes(seed, n as u8), now),
                    clients: BTreeMap::new(),
                    ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, n as u8 + 1)),
                    last_client: 0,
                    aof: Vec::new(),
                    nodes_saved: 0,
                }
            })
            .collect();
        let network = Network::new((0, 2));
        Self {
            now_ms: 0,
            nodes,
            network,
            rng,
            trace: 0,
            quantum_max: 64,
            between_slices: VecDeque::new(),
            checks: Checks::EveryInput,
        }
    }

    pub fn now(&self) -> Now {
        now_at(self.now_ms)
    }

    fn note(&mut self, bytes: &[u8]) {
        // FNV-1a: any difference between two runs shows.
        for byte in self.now_ms.to_le_bytes().iter().chain(bytes) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn connect_client(&mut self, node: usize, resp: Resp) -> ClientId {
        let node = &mut self.nodes[node];
        node.last_client += 1;
        let client = ClientId { slot: node.last_client, generation: 0 };
        node.clients.insert(client, Client::new(resp));
        client
    }

    pub fn disconnect_client(&mut self, node: usize, client: ClientId) {
        let now = self.now();
        self.nodes[node].clients.remove(&client);
        self.nodes[node].engine.client_gone(now, client);
        self.settle(node);
    }

    /// Sends a command on a client's connection; it runs when those before it are done.
    pub fn send(&mut self, node: usize, client: ClientId, words: Words) {
        if let Some(client) = self.nodes[node].clients.get_mut(&client) {
            client.pipeline.push_back(words);
        }
        self.run_client(node, client);
        self.settle(node);
    }

    /// Sends a command and returns its reply, which must come at once.
    pub fn call(&mut self, node: usize, client: ClientId, words: &[&str]) -> Value {
        self.send(node, client, words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let replies = &mut self.nodes[node].clients.get_mut(&client).expect("connected").replies;
        let reply = replies.pop_back().map(|(_, value)| value);
        reply.unwrap_or_else(|| panic!("{words:?} is answered at once"))
    }

    /// What a client was answered since this was last asked, and when.
    pub fn take_replies(&mut self, node: usize, client: ClientId) -> Vec<(u64, Value)> {
        let client = self.nodes[node].clients.get_mut(&client);
        client.map(|client| client.replies.drain(..).collect()).unwrap_or_default()
    }

    pub fn is_blocked(&self, node: usize, client: ClientId) -> bool {
        self.nodes[node].clients.get(&client).is_some_and(|client| client.blocked)
    }

    fn run_client(&mut self, node: usize, id: ClientId) {
        let now = self.now();
        let node = &mut self.nodes[node];
        while let Some(client) = node.clients.get_mut(&id)
            && !client.blocked
            && let Some(words) = client.pipeline.pop_front()
        {
            let resp = client.resp;
            let mut outcome = run_slice(&mut node.engine, now, id, resp, &words);
            while outcome == Outcome::Again {
                if let Some((other, words)) = self.between_slices.pop_front() {
                    let outcome = run_slice(&mut node.engine, now, other, Resp::V2, &words);
                    assert_eq!(outcome, Outcome::Done, "what comes in between is short");
                }
                outcome = run_slice(&mut node.engine, now, id, resp, &words);
            }
            client.blocked = outcome == Outcome::Blocked;
        }
    }

    /// Drains a node's lanes, and runs the clients whose wait is over.
    fn settle(&mut self, n: usize) {
        loop {
            let out = core::mem::take(&mut self.nodes[n].engine.out);
            if out.is_empty() {
                break;
            }
            self.note(&out.aof);
            self.note(&out.frames.bytes);
            self.note(&out.replies.bytes);
            self.nodes[n].aof.extend_from_slice(&out.aof);
            self.nodes[n].nodes_saved += u32::from(out.save_nodes);
            for (link, range) in &out.frames.sends {
                let bytes = out.frames.bytes[range.clone()].to_vec();
                self.network.send(&mut self.rng, self.now_ms, n, *link, bytes);
            }
            for wish in &out.links {
                self.grant(n, wish);
            }
            let starts = out.replies.segments.iter().map(|segment| segment.start);
            let ends = starts.skip(1).chain([out.replies.bytes.len()]);
            for (segment, end) in out.replies.segments.iter().zip(ends) {
                if let Some(client) = self.nodes[n].clients.get_mut(&segment.client) {
                    client.take_in(self.now_ms, &out.replies.bytes[segment.start..end]);
                }
            }
            for id in out.resumed {
                if let Some(client) = self.nodes[n].clients.get_mut(&id) {
                    client.blocked = false;
                }
                self.run_client(n, id);
            }
        }
        if self.checks == Checks::EveryInput {
            self.nodes[n].engine.check_invariants();
        }
    }

    fn grant(&mut self, node: usize, wish: &LinkWish) {
        match wish {
            LinkWish::Connect { token, addr } => {
                let target = self
                    .nodes
                    .iter()
                    .position(|peer| peer.ip == addr.ip() && addr.port() == PORT + BUS_PORT_OFFSET);
                self.network.connect(&mut self.rng, self.now_ms, node, *token, target);
            }
            // One that comes up nevertheless is dropped.
            LinkWish::Cancel(_) => {}
            LinkWish::Drop(link) => self.network.close(self.now_ms, node, *link),
        }
    }

    /// Jumps to the next thing that happens anywhere, but not past `until_ms`.
    pub fn step(&mut self, until_ms: u64) {
        let timeouts =
            self.nodes.iter().map(|node| node.engine.next_timeout().0.saturating_sub(UPTIME_MS));
        let next_ms = timeouts.chain(self.network.next_at()).min().unwrap_or(until_ms);
        self.now_ms = next_ms.clamp(self.now_ms, until_ms);
        while let Some(arrival) = self.network.pop_due(self.now_ms) {
            self.arrive(arrival);
        }
        for n in 0..self.nodes.len() {
            while self.nodes[n].engine.next_timeout() <= self.now().mono {
                let quantum = 1 + self.rng.index(self.quantum_max);
                let now = self.now();
                if self.nodes[n].engine.handle_timeout(now, quantum) == More::No {
                    break;
                }
            }
            self.settle(n);
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let now = self.now();
        match arrival {
            Arrival::Connect { from, token, target } => match target {
                Some(to) if !self.network.is_cut(from, to) => {
                    let (near, _) = self.network.join(from, to);
                    self.nodes[from].engine.link_up(now, near, token);
                    self.settle(from);
                }
                _ => {
                    self.nodes[from].engine.link_failed(now, token);
                    self.settle(from);
                }
            },
            Arrival::Frame { node, link, bytes } => {
                let Some(end) = self.network.end(node, link) else { return };
                if self.network.is_cut(end.peer, node) {
                    return;
                }
                let ends = LinkEnds { local: self.nodes[node].ip, peer: self.nodes[end.peer].ip };
                let (header, message) = bus::decode(&bytes).expect("engines send whole frames");
                self.nodes[node].engine.bus_message(now, link, ends, &header, &message);
                self.settle(node);
            }
            Arrival::Down { node, link } => self.lose_link(node, link),
        }
    }

    fn lose_link(&mut self, node: usize, link: LinkId) {
        let now = self.now();
        if self.network.forget(node, link) {
            self.nodes[node].engine.link_down(now, link);
            self.settle(node);
        }
    }

    /// Drops all jobs and queues of a node, as DEBUG FLUSHALL does.
    pub fn flush(&mut self, node: usize) {
        let now = self.now();
        loop {
            let quantum = 1 + self.rng.index(self.quantum_max);
            if self.nodes[node].engine.flush(now, quantum) == More::No {
                break;
            }
        }
        self.settle(node);
    }

    /// Tells a node how short its memory is.
    pub fn set_memory_level(&mut self, node: usize, level: u8) {
        let now = self.now();
        self.nodes[node].engine.set_memory_level(now, level);
        self.settle(node);
    }

    /// Evicts up to `max` jobs of a node; returns how many.
    pub fn evict(&mut self, node: usize, max: usize) -> usize {
        let now = self.now();
        let evicted = self.nodes[node].engine.evict(now, max);
        self.settle(node);
        evicted
    }

    pub fn run_for(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.step(until_ms);
        }
    }
}

impl Client {
    fn new(resp: Resp) -> Self {
        let (pipeline, replies) = Default::default();
        Self { resp, pipeline, blocked: false, reader: ReplyReader::default(), replies }
    }

    fn take_in(&mut self, now_ms: u64, bytes: &[u8]) {
        self.reader.feed(bytes);
        while let Some(value) = self.reader.next_value().expect("engines send whole replies") {
            self.replies.push_back((now_ms, value));
        }
    }
}

fn now_at(ms: u64) -> Now {
    Now { wall: UnixMs(EPOCH_MS + ms), mono: MonoMs(UPTIME_MS + ms) }
}

/// Runs a command, or one slice of a long one, behind the server's gates.
fn run_slice(
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
