//! Jobs that fail for good: when they die, and what becomes of them.
//!
//! A job dies *in place*: it keeps its ID, its body and its copies, and is moved to a dead queue,
//! with the facts of its death among its attributes. So its producer, its traces and whoever
//! acknowledges it late still mean the same job, nothing has to be copied, and two holders
//! that bury it at once bury one job. The holders are told as of any move. It has a new TTL then, its
//! counters begin anew, and it is queued where somebody may look at it, or work on it, as on
//! any job.
//!
//! A job dies because a client says so, because it was delivered as often as it may be, or at
//! the end of its TTL, as the policy of its queue says. Deliveries are counted as C counts them:
//! each time that the job was queued. That number is no proof that somebody had the job: a copy
//! that takes over from a silent node counts one though nobody got it. So the limit is looked at
//! when a client gives the job back, and otherwise only on a node whose client had it last. Any
//! other node that takes over queues the job. It may be delivered once more for each holder, and
//! is never buried unseen.
//!
//! What has died does not die again, whatever its queue is called, unless it was moved since. A job
//! whose attributes were lost on the way here does not die: it may be dead already. And an
//! at-most-once job dies only where it was not delivered, since nobody may get it again.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::JobId;
use crate::proto::attributes::Tag;
use crate::proto::bus::Abilities;
use crate::proto::facts::{DeathReason, Facts, ORIGIN_MAX};
use crate::proto::job_limits::{DEAD_QUEUE_MAX, Limits};
use crate::proto::job_record::JobRecord;

use super::Engine;
use super::jobs::{Job, JobFlags, JobRef, JobState, Nack};
use super::moves::{Move, Then};
use super::node_set::{ME, NodeRef};
use super::policy::PolicyWord;
use super::records::expire_unix_secs;
use super::trace::Event;

/// What a dead queue is called by default: the job's queue, and this.
const DEAD_QUEUE_SUFFIX: &[u8] = b".dead";
/// The TTL of a dead job by default, in seconds: a week.
const DEAD_TTL_SECS: u64 = 604_800;
/// Of the holders of a job whose TTL is over, one after the other may bury it, this far apart,
/// in ms. Their ends of the TTL differ by seconds: each node that passes a job on rounds it up.
const TURN_MS: u64 = 2000;
/// An acked job is kept so much longer than its TTL where its holders may bury it, in ms: they
/// ask before they do.
const ACK_KEPT_MS: u64 = 15_000;

/// The jobs of the append only file whose TTL ended while the server was down, of those that
/// die of that. This node cannot tell whether another has buried them, or that they were
/// acknowledged: they are dropped, and counted.
#[derive(Default)]
pub struct ExpiredWhileDown {
    /// While the file is loaded: what is deleted further on was over before.
    ids: BTreeSet<JobId>,
    count: usize,
}

impl ExpiredWhileDown {
    pub fn insert(&mut self, id: JobId) {
        self.ids.insert(id);
    }

    /// The file has something later on a job.
    pub fn remove(&mut self, id: &JobId) {
        self.ids.remove(id);
    }

    /// The file is loaded.
    pub fn finish(&mut self) {
        self.count += core::mem::take(&mut self.ids).len();
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

/// How many jobs died, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeathCounts([u64; DeathReason::ALL.len()]);

impl DeathCounts {
    fn count(&mut self, reason: DeathReason) {
        for (known, count) in DeathReason::ALL.iter().zip(&mut self.0) {
            *count += u64::from(*known == reason);
        }
    }

    /// The reasons, each with its number.
    pub fn iter(&self) -> impl Iterator<Item = (DeathReason, u64)> {
        DeathReason::ALL.into_iter().zip(self.0)
    }

    /// For whatever reason.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The jobs that died on this node since it started.
#[derive(Default)]
pub struct Deaths {
    all: DeathCounts,
    /// By the queue in which they lived, of up to [`COUNTED_QUEUES_MAX`] queues.
    by_queue: BTreeMap<Box<[u8]>, DeathCounts>,
}

/// Deaths are counted by queue for so many queues.
const COUNTED_QUEUES_MAX: usize = 10_000;

impl Deaths {
    fn count(&mut self, queue: &[u8], reason: DeathReason) {
        self.all.count(reason);
        if let Some(counts) = self.by_queue.get_mut(queue) {
            counts.count(reason);
        } else if self.by_queue.len() < COUNTED_QUEUES_MAX {
            self.by_queue.entry(queue.into()).or_default().count(reason);
        }
    }

    /// Of all queues.
    pub fn all(&self) -> DeathCounts {
        self.all
    }

    /// Of the jobs that lived in a queue. Of queues beyond the first 10,000 whose jobs died
    /// nothing is known.
    pub fn of_queue(&self, queue: &[u8]) -> DeathCounts {
        self.by_queue.get(queue).copied().unwrap_or_default()
    }
}

impl Engine {
    /// How many jobs died here since the start.
    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// Whether the end of the TTL in a record of the file would have killed the job.
    pub(super) fn would_have_died(&mut self, record: &JobRecord<'_>) -> bool {
        let flags = JobFlags(record.flags);
        let was_had = record.retry_secs == 0 && flags.contains(JobFlags::DELIVERED);
        let is_dead = record.attributes.facts().is_some();
        !was_had
            && !is_dead
            && self.policy_of(record.queue).is_some_and(|policy| policy.dies_of_expiry())
    }

    /// Whether a job that comes back now was delivered as often as it may be, and dies instead.
    pub(super) fn is_at_its_limit(&mut self, r: JobRef) -> bool {
        let may_have_limit = !self.config.policies.is_empty()
            || self.jobs[r].flags().contains(JobFlags::HAD_ATTRIBUTES);
        may_have_limit && self.is_at_known_limit(r)
    }

    #[cold]
    fn is_at_known_limit(&mut self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        let deliveries = delivery_total(job);
        if job.is_at_most_once() || deliveries == 0 || !self.may_die(r) {
            return false;
        }
        let said = self.limit_of(r, |limits| limits.max_deliveries).map(u64::from);
        let q = self.jobs[r].queue;
        let limit = said.or_else(|| self.policy_of_queue(q)?.number(PolicyWord::MaxDeliveries));
        limit.is_some_and(|limit| limit > 0 && u64::from(deliveries) >= limit)
    }

    /// Whether a job can die: it is not dead, as far as is known, and nobody may have it for the
    /// only time that it may be had.
    pub(super) fn may_die(&self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        let is_there = matches!(job.state(), JobState::Active | JobState::Queued);
        let is_alive = self.jobs.attributes(r).is_some_and(|known| known.facts().is_none());
        let was_had = job.is_at_most_once() && job.flags().contains(JobFlags::DELIVERED);
        is_there && is_alive && !was_had
    }

    /// Something of what the producer of a job said of its failing.
    fn limit_of<T>(&self, r: JobRef, read: impl FnOnce(Limits<'_>) -> Option<T>) -> Option<T> {
        let value = self.jobs.attributes(r)?.find(Tag::LIMITS)?;
        read(Limits::decode(&value))
    }

    /// A job dies: it goes to the dead queue. `false`, and nothing done, for one that cannot.
    pub(super) fn bury(&mut self, r: JobRef, reason: DeathReason, nack: Nack) -> bool {
        if !self.may_die(r) {
            return false;
        }
        let q = self.jobs[r].queue;
        let policy = self.policy_of_queue(q);
        let dead_ttl_secs = policy.and_then(|policy| policy.number(PolicyWord::DeadTtl));
        let said_queue = policy.and_then(|policy| policy.dead_queue()).map(<[u8]>::to_vec);
        let queue = self
            .limit_of(r, |limits| limits.dead_queue.map(<[u8]>::to_vec))
            .or(said_queue)
            .unwrap_or_else(|| default_dead_queue(&self.queues[q].name));
        let facts = self.facts_of_death(r, reason, nack);
        // Its name may be forgotten with the last job that has it.
        let lived_in = self.queues[q].name.clone();
        let expire_at = self.now.mono.plus_ms(dead_ttl_secs.unwrap_or(DEAD_TTL_SECS) * 1000);
        let to = Move {
            queue: &queue,
            facts: Some(&facts),
            expire_at: Some(expire_at),
            priority: None,
            then: Then::IsQueued,
        };
        let is_buried = self.move_job(r, &to);
        if is_buried {
            self.trace(r, || Event::Dead(reason));
            log::debug!("{} is dead: {}", self.jobs[r].id, reason.name());
            self.deaths.count(&lived_in, reason);
        }
        is_buried
    }

    fn facts_of_death(&self, r: JobRef, reason: DeathReason, nack: Nack) -> Vec<u8> {
        let job = &self.jobs[r];
        let attributes = self.jobs.attributes(r).unwrap_or_default();
        let history = attributes.find(Tag::FACTS);
        let history = history.as_deref().and_then(Facts::decode);
        let made_at_secs = job.ctime / 1_000_000_000;
        let ttl_secs = u64::from(expire_unix_secs(job, self.now)).saturating_sub(made_at_secs);
        let origin = &*self.queues[job.queue].name;
        let note = attributes.note().unwrap_or_default();
        Facts {
            reason,
            nacks: job.nack_count().saturating_add(u16::from(nack == Nack::Yes)),
            deliveries: job.delivery_count(),
            died_at: self.now.wall,
            // One that was dead before had a longer one meanwhile.
            ttl_secs: match history {
                Some(history) => history.ttl_secs,
                None => u32::try_from(ttl_secs).unwrap_or(u32::MAX).max(1),
            },
            // Half a name would be that of another queue.
            origin: if origin.len() <= ORIGIN_MAX { origin } else { b"" },
            note: &note,
        }
        .encode()
    }

    /// The end of a job's TTL has come. Whether the job outlives it, as one that dies of that.
    pub(super) fn outlives_its_end(&mut self, r: JobRef) -> bool {
        !self.config.policies.is_empty() && self.dies_of_its_end(r)
    }

    #[cold]
    fn dies_of_its_end(&mut self, r: JobRef) -> bool {
        if !self.may_die(r) || !self.has_end_that_kills(r) {
            return false;
        }
        if self.jobs[r].is_at_most_once() {
            // It has no other holders.
            return self.bury(r, DeathReason::Expired, Nack::No);
        }
        self.await_burial(r);
        true
    }

    fn has_end_that_kills(&mut self, r: JobRef) -> bool {
        let q = self.jobs[r].queue;
        self.policy_of_queue(q).is_some_and(|policy| policy.dies_of_expiry())
    }

    /// A job at the end of its TTL waits for the turn of this node among its holders: each of
    /// them may bury it, and by the time that the next one asks, the one before has. Half a
    /// second before its turn it asks with WILLQUEUE: who has the job acked says so.
    fn await_burial(&mut self, r: JobRef) {
        self.dequeue(r);
        let is_before = |node: &NodeRef| {
            *node != ME
                && self.cluster.is_able(*node, Abilities::ATTRIBUTES)
                && self.cluster.is_reachable(*node)
                && self.outranks_me(*node, r)
        };
        let turns = self.jobs.may_have(r).iter().copied().filter(is_before).count() + 1;
        let turn_at = self.jobs[r].expire_at().plus_ms(turns as u64 * TURN_MS);
        self.jobs.await_burial(r, turn_at);
    }

    /// Another node is about to bury a job that this one would bury, or to queue it. Their turns may
    /// be the same, as not every node knows all holders: who ranks lower waits for another one.
    pub(super) fn give_way_at_burial(&mut self, from: NodeRef, r: JobRef) {
        if self.outranks_me(from, r) {
            self.jobs.await_burial(r, self.now.mono.plus_ms(TURN_MS));
        }
    }

    /// An acked job whose other holders may be about to bury it is kept for longer.
    pub(super) fn keep_acked_for_longer(&mut self, r: JobRef) {
        if !self.config.policies.is_empty() && self.has_end_that_kills(r) {
            self.jobs.outlive(r, ACK_KEPT_MS);
        }
    }
}

/// How often a job was delivered, as C counts: how often it was queued.
fn delivery_total(job: &Job) -> u32 {
    let was_queued = job.flags().contains(JobFlags::BROADCAST_QUEUED) || job.is_given_back();
    u32::from(was_queued) + u32::from(job.nack_count()) + u32::from(job.delivery_count())
}

/// The dead queue of a queue where nothing says another: its name and a suffix, cut to the
/// longest name that there is for one.
fn default_dead_queue(name: &[u8]) -> Vec<u8> {
    let len = name.len().min(DEAD_QUEUE_MAX - DEAD_QUEUE_SUFFIX.len());
    [&name[..len], DEAD_QUEUE_SUFFIX].concat()
}
