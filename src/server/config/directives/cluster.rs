//! Directives about the cluster.

use super::{DirectiveGroup, LIVE, PORT_MAX, UNSHOWN, at_least, place, row, up_to};
use crate::proto::node_info::{NODE_INFO_TEXT_MAX, ZONE_MAX};
use crate::server::config::form::ValueForm;

pub(super) const CLUSTER: DirectiveGroup = DirectiveGroup {
    title: "Cluster",
    directives: &[
        row(
            "cluster-config-file",
            ValueForm::Path,
            UNSHOWN,
            place!(cluster_config_file),
            "Where the node keeps its ID and the nodes it knows. The server writes this file; \
             it is not for editing, and no two servers may share one.",
        ),
        row(
            "cluster-node-timeout",
            at_least(0, "milliseconds"),
            LIVE,
            place!(cluster_node_timeout_ms),
            "How long a node may be silent before the others take it for failing.",
        ),
        row(
            "cluster-allow",
            ValueForm::Networks,
            LIVE,
            place!(cluster_allow),
            "Networks that nodes may connect from, such as 10.0.0.0/8 and fd00::/8; connections to the \
             bus from elsewhere are closed, those that are there too. Without it from everywhere. \
             Which nodes this one connects to is not its business. It is a second lock and no \
             password: whoever is in such a network may join.",
        ),
        row(
            "cluster-announce-ip",
            ValueForm::OptionalIp,
            LIVE,
            place!(cluster_announce_ip),
            "The address told to other nodes and to clients, for servers behind address \
             translation or in containers. Without it, the address that connections arrive at.",
        ),
        row(
            "cluster-announce-port",
            up_to(PORT_MAX),
            LIVE,
            place!(cluster_announce_port),
            "The client port told to others; 0 is the value of port.",
        ),
        row(
            "cluster-announce-bus-port",
            up_to(u16::MAX as i64),
            LIVE,
            place!(cluster_announce_bus_port),
            "The bus port told to nodes that understand it; 0 is the client port + 10000.",
        ),
        row(
            "availability-zone",
            ValueForm::Label { max: ZONE_MAX },
            LIVE,
            place!(availability_zone),
            "What fails together with this node: the name of a rack, a zone or a site. Copies of a \
             job are spread over zones, and ADDJOB ... ZONES asks for it. Empty is none.",
        ),
        row(
            "cluster-name",
            ValueForm::Label { max: NODE_INFO_TEXT_MAX },
            LIVE,
            place!(cluster_name),
            "Nodes of a cluster of another name are not met and not taken in; who has no name, as \
             C servers, is. A node that is known stays known. Empty is none.",
        ),
        row(
            "cluster-seeds",
            ValueForm::Seeds,
            LIVE,
            place!(cluster_seeds),
            "Hosts, by name or address, of which all addresses are met at start and again while \
             any is missing or a node is out of reach: a cluster forms, and finds itself at new \
             addresses, without CLUSTER MEET. Without a port that of this server. Its own address \
             may be among them.",
        ),
        row(
            "cluster-forget-after",
            at_least(0, "seconds"),
            LIVE,
            place!(cluster_forget_after_secs),
            "A node that a majority has called failing for so long is forgotten by all nodes that \
             have this, and see a majority all that time; 0 is never. When it comes back it is taken \
             in again, and acks that it missed are kept for it.",
        ),
    ],
};
