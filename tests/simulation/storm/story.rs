//! What is known of a job from outside, and what a run comes to.

use disque::base::ids::ClientId;

/// What a producer asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub retry_ms: u64,
    pub delay_ms: u64,
    /// How many copies were promised; 0 when nothing was.
    pub copies: usize,
    pub asked_at: u64,
    /// When the ID was answered.
    pub promised_at: u64,
    pub expires_at: u64,
}

/// A producer that waits for its ID.
pub struct Adding {
    pub node: usize,
    pub client: ClientId,
    pub wanted: Wanted,
}

/// A job in the hands of a consumer.
pub struct InHand {
    pub id: Vec<u8>,
    /// When the consumer is done with it.
    pub until: u64,
}

/// A job that a producer got an ID for, or that a consumer got.
#[derive(Debug, Default)]
pub struct Story {
    /// `None` when its producer never heard of it.
    pub wanted: Option<Wanted>,
    pub delivered_at: Vec<u64>,
    /// When a consumer last gave it back or said that it works on it.
    pub put_back_at: u64,
    /// When it was acknowledged first.
    pub acked_at: Option<u64>,
    /// A node died of an acknowledgement, and may have told others before.
    pub may_be_acked: bool,
}

impl Story {
    /// By when it must be in a queue again if nobody takes it out. `None` for jobs of
    /// which that is not known.
    pub fn is_due_by(&self) -> Option<u64> {
        let wanted = self.wanted.as_ref().filter(|wanted| wanted.retry_ms > 0)?;
        let made_at = wanted.asked_at + wanted.delay_ms;
        let left_at = self.delivered_at.last().copied().unwrap_or(0).max(self.put_back_at);
        Some(made_at.max(left_at) + wanted.retry_ms)
    }

    /// Deliveries beyond the first.
    pub fn duplicates(&self) -> usize {
        self.delivered_at.len().saturating_sub(1)
    }
}

/// What a run comes to, to be added up over many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub trace: u64,
    /// Jobs that producers got an ID for.
    pub promised: usize,
    /// Jobs that were refused.
    pub refused: usize,
    /// Jobs of runs in a storm whose consumers were in time.
    pub stormy_jobs: usize,
    /// Their deliveries beyond the first of each.
    pub stormy_duplicates: usize,
    /// The same for runs in wind.
    pub windy_jobs: usize,
    pub windy_duplicates: usize,
    /// Deliveries of acknowledged jobs after all was well again, where a node had been
    /// stopped or had left.
    pub late_duplicates: usize,
    /// Deliveries of jobs with attributes, and how many of them came without.
    pub with_attributes: usize,
    pub without_theirs: usize,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.promised += other.promised;
        self.refused += other.refused;
        self.stormy_jobs += other.stormy_jobs;
        self.stormy_duplicates += other.stormy_duplicates;
        self.windy_jobs += other.windy_jobs;
        self.windy_duplicates += other.windy_duplicates;
        self.late_duplicates += other.late_duplicates;
        self.with_attributes += other.with_attributes;
        self.without_theirs += other.without_theirs;
    }
}
