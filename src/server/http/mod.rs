//! The HTTP port: numbers, health and a page for operators, on the server's own loop.
//!
//! It is off unless `http-port` is set, and then nothing of it stands in the way of clients.
//! Whatever a request asks for is written by one work list that has a slice of each turn,
//! [`SLICE`], however many requests there are and however much they ask for. Nothing here
//! changes a job, a queue or a node: answers are written from a `&Server`.
//!
//! ```text
//!   connect           a whole request        all is written       the client has it
//!  ---------> reading ----------------> writing ----------> sending ---------------> reading
//!                |                        |                    |                   or gone
//!                '---- too late, too much, broken: an answer that says so, and gone
//! ```
//!
//! All that a client may take is bounded: connections, bytes of a request, the time to send it,
//! the time to read the answer, and how much of an answer waits. When all connections are
//! taken, the one that has been without a request for the longest gives way, so that a thousand
//! half-open ones keep no scraper out.
//!
//! | module | what it is about |
//! |---|---|
//! | [`connection`] | a connection: its bytes, and its times |
//! | [`request`], [`answer`] | HTTP/1.1 in, and out |
//! | `routes` | what there is, and who may ask for it |
//! | `health` | `/livez`, `/readyz`, and all that is not well, in sentences |
//! | [`metrics`] | `/metrics`, in both formats of Prometheus |
//! | `api`, `queues` | `/api/...`, in JSON; the walk over all queues |
//! | `page.html` | `/` |

pub mod answer;
mod api;
pub mod connection;
mod health;
mod json;
pub mod metrics;
mod queues;
pub mod request;
mod routes;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Server;
use super::cron::ServerTimer;
use crate::ae::event_loop::{EventLoop, FileEvent, Token};
use crate::base::time::MonoMs;
use crate::engine::More;
use crate::net::listener::{ListenError, Listener};
use crate::net::slots::Slots;
use answer::HttpAnswer;
use connection::{HttpConnection, Progress};
use metrics::LastScrape;
use request::{ParsedHttp, Refusal};

/// The kind of tokens under which connections are registered.
pub const CONNECTION_TOKENS: u8 = 6;
/// The kind of tokens under which listeners are registered.
pub const LISTENER_TOKENS: u8 = 7;
/// The kind of the token under which the loop comes back to the work list.
pub const WORK_TOKENS: u8 = 8;
const WORK: Token = Token { kind: WORK_TOKENS, slot: 0, generation: 0 };

/// Most connections at once.
pub const CONNECTIONS_MAX: usize = 64;
/// Connections accepted in one turn. Few, so that a request which follows at once is read
/// before many others can crowd its connection out.
const HTTP_ACCEPTS_PER_TURN: usize = 8;
/// How long answers are written in one turn.
const SLICE: Duration = Duration::from_micros(500);
/// Times are looked at this often, in ms.
pub const VISIT_PERIOD_MS: u64 = 1000;

/// A connection's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpId {
    pub slot: u32,
    pub generation: u32,
}

impl HttpId {
    fn token(self) -> Token {
        Token { kind: CONNECTION_TOKENS, slot: self.slot, generation: self.generation }
    }
}

/// The HTTP port's part of the server.
#[derive(Default)]
pub struct Http {
    listeners: Vec<Listener>,
    connections: Slots<HttpConnection>,
    /// Connections with something to do, each once; the first has the next turn.
    work: VecDeque<HttpId>,
    /// Whether the loop was told to come back to them.
    is_work_announced: bool,
    /// The listeners, as bits, that the loop comes back to by itself: at most 16.
    coming_back: u32,
    /// Answers by their status.
    answers: BTreeMap<u16, u64>,
    last_scrape: RefCell<LastScrape>,
}

impl Http {
    /// Listens, if there is a port to listen on.
    pub fn bind(addresses: &[String], port: u16, backlog: u32) -> Result<Self, ListenError> {
        let listeners = match port {
            0 => Vec::new(),
            port => Listener::bind_all(addresses, port, backlog)?,
        };
        Ok(Self { listeners, ..Self::default() })
    }

    /// Whether there is an HTTP port.
    pub fn is_on(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) fn listeners_mut(&mut self) -> &mut Vec<Listener> {
        &mut self.listeners
    }

    pub(super) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    fn connection_mut(&mut self, id: HttpId) -> Option<&mut HttpConnection> {
        self.connections.find_mut(id.slot, id.generation)
    }

    /// Has the work list come to a connection.
    fn enlist(&mut self, event_loop: &mut EventLoop, id: HttpId) {
        let Some(connection) = self.connection_mut(id) else { return };
        if !std::mem::replace(&mut connection.is_listed, true) {
            self.work.push_back(id);
        }
        self.announce_work(event_loop);
    }

    fn announce_work(&mut self, event_loop: &mut EventLoop) {
        if !self.work.is_empty() && !std::mem::replace(&mut self.is_work_announced, true) {
            event_loop.still_ready(WORK);
        }
    }

    fn close(&mut self, event_loop: &EventLoop, id: HttpId) {
        let Some(mut gone) = self.connections.remove(id.slot, id.generation) else { return };
        if let Err(error) = gone.deregister(event_loop) {
            log::debug!("An HTTP socket could not be taken out of the loop: {error}");
        }
    }

    /// Makes place for one more connection; tells whether there is some.
    fn make_room(&mut self, event_loop: &EventLoop) -> bool {
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let waiting = self.connections.iter().filter(|connection| connection.is_without_request());
        match waiting.min_by_key(|connection| connection.order()).map(|connection| connection.id) {
            Some(id) => {
                self.close(event_loop, id);
                true
            }
            None => false,
        }
    }
}

impl Server {
    /// Begins to count what only this port shows. At start, before there are jobs.
    pub(super) fn start_http(&mut self) {
        if self.http.is_on() {
            self.engine.count_waits();
            self.stats.count_durations();
            let now_ms = self.clock.now.mono.0;
            self.timers.every(ServerTimer::Http, VISIT_PERIOD_MS, now_ms);
        }
    }

    /// Accepts who waits at a listener of the HTTP port.
    pub(super) fn accept_http(&mut self, event: FileEvent) {
        let token = event.token;
        let listener_bit = 1 << token.slot;
        if event.is_again {
            self.http.coming_back &= !listener_bit;
        } else if self.http.coming_back & listener_bit != 0 {
            return;
        }
        for _ in 0..HTTP_ACCEPTS_PER_TURN {
            let Some(listener) = self.http.listeners.get(token.slot as usize) else { return };
            let Some((mut stream, _)) = self.connection_of(token, listener.accept()) else {
                return;
            };
            if !self.http.make_room(&self.event_loop) {
                // It may not be read, and that is all right.
                let _refused = stream.write(answer::BUSY);
                continue;
            }
            let (event_loop, now) = (&self.event_loop, self.clock.now.mono);
            let accepted = self.http.connections.insert_with(|slot, generation| {
                let id = HttpId { slot, generation };
                HttpConnection::register(id, stream, event_loop, id.token(), now)
            });
            if let Err(error) = accepted {
                log::debug!("An HTTP connection broke at once: {error}");
            }
        }
        self.http.coming_back |= listener_bit;
        self.event_loop.still_ready(token);
    }

    /// Something happened to a connection's socket.
    pub(super) fn handle_http_event(&mut self, id: HttpId, event: FileEvent) {
        let now = self.clock.now.mono;
        let Some(connection) = self.http.connection_mut(id) else { return };
        let done = match event.writable {
            true => connection.flush(now),
            false => Ok(()),
        };
        let done = done.and_then(|()| match event.readable {
            true => connection.receive(now),
            false => Ok(()),
        });
        match done {
            Ok(()) => self.http.enlist(&mut self.event_loop, id),
            Err(_) => self.http.close(&self.event_loop, id),
        }
    }

    /// Goes on with the answers, for [`SLICE`].
    pub(super) fn run_http(&mut self) {
        self.http.is_work_announced = false;
        let until = Instant::now() + SLICE;
        while let Some(id) = self.http.work.pop_front() {
            let progress = self.advance_http(id, until);
            match (progress, self.http.connection_mut(id)) {
                (Progress::Over, _) => self.http.close(&self.event_loop, id),
                (_, None) => {}
                (Progress::Waits, Some(connection)) => connection.is_listed = false,
                (Progress::HasMore, Some(_)) => self.http.work.push_back(id),
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.http.announce_work(&mut self.event_loop);
    }

    /// Goes on with one connection, until it has to wait or the time is over.
    fn advance_http(&mut self, id: HttpId, until: Instant) -> Progress {
        let now = self.clock.now.mono;
        let Some(connection) = self.http.connection_mut(id) else { return Progress::Over };
        if !connection.takes_more() {
            return Progress::Waits;
        }
        if let Some(parts) = connection.parts.take() {
            return self.write_parts(id, parts, until);
        }
        if connection.unsent() > 0 {
            return Progress::Waits;
        }
        if connection.is_answered(now) {
            return Progress::Over;
        }
        let answer = match connection.next_request() {
            ParsedHttp::Incomplete => return connection.progress_without_request(),
            ParsedHttp::Request(request) => {
                let answer = routes::answer(self, &request);
                let answer = if request.is_head { answer.without_body() } else { answer };
                self.begin_answer(id, answer, request.is_http_1_1, request.keeps_alive)
            }
            ParsedHttp::Refused(refusal) => {
                self.begin_answer(id, HttpAnswer::refusal(refusal), true, false)
            }
        };
        match answer {
            Ok(()) => Progress::HasMore,
            Err(_) => Progress::Over,
        }
    }

    fn begin_answer(
        &mut self,
        id: HttpId,
        answer: HttpAnswer,
        is_http_1_1: bool,
        keeps_alive: bool,
    ) -> std::io::Result<()> {
        let now = self.clock.now.mono;
        *self.http.answers.entry(answer.status).or_default() += 1;
        let Some(connection) = self.http.connection_mut(id) else { return Ok(()) };
        connection.begin_answer(answer, is_http_1_1, keeps_alive, now)
    }

    /// Writes the next parts of a long answer.
    fn write_parts(
        &mut self,
        id: HttpId,
        mut parts: Box<dyn answer::Parts>,
        until: Instant,
    ) -> Progress {
        let mut bytes = Vec::new();
        let mut more = More::Yes;
        while more == More::Yes && bytes.len() < answer::PIECE_LEN && Instant::now() < until {
            more = parts.write_some(self, &mut bytes);
        }
        let now = self.clock.now.mono;
        let Some(connection) = self.http.connection_mut(id) else { return Progress::Over };
        if more == More::Yes {
            connection.parts = Some(parts);
        }
        match connection.send_piece(&bytes, more, now) {
            Ok(()) => Progress::HasMore,
            Err(_) => Progress::Over,
        }
    }

    /// Closes the connections whose time is over.
    pub(super) fn visit_http(&mut self) {
        let now = self.clock.now.mono;
        let late: Vec<HttpId> = self
            .http
            .connections
            .iter()
            .filter(|connection| connection.is_late(now))
            .map(|connection| connection.id)
            .collect();
        for id in late {
            let is_slow_request = self.http.connection_mut(id).is_some_and(|it| it.has_begun_one());
            if is_slow_request {
                // It may not be read, and that is all right.
                let refused = HttpAnswer::refusal(Refusal::TooSlow);
                let _sent = self.begin_answer(id, refused, true, false);
            }
            self.http.close(&self.event_loop, id);
        }
    }

    /// How long ago the server started, in ms.
    fn uptime_ms(&self, now: MonoMs) -> u64 {
        now.ms_since(self.started_at)
    }
}
