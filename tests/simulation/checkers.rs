//! What must hold of everything that clients saw of a node alone.
//!
//! A [`Story`] is what is known of a job from outside. It follows the job in and out of
//! its queue closely enough to say when a delivery would be too early, and what its
//! counters must be.

use std::collections::{BTreeMap, BTreeSet};

/// Requeue times are spread by so much either way, in ms.
const SPREAD_MS: u64 = 250;
/// A job is removed so long after its TTL, in ms.
const GRACE_MS: u64 = 1000;

/// What is known of one job from outside.
#[derive(Debug)]
pub struct Story {
    pub queue: &'static str,
    pub retry_ms: u64,
    pub added_at: u64,
    pub delay_ms: u64,
    pub ttl_ms: u64,
    pub delivered_at: Vec<u64>,
    /// How often a client gave it back.
    nacks: u64,
    /// How often it left its queue: fetched, or taken out by hand.
    exits: u64,
    /// It is not delivered before this.
    not_before: u64,
    /// If it is in its queue it is not requeued before this.
    requeue_not_before: u64,
    /// When it was acknowledged or dropped.
    pub ended_at: Option<u64>,
    /// It was in reach of an eviction after its only delivery.
    pub evictable: bool,
}

/// A row of GETJOB WITHCOUNTERS.
#[derive(Debug)]
pub struct Row {
    pub queue: Vec<u8>,
    pub id: Vec<u8>,
    pub nacks: u64,
    pub deliveries: u64,
}

/// What SHOW says of a job.
#[derive(Debug)]
pub struct Shown {
    pub state: Vec<u8>,
    pub nacks: u64,
    pub deliveries: u64,
    pub requeue_within_ms: Option<u64>,
}

impl Story {
    pub fn new(
        queue: &'static str,
        added_at: u64,
        retry_ms: u64,
        delay_ms: u64,
        ttl_ms: u64,
    ) -> Self {
        let due_at = added_at + delay_ms;
        Self {
            queue,
            retry_ms,
            added_at,
            delay_ms,
            ttl_ms,
            delivered_at: Vec::new(),
            nacks: 0,
            exits: 0,
            not_before: due_at,
            requeue_not_before: (due_at + retry_ms).saturating_sub(SPREAD_MS),
            ended_at: None,
            evictable: false,
        }
    }

    /// The job left its queue.
    pub fn left_queue(&mut self, now: u64) {
        self.exits += 1;
        self.not_before = self.requeue_not_before.max(now);
        self.requeue_not_before = (self.not_before + self.retry_ms).saturating_sub(SPREAD_MS);
    }

    /// A client put the job back into its queue.
    pub fn put_back(&mut self, now: u64) {
        self.not_before = now;
        self.requeue_not_before = (now + self.retry_ms).saturating_sub(SPREAD_MS);
    }

    pub fn given_back(&mut self, now: u64) {
        self.nacks += 1;
        self.put_back(now);
    }

    /// A client works on the job.
    pub fn postponed(&mut self, now: u64) {
        if self.retry_ms > 0 {
            self.not_before = (now + self.retry_ms).saturating_sub(SPREAD_MS);
            self.requeue_not_before = self.not_before + self.retry_ms - SPREAD_MS;
        }
    }

    pub fn delivered(&mut self, now: u64, row: &Row) {
        let told = format!("at {now}: {row:?} of {self:?}");
        assert_eq!(row.queue, self.queue.as_bytes(), "a job stays in its queue, {told}");
        assert!(self.ended_at.is_none(), "nothing comes back after its end, {told}");
        assert!(now >= self.not_before, "nothing comes before its time, {told}");
        assert!(now <= self.removed_by(), "nothing comes after its expiry, {told}");
        if self.retry_ms == 0 {
            assert!(self.delivered_at.is_empty(), "at most once is once, {told}");
        }
        self.delivered_at.push(now);
        self.left_queue(now);
        assert_eq!(row.nacks, self.nacks, "each NACK is counted, {told}");
        assert_eq!(
            row.deliveries,
            self.exits - 1 - self.nacks,
            "each time that it was queued again is counted, {told}"
        );
    }

    /// By when the job is gone, whatever happens.
    pub fn removed_by(&self) -> u64 {
        self.expires_at() + GRACE_MS
    }

    /// When the TTL is over: it counts from the whole second in which the job was added.
    pub fn expires_at(&self) -> u64 {
        self.added_at / 1000 * 1000 + self.ttl_ms
    }

    /// Whether the node must know the job.
    pub fn is_live(&self, now: u64) -> bool {
        self.ended_at.is_none() && now < self.expires_at() && !self.evictable
    }

    /// Whether the node must not know the job.
    pub fn is_over(&self, now: u64) -> bool {
        self.ended_at.is_some() || now > self.removed_by()
    }

    pub fn is_spent(&self) -> bool {
        self.retry_ms == 0 && !self.delivered_at.is_empty()
    }

    /// Compares the story with what the node says of the job.
    pub fn shown(&self, now: u64, shown: Option<&Shown>) {
        let told = format!("at {now}: {shown:?} of {self:?}");
        let Some(shown) = shown else {
            assert!(!self.is_live(now), "a job that was promised is there, {told}");
            return;
        };
        assert!(!self.is_over(now), "a job is gone after its end, {told}");
        let is_queued = shown.state == b"queued";
        let entries = self.exits + u64::from(is_queued);
        assert_eq!(shown.nacks, self.nacks, "each NACK is counted, {told}");
        assert_eq!(
            shown.deliveries,
            entries.saturating_sub(1 + self.nacks),
            "each time that it was queued again is counted, {told}"
        );
        match shown.requeue_within_ms {
            None => {
                let was_queued = entries > 0;
                assert!(self.retry_ms == 0 && was_queued, "a job is not forgotten, {told}");
            }
            Some(within_ms) if entries == 0 => {
                let delay_left_ms = (self.added_at + self.delay_ms).saturating_sub(now);
                let longest_ms = delay_left_ms.max(self.retry_ms + SPREAD_MS);
                assert!(within_ms <= longest_ms, "a delayed job comes in time, {told}");
            }
            Some(within_ms) => {
                assert!(within_ms <= self.retry_ms + SPREAD_MS, "a job comes back in time, {told}");
            }
        }
    }
}

/// The jobs that producers were promised, by ID.
pub type Stories = BTreeMap<Vec<u8>, Story>;

/// Clients that wait for jobs: when each began, by whose turn it is, and until when.
#[derive(Debug, Default)]
pub struct Waits {
    waits: BTreeMap<u64, Wait>,
    last_ticket: u64,
}

#[derive(Debug)]
pub struct Wait {
    pub ticket: u64,
    pub client: usize,
    pub queues: Vec<&'static str>,
    pub deadline: u64,
}

impl Waits {
    pub fn begin(&mut self, client: usize, queues: Vec<&'static str>, deadline: u64) {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.waits.insert(ticket, Wait { ticket, client, queues, deadline });
    }

    pub fn of(&self, client: usize) -> Option<&Wait> {
        self.waits.values().find(|wait| wait.client == client)
    }

    /// A client's wait is over, or it hung up.
    pub fn end(&mut self, client: usize) -> Option<Wait> {
        let ticket = self.of(client)?.ticket;
        self.waits.remove(&ticket)
    }

    /// Nobody who came before waits for the queue of which a job went to this one.
    pub fn check_turn(&self, served: &Wait, queue: &[u8]) {
        let passed_over = self
            .waits
            .range(..served.ticket)
            .find(|(_, wait)| wait.queues.iter().any(|name| name.as_bytes() == queue));
        assert!(passed_over.is_none(), "{served:?} was served before {passed_over:?}");
    }

    /// Nobody waits for longer than was asked.
    pub fn check_deadlines(&self, now: u64) {
        let late = self.waits.values().find(|wait| wait.deadline < now);
        assert!(late.is_none(), "at {now}: {late:?} is not over");
    }
}

/// The number of different IDs among these.
pub fn distinct<'a>(ids: impl Iterator<Item = &'a Vec<u8>>) -> usize {
    ids.collect::<BTreeSet<_>>().len()
}
