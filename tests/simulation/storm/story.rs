//! What is known of a job from outside, and what a run comes to.

use disque::base::ids::ClientId;

use super::policies::{Failing, is_dead_queue};
use super::rest::UNDER_WAY_MS;

/// Clocks go wrong by as much in the time of a hold.
const CLOCK_ERROR_MS: u64 = 3;

/// What a producer asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub retry_ms: u64,
    pub delay_ms: u64,
    /// How many copies were promised; 0 when nothing was.
    pub copies: usize,
    /// In how many zones they were promised to be.
    pub zones: usize,
    pub asked_at: u64,
    /// When the ID was answered.
    pub promised_at: u64,
    /// When its TTL is over; what is dead has another one, of which this is the longest end.
    pub expires_at: u64,
    pub ttl_ms: u64,
    pub queue: String,
    pub priority: u8,
    /// What its producer said of its failing; the policy of its queue says the rest.
    pub failing: Failing,
    /// Whether its producer wants it traced.
    pub is_traced: bool,
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
    /// Where it was fetched.
    pub node: usize,
    /// When the consumer is done with it.
    pub until: u64,
}

/// A time before which a job must not come.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// When it was said.
    pub since: u64,
    pub until: u64,
    /// When it is over at the latest.
    pub by: u64,
    /// By a NACK, which ends what was before, and not by a delivery or a lease.
    pub is_delay: bool,
}

impl Hold {
    /// One whose length is known.
    pub fn exact(since: u64, ms: u64, is_delay: bool) -> Self {
        let until = since + ms;
        Self { since, until, by: until, is_delay }
    }
}

/// A job that a producer got an ID for, or that a consumer got.
#[derive(Debug, Default)]
pub struct Story {
    /// `None` when its producer never heard of it.
    pub wanted: Option<Wanted>,
    pub delivered_at: Vec<u64>,
    /// From where it was delivered last.
    pub queue: String,
    /// Deliveries while it lived, without those of which a consumer said that it had not begun.
    pub tries: usize,
    /// Why it is dead.
    pub died_of: Option<String>,
    /// How often it died since its TTL was over, perhaps in the hands of a consumer.
    pub expiries: usize,
    /// When a consumer last gave it back or said that it works on it.
    pub put_back_at: u64,
    /// How often a consumer gave it back on purpose, and was answered that it comes again.
    pub put_backs: usize,
    /// What a delay or a lease says of its next delivery, if nothing is lost.
    pub hold: Option<Hold>,
    /// Until when a delay or lease may last that another one crossed.
    pub unsure_until: u64,
    /// When the last of all delays and leases ends.
    pub held_until: u64,
    /// Deliveries before the end of a hold.
    pub early: usize,
    /// When it was acknowledged first.
    pub acked_at: Option<u64>,
    /// Where a node that knew it took that, and when.
    pub acked_on: Option<(usize, u64)>,
    /// Where it was delivered, and when.
    pub fetched_on: Vec<(usize, u64)>,
    /// A node died of an acknowledgement, and may have told others before.
    pub may_be_acked: bool,
    /// It was moved with a delay: of that and other holds any may stay.
    pub was_moved_for_later: bool,
    /// It was purged, or may have been: it need not come.
    pub was_purged: bool,
}

impl Story {
    /// By when it must be in a queue again if nobody takes it out. `None` for jobs of
    /// which that is not known.
    pub fn is_due_by(&self) -> Option<u64> {
        let wanted = self.wanted.as_ref().filter(|wanted| wanted.retry_ms > 0)?;
        let made_at = wanted.asked_at + wanted.delay_ms;
        let left_at = self.delivered_at.last().copied().unwrap_or(0).max(self.put_back_at);
        Some(made_at.max(left_at).max(self.held_until) + wanted.retry_ms)
    }

    /// It is dead for a reason, and was not known to be.
    pub fn die(&mut self, reason: &str) {
        if self.died_of.as_deref() != Some(reason) {
            self.expiries += usize::from(reason == "expired");
            self.died_of = Some(reason.to_owned());
        }
    }

    /// What was dead was moved, and lives. A consumer that has it in hand has it for the first
    /// time.
    pub fn revive(&mut self, expires_at: u64, is_in_hand: bool) {
        self.died_of = None;
        self.tries = usize::from(is_in_hand);
        if !is_dead_queue(&self.queue) {
            // It was given back for a while, and died of that at once.
            self.hold = None;
        }
        if let Some(wanted) = &mut self.wanted {
            wanted.expires_at = expires_at;
        }
    }

    /// Deliveries beyond the first, and beyond those after it was given back.
    pub fn duplicates(&self) -> usize {
        self.delivered_at.len().saturating_sub(1 + self.put_backs)
    }

    /// The job is held from now on. Of two holds at once either may stay, and one that began
    /// while the word that the job was given back was under way may end by it.
    pub fn hold(&mut self, hold: Hold) {
        self.held_until = self.held_until.max(hold.by);
        let may_end = self.put_backs > 0 && hold.since < self.put_back_at + UNDER_WAY_MS;
        if may_end || hold.since < self.unsure_until {
            self.hold = None;
            self.unsure_until = self.unsure_until.max(hold.by);
            return;
        }
        let before = self
            .hold
            .filter(|before| hold.since < before.until && (before.is_delay || !hold.is_delay));
        let until = before.map_or(hold.until, |before| before.until.min(hold.until));
        let by = before.map_or(hold.by, |before| before.by.max(hold.by));
        self.hold = Some(Hold { until, by, ..hold });
    }

    /// Whether it comes at a time before the end of a hold that was known everywhere, so many ms
    /// after it was said.
    pub fn comes_early(&self, at: u64, known_after_ms: u64) -> bool {
        self.hold.is_some_and(|hold| {
            at + CLOCK_ERROR_MS < hold.until && at > hold.since + known_after_ms
        })
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
    /// Times that jobs were held, in runs in which links break and nothing else, and deliveries
    /// before the end.
    pub windy_holds: usize,
    pub windy_early: usize,
    /// Deliveries of acknowledged jobs after all was well again, where a node had been
    /// stopped or had left.
    pub late_duplicates: usize,
    /// Deliveries of jobs with attributes, and how many of them came without.
    pub with_attributes: usize,
    pub without_theirs: usize,
    /// Jobs that died.
    pub died: usize,
    /// Moves, deliveries of jobs that were moved, and how many of them came from another queue than
    /// that of their last move.
    pub moves: usize,
    pub moved: usize,
    pub moved_elsewhere: usize,
    /// Jobs that were promised for several zones, and zones that were lost whole.
    pub zoned: usize,
    pub lost_zones: usize,
    /// How often a node forgot one that failed for long, and nodes that came back at another
    /// address.
    pub forgotten: usize,
    pub readdressed: usize,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.promised += other.promised;
        self.refused += other.refused;
        self.stormy_jobs += other.stormy_jobs;
        self.stormy_duplicates += other.stormy_duplicates;
        self.windy_jobs += other.windy_jobs;
        self.windy_duplicates += other.windy_duplicates;
        self.windy_holds += other.windy_holds;
        self.windy_early += other.windy_early;
        self.late_duplicates += other.late_duplicates;
        self.with_attributes += other.with_attributes;
        self.without_theirs += other.without_theirs;
        self.died += other.died;
        self.moves += other.moves;
        self.moved += other.moved;
        self.moved_elsewhere += other.moved_elsewhere;
        self.zoned += other.zoned;
        self.lost_zones += other.lost_zones;
        self.forgotten += other.forgotten;
        self.readdressed += other.readdressed;
    }
}
