//! Jobs as records: for the append only file, for peers, and back.
//!
//! The file holds a LOADJOB when a job is promised and a DELJOB when it ends; what
//! happens in between is in it only after a rewrite. Differs from C: an at-most-once
//! job's DELJOB is written when it is fetched, so that no restart delivers it again,
//! and jobs lent by other nodes are written as well.

use crate::base::time::{MonoMs, Now, UnixMs};
use crate::proto::aof_record::{self, AofRecord};
use crate::proto::job_record::JobRecord;

use super::config::{Aof, EnqueueAtLoad};
use super::job::{Job, JobFlags, JobRef, JobState, NewJob};
use super::node_set::{ME, NodeSet};
use super::{Engine, More};

/// What a record's expiry says: a point in time, or seconds left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For messages: clocks of peers differ.
    Message,
    /// For files.
    Storage,
}

/// A job as a record.
pub(super) fn record_of<'a, N>(
    job: &'a Job,
    queue: &'a [u8],
    now: Now,
    form: Form,
    nodes: N,
) -> JobRecord<'a, N> {
    let expire_secs = expire_unix_secs(job, now);
    let (expiry, flags) = match form {
        Form::Storage => (expire_secs, job.flags.0),
        Form::Message => {
            let left_secs = u64::from(expire_secs).saturating_sub(now.wall.secs());
            (saturate_u32(left_secs + 1), job.flags.0 & !JobFlags::DELIVERED)
        }
    };
    JobRecord {
        id: job.id,
        state: job.state().number(),
        gc_attempts: job.gc_attempts(),
        flags,
        repl: job.repl,
        expiry,
        ctime: job.ctime,
        delay_secs: job.delay_secs,
        retry_secs: job.retry_secs,
        nacks: job.nack_count,
        deliveries: job.delivery_count,
        queue,
        body: &job.body,
        nodes,
    }
}

/// The end of a job's TTL in whole unix seconds. C: `etime`. Rounded to the nearest:
/// the wall clock may have been slewed by a little since the job was made.
pub(super) fn expire_unix_secs(job: &Job, now: Now) -> u32 {
    saturate_u32((now.wall_at(job.expire_at).0 + 500) / 1000)
}

pub(super) fn saturate_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Engine {
    pub(super) fn log_loadjob(&mut self, r: JobRef) {
        if self.config.aof == Aof::On {
            let mut aof = core::mem::take(&mut self.out.aof);
            self.write_loadjob(r, &mut aof);
            self.out.aof = aof;
        }
    }

    fn write_loadjob(&self, r: JobRef, out: &mut Vec<u8>) {
        let job = &self.jobs[r];
        let queue = &self.queues[job.queue].name;
        let nodes = self.jobs.may_have(r).iter().map(|node| self.cluster.id(*node));
        let record = record_of(job, queue, self.now, Form::Storage, nodes);
        aof_record::append_load_job(out, &record);
    }

    pub(super) fn log_deljob(&mut self, r: JobRef) {
        if self.config.aof == Aof::On {
            aof_record::append_del_job(&mut self.out.aof, &self.jobs[r].id);
        }
    }

    /// Makes a job of a record whose ID is not known here; unscheduled.
    pub(super) fn register_record(&mut self, record: &JobRecord<'_>, form: Form) -> JobRef {
        let now = self.now;
        let expire_at = match form {
            Form::Message => {
                let at_secs = now.wall.secs() + u64::from(record.expiry);
                now.mono_at(UnixMs(at_secs * 1000))
            }
            Form::Storage => now.mono_at(UnixMs(u64::from(record.expiry) * 1000)),
        };
        let mut may_have = NodeSet::default();
        for id in record.nodes {
            if let Some(node) = self.cluster.find(&id) {
                self.jobs.sets().add(&mut may_have, node);
            }
        }
        let queue = self.queues.entry(record.queue);
        self.queues.use_name(queue);
        let mut job = Job::new(NewJob {
            id: record.id,
            ctime: record.ctime,
            body: record.body.into(),
            queue,
            expire_at,
            requeue_at: MonoMs::NEVER,
            delay_secs: record.delay_secs,
            retry_secs: record.retry_secs,
            repl: record.repl,
            may_have,
        });
        job.nack_count = record.nacks;
        job.delivery_count = record.deliveries;
        job.flags = JobFlags(record.flags);
        if form == Form::Message {
            job.flags.clear(JobFlags::DELIVERED);
        }
        if record.retry_secs > 0 {
            let wait_secs = u64::from(record.delay_secs) + u64::from(record.retry_secs);
            job.requeue_at = self.with_time_error(now.mono.plus_ms(wait_secs * 1000));
            job.flags.set(JobFlags::BROADCAST_WILLQUEUE);
        }
        self.jobs.insert(job)
    }

    /// Takes in a record of the append only file.
    pub fn load(&mut self, now: Now, record: &AofRecord<'_>) {
        self.now = now;
        match record {
            AofRecord::DelJob(id) => {
                self.delete(id);
            }
            AofRecord::LoadJob(record) => self.load_job(record),
        }
    }

    /// A later record of a known job replaces the earlier one: the file may hold both
    /// when the job was added while the file was being rewritten.
    fn load_job(&mut self, record: &JobRecord<'_>) {
        if let Some(r) = self.jobs.find(&record.id) {
            self.dequeue(r);
            self.forget(r);
        }
        if u64::from(record.expiry) <= self.now.wall.secs() {
            return;
        }
        let r = self.register_record(record, Form::Storage);
        self.jobs.add_may_have(r, ME);
        self.set_requeue_after_load(r);
        let was_queued = record.state == JobState::Queued.number();
        let job = &self.jobs[r];
        let spent = job.is_at_most_once() && job.flags.has(JobFlags::DELIVERED);
        if was_queued && !spent && self.config.enqueue_at_load == EnqueueAtLoad::Yes {
            self.enqueue_silently(r);
        } else {
            self.jobs.reschedule(r);
        }
    }

    /// Differs from C, which lets a delayed job wait for its whole delay and its retry
    /// again: a job whose delay is not over comes at its due time, any other after its
    /// retry.
    fn set_requeue_after_load(&mut self, r: JobRef) {
        let job = &self.jobs[r];
        let due_ms = job.ctime / 1_000_000 + u64::from(job.delay_secs) * 1000;
        if job.delay_secs > 0 && due_ms > self.now.wall.0 {
            let due_at = self.now.mono_at(UnixMs(due_ms));
            let job = &mut self.jobs[r];
            job.requeue_at = due_at;
            job.flags.clear(JobFlags::BROADCAST_WILLQUEUE);
        } else if !job.is_at_most_once() {
            self.jobs[r].requeue_at = self.retry_at(r);
        }
    }

    /// Writes LOADJOB records of up to `max` jobs from a slot on; returns the slot to go
    /// on from, and whether there may be more.
    pub fn rewrite_slice(&self, from_slot: u32, max: usize, out: &mut Vec<u8>) -> (u32, More) {
        let mut slot = from_slot;
        for _ in 0..max {
            let Some(r) = self.jobs.next_from(slot) else { return (slot, More::No) };
            slot = r.slot() + 1;
            let job = &self.jobs[r];
            if (job.is_active() && !job.is_spent()) || job.is_queued() {
                self.write_loadjob(r, out);
            }
        }
        (slot, More::Yes)
    }
}
