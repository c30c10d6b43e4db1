//! What is kept of moves, beside the table of jobs: most jobs were never moved.
//!
//! A job that was moved has the stamp of its last move among its attributes, so that each of
//! its records carries it. Here it stands once more, as it is compared with each message about
//! the job, and beside it who knows of the move.
//!
//! Invariant: a job is in here exactly when its attributes have a stamp, and it is that one.

use std::collections::{BTreeMap, BTreeSet};

use super::{GC_ATTEMPTS_MAX, JobFlags, JobRef, Jobs};
use crate::base::time::MonoMs;
use crate::engine::node_set::NodeRef;
use crate::engine::queue::QueueRef;
use crate::proto::moved::MoveStamp;
use crate::proto::priority::Priority;

/// What a node knows of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// It knows where the job is.
    Place,
    /// It does not understand more than that this node has the job.
    Holder,
}

/// The last move of a job.
#[derive(Debug)]
struct LastMove {
    stamp: MoveStamp,
    told: Vec<(NodeRef, Knows)>,
    /// When the others are told again; `NEVER` where that is not this node's business.
    tell_at: MonoMs,
    attempts: u8,
}

#[derive(Default)]
pub(super) struct MoveTable {
    moves: BTreeMap<JobRef, LastMove>,
    /// The jobs of which somebody is to be told again.
    due: BTreeSet<(MonoMs, JobRef)>,
    /// The same jobs in their order, for walks.
    telling: BTreeSet<JobRef>,
}

impl MoveTable {
    /// A job has another stamp than before. Nobody is known to have it.
    pub fn begin(&mut self, r: JobRef, stamp: MoveStamp) {
        self.end(r);
        let told = Vec::new();
        self.moves.insert(r, LastMove { stamp, told, tell_at: MonoMs::NEVER, attempts: 0 });
    }

    pub fn end(&mut self, r: JobRef) {
        self.stop_telling(r);
        self.moves.remove(&r);
    }

    fn stop_telling(&mut self, r: JobRef) {
        if self.telling.remove(&r)
            && let Some(last) = self.moves.get_mut(&r)
        {
            self.due.remove(&(last.tell_at, r));
            last.tell_at = MonoMs::NEVER;
        }
    }
}

/// What a move changes of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobPlace {
    pub queue: QueueRef,
    pub priority: Priority,
    pub expire_at: MonoMs,
    pub nack_count: u16,
    pub delivery_count: u16,
}

impl Jobs {
    /// The stamp of a job's last move.
    pub fn move_stamp(&self, r: JobRef) -> Option<MoveStamp> {
        if self.table[r].flags.contains(JobFlags::HAD_ATTRIBUTES) {
            self.moves.moves.get(&r).map(|last| last.stamp)
        } else {
            None
        }
    }

    /// Its digest; 0 for a job that was never moved.
    pub fn move_digest(&self, r: JobRef) -> u16 {
        self.move_stamp(r).map_or(0, |stamp| stamp.digest())
    }

    /// A job that is in no queue, whatever its state says, is somewhere else from now on.
    pub fn relocate(&mut self, r: JobRef, place: JobPlace) {
        self.change(r, |job| {
            job.forget_end_of_ttl();
            job.queue = place.queue;
            job.flags = job.flags.with_priority(place.priority);
            job.expire_at = place.expire_at;
            job.nack_count = place.nack_count;
            job.delivery_count = place.delivery_count;
        });
        self.schedule(r);
    }

    /// Notes what a node was told of a job's last move.
    pub fn note_knows(&mut self, r: JobRef, node: NodeRef, told: Knows) {
        if let Some(last) = self.moves.moves.get_mut(&r) {
            match last.told.iter_mut().find(|(other, _)| *other == node) {
                Some((_, known)) if *known == Knows::Holder => *known = told,
                Some(_) => {}
                None => last.told.push((node, told)),
            }
        }
    }

    /// What a node was told of a job's last move, as far as is known here.
    pub fn knows(&self, r: JobRef, node: NodeRef) -> Option<Knows> {
        let last = self.moves.moves.get(&r)?;
        last.told.iter().find(|(other, _)| *other == node).map(|(_, told)| *told)
    }

    /// How often this node tried to tell all others of a job's last move.
    pub fn tell_attempts(&self, r: JobRef) -> u8 {
        self.moves.moves.get(&r).map_or(0, |last| last.attempts)
    }

    /// Those that do not know of a job's last move are told again then.
    pub fn tell_again(&mut self, r: JobRef, at: MonoMs) {
        if let Some(last) = self.moves.moves.get_mut(&r) {
            self.moves.due.remove(&(last.tell_at, r));
            last.tell_at = at;
            last.attempts = (last.attempts + 1).min(GC_ATTEMPTS_MAX);
            self.moves.due.insert((at, r));
            self.moves.telling.insert(r);
        }
    }

    /// Everybody knows of a job's last move, or nobody has to any more.
    pub fn stop_telling(&mut self, r: JobRef) {
        self.moves.stop_telling(r);
    }

    /// The job whose move is told again first, and when.
    pub fn first_to_tell(&self) -> Option<(MonoMs, JobRef)> {
        self.moves.due.first().copied()
    }

    /// The first job from a slot on of whose move somebody is to be told.
    pub fn next_to_tell(&self, slot: u32) -> Option<JobRef> {
        self.moves.telling.range(JobRef::from_slot(slot)..).next().copied()
    }

    /// Panics unless stamps here are those of the jobs.
    pub(super) fn check_moves(&self) {
        let stamped = |r: &JobRef| self.record_attributes(*r).move_stamp();
        for (r, last) in &self.moves.moves {
            assert_eq!(stamped(r), Some(last.stamp), "a stamp is the job's");
            let is_due = self.moves.due.contains(&(last.tell_at, *r));
            assert_eq!(is_due, last.tell_at != MonoMs::NEVER, "a move is told again in its time");
            assert_eq!(is_due, self.moves.telling.contains(r), "a walk finds what is told again");
        }
        let count = self.iter().filter(|(r, _)| stamped(r).is_some()).count();
        assert_eq!(count, self.moves.moves.len(), "each stamp stands here");
        assert_eq!(self.moves.due.len(), self.moves.telling.len(), "each move is due once");
    }
}
