//! Commands on queues: QLEN, QPEEK, QSTAT, QPOLICY, PAUSE.

use crate::base::limits::{COMMAND_SLICE, GETJOB_REPLY_MAX, SLICE_BYTES};
use crate::base::number::parse_i64;
use crate::base::ordered::Ordered;
use crate::base::ranked::Ranked;
use crate::engine::arguments::{Arguments, is, queue_name};
use crate::engine::blocked::Extras;
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{Job, JobRef};
use crate::engine::policy::PolicyValue;
use crate::engine::queue::{Pause, QueueRef};
use crate::engine::view::View;
use crate::engine::{Engine, More};
use crate::proto::bus::{Message, MessageFlags};
use crate::proto::reply::{ReplyWriter, Resp};

use super::{Blocks, LongCommand};

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[
    row("qlen", qlen),
    row("qpeek", qpeek),
    row("qstat", qstat),
    row("qpolicy", qpolicy),
    row("pause", pause),
];

/// QLEN queue -> integer: jobs queued on this node.
pub fn qlen(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let len = engine.queues.find_live(&call.args[1]).map_or(0, |queue| queue.jobs.len());
    engine.reply(call.client, call.resp).integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(Outcome::Done)
}

/// A QPEEK: what it asks for, and how far it has come.
pub struct Peek {
    /// Jobs that are still to be passed over.
    skip: usize,
    rows_max: usize,
    direction: Direction,
    /// The rank and the key of the last job that was seen. What is queued or fetched between two slices
    /// neither repeats a job nor leaves one out that was there all the time.
    last: Option<(usize, <Job as Ordered>::Key)>,
    encoded: Blocks,
    row_count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    FirstFirst,
    LastFirst,
}

/// QPEEK queue count [SKIP n] -> array of `[queue, id, body]`, in the order in which they are fetched;
/// from the last one back for a negative count. Nothing is fetched.
///
/// Differs from C: no further row once there are [`GETJOB_REPLY_MAX`] bytes, and others have
/// their turn meanwhile.
pub fn qpeek(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut peek = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::Peek(peek)) => peek,
        Some(LongCommand::Answer(rest)) => return Ok(engine.send_block(call, rest)),
        _ => Peek::parse(call)?,
    };
    if peek.look_on(engine.view(), call) == More::Yes {
        engine.long_commands.insert(call.client, LongCommand::Peek(peek));
        return Ok(Outcome::Again);
    }
    engine.reply(call.client, call.resp).array(peek.row_count);
    Ok(engine.send_block(call, peek.encoded))
}

impl Peek {
    fn parse(call: &Call<'_>) -> Result<Self, CommandError> {
        let count = parse_i64(&call.args[2]).ok_or(CommandError::NotAnInteger)?;
        let mut skip = 0;
        let mut arguments = Arguments::new(call.args, 3);
        while let Some(option) = arguments.next() {
            if !is(option, "skip") {
                return Err(CommandError::Syntax);
            }
            skip = arguments.number(0, CommandError::NotAnInteger)?;
        }
        Ok(Self {
            skip: usize::try_from(skip).unwrap_or(usize::MAX),
            rows_max: usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
            direction: if count < 0 { Direction::LastFirst } else { Direction::FirstFirst },
            last: None,
            encoded: Blocks::default(),
            row_count: 0,
        })
    }

    /// Goes on behind the job that was seen last.
    fn look_on(&mut self, view: View<'_>, call: &Call<'_>) -> More {
        let Some(queue) = view.queues.find_live(&call.args[1]) else { return More::No };
        let (jobs, table, resp) = (&queue.jobs, view.jobs.table(), call.resp);
        match (self.direction, self.last) {
            (Direction::FirstFirst, None) => self.take_slice(view, resp, jobs.iter()),
            (Direction::LastFirst, None) => self.take_slice(view, resp, jobs.iter().rev()),
            (Direction::FirstFirst, Some((rank, last))) => {
                let rows = jobs.iter_from(table, rank, last.0, &last);
                self.take_slice(view, resp, rows.skip_while(|r| view.jobs[*r].key() == last))
            }
            (Direction::LastFirst, Some((rank, last))) => {
                self.take_slice(view, resp, jobs.iter_below(table, rank, last.0, &last))
            }
        }
    }

    fn take_slice(
        &mut self,
        view: View<'_>,
        resp: Resp,
        rows: impl Iterator<Item = JobRef>,
    ) -> More {
        let slice_bytes_max = self.encoded.byte_count() + SLICE_BYTES;
        for (place, r) in rows.enumerate() {
            let bytes = self.encoded.byte_count();
            if self.row_count == self.rows_max || bytes >= GETJOB_REPLY_MAX {
                return More::No;
            }
            if place == COMMAND_SLICE || bytes >= slice_bytes_max {
                return More::Yes;
            }
            self.last = Some((view.jobs[r].rank(), view.jobs[r].key()));
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.encoded.append(|block| {
                view.write_row(&mut ReplyWriter::new(block, resp), r, Extras::NONE);
            });
            self.row_count += 1;
        }
        More::No
    }
}

/// QSTAT queue -> 10 pairs of name and value, or a null array for a queue not there.
/// QSTAT queue CLUSTER -> 11 pairs, summed up over all nodes that answer.
pub fn qstat(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    if let Some(option) = call.args.get(2) {
        if !is(option, "cluster") || call.args.len() > 3 {
            return Err(CommandError::Syntax);
        }
        return Ok(engine.survey_queue(call, queue_name(&call.args[1])?));
    }
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

/// QPOLICY queue -> map from words to `[value, glob]`: what policies say of the queue, there or
/// not, each word with the glob of the line that says it.
pub fn qpolicy(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let name = queue_name(&call.args[1])?;
    let words: Vec<_> = match engine.policy_of(name) {
        Some(policy) => policy.words().map(|(w, v, glob)| (w, v.clone(), glob.to_vec())).collect(),
        None => Vec::new(),
    };
    let mut reply = engine.reply(call.client, call.resp);
    reply.map(words.len());
    for (word, value, glob) in words {
        reply.bulk(word.name());
        reply.array(2);
        match value {
            PolicyValue::Number(number) => reply.integer(i64::try_from(number).unwrap_or(i64::MAX)),
            other => reply.bulk(other.text()),
        }
        reply.bulk(glob);
    }
    Ok(Outcome::Done)
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
