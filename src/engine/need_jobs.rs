//! Asking for jobs: a node with consumers and an empty queue asks the others.
//!
//! A queue has no home. Each node queues the jobs that its own producers brought, and a
//! consumer may be connected to any node; so jobs have to be carried to where somebody waits.
//! NEEDJOBS goes to everybody now and then, to find out who has jobs, and more often to
//! the nodes that sent some lately. Waits between requests double while nothing comes.
//! How the others answer is in [`super::your_jobs`].
//!
//! Asking again and again costs messages while nothing comes, and time until the next request
//! when something does. Between nodes that announced [`Abilities::STANDING_ASKS`] it is not
//! needed. Once clients wait, each other node is asked for a number of jobs (the *credit*), and
//! sends them as they come. It is asked again when the credit is used up or grows old, and
//! asked for 0 jobs when no client waits any longer.

use std::collections::BTreeMap;

use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags};

use super::node_set::NodeRef;
use super::queue::{QueueEntry, QueueRef};
use super::your_jobs::ASK_VALID_MS;
use super::{Engine, Storage};

/// Jobs that one NEEDJOBS asks for, as C does.
const ASK_MIN: u64 = 5;
const ASK_MAX: u64 = 100;
/// All nodes are asked after 2 s, then after twice as long each time, up to 30 s. C: 2 s and 30 s.
const BROADCAST_MIN_MS: u64 = 2000;
const BROADCAST_MAX_MS: u64 = 30_000;
/// The nodes that jobs came from are asked after 25 ms, then after twice as long each time.
const ASK_AGAIN_MIN_MS: u64 = 25;
const ASK_AGAIN_MAX_MS: u64 = 2000;
/// A node that sent jobs counts as a source for this long.
const SOURCE_VALID_MS: u64 = 5000;
/// Without an import for this long the rate is 0.
const RATE_VALID_MS: u64 = 5000;
const RATE_WINDOW_MS: u64 = 1000;
/// The rate is never taken over less than this, so as not to overestimate it.
const RATE_ELAPSED_MIN_MS: u64 = 50;

/// A standing ask covers the imports of this long, so that a steady flow costs few of
/// them.
const CREDIT_COVERS_MS: u64 = 20;
/// A standing ask is sent again after this, well before the others forget it.
const SEND_AGAIN_MS: u64 = ASK_VALID_MS / 3;
/// No client has waited for this long: the standing ask ends. Between two GETJOBs of one
/// consumer it does not.
const CANCEL_AFTER_MS: u64 = 100;

/// What a queue knows of jobs that came from other nodes.
#[derive(Debug, Default)]
pub struct Imports {
    /// Nodes that sent jobs, and when they last did.
    sources: BTreeMap<NodeRef, MonoMs>,
    current: Window,
    previous: Window,
    broadcast: AskBackoff,
    ask: AskBackoff,
    standing: Standing,
}

/// The ask that able nodes know of.
#[derive(Debug, Default)]
struct Standing {
    /// Jobs that others were asked for and did not send yet; 0 without an ask.
    credit: u32,
    sent_at: Option<MonoMs>,
    /// How many links had been made when it was sent.
    link_count: u64,
    waited_at: MonoMs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began_at: MonoMs,
    count: u64,
}

/// A wait that doubles with each try.
#[derive(Clone, Copy, Debug, Default)]
struct AskBackoff {
    tried_at: Option<MonoMs>,
    /// At most [`DOUBLINGS_MAX`].
    tries: u32,
}

/// More than it takes to come from any wait to its maximum, and no overflow.
const DOUBLINGS_MAX: u32 = 20;

impl AskBackoff {
    fn is_due(&self, now: MonoMs, min_ms: u64, max_ms: u64) -> bool {
        let wait_ms = (min_ms << self.tries).min(max_ms);
        self.tried_at.is_none_or(|at| now.ms_since(at) > wait_ms)
    }

    fn tried(&mut self, now: MonoMs) {
        self.tried_at = Some(now);
        self.tries = (self.tries + 1).min(DOUBLINGS_MAX);
    }
}

/// Why a queue wants jobs of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A client found it empty, or waits for it.
    ClientsWaiting,
    /// A fetch just emptied it.
    ReachedZero,
}

/// Whether other nodes hold a standing ask for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    No,
    Yes,
}

impl Imports {
    /// Imported jobs per second, rounded up.
    pub fn rate(&self, now: MonoMs) -> u64 {
        if self.current.count == 0 || now.ms_since(self.current.began_at) > RATE_VALID_MS {
            return 0;
        }
        let elapsed_ms = now.ms_since(self.previous.began_at).max(RATE_ELAPSED_MIN_MS);
        ((self.current.count + self.previous.count) * 1000).div_ceil(elapsed_ms)
    }

    /// The nodes that are taken for sources, in order.
    pub fn sources(&self, now: MonoMs) -> impl Iterator<Item = NodeRef> {
        self.sources
            .iter()
            .filter(move |(_, at)| now.ms_since(**at) <= SOURCE_VALID_MS)
            .map(|(&node, _)| node)
    }

    /// Counts a job that came from a node.
    pub fn count(&mut self, now: MonoMs, source: NodeRef) {
        self.sources.retain(|_, at| now.ms_since(*at) <= SOURCE_VALID_MS);
        if self.sources.insert(source, now).is_none() {
            self.broadcast.tries = 0;
        }
        if now.ms_since(self.current.began_at) > RATE_WINDOW_MS {
            self.previous = self.current;
            self.current = Window { began_at: now, count: 0 };
        }
        self.current.count += 1;
        self.ask.tries = 0;
    }

    /// Whether other nodes know that clients wait here.
    pub fn is_asking(&self) -> bool {
        self.standing.sent_at.is_some()
    }

    /// A job came of those that other nodes were asked for.
    pub fn use_credit(&mut self) {
        self.standing.credit = self.standing.credit.saturating_sub(1);
    }
}

impl Engine {
    /// Whether other nodes are asked for jobs. A disk that takes no records would have those
    /// that come kept in memory until it does, without a limit.
    fn may_ask_for_jobs(&self) -> bool {
        !self.cluster.is_alone() && !self.cluster.is_leaving() && self.storage != Storage::Fails
    }

    /// Asks other nodes for jobs of a live queue, as often as its waits allow.
    pub(super) fn request_jobs(&mut self, q: QueueRef, need: Need) {
        let now = self.now.mono;
        if !self.may_ask_for_jobs() {
            return;
        }
        let entry = &mut self.queues[q];
        let Some(queue) = entry.live_mut().filter(|queue| !queue.pause.is_out()) else { return };
        let imports = &mut queue.imports;
        let rate = imports.rate(now);
        if need == Need::ReachedZero && rate == 0 {
            return;
        }
        let broadcast = imports.broadcast.is_due(now, BROADCAST_MIN_MS, BROADCAST_MAX_MS);
        if broadcast {
            imports.broadcast.tried(now);
        }
        // Able nodes that know of a standing ask send without being asked again.
        let is_asking = imports.is_asking();
        let sources: Vec<NodeRef> = imports
            .sources(now)
            .filter(|node| !(is_asking && self.cluster.is_able(*node, Abilities::STANDING_ASKS)))
            .collect();
        let ask = !sources.is_empty()
            && (need == Need::ReachedZero
                || imports.ask.is_due(now, ASK_AGAIN_MIN_MS, ASK_AGAIN_MAX_MS));
        if ask {
            imports.ask.tried(now);
        }
        let queue = &entry.name;
        if broadcast {
            self.cluster.broadcast(
                &mut self.out,
                MessageFlags::NONE,
                &Message::NeedJobs { queue, count: 1 },
            );
        }
        if ask {
            let count = (rate / sources.len() as u64).clamp(ASK_MIN, ASK_MAX) as u32;
            let message = Message::NeedJobs { queue, count };
            self.cluster.send(&mut self.out, &sources, MessageFlags::NONE, &message);
        }
    }

    /// Clients wait for a queue: the able nodes are asked, unless what they know will do.
    pub(super) fn renew_standing_ask(&mut self, q: QueueRef) {
        let now = self.now.mono;
        if !self.may_ask_for_jobs() {
            return;
        }
        let Some(queue) = self.queues[q]
            .live_mut()
            .filter(|queue| !queue.waiters.is_empty() && !queue.pause.is_out())
        else {
            return;
        };
        let flow = queue.imports.rate(now) * CREDIT_COVERS_MS / 1000;
        let wanted = (queue.waiters.len() as u64).clamp(1, ASK_MAX);
        let standing = &mut queue.imports.standing;
        standing.waited_at = now;
        // To whom a link was made since, it may not be known.
        let is_fresh = standing.link_count == self.link_count
            && standing.sent_at.is_some_and(|at| now.ms_since(at) < SEND_AGAIN_MS);
        if is_fresh && u64::from(standing.credit) >= wanted {
            return;
        }
        standing.credit = wanted.max(flow).min(ASK_MAX) as u32;
        standing.sent_at = Some(now);
        standing.link_count = self.link_count;
        let count = standing.credit;
        self.send_standing_ask(q, count);
    }

    fn send_standing_ask(&mut self, q: QueueRef, count: u32) {
        let able = self.cluster.able(Abilities::STANDING_ASKS);
        let message = Message::NeedJobs { queue: &self.queues[q].name, count };
        self.cluster.send(&mut self.out, &able, MessageFlags::STANDING, &message);
    }

    /// Nobody waits for a queue: its standing ask ends, unless somebody waited a moment ago.
    /// A node that leaves ends it at once, lest jobs are sent to it that it stored elsewhere.
    pub(super) fn end_idle_ask(&mut self, q: QueueRef) -> Asking {
        let queue = self.queues.get_mut(q).and_then(QueueEntry::live_mut);
        let Some(queue) = queue.filter(|queue| queue.imports.is_asking()) else {
            return Asking::No;
        };
        let standing = &mut queue.imports.standing;
        let idle_ms = self.now.mono.ms_since(standing.waited_at);
        if idle_ms < CANCEL_AFTER_MS && !self.cluster.is_leaving() {
            return Asking::Yes;
        }
        *standing = Standing::default();
        self.send_standing_ask(q, 0);
        Asking::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_two_windows_and_ends_five_seconds_after_the_last_began() {
        let mut imports = Imports::default();
        assert_eq!(imports.rate(MonoMs(10_000)), 0);
        for i in 0..10 {
            imports.count(MonoMs(10_000 + i), NodeRef(1));
        }
        imports.count(MonoMs(11_500), NodeRef(1));
        assert_eq!(imports.rate(MonoMs(12_000)), 6, "11 jobs in 2 seconds");
        assert_eq!(imports.rate(MonoMs(16_501)), 0);
    }

    #[test]
    fn waits_between_requests_double_and_saturate() {
        let mut backoff = AskBackoff::default();
        assert!(backoff.is_due(MonoMs(5), 2000, 30_000));
        for _ in 0..100 {
            backoff.tried(MonoMs(1000));
        }
        assert!(!backoff.is_due(MonoMs(31_000), 2000, 30_000));
        assert!(backoff.is_due(MonoMs(31_001), 2000, 30_000));
    }

    #[test]
    fn a_source_is_forgotten_five_seconds_after_its_last_jobs() {
        let mut imports = Imports::default();
        imports.count(MonoMs(10_000), NodeRef(1));
        imports.count(MonoMs(13_000), NodeRef(2));
        assert_eq!(imports.sources(MonoMs(15_001)).collect::<Vec<_>>(), [NodeRef(2)]);
    }
}
