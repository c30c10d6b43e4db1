//! Clusters that form and mend themselves: nodes that are forgotten since they failed for long, that
//! are found by seeds, at new addresses too, and that have names of clusters.
//!
//! A minority forgets nobody, nobody live is forgotten for good, and in the end all nodes know the
//! same of each other. Who has seeds needs no operator to be whole again; who has none is not met
//! again where it was forgotten without one. Each of the three is drawn for half of the runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use disque::base::ids::NodeId;
use disque::base::rng::Rng;
use disque::engine::cluster::PeerFigures;
use disque::engine::config::EngineConfig;
use disque::proto::nodes_conf;

use super::{NODE_TIMEOUT_MS, Storm};
use crate::cluster::Sim;
use crate::node::{PORT, State};

/// As the server does while something is missing.
const SEEDS_MET_EVERY_MS: u64 = 1000;
/// A cluster forms by seeds within this.
const FORMED_WITHIN_MS: u64 = 10_000;
/// Who sees no majority knows it by then: a ping that is about to be sent, and its timeout.
const MINORITY_KNOWN_MS: u64 = 2 * NODE_TIMEOUT_MS + 500;
const NAME: &str = "prod";
const OTHER_NAME: &str = "test";

/// How the cluster is kept together, and what became of that.
pub struct Membership {
    /// Draws apart from the rest, so that runs without all this stay what they are.
    rng: Rng,
    /// Of those that are no plain nodes; 0 for never.
    forget_after_secs: u64,
    pub has_seeds: bool,
    has_names: bool,
    /// When seeds are met next.
    seeds_at: u64,
    /// Since when each node has been in a minority, in truth.
    minority_since: Vec<Option<u64>>,
    /// Whom each node knew, when it was last looked at.
    known: Vec<BTreeSet<NodeId>>,
    last_address: u8,
    /// How often a node forgot one.
    pub forgotten: usize,
    /// Nodes that came back at another address.
    pub moved: usize,
}

impl Membership {
    pub fn draw(mut rng: Rng, node_count: usize) -> Self {
        let forget_after_secs = [0, 0, 0, 0, 1, 2, 4, 8][rng.index(8)];
        let (has_seeds, has_names) = (rng.below(2) == 0, rng.below(2) == 0);
        Self {
            rng,
            forget_after_secs,
            has_seeds,
            has_names,
            seeds_at: 0,
            minority_since: vec![None; node_count],
            known: vec![BTreeSet::new(); node_count],
            last_address: 0,
            forgotten: 0,
            moved: 0,
        }
    }

    /// Makes the nodes one cluster, one way or the other.
    pub fn form(&self, sim: &mut Sim) {
        if !self.has_seeds {
            return sim.meet_all();
        }
        let until = sim.now_ms + FORMED_WITHIN_MS;
        while !sim.is_whole() {
            meet_seeds(sim);
            sim.run_for(SEEDS_MET_EVERY_MS);
            assert!(sim.now_ms < until, "nodes with seeds find each other in time");
        }
    }
}

/// Every node that has seeds meets all addresses where it knows nobody.
fn meet_seeds(sim: &mut Sim) {
    let seeds: Vec<SocketAddr> =
        sim.nodes.iter().map(|node| SocketAddr::new(node.ip, PORT)).collect();
    for n in 0..sim.nodes.len() {
        if sim.nodes[n].state == State::Up && !sim.network.is_plain(n) {
            sim.meet_seeds(n, &seeds);
        }
    }
}

/// Whom a node has forgotten as failing, and not seen since.
fn tombstones_of(sim: &Sim, n: usize) -> BTreeSet<NodeId> {
    let text = sim.nodes[n].engine.nodes_conf();
    nodes_conf::parse_tombstones(&text).into_iter().map(|tombstone| tombstone.id).collect()
}

impl Storm {
    pub(super) fn set_membership(&mut self) {
        for n in 0..self.sim.nodes.len() {
            if self.membership.has_names && self.membership.rng.below(4) > 0 {
                self.set_name(n, NAME);
            }
            if !self.sim.network.is_plain(n) && self.membership.forget_after_secs > 0 {
                let now = self.sim.now(n);
                let engine = &mut self.sim.nodes[n].engine;
                let forget_after_secs = self.membership.forget_after_secs;
                let config = EngineConfig { forget_after_secs, ..engine.config().clone() };
                engine.set_config(now, config);
            }
        }
    }

    fn set_name(&mut self, n: usize, name: &str) {
        if self.sim.network.is_plain(n) {
            return;
        }
        let now = self.sim.now(n);
        let engine = &mut self.sim.nodes[n].engine;
        let config = EngineConfig { cluster_name: name.to_owned(), ..engine.config().clone() };
        engine.set_config(now, config);
    }

    /// A node is given another name now and then, by mistake. That it is known does not depend on it.
    pub(super) fn rename_somebody(&mut self) {
        let membership = &mut self.membership;
        if membership.has_names && membership.rng.below(40) == 0 {
            let n = membership.rng.index(self.sim.nodes.len());
            let name = [NAME, OTHER_NAME][membership.rng.index(2)];
            self.set_name(n, name);
        }
    }

    /// The mistakes are mended.
    pub(super) fn correct_names(&mut self) {
        if self.membership.has_names {
            (0..self.sim.nodes.len()).for_each(|n| self.set_name(n, NAME));
        }
    }

    pub(super) fn meet_seeds(&mut self) {
        if self.membership.has_seeds && self.sim.now_ms >= self.membership.seeds_at {
            self.membership.seeds_at = self.sim.now_ms + SEEDS_MET_EVERY_MS;
            meet_seeds(&mut self.sim);
        }
    }

    /// A machine that is about to start has another address than it had, now and then.
    pub(super) fn move_to_new_address(&mut self, n: usize) {
        let membership = &mut self.membership;
        if membership.has_seeds && membership.rng.below(3) == 0 {
            membership.last_address += 1;
            membership.moved += 1;
            let ip = Ipv4Addr::new(10, 7, 0, membership.last_address);
            self.sim.nodes[n].move_to(IpAddr::V4(ip));
        }
    }

    /// Whether nodes forget each other, so that finding each other again may take longer.
    pub(super) fn are_forgetful(&self) -> bool {
        self.membership.forget_after_secs > 0
    }

    /// Whether a node has forgotten another one by itself, which has to come back by itself.
    pub(super) fn has_buried(&self, n: usize, id: &NodeId) -> bool {
        self.are_forgetful() && tombstones_of(&self.sim, n).contains(id)
    }

    /// Who forgets a node is no minority.
    pub(super) fn check_forgetting(&mut self) {
        if !self.are_forgetful() {
            return;
        }
        let now = self.sim.now_ms;
        for n in 0..self.sim.nodes.len() {
            if !self.is_up(n) {
                self.membership.minority_since[n] = None;
                self.membership.known[n].clear();
                continue;
            }
            let since = self.membership.minority_since[n];
            let cluster = self.sim.nodes[n].engine.cluster();
            let known: BTreeSet<NodeId> = cluster.known().map(|node| cluster.id(node)).collect();
            let before = std::mem::replace(&mut self.membership.known[n], known.clone());
            let tombstones = tombstones_of(&self.sim, n);
            for id in before.difference(&known).filter(|id| tombstones.contains(id)) {
                self.membership.forgotten += 1;
                let is_known_minority = since.is_some_and(|at| now > at + MINORITY_KNOWN_MS);
                assert!(
                    !is_known_minority,
                    "a minority forgets nobody: node {n} forgot {id} at {now}, and has been in one \
                     since {since:?}"
                );
            }
            let cluster = self.sim.nodes[n].engine.cluster();
            let hears = |m: &usize| {
                let peer = &self.sim.nodes[*m];
                self.is_up(*m)
                    && cluster.find(peer.engine.cluster().my_id()).is_some()
                    && !self.sim.network.is_cut_between(n, *m)
            };
            let heard = (0..self.sim.nodes.len()).filter(|m| *m != n).filter(hears).count();
            let is_minority = heard < cluster.size() / 2;
            self.membership.minority_since[n] =
                if is_minority { since.or(Some(now)) } else { None };
        }
    }

    /// In the end all nodes know the same nodes, and of each what it says; and nobody is expected
    /// that is there.
    pub(super) fn check_all_agree(&self) {
        let ids: BTreeSet<NodeId> =
            self.sim.nodes.iter().map(|node| *node.engine.cluster().my_id()).collect();
        for n in 0..self.sim.nodes.len() {
            let cluster = self.sim.nodes[n].engine.cluster();
            let known: BTreeSet<NodeId> = cluster.known().map(|node| cluster.id(node)).collect();
            assert_eq!(known, ids, "node {n} knows all nodes, and no others");
            let missed = tombstones_of(&self.sim, n);
            assert!(missed.is_disjoint(&ids), "node {n} takes one for gone that is there");
            if self.sim.network.is_plain(n) {
                continue;
            }
            for peer in cluster.peers(self.sim.now(n).mono) {
                self.check_peer(n, &peer);
            }
        }
    }

    /// What an able node has of another one.
    fn check_peer(&self, n: usize, peer: &PeerFigures) {
        let is_it = |m: &usize| *self.sim.nodes[*m].engine.cluster().my_id() == peer.id;
        let m = (0..self.sim.nodes.len()).find(is_it).expect("it is one of them");
        let said = self.sim.nodes[m].engine.config();
        let expected = match self.sim.network.is_plain(m) {
            true => ("", ""),
            false => (&*said.zone, &*said.cluster_name),
        };
        let known = (&*peer.zone, &*peer.info.cluster_name);
        assert_eq!(known, expected, "node {n} knows zone and name of node {m}");
    }
}
