//! A few engines in one process, wired to each other: what the bus does without a socket.
//!
//! Frames arrive at once and in order. A node can be killed (connects to it are refused),
//! frozen (connects come up, nothing is read) or cut off (connects never come up). The
//! clock moves in the steps of the cron.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::{ClientId, LinkId, NodeId};
use crate::base::limits::BUS_PORT_OFFSET;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::cluster::LinkEnds;
use crate::engine::command::Outcome;
use crate::engine::config::EngineConfig;
use crate::engine::outbox::{ConnectToken, LinkRequest, Outbox};
use crate::engine::{Engine, More};
use crate::proto::bus;
use crate::proto::reply::Resp;
use crate::proto::request::OwnedArgs;

pub const PORT: u16 = 7711;
pub const NODE_TIMEOUT_MS: u64 = 2000;
const STEP_MS: u64 = 100;
/// Quanta of work that may be due at one time.
const TURNS_MAX: usize = 100_000;
const EPOCH_MS: u64 = 1_767_225_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Alive,
    Dead,
    Frozen,
    CutOff,
}

pub struct TestNode {
    pub engine: Engine,
    /// Where its bus is.
    pub at: SocketAddr,
    pub state: State,
    /// What went out on links, decoded no further than to its kind.
    pub sent: Vec<String>,
    pub saves: u32,
    last_slot: u32,
}

enum Event {
    Frame { to: usize, link: LinkId, bytes: Vec<u8> },
    Up { node: usize, link: LinkId, token: ConnectToken },
    Failed { node: usize, token: ConnectToken },
    Down { node: usize, link: LinkId },
}

#[derive(Default)]
pub struct Net {
    pub nodes: Vec<TestNode>,
    pub now_ms: u64,
    /// Each end of a link to the other end.
    wires: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    events: VecDeque<Event>,
    pub connect_count: usize,
}

pub fn ip(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(n + 1).expect("a small network")))
}

pub fn node_id(n: usize) -> NodeId {
    NodeId::from_random([u8::try_from(n + 1).expect("a small network"); 20])
}

impl Net {
    /// Nodes that do not know each other.
    pub fn new(count: usize) -> Self {
        let mut net = Self::default();
        for n in 0..count {
            net.add(node_id(n), EngineConfig::default(), SocketAddr::new(ip(n), PORT));
        }
        net
    }

    /// Nodes that all know each other and have links.
    pub fn mesh(count: usize) -> Self {
        let mut net = Self::new(count);
        for n in 1..count {
            net.meet(0, n);
        }
        net.run(3000);
        net
    }

    /// A node at its client address.
    pub fn add(&mut self, id: NodeId, config: EngineConfig, client: SocketAddr) -> usize {
        let config = EngineConfig { node_timeout_ms: NODE_TIMEOUT_MS, ..config };
        let n = self.nodes.len();
        let seed = [u8::try_from(n).expect("a small network"); 32];
        self.nodes.push(TestNode {
            engine: Engine::new(config, id, seed, self.now()),
            at: SocketAddr::new(client.ip(), client.port() + BUS_PORT_OFFSET),
            state: State::Alive,
            sent: Vec::new(),
            saves: 0,
            last_slot: 0,
        });
        n
    }

    pub fn now(&self) -> Now {
        Now { wall: UnixMs(EPOCH_MS + self.now_ms), mono: MonoMs(10_000 + self.now_ms) }
    }

    /// Kills or freezes a node, or lets it go on.
    pub fn set_state(&mut self, n: usize, state: State) {
        self.nodes[n].state = state;
        if state == State::Dead || state == State::CutOff {
            let ends: Vec<_> = self.wires.keys().copied().filter(|(at, _)| *at == n).collect();
            let now = self.now();
            for (n, link) in ends {
                self.cut(n, link);
                self.nodes[n].engine.link_down(now, link);
            }
            self.settle();
        }
    }

    pub fn run(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms += STEP_MS;
            let now = self.now();
            for node in self.nodes.iter_mut().filter(|node| node.is_running()) {
                let mut turns = 0;
                while node.engine.handle_timeout(now, 64) == More::Yes {
                    turns += 1;
                    assert!(turns < TURNS_MAX, "what was done is not due again at once");
                }
            }
            self.settle();
        }
        self.nodes.iter().for_each(|node| node.engine.check_invariants());
    }

    /// Runs a command, its words between spaces, to its reply.
    pub fn call(&mut self, n: usize, line: &str) -> String {
        let client = ClientId { slot: 1, generation: 1 };
        let words: OwnedArgs = line.split(' ').collect();
        let now = self.now();
        let engine = &mut self.nodes[n].engine;
        while engine.call_words(now, client, Resp::V2, &words) == Outcome::Again {}
        self.take_replies(n)
    }

    pub fn take_replies(&mut self, n: usize) -> String {
        self.settle();
        let replies = core::mem::take(&mut self.nodes[n].engine.out.replies);
        String::from_utf8(replies.bytes).expect("replies of these tests are text")
    }

    pub fn meet(&mut self, n: usize, whom: usize) {
        let reply = self.call(n, &format!("cluster meet {} {PORT}", ip(whom)));
        assert_eq!(reply, "+OK\r\n");
    }

    /// The line that a node has of another, without its ID and times.
    pub fn seen(&mut self, by: usize, id: NodeId) -> Option<String> {
        let reply = self.call(by, "cluster nodes");
        let line = reply.lines().find(|line| line.starts_with(&id.to_string()))?;
        let words: Vec<&str> = line.split(' ').collect();
        Some(format!("{} {} {}", words[1], words[2], words[5]))
    }

    pub fn size(&self, n: usize) -> usize {
        self.nodes[n].engine.cluster().size()
    }

    pub fn reachable(&self, n: usize) -> usize {
        self.nodes[n].engine.cluster().reachable_count()
    }

    /// Hands a frame to a node as a stranger would, on a link that it accepted.
    pub fn inject(&mut self, to: usize, from: IpAddr, frame: &[u8]) {
        let link = LinkId { slot: u32::MAX, generation: 0 };
        let (header, message) = bus::decode(frame).expect("a valid frame");
        let ends = LinkEnds { local: self.nodes[to].at.ip(), peer: from };
        let now = self.now();
        self.nodes[to].engine.bus_message(now, link, ends, &header, &message);
        self.settle();
    }

    /// Drains all nodes and delivers what they sent, until nothing moves any more.
    pub fn settle(&mut self) {
        loop {
            for n in 0..self.nodes.len() {
                self.drain(n);
            }
            let Some(event) = self.events.pop_front() else { return };
            self.deliver(event);
        }
    }

    fn drain(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let out = core::mem::take(&mut node.engine.out);
        node.saves += u32::from(out.save_nodes);
        let Outbox { frames, links, replies, .. } = out;
        for (link, range) in frames.sends {
            let bytes = frames.bytes[range].to_vec();
            let (_, message) = bus::decode(&bytes).expect("engines send valid frames");
            let text = format!("{message:?}");
            let kind = text.split(['(', ' ']).next().unwrap_or_default().to_owned();
            node.sent.push(kind);
            if let Some(&(to, link)) = self.wires.get(&(n, link)) {
                self.events.push_back(Event::Frame { to, link, bytes });
            }
        }
        node.engine.out.replies = replies;
        for request in links {
            match request {
                LinkRequest::Connect { token, addr } => self.connect(n, token, addr),
                LinkRequest::Cancel(_) => {}
                LinkRequest::Drop(link) => self.cut(n, link),
            }
        }
    }

    fn connect(&mut self, from: usize, token: ConnectToken, addr: SocketAddr) {
        self.connect_count += 1;
        let to = self.nodes.iter().position(|node| node.at == addr);
        match to.map(|to| (to, self.nodes[to].state)) {
            Some((_, State::CutOff)) => {}
            Some((to, State::Alive | State::Frozen)) => {
                let (near, far) = (self.new_link(from), self.new_link(to));
                self.wires.insert((from, near), (to, far));
                self.wires.insert((to, far), (from, near));
                self.events.push_back(Event::Up { node: from, link: near, token });
            }
            Some((_, State::Dead)) | None => {
                self.events.push_back(Event::Failed { node: from, token });
            }
        }
    }

    fn new_link(&mut self, n: usize) -> LinkId {
        self.nodes[n].last_slot += 1;
        LinkId { slot: self.nodes[n].last_slot, generation: 0 }
    }

    /// Closes a link at one end; the other end notices.
    fn cut(&mut self, n: usize, link: LinkId) {
        if let Some((other, far)) = self.wires.remove(&(n, link)) {
            self.wires.remove(&(other, far));
            self.events.push_back(Event::Down { node: other, link: far });
        }
    }

    fn deliver(&mut self, event: Event) {
        let now = self.now();
        let node = match &event {
            Event::Frame { to, .. } => *to,
            Event::Up { node, .. } | Event::Failed { node, .. } | Event::Down { node, .. } => *node,
        };
        if !self.nodes[node].is_running() {
            return;
        }
        match event {
            Event::Frame { to, link, bytes } => {
                let Some(&(from, _)) = self.wires.get(&(to, link)) else { return };
                let (local, peer) = (self.nodes[to].at.ip(), self.nodes[from].at.ip());
                let (header, message) = bus::decode(&bytes).expect("engines send valid frames");
                let ends = LinkEnds { local, peer };
                self.nodes[to].engine.bus_message(now, link, ends, &header, &message);
            }
            Event::Up { node, link, token } => {
                self.nodes[node].engine.link_up(now, link, token);
            }
            Event::Failed { node, token } => self.nodes[node].engine.link_failed(now, token),
            Event::Down { node, link } => self.nodes[node].engine.link_down(now, link),
        }
    }
}

impl TestNode {
    fn is_running(&self) -> bool {
        matches!(self.state, State::Alive | State::CutOff)
    }
}
