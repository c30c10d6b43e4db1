//! Everything that makes Disque Disque: jobs, queues, requeue, acknowledgement,
//! replication, jobs lent between nodes, membership. It touches nothing: no socket, no file,
//! no clock, no randomness of its own.
//!
//! The driver hands it inputs (a client's command, a peer's message, a link that came
//! or went, "it is now t") and drains the [`outbox::Outbox`] afterwards. In production
//! the driver is the server's loop; in tests it is a simulator with dozens of engines.
//! Same seed and same inputs: same bytes out. All inputs are listed in this file.
//!
//! | module | what it decides |
//! |---|---|
//! | [`jobs`], [`node_set`] | what a job is, its states and the steps between them; all jobs, found and woken |
//! | [`queue`], [`blocked`] | queues of jobs, and the clients that wait for them |
//! | [`policy`] | what holds for the jobs of a queue by its name |
//! | [`delivery`] | enqueue, fetch, requeue, removal |
//! | `dead` | jobs that fail for good, and go to a dead queue |
//! | [`replication`], `late_copies` | a job on enough nodes before its producer gets its ID, and on more after |
//! | [`ack`], [`ack_only`], [`ack_resend`] | acknowledgement and collection |
//! | [`need_jobs`], [`your_jobs`] | jobs asked of other nodes, and lent to them |
//! | [`offers`] | urgent jobs offered to nodes that have less urgent ones |
//! | [`messages`] | how a message of another node becomes a call |
//! | [`memory`], `flush` | what is given up when memory is short, or because it was asked for |
//! | `attributes` | attributes that were lost on a job's way, and come back |
//! | `moves` | jobs that go to another queue and stay what they are |
//! | `queries`, `queue_survey` | questions to other nodes, and their answers |
//! | [`trace`] | what happened to a job, here and on all nodes |
//! | `endings` | how jobs ended, and who waits for that |
//! | [`records`] | records for the append only file, and back |
//! | [`cluster`], [`membership`] | nodes, links, gossip, failure detection; what they mean for jobs |
//! | [`command`], [`commands`], [`arguments`] | the table of commands, and one function each |
//! | `view`, [`figures`], [`waits`] | what replies and records are written from; what operators see |
//! | [`timer`] | recurring work |
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod ack;
pub mod ack_only;
pub mod ack_resend;
pub mod arguments;
mod attributes;
pub mod blocked;
pub mod cluster;
pub mod command;
pub mod commands;
pub mod config;
pub mod dead;
pub mod delivery;
mod endings;
pub mod error;
pub mod figures;
mod flush;
mod hold;
mod invariants;
pub mod jobs;
mod late_copies;
pub mod membership;
pub mod memory;
pub mod messages;
mod moves;
pub mod need_jobs;
pub mod node_set;
pub mod offers;
pub mod outbox;
pub mod policy;
mod queries;
pub mod queue;
mod queue_survey;
pub mod records;
pub mod replication;
pub mod restored;
pub mod scope;
pub mod timer;
pub mod trace;
mod view;
pub mod waits;
pub mod your_jobs;

use core::fmt::Display;
use core::net::SocketAddr;
use std::collections::BTreeMap;

use crate::base::ids::{ClientId, LinkId, NodeId};
use crate::base::rng::Rng;
use crate::base::time::{MonoMs, Now};
use crate::proto::aof_record::AofRecord;
use crate::proto::bus::{Header, Message};
use crate::proto::nodes_conf::{NodeLine, Tombstone};
use crate::proto::reply::{ReplyWriter, Resp};

use ack_only::AckOnlyJobs;
use ack_resend::AckResend;
use blocked::{Blocked, Wait};
use cluster::{Cluster, LinkEnds, NodeLoad};
use command::{Call, EngineCommand, Outcome};
use commands::LongCommand;
use config::EngineConfig;
use dead::{Deaths, ExpiredWhileDown};
use endings::Endings;
use error::CommandError;
use jobs::{JobCounts, JobRef, Jobs};
use late_copies::LateCopies;
use moves::MoveResend;
use offers::Offers;
use outbox::{ConnectToken, Outbox};
use queries::Queries;
use queue::Queues;
use records::Storage;
use restored::Restored;
use scope::QueueScope;
use timer::{Timer, TimerTable};
use trace::Traces;
use waits::QueuedTimes;

/// Idle queues are searched for among this many at a time.
const IDLE_QUEUES_PER_VISIT: usize = 1000;
/// Times at which several holders of a job would act together are drawn from half of this
/// before to half of this after, in ms. C: DISQUE_TIME_ERR.
const JITTER_MS: u32 = 500;

/// Whether a quantum of work left some undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    No,
    Yes,
}

pub struct Engine {
    pub out: Outbox,
    config: EngineConfig,
    /// How often its policies have changed.
    policy_version: u64,
    /// The time of the input that is being handled; it stands still meanwhile.
    now: Now,
    rng: Rng,
    jobs: Jobs,
    ack_only: AckOnlyJobs,
    ack_resend: AckResend,
    late_copies: LateCopies,
    move_resend: MoveResend,
    restored: Restored,
    expired_while_down: ExpiredWhileDown,
    deaths: Deaths,
    queues: Queues,
    blocked: Blocked,
    cluster: Cluster,
    queries: Queries,
    offers: Offers,
    endings: Endings,
    /// When nodes may be asked for attributes that were lost.
    ask_for_attributes_at: MonoMs,
    traces: Traces,
    timers: TimerTable,
    long_commands: BTreeMap<ClientId, LongCommand>,
    /// What commands that begin are limited to; `None` for nothing.
    scope: Option<QueueScope>,
    /// Only where waits are counted.
    queued_times: Option<Box<QueuedTimes>>,
    /// Room for the jobs that a GETJOB fetches; empty between commands.
    fetched: Vec<JobRef>,
    memory_level: u8,
    storage: Storage,
    last_ctime: u64,
    /// Counts links that came up and nodes that came to know this one. A standing ask that was
    /// sent at a lower count is sent again.
    link_count: u64,
}

/// The inputs: whatever comes from outside comes in here.
impl Engine {
    /// A node alone, without jobs and without an append only file. The seed decides every
    /// random draw that follows.
    pub fn new(config: EngineConfig, me: NodeId, seed: [u8; 32], now: Now) -> Self {
        let mut rng = Rng::from_seed(seed);
        let (job_key, queue_key) = (rng.bytes(), rng.bytes());
        Self {
            out: Outbox::default(),
            cluster: Cluster::new(me, &config),
            config,
            policy_version: 0,
            now,
            jobs: Jobs::new(job_key, now.mono),
            ack_only: AckOnlyJobs::default(),
            ack_resend: AckResend::default(),
            late_copies: LateCopies::default(),
            move_resend: MoveResend::default(),
            restored: Restored::default(),
            expired_while_down: ExpiredWhileDown::default(),
            deaths: Deaths::default(),
            queues: Queues::new(queue_key),
            blocked: Blocked::default(),
            queries: Queries::default(),
            offers: Offers::default(),
            endings: Endings::default(),
            ask_for_attributes_at: now.mono,
            traces: Traces::default(),
            timers: TimerTable::new(now.mono),
            long_commands: BTreeMap::new(),
            scope: None,
            queued_times: None,
            fetched: Vec::new(),
            memory_level: 0,
            storage: Storage::Off,
            last_ctime: 0,
            link_count: 0,
            rng,
        }
    }

    /// Handles one input: it is `now`, `handle` does the work, and what became ready on the
    /// way is given to those who wait for it.
    fn input<T>(&mut self, now: Now, handle: impl FnOnce(&mut Self) -> T) -> T {
        self.now = now;
        let result = handle(self);
        self.serve_ready();
        result
    }

    /// Runs a client's command, or a slice of a long one. The number of its arguments was
    /// checked against its row.
    pub fn call(&mut self, now: Now, command: &EngineCommand, call: &Call<'_>) -> Outcome {
        self.input(now, |engine| engine.on_call(command, call))
    }

    /// HELLO without arguments, whose row is the server's.
    pub fn hello(&mut self, now: Now, client: ClientId, resp: Resp) {
        self.input(now, |engine| engine.on_hello(client, resp));
    }

    /// A client hung up, waiting or in the middle of a long command.
    pub fn client_gone(&mut self, now: Now, client: ClientId) {
        self.input(now, |engine| engine.on_client_gone(client));
    }

    /// A message of a peer came on a link.
    pub fn bus_message(
        &mut self,
        now: Now,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
        message: &Message<'_>,
    ) {
        self.input(now, |engine| engine.on_bus_message(link, ends, header, message));
    }

    /// A link that was requested is there.
    pub fn link_up(&mut self, now: Now, link: LinkId, token: ConnectToken) {
        self.input(now, |engine| {
            engine.with_cluster(|cluster, cx| cluster.link_up(cx, link, token))
        });
    }

    /// A link that was requested could not be made, for the reason that is given.
    pub fn link_failed(&mut self, now: Now, token: ConnectToken, reason: &dyn Display) {
        self.input(now, |engine| engine.cluster.link_failed(token, reason));
    }

    /// A link is gone, made by this node or by the other.
    pub fn link_down(&mut self, now: Now, link: LinkId) {
        self.input(now, |engine| engine.cluster.link_down(link));
    }

    /// Does what is due, no more than about `max` things.
    pub fn handle_timeout(&mut self, now: Now, max: usize) -> More {
        self.input(now, |engine| engine.do_due(max))
    }

    /// Takes in what nodes.conf says, at start; see [`Cluster::load`].
    pub fn load_nodes(&mut self, now: Now, lines: &[NodeLine]) {
        self.input(now, |engine| engine.cluster.load(now, lines));
    }

    /// Takes in which nodes were forgotten as failing, at start, after the nodes.
    pub fn load_tombstones(&mut self, now: Now, tombstones: &[Tombstone]) {
        self.input(now, |engine| engine.cluster.load_tombstones(now, tombstones));
    }

    /// Takes in a record of the append only file, while the storage is
    /// [`Storage::Loading`].
    pub fn load(&mut self, now: Now, record: &AofRecord<'_>) {
        self.input(now, |engine| engine.on_record(record));
    }

    /// Damage was passed over in the append only file, behind the records loaded so far.
    pub fn damage(&mut self, now: Now) {
        self.input(now, |engine| engine.on_damage());
    }

    /// How the append only file is doing from now on.
    pub fn set_storage(&mut self, now: Now, storage: Storage) {
        self.input(now, |engine| {
            engine.storage = storage;
            if !storage.is_loading() {
                engine.expired_while_down.finish();
            }
        });
    }

    pub fn set_config(&mut self, now: Now, config: EngineConfig) {
        self.input(now, |engine| {
            engine.cluster.configure(&config);
            engine.policy_version += u64::from(engine.config.policies != config.policies);
            engine.config = config;
            engine.limit_traces();
        });
    }

    /// How short memory is from now on, see [`memory`].
    pub fn set_memory_level(&mut self, now: Now, level: u8) {
        self.input(now, |engine| {
            engine.memory_level = level;
            engine.cluster.set_memory_level(level);
        });
    }

    /// How full and how busy this node is from now on, which others are told now and then.
    pub fn set_load(&mut self, load: NodeLoad) {
        self.cluster.set_load(load);
    }

    /// Meets whoever is at an address of cluster-seeds, where clients connect, unless that is a known
    /// node.
    pub fn meet_seed(&mut self, now: Now, at: SocketAddr) {
        self.input(now, |engine| {
            engine.with_cluster(|cluster, cx| cluster.meet_seed(cx, at));
        });
    }

    /// Evicts up to `max` jobs that are picked at random among those that will not be
    /// delivered again. Returns how many: fewer than `max` when they became hard to find.
    pub fn evict(&mut self, now: Now, max: usize) -> usize {
        self.input(now, |engine| engine.evict_some(max))
    }

    /// Drops everything that was here when this client's flush began, up to `max` things at
    /// a time. Waiting GETJOB clients get a null array, waiting producers the error of a
    /// removed job.
    pub fn flush(&mut self, now: Now, client: ClientId, max: usize) -> More {
        self.input(now, |engine| engine.flush_some(client, max))
    }
}

/// What the driver asks.
impl Engine {
    /// The earliest time at which [`Self::handle_timeout`] has something to do: now, if some of
    /// it is left.
    pub fn next_timeout(&self) -> MonoMs {
        let has_more_to_do = !self.ack_resend.is_over()
            || !self.move_resend.is_over()
            || self.has_restored_to_announce()
            || self.queues.has_more_to_lend()
            || self.blocked.has_more_to_do()
            || self.endings.has_more_to_do();
        if has_more_to_do {
            return self.now.mono;
        }
        let ask_at = self.jobs.first_ask().map_or(MonoMs::NEVER, |(at, _)| at);
        self.timers
            .next_at()
            .min(self.jobs.next_at())
            .min(self.ack_only.next_at())
            .min(self.blocked.next_deadline())
            .min(ask_at)
            .min(self.jobs.first_to_tell().map_or(MonoMs::NEVER, |(at, _)| at))
            .min(self.queries.next_at())
            .min(self.offers.next_at())
            .min(self.late_copies.next_at())
            .min(self.attributes_asked_at())
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    pub fn memory_level(&self) -> u8 {
        self.memory_level
    }

    /// Jobs known here, acks without a job included. INFO: registered_jobs.
    pub fn job_count(&self) -> usize {
        self.jobs.len() + self.ack_only.len()
    }

    /// Jobs that would have died of the end of their TTL, which came while the server was down.
    /// INFO: records_expired_while_down.
    pub fn expired_while_down_count(&self) -> usize {
        self.expired_while_down.count()
    }

    /// How many of them are in which situation; acks without a job are acked. INFO: jobs_queued
    /// and so on.
    pub fn job_counts(&self) -> JobCounts {
        let counts = self.jobs.counts();
        JobCounts { acked: counts.acked + self.ack_only.len(), ..counts }
    }

    /// Jobs that were promised and are to get further copies. INFO: jobs_short_of_copies.
    pub fn short_of_copies_count(&self) -> usize {
        self.jobs.short_count()
    }

    /// INFO: registered_queues.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Whether a client waits for jobs; `false` for one that waits for copies, or does not wait.
    pub fn waits_for_jobs(&self, client: ClientId) -> bool {
        matches!(self.blocked.wait(client), Some(Wait::Jobs(_)))
    }

    /// INFO: blocked_clients.
    pub fn blocked_count(&self) -> usize {
        self.blocked.len()
    }
}

impl Engine {
    fn on_call(&mut self, command: &EngineCommand, call: &Call<'_>) -> Outcome {
        (command.run)(self, call).unwrap_or_else(|error| {
            self.reply_error(call.client, call.resp, &error);
            Outcome::Done
        })
    }

    fn do_due(&mut self, max: usize) -> More {
        let now = self.now.mono;
        let mut budget = max;
        while budget > 0 {
            if let Some(client) = self.blocked.first_timed_out(now) {
                budget -= 1;
                self.on_deadline(client);
            } else if let Some(timer) = self.timers.pop_due(now) {
                // Before the jobs: however many are due, peers need the pings of this node.
                budget -= 1;
                self.run_timer(timer);
            } else if let Some((_, r)) = self.jobs.first_ask().filter(|(at, _)| *at <= now) {
                budget -= 1;
                self.replicate_again(r);
            } else if self.queries.drop_one_over(now) || self.offer_some() {
                budget -= 1;
            } else if self.attributes_asked_at() <= now {
                budget -= 1;
                self.query_lost_attributes();
            } else if let Some((_, r)) = self.jobs.first_to_tell().filter(|(at, _)| *at <= now) {
                budget -= 1;
                self.tell_move(r);
            } else if self.visit_a_waiter() == More::Yes
                || self.leave_a_queue() == More::Yes
                || self.tell_an_ending() == More::Yes
            {
                budget -= 1;
            } else if !self.storage.is_loading()
                && let Some(r) = self.jobs.pop_due(now, &mut budget)
            {
                self.process_due(r);
            } else if budget == 0 {
                break;
            } else if let Some(id) = self.ack_only.first_due(now) {
                budget -= 1;
                self.collect_ack_only_due(id);
            } else if let Some(q) = self.queues.pop_more_to_lend() {
                let lent = self.serve_asks(q);
                budget = budget.saturating_sub(lent.max(1));
            } else if self.resend_some_acks(&mut budget) == More::No
                && self.make_late_copies(&mut budget) == More::No
                && self.resend_some_moves(&mut budget) == More::No
                && self.announce_some_restored(&mut budget) == More::No
            {
                return More::No;
            }
        }
        More::Yes
    }

    fn run_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Cluster => self.with_cluster(Cluster::tick),
            Timer::Waiters => self.begin_visits(),
            Timer::IdleQueues => {
                let idle_ms = memory::idle_queue_ms(self.memory_level);
                self.queues.drop_idle(self.now.mono, idle_ms, IDLE_QUEUES_PER_VISIT);
            }
        }
    }

    /// A writer for a reply to a client, behind all that were written before; the server sends
    /// them at the end of its turn.
    fn reply(&mut self, client: ClientId, resp: Resp) -> ReplyWriter<'_> {
        self.out.replies.to(client, resp)
    }

    fn reply_error(&mut self, client: ClientId, resp: Resp, error: &CommandError) {
        self.reply(client, resp).error(error.to_string());
    }

    /// A time up to half of [`JITTER_MS`] earlier or later, drawn anew each time.
    fn with_jitter(&mut self, at: MonoMs) -> MonoMs {
        at.plus_ms(u64::from(self.rng.below(JITTER_MS))).minus_ms(u64::from(JITTER_MS / 2))
    }
}
