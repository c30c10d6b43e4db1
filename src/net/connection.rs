//! The connection of one client: its socket, what came in and what could not go out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use super::input::{Input, ReadBuffer, Received, Unfinished};
use super::output::Output;
use super::stream::Stream;
use crate::ae::event_loop::{EventLoop, Token};
use crate::base::limits::UNSENT_OUTPUT_STOPS_READING;
use crate::base::time::MonoMs;

pub struct Connection {
    stream: Stream,
    /// `None` for a unix socket.
    peer: Option<SocketAddr>,
    pub input: Input,
    output: Output,
    /// Since when the soft output limit is exceeded; `NEVER` while it is not.
    over_soft_at: MonoMs,
}

/// How much output may wait for a client; 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Bytes that are never exceeded.
    pub hard: u64,
    /// Bytes that may be exceeded for `soft_secs` in a row.
    pub soft: u64,
    pub soft_secs: u64,
}

impl Connection {
    /// Takes an accepted socket into the loop; its input is counted in `unfinished`.
    pub fn register(
        mut stream: Stream,
        peer: Option<SocketAddr>,
        keepalive_secs: u32,
        unfinished: &Unfinished,
        event_loop: &EventLoop,
        token: Token,
    ) -> io::Result<Self> {
        stream.set_options(keepalive_secs);
        event_loop.register(&mut stream, token)?;
        Ok(Self {
            stream,
            peer,
            input: Input::of_client(unfinished),
            output: Output::default(),
            over_soft_at: MonoMs::NEVER,
        })
    }

    /// The other end, unless it is a unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Reads once; see [`Input::read`].
    pub fn read(&mut self, shared: &mut ReadBuffer) -> io::Result<Received> {
        self.input.read(&mut self.stream, shared)
    }

    /// Sends a turn's replies; returns how many bytes the socket took.
    pub fn send<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let sent = self.output.send(&mut self.stream, parts);
        self.forget_patience();
        sent
    }

    /// Sends what waits, now that the socket is writable; returns how many bytes it took.
    pub fn flush(&mut self) -> io::Result<usize> {
        let sent = self.output.flush(&mut self.stream);
        self.forget_patience();
        sent
    }

    /// A client that has read everything is as good as new.
    fn forget_patience(&mut self) {
        if self.output.is_empty() {
            self.over_soft_at = MonoMs::NEVER;
        }
    }

    /// The socket's descriptor, as CLIENT LIST shows it.
    pub fn fd(&self) -> RawFd {
        self.stream.fd()
    }

    /// How many bytes wait for the socket to take them.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// How much memory they take.
    pub fn output_capacity(&self) -> usize {
        self.output.capacity()
    }

    /// Whether so much waits that nothing more is read.
    pub fn stops_reading(&self) -> bool {
        self.unsent() > UNSENT_OUTPUT_STOPS_READING
    }

    /// Whether more waits than `limits` allow.
    pub fn exceeds(&mut self, limits: OutputLimits, now: MonoMs) -> bool {
        let unsent = self.unsent() as u64;
        let over = |limit: u64| limit != 0 && unsent >= limit;
        if !over(limits.soft) {
            self.over_soft_at = MonoMs::NEVER;
        } else if self.over_soft_at == MonoMs::NEVER {
            self.over_soft_at = now;
        }
        let patience_ms = limits.soft_secs.saturating_mul(1000);
        over(limits.hard) || now.ms_since(self.over_soft_at) > patience_ms
    }

    /// Takes the socket out of the loop, before it is dropped.
    pub fn deregister(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        event_loop.deregister(&mut self.stream)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_soft_limit_ends_a_client_only_when_exceeded_all_along() {
        let (_far, near) = UnixStream::pair().expect("a socket pair");
        near.set_nonblocking(true).expect("non-blocking");
        let stream = Stream::Unix(mio::net::UnixStream::from_std(near));
        let event_loop = EventLoop::new().expect("a selector");
        let token = Token { kind: 0, slot: 0, generation: 0 };
        let unfinished = Unfinished::default();
        let mut connection = Connection::register(stream, None, 0, &unfinished, &event_loop, token)
            .expect("register");
        let limits = OutputLimits { hard: 4_000_000, soft: 1_000_000, soft_secs: 2 };
        assert!(!connection.exceeds(limits, MonoMs(0)));
        let reply = vec![0; 2_000_000];
        let taken = connection.send([reply.as_slice()].into_iter()).expect("send");
        assert!(taken < 1_000_000 && connection.stops_reading());
        assert!(!connection.exceeds(limits, MonoMs(1000)));
        assert!(!connection.exceeds(limits, MonoMs(3000)));
        assert!(connection.exceeds(limits, MonoMs(3001)));
        let endless = OutputLimits { hard: 0, soft_secs: 1 << 61, ..limits };
        assert!(!connection.exceeds(endless, MonoMs(3001)), "so long is longer than this");
        let none = OutputLimits { hard: 0, soft: 0, soft_secs: 0 };
        assert!(!connection.exceeds(none, MonoMs(3001)));
        assert!(!connection.exceeds(limits, MonoMs(4000)), "the count starts again");
        connection.send([reply.as_slice(), &reply].into_iter()).expect("send");
        assert!(connection.exceeds(limits, MonoMs(4000)), "the hard limit has no patience");
    }
}
