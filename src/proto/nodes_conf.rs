//! The lines of CLUSTER NODES, which are also the cluster's configuration file.
//!
//! ```text
//! <id> <ip>:<port> <flag>[,<flag>...] <ping sent> <pong received> connected|disconnected
//! vars bus-port-<id> <bus port>
//! vars forgotten-<id> <milliseconds since 1970> [at <ip>,<port>,<bus port>]
//! ```
//!
//! A third kind names a node that was forgotten since it failed for so long, see [`append_tombstone`].
//!
//! The second kind of line is for the file alone, and only for a node that announced another
//! bus port than its client port + 10000: without it such a node could not be dialled after
//! a restart. C servers pass over variables that they do not know.
//!
//! What is known of the cluster hangs on this file, so it is read strictly: a line that
//! is not as this module writes it is an error with its number and a reason, and the
//! server does not start. The C server reads what is written here and the other way round.
//! Lines may end in CR LF, as editors and transfers leave them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::bus::NodeFlags;
use crate::base::ids::NodeId;
use crate::base::limits::NODES_MAX;
use crate::base::number;
use crate::base::time::UnixMs;

/// What a line says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLine {
    pub id: NodeId,
    /// `None` when it is not known.
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub flags: NodeFlags,
    /// When the open ping was sent; 0 without one.
    pub ping_sent_at: UnixMs,
    /// When the latest pong came; 0 when none has.
    pub pong_received_at: UnixMs,
    pub link: LinkState,
    /// The bus port, when it is not `port` + 10000. It has a line of its own:
    /// [`append_bus_port`].
    pub unusual_bus_port: Option<u16>,
}

/// Whether there is a link to the node. For this node itself there always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Connected,
    Disconnected,
}

/// The flags that have a name, in the order in which they are written.
const FLAG_NAMES: [(NodeFlags, &str); 6] = [
    (NodeFlags::MYSELF, "myself"),
    (NodeFlags::PFAIL, "fail?"),
    (NodeFlags::FAIL, "fail"),
    (NodeFlags::HANDSHAKE, "handshake"),
    (NodeFlags::NOADDR, "noaddr"),
    (NodeFlags::LEAVING, "leaving"),
];
const NO_FLAGS: &str = "noflags";
const VARS: &[u8] = b"vars";
const BUS_PORT_VAR: &[u8] = b"bus-port-";
const TOMBSTONE_VAR: &[u8] = b"forgotten-";

/// Appends a line and its end.
pub fn append_line(out: &mut Vec<u8>, node: &NodeLine) {
    out.extend_from_slice(&node.id.0);
    out.push(b' ');
    if let Some(ip) = node.ip {
        out.extend_from_slice(ip.to_string().as_bytes());
    }
    out.push(b':');
    number::append_u64(out, u64::from(node.port));
    out.push(b' ');
    append_flags(out, node.flags);
    out.push(b' ');
    number::append_u64(out, node.ping_sent_at.0);
    out.push(b' ');
    number::append_u64(out, node.pong_received_at.0);
    out.extend_from_slice(match node.link {
        LinkState::Connected => b" connected\n",
        LinkState::Disconnected => b" disconnected\n",
    });
}

/// Appends the line that holds a node's bus port, if the node needs one.
pub fn append_bus_port(out: &mut Vec<u8>, node: &NodeLine) {
    let Some(bus_port) = node.unusual_bus_port else { return };
    out.extend_from_slice(VARS);
    out.push(b' ');
    out.extend_from_slice(BUS_PORT_VAR);
    out.extend_from_slice(&node.id.0);
    out.push(b' ');
    number::append_u64(out, u64::from(bus_port));
    out.push(b'\n');
}

/// A node that was forgotten since it failed for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub id: NodeId,
    /// When it was forgotten.
    pub at: UnixMs,
    /// Where clients reached it then, and its bus port.
    pub address: Option<(SocketAddr, u16)>,
}

/// Appends the line of a node that was forgotten as failing. Each has one of its own: C servers
/// refuse lines over 1,023 bytes.
pub fn append_tombstone(out: &mut Vec<u8>, tombstone: &Tombstone) {
    out.extend_from_slice(VARS);
    out.push(b' ');
    out.extend_from_slice(TOMBSTONE_VAR);
    out.extend_from_slice(&tombstone.id.0);
    out.push(b' ');
    number::append_u64(out, tombstone.at.0);
    if let Some((client, bus_port)) = tombstone.address {
        let text = format!(" at {},{},{bus_port}", client.ip(), client.port());
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'\n');
}

/// The nodes that were forgotten as failing, as a file that [`parse`] takes says. What is not
/// written as it should be is passed over: it names nobody.
pub fn parse_tombstones(text: &[u8]) -> Vec<Tombstone> {
    let tombstone = |line: &[u8]| {
        let mut words = vars_of(line)?.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let id = parse_id(words.next()?.strip_prefix(TOMBSTONE_VAR)?).ok()?;
        let at = parse_time(words.next()?).ok()?;
        let address = words.next().filter(|word| *word == b"at").and_then(|_| words.next());
        Some(Tombstone { id, at, address: address.and_then(place_of) })
    };
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(|line| tombstone(line.strip_suffix(b"\r").unwrap_or(line))).collect()
}

/// Where a node was: `<ip>,<port>,<bus port>`.
fn place_of(word: &[u8]) -> Option<(SocketAddr, u16)> {
    let mut parts = std::str::from_utf8(word).ok()?.split(',');
    let (ip, port, bus_port) = (parts.next()?, parts.next()?, parts.next()?);
    let client = SocketAddr::new(ip.parse().ok()?, port.parse().ok()?);
    Some((client, bus_port.parse().ok()?))
}

fn append_flags(out: &mut Vec<u8>, flags: NodeFlags) {
    let start = out.len();
    for (_, name) in FLAG_NAMES.iter().filter(|(flag, _)| flags.contains(*flag)) {
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    }
    if out.len() == start {
        out.extend_from_slice(NO_FLAGS.as_bytes());
    }
}

/// Which line of the file is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesConfError {
    /// From 1.
    pub line: usize,
    pub reason: LineFault,
}

/// Why a line is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFault {
    NulByte,
    FieldCount(usize),
    BadId,
    DuplicateId(NodeId),
    BadAddress,
    BadPort,
    BadBusPort,
    UnknownFlag(String),
    BadTime,
    BadLinkState,
    /// Two lines claim to be this node.
    SecondMyself,
    /// No line is this node's.
    NoMyself,
    TooManyNodes,
}

impl fmt::Display for NodesConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.reason {
            LineFault::NulByte => f.write_str("a NUL byte"),
            LineFault::FieldCount(count) => write!(f, "{count} fields instead of 6"),
            LineFault::BadId => f.write_str("the node ID is not 40 letters and digits"),
            LineFault::DuplicateId(id) => write!(f, "node {id} is there twice"),
            LineFault::BadAddress => f.write_str("the address is not an IP address"),
            LineFault::BadPort => f.write_str("the port is not a number from 0 to 65535"),
            LineFault::BadBusPort => f.write_str("the bus port is not a number from 1 to 65535"),
            LineFault::UnknownFlag(flag) => write!(f, "unknown flag '{flag}'"),
            LineFault::BadTime => f.write_str("a time is not a number"),
            LineFault::BadLinkState => {
                f.write_str("the link is neither connected nor disconnected")
            }
            LineFault::SecondMyself => f.write_str("a second node is flagged myself"),
            LineFault::NoMyself => f.write_str("the file ends and no node is flagged myself"),
            LineFault::TooManyNodes => write!(f, "more than {NODES_MAX} nodes"),
        }
    }
}

impl std::error::Error for NodesConfError {}

/// Reads a whole file. Exactly one of its nodes is flagged [`NodeFlags::MYSELF`].
///
/// C: cluster.c clusterLoadConfig, an empty file is as good as none: it has been created to
/// be locked. Variables that are not known are passed over, and so are bus ports of nodes
/// that are not in the file.
///
/// Empty lines at the end are ignored: a C server that is killed while it writes leaves them.
///
/// Differs from C: empty lines elsewhere are errors, because no server writes them; so are
/// more nodes than a server can keep.
pub fn parse(text: &[u8]) -> Result<Vec<NodeLine>, NodesConfError> {
    let mut nodes: Vec<NodeLine> = Vec::new();
    let text = without_line_ends(text);
    if text.is_empty() {
        return Ok(nodes);
    }
    let mut ids: Vec<(NodeId, usize)> = Vec::new();
    let mut bus_ports: BTreeMap<NodeId, u16> = BTreeMap::new();
    let mut has_myself = false;
    let mut line_count = 0;
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line_count += 1;
        let at_line = |reason| NodesConfError { line: line_count, reason };
        if line.contains(&0) {
            return Err(at_line(LineFault::NulByte));
        }
        if let Some(vars) = vars_of(line) {
            bus_ports.extend(parse_bus_port(vars).map_err(at_line)?);
            continue;
        }
        let node = parse_node(line).map_err(at_line)?;
        if node.flags.contains(NodeFlags::MYSELF) {
            if has_myself {
                return Err(at_line(LineFault::SecondMyself));
            }
            has_myself = true;
        }
        if nodes.len() == NODES_MAX {
            return Err(at_line(LineFault::TooManyNodes));
        }
        ids.push((node.id, line_count));
        nodes.push(node);
    }
    if !has_myself {
        return Err(NodesConfError { line: line_count, reason: LineFault::NoMyself });
    }
    refuse_duplicates(ids)?;
    for node in &mut nodes {
        node.unusual_bus_port = bus_ports.get(&node.id).copied();
    }
    Ok(nodes)
}

/// The text up to its last line that is not empty, without the end of that line.
fn without_line_ends(text: &[u8]) -> &[u8] {
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let len = text.iter().rposition(|byte| !is_line_end(byte)).map_or(0, |last| last + 1);
    text.get(..len).unwrap_or_default()
}

fn refuse_duplicates(mut ids: Vec<(NodeId, usize)>) -> Result<(), NodesConfError> {
    ids.sort_unstable();
    let mut pairs = ids.iter().zip(ids.iter().skip(1));
    match pairs.find(|((first, _), (second, _))| first == second) {
        Some((_, &(id, line))) => Err(NodesConfError { line, reason: LineFault::DuplicateId(id) }),
        None => Ok(()),
    }
}

/// The words of a `vars` line behind that word.
fn vars_of(line: &[u8]) -> Option<&[u8]> {
    let (word, vars) = line.split_at_checked(VARS.len())?;
    let is_whole_word = matches!(vars.first(), None | Some(b' '));
    (is_whole_word && word.eq_ignore_ascii_case(VARS)).then_some(vars)
}

/// Reads what a `vars` line says of a node's bus port, if that is what it is about.
fn parse_bus_port(vars: &[u8]) -> Result<Option<(NodeId, u16)>, LineFault> {
    let mut words = vars.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(id) = words.next().and_then(|name| name.strip_prefix(BUS_PORT_VAR)) else {
        return Ok(None);
    };
    let id = parse_id(id)?;
    let bus_port = match (words.next().and_then(number::parse_digits), words.next()) {
        (Some(bus_port), None) => u16::try_from(bus_port).ok().filter(|bus_port| *bus_port != 0),
        _ => None,
    };
    Ok(Some((id, bus_port.ok_or(LineFault::BadBusPort)?)))
}

fn parse_node(line: &[u8]) -> Result<NodeLine, LineFault> {
    let mut fields = line.split(|&byte| byte == b' ');
    let field_count = fields.clone().count();
    if field_count != 6 {
        return Err(LineFault::FieldCount(field_count));
    }
    let mut field = || fields.next().unwrap_or_default();
    let id = parse_id(field())?;
    let (ip, port) = parse_address(field())?;
    let flags = parse_flags(field())?;
    let ping_sent_at = parse_time(field())?;
    let pong_received_at = parse_time(field())?;
    let link = match field() {
        b"connected" => LinkState::Connected,
        b"disconnected" => LinkState::Disconnected,
        _ => return Err(LineFault::BadLinkState),
    };
    let unusual_bus_port = None;
    Ok(NodeLine { id, ip, port, flags, ping_sent_at, pong_received_at, link, unusual_bus_port })
}

fn parse_id(field: &[u8]) -> Result<NodeId, LineFault> {
    NodeId::parse(field)
        .filter(|id| id.0.iter().all(u8::is_ascii_alphanumeric))
        .ok_or(LineFault::BadId)
}

/// Reads `ip:port`. What stands behind the last colon is the port: IPv6 has more of them.
fn parse_address(field: &[u8]) -> Result<(Option<IpAddr>, u16), LineFault> {
    let text = std::str::from_utf8(field).map_err(|_| LineFault::BadAddress)?;
    let (ip, port) = text.rsplit_once(':').ok_or(LineFault::BadAddress)?;
    let ip = match ip {
        "" => None,
        ip => Some(ip.parse().map_err(|_| LineFault::BadAddress)?),
    };
    let port = number::parse_digits(port.as_bytes()).and_then(|port| u16::try_from(port).ok());
    Ok((ip, port.ok_or(LineFault::BadPort)?))
}

fn parse_flags(field: &[u8]) -> Result<NodeFlags, LineFault> {
    field.split(|&byte| byte == b',').try_fold(NodeFlags::default(), |flags, name| {
        if name.eq_ignore_ascii_case(NO_FLAGS.as_bytes()) {
            return Ok(flags);
        }
        let known =
            FLAG_NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        match known {
            Some((flag, _)) => Ok(flags | *flag),
            None => Err(LineFault::UnknownFlag(name.escape_ascii().to_string())),
        }
    })
}

fn parse_time(field: &[u8]) -> Result<UnixMs, LineFault> {
    number::parse_digits(field).map(UnixMs).ok_or(LineFault::BadTime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/nodes.conf");

    fn write(nodes: &[NodeLine]) -> Vec<u8> {
        let mut text = Vec::new();
        nodes.iter().for_each(|node| append_line(&mut text, node));
        nodes.iter().for_each(|node| append_bus_port(&mut text, node));
        text
    }

    fn error_of(text: &str) -> String {
        parse(text.as_bytes()).expect_err("the file is malformed").to_string()
    }

    #[test]
    fn a_file_of_the_c_server_reads_back_and_is_written_to_its_bytes() {
        let nodes = parse(GOLDEN).expect("the C server writes valid files");
        assert_eq!(write(&nodes), GOLDEN);
        let flags: Vec<NodeFlags> = nodes.iter().map(|node| node.flags).collect();
        assert_eq!(flags, [NodeFlags::default(), NodeFlags::FAIL, NodeFlags::MYSELF]);
        assert_eq!(nodes[1].port, 27703);
        assert_eq!(nodes[1].ping_sent_at, UnixMs(1_795_968_488_206));
        assert_eq!(nodes[1].link, LinkState::Disconnected);
    }

    #[test]
    fn nodes_without_an_address_or_with_many_colons_are_read() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text =
            format!("{a} :0 noaddr,leaving 0 0 disconnected\n{b} ::1:7711 myself 0 0 connected\n");
        let nodes = parse(text.as_bytes()).expect("valid");
        assert_eq!(nodes[0].ip, None);
        assert_eq!(nodes[1].ip, Some("::1".parse().expect("an address")));
        assert_eq!(write(&nodes), text.as_bytes());
    }

    #[test]
    fn an_empty_file_and_variables_of_others_hold_no_nodes() {
        assert_eq!(parse(b""), Ok(vec![]));
        for vars in ["vars", "VARS currentEpoch 3 lastVoteEpoch 4", "vars  x"] {
            let text = [vars.as_bytes(), b"\n", GOLDEN].concat();
            assert_eq!(parse(&text), parse(GOLDEN));
        }
    }

    #[test]
    fn a_bus_port_has_a_line_of_its_own_wherever_it_stands() {
        let nodes = parse(GOLDEN).expect("the C server writes valid files");
        let bus_port = format!("vars bus-port-{} 7000\n", nodes[1].id);
        let of_nobody = format!("vars bus-port-{} 7000\n", "a".repeat(40));
        let expected = [nodes[0], NodeLine { unusual_bus_port: Some(7000), ..nodes[1] }, nodes[2]];
        for text in [[bus_port.as_bytes(), GOLDEN].concat(), [GOLDEN, bus_port.as_bytes()].concat()]
        {
            assert_eq!(parse(&text).as_deref(), Ok(&expected[..]));
        }
        assert_eq!(write(&expected), [GOLDEN, bus_port.as_bytes()].concat());
        assert_eq!(parse(&[of_nobody.as_bytes(), GOLDEN].concat()), Ok(nodes));
    }

    #[test]
    fn every_malformed_line_is_named_with_its_number_and_reason() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let me = format!("{a} :7711 myself 0 0 connected\n");
        for (line, error) in [
            (format!("\n{b} :1 noflags 0 0 connected"), "1 fields instead of 6".to_owned()),
            (" ".to_owned(), "2 fields instead of 6".to_owned()),
            (format!("{b} :1 noflags 0 0"), "5 fields instead of 6".to_owned()),
            (format!("{b}  :1 noflags 0 0 connected"), "7 fields instead of 6".to_owned()),
            (format!("{b} :1 noflags 0 0 conn\0cted"), "a NUL byte".to_owned()),
            (
                "b :1 noflags 0 0 connected".to_owned(),
                "the node ID is not 40 letters and digits".to_owned(),
            ),
            (format!("{b} 1 noflags 0 0 connected"), "the address is not an IP address".to_owned()),
            (
                format!("{b} {}:1 noflags 0 0 connected", "1".repeat(400)),
                "the address is not an IP address".to_owned(),
            ),
            (
                format!("{b} :65536 noflags 0 0 connected"),
                "the port is not a number from 0 to 65535".to_owned(),
            ),
            (
                format!("vars bus-port-{b}"),
                "the bus port is not a number from 1 to 65535".to_owned(),
            ),
            (
                format!("vars bus-port-{b} 0"),
                "the bus port is not a number from 1 to 65535".to_owned(),
            ),
            (
                format!("vars bus-port-{b} 1 2"),
                "the bus port is not a number from 1 to 65535".to_owned(),
            ),
            ("vars bus-port-b 1".to_owned(), "the node ID is not 40 letters and digits".to_owned()),
            (format!("{b} :1 fail,x\r 0 0 connected"), "unknown flag 'x\\r'".to_owned()),
            (format!("{b} :1 noflags -1 0 connected"), "a time is not a number".to_owned()),
            (
                format!("{b} :1 noflags 0 0 connecte"),
                "the link is neither connected nor disconnected".to_owned(),
            ),
            (format!("{b} :1 myself 0 0 connected"), "a second node is flagged myself".to_owned()),
            (format!("{a} :1 noflags 0 0 connected"), format!("node {a} is there twice")),
        ] {
            assert_eq!(error_of(&format!("{me}{line}\n")), format!("line 2: {error}"));
        }
        let other = format!("{b} :1 noflags 0 0 connected\n");
        assert_eq!(error_of(&other), "line 1: the file ends and no node is flagged myself");
    }

    #[test]
    fn tombstones_have_lines_of_their_own_that_name_no_known_node() {
        let id = NodeId([b'a'; 40]);
        let mut text = GOLDEN.to_vec();
        let at = UnixMs(1_795_968_488_206);
        let address = ["127.0.0.1:7711", "[::1]:7712"].map(|text| text.parse().ok());
        let places = [None, address[0].map(|client| (client, 17711)), address[1].map(|at| (at, 1))];
        let tombstones = places.map(|address| Tombstone { id, at, address });
        tombstones.iter().for_each(|tombstone| append_tombstone(&mut text, tombstone));
        assert_eq!(parse(&text), parse(GOLDEN));
        assert_eq!(parse_tombstones(&text), tombstones);
        let cut = format!("vars forgotten-{id} 1 at 10.0.0.1,x,2\n");
        let expected = [Tombstone { id, at: UnixMs(1), address: None }];
        assert_eq!(parse_tombstones(cut.as_bytes()), expected);
        let odd = b"vars forgotten-x 1\nvars forgotten- \nvars forgotten\nvarsforgotten-a 1\n";
        assert_eq!(parse_tombstones(odd), []);
        assert_eq!(parse_tombstones(GOLDEN), []);
    }

    #[test]
    fn lines_may_end_in_cr_lf() {
        let bus_port = format!("vars bus-port-{} 7000\n", parse(GOLDEN).expect("valid")[1].id);
        let text = [GOLDEN, bus_port.as_bytes()].concat();
        let with_cr = String::from_utf8(text.clone()).expect("text").replace('\n', "\r\n");
        assert_eq!(parse(with_cr.as_bytes()), parse(&text));
    }

    #[test]
    fn line_ends_that_a_killed_c_server_leaves_are_ignored() {
        assert_eq!(parse(&[GOLDEN, b"\n\n\n"].concat()), parse(GOLDEN));
        assert_eq!(parse(b"\n\n"), Ok(vec![]));
    }

    #[test]
    fn a_file_of_more_nodes_than_a_server_can_keep_is_refused() {
        let me = format!("{} :7711 myself 0 0 connected\n", "a".repeat(40));
        let other = |number| format!("{number:040} :7711 noflags 0 0 disconnected\n");
        let mut text = me + &(1..NODES_MAX).map(other).collect::<String>();
        assert_eq!(parse(text.as_bytes()).map(|nodes| nodes.len()), Ok(NODES_MAX));
        text.push_str(&other(NODES_MAX));
        assert_eq!(error_of(&text), "line 65537: more than 65536 nodes");
    }

    #[test]
    fn a_file_cut_or_changed_anywhere_never_panics() {
        for at in 0..GOLDEN.len() {
            let _cut = parse(&GOLDEN[..at]);
            for bit in 0..8 {
                let mut text = GOLDEN.to_vec();
                text[at] ^= 1 << bit;
                if let Ok(nodes) = parse(&text) {
                    assert_eq!(parse(&write(&nodes)), Ok(nodes));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn written_lines_read_back(
            id in any::<[u8; 20]>().prop_map(NodeId::from_random),
            ip: Option<IpAddr>,
            port: u16,
            flags in (0u16..256).prop_map(|bits| {
                NodeFlags(bits).without(NodeFlags::MEET | NodeFlags::DELETED) | NodeFlags::MYSELF
            }),
            times: (u64, u64),
            linked: bool,
            bus_port: u16,
        ) {
            let node = NodeLine {
                id, ip, port, flags,
                ping_sent_at: UnixMs(times.0),
                pong_received_at: UnixMs(times.1),
                link: if linked { LinkState::Connected } else { LinkState::Disconnected },
                unusual_bus_port: (bus_port != 0).then_some(bus_port),
            };
            prop_assert_eq!(parse(&write(&[node])), Ok(vec![node]));
        }
    }
}
