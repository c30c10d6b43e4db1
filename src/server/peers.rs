//! CLUSTER PEERS: what is known here of each node.

use super::Server;
use crate::engine::cluster::PeerFigures;
use crate::engine::command::Call;
use crate::proto::bus::{Abilities, NodeFlags};

/// Names of what a node may be able to do.
const ABILITY_NAMES: [(Abilities, &str); 7] = [
    (Abilities::STANDING_ASKS, "standing-asks"),
    (Abilities::ATTRIBUTES, "attributes"),
    (Abilities::QUERY, "query"),
    (Abilities::OFFER, "offer"),
    (Abilities::NODE_INFO, "node-info"),
    (Abilities::HOLDS, "holds"),
    (Abilities::SHORT_OF_MEMORY, "short-of-memory"),
];
const FIELD_COUNT: usize = 12;

impl Server {
    /// CLUSTER PEERS -> array of maps, this node first.
    pub(super) fn show_peers(&mut self, call: &Call<'_>) {
        let now = self.clock.now;
        let cluster = self.engine.cluster();
        let peers = core::iter::once(cluster.myself(now)).chain(cluster.peers(now.mono));
        let peers: Vec<(PeerFigures, Option<usize>)> = peers
            .map(|peer| {
                let unsent = peer.link.map(|link| self.link_unsent(link));
                (peer, unsent)
            })
            .collect();
        let mut reply = self.reply(call);
        reply.array(peers.len());
        for (peer, unsent) in peers {
            reply.map(FIELD_COUNT);
            reply.bulk("id");
            reply.bulk(peer.id.0);
            reply.bulk("address");
            match peer.address {
                Some(address) => reply.bulk(address.to_string()),
                None => reply.null_bulk(),
            }
            for (name, text) in [
                ("zone", &peer.zone),
                ("version", &peer.info.version),
                ("name", &peer.info.cluster_name),
            ] {
                reply.bulk(name);
                if text.is_empty() { reply.null_bulk() } else { reply.bulk(text) }
            }
            reply.bulk("abilities");
            match peer.abilities {
                Some(abilities) => {
                    let names: Vec<&str> = ABILITY_NAMES
                        .iter()
                        .filter(|(ability, _)| abilities.contains(*ability))
                        .map(|(_, name)| *name)
                        .collect();
                    reply.array(names.len());
                    names.iter().for_each(|name| reply.bulk(name));
                }
                None => reply.null_bulk(),
            }
            reply.bulk("state");
            reply.bulk(peer.state());
            reply.bulk("leaving");
            reply.bulk(if peer.flags.contains(NodeFlags::LEAVING) { "yes" } else { "no" });
            for (name, value) in [
                ("unsent-bytes", unsent.map(|bytes| bytes as u64)),
                ("round-trip-ms", peer.round_trip_ms),
                ("memory-percent", peer.info.load.memory_percent.map(u64::from)),
                ("loop-percent", peer.info.load.loop_percent.map(u64::from)),
            ] {
                reply.bulk(name);
                match value {
                    Some(number) => reply.integer(i64::try_from(number).unwrap_or(i64::MAX)),
                    None => reply.null_bulk(),
                }
            }
        }
    }
}
