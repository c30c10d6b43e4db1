//! What the reference says of each command, one [`Page`] a row of the command tables.
//!
//! `docs/commands.md` and COMMAND DOCS are made of it. A test holds the pages to the
//! tables, another the error texts to the code that answers them.

/// One command.
pub struct Page {
    /// As in its row of the table.
    pub name: &'static str,
    pub group: Group,
    /// One sentence, without its full stop.
    pub summary: &'static str,
    /// One syntax for most commands, one for each subcommand of the others.
    pub forms: &'static [Usage],
    /// Error texts, what differs from call to call in angle brackets.
    pub errors: &'static [&'static str],
}

/// One way to call a command.
pub struct Usage {
    pub syntax: &'static str,
    pub reply: &'static str,
}

/// The chapters of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Jobs,
    Queues,
    Cluster,
    Connection,
    Server,
}

impl Group {
    pub const ALL: [Self; 5] =
        [Self::Jobs, Self::Queues, Self::Cluster, Self::Connection, Self::Server];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Queues => "queues",
            Self::Cluster => "cluster",
            Self::Connection => "connection",
            Self::Server => "server",
        }
    }
}

const fn form(syntax: &'static str, reply: &'static str) -> Usage {
    Usage { syntax, reply }
}

const SYNTAX: &str = "ERR syntax error";
const BAD_ID: &str = "BADID Invalid Job ID format.";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const TIMEOUT_NOT_AN_INTEGER: &str = "ERR timeout is not an integer or out of range";
const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
const LEAVING: &str = "LEAVING This node is leaving the cluster, please connect to a different one";
const BAD_CURSOR: &str = "ERR invalid cursor or option name";

/// The page of a command, named as in its row.
pub fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

/// All pages, those of a group together, in the order of the reference.
pub static PAGES: &[Page] = &[
    Page {
        name: "addjob",
        group: Group::Jobs,
        summary: "Adds a job to a queue and, before it answers, copies it to other nodes",
        forms: &[form(
            "ADDJOB queue body ms-timeout [REPLICATE n] [TTL s] [RETRY s] [DELAY s] [MAXLEN n] \
             [ASYNC]",
            "Status: the ID of the job, 40 characters. `ms-timeout` is how long to wait for the \
             copies, 0 for as long as it takes. REPLICATE counts all copies and is by default 3, \
             or the number of nodes if they are fewer; TTL is a day by default; RETRY a tenth of \
             the TTL, at most 300 s, and 0 for a job that is delivered at most once. With MAXLEN \
             the job is refused by a queue that has as many jobs on this node. With ASYNC the \
             answer does not wait for the copies. Numbers over 32 bits are kept at the maximum.",
        )],
        errors: &[
            SYNTAX,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
            "ERR REPLICATE must be between 1 and 65535",
            "ERR TTL must be a number > 0",
            "ERR RETRY time must be a non negative number",
            "ERR DELAY time must be a non negative number",
            "ERR MAXLEN must be a positive number",
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)",
            "ERR The specified DELAY is greater than TTL. Job refused since would never be \
             delivered",
            "NOREPL Not enough reachable nodes for the requested replication level",
            "NOREPL Timeout reached before replicating to the requested number of nodes",
            "NOREPL job removed (expired?) before the requested replication level was achieved",
            "MAXLEN Queue is already longer than the specified MAXLEN count",
            "PAUSED Queue paused in input, try later",
            LEAVING,
        ],
    },
    Page {
        name: "getjob",
        group: Group::Jobs,
        summary: "Fetches jobs, and waits for one where there is none",
        forms: &[form(
            "GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue [queue ...]",
            "Array of `[queue, id, body]`, and with WITHCOUNTERS `[queue, id, body, nacks, n, \
             additional-deliveries, n]`. The queues are asked in their order, for one job each, \
             again and again until there are COUNT jobs (1 by default) or none is left; a client \
             that had to wait gets one job. A null array when TIMEOUT has passed, or at once with \
             NOHANG; without either the client waits without end. FROM comes last: all words \
             behind it are queues.",
        )],
        errors: &[
            SYNTAX,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
            "ERR COUNT must be a number greater than zero",
            LEAVING,
        ],
    },
    Page {
        name: "ackjob",
        group: Group::Jobs,
        summary: "Tells that jobs are done, so that every node deletes them",
        forms: &[form(
            "ACKJOB [id ...]",
            "Integer: how many of the jobs were known here and not yet acknowledged. All IDs are \
             checked before any job is touched.",
        )],
        errors: &[BAD_ID],
    },
    Page {
        name: "fastack",
        group: Group::Jobs,
        summary: "Deletes jobs everywhere with a single message, which may get lost",
        forms: &[form("FASTACK [id ...]", "Integer: how many of the jobs were here.")],
        errors: &[BAD_ID],
    },
    Page {
        name: "nack",
        group: Group::Jobs,
        summary: "Tells that jobs could not be processed, and queues them again at once",
        forms: &[form(
            "NACK [id ...]",
            "Integer: how many jobs went to their queue. Each counts one more nack.",
        )],
        errors: &[BAD_ID],
    },
    Page {
        name: "working",
        group: Group::Jobs,
        summary: "Puts off the next delivery of a job that takes longer",
        forms: &[form(
            "WORKING id",
            "Integer: the retry time of the job in seconds, by which the delivery is put off here \
             and on the other nodes that have it.",
        )],
        errors: &[
            BAD_ID,
            "NOJOB Job not known in the context of this node.",
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the \
             next delivery.",
            "ACKED Job already acknowledged.",
        ],
    },
    Page {
        name: "show",
        group: Group::Jobs,
        summary: "Tells all that this node knows of a job",
        forms: &[form(
            "SHOW id",
            "Array of 15 names and values: id, queue, state, repl, ttl, ctime, delay, retry, \
             nacks, additional-deliveries, nodes-delivered, nodes-confirmed, next-requeue-within, \
             next-awake-within, body. Null for a job not known here.",
        )],
        errors: &[BAD_ID],
    },
    Page {
        name: "jscan",
        group: Group::Jobs,
        summary: "Walks through the jobs of this node, a part at a time",
        forms: &[form(
            "JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY id|all]",
            "Array of two: the cursor to go on with, 0 when all is scanned, and the IDs of the \
             jobs, or with REPLY all what SHOW answers of them. STATE is one of wait-repl, \
             active, queued, acked, and may stand more than once. COUNT, 100 by default, is about \
             how many jobs come at once; BUSYLOOP scans all in one call.",
        )],
        errors: &[
            SYNTAX,
            BAD_CURSOR,
            NOT_AN_INTEGER,
            "ERR Invalid job state name",
            "ERR Invalid REPLY type, try ID or ALL",
        ],
    },
    Page {
        name: "deljob",
        group: Group::Jobs,
        summary: "Deletes jobs on this node and no other",
        forms: &[form("DELJOB [id ...]", "Integer: how many of the jobs were here.")],
        errors: &[BAD_ID],
    },
    Page {
        name: "loadjob",
        group: Group::Jobs,
        summary: "Is a record of the append only file, and nothing a client may send",
        forms: &[form("LOADJOB bytes", "Always an error.")],
        errors: &["ERR LOADJOB is a special command only processed from AOF"],
    },
    Page {
        name: "qlen",
        group: Group::Queues,
        summary: "Tells how many jobs are queued on this node",
        forms: &[form("QLEN queue", "Integer, 0 for a queue not known here.")],
        errors: &[],
    },
    Page {
        name: "qpeek",
        group: Group::Queues,
        summary: "Shows queued jobs and fetches none",
        forms: &[form(
            "QPEEK queue count",
            "Array of `[queue, id, body]`, oldest first, or newest first for a negative count. At \
             most 16384 at once.",
        )],
        errors: &[NOT_AN_INTEGER],
    },
    Page {
        name: "qstat",
        group: Group::Queues,
        summary: "Tells all that this node knows of a queue",
        forms: &[form(
            "QSTAT queue",
            "Array of 10 names and values: name, len, age, idle, blocked, import-from, \
             import-rate, jobs-in, jobs-out, pause. A null array for a queue not known here.",
        )],
        errors: &[],
    },
    Page {
        name: "qscan",
        group: Group::Queues,
        summary: "Walks through the queues of this node, a part at a time",
        forms: &[form(
            "QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]",
            "Array of two: the cursor to go on with, 0 when all is scanned, and the names of the \
             queues. IMPORTRATE is the least number of jobs that come from other nodes each \
             second. COUNT, 100 by default, is about how many queues come at once; BUSYLOOP scans \
             all in one call.",
        )],
        errors: &[SYNTAX, BAD_CURSOR, NOT_AN_INTEGER],
    },
    Page {
        name: "pause",
        group: Group::Queues,
        summary: "Stops jobs from entering or leaving a queue, or tells whether they are stopped",
        forms: &[form(
            "PAUSE queue in|out|all|none|state|bcast [...]",
            "Status: in, out, all or none, which is how the queue is paused afterwards. The words \
             replace what was; `state` changes nothing; `bcast` tells all nodes the result. An \
             ADDJOB to a queue paused in is refused, a GETJOB from one paused out waits.",
        )],
        errors: &[SYNTAX],
    },
    Page {
        name: "enqueue",
        group: Group::Queues,
        summary: "Queues active jobs at once",
        forms: &[form(
            "ENQUEUE [id ...]",
            "Integer: how many jobs went to their queue. Each counts one more delivery, unless it \
             had never been queued before.",
        )],
        errors: &[BAD_ID],
    },
    Page {
        name: "dequeue",
        group: Group::Queues,
        summary: "Takes jobs out of their queue",
        forms: &[form(
            "DEQUEUE [id ...]",
            "Integer: how many jobs left their queue. They come back when their retry time has \
             passed; jobs with RETRY 0 do not.",
        )],
        errors: &[BAD_ID],
    },
    Page {
        name: "hello",
        group: Group::Cluster,
        summary: "Tells who this node is and which others there are, or opens a connection as \
                  Redis clients do",
        forms: &[
            form(
                "HELLO",
                "Array: 1, the ID of this node, then for each node `[id, address, port, \
                 priority]`, where priority 1 is good, 5 without a link, 10 probably failing, and \
                 100 failing or leaving.",
            ),
            form(
                "HELLO 2|3 [AUTH user password] [SETNAME name]",
                "What this server is, as a map; the connection speaks that version of RESP from \
                 then on. The user is `default`. Nothing changes unless all of it is right.",
            ),
        ],
        errors: &[
            SYNTAX,
            "NOPROTO unsupported protocol version",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH HELLO must be called with the client already authenticated<...>",
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ],
    },
    Page {
        name: "cluster",
        group: Group::Cluster,
        summary: "Shows the cluster as this node sees it, and changes it",
        forms: &[
            form(
                "CLUSTER MEET ip port [bus-port]",
                "OK: this node makes itself known to that one. The bus port is the port + 10000 \
                 unless it is given.",
            ),
            form(
                "CLUSTER NODES",
                "Text, a line for each node: ID, address, flags, when a ping was sent and a pong \
                 came, and whether there is a link.",
            ),
            form("CLUSTER MYID", "The ID of this node."),
            form("CLUSTER INFO", "Text: figures, one a line."),
            form("CLUSTER SAVECONFIG", "OK once nodes.conf is on disk."),
            form(
                "CLUSTER FORGET node-id",
                "OK: the node is removed from this node's view, and cannot come back for 60 s.",
            ),
            form(
                "CLUSTER RESET [SOFT|HARD]",
                "OK: all nodes are forgotten, and all jobs and queues here deleted; HARD takes a \
                 new node ID as well.",
            ),
            form(
                "CLUSTER LEAVING [yes|no]",
                "OK, or without a word yes or no. A node that leaves takes no new copies, and its \
                 waiting clients are turned away.",
            ),
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
    Page {
        name: "auth",
        group: Group::Connection,
        summary: "Says the password",
        forms: &[form(
            "AUTH password",
            "OK. A wrong one takes away what an earlier right one gave.",
        )],
        errors: &["ERR Client sent AUTH, but no password is set", "ERR invalid password"],
    },
    Page {
        name: "ping",
        group: Group::Connection,
        summary: "Answers, to show that the server is there",
        forms: &[form("PING [message]", "PONG, or the message.")],
        errors: &["ERR wrong number of arguments for 'ping' command"],
    },
    Page {
        name: "client",
        group: Group::Connection,
        summary: "Shows the connections of clients, and changes them",
        forms: &[
            form(
                "CLIENT LIST",
                "Text, a line for each client: id, addr, fd, name, age and idle in seconds, \
                 flags, qbuf and qbuf-free, obl, oll and omem, events, cmd. The flags are O for \
                 MONITOR, b waiting in GETJOB or ADDJOB, c and A about to be closed, U over the \
                 unix socket, N none of these.",
            ),
            form("CLIENT ID", "Integer: the number of this connection."),
            form("CLIENT GETNAME", "The name of this connection, or null."),
            form("CLIENT SETNAME name", "OK. An empty name takes the name away."),
            form("CLIENT SETINFO what value", "OK. Redis clients tell who they are; nobody asks."),
            form("CLIENT KILL ip:port", "OK: that client, be it this one, is closed."),
            form(
                "CLIENT KILL [ID n] [ADDR ip:port] [TYPE normal] [SKIPME yes|no] ...",
                "Integer: how many clients are closed. They have to fit everything said; this one \
                 is spared unless SKIPME is no.",
            ),
            form("CLIENT PAUSE ms", "OK: nothing of any client is executed for that time."),
            form(
                "CLIENT REPLY ON|OFF|SKIP",
                "OK for ON. OFF and SKIP are not answered, nor is anything after OFF, nor the next \
                 command after SKIP.",
            ),
        ],
        errors: &[
            SYNTAX,
            "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME \
             connection-name)",
            "ERR Client names cannot contain spaces, newlines or special characters.",
            "ERR No such client",
            "ERR Unknown client type '<type>'",
            NOT_AN_INTEGER,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
        ],
    },
    Page {
        name: "monitor",
        group: Group::Connection,
        summary: "Shows every command of every client from now on",
        forms: &[form(
            "MONITOR",
            "OK, then a status for each command: the time, the client's address and the words. \
             Passwords are hidden. A client that does not read them in time is closed once 32 MiB \
             wait for it. A second MONITOR of the same client is not answered.",
        )],
        errors: &[],
    },
    Page {
        name: "info",
        group: Group::Server,
        summary: "Tells figures of the server",
        forms: &[form(
            "INFO [section]",
            "Text: `name:value` lines under a heading for each section. Sections are server, \
             clients, memory, jobs, queues, persistence, stats, cpu, commandstats; `default` is \
             all but the last of them, `all` is everything. Empty for an unknown section.",
        )],
        errors: &[SYNTAX],
    },
    Page {
        name: "time",
        group: Group::Server,
        summary: "Tells the server's clock",
        forms: &[form(
            "TIME",
            "Array of two texts: unix time in seconds, and microseconds within the second.",
        )],
        errors: &[],
    },
    Page {
        name: "command",
        group: Group::Server,
        summary: "Tells which commands there are",
        forms: &[
            form(
                "COMMAND",
                "Array of `[name, arity, flags, 0, 0, 0]`, where an arity below 0 is the least \
                 number of words.",
            ),
            form("COMMAND COUNT", "Integer: how many there are."),
            form("COMMAND INFO name [...]", "The same arrays, null for an unknown name."),
            form("COMMAND DOCS [name ...]", "Map from names to maps of summary, since and group."),
        ],
        errors: &["ERR Unknown subcommand or wrong number of arguments."],
    },
    Page {
        name: "config",
        group: Group::Server,
        summary: "Shows and changes the settings of the running server",
        forms: &[
            form(
                "CONFIG GET pattern",
                "Array of names and values of the directives that match a glob pattern; under \
                 RESP3 a map.",
            ),
            form("CONFIG SET directive value", "OK, and what is set is in force."),
            form("CONFIG REWRITE", "OK once the configuration file says what is set."),
            form(
                "CONFIG RESETSTAT",
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
    Page {
        name: "slowlog",
        group: Group::Server,
        summary: "Shows the last commands that took long, as slowlog-log-slower-than says",
        forms: &[
            form(
                "SLOWLOG GET [n]",
                "Array of the newest n, 10 by default, all for a negative n: `[number, unix time, \
                 microseconds, [word, ...]]`. Passwords are hidden, long words and many words cut \
                 with a note.",
            ),
            form("SLOWLOG LEN", "Integer: how many are kept."),
            form("SLOWLOG RESET", "OK: none."),
        ],
        errors: &[
            "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.",
            NOT_AN_INTEGER,
        ],
    },
    Page {
        name: "latency",
        group: Group::Server,
        summary: "Shows what held the server up for latency-monitor-threshold or longer",
        forms: &[
            form(
                "LATENCY HISTORY event",
                "Array of `[unix time, ms]`, oldest first, the worst of each second, at most 160.",
            ),
            form(
                "LATENCY LATEST",
                "Array of `[event, unix time, ms, highest ms]`, one for each event seen. Events \
                 are command and fast-command, jobs-processing, eviction-cycle, and for the append \
                 only file aof-write, with it one of aof-write-alone, aof-write-active-child and \
                 aof-write-pending-fsync, or aof-fsync-always. The C server's fork, aof-fstat, \
                 aof-rename and aof-rewrite-diff-write do not happen here.",
            ),
            form("LATENCY GRAPH event", "Text: the history as a drawing."),
            form("LATENCY DOCTOR", "Text: the samples in words, with advice."),
            form("LATENCY RESET [event ...]", "Integer: how many events had samples to forget."),
        ],
        errors: &[SYNTAX, "ERR No samples available for event '<event>'"],
    },
    Page {
        name: "bgrewriteaof",
        group: Group::Server,
        summary: "Writes the append only file anew, with nothing in it that is not needed",
        forms: &[form(
            "BGREWRITEAOF",
            "Status: it has begun, and goes on while clients are served. INFO tells when it is \
             done. It works with appendonly off as well.",
        )],
        errors: &[
            "ERR Background append only file rewriting already in progress",
            "ERR Can't rewrite the AOF file: <reason>",
        ],
    },
    Page {
        name: "shutdown",
        group: Group::Server,
        summary: "Ends the server",
        forms: &[form(
            "SHUTDOWN [REWRITE-AOF]",
            "None: the connections close. With REWRITE-AOF all jobs are written to the append \
             only file first, even if it is off.",
        )],
        errors: &[SYNTAX, "ERR Errors trying to SHUTDOWN. Check logs."],
    },
    Page {
        name: "debug",
        group: Group::Server,
        summary: "Is for tests and the curious, not for production",
        forms: &[
            form("DEBUG FLUSHALL", "OK: all jobs and queues of this node are gone."),
            form("DEBUG LOADAOF", "OK: memory is as the append only file says."),
            form("DEBUG SLEEP seconds", "OK after the server has done nothing for that time."),
            form("DEBUG ERROR text", "That error."),
            form("DEBUG STRUCTSIZE", "Text: sizes of structures."),
            form(
                "DEBUG INVARIANTS",
                "OK when all that is kept twice agrees. Where it does not, the server ends with a \
                 report.",
            ),
            form("DEBUG SEGFAULT|ASSERT|OOM", "None: the server ends as by that accident."),
            form(
                "DEBUG RESTART [ms]",
                "None: settings are written, the server ends properly, and the program begins \
                 anew in the same process, after ms.",
            ),
            form("DEBUG CRASH-AND-RECOVER [ms]", "None: the same without the proper end."),
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
