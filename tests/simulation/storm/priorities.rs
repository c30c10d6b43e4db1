//! Priorities of jobs, and what must hold of them: a job keeps the one it was added with, on
//! every node and through everything that befalls it.

use disque::base::rng::Rng;

use super::Storm;
use crate::survey::Copy;

/// That of a job of which nothing is said.
pub const DEFAULT: u8 = 4;

/// Whether jobs have priorities.
pub struct Priorities {
    /// Draws apart from the rest, so that runs without priorities stay what they are.
    rng: Rng,
    are_used: bool,
}

impl Priorities {
    pub fn new(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        Self { rng, are_used }
    }
}

impl Storm {
    /// The priority of a job that is added to a node, and the words that say so.
    pub(super) fn draw_priority(&mut self, n: usize) -> (u8, Vec<Vec<u8>>) {
        if !self.priorities.are_used || self.sim.network.is_plain(n) {
            return (DEFAULT, Vec::new());
        }
        let priority = 1 + self.priorities.rng.below(7) as u8;
        (priority, vec![b"PRIORITY".to_vec(), priority.to_string().into_bytes()])
    }

    /// Every copy has the priority that its job was added with.
    pub(super) fn check_priorities(&self, id: &[u8], copies: &[Copy]) {
        let Some(wanted) = self.stories.get(id).and_then(|story| story.wanted.as_ref()) else {
            return;
        };
        // An ack without a job shows none.
        let are_kept =
            copies.iter().all(|copy| copy.priority == wanted.priority || copy.body.is_empty());
        let id = id.escape_ascii();
        assert!(are_kept, "{id} keeps priority {}: {copies:?}", wanted.priority);
    }
}
