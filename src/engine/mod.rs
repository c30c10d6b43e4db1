//! Everything that makes Disque Disque: jobs, queues, requeue, acknowledgement,
//! replication, federation, membership. It touches nothing: no socket, no file, no
//! clock, no chance of its own.
//!
//! The driver hands it inputs (a client's command, a peer's message, a link that came
//! or went, "it is now t") and drains the [`outbox::Outbox`] afterwards. In production
//! the driver is the server's loop; in tests it is a simulator with dozens of engines.
//! Same seed and same inputs: same bytes out.
//!
//! | room | what it decides |
//! |---|---|
//! | [`jobs`], [`node_set`] | what a job is; all of them, found, walked and woken |
//! | [`queue`], [`blocked`] | lines of jobs, and the clients that wait for them |
//! | [`delivery`] | enqueue, fetch, requeue, removal |
//! | [`replication`] | a job on enough nodes before its producer hears of it |
//! | [`ack`], [`ack_only`], [`ack_resend`] | acknowledgement and collection |
//! | [`need_jobs`], [`your_jobs`] | jobs asked of other nodes, and lent to them |
//! | [`messages`] | how a message of another node becomes a call |
//! | [`memory`] | what is given up when memory is short |
//! | [`records`] | records for the append only file, and back |
//! | [`cluster`], [`membership`] | nodes, links, gossip, failure detection; what they mean for jobs |
//! | [`commands`] | one function a command |
//! | [`timer`] | recurring work |
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod ack;
pub mod ack_only;
pub mod ack_resend;
pub mod arguments;
pub mod blocked;
pub mod cluster;
pub mod command;
pub mod commands;
pub mod config;
pub mod delivery;
pub mod error;
pub mod jobs;
pub mod membership;
pub mod memory;
pub mod messages;
pub mod need_jobs;
pub mod node_set;
pub mod outbox;
pub mod queue;
pub mod records;
pub mod replication;
pub mod timer;
pub mod your_jobs;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{ClientId, NodeId};
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now};
use crate::proto::reply::{ReplyWriter, Resp};

use ack_only::AckOnlyJobs;
use ack_resend::AckResend;
use blocked::{Blocked, Wait};
use cluster::Cluster;
use command::{Call, Command, Outcome};
use commands::LongCommand;
use config::EngineConfig;
use error::CommandError;
use jobs::Jobs;
use jobs::job::JobRef;
use outbox::Outbox;
use queue::{QueueRef, Queues};
use records::Storage;
use timer::{Timer, TimerTable};

/// Idle queues are looked for among this many at a time.
const IDLE_QUEUES_PER_LOOK: usize = 1000;
/// Requeue times are spread by this, so that nodes do not requeue in step. C: DISQUE_TIME_ERR.
const TIME_ERROR_MS: u32 = 500;

/// Whether a quantum of work left some undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    No,
    Yes,
}

pub struct Engine {
    pub out: Outbox,
    config: EngineConfig,
    /// The time of the input that is being handled; it stands still meanwhile.
    now: Now,
    rng: Rng,
    jobs: Jobs,
    ack_only: AckOnlyJobs,
    ack_resend: AckResend,
    queues: Queues,
    blocked: Blocked,
    cluster: Cluster,
    timers: TimerTable,
    /// Jobs that wait for copies, by the time at which one more node is asked.
    replicating: BTreeSet<(MonoMs, JobRef)>,
    /// Long commands that are not finished, by their client.
    long_commands: BTreeMap<ClientId, LongCommand>,
    /// Room for the jobs that a GETJOB fetches; empty between commands.
    fetched: Vec<JobRef>,
    memory_level: u8,
    storage: Storage,
    last_ctime: u64,
}

impl Engine {
    /// A node alone, without jobs. The seed decides every random draw that follows.
    pub fn new(config: EngineConfig, me: NodeId, seed: [u8; 32], now: Now) -> Self {
        let mut rng = Rng::from_seed(seed);
        let (job_key, queue_key) = (rng.bytes(), rng.bytes());
        Self {
            out: Outbox::default(),
            cluster: Cluster::new(me, &config),
            config,
            now,
            jobs: Jobs::new(job_key, now.mono),
            ack_only: AckOnlyJobs::default(),
            ack_resend: AckResend::default(),
            queues: Queues::new(queue_key),
            blocked: Blocked::default(),
            timers: TimerTable::new(now.mono),
            replicating: BTreeSet::new(),
            long_commands: BTreeMap::new(),
            fetched: Vec::new(),
            memory_level: 0,
            storage: Storage::Works,
            last_ctime: 0,
            rng,
        }
    }

    /// Runs a client's command. The number of its arguments was checked against its row.
    pub fn call(&mut self, now: Now, command: &Command, call: &Call<'_>) -> Outcome {
        self.now = now;
        let outcome = (command.run)(self, call).unwrap_or_else(|error| {
            self.reply_error(call.client, call.resp, &error);
            Outcome::Done
        });
        self.serve_ready();
        outcome
    }

    /// The point in time at which something is due.
    pub fn next_timeout(&self) -> MonoMs {
        if !self.ack_resend.is_over() {
            return self.now.mono;
        }
        let replication_at = self.replicating.first().map_or(MonoMs::NEVER, |&(at, _)| at);
        self.timers
            .next_at()
            .min(self.jobs.next_at())
            .min(self.ack_only.next_at())
            .min(self.blocked.next_deadline())
            .min(replication_at)
    }

    /// Does what is due, no more than about `max` things.
    pub fn handle_timeout(&mut self, now: Now, max: usize) -> More {
        self.now = now;
        let mut budget = max;
        while budget > 0 {
            if let Some(client) = self.blocked.first_timed_out(now.mono) {
                budget -= 1;
                self.time_out(client);
            } else if let Some(timer) = self.timers.pop_due(now.mono) {
                // Before the jobs: however many are due, peers have to hear of this node.
                budget -= 1;
                self.run_timer(timer);
            } else if let Some(&(_, r)) = self.replicating.first().filter(|(at, _)| *at <= now.mono)
            {
                budget -= 1;
                self.replicate_again(r);
            } else if self.storage != Storage::Loading
                && let Some(r) = self.jobs.pop_due(now.mono, &mut budget)
            {
                self.process_due(r);
            } else if budget == 0 {
                break;
            } else if let Some(id) = self.ack_only.pop_due(now.mono) {
                budget -= 1;
                self.collect_ack_only_due(id);
            } else if self.resend_some_acks(&mut budget) == More::Yes {
                continue;
            } else {
                self.serve_ready();
                return More::No;
            }
        }
        self.serve_ready();
        More::Yes
    }

    fn run_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Cluster => self.with_cluster(Cluster::tick),
            Timer::Waiters => self.look_after_waiters(),
            Timer::IdleQueues => {
                let idle_ms = memory::idle_queue_ms(self.memory_level);
                self.queues.drop_idle(self.now.mono, idle_ms, IDLE_QUEUES_PER_LOOK);
            }
        }
    }

    pub fn set_config(&mut self, now: Now, config: EngineConfig) {
        self.now = now;
        self.cluster.configure(&config);
        self.config = config;
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Jobs known here, acks without a job included. INFO: registered_jobs.
    pub fn job_count(&self) -> usize {
        self.jobs.len() + self.ack_only.len()
    }

    /// INFO: registered_queues.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// INFO: blocked_clients.
    pub fn blocked_count(&self) -> usize {
        self.blocked.len()
    }

    fn reply(&mut self, client: ClientId, resp: Resp) -> ReplyWriter<'_> {
        self.out.replies.to(client, resp)
    }

    fn reply_error(&mut self, client: ClientId, resp: Resp, error: &CommandError) {
        self.reply(client, resp).error(error.to_string());
    }

    /// A time error of a quarter of a second either way, drawn anew each time.
    fn with_time_error(&mut self, at: MonoMs) -> MonoMs {
        at.plus_ms(u64::from(self.rng.below(TIME_ERROR_MS))).minus_ms(u64::from(TIME_ERROR_MS / 2))
    }

    /// Drops up to `max` jobs, and the queues once no job is left. Waiting GETJOB
    /// clients get a null array, waiting producers the error of a removed job.
    pub fn flush(&mut self, now: Now, max: usize) -> More {
        self.now = now;
        self.time_out_consumers();
        let mut budget = max;
        let mut slot = 0;
        while let Some(r) = self.jobs.next_from(slot) {
            if budget == 0 {
                return More::Yes;
            }
            budget -= 1;
            slot = r.slot();
            self.unregister(r);
        }
        while let Some(q) = self.queues.next_from(0) {
            if budget == 0 {
                return More::Yes;
            }
            budget -= 1;
            self.queues[q].asks = your_jobs::Asks::default();
            self.queues.close(q);
        }
        self.ack_only.clear();
        More::No
    }

    /// Panics unless everything that is kept twice agrees. Costs time in proportion to
    /// all there is: for tests, the simulator and DEBUG.
    pub fn check_invariants(&self) {
        self.cluster.check_invariants();
        self.jobs.check_invariants();
        self.blocked.check_invariants();
        self.ack_only.check_invariants();
        let is_acked = |r: &JobRef| self.jobs[*r].is_acked();
        assert!(self.ack_resend.uncollected.iter().all(is_acked), "acked jobs are collected");
        let mut users: BTreeMap<QueueRef, u32> = BTreeMap::new();
        let mut queued: BTreeMap<QueueRef, usize> = BTreeMap::new();
        let mut replicating = 0;
        for (r, job) in self.jobs.iter() {
            *users.entry(job.queue).or_default() += 1;
            if job.is_queued() {
                *queued.entry(job.queue).or_default() += 1;
            }
            if let Some(replication) = self.jobs.replication(r) {
                replicating += 1;
                assert!(
                    self.replicating.contains(&(replication.retry_at, r)),
                    "a job that waits for copies asks again"
                );
                assert!(
                    matches!(self.blocked.wait(replication.client), Some(Wait::Replication(w)) if *w == r),
                    "a job that waits for copies has a producer that waits"
                );
            }
        }
        assert_eq!(self.replicating.len(), replicating, "only waiting jobs ask again");
        self.queues.check_invariants(&users);
        for (q, entry) in self.queues.iter() {
            let Some(queue) = entry.live() else {
                assert!(!queued.contains_key(&q), "queued jobs are in a live queue");
                continue;
            };
            assert_eq!(
                queue.jobs.len(),
                queued.get(&q).copied().unwrap_or(0),
                "a job is queued if and only if its queue has it"
            );
            assert!(
                (queue.waiters.is_empty() && !queue.imports.is_asking())
                    || self.blocked.looks_after(q),
                "a queue that is waited or asked for is looked after"
            );
            let keys: Vec<_> =
                queue.jobs.iter().map(|r| (self.jobs[r].ctime, self.jobs[r].id)).collect();
            assert!(keys.is_sorted(), "a queue is in order");
            for (ticket, client) in &queue.waiters {
                assert!(
                    matches!(self.blocked.wait(*client), Some(Wait::Jobs(w)) if w.ticket == *ticket && w.queues.contains(&q)),
                    "who stands in line waits for the queue"
                );
            }
            assert!(
                queue.waiters.is_empty() || queue.jobs.is_empty() || queue.pause.is_out(),
                "nobody waits for a job that is there"
            );
        }
    }
}
