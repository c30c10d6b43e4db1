//! Listening sockets: TCP on IPv4 and IPv6, and a unix socket.
//!
//! A listener that ran out of file descriptors is *starved*: the waiting connection
//! causes no further event, and trying again at once would spin. It is asked again
//! when a descriptor was given back, or after a while; the loop does both.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::stream::Stream;
use crate::ae::event_loop::{EventLoop, Token};

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What an attempt to accept found.
pub enum Accepted {
    /// A connection, and its other end unless it came through a unix socket.
    Connection(Stream, Option<SocketAddr>),
    /// Nobody waits.
    Nobody,
    /// A client waits, but there is no file descriptor or memory for it.
    Starved(io::Error),
    /// That one connection failed before it was accepted; the next may not.
    Failed(io::Error),
}

/// An address that could not be listened on.
#[derive(Debug)]
pub struct ListenError {
    pub address: String,
    pub error: io::Error,
}

impl Listener {
    /// Listens on `port` of every name or address of `bind`. With none: on every address
    /// of the machine, IPv6 and IPv4 each with its own socket, of which one has to work.
    pub fn bind_all(bind: &[String], port: u16, backlog: u32) -> Result<Vec<Self>, ListenError> {
        if bind.is_empty() {
            let any = [
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            ];
            let (mut listeners, mut unsupported) = (Vec::new(), None);
            for address in any {
                match Self::bind(address, backlog) {
                    Ok(listener) => listeners.push(listener),
                    // A machine may speak only one of the two.
                    Err(error) if is_unsupported(&error) => unsupported = Some(error),
                    Err(error) => return Err(ListenError { address: format!("*:{port}"), error }),
                }
            }
            return match unsupported {
                Some(error) if listeners.is_empty() => {
                    Err(ListenError { address: format!("*:{port}"), error })
                }
                _ => Ok(listeners),
            };
        }
        let named = |name: &String| {
            resolve(name, port)
                .and_then(|address| Self::bind(address, backlog))
                .map_err(|error| ListenError { address: format!("{name}:{port}"), error })
        };
        bind.iter().map(named).collect()
    }

    fn bind(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // A restart must not wait for the connections of the process before it.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into())))
    }

    /// Listens on a unix socket, in place of a stale one of that name, with
    /// `permissions` unless they are 0.
    pub fn bind_unix(path: &Path, permissions: u32, backlog: u32) -> Result<Self, ListenError> {
        let listen = || {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&SockAddr::unix(path)?)?;
            socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
            if permissions != 0 {
                fs::set_permissions(path, fs::Permissions::from_mode(permissions))?;
            }
            Ok(Self::Unix(UnixListener::from_std(socket.into())))
        };
        listen().map_err(|error| ListenError { address: path.display().to_string(), error })
    }

    pub fn register(&mut self, event_loop: &EventLoop, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => event_loop.register_readable(listener, token),
            Self::Unix(listener) => event_loop.register_readable(listener, token),
        }
    }

    pub fn accept(&self) -> Accepted {
        let accepted = match self {
            Self::Tcp(listener) => {
                listener.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer)))
            }
            Self::Unix(listener) => {
                listener.accept().map(|(stream, _)| (Stream::Unix(stream), None))
            }
        };
        match accepted {
            Ok((stream, peer)) => Accepted::Connection(stream, peer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nobody,
            Err(error) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    Accepted::Starved(error)
                }
                _ => Accepted::Failed(error),
            },
        }
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// The address of a name to bind. C: server.c listenToPort, a name with a colon is
/// IPv6, any other is looked up as IPv4.
pub fn resolve(name: &str, port: u16) -> io::Result<SocketAddr> {
    let wants_v6 = name.contains(':');
    (name, port)
        .to_socket_addrs()?
        .find(|address| address.is_ipv6() == wants_v6)
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "no such address"))
}

/// Whether the machine does not speak an address's family at all.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port_of(listener: &Listener) -> u16 {
        listener.local_addr().expect("a TCP listener").port()
    }

    #[test]
    fn all_addresses_are_two_sockets_on_one_port() {
        let first = Listener::bind_all(&[], 0, 16).expect("listen");
        assert!(!first.is_empty());
        let one = Listener::bind_all(&["127.0.0.1".into()], 0, 16).expect("listen");
        assert!(matches!(one[0].accept(), Accepted::Nobody));
        let taken = Listener::bind_all(&["127.0.0.1".into()], port_of(&one[0]), 16);
        let error = taken.err().expect("the port is taken");
        assert_eq!(error.error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.address, format!("127.0.0.1:{}", port_of(&one[0])));
        let half_taken = Listener::bind_all(&[], port_of(&one[0]), 16);
        let error = half_taken.err().expect("IPv4 is half of everything");
        assert_eq!(error.error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_connection_comes_with_its_other_end() {
        let listeners = Listener::bind_all(&["127.0.0.1".into()], 0, 16).expect("listen");
        let address = listeners[0].local_addr().expect("a TCP listener");
        let far = std::net::TcpStream::connect(address).expect("connect");
        let Accepted::Connection(_, peer) = listeners[0].accept() else { panic!("nobody") };
        assert_eq!(peer, far.local_addr().ok());
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_gets_its_permissions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        drop(Listener::bind_unix(&path, 0, 16).expect("listen"));
        let listener = Listener::bind_unix(&path, 0o700, 16).expect("listen again");
        let mode = fs::metadata(&path).expect("the socket is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let _far = std::os::unix::net::UnixStream::connect(&path).expect("connect");
        assert!(matches!(listener.accept(), Accepted::Connection(_, None)));
    }
}
