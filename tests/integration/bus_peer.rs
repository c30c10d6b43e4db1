//! A node made by hand: it speaks the bus as far as a test wants it to, and lies where a
//! test wants it to.
//!
//! It answers whoever pings it, from a thread of its own, so that a server it met keeps it
//! for a node that is well. What the test sends goes over links that the test makes.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use disque::base::ids::NodeId;
use disque::base::rng::Rng;
use disque::proto::bus::{
    self, Abilities, Gossip, GossipEntry, GossipKind, Header, Message, MessageFlags, NodeFlags,
};

use crate::support::{PATIENCE, TestServer, eventually, free_port, text};

const BUS_PORT_OFFSET: u16 = 10_000;

#[derive(Clone, Copy)]
pub struct BusPeer {
    pub id: NodeId,
    /// Its client port, on which nobody listens. The bus is 10,000 above.
    pub port: u16,
}

impl BusPeer {
    /// A peer that listens on the bus; no server has heard of it.
    pub fn listen(id: [u8; 20]) -> Self {
        let peer = Self::silent(id);
        let bus = ("127.0.0.1", peer.port + BUS_PORT_OFFSET);
        let listener = TcpListener::bind(bus).expect("the port was free");
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let link = link.expect("a listener of this machine");
                std::thread::spawn(move || peer.answer_pings(link));
            }
        });
        peer
    }

    /// A peer that nobody can connect to.
    pub fn silent(id: [u8; 20]) -> Self {
        Self { id: NodeId::from_random(id), port: free_port() }
    }

    /// Makes a server take this peer for a node of its cluster, at its present address.
    pub fn join(&self, server: &TestServer) {
        let mut link = link_to(server);
        // To who knows it already a MEET does not say where it is, and a PING does.
        for kind in [GossipKind::Meet, GossipKind::Ping] {
            link.write_all(&self.heartbeat(kind, &[])).expect("the server reads");
        }
        let me = self.id.to_string();
        let is_known = |nodes: &String| {
            nodes.lines().any(|line| line.starts_with(&me) && line.ends_with(" connected"))
        };
        eventually(|| text(server.client().call("CLUSTER NODES")), is_known);
    }

    pub fn header(&self) -> Header {
        Header {
            sender: self.id,
            ip: None,
            port: self.port,
            flags: NodeFlags::MYSELF,
            state: 0,
            message_flags: MessageFlags::NONE,
            reserved: Header::announce(None, Abilities::NONE),
        }
    }

    pub fn heartbeat(&self, kind: GossipKind, entries: &[GossipEntry]) -> Vec<u8> {
        let mut frame = Vec::new();
        bus::encode_gossip(&mut frame, &self.header(), kind, entries.iter().copied());
        frame
    }

    /// Answers what comes in on a link, to its end.
    fn answer_pings(&self, mut link: TcpStream) {
        let pong = self.heartbeat(GossipKind::Pong, &[]);
        let mut answered = Ok(());
        while answered.is_ok() {
            let Ok(frame) = read_frame(&mut link) else { return };
            if let Ok((_, Message::Ping(_) | Message::Meet(_))) = bus::decode(&frame) {
                answered = link.write_all(&pong);
            }
        }
    }
}

/// A link to a server's bus.
pub fn link_to(server: &TestServer) -> TcpStream {
    let bus = ("127.0.0.1", server.port() + BUS_PORT_OFFSET);
    let link = TcpStream::connect(bus).expect("the bus listens");
    link.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
    link.set_write_timeout(Some(PATIENCE)).expect("a timeout above 0");
    link
}

/// Reads the next frame; an unexpected end when the link ends instead.
pub fn read_frame(link: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 8];
    link.read_exact(&mut frame)?;
    let len =
        bus::frame_len(&frame).expect("servers speak the bus").expect("eight bytes are enough");
    frame.resize(len, 0);
    link.read_exact(&mut frame[8..])?;
    Ok(frame)
}

/// A copy of a frame with a few bits flipped, seldom in the eight bytes that keep frames
/// apart. It never leads a server out of this machine.
pub fn damaged(rng: &mut Rng, frame: &[u8]) -> Vec<u8> {
    const FRAMING_ONE_IN: u32 = 250;
    loop {
        let mut copy = frame.to_vec();
        let first = if rng.below(FRAMING_ONE_IN) == 0 { 0 } else { 8 };
        for _ in 0..=rng.below(3) {
            let at = first + rng.index(frame.len() - first);
            copy[at] ^= 1 << rng.below(8);
        }
        if bus::decode(&copy).is_ok_and(|decoded| leads_away(&decoded)) {
            continue;
        }
        return copy;
    }
}

/// Whether a message names an address that is not this machine's.
fn leads_away((header, message): &(Header, Message<'_>)) -> bool {
    let entries = match message {
        Message::Ping(gossip) | Message::Pong(gossip) | Message::Meet(gossip) => *gossip,
        _ => Gossip::default(),
    };
    let mut ips = entries.iter().map(|entry| entry.ip).chain([header.ip]).flatten();
    ips.any(|ip| !ip.is_loopback())
}
