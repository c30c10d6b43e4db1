//! Questions to other nodes, and their answers.
//!
//! A question goes to a node that announced [`Abilities::QUERY`], under a random token. The
//! node answers under the same token, or not at all: then it is *silent* after a quarter of a
//! second, and so is at once a node that is not able or has no link. Nobody waits for a
//! silent node, and what it answers later is ignored.
//!
//! What is asked and answered is a matter of its [`QueryKind`]; here it is bytes. A new kind
//! has an arm in [`Engine::on_query`] and in [`Engine::on_answer`].

use std::collections::{BTreeMap, VecDeque};

use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags, Query, QueryKind};

use super::Engine;
use super::node_set::NodeRef;

/// Most questions to one node under way at once.
const UNDER_WAY_MAX: usize = 64;
/// A node that has not answered after this is silent, in ms.
pub const SILENT_AFTER_MS: u64 = 250;

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is under way, on its own or as an equal one that was asked before.
    Yes,
    /// The node cannot be asked: it is silent.
    Silent,
    /// Too many are under way to this node.
    TooMany,
}

#[derive(Debug)]
struct UnderWay {
    to: NodeRef,
    kind: QueryKind,
    payload: Box<[u8]>,
}

/// The questions under way.
#[derive(Debug, Default)]
pub struct Queries {
    by_token: BTreeMap<u64, UnderWay>,
    /// When each of them is over, the first one first. Those that were answered are here too.
    deadlines: VecDeque<(MonoMs, u64)>,
}

impl Queries {
    /// When the first question is over; not before `NEVER` when none is under way.
    pub fn next_at(&self) -> MonoMs {
        self.deadlines.front().map_or(MonoMs::NEVER, |(at, _)| *at)
    }

    /// Forgets a question whose time is over; tells whether there was one.
    pub fn drop_one_over(&mut self, now: MonoMs) -> bool {
        if self.next_at() > now {
            return false;
        }
        if let Some((_, token)) = self.deadlines.pop_front() {
            self.by_token.remove(&token);
        }
        true
    }

    /// Whether a question to a node may begin; an equal one that is under way will do as well.
    fn check(&self, to: NodeRef, kind: QueryKind, payload: &[u8]) -> Option<Asked> {
        let to_node = || self.by_token.values().filter(|other| other.to == to);
        if to_node().any(|other| other.kind == kind && *other.payload == *payload) {
            Some(Asked::Yes)
        } else if to_node().count() >= UNDER_WAY_MAX {
            Some(Asked::TooMany)
        } else {
            None
        }
    }

    fn begin(&mut self, token: u64, question: UnderWay, now: MonoMs) {
        self.by_token.insert(token, question);
        self.deadlines.push_back((now.plus_ms(SILENT_AFTER_MS), token));
    }

    /// A node answers; gives what it was asked, if it was.
    fn end(&mut self, from: NodeRef, answer: &Query<'_>) -> Option<Box<[u8]>> {
        let asked = self.by_token.get(&answer.token)?;
        if asked.to != from || asked.kind != answer.kind {
            return None;
        }
        Some(self.by_token.remove(&answer.token)?.payload)
    }
}

impl Engine {
    /// Asks a node. The answer comes to [`Engine::on_answer`].
    pub(super) fn ask(&mut self, to: NodeRef, kind: QueryKind, payload: &[u8]) -> Asked {
        if !self.cluster.is_able(to, Abilities::QUERY) || !self.cluster.is_linked(to) {
            return Asked::Silent;
        }
        if let Some(asked) = self.queries.check(to, kind, payload) {
            return asked;
        }
        let token = u64::from_be_bytes(self.rng.bytes());
        self.queries.begin(token, UnderWay { to, kind, payload: payload.into() }, self.now.mono);
        let message = Message::Query(Query { token, kind, payload });
        self.cluster.send(&mut self.out, &[to], MessageFlags::NONE, &message);
        Asked::Yes
    }

    /// QUERY: a node asks. Who is not known to understand an answer gets none.
    pub(super) fn on_query(&mut self, from: NodeRef, query: &Query<'_>) {
        if !self.cluster.is_able(from, Abilities::QUERY) {
            return;
        }
        let answer = match query.kind {
            QueryKind::ATTRIBUTES => self.answer_attributes(from, query.payload),
            QueryKind::QUEUE => Some(self.answer_queue(query.payload)),
            _ => None,
        };
        if let Some(payload) = answer {
            let message = Message::Answer(Query { payload: &payload, ..*query });
            self.cluster.send(&mut self.out, &[from], MessageFlags::NONE, &message);
        }
    }

    /// ANSWER: a node answers. One that was not asked, or not in time, does not count.
    pub(super) fn on_answer(&mut self, from: NodeRef, answer: &Query<'_>) {
        let Some(asked) = self.queries.end(from, answer) else { return };
        match answer.kind {
            QueryKind::ATTRIBUTES => self.on_attributes_answered(answer.payload),
            QueryKind::QUEUE => self.on_queue_answered(from, &asked, answer.payload),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: QueryKind = QueryKind(77);

    fn begin(queries: &mut Queries, token: u64, to: u16, payload: &[u8], now: u64) {
        let to = NodeRef(to);
        assert_eq!(queries.check(to, KIND, payload), None);
        queries.begin(token, UnderWay { to, kind: KIND, payload: payload.into() }, MonoMs(now));
    }

    fn answer(token: u64, kind: QueryKind) -> Query<'static> {
        Query { token, kind, payload: b"" }
    }

    #[test]
    fn only_who_was_asked_answers_and_once() {
        let mut queries = Queries::default();
        begin(&mut queries, 5, 1, b"x", 0);
        assert_eq!(queries.end(NodeRef(2), &answer(5, KIND)), None, "another node");
        assert_eq!(queries.end(NodeRef(1), &answer(6, KIND)), None, "another question");
        assert_eq!(queries.end(NodeRef(1), &answer(5, QueryKind(78))), None, "another kind");
        assert_eq!(queries.end(NodeRef(1), &answer(5, KIND)).as_deref(), Some(&b"x"[..]));
        assert_eq!(queries.end(NodeRef(1), &answer(5, KIND)), None, "twice");
    }

    #[test]
    fn who_has_not_answered_after_a_quarter_of_a_second_is_silent() {
        let mut queries = Queries::default();
        assert_eq!(queries.next_at(), MonoMs::NEVER);
        begin(&mut queries, 5, 1, b"x", 100);
        begin(&mut queries, 6, 1, b"y", 200);
        assert_eq!(queries.next_at(), MonoMs(350));
        assert!(!queries.drop_one_over(MonoMs(349)));
        assert!(queries.drop_one_over(MonoMs(350)));
        assert_eq!(queries.end(NodeRef(1), &answer(5, KIND)), None);
        assert!(queries.end(NodeRef(1), &answer(6, KIND)).is_some());
        assert!(queries.drop_one_over(MonoMs(450)), "what was answered goes when its time comes");
        assert_eq!(queries.next_at(), MonoMs::NEVER);
    }

    #[test]
    fn equal_questions_are_one_and_there_are_64_to_a_node() {
        let mut queries = Queries::default();
        for number in 0..64u8 {
            begin(&mut queries, u64::from(number), 1, &[number], 0);
        }
        assert_eq!(queries.check(NodeRef(1), KIND, &[7]), Some(Asked::Yes));
        assert_eq!(queries.check(NodeRef(1), KIND, b"new"), Some(Asked::TooMany));
        assert_eq!(queries.check(NodeRef(2), KIND, b"new"), None);
        assert!(queries.end(NodeRef(1), &answer(9, KIND)).is_some());
        assert_eq!(queries.check(NodeRef(1), KIND, b"new"), None);
    }
}
