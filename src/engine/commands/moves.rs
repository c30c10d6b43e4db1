//! Commands that move jobs between queues, and empty queues: MOVEJOB, QMOVE, QREDRIVE, QPURGE.

use crate::base::glob::{Case, matches};
use crate::base::ids::JobId;
use crate::base::limits::{COMMAND_SLICE, SLICE_BYTES};
use crate::base::number::parse_i64;
use crate::engine::Engine;
use crate::engine::ack::NewlyAcked;
use crate::engine::arguments::{Arguments, is, queue_name};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{JobRef, rank_of};
use crate::engine::moves::{Move, Then};
use crate::engine::scope::QueueScope;
use crate::proto::facts::Facts;
use crate::proto::priority::Priority;

use super::LongCommand;
use super::ack::for_each_id_as;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[
    row("movejob", movejob),
    row("qmove", qmove),
    row("qredrive", qredrive),
    row("qpurge", qpurge),
];

/// Jobs that a command takes from a queue unless COUNT says how many, and at most.
const COUNT_DEFAULT: usize = 100;
const COUNT_MAX: i64 = 10_000;

/// What a MOVEJOB asks for beside.
#[derive(Clone, Copy)]
struct MoveOptions {
    priority: Option<Priority>,
    delay_secs: u32,
}

/// MOVEJOB queue id [id ...] [PRIORITY p] [DELAY s] -> integer: how many jobs were moved. Unknown
/// and acked ones are not, nor those that wait for copies, or have RETRY 0 and may have been
/// delivered. -PAUSED where the queue takes no jobs.
///
/// What is neither an option nor an ID is -BADID. Nothing is done unless everything is valid.
pub fn movejob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let queue = queue_name(&call.args[1])?;
    engine.check_target(call, queue)?;
    for_each_id_as(engine, call, 2, MoveOptions::parse, |engine, id, options| {
        let then = match options.delay_secs {
            0 => Then::Stays,
            secs => Then::IsHeld(secs),
        };
        let to = Move { queue, facts: None, expire_at: None, priority: options.priority, then };
        engine.jobs.find(id).is_some_and(|r| engine.move_job(r, &to))
    })
}

impl MoveOptions {
    fn parse(mut arguments: Arguments<'_>) -> Result<Self, CommandError> {
        let mut options = Self { priority: None, delay_secs: 0 };
        while let Some(option) = arguments.next() {
            if is(option, "priority") {
                options.priority = Some(arguments.priority()?);
            } else if is(option, "delay") {
                options.delay_secs = arguments.named_number(0, CommandError::Delay)?;
            } else if JobId::parse(option).is_some() {
                return Err(CommandError::IdBehindOptions);
            } else {
                return Err(CommandError::BadId);
            }
        }
        Ok(options)
    }
}

/// QMOVE source target [COUNT n] -> integer: how many of the jobs that are queued on this node were
/// moved, in their order, up to n. n is 100, and 10,000 at most. -PAUSED where the target takes no
/// jobs.
pub fn qmove(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let (source, target) = (&call.args[1], queue_name(&call.args[2])?);
    if source == target {
        return Err(CommandError::MoveWithinQueue);
    }
    let options = QueueOptions::parse(Arguments::new(call.args, 3), Takes::Count)?;
    engine.check_target(call, target)?;
    for_each_queued(engine, call, options.count, |engine, r, _| {
        let then = Then::Stays;
        let to = Move { queue: target, facts: None, expire_at: None, priority: None, then };
        engine.move_job(r, &to)
    })
}

/// QREDRIVE dead-queue [COUNT n] [REASON glob] -> integer: how many of the jobs that are queued on
/// this node, up to n, went back to the queues where they died, with the TTL that they were
/// added with. Jobs that did not die are passed over, and those of queues that take no jobs or are
/// beyond the user's scope, and of another reason than REASON: max-deliveries, nack or expired.
pub fn qredrive(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let options = QueueOptions::parse(Arguments::new(call.args, 2), Takes::CountAndReason)?;
    for_each_queued(engine, call, options.count, |engine, r, scope| {
        let is_wanted = |facts: &Facts<'_>| {
            let reason = facts.reason.name().as_bytes();
            options.reason.is_none_or(|glob| matches(glob, reason, Case::Sensitive))
                && scope.is_none_or(|scope| scope.has_origin(facts))
        };
        engine.redrive(r, is_wanted)
    })
}

/// QPURGE queue [COUNT n] -> integer: how many of the jobs that are queued on this node, up to n,
/// were acknowledged, so that no copy of them comes back.
pub fn qpurge(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let options = QueueOptions::parse(Arguments::new(call.args, 2), Takes::Count)?;
    let client = call.client;
    for_each_queued(engine, call, options.count, |engine, r, _| {
        engine.purge(r, client) == NewlyAcked::Yes
    })
}

/// Which options a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Count,
    CountAndReason,
}

struct QueueOptions<'a> {
    count: usize,
    reason: Option<&'a [u8]>,
}

impl<'a> QueueOptions<'a> {
    fn parse(mut arguments: Arguments<'a>, takes: Takes) -> Result<Self, CommandError> {
        let mut options = Self { count: COUNT_DEFAULT, reason: None };
        while let Some(option) = arguments.next() {
            if is(option, "count") {
                let count = arguments.next().and_then(parse_i64);
                let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
                let count = count.and_then(|count| usize::try_from(count).ok());
                options.count = count.ok_or(CommandError::CountOfJobs)?;
            } else if takes == Takes::CountAndReason && is(option, "reason") {
                options.reason = Some(arguments.value()?);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

/// Does something to the jobs of the queue that the first argument names, in their order and in
/// slices, until it was true of `wanted` jobs, and answers for how many it was. Jobs that come into
/// the queue meanwhile may be passed over: as many are visited as were there at the beginning.
fn for_each_queued(
    engine: &mut Engine,
    call: &Call<'_>,
    wanted: usize,
    mut act: impl FnMut(&mut Engine, JobRef, Option<&QueueScope>) -> bool,
) -> CommandResult {
    let name = &call.args[1];
    let mut walk = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::OfQueue(walk)) => walk,
        _ => {
            let len = engine.queues.find_live(name).map_or(0, |queue| queue.jobs.len());
            VisitedJobs { last: None, left: len, done: 0, scope: engine.scope.clone() }
        }
    };
    let slice_len = walk.left.min(COMMAND_SLICE);
    let slice = engine.queued_behind(name, walk.last, slice_len);
    if slice.len() < slice_len {
        // Others have left the queue.
        walk.left = slice.len();
    }
    let written_max = engine.out.aof.len() + SLICE_BYTES;
    for r in slice {
        if walk.done == wanted || engine.out.aof.len() >= written_max {
            break;
        }
        let job = &engine.jobs[r];
        walk.last = Some((job.priority(), (job.ctime, job.id)));
        walk.left -= 1;
        walk.done += usize::from(act(engine, r, walk.scope.as_ref()));
    }
    if walk.left == 0 || walk.done == wanted {
        let count = i64::try_from(walk.done).unwrap_or(i64::MAX);
        engine.reply(call.client, call.resp).integer(count);
        return Ok(Outcome::Done);
    }
    engine.long_commands.insert(call.client, LongCommand::OfQueue(walk));
    Ok(Outcome::Again)
}

/// Where a job stands in its queue.
type QueuePosition = (Priority, (u64, JobId));

/// How far a command on the jobs of a queue has come.
#[derive(Debug)]
pub struct VisitedJobs {
    /// The job that was visited last.
    last: Option<QueuePosition>,
    /// How many are still to be visited.
    left: usize,
    /// What will be answered.
    done: usize,
    /// What the command is limited to.
    scope: Option<QueueScope>,
}

impl Engine {
    /// Up to `count` jobs of a queue, in their order, behind a position.
    fn queued_behind(&self, name: &[u8], last: Option<QueuePosition>, count: usize) -> Vec<JobRef> {
        let Some(queue) = self.queues.find_live(name) else { return Vec::new() };
        let Some((priority, key)) = last else { return queue.jobs.iter().take(count).collect() };
        let from = queue.jobs.iter_from(self.jobs.table(), rank_of(priority), key.0, &key);
        from.filter(|r| self.jobs[*r].id != key.1).take(count).collect()
    }

    /// Refuses a queue that takes no jobs. A pause that comes between slices stops no command.
    fn check_target(&self, call: &Call<'_>, queue: &[u8]) -> Result<(), CommandError> {
        if self.long_commands.contains_key(&call.client) {
            return Ok(());
        }
        let is_paused = self.queues.find_live(queue).is_some_and(|queue| queue.pause.is_in());
        if is_paused { Err(CommandError::Paused) } else { Ok(()) }
    }
}
