//! Links between nodes: ordered, as late as the seed says, and sometimes cut.
//!
//! A link is one connection with an end on each node. Frames on it keep their order, as
//! TCP keeps it; frames on different links overtake each other. While the way is cut, or
//! the receiver is frozen, they are held back; a reset, a close or a crash loses them, and a
//! sender gives a link up when too much is under way on it.
//!
//! Two things are beyond what TCP does. A new link may bring frames once more that an
//! earlier one brought (an *echo*). And of a node that speaks *plainly* nobody sees what C
//! nodes do not have, nor does it see that of others; so whatever only ours understand must
//! not be sent to it, nor by it; and the attributes of jobs do not get past it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use disque::base::ids::LinkId;
use disque::base::rng::Rng;
use disque::engine::outbox::ConnectToken;
use disque::proto::attributes::Attributes;
use disque::proto::bus::{self, JobsFrame, Message, MessageFlags};
use disque::proto::job_record::JobRecord;

/// Where in a frame its type stands.
const KIND: std::ops::Range<usize> = 12..14;
/// Where C nodes have zeros, and ours say what they can do.
const RESERVED: std::ops::Range<usize> = 102..136;
/// Where C nodes have zeros, and ours say which move of a job they know.
const MOVE_DIGEST: std::ops::Range<usize> = 142..144;
/// The flags of messages that C nodes know.
const C_FLAGS: MessageFlags = MessageFlags::of(
    MessageFlags::NOREPLY.bits | MessageFlags::INCR_NACKS.bits | MessageFlags::INCR_DELIV.bits,
);
/// ENQUEUE and YOURJOBS have no echo: each is a delivery, of at-most-once jobs as well.
const WITHOUT_ECHO: [[u8; 2]; 2] = [[0, 6], [0, 13]];
/// A link to a node that is not simulated.
pub const FOREIGN_LINK: LinkId = LinkId { slot: u32::MAX, generation: 0 };
/// Frames that are kept for an echo, for each ordered pair of nodes.
const ECHOES_MAX: usize = 4;

/// Something that arrives at a node.
#[derive(Debug)]
pub enum Arrival {
    /// A connection that a node requested, in one of its lives, reaches its target, if
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
    /// Bytes sent here that did not arrive yet.
    under_way: usize,
}

/// What a C node makes of a frame, or would have sent in its place: it skips the attributes of
/// jobs, and loses them.
///
/// Panics when the frame is one that C nodes do not know.
fn plain(frame: Vec<u8>) -> Vec<u8> {
    assert_plain(&frame);
    let (header, message) = bus::decode(&frame).expect("engines send whole frames");
    let without = |record| JobRecord { attributes: Attributes::default(), ..record };
    let mut out = Vec::new();
    match message {
        Message::ReplJob(record) => bus::encode_repl_job(&mut out, &header, &without(record)),
        Message::YourJobs(jobs) => {
            let mut frame = JobsFrame::your_jobs(&mut out, &header);
            jobs.iter().for_each(|record| frame.push(&without(record)));
            frame.finish();
        }
        _ => return frame,
    }
    out
}

/// Panics when a frame is one that C nodes do not know.
fn assert_plain(frame: &[u8]) {
    let (header, message) = bus::decode(frame).expect("engines send whole frames");
    let is_known = !matches!(
        message,
        Message::Query(_)
            | Message::Answer(_)
            | Message::Offer { .. }
            | Message::Moved(_)
            | Message::NodeInfo(_)
    );
    assert!(is_known, "C nodes know no such message: {message:?}");
    assert_eq!(
        header.message_flags.bits & !C_FLAGS.bits,
        0,
        "C nodes know no such flag: {message:?}"
    );
    let is_end_of_ask = matches!(message, Message::NeedJobs { count: 0, .. });
    assert!(!is_end_of_ask, "C nodes ask for jobs, not for none: {message:?}");
}

/// For how long a job is held, and which move of it is known, C nodes neither say nor read.
fn forget_extras(frame: &mut [u8]) {
    frame[MOVE_DIGEST].fill(0);
    let (_, message) = bus::decode(frame).expect("engines send whole frames");
    let has_extra = matches!(
        message,
        Message::Queued { .. } | Message::Working { .. } | Message::GotJob { .. }
    );
    if has_extra {
        let number_at = frame.len() - 4;
        frame[number_at..].fill(0);
    }
}

/// Whether a link takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    No,
    Yes,
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
    pub connect_count: u64,
    pub frame_count: u64,
    pub byte_count: u64,
    /// A link with more bytes than this under way takes none.
    pub link_bytes_max: usize,
    /// How many of a hundred links begin with an echo.
    pub echoes_percent: u32,
    echoes: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    plain: BTreeSet<usize>,
    /// All frames, for a test that asks for them with [`Network::record`].
    recorded: Option<Vec<Vec<u8>>>,
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
            connect_count: 0,
            frame_count: 0,
            byte_count: 0,
            link_bytes_max: usize::MAX,
            echoes_percent: 0,
            echoes: BTreeMap::new(),
            plain: BTreeSet::new(),
            recorded: None,
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
                self.note_arrived(&arrival);
                return Some(arrival);
            }
            self.held.insert(serial, arrival);
        }
        None
    }

    fn note_arrived(&mut self, arrival: &Arrival) {
        let Arrival::Frame { to, link, bytes, .. } = arrival else { return };
        let Some(end) = self.ends.get(&(*to, *link)) else { return };
        if let Some(sender) = self.ends.get_mut(&(end.peer, end.peer_link)) {
            sender.under_way = sender.under_way.saturating_sub(bytes.len());
        }
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

    pub fn is_cut_between(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    pub fn is_cut(&self) -> bool {
        !self.cuts.is_empty()
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
        self.connect_count += 1;
        let at = now + self.draw_delay(rng);
        self.push(at, Arrival::Connect { from, life, token, to });
    }

    /// Makes a link; returns its name at the end that requested it.
    pub fn join(&mut self, rng: &mut Rng, now: u64, from: usize, to: usize) -> LinkId {
        let mut name = || {
            self.last_link += 1;
            LinkId { slot: self.last_link, generation: 1 }
        };
        let (near, far) = (name(), name());
        self.ends.insert((from, near), End { peer: to, peer_link: far, last_at: 0, under_way: 0 });
        self.ends.insert((to, far), End { peer: from, peer_link: near, last_at: 0, under_way: 0 });
        if self.echoes_percent > 0 && rng.below(100) < self.echoes_percent {
            for bytes in self.echoes.remove(&(from, to)).unwrap_or_default() {
                self.send(rng, now, from, near, bytes);
            }
        }
        near
    }

    pub fn has_end(&self, node: usize, link: LinkId) -> bool {
        self.ends.contains_key(&(node, link))
    }

    /// From now on the node is to others as a C node, and they to it.
    pub fn speak_plainly(&mut self, node: usize) {
        self.plain.insert(node);
    }

    /// The C node was replaced by one of ours.
    pub fn speak_ably(&mut self, node: usize) {
        self.plain.remove(&node);
    }

    pub fn is_plain(&self, node: usize) -> bool {
        self.plain.contains(&node)
    }

    /// Gives the frames since this was last called, the first time none.
    pub fn record(&mut self) -> Vec<Vec<u8>> {
        self.recorded.replace(Vec::new()).unwrap_or_default()
    }

    pub fn send(
        &mut self,
        rng: &mut Rng,
        now: u64,
        node: usize,
        link: LinkId,
        mut bytes: Vec<u8>,
    ) -> Room {
        let delay_ms = self.draw_delay(rng);
        self.frame_count += 1;
        self.byte_count += bytes.len() as u64;
        let Some(end) = self.ends.get_mut(&(node, link)) else { return Room::Yes };
        if end.under_way > self.link_bytes_max {
            return Room::No;
        }
        end.under_way += bytes.len();
        end.last_at = end.last_at.max(now + delay_ms);
        let (at, to, link) = (end.last_at, end.peer, end.peer_link);
        if self.plain.contains(&node) || self.plain.contains(&to) {
            bytes[RESERVED].fill(0);
            forget_extras(&mut bytes);
            bytes = plain(bytes);
        }
        if self.echoes_percent > 0 && !WITHOUT_ECHO.iter().any(|kind| bytes[KIND] == *kind) {
            let kept = self.echoes.entry((node, to)).or_default();
            kept.push_back(bytes.clone());
            if kept.len() > ECHOES_MAX {
                kept.pop_front();
            }
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.push(bytes.clone());
        }
        self.push(at, Arrival::Frame { from: node, to, link, bytes });
        Room::Yes
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
