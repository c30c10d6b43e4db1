//! A connection to one node: requests out, replies in, blocking.
//!
//! Every tool talks through a [`ServerConnection`] but the benchmark, which has many and
//! blocks on none; it opens them here too. A probe gives a time limit for connecting, for
//! each request and for each reply; a typed command gives none, since GETJOB may well wait
//! for ever.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::address::ServerAddress;
use super::failure::Failure;
use super::wait::{self, Readiness};
use crate::base::reason::reason;
use crate::proto::reply_reader::{ReplyReader, Value};
use crate::proto::request;

/// Silence after which the kernel asks whether the server is still there.
/// C: DISQUE_CLI_KEEPALIVE_INTERVAL.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time a probe waits for a connection and for each reply.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Requests sent before their replies are read, so that neither side's buffers fill up.
const PIPELINE_MAX: usize = 500;
/// Bytes read at once.
const READ_LEN: usize = 16 * 1024;

/// The arguments of AUTH: a password, or a user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login(pub Vec<Vec<u8>>);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

/// One open connection.
pub struct ServerConnection {
    socket: ServerSocket,
    reader: ReplyReader,
    /// Longest wait for sending a request, and for a reply. None: as long as it takes.
    timeout: Option<Duration>,
}

impl ServerConnection {
    /// Connects.
    pub fn connect(address: &ServerAddress, timeout: Option<Duration>) -> Result<Self, Failure> {
        let socket = ServerSocket::open(address, timeout)?;
        Ok(ServerConnection { socket, reader: ReplyReader::default(), timeout })
    }

    /// Connects and, given a login, logs in.
    pub fn open(
        address: &ServerAddress,
        login: Option<&Login>,
        timeout: Option<Duration>,
    ) -> Result<Self, Failure> {
        let mut connection = ServerConnection::connect(address, timeout)?;
        if let Some(login) = login {
            connection.log_in(login)?;
        }
        Ok(connection)
    }

    /// Logs in. Fails with `Login` when the server wants another password.
    ///
    /// A server without a password refuses any and serves all the same, so a refusal alone is
    /// no failure. C: disque-cli.c cliAuth, which ignores every refusal.
    pub fn log_in(&mut self, login: &Login) -> Result<(), Failure> {
        let mut request: Vec<&[u8]> = vec![b"AUTH"];
        request.extend(login.0.iter().map(Vec::as_slice));
        if let Value::Error(refusal) = self.call(&request)?
            && let Value::Error(text) = self.call(&["PING"])?
            && text.starts_with(b"NOAUTH")
        {
            return Err(Failure::Login(String::from_utf8_lossy(&refusal).into_owned()));
        }
        Ok(())
    }

    /// Sends a request and waits for its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Failure> {
        self.send(args)?;
        self.receive()
    }

    /// Sends many requests in pipelines and hands out each reply, with its request's index,
    /// as it comes.
    pub fn call_all<A: AsRef<[u8]>>(
        &mut self,
        requests: &[Vec<A>],
        mut take: impl FnMut(usize, Value),
    ) -> Result<(), Failure> {
        let mut index = 0;
        for batch in requests.chunks(PIPELINE_MAX) {
            let mut bytes = Vec::new();
            for args in batch {
                request::encode(args, &mut bytes);
            }
            self.socket.write_all(&bytes, self.deadline())?;
            for _ in batch {
                take(index, self.receive()?);
                index += 1;
            }
        }
        Ok(())
    }

    /// Sends a request without waiting for the reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        request::encode(args, &mut bytes);
        self.socket.write_all(&bytes, self.deadline())
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Result<Value, Failure> {
        let deadline = self.deadline();
        let mut buffer = [0; READ_LEN];
        loop {
            let buffered = self.reader.next_value();
            if let Some(value) = buffered.map_err(|error| Failure::Protocol(error.to_string()))? {
                return Ok(value);
            }
            match self.socket.read(&mut buffer, deadline)? {
                0 => return Err(Failure::Closed),
                len => self.reader.feed(buffer.get(..len).unwrap_or_default()),
            }
        }
    }

    /// Limits the time [`receive`](Self::receive) waits; it fails with `Silent` after that,
    /// and may be called again.
    pub fn limit_waiting(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// Gives the socket to who sends and reads in another way. No reply may be under way.
    pub fn into_socket(self) -> ServerSocket {
        self.socket
    }

    /// Returns a second handle on the same socket, for sending raw bytes from another thread.
    pub fn raw_writer(&self) -> Result<ServerSocket, Failure> {
        self.socket.0.try_clone().map(ServerSocket).map_err(Failure::Socket)
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| Instant::now() + timeout)
    }
}

/// A socket of either kind, on which every wait can be ended; see [`wait`].
#[derive(Debug)]
pub struct ServerSocket(Socket);

impl ServerSocket {
    /// Connects to the first address of the server that accepts; each gets the whole timeout.
    pub fn open(address: &ServerAddress, timeout: Option<Duration>) -> Result<Self, Failure> {
        let candidates: Vec<SockAddr> = match address {
            ServerAddress::Unix(path) => SockAddr::unix(path).into_iter().collect(),
            ServerAddress::Tcp { .. } => {
                address.resolve()?.into_iter().map(SockAddr::from).collect()
            }
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for candidate in candidates {
            match connect(&candidate, timeout) {
                Ok(socket) => return Ok(ServerSocket(socket)),
                Err(Failure::Socket(error)) => last = error,
                Err(Failure::Silent) => last = io::Error::from_raw_os_error(libc::ETIMEDOUT),
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Connect { address: address.to_string(), reason: reason(&last) })
    }

    /// Reads what is there, waiting for something. Nothing is the end of the stream.
    pub fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> Result<usize, Failure> {
        loop {
            match self.0.read(buffer) {
                Err(error) => self.outlast(error, Readiness::Readable, deadline)?,
                Ok(len) => return Ok(len),
            }
        }
    }

    /// Writes all bytes, waiting while the server takes none.
    pub fn write_all(
        &mut self,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Err(error) => self.outlast(error, Readiness::Writable, deadline)?,
                Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Waits when the socket was only not ready; any other error is a failure.
    fn outlast(
        &self,
        error: io::Error,
        readiness: Readiness,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock => wait::for_socket(&self.0, readiness, deadline),
            _ => Err(Failure::Socket(error)),
        }
    }

    /// Ends the connection in both directions, which wakes a reader in another thread.
    pub fn close(&self) {
        // The other side may have closed it first; either way it is closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Returns the socket itself, which does not block.
    pub fn into_inner(self) -> Socket {
        self.0
    }
}

fn connect(address: &SockAddr, timeout: Option<Duration>) -> Result<Socket, Failure> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let socket = Socket::new(address.domain(), Type::STREAM, None).map_err(Failure::Socket)?;
    let is_unix = address.domain() == Domain::UNIX;
    // A unix socket connects at once, or waits for its turn, which would not end in poll(2).
    socket.set_nonblocking(!is_unix).map_err(Failure::Socket)?;
    match socket.connect(address) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            wait::for_socket(&socket, Readiness::Writable, deadline)?;
            if let Some(error) = socket.take_error().map_err(Failure::Socket)? {
                return Err(Failure::Socket(error));
            }
        }
        connected => connected.map_err(Failure::Socket)?,
    }
    let prepared = if is_unix { socket.set_nonblocking(true) } else { keep_alive(&socket) };
    prepared.map_err(Failure::Socket)?;
    Ok(socket)
}

fn keep_alive(socket: &Socket) -> io::Result<()> {
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_nodelay(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_alive() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let socket = connect(&address.into(), None).expect("the listener accepts");
        assert!(socket.keepalive().expect("an open socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("an open socket"), KEEPALIVE);
    }

    #[test]
    fn requests_are_arrays_of_bulks() {
        let mut out = Vec::new();
        request::encode(&[b"PING".as_slice(), b"\r\n"], &mut out);
        assert_eq!(out, b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\n");
    }
}
