//! How much clients and links may have sent of requests and frames that are not processed
//! yet, all together.
//!
//! One connection's part is limited by what one request or frame may be. That is a lot, since
//! a job may be large, and there may be many connections: so the sum is limited too, and
//! over the limit whoever holds most goes first. Who sends little is never affected, however
//! many others send much.

use super::Server;
use super::client::Closing;
use crate::base::ids::{ClientId, LinkId};
use crate::base::limits::{UNFINISHED_MAX, UNFINISHED_SHARE_OF_MAXMEMORY};
use crate::base::memory;

/// Who holds unfinished input.
enum InputHolder {
    Client(ClientId),
    Link(LinkId),
}

impl Server {
    /// Closes who holds most, one after the other, until the sum is within its limit.
    pub(super) fn bound_unfinished(&mut self) {
        while self.unfinished.bytes() > self.unfinished_max() {
            let Some((held, holder)) = self.largest_holder() else { return };
            let (sum, max) = (self.unfinished.bytes(), self.unfinished_max());
            let who = match holder {
                InputHolder::Client(id) => self.client(id).map(|client| self.address_of(client)),
                InputHolder::Link(id) => self.link_peer(id).map(|peer| format!("node {peer}")),
            };
            log::warn!(
                "Closing the connection of {}: of the {sum} bytes of requests that are not whole \
                 yet, which may take {max} bytes, it holds most, {held} bytes.",
                who.unwrap_or_default()
            );
            match holder {
                InputHolder::Client(id) => {
                    if let Some(client) = self.client_mut(id) {
                        client.connection.input.discard();
                    }
                    self.close_later(id, Closing::AfterTurn);
                }
                InputHolder::Link(id) => self.lose_link(id),
            }
        }
    }

    /// The limit of the sum, in bytes: what everything else leaves of `maxmemory`, an eighth of
    /// it at least.
    fn unfinished_max(&self) -> usize {
        let maxmemory = usize::try_from(self.config.maxmemory).unwrap_or(usize::MAX);
        if maxmemory == 0 {
            return UNFINISHED_MAX;
        }
        let others = memory::used().saturating_sub(self.unfinished.bytes());
        maxmemory.saturating_sub(others).max(maxmemory / UNFINISHED_SHARE_OF_MAXMEMORY)
    }

    fn largest_holder(&self) -> Option<(usize, InputHolder)> {
        let clients = self
            .clients
            .iter()
            .map(|client| (client.connection.input.memory(), InputHolder::Client(client.id)));
        let links = self.link_inputs().map(|(id, input)| (input.memory(), InputHolder::Link(id)));
        let holders = clients.chain(links).filter(|&(held, _)| held > 0);
        holders.max_by_key(|&(held, _)| held)
    }
}
