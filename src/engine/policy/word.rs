//! The words of a policy, what values they take, and those values.

use crate::base::number;
use crate::base::rng::Rng;
use crate::proto::job_limits::DEAD_QUEUE_MAX;
use crate::proto::quoting;

/// The most that a NACK waits where the policy does not say how much, in seconds: a day.
const BACKOFF_DEFAULT_MAX_SECS: u32 = 86_400;
/// The longest time that a job is given by a policy, in seconds.
const TIME_MAX_SECS: u64 = 1_000_000_000;

/// What a policy can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWord {
    /// How often a job is delivered before it is dead; 0 is without end.
    MaxDeliveries,
    /// Where dead jobs go.
    DeadQueue,
    /// The TTL of a job from its death on, in seconds.
    DeadTtl,
    /// What the end of the TTL does: `drop` or `dead`.
    OnExpire,
    /// How long a NACK without DELAY waits.
    NackDelay,
    /// What the retry counts from: `queue` or `delivery`.
    RetryFrom,
    /// The TTL in seconds, unless the job's DELAY is not below it.
    DefaultTtl,
    /// The RETRY in seconds.
    DefaultRetry,
    /// The REPLICATE, as far as the cluster has nodes.
    DefaultReplicate,
    /// The SYNC, as far as there are copies.
    DefaultSync,
    /// The MAXLEN; 0 is none.
    MaxLen,
}

/// The values that a word takes.
enum Form {
    Number { min: u64, max: u64 },
    Backoff,
    QueueName,
    OneOf(&'static [&'static str]),
}

impl PolicyWord {
    pub const ALL: [Self; 11] = [
        Self::MaxDeliveries,
        Self::DeadQueue,
        Self::DeadTtl,
        Self::OnExpire,
        Self::NackDelay,
        Self::RetryFrom,
        Self::DefaultTtl,
        Self::DefaultRetry,
        Self::DefaultReplicate,
        Self::DefaultSync,
        Self::MaxLen,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::MaxDeliveries => "max-deliveries",
            Self::DeadQueue => "dead-queue",
            Self::DeadTtl => "dead-ttl",
            Self::OnExpire => "on-expire",
            Self::NackDelay => "nack-delay",
            Self::RetryFrom => "retry-from",
            Self::DefaultTtl => "default-ttl",
            Self::DefaultRetry => "default-retry",
            Self::DefaultReplicate => "default-replicate",
            Self::DefaultSync => "default-sync",
            Self::MaxLen => "max-len",
        }
    }

    fn form(self) -> Form {
        let number = |min, max| Form::Number { min, max };
        match self {
            Self::MaxDeliveries => number(0, u16::MAX.into()),
            Self::DeadQueue => Form::QueueName,
            Self::DeadTtl => number(1, TIME_MAX_SECS),
            Self::OnExpire => Form::OneOf(&["drop", "dead"]),
            Self::NackDelay => Form::Backoff,
            Self::RetryFrom => Form::OneOf(&["queue", "delivery"]),
            // A default of 0 would make jobs at-most-once whose producers do not say so.
            Self::DefaultTtl | Self::DefaultRetry => number(1, u32::MAX.into()),
            Self::DefaultReplicate | Self::DefaultSync => number(1, u16::MAX.into()),
            Self::MaxLen => number(0, i64::MAX.unsigned_abs()),
        }
    }

    /// What its value may be, to be read by people.
    pub fn values(self) -> String {
        match self.form() {
            Form::Number { min, max } => format!("{min} to {max}"),
            Form::Backoff => format!("first[:most], each 0 to {TIME_MAX_SECS}"),
            Form::QueueName => format!("a name of 1 to {DEAD_QUEUE_MAX} bytes"),
            Form::OneOf(names) => names.join(" or "),
        }
    }

    pub(super) fn find(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Reads the value of a word; the error says what it may be.
    pub(super) fn parse(self, text: &[u8]) -> Result<PolicyValue, String> {
        let name = self.name();
        match self.form() {
            Form::Number { min, max } => number::parse_u64(text)
                .filter(|number| (min..=max).contains(number))
                .map(PolicyValue::Number)
                .ok_or_else(|| format!("{name} must be a number from {min} to {max}")),
            Form::Backoff => Backoff::parse(text).map(PolicyValue::Backoff).ok_or_else(|| {
                format!(
                    "{name} must be a number of seconds from 0 to {TIME_MAX_SECS}, or two with a \
                     colon between them, the second one not below the first"
                )
            }),
            Form::QueueName if (1..=DEAD_QUEUE_MAX).contains(&text.len()) => {
                Ok(PolicyValue::Name(text.into()))
            }
            Form::QueueName => Err(format!("{name} must be a name of 1 to {DEAD_QUEUE_MAX} bytes")),
            Form::OneOf(names) => names
                .iter()
                .find(|known| known.as_bytes().eq_ignore_ascii_case(text))
                .map(|known| PolicyValue::Choice(known))
                .ok_or_else(|| format!("{name} must be {}", names.join(" or "))),
        }
    }
}

/// What a policy says with a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyValue {
    Number(u64),
    Backoff(Backoff),
    Name(Box<[u8]>),
    Choice(&'static str),
}

impl PolicyValue {
    /// The value as [`PolicyWord::parse`] reads it.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Backoff(backoff) => backoff.text().into(),
            Self::Name(name) => name.to_vec(),
            Self::Choice(name) => name.as_bytes().to_vec(),
        }
    }

    /// The value as a word of a line that is split by [`quoting::split`].
    pub(super) fn word(&self) -> Vec<u8> {
        quoting::quote_if_needed(&self.text())
    }
}

/// How long a job waits that was given back: for a time that doubles with each NACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first_secs: u32,
    max_secs: u32,
}

impl Backoff {
    fn parse(text: &[u8]) -> Option<Self> {
        let secs = |digits: &[u8]| {
            let secs = number::parse_u64(digits).filter(|secs| *secs <= TIME_MAX_SECS)?;
            u32::try_from(secs).ok()
        };
        let mut parts = text.splitn(2, |byte| *byte == b':');
        let first_secs = secs(parts.next()?)?;
        let max_secs = match parts.next() {
            Some(max) => secs(max).filter(|max| *max >= first_secs)?,
            None => BACKOFF_DEFAULT_MAX_SECS.max(first_secs),
        };
        Some(Self { first_secs, max_secs })
    }

    fn text(self) -> String {
        let Self { first_secs, max_secs } = self;
        if max_secs == BACKOFF_DEFAULT_MAX_SECS.max(first_secs) {
            first_secs.to_string()
        } else {
            format!("{first_secs}:{max_secs}")
        }
    }

    /// How long a job waits after its `nacks`-th NACK, in ms: a tenth less to a tenth more, so that
    /// jobs which failed together do not come together.
    pub fn wait_ms(self, nacks: u16, rng: &mut Rng) -> u64 {
        let doublings = u32::from(nacks.saturating_sub(1)).min(31);
        let secs = (u64::from(self.first_secs) << doublings).min(self.max_secs.into());
        // A thousandth of it, 900 to 1100 times.
        secs * u64::from(900 + rng.below(201))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_to_its_most_and_is_a_tenth_off_at_most() {
        let mut rng = Rng::from_seed([1; 32]);
        let backoff = Backoff::parse(b"5:300").expect("right");
        for (nacks, secs) in [(0, 5), (1, 5), (2, 10), (6, 160), (7, 300), (40, 300), (65_535, 300)]
        {
            let waits: Vec<u64> = (0..1000).map(|_| backoff.wait_ms(nacks, &mut rng)).collect();
            let (least, most) = (waits.iter().min(), waits.iter().max());
            assert!(*least.expect("some") >= secs * 900 && *most.expect("some") <= secs * 1100);
            assert!(*least.expect("some") < secs * 910 && *most.expect("some") > secs * 1090);
        }
        let none = Backoff::parse(b"0").expect("right");
        assert_eq!(none.wait_ms(9, &mut rng), 0);
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        for (word, text) in [
            (PolicyWord::NackDelay, "5"),
            (PolicyWord::NackDelay, "5:300"),
            (PolicyWord::NackDelay, "100000"),
            (PolicyWord::DeadQueue, "a b"),
            (PolicyWord::OnExpire, "dead"),
            (PolicyWord::MaxDeliveries, "65535"),
        ] {
            let value = word.parse(text.as_bytes()).expect(text);
            assert_eq!(value.text(), text.as_bytes());
        }
        assert_eq!(PolicyWord::NackDelay.parse(b"5:86400"), PolicyWord::NackDelay.parse(b"5"));
    }
}
