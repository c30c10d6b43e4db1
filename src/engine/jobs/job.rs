//! A job: what is kept of it, and the states it goes through.
//!
//! ```text
//!  ADDJOB, synchronous          REPLJOB, YOURJOBS, LOADJOB
//!        |                              |
//!    WaitRepl --enough copies--> Active <--requeue, DEQUEUE, fetch-- Queued
//!        |                        |  `------retry, delay, ENQUEUE, NACK---^|
//!        |                        `-----ACKJOB, SETACK-----> Acked <-------'
//!        `--timeout, client gone--> removed <--all nodes confirmed--'
//! ```
//!
//! Every state ends in removal when the job expires. [`super::jobs`] owns all jobs;
//! a job is scheduled for the earliest time at which something must be done about it,
//! which [`Job::due_at`] derives from the fields, so whoever changes a field that it
//! reads reschedules the job.

use crate::base::ids::JobId;
use crate::base::ordered::Ordered;
use crate::base::table::Ref;
use crate::base::time::MonoMs;
use crate::base::wheel::{Links, Scheduled};
use crate::proto::job_record;

use super::Replication;
use crate::engine::node_set::{NodeRef, NodeSet};
use crate::engine::queue::QueueRef;

pub type JobRef = Ref<Job>;

/// A job is removed this long after its TTL ended, unless another of its timers
/// finds it expired before. C: job.c updateJobAwakeTime.
pub const EXPIRE_GRACE_MS: u64 = 1000;
/// Peers are told of a requeue this long before it. C: JOB_WILLQUEUE_ADVANCE.
pub const WILLQUEUE_ADVANCE_MS: u64 = 500;

#[derive(Debug)]
pub struct Job {
    pub id: JobId,
    /// Milliseconds since 1970 times 1,000,000, plus a counter: the order in a queue.
    pub ctime: u64,
    pub body: Box<[u8]>,
    /// When the job goes (back) to its queue; `NEVER` for one that will not.
    /// Of an acked job: when the next attempt to collect it is made. C: `qtime`.
    pub requeue_at: MonoMs,
    /// When the TTL ends. C: `etime`.
    pub expire_at: MonoMs,
    links: Links,
    pub delay_secs: u32,
    /// 0 for at-most-once jobs.
    pub retry_secs: u32,
    pub queue: QueueRef,
    side: u32,
    /// Nodes that may have a copy. C: `nodes_delivered`.
    pub may_have: NodeSet,
    /// Copies asked for.
    pub repl: u16,
    pub nack_count: u16,
    /// Deliveries beyond the first that are known of.
    pub delivery_count: u16,
    pub flags: JobFlags,
    /// State in the low half, collection attempts in the high half, as on the wire.
    phase: u8,
}

const _: () = assert!(size_of::<Job>() <= 120);

/// The flags byte of a job record. Bits unknown here pass through untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFlags(pub u8);

impl JobFlags {
    /// The next enqueue is told to peers. C: JOB_FLAG_BCAST_QUEUED.
    pub const BROADCAST_QUEUED: u8 = job_record::FLAG_BROADCAST_QUEUED;
    /// Peers are warned before the next requeue. C: JOB_FLAG_BCAST_WILLQUEUE.
    pub const BROADCAST_WILLQUEUE: u8 = job_record::FLAG_BROADCAST_WILLQUEUE;
    /// This node delivered the job at least once. C: JOB_FLAG_DELIVERED.
    pub const DELIVERED: u8 = job_record::FLAG_DELIVERED;

    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub const fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }

    pub const fn clear(&mut self, flag: u8) {
        self.0 &= !flag;
    }
}

/// A job's state, with the data that only that state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// A producer waits until enough nodes have a copy.
    WaitRepl(Ref<Replication>),
    Active,
    Queued,
    /// The set names the nodes known to have the job acked, once collection began.
    Acked(Option<Ref<Vec<NodeRef>>>),
}

/// The names of the states in replies, by their number on disk.
pub const STATE_NAMES: [&str; 4] = ["wait-repl", "active", "queued", "acked"];

impl JobState {
    /// The state's number on disk and on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::WaitRepl(_) => job_record::STATE_WAIT_REPL,
            Self::Active => job_record::STATE_ACTIVE,
            Self::Queued => job_record::STATE_QUEUED,
            Self::Acked(_) => job_record::STATE_ACKED,
        }
    }

    pub fn name(self) -> &'static str {
        STATE_NAMES[usize::from(self.number())]
    }
}

/// Attempts are counted to this; the wait between them stops growing before.
pub const GC_ATTEMPTS_MAX: u8 = 10;

/// What a job is made from.
pub struct NewJob {
    pub id: JobId,
    pub ctime: u64,
    pub body: Box<[u8]>,
    pub queue: QueueRef,
    pub expire_at: MonoMs,
    pub requeue_at: MonoMs,
    pub delay_secs: u32,
    pub retry_secs: u32,
    pub repl: u16,
    pub may_have: NodeSet,
}

impl Job {
    /// An active job that was neither queued nor delivered yet.
    pub fn new(new: NewJob) -> Self {
        Self {
            id: new.id,
            ctime: new.ctime,
            body: new.body,
            requeue_at: new.requeue_at,
            expire_at: new.expire_at,
            links: Links::default(),
            delay_secs: new.delay_secs,
            retry_secs: new.retry_secs,
            queue: new.queue,
            side: 0,
            may_have: new.may_have,
            repl: new.repl,
            nack_count: 0,
            delivery_count: 0,
            flags: JobFlags::default(),
            phase: JobState::Active.number(),
        }
    }

    pub fn state(&self) -> JobState {
        match self.phase & 15 {
            job_record::STATE_WAIT_REPL => JobState::WaitRepl(Ref::from_slot(self.side)),
            job_record::STATE_ACTIVE => JobState::Active,
            job_record::STATE_QUEUED => JobState::Queued,
            _ => JobState::Acked((self.side > 0).then(|| Ref::from_slot(self.side - 1))),
        }
    }

    pub fn is_active(&self) -> bool {
        self.phase & 15 == job_record::STATE_ACTIVE
    }

    pub fn is_queued(&self) -> bool {
        self.phase & 15 == job_record::STATE_QUEUED
    }

    pub fn is_acked(&self) -> bool {
        self.phase & 15 == job_record::STATE_ACKED
    }

    /// Changes the state. The data of the old one is the caller's to release.
    pub fn set_state(&mut self, state: JobState) {
        self.phase = self.phase & 0xf0 | state.number();
        self.side = match state {
            JobState::WaitRepl(replication) => replication.slot(),
            JobState::Active | JobState::Queued | JobState::Acked(None) => 0,
            JobState::Acked(Some(confirmed)) => confirmed.slot() + 1,
        };
    }

    pub fn gc_attempts(&self) -> u8 {
        self.phase >> 4
    }

    pub fn count_gc_attempt(&mut self) {
        if self.gc_attempts() < GC_ATTEMPTS_MAX {
            self.phase += 1 << 4;
        }
    }

    pub fn is_at_most_once(&self) -> bool {
        self.retry_secs == 0
    }

    /// Whether this node delivered it and nobody ever will again.
    pub fn is_spent(&self) -> bool {
        self.is_at_most_once() && self.is_active() && self.flags.has(JobFlags::DELIVERED)
    }
}

impl Scheduled for Job {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    fn due_at(&self) -> MonoMs {
        let removal_at = self.expire_at.plus_ms(EXPIRE_GRACE_MS);
        let next_at = match self.state() {
            JobState::WaitRepl(_) => return removal_at,
            JobState::Acked(_) => self.requeue_at,
            JobState::Active | JobState::Queued if self.requeue_at == MonoMs::NEVER => {
                return removal_at;
            }
            JobState::Active | JobState::Queued
                if self.flags.has(JobFlags::BROADCAST_WILLQUEUE) =>
            {
                self.requeue_at.minus_ms(WILLQUEUE_ADVANCE_MS)
            }
            JobState::Active | JobState::Queued => self.requeue_at,
        };
        removal_at.min(next_at)
    }
}

impl Ordered for Job {
    type Key = (u64, JobId);

    fn key(&self) -> Self::Key {
        (self.ctime, self.id)
    }

    fn key_prefix(&self) -> u64 {
        self.ctime
    }
}
