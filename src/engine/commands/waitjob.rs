//! WAITJOB: until jobs have ended.

use crate::base::ids::JobId;
use crate::base::limits::COMMAND_SLICE;
use crate::base::time::MonoMs;
use crate::engine::arguments::{Arguments, deadline, is};
use crate::engine::blocked::Wait;
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::endings::{EndsWait, Until};
use crate::engine::error::CommandError;
use crate::engine::{Engine, More};

use super::LongCommand;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("waitjob", waitjob)];

/// Most jobs that one call waits for: the answer is sent in one piece.
const JOBS_MAX: usize = 10_000;

/// A WAITJOB that has not come to all of its jobs yet.
pub struct WaitJob {
    /// Where it goes on, counted from the command's name.
    next_at: usize,
}

/// WAITJOB [TIMEOUT ms] [ALL] id [id ...]
/// -> array of `[id, ending]` of those that ended, or a null array when there was none in time.
///
/// It waits for the first that ends; with ALL until every job has ended. A job that is not known
/// here has ended. Nothing is done unless every ID is valid.
pub fn waitjob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let mut waitjob = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::WaitJob(waitjob)) => waitjob,
        _ => begin(engine, call)?,
    };
    if engine.blocked.ends_wait(call.client).is_none() {
        // Between two slices its time was over.
        return Ok(Outcome::Done);
    }
    let slice = call.args.from(waitjob.next_at).up_to(COMMAND_SLICE);
    let ids: Vec<JobId> = slice.iter().filter_map(JobId::parse).collect();
    engine.wait_for_ends(call.client, &ids);
    waitjob.next_at += slice.len();
    if waitjob.next_at < call.args.len() {
        engine.long_commands.insert(call.client, LongCommand::WaitJob(waitjob));
        return Ok(Outcome::Again);
    }
    if let Some(wait) = engine.blocked.ends_wait(call.client) {
        wait.has_all = true;
    }
    Ok(match engine.end_wait_for_ends(call.client) {
        More::No => Outcome::Done,
        More::Yes => Outcome::Blocked,
    })
}

/// Begins a wait, if everything is valid.
fn begin(engine: &mut Engine, call: &Call<'_>) -> Result<WaitJob, CommandError> {
    let mut until = Until::First;
    let mut ends_at = MonoMs::NEVER;
    let mut next_at = 1;
    let mut arguments = Arguments::new(call.args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "timeout") {
            ends_at = deadline(arguments.value()?, engine.now.mono)?;
        } else if is(option, "all") {
            until = Until::All;
        } else {
            break;
        }
        next_at = arguments.position();
    }
    let ids = call.args.from(next_at);
    if ids.is_empty() {
        return Err(CommandError::Syntax);
    }
    if ids.len() > JOBS_MAX {
        return Err(CommandError::TooManyIds);
    }
    if ids.iter().any(|id| JobId::parse(id).is_none()) {
        return Err(CommandError::BadId);
    }
    if engine.cluster.is_leaving() {
        return Err(CommandError::Leaving);
    }
    let order = engine.blocked.next_place();
    let wait = Wait::Ends(Box::new(EndsWait::new(order, call.resp, until)));
    engine.blocked.begin(call.client, wait, ends_at);
    Ok(WaitJob { next_at })
}
