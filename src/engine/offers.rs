//! Urgent jobs that wait on one node, while clients of another get less urgent ones.
//!
//! A node asks the others for jobs when its clients find none ([`super::need_jobs`]). One that
//! has work of its own does not, and an urgent job elsewhere would wait behind all of that. So a
//! node *offers* its urgent jobs, those with a priority better than the default: when some have
//! waited for 25 ms, it sends the able nodes OFFER. It does so at once when they are better than
//! what it offered last, and else after a wait that doubles for as long as nobody answers.
//!
//! Whoever receives an offer remembers it. The answer is a NEEDJOBS with
//! [`MessageFlags::BETTER_ONLY`] from a node whose clients fetched from the queue in the last
//! seconds, and have something worse in front of them. It is sent at once, or later, by the fetch
//! that makes it so. Only jobs that are strictly better are lent, whatever the import rates.
//!
//! An asker looks as far ahead as its clients took jobs in the 100 ms up to their last fetch, one
//! job at least, and wants no more than these. Were it to look at its first job alone, its clients
//! would get a worse one each time that it has to ask again. What it asked one node for it
//! expects, for as long as a message there and back takes: so it does not gather from many nodes
//! what it needs once. Who has none to lend any more answers with an offer of none. A job that came
//! this way is not lent on for a second: it is about to be taken.
//!
//! A node that begins to serve a queue need not ask around, since it remembers what was offered,
//! and offers are repeated. So no message is sent for queues that have no urgent jobs, and all that
//! is kept here of a queue stands in a box that these do not have.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::limits::JOBS_PER_MESSAGE_MAX;
use crate::base::ranked::{RANKS, Ranked as _};
use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags, join_priority, split_priority};
use crate::proto::priority::Priority;

use super::Engine;
use super::delivery::Taker;
use super::jobs::{JobRef, rank_of};
use super::node_set::NodeRef;
use super::queue::QueueRef;
use super::your_jobs::LENT_BYTES_MAX;

/// Jobs of these ranks are offered.
const URGENT_RANKS: usize = rank_of(Priority::DEFAULT);
/// How long an urgent job waits before it is offered.
const RIPE_AFTER_MS: u64 = 25;
/// The same for one that another node lent because its clients take such jobs.
const RIPE_AFTER_LENT_MS: u64 = 1000;
/// From one offer to the next; the wait doubles while nobody answers.
const OFFER_AGAIN_MIN_MS: u64 = 25;
const OFFER_AGAIN_MAX_MS: u64 = 10_000;
/// More than it takes to come from the shortest wait to the longest.
const DOUBLINGS_MAX: u32 = 9;
/// An offer is remembered for longer than it takes until it is repeated.
const OFFER_VALID_MS: u64 = 15_000;
/// A queue is served if a client fetched from it in this time.
const SERVED_WITHIN_MS: u64 = 5000;
/// What a node was asked for is expected for this long.
const EXPECTED_FOR_MS: u64 = 25;

/// Jobs that are looked at for some to lend: those that stay may stand in front of them.
const LOOKED_AT_MAX: usize = 4 * JOBS_PER_MESSAGE_MAX;

/// What is known of the urgent jobs of a queue, here and elsewhere.
#[derive(Debug, Default)]
pub struct Urgent {
    /// When the jobs of each urgent rank may be offered; of no meaning where there are none.
    ripe_at: [MonoMs; URGENT_RANKS],
    /// When jobs of each rank may be lent on that came because they are better.
    lent_ripe_at: [MonoMs; RANKS],
    /// The best that was offered last, if the others may still count on it.
    offered: Option<Priority>,
    offered_at: MonoMs,
    /// Offers since somebody answered; at most [`DOUBLINGS_MAX`].
    tries: u32,
    /// How many links had been made at the last offer.
    link_count: u64,
    /// When this node is to see to its own urgent jobs.
    due_at: Option<MonoMs>,
    /// What others offered.
    received: BTreeMap<NodeRef, ReceivedOffer>,
    taken: TakenJobs,
    /// Jobs that others were asked for, and when.
    expected: (usize, MonoMs),
}

/// The offer of a node.
#[derive(Clone, Copy, Debug)]
struct ReceivedOffer {
    best: Priority,
    /// Jobs that were offered and not asked for yet.
    left: usize,
    at: MonoMs,
    /// When jobs were last asked for: those that come are known by it.
    asked_at: Option<MonoMs>,
}

/// How many jobs clients took in the 100 ms up to their last fetch, in quarters of it.
#[derive(Clone, Copy, Debug, Default)]
struct TakenJobs {
    counts: [usize; QUARTERS],
    /// The newest quarter, counted from the beginning of time.
    newest: u64,
}

const QUARTERS: usize = 4;
const QUARTER_MS: u64 = 25;

impl TakenJobs {
    fn note(&mut self, now: MonoMs) {
        let quarter = now.0 / QUARTER_MS;
        for passed in self.newest + 1..=quarter.min(self.newest + QUARTERS as u64) {
            self.counts[(passed % QUARTERS as u64) as usize] = 0;
        }
        self.newest = quarter;
        self.counts[(quarter % QUARTERS as u64) as usize] += 1;
    }

    fn count(&self) -> usize {
        self.counts.iter().sum()
    }
}

impl Urgent {
    fn wait_ms(&self) -> u64 {
        (OFFER_AGAIN_MIN_MS << self.tries.saturating_sub(1)).min(OFFER_AGAIN_MAX_MS)
    }

    /// Forgets what others offered long ago; whether nothing is left to be known.
    pub fn drop_expired(&mut self, now: MonoMs) -> bool {
        self.received.retain(|_, offer| now.ms_since(offer.at) < OFFER_VALID_MS);
        self.received.is_empty() && self.due_at.is_none()
    }

    /// When this node sees to its urgent jobs.
    pub fn due_at(&self) -> Option<MonoMs> {
        self.due_at
    }

    /// Whether a node lends jobs because it was asked for better ones.
    fn was_asked(&self, node: NodeRef, now: MonoMs) -> bool {
        let asked_at = self.received.get(&node).and_then(|offer| offer.asked_at);
        asked_at.is_some_and(|at| now.ms_since(at) < RIPE_AFTER_LENT_MS)
    }
}

/// When the urgent jobs of which queue are to be seen to.
#[derive(Debug, Default)]
pub struct Offers {
    due: BTreeSet<(MonoMs, QueueRef)>,
}

impl Offers {
    pub fn next_at(&self) -> MonoMs {
        self.due.first().map_or(MonoMs::NEVER, |(at, _)| *at)
    }

    /// Whether this is the time of a queue, for the invariants.
    pub fn contains(&self, at: MonoMs, q: QueueRef) -> bool {
        self.due.contains(&(at, q))
    }
}

impl Engine {
    /// A job of an urgent rank came to its queue.
    pub(super) fn note_urgent(&mut self, q: QueueRef, rank: usize) {
        if rank >= URGENT_RANKS {
            return;
        }
        let ripe_at = self.now.mono.plus_ms(RIPE_AFTER_MS);
        let entry = &mut self.queues[q];
        let is_first = entry.live().is_some_and(|queue| queue.jobs.len_of(rank) == 1);
        let urgent = entry.urgent.get_or_insert_default();
        let rank_ripe_at = &mut urgent.ripe_at[rank];
        *rank_ripe_at = if is_first { ripe_at } else { ripe_at.min(*rank_ripe_at) };
        self.see_to_urgent_at(q, ripe_at);
    }

    /// An urgent job was queued that a node lent: if it was asked for that, the job is not
    /// offered on at once. Tells whether it was.
    pub(super) fn came_by_offer(&mut self, q: QueueRef, rank: usize, from: NodeRef) -> bool {
        let now = self.now.mono;
        let entry = &mut self.queues[q];
        let is_first = entry.live().is_some_and(|queue| queue.jobs.len_of(rank) == 1);
        let Some(urgent) = entry.urgent.as_mut().filter(|urgent| urgent.was_asked(from, now))
        else {
            return false;
        };
        // It sends at once all that it lends.
        urgent.expected.0 = 0;
        let lent_ripe_at = now.plus_ms(RIPE_AFTER_LENT_MS);
        urgent.lent_ripe_at[rank] = lent_ripe_at;
        if let Some(ripe_at) = urgent.ripe_at.get_mut(rank).filter(|_| is_first) {
            *ripe_at = lent_ripe_at;
        }
        true
    }

    /// Sees to the urgent jobs of a queue, if it has some: they may be lent again.
    pub(super) fn see_to_urgent_now(&mut self, q: QueueRef) {
        let entry = &mut self.queues[q];
        let has_some = |rank| entry.live().is_some_and(|queue| queue.jobs.len_of(rank) > 0);
        if (0..URGENT_RANKS).any(has_some) {
            entry.urgent.get_or_insert_default();
            self.see_to_urgent_at(q, self.now.mono);
        }
    }

    /// Sees to the urgent jobs of a queue at this time, or before.
    pub(super) fn see_to_urgent_at(&mut self, q: QueueRef, at: MonoMs) {
        let Some(urgent) = &mut self.queues[q].urgent else { return };
        if urgent.due_at.is_some_and(|due_at| due_at <= at) {
            return;
        }
        if let Some(due_at) = urgent.due_at.replace(at) {
            self.offers.due.remove(&(due_at, q));
        }
        self.offers.due.insert((at, q));
    }

    /// Sees to the urgent jobs of one queue, if it is time; tells whether it was.
    pub(super) fn offer_some(&mut self) -> bool {
        let now = self.now.mono;
        let Some((at, q)) = self.offers.due.first().copied().filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.offers.due.pop_first();
        // The queue may be gone, and its place another one's.
        let urgent = self.queues.get_mut(q).and_then(|entry| entry.urgent.as_mut());
        if let Some(urgent) = urgent.filter(|urgent| urgent.due_at == Some(at)) {
            urgent.due_at = None;
            match self.offer(q) {
                Some(next_at) => self.see_to_urgent_at(q, next_at),
                None => self.queues.drop_urgent(q, now),
            }
        }
        true
    }

    /// Offers the urgent jobs of a queue, if it is time. Returns when they are to be seen to
    /// again, if there are some that can be lent.
    fn offer(&mut self, q: QueueRef) -> Option<MonoMs> {
        let now = self.now.mono;
        let entry = &mut self.queues[q];
        let (queue, urgent) = entry.live_and_urgent()?;
        let waiting = |rank: &usize| queue.jobs.len_of(*rank) > 0 && !queue.pause.is_out();
        let waiting: Vec<usize> = (0..URGENT_RANKS).filter(waiting).collect();
        let ripe_at = |rank: &&usize| urgent.ripe_at[**rank];
        let Some(first_ripe_at) = waiting.iter().map(|rank| ripe_at(&rank)).min() else {
            urgent.offered = None;
            return None;
        };
        let Some(best) = waiting.iter().find(|rank| ripe_at(rank) <= now) else {
            return Some(first_ripe_at);
        };
        let count: usize = waiting.iter().map(|rank| queue.jobs.len_of(*rank)).sum();
        // Ranks are counted from 0.
        let priority = Priority::new(*best as u8 + 1)?;
        let is_new = urgent.offered.is_none_or(|offered| priority < offered)
            || urgent.link_count != self.link_count;
        let is_due = urgent.offered_at.plus_ms(urgent.wait_ms()) <= now;
        let better_ripe_at = waiting.iter().filter(|rank| *rank < best).map(|rank| ripe_at(&rank));
        let better_ripe_at = better_ripe_at.min().unwrap_or(MonoMs::NEVER);
        if is_new {
            urgent.tries = 0;
        }
        let is_sent = is_new || is_due;
        if is_sent {
            urgent.offered = Some(priority);
            urgent.offered_at = now;
            urgent.tries = (urgent.tries + 1).min(DOUBLINGS_MAX + 1);
            urgent.link_count = self.link_count;
        }
        let next_at = urgent.offered_at.plus_ms(urgent.wait_ms()).min(better_ripe_at);
        if is_sent {
            let able = self.cluster.able(Abilities::OFFER);
            let number = join_priority(priority.number().into(), count);
            let message = Message::Offer { queue: &self.queues[q].name, number };
            self.cluster.send(&mut self.out, &able, MessageFlags::NONE, &message);
        }
        Some(next_at)
    }

    /// OFFER: a node has urgent jobs that wait.
    pub(super) fn on_offer(&mut self, from: NodeRef, name: &[u8], number: u32) {
        let (best, left) = split_priority(number);
        let Some(best) = u8::try_from(best).ok().and_then(Priority::new) else { return };
        let now = self.now.mono;
        let Some(q) = self.queues.find(name).or_else(|| self.queue_to_ask_for(name)) else {
            return;
        };
        let urgent = self.queues[q].urgent.get_or_insert_default();
        let asked_at = urgent.received.get(&from).and_then(|offer| offer.asked_at);
        if left == 0 {
            urgent.expected.0 = 0;
        }
        urgent.received.insert(from, ReceivedOffer { best, left, at: now, asked_at });
        self.answer_offers(q);
    }

    /// A client took a job of a queue of which urgent jobs are known.
    pub(super) fn note_taken(&mut self, q: QueueRef) {
        if let Some(urgent) = &mut self.queues[q].urgent {
            urgent.taken.note(self.now.mono);
            self.answer_offers(q);
        }
    }

    /// Asks for jobs that were offered and are better than what clients here would get next.
    fn answer_offers(&mut self, q: QueueRef) {
        let now = self.now.mono;
        if self.cluster.is_leaving() {
            return;
        }
        let entry = &mut self.queues[q];
        let Some((queue, urgent)) = entry.live_and_urgent() else { return };
        let is_served = queue.served_at.is_some_and(|at| now.ms_since(at) < SERVED_WITHIN_MS);
        if !is_served || queue.pause.is_out() {
            return;
        }
        let ahead = urgent.taken.count().clamp(1, JOBS_PER_MESSAGE_MAX);
        // Where there is nothing clients wait, and every job is lent to them at once.
        let last = ahead.min(queue.jobs.len()).checked_sub(1);
        let Some(worst) = last.and_then(|last| queue.jobs.rank_at(last)) else { return };
        let (expected, expected_at) = urgent.expected;
        let expected = if now.ms_since(expected_at) < EXPECTED_FOR_MS { expected } else { 0 };
        let is_open =
            |offer: &ReceivedOffer| offer.left > 0 && now.ms_since(offer.at) < OFFER_VALID_MS;
        let open = urgent.received.iter_mut().filter(|(_, offer)| is_open(offer));
        let Some((&node, offer)) = open.min_by_key(|(node, offer)| (offer.best, **node)) else {
            return;
        };
        let as_good: usize = (0..=rank_of(offer.best)).map(|rank| queue.jobs.len_of(rank)).sum();
        let provided = as_good + expected;
        // While an answer is under way, only what is worth another message.
        let enough = if expected > 0 { ahead.div_ceil(2) } else { ahead };
        if provided >= enough || worst <= rank_of(offer.best) {
            return;
        }
        let wanted = (ahead - provided).min(offer.left);
        offer.left -= wanted;
        offer.asked_at = Some(now);
        urgent.expected = (expected + wanted, now);
        let number = join_priority(worst as u16 + 1, wanted);
        let message = Message::NeedJobs { queue: &self.queues[q].name, count: number };
        self.cluster.send(&mut self.out, &[node], MessageFlags::BETTER_ONLY, &message);
    }

    /// A NEEDJOBS with BETTER_ONLY: a node wants jobs that are better than its own.
    pub(super) fn on_ask_for_better(&mut self, from: NodeRef, name: &[u8], number: u32) {
        let Some(q) = self.queues.find(name) else { return };
        let is_paused = self.queues[q].live().is_none_or(|queue| queue.pause.is_out());
        if is_paused {
            return;
        }
        let (head, count) = split_priority(number);
        let ranks_end = usize::from(head).saturating_sub(1);
        if self.lend_better(q, from, count.min(JOBS_PER_MESSAGE_MAX), ranks_end) == 0 {
            // Whoever expects jobs is to ask another node.
            let message = Message::Offer {
                queue: &self.queues[q].name,
                number: join_priority(Priority::LAST.number().into(), 0),
            };
            self.cluster.send(&mut self.out, &[from], MessageFlags::NONE, &message);
            return;
        }
        let now = self.now.mono;
        if let Some(urgent) = &mut self.queues[q].urgent {
            // Somebody answered: the next offer waits no longer than the shortest time.
            urgent.tries = 0;
            let again_at = urgent.offered_at.plus_ms(OFFER_AGAIN_MIN_MS).max(now);
            self.see_to_urgent_at(q, again_at);
        }
        // What is left may be worse than what others offered.
        self.answer_offers(q);
    }

    /// Lends up to `count` jobs of lower ranks than `ranks_end`, but for those that came a moment
    /// ago because they were offered. Returns how many.
    fn lend_better(&mut self, q: QueueRef, to: NodeRef, count: usize, ranks_end: usize) -> usize {
        let now = self.now.mono;
        if !self.cluster.is_linked(to) {
            return 0;
        }
        let Some((queue, urgent)) = self.queues[q].live_and_urgent() else { return 0 };
        let stays = |r: &JobRef| {
            let job = &self.jobs[*r];
            let is_new = job.queued_for_ms(now).is_none_or(|ms| ms < RIPE_AFTER_LENT_MS);
            job.is_queued_as_borrowed() && urgent.lent_ripe_at[job.rank()] > now && is_new
        };
        let is_better = |r: &JobRef| self.jobs[*r].rank() < ranks_end;
        let better = queue.jobs.iter().take(LOOKED_AT_MAX).take_while(is_better);
        let chosen: Vec<JobRef> = better.filter(|r| !stays(r)).take(count).collect();
        let mut jobs = Vec::new();
        let mut bytes = 0;
        for r in chosen {
            bytes += self.lent_bytes(r);
            if bytes > LENT_BYTES_MAX && !jobs.is_empty() {
                break;
            }
            self.fetch_this(q, r, Taker::NodeWithWorse(to));
            jobs.push(r);
        }
        if jobs.is_empty() { 0 } else { self.send_lent(to, jobs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_counts_for_a_tenth_of_a_second_before_the_last() {
        let mut taken = TakenJobs::default();
        let start = MonoMs(1_000_000);
        (0..4).for_each(|i| taken.note(start.plus_ms(i * 20)));
        assert_eq!(taken.count(), 4);
        taken.note(start.plus_ms(110));
        assert_eq!(taken.count(), 3);
        taken.note(start.plus_ms(1_000_000));
        assert_eq!(taken.count(), 1);
    }

    #[test]
    fn waits_between_offers_double_from_25_ms_to_10_s() {
        let waits: Vec<u64> = (0..=DOUBLINGS_MAX + 1)
            .map(|tries| Urgent { tries, ..Urgent::default() }.wait_ms())
            .collect();
        assert_eq!(waits[..4], [25, 25, 50, 100]);
        assert_eq!(waits[waits.len() - 1], OFFER_AGAIN_MAX_MS);
    }
}
