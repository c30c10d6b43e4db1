//! Connections that speak HTTP or TLS to the port of clients: the log tells of them, for the
//! first may be an attack and the second is a setting that is wrong.
//!
//! A page in somebody's browser can send HTTP to any address that the browser reaches, with a
//! body that is commands. The parser finds out what it is before it comes to the body, and the
//! connection is closed as after any other protocol error.

use super::Server;
use super::log_limit::LogLimit;
use crate::base::ids::ClientId;
use crate::proto::request::RequestError;

/// What the log has told, by protocol.
#[derive(Default)]
pub struct OtherProtocols {
    http: LogLimit,
    tls: LogLimit,
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
