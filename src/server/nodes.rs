//! nodes.conf: who this node is and whom it knows, from one start to the next.
//!
//! The engine says when the file is to be written. A save that fails is logged and tried
//! again until it works: the server can do without, but its next start could not know
//! the cluster.

use std::io;
use std::path::Path;

use super::Server;
use crate::base::ids::NodeId;
use crate::base::reason::reason;
use crate::base::time::MonoMs;
use crate::engine::command::Call;
use crate::proto::bus::NodeFlags;
use crate::proto::nodes_conf::{self, NodeLine, Tombstone};
use crate::store::nodes_file::{NodesFile, NodesFileError};

/// How long after a failed save the next is tried, in ms.
const SAVE_AGAIN_MS: u64 = 1000;

/// What the file says.
pub struct NodesRead {
    pub lines: Vec<NodeLine>,
    /// Nodes that were forgotten as failing, and when.
    pub tombstones: Vec<Tombstone>,
}

/// The file, and whether it is behind.
pub struct Nodes {
    file: NodesFile,
    /// When to try again what failed.
    save_again_at: Option<MonoMs>,
}

impl Nodes {
    /// Locks and reads the file; without one there are no lines. An error is the sentence
    /// to exit with.
    pub fn open(path: &Path) -> Result<(Self, NodesRead), String> {
        Self::read(NodesFile::open(path))
    }

    fn read(
        opened: Result<(NodesFile, Vec<u8>), NodesFileError>,
    ) -> Result<(Self, NodesRead), String> {
        let (file, text) = opened.map_err(|e| e.to_string())?;
        let lines = nodes_conf::parse(&text).map_err(|e| {
            format!("The cluster's file {} cannot be read: {e}", file.path().display())
        })?;
        let read = NodesRead { lines, tombstones: nodes_conf::parse_tombstones(&text) };
        Ok((Self { file, save_again_at: None }, read))
    }

    /// When the loop has to come round for the file's sake.
    pub fn next_timeout(&self) -> MonoMs {
        self.save_again_at.unwrap_or(MonoMs::NEVER)
    }

    /// Writes the file. What failed is tried again later.
    fn save(&mut self, now: MonoMs, text: &[u8]) -> io::Result<()> {
        let saved = self.file.replace(text);
        let path = self.file.path().display();
        match &saved {
            Ok(()) => {
                if self.save_again_at.take().is_some() {
                    log::warn!("{path} is saved again");
                }
            }
            Err(e) => {
                if self.save_again_at.is_none() {
                    log::warn!("Can't save {path}, which will be tried every second: {e}");
                }
                self.save_again_at = Some(now.plus_ms(SAVE_AGAIN_MS));
            }
        }
        saved
    }

    /// Goes on with another file, which says the same from now on, and gives up the present
    /// one. Refused when the other one is in use, or is another node's.
    fn move_to(&mut self, path: &Path, me: &NodeId, text: &[u8]) -> Result<(), String> {
        let (mut nodes, read) = match NodesFile::open(path) {
            // It may be the present one under another name.
            Err(NodesFileError::Locked(_)) if self.file.is_at(path) => return Ok(()),
            opened => Self::read(opened)?,
        };
        if my_id(&read.lines).is_some_and(|id| id != *me) {
            return Err(format!("{} is another node's", nodes.file.path().display()));
        }
        nodes.file.replace(text).map_err(|e| reason(&e))?;
        *self = nodes;
        Ok(())
    }
}

/// This node's ID, as far as it has one.
pub fn my_id(lines: &[NodeLine]) -> Option<NodeId> {
    lines.iter().find(|line| line.flags.contains(NodeFlags::MYSELF)).map(|line| line.id)
}

impl Server {
    /// Writes nodes.conf where the engine requests it, or where that failed before.
    pub(super) fn save_nodes(&mut self) {
        if self.engine.out.save_nodes || self.nodes.next_timeout() <= self.clock.now.mono {
            // It is logged, and tried again.
            let _ = self.save_nodes_now();
        }
    }

    fn save_nodes_now(&mut self) -> io::Result<()> {
        self.engine.out.save_nodes = false;
        self.nodes.save(self.clock.now.mono, &self.engine.nodes_conf())
    }

    /// CLUSTER SAVECONFIG -> OK once nodes.conf is on the disk, or an error.
    pub(super) fn save_nodes_for(&mut self, call: &Call<'_>) {
        let saved = self.save_nodes_now();
        let mut reply = self.reply(call);
        match saved {
            Ok(()) => reply.status("OK"),
            Err(e) => {
                let reason = reason(&e);
                reply.error(format!("ERR error saving the cluster node config: {reason}"));
            }
        }
    }

    /// Goes on with the cluster's file of another working directory.
    pub(super) fn move_nodes(&mut self, dir: &Path) -> Result<(), String> {
        let path = dir.join(&self.config.cluster_config_file);
        let me = *self.engine.cluster().my_id();
        self.nodes.move_to(&path, &me, &self.engine.nodes_conf())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_failed_save_is_tried_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nodes.conf");
        let (mut nodes, read) = Nodes::open(&path).expect("a new file");
        assert_eq!((read.lines.len(), my_id(&read.lines)), (0, None));
        let in_the_way = dir.path().join("nodes.conf.tmp");
        fs::create_dir(&in_the_way).expect("created");
        nodes.save(MonoMs(5000), b"x\n").expect_err("the temporary name is taken");
        assert_eq!(nodes.next_timeout(), MonoMs(6000));
        fs::remove_dir(&in_the_way).expect("removed");
        nodes.save(MonoMs(6000), b"x\n").expect("the way is free");
        assert_eq!(nodes.next_timeout(), MonoMs::NEVER);
        assert_eq!(fs::read(&path).expect("read"), b"x\n");
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_its_name_and_line() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nodes.conf");
        fs::write(&path, "nonsense\n").expect("written");
        let Err(sentence) = Nodes::open(&path) else { panic!("it makes no sense") };
        assert!(sentence.contains("nodes.conf cannot be read: line 1: "), "{sentence}");
    }
}
