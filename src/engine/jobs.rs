//! All jobs of this node: found by ID, walked by slot, woken by time.
//!
//! A job is inserted unscheduled; whoever inserts it sets its state and then calls
//! [`Jobs::reschedule`]. [`Jobs::remove`] hands the job to its caller, who is then its
//! only owner: nothing else can still refer to it. What a removal means to others (the
//! queue, a waiting client, peers, the append only file) is [`super::Engine::unregister`]'s.

use core::ops::{Index, IndexMut};

use crate::base::id_index::{IdHasher, IdIndex};
use crate::base::ids::{ClientId, JobId};
use crate::base::table::Table;
use crate::base::time::MonoMs;
use crate::base::wheel::Wheel;
use crate::proto::reply::Resp;

use super::job::{Job, JobRef, JobState};
use super::node_set::{NodeRef, NodeSets};

/// A job that waits for copies on other nodes, and the producer that waits for it.
#[derive(Debug)]
pub struct Replication {
    pub client: ClientId,
    pub resp: Resp,
    /// Nodes that said they have a copy; this one counts when it holds one.
    pub confirmed: Vec<NodeRef>,
    /// When one more node is asked.
    pub retry_at: MonoMs,
}

pub struct Jobs {
    table: Table<Job>,
    index: IdIndex<Job>,
    hasher: IdHasher,
    wheel: Wheel<Job>,
    sets: NodeSets,
    replications: Table<Replication>,
    confirmed: Table<Vec<NodeRef>>,
}

impl Jobs {
    pub fn new(hash_key: [u8; 16], now: MonoMs) -> Self {
        Self {
            table: Table::default(),
            index: IdIndex::default(),
            hasher: IdHasher::new(&hash_key),
            wheel: Wheel::new(now),
            sets: NodeSets::default(),
            replications: Table::default(),
            confirmed: Table::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn find(&self, id: &JobId) -> Option<JobRef> {
        self.index.find(self.hasher.hash(&id.0), |r| self.table[r].id == *id)
    }

    /// Adds a job that is not known yet, unscheduled.
    pub fn insert(&mut self, job: Job) -> JobRef {
        let hash = self.hasher.hash(&job.id.0);
        let r = self.table.insert(job);
        self.index.insert(hash, r);
        r
    }

    /// Takes a job out of the table, the index and the schedule, with all its sets.
    pub fn remove(&mut self, r: JobRef) -> Job {
        self.wheel.remove(&mut self.table, r);
        match self.table[r].state() {
            JobState::WaitRepl(replication) => drop(self.replications.remove(replication)),
            JobState::Acked(Some(confirmed)) => drop(self.confirmed.remove(confirmed)),
            JobState::Active | JobState::Queued | JobState::Acked(None) => {}
        }
        let hash = self.hasher.hash(&self.table[r].id.0);
        self.index.remove(hash, |candidate| candidate == r);
        let mut job = self.table.remove(r);
        self.sets.release(core::mem::take(&mut job.may_have));
        job
    }

    /// Schedules the job for the time that its fields now say.
    pub fn reschedule(&mut self, r: JobRef) {
        self.wheel.remove(&mut self.table, r);
        self.wheel.insert(&mut self.table, r);
    }

    /// Unschedules and returns one job that is due. `None` with budget left means that
    /// nothing is due.
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

    /// Notes that a node may have a copy; `false` when that was known.
    pub fn add_may_have(&mut self, r: JobRef, node: NodeRef) -> bool {
        self.sets.add(&mut self.table[r].may_have, node)
    }

    /// The table's storage for sets that do not fit into a job.
    pub fn sets(&mut self) -> &mut NodeSets {
        &mut self.sets
    }

    /// Turns a job into one that waits for copies.
    pub fn await_replication(&mut self, r: JobRef, replication: Replication) {
        let replication = self.replications.insert(replication);
        self.table[r].set_state(JobState::WaitRepl(replication));
    }

    /// The wait of a job for copies, if that is its state.
    pub fn replication(&self, r: JobRef) -> Option<&Replication> {
        match self.table[r].state() {
            JobState::WaitRepl(replication) => Some(&self.replications[replication]),
            _ => None,
        }
    }

    pub fn replication_mut(&mut self, r: JobRef) -> Option<&mut Replication> {
        match self.table[r].state() {
            JobState::WaitRepl(replication) => Some(&mut self.replications[replication]),
            _ => None,
        }
    }

    /// Ends the wait for copies: the job is active from here on.
    pub fn end_replication(&mut self, r: JobRef) -> Option<Replication> {
        let JobState::WaitRepl(replication) = self.table[r].state() else { return None };
        self.table[r].set_state(JobState::Active);
        Some(self.replications.remove(replication))
    }

    /// Nodes that confirmed: copies while the job waits for them, acks once it is acked.
    pub fn confirmed(&self, r: JobRef) -> &[NodeRef] {
        match self.table[r].state() {
            JobState::WaitRepl(replication) => &self.replications[replication].confirmed,
            JobState::Acked(Some(confirmed)) => &self.confirmed[confirmed],
            JobState::Active | JobState::Queued | JobState::Acked(None) => &[],
        }
    }

    /// Whether collection of this acked job has begun.
    pub fn has_confirmed(&self, r: JobRef) -> bool {
        matches!(self.table[r].state(), JobState::Acked(Some(_)))
    }

    /// Notes that a node has this acked job acked too.
    pub fn add_confirmed_ack(&mut self, r: JobRef, node: NodeRef) {
        let confirmed = match self.table[r].state() {
            JobState::Acked(Some(confirmed)) => confirmed,
            JobState::Acked(None) => {
                let confirmed = self.confirmed.insert(Vec::new());
                self.table[r].set_state(JobState::Acked(Some(confirmed)));
                confirmed
            }
            other => unreachable!("acks are confirmed of acked jobs, this is {other:?}"),
        };
        let nodes = &mut self.confirmed[confirmed];
        if !nodes.contains(&node) {
            nodes.push(node);
        }
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
        let (mut waiting, mut collecting) = (0, 0);
        for (r, job) in self.iter() {
            assert_eq!(self.find(&job.id), Some(r), "{} is found by its ID", job.id);
            assert!(Wheel::is_scheduled(job), "{} is scheduled", job.id);
            match job.state() {
                JobState::WaitRepl(_) => waiting += 1,
                JobState::Acked(Some(_)) => collecting += 1,
                JobState::Active | JobState::Queued | JobState::Acked(None) => {}
            }
        }
        assert_eq!(self.index.len(), self.table.len(), "one index entry a job");
        assert_eq!(self.replications.len(), waiting, "one wait a waiting job");
        assert_eq!(self.confirmed.len(), collecting, "one set of acks a collected job");
    }
}

impl Index<JobRef> for Jobs {
    type Output = Job;

    fn index(&self, r: JobRef) -> &Job {
        &self.table[r]
    }
}

impl IndexMut<JobRef> for Jobs {
    fn index_mut(&mut self, r: JobRef) -> &mut Job {
        &mut self.table[r]
    }
}
