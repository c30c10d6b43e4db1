//! The manual on the cluster: the nodes, as one of them sees them.

use super::{
    Command, Flags, Group, Roles, SINCE_C, SYNTAX, block, integer, one_of, subcommand, text, usage,
    word,
};

const R: Flags = Flags::READONLY;
const A: Flags = Flags::ADMIN;
const F: Flags = Flags::FAST;

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "hello",
        arity: -1,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Cluster,
        since: SINCE_C,
        summary: "Shows this node and the others, or opens a connection as Redis clients do",
        usages: &[usage(
            &[block(
                "greeting",
                &[
                    one_of("version", &[word("2"), word("3")]),
                    block("credentials", &[text("user"), text("password")])
                        .after("AUTH")
                        .optional(),
                    text("name").after("SETNAME").optional(),
                ],
            )
            .optional()],
            "Without arguments an array: 1, the ID of this node, then for each node `[id, \
             address, port, priority]`, where priority 1 is good, 2 and 3 have over 75 and 95 % of \
             their memory in use, 5 is without a link, 10 probably \
             failing, and 100 failing or leaving. With a version: what this server is, as a map; \
             the connection speaks that version of RESP from then on. Without AUTH who has not logged in \
             is refused, where there is a password or a user. Nothing changes unless all of it is right.",
        )],
        errors: &[
            SYNTAX,
            "NOPROTO unsupported protocol version",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH HELLO must be called with the client already authenticated<...>",
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ],
    },
    Command {
        name: "cluster",
        arity: -2,
        flags: R.and(A),
        roles: Roles::ADMIN,
        group: Group::Cluster,
        since: SINCE_C,
        summary: "Shows the cluster as this node sees it, and changes it",
        usages: &[
            subcommand(
                "MEET",
                "Makes this node known to another one, and so joins their clusters",
                &[text("ip"), integer("port"), integer("bus-port").optional()],
                "OK. The bus port is the port + 10000 unless it is given.",
            ),
            subcommand(
                "NODES",
                "Shows the nodes that this node knows",
                &[],
                "Text, a line for each node: ID, address, flags, when a ping was sent and a pong \
                 came, and whether there is a link.",
            )
            .for_roles(Roles::WATCH_OR_OPERATE),
            subcommand(
                "PEERS",
                "Shows what this node knows of each node",
                &[],
                "Array of maps, this node first: id, address, zone, version, abilities, name, \
                 state (myself, ok, silent, failing), leaving, unsent-bytes and round-trip-ms of \
                 the link to it, memory-percent, loop-percent. What is not known is null; C nodes \
                 say nothing of themselves.",
            )
            .for_roles(Roles::WATCH_OR_OPERATE),
            subcommand("MYID", "Shows the ID of this node", &[], "The ID.")
                .for_roles(Roles::WATCH_OR_OPERATE),
            subcommand("INFO", "Shows figures of the cluster", &[], "Text: figures, one a line.")
                .for_roles(Roles::WATCH_OR_OPERATE),
            subcommand("SAVECONFIG", "Writes nodes.conf", &[], "OK once nodes.conf is on disk.")
                .for_roles(Roles::OPERATE),
            subcommand(
                "FORGET",
                "Removes a node from this node's view",
                &[text("node-id")],
                "OK. The node cannot come back for 60 s.",
            ),
            subcommand(
                "RESET",
                "Forgets all nodes, jobs and queues",
                &[one_of("way", &[word("SOFT"), word("HARD")]).optional()],
                "OK: all nodes are forgotten, and all jobs and queues here deleted; HARD takes a \
                 new node ID as well.",
            ),
            subcommand(
                "LEAVING",
                "Prepares this node to leave, or shows whether it does",
                &[one_of("leaves", &[word("yes"), word("no")]).optional()],
                "OK, or without an argument yes or no. A node that leaves takes no new copies, \
                 and its waiting clients are turned away.",
            )
            .for_roles(Roles::OPERATE),
        ],
        errors: &[
            SYNTAX,
            "ERR Wrong CLUSTER subcommand or number of arguments",
            "ERR Invalid TCP port specified: <port>",
            "ERR Invalid node address specified: <ip>:<port>",
            "ERR Too many handshakes in progress, try later",
            "ERR Invalid node identifier",
            "ERR Unknown node <id>",
            "ERR I tried hard but I can't forget myself...",
            "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'",
        ],
    },
];
