//! Links between nodes: ordered, and as late as the seed says.
//!
//! A link is one connection with an end on each node. Frames on it keep their order, as
//! TCP keeps it; what a cut or a reset leaves behind is lost.

use std::collections::BTreeMap;

use disque::base::ids::LinkId;
use disque::base::rng::Rng;
use disque::engine::outbox::ConnectToken;

/// Something that arrives at a node.
#[derive(Debug)]
pub enum Arrival {
    /// A connection that a node wished for reaches its target, if there is one.
    Connect {
        from: usize,
        token: ConnectToken,
        target: Option<usize>,
    },
    Frame {
        node: usize,
        link: LinkId,
        bytes: Vec<u8>,
    },
    Down {
        node: usize,
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
    ends: BTreeMap<(usize, LinkId), End>,
    last_serial: u64,
    last_link: u32,
    /// Directed pairs that nothing gets through.
    cut: Vec<(usize, usize)>,
    /// Frames are this late, in ms, drawn anew for each.
    delay_ms: (u32, u32),
}

impl Network {
    pub fn new(delay_ms: (u32, u32)) -> Self {
        Self {
            arrivals: BTreeMap::new(),
            ends: BTreeMap::new(),
            last_serial: 0,
            last_link: 0,
            cut: Vec::new(),
            delay_ms,
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
        let entry = self.arrivals.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    pub fn connect(
        &mut self,
        rng: &mut Rng,
        now: u64,
        from: usize,
        token: ConnectToken,
        target: Option<usize>,
    ) {
        let at = now + self.draw_delay(rng);
        self.push(at, Arrival::Connect { from, token, target });
    }

    /// Makes a link; returns its two ends' names.
    pub fn join(&mut self, from: usize, to: usize) -> (LinkId, LinkId) {
        let mut name = || {
            self.last_link += 1;
            LinkId { slot: self.last_link, generation: 1 }
        };
        let (near, far) = (name(), name());
        self.ends.insert((from, near), End { peer: to, peer_link: far, last_at: 0 });
        self.ends.insert((to, far), End { peer: from, peer_link: near, last_at: 0 });
        (near, far)
    }

    pub fn end(&self, node: usize, link: LinkId) -> Option<&End> {
        self.ends.get(&(node, link))
    }

    pub fn send(&mut self, rng: &mut Rng, now: u64, node: usize, link: LinkId, bytes: Vec<u8>) {
        let delay_ms = self.draw_delay(rng);
        let Some(end) = self.ends.get_mut(&(node, link)) else { return };
        end.last_at = end.last_at.max(now + delay_ms);
        let (at, peer, peer_link) = (end.last_at, end.peer, end.peer_link);
        self.push(at, Arrival::Frame { node: peer, link: peer_link, bytes });
    }

    /// Closes a link from one end; the other hears of it.
    pub fn close(&mut self, now: u64, node: usize, link: LinkId) {
        if let Some(end) = self.ends.remove(&(node, link)) {
            let at = end.last_at.max(now + 1);
            self.push(at, Arrival::Down { node: end.peer, link: end.peer_link });
        }
    }

    /// The far end of a closed link is gone too.
    pub fn forget(&mut self, node: usize, link: LinkId) -> bool {
        self.ends.remove(&(node, link)).is_some()
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }
}
