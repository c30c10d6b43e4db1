//! A connected socket, TCP or unix, as the buffers see it: three calls, each of
//! which either moves bytes or says that it would wait.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

/// The longest time before the first probe that Linux takes. C: anet.c anetKeepAlive closes
/// the connection over a longer one.
const KEEPALIVE_SECS_MAX: u32 = 32_767;

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Reads what is there; `None` when that is nothing, 0 when the other side closed.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        retry(|| match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        })
    }

    /// Reads to the end of `bytes`, up to its capacity; otherwise as [`Stream::read`].
    pub fn read_spare(&mut self, bytes: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let spare = bytes.spare_capacity_mut();
        let received = retry(|| self.recv(spare))?;
        if let Some(len) = received {
            // SAFETY: the kernel has just written `len` bytes at the start of the
            // spare capacity, so the first `bytes.len() + len` bytes are initialised.
            unsafe { bytes.set_len(bytes.len() + len) };
        }
        Ok(received)
    }

    fn recv(&self, into: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_io(|| SockRef::from(stream).recv(into)),
            Self::Unix(stream) => stream.try_io(|| SockRef::from(stream).recv(into)),
        }
    }

    /// Writes what the socket takes; 0 when that is nothing.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = retry(|| match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        })?;
        Ok(written.unwrap_or(0))
    }

    /// Writes what the socket takes of all parts together; 0 when that is nothing.
    pub fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = retry(|| match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Unix(stream) => stream.write_vectored(parts),
        })?;
        Ok(written.unwrap_or(0))
    }

    /// Whether a connect that was begun has succeeded; an error when it failed.
    pub fn is_connected(&self) -> io::Result<bool> {
        let Self::Tcp(stream) = self else { return Ok(true) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// The address of this end.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        match self {
            Self::Tcp(stream) => Ok(stream.local_addr()?.ip()),
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Has the kernel send what is written at once, and notice a dead peer within
    /// about twice `keepalive_secs` (0: never; more than the system can count: the most it
    /// can). Means nothing to a unix socket.
    ///
    /// An option that the system refuses makes a connection slower, or its death go
    /// unnoticed, and is no reason to have none: nothing is reported.
    pub fn set_options(&self, keepalive_secs: u32) {
        let Self::Tcp(stream) = self else { return };
        let _sent_late_otherwise = stream.set_nodelay(true);
        if keepalive_secs > 0 {
            let secs = u64::from(keepalive_secs.min(KEEPALIVE_SECS_MAX));
            // C: anet.c anetKeepAlive: probes every third of the time, three of them.
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(secs))
                .with_interval(Duration::from_secs((secs / 3).max(1)))
                .with_retries(3);
            let _unnoticed_otherwise = SockRef::from(stream).set_tcp_keepalive(&keepalive);
        }
    }

    /// Sends no more: the other side reads to the end of what was sent.
    pub fn shut_down_writes(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Has the kernel discard, at the close, what it has not delivered yet. Otherwise it goes
    /// on trying after it. Means nothing to a unix socket.
    pub fn discard_at_close(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            Self::Unix(_) => Ok(()),
        }
    }
}

/// Runs a socket call until no signal interrupts it; `None` when it would wait.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(len) => return Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(to, token, interests),
            Self::Unix(stream) => stream.register(to, token, interests),
        }
    }

    fn reregister(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(to, token, interests),
            Self::Unix(stream) => stream.reregister(to, token, interests),
        }
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(from),
            Self::Unix(stream) => stream.deregister(from),
        }
    }
}
