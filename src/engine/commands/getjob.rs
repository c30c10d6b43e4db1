//! GETJOB: jobs for a consumer, now or when they come.

use crate::base::limits::{COMMAND_SLICE, GETJOB_REPLY_MAX, SLICE_BYTES};
use crate::base::number::parse_i64;
use crate::base::time::MonoMs;
use crate::engine::arguments::{Arguments, deadline, is};
use crate::engine::blocked::Counters;
use crate::engine::command::{Call, CommandResult, Outcome};
use crate::engine::delivery::write_row;
use crate::engine::error::CommandError;
use crate::engine::jobs::job::JobRef;
use crate::engine::need_jobs::Need;
use crate::engine::queue::QueueRef;
use crate::engine::{Engine, More};
use crate::proto::reply::ReplyWriter;
use crate::proto::request::Args;

use super::{LongCommand, Rows};

/// What happens when there is no job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfEmpty {
    Block,
    Answer,
}

struct GetJob {
    count_max: usize,
    deadline: MonoMs,
    if_empty: IfEmpty,
    counters: Counters,
    /// Where the queue names begin, counted from the command's name.
    queues_at: usize,
}

/// GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue [queue ...]
/// -> array of `[queue, id, body]`, or a null array when there was none in time.
///
/// The queues are looked at in the order given, one job from each, again and again
/// until there are `n` or none is left. A blocked client gets one job, whatever COUNT.
/// Everything behind FROM is a queue's name. Every queue looked for comes into being.
pub fn getjob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let request = parse(engine, call)?;
    let names = call.args.from(request.queues_at);
    let mut so_far = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::Rows(so_far)) => so_far,
        Some(LongCommand::Answer(rest)) => return Ok(engine.tell(call, rest)),
        _ => Rows::default(),
    };
    let mut fetched = core::mem::take(&mut engine.fetched);
    let more = fetch(engine, &names, &request, &mut so_far, &mut fetched);
    let outcome = if more == More::Yes {
        so_far.encoded.append(|block| {
            engine.write_rows(&mut ReplyWriter::new(block, call.resp), &fetched, request.counters);
        });
        so_far.count += fetched.len();
        engine.long_commands.insert(call.client, LongCommand::Rows(so_far));
        Ok(Outcome::Again)
    } else if so_far.count + fetched.len() > 0 {
        engine.reply(call.client, call.resp).array(so_far.count + fetched.len());
        if so_far.count > 0 {
            so_far.encoded.append(|block| {
                let mut rows = ReplyWriter::new(block, call.resp);
                engine.write_rows(&mut rows, &fetched, request.counters);
            });
            Ok(engine.tell(call, so_far.encoded))
        } else {
            let mut replies = core::mem::take(&mut engine.out.replies);
            engine.write_rows(&mut replies.to(call.client, call.resp), &fetched, request.counters);
            engine.out.replies = replies;
            Ok(Outcome::Done)
        }
    } else {
        none_found(engine, call, &request)
    };
    fetched.clear();
    engine.fetched = fetched;
    outcome
}

/// Fetches one job from each queue, again and again, for as long as a slice lasts.
fn fetch(
    engine: &mut Engine,
    names: &Args<'_>,
    request: &GetJob,
    so_far: &mut Rows,
    fetched: &mut Vec<JobRef>,
) -> More {
    let mut bytes = so_far.encoded.byte_count();
    let slice_bytes_max = bytes + SLICE_BYTES;
    let mut opened: Option<(usize, QueueRef)> = None;
    for _ in 0..COMMAND_SLICE {
        if so_far.count + fetched.len() == request.count_max || bytes >= GETJOB_REPLY_MAX {
            return More::No;
        }
        if bytes >= slice_bytes_max {
            return More::Yes;
        }
        if so_far.next_queue == names.len() {
            if !so_far.found_in_pass {
                return More::No;
            }
            so_far.next_queue = 0;
            so_far.found_in_pass = false;
        }
        let at = so_far.next_queue;
        so_far.next_queue += 1;
        let q = match opened {
            Some((index, q)) if index == at => q,
            _ => engine.queues.open(&names[at], engine.now.mono),
        };
        opened = Some((at, q));
        if let Some(r) = engine.fetch_for_client(q) {
            bytes += names[at].len() + engine.jobs[r].body.len();
            fetched.push(r);
            so_far.found_in_pass = true;
            engine.note_emptied(q);
        } else {
            engine.need_jobs(q, Need::ClientsWaiting);
        }
    }
    More::Yes
}

fn none_found(engine: &mut Engine, call: &Call<'_>, request: &GetJob) -> CommandResult {
    if request.if_empty == IfEmpty::Answer {
        engine.reply(call.client, call.resp).null_array();
        return Ok(Outcome::Done);
    }
    if engine.cluster.is_leaving() {
        return Err(CommandError::Leaving);
    }
    let names = call.args.from(request.queues_at);
    engine.wait_for_jobs(call, &names, request.counters, request.deadline);
    Ok(Outcome::Blocked)
}

impl Engine {
    /// Writes a row for each of these jobs.
    fn write_rows(&self, reply: &mut ReplyWriter<'_>, jobs: &[JobRef], counters: Counters) {
        for &r in jobs {
            let job = &self.jobs[r];
            write_row(reply, &self.queues[job.queue].name, job, counters);
        }
    }
}

fn parse(engine: &Engine, call: &Call<'_>) -> Result<GetJob, CommandError> {
    let mut request = GetJob {
        count_max: 1,
        deadline: MonoMs::NEVER,
        if_empty: IfEmpty::Block,
        counters: Counters::No,
        queues_at: 0,
    };
    let mut arguments = Arguments::new(call.args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "nohang") {
            request.if_empty = IfEmpty::Answer;
        } else if is(option, "withcounters") {
            request.counters = Counters::Yes;
        } else if is(option, "timeout") {
            request.deadline = deadline(arguments.value()?, engine.now.mono)?;
        } else if is(option, "count") {
            let count = parse_i64(arguments.value()?).filter(|count| *count > 0);
            let count = count.ok_or(CommandError::Count)?;
            request.count_max = usize::try_from(count).unwrap_or(usize::MAX);
        } else if is(option, "from") {
            request.queues_at = arguments.position();
            break;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if request.queues_at == 0 || request.queues_at >= call.args.len() {
        return Err(CommandError::Syntax);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{ClientId, NodeId};
    use crate::base::time::{Now, UnixMs};
    use crate::engine::config::EngineConfig;
    use crate::proto::reply::Resp;

    const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };

    fn run(engine: &mut Engine, slot: u32, words: &[String]) -> Outcome {
        let client = ClientId { slot, generation: 0 };
        engine.call_words(NOW, client, Resp::V2, &words.iter().collect())
    }

    #[test]
    fn a_job_that_comes_while_many_queues_are_gone_through_is_delivered() {
        let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], NOW);
        let queues = (0..3 * COMMAND_SLICE).map(|n| format!("q{n}"));
        let getjob: Vec<String> =
            ["GETJOB", "FROM"].map(String::from).into_iter().chain(queues).collect();
        assert_eq!(run(&mut engine, 1, &getjob), Outcome::Again);
        let addjob = ["ADDJOB", "q0", "body", "0"].map(String::from);
        assert_eq!(run(&mut engine, 2, &addjob), Outcome::Done);
        let mut outcome = Outcome::Again;
        while outcome == Outcome::Again {
            outcome = run(&mut engine, 1, &getjob);
        }
        assert_eq!(outcome, Outcome::Blocked);
        assert_eq!(engine.out.resumed, [ClientId { slot: 1, generation: 0 }]);
        engine.check_invariants();
    }
}
