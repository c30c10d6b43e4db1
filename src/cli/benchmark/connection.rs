//! One connection to a server: bytes in, bytes out, and which replies are still to come.
//!
//! A batch costs one write and one read: requests pile up in the output buffer until
//! [`BenchmarkConnection::flush`], and the replies of one read are taken one after the other with
//! [`BenchmarkConnection::next_reply`]. The socket's readiness is edge-triggered, so reading goes
//! on until a short read, and unsent output waits for the writable event.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::Interest;
use mio::net::TcpStream;
use socket2::Socket;

use super::RunFailure;
use super::options::AckCommand;
use super::peer::{BenchmarkPeer, HeldJob, ReplyKind, ReplyOutcome};
use super::reply::Stop;
use super::request::{AckReplies, Marks, Requests};
use crate::cli::connection::{Login, ServerConnection};
use crate::cli::failure::Failure;

/// Free space of a first read, in bytes. A buffer doubles when a read fills it, so that
/// ten thousand connections with short replies do not touch 64 KiB each: that made a
/// timeout look 400 ms late.
const READ_ROOM: usize = 4 * 1024;

/// Replies of one kind that are still to come for requests sent at the same time.
#[derive(Clone, Copy, Debug)]
struct Expected {
    kind: ReplyKind,
    replies: u32,
    sent_at: u64,
}

/// A reply together with what was known about its request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub kind: ReplyKind,
    pub outcome: ReplyOutcome,
    /// When the request was sent, or was due; see `Clock`.
    pub sent_at: u64,
    /// How many jobs it left in `held`.
    pub fetched: usize,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    Closed,
}

/// A client of a server.
pub struct BenchmarkConnection {
    stream: TcpStream,
    server: SocketAddr,
    /// Filled up to `filled`, read up to `taken`.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    output: Vec<u8>,
    written: usize,
    expected: VecDeque<Expected>,
    /// Fetched jobs; those before `acked` are acknowledged.
    held: Vec<HeldJob>,
    acked: usize,
    /// The first error reply.
    refusal: Option<String>,
    queues: QueueWalk,
    client: u32,
}

/// Visits every queue once a round, in scattered order.
#[derive(Clone, Copy, Debug)]
struct QueueWalk {
    at: u32,
    stride: u32,
    queues: u32,
}

impl QueueWalk {
    /// Starts at `part` of `parts` of a round.
    fn new(queues: u32, part: usize, parts: usize) -> Self {
        // Near the golden ratio neighbours in time are far apart in number.
        let mut stride = (u64::from(queues) * 618 / 1000) as u32;
        stride = stride.max(1);
        while gcd(stride, queues) != 1 {
            stride += 1;
        }
        let turns = u64::from(queues) * part as u64 / parts.max(1) as u64;
        let at = (turns * u64::from(stride) % u64::from(queues)) as u32;
        Self { at, stride, queues }
    }

    fn next(&mut self) -> u32 {
        let queue = self.at;
        self.at = ((u64::from(self.at) + u64::from(self.stride)) % u64::from(self.queues)) as u32;
        queue
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl BenchmarkConnection {
    /// Connects, says hello and waits for the answer, so that the server has accepted
    /// the connection before the load begins.
    pub fn open(
        server: SocketAddr,
        login: Option<&Login>,
        client: usize,
        clients: usize,
        queues: u32,
        requests: &Requests,
    ) -> Result<Self, RunFailure> {
        let stream = greet(server, login, &requests.hello).map_err(RunFailure::Greeting)?;
        Ok(Self {
            stream: TcpStream::from_std(stream.into()),
            server,
            input: Vec::new(),
            taken: 0,
            filled: 0,
            output: Vec::new(),
            written: 0,
            expected: VecDeque::new(),
            held: Vec::new(),
            acked: 0,
            refusal: None,
            queues: QueueWalk::new(queues, client, clients),
            client: u32::try_from(client).unwrap_or_default(),
        })
    }

    /// Has `poll` report this connection under `token`.
    pub fn register(&mut self, poll: &mio::Poll, token: mio::Token) -> Result<(), RunFailure> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut self.stream, token, interest)
            .map_err(|error| RunFailure::Socket(self.server, error))
    }

    /// Appends one request to what the next flush sends.
    pub fn add(&mut self, requests: &Requests, stamp: u64, sent_at: u64) {
        let marks = Marks { queue: self.queues.next(), stamp, client: self.client };
        requests.add.write(&marks, &mut self.output);
        self.expect(ReplyKind::Add, 1, sent_at);
    }

    /// Appends a fetch of what is there.
    pub fn fetch(&mut self, requests: &Requests, sent_at: u64) {
        let marks = Marks { queue: self.queues.next(), stamp: 0, client: self.client };
        requests.fetch.write(&marks, &mut self.output);
        self.expect(ReplyKind::Fetch, 1, sent_at);
    }

    /// Appends a fetch that waits for a job; always from the same queue, so that
    /// consumers that share the queues out between them leave none unwatched.
    pub fn fetch_or_wait(&mut self, requests: &Requests, sent_at: u64) {
        let queue = self.client % self.queues.queues;
        let marks = Marks { queue, stamp: 0, client: self.client };
        requests.fetch_or_wait.write(&marks, &mut self.output);
        self.expect(ReplyKind::Await, 1, sent_at);
    }

    /// Appends a fetch from an empty queue that gives up after a time.
    pub fn wait(&mut self, requests: &Requests, sent_at: u64) {
        requests.wait.write(&Marks::default(), &mut self.output);
        self.expect(ReplyKind::Await, 1, sent_at);
    }

    /// Appends one acknowledgement of the next `count` held jobs.
    pub fn acknowledge(
        &mut self,
        requests: &Requests,
        command: AckCommand,
        count: usize,
        sent_at: u64,
    ) {
        let upto = self.held.len().min(self.acked + count);
        let jobs = &self.held[self.acked..upto];
        let AckReplies { counted, aside } = requests.acknowledge(command, jobs, &mut self.output);
        self.acked = upto;
        if self.acked == self.held.len() {
            self.held.clear();
            self.acked = 0;
        }
        self.expect(ReplyKind::Ack, counted, sent_at);
        self.expect(ReplyKind::Aside, aside, sent_at);
    }

    /// How many fetched jobs wait for their acknowledgement.
    pub fn unacked(&self) -> usize {
        self.held.len() - self.acked
    }

    /// The `count` jobs fetched last.
    pub fn fetched_last(&self, count: usize) -> &[HeldJob] {
        &self.held[self.held.len().saturating_sub(count)..]
    }

    /// Puts the held jobs in an order that has nothing to do with their age.
    pub fn shuffle_held(&mut self) {
        let mut walk =
            QueueWalk::new(u32::try_from(self.held.len()).unwrap_or(u32::MAX).max(1), 0, 1);
        for index in 0..self.held.len() {
            self.held.swap(index, walk.next() as usize);
        }
    }

    /// Hands out the first error reply, once.
    pub fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    fn expect(&mut self, kind: ReplyKind, replies: u32, sent_at: u64) {
        if replies == 0 {
            return;
        }
        match self.expected.back_mut() {
            Some(last) if last.kind == kind && last.sent_at == sent_at => last.replies += replies,
            _ => self.expected.push_back(Expected { kind, replies, sent_at }),
        }
    }

    /// Whether every request was answered.
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether nothing but a waiting fetch is unanswered.
    pub fn is_settled(&self) -> bool {
        self.expected.iter().all(|expected| expected.kind == ReplyKind::Await)
    }

    /// Sends what the socket takes; the rest goes with the next writable event.
    pub fn flush(&mut self) -> Result<(), RunFailure> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RunFailure::Socket(self.server, error)),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads what has arrived.
    pub fn fill(&mut self) -> Result<(), RunFailure> {
        let outcome = self.read().map_err(|error| RunFailure::Socket(self.server, error))?;
        match outcome {
            Ending::Closed if self.taken == self.filled => Err(RunFailure::Closed(self.server)),
            _ => Ok(()),
        }
    }

    fn read(&mut self) -> io::Result<Ending> {
        if self.taken > 0 {
            self.input.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        loop {
            if self.filled == self.input.len() {
                self.input.resize((self.filled * 2).max(READ_ROOM), 0);
            }
            let offered = self.input.len() - self.filled;
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Ok(Ending::Closed),
                Ok(received) => {
                    self.filled += received;
                    if received < offered {
                        return Ok(Ending::Open);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Ending::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the next whole reply; `None` means that more bytes are needed.
    pub fn next_reply(&mut self, peer: BenchmarkPeer) -> Result<Option<Answer>, RunFailure> {
        if self.taken == self.filled {
            return Ok(None);
        }
        let bytes = &self.input[self.taken..self.filled];
        let nonsense = |bytes: &[u8]| {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            RunFailure::Nonsense(self.server, start.into_owned())
        };
        let Some(expected) = self.expected.front_mut() else { return Err(nonsense(bytes)) };
        let held_before = self.held.len();
        match peer.read_reply(expected.kind, bytes, &mut self.held) {
            Ok(reply) => {
                if reply.outcome == ReplyOutcome::Refused && self.refusal.is_none() {
                    let text = String::from_utf8_lossy(&bytes[..reply.len]);
                    self.refusal = Some(text.trim_end().to_owned());
                }
                self.taken += reply.len;
                let Expected { kind, sent_at, .. } = *expected;
                expected.replies -= 1;
                if expected.replies == 0 {
                    self.expected.pop_front();
                }
                let fetched = self.held.len() - held_before;
                Ok(Some(Answer { kind, outcome: reply.outcome, sent_at, fetched }))
            }
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Malformed) => Err(nonsense(bytes)),
        }
    }
}

/// Connects and logs in as every tool does, sends `hello` and reads its replies, one line each.
pub fn greet(
    server: SocketAddr,
    login: Option<&Login>,
    hello: &(Vec<u8>, usize),
) -> Result<Socket, Failure> {
    let mut socket = ServerConnection::open(&server.into(), login, None)?.into_socket();
    socket.write_all(&hello.0, None)?;
    let mut lines = 0;
    let mut bytes = [0; 256];
    while lines < hello.1 {
        let received = match socket.read(&mut bytes, None)? {
            0 => return Err(Failure::Closed),
            received => bytes.get(..received).unwrap_or_default(),
        };
        lines += received.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(socket.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_every_queue_once_a_round() {
        for queues in [1, 2, 10, 97, 1000] {
            let mut walk = QueueWalk::new(queues, 0, 1);
            let mut seen: Vec<u32> = (0..queues).map(|_| walk.next()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..queues).collect::<Vec<_>>());
        }
    }

    #[test]
    fn connections_share_a_round_between_them() {
        let visits = |part| {
            let mut walk = QueueWalk::new(100, part, 4);
            (0..25).map(|_| walk.next()).collect::<Vec<_>>()
        };
        let mut seen: Vec<u32> = (0..4).flat_map(visits).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
