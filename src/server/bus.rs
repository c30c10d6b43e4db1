//! Links of the cluster bus: what the engine knows of them, and their bytes.
//!
//! The engine is notified of a link that it requested once it is up (or failed), of every
//! message, and of every link's end. It names links by [`LinkId`] and sends on none that
//! is gone: a frame for such a link goes nowhere.
//!
//! Whoever reaches the bus port can make links, so what they may take is limited: their
//! number, the time they may be silent, and what is kept of frames that are not whole. A link
//! on which a node of the cluster speaks stays before one on which nobody does.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::Server;
use super::lanes::empty;
use super::pipeline::SHARE_OF_TURN;
use crate::ae::event_loop::{FileEvent, Token};
use crate::base::ids::{LinkId, NodeId};
use crate::base::limits::{
    ACCEPTS_PER_TURN, LANES_DRAIN_AT, LINK_IDLE_MIN_MS, LINK_IDLE_NODE_TIMEOUTS, READ_PER_TURN,
    UNDECODABLE_IN_A_ROW_MAX,
};
use crate::base::time::MonoMs;
use crate::engine::cluster::LinkEnds;
use crate::engine::outbox::{ConnectToken, Frames};
use crate::net::input::{Input, Processed, Received};
use crate::net::link::{ConnectProgress, Framing, Link, next_frame};
use crate::net::listener::resolve;
use crate::proto::bus;
use crate::proto::reader::DecodeError;

/// The kind of tokens under which links' sockets are registered.
pub const LINK_TOKENS: u8 = 2;
/// The kind of tokens under which listeners for peers are registered.
pub const LISTENER_TOKENS: u8 = 3;

/// A link as the server keeps it.
pub struct BusLink {
    id: LinkId,
    link: Link,
    /// What the engine calls it until it is up.
    requested_as: Option<ConnectToken>,
    /// Messages in a row that could not be decoded.
    undecodable: u32,
    /// Whether a peer has made it.
    is_inbound: bool,
    /// Who spoke on it last, as it says.
    sender: Option<NodeId>,
    /// The sender of the frame under way, if the frame is larger than those of unknown nodes may
    /// be.
    large_frame_of: Option<NodeId>,
    /// When something came in last.
    active_at: MonoMs,
    is_read_closed: bool,
    is_still_ready: bool,
}

impl Server {
    /// Accepts links of peers.
    pub(super) fn accept_links(&mut self, token: Token) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.bus_listeners.get(token.slot as usize) else { return };
            match self.connection_of(token, listener.accept()) {
                Some((_, Some(peer))) if self.refuses_node(peer) => {}
                Some((stream, Some(peer))) => {
                    self.bound_inbound_links();
                    let (event_loop, now) = (&self.event_loop, self.clock.now.mono);
                    let unfinished = &self.unfinished;
                    let accepted = self.links.insert_with(|slot, generation| {
                        let id = LinkId { slot, generation };
                        let link =
                            Link::accepted(stream, peer, unfinished, event_loop, token_of(id))?;
                        Ok::<_, io::Error>(BusLink::new(id, link, None, now))
                    });
                    match accepted {
                        Ok(()) => log::debug!("Accepted cluster node {peer}"),
                        Err(error) => log::debug!("A cluster link broke at once: {error}"),
                    }
                }
                Some((_, None)) => {}
                None => return,
            }
        }
        self.event_loop.still_ready(token);
    }

    /// Begins to connect, as the engine requested.
    pub(super) fn connect_link(&mut self, token: ConnectToken, peer: SocketAddr) {
        let sources = &self.bus_sources;
        let (event_loop, now) = (&self.event_loop, self.clock.now.mono);
        let unfinished = &self.unfinished;
        let connecting = self.links.insert_with(|slot, generation| {
            let id = LinkId { slot, generation };
            let link = Link::connect(peer, sources, unfinished, event_loop, token_of(id))?;
            Ok::<_, io::Error>(BusLink::new(id, link, Some(token), now))
        });
        if let Err(error) = connecting {
            self.engine.link_failed(self.clock.now, token, &error);
        }
    }

    /// Gives up a connect that is still under way, as the engine requested.
    pub(super) fn cancel_connect(&mut self, token: ConnectToken) {
        let connecting = self.links.iter().find(|link| link.requested_as == Some(token));
        if let Some(id) = connecting.map(|link| link.id) {
            self.drop_link(id);
        }
    }

    /// Closes a link because the engine requested it.
    pub(super) fn drop_link(&mut self, id: LinkId) {
        let Some(mut gone) = self.links.remove(id.slot, id.generation) else { return };
        if let Err(error) = gone.link.deregister(&self.event_loop) {
            log::debug!("A link's socket could not be taken out of the loop: {error}");
        }
        drop(gone);
        if self.is_starved {
            self.accept_again();
        }
    }

    /// Makes place for one more link that a peer has made: the one that was silent for the
    /// longest goes, of those first on which no node of the cluster speaks. None is refused,
    /// since the new one may be a node's.
    fn bound_inbound_links(&mut self) {
        let max = self.inbound_links_max.max(2 * self.engine.cluster().size());
        if self.links.len() < max {
            return;
        }
        let inbound = || self.links.iter().filter(|link| link.is_inbound);
        if inbound().count() < max {
            return;
        }
        let last = inbound().min_by_key(|link| (self.is_nodes(link), link.active_at));
        if let Some((id, peer)) = last.map(|link| (link.id, link.link.peer())) {
            log::debug!("Closing the link from {peer}: there are {max} links from other nodes.");
            self.lose_link(id);
        }
    }

    /// Whether a node of the cluster speaks on a link, as far as it says.
    fn is_nodes(&self, link: &BusLink) -> bool {
        link.sender.is_some_and(|sender| self.is_other_node(&sender))
    }

    /// Whether an ID is that of a known node other than this one.
    fn is_other_node(&self, id: &NodeId) -> bool {
        let cluster = self.engine.cluster();
        id != cluster.my_id() && cluster.find(id).is_some()
    }

    /// Closes the links that peers have made and that nothing comes in on: a node pings all
    /// others within half its node timeout.
    pub(super) fn close_idle_links(&mut self) {
        let now = self.clock.now.mono;
        let idle_max_ms = self
            .config
            .cluster_node_timeout_ms
            .saturating_mul(LINK_IDLE_NODE_TIMEOUTS)
            .max(LINK_IDLE_MIN_MS);
        let is_idle =
            |link: &&BusLink| link.is_inbound && now.ms_since(link.active_at) > idle_max_ms;
        let idle: Vec<LinkId> = self.links.iter().filter(is_idle).map(|link| link.id).collect();
        for id in idle {
            if let Some(peer) = self.link_peer(id) {
                log::debug!("Closing the link from {peer}: nothing came for {idle_max_ms} ms.");
            }
            self.lose_link(id);
        }
    }

    /// The links that peers have made.
    pub(super) fn inbound_links(&self) -> impl Iterator<Item = LinkId> {
        self.links.iter().filter(|link| link.is_inbound).map(|link| link.id)
    }

    /// What came in on each link and is not processed yet.
    pub(super) fn link_inputs(&self) -> impl Iterator<Item = (LinkId, &Input)> {
        self.links.iter().map(|link| (link.id, &link.link.input))
    }

    /// How many bytes wait for a peer to read them.
    pub(super) fn link_unsent(&self, id: LinkId) -> usize {
        self.links.find(id.slot, id.generation).map_or(0, |link| link.link.unsent())
    }

    /// The other end of a link.
    pub(super) fn link_peer(&self, id: LinkId) -> Option<IpAddr> {
        self.links.find(id.slot, id.generation).map(|link| link.link.peer())
    }

    /// Closes a broken link and notifies the engine.
    pub(super) fn lose_link(&mut self, id: LinkId) {
        let Some(bus_link) = self.links.find(id.slot, id.generation) else { return };
        let requested_as = bus_link.requested_as;
        self.drop_link(id);
        match requested_as {
            Some(token) => self.engine.link_failed(self.clock.now, token, &"given up"),
            None => self.engine.link_down(self.clock.now, id),
        }
    }

    /// Something happened to a link's socket, or the loop came back to it.
    pub(super) fn handle_link_event(&mut self, id: LinkId, event: FileEvent) {
        let Some(bus_link) = self.links.find_mut(id.slot, id.generation) else { return };
        bus_link.is_still_ready &= !event.is_again;
        bus_link.is_read_closed |= event.read_closed;
        if event.writable || bus_link.requested_as.is_some() {
            let progress = bus_link.link.progress().and_then(|progress| {
                if progress == ConnectProgress::Up {
                    self.stats.counters.bus_output_bytes += bus_link.link.flush()? as u64;
                }
                Ok(progress)
            });
            match progress {
                Ok(ConnectProgress::Connecting) => return,
                Ok(ConnectProgress::Up) => {}
                Ok(ConnectProgress::CameUp) => {
                    if let Some(token) = bus_link.requested_as.take() {
                        self.engine.link_up(self.clock.now, id, token);
                    }
                }
                Err(error) => {
                    if let Some(token) = bus_link.requested_as {
                        self.drop_link(id);
                        self.engine.link_failed(self.clock.now, token, &error);
                    } else {
                        log::debug!("Link to cluster node {}: {error}", bus_link.link.peer());
                        self.lose_link(id);
                    }
                    return;
                }
            }
        }
        if event.readable && !self.is_to_be_read_again(id) {
            self.read_link(id);
        }
    }

    /// Whether a link has used up its share of this turn, or has it still to come.
    fn is_to_be_read_again(&self, id: LinkId) -> bool {
        self.links.find(id.slot, id.generation).is_some_and(|link| link.is_still_ready)
    }

    /// Reads a link and hands its messages to the engine, as far as its share of the turn goes.
    fn read_link(&mut self, id: LinkId) {
        let mut quota = READ_PER_TURN;
        let started_at = Instant::now();
        while let Some(bus_link) = self.links.find_mut(id.slot, id.generation) {
            let has_read = quota < READ_PER_TURN;
            if quota == 0 || has_read && started_at.elapsed() > SHARE_OF_TURN {
                bus_link.is_still_ready = true;
                return self.event_loop.still_ready(token_of(id));
            }
            let (len, has_more) = match bus_link.link.read(&mut self.read_buffer) {
                Ok(Received::Full(len)) => (len, true),
                Ok(Received::Short(len)) => (len, bus_link.is_read_closed),
                Ok(Received::Closed) | Err(_) => return self.lose_link(id),
            };
            if len > 0 {
                bus_link.active_at = self.clock.now.mono;
                self.stats.counters.bus_input_bytes += len as u64;
            }
            quota = quota.saturating_sub(len);
            if len > 0 && !self.take_messages(id) || len == 0 || !has_more {
                return;
            }
        }
    }

    /// Hands over the messages that are whole; tells whether the link is still there.
    fn take_messages(&mut self, id: LinkId) -> bool {
        let Some(bus_link) = self.links.find_mut(id.slot, id.generation) else { return false };
        let ends = LinkEnds { local: bus_link.link.local(), peer: bus_link.link.peer() };
        let taken = bus_link.link.input.take(&mut self.read_buffer);
        let mut undecodable = bus_link.undecodable;
        let mut consumed = 0;
        let mut large_frame_of = None;
        let mut last_sender = bus_link.sender;
        let missing = loop {
            let rest = &taken.bytes()[consumed..];
            let may_be_large = |sender| {
                large_frame_of = Some(sender);
                self.is_other_node(&sender)
            };
            match next_frame(rest, may_be_large) {
                Ok(Framing::Incomplete { missing }) => break Some(missing),
                Ok(Framing::Frame(len)) => {
                    consumed += len;
                    match bus::decode(&rest[..len]) {
                        Ok((header, message)) => {
                            undecodable = 0;
                            let now = self.clock.now;
                            last_sender = Some(header.sender);
                            self.engine.bus_message(now, id, ends, &header, &message);
                        }
                        // What later versions may send is no damage.
                        Err(error @ DecodeError::UnknownType(_)) => {
                            log::debug!("Message from {} ignored: {error}", ends.peer);
                        }
                        Err(error) if undecodable < UNDECODABLE_IN_A_ROW_MAX => {
                            undecodable += 1;
                            log::debug!("Message from {} ignored: {error}", ends.peer);
                        }
                        Err(error) => {
                            let peer = ends.peer;
                            log::warn!(
                                "Link from {peer} dropped: none of its last {undecodable} messages \
                                 could be decoded, the last one because of: {error}"
                            );
                            break None;
                        }
                    }
                }
                Err(error) => {
                    log::warn!("Link from {} dropped: {error}", ends.peer);
                    break None;
                }
            }
            if self.engine.out.len() > LANES_DRAIN_AT {
                self.drain();
            }
        };
        let link = self.links.find_mut(id.slot, id.generation);
        let (Some(bus_link), Some(missing)) = (link, missing) else {
            taken.discard(&mut self.read_buffer);
            if missing.is_none() {
                self.lose_link(id);
            }
            return false;
        };
        bus_link.undecodable = undecodable;
        bus_link.sender = last_sender;
        let was_large_frame_of = std::mem::replace(&mut bus_link.large_frame_of, large_frame_of);
        let processed = Processed { consumed, missing, parser_memory: 0 };
        bus_link.link.input.put_back(taken, processed, &mut self.read_buffer);
        if let Some(sender) = large_frame_of
            && was_large_frame_of != large_frame_of
        {
            self.close_other_large_frame(id, sender);
        }
        if missing > 0 {
            self.bound_unfinished();
        }
        self.links.find(id.slot, id.generation).is_some()
    }

    /// Closes the other link on which a large frame of the same node is under way. A node
    /// sends on one link; it has made a new one because the one before is broken.
    fn close_other_large_frame(&mut self, id: LinkId, sender: NodeId) {
        let is_other = |link: &&BusLink| link.id != id && link.large_frame_of == Some(sender);
        let other = self.links.iter().find(is_other).map(|link| link.id);
        if let Some(other) = other {
            log::debug!("Node {sender} sends a large frame on a new link: the other is closed.");
            self.lose_link(other);
        }
    }

    /// Hands each link its frames of the turn in one call.
    pub(super) fn send_frames(&mut self) {
        let Frames { mut bytes, mut sends } = std::mem::take(&mut self.engine.out.frames);
        // Frames to one link keep their order: that of their places.
        sends.sort_unstable_by_key(|(link, range)| (*link, range.start));
        let mut broken = Vec::new();
        for frames in sends.chunk_by(|(link, _), (next, _)| link == next) {
            let id = frames[0].0;
            let Some(bus_link) = self.links.find_mut(id.slot, id.generation) else { continue };
            let parts = frames.iter().map(|(_, range)| &bytes[range.clone()]);
            match bus_link.link.send(parts) {
                Ok(sent) => self.stats.counters.bus_output_bytes += sent as u64,
                Err(error) => {
                    log::debug!("Link to cluster node {}: {error}", bus_link.link.peer());
                    broken.push(id);
                }
            }
        }
        sends.clear();
        empty(&mut bytes);
        self.engine.out.frames = Frames { bytes, sends };
        for id in broken {
            self.lose_link(id);
        }
    }
}

impl BusLink {
    fn new(id: LinkId, link: Link, requested_as: Option<ConnectToken>, now: MonoMs) -> Self {
        Self {
            id,
            link,
            is_inbound: requested_as.is_none(),
            requested_as,
            undecodable: 0,
            sender: None,
            large_frame_of: None,
            active_at: now,
            is_read_closed: false,
            is_still_ready: false,
        }
    }
}

fn token_of(id: LinkId) -> Token {
    Token { kind: LINK_TOKENS, slot: id.slot, generation: id.generation }
}

/// The addresses links are made from: those of the `bind` directive, in its order. Peers take
/// the one that they see for this node's.
pub(super) fn source_addresses(bind: &[String]) -> Vec<IpAddr> {
    bind.iter().filter_map(|name| Some(resolve(name, 0).ok()?.ip())).collect()
}
