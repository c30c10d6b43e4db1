//! The working directory, and the files of the server that go with it.

use std::env;
use std::path::Path;

use super::Server;
use crate::base::reason::reason;

impl Server {
    /// Goes to another working directory, and takes the cluster's file and the append only
    /// file there.
    ///
    /// Differs from C, which writes over the files that are there, even those of a node that
    /// runs, and leaves its jobs behind.
    pub(super) fn change_dir(&mut self, dir: &Path) -> Result<(), String> {
        env::set_current_dir(dir).map_err(|e| reason(&e))?;
        let moved = self.move_nodes(dir).and_then(|()| {
            self.move_aof(dir).or_else(|reason| {
                self.move_nodes(&self.config.dir.clone())?;
                Err(reason)
            })
        });
        if moved.is_err()
            && let Err(e) = env::set_current_dir(&self.config.dir)
        {
            log::warn!("Can't go back to {}: {e}", self.config.dir.display());
        }
        moved
    }
}
