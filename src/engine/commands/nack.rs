//! NACK: a client gives jobs back.

use crate::base::ids::JobId;
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, EngineCommand, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{JobRef, Nack};
use crate::engine::trace::{Event, Text};
use crate::proto::facts::DeathReason;

use super::ack::for_each_id_as;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("nack", nack)];

/// Longest REASON, in bytes.
const NOTE_MAX: usize = 256;

/// What becomes of a job that is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It failed, and comes again unless it did so too often.
    Failed,
    /// It was not begun: nothing is counted.
    Unbegun,
    /// It dies.
    Dead,
}

impl Fate {
    fn counted(self) -> Nack {
        if self == Self::Unbegun { Nack::Uncounted } else { Nack::Yes }
    }
}

/// What a NACK asks for beside.
#[derive(Clone, Copy)]
struct NackOptions<'a> {
    /// `None` leaves it to the policy of the job's queue.
    delay_secs: Option<u32>,
    fate: Fate,
    reason: Option<&'a [u8]>,
}

/// NACK id [id ...] [DELAY s] [SILENT | DEAD] [REASON text] -> integer: how many active jobs went
/// to their queue, wait for it, or are dead; counted as not processed, unless SILENT. DELAY is in
/// seconds, at most 32 bits; without it the policy says how long a job waits that is counted. One
/// that was delivered as often as it may be dies, whatever DELAY says. DEAD has it die now; one
/// that cannot die (again) goes to its queue. REASON becomes the note of each of these jobs.
///
/// What is neither an option nor an ID is -BADID, as in C, so that a library can tell. Nothing
/// is done unless everything is valid.
pub fn nack(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    for_each_id_as(engine, call, 1, NackOptions::parse, Engine::nack)
}

impl Engine {
    fn nack(&mut self, id: &JobId, options: NackOptions<'_>) -> bool {
        let Some(r) = self.find_active(id) else { return false };
        if self.jobs[r].is_traced() {
            let reason = options.reason.map(Text::new);
            let delay_secs = options.delay_secs.unwrap_or(0);
            self.note_event(r, Event::Nacked { delay_secs, reason });
        }
        if self.jobs[r].awaits_burial() {
            self.note_reason(r, options);
            return self.bury(r, DeathReason::Expired, options.fate.counted());
        }
        let death = match options.fate {
            Fate::Dead => Some(DeathReason::Nack),
            Fate::Failed if self.is_at_its_limit(r) => Some(DeathReason::MaxDeliveries),
            Fate::Failed | Fate::Unbegun => None,
        };
        if let Some(death) = death.filter(|_| self.may_die(r)) {
            self.note_reason(r, options);
            if self.bury(r, death, Nack::Yes) {
                return true;
            }
        }
        let wait_ms = match (options.delay_secs, options.fate) {
            (Some(secs), _) => u64::from(secs) * 1000,
            (None, Fate::Failed | Fate::Dead) => self.nack_delay_ms(r),
            (None, Fate::Unbegun) => 0,
        };
        let nack = options.fate.counted();
        let goes_back = match wait_ms {
            0 => self.enqueue(r, nack),
            ms => self.hold_after_nack(r, ms, nack),
        };
        if goes_back {
            self.note_reason(r, options);
        }
        goes_back
    }

    fn note_reason(&mut self, r: JobRef, options: NackOptions<'_>) {
        if let Some(reason) = options.reason {
            self.set_note(r, reason);
        }
    }

    /// How long a job waits that is given back now, as the policy of its queue says.
    fn nack_delay_ms(&mut self, r: JobRef) -> u64 {
        let job = &self.jobs[r];
        let (q, nacks) = (job.queue, job.nack_count().saturating_add(1));
        let backoff = self.policy_of_queue(q).and_then(|policy| policy.nack_delay());
        backoff.map_or(0, |backoff| backoff.wait_ms(nacks, &mut self.rng))
    }
}

impl<'a> NackOptions<'a> {
    fn parse(mut arguments: Arguments<'a>) -> Result<Self, CommandError> {
        let mut options = Self { delay_secs: None, fate: Fate::Failed, reason: None };
        while let Some(option) = arguments.next() {
            if is(option, "delay") {
                options.delay_secs = Some(arguments.named_number(0, CommandError::Delay)?);
            } else if is(option, "silent") {
                options.set_fate(Fate::Unbegun)?;
            } else if is(option, "dead") {
                options.set_fate(Fate::Dead)?;
            } else if is(option, "reason") {
                let reason = arguments.next().filter(|reason| reason.len() <= NOTE_MAX);
                options.reason = Some(reason.ok_or(CommandError::Reason)?);
            } else if JobId::parse(option).is_some() {
                return Err(CommandError::IdBehindOptions);
            } else {
                return Err(CommandError::BadId);
            }
        }
        if options.fate == Fate::Dead && options.delay_secs.is_some() {
            return Err(CommandError::DeadWithDelay);
        }
        Ok(options)
    }

    fn set_fate(&mut self, fate: Fate) -> Result<(), CommandError> {
        if self.fate != Fate::Failed && self.fate != fate {
            return Err(CommandError::DeadAndSilent);
        }
        self.fate = fate;
        Ok(())
    }
}
