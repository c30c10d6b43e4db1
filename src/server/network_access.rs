//! From which addresses clients and nodes may connect: `protected-mode` and `cluster-allow`.
//!
//! Both are decided when a connection is accepted. Which nodes this one connects to is not their
//! business.

use std::net::{IpAddr, SocketAddr};

use super::Server;
use super::config::Config;
use super::log_limit::LogLimit;
use crate::base::ids::LinkId;

/// What a client is sent that protected-mode refuses.
pub(super) const PROTECTED: &[u8] = b"-DENIED Disque is running in protected mode, since neither a \
password, nor users, nor addresses to bind to are set: it takes clients from the loopback interface \
only. Either set requirepass or user, or set bind, or, if nobody but trusted clients reaches this \
port, set protected-mode to no: in the configuration file or, from the same host, with CONFIG SET\r\n";

/// What the log had of connections that were refused.
#[derive(Default)]
pub struct RefusedConnections {
    clients: LogLimit,
    nodes: LogLimit,
}

/// Whether anybody may connect as a client and do everything.
fn is_open(config: &Config) -> bool {
    !config.has_logins() && config.bind.is_empty()
}

/// Whether protected-mode refuses a client from this address, if it has one.
fn protects_from(config: &Config, peer: Option<SocketAddr>) -> bool {
    let is_from_elsewhere = |peer: SocketAddr| !peer.ip().to_canonical().is_loopback();
    config.protected_mode && is_open(config) && peer.is_some_and(is_from_elsewhere)
}

/// Whether a node may connect from this address.
fn allows_node(config: &Config, peer: IpAddr) -> bool {
    let allowed = &config.cluster_allow;
    allowed.is_empty() || allowed.iter().any(|network| network.contains(peer))
}

impl Server {
    /// Whether a client that has connected is refused. The log tells of it.
    pub(super) fn refuses_client(&mut self, peer: Option<SocketAddr>) -> bool {
        if !protects_from(&self.config, peer) {
            return false;
        }
        if let (Some(count), Some(peer)) =
            (self.refused_connections.clients.count(self.clock.now.mono), peer)
        {
            log::warn!(
                "protected-mode: refusing the client {peer}, since neither requirepass nor a user \
                 nor bind is set.{}",
                others(count)
            );
        }
        true
    }

    /// Whether a link that was accepted is refused. The log tells of it.
    pub(super) fn refuses_node(&mut self, peer: SocketAddr) -> bool {
        if allows_node(&self.config, peer.ip()) {
            return false;
        }
        if let Some(count) = self.refused_connections.nodes.count(self.clock.now.mono) {
            log::warn!(
                "cluster-allow: refusing the connection of {peer} to the bus.{}",
                others(count)
            );
        }
        true
    }

    /// Closes the links from nodes that may not connect any more.
    pub(super) fn close_refused_links(&mut self) {
        let is_refused =
            |id: &LinkId| self.link_peer(*id).is_some_and(|peer| !allows_node(&self.config, peer));
        let refused: Vec<LinkId> = self.inbound_links().filter(is_refused).collect();
        for id in refused {
            self.lose_link(id);
        }
    }
}

/// What a line says of those that had no line.
fn others(count: u64) -> String {
    match count - 1 {
        0 => String::new(),
        more => format!(" There were {more} more since the last such line."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::network::Network;
    use crate::base::password::PasswordHash;
    use crate::server::users::{UserLine, Users};

    fn network(text: &str) -> Network {
        Network::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn protected_mode_needs_an_open_server_and_a_client_from_elsewhere() {
        let peer = |text: &str| Some(text.parse().expect(text));
        let protected = Config { protected_mode: true, ..Config::default() };
        assert!(protects_from(&protected, peer("192.0.2.1:5")));
        assert!(protects_from(&protected, peer("[2001:db8::1]:5")));
        for near in ["127.0.0.1:5", "127.9.9.9:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(!protects_from(&protected, peer(near)), "{near}");
        }
        assert!(!protects_from(&protected, None), "the unix socket");
        let far = peer("192.0.2.1:5");
        let mut users = Users::default();
        let hash = PasswordHash::of(b"x").to_string();
        let line = UserLine::parse(&["ann".into(), hash.into(), "watch".into()]);
        users.set(line.expect("a user"));
        for safe in [
            Config::default(),
            Config { requirepass: Some(b"x".to_vec()), ..protected.clone() },
            Config { users, ..protected.clone() },
            Config { bind: vec!["192.0.2.9".into()], ..protected },
        ] {
            assert!(!protects_from(&safe, far));
        }
    }

    #[test]
    fn without_networks_every_node_is_allowed() {
        let config = |networks: &[&str]| Config {
            cluster_allow: networks.iter().map(|text| network(text)).collect(),
            ..Config::default()
        };
        let allows = |networks: &[&str], peer: &str| {
            allows_node(&config(networks), peer.parse().expect(peer))
        };
        assert!(allows(&[], "192.0.2.1"));
        let both = ["10.0.0.0/8", "fd00::/8"];
        assert!(allows(&both, "10.1.1.1") && allows(&both, "fd00::1"));
        assert!(!allows(&both, "127.0.0.1") && !allows(&both, "::1"));
    }
}
