//! A job: what is kept of it, and the states it goes through.
//!
//! ```text
//!  ADDJOB that waits      ADDJOB that does not, REPLJOB, YOURJOBS, LOADJOB
//!       |                        |
//!       v       copies there     v        delay or retry over, ENQUEUE, NACK, YOURJOBS
//!   WaitRepl -----------------> Active -----------------------------------------> Queued
//!       |                        |  ^                                              |  |
//!       |                        |  '--- GETJOB, lent, DEQUEUE, WORKING, QUEUED ---'  |
//!       | timeout,               |                                                    |
//!       | client gone            '--------> Acked <------- ACKJOB, SETACK ------------'
//!       v                                     |
//!    removed                                  '-- acked by all holders --> removed
//! ```
//!
//! A job that ADDJOB promised without delay, or that YOURJOBS brought, passes through Active into
//! its queue. One that a planned restart loads begins as Queued. A queued job whose retry is over stays
//! queued and gets its next time. An ACKJOB or SETACK ends a wait for copies as if they were
//! there. DELJOB and FASTACK remove a job from every state, and so does the end of the TTL, unless
//! the job dies of it ([`crate::engine::dead`]): then it is active until its burial. A move keeps
//! the state, or makes it Queued or Active; a death is a move.
//!
//! What of a job never changes may be read as it is, and its queue. All else changes only by the calls of
//! [`super::Jobs`], in which a job's state, its times, its flags and its place in the schedule
//! change together. A job is scheduled for the earliest time at which something must be done
//! about it, [`Scheduled::due_at`], which is derived from the other fields.

use crate::base::ids::JobId;
use crate::base::ordered::Ordered;
use crate::base::ranked::Ranked;
use crate::base::table::Ref;
use crate::base::time::{MonoMs, UnixMs};
use crate::base::wheel::{Links, Scheduled};
use crate::proto::attributes::KeptAttributes;
use crate::proto::job_record;
use crate::proto::priority::Priority;

use super::CopyWait;
use crate::engine::node_set::{NodeRef, NodeSet};
use crate::engine::queue::QueueRef;

pub type JobRef = Ref<Job>;

/// A job is removed this long after its TTL ended, unless another of its timers
/// finds it expired before. C: job.c updateJobAwakeTime.
pub const EXPIRE_GRACE_MS: u64 = 1000;
/// Holders are warned of a requeue this long before it. C: JOB_WILLQUEUE_ADVANCE.
pub const WILLQUEUE_ADVANCE_MS: u64 = 500;

#[derive(Debug)]
pub struct Job {
    pub id: JobId,
    /// Milliseconds since 1970 times 1,000,000, plus a counter: the order in a queue, among jobs
    /// of one priority.
    pub ctime: u64,
    pub body: Box<[u8]>,
    pub(super) requeue_at: MonoMs,
    pub(super) expire_at: MonoMs,
    links: Links,
    pub delay_secs: u32,
    /// 0 for at-most-once jobs.
    pub retry_secs: u32,
    pub queue: QueueRef,
    /// Where in a side table the state's own data are.
    side: u32,
    pub(super) may_have: NodeSet,
    /// Copies asked for.
    pub repl: u16,
    pub(super) nack_count: u16,
    pub(super) delivery_count: u16,
    pub(super) flags: JobFlags,
    /// The state in the low half, as on the wire. In the high half the attempts to collect an
    /// acked job, the notes of any other.
    phase: u8,
}

const _: () = assert!(size_of::<Job>() <= 120);

/// The flags byte of a job record. Bits unknown here pass through untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFlags(pub u8);

impl JobFlags {
    /// The next enqueue is announced to the holders. C: JOB_FLAG_BCAST_QUEUED.
    pub const BROADCAST_QUEUED: Self = Self(job_record::FLAG_BROADCAST_QUEUED);
    /// The holders are warned before the next requeue. C: JOB_FLAG_BCAST_WILLQUEUE.
    pub const BROADCAST_WILLQUEUE: Self = Self(job_record::FLAG_BROADCAST_WILLQUEUE);
    /// This node delivered the job at least once. C: JOB_FLAG_DELIVERED.
    pub const DELIVERED: Self = Self(job_record::FLAG_DELIVERED);
    /// It has attributes, or had some that are not known here.
    pub const HAD_ATTRIBUTES: Self = Self(job_record::FLAG_HAD_ATTRIBUTES);
    /// It is traced: in a record, as its producer asked for it; here also as it is sampled.
    pub const TRACE: Self = Self(job_record::FLAG_TRACE);
    /// There may be something of it beside the table of jobs.
    pub(super) const HAS_MORE: Self = Self::HAD_ATTRIBUTES.with(Self::TRACE);

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some of `other` are set.
    pub const fn has_some_of(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn with_priority(self, priority: Priority) -> Self {
        Self(priority.in_flags(self.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// A producer waits until enough nodes have a copy.
    WaitRepl,
    Active,
    Queued,
    Acked,
}

/// The names of the states in replies, by their number on disk.
pub const STATE_NAMES: [&str; 4] = ["wait-repl", "active", "queued", "acked"];

impl JobState {
    /// The state's number on disk and on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::WaitRepl => job_record::STATE_WAIT_REPL,
            Self::Active => job_record::STATE_ACTIVE,
            Self::Queued => job_record::STATE_QUEUED,
            Self::Acked => job_record::STATE_ACKED,
        }
    }

    pub fn name(self) -> &'static str {
        STATE_NAMES[usize::from(self.number())]
    }
}

/// What is noted of a queued job, in the high half of its phase: a node lent it here.
const QUEUED_AS_BORROWED: u8 = 1 << 4;
/// For how long it has been queued is not known: its requeue time was set anew meanwhile.
const QUEUED_FOR_UNKNOWN_TIME: u8 = 1 << 5;
/// What is noted of an active job: this node holds it until its requeue time, see
/// [`crate::engine::hold`].
const ACTIVE_HELD: u8 = 1 << 4;
/// It was given back, and that is counted: its next enqueue is silent.
const ACTIVE_GIVEN_BACK: u8 = 1 << 5;
/// A client of this node fetched it, and nothing has come since by which it is elsewhere.
const ACTIVE_IN_FLIGHT: u8 = 1 << 6;
/// Its TTL is over, and it dies of that when its requeue time comes. No other note is made then.
const ACTIVE_AWAITS_BURIAL: u8 = 1 << 7;

/// Why a job is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// A client gave it back for a while.
    Delay,
    /// A client has it for a while.
    Work,
}

/// Attempts are counted to this; the wait between them stops growing before.
pub const GC_ATTEMPTS_MAX: u8 = 10;

/// All that describes a job that is new on this node.
#[derive(Debug)]
pub struct NewJob {
    pub id: JobId,
    pub ctime: u64,
    pub body: Box<[u8]>,
    pub queue: QueueRef,
    /// When the TTL ends. C: `etime`.
    pub expire_at: MonoMs,
    /// When the job goes to its queue; `NEVER` for one that waits for another node to say so.
    pub requeue_at: MonoMs,
    pub delay_secs: u32,
    pub retry_secs: u32,
    pub repl: u16,
    pub nack_count: u16,
    pub delivery_count: u16,
    pub flags: JobFlags,
    pub may_have: NodeSet,
    /// Only with [`JobFlags::HAD_ATTRIBUTES`].
    pub attributes: Option<KeptAttributes>,
}

impl NewJob {
    pub fn is_at_most_once(&self) -> bool {
        self.retry_secs == 0
    }

    /// Whether it is an at-most-once job that this node delivered in an earlier life.
    pub fn is_spent(&self) -> bool {
        self.is_at_most_once() && self.flags.contains(JobFlags::DELIVERED)
    }

    /// When its delay is over, as counted from when it was made.
    pub fn delay_ends_at(&self) -> UnixMs {
        UnixMs(self.ctime / 1_000_000).plus_ms(u64::from(self.delay_secs) * 1000)
    }

    /// Whether it was neither queued nor delivered since it was made.
    pub fn was_never_queued(&self) -> bool {
        !self.flags.contains(JobFlags::DELIVERED)
            && !self.flags.contains(JobFlags::BROADCAST_QUEUED)
    }
}

impl Job {
    /// An active job, and its attributes.
    pub(super) fn new(new: NewJob) -> (Self, Option<KeptAttributes>) {
        let job = Self {
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
            nack_count: new.nack_count,
            delivery_count: new.delivery_count,
            flags: new.flags,
            phase: JobState::Active.number(),
        };
        (job, new.attributes)
    }

    pub fn state(&self) -> JobState {
        match self.phase & 15 {
            job_record::STATE_WAIT_REPL => JobState::WaitRepl,
            job_record::STATE_ACTIVE => JobState::Active,
            job_record::STATE_QUEUED => JobState::Queued,
            _ => JobState::Acked,
        }
    }

    pub fn is_active(&self) -> bool {
        self.state() == JobState::Active
    }

    pub fn is_queued(&self) -> bool {
        self.state() == JobState::Queued
    }

    pub fn is_acked(&self) -> bool {
        self.state() == JobState::Acked
    }

    /// When the job goes (back) to its queue; `NEVER` for one that will not. Of an acked job:
    /// when the next attempt to collect it is made. C: `qtime`.
    pub fn requeue_at(&self) -> MonoMs {
        self.requeue_at
    }

    /// When the TTL ends. C: `etime`.
    pub fn expire_at(&self) -> MonoMs {
        self.expire_at
    }

    pub fn flags(&self) -> JobFlags {
        self.flags
    }

    /// Whether what happens to it is noted, see [`crate::engine::trace`].
    pub fn is_traced(&self) -> bool {
        self.flags.contains(JobFlags::TRACE)
    }

    /// Its place in the order of its queue, in front of its age.
    pub fn priority(&self) -> Priority {
        Priority::of_flags(self.flags.0)
    }

    pub fn nack_count(&self) -> u16 {
        self.nack_count
    }

    /// Deliveries beyond the first that are known of.
    pub fn delivery_count(&self) -> u16 {
        self.delivery_count
    }

    /// Attempts to collect it so far.
    pub fn gc_attempts(&self) -> u8 {
        if self.is_acked() { self.phase >> 4 } else { 0 }
    }

    /// Whether it left its queue here for a client or another node.
    pub fn was_lent_or_fetched(&self) -> bool {
        self.is_active() && self.flags.contains(JobFlags::DELIVERED)
    }

    /// Whether it is queued here because a node lent it.
    pub fn is_queued_as_borrowed(&self) -> bool {
        self.is_queued() && self.phase & QUEUED_AS_BORROWED != 0
    }

    /// Whether it has been queued here for at least a quarter of its retry time, or for a time
    /// that is not known. So its next requeue may be close.
    pub fn waited_long(&self, now: MonoMs) -> bool {
        let quarter_ms = u64::from(self.retry_secs) * 250;
        self.is_queued()
            && !self.is_at_most_once()
            && (self.phase & QUEUED_FOR_UNKNOWN_TIME != 0
                || self.requeue_at.ms_since(now) <= 3 * quarter_ms)
    }

    /// For how long it has been queued here, in ms, give or take the jitter of its retry; `None`
    /// where that is not known.
    pub fn queued_for_ms(&self, now: MonoMs) -> Option<u64> {
        let is_known = self.is_queued()
            && !self.is_at_most_once()
            && self.phase & QUEUED_FOR_UNKNOWN_TIME == 0;
        let left_ms = self.requeue_at.ms_since(now);
        is_known.then(|| (u64::from(self.retry_secs) * 1000).saturating_sub(left_ms))
    }

    /// Whether this node holds it until its requeue time.
    pub fn is_held(&self) -> bool {
        self.is_active() && self.phase & ACTIVE_HELD != 0
    }

    /// Why this node holds it, if it does.
    pub fn held_for(&self) -> Option<HeldFor> {
        let why = if self.is_given_back() { HeldFor::Delay } else { HeldFor::Work };
        self.is_held().then_some(why)
    }

    /// Whether it was given back and waits since.
    pub fn is_given_back(&self) -> bool {
        self.is_active() && self.phase & ACTIVE_GIVEN_BACK != 0
    }

    /// Whether a client of this node has it, as far as is known here: it fetched it, and nobody
    /// gave it back or queued it since. A job that was lent is not in flight on the lender, nor
    /// is a copy that waits for its retry.
    pub fn is_in_flight(&self) -> bool {
        self.is_active() && self.phase & ACTIVE_IN_FLIGHT != 0
    }

    /// Whether its TTL is over, and it dies of that at its requeue time. Until then it may only be
    /// acknowledged.
    pub fn awaits_burial(&self) -> bool {
        self.phase == JobState::Active.number() | ACTIVE_AWAITS_BURIAL
    }

    /// Whether it waits for a time of its own before it goes to its queue: that of its producer,
    /// or of the client that gave it back.
    pub fn is_delayed(&self) -> bool {
        self.may_be_queued()
            && !self.is_in_flight()
            && (!self.flags.contains(JobFlags::BROADCAST_QUEUED) || self.is_given_back())
    }

    pub fn is_at_most_once(&self) -> bool {
        self.retry_secs == 0
    }

    /// Whether this node delivered it and nobody ever will again.
    pub fn is_spent(&self) -> bool {
        self.is_at_most_once() && self.is_active() && self.flags.contains(JobFlags::DELIVERED)
    }

    /// Whether the job may go to its queue: an active one that has a time for it, and was not
    /// delivered once if that is all there is.
    pub fn may_be_queued(&self) -> bool {
        self.is_active()
            && self.requeue_at != MonoMs::NEVER
            && !self.is_spent()
            && !self.awaits_burial()
    }

    /// When the holders are warned of the next requeue; `NEVER` when they are not.
    pub fn warn_at(&self) -> MonoMs {
        if self.requeue_at != MonoMs::NEVER && self.flags.contains(JobFlags::BROADCAST_WILLQUEUE) {
            self.requeue_at.minus_ms(WILLQUEUE_ADVANCE_MS)
        } else {
            MonoMs::NEVER
        }
    }

    /// Changes the state to one without data of its own and without notes. Data of the old one
    /// were released.
    pub(super) fn set_state(&mut self, state: JobState) {
        self.phase = state.number();
        self.side = 0;
    }

    pub(super) fn note_borrowed(&mut self, of_able: bool) {
        self.phase |= QUEUED_AS_BORROWED;
        if !of_able {
            self.phase |= QUEUED_FOR_UNKNOWN_TIME;
        }
    }

    /// The requeue time of an active or queued job is set anew: a hold ends, and for how long the
    /// job has been queued cannot be told from it any more.
    pub(super) fn set_requeue_at(&mut self, at: MonoMs) {
        self.requeue_at = at;
        match self.state() {
            JobState::Active => self.phase &= !ACTIVE_HELD,
            JobState::Queued => self.phase |= QUEUED_FOR_UNKNOWN_TIME,
            JobState::WaitRepl | JobState::Acked => {}
        }
    }

    pub(super) fn note_end_of_ttl(&mut self) {
        self.set_state(JobState::Active);
        self.phase |= ACTIVE_AWAITS_BURIAL;
    }

    pub(super) fn forget_end_of_ttl(&mut self) {
        if self.awaits_burial() {
            self.set_state(JobState::Active);
        }
    }

    pub(super) fn note_in_flight(&mut self) {
        self.phase |= ACTIVE_IN_FLIGHT;
    }

    /// An active job is not in flight here any more.
    pub(super) fn land(&mut self) {
        if self.is_active() {
            self.phase &= !ACTIVE_IN_FLIGHT;
        }
    }

    pub(super) fn note_held(&mut self, why: HeldFor) {
        self.phase |= ACTIVE_HELD;
        match why {
            HeldFor::Delay => {
                self.phase |= ACTIVE_GIVEN_BACK;
                self.land();
            }
            HeldFor::Work => self.phase &= !ACTIVE_GIVEN_BACK,
        }
    }

    pub(super) fn forget_given_back(&mut self) {
        if self.is_active() {
            self.phase &= !ACTIVE_GIVEN_BACK;
        }
    }

    /// The wait of a job that waits for copies.
    pub(super) fn copy_wait(&self) -> Option<Ref<CopyWait>> {
        (self.state() == JobState::WaitRepl).then(|| Ref::from_slot(self.side))
    }

    pub(super) fn set_copy_wait(&mut self, wait: Ref<CopyWait>) {
        self.set_state(JobState::WaitRepl);
        self.side = wait.slot();
    }

    /// Who has an acked job acked, once collection began.
    pub(super) fn acks(&self) -> Option<Ref<Vec<NodeRef>>> {
        (self.is_acked() && self.side > 0).then(|| Ref::from_slot(self.side - 1))
    }

    pub(super) fn set_acks(&mut self, acks: Ref<Vec<NodeRef>>) {
        self.side = acks.slot() + 1;
    }

    pub(super) fn count_gc_attempt(&mut self) {
        if self.gc_attempts() < GC_ATTEMPTS_MAX {
            self.phase += 1 << 4;
        }
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
        if self.awaits_burial() {
            return self.requeue_at.min(self.warn_at());
        }
        let next_at = match self.state() {
            JobState::WaitRepl => MonoMs::NEVER,
            JobState::Active | JobState::Queued => self.requeue_at.min(self.warn_at()),
            JobState::Acked => self.requeue_at,
        };
        self.expire_at.plus_ms(EXPIRE_GRACE_MS).min(next_at)
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

/// The rank of jobs of a priority in their queue.
pub const fn rank_of(priority: Priority) -> usize {
    priority.number() as usize - 1
}

impl Ranked for Job {
    const COMMON: usize = rank_of(Priority::DEFAULT);

    fn rank(&self) -> usize {
        rank_of(self.priority())
    }
}
