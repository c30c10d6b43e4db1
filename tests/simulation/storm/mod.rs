//! A whole cluster, its clients and its disasters, drawn from a seed.
//!
//! The seed draws the [`Weather`]. First everything that it brings goes wrong for a while.
//! Then all is made well, and the cluster must become whole, deliver what it promised, and
//! in the end hold nothing.
//!
//! `clients` are the producers and the consumers, `disasters` what goes wrong and is made
//! well again, `attributes` and `priorities` what jobs have beside their bodies, `moves` in which
//! queue they are, `policies` what queues have, `rest` what must hold of the queues while nobody
//! takes jobs out of them, `tracing` what nodes note of jobs, `zones` where nodes are, `membership` how
//! they find and forget each other, and `story` what is known of each job.

mod attributes;
mod clients;
mod disasters;
mod membership;
mod moves;
mod policies;
mod priorities;
mod rest;
mod story;
mod tracing;
mod zones;

use std::collections::BTreeMap;

use disque::base::ids::{ClientId, NodeId};
use disque::base::rng::Rng;
use disque::engine::config::EngineConfig;
use disque::engine::policy::RetryFrom;
use disque::proto::aof_record::SumPlace;

use crate::clock::Clock;
use crate::cluster::{Sim, seed_bytes};
use crate::mishaps;
use crate::node::State;
use crate::storage::AppendOnly;
use attributes::Attributes;
use membership::Membership;
use moves::Moves;
use policies::Policies;
use priorities::Priorities;
use rest::Rest;
pub use story::Tally;
use story::{Adding, InHand, Story, Wanted};
use tracing::Tracing;
pub use tracing::run;
use zones::Zones;

const QUEUES: [&str; 2] = ["red", "green"];
const STEPS: u32 = 150;
const NODE_TIMEOUT_MS: u64 = 2000;
/// Consumers that take no longer than this are in time.
const IN_TIME_MS: u32 = 200;
/// Acks are collected within this: the longest wait between two attempts, and some.
const DRAINED_WITHIN_MS: u64 = 200_000;
/// Clocks differ by seconds, and each node that passes a job on rounds its TTL up.
const EXPIRY_ERROR_MS: u64 = 10_000;
/// An ack is on all nodes within this, once all is well.
const ACK_SPREAD_MS: u64 = 20;
/// Frames for each ordered pair of nodes and second in a cluster that has nothing to do.
const QUIET_FRAMES: u64 = 6;

/// What goes wrong, and how the consumers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Nothing goes wrong, and consumers are always there and in time: each job comes
    /// exactly once.
    Fair,
    /// Nothing goes wrong, but frames take long, and consumers stay away for seconds and
    /// forget jobs: while they are away each job that is due waits in exactly one queue.
    Hazy,
    /// Links break, and nothing else; consumers are in time. What is acknowledged does not
    /// come again.
    Windy,
    /// Links break, and the cluster falls apart and comes together again; what was under way
    /// is lost. Consumers are in time. What is acknowledged does not come again once all is
    /// well.
    Parted,
    /// Everything goes wrong.
    Stormy,
}

struct Storm {
    sim: Sim,
    rng: Rng,
    /// For memory that is short, so that the rest of a seed's run is what it was without.
    memory_rng: Rng,
    weather: Weather,
    /// For the copies that producers wait for, where they say; as above.
    sync_rng: Option<Rng>,
    /// One on each node.
    consumers: Vec<Option<ClientId>>,
    rest: Rest,
    adding: Vec<Adding>,
    stories: BTreeMap<Vec<u8>, Story>,
    /// How many jobs their producers did not get an ID for, but an error.
    refused_count: usize,
    in_hand: Vec<InHand>,
    /// Whether acks may miss a copy: links repeat what earlier ones brought, which may be a
    /// job that is over, or nodes do not know all who may have a job.
    acks_miss_copies: bool,
    memory_levels: Vec<u8>,
    leaving: Vec<bool>,
    /// IDs that no node has any more.
    gone: Vec<NodeId>,
    /// The longest that a consumer takes for a job.
    busy_ms: u32,
    /// Whether consumers give jobs back for a while or silently, and take leases.
    gives_back: bool,
    /// The lease of each node's last GETJOB, 0 for none.
    leases_ms: Vec<u64>,
    /// When nodes were reset, and lost what they had.
    resets: Vec<(usize, u64)>,
    /// Some node was started with aof-enqueue-jobs-once, though nobody had planned its end.
    enqueued_once: bool,
    /// When acks were last at risk, but for crashes: a node began or ceased to leave, and did
    /// not pass them on; or a way that was cut is not any more, and brings a copy whose job is
    /// over.
    risk_at: Option<u64>,
    /// Whether consumers are there, as the weather has it, and nothing was made well yet.
    is_acting: bool,
    /// From when on all is well.
    healed_at: Option<u64>,
    attributes: Attributes,
    moves: Moves,
    policies: Policies,
    priorities: Priorities,
    tracing: Tracing,
    zones: Zones,
    membership: Membership,
}

impl Storm {
    /// A run of a seed; the second one, of a seed that failed, with all jobs traced.
    fn new(seed: u64, is_second_run: bool) -> Self {
        let mut rng = Rng::from_seed(seed_bytes(seed, 0xdd));
        let node_count = 2 + rng.below(4) as u16;
        let config = EngineConfig {
            node_timeout_ms: NODE_TIMEOUT_MS,
            aof_sums: [SumPlace::Yes, SumPlace::Yes, SumPlace::No][rng.index(3)],
            retry_from: [RetryFrom::Queue, RetryFrom::Delivery][rng.index(2)],
            ..EngineConfig::default()
        };
        let mut sim = Sim::new(seed, node_count, &config, AppendOnly::Yes);
        sim.quantum_max = [1, 64][rng.index(2)];
        let options = mishaps::draw_options(&mut rng);
        for node in &mut sim.nodes {
            node.storage.set_options(options);
            node.clock = Clock { drift_ppm: i64::from(rng.below(200)) - 100, wall_offset_ms: 0 };
        }
        let weather = match seed % 6 {
            0 => Weather::Fair,
            1 => Weather::Hazy,
            2 => Weather::Windy,
            3 => Weather::Parted,
            _ => Weather::Stormy,
        };
        let mut attributes = Attributes::new(Rng::from_seed(seed_bytes(seed, 0xa7)));
        let has_plain = match weather {
            Weather::Fair => attributes.draw_plain(),
            Weather::Hazy => false,
            Weather::Windy | Weather::Parted | Weather::Stormy => rng.below(3) == 0,
        };
        if has_plain {
            let plain = rng.index(sim.nodes.len());
            sim.network.speak_plainly(plain);
            let config = EngineConfig { retry_from: RetryFrom::Queue, ..config.clone() };
            let now = sim.now(plain);
            sim.nodes[plain].engine.set_config(now, config);
        }
        let membership =
            Membership::draw(Rng::from_seed(seed_bytes(seed, 0x3e)), usize::from(node_count));
        membership.form(&mut sim);
        let gives_back = rng.below(2) == 0;
        let busy_ms =
            if weather == Weather::Stormy { [IN_TIME_MS, 4000][rng.index(2)] } else { IN_TIME_MS };
        let count = usize::from(node_count);
        let policies = Policies::draw(Rng::from_seed(seed_bytes(seed, 0xfa)));
        let moves = Moves::draw(Rng::from_seed(seed_bytes(seed, 0x30)));
        let mut storm = Self {
            sim,
            rng,
            memory_rng: Rng::from_seed(seed_bytes(seed, 0xde)),
            sync_rng: draw_sync(seed),
            weather,
            consumers: vec![None; count],
            rest: Rest::default(),
            adding: Vec::new(),
            stories: BTreeMap::new(),
            refused_count: 0,
            in_hand: Vec::new(),
            acks_miss_copies: false,
            memory_levels: vec![0; count],
            leaving: vec![false; count],
            gone: Vec::new(),
            busy_ms,
            gives_back,
            leases_ms: vec![0; count],
            resets: Vec::new(),
            enqueued_once: false,
            risk_at: None,
            is_acting: true,
            healed_at: None,
            attributes,
            moves,
            policies,
            priorities: Priorities::new(Rng::from_seed(seed_bytes(seed, 0xb3))),
            tracing: Tracing::draw(Rng::from_seed(seed_bytes(seed, 0x7c)), is_second_run),
            zones: Zones::draw(Rng::from_seed(seed_bytes(seed, 0x20)), count),
            membership,
        };
        storm.set_policies();
        storm.set_tracing();
        storm.set_membership();
        storm.set_zones();
        storm.draw_weather();
        storm
    }

    fn play(&mut self) -> Tally {
        for _ in 0..STEPS {
            self.act();
        }
        self.is_acting = false;
        self.heal();
        self.drain();
        self.judge()
    }

    fn node(&mut self) -> usize {
        self.rng.index(self.sim.nodes.len())
    }

    fn act(&mut self) {
        if self.rng.below(10) < 4 {
            self.add();
        }
        if self.rng.below(10) < 2 {
            self.disturb();
        }
        if self.weather == Weather::Stormy && self.rng.below(10) == 0 {
            let n = self.node();
            self.sim.upset_disk(&mut self.rng, n);
        }
        self.shorten_memory();
        self.lose_zone();
        self.rename_somebody();
        self.move_something();
        self.look_at_a_life();
        self.consume();
        let ms = u64::from(self.rng.below(200));
        self.run(ms);
        self.check_rest();
        self.check_agreement();
    }

    /// Memory is short now and then, and never full: nothing is refused for that, and nothing
    /// comes twice.
    fn shorten_memory(&mut self) {
        if matches!(self.weather, Weather::Fair | Weather::Hazy) && self.memory_rng.below(20) == 0 {
            let n = self.memory_rng.index(self.sim.nodes.len());
            self.memory_levels[n] = self.memory_rng.below(2) as u8;
            self.sim.set_memory_level(n, self.memory_levels[n]);
        }
    }

    fn run(&mut self, ms: u64) {
        self.meet_seeds();
        if self.watches_urgent() {
            self.run_watched(ms);
        } else {
            self.sim.run_for(ms);
        }
        self.check_forgetting();
        self.collect();
        self.check_lives();
    }

    fn drain(&mut self) {
        let until = self.sim.now_ms + DRAINED_WITHIN_MS;
        while !self.adding.is_empty()
            || self.sim.nodes.iter().any(|node| node.engine.job_count() > 0)
        {
            self.consume();
            self.run(100);
            self.check_agreement();
            let is_over = self.sim.now_ms >= until;
            assert!(!is_over, "every copy goes in the end: {:?} are left", self.sim.survey());
        }
        assert!(self.sim.is_whole(), "a whole cluster stays whole");
        self.check_all_agree();
        let count = self.sim.nodes.len() as u64;
        let frames_before = self.sim.network.frame_count;
        self.sim.run_for(10_000);
        let frames = self.sim.network.frame_count - frames_before;
        let frames_max = 10 * QUIET_FRAMES * count * (count - 1);
        assert!(frames <= frames_max, "nodes with nothing to do are quiet: {frames} frames");
    }

    fn judge(&self) -> Tally {
        let healed_at = self.healed_at.expect("all is well");
        let promised = self.stories.values().filter(|story| story.wanted.is_some()).count();
        // Two nodes may be apart for all of a storm, and refuse every job.
        let shows_something = promised > 0 || self.weather == Weather::Stormy;
        assert!(shows_something, "a run without jobs shows nothing");
        let mut tally = Tally {
            trace: self.sim.trace,
            promised,
            refused: self.refused_count,
            with_attributes: self.attributes.delivered,
            without_theirs: self.attributes.lost,
            died: self.stories.values().filter(|story| story.died_of.is_some()).count(),
            moves: self.moves.made,
            moved: self.moves.delivered,
            moved_elsewhere: self.moves.elsewhere,
            zoned: self.zones.promised,
            lost_zones: self.zones.lost,
            forgotten: self.membership.forgotten,
            readdressed: self.membership.moved,
            ..Tally::default()
        };
        for (id, story) in &self.stories {
            let losses = &self.sim.losses;
            let told =
                format!("{}, well since {healed_at}: {story:?}, {losses:?}", id.escape_ascii());
            let came = !story.delivered_at.is_empty();
            assert!(came || !self.is_owed(id, story, healed_at), "a promise was broken, {told}");
            self.judge_life(id, story);
            match self.weather {
                Weather::Fair => {
                    // A consumer may have it in hand when its TTL ends, and it dies of that.
                    // Where it is moved to it may end in silence, while all is made well.
                    let ended = self.was_moved(id)
                        && story.wanted.as_ref().is_some_and(|w| w.expires_at < healed_at);
                    let is_once = (came || ended) && story.duplicates() <= story.expiries;
                    assert!(is_once, "a job comes exactly once, {told}");
                }
                Weather::Windy => {
                    tally.windy_jobs += 1;
                    tally.windy_duplicates += story.duplicates();
                    tally.windy_holds += usize::from(story.hold.is_some());
                    tally.windy_early += story.early;
                }
                Weather::Stormy if self.busy_ms <= IN_TIME_MS => {
                    tally.stormy_jobs += 1;
                    tally.stormy_duplicates += story.duplicates();
                }
                Weather::Hazy | Weather::Parted | Weather::Stormy => {}
            }
            if let Some(acked_at) = story.acked_at {
                let well_at = healed_at.max(acked_at + ACK_SPREAD_MS);
                let late = story.delivered_at.iter().filter(|at| **at > well_at).count();
                let made_at = story.wanted.as_ref().map_or(0, |wanted| wanted.asked_at);
                let is_risk = |at: u64| at >= made_at;
                let ack_is_safe = !self.acks_miss_copies
                    && !self.risk_at.is_some_and(is_risk)
                    && !self.sim.losses.iter().any(|loss| is_risk(loss.at));
                assert!(late == 0 || !ack_is_safe, "an acked job came again, {told}");
                tally.late_duplicates += late;
            }
        }
        tally
    }

    /// Whether the job must have come: enough copies outlived all losses, and there was
    /// time.
    fn is_owed(&self, id: &[u8], story: &Story, healed_at: u64) -> bool {
        let Some(wanted) = story.wanted.as_ref().filter(|_| !story.was_purged) else {
            return false;
        };
        // Where nobody loses anything, one that dies of it comes all the same.
        let dies = self.policies.of(&wanted.queue).dies_of_expiry && !self.was_moved(id);
        let lasts = dies && self.all_are_able_and_well();
        let had_time = lasts || wanted.expires_at > healed_at + EXPIRY_ERROR_MS;
        let losers = self.losers_of(wanted);
        let lives_on = losers.len() < wanted.copies || self.zones.count(losers) < wanted.zones;
        wanted.retry_ms > 0 && lives_on && had_time
    }

    /// The nodes that may have lost a copy of this job.
    fn losers_of(&self, wanted: &Wanted) -> Vec<usize> {
        let has_lost = |n: &usize| {
            let reset = self.resets.iter().any(|(node, at)| node == n && *at >= wanted.asked_at);
            let crashed = self.sim.losses.iter().any(|loss| {
                let is_after = loss.at >= wanted.asked_at;
                loss.node == *n && is_after && loss.since.0 <= wanted.promised_at
            });
            reset || crashed
        };
        (0..self.sim.nodes.len()).filter(has_lost).collect()
    }

    fn is_up(&self, n: usize) -> bool {
        self.sim.nodes[n].state == State::Up
    }
}

/// In half of the runs producers wait for fewer copies than there are to be.
fn draw_sync(seed: u64) -> Option<Rng> {
    let mut rng = Rng::from_seed(seed_bytes(seed, 0x5c));
    (rng.below(2) == 0).then_some(rng)
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}
