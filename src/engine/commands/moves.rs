//! Commands that move jobs between queues, and empty queues: MOVEJOB, QMOVE, QREDRIVE, QPURGE.

use std::collections::VecDeque;

use crate::base::glob::{Case, matches};
use crate::base::ids::JobId;
use crate::base::limits::COMMAND_SLICE;
use crate::base::number::parse_i64;
use crate::engine::Engine;
use crate::engine::ack::NewlyAcked;
use crate::engine::arguments::{Arguments, is, queue_name};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::JobRef;
use crate::engine::moves::{Move, Then};
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
    if !engine.long_commands.contains_key(&call.client) {
        engine.check_target(queue)?;
    }
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

/// QMOVE source target [COUNT n] -> integer: how many of the first n jobs that are queued on this
/// node were moved, in their order. n is 100, and 10,000 at most. -PAUSED where the target takes no
/// jobs.
pub fn qmove(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let (source, target) = (&call.args[1], queue_name(&call.args[2])?);
    if source == target {
        return Err(CommandError::MoveWithinQueue);
    }
    let options = QueueOptions::parse(Arguments::new(call.args, 3), Takes::Count)?;
    if !engine.long_commands.contains_key(&call.client) {
        engine.check_target(target)?;
    }
    for_each_queued(engine, call, options.count, |engine, r| {
        let then = Then::Stays;
        let to = Move { queue: target, facts: None, expire_at: None, priority: None, then };
        engine.move_job(r, &to)
    })
}

/// QREDRIVE dead-queue [COUNT n] [REASON glob] -> integer: how many of the first n jobs that are
/// queued on this node went back to the queues where they died, with the TTL that they were
/// added with. Jobs that did not die are passed over, and those of queues that take no jobs, and of
/// another reason than REASON: max-deliveries, nack or expired.
pub fn qredrive(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let options = QueueOptions::parse(Arguments::new(call.args, 2), Takes::CountAndReason)?;
    for_each_queued(engine, call, options.count, |engine, r| {
        let is_wanted = |facts: &Facts<'_>| {
            options
                .reason
                .is_none_or(|glob| matches(glob, facts.reason.name().as_bytes(), Case::Sensitive))
        };
        engine.redrive(r, is_wanted)
    })
}

/// QPURGE queue [COUNT n] -> integer: how many of the first n jobs that are queued on this node
/// were acknowledged, so that no copy of them comes back.
pub fn qpurge(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let options = QueueOptions::parse(Arguments::new(call.args, 2), Takes::Count)?;
    for_each_queued(engine, call, options.count, |engine, r| engine.purge(r) == NewlyAcked::Yes)
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

/// Does something to the first jobs of the queue that the first argument names, in their order and
/// in slices, and answers for how many it was true. They are chosen when the command begins; one that
/// has left the queue when its turn comes is passed over.
fn for_each_queued(
    engine: &mut Engine,
    call: &Call<'_>,
    count: usize,
    mut act: impl FnMut(&mut Engine, JobRef) -> bool,
) -> CommandResult {
    let name = &call.args[1];
    let mut so_far = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::Queued(so_far)) => so_far,
        _ => Queued { ids: engine.first_ids(name, count), count: 0 },
    };
    let slice = so_far.ids.len().min(COMMAND_SLICE);
    for id in so_far.ids.drain(..slice) {
        let r = engine.jobs.find(&id).filter(|r| {
            let job = &engine.jobs[*r];
            job.is_queued() && *engine.queues[job.queue].name == *name
        });
        so_far.count += i64::from(r.is_some_and(|r| act(engine, r)));
    }
    if so_far.ids.is_empty() {
        engine.reply(call.client, call.resp).integer(so_far.count);
        return Ok(Outcome::Done);
    }
    engine.long_commands.insert(call.client, LongCommand::Queued(so_far));
    Ok(Outcome::Again)
}

/// How far a command on the jobs of a queue has come.
#[derive(Debug)]
pub struct Queued {
    /// Those that are left.
    ids: VecDeque<JobId>,
    /// What will be answered.
    count: i64,
}

impl Engine {
    fn first_ids(&self, name: &[u8], count: usize) -> VecDeque<JobId> {
        let jobs = self.queues.find_live(name).map(|queue| queue.jobs.iter().take(count));
        jobs.into_iter().flatten().map(|r| self.jobs[r].id).collect()
    }

    /// Refuses a queue that takes no jobs.
    fn check_target(&self, queue: &[u8]) -> Result<(), CommandError> {
        let is_paused = self.queues.find_live(queue).is_some_and(|queue| queue.pause.is_in());
        if is_paused { Err(CommandError::Paused) } else { Ok(()) }
    }
}
