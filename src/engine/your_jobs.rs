//! Lending jobs to nodes that asked for them.
//!
//! A job that is lent stays here too, active, with its retry running: the borrower is one more
//! holder, and if it dies with the job, the job comes back. A NEEDJOBS is answered at once with
//! what is there: at most half of the queue, because this node may have consumers of its own,
//! and nothing where this node imports jobs of that queue itself, or two nodes would lend each
//! other the same jobs for ever.
//!
//! A standing ask of an able node, whose clients are known to wait, is answered with as much as
//! it wants. The rest is remembered, and sent as jobs come for which no client waits here, until
//! the ask is ended or grows old. So a job goes to where somebody waits, and does not stay on a
//! node that no longer needs it.
//!
//! Differs from C: of a C node's NEEDJOBS that found nothing one job is remembered too,
//! so that its clients need not wait until it asks again; when it has got that one, it
//! asks for more. More are not: its clients may be gone, and it cannot say so.

use std::collections::BTreeMap;

use crate::base::limits::JOBS_PER_MESSAGE_MAX;
use crate::base::ranked::Ranked as _;
use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags, YourJobs};
use crate::proto::job_record::JobRecord;

use super::Engine;
use super::delivery::Taker;
use super::jobs::{JobRef, Knows, Nack};
use super::node_set::{ME, NodeRef};
use super::queue::QueueRef;
use super::trace::{Event, Gone};

/// How long an ask is remembered, in ms.
pub const ASK_VALID_MS: u64 = 30_000;
/// An ask from another zone is passed over for this long at most, in ms, while there are jobs.
const PASSED_OVER_MAX_MS: u64 = 1000;
/// So many jobs are passed over that may not be lent to a node, before it gets none.
const PASSED_OVER_MAX: usize = 100;
/// No further job goes into a YOURJOBS once its bodies have this many bytes.
pub(super) const LENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The nodes that want jobs of a queue.
#[derive(Debug, Default)]
pub struct Asks(BTreeMap<NodeRef, Ask>);

#[derive(Clone, Copy, Debug)]
struct Ask {
    /// Jobs still wanted.
    credit: usize,
    expire_at: MonoMs,
    /// The one that was served longest ago is served next, of those in this node's zone first.
    served_at: MonoMs,
    /// Nearer ones were served though its turn had come.
    passed_over: Option<PassedOver>,
}

/// Since when a node is passed over, and when it was last.
#[derive(Clone, Copy, Debug)]
struct PassedOver {
    since: MonoMs,
    last_at: MonoMs,
}

impl PassedOver {
    /// It is passed over once more. Where jobs come seldom, the nearer ones may have them all.
    fn again(before: Option<Self>, now: MonoMs) -> Self {
        let since = before.filter(|before| before.goes_on(now)).map_or(now, |before| before.since);
        Self { since, last_at: now }
    }

    fn goes_on(&self, now: MonoMs) -> bool {
        now.ms_since(self.last_at) < PASSED_OVER_MAX_MS
    }
}

impl Asks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the asks whose time is over.
    pub fn drop_expired(&mut self, now: MonoMs) {
        self.0.retain(|_, ask| ask.expire_at > now);
    }

    /// Remembers what a node wants, at least what it wanted before.
    fn remember(&mut self, node: NodeRef, count: usize, now: MonoMs) {
        let expire_at = now.plus_ms(ASK_VALID_MS);
        let ask = self.0.entry(node).or_insert(Ask {
            credit: 0,
            expire_at,
            served_at: now,
            passed_over: None,
        });
        ask.credit = ask.credit.max(count);
        ask.expire_at = expire_at;
    }

    fn forget(&mut self, node: NodeRef) {
        self.0.remove(&node);
    }

    /// Takes note of jobs sent.
    fn sent(&mut self, node: NodeRef, count: usize, now: MonoMs) {
        if let Some(ask) = self.0.get_mut(&node) {
            ask.credit = ask.credit.saturating_sub(count);
            ask.served_at = now;
            ask.passed_over = None;
            if ask.credit == 0 {
                self.0.remove(&node);
            }
        }
    }

    /// The node to be served next, and how many jobs it wants.
    ///
    /// Those that are near go first, lest jobs cross from site to site and back; but who was passed
    /// over for a second has its turn. All that are passed over count from then, so that several
    /// need not wait for a second each, one behind the other.
    fn next(&mut self, now: MonoMs, is_near: impl Fn(NodeRef) -> bool) -> Option<(NodeRef, usize)> {
        self.drop_expired(now);
        let has_turn = |ask: &Ask| {
            let passed_over = ask.passed_over.filter(|passed_over| passed_over.goes_on(now))?;
            let ms = now.ms_since(passed_over.since);
            (ms >= PASSED_OVER_MAX_MS).then_some(passed_over.since)
        };
        let waits = self.0.iter().filter_map(|(node, ask)| Some((has_turn(ask)?, node, ask)));
        if let Some((_, node, ask)) = waits.min_by_key(|(since, ..)| *since) {
            return Some((*node, ask.credit));
        }
        let (&oldest, ask) = self.0.iter().min_by_key(|(_, ask)| ask.served_at)?;
        let near = self.0.iter().filter(|(node, _)| is_near(**node));
        let Some((&node, near)) = near.min_by_key(|(_, ask)| ask.served_at) else {
            return Some((oldest, ask.credit));
        };
        let near = *near;
        for (_, far) in self.0.iter_mut().filter(|(_, ask)| ask.served_at < near.served_at) {
            far.passed_over = Some(PassedOver::again(far.passed_over, now));
        }
        Some((node, near.credit))
    }
}

impl Engine {
    /// NEEDJOBS: a node wants up to `count` jobs of a queue. A standing ask for 0 jobs ends
    /// the one before.
    pub(super) fn on_need_jobs(
        &mut self,
        from: NodeRef,
        name: &[u8],
        count: u32,
        flags: MessageFlags,
    ) {
        let asked = usize::try_from(count).unwrap_or(usize::MAX).min(JOBS_PER_MESSAGE_MAX);
        if flags.contains(MessageFlags::STANDING) {
            self.on_standing_ask(from, name, asked);
            return;
        }
        let found = self.queues.find(name);
        if let Some(q) = found
            && let Some(queue) = self.queues[q].live()
            && !queue.jobs.is_empty()
        {
            let len = queue.jobs.len();
            if !queue.pause.is_out() && queue.imports.rate(self.now.mono) == 0 {
                let lent = if len < asked * 2 { len / 2 } else { asked };
                self.lend(q, from, lent.max(1));
            }
        } else if !self.cluster.is_able(from, Abilities::STANDING_ASKS)
            && let Some(q) = found.or_else(|| self.queue_to_ask_for(name))
        {
            self.queues[q].asks.remember(from, 1, self.now.mono);
        }
    }

    fn on_standing_ask(&mut self, from: NodeRef, name: &[u8], wanted: usize) {
        if wanted == 0 {
            if let Some(q) = self.queues.find(name) {
                self.queues[q].asks.forget(from);
                self.queues.drop_unused(q);
            }
        } else if let Some(q) = self.queues.find(name).or_else(|| self.queue_to_ask_for(name)) {
            self.queues[q].asks.remember(from, wanted, self.now.mono);
            self.queues.mark_ready(q);
        }
    }

    /// A name that is known here only because of what a node wants or offers; not when memory is
    /// short.
    pub(super) fn queue_to_ask_for(&mut self, name: &[u8]) -> Option<QueueRef> {
        (self.memory_level == 0).then(|| self.queues.entry(name))
    }

    /// Sends jobs of a queue, for which no client waits here, to a node that wants some. If
    /// there is more to lend it is done in a later turn. Returns how many jobs were sent.
    pub(super) fn serve_asks(&mut self, q: QueueRef) -> usize {
        while let Some((node, wanted)) = self.next_ask(q) {
            let lent = match self.cluster.is_reachable(node) {
                true => self.lend(q, node, wanted),
                false => 0,
            };
            if lent > 0 {
                if self.next_ask(q).is_some() {
                    self.queues.lend_later(q);
                }
                return lent;
            }
            // It is out of reach, or has these jobs in another queue: it will ask again.
            self.queues[q].asks.forget(node);
        }
        0
    }

    /// The node that is next to get jobs of a queue, and how many it wants.
    fn next_ask(&mut self, q: QueueRef) -> Option<(NodeRef, usize)> {
        let now = self.now.mono;
        let entry = self.queues.get_mut(q)?;
        let queue = entry.live()?;
        let may_lend = queue.waiters.is_empty() && !queue.jobs.is_empty() && !queue.pause.is_out();
        let cluster = &self.cluster;
        if may_lend { entry.asks.next(now, |node| cluster.is_near(node)) } else { None }
    }

    /// Sends up to `count` of a queue's first jobs. At-most-once jobs leave this node. Returns
    /// how many were sent.
    fn lend(&mut self, q: QueueRef, to: NodeRef, count: usize) -> usize {
        if !self.cluster.is_linked(to) {
            return 0;
        }
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < count && bytes < LENT_BYTES_MAX {
            let Some(r) = self.fetch(q, Taker::Node(to)) else { break };
            bytes += self.lent_bytes(r);
            jobs.push(r);
        }
        if jobs.is_empty() {
            return 0;
        }
        self.queues[q].asks.sent(to, jobs.len(), self.now.mono);
        self.send_lent(to, jobs)
    }

    /// What a job adds to a YOURJOBS, about, in bytes.
    pub(super) fn lent_bytes(&self, r: JobRef) -> usize {
        self.queues[self.jobs[r].queue].name.len() + self.jobs[r].body.len()
    }

    /// Sends jobs that were fetched for a node. Returns how many.
    pub(super) fn send_lent(&mut self, to: NodeRef, jobs: Vec<JobRef>) -> usize {
        let lent = jobs.len();
        self.send_your_jobs(to, &jobs);
        for r in jobs {
            if self.jobs[r].is_at_most_once() {
                self.unregister(r, Gone::PassedOn);
            }
        }
        lent
    }

    /// YOURJOBS: a node lends jobs; they go straight to their queues, paused or not.
    pub(super) fn on_your_jobs(&mut self, from: NodeRef, jobs: YourJobs<'_>) {
        for record in jobs.iter() {
            if let Some(q) = self.queues.find(record.queue)
                && let Some(queue) = self.queues[q].live_mut()
            {
                queue.imports.use_credit();
            }
            if self.is_acked_here(&record.id) {
                self.send_set_ack(from, record.id);
                continue;
            }
            let known = self.jobs.find(&record.id);
            let comes_back = known.is_some_and(|r| self.jobs[r].was_lent_or_fetched());
            let r = match known {
                Some(r) => {
                    let agrees = self.learn_place(from, r, &record);
                    if self.jobs.copy_wait(r).is_some() {
                        continue;
                    }
                    self.on_further_record(r, &record);
                    self.jobs.add_may_have(r, from);
                    self.trace(r, || Event::BorrowedFrom(from));
                    if !agrees && self.answer_outdated_lender(from, r, &record) {
                        continue;
                    }
                    r
                }
                None => self.take_in(from, &record),
            };
            if self.jobs[r].is_held() {
                self.answer_hold(from, r);
                continue;
            }
            if self.jobs[r].awaits_burial() {
                continue;
            }
            // Differs from C, which does so for a queued one too: its next requeue would be
            // silent then, and others would queue it beside.
            if self.jobs[r].is_active() {
                self.jobs.wait_as_first(r, self.now.mono);
            }
            if self.enqueue(r, Nack::No) {
                if comes_back {
                    // Differs from C. This node had it queued and lent it to another: where two
                    // holders queued a job at once, and each lent it, both borrowers would keep it,
                    // as the enqueue of a lent job is silent.
                    let others = self.holders_but(r, Some(from));
                    let queued = Message::Queued { id: record.id, hold_secs: 0 };
                    self.send_about(r, &others, MessageFlags::NONE, &queued);
                }
                let (q, rank) = (self.jobs[r].queue, self.jobs[r].rank());
                // What was offered does not show that clients here want more than there is.
                if !self.came_by_offer(q, rank, from) {
                    self.queues.revive(q, self.now.mono).imports.count(self.now.mono, from);
                }
            }
            if self.jobs[r].is_queued() {
                let of_able = self.cluster.is_able(from, Abilities::HOLDS);
                self.jobs.note_borrowed(r, of_able);
            }
        }
    }

    /// A node lent a job from the queue where it was before it was moved, and is answered with what
    /// it lacks. The lender does not have it queued any more, and perhaps nobody has: this node asks
    /// the other holders, and if that is so queues it where it is now. Returns whether it is left to
    /// that.
    fn answer_outdated_lender(&mut self, from: NodeRef, r: JobRef, record: &JobRecord<'_>) -> bool {
        let is_able = self.cluster.is_able(from, Abilities::ATTRIBUTES);
        let is_in_ours = *self.queues[self.jobs[r].queue].name == *record.queue;
        if is_able {
            self.send_moved(r, &[from]);
        } else if is_in_ours {
            self.jobs.note_knows(r, from, Knows::Place);
        } else {
            let working = Message::Working { id: record.id, hold_secs: 0 };
            self.send_about(r, &[from], MessageFlags::NONE, &working);
        }
        let is_refused = !is_in_ours || record.attributes.move_stamp().is_some();
        if is_refused && !self.jobs[r].is_held() && !self.jobs[r].is_at_most_once() {
            self.jobs.announce_and_queue(r, self.now.mono);
        }
        is_refused
    }

    /// The job of a queue that goes to a node first, where that is not the first one of all: a
    /// moved job does not go to a C node that has it in another queue. Outer `None` when there is
    /// none among the first ones.
    pub(super) fn first_to_lend(&self, q: QueueRef, to: NodeRef) -> Option<Option<JobRef>> {
        if self.cluster.is_able(to, Abilities::ATTRIBUTES) {
            return Some(None);
        }
        let jobs = &self.queues[q].live()?.jobs;
        let found = jobs.iter().take(PASSED_OVER_MAX).find(|r| !self.is_elsewhere_on(to, *r))?;
        Some((jobs.iter().next() != Some(found)).then_some(found))
    }

    /// A job that came from one of its holders and is new here.
    fn take_in(&mut self, from: NodeRef, record: &JobRecord<'_>) -> JobRef {
        let new = self.describe_copy(record);
        let r = self.register(new, || Event::BorrowedFrom(from));
        self.jobs.add_may_have(r, from);
        self.jobs.add_may_have(r, ME);
        self.jobs.note_knows(r, from, Knows::Place);
        self.log_loadjob(r);
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_is_served_in_turn_until_its_credit_or_its_time_is_over() {
        let mut asks = Asks::default();
        asks.remember(NodeRef(1), 2, MonoMs(10));
        asks.remember(NodeRef(2), 5, MonoMs(11));
        assert_eq!(asks.next(MonoMs(20), |_| false), Some((NodeRef(1), 2)));
        asks.sent(NodeRef(1), 1, MonoMs(20));
        assert_eq!(asks.next(MonoMs(21), |_| false), Some((NodeRef(2), 5)));
        asks.sent(NodeRef(2), 5, MonoMs(21));
        assert_eq!(asks.next(MonoMs(22), |_| false), Some((NodeRef(1), 1)));
        assert_eq!(asks.next(MonoMs(10 + ASK_VALID_MS), |_| false), None);
        assert!(asks.is_empty());
    }

    #[test]
    fn near_asks_go_first_and_others_wait_for_a_second_at_most() {
        let mut asks = Asks::default();
        let near = |node: NodeRef| node == NodeRef(2);
        asks.remember(NodeRef(1), 5, MonoMs(10));
        asks.remember(NodeRef(2), 5, MonoMs(11));
        for at in [5000, 5500, 5999] {
            assert_eq!(asks.next(MonoMs(at), near).map(|(node, _)| node), Some(NodeRef(2)));
            asks.sent(NodeRef(2), 1, MonoMs(at));
        }
        assert_eq!(asks.next(MonoMs(6000), near), Some((NodeRef(1), 5)));
        asks.sent(NodeRef(1), 1, MonoMs(6000));
        assert_eq!(asks.next(MonoMs(6001), near).map(|(node, _)| node), Some(NodeRef(2)));
    }

    #[test]
    fn near_asks_have_all_jobs_where_they_come_seldom_and_all_others_have_their_turn_at_once() {
        let mut asks = Asks::default();
        let near = |node: NodeRef| node == NodeRef(2);
        for (at, node) in (10..).zip([1, 2, 3, 4]) {
            asks.remember(NodeRef(node), 99, MonoMs(at));
        }
        let mut next = |at: u64| {
            let (node, _) = asks.next(MonoMs(at), near).expect("they wait");
            asks.sent(node, 1, MonoMs(at));
            node.0
        };
        assert_eq!([1000, 6000, 11_000, 16_000].map(&mut next), [2, 2, 2, 2]);
        assert_eq!([20_000, 20_500, 20_999].map(&mut next), [2, 2, 2]);
        assert_eq!([21_001, 21_002, 21_003, 21_004].map(&mut next), [1, 3, 4, 2]);
    }

    #[test]
    fn asking_again_prolongs_what_was_asked() {
        let mut asks = Asks::default();
        asks.remember(NodeRef(1), 2, MonoMs(10));
        asks.remember(NodeRef(1), 2, MonoMs(20_000));
        assert_eq!(asks.next(MonoMs(10 + ASK_VALID_MS), |_| false), Some((NodeRef(1), 2)));
        assert_eq!(asks.next(MonoMs(20_000 + ASK_VALID_MS), |_| false), None);
    }

    #[test]
    fn asking_again_does_not_lower_what_is_wanted() {
        let mut asks = Asks::default();
        asks.remember(NodeRef(1), 9, MonoMs(10));
        asks.remember(NodeRef(1), 1, MonoMs(12));
        assert_eq!(asks.next(MonoMs(20), |_| false), Some((NodeRef(1), 9)));
        asks.forget(NodeRef(1));
        assert!(asks.is_empty());
    }
}
