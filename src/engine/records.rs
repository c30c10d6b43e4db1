//! Jobs as records: for the append only file, for peers, and back.
//!
//! The file holds a LOADJOB when a job is promised and a DELJOB when it ends; what
//! happens in between is in it only after a rewrite. Differs from C: an at-most-once
//! job's DELJOB is written when it is fetched, so that no restart delivers it again,
//! and jobs lent by other nodes are written as well.
//!
//! While the file is being loaded, memory does not say yet what this node knows, so
//! messages about jobs are ignored and jobs sleep; while it cannot be written, no
//! copies are taken of peers, which would believe them safe.

use crate::base::memory;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::proto::aof_record::SumPlace;
use crate::proto::aof_record::{self, AofRecord};
use crate::proto::job_record::JobRecord;

use super::config::EnqueueAtLoad;
use super::jobs::{Job, JobFlags, JobRef, JobState, Jobs, NewJob};
use super::node_set::{ME, NodeSet};
use super::trace::{Event, Gone};
use super::view::View;
use super::{Engine, More};

/// A loaded job that is overdue waits for this long, in ms, until there are links to its other
/// holders and they were asked by WILLQUEUE: one of them may have it queued, or acked.
const ASK_PEERS_MS: u64 = 1000;

/// What a record's expiry says: a point in time, or seconds left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordForm {
    /// Seconds left: the clocks of peers differ.
    ForPeers,
    /// A point in time.
    ForFile,
}

/// A job as a record. Its attributes go to every node: C servers skip them. The delay of a job that
/// was moved is what is left of its hold: in the file from the job's beginning on, as ever there.
pub(super) fn record_of<'a, N>(
    jobs: &'a Jobs,
    r: JobRef,
    queue: &'a [u8],
    now: Now,
    form: RecordForm,
    nodes: N,
) -> JobRecord<'a, N> {
    let job = &jobs[r];
    let expire_secs = expire_unix_secs(job, now);
    let (mut flags, mut delay_secs) = (jobs.flags_of_record(r), job.delay_secs);
    if jobs.move_stamp(r).is_some() && job.state() != JobState::WaitRepl {
        delay_secs = delay_of_moved(job, now, form);
        if job.is_given_back() && form == RecordForm::ForFile {
            // It is counted already: its next enqueue is silent.
            flags = flags.without(JobFlags::BROADCAST_QUEUED);
        }
    }
    let (expiry, flags) = match form {
        RecordForm::ForFile => (expire_secs, flags),
        RecordForm::ForPeers => {
            let left_secs = u64::from(expire_secs).saturating_sub(now.wall.secs());
            (saturate_u32(left_secs + 1), flags.without(JobFlags::DELIVERED))
        }
    };
    JobRecord {
        id: job.id,
        state: job.state().number(),
        gc_attempts: job.gc_attempts(),
        flags: flags.0,
        repl: job.repl,
        expiry,
        ctime: job.ctime,
        delay_secs,
        retry_secs: job.retry_secs,
        nacks: job.nack_count(),
        deliveries: job.delivery_count(),
        queue,
        body: &job.body,
        nodes,
        attributes: jobs.record_attributes(r),
    }
}

fn delay_of_moved(job: &Job, now: Now, form: RecordForm) -> u32 {
    if !job.is_held() && !job.is_delayed() {
        return 0;
    }
    let from = match form {
        RecordForm::ForPeers => now.wall,
        RecordForm::ForFile => UnixMs(job.ctime / 1_000_000),
    };
    saturate_u32(now.wall_at(job.requeue_at()).ms_since(from).div_ceil(1000))
}

/// The end of a job's TTL in whole unix seconds. C: `etime`. Rounded to the nearest:
/// the wall clock may have been slewed by a little since the job was made.
pub(super) fn expire_unix_secs(job: &Job, now: Now) -> u32 {
    saturate_u32((now.wall_at(job.expire_at()).0 + 500) / 1000)
}

pub(super) fn saturate_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The state of the append only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// There is none: no records are written.
    Off,
    /// Records are written, and synced as appendfsync says.
    Works,
    /// Its jobs are being loaded: they are in it already. It was last written at a time at
    /// which the server that wrote it still ran.
    Loading { written_at: UnixMs },
    /// It cannot be written; records wait until it can.
    Fails,
}

impl Storage {
    fn takes_records(self) -> bool {
        matches!(self, Self::Works | Self::Fails)
    }

    pub(super) fn is_loading(self) -> bool {
        matches!(self, Self::Loading { .. })
    }
}

impl Engine {
    pub(super) fn log_loadjob(&mut self, r: JobRef) {
        if self.storage.takes_records() {
            let place = self.config.aof_sums;
            let (view, out) = self.view_and_out();
            view.write_loadjob(r, place, &mut out.aof);
        }
    }

    pub(super) fn log_deljob(&mut self, r: JobRef) {
        if self.storage.takes_records() {
            aof_record::append_del_job(&mut self.out.aof, &self.jobs[r].id);
        }
    }

    /// A copy that a peer sent, of a job that is not known here. The peer queues it, so here its
    /// time comes when the delay and a retry are over.
    ///
    /// A copy of a job that was promised before may come long after it was added: of its delay
    /// it waits for what is left by this node's clock. That of a job that was moved counts from
    /// now on.
    pub(super) fn describe_copy(&mut self, record: &JobRecord<'_>) -> NewJob {
        let expire_at_secs = self.now.wall.secs() + u64::from(record.expiry);
        let mut new = self.describe(record, UnixMs(expire_at_secs * 1000));
        new.flags = new.flags.without(JobFlags::DELIVERED);
        if !new.is_at_most_once() {
            let is_counted = record.state != JobState::WaitRepl.number()
                && record.attributes.move_stamp().is_none();
            let delay_secs = match is_counted {
                true => self.delay_left_secs(&new),
                false => u64::from(new.delay_secs),
            };
            let wait_secs = delay_secs + u64::from(new.retry_secs);
            new.requeue_at = self.with_jitter(self.now.mono.plus_ms(wait_secs * 1000));
            new.flags = new.flags.with(JobFlags::BROADCAST_WILLQUEUE);
        }
        new
    }

    fn delay_left_secs(&self, new: &NewJob) -> u64 {
        let delay_secs = u64::from(new.delay_secs);
        let left_ms = new.delay_ends_at().ms_since(self.now.wall);
        delay_secs.min(left_ms.div_ceil(1000))
    }

    /// A job of the append only file.
    ///
    /// Differs from C, which lets a delayed job wait for its whole delay and its retry
    /// again: a job whose delay is not over comes at its due time, and one whose delay ended
    /// while the server was down comes now. Any other was queued before, and may be in work:
    /// it comes after its retry. The file does not say when a job was queued, but a job that
    /// was due before the file was last written has been.
    ///
    /// An at-most-once job is queued after a planned restart only.
    fn describe_loaded(&mut self, record: &JobRecord<'_>) -> NewJob {
        let mut new = self.describe(record, UnixMs(u64::from(record.expiry) * 1000));
        self.jobs.sets().add(&mut new.may_have, ME);
        let due_at = new.delay_ends_at();
        let is_planned = self.config.enqueue_at_load == EnqueueAtLoad::Yes;
        let was_up =
            |at| matches!(self.storage, Storage::Loading { written_at } if at < written_at);
        if new.delay_secs > 0 && due_at > self.now.wall {
            new.requeue_at = self.now.mono_at(due_at);
            new.flags = new.flags.without(JobFlags::BROADCAST_WILLQUEUE);
        } else if new.is_at_most_once() {
            if is_planned && new.was_never_queued() {
                new.requeue_at = self.now.mono;
            }
        } else {
            new.flags = new.flags.with(JobFlags::BROADCAST_WILLQUEUE);
            let is_overdue =
                new.delay_secs > 0 && new.was_never_queued() && (is_planned || !was_up(due_at));
            new.requeue_at = if is_overdue {
                self.now.mono.plus_ms(if self.cluster.is_alone() { 0 } else { ASK_PEERS_MS })
            } else {
                self.retry_at(new.retry_secs)
            };
        }
        new
    }

    /// What a record says of a job, without a time of its own yet.
    fn describe(&mut self, record: &JobRecord<'_>, expire_at: UnixMs) -> NewJob {
        let mut may_have = NodeSet::default();
        for id in record.nodes {
            if let Some(node) = self.cluster.find_holder(&id) {
                self.jobs.sets().add(&mut may_have, node);
            }
        }
        let flags = JobFlags(record.flags);
        let had_attributes = flags.contains(JobFlags::HAD_ATTRIBUTES);
        NewJob {
            id: record.id,
            ctime: record.ctime,
            body: memory::copy_of(record.body),
            queue: self.queues.entry(record.queue),
            expire_at: self.now.mono_at(expire_at),
            requeue_at: MonoMs::NEVER,
            delay_secs: record.delay_secs,
            retry_secs: record.retry_secs,
            repl: record.repl,
            nack_count: record.nacks,
            delivery_count: record.deliveries,
            flags,
            may_have,
            attributes: if had_attributes { record.attributes.to_kept() } else { None },
        }
    }

    /// Takes in a record of the append only file.
    pub(super) fn on_record(&mut self, record: &AofRecord<'_>) {
        match record {
            AofRecord::DelJob(id) => {
                self.delete(id, Gone::Deleted);
                self.expired_while_down.remove(id);
            }
            AofRecord::LoadJob(record) => self.load_job(record),
        }
    }

    /// A later record of a known job replaces the earlier one: the file may hold both
    /// when the job was added while the file was being rewritten.
    fn load_job(&mut self, record: &JobRecord<'_>) {
        if let Some(r) = self.jobs.find(&record.id) {
            self.dequeue(r);
            self.forget(r, Gone::Replaced);
        }
        if u64::from(record.expiry) <= self.now.wall.secs() {
            if self.would_have_died(record) {
                self.expired_while_down.insert(record.id);
            }
            return;
        }
        self.expired_while_down.remove(&record.id);
        let new = self.describe_loaded(record);
        let was_queued = record.state == JobState::Queued.number();
        let is_restored =
            was_queued && !new.is_spent() && self.config.enqueue_at_load == EnqueueAtLoad::Yes;
        let r = if is_restored {
            let r = self.register_queued(new, || Event::Loaded);
            self.restored.note_job();
            r
        } else {
            self.register(new, || Event::Loaded)
        };
        self.tell_own_move_again(r);
    }

    /// Damage was passed over in the append only file. The record that an at-most-once job was
    /// fetched may be among what is damaged: none that was loaded so far is delivered.
    pub(super) fn on_damage(&mut self) {
        let mut slot = 0;
        while let Some(r) = self.jobs.next_from(slot) {
            slot = r.slot() + 1;
            if self.jobs[r].is_at_most_once() {
                self.dequeue(r);
                self.forget(r, Gone::Damaged);
            }
        }
    }

    /// Writes LOADJOB records of up to `max` jobs from a slot on; returns the slot to go
    /// on from, and whether there may be more.
    pub fn rewrite_slice(&self, from_slot: u32, max: usize, out: &mut Vec<u8>) -> (u32, More) {
        let mut slot = from_slot;
        for _ in 0..max {
            let Some(r) = self.jobs.next_from(slot) else { return (slot, More::No) };
            slot = r.slot() + 1;
            if self.jobs[r].is_for_file() {
                self.view().write_loadjob(r, self.config.aof_sums, out);
            }
        }
        (slot, More::Yes)
    }

    /// Counts the jobs that end with this process when there is no file to hold them. Visits
    /// all jobs.
    pub fn count_unwritten(&self) -> Unwritten {
        let mut unwritten = Unwritten::default();
        for (r, _) in self.jobs.iter().filter(|(_, job)| job.is_for_file()) {
            unwritten.jobs += 1;
            unwritten.without_copy += usize::from(self.jobs.may_have(r) == [ME]);
        }
        unwritten
    }
}

impl Job {
    /// Whether the append only file holds the job: it was promised and is not over.
    pub(super) fn is_for_file(&self) -> bool {
        (self.is_active() && !self.is_spent()) || self.is_queued()
    }
}

/// Jobs that only memory has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    pub jobs: usize,
    /// Of these, how many no other node may have.
    pub without_copy: usize,
}

impl View<'_> {
    fn write_loadjob(&self, r: JobRef, place: SumPlace, out: &mut Vec<u8>) {
        let job = &self.jobs[r];
        let nodes = self.jobs.may_have(r).iter().map(|node| self.cluster.id(*node));
        let queue = &self.queues[job.queue].name;
        let record = record_of(self.jobs, r, queue, self.now, RecordForm::ForFile, nodes);
        aof_record::append_load_job(out, &record, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    use crate::base::ids::{ClientId, JobId, LinkId, NodeId};
    use crate::engine::cluster::LinkEnds;
    use crate::engine::command::Outcome;
    use crate::engine::config::EngineConfig;
    use crate::engine::delivery::Taker;
    use crate::engine::policy::{Policies, PolicyLine};
    use crate::proto::bus::{Header, Message, MessageFlags, NodeFlags};
    use crate::proto::node_info::NodeInfo;
    use crate::proto::nodes_conf::{LinkState, NodeLine};
    use crate::proto::reply::Resp;
    use crate::proto::request::OwnedArgs;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/disque.aof");
    const ME: NodeId = NodeId([b'a'; 40]);

    /// A node alone and its append only file.
    struct Node {
        engine: Engine,
        now: Now,
        file: Vec<u8>,
        written_at: UnixMs,
    }

    impl Node {
        fn new() -> Self {
            let now = Now { wall: UnixMs(1_800_000_000_000), mono: MonoMs(1_000_000) };
            Self {
                engine: engine(EnqueueAtLoad::No, now),
                now,
                file: Vec::new(),
                written_at: now.wall,
            }
        }

        /// Runs a command, its words between spaces, to its reply; its records are safe then.
        fn call(&mut self, line: &str) -> String {
            let client = ClientId { slot: 1, generation: 1 };
            let words: OwnedArgs = line.split(' ').collect();
            let mut call = || self.engine.call_words(self.now, client, Resp::V2, &words);
            while call() == Outcome::Again {}
            self.persist();
            let replies = core::mem::take(&mut self.engine.out.replies);
            String::from_utf8(replies.bytes).expect("replies of these tests are text")
        }

        fn add(&mut self, line: &str) -> String {
            let reply = self.call(line);
            let id = reply.strip_prefix('+').unwrap_or_else(|| panic!("{line}: {reply}"));
            id.trim_end().to_owned()
        }

        /// A field of SHOW.
        fn show(&mut self, id: &str, field: &str) -> String {
            let reply = self.call(&format!("show {id}"));
            let (_, value) = reply.split_once(&format!("\r\n{field}\r\n")).expect("a known job");
            let value = value.strip_prefix('$').and_then(|bulk| bulk.split_once("\r\n"));
            let value = value.map_or_else(|| reply.split_once(&format!("\r\n{field}\r\n:")), Some);
            value.expect("a value").1.lines().next().expect("a line").to_owned()
        }

        fn persist(&mut self) {
            if !self.engine.out.aof.is_empty() {
                self.written_at = self.now.wall;
            }
            self.file.append(&mut self.engine.out.aof);
        }

        fn pass(&mut self, ms: u64) {
            for _ in 0..ms.div_ceil(10) {
                self.now.wall = self.now.wall.plus_ms(10);
                self.now.mono = self.now.mono.plus_ms(10);
                while self.engine.handle_timeout(self.now, 10) == More::Yes {}
            }
            self.persist();
        }

        /// What a kill -9 and a start make of the node, half a second later.
        fn crash(&mut self, enqueue: EnqueueAtLoad) {
            self.now.wall = self.now.wall.plus_ms(500);
            self.now.mono = MonoMs(5000);
            let policies = self.engine.config().policies.clone();
            self.engine = engine(enqueue, self.now);
            self.set_policies(policies);
            self.engine.set_storage(self.now, Storage::Loading { written_at: self.written_at });
            let file = core::mem::take(&mut self.file);
            let mut rest = &file[..];
            while let Some((len, record)) = aof_record::next(rest).expect("records are whole") {
                self.engine.load(self.now, &record);
                rest = &rest[len..];
            }
            self.engine.set_storage(self.now, Storage::Works);
            assert!(rest.is_empty() && self.engine.out.aof.is_empty());
            self.engine.check_invariants();
            self.file = file;
        }

        fn set_policies(&mut self, policies: Policies) {
            let config = EngineConfig { policies, ..self.engine.config().clone() };
            self.engine.set_config(self.now, config);
        }

        fn rewrite(&mut self) {
            self.file.clear();
            assert_eq!(self.engine.rewrite_slice(0, usize::MAX, &mut self.file).1, More::No);
        }

        /// The jobs that a rewrite would write, in an order of their own.
        fn job_ids(&self) -> Vec<JobId> {
            let mut records = Vec::new();
            self.engine.rewrite_slice(0, usize::MAX, &mut records);
            let mut ids = Vec::new();
            let mut rest = &records[..];
            while let Some((len, record)) = aof_record::next(rest).expect("records are whole") {
                let AofRecord::LoadJob(job) = record else { panic!("a rewrite deletes nothing") };
                ids.push(job.id);
                rest = &rest[len..];
            }
            ids.sort();
            ids
        }
    }

    fn engine(enqueue_at_load: EnqueueAtLoad, now: Now) -> Engine {
        let config = EngineConfig { enqueue_at_load, ..EngineConfig::default() };
        let mut engine = Engine::new(config, ME, [7; 32], now);
        engine.set_storage(now, Storage::Works);
        engine
    }

    const PEER: NodeId = NodeId([b'b'; 40]);

    /// A message comes from a peer, which becomes known by that.
    fn receive(node: &mut Node, message: &Message<'_>) {
        let address = IpAddr::from([127, 0, 0, 1]);
        let peer = NodeLine {
            id: PEER,
            ip: Some(address),
            port: 7712,
            flags: NodeFlags(0),
            ping_sent_at: UnixMs(0),
            pong_received_at: UnixMs(0),
            link: LinkState::Disconnected,
            unusual_bus_port: None,
        };
        node.engine.load_nodes(node.now, &[peer]);
        let header = Header {
            sender: PEER,
            ip: None,
            port: 7712,
            flags: NodeFlags(0),
            state: 0,
            message_flags: MessageFlags::NONE,
            reserved: [0; 34],
        };
        let ends = LinkEnds { local: address, peer: address };
        let link = LinkId { slot: 1, generation: 1 };
        node.engine.bus_message(node.now, link, ends, &header, message);
    }

    /// A copy of a job comes from a peer; returns whether it is taken and confirmed.
    fn takes_copy(node: &mut Node) -> bool {
        let Ok(Some((_, AofRecord::LoadJob(record)))) = aof_record::next(GOLDEN) else {
            panic!("it begins with a job")
        };
        receive(node, &Message::ReplJob(record));
        node.engine.job_count() == 1
    }

    #[test]
    fn what_nodes_say_of_themselves_counts_while_jobs_are_loaded() {
        let mut node = Node::new();
        node.engine.set_storage(node.now, Storage::Loading { written_at: UnixMs(0) });
        let info = NodeInfo { zone: "north", ..NodeInfo::default() };
        receive(&mut node, &Message::NodeInfo(info));
        let zones: Vec<String> =
            node.engine.cluster.peers(node.now.mono).map(|peer| peer.zone).collect();
        assert_eq!(zones, ["north"]);
    }

    #[test]
    fn copies_are_taken_of_peers_only_while_they_are_kept() {
        for (storage, is_taken) in [
            (Storage::Works, true),
            (Storage::Fails, false),
            (Storage::Loading { written_at: UnixMs(0) }, false),
        ] {
            let mut node = Node::new();
            node.engine.set_storage(node.now, storage);
            assert_eq!(takes_copy(&mut node), is_taken, "{storage:?}");
        }
    }

    const NOTHING: &str = "*-1\r\n";

    #[test]
    fn a_queued_job_is_active_after_a_crash_and_back_within_its_retry() {
        let mut node = Node::new();
        let kept = node.add("addjob q kept 0 retry 3");
        let acked = node.add("addjob q acked 0 retry 3");
        node.call(&format!("ackjob {acked}"));
        node.crash(EnqueueAtLoad::No);
        assert_eq!(node.call("qlen q"), ":0\r\n");
        assert_eq!(node.show(&kept, "state"), "active");
        assert_eq!(node.call(&format!("show {acked}")), "$-1\r\n");
        node.pass(2500);
        assert_eq!(node.call("getjob nohang from q"), NOTHING);
        node.pass(1000);
        assert!(node.call("getjob nohang from q").contains(&kept));
    }

    #[test]
    fn a_job_that_would_have_died_while_the_server_was_down_is_counted() {
        let mut node = Node::new();
        let mut policies = Policies::default();
        let line = ["q*", "on-expire", "dead"].map(|word| word.as_bytes().to_vec());
        policies.set(PolicyLine::parse(&line).expect("a right line"));
        node.set_policies(policies);
        node.add("addjob q expires 0 ttl 5");
        let acked = node.add("addjob q acked 0 ttl 5");
        node.add("addjob other expires 0 ttl 5");
        node.add("addjob q once 0 ttl 5 retry 0");
        node.call("getjob count 2 from q");
        node.call(&format!("ackjob {acked}"));
        let dead = node.add("addjob q2 dead 0 ttl 100");
        node.call("getjob from q2");
        assert_eq!(node.call(&format!("nack {dead} dead")), ":1\r\n");
        node.now.wall = node.now.wall.plus_ms(7000);
        node.crash(EnqueueAtLoad::No);
        assert_eq!(node.engine.job_count(), 1, "the dead one is left");
        // The one in q that was not acked, and the at-most-once job that nobody got.
        assert_eq!(node.engine.expired_while_down_count(), 2);
        node.crash(EnqueueAtLoad::No);
        assert_eq!(node.show(&dead, "queue"), "q2.dead");
    }

    #[test]
    fn a_delayed_job_keeps_its_due_time() {
        let mut node = Node::new();
        node.add("addjob q body 0 delay 10 retry 300");
        node.pass(4000);
        node.crash(EnqueueAtLoad::No);
        node.pass(5000);
        assert_eq!(node.call("qlen q"), ":0\r\n");
        node.pass(600);
        assert_eq!(node.call("qlen q"), ":1\r\n");
    }

    #[test]
    fn a_job_that_expired_meanwhile_is_skipped() {
        let mut node = Node::new();
        node.add("addjob q body 0 ttl 10");
        node.now.wall = node.now.wall.plus_ms(20_000);
        node.crash(EnqueueAtLoad::No);
        assert_eq!(node.engine.job_count(), 0);
    }

    #[test]
    fn an_at_most_once_job_leaves_the_file_when_it_is_fetched() {
        for enqueue in [EnqueueAtLoad::No, EnqueueAtLoad::Yes] {
            let mut node = Node::new();
            node.add("addjob q body 0 retry 0 replicate 1");
            assert!(node.call("getjob from q").contains("body"));
            node.crash(enqueue);
            node.pass(10_000);
            assert_eq!(node.call("getjob nohang from q"), NOTHING);
            assert_eq!(node.engine.job_count(), 0);
        }
    }

    #[test]
    fn an_at_most_once_job_leaves_the_file_before_it_is_lent_to_a_peer() {
        let mut node = Node::new();
        let id = node.add("addjob q body 0 retry 0 replicate 1");
        let q = node.engine.queues.find(b"q").expect("a job is in it");
        let r = node.engine.fetch(q, Taker::Client { lease_secs: None }).expect("there is one");
        node.engine.unregister(r, Gone::PassedOn);
        let mut expected = Vec::new();
        aof_record::append_del_job(&mut expected, &JobId::parse(id.as_bytes()).expect("an ID"));
        assert_eq!(node.engine.out.aof, expected);
    }

    #[test]
    fn a_planned_restart_leaves_every_job_where_it_was() {
        let mut node = Node::new();
        let once = node.add("addjob q once 0 retry 0 replicate 1");
        let again = node.add("addjob q again 0 retry 100");
        let active = node.add("addjob q active 0 retry 100");
        assert!(node.call("getjob count 3 from q").contains("active"));
        node.call(&format!("nack {again}"));
        node.call(&format!("enqueue {again}"));
        let waiting = node.add("addjob q waiting 0 retry 0 replicate 1");
        for _ in 0..3 {
            node.rewrite();
            node.crash(EnqueueAtLoad::Yes);
            assert_eq!(node.call("qlen q"), ":2\r\n");
            assert_eq!(node.show(&again, "nacks"), "1");
            assert_eq!(node.show(&again, "additional-deliveries"), "0");
            assert_eq!(node.show(&active, "state"), "active");
            assert_eq!(node.show(&waiting, "state"), "queued");
            assert_eq!(node.call(&format!("show {once}")), "$-1\r\n");
        }
        // A crash before anything was written: the at-most-once job is still to be had.
        node.crash(EnqueueAtLoad::Yes);
        assert!(node.call("getjob count 10 from q").contains("waiting"));
        node.crash(EnqueueAtLoad::Yes);
        assert!(!node.call("getjob count 10 from q").contains("waiting"));
    }

    #[test]
    fn a_later_record_of_a_job_replaces_the_earlier() {
        let mut node = Node::new();
        let id = node.add("addjob q body 0 retry 100");
        node.call("getjob from q");
        node.call(&format!("nack {id}"));
        let mut records = core::mem::take(&mut node.file);
        node.rewrite();
        records.append(&mut node.file);
        node.file = records;
        node.crash(EnqueueAtLoad::No);
        assert_eq!(node.engine.job_count(), 1);
        assert_eq!(node.show(&id, "nacks"), "1");
    }

    #[test]
    fn a_rewrite_in_slices_among_changes_loads_to_the_jobs_that_are_there() {
        for seed in 0..50u8 {
            let mut node = Node::new();
            let mut rng = crate::base::rng::Rng::from_seed([seed; 32]);
            let mut ids = Vec::new();
            let (mut stream, mut slot, mut more) = (Vec::new(), 0, More::No);
            for step in 0..200 {
                if step == 50 {
                    more = More::Yes;
                }
                match rng.below(5) {
                    0 | 1 => {
                        let retry = rng.below(2) * 100;
                        ids.push(node.add(&format!("addjob q b 0 replicate 1 retry {retry}")));
                    }
                    2 => drop(node.call("getjob nohang from q")),
                    3 if !ids.is_empty() => {
                        let id = ids.swap_remove(rng.index(ids.len()));
                        node.call(&format!("ackjob {id}"));
                    }
                    _ if !ids.is_empty() => {
                        let id = ids[rng.index(ids.len())].clone();
                        node.call(&format!("nack {id}"));
                    }
                    _ => {}
                }
                let records = core::mem::take(&mut node.file);
                if step >= 50 {
                    stream.extend_from_slice(&records);
                }
                if more == More::Yes {
                    (slot, more) = node.engine.rewrite_slice(slot, 1, &mut stream);
                }
            }
            assert_eq!(more, More::No, "the rewrite came to its end");
            let expected = node.job_ids();
            node.file = stream;
            node.crash(EnqueueAtLoad::No);
            assert_eq!(node.job_ids(), expected, "seed {seed}");
        }
    }

    #[test]
    fn jobs_sleep_while_others_are_loaded() {
        let mut node = Node::new();
        node.add("addjob q body 0 retry 1");
        node.crash(EnqueueAtLoad::No);
        let written_at = node.written_at;
        node.engine.set_storage(node.now, Storage::Loading { written_at });
        node.pass(5000);
        assert_eq!(node.call("qlen q"), ":0\r\n");
        node.engine.set_storage(node.now, Storage::Works);
        node.pass(10);
        assert_eq!(node.call("qlen q"), ":1\r\n");
    }

    /// A node with the jobs of a file that was written a moment ago.
    fn node_with(file: &[u8]) -> Node {
        let mut node = Node::new();
        let (mut rest, mut last_ctime) = (file, 0);
        while let Some((len, record)) = aof_record::next(rest).expect("records are whole") {
            rest = &rest[len..];
            if let AofRecord::LoadJob(job) = record {
                last_ctime = last_ctime.max(job.ctime);
            }
        }
        node.now.wall = UnixMs(last_ctime / 1_000_000);
        node.file = file.to_vec();
        node.crash(EnqueueAtLoad::Yes);
        node
    }

    #[test]
    fn a_file_with_attributes_reads_back_as_it_was_written_and_has_none_after_a_c_server() {
        let big = format!("$3\r\nbig\r\n$1000\r\n{}\r\n", "x".repeat(1000));
        let trace = "$11\r\ntraceparent\r\n$7\r\n00-4bf9\r\n$4\r\ntype\r\n$4\r\nmail\r\n";
        let row = |body: &str, attributes: &str| format!("{body}\r\n$5\r\nattrs\r\n{attributes}");
        let written = include_bytes!("../../tests/golden/attributes.aof");
        let rewritten_by_c = include_bytes!("../../tests/golden/attributes_through_c.aof");
        for (file, one, three) in [
            (&written[..], format!("*4\r\n{trace}"), format!("*2\r\n{big}")),
            (rewritten_by_c, "*-1\r\n".to_owned(), "*-1\r\n".to_owned()),
        ] {
            let mut node = node_with(file);
            // In the file of the C server they were fetched already.
            node.pass(200_000);
            let rows = node.call("getjob count 9 withattrs from q");
            assert!(rows.starts_with("*3\r\n") && rows.contains(&row("one", &one)), "{rows}");
            assert!(rows.contains(&row("three", &three)), "{rows}");
            assert!(rows.contains(&row("two", "*0\r\n")), "{rows}");
            node.rewrite();
            node.crash(EnqueueAtLoad::Yes);
            let shown = node.call("jscan reply all");
            assert!(shown.contains(&row("one", &one)) && shown.contains(&row("three", &three)));
        }
    }

    #[test]
    fn a_file_of_the_c_server_is_loaded() {
        let mut node = node_with(GOLDEN);
        assert_eq!(node.call("qlen plain"), ":2\r\n");
        assert!(node.call("getjob from plain").contains("hello"));
    }
}
