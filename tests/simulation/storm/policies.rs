//! Policies of queues in a storm, drawn apart from the rest, so that runs without them stay what
//! they are.

use disque::base::rng::Rng;
use disque::engine::config::RetryFrom;
use disque::engine::policy::PolicyLine;

use super::{QUEUES, Storm, words};

/// Longest wait that a policy gives a NACK, in seconds.
const LONGEST_BACKOFF_SECS: u32 = 6;

/// What the policies say of one of the queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// The first and the longest wait of a NACK without DELAY, in seconds.
    pub nack_delay: Option<(u32, u32)>,
    pub retry_from: Option<RetryFrom>,
}

impl Policy {
    fn draw(rng: &mut Rng) -> Self {
        let first = rng.below(3);
        Self {
            nack_delay: (rng.below(3) > 0)
                .then(|| (first, first.max(1 + rng.below(LONGEST_BACKOFF_SECS)))),
            retry_from: [None, Some(RetryFrom::Queue), Some(RetryFrom::Delivery)][rng.index(3)],
        }
    }

    fn line(&self, queue: &str) -> String {
        let mut line = queue.to_owned();
        if let Some((first, most)) = self.nack_delay {
            line += &format!(" nack-delay {first}:{most}");
        }
        match self.retry_from {
            None => {}
            Some(RetryFrom::Queue) => line += " retry-from queue",
            Some(RetryFrom::Delivery) => line += " retry-from delivery",
        }
        line
    }
}

/// The policies of a run, one a queue; in half of the runs there are none.
#[derive(Debug)]
pub struct Policies(Option<[Policy; QUEUES.len()]>);

impl Policies {
    pub fn draw(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        Self(are_used.then(|| QUEUES.map(|_| Policy::draw(&mut rng))))
    }
}

impl Storm {
    /// Gives all nodes but plain ones the policies.
    pub(super) fn set_policies(&mut self) {
        let Some(policies) = &self.policies.0 else { return };
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
        let at = QUEUES.iter().position(|name| *name == queue);
        match (&self.policies.0, at) {
            (Some(policies), Some(at)) if !self.sim.network.is_plain(n) => policies[at],
            _ => Policy::default(),
        }
    }

    /// The least and the most that a NACK without DELAY makes a job wait on a node, in ms; `None`
    /// where it is queued at once.
    pub(super) fn backoff_ms(&self, n: usize, queue: &str) -> Option<(u64, u64)> {
        let (first, most) = self.policy_on(n, queue).nack_delay?;
        (first > 0).then(|| (u64::from(first) * 900, u64::from(most) * 1100))
    }
}
