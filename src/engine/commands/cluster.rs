//! CLUSTER: membership, seen and changed by hand.

use crate::engine::Engine;
use crate::engine::command::{Call, CommandResult, Outcome};
use crate::engine::error::CommandError;
use crate::engine::options::is;

const WRONG: &str = "ERR Wrong CLUSTER subcommand or number of arguments";

/// CLUSTER subcommand [argument ...]
pub fn cluster(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let word = &call.args[1];
    if is(word, "myid") && call.args.len() == 2 {
        let id = *engine.cluster.my_id();
        engine.reply(call.client, call.resp).bulk(id.0);
        return Ok(Outcome::Done);
    }
    Err(CommandError::Other(WRONG.into()))
}
