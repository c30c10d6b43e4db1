//! What goes wrong in a storm, and how it is made well again.

use disque::base::ids::NodeId;
use disque::engine::config::EnqueueAtLoad;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use super::{QUEUES, Storm, Weather};
use crate::node::{PORT, State};
use crate::storage::Crash;

/// Nodes find each other again within this, once nothing is in their way.
const WHOLE_WITHIN_MS: u64 = 15_000;
/// The same where they may have forgotten each other, and try one every ten seconds.
const FOUND_AGAIN_WITHIN_MS: u64 = 60_000;
/// What was under way when all was made well arrives within this.
const ARRIVED_WITHIN_MS: u64 = 200;
/// After that acks and requeues have come to rest within this.
const SETTLED_WITHIN_MS: u64 = 2000;

impl Storm {
    /// What the weather brings for the whole of the run.
    pub(super) fn draw_weather(&mut self) {
        match self.weather {
            Weather::Fair | Weather::Windy | Weather::Parted => {}
            Weather::Hazy => self.sim.network.delay_ms = (0, self.rng.below(150)),
            Weather::Stormy => {
                self.sim.network.link_bytes_max = [4000, usize::MAX][self.rng.index(2)];
                self.sim.network.echoes_percent = [0, 0, 30][self.rng.index(3)];
                self.acks_miss_copies = self.sim.network.echoes_percent > 0;
                if self.rng.below(4) == 0 {
                    // It comes to the others later, if at all.
                    let newcomer = self.node();
                    self.reset_node(newcomer, "HARD");
                }
            }
        }
    }

    /// Something goes wrong, or well again.
    pub(super) fn disturb(&mut self) {
        let (a, b) = (self.node(), self.node());
        match self.weather {
            Weather::Fair | Weather::Hazy => {}
            Weather::Windy => self.sim.reset_links(a, b),
            Weather::Parted => match self.rng.below(4) {
                0 => self.sim.reset_links(a, b),
                1 | 2 => {
                    self.partition();
                    self.break_cut_links();
                }
                _ => self.sim.network.heal(self.sim.now_ms),
            },
            Weather::Stormy if self.rng.below(4) == 0 => self.operate(a, b),
            Weather::Stormy => self.break_something(a, b),
        }
    }

    fn break_something(&mut self, a: usize, b: usize) {
        match self.rng.below(100) {
            0..22 => self.sim.reset_links(a, b),
            22..32 => self.sim.network.cut(a, b),
            32..38 => {
                self.sim.network.cut(a, b);
                self.sim.network.cut(b, a);
            }
            38..42 => self.partition(),
            42..56 => self.join_ways(),
            56..62 => self.sim.freeze(a),
            62..72 => self.sim.thaw(a),
            72..76 => self.crash(a),
            76..79 => self.stop_as_planned(a),
            79..90 => self.restart(a),
            90..94 => {
                self.sim.network.delay_ms = [(0, 2), (0, 30), (20, 150)][self.rng.index(3)];
            }
            94..97 => {
                self.sim.nodes[a].clock.wall_offset_ms = i64::from(self.rng.below(4000)) - 2000;
            }
            _ => {
                self.collect();
                self.hang_up(a);
            }
        }
    }

    /// Somebody who runs the cluster does something to a node.
    fn operate(&mut self, a: usize, b: usize) {
        if !self.is_up(a) {
            return;
        }
        match self.rng.below(100) {
            0..20 => {
                self.memory_levels[a] = [0, 1, 2][self.rng.index(3)];
                self.sim.set_memory_level(a, self.memory_levels[a]);
            }
            20..60 => {
                let queue = QUEUES[self.rng.index(QUEUES.len())];
                let state = ["in", "out", "all", "none", "none"][self.rng.index(5)];
                let scope = ["state", "bcast"][self.rng.index(2)];
                self.order(a, &["PAUSE", queue, state, scope]);
            }
            60..75 => self.set_leaving(a, !self.leaving[a]),
            75..80 => {
                let id = self.sim.nodes[b].engine.cluster().my_id().to_string();
                self.order(a, &["CLUSTER", "FORGET", &id]);
                self.acks_miss_copies = true;
            }
            80..85 => {
                let how = ["SOFT", "HARD"][self.rng.index(2)];
                self.reset_node(a, how);
            }
            _ => self.meet(a, b),
        }
    }

    /// Gives a node a command. The node may die of it, and a node cannot forget itself or one
    /// that it does not know; otherwise the command is done.
    fn order(&mut self, n: usize, words: &[&str]) {
        let client = self.sim.connect_client(n, Resp::V2);
        self.sim.send(n, client, words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let is_done = |reply: &Value| matches!(reply, Value::Status(_)) || words[1] == "FORGET";
        for (_, reply) in self.sim.take_replies(n, client) {
            assert!(is_done(&reply), "{words:?} is answered {reply:?}");
        }
        self.sim.disconnect_client(n, client);
    }

    fn meet(&mut self, a: usize, b: usize) {
        let ip = self.sim.nodes[b].ip.to_string();
        self.order(a, &["CLUSTER", "MEET", &ip, &PORT.to_string()]);
    }

    fn set_leaving(&mut self, n: usize, leaving: bool) {
        self.leaving[n] = leaving;
        self.order(n, &["CLUSTER", "LEAVING", if leaving { "yes" } else { "no" }]);
        self.risk_at = Some(self.sim.now_ms);
    }

    fn reset_node(&mut self, n: usize, how: &str) {
        let old_id = *self.sim.nodes[n].engine.cluster().my_id();
        self.order(n, &["CLUSTER", "RESET", how]);
        self.note_id(n, old_id);
        self.resets.push((n, self.sim.now_ms));
        self.acks_miss_copies = true;
    }

    /// A node that has another ID now is another node to its peers.
    fn note_id(&mut self, n: usize, old_id: NodeId) {
        if *self.sim.nodes[n].engine.cluster().my_id() != old_id {
            self.gone.push(old_id);
            self.resets.push((n, self.sim.now_ms));
            self.acks_miss_copies = true;
        }
    }

    /// Ends all cuts.
    fn join_ways(&mut self) {
        if self.sim.network.is_cut() && self.weather == Weather::Stormy {
            self.risk_at = Some(self.sim.now_ms);
        }
        self.sim.network.heal(self.sim.now_ms);
    }

    /// Cuts the cluster in two.
    fn partition(&mut self) {
        let count = self.sim.nodes.len();
        let sides: Vec<bool> = (0..count).map(|_| self.rng.below(2) == 0).collect();
        for a in 0..count {
            for b in 0..count {
                if sides[a] != sides[b] {
                    self.sim.network.cut(a, b);
                }
            }
        }
    }

    /// Nothing is held back on the ways that are cut, it is lost.
    fn break_cut_links(&mut self) {
        let count = self.sim.nodes.len();
        for a in 0..count {
            for b in a + 1..count {
                if self.sim.network.is_cut_between(a, b) {
                    self.sim.reset_links(a, b);
                }
            }
        }
    }

    pub(super) fn crash(&mut self, n: usize) {
        if self.sim.nodes[n].state == State::Down {
            return;
        }
        self.collect();
        self.sim.end_somehow(&mut self.rng, n);
    }

    /// The node is told to end. What it leaves to its next start is its disk's affair.
    fn stop_as_planned(&mut self, n: usize) {
        if self.sim.nodes[n].state == State::Down {
            return;
        }
        self.collect();
        let end = [Crash::Killed, Crash::PowerLost][self.rng.index(2)];
        self.sim.stop_as_planned(n, end);
    }

    fn restart(&mut self, n: usize) {
        if self.sim.nodes[n].state != State::Down {
            return;
        }
        let enqueue = [EnqueueAtLoad::No, EnqueueAtLoad::No, EnqueueAtLoad::Yes][self.rng.index(3)];
        self.enqueued_once |= enqueue == EnqueueAtLoad::Yes;
        let old_id = *self.sim.nodes[n].engine.cluster().my_id();
        self.move_to_new_address(n);
        self.sim.restart_with(n, enqueue);
        self.note_id(n, old_id);
        // What it was told last may not be in its nodes.conf.
        self.leaving[n] = self.sim.nodes[n].engine.cluster().is_leaving();
        self.sim.set_memory_level(n, self.memory_levels[n]);
    }

    /// From here on all is well. Consumers come back when the nodes are at rest.
    pub(super) fn heal(&mut self) {
        self.collect();
        self.correct_names();
        self.repair();
        self.collect();
        self.reunite();
        let within_ms = if self.are_forgetful() { FOUND_AGAIN_WITHIN_MS } else { WHOLE_WITHIN_MS };
        let until = self.sim.now_ms + within_ms;
        while !self.sim.is_whole() {
            self.run(100);
            assert!(self.sim.now_ms < until, "nodes find each other again");
        }
        // Pauses that were on their way have arrived, at nodes that were frozen too.
        self.run(ARRIVED_WITHIN_MS);
        for n in 0..self.sim.nodes.len() {
            for queue in QUEUES {
                self.order(n, &["PAUSE", queue, "none"]);
            }
        }
        self.run(SETTLED_WITHIN_MS);
        self.check_places();
        self.check_copies_made();
        self.healed_at = Some(self.sim.now_ms);
    }

    /// Where no node refuses copies, jobs that were answered before all of theirs were there
    /// have them by now.
    fn check_copies_made(&self) {
        if self.weather != Weather::Stormy {
            let short = self.sim.nodes.iter().map(|node| node.engine.short_of_copies_count());
            assert_eq!(short.sum::<usize>(), 0, "copies are made once their nodes are there");
        }
    }

    /// Machines and network work again.
    fn repair(&mut self) {
        self.sim.end_mishaps();
        for n in 0..self.sim.nodes.len() {
            self.sim.thaw(n);
            self.restart(n);
            self.memory_levels[n] = 0;
            self.sim.set_memory_level(n, 0);
        }
        self.sim.network.delay_ms = (0, 2);
        self.sim.network.link_bytes_max = usize::MAX;
        self.sim.network.echoes_percent = 0;
        self.join_ways();
    }

    /// The operator makes the nodes one cluster again, as far as they do not do so themselves.
    fn reunite(&mut self) {
        let ids: Vec<NodeId> =
            self.sim.nodes.iter().map(|node| *node.engine.cluster().my_id()).collect();
        // A node that lost its last nodes.conf has an old ID again.
        self.gone.retain(|id| !ids.contains(id));
        for n in 0..ids.len() {
            self.hang_up(n);
            if self.leaving[n] {
                self.set_leaving(n, false);
            }
            for id in self.gone.clone() {
                self.order(n, &["CLUSTER", "FORGET", &id.to_string()]);
            }
        }
        for a in 0..ids.len() {
            if self.membership.has_seeds {
                break;
            }
            for (b, id) in ids.iter().enumerate() {
                let is_known = self.sim.nodes[a].engine.cluster().find(id).is_some();
                if !is_known && !self.has_buried(a, id) {
                    self.meet(a, b);
                }
            }
        }
    }
}
