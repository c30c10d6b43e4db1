//! A bus link: one TCP connection between two nodes.
//!
//! A node makes a link to each other one and sends on it; links that come in from
//! others are read and answered. Both kinds are this type; which node is at the other
//! end is the engine's affair.
//!
//! The stream is cut into frames by [`next_frame`]; what is in them, net does not look at.
//! Nothing is lost singly: a peer that takes less than it is sent loses the whole
//! link at a limit, and whatever was on it. Nor does anything come late: what was on a link
//! that was given up never arrives after what is sent on the next one.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};

use super::input::{Input, ReadBuffer, Received, Unfinished};
use super::output::Output;
use super::stream::Stream;
use crate::ae::event_loop::{EventLoop, Token};
use crate::base::ids::NodeId;
use crate::base::limits::{BUS_FRAME_UNKNOWN_MAX, LINK_UNSENT_ANSWERS_MAX, LINK_UNSENT_MAX};
use crate::proto::bus;
use crate::proto::reader::DecodeError;

/// Where a frame's header names its sender.
const SENDER: std::ops::Range<usize> = 16..56;
/// Nobody writes on a link that came in and that its maker has silently given up: only this
/// way does it end.
const KEEPALIVE_SECS: u32 = 60;

pub struct Link {
    stream: Stream,
    local: IpAddr,
    peer: SocketAddr,
    state: State,
    pub input: Input,
    output: Output,
    /// Bytes that may wait in `output`.
    unsent_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Up,
}

/// The beginning of a link's unprocessed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A whole frame of this many bytes.
    Frame(usize),
    /// At least this many bytes are missing.
    Incomplete { missing: usize },
}

/// What became of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProgress {
    Connecting,
    /// The link has come up just now.
    CameUp,
    Up,
}

impl Link {
    /// Begins to connect to a peer's bus address, from the first of `sources` that can reach it,
    /// which those of the other address family cannot. Without any: from wherever the system
    /// likes. The outcome arrives with the socket's first writable event; an error names the
    /// last source that was tried.
    pub fn connect(
        peer: SocketAddr,
        sources: &[IpAddr],
        unfinished: &Unfinished,
        event_loop: &EventLoop,
        token: Token,
    ) -> io::Result<Self> {
        let socket = begin_connect(peer, sources)?;
        let stream = Stream::Tcp(TcpStream::from_std(socket.into()));
        let mut link =
            Self::register(stream, peer, State::Connecting, unfinished, event_loop, token)?;
        link.unsent_max = LINK_UNSENT_MAX;
        Ok(link)
    }

    /// Takes an accepted link into the loop.
    pub fn accepted(
        stream: Stream,
        peer: SocketAddr,
        unfinished: &Unfinished,
        event_loop: &EventLoop,
        token: Token,
    ) -> io::Result<Self> {
        Self::register(stream, peer, State::Up, unfinished, event_loop, token)
    }

    fn register(
        mut stream: Stream,
        peer: SocketAddr,
        state: State,
        unfinished: &Unfinished,
        event_loop: &EventLoop,
        token: Token,
    ) -> io::Result<Self> {
        stream.set_options(KEEPALIVE_SECS);
        event_loop.register(&mut stream, token)?;
        let mut link = Self {
            stream,
            local: IpAddr::from([0, 0, 0, 0]),
            peer,
            state,
            input: Input::of_link(unfinished),
            output: Output::default(),
            unsent_max: LINK_UNSENT_ANSWERS_MAX,
        };
        if state == State::Up {
            link.local = link.stream.local_ip()?;
        }
        Ok(link)
    }

    /// Asks how the connect went, at a writable event. An error: it failed.
    pub fn progress(&mut self) -> io::Result<ConnectProgress> {
        if self.state == State::Up {
            return Ok(ConnectProgress::Up);
        }
        if !self.stream.is_connected()? {
            return Ok(ConnectProgress::Connecting);
        }
        self.state = State::Up;
        self.local = self.stream.local_ip()?;
        Ok(ConnectProgress::CameUp)
    }

    /// This end's address; peers tell a node's address by it.
    pub fn local(&self) -> IpAddr {
        self.local.to_canonical()
    }

    /// The other end's address.
    pub fn peer(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Reads once; see [`Input::read`].
    pub fn read(&mut self, shared: &mut ReadBuffer) -> io::Result<Received> {
        self.input.read(&mut self.stream, shared)
    }

    /// Sends a turn's frames and returns how many bytes the socket took; an error when the link
    /// is broken or too far behind.
    pub fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let sent = self.output.send(&mut self.stream, frames)?;
        if self.output.len() > self.unsent_max {
            return Err(io::Error::other("the peer does not keep up"));
        }
        Ok(sent)
    }

    /// Sends what waits, now that the socket is writable; returns how many bytes it took.
    pub fn flush(&mut self) -> io::Result<usize> {
        self.output.flush(&mut self.stream)
    }

    /// How many bytes wait for the socket to take them.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Takes the socket out of the loop, before it is dropped.
    ///
    /// Differs from C, where the kernel goes on to deliver what was sent before the close. A
    /// job that packets were lost of would come after its acknowledgement, which took the
    /// next link, and be delivered again.
    pub fn deregister(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        self.stream.discard_at_close()?;
        event_loop.deregister(&mut self.stream)
    }
}

/// Tries the sources that may reach `peer`, in their order, until a connect has begun.
fn begin_connect(peer: SocketAddr, sources: &[IpAddr]) -> io::Result<Socket> {
    let may_reach = |source: &&IpAddr| source.is_ipv4() == peer.is_ipv4();
    let mut sources: Vec<IpAddr> = sources.iter().filter(may_reach).copied().collect();
    if sources.is_empty() {
        return begin_connect_from(None, peer);
    }
    // Linux refuses a connect from 127.0.0.1 to another machine, and lets one from ::1 time out.
    sources.sort_by_key(|source| source.is_loopback() && !peer.ip().is_loopback());
    let mut begun = Err(io::ErrorKind::AddrNotAvailable.into());
    for source in sources {
        begun = begin_connect_from(Some(source), peer)
            .map_err(|error| io::Error::new(error.kind(), format!("from {source}: {error}")));
        if begun.is_ok() {
            break;
        }
    }
    begun
}

fn begin_connect_from(source: Option<IpAddr>, peer: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(ip) = source {
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(ip, 0).into())?;
    }
    match socket.connect(&peer.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Returns how the next frame stands. Little is buffered for unknown nodes: a frame over
/// [`BUS_FRAME_UNKNOWN_MAX`] is only waited for when `is_known` vouches for its sender,
/// judging by the frame's header. An error means that the link has to go.
pub fn next_frame(
    bytes: &[u8],
    is_known: impl FnOnce(NodeId) -> bool,
) -> Result<Framing, DecodeError> {
    let Some(len) = bus::frame_len(bytes)? else {
        return Ok(Framing::Incomplete { missing: 1 });
    };
    if bytes.len() >= len {
        return Ok(Framing::Frame(len));
    }
    if len > BUS_FRAME_UNKNOWN_MAX {
        let Some(sender) = bytes.get(SENDER) else {
            return Ok(Framing::Incomplete { missing: 1 });
        };
        if !NodeId::parse(sender).is_some_and(is_known) {
            return Err(DecodeError::TooLong);
        }
    }
    Ok(Framing::Incomplete { missing: len - bytes.len() })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    const TOKEN: Token = Token { kind: 0, slot: 0, generation: 0 };

    /// Turns the loop until the connect is decided.
    fn outcome(peer: SocketAddr, sources: &[IpAddr]) -> io::Result<Link> {
        let mut event_loop = EventLoop::new()?;
        let mut link = Link::connect(peer, sources, &Unfinished::default(), &event_loop, TOKEN)?;
        let mut events = Vec::new();
        while link.progress()? == ConnectProgress::Connecting {
            event_loop.poll(None, &mut events)?;
        }
        Ok(link)
    }

    #[test]
    fn a_link_comes_up_from_the_source_it_was_given() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let peer = listener.local_addr().expect("an address");
        let source = IpAddr::from([127, 0, 0, 2]);
        let mut link = outcome(peer, &[source]).expect("connected");
        assert_eq!((link.local(), link.peer()), (source, peer.ip()));
        assert_eq!(link.progress().expect("still up"), ConnectProgress::Up);
    }

    #[test]
    fn a_link_comes_from_the_first_source_that_can_reach_its_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let peer = listener.local_addr().expect("an address");
        // Of the other family, of no machine (RFC 5737), and two that will do.
        let sources = ["::1", "203.0.113.1", "127.0.0.3", "127.0.0.2"];
        let sources = sources.map(|ip| ip.parse().expect("an address"));
        let link = outcome(peer, &sources).expect("connected");
        assert_eq!(link.local(), sources[2]);
        let link = outcome(peer, &sources[..1]).expect("connected");
        assert_eq!(link.local(), peer.ip(), "as the system likes");
    }

    #[test]
    fn a_loopback_source_is_the_last_for_another_machine_and_the_error_names_it() {
        let peer = SocketAddr::from(([203, 0, 113, 1], 9));
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let error = outcome(peer, &[loopback]).err().expect("it cannot reach it");
        assert!(error.to_string().starts_with("from 127.0.0.1: "), "{error}");
        let of_nobody = IpAddr::from([203, 0, 113, 2]);
        let error = outcome(peer, &[loopback, of_nobody]).err().expect("neither can");
        assert!(error.to_string().starts_with("from 127.0.0.1: "), "{error}");
    }

    #[test]
    fn a_refused_connect_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let peer = listener.local_addr().expect("an address");
        drop(listener);
        let error = outcome(peer, &[]).err().expect("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn what_is_on_a_link_that_is_given_up_is_not_delivered_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let peer = listener.local_addr().expect("an address");
        let event_loop = EventLoop::new().expect("a loop");
        let mut link = Link::connect(peer, &[], &Unfinished::default(), &event_loop, TOKEN)
            .expect("connecting");
        let (mut accepted, _) = listener.accept().expect("connected");
        link.deregister(&event_loop).expect("it is in the loop");
        drop(link);
        // The kernel that discards says so to the peer: a reset instead of an end.
        let error = accepted.read(&mut [0]).expect_err("the link was given up");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    fn frame_start(total_len: u32, sent: usize) -> Vec<u8> {
        let mut bytes =
            [b"DbuZ".as_slice(), &total_len.to_be_bytes(), &[0; 8], &[b'a'; 40]].concat();
        bytes.resize(sent, 0);
        bytes
    }

    #[test]
    fn only_a_known_sender_may_send_a_big_frame() {
        let big = frame_start(1_000_000, 100);
        assert_eq!(next_frame(&big, |_| false), Err(DecodeError::TooLong));
        assert_eq!(next_frame(&big, |_| true), Ok(Framing::Incomplete { missing: 999_900 }));
        assert_eq!(next_frame(&big[..55], |_| true), Ok(Framing::Incomplete { missing: 1 }));
        let small = frame_start(2000, 100);
        assert_eq!(next_frame(&small, |_| false), Ok(Framing::Incomplete { missing: 1900 }));
        let whole = frame_start(144, 300);
        assert_eq!(next_frame(&whole, |_| false), Ok(Framing::Frame(144)));
        assert_eq!(next_frame(b"DbuZ", |_| true), Ok(Framing::Incomplete { missing: 1 }));
        assert_eq!(next_frame(b"GET / HTTP/1.1", |_| true), Err(DecodeError::BadSignature));
    }
}
