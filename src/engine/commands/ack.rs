//! ACKJOB and FASTACK, and the shape that all commands with a list of IDs share.

use crate::base::ids::JobId;
use crate::base::limits::{COMMAND_SLICE, SLICE_BYTES};
use crate::engine::Engine;
use crate::engine::ack::{NewlyAcked, Removed};
use crate::engine::arguments::Arguments;
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::scope::QueueScope;

use super::LongCommand;

pub(in crate::engine) static COMMANDS: &[EngineCommand] =
    &[row("ackjob", ackjob), row("fastack", fastack)];

/// ACKJOB id [id ...] -> integer: how many were known here and not yet acked.
///
/// Every ID is checked before any job is touched. No IDs at all: 0, as in C.
pub fn ackjob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let client = call.client;
    for_each_id(engine, call, |engine, id| engine.ack(id, client) == NewlyAcked::Yes)
}

/// FASTACK id [id ...] -> integer: how many were here. The jobs are dropped here and,
/// with one message that may get lost, wherever they may be.
pub fn fastack(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id(engine, call, |engine, id| engine.fast_ack(id) == Removed::Yes)
}

/// How far a command with many IDs has come.
#[derive(Debug, Default)]
pub struct IdsProgress {
    /// How many IDs there are.
    len: usize,
    /// IDs handled.
    done: usize,
    /// What will be answered.
    count: i64,
    /// Whose jobs are touched; the others are passed over.
    scope: Option<QueueScope>,
}

/// Does the same to every ID, in slices, and answers for how many it was true.
pub(super) fn for_each_id(
    engine: &mut Engine,
    call: &Call<'_>,
    mut act: impl FnMut(&mut Engine, &JobId) -> bool,
) -> CommandResult {
    let no_options = |mut arguments: Arguments<'_>| match arguments.next() {
        Some(_) => Err(CommandError::BadId),
        None => Ok(()),
    };
    for_each_id_as(engine, call, 1, no_options, |engine, id, ()| act(engine, id))
}

/// As [`for_each_id`], from the argument `first` on, and as options say that stand behind the
/// IDs. Every ID and every option is checked before any job is touched.
pub(super) fn for_each_id_as<'a, T: Copy>(
    engine: &mut Engine,
    call: &'a Call<'_>,
    first: usize,
    parse: impl Fn(Arguments<'a>) -> Result<T, CommandError>,
    mut act: impl FnMut(&mut Engine, &JobId, T) -> bool,
) -> CommandResult {
    let ids = call.args.from(first);
    let mut so_far = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::IdsProgress(so_far)) => so_far,
        _ => {
            let len = ids.iter().take_while(|id| JobId::parse(id).is_some()).count();
            IdsProgress { len, scope: engine.scope.clone(), ..IdsProgress::default() }
        }
    };
    let options = parse(Arguments::new(call.args, first + so_far.len))?;
    let end = so_far.len.min(so_far.done + COMMAND_SLICE);
    let written_max = engine.out.aof.len() + SLICE_BYTES;
    while so_far.done < end && engine.out.aof.len() < written_max {
        let id = JobId::parse(&ids[so_far.done]).ok_or(CommandError::BadId)?;
        let is_touched = so_far.scope.as_ref().is_none_or(|scope| engine.is_of_scope(scope, &id));
        so_far.count += i64::from(is_touched && act(engine, &id, options));
        so_far.done += 1;
    }
    if so_far.done < so_far.len {
        engine.long_commands.insert(call.client, LongCommand::IdsProgress(so_far));
        return Ok(Outcome::Again);
    }
    engine.reply(call.client, call.resp).integer(so_far.count);
    Ok(Outcome::Done)
}
