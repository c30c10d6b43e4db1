//! Links between nodes: ordered, as late as the seed says, and sometimes cut.
//!
//! A link is one connection with an end on each node. Frames on it keep their order, as
//! TCP keeps it. While the way is cut, or the receiver is frozen, they are held back; a
//! reset, a close or a crash loses them.

use std::collections::{BTreeMap, BTreeSet};

use disque::base::ids::LinkId;
use disque::base::rng::Rng;
use disque::engine::outbox::ConnectToken;

/// Something that arrives at a node.
#[derive(Debug)]
pub enum Arrival {
    /// A connection that a node wished for, in one of its lives, reaches its target, if
    /// there is one.
    Connect {
        from: usize,
        life: u32,
        token: ConnectToken,
        to: Option<usize>,
    },
    Frame {
        from: usize,
        to: usize,
        link: LinkId,
        bytes: Vec<u8>,
    },
    Down {
        from: usize,
        to: usize,
        link: LinkId,
    },
}

/// One end of a link, and the other.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub peer: usize,
    pub peer_link: LinkId,
    /// When the last frame sent here arrives: later ones do not overtake it.
    last_at: u64,
}

pub struct Network {
    arrivals: BTreeMap<(u64, u64), Arrival>,
    /// What cannot arrive for now, in its order.
    held: BTreeMap<u64, Arrival>,
    ends: BTreeMap<(usize, LinkId), End>,
    last_serial: u64,
    last_link: u32,
    /// Directed pairs that nothing gets through.
    cuts: BTreeSet<(usize, usize)>,
    frozen: BTreeSet<usize>,
    /// Frames are this late, in ms, drawn anew for each.
    pub delay_ms: (u32, u32),
    pub frame_count: u64,
}

impl Network {
    pub fn new(delay_ms: (u32, u32)) -> Self {
        Self {
            arrivals: BTreeMap::new(),
            held: BTreeMap::new(),
            ends: BTreeMap::new(),
            last_serial: 0,
            last_link: 0,
            cuts: BTreeSet::new(),
            frozen: BTreeSet::new(),
            delay_ms,
            frame_count: 0,
        }
    }

    fn push(&mut self, at: u64, arrival: Arrival) {
        self.last_serial += 1;
        self.arrivals.insert((at, self.last_serial), arrival);
    }

    fn draw_delay(&self, rng: &mut Rng) -> u64 {
        let (min, max) = self.delay_ms;
        u64::from(min + rng.below(max - min + 1))
    }

    pub fn next_at(&self) -> Option<u64> {
        self.arrivals.first_key_value().map(|(&(at, _), _)| at)
    }

    pub fn pop_due(&mut self, now: u64) -> Option<Arrival> {
        while let Some(entry) = self.arrivals.first_entry() {
            let (at, serial) = *entry.key();
            if at > now {
                return None;
            }
            let arrival = entry.remove();
            if !self.is_held(&arrival) {
                return Some(arrival);
            }
            self.held.insert(serial, arrival);
        }
        None
    }

    fn is_held(&self, arrival: &Arrival) -> bool {
        match arrival {
            Arrival::Connect { to: None, .. } => false,
            Arrival::Connect { from, to: Some(to), .. } => {
                self.cuts.contains(&(*from, *to)) || self.cuts.contains(&(*to, *from))
            }
            Arrival::Frame { from, to, .. } | Arrival::Down { from, to, .. } => {
                self.cuts.contains(&(*from, *to)) || self.frozen.contains(to)
            }
        }
    }

    /// Lets what was held back arrive, if nothing else holds it.
    fn release(&mut self, now: u64) {
        for (serial, arrival) in std::mem::take(&mut self.held) {
            self.arrivals.insert((now, serial), arrival);
        }
    }

    /// Nothing gets from one node to another.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    pub fn heal(&mut self, now: u64) {
        self.cuts.clear();
        self.release(now);
    }

    /// A node takes nothing in any more; what is sent to it waits.
    pub fn freeze(&mut self, node: usize) {
        self.frozen.insert(node);
    }

    pub fn thaw(&mut self, now: u64, node: usize) {
        self.frozen.remove(&node);
        self.release(now);
    }

    pub fn connect(
        &mut self,
        rng: &mut Rng,
        now: u64,
        (from, life): (usize, u32),
        token: ConnectToken,
        to: Option<usize>,
    ) {
        let at = now + self.draw_delay(rng);
        self.push(at, Arrival::Connect { from, life, token, to });
    }

    /// Makes a link; returns its name at the end that wished for it.
    pub fn join(&mut self, from: usize, to: usize) -> LinkId {
        let mut name = || {
            self.last_link += 1;
            LinkId { slot: self.last_link, generation: 1 }
        };
        let (near, far) = (name(), name());
        self.ends.insert((from, near), End { peer: to, peer_link: far, last_at: 0 });
        self.ends.insert((to, far), End { peer: from, peer_link: near, last_at: 0 });
        near
    }

    pub fn has_end(&self, node: usize, link: LinkId) -> bool {
        self.ends.contains_key(&(node, link))
    }

    pub fn send(&mut self, rng: &mut Rng, now: u64, node: usize, link: LinkId, bytes: Vec<u8>) {
        let delay_ms = self.draw_delay(rng);
        self.frame_count += 1;
        let Some(end) = self.ends.get_mut(&(node, link)) else { return };
        end.last_at = end.last_at.max(now + delay_ms);
        let (at, to, link) = (end.last_at, end.peer, end.peer_link);
        self.push(at, Arrival::Frame { from: node, to, link, bytes });
    }

    /// Closes a link from one end; the other hears of it behind what was sent before.
    pub fn close(&mut self, now: u64, node: usize, link: LinkId) {
        if let Some(end) = self.ends.remove(&(node, link)) {
            let at = end.last_at.max(now + 1);
            self.push(at, Arrival::Down { from: node, to: end.peer, link: end.peer_link });
        }
    }

    /// Closes all links of a node that crashed.
    pub fn close_all(&mut self, now: u64, node: usize) {
        let first = (node, LinkId { slot: 0, generation: 0 });
        let links: Vec<LinkId> = self
            .ends
            .range(first..)
            .take_while(|((at, _), _)| *at == node)
            .map(|((_, link), _)| *link)
            .collect();
        for link in links {
            self.close(now, node, link);
        }
    }

    /// The far end of a closed link is gone too.
    pub fn forget(&mut self, node: usize, link: LinkId) -> bool {
        self.ends.remove(&(node, link)).is_some()
    }

    /// The ends of all links between two nodes.
    pub fn between(&self, a: usize, b: usize) -> Vec<(usize, LinkId)> {
        let joins = |&(&(node, _), end): &(&(usize, LinkId), &End)| {
            (node, end.peer) == (a, b) || (node, end.peer) == (b, a)
        };
        self.ends.iter().filter(joins).map(|(&end, _)| end).collect()
    }
}
