//! The proper end of the server: SHUTDOWN, SIGTERM, SIGINT, DEBUG RESTART.

use super::Server;

/// Whether the append only file is written anew before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    No,
    Yes,
}

impl Server {
    /// Puts everything in order for the end and has the loop stop after this turn. An
    /// error says why the server has to go on; nothing has changed then.
    pub fn shut_down(&mut self, rewrite: Rewrite) -> Result<(), String> {
        log::warn!("The server is going down");
        self.persist_for_end(rewrite)?;
        self.close_listeners();
        self.end();
        Ok(())
    }
}
