//! Clients that come and go.

use std::net::SocketAddr;

use super::{Client, Closing, token_of};
use crate::ae::event_loop::Token;
use crate::base::ids::ClientId;
use crate::base::limits::ACCEPTS_PER_TURN;
use crate::net::connection::Connection;
use crate::net::listener::{Accepted, Listener};
use crate::net::stream::Stream;
use crate::server::cron::ServerTimer;
use crate::server::network_access::PROTECTED;
use crate::server::{Server, bus, http};

/// The kind of tokens under which listeners for clients are registered; their slot is
/// their place in the list.
pub const LISTENER_TOKENS: u8 = 1;

/// How long a listener that found no file descriptor free waits for one, when nobody
/// gives one back.
const STARVED_MS: u64 = 100;
/// The log is told that clients are accepted again when this share of `maxclients`, in percent,
/// or less is here: who comes and goes at the limit is no news.
const CALM_PERCENT: usize = 95;

impl Server {
    pub(in crate::server) fn client(&self, id: ClientId) -> Option<&Client> {
        self.clients.find(id.slot, id.generation)
    }

    pub(in crate::server) fn client_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.find_mut(id.slot, id.generation)
    }

    /// Accepts who waits at a listener, up to a limit; then others have their turn.
    pub(in crate::server) fn accept_clients(&mut self, token: Token) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(token.slot as usize) else { return };
            match self.connection_of(token, listener.accept()) {
                Some((stream, peer)) => self.connect_client(stream, peer),
                None => return,
            }
        }
        self.event_loop.still_ready(token);
    }

    /// The connection that an attempt to accept brought. `None`: no more for now.
    pub(in crate::server) fn connection_of(
        &mut self,
        token: Token,
        accepted: Accepted,
    ) -> Option<(Stream, Option<SocketAddr>)> {
        match accepted {
            Accepted::Connection(stream, peer) => {
                self.is_starved = false;
                return Some((stream, peer));
            }
            Accepted::Nobody => self.is_starved = false,
            Accepted::Failed(error) => {
                log::debug!("Accepting a connection: {error}");
                self.event_loop.still_ready(token);
            }
            Accepted::Starved(error) => {
                if !self.is_starved {
                    log::warn!("Accepting a connection: {error}");
                }
                // Without this the loop would either never return to who waits, or, with the
                // listener always ready, never rest.
                self.is_starved = true;
                let again_at = self.clock.now.mono.plus_ms(STARVED_MS);
                self.timers.once(ServerTimer::AcceptAgain, again_at.0);
            }
        }
        None
    }

    /// Tries all listeners again, clients' and peers'.
    pub(in crate::server) fn accept_again(&mut self) {
        self.timers.cancel(ServerTimer::AcceptAgain);
        for token in self.listener_tokens() {
            self.event_loop.still_ready(token);
        }
    }

    fn connect_client(&mut self, mut stream: Stream, peer: Option<SocketAddr>) {
        if self.refuses_client(peer) {
            self.stats.counters.connections_rejected += 1;
            // As below.
            let _refused = stream.write(PROTECTED);
            return;
        }
        let (count, max) = (self.clients.len(), self.config.maxclients as usize);
        if count >= max {
            if !self.refuses_clients {
                log::info!("All {max} clients that maxclients allows are here: more are refused");
            }
            self.refuses_clients = true;
            self.stats.counters.connections_rejected += 1;
            // It may not be read, and that is all right.
            let _refused = stream.write(b"-ERR max number of clients reached\r\n");
            return;
        }
        if self.refuses_clients && count * 100 <= max * CALM_PERCENT {
            log::info!("{count} of {max} clients are here: more are accepted again");
            self.refuses_clients = false;
        }
        self.stats.counters.connections_received += 1;
        // What was not made takes no number, as it takes no generation: see `ClientId::number`.
        let (number, now) = (self.last_client_number + 1, self.clock.now.mono);
        let (keepalive_secs, event_loop) = (self.config.tcp_keepalive_secs, &self.event_loop);
        let unfinished = &self.unfinished;
        let connected = self.clients.insert_with(|slot, generation| {
            let id = ClientId { slot, generation };
            let token = token_of(id);
            let connection =
                Connection::register(stream, peer, keepalive_secs, unfinished, event_loop, token)?;
            Ok::<_, std::io::Error>(Client::new(id, number, connection, now))
        });
        self.last_client_number += u64::from(connected.is_ok());
        match (connected, peer) {
            (Ok(()), Some(peer)) => log::debug!("Accepted {peer}"),
            (Ok(()), None) => log::debug!("Accepted connection to {}", self.unix_path()),
            (Err(error), _) => log::debug!("A client went before it came: {error}"),
        }
    }

    /// Has a client closed at the end of the turn, or when its replies are sent. From now
    /// on it runs nothing; if it waits, its wait is over.
    pub(in crate::server) fn close_later(&mut self, id: ClientId, how: Closing) {
        let Some(client) = self.client_mut(id) else { return };
        let was_waiting = client.is_blocked || client.busy.is_some();
        client.is_blocked = false;
        client.busy = None;
        let is_listed = client.closing == Some(how);
        client.closing = Some(how);
        if !is_listed {
            self.closing.push(id);
        }
        if was_waiting {
            self.engine.client_gone(self.clock.now, id);
        }
    }

    /// Closes who is to be closed; at the end of a turn, after the replies went out.
    pub(in crate::server) fn close_ended(&mut self) {
        let mut closing = std::mem::take(&mut self.closing);
        for id in closing.drain(..) {
            let Some(client) = self.client(id) else { continue };
            let is_over =
                client.closing == Some(Closing::AfterTurn) || client.connection.unsent() == 0;
            if is_over {
                self.close(id);
            }
        }
        self.closing = closing;
    }

    fn close(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.remove(id.slot, id.generation) else { return };
        if let Err(error) = client.connection.deregister(&self.event_loop) {
            log::debug!("A client's socket could not be taken out of the loop: {error}");
        }
        if client.is_monitor {
            self.monitors.retain(|&monitor| monitor != id);
        }
        drop(client);
        if self.is_starved {
            self.accept_again();
        }
    }

    /// A client's address as everybody shows it.
    pub fn address_of(&self, client: &Client) -> String {
        match client.connection.peer() {
            Some(peer) => peer.to_string(),
            None => self.unix_address(),
        }
    }

    /// The address of clients of the unix socket.
    pub(in crate::server) fn unix_address(&self) -> String {
        // C: networking.c genClientPeerId, the path of the socket and port 0.
        format!("{}:0", self.unix_path())
    }

    pub(in crate::server) fn unix_path(&self) -> std::path::Display<'_> {
        self.config.unixsocket.as_deref().unwrap_or(std::path::Path::new("")).display()
    }

    fn listener_tokens(&self) -> impl Iterator<Item = Token> + use<> {
        let tokens = |kind: u8, listeners: &[Listener]| {
            let slots = 0..u32::try_from(listeners.len()).expect("there is a handful");
            slots.map(move |slot| Token { kind, slot, generation: 0 })
        };
        tokens(LISTENER_TOKENS, &self.listeners)
            .chain(tokens(bus::LISTENER_TOKENS, &self.bus_listeners))
            .chain(tokens(http::LISTENER_TOKENS, self.http.listeners()))
    }
}
