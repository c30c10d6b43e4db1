//! How jobs end, and the clients that wait for it: WAITJOB.
//!
//! A worker may be done with a job before its producer gets around to wait for that. So the endings
//! of the last minute are remembered: 1,024 of them at most before the first WAITJOB of this process,
//! so that who never waits does not pay for the memory, and 65,536 from then on. Hardly any is ever asked for, and
//! those that are came a moment ago: they lie in a ring, in the order in which they came, and are
//! searched for from the latest back, for a slice of a command at a time.
//!
//! A client waits for jobs that this node knows. It is among the waiters of each of them, and is
//! told in a later quantum when one ends, since many may wait for the same job. Whoever
//! waits costs nothing until then. When a wait is over its client leaves the waiters of the jobs
//! that did not end, a quantum at a time; until then it is passed over there.

use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::{ClientId, JobId};
use crate::base::time::MonoMs;
use crate::proto::reply::{ReplyWriter, Resp};

use super::blocked::{Wait, WaitOrder};
use super::jobs::JobRef;
use super::{Engine, More};

/// For how long an ending is remembered, in ms.
const REMEMBERED_MS: u64 = 60_000;
/// Most endings that are, once there was a WAITJOB, and before.
const REMEMBERED_MAX: usize = 65_536;
const REMEMBERED_UNUSED_MAX: usize = 1024;
/// Endings out of date that are forgotten for each that comes: the ring shrinks as it grew.
const FORGOTTEN_AT_ONCE: usize = 2;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnding {
    Acked,
    Expired,
    /// By DELJOB, FASTACK, QPURGE or a flush, here or elsewhere.
    Deleted,
    /// It failed for good, and is in a dead queue.
    Dead,
    /// An at-most-once job was given to a client, or to a node that has one.
    Delivered,
    /// It is not known here.
    Unknown,
}

impl JobEnding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::Unknown => "unknown",
        }
    }
}

/// What of an ID is remembered: its random part, which no two jobs share.
type RandomPart = [u8; 24];

fn random_part(id: &JobId) -> RandomPart {
    core::array::from_fn(|at| id.0[11 + at])
}

#[derive(Debug)]
struct Remembered {
    job: RandomPart,
    at: MonoMs,
    ending: JobEnding,
}

/// When a wait for jobs to end is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At the first job that ends.
    First,
    All,
}

/// A WAITJOB that waits.
#[derive(Debug)]
pub struct EndsWait {
    /// Its place among the waits, by which a later one of the same client is told apart.
    pub order: WaitOrder,
    pub resp: Resp,
    pub until: Until,
    /// The jobs that had not ended when it came to them; those that have by now among them.
    jobs: Vec<JobId>,
    ended: Vec<(JobId, JobEnding)>,
    /// Whether it has come to all of its jobs.
    pub has_all: bool,
}

impl EndsWait {
    pub fn new(order: WaitOrder, resp: Resp, until: Until) -> Self {
        Self { order, resp, until, jobs: Vec::new(), ended: Vec::new(), has_all: false }
    }

    fn is_over(&self) -> bool {
        self.has_all
            && match self.until {
                Until::First => !self.ended.is_empty(),
                Until::All => self.jobs.is_empty(),
            }
    }

    fn write(&self, reply: &mut ReplyWriter<'_>) {
        reply.array(self.ended.len());
        for (id, ending) in &self.ended {
            reply.array(2);
            reply.bulk(id.0);
            reply.bulk(ending.name());
        }
    }
}

/// A place among the waiters of a job.
type Waiter = (WaitOrder, ClientId);

/// The latest endings, and who waits for which.
#[derive(Debug, Default)]
pub struct Endings {
    /// Whether there was a WAITJOB yet.
    is_used: bool,
    /// The latest is the last.
    remembered: VecDeque<Remembered>,
    waiters: BTreeMap<JobId, Vec<Waiter>>,
    /// Who is to be told of what.
    news: VecDeque<(JobId, JobEnding, Vec<Waiter>)>,
    /// Waits that are over, and the jobs whose waiters they are to leave.
    leaving: VecDeque<(WaitOrder, Vec<JobId>)>,
}

impl Endings {
    /// A job ended.
    fn note(&mut self, id: &JobId, ending: JobEnding, now: MonoMs) {
        let most = if self.is_used { REMEMBERED_MAX } else { REMEMBERED_UNUSED_MAX };
        for _ in 0..FORGOTTEN_AT_ONCE {
            let is_old = |first: &Remembered| now.ms_since(first.at) > REMEMBERED_MS;
            if self.remembered.len() == most || self.remembered.front().is_some_and(is_old) {
                self.remembered.pop_front();
            }
        }
        self.remembered.push_back(Remembered { job: random_part(id), at: now, ending });
        self.tell(id, ending);
    }

    /// Whoever waits for a job is to be told.
    fn tell(&mut self, id: &JobId, ending: JobEnding) {
        if self.waiters.is_empty() {
            return;
        }
        if let Some(waiters) = self.waiters.remove(id) {
            self.news.push_back((*id, ending, waiters));
        }
    }

    /// How these jobs ended, as far as it is remembered.
    fn find(&self, ids: &[JobId], now: MonoMs) -> Vec<Option<JobEnding>> {
        let mut found = vec![None; ids.len()];
        let mut sought: BTreeMap<RandomPart, Vec<usize>> = BTreeMap::new();
        for (place, id) in ids.iter().enumerate() {
            sought.entry(random_part(id)).or_default().push(place);
        }
        for end in self.remembered.iter().rev() {
            if sought.is_empty() || now.ms_since(end.at) > REMEMBERED_MS {
                break;
            }
            for place in sought.remove(&end.job).unwrap_or_default() {
                found[place] = Some(end.ending);
            }
        }
        found
    }

    fn leave(&mut self, id: &JobId, order: WaitOrder) {
        if let Some(waiters) = self.waiters.get_mut(id) {
            waiters.retain(|(other, _)| *other != order);
            if waiters.is_empty() {
                self.waiters.remove(id);
            }
        }
    }

    /// Whether somebody is to be told, or to leave, without delay.
    pub fn has_more_to_do(&self) -> bool {
        !self.news.is_empty() || !self.leaving.is_empty()
    }

    /// Whether a client is among the waiters of a job, for the invariants.
    fn has_waiter(&self, id: &JobId, waiter: Waiter) -> bool {
        let has = |waiters: &Vec<Waiter>| waiters.contains(&waiter);
        self.waiters.get(id).is_some_and(has)
            || self.news.iter().any(|(other, _, waiters)| other == id && has(waiters))
    }
}

impl Engine {
    /// A job ends here, in this way. What ended before has been noted then.
    pub(super) fn note_ending(&mut self, r: JobRef, ending: JobEnding) {
        let job = &self.jobs[r];
        let was_over = job.is_acked() || job.is_spent() && ending != JobEnding::Delivered;
        if !was_over && !self.storage.is_loading() {
            self.endings.note(&job.id, ending, self.now.mono);
        }
    }

    /// A job that is not known here was acknowledged.
    pub(super) fn note_ack_only(&mut self, id: &JobId) {
        self.endings.note(id, JobEnding::Acked, self.now.mono);
    }

    /// A job is gone from here. Whoever still waits for it would wait in vain.
    pub(super) fn note_gone(&mut self, id: &JobId) {
        self.endings.tell(id, JobEnding::Unknown);
    }

    /// The next jobs of a client's WAITJOB: it learns at once how they ended, or is among their
    /// waiters from now on.
    pub(super) fn wait_for_ends(&mut self, client: ClientId, ids: &[JobId]) {
        self.endings.is_used = true;
        let mut ended: Vec<Option<JobEnding>> = ids.iter().map(|id| self.ending_of(id)).collect();
        let is_unknown = |ending: &Option<JobEnding>| *ending == Some(JobEnding::Unknown);
        if ended.iter().any(is_unknown) {
            let remembered = self.endings.find(ids, self.now.mono);
            for (ending, remembered) in ended.iter_mut().zip(remembered) {
                if is_unknown(ending) {
                    *ending = remembered.or(*ending);
                }
            }
        }
        let Some(wait) = self.blocked.ends_wait(client) else { return };
        for (id, ending) in ids.iter().zip(ended) {
            match ending {
                Some(ending) => wait.ended.push((*id, ending)),
                None => {
                    wait.jobs.push(*id);
                    self.endings.waiters.entry(*id).or_default().push((wait.order, client));
                }
            }
        }
    }

    /// How a job ended; `None` for one that has not.
    fn ending_of(&self, id: &JobId) -> Option<JobEnding> {
        match self.jobs.find(id) {
            Some(r) if self.jobs[r].is_acked() => Some(self.ending_by_ack(r)),
            Some(r) if self.jobs[r].is_spent() => Some(JobEnding::Delivered),
            Some(r) if self.is_dead(r) => Some(JobEnding::Dead),
            Some(_) => None,
            None if self.ack_only.contains(id) => Some(JobEnding::Acked),
            None => Some(JobEnding::Unknown),
        }
    }

    /// What an ack means for those who wait: a purge is one, too.
    pub(super) fn ending_by_ack(&self, r: JobRef) -> JobEnding {
        if self.jobs.is_purged(r) { JobEnding::Deleted } else { JobEnding::Acked }
    }

    /// Whether a job failed for good, and was not moved since.
    fn is_dead(&self, r: JobRef) -> bool {
        self.jobs.record_attributes(r).facts().is_some()
    }

    /// A job was moved here, by this node or another: if it died of that, whoever waits is told.
    pub(super) fn note_if_dead(&mut self, r: JobRef) {
        if self.is_dead(r) {
            self.note_ending(r, JobEnding::Dead);
        }
    }

    /// Answers a WAITJOB that has come to all of its jobs, if enough of them ended.
    pub(super) fn end_wait_for_ends(&mut self, client: ClientId) -> More {
        let is_over = self.blocked.ends_wait(client).is_some_and(|wait| wait.is_over());
        if !is_over {
            return More::Yes;
        }
        if let Some(Wait::Ends(wait)) = self.blocked.end(client) {
            wait.write(&mut self.out.replies.to(client, wait.resp));
            self.leave_ends(*wait);
        }
        More::No
    }

    /// A wait is over: its client is to leave the waiters of the jobs that did not end.
    pub(super) fn leave_ends(&mut self, wait: EndsWait) {
        if !wait.jobs.is_empty() {
            self.endings.leaving.push_back((wait.order, wait.jobs));
        }
    }

    /// Tells one client of an ending, or has one leave the waiters of a job.
    pub(super) fn tell_an_ending(&mut self) -> More {
        if let Some((id, ending, waiters)) = self.endings.news.front_mut() {
            let (id, ending, waiter) = (*id, *ending, waiters.pop());
            if waiters.is_empty() {
                self.endings.news.pop_front();
            }
            if let Some(waiter) = waiter {
                self.tell_waiter(waiter, id, ending);
            }
            return More::Yes;
        }
        let Some((order, jobs)) = self.endings.leaving.front_mut() else { return More::No };
        let (order, job) = (*order, jobs.pop());
        if jobs.is_empty() {
            self.endings.leaving.pop_front();
        }
        if let Some(id) = job {
            self.endings.leave(&id, order);
        }
        More::Yes
    }

    fn tell_waiter(&mut self, (order, client): Waiter, id: JobId, ending: JobEnding) {
        let wait = self.blocked.ends_wait(client).filter(|wait| wait.order == order);
        let Some(wait) = wait else { return };
        // One that is named twice is told twice.
        let Some(at) = wait.jobs.iter().position(|job| *job == id) else { return };
        wait.jobs.swap_remove(at);
        wait.ended.push((id, ending));
        if self.end_wait_for_ends(client) == More::No {
            self.resume(client);
        }
    }

    /// Panics unless clients that wait for jobs to end are told of it.
    pub(super) fn check_ends(&self) {
        for (client, wait) in self.blocked.ends_waits() {
            for id in &wait.jobs {
                let is_waiter = self.endings.has_waiter(id, (wait.order, client));
                assert!(is_waiter, "who waits for a job is among its waiters");
            }
        }
        for id in self.endings.waiters.keys() {
            assert!(self.jobs.find(id).is_some(), "nobody waits for a job that is gone");
        }
        assert!(self.endings.remembered.len() <= REMEMBERED_MAX, "endings are bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> JobId {
        JobId(format!("D-00000000-{n:024}-05a1").into_bytes().try_into().expect("40 bytes"))
    }

    #[test]
    fn the_latest_endings_of_the_last_minute_are_remembered() {
        let mut endings = Endings::default();
        for n in 0..2 * REMEMBERED_UNUSED_MAX {
            endings.note(&id(n), JobEnding::Acked, MonoMs(1000));
        }
        assert_eq!(endings.remembered.len(), REMEMBERED_UNUSED_MAX, "nobody waited yet");
        endings.is_used = true;
        for n in 0..REMEMBERED_MAX + 10 {
            endings.note(&id(n), JobEnding::Acked, MonoMs(1000));
        }
        assert_eq!(endings.remembered.len(), REMEMBERED_MAX);
        endings.note(&id(20), JobEnding::Deleted, MonoMs(2000));
        let ids = [id(9), id(20), id(500), id(20)];
        let (acked, deleted) = (Some(JobEnding::Acked), Some(JobEnding::Deleted));
        assert_eq!(endings.find(&ids, MonoMs(61_000)), [None, deleted, acked, deleted]);
        assert_eq!(endings.find(&ids, MonoMs(61_001)), [None, deleted, None, deleted]);
        for n in 0..REMEMBERED_MAX {
            endings.note(&id(n), JobEnding::Acked, MonoMs(100_000));
        }
        assert_eq!(endings.remembered.len(), REMEMBERED_MAX);
    }
}
