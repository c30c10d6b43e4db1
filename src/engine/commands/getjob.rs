//! GETJOB: jobs for a consumer, now or when they come.

use crate::base::limits::{COMMAND_SLICE, GETJOB_REPLY_MAX, SLICE_BYTES};
use crate::base::number::parse_i64;
use crate::base::time::MonoMs;
use crate::engine::arguments::{Arguments, deadline, is, queue_name};
use crate::engine::blocked::{Extras, Waiting};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::JobRef;
use crate::engine::need_jobs::Need;
use crate::engine::queue::QueueRef;
use crate::engine::view::View;
use crate::engine::{Engine, More};
use crate::proto::attributes::Attributes;
use crate::proto::reply::{ReplyWriter, Resp};
use crate::proto::request::Args;

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
    /// How many names, from the first on, the client waits for, once it waits.
    waited_for: usize,
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
    if getjob.waited_for > 0 {
        return Ok(wait_on(engine, call, getjob));
    }
    let mut fetched = core::mem::take(&mut engine.fetched);
    let more = fetch(engine, call, &mut getjob, &mut fetched);
    let outcome = if more == More::Yes {
        getjob.encode(engine, call.resp, &fetched);
        engine.long_commands.insert(call.client, LongCommand::GetJob(getjob));
        Ok(Outcome::Again)
    } else if getjob.row_count + fetched.len() == 0 {
        none_found(engine, call, getjob)
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
            let job = &engine.jobs[r];
            bytes += names[at].len() + job.body.len();
            if job.is_traced() {
                engine.trace_fetched(r, call.client, getjob.lease_secs);
            }
            if getjob.extras.contains(Extras::ATTRIBUTES) {
                bytes += engine.jobs.attributes(r).map_or(0, Attributes::byte_count);
            }
            fetched.push(r);
            getjob.found_in_pass = true;
            engine.note_emptied(q);
        } else {
            engine.request_jobs(q, Need::ClientsWaiting);
        }
    }
    More::Yes
}

fn none_found(engine: &mut Engine, call: &Call<'_>, mut getjob: GetJob) -> CommandResult {
    if getjob.if_empty == IfEmpty::Answer {
        engine.reply(call.client, call.resp).null_array();
        return Ok(Outcome::Done);
    }
    if engine.cluster.is_leaving() {
        return Err(CommandError::Leaving);
    }
    let names = getjob.take_names(call);
    engine.wait_for_jobs(call, names, &getjob);
    Ok(getjob.blocks(engine, call))
}

/// Waits for more of the names, unless the wait is over by now: then it was answered.
fn wait_on(engine: &mut Engine, call: &Call<'_>, mut getjob: GetJob) -> Outcome {
    let names = getjob.take_names(call);
    match engine.wait_for_more(call.client, names) {
        Waiting::Yes => getjob.blocks(engine, call),
        Waiting::No => Outcome::Done,
    }
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
            waited_for: 0,
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

    /// The names that the client waits for next.
    fn take_names<'a>(&mut self, call: &Call<'a>) -> Args<'a> {
        let names = call.args.from(self.queues_at + self.waited_for).up_to(COMMAND_SLICE);
        self.waited_for += names.len();
        names
    }

    /// The client waits for the names so far; the others come in the next slices.
    fn blocks(self, engine: &mut Engine, call: &Call<'_>) -> Outcome {
        if self.queues_at + self.waited_for == call.args.len() {
            return Outcome::Blocked;
        }
        engine.long_commands.insert(call.client, LongCommand::GetJob(self));
        Outcome::Again
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

    const CLIENT: ClientId = ClientId { slot: 1, generation: 0 };

    fn add(engine: &mut Engine, queue: &str) {
        let addjob = ["ADDJOB", queue, "body", "0"].map(String::from);
        assert_eq!(run(engine, NOW, 2, &addjob), Outcome::Done);
    }

    /// Runs a GETJOB to its end, doing something before each of its slices, which count from 1.
    fn run_slices(
        engine: &mut Engine,
        getjob: &[String],
        mut before: impl FnMut(&mut Engine, usize),
    ) -> Outcome {
        for slice in 1.. {
            before(engine, slice);
            engine.check_invariants();
            let outcome = run(engine, NOW, 1, getjob);
            engine.check_invariants();
            if outcome != Outcome::Again {
                return outcome;
            }
        }
        unreachable!("a command has an end")
    }

    /// How many times each of these texts is in what clients were sent.
    fn told<const N: usize>(engine: &Engine, texts: [&str; N]) -> [usize; N] {
        let all = String::from_utf8_lossy(&engine.out.replies.bytes);
        texts.map(|text| all.matches(text).count())
    }

    #[test]
    fn a_job_that_comes_between_any_two_slices_to_any_of_many_queues_is_delivered() {
        // Three slices to look into the queues, and three to wait for them.
        for queue in ["q0", "q300", "q767"] {
            for slice in 1..8 {
                let mut engine = new_engine();
                let getjob = long_getjob("");
                let outcome = run_slices(&mut engine, &getjob, |engine, number| {
                    if number == slice {
                        add(engine, queue);
                    }
                });
                let is_between = engine.out.resumed.is_empty();
                let expected = if is_between { Outcome::Done } else { Outcome::Blocked };
                if slice == 7 {
                    assert_eq!(outcome, Outcome::Blocked, "no slice is the seventh");
                    add(&mut engine, queue);
                } else {
                    assert_eq!(outcome, expected, "{queue} before slice {slice}");
                }
                assert_eq!(told(&engine, [&format!("\r\n{queue}\r\n$40\r\n"), "*3\r\n"]), [1, 1]);
                assert_eq!(engine.blocked_count(), 0);
                while engine.handle_timeout(NOW, 1) == More::Yes {
                    engine.check_invariants();
                }
                // Whoever comes next waits behind nobody.
                let next = ["GETJOB", "FROM", "q0", "q300", "q767"].map(String::from);
                assert_eq!(run(&mut engine, NOW, 3, &next), Outcome::Blocked);
                add(&mut engine, queue);
                assert_eq!(told(&engine, ["*3\r\n"]), [2]);
            }
        }
    }

    #[test]
    fn who_has_left_some_of_many_queues_is_passed_over_in_the_others() {
        let mut engine = new_engine();
        let getjob = long_getjob("");
        assert_eq!(run_slices(&mut engine, &getjob, |_, _| {}), Outcome::Blocked);
        add(&mut engine, "q700");
        assert_eq!(told(&engine, ["*3\r\n"]), [1]);
        assert_ne!(engine.next_timeout(), MonoMs::NEVER);
        let next = ["GETJOB", "FROM", "q1"].map(String::from);
        assert_eq!(run(&mut engine, NOW, 3, &next), Outcome::Blocked);
        for queue in ["q0", "q1"] {
            add(&mut engine, queue);
            engine.check_invariants();
        }
        assert_eq!(told(&engine, ["*3\r\n"]), [2], "one is served, and one job stays");
        let left = run_slices(&mut engine, &getjob, |_, _| {});
        assert_eq!((left, told(&engine, ["*3\r\n"])), (Outcome::Done, [3]));
        engine.check_invariants();
    }

    #[test]
    fn many_queues_are_joined_and_left_some_at_a_time() {
        let mut engine = new_engine();
        let getjob = long_getjob(" TIMEOUT 1000");
        let waiters = |engine: &Engine| {
            engine
                .queues
                .iter()
                .filter(|(_, entry)| entry.live().is_some_and(|queue| !queue.waiters.is_empty()))
                .count()
        };
        let mut before = 0;
        let outcome = run_slices(&mut engine, &getjob, |engine, _| {
            assert!(waiters(engine) - before <= COMMAND_SLICE);
            before = waiters(engine);
        });
        assert_eq!((outcome, waiters(&engine)), (Outcome::Blocked, 3 * COMMAND_SLICE));
        let later = Now { wall: NOW.wall.plus_ms(1000), mono: NOW.mono.plus_ms(1000) };
        let mut before = waiters(&engine) - COMMAND_SLICE;
        while engine.handle_timeout(later, 10) == More::Yes {
            assert!(before.saturating_sub(waiters(&engine)) <= 10);
            before = waiters(&engine);
            engine.check_invariants();
        }
        assert_eq!((waiters(&engine), told(&engine, ["*-1\r\n"])), (0, [1]));
        // A flush waits for those who leave.
        assert_eq!(run_slices(&mut engine, &long_getjob(""), |_, _| {}), Outcome::Blocked);
        while engine.flush(later, ClientId { slot: 3, generation: 0 }, 10) == More::Yes {}
        assert_eq!((engine.queue_count(), engine.blocked_count()), (0, 0));
    }

    #[test]
    fn a_wait_for_many_queues_ends_between_two_slices() {
        let mut engine = new_engine();
        let getjob = long_getjob(" TIMEOUT 1000");
        let later = Now { wall: NOW.wall.plus_ms(1000), mono: NOW.mono.plus_ms(1000) };
        let outcome = run_slices(&mut engine, &getjob, |engine, slice| {
            if slice == 5 {
                while engine.handle_timeout(later, 64) == More::Yes {}
            }
        });
        assert_eq!((outcome, told(&engine, ["*-1\r\n"])), (Outcome::Done, [1]));
        assert_eq!((engine.blocked_count(), engine.out.resumed.len()), (0, 0));
        for _ in 0..5 {
            run(&mut engine, NOW, 1, &getjob);
        }
        engine.client_gone(NOW, CLIENT);
        while engine.handle_timeout(later, 64) == More::Yes {}
        engine.check_invariants();
        add(&mut engine, "q0");
        assert_eq!(told(&engine, ["*3\r\n"]), [0], "nobody waits");
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
