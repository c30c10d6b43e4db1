//! The manual on the server itself: its figures, its settings, its files, its end.

use super::{
    Argument, Command, Flags, Group, Kind, NOT_AN_INTEGER, Roles, SINCE_C, SINCE_OURS, SYNTAX,
    argument, integer, one_of, subcommand, text, usage, word,
};

const R: Flags = Flags::READONLY;
const A: Flags = Flags::ADMIN;
const L: Flags = Flags::LOADING;
const F: Flags = Flags::FAST;

const NAMES: &[Argument] = &[text("name").optional().repeated()];
const EVENT: &[Argument] = &[text("event")];
const DIES: &str = "None: the server ends as by that accident.";

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "info",
        arity: -1,
        flags: R.and(L),
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows figures of the server",
        usages: &[usage(
            &[text("section").optional()],
            "Text: `name:value` lines under a heading for each section. Sections are server, \
             clients, memory, jobs, queues, persistence, stats, cpu, commandstats; `default` is \
             all but the last of them, `all` is everything. Empty for an unknown section.",
        )],
        errors: &[SYNTAX],
    },
    Command {
        name: "time",
        arity: 1,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows the server's clock",
        usages: &[usage(
            &[],
            "Array of two texts: unix time in seconds, and microseconds within the second.",
        )],
        errors: &[],
    },
    Command {
        name: "command",
        arity: 0,
        flags: R.and(L),
        roles: Roles::ALL,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows which commands there are",
        usages: &[
            usage(
                &[],
                "Array of `[name, arity, flags, 0, 0, 0]`, where an arity below 0 is the least \
                 number of arguments, the name included.",
            ),
            subcommand("COUNT", "Counts the commands", &[], "Integer: how many there are."),
            subcommand(
                "INFO",
                "Shows the named commands",
                NAMES,
                "The same arrays, null for an unknown name.",
            ),
            subcommand(
                "DOCS",
                "Describes commands",
                NAMES,
                "Map from names to maps of summary, since, group, arguments and subcommands, as \
                 Redis describes its commands.",
            ),
            subcommand(
                "LIST",
                "Lists the names of commands",
                &[one_of(
                    "filter",
                    &[
                        text("name").after("MODULE"),
                        text("category").after("ACLCAT"),
                        argument("pattern", Kind::Pattern).after("PATTERN"),
                    ],
                )
                .after("FILTERBY")
                .optional()],
                "Array of the names, of those that match a glob pattern, or of none: there are \
                 neither modules nor categories.",
            ),
        ],
        errors: &["ERR Unknown subcommand or wrong number of arguments.", SYNTAX],
    },
    Command {
        name: "acl",
        arity: -2,
        flags: R.and(L),
        roles: Roles::ALL,
        group: Group::Server,
        since: SINCE_OURS,
        summary: "Shows which user a client is",
        usages: &[subcommand(
            "WHOAMI",
            "Shows the user of this connection",
            &[],
            "Text: the name of the user, default for who logged in with requirepass or did not have \
             to log in.",
        )],
        errors: &[
            "ERR Unknown ACL subcommand or wrong number of arguments: users are lines of the \
             directive user, and the password of default is requirepass",
        ],
    },
    Command {
        name: "module",
        arity: -2,
        flags: A.and(R),
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Server,
        since: SINCE_OURS,
        summary: "Shows which modules are loaded, which none can be",
        usages: &[subcommand("LIST", "Lists the modules", &[], "An empty array.")],
        errors: &[
            "ERR Unknown MODULE subcommand or wrong number of arguments: there are no modules",
        ],
    },
    Command {
        name: "config",
        arity: -2,
        flags: A.and(R),
        roles: Roles::ADMIN,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows and changes the settings of the running server",
        usages: &[
            subcommand(
                "GET",
                "Shows the directives that match a glob pattern",
                &[argument("pattern", Kind::Pattern)],
                "Array of names and values; under RESP3 a map.",
            ),
            subcommand(
                "SET",
                "Changes a directive of the running server",
                &[text("directive"), text("value")],
                "OK, and what is set is in force.",
            ),
            subcommand(
                "REWRITE",
                "Writes the settings to the configuration file",
                &[],
                "OK once the configuration file says what is set.",
            ),
            subcommand(
                "RESETSTAT",
                "Resets the statistics of INFO",
                &[],
                "OK: counters and rates of INFO start from nothing. Uptime and peak memory stay.",
            ),
        ],
        errors: &[
            "ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE",
            "ERR Wrong number of arguments for CONFIG <subcommand>",
            "ERR Unsupported CONFIG parameter: <directive>",
            "ERR Invalid argument '<value>' for CONFIG SET '<directive>'",
            "ERR The server is running without a config file",
            "ERR Rewriting config file: <reason>",
        ],
    },
    Command {
        name: "slowlog",
        arity: -2,
        flags: R,
        roles: Roles::ADMIN,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows the last commands that took long, as slowlog-log-slower-than says",
        usages: &[
            subcommand(
                "GET",
                "Shows the newest slow commands",
                &[integer("n").optional()],
                "Array of the newest n, 10 by default, all for a negative n: `[number, unix time, \
                 microseconds, [argument, ...]]`. Passwords are hidden, long arguments and many \
                 arguments cut with a note.",
            ),
            subcommand("LEN", "Counts the slow commands", &[], "Integer: how many are kept."),
            subcommand("RESET", "Forgets the slow commands", &[], "OK: none."),
        ],
        errors: &[
            "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.",
            NOT_AN_INTEGER,
        ],
    },
    Command {
        name: "latency",
        arity: -2,
        flags: A.and(R).and(L),
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Server,
        since: SINCE_C,
        summary: "Shows what held the server up for latency-monitor-threshold or longer",
        usages: &[
            subcommand(
                "HISTORY",
                "Shows the delays by one event",
                EVENT,
                "Array of `[unix time, ms]`, oldest first, the worst of each second, at most 160.",
            ),
            subcommand(
                "LATEST",
                "Shows the last and the highest delay by each event",
                &[],
                "Array of `[event, unix time, ms, highest ms]`, one for each event seen. Events \
                 are command and fast-command, jobs-processing, eviction-cycle, and for the append \
                 only file aof-write, with it one of aof-write-alone, aof-write-active-child and \
                 aof-write-pending-fsync, or aof-fsync-always. The C server's fork, aof-fstat, \
                 aof-rename and aof-rewrite-diff-write do not happen here.",
            ),
            subcommand("GRAPH", "Draws the delays by one event", EVENT, "Text: the history."),
            subcommand(
                "DOCTOR",
                "Describes the delays, and what helps",
                &[],
                "Text: the samples in words, with advice.",
            ),
            subcommand(
                "RESET",
                "Forgets the delays",
                &[text("event").optional().repeated()],
                "Integer: how many events had samples to forget.",
            )
            .for_roles(Roles::OPERATE),
        ],
        errors: &[SYNTAX, "ERR No samples available for event '<event>'"],
    },
    Command {
        name: "bgrewriteaof",
        arity: 1,
        flags: A.and(R),
        roles: Roles::OPERATE,
        group: Group::Server,
        since: SINCE_C,
        summary: "Writes the append only file anew, with nothing in it that is not needed",
        usages: &[usage(
            &[],
            "Status: it has begun, and goes on while clients are served. INFO shows when it is \
             done. It works with appendonly off as well.",
        )],
        errors: &[
            "ERR Background append only file rewriting already in progress",
            "ERR Can't rewrite the AOF file: <reason>",
        ],
    },
    Command {
        name: "shutdown",
        arity: -1,
        flags: A.and(R).and(L),
        roles: Roles::ADMIN,
        group: Group::Server,
        since: SINCE_C,
        summary: "Stops the server",
        usages: &[usage(
            &[word("REWRITE-AOF").optional()],
            "None: the connections close. With REWRITE-AOF all jobs are written to the append \
             only file first, even if it is off.",
        )],
        errors: &[SYNTAX, "ERR Errors trying to SHUTDOWN. Check logs."],
    },
    Command {
        name: "debug",
        arity: -2,
        flags: A,
        roles: Roles::ADMIN,
        group: Group::Server,
        since: SINCE_C,
        summary: "Is for tests and the curious, not for production",
        usages: &[
            subcommand(
                "FLUSHALL",
                "Deletes all jobs and queues of this node",
                &[],
                "OK: they are gone.",
            ),
            subcommand(
                "LOADAOF",
                "Loads the append only file again",
                &[],
                "OK: memory is as the append only file says.",
            ),
            subcommand(
                "SLEEP",
                "Stops serving for some time",
                &[argument("seconds", Kind::Double)],
                "OK after the server has done nothing for that time.",
            ),
            subcommand("ERROR", "Replies with an error", &[text("text")], "That error."),
            subcommand("STRUCTSIZE", "Shows sizes of structures", &[], "Text: the sizes."),
            subcommand(
                "INVARIANTS",
                "Checks what is kept twice",
                &[],
                "OK when all that is kept twice agrees. Where it does not, the server ends with a \
                 report.",
            ),
            subcommand("SEGFAULT", "Ends the server by a wild access to memory", &[], DIES),
            subcommand("ASSERT", "Ends the server by a failed assertion", &[], DIES),
            subcommand("OOM", "Ends the server as if memory had run out", &[], DIES),
            subcommand(
                "RESTART",
                "Shuts the server down and starts it anew",
                &[integer("ms").optional()],
                "None: settings are written, the server shuts down properly, and the program \
                 begins anew in the same process, after ms.",
            ),
            subcommand(
                "CRASH-AND-RECOVER",
                "Starts the server anew without a proper shutdown",
                &[integer("ms").optional()],
                "None: the same without the proper shutdown.",
            ),
        ],
        errors: &[
            "ERR Unknown DEBUG subcommand or wrong number of arguments for '<subcommand>'",
            "ERR value is not a valid number of seconds",
            "ERR Error trying to load the AOF. Check server logs.",
            "ERR failed to restart the server. Check server logs.",
            NOT_AN_INTEGER,
        ],
    },
];
