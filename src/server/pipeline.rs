//! From a client's bytes to commands.
//!
//! When the loop comes to a client, requests that were kept are executed first. Then its socket
//! is read and what comes is executed, until there is nothing to read, something holds the pipeline up (a blocking
//! command, too much unsent output, CLIENT PAUSE), or its share of the turn is used up.
//! In the last case the loop comes back to it after the others.
//!
//! A share is some bytes and some time, whatever the time goes into: commands, refusals,
//! reads, or arguments of a request that is not whole yet.
//!
//! Invariant: requests of one client are executed in order, one at a time, each after
//! the reply of the one before it is in the arena.

use std::time::{Duration, Instant};

use super::Server;
use super::client::{Busy, Client, Closing, token_of};
use super::command_names::is_owner;
use super::command_table::{Implementation, NamedCommand};
use super::gates::Gate;
use super::latency::LatencyEvent;
use super::{monitor, secrets};
use crate::ae::event_loop::FileEvent;
use crate::base::ids::ClientId;
use crate::base::limits::{BLOCKED_INPUT_MAX, LANES_DRAIN_AT, QUERY_BUFFER_MAX, READ_PER_TURN};
use crate::base::time::MonoMs;
use crate::engine::Engine;
use crate::engine::command::{Call, Outcome};
use crate::engine::outbox::Segment;
use crate::manual::Flags;
use crate::net::input::{Processed, Received, Taken};
use crate::proto::request::{self, Args, Parsed, Sender};

/// How long one client, or one link, is served before others have their turn.
pub(super) const SHARE_OF_TURN: Duration = Duration::from_millis(1);
/// Clients whose wait ended and whose pipelines go on in the same turn, as long as all of them
/// together take no longer than one share.
const RESUMED_PER_TURN: usize = 1000;
/// Ranges of arguments that stay allocated between requests.
const ARGS_KEPT_MAX: usize = 16 * 1024;
/// A producer that waits for copies and makes no progress for so long is read on past
/// [`BLOCKED_INPUT_MAX`], a little each time, to notice when it hangs up.
const READ_ON_AFTER_MS: u64 = 1000;
/// How far, in bytes. A peer that is gone has left no more than its system buffers, which is
/// up to 4 MiB on Linux.
const READ_ON_MAX: usize = 8 * 1024 * 1024;

/// How a client's input came to an end for now.
enum Halt {
    /// What is left is not a whole request; so many bytes are missing at least.
    Incomplete { missing: usize },
    /// Something holds the pipeline up.
    Held,
    /// Others have their turn.
    ShareUsed,
}

impl Server {
    /// Something happened to a client's socket, or the loop came back to it.
    pub(super) fn handle_client_event(&mut self, id: ClientId, event: FileEvent) {
        let Some(client) = self.client_mut(id) else { return };
        client.is_readable |= event.readable;
        client.is_read_closed |= event.read_closed;
        if event.writable && client.connection.unsent() > 0 && !self.flush_client(id) {
            return;
        }
        // One share in a turn: if it has used up this turn's, or has its share to come in this
        // turn, the loop comes back to it, whatever else happens to its socket.
        let Some(client) = self.client_mut(id) else { return };
        client.is_still_ready &= !event.is_again;
        if !client.is_still_ready {
            self.serve_client(id);
        }
    }

    /// Sends what waits for a client; tells whether it is still there.
    fn flush_client(&mut self, id: ClientId) -> bool {
        let Some(client) = self.client_mut(id) else { return false };
        let flushed = client.connection.flush();
        let is_done = client.connection.unsent() == 0 && client.closing.is_some();
        match flushed {
            Ok(sent) => self.stats.counters.net_output_bytes += sent as u64,
            Err(_) => self.close_later(id, Closing::AfterTurn),
        }
        if is_done {
            self.close_later(id, Closing::AfterTurn);
        }
        self.client(id).is_some_and(|client| client.closing.is_none())
    }

    /// Whether a request has to wait for the end of the pause: all do that cannot end it.
    fn has_to_wait(&self, input: &[u8]) -> bool {
        let named = self.commands.find_in(|at| request::argument(input, at));
        let name = named.map(|named| self.commands.manual(named.place).name);
        // `DISQUE` alone does not say which command it is going to be.
        let is_named = request::argument(input, 0)
            .is_some_and(|first| !is_owner(first) || request::argument(input, 1).is_some());
        is_named && !matches!(name, Some("client" | "auth" | "hello"))
    }

    /// Executes and reads as far as this client's share of the turn goes.
    pub(super) fn serve_client(&mut self, id: ClientId) {
        if self.is_paused() && self.client(id).is_some_and(|client| client.busy.is_some()) {
            return;
        }
        let mut quota = READ_PER_TURN;
        self.command_started_at = Instant::now();
        self.share_ends_at = self.command_started_at + SHARE_OF_TURN;
        if !self.run_kept(id) {
            return;
        }
        while let Some(client) = self.clients.find_mut(id.slot, id.generation) {
            if client.is_blocked && client.is_read_closed {
                // What is still to come cannot be for anybody.
                return self.close_later(id, Closing::AfterTurn);
            }
            let reads = match client.is_blocked {
                true => reads_on(client, &self.engine, self.clock.now.mono),
                false => client.reads(),
            };
            if !client.is_readable || !reads {
                return;
            }
            let has_read = quota < READ_PER_TURN;
            if quota == 0 || has_read && Instant::now() > self.share_ends_at {
                return self.come_back_to(id);
            }
            let received = match client.connection.read(&mut self.read_buffer) {
                Ok(received) => received,
                Err(_) => return self.close_later(id, Closing::AfterTurn),
            };
            let len = match received {
                // It sends no more, but may still read what it asked for before.
                Received::Closed => return self.close_later(id, Closing::AfterReply),
                Received::Short(len) => {
                    client.is_readable = client.is_read_closed;
                    len
                }
                Received::Full(len) => len,
            };
            if len == 0 {
                client.is_readable = false;
                return;
            }
            client.active_at = self.clock.now.mono;
            self.stats.counters.net_input_bytes += len as u64;
            quota = quota.saturating_sub(len);
            let taken = client.connection.input.take(&mut self.read_buffer);
            if !self.run_taken(id, taken) {
                return;
            }
        }
    }

    /// Executes what was kept; tells whether the client may go on in this turn.
    fn run_kept(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.find_mut(id.slot, id.generation) else { return false };
        if !client.runs() || !(client.is_pending || client.busy.is_some()) {
            return true;
        }
        let taken = client.connection.input.take(&mut self.read_buffer);
        self.run_taken(id, taken)
    }

    /// Executes the requests in `taken` and keeps the rest; tells whether the client may
    /// go on in this turn.
    fn run_taken(&mut self, id: ClientId, mut taken: Taken) -> bool {
        let mut consumed = 0;
        let stop = self.run_requests(id, taken.bytes_mut(), &mut consumed);
        let Some(client) = self.clients.find_mut(id.slot, id.generation) else {
            taken.discard(&mut self.read_buffer);
            return false;
        };
        let missing = match stop {
            Halt::Incomplete { missing } => missing,
            Halt::Held | Halt::ShareUsed => 0,
        };
        client.is_pending = !matches!(stop, Halt::Incomplete { .. });
        let processed = Processed { consumed, missing, parser_memory: client.parser.memory() };
        client.connection.input.put_back(taken, processed, &mut self.read_buffer);
        if client.connection.input.memory() > 0 {
            self.bound_unfinished();
        }
        if matches!(stop, Halt::ShareUsed) {
            self.come_back_to(id);
            return false;
        }
        true
    }

    fn run_requests(&mut self, id: ClientId, input: &mut [u8], consumed: &mut usize) -> Halt {
        if let Some(stop) = self.run_busy(id, input, consumed) {
            return stop;
        }
        let mut args = std::mem::take(&mut self.args);
        let stop = loop {
            if self.is_paused() && self.has_to_wait(&input[*consumed..]) {
                break Halt::Held;
            }
            let Some(client) = self.clients.find_mut(id.slot, id.generation) else {
                break Halt::Held;
            };
            if !client.runs() {
                break Halt::Held;
            }
            let rest = &mut input[*consumed..];
            // A client that has nothing left to execute needs no further turn.
            if !rest.is_empty() && self.command_started_at > self.share_ends_at {
                break Halt::ShareUsed;
            }
            let sender = match self.config.has_logins() && !client.is_logged_in(&self.config) {
                true => Sender::Unauthenticated,
                false => Sender::Authenticated,
            };
            match client.parser.parse(rest, &mut args, sender) {
                Ok(Parsed::Incomplete { missing }) => break Halt::Incomplete { missing },
                Ok(Parsed::Empty { consumed: len }) => {
                    *consumed += len;
                    self.command_started_at = Instant::now();
                }
                Ok(Parsed::Request { consumed: len }) => {
                    client.replies = client.replies.of_next_command();
                    let resp = client.reply_form();
                    let call = Call { client: id, resp, args: Args::new(rest, &args) };
                    match self.execute(&call) {
                        Ran::Done => *consumed += len,
                        Ran::Again(named) => {
                            let busy =
                                Busy { named, args: core::mem::take(&mut args), request_len: len };
                            if let Some(client) = self.client_mut(id) {
                                client.busy = Some(Box::new(busy));
                            }
                            break Halt::ShareUsed;
                        }
                    }
                }
                Err(error) => {
                    let mut reply = self.engine.out.replies.to(id, client.resp);
                    reply.error(format!("ERR {error}"));
                    *consumed = input.len();
                    self.report_other_protocol(id, error);
                    self.close_later(id, Closing::AfterReply);
                    break Halt::Held;
                }
            }
            if self.engine.out.len() > LANES_DRAIN_AT {
                self.drain();
                self.command_started_at = Instant::now();
            }
        };
        self.args = if args.capacity() > ARGS_KEPT_MAX { Vec::new() } else { args };
        stop
    }

    /// Goes on with a long command. `None` when there is none, or it is done.
    fn run_busy(&mut self, id: ClientId, input: &[u8], consumed: &mut usize) -> Option<Halt> {
        let client = self.client_mut(id)?;
        let busy = client.busy.take()?;
        let call =
            Call { client: id, resp: client.reply_form(), args: Args::new(input, &busy.args) };
        let outcome = self.call(busy.named, &call);
        if outcome == Outcome::Again {
            if let Some(client) = self.client_mut(id) {
                client.busy = Some(busy);
            }
            return Some(Halt::ShareUsed);
        }
        *consumed = busy.request_len;
        None
    }

    /// Checks a request and calls its command.
    fn execute(&mut self, call: &Call<'_>) -> Ran {
        let named = match self.admit(call) {
            Gate::Open(named) => named,
            Gate::Quit => {
                self.reply(call).status("OK");
                self.close_later(call.client, Closing::AfterReply);
                return Ran::Done;
            }
            Gate::Shut => {
                self.command_started_at = Instant::now();
                return Ran::Done;
            }
        };
        self.show_monitors(named, call);
        match self.call(named, call) {
            Outcome::Again => Ran::Again(named),
            Outcome::Done | Outcome::Blocked | Outcome::SaveNodes | Outcome::ShowPeers => Ran::Done,
        }
    }

    /// Calls a command and takes note of how long it held the server. `sent` is the request, the
    /// command gets what stands from its name on.
    fn call(&mut self, named: NamedCommand, sent: &Call<'_>) -> Outcome {
        let place = named.place;
        let call = &Call { args: sent.args.from(named.name_at), ..*sent };
        let row = self.commands.implementation(place);
        self.watchdog.runs(Some(self.commands.manual(place).name));
        let outcome = match row {
            Implementation::Engine(command) => self.engine.call(self.clock.now, command, call),
            Implementation::Server(command) => (command.run)(self, call),
        };
        self.watchdog.runs(None);
        if outcome == Outcome::SaveNodes {
            self.save_nodes_for(call);
        }
        if outcome == Outcome::ShowPeers {
            self.show_peers(call);
        }
        if outcome == Outcome::Blocked
            && let Some(client) = self.client_mut(call.client)
        {
            client.is_blocked = true;
        }
        if outcome != Outcome::Again {
            self.account_for_call(named, sent);
        }
        outcome
    }

    /// What is kept of a call: counts, the slow log, latency.
    fn account_for_call(&mut self, named: NamedCommand, sent: &Call<'_>) {
        let ended_at = Instant::now();
        let elapsed = ended_at.duration_since(self.command_started_at);
        let duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.command_started_at = ended_at;
        self.clock.catch_up(ended_at);
        self.stats.count_call(named.place, duration_us);
        let slower_than_us = self.config.slowlog_log_slower_than_us;
        let threshold_ms = self.config.latency_monitor_threshold_ms;
        let is_slow = u64::try_from(slower_than_us).is_ok_and(|limit_us| duration_us >= limit_us);
        if !is_slow && threshold_ms == 0 {
            return;
        }
        let spec = self.commands.manual(named.place);
        let at_unix_secs = self.clock.now.wall.secs();
        if is_slow {
            self.slowlog.note(
                secrets::hidden(spec.name, named.name_at, sent.args.iter()),
                duration_us,
                at_unix_secs,
                slower_than_us,
                self.config.slowlog_max_len,
            );
        }
        let is_fast = spec.flags.contains(Flags::FAST);
        let event = if is_fast { LatencyEvent::FastCommand } else { LatencyEvent::Command };
        self.latency.note(event, duration_us / 1000, at_unix_secs, threshold_ms);
    }

    /// Shows a command to those who watch, before it runs.
    fn show_monitors(&mut self, named: NamedCommand, sent: &Call<'_>) {
        if self.monitors.is_empty() {
            return;
        }
        let Some(client) = self.client(sent.client) else { return };
        let address = match client.connection.peer() {
            Some(peer) => peer.to_string(),
            None => format!("unix:{}", self.unix_path()),
        };
        let name = self.commands.manual(named.place).name;
        let arguments = secrets::hidden(name, named.name_at, sent.args.iter());
        let line = monitor::line(std::time::SystemTime::now(), &address, arguments);
        let replies = &mut self.engine.out.replies;
        for &id in &self.monitors {
            replies.segments.push(Segment { client: id, start: replies.bytes.len() });
            replies.bytes.extend_from_slice(&line);
        }
    }

    /// Has the loop come back to a client that is not done.
    pub(super) fn come_back_to(&mut self, id: ClientId) {
        let Some(client) = self.clients.find_mut(id.slot, id.generation) else { return };
        if !client.is_still_ready {
            client.is_still_ready = true;
            self.event_loop.still_ready(token_of(id));
        }
    }

    /// Lets the clients whose wait is over go on with their pipelines. They may wait, and
    /// be served, again and again: so often only, then the others have their turn.
    pub(super) fn run_resumed(&mut self) {
        if self.engine.out.resumed.is_empty() {
            return;
        }
        let started_at = Instant::now();
        let mut at = 0;
        while let Some(&id) = self.engine.out.resumed.get(at) {
            at += 1;
            let Some(client) = self.client_mut(id) else { continue };
            client.is_blocked = false;
            let elapsed = self.command_started_at.duration_since(started_at);
            if at <= RESUMED_PER_TURN && elapsed <= SHARE_OF_TURN {
                self.serve_client(id);
            } else {
                self.come_back_to(id);
            }
        }
        self.engine.out.resumed.clear();
    }
}

/// Whether a client that waits is read on, which is the only way to notice that it has hung
/// up: what it sent before has to be taken out of the socket first.
///
/// A consumer is read on whatever it sends, as in C, within the limits of all unfinished
/// input: a job for one that is gone would be lost until its retry. A producer's commands
/// may be any number of jobs, each with a short wait, so that it has to be slowed down.
fn reads_on(client: &Client, engine: &Engine, now: MonoMs) -> bool {
    let kept = client.connection.input.len();
    kept < BLOCKED_INPUT_MAX
        || kept < QUERY_BUFFER_MAX && engine.waits_for_jobs(client.id)
        || kept < READ_ON_MAX && now.ms_since(client.active_at) >= READ_ON_AFTER_MS
}

/// What became of a request.
enum Ran {
    Done,
    Again(NamedCommand),
}
