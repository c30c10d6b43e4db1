//! What the engine emitted goes out, in the one right order: what must survive a crash
//! is written to the append only file, and synced where appendfsync says so, before any peer or
//! client is sent what depends on it.
//!
//! The lanes are taken out, emptied and put back, so their memory is used again; one that
//! had to grow far for a single turn is given back.

use super::Server;
use super::client::Closing;
use crate::base::ids::ClientId;
use crate::base::limits::MONITOR_OUTPUT_MAX;
use crate::engine::outbox::{LinkRequest, Replies};
use crate::net::connection::OutputLimits;

/// An emptied lane keeps no more memory than this.
const LANE_KEPT_MAX: usize = 4 * 1024 * 1024;

impl Server {
    /// Empties all lanes but the resumed clients.
    pub(super) fn drain(&mut self) {
        self.persist();
        self.save_nodes();
        if !self.engine.out.frames.sends.is_empty() {
            self.send_frames();
        }
        for request in std::mem::take(&mut self.engine.out.links) {
            match request {
                LinkRequest::Connect { token, addr } => self.connect_link(token, addr),
                LinkRequest::Cancel(token) => self.cancel_connect(token),
                LinkRequest::Drop(link) => self.drop_link(link),
            }
        }
        if !self.engine.out.replies.segments.is_empty() {
            self.send_replies();
        }
    }

    /// Hands each client its replies in one call.
    fn send_replies(&mut self) {
        let Replies { mut bytes, mut segments, mut muted } =
            std::mem::take(&mut self.engine.out.replies);
        let mut replies = std::mem::take(&mut self.sorted_replies);
        let ends = segments.iter().skip(1).map(|segment| segment.start).chain([bytes.len()]);
        replies.extend(
            segments.iter().zip(ends).map(|(segment, end)| (segment.client, segment.start, end)),
        );
        // Nearly always each client has one segment; then this changes their order only.
        replies.sort_unstable();
        for parts in replies.chunk_by(|(client, ..), (next, ..)| client == next) {
            let client = parts[0].0;
            self.send_to_client(client, parts.iter().map(|&(_, start, end)| &bytes[start..end]));
        }
        replies.clear();
        segments.clear();
        empty(&mut bytes);
        empty(&mut muted);
        self.sorted_replies = replies;
        self.engine.out.replies = Replies { bytes, segments, muted };
    }

    fn send_to_client<'a>(&mut self, id: ClientId, parts: impl Iterator<Item = &'a [u8]>) {
        let limits = self.output_limits();
        let now = self.clock.now.mono;
        let Some(client) = self.client_mut(id) else { return };
        let sent = match client.connection.send(parts) {
            Ok(sent) => sent,
            Err(_) => return self.close_later(id, Closing::AfterTurn),
        };
        if sent > 0 {
            client.active_at = now;
        }
        let unsent = client.connection.unsent();
        let is_over = unsent > 0
            && (client.connection.exceeds(limits, now)
                || client.is_monitor && unsent > MONITOR_OUTPUT_MAX);
        self.stats.counters.net_output_bytes += sent as u64;
        if is_over {
            self.drop_unread(id);
        }
    }

    /// Closes a client that lets its replies pile up.
    pub(super) fn drop_unread(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            log::warn!(
                "Client {} scheduled to be closed ASAP for overcoming of output buffer limits.",
                self.address_of(client)
            );
        }
        self.close_later(id, Closing::AfterTurn);
    }

    pub(super) fn output_limits(&self) -> OutputLimits {
        let limit = self.config.client_output_buffer_limit;
        OutputLimits { hard: limit.hard_bytes, soft: limit.soft_bytes, soft_secs: limit.soft_secs }
    }
}

/// Empties a lane.
pub(super) fn empty(lane: &mut Vec<u8>) {
    lane.clear();
    if lane.capacity() > LANE_KEPT_MAX {
        *lane = Vec::new();
    }
}
