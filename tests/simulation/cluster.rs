//! The nodes of a simulated cluster, and the loop.
//!
//! The simulator stands where the server's loop stands: it runs clients' pipelines,
//! hands messages and the time to the engines, and drains their lanes in order.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use disque::base::ids::{ClientId, JobId, LinkId, NodeId};
use disque::base::rng::Rng;
use disque::base::time::Now;
use disque::engine::More;
use disque::engine::cluster::LinkEnds;
use disque::engine::command::Outcome;
use disque::engine::config::{EngineConfig, EnqueueAtLoad};
use disque::engine::outbox::LinkRequest;
use disque::proto::bus;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::disk::Faults;
use crate::network::{Arrival, Network, Room};
use crate::node::{Doom, Moment, Node, PORT, State, Words, run_slice};
use crate::storage::{AppendOnly, Crash, LostSince};

/// Who flushes a node.
const OPERATOR: ClientId = ClientId { slot: 0, generation: 0 };

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
    /// Which nodes had each job when its producer got the ID.
    pub holders_when_promised: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Every crash, in their order.
    pub losses: Vec<Loss>,
}

/// What a crash may have taken with it.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub node: usize,
    pub since: LostSince,
    /// The same for the ends of at-most-once jobs: who loses the job does not deliver it again.
    pub ends_since: LostSince,
    pub at: u64,
}

/// When the engines' invariants are looked at, which costs time for every job there is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    EveryInput,
    WhenAsked,
}

pub fn seed_bytes(seed: u64, salt: u16) -> [u8; 32] {
    let [low, high] = salt.to_le_bytes();
    let mut bytes = [low; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] ^= high;
    bytes
}

impl Sim {
    /// Nodes that do not know each other.
    pub fn new(seed: u64, node_count: u16, config: &EngineConfig, append_only: AppendOnly) -> Self {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0xff));
        let config = EngineConfig { port: PORT, ..config.clone() };
        let nodes = (0..node_count)
            .map(|n| {
                let id = NodeId::from_random(rng.bytes());
                Node::new(n, id, seed_bytes(seed, n), &config, append_only)
            })
            .collect();
        Self {
            now_ms: 0,
            nodes,
            network: Network::new((0, 2)),
            rng,
            trace: 0,
            quantum_max: 64,
            between_slices: VecDeque::new(),
            checks: Checks::EveryInput,
            holders_when_promised: BTreeMap::new(),
            losses: Vec::new(),
        }
    }

    pub fn now(&self, node: usize) -> Now {
        self.nodes[node].clock.at(self.now_ms)
    }

    fn note(&mut self, bytes: &[u8]) {
        // FNV-1a: any difference between two runs shows.
        for byte in self.now_ms.to_le_bytes().iter().chain(bytes) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn connect_client(&mut self, node: usize, resp: Resp) -> ClientId {
        self.nodes[node].connect(resp)
    }

    pub fn disconnect_client(&mut self, node: usize, client: ClientId) {
        let now = self.now(node);
        if self.nodes[node].clients.remove(&client).is_some() {
            self.nodes[node].engine.client_gone(now, client);
            self.settle(node);
        }
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
    #[must_use]
    pub fn call(&mut self, node: usize, client: ClientId, words: &[&str]) -> Value {
        self.send(node, client, words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let replies = &mut self.nodes[node].clients.get_mut(&client).expect("connected").replies;
        let reply = replies.pop_back().map(|(_, value)| value);
        reply.unwrap_or_else(|| panic!("{words:?} is answered at once"))
    }

    /// Sends a command as a client of its own, which is gone again after so many ms, and returns its
    /// reply, which must have come by then.
    pub fn call_within(&mut self, node: usize, line: &str, ms: u64) -> Value {
        let client = self.connect_client(node, Resp::V2);
        let words = line.split_whitespace().map(|word| word.as_bytes().to_vec());
        self.send(node, client, words.collect());
        self.run_for(ms);
        let reply = self.take_replies(node, client).pop();
        self.disconnect_client(node, client);
        reply.map(|(_, value)| value).unwrap_or_else(|| panic!("{line} is answered in {ms} ms"))
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
        let now = self.now(node);
        let node = &mut self.nodes[node];
        if node.state != State::Up {
            return;
        }
        while let Some(client) = node.clients.get_mut(&id)
            && !client.blocked
            && let Some(words) = client.pipeline.pop_front()
        {
            let resp = client.resp;
            if node.storage.refuses(&words) {
                let mut reply = node.engine.out.replies.to(id, resp);
                reply.error("MISCONF Errors writing to the AOF file: the disk is simulated");
                continue;
            }
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

    /// Answers HELLO, which is the server's command.
    pub fn hello(&mut self, node: usize) -> Value {
        let client = self.connect_client(node, Resp::V2);
        let now = self.now(node);
        self.nodes[node].engine.hello(now, client, Resp::V2);
        self.settle(node);
        let (_, reply) = self.take_replies(node, client).pop().expect("HELLO is answered");
        self.disconnect_client(node, client);
        reply
    }

    /// Drains a node's lanes, and runs the clients whose wait is over.
    fn settle(&mut self, n: usize) {
        while self.nodes[n].state == State::Up {
            let doom = self.nodes[n].doom.filter(|_| !self.nodes[n].engine.out.aof.is_empty());
            if !self.persist(n, doom) {
                return;
            }
            let out = core::mem::take(&mut self.nodes[n].engine.out);
            if out.is_empty() {
                break;
            }
            self.note(&out.frames.bytes);
            self.note(&out.replies.bytes);
            let mut overfull = Vec::new();
            for (link, range) in &out.frames.sends {
                let bytes = out.frames.bytes[range.clone()].to_vec();
                if self.network.send(&mut self.rng, self.now_ms, n, *link, bytes) == Room::No {
                    overfull.push(*link);
                }
            }
            for link in overfull {
                self.network.close(self.now_ms, n, link);
                let now = self.now(n);
                self.nodes[n].engine.link_down(now, link);
            }
            for request in &out.links {
                self.grant(n, request);
            }
            if let Some(Doom { moment: Moment::BeforeReplies, crash }) = doom {
                self.crash(n, crash);
                return;
            }
            let starts = out.replies.segments.iter().map(|segment| segment.start);
            let ends = starts.skip(1).chain([out.replies.bytes.len()]);
            for (segment, end) in out.replies.segments.iter().zip(ends) {
                self.take_in(n, segment.client, &out.replies.bytes[segment.start..end]);
            }
            for id in out.resumed {
                if let Some(client) = self.nodes[n].clients.get_mut(&id) {
                    client.blocked = false;
                }
                self.run_client(n, id);
            }
        }
        if self.checks == Checks::EveryInput && self.nodes[n].state == State::Up {
            self.nodes[n].engine.check_invariants();
        }
    }

    /// Keeps a node's records; tells whether it lives on. Under the policy `always` it ends
    /// when it cannot keep them.
    fn persist(&mut self, n: usize, doom: Option<Doom>) -> bool {
        let (now, slice) = (self.now(n), 1 + self.rng.index(self.quantum_max));
        let records = self.nodes[n].engine.out.aof.clone();
        self.note(&records);
        let Node { storage, engine, .. } = &mut self.nodes[n];
        let faults = storage.disk.faults();
        if let Some(Doom { moment: Moment::InRecords(len), .. }) = doom {
            storage.disk.set_faults(Faults { room: Some(len % records.len()), ..faults });
        }
        let kept = storage.persist(engine, now, self.now_ms, slice);
        storage.save_nodes(engine, self.now_ms);
        storage.disk.set_faults(faults);
        let crash = match doom {
            Some(Doom { moment: Moment::InRecords(_) | Moment::BeforeFrames, crash }) => crash,
            _ if kept.is_err() => Crash::Killed,
            _ => return true,
        };
        self.crash(n, crash);
        false
    }

    /// Hands a client its replies, and notes who has the jobs that it is promised.
    fn take_in(&mut self, n: usize, client: ClientId, bytes: &[u8]) {
        let Some(client) = self.nodes[n].clients.get_mut(&client) else { return };
        let seen = client.replies.len();
        client.take_in(self.now_ms, bytes);
        let promised = client.replies.range(seen..).filter_map(|(_, reply)| match reply {
            Value::Status(id) if JobId::parse(id).is_some() => Some(id.clone()),
            _ => None,
        });
        for id in promised.collect::<Vec<_>>() {
            let holders = self.holders_of(&id);
            self.holders_when_promised.insert(id, holders);
        }
    }

    fn grant(&mut self, node: usize, request: &LinkRequest) {
        match request {
            LinkRequest::Connect { token, addr } => {
                let target = self.nodes.iter().position(|peer| peer.bus_at == *addr);
                let from = (node, self.nodes[node].life);
                self.network.connect(&mut self.rng, self.now_ms, from, *token, target);
            }
            // One that comes up nevertheless is dropped.
            LinkRequest::Cancel(_) => {}
            LinkRequest::Drop(link) => self.network.close(self.now_ms, node, *link),
        }
    }

    fn next_timeout_of(&self, node: &Node) -> Option<u64> {
        (node.state == State::Up).then(|| {
            node.clock.when(node.engine.next_timeout()).min(node.storage.next_at(&node.clock))
        })
    }

    /// Jumps to the next thing that happens anywhere, but not past `until_ms`.
    pub fn step(&mut self, until_ms: u64) {
        let timeouts = self.nodes.iter().filter_map(|node| self.next_timeout_of(node));
        let next_ms = timeouts.chain(self.network.next_at()).min().unwrap_or(until_ms);
        self.now_ms = next_ms.clamp(self.now_ms, until_ms);
        while let Some(arrival) = self.network.pop_due(self.now_ms) {
            self.arrive(arrival);
        }
        for n in 0..self.nodes.len() {
            self.run_timers(n);
        }
    }

    fn run_timers(&mut self, n: usize) {
        let now = self.now(n);
        if self.next_timeout_of(&self.nodes[n]).is_none_or(|at| at > self.now_ms) {
            return;
        }
        while self.nodes[n].engine.next_timeout() <= now.mono {
            let quantum = 1 + self.rng.index(self.quantum_max);
            if self.nodes[n].engine.handle_timeout(now, quantum) == More::No {
                break;
            }
        }
        self.settle(n);
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Connect { from, life, token, to } => {
                if self.nodes[from].life != life || self.nodes[from].state == State::Down {
                    return;
                }
                let now = self.now(from);
                match to.filter(|to| self.nodes[*to].state != State::Down) {
                    Some(to) => {
                        let link = self.network.join(&mut self.rng, self.now_ms, from, to);
                        self.nodes[from].engine.link_up(now, link, token);
                    }
                    None => self.nodes[from].engine.link_failed(now, token, &"refused"),
                }
                self.settle(from);
            }
            Arrival::Frame { from, to, link, bytes } => {
                if !self.network.has_end(to, link) {
                    return;
                }
                self.deliver(to, link, self.nodes[from].ip, &bytes);
            }
            Arrival::Down { to, link, .. } => self.lose_link(to, link),
        }
    }

    /// Hands a node a frame that came from an address.
    pub fn deliver(&mut self, to: usize, link: LinkId, from: IpAddr, frame: &[u8]) {
        let ends = LinkEnds { local: self.nodes[to].ip, peer: from };
        let (header, message) = bus::decode(frame).expect("engines send whole frames");
        let now = self.now(to);
        self.nodes[to].engine.bus_message(now, link, ends, &header, &message);
        self.settle(to);
    }

    fn lose_link(&mut self, node: usize, link: LinkId) {
        let now = self.now(node);
        if self.network.forget(node, link) {
            self.nodes[node].engine.link_down(now, link);
            self.settle(node);
        }
    }

    /// Makes the nodes one cluster.
    pub fn meet_all(&mut self) {
        let client = self.connect_client(0, Resp::V2);
        for n in 1..self.nodes.len() {
            let ip = self.nodes[n].ip.to_string();
            let met = self.call(0, client, &["CLUSTER", "MEET", &ip, &PORT.to_string()]);
            assert_eq!(met, Value::Status("OK".into()));
        }
        self.disconnect_client(0, client);
        for _ in 0..100 {
            self.run_for(100);
            if self.is_whole() {
                return;
            }
        }
        panic!("nodes that met find each other in time");
    }

    /// A node meets whoever is at these addresses, where it knows nobody.
    pub fn meet_seeds(&mut self, n: usize, seeds: &[SocketAddr]) {
        let now = self.now(n);
        for at in seeds {
            self.nodes[n].engine.meet_seed(now, *at);
        }
        self.settle(n);
    }

    /// Whether every node sees every other, and finds it well.
    pub fn is_whole(&self) -> bool {
        let others = self.nodes.len() - 1;
        self.nodes.iter().all(|node| {
            let cluster = node.engine.cluster();
            node.state == State::Up
                && cluster.reachable_count() == others
                && cluster.known().filter(|peer| cluster.is_linked(*peer)).count() == others
        })
    }

    /// All links between two nodes break, with everything that is under way on them.
    pub fn reset_links(&mut self, a: usize, b: usize) {
        for (node, link) in self.network.between(a, b) {
            self.lose_link(node, link);
        }
    }

    /// Ends a node, and notes what may be gone with it.
    pub fn crash(&mut self, node: usize, crash: Crash) {
        self.thaw(node);
        if self.nodes[node].state == State::Down {
            return;
        }
        self.nodes[node].state = State::Down;
        self.nodes[node].doom = None;
        self.nodes[node].clients.clear();
        let (since, ends_since) = self.nodes[node].storage.crash(self.now_ms, crash);
        self.losses.push(Loss { node, since, ends_since, at: self.now_ms });
        self.network.close_all(self.now_ms, node);
    }

    /// SHUTDOWN REWRITE-AOF.
    pub fn shut_down(&mut self, node: usize) {
        let now = self.now(node);
        let Node { storage, engine, .. } = &mut self.nodes[node];
        storage.rewrite_at_once(engine, now, self.now_ms).expect("the disk works");
        self.crash(node, Crash::Killed);
    }

    /// SIGTERM or SHUTDOWN with aof-restore-queues, after which the process is gone, and maybe
    /// the power. Tells whether the queues are left to the next start.
    pub fn stop_as_planned(&mut self, node: usize, end: Crash) -> bool {
        self.thaw(node);
        if self.nodes[node].state == State::Down {
            return false;
        }
        let now = self.now(node);
        let Node { storage, engine, .. } = &mut self.nodes[node];
        let left = storage.stop_as_planned(engine, now, self.now_ms);
        self.crash(node, end);
        left.is_ok()
    }

    pub fn restart(&mut self, node: usize) {
        self.restart_with(node, EnqueueAtLoad::No);
    }

    /// Starts a node that is down, with or without aof-enqueue-jobs-once.
    pub fn restart_with(&mut self, node: usize, enqueue_at_load: EnqueueAtLoad) {
        if self.nodes[node].state == State::Down {
            let (now, seed) = (self.now(node), self.rng.bytes());
            self.nodes[node].start(now, seed, enqueue_at_load);
            self.settle(node);
        }
    }

    /// Stops a node for a while. Nobody notices but by its silence.
    pub fn freeze(&mut self, node: usize) {
        if self.nodes[node].state == State::Up {
            self.nodes[node].state = State::Frozen;
            self.nodes[node].storage.stop(self.now_ms);
            self.network.freeze(node);
        }
    }

    pub fn thaw(&mut self, node: usize) {
        if self.nodes[node].state == State::Frozen {
            self.nodes[node].state = State::Up;
            self.network.thaw(self.now_ms, node);
            let clients: Vec<ClientId> = self.nodes[node].clients.keys().copied().collect();
            for client in clients {
                self.run_client(node, client);
            }
            self.settle(node);
        }
    }

    /// Drops all jobs and queues of a node, as DEBUG FLUSHALL does.
    pub fn flush(&mut self, node: usize) {
        let now = self.now(node);
        loop {
            let quantum = 1 + self.rng.index(self.quantum_max);
            if self.nodes[node].engine.flush(now, OPERATOR, quantum) == More::No {
                break;
            }
        }
        self.settle(node);
    }

    /// Tells a node how short its memory is.
    pub fn set_memory_level(&mut self, node: usize, level: u8) {
        let now = self.now(node);
        self.nodes[node].engine.set_memory_level(now, level);
        self.settle(node);
    }

    /// Evicts up to `max` jobs of a node; returns how many.
    pub fn evict(&mut self, node: usize, max: usize) -> usize {
        let now = self.now(node);
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
