//! Connections that speak HTTP or TLS to the port of clients: the log tells of them, for the
//! first may be an attack and the second is a setting that is wrong.
//!
//! A page in somebody's browser can send HTTP to any address that the browser reaches, with a
//! body that is commands. The parser finds out what it is before it comes to the body, and the
//! connection is closed as after any other protocol error.

use super::Server;
use crate::base::ids::ClientId;
use crate::base::time::MonoMs;
use crate::proto::request::RequestError;

/// There is a line for each protocol at most this often.
const LINE_PERIOD_MS: u64 = 60_000;

/// When the log told of a protocol last, and of how many connections it has not told since.
#[derive(Default)]
pub struct Told {
    at: Option<MonoMs>,
    untold: u64,
}

/// What the log has told, by protocol.
#[derive(Default)]
pub struct OtherProtocols {
    http: Told,
    tls: Told,
}

impl Told {
    /// How many came since the last line, this one included; `None` if it is too early for the
    /// next.
    fn count(&mut self, now: MonoMs) -> Option<u64> {
        self.untold += 1;
        if self.at.is_some_and(|at| now.ms_since(at) < LINE_PERIOD_MS) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

impl Server {
    /// Logs that a client speaks another protocol, if the error says so.
    pub(super) fn report_other_protocol(&mut self, id: ClientId, error: RequestError) {
        let (told, sentence) = match error {
            RequestError::Http => (
                &mut self.other_protocols.http,
                "sends HTTP, which may be an attack by a page in a browser. Nothing of it was \
                 executed",
            ),
            RequestError::Tls => (
                &mut self.other_protocols.tls,
                "begins with TLS, which this port does not speak. Its client has to connect \
                 without",
            ),
            _ => return,
        };
        let Some(count) = told.count(self.clock.now.mono) else { return };
        let Some(client) = self.client(id) else { return };
        let address = self.address_of(client);
        match count - 1 {
            0 => log::warn!("Closing the connection of {address}: it {sentence}."),
            more => log::warn!(
                "Closing the connection of {address}: it {sentence}. There were {more} more \
                 like it since the last such line."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_a_minute_and_the_next_one_counts() {
        let mut told = Told::default();
        let lines = [0, 1, 59_999, 60_000, 60_001, 200_000].map(|ms| told.count(MonoMs(5 + ms)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
