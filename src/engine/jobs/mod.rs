//! All jobs of this node: found by ID, walked by slot, woken by time.
//!
//! A job that was added here is found without an index: the last four of the 18 random
//! bytes of its ID are the number of its slot, encrypted with a key that this process drew
//! ([`Jobs::new_id`]). With millions of jobs a search in an index misses all caches,
//! and it costs memory. Beside 5,000,000 jobs this takes ADDJOB from 1.4 to 0.8 us, ACKJOB
//! from 1.3 to 0.75, and 18 bytes off each job. Jobs of other nodes and those of a run before
//! are in the index.
//!
//! Invariant: a job is in the index exactly when its ID does not name its slot.
//!
//! A job in here is changed by the steps of its [`life`] only, and by nobody else: they keep
//! it in the schedule. [`Jobs::remove`] hands the job to its caller, who is then its only
//! owner: nothing else can still refer to it. What a removal means to others (the queue, a
//! waiting client, peers, the append only file) is [`super::Engine::unregister`]'s.

mod attributes;
mod copy_wait;
mod counts;
mod job;
mod life;
mod moves;
mod shortages;

use core::ops::Index;
use std::collections::BTreeSet;

use crate::base::id_index::{IdHasher, IdIndex};
use crate::base::ids::{JobId, NodeId};
use crate::base::table::{SLOTS_MAX, Table};
use crate::base::time::MonoMs;
use crate::base::wheel::Wheel;
use crate::proto::attributes::KeptAttributes;

use super::node_set::{NodeRef, NodeSets};
use super::queue::QueueRef;
use attributes::AttributeTable;
pub use copy_wait::CopyWait;
use copy_wait::CopyWaits;
use counts::Counts;
pub use counts::{JobCounts, QueueCounts};
pub use job::{
    EXPIRE_GRACE_MS, GC_ATTEMPTS_MAX, HeldFor, Job, JobFlags, JobRef, JobState, NewJob,
    STATE_NAMES, rank_of,
};
pub use life::{Announced, Nack};
use moves::MoveTable;
pub use moves::{JobPlace, Knows};
use shortages::Shortages;

pub struct Jobs {
    table: Table<Job>,
    /// The jobs whose IDs do not name their slots.
    index: IdIndex<Job>,
    hasher: IdHasher,
    wheel: Wheel<Job>,
    sets: NodeSets,
    copy_waits: CopyWaits,
    attributes: AttributeTable,
    moves: MoveTable,
    shortages: Shortages,
    counts: Counts,
    /// Who has a job acked, of those whose collection began.
    acks: Table<Vec<NodeRef>>,
    /// Acked jobs that outlived a timed attempt to collect them.
    uncollected: BTreeSet<JobRef>,
    /// Acked jobs that were purged and not processed.
    purged: BTreeSet<JobRef>,
    /// Traced jobs whose producers asked for it. The others are sampled, which is nobody else's
    /// business.
    trace_asked: BTreeSet<JobRef>,
}

impl Jobs {
    pub fn new(hash_key: [u8; 16], now: MonoMs) -> Self {
        Self {
            table: Table::default(),
            index: IdIndex::default(),
            hasher: IdHasher::new(&hash_key),
            wheel: Wheel::new(now),
            sets: NodeSets::default(),
            copy_waits: CopyWaits::default(),
            attributes: AttributeTable::default(),
            moves: MoveTable::default(),
            shortages: Shortages::default(),
            counts: Counts::default(),
            acks: Table::default(),
            uncollected: BTreeSet::new(),
            purged: BTreeSet::new(),
            trace_asked: BTreeSet::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many jobs are in which situation.
    pub fn counts(&self) -> JobCounts {
        self.counts.all()
    }

    /// The same of the jobs of one queue.
    pub fn counts_of(&self, q: QueueRef) -> QueueCounts {
        self.counts.of_queue(q)
    }

    pub fn find(&self, id: &JobId) -> Option<JobRef> {
        let is_it = |r: &JobRef| self.table.get(*r).is_some_and(|job| job.id == *id);
        self.named_slot(id)
            .filter(is_it)
            .or_else(|| self.index.find(self.hasher.hash(&id.0), |r| is_it(&r)))
    }

    /// An ID for the next job that is inserted. The last four of the random bytes give way
    /// to the slot; they are as unpredictable to clients as the others.
    pub fn new_id(
        &mut self,
        me: &NodeId,
        mut random: [u8; 18],
        ttl_secs: u32,
        retry_secs: u32,
    ) -> JobId {
        let slot = self.table.next_slot() ^ self.mask(&random[..14]);
        random[14..].copy_from_slice(&slot.to_be_bytes());
        JobId::generate(me, random, ttl_secs, retry_secs)
    }

    /// The slot named by an ID that [`Jobs::new_id`] made; any slot for another ID.
    fn named_slot(&self, id: &JobId) -> Option<JobRef> {
        let bytes = id.random()?;
        let [random @ .., a, b, c, d] = &bytes;
        let slot = u32::from_be_bytes([*a, *b, *c, *d]) ^ self.mask(random);
        (slot < SLOTS_MAX).then(|| JobRef::from_slot(slot))
    }

    fn mask(&self, random: &[u8]) -> u32 {
        self.hasher.hash(random) as u32
    }

    /// Puts a job that is not known yet into the table and the index, and its attributes
    /// beside it.
    fn register(&mut self, job: Job, attributes: Option<KeptAttributes>) -> JobRef {
        let (id, flags) = (job.id, job.flags);
        let r = self.table.insert(job);
        if self.named_slot(&id) != Some(r) {
            self.index.insert(self.hasher.hash(&id.0), r);
        }
        if flags.has_some_of(JobFlags::HAS_MORE) {
            self.register_more(r, flags, attributes);
        }
        r
    }

    fn register_more(&mut self, r: JobRef, flags: JobFlags, attributes: Option<KeptAttributes>) {
        if flags.contains(JobFlags::TRACE) {
            self.trace_asked.insert(r);
        }
        if flags.contains(JobFlags::HAD_ATTRIBUTES) {
            if let Some(stamp) = attributes.as_ref().and_then(|a| a.as_attributes().move_stamp()) {
                self.moves.begin(r, stamp);
            }
            self.attributes.begin(r, attributes);
        }
    }

    /// Takes a job out of the table, the index and the schedule, with all its sets.
    pub fn remove(&mut self, r: JobRef) -> Job {
        self.wheel.remove(&mut self.table, r);
        if let Some(wait) = self.table[r].copy_wait() {
            self.copy_waits.end(r, wait);
        }
        if let Some(acks) = self.table[r].acks() {
            self.acks.remove(acks);
            self.uncollected.remove(&r);
        }
        if !self.purged.is_empty() {
            self.purged.remove(&r);
        }
        if !self.has_no_shortages() {
            self.end_shortage(r);
        }
        let mut job = self.table.remove(r);
        self.counts.remove(job.queue, job.situation());
        if job.flags.has_some_of(JobFlags::HAS_MORE) {
            self.attributes.end(r);
            self.moves.end(r);
            self.trace_asked.remove(&r);
        }
        assert!(!job.is_queued(), "a removed job has left its queue");
        if !self.index.is_empty() && self.named_slot(&job.id) != Some(r) {
            self.index.remove(self.hasher.hash(&job.id.0), |candidate| candidate == r);
        }
        self.sets.release(core::mem::take(&mut job.may_have));
        job
    }

    /// Takes one job that is due out of the schedule; the step that the caller makes of it
    /// puts it back. `None` with budget left means that nothing is due.
    pub fn pop_due(&mut self, now: MonoMs, budget: &mut usize) -> Option<JobRef> {
        self.wheel.pop_due(&mut self.table, now, budget)
    }

    /// Not later than the first due job.
    pub fn next_at(&self) -> MonoMs {
        self.wheel.next_at().unwrap_or(MonoMs::NEVER)
    }

    pub fn may_have(&self, r: JobRef) -> &[NodeRef] {
        self.sets.as_slice(&self.table[r].may_have)
    }

    /// The table's storage for sets that do not fit into a job.
    pub fn sets(&mut self) -> &mut NodeSets {
        &mut self.sets
    }

    /// The wait of a job for copies, if that is its state.
    pub fn copy_wait(&self, r: JobRef) -> Option<&CopyWait> {
        self.table[r].copy_wait().map(|wait| self.copy_waits.get(wait))
    }

    /// Nodes that said they have a copy, while the job waits for copies or lacks some.
    pub fn copies(&self, r: JobRef) -> &[NodeRef] {
        self.copy_wait(r).map_or_else(|| self.late_copies(r), |wait| &wait.copies)
    }

    /// The waiting job for which one more node is asked first, and when.
    pub fn first_ask(&self) -> Option<(MonoMs, JobRef)> {
        self.copy_waits.first_ask()
    }

    /// Nodes known to have an acked job acked.
    pub fn acks(&self, r: JobRef) -> &[NodeRef] {
        self.table[r].acks().map_or(&[], |acks| &self.acks[acks])
    }

    /// A job is about to be acknowledged as it was purged.
    pub fn note_purged(&mut self, r: JobRef) {
        self.purged.insert(r);
    }

    /// Whether an acked job was purged and not processed.
    pub fn is_purged(&self, r: JobRef) -> bool {
        !self.purged.is_empty() && self.purged.contains(&r)
    }

    /// A job is traced from now on, as it is sampled.
    pub fn sample(&mut self, r: JobRef) {
        let job = &mut self.table[r];
        job.flags = job.flags.with(JobFlags::TRACE);
    }

    /// A job is traced from now on, as its producer asked for it.
    pub fn trace_as_asked(&mut self, r: JobRef) {
        self.sample(r);
        self.trace_asked.insert(r);
    }

    /// A job's flags as others are to see them.
    pub fn flags_of_record(&self, r: JobRef) -> JobFlags {
        let flags = self.table[r].flags;
        if flags.contains(JobFlags::TRACE) && !self.trace_asked.contains(&r) {
            flags.without(JobFlags::TRACE)
        } else {
            flags
        }
    }

    /// Whether the collection of this job has begun.
    pub fn is_collecting(&self, r: JobRef) -> bool {
        self.table[r].acks().is_some()
    }

    /// Acked jobs from a slot on that outlived a timed attempt to collect them.
    pub fn uncollected_from(&self, slot: u32) -> impl Iterator<Item = JobRef> {
        self.uncollected.range(JobRef::from_slot(slot)..).copied()
    }

    /// The first job at or behind a slot, for scans.
    pub fn next_from(&self, slot: u32) -> Option<JobRef> {
        self.table.next_from(slot)
    }

    /// One more than the highest slot in use or used before.
    pub fn slots_end(&self) -> u32 {
        self.table.slots_end()
    }

    pub fn table(&self) -> &Table<Job> {
        &self.table
    }

    /// All jobs, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (JobRef, &Job)> {
        let mut slot = 0;
        core::iter::from_fn(move || {
            let r = self.table.next_from(slot)?;
            slot = r.slot() + 1;
            Some((r, &self.table[r]))
        })
    }

    /// Panics unless index, schedule and side tables agree with the jobs.
    pub fn check_invariants(&self) {
        let (mut waiting, mut collecting, mut indexed) = (0, 0, 0);
        for (r, job) in self.iter() {
            indexed += usize::from(self.named_slot(&job.id) != Some(r));
            assert_eq!(self.find(&job.id), Some(r), "{} is found by its ID", job.id);
            assert!(Wheel::is_scheduled(job), "{} is scheduled", job.id);
            waiting += usize::from(job.copy_wait().is_some());
            collecting += usize::from(job.acks().is_some());
        }
        self.copy_waits.check_invariants();
        self.check_attributes();
        self.check_moves();
        self.check_shortages();
        self.counts.check_invariants(self.iter().map(|(_, job)| job));
        assert_eq!(self.index.len(), indexed, "one index entry a job without its slot in its ID");
        assert_eq!(self.copy_waits.len(), waiting, "one wait a waiting job");
        assert_eq!(self.acks.len(), collecting, "one set of acks a collected job");
        let is_collecting = |r: &JobRef| self.is_collecting(*r);
        assert!(self.uncollected.iter().all(is_collecting), "acked jobs are collected");
        let is_acked = |r: &JobRef| self.table.get(*r).is_some_and(Job::is_acked);
        assert!(self.purged.iter().all(is_acked), "what was purged is acked");
        let is_traced = |r: &JobRef| self.table.get(*r).is_some_and(Job::is_traced);
        assert!(self.trace_asked.iter().all(is_traced), "jobs are traced as asked");
    }
}

impl Index<JobRef> for Jobs {
    type Output = Job;

    fn index(&self, r: JobRef) -> &Job {
        &self.table[r]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::table::Ref;
    use crate::engine::node_set::NodeSet;

    const ME: NodeId = NodeId([b'a'; 40]);

    fn add(jobs: &mut Jobs, id: JobId) -> JobRef {
        jobs.insert(NewJob {
            id,
            ctime: 0,
            body: Box::default(),
            queue: Ref::from_slot(0),
            expire_at: MonoMs(1000),
            requeue_at: MonoMs::NEVER,
            delay_secs: 0,
            retry_secs: 1,
            repl: 1,
            nack_count: 0,
            delivery_count: 0,
            flags: JobFlags::default(),
            may_have: NodeSet::default(),
            attributes: None,
        })
    }

    fn jobs() -> Jobs {
        Jobs::new([7; 16], MonoMs(0))
    }

    fn random(number: u16) -> [u8; 18] {
        let [a, b] = number.to_be_bytes();
        [a, b, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]
    }

    #[test]
    fn jobs_added_here_need_no_index_wherever_their_slots_are() {
        let mut jobs = jobs();
        let mut ids = Vec::new();
        for number in 0..5000 {
            let id = jobs.new_id(&ME, random(number), 60, 1);
            add(&mut jobs, id);
            ids.push(id);
            // Holes, whole chunks of them too, are filled again.
            if number % 3 == 0 || (1000..3000).contains(&number) {
                let gone = ids.swap_remove(ids.len() / 2);
                let r = jobs.find(&gone).expect("it was added");
                assert_eq!(jobs.remove(r).id, gone);
                assert_eq!(jobs.find(&gone), None);
            }
        }
        assert!(jobs.index.is_empty());
        jobs.check_invariants();
    }

    #[test]
    fn a_job_that_comes_back_to_another_slot_is_found() {
        let mut jobs = jobs();
        let first = jobs.new_id(&ME, random(1), 60, 1);
        let r = add(&mut jobs, first);
        jobs.remove(r);
        let second = jobs.new_id(&ME, random(2), 60, 1);
        assert_eq!(add(&mut jobs, second), r, "the slot is somebody else's now");
        assert_eq!(jobs.find(&first), None);
        let moved = add(&mut jobs, first);
        assert_eq!((jobs.find(&first), jobs.find(&second)), (Some(moved), Some(r)));
        jobs.check_invariants();
        jobs.remove(r);
        jobs.remove(moved);
        assert!(jobs.is_empty() && jobs.index.is_empty());
    }

    #[test]
    fn jobs_of_others_are_found_by_the_index() {
        let mut here = jobs();
        let mut elsewhere = Jobs::new([8; 16], MonoMs(0));
        for number in 0..3000 {
            let id = elsewhere.new_id(&ME, random(number), 60, 1);
            let r = add(&mut here, id);
            assert_eq!(here.find(&id), Some(r));
        }
        let odd = JobId::parse(b"D-________-________________________-zzzz").expect("valid shape");
        let r = add(&mut here, odd);
        assert_eq!(here.find(&odd), Some(r));
        here.check_invariants();
        assert_eq!(here.index.len(), 3001);
    }

    #[test]
    fn ids_in_a_row_do_not_tell_their_slots() {
        let mut jobs = jobs();
        let mut tails = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let id = jobs.new_id(&ME, random(number), 60, 1);
            add(&mut jobs, id);
            let bytes = id.random().expect("a generated ID");
            tails.insert(u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]) >> 20);
        }
        assert!(tails.len() > 700, "{} of 4096 places seen", tails.len());
    }
}
