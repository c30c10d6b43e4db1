//! Nodes that failed for long are forgotten without an operator: cluster-forget-after.
//!
//! A node that a majority has called failing for so long is forgotten by each node that has seen a
//! majority all that time; both are counted from when this process saw it. So a minority forgets
//! nobody, however long it is cut off; of four nodes of which two are dead neither side is a
//! majority, and nobody is forgotten. Those that were forgotten within the last hour count for the
//! whole: else two sides could forget each other, one after the other, where the cut between them
//! moves.
//!
//! A *tombstone* stays. What others say of it does not bring the node back: its own PING or MEET
//! does, or its answer: those that were forgotten are tried, one every ten seconds, at their last
//! address, since two nodes may have forgotten each other. Until then it is one of the holders of
//! jobs, as files and messages name it, and counts as one that has not confirmed: jobs that were
//! acknowledged while it was away are not collected before it was told, else they would come back
//! with it. So nodes tell each other of those that they forgot: an ack may come to a node that has
//! joined since. CLUSTER FORGET leaves no
//! tombstone, and takes away one that is there: an operator says that the node is gone for good.

use core::ops::Bound;

use crate::base::ids::NodeId;
use crate::base::time::{MonoMs, Now, UnixMs};
use crate::engine::node_set::NodeRef;
use crate::proto::bus::NodeFlags;
use crate::proto::node_info::{FORGOTTEN_MAX, ForgottenNodes};
use crate::proto::nodes_conf::Tombstone;

use super::handshake::Reason;
use super::nodes::{Address, Node};
use super::{Cluster, Context, Event};

/// Most tombstones there are; the oldest goes first.
const TOMBSTONES_MAX: usize = 10_000;
/// How long one stays, in ms.
const TOMBSTONE_MS: u64 = 30 * 24 * 3600 * 1000;
/// For so long its node counts where a majority is asked for, in ms.
const MISSED_MS: u64 = 3600 * 1000;
/// One of the forgotten nodes is tried this often, in ms.
const TRY_PERIOD_MS: u64 = 10_000;
/// A process that stood still for so long saw nothing meanwhile, in ms.
const STOOD_STILL_MS: u64 = 1000;
/// Nobody is forgotten sooner than after so many node timeouts: whether a node is failing, and who
/// is a majority, is known no sooner.
const FORGET_AFTER_TIMEOUTS_MIN: u64 = 2;

/// Whether this node sees a majority, and which of the forgotten nodes it tries.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Since when it has seen a majority.
    majority_since: Option<MonoMs>,
    last_at: Option<MonoMs>,
    /// The forgotten node that was tried last, and when the next one is.
    tried: Option<NodeId>,
    try_at: Option<MonoMs>,
}

impl Cluster {
    /// Whether this node sees a majority, and since when; in each tick.
    pub(super) fn watch_majority(&mut self, now: Now) {
        // In the life of this process: what nodes.conf says may be over.
        let answers = |node: &Node| !node.is_failing() && node.contact.round_trip_ms.is_some();
        let answers = self.others.iter().filter(|node| answers(self.node(**node))).count();
        let is_missed = |at: &&UnixMs| now.wall.0.abs_diff(at.0) < MISSED_MS;
        let missed = self.tombstones.values().filter(is_missed).count();
        let is_majority = answers + 1 > (self.size() + missed) / 2;
        let last_at = self.watch.last_at.replace(now.mono).unwrap_or(now.mono);
        let since = self.watch.majority_since;
        let since = since.filter(|_| now.mono.ms_since(last_at) < STOOD_STILL_MS);
        self.watch.majority_since = is_majority.then(|| since.unwrap_or(now.mono));
    }

    /// Tries the next one of the forgotten nodes, where it was: whoever answers under its ID is back.
    /// Tombstones end here when their time is over.
    pub(super) fn try_forgotten(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        if self.tombstones.is_empty() || self.watch.try_at.is_some_and(|at| now < at) {
            return;
        }
        self.watch.try_at = Some(now.plus_ms(TRY_PERIOD_MS));
        self.tombstones.retain(|_, since| {
            // Clocks are set back.
            *since = (*since).min(cx.now.wall);
            cx.now.wall.ms_since(*since) < TOMBSTONE_MS
        });
        let after = self.watch.tried.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.tombstones.range((after, Bound::Unbounded)).next();
        self.watch.tried = next.or(self.tombstones.first_key_value()).map(|(id, _)| *id);
        if let Some(id) = self.watch.tried
            && let Some(node) = self.forgotten.get(&id)
            && let Some(address) = self.node(*node).contact.address
        {
            self.begin_handshake(cx, Reason::Return(id), address);
        }
    }

    /// Forgets a node that has been failing for so long.
    pub(super) fn forget_if_long_failing(&mut self, cx: &mut Context<'_>, node: NodeRef) {
        let now = cx.now.mono;
        if !self.node(node).flags().contains(NodeFlags::FAIL) {
            self.node_mut(node).failing_since = None;
            return;
        }
        let failing_since = *self.node_mut(node).failing_since.get_or_insert(now);
        let (Some(majority_since), 1..) = (self.watch.majority_since, self.forget_after_secs)
        else {
            return;
        };
        let after_ms = self.forget_after_secs.saturating_mul(1000);
        let after_ms = after_ms.max(self.node_timeout_ms.saturating_mul(FORGET_AFTER_TIMEOUTS_MIN));
        if now.ms_since(failing_since.max(majority_since)) < after_ms {
            return;
        }
        let id = self.id(node);
        self.remove(cx.out, node);
        self.bury(id, cx.now.wall);
        self.node_mut(node).failing_since = None;
        self.events.push_back(Event::ForgottenAsFailing(node));
        cx.out.save_nodes = true;
    }

    fn bury(&mut self, id: NodeId, at: UnixMs) {
        self.tombstones.retain(|_, since| at.ms_since(*since) < TOMBSTONE_MS);
        if self.tombstones.len() >= TOMBSTONES_MAX {
            let oldest = self.tombstones.iter().min_by_key(|(_, since)| **since).map(|(id, _)| *id);
            oldest.map(|id| self.tombstones.remove(&id));
        }
        self.tombstones.insert(id, at);
        self.own_info.is_unsent = true;
    }

    /// Another node forgot one as failing, which is not known here; an operator who took away the
    /// tombstone here is about to do so there.
    pub(super) fn take_over_tombstone(&mut self, now: Now, id: NodeId, at: UnixMs) {
        let has_room = self.forgotten.len() < TOMBSTONES_MAX;
        if has_room && !self.has_tombstone(&id) && !self.is_blacklisted(now.mono, &id) {
            self.load_tombstone(now, &Tombstone { id, at, address: None });
            self.save_soon();
        }
    }

    /// The tombstones of the last nodes that were forgotten, as NODE_INFO has them.
    pub(super) fn forgotten_lately(&self) -> Vec<u8> {
        let mut latest: Vec<(UnixMs, &NodeId)> =
            self.tombstones.iter().map(|(id, at)| (*at, id)).collect();
        latest.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = Vec::new();
        for (at, id) in latest.into_iter().take(FORGOTTEN_MAX) {
            ForgottenNodes::append(&mut bytes, id, at);
        }
        bytes
    }

    /// Takes in a tombstone of nodes.conf, before the jobs that may name the node, or of another
    /// node.
    pub(super) fn load_tombstone(&mut self, now: Now, tombstone: &Tombstone) {
        let Tombstone { id, at, address } = *tombstone;
        // Clocks are set back.
        let at = at.min(now.wall);
        if now.wall.ms_since(at) >= TOMBSTONE_MS
            || self.find(&id).is_some()
            || self.tombstones.len() >= TOMBSTONES_MAX
        {
            return;
        }
        if !self.forgotten.contains_key(&id) {
            let Ok(place) = u16::try_from(self.nodes.len()) else { return };
            let mut node = Node::forgotten(id);
            node.contact.address = address.and_then(|(client, bus_port)| {
                Address::new(client.ip(), client.port(), Some(bus_port))
            });
            self.nodes.push(node);
            self.forgotten.insert(id, NodeRef(place));
        }
        self.tombstones.insert(id, at);
    }

    /// The tombstones, for nodes.conf.
    pub(super) fn tombstones(&self) -> impl Iterator<Item = Tombstone> {
        self.tombstones.iter().map(|(id, at)| {
            let node = self.forgotten.get(id).map(|node| self.node(*node));
            let address = node.and_then(|node| node.contact.address);
            Tombstone { id: *id, at: *at, address: address.map(|at| (at.client(), at.bus_port)) }
        })
    }

    pub(super) fn has_tombstone(&self, id: &NodeId) -> bool {
        self.tombstones.contains_key(id)
    }

    /// A node of which there was a tombstone is back, or is not expected any more.
    pub(super) fn drop_tombstone(&mut self, id: &NodeId) -> bool {
        self.tombstones.remove(id).is_some()
    }

    /// A node that may hold jobs, by its ID: a known one, or one that was forgotten as failing.
    pub fn find_holder(&self, id: &NodeId) -> Option<NodeRef> {
        let forgotten = || self.forgotten.get(id).filter(|_| self.has_tombstone(id)).copied();
        self.find(id).or_else(forgotten)
    }

    /// Whether acks wait for this node: it is known, or may come back.
    pub fn is_awaited(&self, node: NodeRef) -> bool {
        self.is_known(node) || !self.tombstones.is_empty() && self.has_tombstone(&self.id(node))
    }

    /// All nodes for which acks wait, this one included.
    pub fn awaited(&self) -> impl Iterator<Item = NodeRef> {
        let away = self.tombstones.keys().filter_map(|id| self.forgotten.get(id).copied());
        self.known().chain(away)
    }

    /// Whether no other node can know a job.
    pub fn is_alone_for_good(&self) -> bool {
        self.is_alone() && self.tombstones.is_empty()
    }
}
