//! What befalls the disks of a cluster, and how nodes end, drawn from a seed.

use disque::base::rng::Rng;
use disque::proto::aof_record::SumPlace;
use disque::store::aof::{AofOptions, Checksums, SyncDuringRewrite, SyncPolicy};
use disque::store::aof_rewrite::IncrementalSync;

use crate::cluster::Sim;
use crate::disk::Faults;
use crate::node::{Doom, Moment};
use crate::storage::{Crash, LostSince};

/// Policies of all nodes of a run.
pub fn draw_options(rng: &mut Rng) -> AofOptions {
    AofOptions {
        sync: [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never][rng.index(3)],
        sync_during_rewrite: [SyncDuringRewrite::Yes, SyncDuringRewrite::No][rng.index(2)],
        incremental_sync: IncrementalSync::Yes,
        checksums: Checksums::Yes,
    }
}

impl Sim {
    /// Something happens to the disk of a node, good or bad, or its file is rewritten.
    pub fn upset_disk(&mut self, rng: &mut Rng, n: usize) {
        let now = self.now(n);
        let (storage, sim_ms) = (&mut self.nodes[n].storage, self.now_ms);
        let faults = storage.disk.faults();
        match rng.below(10) {
            0 => storage.disk.set_faults(Faults { room: Some(rng.index(2000)), ..faults }),
            1 => storage.disk.set_faults(Faults { writes_fail: true, ..faults }),
            2 => storage.disk.set_faults(Faults { syncs_fail: true, ..faults }),
            3..7 => storage.disk.set_faults(Faults::default()),
            _ => storage.begin_rewrite(now, sim_ms),
        }
    }

    /// Every disk works from now on, and no node is about to end.
    pub fn end_mishaps(&mut self) {
        for node in &mut self.nodes {
            node.storage.disk.set_faults(Faults::default());
            node.doom = None;
        }
    }

    /// Ends a node now or in the middle of one of its next turns.
    pub fn end_somehow(&mut self, rng: &mut Rng, n: usize) {
        let has_sums = self.nodes[n].engine.config().aof_sums == SumPlace::Yes;
        let crash = match rng.below(20) {
            0 | 1 => Crash::FileLost,
            2 => Crash::NodesLost,
            3..6 if has_sums => Crash::BitFlipped,
            6 => Crash::FileCut,
            7..12 => Crash::Killed,
            _ => Crash::PowerLost,
        };
        let moment = match rng.below(6) {
            0 => Moment::InRecords(rng.index(1 << 16)),
            1 => Moment::BeforeFrames,
            2 => Moment::BeforeReplies,
            _ => return self.crash(n, crash),
        };
        self.nodes[n].doom = Some(Doom { moment, crash });
    }

    /// Whether the end of an at-most-once job that was there at this time, or later, may
    /// have been forgotten.
    pub fn may_forget_ends(&self, from_ms: u64) -> bool {
        let mut losses = self.losses.iter();
        losses.any(|loss| loss.at >= from_ms && loss.ends_since != LostSince::NOTHING)
    }
}
