//! MONITOR: every command as a line, for the clients that asked to watch.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Server;
use super::server_command::{ServerCommand, row};
use crate::engine::command::{Call, Outcome};
use crate::proto::quoting;

pub(super) static COMMANDS: &[ServerCommand] = &[row("monitor", monitor)];

/// The line of a command, as a simple string on the wire:
/// `seconds.micros [address] "argument" "argument" ...`.
pub fn line<'a>(
    at: SystemTime,
    address: &str,
    arguments: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (secs, micros) = (since_epoch.as_secs(), since_epoch.subsec_micros());
    let mut line = format!("+{secs}.{micros:06} [{address}]").into_bytes();
    for argument in arguments {
        line.push(b' ');
        quoting::append_quoted(&mut line, argument);
    }
    line.extend(b"\r\n");
    line
}

/// MONITOR -> OK, then a line for each command that any client runs. A client that is
/// one already gets no reply at all.
fn monitor(server: &mut Server, call: &Call<'_>) -> Outcome {
    let is_new = server
        .client_mut(call.client)
        .is_some_and(|client| !std::mem::replace(&mut client.is_monitor, true));
    if is_new {
        server.monitors.push(call.client);
        server.reply(call).status("OK");
    }
    Outcome::Done
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_the_time_the_client_and_the_quoted_arguments() {
        let at = UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_042);
        let arguments: [&[u8]; 3] = [b"addjob", b"a \"q\"", b"\r\n\xff"];
        assert_eq!(
            String::from_utf8(line(at, "127.0.0.1:5000", arguments.into_iter())),
            Ok("+1700000000.000042 [127.0.0.1:5000] \"addjob\" \"a \\\"q\\\"\" \"\\r\\n\\xff\"\r\n"
                .to_owned())
        );
    }
}
