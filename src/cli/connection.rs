//! A connection to one node: requests out, replies in, blocking.
//!
//! Every mode of the tool talks through a [`ServerConnection`]. Opening one logs in when a
//! password is known. A probe gives a time limit for connecting and for each reply; a typed
//! command gives none, since GETJOB may well wait for ever.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::failure::Failure;
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

/// Where a node listens for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads `HOST:PORT` or `[V6]:PORT`, as operators write nodes.
    pub fn parse(text: &str) -> Option<ServerAddress> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None => host,
        };
        if host.is_empty() {
            return None;
        }
        Some(ServerAddress::Tcp { host: host.to_string(), port: port.parse().ok()? })
    }

    /// Returns the address as the interactive prompt shows it.
    pub fn prompt(&self) -> String {
        match self {
            ServerAddress::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}> "),
            ServerAddress::Tcp { host, port } => format!("{host}:{port}> "),
            ServerAddress::Unix(path) => format!("disque {}> ", path.display()),
        }
    }

    /// Resolves the host, IPv4 first, as the C client tries them.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, Failure> {
        let ServerAddress::Tcp { host, port } = self else {
            return Ok(Vec::new());
        };
        let mut found: Vec<SocketAddr> = (host.as_str(), *port)
            .to_socket_addrs()
            .map_err(|error| self.unreachable(&error))?
            .collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        Failure::Connect { address: self.clone(), reason: reason(error) }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One open connection.
pub struct ServerConnection {
    stream: ServerSocket,
    reader: ReplyReader,
}

impl ServerConnection {
    /// Connects and, given a password, logs in.
    ///
    /// A refused password is told on standard error and not a failure: the commands that
    /// follow get their NOAUTH, and a server without a password serves them.
    /// C: disque-cli.c cliAuth, which says nothing.
    pub fn open(
        address: &ServerAddress,
        password: Option<&[u8]>,
        timeout: Option<Duration>,
    ) -> Result<ServerConnection, Failure> {
        let stream = ServerSocket::open(address, timeout)?;
        let mut connection = ServerConnection { stream, reader: ReplyReader::default() };
        if let Some(password) = password
            && let Value::Error(text) = connection.call(&[b"AUTH".as_slice(), password])?
        {
            eprintln!("AUTH failed: {}", String::from_utf8_lossy(&text));
        }
        Ok(connection)
    }

    /// Sends a request and waits for its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Failure> {
        self.send(args)?;
        self.receive()
    }

    /// Sends many requests in pipelines and returns their replies in order.
    pub fn call_all<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>]) -> Result<Vec<Value>, Failure> {
        let mut replies = Vec::with_capacity(requests.len());
        for batch in requests.chunks(PIPELINE_MAX) {
            let mut bytes = Vec::new();
            for args in batch {
                request::encode(args, &mut bytes);
            }
            self.stream.write_all(&bytes).map_err(Failure::Socket)?;
            for _ in batch {
                replies.push(self.receive()?);
            }
        }
        Ok(replies)
    }

    /// Sends a request without waiting.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        request::encode(args, &mut bytes);
        self.stream.write_all(&bytes).map_err(Failure::Socket)
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Result<Value, Failure> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(value) = self.buffered()? {
                return Ok(value);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(len) => self.reader.feed(&buffer[..len]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        return Err(Failure::Silent);
                    }
                    _ => return Err(Failure::Socket(error)),
                },
            }
        }
    }

    /// Returns a reply that has already arrived in full, if there is one.
    fn buffered(&mut self) -> Result<Option<Value>, Failure> {
        self.reader.next_value().map_err(|error| Failure::Protocol(error.to_string()))
    }

    /// Limits the time [`receive`](Self::receive) waits; it fails with `Silent` after that.
    pub fn limit_waiting(&self, timeout: Duration) -> Result<(), Failure> {
        self.stream.limit_reads(Some(timeout)).map_err(Failure::Socket)
    }

    /// Returns a second handle on the same socket, for sending raw bytes from another thread.
    pub fn raw_writer(&self) -> Result<ServerSocket, Failure> {
        self.stream.try_clone().map_err(Failure::Socket)
    }
}

/// Either kind of socket.
#[derive(Debug)]
pub enum ServerSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ServerSocket {
    fn open(address: &ServerAddress, timeout: Option<Duration>) -> Result<ServerSocket, Failure> {
        let stream = match address {
            ServerAddress::Unix(path) => UnixStream::connect(path).map(ServerSocket::Unix),
            ServerAddress::Tcp { .. } => {
                connect_any(&address.resolve()?, timeout).map(ServerSocket::Tcp)
            }
        };
        let stream = stream.map_err(|error| address.unreachable(&error))?;
        stream.limit_reads(timeout).map_err(Failure::Socket)?;
        Ok(stream)
    }

    fn limit_reads(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            ServerSocket::Tcp(stream) => stream.set_read_timeout(timeout),
            ServerSocket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn try_clone(&self) -> io::Result<ServerSocket> {
        match self {
            ServerSocket::Tcp(stream) => stream.try_clone().map(ServerSocket::Tcp),
            ServerSocket::Unix(stream) => stream.try_clone().map(ServerSocket::Unix),
        }
    }

    /// Ends the connection in both directions, which wakes a reader in another thread.
    pub fn close(&self) {
        // The other side may have closed it first; either way it is closed.
        let _ = match self {
            ServerSocket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            ServerSocket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Connects to the first address that accepts.
fn connect_any(addresses: &[SocketAddr], timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(address, timeout),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => {
                let keepalive = TcpKeepalive::new()
                    .with_time(KEEPALIVE)
                    .with_interval(KEEPALIVE / 3)
                    .with_retries(3);
                SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for ServerSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ServerSocket::Tcp(stream) => stream.read(buffer),
            ServerSocket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for ServerSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ServerSocket::Tcp(stream) => stream.write(bytes),
            ServerSocket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_operators_write_them() {
        let tcp = |host: &str, port| Some(ServerAddress::Tcp { host: host.to_string(), port });
        assert_eq!(ServerAddress::parse("db1:7711"), tcp("db1", 7711));
        assert_eq!(ServerAddress::parse("[::1]:7711"), tcp("::1", 7711));
        assert_eq!(ServerAddress::parse("::1:7711"), tcp("::1", 7711));
        assert_eq!(ServerAddress::parse("db1"), None);
        assert_eq!(ServerAddress::parse(":7711"), None);
        assert_eq!(ServerAddress::parse("db1:70000"), None);
    }

    #[test]
    fn prompts_name_the_server() {
        let tcp = |text| ServerAddress::parse(text).expect("an address").prompt();
        assert_eq!(tcp("127.0.0.1:7711"), "127.0.0.1:7711> ");
        assert_eq!(tcp("[::1]:7711"), "[::1]:7711> ");
        assert_eq!(ServerAddress::Unix("/run/d.sock".into()).prompt(), "disque /run/d.sock> ");
    }

    #[test]
    fn a_connection_is_kept_alive() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let stream = connect_any(&[address], None).expect("the listener accepts");
        let socket = SockRef::from(&stream);
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
