//! Clients that wait: for a job in some queues, or for copies of a job they added.
//!
//! The engine only knows a client while it waits. Whatever ends a wait goes through
//! [`Blocked::end`], and the client is pushed to the outbox's `resumed` lane by
//! [`super::Engine::resume`], so that its pipeline goes on in the same turn.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::ClientId;
use crate::base::time::MonoMs;
use crate::proto::reply::Resp;

use super::job::JobRef;
use super::queue::QueueRef;

/// A place in line: smaller came first.
pub type Ticket = u64;

/// What a client waits for.
#[derive(Debug)]
pub enum Wait {
    Jobs(JobsWait),
    /// Copies of a job that it added.
    Replication(JobRef),
}

/// A GETJOB that found nothing.
#[derive(Debug)]
pub struct JobsWait {
    /// In the order given, each once.
    pub queues: Box<[QueueRef]>,
    pub ticket: Ticket,
    pub resp: Resp,
    pub counters: Counters,
}

/// Whether a job is answered together with its delivery counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    No,
    Yes,
}

#[derive(Default)]
pub struct Blocked {
    waits: BTreeMap<ClientId, (Wait, MonoMs)>,
    deadlines: BTreeSet<(MonoMs, ClientId)>,
    last_ticket: Ticket,
}

impl Blocked {
    pub fn len(&self) -> usize {
        self.waits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// A place behind everybody who waits.
    pub fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Begins a wait. `NEVER` is a deadline that does not come.
    pub fn begin(&mut self, client: ClientId, wait: Wait, deadline: MonoMs) {
        if deadline != MonoMs::NEVER {
            self.deadlines.insert((deadline, client));
        }
        let earlier = self.waits.insert(client, (wait, deadline));
        assert!(earlier.is_none(), "a blocked client's pipeline does not run");
    }

    /// Ends a wait; `None` when the client does not wait.
    pub fn end(&mut self, client: ClientId) -> Option<Wait> {
        let (wait, deadline) = self.waits.remove(&client)?;
        self.deadlines.remove(&(deadline, client));
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

    /// Everybody who waits.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &Wait)> {
        self.waits.iter().map(|(&client, (wait, _))| (client, wait))
    }

    /// The first waiting client, for those who answer all of them one by one.
    pub fn any(&self) -> Option<ClientId> {
        self.waits.first_key_value().map(|(&client, _)| client)
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
