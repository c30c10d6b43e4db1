//! Where a node listens for clients, as operators write it.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use super::failure::Failure;
use crate::base::reason::reason;

const HOST_DEFAULT: &str = "127.0.0.1";
const PORT_DEFAULT: u16 = 7711;

/// The host and port of a node, or its unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads `HOST:PORT` or `[V6]:PORT`. As in CLUSTER NODES, what follows the last colon is
    /// the port.
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
            ServerAddress::Tcp { .. } => format!("{self}> "),
            ServerAddress::Unix(_) => format!("disque {self}> "),
        }
    }

    /// Resolves the host, IPv4 first, as the C client tries them. A unix socket has no such
    /// addresses.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, Failure> {
        let ServerAddress::Tcp { host, port } = self else {
            return Ok(Vec::new());
        };
        let found = (host.as_str(), *port).to_socket_addrs();
        let mut found: Vec<SocketAddr> = found
            .map_err(|error| Failure::Connect {
                address: self.to_string(),
                reason: reason(&error),
            })?
            .collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }
}

/// The parts of the server's address, each from an option of its own.
#[derive(Debug, Default)]
pub struct GivenAddress {
    host: Option<String>,
    port_of_host: Option<u16>,
    pub port: Option<u16>,
    pub socket: Option<PathBuf>,
}

impl GivenAddress {
    /// Takes what was given as the host, which may bring its port.
    pub fn set_host(&mut self, text: &str) {
        let (host, port) = split_host(text);
        self.host = Some(host);
        self.port_of_host = port;
    }

    /// Puts the parts together. None: no option gave any.
    pub fn address(self) -> Result<Option<ServerAddress>, Failure> {
        if let Some(path) = self.socket {
            return Ok(Some(ServerAddress::Unix(path)));
        }
        let port = match (self.port_of_host, self.port) {
            (Some(one), Some(other)) if one != other => {
                return Err(Failure::Message(format!("-h says port {one} and -p says {other}.")));
            }
            (one, other) => one.or(other),
        };
        if self.host.is_none() && port.is_none() {
            return Ok(None);
        }
        let host = self.host.unwrap_or_else(|| HOST_DEFAULT.to_string());
        Ok(Some(ServerAddress::Tcp { host, port: port.unwrap_or(PORT_DEFAULT) }))
    }
}

/// Splits what was given as a host into host and, when there is one, port: `HOST`, `V6`,
/// `HOST:PORT` or `[V6]:PORT`.
pub fn split_host(text: &str) -> (String, Option<u16>) {
    if text.parse::<Ipv6Addr>().is_err()
        && let Some(ServerAddress::Tcp { host, port }) = ServerAddress::parse(text)
    {
        return (host, Some(port));
    }
    let unbracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    (unbracketed.unwrap_or(text).to_string(), None)
}

impl Default for ServerAddress {
    fn default() -> Self {
        ServerAddress::Tcp { host: HOST_DEFAULT.to_string(), port: PORT_DEFAULT }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        ServerAddress::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            ServerAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(f, "{}", path.display()),
        }
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
    fn a_host_may_bring_its_port() {
        let split = |text| split_host(text);
        assert_eq!(split("db1"), ("db1".to_string(), None));
        assert_eq!(split("db1:7712"), ("db1".to_string(), Some(7712)));
        assert_eq!(split("::1"), ("::1".to_string(), None));
        assert_eq!(split("[::1]"), ("::1".to_string(), None));
        assert_eq!(split("[::1]:7712"), ("::1".to_string(), Some(7712)));
        assert_eq!(split("db1:port"), ("db1:port".to_string(), None));
    }

    #[test]
    fn prompts_name_the_server() {
        let tcp = |text| ServerAddress::parse(text).expect("an address").prompt();
        assert_eq!(tcp("127.0.0.1:7711"), "127.0.0.1:7711> ");
        assert_eq!(tcp("[::1]:7711"), "[::1]:7711> ");
        assert_eq!(ServerAddress::Unix("/run/d.sock".into()).prompt(), "disque /run/d.sock> ");
    }
}
