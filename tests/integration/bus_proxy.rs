//! The network between nodes, as bad as a test wants it.
//!
//! Each server announces the bus port of a proxy in front of it, so that whatever peers
//! send it comes through here, frame by frame; and so do its answers on their links. What
//! becomes of a frame is looked up by its sender and its receiver when it comes in.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use disque::base::ids::NodeId;
use disque::base::rng::Rng;

use crate::bus_peer::{damaged, read_frame};
use crate::mesh::{Mesh, OPTIONS};
use crate::support::{TestServer, free_port};

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

/// The wires between nodes, each in two directions.
#[derive(Clone, Default)]
pub struct Wires {
    /// By sender and receiver; frames of the others pass.
    fates: Arc<Mutex<BTreeMap<(NodeId, NodeId), Fate>>>,
    accepted_count: Arc<AtomicUsize>,
    damaged_count: Arc<AtomicUsize>,
}

impl Wires {
    pub fn set(&self, from: NodeId, to: NodeId, fate: Fate) {
        self.fates.lock().expect("nobody panics with it").insert((from, to), fate);
    }

    pub fn heal(&self) {
        self.fates.lock().expect("nobody panics with it").clear();
    }

    /// Links that proxies have accepted so far.
    pub fn accepted_count(&self) -> usize {
        self.accepted_count.load(Ordering::Relaxed)
    }

    /// Frames that were damaged so far.
    pub fn damaged_count(&self) -> usize {
        self.damaged_count.load(Ordering::Relaxed)
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
                wires.accepted_count.fetch_add(1, Ordering::Relaxed);
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
        let Some(first) = read_frame(&mut link) else { return };
        let dialler = NodeId::parse(&first[16..56]).expect("forty bytes");
        let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let (back_from, back_to) = (copy(&onward), copy(&link));
        let wires = self.clone();
        std::thread::spawn(move || wires.carry(back_from, back_to, (server, dialler), None));
        self.carry(link, onward, (dialler, server), Some(first));
    }

    /// Carries frames from one end to the other until either is closed; then both are.
    fn carry(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        (sender, receiver): (NodeId, NodeId),
        first: Option<Vec<u8>>,
    ) {
        let (frames, due_frames) = mpsc::channel::<(Instant, Vec<u8>)>();
        let mut source = from.try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            for (due_at, frame) in due_frames {
                std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
                if to.write_all(&frame).is_err() {
                    break;
                }
            }
            // Either may be closed already.
            let _of_the_target = to.shutdown(Shutdown::Both);
            let _of_the_source = source.shutdown(Shutdown::Both);
            source.flush().expect("nothing is buffered");
        });
        let mut rng = Rng::from_seed([8; 32]);
        let mut next = first;
        while let Some(frame) = next.take().or_else(|| read_frame(&mut from)) {
            let now = Instant::now();
            let is_sent = match self.fate(sender, receiver) {
                Fate::Pass => frames.send((now, frame)),
                Fate::Late(by) => frames.send((now + by, frame)),
                Fate::Swallow => Ok(()),
                Fate::Damage if rng.below(DAMAGED_ONE_IN) == 0 => {
                    self.damaged_count.fetch_add(1, Ordering::Relaxed);
                    frames.send((now, damaged(&mut rng, &frame)))
                }
                Fate::Damage => frames.send((now, frame)),
            };
            if is_sent.is_err() {
                break;
            }
        }
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
        let (mut servers, mut options) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let bus_port = free_port();
            let listener = TcpListener::bind(("127.0.0.1", bus_port)).expect("the port was free");
            let own = OPTIONS.map(str::to_owned).into_iter();
            let own: Vec<String> = own
                .chain(["--cluster-announce-bus-port".to_owned(), bus_port.to_string()])
                .collect();
            let server =
                TestServer::start_with(&own.iter().map(String::as_str).collect::<Vec<_>>());
            wires.serve(listener, id_of(&server), server.port() + BUS_PORT_OFFSET);
            servers.push(server);
            options.push(own);
        }
        Self { mesh: Mesh::at("127.0.0.1", servers), wires, options }
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

    fn id(&self, n: usize) -> NodeId {
        NodeId::parse(self.mesh.ids[n].as_bytes()).expect("CLUSTER MYID gives an ID")
    }
}

fn id_of(server: &TestServer) -> NodeId {
    let id = crate::support::text(server.client().call("CLUSTER MYID"));
    NodeId::parse(id.as_bytes()).expect("CLUSTER MYID gives an ID")
}
