//! Clients that wait: for a job in some queues, for copies of a job they added, for jobs to end, or
//! for what other nodes know.
//!
//! The engine only knows a client while it waits. Whatever ends a wait goes through
//! [`Blocked::end`], and the client is pushed to the outbox's `resumed` lane by
//! [`super::Engine::resume`], so that its pipeline goes on in the same turn.
//!
//! A client whose GETJOB found nothing is among the waiters of each of its queues. As long as
//! a queue has waiters, other nodes are asked for jobs of that queue: all such queues are
//! visited in turn.
//!
//! There may be a million queues in one GETJOB. The client joins their waiters some at a time,
//! and waits from the first of them on: a job that comes to one that it has joined is its own, and
//! ends the command between two slices. When its wait is over it leaves some at once and the others
//! later. Until then it is among waiters although it does not wait, and is passed over there.
//!
//! A wait ends well in [`super::delivery`] (a job came), [`super::replication`] (the
//! copies are there), [`super::endings`] (jobs ended), [`super::queue_survey`] or
//! [`super::trace`] (all nodes answered). Here it ends otherwise: the time is over, the client hung up, the
//! queues were flushed, or this node leaves the cluster.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::base::ids::ClientId;
use crate::base::limits::COMMAND_SLICE;
use crate::base::time::MonoMs;
use crate::proto::reply::Resp;
use crate::proto::request::Args;

use super::command::Call;
use super::commands::getjob::GetJob;
use super::endings::EndsWait;
use super::error::CommandError;
use super::jobs::JobRef;
use super::need_jobs::{Asking, Need};
use super::queue::QueueRef;
use super::queue_survey::QueueSurvey;
use super::trace::{Refusal, TraceSurvey};
use super::{Engine, More};

/// Queues with waiting clients for which other nodes are asked each time, and clients that a
/// node which leaves turns away.
const VISITS_MAX: usize = 1000;

/// The order of arrival among waiters: smaller came first.
pub type WaitOrder = u64;

/// What a client waits for.
#[derive(Debug)]
pub enum Wait {
    Jobs(JobsWait),
    /// Copies of a job that it added.
    Copies(JobRef),
    /// Jobs to end.
    Ends(Box<EndsWait>),
    /// What other nodes know of a queue.
    Survey(Box<QueueSurvey>),
    /// What other nodes know of the life of a job.
    Trace(Box<TraceSurvey>),
}

/// A GETJOB that found nothing.
#[derive(Debug)]
pub struct JobsWait {
    /// In the order given, each once; those that it has joined so far.
    pub queues: Vec<QueueRef>,
    pub order: WaitOrder,
    pub resp: Resp,
    pub extras: Extras,
    /// For how long the client is to have its job, if it says so.
    pub lease_secs: Option<u32>,
}

/// Whether a client still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    No,
    Yes,
}

/// What is answered of a job behind its queue, its ID and its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras(u8);

impl Extras {
    pub const NONE: Self = Self(0);
    /// Its delivery counters.
    pub const COUNTERS: Self = Self(1);
    /// The attributes that its producer gave it.
    pub const ATTRIBUTES: Self = Self(2);

    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `others` are answered.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

/// Everybody who waits, and until when.
#[derive(Default)]
pub struct Blocked {
    waits: BTreeMap<ClientId, (Wait, MonoMs)>,
    deadlines: BTreeSet<(MonoMs, ClientId)>,
    last_waiter: WaitOrder,
    /// Queues that clients wait for, or for which other nodes still hold an ask. Some are
    /// over, which is found out in turn.
    waited_for: BTreeSet<QueueRef>,
    /// The slot of the queue that is visited next.
    visit_cursor: u32,
    /// How many visits are due at once.
    visits_due: usize,
    /// Waits that are over, with the queues that are still to be left.
    leaving: VecDeque<JobsWait>,
    /// Who waits for what other nodes know of a queue, or of a job.
    surveys: BTreeSet<ClientId>,
}

impl Blocked {
    pub fn len(&self) -> usize {
        self.waits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// A place behind everybody who waits.
    pub(super) fn next_place(&mut self) -> WaitOrder {
        self.last_waiter += 1;
        self.last_waiter
    }

    /// Begins a wait. `NEVER` is a deadline that does not come.
    pub fn begin(&mut self, client: ClientId, wait: Wait, deadline: MonoMs) {
        if deadline != MonoMs::NEVER {
            self.deadlines.insert((deadline, client));
        }
        match &wait {
            Wait::Jobs(wait) => self.waited_for.extend(&wait.queues),
            Wait::Survey(_) | Wait::Trace(_) => _ = self.surveys.insert(client),
            Wait::Copies(_) | Wait::Ends(_) => {}
        }
        let earlier = self.waits.insert(client, (wait, deadline));
        assert!(earlier.is_none(), "a blocked client's pipeline does not run");
    }

    /// A client that waits for jobs waits for some more queues.
    fn add_queues(&mut self, client: ClientId, queues: &[QueueRef]) {
        self.waited_for.extend(queues);
        if let Some((Wait::Jobs(wait), _)) = self.waits.get_mut(&client) {
            wait.queues.extend(queues);
        }
    }

    /// Ends a wait; `None` when the client does not wait.
    pub fn end(&mut self, client: ClientId) -> Option<Wait> {
        let (wait, deadline) = self.waits.remove(&client)?;
        let was_there = self.deadlines.remove(&(deadline, client));
        assert_eq!(was_there, deadline != MonoMs::NEVER, "one deadline a wait that has one");
        if matches!(wait, Wait::Survey(_) | Wait::Trace(_)) {
            self.surveys.remove(&client);
        }
        Some(wait)
    }

    pub fn wait(&self, client: ClientId) -> Option<&Wait> {
        self.waits.get(&client).map(|(wait, _)| wait)
    }

    /// The client whose deadline came first, once it has come.
    pub fn first_timed_out(&self, now: MonoMs) -> Option<ClientId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|&(_, client)| client)
    }

    pub fn next_deadline(&self) -> MonoMs {
        self.deadlines.first().map_or(MonoMs::NEVER, |&(at, _)| at)
    }

    /// For how long a client that waits for jobs is to have its job.
    pub fn lease_secs(&self, client: ClientId) -> Option<u32> {
        match self.wait(client)? {
            Wait::Jobs(wait) => wait.lease_secs,
            _ => None,
        }
    }

    /// The wait of a client for jobs to end, if it waits for that.
    pub(super) fn ends_wait(&mut self, client: ClientId) -> Option<&mut EndsWait> {
        match self.waits.get_mut(&client) {
            Some((Wait::Ends(wait), _)) => Some(wait),
            _ => None,
        }
    }

    /// All waits for jobs to end, for the invariants.
    pub(super) fn ends_waits(&self) -> impl Iterator<Item = (ClientId, &EndsWait)> {
        self.waits.iter().filter_map(|(client, (wait, _))| match wait {
            Wait::Ends(wait) => Some((*client, &**wait)),
            _ => None,
        })
    }

    /// The clients that wait for what other nodes know of a queue, or of a job.
    pub(super) fn surveying(&self) -> Vec<ClientId> {
        self.surveys.iter().copied().collect()
    }

    /// The survey that a client waits for, if it waits for one.
    pub(super) fn survey(&mut self, client: ClientId) -> Option<&mut QueueSurvey> {
        match self.waits.get_mut(&client) {
            Some((Wait::Survey(survey), _)) => Some(survey),
            _ => None,
        }
    }

    /// The same for the life of a job.
    pub(super) fn trace_survey(&mut self, client: ClientId) -> Option<&mut TraceSurvey> {
        match self.waits.get_mut(&client) {
            Some((Wait::Trace(survey), _)) => Some(survey),
            _ => None,
        }
    }

    /// The first waiting client, for those who answer all of them one by one.
    fn any(&self) -> Option<ClientId> {
        self.waits.first_key_value().map(|(&client, _)| client)
    }

    /// The place of the client that came last to wait for jobs.
    pub fn last_waiter(&self) -> WaitOrder {
        self.last_waiter
    }

    /// The next waiting client, and its place when it waits for jobs.
    pub fn next_waiting(&self, after: Bound<ClientId>) -> Option<(ClientId, Option<WaitOrder>)> {
        let (&client, (wait, _)) = self.waits.range((after, Bound::Unbounded)).next()?;
        let order = match wait {
            Wait::Jobs(wait) => Some(wait.order),
            _ => None,
        };
        Some((client, order))
    }

    /// Whether a queue is among those that are visited in turn.
    pub fn visits(&self, q: QueueRef) -> bool {
        self.waited_for.contains(&q)
    }

    /// The next of the queues that clients wait for; all have their turn.
    fn next_waited_for(&mut self) -> Option<QueueRef> {
        let from = QueueRef::from_slot(self.visit_cursor);
        let next = self.waited_for.range(from..).next().or(self.waited_for.first()).copied()?;
        self.visit_cursor = next.slot() + 1;
        Some(next)
    }

    /// Whether some queues are to be visited, or left, without delay.
    pub fn has_more_to_do(&self) -> bool {
        self.visits_due > 0 || !self.leaving.is_empty()
    }

    /// Whether a client that is among waiters still waits there.
    pub fn is_over(&self, client: ClientId, order: WaitOrder) -> bool {
        !self.leaving.is_empty()
            && !matches!(self.wait(client), Some(Wait::Jobs(wait)) if wait.order == order)
    }

    /// Whether a wait that is over is still to leave a queue, for the invariants.
    pub fn is_to_leave(&self, order: WaitOrder, q: QueueRef) -> bool {
        self.leaving.iter().any(|wait| wait.order == order && wait.queues.contains(&q))
    }

    /// Panics unless the deadlines are those of the waits.
    pub fn check_invariants(&self) {
        let timed = self.waits.values().filter(|(_, at)| *at != MonoMs::NEVER).count();
        assert_eq!(self.deadlines.len(), timed, "one deadline a wait that has one");
        for (at, client) in &self.deadlines {
            let known = self.waits.get(client).map(|(_, deadline)| deadline);
            assert_eq!(known, Some(at), "a deadline belongs to a wait");
        }
    }
}

impl Engine {
    /// Puts a client whose GETJOB found nothing among the waiters of each of its queues.
    pub(super) fn wait_for_jobs(&mut self, call: &Call<'_>, names: Args<'_>, getjob: &GetJob) {
        let order = self.blocked.next_place();
        let queues = self.join_queues(call.client, order, names);
        // For the rest of a long list the others are asked when it is visited.
        for &q in &queues {
            self.renew_standing_ask(q);
        }
        let wait = JobsWait {
            queues,
            order,
            resp: call.resp,
            extras: getjob.extras,
            lease_secs: getjob.lease_secs,
        };
        self.blocked.begin(call.client, Wait::Jobs(wait), getjob.deadline);
    }

    /// Puts a client that waits for jobs among the waiters of more queues. `No` when it waits
    /// no more.
    pub(super) fn wait_for_more(&mut self, client: ClientId, names: Args<'_>) -> Waiting {
        let Some(Wait::Jobs(wait)) = self.blocked.wait(client) else { return Waiting::No };
        let queues = self.join_queues(client, wait.order, names);
        self.blocked.add_queues(client, &queues);
        Waiting::Yes
    }

    /// Puts a client among the waiters of some queues; returns those where it was not yet.
    fn join_queues(
        &mut self,
        client: ClientId,
        order: WaitOrder,
        names: Args<'_>,
    ) -> Vec<QueueRef> {
        let mut queues: Vec<QueueRef> = Vec::new();
        for name in names.iter() {
            let q = self.queues.open(name, self.now.mono);
            let queue = self.queues.revive(q, self.now.mono);
            // One that is named twice is waited for once.
            if queue.waiters.insert(order, client).is_none() {
                queues.push(q);
            }
        }
        // A job may have come while the queues were gone through in slices.
        for &q in &queues {
            self.queues.mark_ready(q);
        }
        queues
    }

    /// A client hung up, waiting or in the middle of a long command.
    pub(super) fn on_client_gone(&mut self, client: ClientId) {
        self.long_commands.remove(&client);
        match self.blocked.end(client) {
            Some(Wait::Jobs(wait)) => self.leave_queues(wait),
            Some(Wait::Copies(r)) => self.abandon_replication(r, Refusal::ClientGone),
            Some(Wait::Ends(wait)) => self.leave_ends(*wait),
            Some(Wait::Survey(_) | Wait::Trace(_)) | None => {}
        }
    }

    /// The end of a wait, answered or not: the client's next command may run. One that is
    /// between two slices comes back by itself.
    pub(super) fn resume(&mut self, client: ClientId) {
        if !self.long_commands.contains_key(&client) {
            self.out.resumed.push(client);
        }
    }

    /// Takes a client out of the waiters of its queues; of very many, out of the rest later.
    pub(super) fn leave_queues(&mut self, mut wait: JobsWait) {
        let left_later = wait.queues.len().saturating_sub(COMMAND_SLICE);
        for q in wait.queues.drain(left_later..) {
            self.queues.leave(q, wait.order);
        }
        if !wait.queues.is_empty() {
            self.blocked.leaving.push_back(wait);
        }
    }

    /// Takes a client that waits no more out of the waiters of one of its queues.
    pub(super) fn leave_a_queue(&mut self) -> More {
        let Some(wait) = self.blocked.leaving.front_mut() else { return More::No };
        if let Some(q) = wait.queues.pop() {
            self.queues.leave(q, wait.order);
        }
        if wait.queues.is_empty() {
            self.blocked.leaving.pop_front();
        }
        More::Yes
    }

    /// A client's deadline has come.
    pub(super) fn on_deadline(&mut self, client: ClientId) {
        self.give_up(client, None);
    }

    /// Ends a wait without what was waited for: with an error, or, when the time is over,
    /// as the command answers that.
    fn give_up(&mut self, client: ClientId, error: Option<&CommandError>) {
        match self.blocked.end(client) {
            Some(Wait::Jobs(wait)) => {
                match error {
                    Some(error) => self.reply_error(client, wait.resp, error),
                    None => self.reply(client, wait.resp).null_array(),
                }
                self.leave_queues(wait);
            }
            Some(Wait::Copies(r)) => {
                let resp = self.jobs.copy_wait(r).map_or(Resp::V2, |waiting| waiting.resp);
                self.reply_error(client, resp, error.unwrap_or(&CommandError::ReplicationTimeout));
                self.abandon_replication(r, Refusal::Timeout);
            }
            Some(Wait::Ends(wait)) => {
                match error {
                    Some(error) => self.reply_error(client, wait.resp, error),
                    None => self.reply(client, wait.resp).null_array(),
                }
                self.leave_ends(*wait);
            }
            Some(Wait::Survey(survey)) => match error {
                Some(error) => self.reply_error(client, survey.resp, error),
                None => survey.write(&mut self.reply(client, survey.resp)),
            },
            Some(Wait::Trace(survey)) => match error {
                Some(error) => self.reply_error(client, survey.resp, error),
                None => {
                    let resp = survey.resp;
                    survey.write(&mut self.reply(client, resp));
                }
            },
            None => return,
        }
        self.resume(client);
    }

    /// Every 100 ms: on a node that leaves, nobody waits any longer; elsewhere the
    /// queues with waiting clients ask other nodes for jobs. What was asked for the other
    /// queues ends. If there are many, some are visited each time, one after the other.
    pub(super) fn begin_visits(&mut self) {
        let clients = if self.cluster.is_leaving() { self.blocked.len() } else { 0 };
        self.blocked.visits_due = (clients + self.blocked.waited_for.len()).min(VISITS_MAX);
    }

    /// Visits a client that is to be turned away, or a queue. `No` when none is due.
    pub(super) fn visit_a_waiter(&mut self) -> More {
        let Some(left) = self.blocked.visits_due.checked_sub(1) else { return More::No };
        self.blocked.visits_due = left;
        if self.cluster.is_leaving()
            && let Some(client) = self.blocked.any()
        {
            self.give_up(client, Some(&CommandError::Leaving));
        } else if let Some(q) = self.blocked.next_waited_for() {
            let queue = self.queues.get(q).and_then(|entry| entry.live());
            if queue.is_some_and(|queue| !queue.waiters.is_empty()) {
                self.request_jobs(q, Need::ClientsWaiting);
                self.renew_standing_ask(q);
            } else if self.end_idle_ask(q) == Asking::No {
                self.blocked.waited_for.remove(&q);
            }
        } else {
            self.blocked.visits_due = 0;
        }
        More::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_are_waited_for_are_all_visited_in_turn() {
        let queues: Vec<QueueRef> = (0..2500).map(QueueRef::from_slot).collect();
        let wait = JobsWait {
            queues: queues.clone(),
            order: 1,
            resp: Resp::V2,
            extras: Extras::NONE,
            lease_secs: None,
        };
        let client = ClientId { slot: 1, generation: 0 };
        let mut blocked = Blocked::default();
        blocked.begin(client, Wait::Jobs(wait), MonoMs::NEVER);
        let visited: Vec<QueueRef> = (0..3000).filter_map(|_| blocked.next_waited_for()).collect();
        assert_eq!(visited[..2500], queues);
        assert_eq!(visited[2500..], queues[..500]);
    }
}
