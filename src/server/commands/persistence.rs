//! BGREWRITEAOF: the append only file written anew by hand.

use crate::engine::command::{Call, Outcome};
use crate::server::Server;

/// BGREWRITEAOF -> a status: the append only file is written anew while the server goes
/// on. An error when that is under way already. Works with the file off as well: the file
/// is there afterwards, and stays as it is.
pub fn bgrewriteaof(server: &mut Server, call: &Call<'_>) -> Outcome {
    if server.persistence.aof().is_rewriting() {
        server.reply(call).error("ERR Background append only file rewriting already in progress");
        return Outcome::Done;
    }
    match server.begin_rewrite() {
        Ok(()) => {
            server.reply(call).status("Background append only file rewriting started");
        }
        Err(e) => server.reply(call).error(format!("ERR Can't rewrite the AOF file: {e}")),
    }
    Outcome::Done
}
