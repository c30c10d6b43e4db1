//! What nodes say of themselves in NODE_INFO, and what this one says: name of the cluster, zone,
//! version, and how full and how busy it is; and which nodes it forgot as failing, since acks wait
//! for these at nodes that have joined since as well.
//!
//! It is said when a link is up to a node that is able to read it, and when it changes; the load at
//! most once in ten seconds, and when it moved by five points or crossed a mark. C nodes say nothing, and are in no
//! zone.

use std::collections::BTreeSet;

use crate::base::time::{MonoMs, Now};
use crate::engine::node_set::{ME, NodeRef};
use crate::engine::outbox::Outbox;
use crate::proto::bus::{Abilities, Message, MessageFlags};
use crate::proto::node_info::{ForgottenNodes, NodeInfo};

use super::{Cluster, Context};

/// The load is said no more often than this, in ms.
const LOAD_PERIOD_MS: u64 = 10_000;
/// And when it moved by so many points.
const LOAD_STEP: u8 = 5;
/// Or its memory crossed one of these, over which clients go elsewhere first.
const MEMORY_MARKS: [u8; 2] = [75, 95];
/// Different zones that are told apart; nodes of further ones are in none.
const ZONES_MAX: usize = 1000;

/// How full and how busy a node is, in percent, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// Of maxmemory; `None` without one.
    pub memory_percent: Option<u8>,
    /// Of its loop's time.
    pub loop_percent: Option<u8>,
}

impl NodeLoad {
    /// One number of both, to compare nodes by.
    fn points(self) -> Option<u8> {
        self.memory_percent.max(self.loop_percent)
    }

    fn has_moved(self, before: Self) -> bool {
        let moved = |now: Option<u8>, before: Option<u8>| match (now, before) {
            (Some(now), Some(before)) => now.abs_diff(before) >= LOAD_STEP,
            (now, before) => now != before,
        };
        let marks_passed = |load: Self| {
            let percent = load.memory_percent.unwrap_or(0);
            MEMORY_MARKS.iter().filter(|mark| percent > **mark).count()
        };
        moved(self.memory_percent, before.memory_percent)
            || marks_passed(self) != marks_passed(before)
            || moved(self.loop_percent, before.loop_percent)
    }
}

/// A zone by its number; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneRef(u16);

impl ZoneRef {
    pub const NONE: Self = Self(0);

    /// That of a place in the list of names.
    fn at(place: usize) -> Self {
        Self(u16::try_from(place + 1).unwrap_or(0))
    }
}

/// What is kept of a node's NODE_INFO.
#[derive(Clone, Debug, Default)]
pub struct KnownInfo {
    pub cluster_name: String,
    pub version: String,
    pub(super) zone: ZoneRef,
    pub load: NodeLoad,
}

/// What this node says of itself, and what of that others were told.
#[derive(Debug, Default)]
pub(super) struct OwnInfo {
    pub is_unsent: bool,
    sent_load: NodeLoad,
    load_sent_at: Option<MonoMs>,
    /// Names of zones by their number, from 1 on.
    zones: Vec<String>,
    /// Some node said how busy it is.
    has_loads: bool,
}

impl Cluster {
    /// What this node says of itself from now on.
    pub(super) fn describe_me(&mut self, cluster_name: &str, zone: &str, version: &str) {
        let zone = self.zone_of(zone);
        let me = &mut self.node_mut(ME).info;
        let is_same = (&*me.cluster_name, me.zone, &*me.version) == (cluster_name, zone, version);
        me.cluster_name = cluster_name.to_owned();
        me.version = version.to_owned();
        me.zone = zone;
        self.own_info.is_unsent |= !is_same;
    }

    /// How full and how busy this node is.
    pub fn set_load(&mut self, load: NodeLoad) {
        self.node_mut(ME).info.load = load;
    }

    /// Says all of it to a node that can read it.
    pub(in crate::engine) fn send_node_info(&mut self, out: &mut Outbox, to: &[NodeRef]) {
        let forgotten = self.forgotten_lately();
        self.say_node_info(out, to, ForgottenNodes::new(&forgotten));
    }

    fn say_node_info(&mut self, out: &mut Outbox, to: &[NodeRef], forgotten: ForgottenNodes<'_>) {
        let (able, _) = self.by_ability(to, Abilities::NODE_INFO);
        if able.is_empty() {
            return;
        }
        let info = self.node(ME).info.clone();
        let zone = self.zone_name(info.zone).to_owned();
        let message = Message::NodeInfo(NodeInfo {
            cluster_name: &info.cluster_name,
            zone: &zone,
            version: &info.version,
            memory_percent: info.load.memory_percent,
            loop_percent: info.load.loop_percent,
            forgotten,
        });
        self.send(out, &able, MessageFlags::NONE, &message);
    }

    /// Says it to all, where it has changed.
    pub(super) fn spread_info(&mut self, cx: &mut Context<'_>) {
        let (now, load) = (cx.now.mono, self.node(ME).info.load);
        let own = &mut self.own_info;
        let is_time = own.load_sent_at.is_none_or(|at| now.ms_since(at) >= LOAD_PERIOD_MS);
        if !(own.is_unsent || is_time && load.has_moved(own.sent_load)) {
            return;
        }
        let is_load_alone = !core::mem::take(&mut own.is_unsent);
        (own.sent_load, own.load_sent_at) = (load, Some(now));
        let others = self.others.clone();
        if is_load_alone {
            self.say_node_info(cx.out, &others, ForgottenNodes::default());
        } else {
            self.send_node_info(cx.out, &others);
        }
    }

    /// NODE_INFO: what a node says of itself.
    pub(in crate::engine) fn note_node_info(
        &mut self,
        now: Now,
        from: NodeRef,
        info: &NodeInfo<'_>,
    ) {
        info.forgotten.iter().for_each(|(id, at)| self.take_over_tombstone(now, id, at));
        let zone = self.zone_of(info.zone);
        let load =
            NodeLoad { memory_percent: info.memory_percent, loop_percent: info.loop_percent };
        self.own_info.has_loads |= load.points().is_some();
        self.node_mut(from).info = KnownInfo {
            cluster_name: info.cluster_name.to_owned(),
            version: info.version.to_owned(),
            zone,
            load,
        };
    }

    fn zone_of(&mut self, name: &str) -> ZoneRef {
        if name.is_empty() {
            return ZoneRef::NONE;
        }
        let zones = &mut self.own_info.zones;
        if let Some(at) = zones.iter().position(|known| known == name) {
            return ZoneRef::at(at);
        }
        if zones.len() < ZONES_MAX {
            zones.push(name.to_owned());
            return ZoneRef::at(zones.len() - 1);
        }
        // One that no node is in any more gives way.
        let used: BTreeSet<ZoneRef> = self.nodes.iter().map(|node| node.info.zone).collect();
        let Some(at) = (0..ZONES_MAX).find(|at| !used.contains(&ZoneRef::at(*at))) else {
            return ZoneRef::NONE;
        };
        self.own_info.zones[at] = name.to_owned();
        ZoneRef::at(at)
    }

    /// Empty for none.
    pub fn zone_name(&self, zone: ZoneRef) -> &str {
        let place = usize::from(zone.0).checked_sub(1);
        place.and_then(|place| self.own_info.zones.get(place)).map_or("", String::as_str)
    }

    pub fn zone(&self, node: NodeRef) -> ZoneRef {
        self.node(node).info.zone
    }

    /// Whether any node ever said in which zone it is.
    pub fn has_zones(&self) -> bool {
        !self.own_info.zones.is_empty()
    }

    /// Whether a node is in the zone of this one.
    pub fn is_near(&self, node: NodeRef) -> bool {
        self.zone(node) != ZoneRef::NONE && self.zone(node) == self.zone(ME)
    }

    /// Whether any node said how busy it is.
    pub(super) fn has_loads(&self) -> bool {
        self.own_info.has_loads
    }

    /// How full memory of a node is, as far as it said.
    pub fn memory_percent(&self, node: NodeRef) -> Option<u8> {
        self.node(node).info.load.memory_percent
    }

    /// Of two nodes, whether the second one is clearly less loaded. Who says nothing is not.
    pub(super) fn is_less_loaded(&self, node: NodeRef, than: NodeRef) -> bool {
        let points = |node: NodeRef| self.node(node).info.load.points();
        match (points(node), points(than)) {
            (Some(node), Some(than)) => node.saturating_add(LOAD_STEP) <= than,
            _ => false,
        }
    }
}
