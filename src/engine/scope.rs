//! The queues that somebody may see: those whose names match a glob of theirs.
//!
//! Who that is, and which commands it may run, is the server's business; it says nothing of
//! scopes where there are none. Here a scope leaves out what a command that names no queue would
//! show or touch beyond it.

use std::sync::Arc;

use crate::base::glob::{Case, matches};
use crate::base::ids::JobId;
use crate::base::limits::QUEUE_NAME_MAX;
use crate::proto::facts::Facts;

use super::Engine;

/// Globs of names of queues; none means every queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueScope(Arc<[Box<[u8]>]>);

impl QueueScope {
    pub fn new(globs: &[Vec<u8>]) -> Self {
        Self(globs.iter().map(|glob| glob.as_slice().into()).collect())
    }

    pub fn globs(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|glob| &**glob)
    }

    /// Whether it has every queue there may be.
    pub fn is_all(&self) -> bool {
        self.0.is_empty() || self.globs().any(|glob| glob == b"*")
    }

    /// Whether it has the queue of this name. What is too long for a name is not looked at.
    pub fn has(&self, queue: &[u8]) -> bool {
        self.0.is_empty()
            || queue.len() <= QUEUE_NAME_MAX
                && self.globs().any(|glob| matches(glob, queue, Case::Sensitive))
    }

    /// Whether it has the queue where a job died.
    pub(super) fn has_origin(&self, facts: &Facts<'_>) -> bool {
        !facts.origin.is_empty() && self.has(facts.origin)
    }
}

impl Engine {
    /// Has commands that begin from now on pass over what is beyond this scope; `None` has them
    /// take all there is. Scans show the queues of the scope, and jobs in them. ACKJOB, FASTACK and
    /// NACK take the jobs [`Engine::is_of_scope`] speaks of, QREDRIVE those that died there.
    pub fn limit_commands(&mut self, scope: Option<QueueScope>) {
        self.scope = scope;
    }

    /// Whether a job is in a queue of the scope, or died in one: a dead letter is still the matter
    /// of those whose job it was. One that is not known here is of every scope.
    pub fn is_of_scope(&self, scope: &QueueScope, id: &JobId) -> bool {
        let Some(r) = self.jobs.find(id) else { return true };
        if scope.has(&self.queues[self.jobs[r].queue].name) {
            return true;
        }
        let facts = self.jobs.facts(r);
        facts.as_deref().and_then(Facts::decode).is_some_and(|facts| scope.has_origin(&facts))
    }

    /// The queue of a job that is known here.
    pub fn queue_of(&self, id: &JobId) -> Option<&[u8]> {
        let r = self.jobs.find(id)?;
        Some(&self.queues[self.jobs[r].queue].name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_what_matches_one_of_its_globs() {
        let scope = |globs: &[&str]| {
            QueueScope::new(&globs.iter().map(|glob| glob.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        let mail = scope(&["mail*", "x"]);
        assert!(mail.has(b"mail") && mail.has(b"mail.slow") && mail.has(b"x"));
        assert!(!mail.has(b"Mail") && !mail.has(b"xx") && !mail.has(b"amail") && !mail.has(b""));
        assert!(!mail.is_all());
        for all in [scope(&[]), scope(&["mail", "*"])] {
            assert!(all.is_all() && all.has(b"whatever") && all.has(b""));
        }
        assert!(!scope(&[""]).has(b"x") && scope(&[""]).has(b""));
    }
}
