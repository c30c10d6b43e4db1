//! Servers that know each other, and what each of them shows of the others.

use crate::support::{Client, TestServer, error, eventually, status, text};

pub const NOT_ENOUGH: &str =
    "NOREPL Not enough reachable nodes for the requested replication level";

/// Nodes suspect each other after two seconds: soon, and seldom because the machine is busy.
pub const OPTIONS: [&str; 2] = ["--cluster-node-timeout", "2000"];

/// A line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `ip:port`.
    pub address: String,
    pub flags: String,
    pub link: String,
}

/// Servers that know each other.
pub struct Mesh {
    pub servers: Vec<TestServer>,
    pub ids: Vec<String>,
    /// Where they meet.
    ip: String,
    /// The bus ports that they announce, if they do.
    bus_ports: Vec<u16>,
}

impl Mesh {
    pub fn of(count: usize) -> Self {
        Self::at("127.0.0.1", (0..count).map(|_| TestServer::start_with(&OPTIONS)).collect())
    }

    /// Lets servers meet at an address of theirs.
    pub fn at(ip: &str, servers: Vec<TestServer>) -> Self {
        Self::behind(ip, servers, Vec::new())
    }

    /// The same at bus ports that the servers announce.
    pub fn behind(ip: &str, servers: Vec<TestServer>, bus_ports: Vec<u16>) -> Self {
        let ids = servers.iter().map(|server| text(server.client().call("CLUSTER MYID")));
        let mesh = Self { ids: ids.collect(), servers, ip: ip.to_owned(), bus_ports };
        for whom in 1..mesh.servers.len() {
            mesh.meet(0, whom);
        }
        mesh.wait_until_whole();
        mesh
    }

    /// Tells a node where another one is.
    pub fn meet(&self, n: usize, whom: usize) {
        let mut meet = format!("CLUSTER MEET {} {}", self.ip, self.servers[whom].port());
        if let Some(bus_port) = self.bus_ports.get(whom) {
            meet += &format!(" {bus_port}");
        }
        assert_eq!(self.client(n).call(&meet), status("OK"));
    }

    pub fn client(&self, n: usize) -> Client {
        self.servers[n].client()
    }

    /// What a node shows of another.
    pub fn seen(&self, by: usize, whom: usize) -> Option<Seen> {
        let nodes = text(self.client(by).call("CLUSTER NODES"));
        let line = nodes.lines().find(|line| line.starts_with(&self.ids[whom]))?;
        let words: Vec<&str> = line.split(' ').collect();
        let [address, flags, link] = [1, 2, 5].map(|at| words[at].to_owned());
        Some(Seen { address, flags, link })
    }

    /// Waits until a node shows these flags of another. They are not to be looked at once only:
    /// on a busy machine a node is suspected for a moment.
    #[track_caller]
    pub fn wait_for(&self, by: usize, whom: usize, flags: &str) {
        eventually(
            || self.seen(by, whom),
            |seen| seen.as_ref().is_some_and(|seen| seen.flags == flags),
        );
    }

    /// Waits until each of some nodes shows these flags of each of some others.
    #[track_caller]
    pub fn wait_for_each(&self, by: &[usize], whom: &[usize], flags: &str) {
        for &by in by {
            whom.iter().for_each(|&whom| self.wait_for(by, whom, flags));
        }
    }

    /// Adds a job to a node that can have it on so many nodes and on no more. Returns its ID.
    #[track_caller]
    pub fn add_on_at_most(&self, n: usize, copies: usize, body: &str) -> String {
        let mut client = self.client(n);
        let mut add = |copies| client.call(&format!("ADDJOB q {body} 5000 REPLICATE {copies}"));
        assert_eq!(add(copies + 1), error(NOT_ENOUGH));
        let id = text(add(copies));
        assert!(id.starts_with("D-"), "{id}");
        id
    }

    /// Waits until all see all where they are, with links, nobody is under suspicion, and
    /// no handshake is left over.
    #[track_caller]
    pub fn wait_until_whole(&self) {
        let count = self.servers.len();
        for by in 0..count {
            for whom in (0..count).filter(|whom| *whom != by) {
                let port = format!(":{}", self.servers[whom].port());
                let is_whole = |seen: &Option<Seen>| {
                    seen.as_ref().is_some_and(|seen| {
                        seen.address.ends_with(&port)
                            && (&*seen.flags, &*seen.link) == ("noflags", "connected")
                    })
                };
                eventually(|| self.seen(by, whom), is_whole);
            }
            let known = i64::try_from(count).expect("a few nodes");
            eventually(|| figure(&mut self.client(by), "known_nodes"), |seen| *seen == known);
        }
    }
}

/// A figure of CLUSTER INFO.
pub fn figure(client: &mut Client, name: &str) -> i64 {
    let info = text(client.call("CLUSTER INFO"));
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cluster_{name}:")));
    line.expect("CLUSTER INFO has the figure").parse().expect("a number")
}
