//! Jobs that are moved between queues by clients of any able node, and what must hold of them.
//!
//! A moved job is delivered from its new queue, once its holders know; two nodes that move a job at
//! once end with one queue, that of the later move; and holders that disagree about a job's queue
//! agree soon. That moves lose no job, deliver none twice and bring none back, the rules of all
//! other jobs say.

use std::collections::BTreeMap;

use disque::base::rng::Rng;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use super::policies::{DEAD_QUEUES, DEAD_TTL_SECS, is_dead_queue};
use super::rest::{UNDER_WAY_MS, know_each_other};
use super::story::Hold;
use super::{EXPIRY_ERROR_MS, QUEUES, Storm, Weather, words};
use crate::survey::Copy;

/// A queue that jobs are moved to and never added to.
const ASIDE: &str = "blue";
/// Where nothing goes wrong all holders know of a move after this.
const KNOWN_IN_FAIR_WEATHER_MS: u64 = 20;
/// Holders that disagreed when all was well, or where nothing gets lost, agree after this and the
/// retry of the job: whoever is about to queue it asks the others.
const AGREED_WITHIN_MS: u64 = 2500;
/// A move makes a job wait for no longer than this.
const LONGEST_DELAY_MS: u64 = 3000;

/// Whether jobs are moved, and what is known of them.
pub struct Moves {
    /// Draws apart from the rest, so that runs without moves stay what they are.
    rng: Rng,
    pub are_used: bool,
    /// The last move of each job.
    last: BTreeMap<Vec<u8>, Moved>,
    /// Since when holders disagree about a job's queue.
    disagree_since: BTreeMap<Vec<u8>, u64>,
    /// Moves that were made, and deliveries of moved jobs.
    pub made: usize,
    pub delivered: usize,
    /// Moved jobs that came from another queue than that of their last move.
    pub elsewhere: usize,
}

/// What was answered to a move.
#[derive(Clone, Debug)]
struct Moved {
    queue: String,
    at: u64,
    /// When all its moves were made.
    times: Vec<u64>,
    /// Another node moved it elsewhere at about the same time: one of the two queues it is.
    is_disputed: bool,
}

impl Moves {
    pub fn draw(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        let (last, disagree_since) = Default::default();
        Self { rng, are_used, last, disagree_since, made: 0, delivered: 0, elsewhere: 0 }
    }

    /// The queues that only moves bring jobs to.
    pub fn aside(&self) -> &'static [&'static str] {
        if self.are_used { &[ASIDE] } else { &[] }
    }
}

impl Storm {
    /// Somebody moves a job, or what is first in a queue, or purges that.
    pub(super) fn move_something(&mut self) {
        if !self.moves.are_used || self.moves.rng.below(10) >= 4 {
            return;
        }
        let n = self.moves.rng.index(self.sim.nodes.len());
        if !self.is_up(n) || self.sim.network.is_plain(n) {
            return;
        }
        let target = [QUEUES[0], QUEUES[1], ASIDE][self.moves.rng.index(3)];
        match self.moves.rng.below(8) {
            0 => self.move_first(n, target),
            1 if self.weather != Weather::Fair => self.purge_first(n, target),
            2 if self.policies.are_used() => self.redrive_first(n),
            _ => self.move_one(n, target),
        }
    }

    /// A job that the node has, in whatever state.
    fn draw_job(&mut self, n: usize) -> Option<(Vec<u8>, Copy)> {
        let mut known: Vec<Vec<u8>> = self.stories.keys().cloned().collect();
        while !known.is_empty() {
            let id = known.swap_remove(self.moves.rng.index(known.len()));
            if let Some(copy) = self.sim.copy_on(n, &id) {
                return Some((id, copy));
            }
        }
        None
    }

    fn move_one(&mut self, n: usize, target: &str) {
        let Some((id, copy)) = self.draw_job(n) else { return };
        let is_held = self.stories[&id].hold.is_some_and(|hold| hold.until > self.sim.now_ms);
        // Consumers that are in time say so before their retry, and not before a shorter delay.
        let is_in_hand = self.in_hand.iter().any(|job| job.id == id);
        let is_free = !is_held && (!is_in_hand || self.weather != Weather::Fair);
        // Or it would not come any more.
        let ends_at = self.stories[&id].wanted.as_ref().map_or(0, |wanted| wanted.expires_at);
        let has_time = ends_at > self.sim.now_ms + LONGEST_DELAY_MS + EXPIRY_ERROR_MS;
        let may_wait = copy.retry_secs > 0 && is_free && has_time && self.moves.rng.below(4) == 0;
        let delay_secs = if may_wait { 1 + self.moves.rng.below(3) } else { 0 };
        let line = match delay_secs {
            0 => format!("MOVEJOB {target} {}", String::from_utf8_lossy(&id)),
            secs => format!("MOVEJOB {target} {} DELAY {secs}", String::from_utf8_lossy(&id)),
        };
        let reply = self.ask(n, &line);
        let is_known = matches!(copy.state.as_str(), "active" | "queued");
        let due = i64::from(is_known);
        // It may be about to die of the end of its TTL.
        let is_ending = ends_at < self.sim.now_ms + EXPIRY_ERROR_MS;
        match reply {
            Some(Value::Integer(count)) if copy.retry_secs > 0 && !is_ending => {
                assert_eq!(count, due, "{line} of {copy:?}");
            }
            Some(Value::Integer(count)) => assert!(count <= due, "{line} of {copy:?}"),
            other => {
                self.check_refusal(&line, other.as_ref());
                // Nobody was answered, and it may have been moved all the same.
                if other.is_none() {
                    self.note_move(&id, target);
                    self.dispute(&id);
                }
                return;
            }
        }
        if reply != Some(Value::Integer(1)) {
            return;
        }
        self.note_move(&id, target);
        if let Some(reason) = copy.death("reason") {
            let story = self.stories.get_mut(&id).expect("it is known");
            story.die(&reason);
            story.revive(self.sim.now_ms + DEAD_TTL_SECS * 1000, is_in_hand);
        }
        if delay_secs > 0 {
            let (now, story) = (self.sim.now_ms, self.stories.get_mut(&id).expect("it is known"));
            story.hold(Hold::exact(now, u64::from(delay_secs) * 1000, true));
            story.was_moved_for_later = true;
        }
    }

    /// The first job of a queue on a node.
    fn first_of(&mut self, n: usize, queue: &str) -> Option<Vec<u8>> {
        let Value::Array(rows) = self.sim.look(n, &[b"QPEEK", queue.as_bytes(), b"1"]) else {
            panic!("QPEEK answers rows");
        };
        match rows.first()? {
            Value::Array(row) => match &row[1] {
                Value::Bulk(id) => Some(id.clone()),
                other => panic!("an ID is a bulk: {other:?}"),
            },
            other => panic!("a row is an array: {other:?}"),
        }
    }

    fn move_first(&mut self, n: usize, target: &str) {
        let source = QUEUES[usize::from(target == QUEUES[0])];
        let Some(id) = self.first_of(n, source) else { return };
        let line = format!("QMOVE {source} {target} COUNT 1");
        match self.ask(n, &line) {
            Some(Value::Integer(count)) => {
                assert_eq!(count, 1, "{line} of {}", id.escape_ascii());
                self.note_move(&id, target);
            }
            other => {
                self.check_refusal(&line, other.as_ref());
                self.dispute(&id);
            }
        }
    }

    /// A dead letter goes back to where it died, with the TTL that it had.
    fn redrive_first(&mut self, n: usize) {
        let queue = DEAD_QUEUES[self.moves.rng.index(DEAD_QUEUES.len())];
        let Some(id) = self.first_of(n, queue) else { return };
        let Some(copy) = self.sim.copy_on(n, &id) else { return };
        let line = format!("QREDRIVE {queue} COUNT 1");
        let origin = copy.death("queue");
        match (self.ask(n, &line), origin) {
            (Some(Value::Integer(1)), Some(origin)) => {
                self.note_move(&id, &origin);
                let now = self.sim.now_ms;
                let story = self.stories.entry(id).or_default();
                story.die(&copy.death("reason").expect("it is dead"));
                let ttl_ms = story.wanted.as_ref().map_or(0, |wanted| wanted.ttl_ms);
                story.revive(now + ttl_ms, false);
            }
            // Its queue is paused.
            (Some(Value::Integer(0)), Some(_)) if self.weather == Weather::Stormy => {}
            // A C node lost what it died of.
            (Some(Value::Integer(0)), None) => {}
            (reply, _) => {
                self.check_refusal(&line, reply.as_ref());
                self.dispute(&id);
            }
        }
    }

    fn purge_first(&mut self, n: usize, queue: &str) {
        if self.leaving[n] || self.moves.rng.below(4) > 0 {
            return;
        }
        let Some(id) = self.first_of(n, queue) else { return };
        let reply = self.ask(n, &format!("QPURGE {queue} COUNT 1"));
        let now = self.sim.now_ms;
        let story = self.stories.entry(id).or_default();
        story.was_purged = true;
        match reply {
            Some(Value::Integer(1)) => _ = story.acked_at.get_or_insert(now),
            None => story.may_be_acked = true,
            other => self.check_refusal("QPURGE", other.as_ref()),
        }
    }

    fn ask(&mut self, n: usize, line: &str) -> Option<Value> {
        let client = self.sim.connect_client(n, Resp::V2);
        self.sim.send(n, client, words(line));
        let reply = self.sim.take_replies(n, client).pop().map(|(_, reply)| reply);
        self.sim.disconnect_client(n, client);
        reply
    }

    /// Whether a command may be refused, or its node have died of it.
    fn check_refusal(&self, line: &str, reply: Option<&Value>) {
        let is_known = match reply {
            None => self.weather == Weather::Stormy,
            Some(Value::Error(text)) => {
                self.weather == Weather::Stormy
                    && (text.starts_with(b"PAUSED ") || text.starts_with(b"MISCONF "))
            }
            Some(_) => false,
        };
        assert!(is_known, "{line} answers {reply:?}");
    }

    fn note_move(&mut self, id: &[u8], queue: &str) {
        self.moves.made += 1;
        let at = self.sim.now_ms;
        let clock_error_ms = if self.weather == Weather::Stormy { u64::MAX } else { UNDER_WAY_MS };
        let before = self.moves.last.get(id);
        let is_disputed = before.is_some_and(|before| {
            before.queue != queue && (at - before.at < clock_error_ms || before.is_disputed)
        });
        let mut times = before.map(|before| before.times.clone()).unwrap_or_default();
        times.push(at);
        self.moves.last.insert(id.to_vec(), Moved { queue: queue.into(), at, times, is_disputed });
    }

    pub(super) fn was_moved(&self, id: &[u8]) -> bool {
        self.moves.last.contains_key(id)
    }

    /// Whether what was sent before a job was moved may still be under way, or not settled yet.
    pub(super) fn was_just_moved(&self, id: &[u8]) -> bool {
        let last = self.moves.last.get(id);
        last.is_some_and(|last| self.sim.now_ms < last.at + UNDER_WAY_MS)
    }

    /// Whether a job was moved at about the time at which it was held, and that by another move than
    /// the one that holds it, if one does: words that cross a move change nothing.
    pub(super) fn is_hold_crossed(&self, id: &[u8], since: u64, by_move: bool) -> bool {
        let Some(last) = self.moves.last.get(id) else { return false };
        let near_ms = match self.weather {
            Weather::Fair => KNOWN_IN_FAIR_WEATHER_MS,
            _ => UNDER_WAY_MS,
        };
        let near = last.times.iter().filter(|at| at.abs_diff(since) < near_ms).count();
        near > usize::from(by_move)
    }

    /// Where a job is, is not known.
    fn dispute(&mut self, id: &[u8]) {
        if let Some(last) = self.moves.last.get_mut(id) {
            last.is_disputed = true;
        }
    }

    /// A moved job that is delivered comes from the queue of its last move.
    pub(super) fn check_queue(&mut self, n: usize, row: &[Value], at: u64) {
        let (Value::Bulk(queue), Value::Bulk(id)) = (&row[0], &row[1]) else {
            panic!("names and IDs are bulks: {row:?}");
        };
        let Some(last) = self.moves.last.get(id) else { return };
        self.moves.delivered += 1;
        if last.queue.as_bytes() == queue {
            return;
        }
        let queue = String::from_utf8_lossy(queue);
        if is_dead_queue(&queue) && self.sim.copy_on(n, id).is_none_or(|copy| copy.dead.is_some()) {
            // It died before, or has died since.
            let last = self.moves.last.get_mut(id).expect("it was moved");
            if at >= last.at + UNDER_WAY_MS {
                last.queue = queue.into_owned();
                last.at = at;
            }
            return;
        }
        self.moves.elsewhere += 1;
        let known_after_ms = match self.weather {
            Weather::Fair => KNOWN_IN_FAIR_WEATHER_MS,
            Weather::Hazy => UNDER_WAY_MS,
            Weather::Windy | Weather::Parted | Weather::Stormy => return,
        };
        if last.is_disputed || at < last.at + known_after_ms || self.sim.network.is_plain(n) {
            return;
        }
        let told = format!("{} on node {n} at {at}: {last:?}", id.escape_ascii());
        let copies = self.sim.survey();
        let copies = copies.get(id).map_or(&[][..], Vec::as_slice);
        assert!(!know_each_other(copies), "a moved job comes from its queue, {told}, {copies:?}");
    }

    /// Able holders that know each other agree about where a job is, soon after all is well.
    pub(super) fn check_agreement(&mut self) {
        let is_quiet = matches!(self.weather, Weather::Fair | Weather::Hazy);
        if !self.moves.are_used || !is_quiet && self.healed_at.is_none() {
            return;
        }
        let now = self.sim.now_ms;
        let plain: Vec<String> = (0..self.sim.nodes.len())
            .filter(|n| self.sim.network.is_plain(*n))
            .map(|n| self.sim.nodes[n].engine.cluster().my_id().to_string())
            .collect();
        let mut still = BTreeMap::new();
        for (id, copies) in self.sim.survey() {
            let is_live = |copy: &&Copy| matches!(copy.state.as_str(), "active" | "queued");
            let is_able = |copy: &&Copy| !plain.contains(&copy.node_id);
            let able: Vec<&Copy> = copies.iter().filter(is_live).filter(is_able).collect();
            let agree = able.iter().all(|copy| copy.queue == able[0].queue);
            if agree || !know_each_other(&copies) {
                continue;
            }
            let since = self.moves.disagree_since.get(&id).copied().unwrap_or(now);
            let retry_ms = 1000 * u64::try_from(able[0].retry_secs).expect("it is positive");
            let held_until = self.stories.get(&id).map_or(0, |story| story.held_until);
            let until = since.max(held_until) + retry_ms + AGREED_WITHIN_MS;
            assert!(now < until, "holders agree, {} since {since}: {copies:?}", id.escape_ascii());
            still.insert(id, since);
        }
        self.moves.disagree_since = still;
    }
}
