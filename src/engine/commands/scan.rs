//! QSCAN and JSCAN: walks over all queues and all jobs, a part at a time.
//!
//! The cursor is a slot of the table. Slots do not move, so whatever is there during
//! the whole scan is returned at least once, however much is added or removed meanwhile.

use crate::base::limits::{COMMAND_SLICE, SLICE_BYTES};
use crate::base::number::{parse_i64, parse_u64};
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, Outcome};
use crate::engine::error::CommandError;
use crate::engine::jobs::job::{Job, STATE_NAMES};
use crate::engine::queue::QueueEntry;
use crate::proto::reply::ReplyWriter;

use super::{LongCommand, Scan};

const COUNT_DEFAULT: usize = 100;
/// Slots that a scan looks at for each element asked for, at most. C: server.h, count*10.
const LOOKS_PER_ELEMENT: usize = 10;

/// The words that both scans have.
struct Common {
    cursor: Option<u32>,
    count: usize,
    /// Go on until all is scanned, whatever it takes.
    busyloop: bool,
}

impl Common {
    fn new() -> Self {
        Self { cursor: None, count: COUNT_DEFAULT, busyloop: false }
    }

    /// Takes a word that no scan has for its own.
    fn take(&mut self, word: &[u8], arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        if is(word, "count") {
            let count = integer(self.value(arguments)?)?;
            // C: queue.c qscanCommand, a negative COUNT has no end.
            self.count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
        } else if is(word, "busyloop") {
            self.busyloop = true;
        } else if self.cursor.is_some() {
            return Err(CommandError::Syntax);
        } else {
            let cursor = (!word.is_empty()).then(|| parse_u64(word)).flatten();
            let cursor = cursor.ok_or(CommandError::BadCursor)?;
            self.cursor = Some(u32::try_from(cursor).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// The word that an option needs behind it; an option at the end counts as a cursor.
    fn value<'a>(&self, arguments: &mut Arguments<'a>) -> Result<&'a [u8], CommandError> {
        let second = self.cursor.is_some();
        arguments.next().ok_or(if second { CommandError::Syntax } else { CommandError::BadCursor })
    }
}

fn integer(word: &[u8]) -> Result<i64, CommandError> {
    parse_i64(word).ok_or(CommandError::NotAnInteger)
}

/// QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]
/// -> `[cursor, [queue names]]`; cursor 0 means that all was scanned.
pub fn qscan(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut common = Common::new();
    let (mut len_min, mut len_max, mut rate_min) = (None, None, None);
    let mut arguments = Arguments::new(call.args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "minlen") {
            len_min = Some(integer(common.value(&mut arguments)?)?);
        } else if is(option, "maxlen") {
            len_max = Some(integer(common.value(&mut arguments)?)?);
        } else if is(option, "importrate") {
            rate_min = Some(integer(common.value(&mut arguments)?)?);
        } else {
            common.take(option, &mut arguments)?;
        }
    }
    let now = engine.now.mono;
    let matches = |entry: &QueueEntry| {
        entry.live().is_some_and(|queue| {
            let len = i64::try_from(queue.jobs.len()).unwrap_or(i64::MAX);
            let rate = i64::try_from(queue.imports.rate(now)).unwrap_or(i64::MAX);
            len_min.is_none_or(|min| len >= min)
                && len_max.is_none_or(|max| len <= max)
                && rate_min.is_none_or(|min| rate >= min)
        })
    };
    scan(engine, call, &common, |engine, slot, reply| {
        let q = engine.queues.next_from(slot)?;
        let entry = &engine.queues[q];
        let found = matches(entry);
        if found {
            reply.bulk(&entry.name);
        }
        Some((q.slot(), found))
    })
}

/// JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE q] [STATE s ...] [REPLY id|all]
/// -> `[cursor, [ids, or SHOW arrays]]`. Acks without a job are left out.
pub fn jscan(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut common = Common::new();
    let mut queue: Option<&[u8]> = None;
    let mut states = [false; STATE_NAMES.len()];
    let mut whole_jobs = false;
    let mut arguments = Arguments::new(call.args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "queue") {
            queue = Some(common.value(&mut arguments)?);
        } else if is(option, "state") {
            let name = common.value(&mut arguments)?;
            let number = STATE_NAMES.iter().position(|state| is(name, state));
            states[number.ok_or(CommandError::BadStateName)?] = true;
        } else if is(option, "reply") {
            let form = common.value(&mut arguments)?;
            whole_jobs = match () {
                () if is(form, "id") => false,
                () if is(form, "all") => true,
                () => return Err(CommandError::BadReplyType),
            };
        } else {
            common.take(option, &mut arguments)?;
        }
    }
    let any_state = states == [false; STATE_NAMES.len()];
    let queue = queue.map(|name| engine.queues.find(name));
    let matches = |job: &Job| {
        queue.is_none_or(|queue| queue == Some(job.queue))
            && (any_state || states[usize::from(job.state().number())])
    };
    scan(engine, call, &common, |engine, slot, reply| {
        let r = engine.jobs.next_from(slot)?;
        let job = &engine.jobs[r];
        let found = matches(job);
        if found && whole_jobs {
            engine.write_job(reply, r);
        } else if found {
            reply.status(job.id.0);
        }
        Some((r.slot(), found))
    })
}

/// Looks at one slot after the other: `look` writes what it finds at or behind a slot,
/// and says where that was and whether it was wanted.
fn scan(
    engine: &mut Engine,
    call: &Call<'_>,
    common: &Common,
    look: impl Fn(&Engine, u32, &mut ReplyWriter<'_>) -> Option<(u32, bool)>,
) -> CommandResult {
    let mut so_far = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::Scan(so_far)) => so_far,
        Some(LongCommand::Answer(rest)) => return Ok(engine.tell(call, rest)),
        _ => Scan { slot: common.cursor.unwrap_or(0), ..Scan::default() },
    };
    let looks_max = common.count.saturating_mul(LOOKS_PER_ELEMENT);
    let slice_bytes_max = so_far.encoded.byte_count() + SLICE_BYTES;
    for _ in 0..COMMAND_SLICE {
        if so_far.encoded.byte_count() >= slice_bytes_max {
            break;
        }
        let enough = so_far.count >= common.count || so_far.looks >= looks_max;
        if enough && !common.busyloop {
            let cursor = so_far.slot;
            return Ok(finish(engine, call, so_far, cursor));
        }
        let mut seen = None;
        so_far.encoded.append(|block| {
            seen = look(engine, so_far.slot, &mut ReplyWriter::new(block, call.resp));
        });
        let Some((slot, found)) = seen else {
            return Ok(finish(engine, call, so_far, 0));
        };
        so_far.slot = slot + 1;
        so_far.looks += 1;
        so_far.count += usize::from(found);
    }
    engine.long_commands.insert(call.client, LongCommand::Scan(so_far));
    Ok(Outcome::Again)
}

fn finish(engine: &mut Engine, call: &Call<'_>, so_far: Scan, cursor: u32) -> Outcome {
    let mut reply = engine.reply(call.client, call.resp);
    reply.array(2);
    reply.bulk_integer(i64::from(cursor));
    reply.array(so_far.count);
    engine.tell(call, so_far.encoded)
}
