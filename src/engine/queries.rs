//! Questions to other nodes, and their answers.
//!
//! A question goes to a node that announced [`Abilities::QUERY`], under a random token. The
//! node answers under the same token, or not at all: then it is *silent* after a quarter of a
//! second, or after the time that a client gave. A node that is not able or has no link is silent
//! at once. Nobody waits for a silent node, and what it answers later is ignored.
//!
//! What is asked and answered is a matter of its [`QueryKind`]; here it is bytes. A new kind
//! has an arm in [`Engine::on_query`] and in [`Engine::on_answer`].

use std::collections::{BTreeMap, BTreeSet};

use crate::base::time::MonoMs;
use crate::proto::bus::{Abilities, Message, MessageFlags, Query, QueryKind};

use super::Engine;
use super::node_set::{ME, NodeRef};

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
    asked_at: MonoMs,
    /// When the question is over.
    ends_at: MonoMs,
}

/// A question that was answered.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    payload: Box<[u8]>,
    asked_at: MonoMs,
}

/// The questions under way.
#[derive(Debug, Default)]
pub struct Queries {
    by_token: BTreeMap<u64, UnderWay>,
    /// When each of them is over, the first one first.
    deadlines: BTreeSet<(MonoMs, u64)>,
}

impl Queries {
    /// When the first question is over; not before `NEVER` when none is under way.
    pub fn next_at(&self) -> MonoMs {
        self.deadlines.first().map_or(MonoMs::NEVER, |(at, _)| *at)
    }

    /// Forgets a question whose time is over; tells whether there was one.
    pub fn drop_one_over(&mut self, now: MonoMs) -> bool {
        if self.next_at() > now {
            return false;
        }
        if let Some((_, token)) = self.deadlines.pop_first() {
            self.by_token.remove(&token);
        }
        true
    }

    /// Whether a question to a node may begin; an equal one that is under way will do as well, for
    /// as long as this one would.
    fn check(&mut self, question: &UnderWay) -> Option<Asked> {
        let mut count = 0;
        for (token, other) in &mut self.by_token {
            if other.to != question.to {
                continue;
            }
            count += 1;
            if other.kind == question.kind && other.payload == question.payload {
                self.deadlines.remove(&(other.ends_at, *token));
                other.ends_at = other.ends_at.max(question.ends_at);
                self.deadlines.insert((other.ends_at, *token));
                return Some(Asked::Yes);
            }
        }
        (count >= UNDER_WAY_MAX).then_some(Asked::TooMany)
    }

    fn begin(&mut self, token: u64, question: UnderWay) {
        self.deadlines.insert((question.ends_at, token));
        self.by_token.insert(token, question);
    }

    /// A node answers; gives what it was asked, if it was.
    fn end(&mut self, from: NodeRef, answer: &Query<'_>) -> Option<Answered> {
        let asked = self.by_token.get(&answer.token)?;
        if asked.to != from || asked.kind != answer.kind {
            return None;
        }
        let UnderWay { payload, asked_at, ends_at, .. } = self.by_token.remove(&answer.token)?;
        self.deadlines.remove(&(ends_at, answer.token));
        Some(Answered { payload, asked_at })
    }
}

impl Engine {
    /// Asks a node. The answer comes to [`Engine::on_answer`].
    pub(super) fn query(&mut self, to: NodeRef, kind: QueryKind, payload: &[u8]) -> Asked {
        self.query_within(to, kind, payload, SILENT_AFTER_MS)
    }

    /// As [`Engine::query`], where the node is silent after another time.
    pub(super) fn query_within(
        &mut self,
        to: NodeRef,
        kind: QueryKind,
        payload: &[u8],
        ms: u64,
    ) -> Asked {
        if !self.cluster.is_able(to, Abilities::QUERY) || !self.cluster.is_linked(to) {
            return Asked::Silent;
        }
        let asked_at = self.now.mono;
        let ends_at = asked_at.plus_ms(ms);
        let question = UnderWay { to, kind, payload: payload.into(), asked_at, ends_at };
        if let Some(asked) = self.queries.check(&question) {
            return asked;
        }
        let token = u64::from_be_bytes(self.rng.bytes());
        self.queries.begin(token, question);
        let message = Message::Query(Query { token, kind, payload });
        self.cluster.send(&mut self.out, &[to], MessageFlags::NONE, &message);
        Asked::Yes
    }

    /// Asks all other nodes the same. Returns those whose answers may come within so many ms, and
    /// those that are silent.
    pub(super) fn query_all(
        &mut self,
        kind: QueryKind,
        payload: &[u8],
        ms: u64,
    ) -> (Vec<NodeRef>, Vec<NodeRef>) {
        let others: Vec<NodeRef> = self.cluster.known().filter(|node| *node != ME).collect();
        others
            .into_iter()
            .partition(|node| self.query_within(*node, kind, payload, ms) == Asked::Yes)
    }

    /// QUERY: a node asks. Who is not known to understand an answer gets none.
    pub(super) fn on_query(&mut self, from: NodeRef, query: &Query<'_>) {
        if !self.cluster.is_able(from, Abilities::QUERY) {
            return;
        }
        let answer = match query.kind {
            QueryKind::ATTRIBUTES => self.answer_attributes(from, query.payload),
            QueryKind::QUEUE => Some(self.answer_queue(query.payload)),
            QueryKind::TRACE => self.answer_trace(query.payload),
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
            QueryKind::QUEUE => self.on_queue_answered(from, &asked.payload, answer.payload),
            QueryKind::TRACE => {
                self.on_trace_answered(from, &asked.payload, asked.asked_at, answer.payload);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: QueryKind = QueryKind(77);

    fn question(to: u16, payload: &[u8], now: u64) -> UnderWay {
        let asked_at = MonoMs(now);
        let ends_at = asked_at.plus_ms(SILENT_AFTER_MS);
        UnderWay { to: NodeRef(to), kind: KIND, payload: payload.into(), asked_at, ends_at }
    }

    fn begin(queries: &mut Queries, token: u64, to: u16, payload: &[u8], now: u64) {
        assert_eq!(queries.check(&question(to, payload, now)), None);
        queries.begin(token, question(to, payload, now));
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
        let answered = Answered { payload: b"x"[..].into(), asked_at: MonoMs(0) };
        assert_eq!(queries.end(NodeRef(1), &answer(5, KIND)), Some(answered));
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
        assert_eq!(queries.next_at(), MonoMs::NEVER);
        assert!(!queries.drop_one_over(MonoMs(450)));
    }

    #[test]
    fn equal_questions_are_one_and_there_are_64_to_a_node() {
        let mut queries = Queries::default();
        for number in 0..64u8 {
            begin(&mut queries, u64::from(number), 1, &[number], 0);
        }
        assert_eq!(queries.check(&question(1, &[7], 0)), Some(Asked::Yes));
        assert_eq!(queries.check(&question(1, b"new", 0)), Some(Asked::TooMany));
        assert_eq!(queries.check(&question(2, b"new", 0)), None);
        assert!(queries.end(NodeRef(1), &answer(9, KIND)).is_some());
        assert_eq!(queries.check(&question(1, b"new", 0)), None);
    }

    #[test]
    fn an_equal_question_that_may_take_longer_prolongs_the_first() {
        let mut queries = Queries::default();
        begin(&mut queries, 5, 1, b"x", 100);
        assert_eq!(queries.check(&question(1, b"x", 200)), Some(Asked::Yes));
        assert!(!queries.drop_one_over(MonoMs(449)));
        assert!(queries.drop_one_over(MonoMs(450)));
        assert_eq!(queries.next_at(), MonoMs::NEVER);
    }
}
