//! The network between nodes, as bad as a test wants it.
//!
//! Each server announces the bus port of a proxy in front of it, so that whatever peers
//! send it comes through here, frame by frame; and so do its answers on their links. What
//! becomes of a frame is looked up by its sender and its receiver when it comes in.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use disque::base::ids::NodeId;
use disque::base::rng::Rng;

use crate::bus_peer::{damaged, read_frame};
use crate::mesh::{Mesh, OPTIONS};
use crate::support::TestServer;

const BUS_PORT_OFFSET: u16 = 10_000;
/// One in so many frames is damaged on wires that damage.
const DAMAGED_ONE_IN: u32 = 4;

/// What becomes of the frames from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Late(Duration),
    /// They are lost, and the link stays.
    Swallow,
    /// Some have bits flipped.
    Damage,
}

/// The links that a node has made to another so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCounts {
    pub made: usize,
    pub ended: usize,
}

/// The wires between nodes, each in two directions.
#[derive(Clone, Default)]
pub struct Wires {
    /// By sender and receiver; frames of the others pass.
    fates: Arc<Mutex<BTreeMap<(NodeId, NodeId), Fate>>>,
    /// Links so far, by who made them and to whom they lead.
    links: Arc<Mutex<BTreeMap<(NodeId, NodeId), LinkCounts>>>,
    damaged_count: Arc<AtomicUsize>,
    on_the_way: Arc<AtomicUsize>,
}

impl Wires {
    pub fn set(&self, from: NodeId, to: NodeId, fate: Fate) {
        self.fates.lock().expect("nobody panics with it").insert((from, to), fate);
    }

    pub fn heal(&self) {
        self.fates.lock().expect("nobody panics with it").clear();
    }

    /// Frames that were damaged so far.
    pub fn damaged_count(&self) -> usize {
        self.damaged_count.load(Ordering::Relaxed)
    }

    /// Frames that have come in and neither gone out nor been lost.
    pub fn on_the_way_count(&self) -> usize {
        self.on_the_way.load(Ordering::SeqCst)
    }

    fn fate(&self, from: NodeId, to: NodeId) -> Fate {
        let fates = self.fates.lock().expect("nobody panics with it");
        fates.get(&(from, to)).copied().unwrap_or(Fate::Pass)
    }

    /// Accepts links for a server, to the end of the process.
    fn serve(&self, listener: TcpListener, server: NodeId, bus_port: u16) {
        let wires = self.clone();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let link = link.expect("a listener of this machine");
                // The server may be dead just now: then the dialler is hung up on.
                if let Ok(onward) = TcpStream::connect(("127.0.0.1", bus_port)) {
                    let wires = wires.clone();
                    std::thread::spawn(move || wires.carry_both_ways(link, onward, server));
                }
            }
        });
    }

    /// Carries a link's frames. Who made it, its first frame says.
    fn carry_both_ways(&self, mut link: TcpStream, onward: TcpStream, server: NodeId) {
        let Ok(first) = read_frame(&mut link) else { return };
        let dialler = NodeId::parse(&first[16..56]).expect("forty bytes");
        self.count(dialler, server, |links| links.made += 1);
        let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let (back_from, back_to) = (copy(&onward), copy(&link));
        let wires = self.clone();
        std::thread::spawn(move || wires.carry(back_from, back_to, (server, dialler), None));
        self.carry(link, onward, (dialler, server), Some(first));
    }

    fn count(&self, dialler: NodeId, server: NodeId, count: impl FnOnce(&mut LinkCounts)) {
        let mut links = self.links.lock().expect("nobody panics with it");
        count(links.entry((dialler, server)).or_default());
    }

    /// Carries frames from one end to the other until either is closed; then both are. As
    /// with TCP, what was sent before an end arrives, and what was sent before a reset does
    /// not.
    fn carry(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        (sender, receiver): (NodeId, NodeId),
        first: Option<Vec<u8>>,
    ) {
        let (frames, due_frames) = mpsc::channel::<(Instant, Vec<u8>)>();
        let source = from.try_clone().expect("a descriptor");
        // Says that what is still on its way is lost.
        let is_reset = Arc::new(AtomicBool::new(false));
        let (is_discarded, on_the_way) = (is_reset.clone(), self.on_the_way.clone());
        let writer = std::thread::spawn(move || {
            let mut written = Ok(());
            for (due_at, frame) in due_frames {
                std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
                if written.is_ok() && !is_discarded.load(Ordering::SeqCst) {
                    written = to.write_all(&frame);
                }
                on_the_way.fetch_sub(1, Ordering::SeqCst);
            }
            // Either may be closed already.
            let _of_the_target = to.shutdown(Shutdown::Both);
            let _of_the_source = source.shutdown(Shutdown::Both);
        });
        let mut rng = Rng::from_seed([8; 32]);
        let is_dialler = first.is_some();
        let mut next = first;
        let ended = loop {
            let mut frame = match next.take().map_or_else(|| read_frame(&mut from), Ok) {
                Ok(frame) => frame,
                Err(ended) => break ended,
            };
            let mut due_at = Instant::now();
            match self.fate(sender, receiver) {
                Fate::Pass => {}
                Fate::Late(by) => due_at += by,
                Fate::Swallow => continue,
                Fate::Damage => {
                    if rng.below(DAMAGED_ONE_IN) == 0 {
                        self.damaged_count.fetch_add(1, Ordering::Relaxed);
                        frame = damaged(&mut rng, &frame);
                    }
                }
            }
            self.on_the_way.fetch_add(1, Ordering::SeqCst);
            frames.send((due_at, frame)).expect("the writer lasts as long as there are frames");
        };
        if is_dialler {
            self.count(sender, receiver, |links| links.ended += 1);
        }
        is_reset.store(ended.kind() == ErrorKind::ConnectionReset, Ordering::SeqCst);
        drop(frames);
        writer.join().expect("it does not panic");
    }
}

/// Servers that know each other, with proxies between them.
pub struct ProxiedMesh {
    pub mesh: Mesh,
    pub wires: Wires,
    /// With which each server was started.
    options: Vec<Vec<String>>,
}

impl ProxiedMesh {
    pub fn of(count: usize) -> Self {
        let wires = Wires::default();
        let (mut servers, mut options, mut bus_ports) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
            let bus_port = listener.local_addr().expect("it is bound").port();
            let own = OPTIONS.map(str::to_owned).into_iter();
            let own: Vec<String> = own
                .chain(["--cluster-announce-bus-port".to_owned(), bus_port.to_string()])
                .collect();
            let server =
                TestServer::start_with(&own.iter().map(String::as_str).collect::<Vec<_>>());
            wires.serve(listener, id_of(&server), server.port() + BUS_PORT_OFFSET);
            servers.push(server);
            options.push(own);
            bus_ports.push(bus_port);
        }
        Self { mesh: Mesh::behind("127.0.0.1", servers, bus_ports), wires, options }
    }

    /// Starts a server that has ended again, behind its proxy.
    pub fn start_again(&mut self, n: usize) {
        let options: Vec<&str> = self.options[n].iter().map(String::as_str).collect();
        self.mesh.servers[n].start_again(&options);
    }

    /// Says what becomes of frames from any of some nodes to any of others.
    pub fn set(&self, from: &[usize], to: &[usize], fate: Fate) {
        for &from in from {
            for &to in to {
                self.wires.set(self.id(from), self.id(to), fate);
            }
        }
    }

    /// Swallows whatever goes between two groups of nodes.
    pub fn split(&self, some: &[usize], others: &[usize]) {
        self.set(some, others, Fate::Swallow);
        self.set(others, some, Fate::Swallow);
    }

    /// The links of a node to another.
    pub fn links(&self, from: usize, to: usize) -> LinkCounts {
        let links = self.wires.links.lock().expect("nobody panics with it");
        links.get(&(self.id(from), self.id(to))).copied().unwrap_or_default()
    }

    fn id(&self, n: usize) -> NodeId {
        NodeId::parse(self.mesh.ids[n].as_bytes()).expect("CLUSTER MYID gives an ID")
    }
}

fn id_of(server: &TestServer) -> NodeId {
    let id = crate::support::text(server.client().call("CLUSTER MYID"));
    NodeId::parse(id.as_bytes()).expect("CLUSTER MYID gives an ID")
}
