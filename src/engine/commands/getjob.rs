//! GETJOB: jobs for a consumer, now or when they come.

use crate::base::limits::{COMMAND_SLICE, GETJOB_REPLY_MAX, SLICE_BYTES};
use crate::base::number::parse_i64;
use crate::base::time::MonoMs;
use crate::engine::arguments::{Arguments, deadline, is, queue_name};
use crate::engine::blocked::Extras;
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::JobRef;
use crate::engine::need_jobs::Need;
use crate::engine::queue::QueueRef;
use crate::engine::view::View;
use crate::engine::{Engine, More};
use crate::proto::attributes::Attributes;
use crate::proto::reply::{ReplyWriter, Resp};

use super::{Blocks, LongCommand};

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("getjob", getjob)];

/// What happens when there is no job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfEmpty {
    Block,
    Answer,
}

/// A GETJOB: what it asks for, and how far it has come.
pub struct GetJob {
    count_max: usize,
    pub deadline: MonoMs,
    if_empty: IfEmpty,
    pub extras: Extras,
    pub lease_secs: Option<u32>,
    /// Where the queue names begin, counted from the command's name.
    queues_at: usize,
    /// The rows of the slices before this one.
    encoded: Blocks,
    row_count: usize,
    /// Where the current pass over the queues goes on.
    next_queue: usize,
    found_in_pass: bool,
}

/// GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] [WITHATTRS] [LEASE s] FROM queue
/// [queue ...]
/// -> array of `[queue, id, body]`, or a null array when there was none in time.
///
/// The queues are tried in the order given, one job from each, again and again
/// until there are `n` or none is left. A blocked client gets one job, whatever COUNT.
/// Everything behind FROM is a queue's name. Every queue tried comes into being.
pub fn getjob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut getjob = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::GetJob(getjob)) => getjob,
        Some(LongCommand::Answer(rest)) => return Ok(engine.send_block(call, rest)),
        _ => GetJob::parse(call, engine.now.mono)?,
    };
    let mut fetched = core::mem::take(&mut engine.fetched);
    let more = fetch(engine, call, &mut getjob, &mut fetched);
    let outcome = if more == More::Yes {
        getjob.encode(engine, call.resp, &fetched);
        engine.long_commands.insert(call.client, LongCommand::GetJob(getjob));
        Ok(Outcome::Again)
    } else if getjob.row_count + fetched.len() == 0 {
        none_found(engine, call, &getjob)
    } else {
        engine.reply(call.client, call.resp).array(getjob.row_count + fetched.len());
        if getjob.row_count > 0 {
            getjob.encode(engine, call.resp, &fetched);
            Ok(engine.send_block(call, getjob.encoded))
        } else {
            let (view, out) = engine.view_and_out();
            write_rows(view, &mut out.replies.to(call.client, call.resp), &fetched, getjob.extras);
            Ok(Outcome::Done)
        }
    };
    fetched.clear();
    engine.fetched = fetched;
    outcome
}

/// Fetches one job from each queue, again and again, for as long as a slice lasts.
fn fetch(
    engine: &mut Engine,
    call: &Call<'_>,
    getjob: &mut GetJob,
    fetched: &mut Vec<JobRef>,
) -> More {
    let names = call.args.from(getjob.queues_at);
    let mut bytes = getjob.encoded.byte_count();
    let slice_bytes_max = bytes + SLICE_BYTES;
    let mut opened: Option<(usize, QueueRef)> = None;
    for _ in 0..COMMAND_SLICE {
        if getjob.row_count + fetched.len() == getjob.count_max || bytes >= GETJOB_REPLY_MAX {
            return More::No;
        }
        if bytes >= slice_bytes_max {
            return More::Yes;
        }
        if getjob.next_queue == names.len() {
            if !getjob.found_in_pass {
                return More::No;
            }
            getjob.next_queue = 0;
            getjob.found_in_pass = false;
        }
        let at = getjob.next_queue;
        getjob.next_queue += 1;
        let q = match opened {
            Some((index, q)) if index == at => q,
            _ => engine.queues.open(&names[at], engine.now.mono),
        };
        opened = Some((at, q));
        if let Some(r) = engine.fetch_for_client(q, getjob.lease_secs) {
            bytes += names[at].len() + engine.jobs[r].body.len();
            if getjob.extras.contains(Extras::ATTRIBUTES) {
                bytes += engine.jobs.attributes(r).map_or(0, Attributes::byte_count);
            }
            fetched.push(r);
            getjob.found_in_pass = true;
            engine.note_emptied(q);
        } else {
            engine.need_jobs(q, Need::ClientsWaiting);
        }
    }
    More::Yes
}

fn none_found(engine: &mut Engine, call: &Call<'_>, getjob: &GetJob) -> CommandResult {
    if getjob.if_empty == IfEmpty::Answer {
        engine.reply(call.client, call.resp).null_array();
        return Ok(Outcome::Done);
    }
    if engine.cluster.is_leaving() {
        return Err(CommandError::Leaving);
    }
    let names = call.args.from(getjob.queues_at);
    engine.wait_for_jobs(call, &names, getjob);
    Ok(Outcome::Blocked)
}

/// Writes a row for each of these jobs.
fn write_rows(view: View<'_>, reply: &mut ReplyWriter<'_>, jobs: &[JobRef], extras: Extras) {
    for &r in jobs {
        view.write_row(reply, r, extras);
    }
}

impl GetJob {
    fn parse(call: &Call<'_>, now: MonoMs) -> Result<Self, CommandError> {
        let mut getjob = Self {
            count_max: 1,
            deadline: MonoMs::NEVER,
            if_empty: IfEmpty::Block,
            extras: Extras::NONE,
            lease_secs: None,
            queues_at: 0,
            encoded: Blocks::default(),
            row_count: 0,
            next_queue: 0,
            found_in_pass: false,
        };
        let mut arguments = Arguments::new(call.args, 1);
        while let Some(option) = arguments.next() {
            if is(option, "nohang") {
                getjob.if_empty = IfEmpty::Answer;
            } else if is(option, "withcounters") {
                getjob.extras = getjob.extras.with(Extras::COUNTERS);
            } else if is(option, "withattrs") {
                getjob.extras = getjob.extras.with(Extras::ATTRIBUTES);
            } else if is(option, "timeout") {
                getjob.deadline = deadline(arguments.value()?, now)?;
            } else if is(option, "count") {
                let count = parse_i64(arguments.value()?).filter(|count| *count > 0);
                let count = count.ok_or(CommandError::Count)?;
                getjob.count_max = usize::try_from(count).unwrap_or(usize::MAX);
            } else if is(option, "lease") {
                getjob.lease_secs = Some(arguments.named_number(1, CommandError::Lease)?);
            } else if is(option, "from") {
                getjob.queues_at = arguments.position();
                break;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if getjob.queues_at == 0 || getjob.queues_at >= call.args.len() {
            return Err(CommandError::Syntax);
        }
        for name in call.args.from(getjob.queues_at).iter() {
            queue_name(name)?;
        }
        Ok(getjob)
    }

    /// Encodes the rows of a slice, to be sent when it is known how many there are.
    fn encode(&mut self, engine: &Engine, resp: Resp, fetched: &[JobRef]) {
        self.encoded.append(|block| {
            let mut reply = ReplyWriter::new(block, resp);
            write_rows(engine.view(), &mut reply, fetched, self.extras);
        });
        self.row_count += fetched.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{ClientId, NodeId};
    use crate::base::time::{Now, UnixMs};
    use crate::engine::config::EngineConfig;

    const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };

    fn run(engine: &mut Engine, now: Now, slot: u32, words: &[String]) -> Outcome {
        let client = ClientId { slot, generation: 0 };
        engine.call_words(now, client, Resp::V2, &words.iter().collect())
    }

    fn new_engine() -> Engine {
        Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], NOW)
    }

    /// A GETJOB of so many queues that it takes several slices.
    fn long_getjob(options: &str) -> Vec<String> {
        let queues = (0..3 * COMMAND_SLICE).map(|n| format!("q{n}"));
        format!("GETJOB{options} FROM").split(' ').map(String::from).chain(queues).collect()
    }

    #[test]
    fn a_job_that_comes_while_many_queues_are_gone_through_is_delivered() {
        let mut engine = new_engine();
        let getjob = long_getjob("");
        assert_eq!(run(&mut engine, NOW, 1, &getjob), Outcome::Again);
        let addjob = ["ADDJOB", "q0", "body", "0"].map(String::from);
        assert_eq!(run(&mut engine, NOW, 2, &addjob), Outcome::Done);
        let mut outcome = Outcome::Again;
        while outcome == Outcome::Again {
            outcome = run(&mut engine, NOW, 1, &getjob);
        }
        assert_eq!(outcome, Outcome::Blocked);
        assert_eq!(engine.out.resumed, [ClientId { slot: 1, generation: 0 }]);
        engine.check_invariants();
    }

    #[test]
    fn a_timeout_counts_from_the_first_slice() {
        let mut engine = new_engine();
        let getjob = long_getjob(" TIMEOUT 1000");
        let after_ms = |ms| Now { wall: UnixMs(NOW.wall.0 + ms), mono: MonoMs(NOW.mono.0 + ms) };
        assert_eq!(run(&mut engine, NOW, 1, &getjob), Outcome::Again);
        let mut outcome = Outcome::Again;
        while outcome == Outcome::Again {
            outcome = run(&mut engine, after_ms(700), 1, &getjob);
        }
        assert_eq!(outcome, Outcome::Blocked);
        engine.handle_timeout(after_ms(999), 64);
        assert_eq!(engine.blocked_count(), 1);
        engine.handle_timeout(after_ms(1000), 64);
        assert_eq!(engine.blocked_count(), 0);
        assert_eq!(engine.out.replies.bytes, b"*-1\r\n");
    }
}
