//! Large clusters: how long they take to form, to find a dead node, to be whole again after
//! a partition, and what it costs to be quiet.
//!
//! Nodes have the default settings, frames take 0 to 2 ms, and nothing has a job: this is
//! about membership alone. `make sim-scale` prints the table that docs/simulation.md holds;
//! a smaller cluster is held to bounds in every run of the tests. The same for clusters that form by
//! cluster-seeds, of which every node has one name that leads to all.

use std::net::SocketAddr;
use std::time::Instant;

use disque::base::ids::NodeId;
use disque::engine::config::EngineConfig;
use disque::proto::bus::NodeFlags;
use disque::proto::nodes_conf;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim};
use crate::node::{PORT, State};
use crate::storage::{AppendOnly, Crash};

const QUIET_SECS: u64 = 20;
const CUT_SECS: u64 = 40;
/// Nothing takes longer than this.
const GIVEN_UP_AFTER_MS: u64 = 300_000;

/// What one cluster took.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub node_count: u16,
    /// From the MEETs until every node has a link to every other.
    pub formed_ms: u64,
    /// Frames that one node sends in a second when nothing happens, on average.
    pub quiet_frames: f64,
    /// The most that any node sends.
    pub quiet_frames_max: f64,
    /// Bytes of them, in KiB.
    pub quiet_kib: f64,
    /// From the end of a process until all others find its node failing.
    pub detected_ms: u64,
    /// From the end of a partition until every node finds every other well.
    pub healed_ms: u64,
    /// Share of a core that one quiet node needs, the simulator's part included, in percent.
    pub quiet_cpu_percent: f64,
}

pub const HEADINGS: [&str; 8] = [
    "nodes",
    "to form, s",
    "to find a dead node, s",
    "to heal, s",
    "quiet: frames a node and s",
    "at most",
    "KiB a node and s",
    "% of a core a node",
];

impl Figures {
    /// A row of the table in docs/simulation.md.
    pub fn row(&self) -> String {
        let secs = |ms: u64| format!("{:.1}", ms as f64 / 1000.0);
        let cells = [
            self.node_count.to_string(),
            secs(self.formed_ms),
            secs(self.detected_ms),
            secs(self.healed_ms),
            format!("{:.1}", self.quiet_frames),
            format!("{:.1}", self.quiet_frames_max),
            format!("{:.0}", self.quiet_kib),
            format!("{:.3}", self.quiet_cpu_percent),
        ];
        format!("| {} |", cells.join(" | "))
    }
}

pub fn measure(node_count: u16) -> Figures {
    let mut sim = Sim::new(1, node_count, &EngineConfig::default(), AppendOnly::No);
    sim.checks = Checks::WhenAsked;
    let formed_ms = form(&mut sim);
    // Reconnects and handshakes that were under way are over.
    sim.run_for(QUIET_SECS * 1000);
    let before = Sent::by(&sim);
    let began_at = Instant::now();
    sim.run_for(QUIET_SECS * 1000);
    let cpu_secs = began_at.elapsed().as_secs_f64();
    let after = Sent::by(&sim);
    let per_node_and_sec = |count: u64| count as f64 / f64::from(node_count) / QUIET_SECS as f64;
    let detected_ms = detect(&mut sim);
    let healed_ms = part_and_heal(&mut sim);
    sim.nodes.iter().for_each(|node| node.engine.check_invariants());
    Figures {
        node_count,
        formed_ms,
        quiet_frames: per_node_and_sec(after.frames - before.frames),
        quiet_frames_max: after.most_since(&before) as f64 / QUIET_SECS as f64,
        quiet_kib: per_node_and_sec(after.bytes - before.bytes) / 1024.0,
        detected_ms,
        healed_ms,
        quiet_cpu_percent: cpu_secs * 100.0 / f64::from(node_count) / QUIET_SECS as f64,
    }
}

/// What it took a cluster to form by seeds, all nodes started at once.
#[derive(Clone, Copy, Debug)]
pub struct SeedFigures {
    pub node_count: u16,
    /// Until every node has a link to every other.
    pub formed_ms: u64,
    /// How often a node had the name resolved, until none does so any more.
    pub lookups_max: u64,
    /// Until then.
    pub settled_ms: u64,
    /// Frames and KiB that a node sent until every node has a link to every other.
    pub frames: f64,
    pub kib: f64,
}

pub const SEED_HEADINGS: [&str; 6] = [
    "nodes",
    "to form by seeds, s",
    "frames a node",
    "KiB a node",
    "look-ups a node, at most",
    "the last one after, s",
];

impl SeedFigures {
    /// A row of the table in docs/simulation.md.
    pub fn row(&self) -> String {
        let secs = |ms: u64| format!("{:.1}", ms as f64 / 1000.0);
        let cells = [
            self.node_count.to_string(),
            secs(self.formed_ms),
            format!("{:.0}", self.frames),
            format!("{:.0}", self.kib),
            self.lookups_max.to_string(),
            secs(self.settled_ms),
        ];
        format!("| {} |", cells.join(" | "))
    }
}

/// When a node has its seeds resolved: as the server, which this repeats.
struct SeedClock {
    resolve_at: u64,
    wait_ms: u64,
    lookups: u64,
    last_at: u64,
}

impl SeedClock {
    const WAIT_MIN_MS: u64 = 1000;
    const WAIT_MAX_MS: u64 = 60_000;
    const VISIT_EVERY_MS: u64 = 100;

    fn visit(&mut self, sim: &mut Sim, n: usize, seeds: &[SocketAddr]) {
        if sim.now_ms < self.resolve_at {
            return;
        }
        self.lookups += 1;
        self.last_at = sim.now_ms;
        let now = sim.now(n).mono;
        let cluster = sim.nodes[n].engine.cluster();
        let is_missing =
            cluster.lacks_links() || seeds.iter().any(|at| cluster.is_seed_missing(now, *at));
        sim.meet_seeds(n, seeds);
        self.resolve_at = if is_missing { sim.now_ms + self.wait_ms } else { u64::MAX };
        self.wait_ms = (self.wait_ms * 2).min(Self::WAIT_MAX_MS);
    }
}

/// How a cluster forms whose nodes all have a name that leads to all of them.
pub fn measure_seeds(node_count: u16) -> SeedFigures {
    let mut sim = Sim::new(1, node_count, &EngineConfig::default(), AppendOnly::No);
    sim.checks = Checks::WhenAsked;
    let seeds: Vec<SocketAddr> =
        sim.nodes.iter().map(|node| SocketAddr::new(node.ip, PORT)).collect();
    let clock =
        |_| SeedClock { resolve_at: 0, wait_ms: SeedClock::WAIT_MIN_MS, lookups: 0, last_at: 0 };
    let mut clocks: Vec<SeedClock> = (0..node_count).map(clock).collect();
    let mut formed = None;
    while formed.is_none() || clocks.iter().any(|clock| clock.resolve_at < u64::MAX) {
        for (n, clock) in clocks.iter_mut().enumerate() {
            clock.visit(&mut sim, n, &seeds);
        }
        sim.run_for(SeedClock::VISIT_EVERY_MS);
        assert!(sim.now_ms < GIVEN_UP_AFTER_MS, "forming by seeds takes too long");
        if formed.is_none() && sim.is_whole() {
            formed = Some((sim.now_ms, Sent::by(&sim)));
        }
    }
    assert!(sim.is_whole(), "a cluster that has formed stays whole");
    let (formed_ms, sent) = formed.expect("it was waited for");
    let per_node = |count: u64| count as f64 / f64::from(node_count);
    SeedFigures {
        node_count,
        formed_ms,
        lookups_max: clocks.iter().map(|clock| clock.lookups).max().expect("there are nodes"),
        settled_ms: clocks.iter().map(|clock| clock.last_at).max().expect("there are nodes"),
        frames: per_node(sent.frames),
        kib: per_node(sent.bytes) / 1024.0,
    }
}

/// What was sent so far.
struct Sent {
    frames: u64,
    bytes: u64,
    by_node: Vec<u64>,
}

impl Sent {
    fn by(sim: &Sim) -> Self {
        let by_node = sim.nodes.iter().map(|node| node.engine.cluster().stats().sent.total());
        Self {
            frames: sim.network.frame_count,
            bytes: sim.network.byte_count,
            by_node: by_node.collect(),
        }
    }

    fn most_since(&self, before: &Self) -> u64 {
        let sent = self.by_node.iter().zip(&before.by_node).map(|(after, before)| after - before);
        sent.max().expect("there are nodes")
    }
}

/// Runs until something is so; returns how long it took.
fn until(sim: &mut Sim, what: &str, is_so: impl Fn(&Sim) -> bool) -> u64 {
    let began_at = sim.now_ms;
    while !is_so(sim) {
        sim.run_for(100);
        assert!(sim.now_ms < began_at + GIVEN_UP_AFTER_MS, "{what} takes too long");
    }
    sim.now_ms - began_at
}

/// Each node but the first is told of one that was started before it.
fn form(sim: &mut Sim) -> u64 {
    for n in 1..sim.nodes.len() {
        let known = sim.rng.index(n);
        let ip = sim.nodes[known].ip.to_string();
        let client = sim.connect_client(n, Resp::V2);
        let met = sim.call(n, client, &["CLUSTER", "MEET", &ip, &PORT.to_string()]);
        assert_eq!(met, Value::Status("OK".into()));
        sim.disconnect_client(n, client);
    }
    until(sim, "forming", Sim::is_whole)
}

fn detect(sim: &mut Sim) -> u64 {
    let dead = sim.nodes.len() / 2;
    let id = *sim.nodes[dead].engine.cluster().my_id();
    sim.crash(dead, Crash::Killed);
    let detected_ms = until(sim, "finding a dead node", |sim| {
        sim.nodes.iter().filter(|node| node.state == State::Up).all(|node| {
            let cluster = node.engine.cluster();
            let is_in_doubt = cluster.reachable_count() < cluster.size() - 1;
            is_in_doubt && finds_failing(&node.engine.nodes_conf(), &id)
        })
    });
    sim.restart(dead);
    until(sim, "coming back", Sim::is_whole);
    detected_ms
}

fn finds_failing(nodes_conf: &[u8], id: &NodeId) -> bool {
    let lines = nodes_conf::parse(nodes_conf).expect("engines write valid lines");
    lines.iter().any(|line| line.id == *id && line.flags.contains(NodeFlags::FAIL))
}

/// A third of the nodes is cut off, for longer than it takes to find that.
fn part_and_heal(sim: &mut Sim) -> u64 {
    let count = sim.nodes.len();
    for a in 0..count / 3 {
        for b in count / 3..count {
            sim.network.cut(a, b);
            sim.network.cut(b, a);
        }
    }
    sim.run_for(CUT_SECS * 1000);
    sim.network.heal(sim.now_ms);
    until(sim, "healing", Sim::is_whole)
}
