//! Producers and consumers drawn from a seed.

use disque::base::ids::ClientId;
use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use crate::checkers::{Stories, Story, distinct};
use crate::cluster::Sim;

const QUEUES: [&str; 3] = ["red", "green", "blue"];
const STEPS: u32 = 120;

struct Run {
    sim: Sim,
    /// Chance of the workload, apart from that of the network.
    rng: Rng,
    producer: ClientId,
    consumers: Vec<ClientId>,
    stories: Stories,
    /// Delivered and not acknowledged yet.
    in_hand: Vec<Vec<u8>>,
}

/// A run on a node alone; returns a hash of all that happened.
pub fn one_node(seed: u64) -> u64 {
    let mut sim = Sim::new(seed, 1, &EngineConfig::default());
    let producer = sim.connect_client(0, Resp::V2);
    let consumers = (0..3).map(|_| sim.connect_client(0, Resp::V2)).collect();
    let mut seed_bytes = [0xee; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut run = Run {
        sim,
        rng: Rng::from_seed(seed_bytes),
        producer,
        consumers,
        stories: Stories::default(),
        in_hand: Vec::new(),
    };
    for _ in 0..STEPS {
        run.act();
        run.sim.check_invariants();
        let pause_ms = u64::from(run.rng.below(400));
        run.wait(pause_ms);
    }
    run.drain(seed);
    run.sim.trace
}

impl Run {
    fn wait(&mut self, ms: u64) {
        // In pieces, so that deliveries are noted close to when they happen.
        for _ in 0..ms.div_ceil(50) {
            self.sim.run_for(50);
            self.note_deliveries();
        }
    }

    fn queue(&mut self) -> &'static str {
        QUEUES[self.rng.index(QUEUES.len())]
    }

    fn act(&mut self) {
        match self.rng.below(10) {
            0..4 => self.add(),
            4..6 => self.get(),
            6..8 => self.ack(),
            8 => self.put_back(),
            _ => self.hang_up(),
        }
        self.note_deliveries();
    }

    fn add(&mut self) {
        let retry_secs = [0, 1, 1, 2, 5][self.rng.index(5)];
        let ttl_secs = 10 + u64::from(self.rng.below(50));
        let delay_secs = [0, 0, 0, 1, 4][self.rng.index(5)];
        let queue = self.queue();
        let number = |n: u64| n.to_string();
        let reply = self.sim.call(
            0,
            self.producer,
            &[
                "ADDJOB",
                queue,
                "body",
                "0",
                "REPLICATE",
                "1",
                "RETRY",
                &number(retry_secs),
                "TTL",
                &number(ttl_secs),
                "DELAY",
                &number(delay_secs),
            ],
        );
        let Value::Status(id) = reply else { panic!("the job is taken: {reply:?}") };
        let story = Story {
            retry_secs,
            added_at_ms: self.sim.now_ms,
            delay_ms: delay_secs * 1000,
            ttl_ms: ttl_secs * 1000,
            ..Story::default()
        };
        let earlier = self.stories.0.insert(id, story);
        assert!(earlier.is_none(), "IDs are given once");
    }

    fn get(&mut self) {
        let consumer = self.consumers[self.rng.index(self.consumers.len())];
        if self.sim.is_blocked(0, consumer) {
            return;
        }
        let (first, second) = (self.queue(), self.queue());
        let count = (1 + self.rng.below(4)).to_string();
        let words = ["GETJOB", "TIMEOUT", "700", "COUNT", &count, "FROM", first, second];
        self.sim.send(0, consumer, words.map(|word| word.as_bytes().to_vec()).into());
    }

    fn note_deliveries(&mut self) {
        for &consumer in &self.consumers {
            for reply in self.sim.take_replies(0, consumer) {
                let Value::Array(rows) = reply else {
                    assert_eq!(reply, Value::NullArray, "GETJOB answers rows or null");
                    continue;
                };
                for row in rows {
                    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
                    let Value::Bulk(id) = &row[1] else { panic!("an ID is a bulk: {row:?}") };
                    self.stories.delivered(id, self.sim.now_ms);
                    self.in_hand.push(id.clone());
                }
            }
        }
    }

    fn ack(&mut self) {
        let count = self.rng.index(self.in_hand.len() + 1);
        let ids: Vec<Vec<u8>> = self.in_hand.drain(..count).collect();
        let command = if self.rng.below(4) == 0 { "FASTACK" } else { "ACKJOB" };
        let reply = self.on_ids(command, &ids);
        assert!(reply <= distinct(&ids) as i64, "no more are acked than were named");
        for id in ids {
            let story = self.stories.0.get_mut(&id).expect("promised");
            story.acked_at_ms = Some(self.sim.now_ms);
        }
    }

    fn put_back(&mut self) {
        let Some(id) = self.in_hand.pop() else { return };
        let command = ["NACK", "ENQUEUE", "DEQUEUE"][self.rng.index(3)];
        self.on_ids(command, std::slice::from_ref(&id));
        let story = self.stories.0.get_mut(&id).expect("promised");
        story.touched_at_ms = Some(self.sim.now_ms);
    }

    fn hang_up(&mut self) {
        let index = self.rng.index(self.consumers.len());
        self.sim.disconnect_client(0, self.consumers[index]);
        self.consumers[index] = self.sim.connect_client(0, Resp::V2);
    }

    fn on_ids(&mut self, command: &str, ids: &[Vec<u8>]) -> i64 {
        let ids: Vec<String> =
            ids.iter().map(|id| String::from_utf8_lossy(id).into_owned()).collect();
        let words: Vec<&str> =
            [command].into_iter().chain(ids.iter().map(String::as_str)).collect();
        match self.sim.call(0, self.producer, &words) {
            Value::Integer(count) => count,
            reply => panic!("{command} answers a number: {reply:?}"),
        }
    }

    /// Lets consumers take and acknowledge whatever is left; in the end there is nothing.
    fn drain(&mut self, seed: u64) {
        for round in 0..400 {
            let consumer = self.consumers[0];
            if !self.sim.is_blocked(0, consumer) {
                let words: Vec<Vec<u8>> = ["GETJOB", "TIMEOUT", "100", "COUNT", "100", "FROM"]
                    .into_iter()
                    .chain(QUEUES)
                    .map(|word| word.as_bytes().to_vec())
                    .collect();
                self.sim.send(0, consumer, words);
            }
            self.wait(200);
            self.ack_all();
            // The first rounds find consumers that still wait elsewhere.
            if round < 10 {
                continue;
            }
            let now_ms = self.sim.now_ms;
            for (id, story) in &self.stories.0 {
                let live = story.acked_at_ms.is_none() && now_ms < story.added_at_ms + story.ttl_ms;
                let late = story.is_overdue(now_ms.saturating_sub(500));
                assert!(
                    !(live && late && story.deliveries.is_empty()),
                    "seed {seed}: {} was never delivered: {story:?}",
                    String::from_utf8_lossy(id)
                );
            }
        }
        self.sim.check_invariants();
        let left = self.sim.nodes[0].engine.job_count();
        assert_eq!(left, 0, "seed {seed}: everything is acknowledged or expired");
    }

    fn ack_all(&mut self) {
        let ids = std::mem::take(&mut self.in_hand);
        self.on_ids("ACKJOB", &ids);
        for id in ids {
            let story = self.stories.0.get_mut(&id).expect("promised");
            story.acked_at_ms = Some(self.sim.now_ms);
        }
    }
}
