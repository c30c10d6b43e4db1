//! Zones in which nodes are, jobs that are to be in several, and zones that are lost whole.
//!
//! A job that was answered with ZONES n has copies in n zones when its producer gets the ID, and
//! outlives whatever befalls nodes of n - 1 zones. Half of the runs have zones; in some of them a
//! node is in none, as plain ones always are.

use std::collections::BTreeSet;

use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;

use super::story::Wanted;
use super::{Storm, Weather};

/// As often as nodes are to be in them.
const ZONES: [&str; 6] = ["north", "north", "south", "south", "west", ""];
/// Nodes know the zones of all others after this.
const KNOWN_WITHIN_MS: u64 = 300;

/// Where nodes are.
pub struct Zones {
    /// Draws apart from the rest, so that runs without zones stay what they are.
    rng: Rng,
    are_used: bool,
    /// Of each node; empty for none.
    of_nodes: Vec<&'static str>,
    /// Jobs that were promised for several zones, and zones that were lost whole.
    pub promised: usize,
    pub lost: usize,
}

impl Zones {
    pub fn draw(mut rng: Rng, node_count: usize) -> Self {
        let are_used = rng.below(2) == 0;
        let zone = |_| if are_used { ZONES[rng.index(ZONES.len())] } else { "" };
        let of_nodes = (0..node_count).map(zone).collect();
        Self { rng, are_used, of_nodes, promised: 0, lost: 0 }
    }

    /// In how many zones these nodes are.
    pub fn count(&self, nodes: impl IntoIterator<Item = usize>) -> usize {
        let zones: BTreeSet<&str> = nodes.into_iter().map(|n| self.of_nodes[n]).collect();
        zones.len() - usize::from(zones.contains(""))
    }

    pub fn of(&self, n: usize) -> &'static str {
        self.of_nodes[n]
    }
}

impl Storm {
    /// Has each node say in which zone it is.
    pub(super) fn set_zones(&mut self) {
        if !self.zones.are_used {
            return;
        }
        for n in 0..self.sim.nodes.len() {
            if self.sim.network.is_plain(n) {
                self.zones.of_nodes[n] = "";
            }
            let now = self.sim.now(n);
            let engine = &mut self.sim.nodes[n].engine;
            let config =
                EngineConfig { zone: self.zones.of(n).to_owned(), ..engine.config().clone() };
            engine.set_config(now, config);
        }
        self.sim.run_for(KNOWN_WITHIN_MS);
    }

    /// In how many zones a job is to be, if its producer says so. Where none may be refused, it is no
    /// more than there can be.
    pub(super) fn draw_zones(
        &mut self,
        n: usize,
        replicate: usize,
        is_once: bool,
    ) -> Option<usize> {
        let is_plain = self.sim.network.is_plain(n);
        if !self.zones.are_used || is_plain || self.zones.rng.below(2) == 0 {
            return None;
        }
        let most = match self.weather {
            Weather::Windy | Weather::Parted | Weather::Stormy => replicate,
            Weather::Fair | Weather::Hazy => {
                // It may be short of memory, and keep none.
                let others = (0..self.sim.nodes.len()).filter(|other| *other != n);
                let stays_nowhere = is_once && self.zones.of(n).is_empty();
                if stays_nowhere { 0 } else { self.zones.count(others).min(replicate) }
            }
        };
        (most > 0).then(|| 1 + self.zones.rng.index(most))
    }

    /// A job is promised when it is in so many zones.
    pub(super) fn check_zones(&mut self, id: &[u8], wanted: &Wanted, holders: &[usize]) {
        let lost = self.losers_of(wanted).len();
        let zones = self.zones.count(holders.iter().copied());
        self.zones.promised += usize::from(wanted.zones > 1);
        assert!(
            zones + lost >= wanted.zones,
            "a job is promised when it is in its zones, not when it is in {zones}: {}: {wanted:?}, \
             {holders:?}",
            id.escape_ascii()
        );
    }

    /// The power of a zone fails.
    pub(super) fn lose_zone(&mut self) {
        if !self.zones.are_used || self.weather != Weather::Stormy || self.zones.rng.below(60) > 0 {
            return;
        }
        let zone = ZONES[self.zones.rng.index(ZONES.len())];
        let nodes = 0..self.sim.nodes.len();
        let lost: Vec<usize> =
            nodes.filter(|n| self.is_up(*n) && self.zones.of(*n) == zone).collect();
        if !zone.is_empty() && !lost.is_empty() {
            self.zones.lost += 1;
            lost.into_iter().for_each(|n| self.crash(n));
        }
    }
}
