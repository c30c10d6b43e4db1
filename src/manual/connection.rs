//! The manual on connections: who a client is, and which others there are.

use super::{
    Command, Flags, Group, NOT_AN_INTEGER, Roles, SINCE_C, SINCE_OURS, SYNTAX, TIMEOUT_NEGATIVE,
    TIMEOUT_NOT_AN_INTEGER, block, integer, one_of, subcommand, text, usage, word,
};

const R: Flags = Flags::READONLY;
const A: Flags = Flags::ADMIN;
const L: Flags = Flags::LOADING;
const F: Flags = Flags::FAST;

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "auth",
        arity: -2,
        flags: R.and(L).and(F),
        roles: Roles::ALL,
        group: Group::Connection,
        since: SINCE_C,
        summary: "Logs a client in",
        usages: &[usage(
            &[text("user").optional(), text("password")],
            "OK: the client is this user from now on. A password alone, or with an empty name, is that of the user \
             default, which is requirepass; where there is neither requirepass nor a user, any is right. Given alone, a wrong password takes \
             away what an earlier right one gave; with a user, nothing changes.",
        )],
        errors: &[
            SYNTAX,
            "ERR Client sent AUTH, but no password is set",
            "ERR invalid password",
            "WRONGPASS invalid username-password pair or user is disabled.",
        ],
    },
    Command {
        name: "ping",
        arity: -1,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Connection,
        since: SINCE_C,
        summary: "Replies, to show that the server is there",
        usages: &[usage(&[text("message").optional()], "PONG, or the message.")],
        errors: &["ERR wrong number of arguments for 'ping' command"],
    },
    Command {
        name: "echo",
        arity: 2,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Connection,
        since: SINCE_OURS,
        summary: "Replies with what it is given",
        usages: &[usage(&[text("message")], "The message.")],
        errors: &[],
    },
    Command {
        name: "client",
        arity: -2,
        flags: A.and(R),
        roles: Roles::ADMIN,
        group: Group::Connection,
        since: SINCE_C,
        summary: "Shows the connections of clients, and changes them",
        usages: &[
            subcommand(
                "LIST",
                "Shows every client",
                &[],
                "Text, a line for each client: id, addr, fd, name, age and idle in seconds, \
                 flags, qbuf and qbuf-free, obl, oll and omem, events, cmd, and user, which is \
                 empty for one that has to log in. The flags are O for \
                 MONITOR, b waiting in GETJOB or ADDJOB, c and A about to be closed, U over the \
                 unix socket, N none of these.",
            )
            .for_roles(Roles::WATCH_OR_OPERATE),
            subcommand("INFO", "Shows this connection", &[], "Text: its line of CLIENT LIST.")
                .for_roles(Roles::ALL),
            subcommand("ID", "Shows the number of this connection", &[], "Integer: the number.")
                .for_roles(Roles::ALL),
            subcommand("GETNAME", "Shows the name of this connection", &[], "The name, or null.")
                .for_roles(Roles::ALL),
            subcommand(
                "SETNAME",
                "Names this connection",
                &[text("name")],
                "OK. An empty name takes the name away.",
            )
            .for_roles(Roles::ALL),
            subcommand(
                "SETINFO",
                "Takes what a client library reports of itself",
                &[text("what"), text("value")],
                "OK, without effect.",
            )
            .for_roles(Roles::ALL),
            subcommand(
                "KILL",
                "Closes connections of clients",
                &[one_of(
                    "which",
                    &[
                        text("ip:port"),
                        block(
                            "filters",
                            &[
                                integer("n").after("ID").optional(),
                                text("ip:port").after("ADDR").optional(),
                                one_of("type", &[word("normal")]).after("TYPE").optional(),
                                one_of("skips", &[word("yes"), word("no")])
                                    .after("SKIPME")
                                    .optional(),
                            ],
                        ),
                    ],
                )],
                "With an address alone OK: that client, be it this one, is closed. Else integer: \
                 how many clients are closed. They have to fit every filter; this one is spared \
                 unless SKIPME is no.",
            ),
            subcommand(
                "PAUSE",
                "Lets all clients wait for some time",
                &[integer("ms")],
                "OK: nothing of any client is executed for that time but CLIENT, AUTH and HELLO, \
                 each in its turn behind what the same client sent before. A longer pause that is \
                 there already goes on. At most a day, 86400000.",
            ),
            subcommand("UNPAUSE", "Ends the pause", &[], "OK, whether there was one or not."),
            subcommand(
                "REPLY",
                "Sets whether this connection gets replies",
                &[one_of("mode", &[word("ON"), word("OFF"), word("SKIP")])],
                "OK for ON. OFF and SKIP are not answered, nor is anything after OFF, nor the next \
                 command after SKIP.",
            )
            .for_roles(Roles::ALL),
            subcommand(
                "NO-EVICT",
                "Is for clients that ask not to be closed when memory is short",
                &[one_of("mode", &[word("ON"), word("OFF")])],
                "OK, without effect: no client is closed for that.",
            )
            .for_roles(Roles::ALL),
            subcommand(
                "NO-TOUCH",
                "Is for clients that ask to leave no trace of use in keys",
                &[one_of("mode", &[word("ON"), word("OFF")])],
                "OK, without effect: there are no keys.",
            )
            .for_roles(Roles::ALL),
            subcommand(
                "TRACKING",
                "Is for clients that cache keys",
                &[one_of("mode", &[word("ON"), word("OFF")])],
                "OK for OFF. ON is refused, with any options.",
            )
            .for_roles(Roles::ALL),
        ],
        errors: &[
            SYNTAX,
            "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME \
             connection-name)",
            "ERR Client names cannot contain spaces, newlines or special characters.",
            "ERR No such client",
            "ERR Unknown client type '<type>'",
            "ERR Client tracking is not supported: there are no keys to track",
            "ERR timeout is out of range: a pause has at most 86400000 ms",
            NOT_AN_INTEGER,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
        ],
    },
    Command {
        name: "monitor",
        arity: 1,
        flags: A.and(R),
        roles: Roles::ADMIN,
        group: Group::Connection,
        since: SINCE_C,
        summary: "Shows every command of every client from now on",
        usages: &[usage(
            &[],
            "OK, then a status for each command: the time, the client's address and the \
             arguments. Passwords are hidden. A client that does not read them in time is closed \
             once 32 MiB wait for it. A second MONITOR of the same client is not answered.",
        )],
        errors: &[],
    },
];
