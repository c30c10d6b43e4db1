//! One node, its disk and its crashes, drawn from a seed.
//!
//! Jobs are added, fetched and acknowledged while the disk fills up, fails and works
//! again, while the file is rewritten, and while the node is killed, loses power or is
//! restarted as planned. After each start everything that the node ever promised is looked
//! at: what is safe under the policy must be there, what was ended safely must not, and
//! what was in a queue before a planned restart must be there again, with its counters.

use std::collections::BTreeMap;
use std::path::Path;

use disque::base::ids::{ClientId, JobId};
use disque::base::rng::Rng;
use disque::engine::config::{EngineConfig, EnqueueAtLoad};
use disque::proto::aof_record::AofRecord;
use disque::proto::aof_record::SumPlace;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;
use disque::store::aof_load::AofReader;

use crate::cluster::{Sim, seed_bytes};
use crate::mishaps;
use crate::node::{State, Words};
use crate::storage::{AppendOnly, Crash, LostSince};

const STEPS: u32 = 200;
/// Jobs outlive the run.
const TTL_SECS: u32 = 86_400;

/// What is known of a job from outside.
#[derive(Clone, Debug)]
struct Story {
    is_at_most_once: bool,
    /// Names and values, as they were given.
    attributes: Vec<Vec<u8>>,
    /// When the producer got its ID.
    promised_at: u64,
    delivered_at: Vec<u64>,
    /// When somebody was told that it is over, or, if it comes at most once, got it.
    ended_at: Option<u64>,
    /// It may come back: its end was forgotten, or never got through.
    may_return: bool,
    /// It may be gone: its producer was not served well by the policy.
    may_be_gone: bool,
}

fn as_reply(words: &[Vec<u8>]) -> Value {
    Value::Array(words.iter().map(|word| Value::Bulk(word.clone())).collect())
}

/// What SHOW says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    state: Vec<u8>,
    nacks: Value,
    deliveries: Value,
    attributes: Option<Value>,
}

struct Run {
    sim: Sim,
    rng: Rng,
    /// Draws attributes, apart from the rest.
    attribute_rng: Rng,
    aof_sums: SumPlace,
    client: ClientId,
    stories: BTreeMap<Vec<u8>, Story>,
    /// Delivered and not acknowledged.
    in_hand: Vec<Vec<u8>>,
}

/// Runs a node through all of it; returns a hash of what happened.
pub fn one_disk(seed: u64) -> u64 {
    let mut rng = Rng::from_seed(seed_bytes(seed, 0xd1));
    let aof_sums = [SumPlace::Yes, SumPlace::Yes, SumPlace::No][rng.index(3)];
    let config = EngineConfig { aof_sums, ..EngineConfig::default() };
    let mut sim = Sim::new(seed, 1, &config, AppendOnly::Yes);
    sim.quantum_max = [1, 4, 64][rng.index(3)];
    sim.nodes[0].storage.set_options(mishaps::draw_options(&mut rng));
    let client = sim.connect_client(0, Resp::V2);
    let attribute_rng = Rng::from_seed(seed_bytes(seed, 0xa7));
    let (stories, in_hand) = (BTreeMap::new(), Vec::new());
    let mut run = Run { sim, rng, attribute_rng, aof_sums, client, stories, in_hand };
    for _ in 0..STEPS {
        run.act();
        let pause_ms_max = [1, 50, 1500][run.rng.index(3)];
        let pause_ms = u64::from(run.rng.below(pause_ms_max));
        run.sim.run_for(pause_ms);
        run.come_back();
    }
    run.end();
    let (count, came) = (run.stories.len(), |story: &&Story| !story.delivered_at.is_empty());
    let came_count = run.stories.values().filter(came).count();
    assert!(count > 20 && came_count > 10, "{came_count} of {count} jobs came");
    run.sim.trace
}

impl Run {
    fn act(&mut self) {
        match self.rng.below(100) {
            0..40 => self.add(),
            40..60 => self.get(),
            60..75 => self.acknowledge(),
            75..80 => self.give_back(),
            80..93 => self.sim.upset_disk(&mut self.rng, 0),
            93..97 => self.sim.end_somehow(&mut self.rng, 0),
            97 => self.restart_as_planned(),
            _ => self.stop_as_planned(),
        }
    }

    /// Runs a command; `None` when the node died of it, and nobody knows what became of it.
    fn call(&mut self, line: &str) -> Option<Value> {
        self.call_words(line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    }

    fn call_words(&mut self, words: Words) -> Option<Value> {
        self.sim.send(0, self.client, words);
        self.sim.take_replies(0, self.client).pop().map(|(_, reply)| reply)
    }

    fn add(&mut self) {
        let is_at_most_once = self.rng.below(3) == 0;
        let retry_secs = if is_at_most_once { 0 } else { 1 + self.rng.below(3) };
        let delay_secs = [0, 0, 0, 1][self.rng.index(4)];
        // Long ones do not fit into one write, or on the disk.
        let body = "x".repeat(1 + self.rng.index(300));
        let line = format!(
            "ADDJOB q {body} 0 REPLICATE 1 RETRY {retry_secs} DELAY {delay_secs} TTL {TTL_SECS}"
        );
        let mut words: Words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let attributes = self.draw_attributes();
        for pair in attributes.chunks(2) {
            words.push(b"ATTR".to_vec());
            words.extend_from_slice(pair);
        }
        let reply = self.call_words(words);
        match reply {
            None => {}
            Some(Value::Error(text)) => {
                assert!(text.starts_with(b"MISCONF"), "{}", text.escape_ascii());
            }
            Some(Value::Status(id)) => {
                let story = Story {
                    is_at_most_once,
                    attributes,
                    promised_at: self.sim.now_ms,
                    delivered_at: Vec::new(),
                    ended_at: None,
                    may_return: false,
                    may_be_gone: false,
                };
                assert!(self.stories.insert(id, story).is_none(), "IDs are given once");
            }
            Some(other) => panic!("ADDJOB answers an ID or an error: {other:?}"),
        }
    }

    /// Names and values; half of the jobs have none.
    fn draw_attributes(&mut self) -> Vec<Vec<u8>> {
        let rng = &mut self.attribute_rng;
        let count = [0, 0, 0, 1, 2, 16][rng.index(6)];
        (0..count)
            .flat_map(|n| {
                let value = (0..rng.below(50)).map(|_| rng.bytes::<1>()[0]).collect();
                [format!("name{n}").into_bytes(), value]
            })
            .collect()
    }

    /// Consumers go on whatever happens to the disk.
    fn get(&mut self) {
        let count = 1 + self.rng.below(4);
        let rows = match self.call(&format!("GETJOB NOHANG COUNT {count} WITHATTRS FROM q")) {
            Some(Value::Array(rows)) => rows,
            Some(Value::NullArray) => return,
            None => return self.lose_what_was_fetched(),
            Some(other) => panic!("GETJOB answers rows or nothing: {other:?}"),
        };
        let now = self.sim.now_ms;
        for row in rows {
            let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
            let Value::Bulk(id) = &row[1] else { panic!("an ID is a bulk: {row:?}") };
            if let Some(story) = self.stories.get_mut(id) {
                let told = format!("{} at {now}: {story:?}", id.escape_ascii());
                // A damaged record without a checksum is taken for what it says; and damage to
                // the checksum may hide that there is one.
                let may_differ = self.aof_sums == SumPlace::No || row[4] == Value::NullArray;
                let stayed = row[4] == as_reply(&story.attributes);
                let is_right = stayed || (story.may_be_gone && may_differ);
                assert!(is_right, "attributes stay: {:?}, {told}", row[4]);
                assert!(story.ended_at.is_none() || story.may_return, "it was over, {told}");
                story.delivered_at.push(now);
                if story.is_at_most_once {
                    story.ended_at = Some(now);
                    story.may_return = false;
                }
                self.in_hand.push(id.clone());
            } else {
                // Its producer was never answered.
                self.in_hand.push(id.clone());
            }
        }
    }

    /// The node died with jobs on their way to the consumer; at most once is not at all then.
    fn lose_what_was_fetched(&mut self) {
        for story in self.stories.values_mut() {
            story.may_be_gone |= story.is_at_most_once;
        }
    }

    fn acknowledge(&mut self) {
        let Some(id) = self.in_hand.pop() else { return };
        let shown = String::from_utf8_lossy(&id).into_owned();
        // Alone a node collects what is acked at once.
        let is_known = self.sim.state_of(0, &id).is_some();
        let reply = self.call(&format!("ACKJOB {shown}"));
        let now = self.sim.now_ms;
        let Some(story) = self.stories.get_mut(&id) else { return };
        match reply {
            Some(Value::Integer(count)) => {
                assert_eq!(count, i64::from(is_known), "ACKJOB counts what it knows: {story:?}");
                story.ended_at = Some(now);
                story.may_return = false;
            }
            // Its record may have got through.
            None => story.may_be_gone = true,
            Some(other) => panic!("acks are taken whatever the disk does: {other:?}"),
        }
    }

    fn give_back(&mut self) {
        if let Some(id) = self.in_hand.pop() {
            let is_active = self.sim.state_of(0, &id).as_deref() == Some("active");
            let is_once = !JobId::parse(&id).expect("IDs are valid").is_at_least_once();
            // One that the file brought again with aof-enqueue-jobs-once goes to its queue in a
            // moment, and may be sent there before.
            let may_return = self.stories.get(&id).is_some_and(|story| story.may_return);
            let id = String::from_utf8_lossy(&id).into_owned();
            match self.call(&format!("NACK {id}")) {
                None => {}
                Some(Value::Integer(1)) if is_active && may_return => {}
                Some(Value::Integer(count)) => assert_eq!(count, i64::from(is_active && !is_once)),
                Some(Value::Error(text)) => assert!(text.starts_with(b"MISCONF"), "{text:?}"),
                Some(other) => panic!("NACK answers a number: {other:?}"),
            }
        }
    }

    /// Looks whether the node is gone; if so, starts it and judges what it knows.
    fn come_back(&mut self) {
        if self.sim.nodes[0].state != State::Down {
            return;
        }
        self.check_file();
        let wait_ms = u64::from(self.rng.below(3000));
        self.sim.run_for(wait_ms);
        // Under the policy `always` it does not even start on a disk that fails.
        while self.sim.nodes[0].state == State::Down {
            if self.rng.below(2) == 0 {
                self.sim.end_mishaps();
            }
            let once = [EnqueueAtLoad::No, EnqueueAtLoad::Yes][self.rng.index(2)];
            self.sim.restart_with(0, once);
        }
        self.client = self.sim.connect_client(0, Resp::V2);
        self.forget_losses();
        let ids: Vec<Vec<u8>> = self.stories.keys().cloned().collect();
        for id in ids {
            let is_known = self.show(&id).is_some();
            let story = self.stories.get_mut(&id).expect("it is one of them");
            let told = format!("{}: {story:?}", id.escape_ascii());
            let is_over = story.ended_at.is_some() && !story.may_return;
            assert!(!is_known || !is_over, "it is back, {told}");
            let may_be_gone = story.ended_at.is_some() || story.may_be_gone;
            assert!(is_known || may_be_gone, "it is gone, {told}");
            if !is_known && !is_over {
                // Whatever ended it, this node knows of no other state any more.
                story.ended_at = Some(self.sim.now_ms);
                story.may_return = false;
            }
        }
    }

    /// Takes note of what crashes may have taken with them.
    fn forget_losses(&mut self) {
        for loss in std::mem::take(&mut self.sim.losses) {
            for story in self.stories.values_mut() {
                story.may_be_gone |= LostSince(story.promised_at) >= loss.since;
                let since = if story.is_at_most_once { loss.ends_since } else { loss.since };
                story.may_return |= story.ended_at.is_some_and(|at| LostSince(at) >= since);
            }
        }
    }

    /// Nothing was appended twice: a job has a record of its beginning, and a second one
    /// only if it began while the file was rewritten.
    fn check_file(&self) {
        let bytes = self.sim.nodes[0].storage.aof_bytes();
        let mut counts: BTreeMap<JobId, u32> = BTreeMap::new();
        let mut reader = AofReader::new(Path::new("x"), &bytes[..], bytes.len() as u64);
        let mut count = |record: &AofRecord<'_>| {
            if let AofRecord::LoadJob(job) = record {
                let count = counts.entry(job.id).or_default();
                *count += 1;
                assert!(*count <= 2, "a record is written once");
            }
        };
        while reader.read(usize::MAX, &mut count).is_err() {
            reader.pass_damage().expect("it is in memory");
        }
    }

    fn show(&mut self, id: &[u8]) -> Option<Shown> {
        let id = String::from_utf8_lossy(id).into_owned();
        let Some(Value::Array(pairs)) = self.call(&format!("SHOW {id}")) else { return None };
        let field = |name: &str| {
            let at = pairs.iter().step_by(2).position(|key| *key == Value::Bulk(name.into()));
            pairs[2 * at.expect("SHOW has its fields") + 1].clone()
        };
        let Value::Bulk(state) = field("state") else { panic!("a state is a bulk") };
        let attributes = (pairs.len() > 30).then(|| pairs[31].clone());
        let (nacks, deliveries) = (field("nacks"), field("additional-deliveries"));
        Some(Shown { state, nacks, deliveries, attributes })
    }

    /// CONFIG SET aof-enqueue-jobs-once yes, SHUTDOWN REWRITE-AOF, and a start.
    fn restart_as_planned(&mut self) {
        self.sim.end_mishaps();
        self.sim.run_for(3000);
        let ids: Vec<Vec<u8>> = self.stories.keys().cloned().collect();
        let before: Vec<Option<Shown>> = ids.iter().map(|id| self.show(id)).collect();
        self.sim.shut_down(0);
        self.forget_losses();
        self.sim.restart_with(0, EnqueueAtLoad::Yes);
        self.client = self.sim.connect_client(0, Resp::V2);
        self.compare(&ids, &before);
    }

    /// Every job is where it was.
    fn compare(&mut self, ids: &[Vec<u8>], before: &[Option<Shown>]) {
        for (id, before) in ids.iter().zip(before) {
            let after = self.show(id);
            let story = &self.stories[id];
            if story.may_return {
                continue;
            }
            // One that was delivered for the only time is of no more use.
            let expected = before.clone().filter(|shown| {
                !(story.is_at_most_once && shown.state == b"active" && story.ended_at.is_some())
            });
            assert_eq!(after, expected, "it is where it was: {story:?}");
        }
    }

    /// SIGTERM with aof-restore-queues, and a start. The disk may fail, and the power when the
    /// process is gone.
    fn stop_as_planned(&mut self) {
        if self.rng.below(4) > 0 {
            self.sim.end_mishaps();
            self.sim.run_for(3000);
        }
        let ids: Vec<Vec<u8>> = self.stories.keys().cloned().collect();
        let before: Vec<Option<Shown>> = ids.iter().map(|id| self.show(id)).collect();
        if self.sim.nodes[0].state == State::Down {
            return;
        }
        let end = [Crash::Killed, Crash::PowerLost][self.rng.index(2)];
        if !self.sim.stop_as_planned(0, end) {
            // It starts as after a kill.
            return;
        }
        self.forget_losses();
        self.sim.end_mishaps();
        self.sim.restart(0);
        self.client = self.sim.connect_client(0, Resp::V2);
        self.compare(&ids, &before);
        if self.rng.below(2) == 0 {
            // The note counts once.
            self.sim.crash(0, Crash::Killed);
            self.sim.restart(0);
            self.client = self.sim.connect_client(0, Resp::V2);
            assert_eq!(self.call("QLEN q"), Some(Value::Integer(0)), "as after a kill");
        }
    }

    /// In the end all is well, and everything comes that is owed.
    fn end(&mut self) {
        self.sim.end_mishaps();
        self.sim.run_for(5000);
        for _ in 0..100 {
            self.come_back();
            self.get();
            while !self.in_hand.is_empty() {
                self.acknowledge();
            }
            self.sim.run_for(200);
        }
        for (id, story) in &self.stories {
            let came = !story.delivered_at.is_empty() || story.ended_at.is_some();
            let is_lost = story.may_be_gone || story.is_at_most_once;
            assert!(came || is_lost, "{} never came: {story:?}", id.escape_ascii());
        }
    }
}
