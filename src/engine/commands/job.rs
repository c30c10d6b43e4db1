//! Commands on jobs that are there: SHOW, DELJOB, ENQUEUE, DEQUEUE, WORKING, LOADJOB.

use crate::base::ids::JobId;
use crate::base::time::{MonoMs, UnixMs};
use crate::base::wheel::Scheduled as _;
use crate::engine::Engine;
use crate::engine::ack::Removed;
use crate::engine::ack_only::AckOnlyJob;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{HeldFor, JobRef};
use crate::engine::records::expire_unix_secs;
use crate::engine::trace::{By, Event, Gone};
use crate::engine::view::{View, write_facts};
use crate::proto::attributes::Tag;
use crate::proto::bus::{Message, MessageFlags};
use crate::proto::job_limits::Limits;
use crate::proto::priority::Priority;
use crate::proto::reply::ReplyWriter;

use super::ack::for_each_id;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[
    row("deljob", deljob),
    row("show", show),
    row("enqueue", enqueue),
    row("dequeue", dequeue),
    row("working", working),
    row("loadjob", loadjob),
];

fn id_argument(call: &Call<'_>) -> Result<JobId, CommandError> {
    JobId::parse(&call.args[1]).ok_or(CommandError::BadId)
}

/// SHOW id -> 15 pairs of name and value, or null for a job not known here. A job with
/// attributes, a priority or limits of its own, facts of its death, or a note has more behind them.
pub fn show(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let id = id_argument(call)?;
    let (view, out) = engine.view_and_out();
    let mut reply = out.replies.to(call.client, call.resp);
    if let Some(r) = view.jobs.find(&id) {
        view.write_job(&mut reply, r);
    } else if let Some(ack) = view.ack_only.get(&id) {
        view.write_ack_only(&mut reply, &id, ack);
    } else {
        reply.null_bulk();
    }
    Ok(Outcome::Done)
}

impl View<'_> {
    /// A job as SHOW and JSCAN REPLY all present it.
    pub(super) fn write_job(&self, reply: &mut ReplyWriter<'_>, r: JobRef) {
        let job = &self.jobs[r];
        let now = self.now;
        let ttl_left = u64::from(expire_unix_secs(job, now)).saturating_sub(now.wall.secs());
        let attributes = self.jobs.attributes(r);
        let shows_attributes = attributes.is_none_or(|known| known.users().next().is_some());
        let priority = Some(job.priority()).filter(|priority| *priority != Priority::DEFAULT);
        let limits = attributes.and_then(|known| known.find(Tag::LIMITS));
        let limits = limits.as_deref().map(Limits::decode).unwrap_or_default();
        let facts = self.jobs.facts(r);
        let note = self.jobs.note(r);
        let extra_count = [
            shows_attributes,
            priority.is_some(),
            limits.max_deliveries.is_some(),
            limits.dead_queue.is_some(),
            facts.is_some(),
            note.is_some(),
        ];
        let extra_count = extra_count.into_iter().filter(|is_there| *is_there).count();
        reply.array(30 + 2 * extra_count);
        reply.bulk(b"id");
        reply.bulk(job.id.0);
        reply.bulk(b"queue");
        reply.bulk(&self.queues[job.queue].name);
        reply.bulk(b"state");
        reply.bulk(job.state().name());
        write_integer(reply, "repl", u64::from(job.repl));
        write_integer(reply, "ttl", ttl_left);
        write_integer(reply, "ctime", job.ctime);
        write_integer(reply, "delay", u64::from(job.delay_secs));
        write_integer(reply, "retry", u64::from(job.retry_secs));
        write_integer(reply, "nacks", u64::from(job.nack_count()));
        write_integer(reply, "additional-deliveries", u64::from(job.delivery_count()));
        self.write_nodes(reply, "nodes-delivered", self.jobs.may_have(r));
        // C has one set for both: who has a copy, while the job waits for some, and who has it
        // acked. What is kept here of an acked job is when it is collected.
        let (confirmed, requeue_at) = if job.is_acked() {
            (self.jobs.acks(r), MonoMs::NEVER)
        } else {
            (self.jobs.copies(r), job.requeue_at())
        };
        self.write_nodes(reply, "nodes-confirmed", confirmed);
        write_wait(reply, "next-requeue-within", now.mono, requeue_at);
        write_wait(reply, "next-awake-within", now.mono, job.due_at());
        reply.bulk(b"body");
        reply.bulk(&job.body);
        if shows_attributes {
            self.write_attributes(reply, r);
        }
        if let Some(priority) = priority {
            write_integer(reply, "priority", u64::from(priority.number()));
        }
        if let Some(max_deliveries) = limits.max_deliveries {
            write_integer(reply, "max-deliveries", max_deliveries.into());
        }
        if let Some(dead_queue) = limits.dead_queue {
            reply.bulk(b"dead-queue");
            reply.bulk(dead_queue);
        }
        if let Some(facts) = facts {
            write_facts(reply, &facts);
        }
        if let Some(note) = note {
            reply.bulk(b"note");
            reply.bulk(&note);
        }
    }

    /// An ack without a job, in the same shape.
    fn write_ack_only(&self, reply: &mut ReplyWriter<'_>, id: &JobId, ack: &AckOnlyJob) {
        let now = self.now.mono;
        reply.array(30);
        reply.bulk(b"id");
        reply.bulk(id.0);
        reply.bulk(b"queue");
        reply.null_bulk();
        reply.bulk(b"state");
        reply.bulk(b"acked");
        write_integer(reply, "repl", 0);
        write_integer(reply, "ttl", ack.expire_at.ms_since(now) / 1000);
        for name in ["ctime", "delay", "retry", "nacks", "additional-deliveries"] {
            write_integer(reply, name, 0);
        }
        self.write_nodes(reply, "nodes-delivered", &[]);
        self.write_nodes(reply, "nodes-confirmed", &ack.confirmed);
        write_wait(reply, "next-requeue-within", now, MonoMs::NEVER);
        write_wait(reply, "next-awake-within", now, ack.due_at);
        reply.bulk(b"body");
        reply.null_bulk();
    }
}

fn write_integer(reply: &mut ReplyWriter<'_>, name: &str, number: u64) {
    reply.bulk(name);
    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

fn write_wait(reply: &mut ReplyWriter<'_>, name: &str, now: MonoMs, at: MonoMs) {
    if at == MonoMs::NEVER {
        reply.bulk(name);
        reply.null_bulk();
    } else {
        write_integer(reply, name, at.ms_since(now));
    }
}

/// DELJOB id [id ...] -> integer: how many were here. Copies elsewhere stay.
pub fn deljob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id(engine, call, |engine, id| engine.delete(id, Gone::Deleted) == Removed::Yes)
}

/// ENQUEUE id [id ...] -> integer: how many active jobs went to their queue, paused or not, or
/// were delivered as often as they may be and died.
pub fn enqueue(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id(engine, call, |engine, id| {
        engine.find_active(id).is_some_and(|r| engine.enqueue_by_hand(r))
    })
}

/// DEQUEUE id [id ...] -> integer: how many left their queue. They come back at their
/// requeue time; at-most-once jobs do not.
pub fn dequeue(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id(engine, call, |engine, id| {
        let was_queued = engine.jobs.find(id).filter(|r| engine.dequeue(*r));
        was_queued.is_some_and(|r| {
            engine.trace(r, || Event::Dequeued);
            true
        })
    })
}

impl Engine {
    pub(super) fn find_active(&self, id: &JobId) -> Option<JobRef> {
        self.jobs.find(id).filter(|r| self.jobs[*r].is_active())
    }
}

/// WORKING id [LEASE s] -> integer: the retry time, or that of the lease, by which the next
/// delivery is postponed here and on the other holders.
///
/// Differs from C, which treats an acked job like a live one: -ACKED, as documented. And an
/// at-most-once job that is queued stays queued: in C it leaves its queue, and nobody gets it.
pub fn working(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let id = id_argument(call)?;
    let mut arguments = Arguments::new(call.args, 2);
    let mut lease_secs = None;
    while let Some(option) = arguments.next() {
        if !is(option, "lease") {
            return Err(CommandError::Syntax);
        }
        lease_secs = Some(arguments.named_number(1, CommandError::Lease)?);
    }
    if engine.ack_only.contains(&id) {
        return Err(CommandError::Acked);
    }
    let r = engine.jobs.find(&id).ok_or(CommandError::NoJob)?;
    if engine.jobs[r].is_acked() {
        return Err(CommandError::Acked);
    }
    if engine.is_past_half_of_ttl(r) {
        return Err(CommandError::TooLate);
    }
    let mut secs = engine.jobs[r].retry_secs;
    if !engine.jobs[r].is_at_most_once() {
        engine.trace(r, || Event::Working(By::Client(call.client)));
        engine.dequeue(r);
        if let Some(lease_secs) = lease_secs.filter(|_| engine.jobs[r].is_active()) {
            let ms = u64::from(lease_secs) * 1000;
            engine.trace(r, || Event::Held { why: HeldFor::Work, ms });
            engine.lease(r, lease_secs);
            secs = lease_secs;
        } else {
            engine.postpone(r);
            let working = Message::Working { id, hold_secs: 0 };
            engine.send_to_holders(r, MessageFlags::NONE, &working);
        }
    }
    engine.reply(call.client, call.resp).integer(i64::from(secs));
    Ok(Outcome::Done)
}

impl Engine {
    fn is_past_half_of_ttl(&self, r: JobRef) -> bool {
        let job = &self.jobs[r];
        let moved_at = self.jobs.move_stamp(r).map_or(UnixMs(0), |stamp| stamp.at);
        let made_at = UnixMs(job.ctime / 1_000_000).max(moved_at);
        let ttl_ms = self.now.wall_at(job.expire_at()).ms_since(made_at);
        self.now.wall.ms_since(made_at) > ttl_ms / 2
    }
}

/// LOADJOB is a record of the append only file; clients are refused.
pub fn loadjob(_: &mut Engine, _: &Call<'_>) -> CommandResult {
    Err(CommandError::LoadJobFromClient)
}
