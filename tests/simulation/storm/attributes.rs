//! Attributes of jobs, and what must hold of them: they arrive unchanged, and nobody who keeps
//! them is without them but behind a plain node.
//!
//! Which attributes a job has follows from its body, so that each delivery and each copy can be
//! judged by itself, whether its producer ever got an answer or not.

use std::collections::BTreeMap;

use disque::base::rng::Rng;
use disque::proto::aof_record::SumPlace;
use disque::proto::reply_reader::Value;

use super::{Storm, Weather};
use crate::node::Node;
use crate::survey::Copy;

/// An able node that knows somebody who keeps the attributes of a job has them too after this:
/// the question and its answer, and what waits before them.
const FOUND_WITHIN_MS: u64 = 300;

/// Whether jobs have attributes, and what a run saw of them.
pub struct Attributes {
    /// Draws apart from the rest, so that runs without attributes stay what they are.
    rng: Rng,
    are_used: bool,
    /// Jobs that were delivered with attributes, and where these had been lost.
    pub delivered: usize,
    pub lost: usize,
    /// Since when copies lack attributes that their node could have: the node and the job.
    missing_since: BTreeMap<(String, Vec<u8>), u64>,
}

/// The attributes of a job with this body.
pub fn attributes_of(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let number: u32 =
        std::str::from_utf8(body).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if number.is_multiple_of(2) {
        return Vec::new();
    }
    let mut seed = [0xa7; 32];
    seed[..4].copy_from_slice(&number.to_le_bytes());
    let mut rng = Rng::from_seed(seed);
    let (count, len_max) = [(1, 300), (3, 40), (16, 40)][rng.index(3)];
    (0..count)
        .map(|n| {
            let value = (0..rng.below(len_max)).map(|_| rng.bytes::<1>()[0]).collect();
            (format!("name{n}").into_bytes(), value)
        })
        .collect()
}

fn as_reply(attributes: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let words = attributes.iter().flat_map(|(name, value)| [name, value]);
    Value::Array(words.map(|word| Value::Bulk(word.clone())).collect())
}

impl Attributes {
    pub fn new(mut rng: Rng) -> Self {
        let are_used = rng.below(2) == 0;
        Self { rng, are_used, delivered: 0, lost: 0, missing_since: BTreeMap::new() }
    }

    /// Whether a weather that knows no plain nodes has one all the same.
    pub fn draw_plain(&mut self) -> bool {
        self.are_used && self.rng.below(3) == 0
    }
}

impl Storm {
    /// The body of a job that is added to a node, and its options.
    pub(super) fn draw_body(&mut self, n: usize) -> (String, Vec<Vec<u8>>) {
        if !self.attributes.are_used || self.sim.network.is_plain(n) {
            return ("1500".to_owned(), Vec::new());
        }
        let body = self.attributes.rng.below(u32::MAX).to_string();
        let attributes = attributes_of(body.as_bytes());
        let words =
            attributes.into_iter().flat_map(|(name, value)| [b"ATTR".to_vec(), name, value]);
        (body, words.collect())
    }

    /// The option of a GETJOB on this node.
    pub(super) fn with_attributes(&self, n: usize) -> &'static str {
        if self.attributes.are_used && !self.sim.network.is_plain(n) { "WITHATTRS" } else { "" }
    }

    /// A row of GETJOB has the attributes that the job was added with, or it came by a plain node.
    pub(super) fn check_row(&mut self, n: usize, row: &[Value]) {
        let [_, Value::Bulk(id), Value::Bulk(body), Value::Bulk(_), answered, ..] = row else {
            assert_eq!(row.len(), 3, "nothing else was asked for: {row:?}");
            return;
        };
        let given = attributes_of(body);
        self.attributes.delivered += usize::from(!given.is_empty());
        if *answered == as_reply(&given) {
            return;
        }
        self.attributes.lost += 1;
        if self.records_may_be_damaged() {
            return;
        }
        let told = format!("{} on node {n}: {answered:?} of {given:?}", id.escape_ascii());
        // Limits, facts and the stamp of a move are attributes too.
        let had_some = !given.is_empty() || self.policies.are_used() || self.was_moved(id);
        assert!(*answered == Value::NullArray && had_some, "attributes changed, {told}");
        assert!(self.came_by_plain_node(n, id), "attributes were lost, {told}");
    }

    /// Whether a record may have been damaged that has no checksum of its own: it is taken for
    /// what it says.
    fn records_may_be_damaged(&self) -> bool {
        let has_sums = |node: &Node| node.engine.config().aof_sums == SumPlace::Yes;
        !self.sim.nodes.iter().all(has_sums) && !self.sim.losses.is_empty()
    }

    /// Whether a plain node may have the job, as this node knows. In a storm one may have been
    /// forgotten.
    fn came_by_plain_node(&mut self, n: usize, id: &[u8]) -> bool {
        let nodes = 0..self.sim.nodes.len();
        let plain: Vec<String> = nodes
            .filter(|plain| self.sim.network.is_plain(*plain))
            .map(|plain| self.sim.nodes[plain].engine.cluster().my_id().to_string())
            .collect();
        let copy = self.sim.copy_on(n, id);
        let knows = |copy: Copy| plain.iter().any(|plain| copy.holders.contains(plain));
        !plain.is_empty() && (self.weather == Weather::Stormy || copy.is_none_or(knows))
    }

    /// What a node has of the attributes of its copies is what they were added with; and where
    /// nothing goes wrong, it has them if it knows a node that does.
    pub(super) fn check_copies(&mut self, id: &[u8], copies: &[Copy]) {
        let now = self.sim.now_ms;
        for copy in copies {
            let given = attributes_of(&copy.body);
            let told = || format!("{} at {now}: {copies:?}", id.escape_ascii());
            let shown = copy.attributes.clone();
            let key = (copy.node_id.clone(), id.to_vec());
            match &shown {
                Some(Value::NullArray) => {}
                Some(known) => assert_eq!(*known, as_reply(&given), "as they were, {}", told()),
                None => assert!(given.is_empty(), "what had attributes has some, {}", told()),
            }
            let is_known = |other: &Copy| matches!(other.attributes, Some(Value::Array(_)));
            let may_ask = |other: &&Copy| copy.holders.contains(&other.node_id) && is_known(other);
            let is_able = !self.is_plain_id(&copy.node_id);
            if shown == Some(Value::NullArray)
                && is_able
                && self.weather == Weather::Fair
                && copies.iter().any(|other| may_ask(&other))
            {
                let since = *self.attributes.missing_since.entry(key).or_insert(now);
                assert!(now < since + FOUND_WITHIN_MS, "who knows a source asks it, {}", told());
            } else {
                self.attributes.missing_since.remove(&key);
            }
        }
    }

    pub(super) fn is_plain_id(&self, id: &str) -> bool {
        let mut nodes = self.sim.nodes.iter().enumerate();
        nodes.any(|(n, node)| {
            self.sim.network.is_plain(n) && node.engine.cluster().my_id().to_string() == id
        })
    }
}
