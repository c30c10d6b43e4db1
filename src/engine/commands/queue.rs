//! Commands on queues: QLEN, QPEEK, QSTAT, PAUSE.

use crate::base::limits::{COMMAND_SLICE, GETJOB_REPLY_MAX};
use crate::base::number::parse_i64;
use crate::engine::Engine;
use crate::engine::arguments::{is, queue_name};
use crate::engine::blocked::Extras;
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::JobRef;
use crate::engine::queue::{Pause, QueueRef};
use crate::engine::view::View;
use crate::proto::bus::{Message, MessageFlags};
use crate::proto::reply::ReplyWriter;

pub(in crate::engine) static COMMANDS: &[EngineCommand] =
    &[row("qlen", qlen), row("qpeek", qpeek), row("qstat", qstat), row("pause", pause)];

/// QLEN queue -> integer: jobs queued on this node.
pub fn qlen(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let len = engine.queues.find_live(&call.args[1]).map_or(0, |queue| queue.jobs.len());
    engine.reply(call.client, call.resp).integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(Outcome::Done)
}

/// QPEEK queue count -> array of `[queue, id, body]`, oldest first; newest first for a
/// negative count. Nothing is fetched.
///
/// Differs from C: at most [`PEEK_ROWS_MAX`] rows and [`GETJOB_REPLY_MAX`] bytes, because a
/// huge count must not stall others.
pub fn qpeek(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let count = parse_i64(&call.args[2]).ok_or(CommandError::NotAnInteger)?;
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let (view, out) = engine.view_and_out();
    let mut reply = out.replies.to(call.client, call.resp);
    let Some(queue) = view.queues.find_live(&call.args[1]) else {
        reply.array(0);
        return Ok(Outcome::Done);
    };
    let wanted = wanted.min(PEEK_ROWS_MAX);
    let mut bytes = 0;
    let mut fits = |r: &JobRef| {
        let is_within = bytes < GETJOB_REPLY_MAX;
        bytes += call.args[1].len() + view.jobs[*r].body.len();
        is_within
    };
    let rows: Vec<JobRef> = if count < 0 {
        queue.jobs.iter().rev().take(wanted).take_while(&mut fits).collect()
    } else {
        queue.jobs.iter().take(wanted).take_while(&mut fits).collect()
    };
    reply.array(rows.len());
    for r in rows {
        view.write_row(&mut reply, r, Extras::NONE);
    }
    Ok(Outcome::Done)
}

/// Rows of one QPEEK, which is answered in one piece.
const PEEK_ROWS_MAX: usize = 64 * COMMAND_SLICE;

/// QSTAT queue -> 10 pairs of name and value, or a null array for a queue not there.
pub fn qstat(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let (view, out) = engine.view_and_out();
    let mut reply = out.replies.to(call.client, call.resp);
    let found = view.queues.find(&call.args[1]);
    match found.filter(|q| view.queues[*q].live().is_some()) {
        Some(q) => view.write_queue(&mut reply, q),
        None => reply.null_array(),
    }
    Ok(Outcome::Done)
}

impl View<'_> {
    fn write_queue(&self, reply: &mut ReplyWriter<'_>, q: QueueRef) {
        let entry = &self.queues[q];
        let Some(queue) = entry.live() else { return };
        let now = self.now.mono;
        reply.array(20);
        reply.bulk(b"name");
        reply.bulk(&entry.name);
        write_pair(reply, "len", queue.jobs.len() as u64);
        write_pair(reply, "age", now.ms_since(queue.created_at) / 1000);
        write_pair(reply, "idle", now.ms_since(queue.accessed_at) / 1000);
        write_pair(reply, "blocked", queue.waiters.len() as u64);
        let sources: Vec<_> = queue.imports.sources(now).collect();
        self.write_nodes(reply, "import-from", &sources);
        write_pair(reply, "import-rate", queue.imports.rate(now));
        write_pair(reply, "jobs-in", queue.jobs_in);
        write_pair(reply, "jobs-out", queue.jobs_out);
        reply.bulk(b"pause");
        reply.bulk(queue.pause.name());
    }
}

fn write_pair(reply: &mut ReplyWriter<'_>, name: &str, number: u64) {
    reply.bulk(name);
    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

/// PAUSE queue [in] [out] [all] [none] [state] [bcast] -> status: the state afterwards.
///
/// The options replace the old state; `state` and `bcast` alone change nothing; `none`
/// clears what came before it. `bcast` sends all nodes the resulting state. Any other
/// option is an error and nothing is done.
pub fn pause(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut asked: Option<Pause> = None;
    let mut broadcast = false;
    for option in call.args.from(2).iter() {
        let so_far = asked.unwrap_or_default();
        if is(option, "in") {
            asked = Some(so_far.with(Pause::IN));
        } else if is(option, "out") {
            asked = Some(so_far.with(Pause::OUT));
        } else if is(option, "all") {
            asked = Some(Pause::ALL);
        } else if is(option, "none") {
            asked = Some(Pause::NONE);
        } else if is(option, "bcast") {
            broadcast = true;
        } else if !is(option, "state") {
            return Err(CommandError::Syntax);
        }
    }
    let name = queue_name(&call.args[1])?;
    let current = engine.queues.find_live(name).map_or(Pause::NONE, |queue| queue.pause);
    let state = asked.unwrap_or(current);
    if asked.is_some() {
        engine.set_pause(name, state);
    }
    if broadcast {
        let message = Message::Pause { queue: name, flags: state.0 };
        engine.cluster.broadcast(&mut engine.out, MessageFlags::NONE, &message);
    }
    engine.reply(call.client, call.resp).status(state.name());
    Ok(Outcome::Done)
}
