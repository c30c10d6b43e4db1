//! What nodes of a cluster do not have in common, though all is well between them: zones, names of
//! the cluster, versions, abilities, settings.
//!
//! Each node says of itself what CLUSTER PEERS has of it. C nodes know no such command; of nodes
//! that cannot be asked others say it. None of this stops a cluster, so these are warnings.

use std::collections::{BTreeMap, BTreeSet};

use super::config_all;
use super::connection::ServerConnection;
use super::failure::Failure;
use super::info::Info;
use super::nodes::{NodeView, short};
use super::table::{counted, shown_name};
use crate::proto::reply_reader::Value;

/// An ability of the moment, which nodes have or not as it comes.
const OF_THE_MOMENT: &str = "short-of-memory";
/// Settings of which one value for all is meant.
const SETTINGS: [&str; 2] = ["cluster-forget-after", "cluster-node-timeout"];
/// Nodes that a warning names; others are counted.
const NAMED_MAX: usize = 5;

/// What a node says of itself, or another one of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTraits {
    pub id: String,
    pub version: Option<String>,
    pub zone: Option<String>,
    pub cluster_name: Option<String>,
    /// None of a node that announces none: a C node, or one that was not seen yet.
    pub abilities: Option<Vec<String>>,
}

impl NodeTraits {
    /// Reads an element of the reply to CLUSTER PEERS.
    fn parse(peer: &Value) -> NodeTraits {
        let text = |name| match peer.field(name) {
            Some(Value::Bulk(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        let abilities = match peer.field("abilities") {
            Some(Value::Array(names)) => Some(names.iter().filter_map(ability).collect()),
            _ => None,
        };
        NodeTraits {
            id: text("id").unwrap_or_default(),
            version: text("version"),
            zone: text("zone"),
            cluster_name: text("name"),
            abilities,
        }
    }
}

fn ability(name: &Value) -> Option<String> {
    match name {
        Value::Bulk(name) if name != OF_THE_MOMENT.as_bytes() => {
            Some(String::from_utf8_lossy(name).into_owned())
        }
        _ => None,
    }
}

/// What a node answers about itself and the others.
#[derive(Debug, Default)]
pub struct NodeAnswers {
    /// The node itself first; empty of a C node.
    pub peers: Vec<NodeTraits>,
    /// The version in INFO.
    version: Option<String>,
    /// Values of [`SETTINGS`], as far as the node has them.
    settings: Vec<Option<String>>,
}

impl NodeAnswers {
    /// Asks a node.
    pub fn read(connection: &mut ServerConnection) -> Result<NodeAnswers, Failure> {
        let peers = match connection.call(&["CLUSTER", "PEERS"])? {
            Value::Array(peers) => peers.iter().map(NodeTraits::parse).collect(),
            _ => Vec::new(),
        };
        let mut settings = Vec::new();
        for name in SETTINGS {
            let values = config_all::value_of(connection, name.as_bytes());
            settings.push(values.ok().and_then(|mut values| Some(values.pop()?.1)));
        }
        let version = Info::read(connection)?.version().map(str::to_owned);
        Ok(NodeAnswers { peers, version, settings })
    }
}

/// Something that some nodes have otherwise than others.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    pub text: String,
    /// Whom it is about, by their places.
    pub nodes: Vec<usize>,
}

/// The traits of each node: what it says itself, else what another one says of it.
pub fn traits_of(found: &[NodeView], answers: &[Option<NodeAnswers>]) -> Vec<NodeTraits> {
    let by_others = |id: &str| {
        let peers = answers.iter().flatten().flat_map(|answer| answer.peers.iter().skip(1));
        peers.into_iter().find(|peer| peer.id == id).cloned()
    };
    let traits = |(node, answers): (&NodeView, &Option<NodeAnswers>)| match answers {
        Some(answers) => {
            let said = answers.peers.first().cloned();
            let version = said.as_ref().and_then(|said| said.version.clone());
            NodeTraits {
                id: node.id.clone(),
                version: version.or_else(|| answers.version.clone()),
                ..said.unwrap_or_default()
            }
        }
        None => by_others(&node.id).unwrap_or_default(),
    };
    found.iter().zip(answers).map(traits).collect()
}

/// In how many zones the nodes are.
pub fn zone_count(traits: &[NodeTraits]) -> usize {
    traits.iter().filter_map(|node| node.zone.as_deref()).collect::<BTreeSet<_>>().len()
}

/// The abilities that some node has, and this one does not.
pub fn lacking(node: &NodeTraits, all: &[NodeTraits]) -> Vec<String> {
    let known: BTreeSet<&String> =
        all.iter().flat_map(|node| node.abilities.iter().flatten()).collect();
    let has = |name: &String| node.abilities.iter().flatten().any(|ability| ability == name);
    known.into_iter().filter(|name| !has(name)).cloned().collect()
}

/// What a node has wrong of another one that says it otherwise itself.
pub fn mistaken(answers: &NodeAnswers, traits: &[NodeTraits]) -> Vec<String> {
    let mistake = |peer: &NodeTraits| {
        let said = traits.iter().find(|node| node.id == peer.id && node.abilities.is_some())?;
        let named = |zone: &Option<String>| zone.as_deref().map_or("none".into(), in_quotes);
        (said.zone != peer.zone).then(|| {
            let (zone, by_itself) = (named(&peer.zone), named(&said.zone));
            format!("takes {} for a node of zone {zone}, not {by_itself}", short(&peer.id))
        })
    };
    answers.peers.iter().skip(1).filter_map(mistake).collect()
}

/// Finds all differences; `names` are those of the nodes.
pub fn find(
    names: &[String],
    traits: &[NodeTraits],
    answers: &[Option<NodeAnswers>],
) -> Vec<Difference> {
    let plain: Vec<bool> = answers
        .iter()
        .map(|answers| answers.as_ref().is_some_and(|answers| answers.peers.is_empty()))
        .collect();
    let able = |place: usize| traits[place].abilities.is_some();
    let of_able = |value: fn(&NodeTraits) -> String| {
        (0..traits.len()).map(|place| able(place).then(|| value(&traits[place]))).collect()
    };
    let mut found = Vec::new();

    let versions = (0..traits.len()).map(|place| traits[place].version.as_deref().map(in_quotes));
    found.extend(by_value(names, "versions differ", &versions.collect::<Vec<_>>(), ""));

    let alone: Vec<usize> = (0..plain.len()).filter(|place| plain[*place]).collect();
    if !alone.is_empty() && alone.len() < plain.len() {
        let text = format!(
            "{} know C Disque's protocol alone: they count for no ZONES, forget nobody by \
             themselves, and do not go on with copies that SYNC left for later",
            listed(names, &alone)
        );
        found.push(Difference { text, nodes: alone });
    }

    let zones: Vec<Option<String>> =
        of_able(|node| if node.zone.is_some() { "set" } else { "empty" }.to_owned());
    let advice = "nodes without one are taken for one more zone, and count for no ZONES";
    found.extend(by_value(names, "availability-zone differs", &zones, advice));

    let cluster_names: Vec<Option<String>> =
        of_able(|node| node.cluster_name.as_deref().map_or("empty".into(), in_quotes));
    let advice = "nodes of another name stay, and let in others of theirs";
    found.extend(by_value(names, "cluster-name differs", &cluster_names, advice));

    let abilities: Vec<Option<String>> = (0..traits.len())
        .map(|place| {
            let lacking = lacking(&traits[place], traits);
            let text = format!("without {}", lacking.join(", "));
            able(place).then_some(if lacking.is_empty() { "all".to_owned() } else { text })
        })
        .collect();
    found.extend(by_value(names, "abilities differ", &abilities, ""));

    for (at, name) in SETTINGS.iter().enumerate() {
        let value = |answers: &Option<NodeAnswers>| answers.as_ref()?.settings.get(at)?.clone();
        let values: Vec<Option<String>> = answers.iter().map(value).collect();
        found.extend(by_value(names, &format!("{name} differs"), &values, ""));
    }
    found
}

/// Says which nodes have which value of something, if not all have the same one. Those that have
/// none, as it is not known, are passed over.
fn by_value(
    names: &[String],
    what: &str,
    values: &[Option<String>],
    advice: &str,
) -> Option<Difference> {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value {
            places.entry(value).or_default().push(place);
        }
    }
    if places.len() < 2 {
        return None;
    }
    let mut groups: Vec<(&str, Vec<usize>)> = places.into_iter().collect();
    // What most have is right, and of equally many what the first node has.
    groups.sort_by_key(|(_, nodes)| (std::cmp::Reverse(nodes.len()), nodes.first().copied()));
    let told = groups.iter().enumerate().map(|(at, (value, nodes))| {
        let who = match at {
            0 => counted(nodes.len() as u64, "node"),
            _ => listed(names, nodes),
        };
        format!("{value} at {who}")
    });
    let mut text = format!("{what}: {}", told.collect::<Vec<_>>().join("; "));
    if !advice.is_empty() {
        text.push_str(": ");
        text.push_str(advice);
    }
    let nodes = groups.into_iter().skip(1).flat_map(|(_, nodes)| nodes).collect();
    Some(Difference { text, nodes })
}

fn listed(names: &[String], nodes: &[usize]) -> String {
    let named: Vec<&str> =
        nodes.iter().take(NAMED_MAX).map(|place| names[*place].as_str()).collect();
    let more = match nodes.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// A name that somebody chose, which may look like one of our words.
fn in_quotes(name: &str) -> String {
    match shown_name(name.as_bytes()) {
        quoted if quoted.starts_with('"') => quoted,
        plain => format!("\"{plain}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, version: &str, zone: &str, name: &str) -> NodeTraits {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        NodeTraits {
            id: id.to_owned(),
            version: given(version),
            zone: given(zone),
            cluster_name: given(name),
            abilities: Some(vec!["query".to_owned(), "holds".to_owned()]),
        }
    }

    fn said(traits: &NodeTraits, forget_after: &str) -> Option<NodeAnswers> {
        let settings = vec![Some(forget_after.to_owned()), Some("15000".to_owned())];
        Some(NodeAnswers { peers: vec![traits.clone()], version: None, settings })
    }

    fn texts(traits: &[NodeTraits], answers: &[Option<NodeAnswers>]) -> Vec<String> {
        let names: Vec<String> = traits.iter().map(|node| node.id.clone()).collect();
        find(&names, traits, answers).into_iter().map(|difference| difference.text).collect()
    }

    #[test]
    fn nodes_that_agree_differ_in_nothing() {
        let traits = [node("a", "1.2.0", "north", "prod"), node("b", "1.2.0", "south", "prod")];
        let answers = [said(&traits[0], "0"), said(&traits[1], "0")];
        assert_eq!(texts(&traits, &answers), [""; 0]);
        assert_eq!(zone_count(&traits), 2);
    }

    #[test]
    fn each_difference_is_one_line() {
        let mut traits = [
            node("a", "1.2.0", "north", "prod"),
            node("b", "1.1.0", "", "prod"),
            node("c", "1.2.0", "west", "test"),
            node("d", "1.2.0", "west", ""),
        ];
        traits[1].abilities = Some(vec!["query".to_owned()]);
        let answers = [
            said(&traits[0], "600"),
            said(&traits[1], "600"),
            said(&traits[2], "0"),
            said(&traits[3], "600"),
        ];
        let expected = [
            "versions differ: \"1.2.0\" at 3 nodes; \"1.1.0\" at b",
            "availability-zone differs: set at 3 nodes; empty at b: nodes without one are taken for \
             one more zone, and count for no ZONES",
            "cluster-name differs: \"prod\" at 2 nodes; \"test\" at c; empty at d: nodes of another \
             name stay, and let in others of theirs",
            "abilities differ: all at 3 nodes; without holds at b",
            "cluster-forget-after differs: 600 at 3 nodes; 0 at c",
        ];
        assert_eq!(texts(&traits, &answers), expected);
    }

    #[test]
    fn c_nodes_are_named_once_and_differ_in_nothing_else() {
        let mut traits = vec![node("a", "", "north", "prod")];
        traits.extend((0..7).map(|n| NodeTraits { id: format!("c{n}"), ..NodeTraits::default() }));
        let c_node = || Some(NodeAnswers { settings: vec![None; 2], ..NodeAnswers::default() });
        let mut answers = vec![said(&traits[0], "600")];
        answers.extend((0..7).map(|_| c_node()));
        let all = texts(&traits, &answers);
        assert_eq!(all.len(), 1, "{all:?}");
        let start = "c0, c1, c2, c3, c4 and 2 more know C Disque's protocol alone: ";
        assert!(all[0].starts_with(start), "{all:?}");
        assert_eq!(texts(&traits[1..], &answers[1..]), [""; 0], "a cluster of C nodes is one");
    }

    #[test]
    fn what_others_have_wrong_of_a_node_is_found() {
        let traits = [node("aaaa", "", "north", ""), node("bbbb", "", "", "")];
        let wrong = NodeTraits { zone: Some("none".to_owned()), ..traits[1].clone() };
        let answers =
            NodeAnswers { peers: vec![traits[0].clone(), wrong], ..NodeAnswers::default() };
        let text = "takes bbbb for a node of zone \"none\", not none";
        assert_eq!(mistaken(&answers, &traits), [text]);
        let right = NodeAnswers { peers: traits.to_vec(), ..NodeAnswers::default() };
        assert_eq!(mistaken(&right, &traits), [""; 0]);
    }
}
