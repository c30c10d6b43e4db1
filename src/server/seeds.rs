//! cluster-seeds: names and addresses of nodes to know, until they are known.
//!
//! A thread resolves the names, since that may take as long as it likes; the loop asks now and then
//! whether it is done, and the engine meets whoever is at addresses where no known node is. That is
//! repeated while anything is missing: a name that does not resolve, an address without a known
//! node, a known node without a link, which may be at another address by now. The waits double from
//! one second to a minute.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use super::Server;
use super::cron::ServerTimer;
use crate::base::time::MonoMs;

/// Seeds are visited this often, in ms; most of the time there is nothing to do.
const VISIT_PERIOD_MS: u64 = 100;
const WAIT_MIN_MS: u64 = 1000;
const WAIT_MAX_MS: u64 = 60_000;
/// Addresses that are taken of all names together.
const ADDRESSES_MAX: usize = 1000;

/// What a name resolved to, or why it did not.
type Resolved = (String, Result<Vec<SocketAddr>, String>);

/// The seeds, and how far they are.
#[derive(Default)]
pub struct Seeds {
    names: Vec<String>,
    /// The thread that resolves them one by one, while there is one.
    resolver: Option<Receiver<Resolved>>,
    resolve_at: MonoMs,
    wait_ms: u64,
    /// Something is missing, as far as this round has come.
    is_missing: bool,
    /// A known node was without a link at the last visit.
    lacked_links: bool,
    /// Addresses that were taken in this round.
    address_count: usize,
    /// Names of which the log says already that they do not resolve.
    failing: Vec<String>,
}

/// Takes a seed apart: host, and port unless it is the usual one. IPv6 addresses with a port stand
/// in brackets.
pub fn parse_seed(seed: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = seed.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest {
            "" => Some((host, None)),
            port => Some((host, Some(parse_port(port.strip_prefix(':')?)?))),
        };
    }
    if seed.parse::<IpAddr>().is_ok() {
        return Some((seed, None));
    }
    let (host, port) = match seed.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (seed, None),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ((1..=255).contains(&host.len()) && host.bytes().all(is_name)).then_some((host, port))
}

fn parse_port(text: &str) -> Option<u16> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|port| is_digits && (1..=crate::base::limits::CLIENT_PORT_MAX).contains(port))
}

/// Addresses first: a name may take as long as it likes to resolve.
fn resolve(mut names: Vec<String>, port: u16) -> impl Iterator<Item = Resolved> {
    let is_address =
        |name: &String| parse_seed(name).is_some_and(|(host, _)| host.parse::<IpAddr>().is_ok());
    names.sort_by_key(|name| !is_address(name));
    names.into_iter().map(move |name| {
        let Some((host, own)) = parse_seed(&name) else {
            return (name, Err("not a host and a port".to_owned()));
        };
        let found = (host, own.unwrap_or(port)).to_socket_addrs();
        let found = found.map(Iterator::collect).map_err(|e| e.to_string());
        (name, found)
    })
}

impl Server {
    /// Takes over what the configuration says, at start and when it changes.
    pub(super) fn begin_seeds(&mut self) {
        if self.seeds.names == self.config.cluster_seeds {
            return;
        }
        self.seeds = Seeds { names: self.config.cluster_seeds.clone(), ..Seeds::default() };
        if self.seeds.names.is_empty() {
            self.timers.cancel(ServerTimer::Seeds);
            return;
        }
        if self.config.cluster_name.is_empty() {
            log::warn!(
                "cluster-seeds without cluster-name: should a seed's name or address lead to \
                 another cluster one day, the two will merge."
            );
        }
        self.seeds.wait_ms = WAIT_MIN_MS;
        self.timers.every(ServerTimer::Seeds, VISIT_PERIOD_MS, self.clock.now.mono.0);
    }

    pub(super) fn visit_seeds(&mut self) {
        let now = self.clock.now.mono;
        while let Some(resolver) = &self.seeds.resolver {
            match resolver.try_recv() {
                Ok(resolved) => self.meet_seed_of(&resolved),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.end_round(),
            }
        }
        let lacks_links = self.engine.cluster().lacks_links();
        if lacks_links && !self.seeds.lacked_links {
            self.seeds.wait_ms = WAIT_MIN_MS;
            self.seeds.resolve_at = now;
        }
        self.seeds.lacked_links = lacks_links;
        if now < self.seeds.resolve_at {
            return;
        }
        let (names, port) = (self.seeds.names.clone(), self.config.port);
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            // Nobody waits for them if the seeds have changed meanwhile.
            let is_wanted = |resolved| sender.send(resolved).is_ok();
            let _ = resolve(names, port).all(is_wanted);
        };
        (self.seeds.is_missing, self.seeds.address_count) = (false, 0);
        match thread::Builder::new().name("seeds".to_owned()).spawn(work) {
            Ok(_) => self.seeds.resolver = Some(receiver),
            Err(e) => log::warn!("Can't resolve cluster-seeds, no thread: {e}"),
        }
        self.seeds.resolve_at = now.plus_ms(self.seeds.wait_ms);
        self.seeds.wait_ms = (self.seeds.wait_ms * 2).min(WAIT_MAX_MS);
    }

    fn meet_seed_of(&mut self, (name, found): &Resolved) {
        let now = self.clock.now;
        match found {
            Ok(found) => {
                self.seeds.failing.retain(|failing| failing != name);
                let room = ADDRESSES_MAX - self.seeds.address_count;
                for at in found.iter().take(room) {
                    self.seeds.address_count += 1;
                    if self.engine.cluster().is_seed_missing(now.mono, *at) {
                        self.seeds.is_missing = true;
                        self.engine.meet_seed(now, *at);
                    }
                }
            }
            Err(reason) => {
                self.seeds.is_missing = true;
                if !self.seeds.failing.contains(name) {
                    log::warn!("Seed {name} cannot be resolved, and is tried again: {reason}");
                    self.seeds.failing.push(name.clone());
                }
            }
        }
    }

    /// All names were resolved, or could not be.
    fn end_round(&mut self) {
        self.seeds.resolver = None;
        if !self.seeds.is_missing && !self.engine.cluster().lacks_links() {
            // Until a node is without a link.
            self.seeds.wait_ms = WAIT_MIN_MS;
            self.seeds.resolve_at = MonoMs::NEVER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_host_and_perhaps_a_port() {
        for (seed, parsed) in [
            ("queue", Some(("queue", None))),
            ("queue.prod.svc:7712", Some(("queue.prod.svc", Some(7712)))),
            ("10.0.0.1", Some(("10.0.0.1", None))),
            ("10.0.0.1:7711", Some(("10.0.0.1", Some(7711)))),
            ("::1", Some(("::1", None))),
            ("[::1]", Some(("::1", None))),
            ("[::1]:7711", Some(("::1", Some(7711)))),
            ("", None),
            (":7711", None),
            ("queue:", None),
            ("queue:0", None),
            ("queue:65000", None),
            ("queue:+1", None),
            ("queue:7711:7712", None),
            ("a b", None),
            ("[queue]:7711", None),
            ("[::1]7711", None),
        ] {
            assert_eq!(parse_seed(seed), parsed, "{seed}");
        }
    }

    #[test]
    fn addresses_resolve_to_themselves_with_the_port_that_is_usual() {
        let names = ["no host", "127.0.0.1", "[::1]:7713"].map(str::to_owned).to_vec();
        let mut found: Vec<Resolved> = resolve(names, 7712).collect();
        let (name, last) = found.pop().expect("three");
        assert!(name == "no host" && last.is_err(), "what is not an address comes last");
        let addresses: Vec<SocketAddr> =
            found.into_iter().flat_map(|(_, found)| found.expect("no name")).collect();
        assert_eq!(addresses, ["127.0.0.1:7712", "[::1]:7713"].map(|at| at.parse().expect("one")));
    }
}
