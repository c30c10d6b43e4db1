//! The proper end of the server: SHUTDOWN, SIGTERM, SIGINT, DEBUG RESTART.

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::engine::records::{Storage, Unwritten};

pub(super) static COMMANDS: &[ServerCommand] = &[row("shutdown", shutdown)];

/// Whether the append only file is rewritten before the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteFirst {
    No,
    Yes,
}

impl Server {
    /// Prepares the shutdown and has the loop stop after this turn. An
    /// error says why the server has to go on; nothing has changed then.
    pub fn shut_down(&mut self, rewrite: RewriteFirst) -> Result<(), String> {
        log::warn!("The server is going down");
        self.persist_for_shutdown(rewrite)?;
        if rewrite == RewriteFirst::No && self.persistence.storage() == Storage::Off {
            self.log_lost_jobs();
        }
        self.close_listeners();
        self.end();
        Ok(())
    }
}

impl Server {
    fn log_lost_jobs(&self) {
        let Unwritten { jobs, without_copy } = self.engine.count_unwritten();
        if jobs > 0 {
            log::warn!(
                "The append only file is off: {jobs} jobs end with this server, {without_copy} of \
                 them without a copy on another node"
            );
        }
    }
}

/// SHUTDOWN [REWRITE-AOF] -> no reply: connections close. An error when the server cannot
/// end now. With REWRITE-AOF the append only file is written anew first, even when it is
/// off otherwise; while it is being loaded the word is ignored.
fn shutdown(server: &mut Server, call: &Call<'_>) -> Outcome {
    let rewrite = match (call.args.get(1), call.args.len()) {
        (None, _) => RewriteFirst::No,
        (Some(word), 2) if word.eq_ignore_ascii_case(b"rewrite-aof") => RewriteFirst::Yes,
        _ => {
            server.reply(call).error(CommandError::Syntax.to_string());
            return Outcome::Done;
        }
    };
    if let Err(reason) = server.shut_down(rewrite) {
        log::warn!("Can't shut down: {reason}");
        server.reply(call).error("ERR Errors trying to SHUTDOWN. Check logs.");
    }
    Outcome::Done
}
