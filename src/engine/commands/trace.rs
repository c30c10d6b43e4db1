//! TRACE: the life of a job.

use crate::base::ids::JobId;
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, EngineCommand, row};
use crate::engine::error::CommandError;
use crate::engine::queries::SILENT_AFTER_MS;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("trace", trace)];

/// The longest that nodes are waited for, in ms.
const TIMEOUT_MAX_MS: u64 = 60_000;

/// TRACE id [TIMEOUT ms] -> array of `[unix-ms, node-id, event, name, value ...]`: what happened to
/// a traced job on all nodes, by time and node; then a `clock` row for each other node with events,
/// then `[0, node-id, "silent"]` for each that did not answer in time. A null array for a job of
/// which no node knows anything.
pub fn trace(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let id = JobId::parse(&call.args[1]).ok_or(CommandError::BadId)?;
    let mut timeout_ms = SILENT_AFTER_MS;
    let mut arguments = Arguments::new(call.args, 2);
    while let Some(option) = arguments.next() {
        if !is(option, "timeout") {
            return Err(CommandError::Syntax);
        }
        timeout_ms = arguments.number(1, CommandError::TraceTimeout)?;
        if timeout_ms > TIMEOUT_MAX_MS {
            return Err(CommandError::TraceTimeout);
        }
    }
    Ok(engine.survey_trace(call, id, timeout_ms))
}
