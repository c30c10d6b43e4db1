//! Urgent jobs in a cluster with other work: no client of an able node gets a job that is not
//! urgent while one of that queue which is has waited on any able node for more than a tenth of a
//! second.
//!
//! `Watch` judges that for whoever runs a cluster, by looking into its queues again and again.
//! Here nodes have bulk work, some have no consumers, and urgent jobs come to any of them, one at
//! a time or many at once, more than can be taken or fewer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use disque::base::ids::ClientId;
use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;
use disque::proto::bus::{self, Message, MessageFlags};
use disque::proto::job_record::JobRecord;
use disque::proto::priority::Priority;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::cluster::{Checks, Sim, seed_bytes};
use crate::node::{Node, State};
use crate::storage::AppendOnly;

/// How often queues are looked into.
pub const LOOK_EVERY_MS: u64 = 5;
/// How many jobs of each are looked at.
const LOOKED_AT: &[u8] = b"60";
/// A job that waits for longer is taken before any that is worse.
const WAITS_AT_MOST_MS: u64 = 100;
/// One that another node lent is not offered on for a second, give or take the jitter of its retry.
const WAITS_WHERE_LENT_MS: u64 = 1400;
/// A node whose clients took nothing for so long begins anew, and has to learn of offers first.
const SERVED_WITHIN_MS: u64 = 5000;
/// For how long urgent jobs come.
const RUN_MS: u64 = 4000;
/// Offers and answers of an ordered pair of nodes: an offer each 25 ms, and an answer for every
/// few jobs that clients take.
const WORDS_A_SECOND_MAX: u64 = 300;
/// Lines that are printed when a run fails.
const LATEST_MAX: usize = 80;
/// Jobs that are better than this are urgent.
const DEFAULT: u8 = 4;

/// An urgent job in a queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: u8,
    since: u64,
    /// It was added to another node.
    was_lent: bool,
}

/// A job that a client got.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub node: usize,
    pub at: u64,
    pub queue: Vec<u8>,
    pub id: Vec<u8>,
}

/// Which urgent jobs wait where, since when.
#[derive(Debug, Default)]
pub struct Watch {
    priorities: BTreeMap<Vec<u8>, u8>,
    waiting: BTreeMap<(Vec<u8>, usize, Vec<u8>), Waiting>,
    /// Jobs that were seen on another node than the one that they were added to.
    lent: BTreeSet<Vec<u8>>,
    /// Jobs that were delivered and have been judged.
    pub judged: usize,
    /// Those of them that came before a better one that had waited for too long.
    pub passed_over: Vec<String>,
    /// Since when clients of a node take jobs of a queue, and when they last did.
    served: BTreeMap<(Vec<u8>, usize), (u64, u64)>,
}

impl Watch {
    fn priority_of(&mut self, sim: &mut Sim, n: usize, id: &[u8]) -> u8 {
        if let Some(priority) = self.priorities.get(id) {
            return *priority;
        }
        let copy = (n..sim.nodes.len()).chain(0..n).find_map(|n| sim.copy_on(n, id));
        let priority = copy.map_or(DEFAULT, |copy| copy.priority);
        self.priorities.insert(id.to_vec(), priority);
        priority
    }

    /// Looks into all queues, and judges what came since it looked last.
    pub fn look(&mut self, sim: &mut Sim, queues: &[&str], deliveries: &[Delivery]) {
        let mut waiting = BTreeMap::new();
        for n in 0..sim.nodes.len() {
            if sim.nodes[n].state != State::Up || sim.network.is_plain(n) {
                continue;
            }
            for queue in queues {
                let Value::Array(rows) = sim.look(n, &[b"QPEEK", queue.as_bytes(), LOOKED_AT])
                else {
                    continue;
                };
                for row in rows {
                    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
                    let Value::Bulk(id) = &row[1] else { panic!("an ID is a bulk: {row:?}") };
                    let priority = self.priority_of(sim, n, id);
                    if priority >= DEFAULT {
                        break;
                    }
                    // An ID names the node that the job was added to.
                    let me = sim.nodes[n].engine.cluster().my_id().0;
                    let was_lent = self.lent.contains(id) || id.get(2..10) != me.get(..8);
                    if was_lent {
                        self.lent.insert(id.clone());
                    }
                    let now = Waiting { priority, since: sim.now_ms, was_lent };
                    let key = (queue.as_bytes().to_vec(), n, id.clone());
                    let known = self.waiting.get(&key).copied().unwrap_or(now);
                    waiting.insert(key, known);
                }
            }
        }
        for delivery in deliveries {
            self.judge(sim, delivery, &waiting);
        }
        self.waiting = waiting;
    }

    fn judge(
        &mut self,
        sim: &mut Sim,
        delivery: &Delivery,
        waiting: &BTreeMap<(Vec<u8>, usize, Vec<u8>), Waiting>,
    ) {
        let priority = self.priority_of(sim, delivery.node, &delivery.id);
        let key = (delivery.queue.clone(), delivery.node);
        let (began_at, last_at) = self.served.entry(key).or_insert((delivery.at, delivery.at));
        if *last_at + SERVED_WITHIN_MS < delivery.at {
            *began_at = delivery.at;
        }
        *last_at = delivery.at;
        let has_just_begun = *began_at + WAITS_AT_MOST_MS >= delivery.at;
        // Where clients cannot keep up with urgent jobs, these are not in one order.
        if sim.network.is_plain(delivery.node) || has_just_begun || priority < DEFAULT {
            return;
        }
        self.judged += 1;
        for (key, job) in waiting {
            let (queue, _, id) = key;
            let may_wait_ms = if job.was_lent { WAITS_WHERE_LENT_MS } else { WAITS_AT_MOST_MS };
            let is_passed_over = *queue == delivery.queue
                && job.priority < priority
                && *id != delivery.id
                && self.waiting.contains_key(key)
                && job.since + may_wait_ms + LOOK_EVERY_MS < delivery.at;
            if is_passed_over {
                self.passed_over
                    .push(format!("{delivery:?} of priority {priority}, {key:?}: {job:?}"));
                break;
            }
        }
    }
}

/// A client that takes jobs at its pace.
struct Consumer {
    node: usize,
    client: ClientId,
    pace_ms: u64,
    count: u32,
    next_at: u64,
}

struct Bulk {
    sim: Sim,
    rng: Rng,
    watch: Watch,
    consumers: Vec<Consumer>,
    /// When urgent jobs were added, of those that nobody got yet.
    added_at: BTreeMap<Vec<u8>, u64>,
    /// How long the others waited, in ms.
    waits_ms: Vec<u64>,
    /// Offers and their answers.
    word_count: u64,
    /// What was said of jobs and delivered last, to be printed when a run fails.
    latest: VecDeque<String>,
}

impl Drop for Bulk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.latest.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Bulk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0xb7));
        let node_count = 2 + rng.below(4) as u16;
        let mut sim = Sim::new(seed, node_count, &EngineConfig::default(), AppendOnly::No);
        sim.checks = Checks::WhenAsked;
        if node_count > 2 && rng.below(3) == 0 {
            sim.network.speak_plainly(rng.index(usize::from(node_count)));
        }
        sim.meet_all();
        Self {
            sim,
            rng,
            watch: Watch::default(),
            consumers: Vec::new(),
            added_at: BTreeMap::new(),
            waits_ms: Vec::new(),
            word_count: 0,
            latest: VecDeque::new(),
        }
    }

    fn add(&mut self, n: usize, priority: u8) {
        let client = self.sim.connect_client(n, Resp::V2);
        let said = priority.to_string();
        let words = ["ADDJOB", "q", "body", "0", "REPLICATE", "1", "RETRY", "1000"];
        let words = [&words[..], &["PRIORITY", &said]].concat();
        let plain = if priority == DEFAULT { &words[..8] } else { &words[..] };
        let Value::Status(id) = self.sim.call(n, client, plain) else { panic!("a job is taken") };
        if priority < DEFAULT {
            self.added_at.insert(id, self.sim.now_ms);
        }
        self.sim.disconnect_client(n, client);
    }

    /// Each able node has work that is not urgent, and some have consumers.
    fn begin(&mut self) {
        let of_bulk: &[u8] = [&[DEFAULT][..], &[5, 6, 7], &[DEFAULT, 5, 6, 7]][self.rng.index(3)];
        for n in 0..self.sim.nodes.len() {
            for _ in 0..400 {
                let priority = of_bulk[self.rng.index(of_bulk.len())];
                self.add(n, priority);
            }
        }
        for node in 0..self.sim.nodes.len() {
            let count = if node == 0 { 1 + self.rng.below(2) } else { self.rng.below(3) };
            for _ in 0..count {
                let consumer = Consumer {
                    node,
                    client: self.sim.connect_client(node, Resp::V2),
                    pace_ms: [1, 5, 40, 300][self.rng.index(4)],
                    count: [1, 1, 3][self.rng.index(3)],
                    next_at: 0,
                };
                self.consumers.push(consumer);
            }
        }
    }

    fn consume(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for consumer in &mut self.consumers {
            for (at, reply) in self.sim.take_replies(consumer.node, consumer.client) {
                let Value::Array(rows) = reply else { continue };
                for row in rows {
                    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
                    let [Value::Bulk(queue), Value::Bulk(id), ..] = &row[..] else {
                        panic!("a queue and an ID: {row:?}")
                    };
                    let (queue, id, node) = (queue.clone(), id.clone(), consumer.node);
                    if let Some(added_at) = self.added_at.remove(&id) {
                        self.waits_ms.push(at - added_at);
                    }
                    deliveries.push(Delivery { node, at, queue, id });
                }
                consumer.next_at = at + consumer.pace_ms;
            }
            let is_idle = !self.sim.is_blocked(consumer.node, consumer.client);
            if is_idle && consumer.next_at <= self.sim.now_ms {
                consumer.next_at = u64::MAX;
                let line = format!("GETJOB COUNT {} FROM q", consumer.count);
                let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
                self.sim.send(consumer.node, consumer.client, words);
            }
        }
        deliveries
    }

    fn note(&mut self, line: String) {
        self.latest.push_back(line);
        if self.latest.len() > LATEST_MAX {
            self.latest.pop_front();
        }
    }

    fn note_frame(&mut self, frame: &[u8]) {
        let (header, message) = bus::decode(frame).expect("engines send whole frames");
        let is_sender = |node: &Node| *node.engine.cluster().my_id() == header.sender;
        let sender = self.sim.nodes.iter().position(is_sender);
        let said = match message {
            Message::Offer { number, .. } => {
                self.word_count += 1;
                format!("offers {:?}", bus::split_priority(number))
            }
            Message::NeedJobs { count, .. }
                if header.message_flags.contains(MessageFlags::BETTER_ONLY) =>
            {
                self.word_count += 1;
                format!("asks for better {:?}", bus::split_priority(count))
            }
            Message::YourJobs(jobs) => {
                let job = |job: JobRecord<'_>| (Priority::of_flags(job.flags).number(), job.id);
                format!("lends {:?}", jobs.iter().map(job).collect::<Vec<_>>())
            }
            _ => return,
        };
        self.note(format!("{}: node {sender:?} {said}", self.sim.now_ms));
    }

    fn step(&mut self) {
        self.sim.run_for(LOOK_EVERY_MS);
        for frame in self.sim.network.record() {
            self.note_frame(&frame);
        }
        let deliveries = self.consume();
        for Delivery { node, at, id, .. } in &deliveries {
            self.note(format!("{at}: node {node} delivers {}", id.escape_ascii()));
        }
        self.watch.look(&mut self.sim, &["q"], &deliveries);
    }
}

/// What a run comes to.
pub struct Tally {
    pub trace: u64,
    /// How long urgent jobs waited, in ms, where they were few.
    pub waits_ms: Vec<u64>,
    pub judged: usize,
    pub passed_over: Vec<String>,
}

pub fn run(seed: u64) -> Tally {
    let mut bulk = Bulk::new(seed);
    bulk.begin();
    let pause_ms = [10, 50, 400][bulk.rng.index(3)];
    let burst_max = [1, 3, 12][bulk.rng.index(3)];
    let mut next_at = bulk.sim.now_ms;
    let ends_at = bulk.sim.now_ms + RUN_MS;
    while bulk.sim.now_ms < ends_at {
        if next_at <= bulk.sim.now_ms {
            next_at += u64::from(1 + bulk.rng.below(2 * pause_ms));
            let n = bulk.rng.index(bulk.sim.nodes.len());
            for _ in 0..1 + bulk.rng.below(burst_max) {
                let priority = 1 + bulk.rng.below(3) as u8;
                bulk.add(n, priority);
            }
        }
        bulk.step();
    }
    bulk.sim.nodes.iter().for_each(|node| node.engine.check_invariants());
    let pairs = (bulk.sim.nodes.len() * (bulk.sim.nodes.len() - 1)) as u64;
    let words_max = pairs * WORDS_A_SECOND_MAX * RUN_MS / 1000;
    assert!(bulk.word_count <= words_max, "{} words of {words_max}", bulk.word_count);
    let are_few = pause_ms == 400 && burst_max == 1;
    let waits_ms = if are_few { std::mem::take(&mut bulk.waits_ms) } else { Vec::new() };
    let Watch { judged, passed_over, .. } = std::mem::take(&mut bulk.watch);
    Tally { trace: bulk.sim.trace, waits_ms, judged, passed_over }
}

/// What is sent of offers while nothing is urgent: nothing.
#[test]
fn who_has_no_urgent_jobs_sends_no_word_of_them() {
    let mut bulk = Bulk::new(0);
    bulk.begin();
    for _ in 0..400 {
        bulk.step();
    }
    assert_eq!(bulk.word_count, 0);
}
