//! What a node knows of a queue, as it answers QUERY: a row of numbers, eight bytes each.
//!
//! New ones stand at the end. Who knows fewer leaves the rest alone, and what is missing is 0.

use super::reader::Reader;

/// The figures of a queue on one node, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Jobs that are queued.
    pub len: u64,
    /// For how long there has been the queue.
    pub age_secs: u64,
    /// Clients that wait for jobs.
    pub blocked: u64,
    /// Jobs that come from other nodes in a second.
    pub import_rate: u64,
    pub jobs_in: u64,
    pub jobs_out: u64,
    /// Jobs that clients of the node have.
    pub in_flight: u64,
    /// Jobs that wait for a time of their own.
    pub delayed: u64,
    /// Jobs of the queue that died on the node since it started.
    pub dead: u64,
}

impl QueueFigures {
    /// Both together: the sums, and the greater age.
    pub fn with(self, other: &Self) -> Self {
        Self {
            len: self.len.saturating_add(other.len),
            age_secs: self.age_secs.max(other.age_secs),
            blocked: self.blocked.saturating_add(other.blocked),
            import_rate: self.import_rate.saturating_add(other.import_rate),
            jobs_in: self.jobs_in.saturating_add(other.jobs_in),
            jobs_out: self.jobs_out.saturating_add(other.jobs_out),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            delayed: self.delayed.saturating_add(other.delayed),
            dead: self.dead.saturating_add(other.dead),
        }
    }

    /// Names and values, in their order.
    pub fn pairs(&self) -> [(&'static str, u64); 9] {
        [
            ("len", self.len),
            ("age", self.age_secs),
            ("blocked", self.blocked),
            ("import-rate", self.import_rate),
            ("jobs-in", self.jobs_in),
            ("jobs-out", self.jobs_out),
            ("in-flight", self.in_flight),
            ("delayed", self.delayed),
            ("dead", self.dead),
        ]
    }

    pub fn encode(&self) -> Vec<u8> {
        self.pairs().iter().flat_map(|(_, number)| number.to_be_bytes()).collect()
    }

    /// `None` for a node that does not know the queue: it answers nothing.
    pub fn decode(answer: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(answer);
        let len = reader.u64_be().ok()?;
        let mut next = || reader.u64_be().unwrap_or(0);
        Some(Self {
            len,
            age_secs: next(),
            blocked: next(),
            import_rate: next(),
            jobs_in: next(),
            jobs_out: next(),
            in_flight: next(),
            delayed: next(),
            dead: next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_and_those_that_are_missing_are_zero() {
        let figures = QueueFigures {
            len: 1,
            age_secs: 2,
            blocked: 3,
            import_rate: 4,
            jobs_in: 5,
            jobs_out: 6,
            in_flight: 7,
            delayed: u64::MAX,
            dead: 8,
        };
        let encoded = figures.encode();
        assert_eq!(QueueFigures::decode(&encoded), Some(figures));
        let of_a_later_version = [&encoded[..], &[1; 9]].concat();
        assert_eq!(QueueFigures::decode(&of_a_later_version), Some(figures));
        let old = QueueFigures::decode(&encoded[..16]);
        assert_eq!(old, Some(QueueFigures { len: 1, age_secs: 2, ..QueueFigures::default() }));
        assert_eq!(QueueFigures::decode(&encoded[..7]), None);
        assert_eq!(figures.with(&figures).delayed, u64::MAX);
        assert_eq!((figures.with(&figures).len, figures.with(&figures).age_secs), (2, 2));
    }
}
