//! Policies of queues in a storm, drawn apart from the rest, so that runs without them stay what
//! they are.

use disque::base::rng::Rng;
use disque::engine::policy::PolicyLine;
use disque::engine::policy::RetryFrom;

use super::{EXPIRY_ERROR_MS, QUEUES, Storm, Weather, words};

/// Where jobs go that die.
pub const DEAD_QUEUES: [&str; 4] = ["red.dead", "green.dead", "blue.dead", "graves"];
/// Those that a policy or a producer names.
const GRAVES: &str = "graves";

/// The TTL of the dead, in seconds: an at-most-once job whose consumer forgets it stays for as long.
pub const DEAD_TTL_SECS: u64 = 100;
/// Longest wait that a policy gives a NACK, in seconds.
const LONGEST_BACKOFF_SECS: u32 = 6;

/// What the policies say of one of the queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// The first and the longest wait of a NACK without DELAY, in seconds.
    pub nack_delay: Option<(u32, u32)>,
    pub retry_from: Option<RetryFrom>,
    /// How often a job is delivered; 0 is without end.
    pub max_deliveries: u16,
    /// Whether its jobs die when their TTL is over.
    pub dies_of_expiry: bool,
    has_graves: bool,
}

impl Policy {
    fn draw(rng: &mut Rng) -> Self {
        let first = rng.below(3);
        Self {
            nack_delay: (rng.below(3) > 0)
                .then(|| (first, first.max(1 + rng.below(LONGEST_BACKOFF_SECS)))),
            retry_from: [None, Some(RetryFrom::Queue), Some(RetryFrom::Delivery)][rng.index(3)],
            max_deliveries: [0, 1, 2, 3][rng.index(4)],
            dies_of_expiry: rng.below(2) == 0,
            has_graves: rng.below(2) == 0,
        }
    }

    fn line(&self, queue: &str) -> String {
        let mut line =
            format!("{queue} max-deliveries {} dead-ttl {DEAD_TTL_SECS}", self.max_deliveries);
        if let Some((first, most)) = self.nack_delay {
            line += &format!(" nack-delay {first}:{most}");
        }
        match self.retry_from {
            None => {}
            Some(RetryFrom::Queue) => line += " retry-from queue",
            Some(RetryFrom::Delivery) => line += " retry-from delivery",
        }
        if self.dies_of_expiry {
            line += " on-expire dead";
        }
        if self.has_graves {
            line += " dead-queue graves";
        }
        line
    }
}

/// What its producer says of the failing of a job.
#[derive(Clone, Debug, Default)]
pub struct Failing {
    /// How often it may be delivered; 0 is without end.
    pub limit: Option<u16>,
    pub has_grave: bool,
    /// A short TTL, of whose end it dies.
    pub ttl_secs: Option<u64>,
}

impl Failing {
    /// The options of ADDJOB.
    pub fn words(&self) -> String {
        let limit = self.limit.map(|limit| format!(" MAXDELIVERIES {limit}"));
        let grave = self.has_grave.then(|| format!(" DEADQUEUE {GRAVES}"));
        [limit, grave].into_iter().flatten().collect()
    }
}

pub fn is_dead_queue(queue: &str) -> bool {
    DEAD_QUEUES.contains(&queue)
}

/// The policies of a run, one a queue; in half of the runs there are none.
pub struct Policies {
    rng: Rng,
    of_queues: Option<[Policy; QUEUES.len()]>,
}

impl Policies {
    pub fn draw(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        let of_queues = are_used.then(|| QUEUES.map(|_| Policy::draw(&mut rng)));
        Self { rng, of_queues }
    }

    /// Whether jobs may die.
    pub fn are_used(&self) -> bool {
        self.of_queues.is_some()
    }

    /// What those nodes that have policies say of a queue.
    pub fn of(&self, queue: &str) -> Policy {
        let at = QUEUES.iter().position(|name| *name == queue);
        match (&self.of_queues, at) {
            (Some(policies), Some(at)) => policies[at],
            _ => Policy::default(),
        }
    }

    /// Whether a consumer fails at a job that it would have acknowledged.
    pub fn draw_failure(&mut self) -> bool {
        self.are_used() && self.rng.below(4) == 0
    }

    /// Whether a consumer has the job die that it is done with.
    pub fn draw_death(&mut self) -> bool {
        self.are_used() && self.rng.below(5) == 0
    }
}

impl Storm {
    /// Gives all nodes but plain ones the policies.
    pub(super) fn set_policies(&mut self) {
        let Some(policies) = &self.policies.of_queues else { return };
        for n in 0..self.sim.nodes.len() {
            if self.sim.network.is_plain(n) {
                continue;
            }
            let now = self.sim.now(n);
            let engine = &mut self.sim.nodes[n].engine;
            let mut config = engine.config().clone();
            for (queue, policy) in QUEUES.iter().zip(policies) {
                let line = words(&policy.line(queue));
                config.policies.set(PolicyLine::parse(&line).expect("a right line"));
            }
            engine.set_config(now, config);
        }
    }

    /// What the policies of a node say of a queue.
    pub(super) fn policy_on(&self, n: usize, queue: &str) -> Policy {
        if self.sim.network.is_plain(n) { Policy::default() } else { self.policies.of(queue) }
    }

    /// The least and the most that a NACK without DELAY makes a job wait on a node, in ms; `None`
    /// where it is queued at once.
    pub(super) fn backoff_ms(&self, n: usize, queue: &str) -> Option<(u64, u64)> {
        let (first, most) = self.policy_on(n, queue).nack_delay?;
        (first > 0).then(|| (u64::from(first) * 900, u64::from(most) * 1100))
    }

    /// What the producer of a job says, now and then, of its failing.
    pub(super) fn draw_failing(&mut self, n: usize, queue: &str) -> Failing {
        let policy = self.policy_on(n, queue);
        let mut failing = Failing::default();
        if !self.policies.are_used() || self.sim.network.is_plain(n) {
            return failing;
        }
        let rng = &mut self.policies.rng;
        if rng.below(4) == 0 {
            failing.has_grave = true;
        }
        if rng.below(4) == 0 {
            failing.limit = Some(rng.below(4) as u16);
        }
        if policy.dies_of_expiry && rng.below(3) == 0 {
            failing.ttl_secs = Some(u64::from(3 + rng.below(4)));
        }
        failing
    }

    /// Where consumers look for jobs.
    pub(super) fn queues_of_consumers(&self) -> String {
        let dead: &[&str] = if self.policies.are_used() { &DEAD_QUEUES } else { &[] };
        [&QUEUES, dead, self.moves.aside()].concat().join(" ")
    }

    /// Whether nothing goes wrong and no node is in the way that knows nothing of moves.
    pub(super) fn all_are_able_and_well(&self) -> bool {
        let mut nodes = 0..self.sim.nodes.len();
        matches!(self.weather, Weather::Fair | Weather::Hazy)
            && !nodes.any(|n| self.sim.network.is_plain(n))
    }

    /// A job came from a queue: one that lives was not delivered too often, one that is dead has
    /// a reason, and stays where it is.
    pub(super) fn check_death(&mut self, n: usize, queue: &str, id: &[u8], at: u64) {
        let is_dead = is_dead_queue(queue);
        let (was_moved, was_just_moved) = (self.was_moved(id), self.was_just_moved(id));
        let copy = self.sim.copy_on(n, id);
        let reason = copy.as_ref().and_then(|copy| copy.death("reason"));
        // Where it lived when it died, or lives.
        let home = copy.as_ref().and_then(|copy| copy.death("queue")).unwrap_or(queue.into());
        let policy = self.policies.of(&home);
        let all_well = self.all_are_able_and_well();
        let is_fair = all_well && self.weather == Weather::Fair;
        let story = self.stories.get_mut(id).expect("it was delivered");
        let told = format!("{} from {queue} at {at}: {story:?}, {copy:?}", id.escape_ascii());
        let said = story.wanted.as_ref().map(|wanted| wanted.failing.clone()).unwrap_or_default();
        let limit = usize::from(said.limit.unwrap_or(policy.max_deliveries));
        if !is_dead {
            story.tries += 1;
            // Where frames take long, a copy may have queued it just then.
            let stays_dead = story.died_of.is_none() || !is_fair;
            assert!(stays_dead, "what is dead stays where it is, {told}");
            // One that was moved may have been delivered more often elsewhere.
            let too_often = is_fair && !was_moved && limit > 0 && story.tries > limit;
            assert!(!too_often, "a job is delivered as often as it may be, {told}");
            return;
        }
        // A node that knows nothing of it has it in a queue of that name, and that is all.
        let Some(reason) = reason else {
            let is_excused = copy.is_none() || !all_well || was_just_moved;
            assert!(is_excused, "who is dead has a reason, {told}");
            return;
        };
        story.hold = None;
        let has_grave = said.has_grave || policy.has_graves;
        let grave = if has_grave { GRAVES.into() } else { format!("{home}.dead") };
        let is_there = story.wanted.is_none() || queue == grave;
        assert!(is_there || !all_well, "the dead are in their queue, {told}");
        if let Some(wanted) = &mut story.wanted {
            // It has the TTL of the dead from now on, or has had it for a while.
            assert!(
                story.died_of.is_some()
                    || was_moved
                    || reason != "expired"
                    || at + EXPIRY_ERROR_MS >= wanted.expires_at,
                "nothing expires before its time, {told}"
            );
            wanted.expires_at = at + DEAD_TTL_SECS * 1000;
        }
        if story.died_of.as_ref().is_some_and(|before| *before == reason) {
            return;
        }
        assert!(story.died_of.is_none() || !is_fair, "nothing dies twice, {told}");
        story.die(&reason);
        let was_seen = story.delivered_at.len() > 1 || reason == "expired";
        assert!(was_seen, "nothing is buried unseen, {told}");
        if is_fair && reason == "max-deliveries" {
            let is_last = story.tries == limit || was_moved && story.tries > limit;
            assert!(is_last, "a job dies after its last delivery, {told}");
        }
    }

    /// Once all is well those who know of moves have each job in the same queue.
    pub(super) fn check_places(&mut self) {
        if !self.resets.is_empty() || !self.sim.losses.is_empty() {
            // Who moved a job may have forgotten it; others agree when they speak of it next.
            return;
        }
        let copies = self.sim.survey();
        for (id, copies) in &copies {
            let mut places = copies
                .iter()
                .filter(|copy| copy.is_live() && !self.is_plain_id(&copy.node_id))
                .map(|copy| &copy.queue);
            let first = places.next();
            let agree = places.all(|queue| Some(queue) == first);
            assert!(agree, "holders agree on the place of {}: {copies:?}", id.escape_ascii());
        }
    }
}
