//! Which nodes get copies of a job: zone by zone, those with the fewest copies of it first; in a
//! zone at random; and of two that were drawn the less loaded.
//!
//! A zone is what fails as a whole: a rack with its power, a site. So copies are spread over zones
//! as long as there are some without one. Nodes that did not say in which zone they are, and all
//! C nodes, are taken for a zone of their own, but count for none that was asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::rng::Rng;
use crate::engine::node_set::NodeRef;
use crate::proto::bus::Abilities;

use super::Cluster;
use super::node_info::ZoneRef;

/// Which nodes come first when the next holder of a job is drawn.
#[derive(Clone, Copy, Debug)]
pub struct WantedHolder {
    pub abilities: Abilities,
    /// It should be in a zone in which there is no copy yet.
    pub in_new_zone: bool,
}

impl Cluster {
    /// Draws a node for the next copy of a job that these may have already. Of those that are left,
    /// the ones in a new zone come first, if that is wanted, then those with the abilities, then
    /// those with free memory.
    pub fn draw_by_zone(
        &self,
        rng: &mut Rng,
        may_have: &[NodeRef],
        wanted: WantedHolder,
    ) -> Option<NodeRef> {
        let mut copies: BTreeMap<ZoneRef, usize> = BTreeMap::new();
        may_have.iter().for_each(|node| *copies.entry(self.zone(*node)).or_default() += 1);
        let rank = |node: NodeRef| {
            let zone = self.zone(node);
            let copies = copies.get(&zone).copied().unwrap_or(0);
            let is_of_no_use = wanted.in_new_zone && (zone == ZoneRef::NONE || copies > 0);
            let lacks = !self.may_be_able(node, wanted.abilities);
            (is_of_no_use, lacks, self.is_short_of_memory(node), copies)
        };
        let candidates = self.reachable.iter().copied();
        let mut best = None;
        let mut nodes: Vec<NodeRef> = Vec::new();
        for node in candidates.filter(|node| self.is_linked(*node) && !may_have.contains(node)) {
            let rank = rank(node);
            if best.is_none_or(|best| rank < best) {
                best = Some(rank);
                nodes.clear();
            }
            if best == Some(rank) {
                nodes.push(node);
            }
        }
        if nodes.is_empty() {
            return None;
        }
        // Of several zones one, however many nodes each has.
        let zones: Vec<ZoneRef> = nodes
            .iter()
            .map(|node| self.zone(*node))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let zone = zones[rng.index(zones.len())];
        nodes.retain(|node| self.zone(*node) == zone);
        let first = nodes.swap_remove(rng.index(nodes.len()));
        if nodes.is_empty() {
            return Some(first);
        }
        let second = nodes[rng.index(nodes.len())];
        Some(if self.is_less_loaded(second, first) { second } else { first })
    }

    /// In how many zones these nodes are.
    pub fn count_zones(&self, nodes: impl Iterator<Item = NodeRef>) -> usize {
        let zones: BTreeSet<ZoneRef> = nodes.map(|node| self.zone(node)).collect();
        zones.len() - usize::from(zones.contains(&ZoneRef::NONE))
    }

    /// The nodes to which new copies can go now.
    pub fn takers(&self) -> impl Iterator<Item = NodeRef> {
        self.reachable.iter().copied().filter(|node| self.is_linked(*node))
    }
}
