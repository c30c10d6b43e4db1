//! A connection of the HTTP port: what came in, what is to go out, and until when.

use std::io;

use super::HttpId;
use super::answer::{Body, HttpAnswer, PIECE_LEN, Parts};
use super::request::{self, HEADER_MAX, ParsedHttp};
use crate::ae::event_loop::{EventLoop, Token};
use crate::base::time::MonoMs;
use crate::engine::More;
use crate::net::output::Output;
use crate::net::stream::Stream;

/// A request has to be whole so long after its first byte, or after the connection was made.
const REQUEST_MS: u64 = 5000;
/// A connection may be idle for so long between two requests.
const IDLE_MS: u64 = 90_000;
/// A client that has not taken a byte of its answer for so long is dropped.
const STALL_MS: u64 = 10_000;
/// It has to have all of it after this.
const ANSWER_MS: u64 = 60_000;
/// What a client still sends behind a request that was refused is read for so long: closing at
/// once would have its system throw the answer away.
const LINGER_MS: u64 = 1000;
/// Nothing more of an answer is written while this much of it waits.
const UNSENT_MAX: usize = 4 * PIECE_LEN;
/// Bytes read in one go.
const READ_LEN: usize = 4096;
/// Reads in one go: of a client that goes on sending what nobody wants the rest is not read.
const READS_MAX: usize = 16;
const _: () = assert!(READ_LEN * READS_MAX > HEADER_MAX);

/// What became of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing can be done before something happens to its socket.
    Waits,
    HasMore,
    /// It is to be closed.
    Over,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpPhase {
    Reading,
    /// An answer is under way, in this form, and then the next request is read, or not.
    Answering {
        is_chunked: bool,
        keeps_alive: bool,
    },
    /// The answer is sent; what still comes is thrown away until then.
    Lingering {
        until: MonoMs,
    },
}

pub struct HttpConnection {
    pub id: HttpId,
    stream: Stream,
    input: Vec<u8>,
    output: Output,
    phase: HttpPhase,
    /// What is still to be written of a long answer.
    pub parts: Option<Box<dyn Parts>>,
    is_read_closed: bool,
    /// Whether it had an answer before.
    was_answered: bool,
    /// Whether the work list has it.
    pub is_listed: bool,
    /// Since when it has been in its phase, and when a byte went in or out.
    since: MonoMs,
    active_at: MonoMs,
}

impl HttpConnection {
    /// Takes an accepted socket into the loop.
    pub fn register(
        id: HttpId,
        mut stream: Stream,
        event_loop: &EventLoop,
        token: Token,
        now: MonoMs,
    ) -> io::Result<Self> {
        stream.set_options(0);
        event_loop.register(&mut stream, token)?;
        Ok(Self {
            id,
            stream,
            input: Vec::new(),
            output: Output::default(),
            phase: HttpPhase::Reading,
            parts: None,
            is_read_closed: false,
            was_answered: false,
            is_listed: false,
            since: now,
            active_at: now,
        })
    }

    /// Takes the socket out of the loop, before it is dropped.
    pub fn deregister(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        event_loop.deregister(&mut self.stream)
    }

    /// Sends what waits, now that the socket is writable.
    pub fn flush(&mut self, now: MonoMs) -> io::Result<()> {
        if self.output.flush(&mut self.stream)? > 0 {
            self.active_at = now;
        }
        Ok(())
    }

    /// Reads what is there, as far as a request may go. What is left in the socket is read once
    /// the request before it is answered.
    pub fn receive(&mut self, now: MonoMs) -> io::Result<()> {
        for _ in 0..READS_MAX {
            if self.input.len() >= HEADER_MAX {
                break;
            }
            let len_before = self.input.len();
            self.input.resize(len_before + READ_LEN, 0);
            let received = self.stream.read(&mut self.input[len_before..]);
            self.input.truncate(len_before + received.as_ref().map_or(0, |len| len.unwrap_or(0)));
            match received? {
                None => break,
                Some(0) => {
                    self.is_read_closed = true;
                    break;
                }
                Some(_) if matches!(self.phase, HttpPhase::Lingering { .. }) => self.input.clear(),
                Some(_) if len_before == 0 && self.phase == HttpPhase::Reading => {
                    self.since = now;
                    self.active_at = now;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the next request out of what came.
    pub fn next_request(&mut self) -> ParsedHttp {
        match request::parse(&self.input) {
            Ok(Some((request, len))) => {
                self.input.drain(..len);
                ParsedHttp::Request(request)
            }
            Ok(None) => ParsedHttp::Incomplete,
            Err(refusal) => {
                self.input.clear();
                ParsedHttp::Refused(refusal)
            }
        }
    }

    /// What becomes of a connection that has no whole request.
    pub fn progress_without_request(&self) -> Progress {
        if self.is_read_closed { Progress::Over } else { Progress::Waits }
    }

    /// Begins an answer: all of it, or its head.
    pub fn begin_answer(
        &mut self,
        answer: HttpAnswer,
        is_http_1_1: bool,
        keeps_alive: bool,
        now: MonoMs,
    ) -> io::Result<()> {
        let is_long = matches!(answer.body, Body::Parts(_));
        let is_chunked = is_long && is_http_1_1;
        let keeps_alive = keeps_alive && (is_chunked || !is_long);
        self.phase = HttpPhase::Answering { is_chunked, keeps_alive };
        (self.since, self.active_at) = (now, now);
        let head = answer.head(is_chunked, keeps_alive);
        match answer.body {
            Body::Whole(body) => self.send(&[&head, &body], now),
            Body::Unsent { .. } => self.send(&[&head], now),
            Body::Parts(parts) => {
                self.parts = Some(parts);
                self.send(&[&head], now)
            }
        }
    }

    /// Sends a piece of a long answer.
    pub fn send_piece(&mut self, piece: &[u8], more: More, now: MonoMs) -> io::Result<()> {
        let is_chunked = matches!(self.phase, HttpPhase::Answering { is_chunked: true, .. });
        if !is_chunked {
            return self.send(&[piece], now);
        }
        let length = format!("{:x}\r\n", piece.len());
        let end: &[u8] = if more == More::No { b"0\r\n\r\n" } else { b"" };
        match piece {
            [] => self.send(&[end], now),
            piece => self.send(&[length.as_bytes(), piece, b"\r\n", end], now),
        }
    }

    fn send(&mut self, parts: &[&[u8]], now: MonoMs) -> io::Result<()> {
        let parts = parts.iter().copied().filter(|part| !part.is_empty());
        if self.output.send(&mut self.stream, parts)? > 0 {
            self.active_at = now;
        }
        Ok(())
    }

    /// How many bytes wait for the client to read them.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Whether more may be written.
    pub fn takes_more(&self) -> bool {
        self.unsent() < UNSENT_MAX
    }

    /// The client has all of its answer, if there was one. Tells whether the connection is over;
    /// if not, it may have sent its next request.
    pub fn is_answered(&mut self, now: MonoMs) -> bool {
        match self.phase {
            HttpPhase::Answering { keeps_alive: true, .. } => {
                self.phase = HttpPhase::Reading;
                self.was_answered = true;
                (self.since, self.active_at) = (now, now);
                // There may be more in the socket than was read so far, and no event tells.
                self.receive(now).is_err()
            }
            HttpPhase::Answering { keeps_alive: false, .. } => {
                let is_over = self.is_read_closed || self.stream.shut_down_writes().is_err();
                self.phase = HttpPhase::Lingering { until: now.plus_ms(LINGER_MS) };
                self.input.clear();
                is_over || self.receive(now).is_err() || self.is_read_closed
            }
            HttpPhase::Lingering { .. } => self.is_read_closed,
            HttpPhase::Reading => false,
        }
    }

    /// Whether it may give way to another.
    pub fn is_without_request(&self) -> bool {
        !matches!(self.phase, HttpPhase::Answering { .. })
    }

    /// The first gives way first.
    pub fn order(&self) -> (MonoMs, u32) {
        (self.since, self.id.generation)
    }

    /// Whether the client has begun a request, and not ended it.
    pub fn has_begun_one(&self) -> bool {
        self.phase == HttpPhase::Reading && !self.input.is_empty()
    }

    /// Whether its time is over.
    pub fn is_late(&self, now: MonoMs) -> bool {
        let in_phase_ms = now.ms_since(self.since);
        match self.phase {
            HttpPhase::Reading if self.input.is_empty() => in_phase_ms > self.idle_max_ms(),
            HttpPhase::Reading => in_phase_ms > REQUEST_MS,
            HttpPhase::Answering { .. } => {
                in_phase_ms > ANSWER_MS || now.ms_since(self.active_at) > STALL_MS
            }
            HttpPhase::Lingering { until } => now >= until,
        }
    }

    /// One that never sent anything has less time.
    fn idle_max_ms(&self) -> u64 {
        if self.was_answered { IDLE_MS } else { REQUEST_MS }
    }
}
