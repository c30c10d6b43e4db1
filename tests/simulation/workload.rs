//! Producers, consumers and an operator of one node, drawn from a seed.
//!
//! In half of the runs consumers are slow, forget, give back and hang up, and the
//! operator pauses queues, makes memory short and flushes. In the other half everybody
//! is in time, and then each job is delivered exactly once.

use std::collections::BTreeMap;

use disque::base::ids::ClientId;
use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::checkers::{Row, Shown, Stories, Story, Waits, distinct};
use crate::cluster::Sim;
use crate::storage::AppendOnly;

const QUEUES: [&str; 3] = ["red", "green", "blue"];
const STEPS: u32 = 120;
const CONSUMERS: usize = 3;
/// The longest delay, or retry after a pause, and then some: a job that may be queued is
/// queued within this.
const DUE_WITHIN_MS: u64 = 5000;

/// How the run's clients behave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    InTime,
    Careless,
}

struct Run {
    sim: Sim,
    /// Chance of the workload, apart from that of the network.
    rng: Rng,
    manner: Manner,
    producer: ClientId,
    consumers: [ClientId; CONSUMERS],
    stories: Stories,
    waits: Waits,
    /// Delivered and not acknowledged yet.
    in_hand: Vec<Vec<u8>>,
    paused: BTreeMap<&'static str, &'static str>,
    memory_level: u8,
    flushed_at: Option<u64>,
}

/// A run on a node alone; returns a hash of all that happened.
pub fn one_node(seed: u64) -> u64 {
    let mut seed_bytes = [0xee; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = Rng::from_seed(seed_bytes);
    let mut sim = Sim::new(seed, 1, &EngineConfig::default(), AppendOnly::No);
    sim.quantum_max = [1, 3, 64][rng.index(3)];
    let producer = sim.connect_client(0, Resp::V2);
    let consumers = core::array::from_fn(|_| sim.connect_client(0, Resp::V2));
    let mut run = Run {
        sim,
        rng,
        manner: if seed.is_multiple_of(2) { Manner::InTime } else { Manner::Careless },
        producer,
        consumers,
        stories: Stories::new(),
        waits: Waits::default(),
        in_hand: Vec::new(),
        paused: BTreeMap::new(),
        memory_level: 0,
        flushed_at: None,
    };
    for _ in 0..STEPS {
        run.act();
        let pause_ms = u64::from(run.rng.below(400));
        run.wait(pause_ms);
    }
    run.drain();
    run.sim.trace
}

impl Run {
    fn wait(&mut self, ms: u64) {
        self.sim.run_for(ms);
        self.take_deliveries();
        self.waits.check_deadlines(self.sim.now_ms);
    }

    fn queue(&mut self) -> &'static str {
        QUEUES[self.rng.index(QUEUES.len())]
    }

    fn act(&mut self) {
        if self.manner == Manner::InTime {
            if self.rng.below(2) == 0 {
                self.add();
            }
            self.get_from(0, "100", QUEUES.to_vec());
            self.ack_in_hand(self.in_hand.len());
            self.audit();
            return;
        }
        match self.rng.below(100) {
            0..30 => self.add(),
            30..55 => self.get(),
            55..68 => {
                let count = self.rng.index(self.in_hand.len() + 1);
                self.ack_in_hand(count);
            }
            68..80 => self.put_back(),
            80..83 => self.drop_one(),
            83..88 => self.hang_up(),
            88..93 => self.pause(),
            93..97 => self.change_memory(),
            97 => self.flush(),
            _ => {}
        }
        self.take_deliveries();
        self.audit();
    }

    /// Sends a command whose reply must come at once.
    #[must_use]
    fn call(&mut self, words: &[&str]) -> Value {
        self.sim.call(0, self.producer, words)
    }

    fn add(&mut self) {
        let in_time = self.manner == Manner::InTime;
        let retry_secs = if in_time { [0, 2, 5] } else { [0, 1, 3] }[self.rng.index(3)];
        let ttl_secs = 10 + u64::from(self.rng.below(50));
        let delay_secs = [0, 0, 0, 1, 4][self.rng.index(5)];
        let queue = self.queue();
        let line = format!(
            "ADDJOB {queue} body 0 REPLICATE 1 RETRY {retry_secs} TTL {ttl_secs} DELAY {delay_secs}"
        );
        let words: Vec<&str> = line.split(' ').collect();
        let now = self.sim.now_ms;
        let is_paused = matches!(self.paused.get(queue), Some(&("in" | "all")));
        match self.call(&words) {
            Value::Error(text) if self.memory_level > 1 => {
                assert!(text.starts_with(b"NOREPL"), "memory is short: {}", text.escape_ascii());
            }
            Value::Error(text) if is_paused => {
                assert!(text.starts_with(b"PAUSED"), "{queue} is paused: {}", text.escape_ascii());
            }
            Value::Status(id) if self.memory_level < 2 && !is_paused => {
                let story =
                    Story::new(queue, now, retry_secs * 1000, delay_secs * 1000, ttl_secs * 1000);
                let earlier = self.stories.insert(id, story);
                assert!(earlier.is_none(), "IDs are given once");
            }
            reply => panic!("a job is taken, or refused for a reason: {reply:?}"),
        }
        self.take_deliveries();
    }

    fn get(&mut self) {
        let consumer = self.rng.index(CONSUMERS);
        let count = (1 + self.rng.below(4)).to_string();
        let queues = vec![self.queue(), self.queue()];
        self.get_from(consumer, &count, queues);
    }

    fn get_from(&mut self, consumer: usize, count: &str, queues: Vec<&'static str>) {
        if self.waits.of(consumer).is_some() {
            return;
        }
        let timeout_ms = 1 + u64::from(self.rng.below(1500));
        let timeout = timeout_ms.to_string();
        let words = ["GETJOB", "WITHCOUNTERS", "TIMEOUT", &timeout, "COUNT", count, "FROM"];
        let words = words.iter().chain(&queues).map(|word| word.as_bytes().to_vec()).collect();
        self.waits.begin(consumer, queues, self.sim.now_ms + timeout_ms);
        self.sim.send(0, self.consumers[consumer], words);
        self.take_deliveries();
    }

    /// Judges all replies that consumers got, in the order in which they were served.
    fn take_deliveries(&mut self) {
        let mut replies = Vec::new();
        for (consumer, &client) in self.consumers.iter().enumerate() {
            for (at, reply) in self.sim.take_replies(0, client) {
                let wait = self.waits.of(consumer).expect("a reply ends a wait");
                replies.push((at, wait.ticket, consumer, reply));
            }
        }
        replies.sort_by_key(|(at, ticket, ..)| (*at, *ticket));
        for (at, _, consumer, reply) in replies {
            let wait = self.waits.end(consumer).expect("a wait ends once");
            let Value::Array(rows) = reply else {
                assert_eq!(reply, Value::NullArray, "GETJOB answers rows or null");
                let on_time = at == wait.deadline || Some(at) == self.flushed_at;
                assert!(on_time, "at {at}: {wait:?} times out on time");
                continue;
            };
            assert!(at <= wait.deadline, "at {at}: {wait:?} was served too late");
            for row in rows.iter().map(parse_row) {
                let paused = self.paused.get(wait.queues[0]);
                let one_queue = wait.queues.iter().all(|queue| *queue == wait.queues[0]);
                let out = matches!(paused, Some(&("out" | "all")));
                assert!(!(one_queue && out), "at {at}: {row:?} left a paused queue");
                self.waits.check_turn(&wait, &row.queue);
                let story = self.stories.get_mut(&row.id).expect("only promised jobs come");
                story.delivered(at, &row);
                self.in_hand.push(row.id);
            }
        }
    }

    fn ack_in_hand(&mut self, count: usize) {
        let ids: Vec<Vec<u8>> = self.in_hand.drain(..count).collect();
        let command = if self.rng.below(4) == 0 { "FASTACK" } else { "ACKJOB" };
        self.end(command, &ids);
    }

    /// Ends jobs for good, and checks how many the node says that it knew.
    fn end(&mut self, command: &str, ids: &[Vec<u8>]) {
        let now = self.sim.now_ms;
        let live = |id: &&Vec<u8>| self.stories[*id].is_live(now);
        let over = |id: &&Vec<u8>| self.stories[*id].is_over(now);
        let at_least = distinct(ids.iter().filter(live));
        let at_most = distinct(ids.iter()) - distinct(ids.iter().filter(over));
        let ended = self.on_ids(command, ids);
        assert!((at_least..=at_most).contains(&ended), "{command} counts what it ended: {ended}");
        for id in ids {
            let story = self.stories.get_mut(id).expect("promised");
            story.ended_at.get_or_insert(now);
        }
    }

    fn put_back(&mut self) {
        let Some(id) = self.in_hand.pop() else { return };
        let now = self.sim.now_ms;
        let was_queued = self.show(&id).is_some_and(|shown| shown.state == b"queued");
        let command = ["NACK", "ENQUEUE", "DEQUEUE", "WORKING"][self.rng.index(4)];
        if command == "WORKING" {
            let text = String::from_utf8_lossy(&id).into_owned();
            let reply = self.call(&["WORKING", &text]);
            let story = self.stories.get_mut(&id).expect("promised");
            match reply {
                Value::Integer(secs) => {
                    assert_eq!(secs.unsigned_abs() * 1000, story.retry_ms, "WORKING says how long");
                    if was_queued {
                        story.left_queue(now);
                    }
                    story.postponed(now);
                }
                Value::Error(text) if text.starts_with(b"TOOLATE") => {
                    let half_ms = (story.expires_at() - story.added_at) / 2;
                    assert!(now - story.added_at > half_ms, "at {now}: {story:?} is not too late");
                }
                Value::Error(text) if text.starts_with(b"NOJOB") => {
                    assert!(!story.is_live(now), "at {now}: {story:?} is there");
                }
                reply => panic!("WORKING answers a number: {reply:?}"),
            }
            return;
        }
        let done = self.on_ids(command, std::slice::from_ref(&id));
        let story = self.stories.get_mut(&id).expect("promised");
        match command {
            _ if done == 0 => {}
            "NACK" => story.given_back(now),
            "ENQUEUE" => story.put_back(now),
            _ => story.left_queue(now),
        }
    }

    /// Drops some job, delivered or not.
    fn drop_one(&mut self) {
        if self.stories.is_empty() {
            return;
        }
        let index = self.rng.index(self.stories.len());
        let id = self.stories.keys().nth(index).expect("within").clone();
        let command = ["DELJOB", "ACKJOB", "FASTACK"][self.rng.index(3)];
        self.end(command, std::slice::from_ref(&id));
    }

    fn hang_up(&mut self) {
        let consumer = self.rng.index(CONSUMERS);
        self.sim.disconnect_client(0, self.consumers[consumer]);
        self.waits.end(consumer);
        self.consumers[consumer] = self.sim.connect_client(0, Resp::V2);
    }

    fn pause(&mut self) {
        let queue = self.queue();
        let how = ["in", "out", "all", "none", "none"][self.rng.index(5)];
        let reply = self.call(&["PAUSE", queue, how]);
        assert_eq!(reply, Value::Status(how.into()), "PAUSE answers the state");
        self.paused.insert(queue, how);
    }

    fn change_memory(&mut self) {
        self.memory_level = [0, 0, 1, 2][self.rng.index(4)];
        self.sim.set_memory_level(0, self.memory_level);
        if self.memory_level > 0 {
            for story in self.stories.values_mut() {
                story.evictable |= story.is_spent();
            }
            let max = self.rng.index(20);
            self.sim.evict(0, max);
        }
    }

    fn flush(&mut self) {
        let now = self.sim.now_ms;
        self.flushed_at = Some(now);
        self.sim.flush(0);
        for story in self.stories.values_mut() {
            story.ended_at.get_or_insert(now);
        }
        // Pauses are gone with the queues.
        self.paused.clear();
    }

    fn on_ids(&mut self, command: &str, ids: &[Vec<u8>]) -> usize {
        let ids: Vec<String> =
            ids.iter().map(|id| String::from_utf8_lossy(id).into_owned()).collect();
        let words: Vec<&str> =
            [command].into_iter().chain(ids.iter().map(String::as_str)).collect();
        match self.call(&words) {
            Value::Integer(count) => usize::try_from(count).expect("a count"),
            reply => panic!("{command} answers a number: {reply:?}"),
        }
    }

    /// Compares what the node says of a job, and of all of them, with what is known.
    fn audit(&mut self) {
        if self.stories.is_empty() {
            return;
        }
        let now = self.sim.now_ms;
        let index = self.rng.index(self.stories.len());
        let id = self.stories.keys().nth(index).expect("within").clone();
        let shown = self.show(&id);
        self.stories[&id].shown(now, shown.as_ref());
        if self.rng.below(8) > 0 {
            return;
        }
        let reply = self.call(&["JSCAN", "BUSYLOOP"]);
        let listed = match reply {
            Value::Array(mut parts) => match parts.pop() {
                Some(Value::Array(ids)) => ids,
                other => panic!("JSCAN answers a cursor and IDs: {other:?}"),
            },
            other => panic!("JSCAN answers an array: {other:?}"),
        };
        for listed in &listed {
            let Value::Status(id) = listed else { panic!("an ID is a status: {listed:?}") };
            assert!(!self.stories[id].is_over(now), "only jobs that are there are listed");
        }
        for (id, story) in self.stories.iter().filter(|(_, story)| story.is_live(now)) {
            assert!(listed.contains(&Value::Status(id.clone())), "at {now}: {story:?} is listed");
        }
    }

    fn show(&mut self, id: &[u8]) -> Option<Shown> {
        let id = String::from_utf8_lossy(id).into_owned();
        let Value::Array(pairs) = self.call(&["SHOW", &id]) else { return None };
        let field = |name: &str| {
            let at = pairs.iter().position(|key| *key == Value::Bulk(name.into()));
            &pairs[at.expect("SHOW has its fields") + 1]
        };
        let number = |name| match field(name) {
            Value::Integer(number) => Some(u64::try_from(*number).expect("not negative")),
            _ => None,
        };
        let Value::Bulk(state) = field("state") else { panic!("a job has a state") };
        Some(Shown {
            state: state.clone(),
            nacks: number("nacks").expect("a number"),
            deliveries: number("additional-deliveries").expect("a number"),
            requeue_within_ms: number("next-requeue-within"),
        })
    }

    /// Lets consumers take and acknowledge whatever is left; in the end there is nothing.
    fn drain(&mut self) {
        for queue in QUEUES {
            assert_eq!(self.call(&["PAUSE", queue, "none"]), Value::Status("none".into()));
        }
        self.paused.clear();
        self.take_deliveries();
        self.memory_level = 0;
        self.sim.set_memory_level(0, 0);
        let drained_from = self.sim.now_ms;
        while self.sim.nodes[0].engine.job_count() > 0 {
            self.get_from(0, "100", QUEUES.to_vec());
            self.ack_in_hand(self.in_hand.len());
            self.wait(100);
            assert!(self.sim.now_ms < drained_from + 70_000, "everything is acked or expires");
        }
        for (id, story) in &self.stories {
            let id = id.escape_ascii();
            let had_time = story.expires_at() > drained_from + DUE_WITHIN_MS;
            assert!(
                story.ended_at.is_some() || !had_time || !story.delivered_at.is_empty(),
                "{id} was never delivered: {story:?}"
            );
            if self.manner == Manner::InTime {
                assert_eq!(story.delivered_at.len(), 1, "{id} is delivered once: {story:?}");
            }
        }
    }
}

fn parse_row(row: &Value) -> Row {
    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
    let [Value::Bulk(queue), Value::Bulk(id), _, _, nacks, _, deliveries] = row.as_slice() else {
        panic!("a row has counters: {row:?}")
    };
    let number = |value: &Value| match value {
        Value::Integer(number) => u64::try_from(*number).expect("not negative"),
        other => panic!("a counter is a number: {other:?}"),
    };
    Row {
        queue: queue.clone(),
        id: id.clone(),
        nacks: number(nacks),
        deliveries: number(deliveries),
    }
}
