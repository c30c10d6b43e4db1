//! The facts of a dead letter: where it came from, and why it died. Attribute 3 of a job.
//!
//! ```text
//! 0   u8   0 while the job is dead, 1 once it was moved since: then they are history
//! 1   u8   why: 1 it was delivered too often, 2 a client said so, 3 its TTL was over
//! 2   u16  nacks
//! 4   u16  additional deliveries
//! 6   u64  when, in milliseconds since 1970
//! 14  u32  its TTL when it was added, in seconds
//! 18  u8   length of the name of its queue, and the name
//!     u16  length of its note, and the note
//! ```
//!
//! All numbers are little endian. What stands behind them is for later versions.

use super::reader::Reader;
use crate::base::time::UnixMs;

/// Longest name of a queue that facts keep, in bytes. Of a longer one they have no name, and the job
/// is not redriven.
pub const ORIGIN_MAX: usize = 255;

const IN_FORCE: u8 = 0;
const HISTORY: u8 = 1;

/// Why a job died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathReason {
    MaxDeliveries,
    Nack,
    Expired,
}

impl DeathReason {
    pub const ALL: [Self; 3] = [Self::MaxDeliveries, Self::Nack, Self::Expired];

    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxDeliveries => "max-deliveries",
            Self::Nack => "nack",
            Self::Expired => "expired",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::MaxDeliveries => 1,
            Self::Nack => 2,
            Self::Expired => 3,
        }
    }
}

/// What is known of the death of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    pub reason: DeathReason,
    pub nacks: u16,
    /// Additional deliveries.
    pub deliveries: u16,
    pub died_at: UnixMs,
    /// The TTL that it was added with, in seconds.
    pub ttl_secs: u32,
    /// The queue in which it died.
    pub origin: &'a [u8],
    /// What a client gave as its reason, or nothing.
    pub note: &'a [u8],
}

impl<'a> Facts<'a> {
    /// As the value of the attribute, in force.
    ///
    /// # Panics
    /// When the name has more than [`ORIGIN_MAX`] bytes, or the note more than 65,535.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![IN_FORCE, self.reason.number()];
        value.extend_from_slice(&self.nacks.to_le_bytes());
        value.extend_from_slice(&self.deliveries.to_le_bytes());
        value.extend_from_slice(&self.died_at.0.to_le_bytes());
        value.extend_from_slice(&self.ttl_secs.to_le_bytes());
        value.push(u8::try_from(self.origin.len()).expect("the name's length has 8 bits"));
        value.extend_from_slice(self.origin);
        let note_len = u16::try_from(self.note.len()).expect("a note's length has 16 bits");
        value.extend_from_slice(&note_len.to_le_bytes());
        value.extend_from_slice(self.note);
        value
    }

    /// What a value says, in force or history; `None` for one that says something else.
    pub fn decode(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let _in_force = reader.u8().ok()?;
        let number = reader.u8().ok()?;
        Some(Self {
            reason: DeathReason::ALL.into_iter().find(|reason| reason.number() == number)?,
            nacks: reader.u16_le().ok()?,
            deliveries: reader.u16_le().ok()?,
            died_at: UnixMs(reader.u64_le().ok()?),
            ttl_secs: reader.u32_le().ok()?,
            origin: {
                let len = usize::from(reader.u8().ok()?);
                reader.take(len).ok()?
            },
            note: {
                let len = usize::from(reader.u16_le().ok()?);
                reader.take(len).ok()?
            },
        })
    }
}

/// Whether the job with this value is dead.
pub fn are_in_force(value: &[u8]) -> bool {
    value.first() == Some(&IN_FORCE)
}

/// The value once the job was moved.
pub fn as_history(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    value.iter_mut().take(1).for_each(|first| *first = HISTORY);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_read_back_and_become_history() {
        for reason in DeathReason::ALL {
            let facts = Facts {
                reason,
                nacks: 3,
                deliveries: 400,
                died_at: UnixMs(1_800_000_000_123),
                ttl_secs: 86_400,
                origin: b"mail",
                note: b"no route",
            };
            let value = facts.encode();
            assert_eq!(value[18..23], *b"\x04mail");
            assert_eq!((Facts::decode(&value), are_in_force(&value)), (Some(facts), true));
            let history = as_history(&value);
            assert_eq!((Facts::decode(&history), are_in_force(&history)), (Some(facts), false));
            for len in 0..value.len() {
                assert_eq!(Facts::decode(&value[..len]), None, "{len} bytes");
            }
        }
        assert!(!are_in_force(&as_history(b"")) && !are_in_force(b""));
        assert_eq!(Facts::decode(&[0, 9, 0, 0]), None);
    }
}
