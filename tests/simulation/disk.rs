//! What a node finds again when it starts: its append only file, and its nodes.conf.

use disque::base::rng::Rng;
use disque::proto::aof_record;

/// The file is synced this often, in ms: appendfsync everysec.
const SYNC_EVERY_MS: u64 = 1000;

#[derive(Debug, Default)]
pub struct Disk {
    pub aof: Vec<u8>,
    pub nodes_conf: Vec<u8>,
    synced_len: usize,
    synced_at: u64,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: what it wrote is there.
    Killed,
    /// The machine lost power: of what was written after the last sync some is there,
    /// cut off anywhere.
    PowerLost,
    /// The append only file is gone.
    FileLost,
}

impl Disk {
    pub fn new(nodes_conf: Vec<u8>) -> Self {
        Self { nodes_conf, ..Self::default() }
    }

    pub fn append(&mut self, now_ms: u64, records: &[u8]) {
        if now_ms >= self.synced_at + SYNC_EVERY_MS {
            self.synced_at = now_ms;
            self.synced_len = self.aof.len();
        }
        self.aof.extend_from_slice(records);
    }

    /// What is left after a crash.
    pub fn crash(&mut self, rng: &mut Rng, crash: Crash) {
        match crash {
            Crash::Killed => {}
            Crash::PowerLost => {
                let unsynced_len = self.aof.len() - self.synced_len;
                self.aof.truncate(self.synced_len + rng.index(unsynced_len + 1));
            }
            Crash::FileLost => self.aof.clear(),
        }
        self.cut_tail();
        self.synced_len = self.aof.len();
    }

    /// Drops a record that was cut off, as loading does.
    fn cut_tail(&mut self) {
        let mut len = 0;
        while let Some((record_len, _)) = aof_record::next(&self.aof[len..]).expect("no damage") {
            len += record_len;
        }
        self.aof.truncate(len);
    }
}
