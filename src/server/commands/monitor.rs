//! MONITOR: shows the client every command from now on.

use crate::engine::command::{Call, Outcome};
use crate::server::Server;

/// MONITOR -> OK, then a line for each command that any client runs. A client that is
/// one already gets no reply at all.
pub fn monitor(server: &mut Server, call: &Call<'_>) -> Outcome {
    let is_new = server
        .client_mut(call.client)
        .is_some_and(|client| !std::mem::replace(&mut client.is_monitor, true));
    if is_new {
        server.monitors.push(call.client);
        server.reply(call).status("OK");
    }
    Outcome::Done
}
