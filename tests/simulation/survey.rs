//! What all nodes hold, seen as an operator sees it, without disturbing them.

use std::collections::BTreeMap;

use disque::base::ids::ClientId;
use disque::engine::command::Outcome;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::{ReplyReader, Value};

use crate::cluster::Sim;
use crate::node::{State, run_slice};

/// A client that no node knows.
const OPERATOR: ClientId = ClientId { slot: u32::MAX, generation: 0 };

/// One node's copy of a job, as SHOW has it.
#[derive(Debug)]
pub struct Copy {
    pub node_id: String,
    pub state: String,
    /// Of an ack without a job it is empty.
    pub queue: String,
    pub retry_secs: i64,
    pub priority: u8,
    /// How often it was queued again, as far as this node knows.
    pub requeues: i64,
    /// The nodes that may have the job, as this one knows.
    pub holders: Vec<String>,
    pub body: Vec<u8>,
    /// As SHOW has them; `None` where it has none.
    pub attributes: Option<Value>,
    /// The facts of a dead job, as SHOW has them.
    pub dead: Option<Value>,
}

impl Copy {
    pub fn is_queued(&self) -> bool {
        self.state == "queued"
    }

    /// Whether it may still be delivered.
    pub fn is_live(&self) -> bool {
        ["active", "queued"].contains(&&*self.state)
    }

    /// A fact of its death, if the job is dead.
    pub fn death(&self, fact: &str) -> Option<String> {
        let Some(Value::Array(pairs)) = &self.dead else { return None };
        let at = pairs.iter().step_by(2).position(|name| *name == Value::Bulk(fact.into()))?;
        match pairs.get(2 * at + 1) {
            Some(Value::Bulk(value)) => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        }
    }

    fn new(sim: &Sim, node: usize, pairs: &[Value]) -> Self {
        let field = |name: &str| {
            let at = pairs.iter().step_by(2).position(|key| *key == Value::Bulk(name.into()));
            &pairs[2 * at.expect("SHOW has its fields") + 1]
        };
        let text = |value: &Value| match value {
            Value::Bulk(text) | Value::Status(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("a text: {other:?}"),
        };
        let Value::Array(holders) = field("nodes-delivered") else { panic!("holders are listed") };
        let body = match field("body") {
            Value::Bulk(body) => body.clone(),
            _ => Vec::new(),
        };
        let is_there =
            |name: &str| pairs.iter().step_by(2).any(|key| *key == Value::Bulk(name.into()));
        let optional = |name: &str| {
            let has_it = pairs.iter().step_by(2).any(|key| *key == Value::Bulk(name.into()));
            has_it.then(|| field(name).clone())
        };
        let number = |name| match field(name) {
            Value::Integer(number) => *number,
            other => panic!("{name} is a number: {other:?}"),
        };
        Self {
            node_id: sim.nodes[node].engine.cluster().my_id().to_string(),
            state: text(field("state")),
            queue: match field("queue") {
                Value::NullBulk => String::new(),
                queue => text(queue),
            },
            retry_secs: number("retry"),
            // It is shown only where it is another one.
            priority: if is_there("priority") { number("priority") as u8 } else { 4 },
            requeues: number("additional-deliveries"),
            holders: holders.iter().map(text).collect(),
            body,
            attributes: optional("attrs"),
            dead: optional("dead"),
        }
    }
}

impl Sim {
    /// A command that changes nothing, between two inputs of the node.
    pub fn look(&mut self, n: usize, words: &[&[u8]]) -> Value {
        let words = words.iter().map(|word| word.to_vec()).collect();
        let now = self.now(n);
        let engine = &mut self.nodes[n].engine;
        // What a frozen node has to say waits.
        let waiting = core::mem::take(&mut engine.out);
        while run_slice(engine, now, OPERATOR, Resp::V2, &words) == Outcome::Again {}
        let out = core::mem::replace(&mut engine.out, waiting);
        assert!(out.aof.is_empty() && out.frames.sends.is_empty(), "a look changes nothing");
        let mut reader = ReplyReader::default();
        reader.feed(&out.replies.bytes);
        reader.next_value().expect("a valid reply").expect("a whole reply")
    }

    /// The state of a job on a node, as SHOW has it; `None` where the node does not know it.
    pub fn state_of(&mut self, n: usize, id: &[u8]) -> Option<String> {
        Some(self.copy_on(n, id)?.state)
    }

    /// A node's copy of a job, or its ack without a job.
    pub fn copy_on(&mut self, n: usize, id: &[u8]) -> Option<Copy> {
        let Value::Array(pairs) = self.look(n, &[b"SHOW", id]) else { return None };
        Some(Copy::new(self, n, &pairs))
    }

    /// Which nodes have a job, those that are down and will find it again included.
    pub fn holders_of(&mut self, id: &[u8]) -> Vec<usize> {
        let nodes = 0..self.nodes.len();
        let has = |n: &usize| matches!(self.look(*n, &[b"SHOW", id]), Value::Array(_));
        nodes.filter(has).collect()
    }

    /// All copies of all jobs on nodes that run.
    pub fn survey(&mut self) -> BTreeMap<Vec<u8>, Vec<Copy>> {
        let mut copies: BTreeMap<Vec<u8>, Vec<Copy>> = BTreeMap::new();
        for n in 0..self.nodes.len() {
            if self.nodes[n].state == State::Down {
                continue;
            }
            let reply = self.look(n, &[b"JSCAN", b"BUSYLOOP", b"REPLY", b"all"]);
            let Value::Array(mut parts) = reply else { panic!("a cursor and jobs: {reply:?}") };
            let Some(Value::Array(rows)) = parts.pop() else { panic!("jobs: {parts:?}") };
            for row in rows {
                let Value::Array(pairs) = row else { panic!("pairs: {row:?}") };
                let Value::Bulk(id) = &pairs[1] else { panic!("an ID: {pairs:?}") };
                copies.entry(id.clone()).or_default().push(Copy::new(self, n, &pairs));
            }
        }
        copies
    }
}
