//! NACK: a client gives jobs back.

use crate::base::ids::JobId;
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, EngineCommand, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{JobRef, Nack};

use super::ack::for_each_id_as;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("nack", nack)];

/// Longest REASON, in bytes.
const NOTE_MAX: usize = 256;

/// What a NACK asks for beside.
#[derive(Clone, Copy)]
struct NackOptions<'a> {
    /// `None` leaves it to the policy of the job's queue.
    delay_secs: Option<u32>,
    nack: Nack,
    reason: Option<&'a [u8]>,
}

/// NACK id [id ...] [DELAY s] [SILENT] [REASON text] -> integer: how many active jobs went to
/// their queue, or wait for it; counted as not processed, unless SILENT. DELAY is in seconds, at
/// most 32 bits; without it the policy says how long a job waits that is counted. REASON becomes
/// the note of each of these jobs.
///
/// What is neither an option nor an ID is -BADID, as in C, so that a library can tell. Nothing
/// is done unless everything is valid.
pub fn nack(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id_as(engine, call, 1, NackOptions::parse, Engine::nack)
}

impl Engine {
    fn nack(&mut self, id: &JobId, options: NackOptions<'_>) -> bool {
        let Some(r) = self.find_active(id) else { return false };
        let wait_ms = match options.delay_secs {
            Some(secs) => u64::from(secs) * 1000,
            None if options.nack == Nack::Yes => self.nack_delay_ms(r),
            None => 0,
        };
        let goes_back = match wait_ms {
            0 => self.enqueue(r, options.nack),
            ms => self.hold_after_nack(r, ms, options.nack),
        };
        if goes_back && let Some(reason) = options.reason {
            self.set_note(r, reason);
        }
        goes_back
    }

    /// How long a job waits that is given back now, as the policy of its queue says.
    fn nack_delay_ms(&mut self, r: JobRef) -> u64 {
        let job = &self.jobs[r];
        let nacks = job.nack_count().saturating_add(1);
        let backoff = self.policy_of_queue(job.queue).and_then(|policy| policy.nack_delay());
        backoff.map_or(0, |backoff| backoff.wait_ms(nacks, &mut self.rng))
    }
}

impl<'a> NackOptions<'a> {
    fn parse(mut arguments: Arguments<'a>) -> Result<Self, CommandError> {
        let mut options = Self { delay_secs: None, nack: Nack::Yes, reason: None };
        while let Some(option) = arguments.next() {
            if is(option, "delay") {
                options.delay_secs = Some(arguments.named_number(0, CommandError::Delay)?);
            } else if is(option, "silent") {
                options.nack = Nack::Uncounted;
            } else if is(option, "reason") {
                let reason = arguments.next().filter(|reason| reason.len() <= NOTE_MAX);
                options.reason = Some(reason.ok_or(CommandError::Reason)?);
            } else if JobId::parse(option).is_some() {
                return Err(CommandError::IdBehindOptions);
            } else {
                return Err(CommandError::BadId);
            }
        }
        Ok(options)
    }
}
