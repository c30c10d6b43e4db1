//! The manual on databases and keys: there is one database, without keys. Desktop tools and
//! clients of Redis ask for both before they do anything else.

use super::{
    Command, Flags, Group, Kind, NOT_AN_INTEGER, Roles, SINCE_OURS, SYNTAX, argument, integer,
    text, usage,
};

const R: Flags = Flags::READONLY;
const L: Flags = Flags::LOADING;
const F: Flags = Flags::FAST;

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "select",
        arity: 2,
        flags: R.and(L).and(F),
        roles: Roles::ALL,
        group: Group::Keyspace,
        since: SINCE_OURS,
        summary: "Chooses the only database there is",
        usages: &[usage(&[integer("index")], "OK for 0.")],
        errors: &[NOT_AN_INTEGER, "ERR DB index is out of range"],
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: R.and(F),
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Keyspace,
        since: SINCE_OURS,
        summary: "Counts the jobs that this node knows",
        usages: &[usage(
            &[],
            "Integer: queued here or not, in work, waiting for copies or acknowledged, as \
             registered_jobs of INFO. A job counts on each node that holds a copy.",
        )],
        errors: &[],
    },
    Command {
        name: "scan",
        arity: -2,
        flags: R,
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Keyspace,
        since: SINCE_OURS,
        summary: "Shows the keys, of which there are none: QSCAN shows queues, JSCAN jobs",
        usages: &[usage(
            &[
                integer("cursor"),
                argument("pattern", Kind::Pattern).after("MATCH").optional(),
                integer("count").after("COUNT").optional(),
                text("type").after("TYPE").optional(),
            ],
            "Array of the cursor 0, which is the end, and an empty array.",
        )],
        errors: &["ERR invalid cursor", NOT_AN_INTEGER, SYNTAX],
    },
    Command {
        name: "keys",
        arity: 2,
        flags: R,
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Keyspace,
        since: SINCE_OURS,
        summary: "Shows the keys that match a glob pattern, of which there are none",
        usages: &[usage(&[argument("pattern", Kind::Pattern)], "An empty array.")],
        errors: &[],
    },
    Command {
        name: "type",
        arity: 2,
        flags: R.and(F),
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Keyspace,
        since: SINCE_OURS,
        summary: "Shows the type of a key, which is none since there is no key",
        usages: &[usage(&[text("key")], "none.")],
        errors: &[],
    },
];
