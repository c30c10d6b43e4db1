//! A whole cluster, its clients and its disasters, drawn from a seed.
//!
//! First everything goes wrong for a while: links break, ways are cut, nodes freeze and
//! die, clocks are set. Then all is made well, and the cluster must become whole, deliver
//! what it promised, and in the end hold nothing. Every fourth seed has fair weather and
//! consumers that are in time: there each job is delivered exactly once.

use std::collections::BTreeMap;

use disque::base::ids::{ClientId, JobId};
use disque::base::rng::Rng;
use disque::engine::config::{Aof, EngineConfig, EnqueueAtLoad};
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::clock::Clock;
use crate::cluster::{Sim, seed_bytes};
use crate::mishaps;
use crate::node::State;

const QUEUES: [&str; 2] = ["red", "green"];
const STEPS: u32 = 150;
const NODE_TIMEOUT_MS: u64 = 2000;
/// Consumers that take no longer than this are in time.
const IN_TIME_MS: u32 = 200;
/// Nodes find each other again within this, once nothing is in their way.
const WHOLE_WITHIN_MS: u64 = 15_000;
/// Acks are collected within this: the longest wait between two attempts, and some.
const DRAINED_WITHIN_MS: u64 = 200_000;
/// Clocks differ by seconds, and each node that passes a job on rounds its TTL up.
const EXPIRY_ERROR_MS: u64 = 10_000;
/// Frames for each ordered pair of nodes and second in a cluster that has nothing to do.
const QUIET_FRAMES: u64 = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fair,
    Stormy,
}

/// What a producer asked for.
#[derive(Clone, Debug)]
struct Wanted {
    retry_ms: u64,
    /// How many copies were promised; 0 when nothing was.
    copies: usize,
    asked_at: u64,
    /// When the ID was answered.
    promised_at: u64,
    expires_at: u64,
}

/// A job that a producer got an ID for, or that a consumer got.
#[derive(Debug)]
struct Story {
    /// `None` when its producer never heard of it.
    wanted: Option<Wanted>,
    delivered_at: Vec<u64>,
    /// When and where it was acknowledged first, and in which life of that node.
    acked: Option<(u64, usize, u32)>,
}

/// A job in the hands of a consumer.
struct InHand {
    id: Vec<u8>,
    /// When the consumer is done with it.
    until: u64,
}

struct Storm {
    sim: Sim,
    rng: Rng,
    weather: Weather,
    /// One on each node.
    consumers: Vec<Option<ClientId>>,
    adding: Vec<(usize, ClientId, Wanted)>,
    stories: BTreeMap<Vec<u8>, Story>,
    in_hand: Vec<InHand>,
    memory_levels: Vec<u8>,
    /// The longest that a consumer takes for a job.
    busy_ms: u32,
    /// Some node was started with aof-enqueue-jobs-once, though nobody had planned its end.
    enqueued_once: bool,
    /// From when on all is well.
    healed_at: Option<u64>,
}

/// What a run comes to, to be added up over many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub trace: u64,
    /// Jobs of runs in foul weather whose consumers were in time.
    pub jobs: usize,
    /// Their deliveries beyond the first of each.
    pub duplicates: usize,
    /// Deliveries of acknowledged jobs after all was well again.
    pub late_duplicates: usize,
}

pub fn run(seed: u64) -> Tally {
    let mut rng = Rng::from_seed(seed_bytes(seed, 0xdd));
    let node_count = 2 + rng.below(4) as u8;
    let config =
        EngineConfig { aof: Aof::On, node_timeout_ms: NODE_TIMEOUT_MS, ..EngineConfig::default() };
    let mut sim = Sim::new(seed, node_count, &config);
    sim.quantum_max = [1, 64][rng.index(2)];
    let options = mishaps::draw_options(&mut rng);
    for node in &mut sim.nodes {
        node.storage.set_options(options);
        node.clock = Clock { drift_ppm: i64::from(rng.below(200)) - 100, wall_offset_ms: 0 };
    }
    sim.meet_all();
    let weather = if seed.is_multiple_of(4) { Weather::Fair } else { Weather::Stormy };
    let busy_ms =
        if weather == Weather::Fair { IN_TIME_MS } else { [IN_TIME_MS, 4000][rng.index(2)] };
    let mut storm = Storm {
        sim,
        rng,
        weather,
        consumers: vec![None; usize::from(node_count)],
        adding: Vec::new(),
        stories: BTreeMap::new(),
        in_hand: Vec::new(),
        memory_levels: vec![0; usize::from(node_count)],
        busy_ms,
        enqueued_once: false,
        healed_at: None,
    };
    for _ in 0..STEPS {
        storm.act();
    }
    storm.heal();
    storm.drain();
    storm.judge()
}

impl Storm {
    fn node(&mut self) -> usize {
        self.rng.index(self.sim.nodes.len())
    }

    fn act(&mut self) {
        if self.rng.below(10) < 4 {
            self.add();
        }
        if self.weather == Weather::Stormy && self.rng.below(10) < 2 {
            self.disturb();
        }
        if self.weather == Weather::Stormy && self.rng.below(10) == 0 {
            let n = self.node();
            self.sim.upset_disk(&mut self.rng, n);
        }
        self.consume();
        let ms = u64::from(self.rng.below(200));
        self.run(ms);
    }

    fn run(&mut self, ms: u64) {
        self.sim.run_for(ms);
        self.collect();
    }

    fn add(&mut self) {
        let n = self.node();
        if self.sim.nodes[n].state == State::Down {
            return;
        }
        let fair = self.weather == Weather::Fair;
        let replicate = 1 + self.rng.index(self.sim.nodes.len().min(3));
        let retry_secs = if fair { [5, 8] } else { [1, 3] }[self.rng.index(2)];
        let retry_secs = if replicate == 1 && self.rng.below(3) == 0 { 0 } else { retry_secs };
        let delay_secs = [0, 0, 0, 2][self.rng.index(4)];
        // An at-most-once job that is acknowledged elsewhere stays until it expires.
        let ttl_secs = if retry_secs == 0 { 20 } else { [20, 400, 400][self.rng.index(3)] };
        let is_async = self.rng.below(4) == 0;
        let queue = QUEUES[self.rng.index(QUEUES.len())];
        let line = format!(
            "ADDJOB {queue} body 1500 REPLICATE {replicate} RETRY {retry_secs} \
             DELAY {delay_secs} TTL {ttl_secs}{}",
            if is_async { " ASYNC" } else { "" }
        );
        let copies = match (is_async, self.memory_levels[n]) {
            (false, _) => replicate,
            (true, 0) => 1,
            (true, _) => 0,
        };
        let asked_at = self.sim.now_ms;
        let wanted = Wanted {
            retry_ms: retry_secs * 1000,
            copies,
            asked_at,
            promised_at: u64::MAX,
            expires_at: asked_at + ttl_secs * 1000,
        };
        let client = self.sim.connect_client(n, Resp::V2);
        self.adding.push((n, client, wanted));
        self.sim.send(n, client, words(&line));
    }

    /// Every consumer waits for jobs, and acknowledges what it is done with.
    fn consume(&mut self) {
        for n in 0..self.sim.nodes.len() {
            self.consumers[n] =
                self.consumers[n].filter(|client| self.sim.nodes[n].clients.contains_key(client));
            if self.sim.nodes[n].state == State::Down {
                continue;
            }
            let sim = &mut self.sim;
            let client = *self.consumers[n].get_or_insert_with(|| sim.connect_client(n, Resp::V2));
            if self.sim.nodes[n].state == State::Up && !self.sim.is_blocked(n, client) {
                let count = 1 + self.rng.below(3);
                let timeout_ms = 1 + self.rng.below(3000);
                let line = format!("GETJOB TIMEOUT {timeout_ms} COUNT {count} FROM red green");
                self.sim.send(n, client, words(&line));
            }
        }
        self.collect();
        let now = self.sim.now_ms;
        let (done, rest) =
            std::mem::take(&mut self.in_hand).into_iter().partition(|job| job.until <= now);
        self.in_hand = rest;
        for job in done {
            self.finish(job);
        }
    }

    /// A consumer is done with a job: mostly it says so, somewhere.
    fn finish(&mut self, job: InHand) {
        let n = self.node();
        let careless = self.busy_ms > IN_TIME_MS && self.healed_at.is_none();
        if self.sim.nodes[n].state != State::Up || (careless && self.rng.below(5) == 0) {
            if !careless {
                self.in_hand.push(job);
            }
            return;
        }
        let command = match self.rng.below(20) {
            0 if careless => "NACK",
            1 if careless => "WORKING",
            _ => "ACKJOB",
        };
        let client = self.sim.connect_client(n, Resp::V2);
        let id = String::from_utf8_lossy(&job.id).into_owned();
        self.sim.send(n, client, words(&format!("{command} {id}")));
        // A node that cannot keep an ack may die of it.
        let is_answered = !self.sim.take_replies(n, client).is_empty();
        self.sim.disconnect_client(n, client);
        if command == "ACKJOB" && is_answered {
            let at = (self.sim.now_ms, n, self.sim.nodes[n].life);
            let story = self.stories.get_mut(&job.id).expect("it was delivered");
            story.acked.get_or_insert(at);
        }
    }

    /// Takes in all replies: IDs for producers, jobs for consumers.
    fn collect(&mut self) {
        for (n, client, wanted) in std::mem::take(&mut self.adding) {
            match self.sim.take_replies(n, client).pop() {
                None if self.sim.nodes[n].clients.contains_key(&client) => {
                    self.adding.push((n, client, wanted));
                }
                None => {}
                Some((promised_at, reply)) => {
                    self.sim.disconnect_client(n, client);
                    self.added(reply, Wanted { promised_at, ..wanted });
                }
            }
        }
        for n in 0..self.sim.nodes.len() {
            let Some(client) = self.consumers[n] else { continue };
            for (at, reply) in self.sim.take_replies(n, client) {
                let Value::Array(rows) = reply else { continue };
                for row in rows {
                    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
                    let Value::Bulk(id) = &row[1] else { panic!("an ID is a bulk: {row:?}") };
                    self.delivered(id, at);
                }
            }
        }
    }

    fn added(&mut self, reply: Value, wanted: Wanted) {
        match reply {
            Value::Status(id) => {
                let story = self.stories.entry(id).or_insert_with(Story::unknown);
                assert!(story.wanted.is_none(), "IDs are given once: {story:?}");
                story.wanted = Some(wanted);
            }
            Value::Error(text) => {
                let known = [&b"NOREPL"[..], b"PAUSED", b"LEAVING", b"MISCONF"];
                assert!(known.iter().any(|word| text.starts_with(word)), "{}", text.escape_ascii());
            }
            other => panic!("ADDJOB answers an ID or an error: {other:?}"),
        }
    }

    fn delivered(&mut self, id: &[u8], at: u64) {
        let story = self.stories.entry(id.to_vec()).or_insert_with(Story::unknown);
        story.delivered_at.push(at);
        let told = format!("{} at {at}: {story:?}", id.escape_ascii());
        if let Some(wanted) = &story.wanted {
            assert!(at <= wanted.expires_at + EXPIRY_ERROR_MS, "it came after its expiry, {told}");
        }
        let id_says = JobId::parse(id).expect("IDs are valid");
        let from_ms = story.wanted.as_ref().map_or(0, |wanted| wanted.asked_at);
        let may_forget = self.enqueued_once && self.sim.may_forget_ends(from_ms);
        let once = id_says.is_at_least_once() || story.delivered_at.len() == 1 || may_forget;
        assert!(once, "at most once is once, {told}");
        let busy_ms = if self.healed_at.is_some() { 1 } else { self.busy_ms };
        let until = self.sim.now_ms + u64::from(self.rng.below(busy_ms));
        self.in_hand.push(InHand { id: id.to_vec(), until });
    }

    /// Something goes wrong, or well again.
    fn disturb(&mut self) {
        let (a, b) = (self.node(), self.node());
        match self.rng.below(100) {
            0..22 => self.sim.reset_links(a, b),
            22..32 => self.sim.network.cut(a, b),
            32..38 => {
                self.sim.network.cut(a, b);
                self.sim.network.cut(b, a);
            }
            38..42 => self.partition(),
            42..56 => self.sim.network.heal(self.sim.now_ms),
            56..62 => self.sim.freeze(a),
            62..72 => self.sim.thaw(a),
            72..79 => self.crash(a),
            79..90 => self.restart(a),
            90..94 => {
                self.sim.network.delay_ms = [(0, 2), (0, 30), (20, 150)][self.rng.index(3)];
            }
            94..97 => {
                self.sim.nodes[a].clock.wall_offset_ms = i64::from(self.rng.below(4000)) - 2000;
            }
            _ if self.sim.nodes[a].state != State::Up => {}
            _ => {
                self.memory_levels[a] = [0, 1, 2][self.rng.index(3)];
                self.sim.set_memory_level(a, self.memory_levels[a]);
            }
        }
    }

    /// Cuts the cluster in two.
    fn partition(&mut self) {
        let count = self.sim.nodes.len();
        let sides: Vec<bool> = (0..count).map(|_| self.rng.below(2) == 0).collect();
        for a in 0..count {
            for b in 0..count {
                if sides[a] != sides[b] {
                    self.sim.network.cut(a, b);
                }
            }
        }
    }

    fn crash(&mut self, n: usize) {
        if self.sim.nodes[n].state == State::Down {
            return;
        }
        self.collect();
        self.sim.end_somehow(&mut self.rng, n);
    }

    fn restart(&mut self, n: usize) {
        let enqueue = [EnqueueAtLoad::No, EnqueueAtLoad::No, EnqueueAtLoad::Yes][self.rng.index(3)];
        self.enqueued_once |= enqueue == EnqueueAtLoad::Yes;
        self.sim.restart_with(n, enqueue);
        self.sim.set_memory_level(n, self.memory_levels[n]);
    }

    /// From here on all is well.
    fn heal(&mut self) {
        self.sim.end_mishaps();
        for n in 0..self.sim.nodes.len() {
            self.sim.thaw(n);
            self.memory_levels[n] = 0;
            self.restart(n);
        }
        self.sim.network.delay_ms = (0, 2);
        self.sim.network.heal(self.sim.now_ms);
        let until = self.sim.now_ms + WHOLE_WITHIN_MS;
        while !self.sim.is_whole() {
            self.run(100);
            self.consume();
            assert!(self.sim.now_ms < until, "nodes find each other again");
        }
        self.healed_at = Some(self.sim.now_ms);
    }

    fn drain(&mut self) {
        let until = self.sim.now_ms + DRAINED_WITHIN_MS;
        while !self.adding.is_empty()
            || self.sim.nodes.iter().any(|node| node.engine.job_count() > 0)
        {
            self.consume();
            self.run(100);
            let left: Vec<usize> =
                self.sim.nodes.iter().map(|node| node.engine.job_count()).collect();
            assert!(self.sim.now_ms < until, "every copy goes in the end: {left:?} are left");
        }
        assert!(self.sim.is_whole(), "a whole cluster stays whole");
        let count = self.sim.nodes.len() as u64;
        let frames_before = self.sim.network.frame_count;
        self.sim.run_for(10_000);
        let frames = self.sim.network.frame_count - frames_before;
        let frames_max = 10 * QUIET_FRAMES * count * (count - 1);
        assert!(frames <= frames_max, "nodes with nothing to do are quiet: {frames} frames");
    }

    fn judge(&self) -> Tally {
        let healed_at = self.healed_at.expect("all is well");
        let mut tally = Tally { trace: self.sim.trace, ..Tally::default() };
        let counts = self.weather == Weather::Stormy && self.busy_ms <= IN_TIME_MS;
        for (id, story) in &self.stories {
            let told = format!(
                "{}, well since {healed_at}: {story:?}, {:?}",
                id.escape_ascii(),
                self.sim.losses
            );
            let times = story.delivered_at.len();
            assert!(times > 0 || !self.is_owed(story, healed_at), "a promise was broken, {told}");
            if self.weather == Weather::Fair {
                assert_eq!(times, 1, "in fair weather a job comes once, {told}");
            }
            if counts {
                tally.jobs += 1;
                tally.duplicates += times.saturating_sub(1);
            }
            if let Some((acked_at, node, life)) = story.acked
                && self.sim.nodes[node].life == life
            {
                let late = |at: &&u64| **at > healed_at && **at > acked_at;
                tally.late_duplicates += story.delivered_at.iter().filter(late).count();
            }
        }
        tally
    }

    /// Whether the job must have come: enough copies outlived all losses, and there was
    /// time.
    fn is_owed(&self, story: &Story, healed_at: u64) -> bool {
        let Some(wanted) = &story.wanted else { return false };
        let mut losers: Vec<usize> = self
            .sim
            .losses
            .iter()
            .filter(|loss| loss.at >= wanted.asked_at && loss.since.0 <= wanted.promised_at)
            .map(|loss| loss.node)
            .collect();
        losers.sort_unstable();
        losers.dedup();
        let had_time = wanted.expires_at > healed_at + EXPIRY_ERROR_MS;
        wanted.retry_ms > 0 && losers.len() < wanted.copies && had_time
    }
}

impl Story {
    fn unknown() -> Self {
        Self { wanted: None, delivered_at: Vec::new(), acked: None }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}
