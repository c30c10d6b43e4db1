//! The manual on jobs: adding, fetching and acknowledging them, and what lies between.

use super::{
    Argument, BAD_CURSOR, BAD_ID, Command, Flags, Group, LEAVING, NOT_AN_INTEGER, PAUSED,
    QUEUE_NAME_TOO_LONG, Roles, SINCE_C, SINCE_OURS, SYNTAX, TIMEOUT_NEGATIVE,
    TIMEOUT_NOT_AN_INTEGER, block, integer, job, one_of, queue, text, usage, word,
};

const W: Flags = Flags::WRITE;
const R: Flags = Flags::READONLY;
const M: Flags = Flags::DENYOOM;
const F: Flags = Flags::FAST;

const DELAY: &str = "ERR DELAY time must be a non negative number";
const LEASE: &str = "ERR LEASE must be a number of seconds greater than zero";

const IDS: &[Argument] = &[job("id").optional().repeated()];

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "addjob",
        arity: -4,
        flags: W.and(M).and(F),
        roles: Roles::PRODUCE,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Adds a job to a queue and, before it replies, copies it to other nodes",
        usages: &[usage(
            &[
                queue("queue"),
                text("body"),
                integer("ms-timeout"),
                integer("count").after("REPLICATE").optional(),
                integer("count").after("SYNC").optional(),
                integer("count").after("ZONES").optional(),
                integer("seconds").after("TTL").optional(),
                integer("seconds").after("RETRY").optional(),
                integer("seconds").after("DELAY").optional(),
                integer("count").after("MAXLEN").optional(),
                word("ASYNC").optional(),
                integer("priority").after("PRIORITY").optional(),
                block("attribute", &[text("name"), text("value")])
                    .after("ATTR")
                    .optional()
                    .repeated_with_token(),
                integer("count").after("MAXDELIVERIES").optional(),
                queue("dead-queue").after("DEADQUEUE").optional(),
                word("TRACE").optional(),
            ],
            "Status: the ID of the job, 40 characters. `ms-timeout` is how long to wait for the \
             copies, 0 for as long as it takes. REPLICATE counts all copies and is by default 3, \
             or the number of nodes if they are fewer. With SYNC the reply comes when there are so \
             many copies, and the others are made after it; with ZONES when they are in so many \
             zones (availability-zone). TTL is a day by default; RETRY a tenth of \
             the TTL, at most 300 s, and 0 for a job that is delivered at most once. With MAXLEN \
             the job is refused by a queue that has as many jobs on this node. With ASYNC the \
             reply does not wait for the copies. Numbers over 32 bits are kept at the maximum. \
             PRIORITY is 1, which goes first in its queue, to 7, and 4 by default. ATTR \
             gives the job an attribute, which consumers may read beside the body: at most 16, of \
             names of 1 to 32 printable characters without spaces and any values, 1,024 bytes \
             together. C servers lose them. A job that was delivered MAXDELIVERIES times and fails \
             again goes to the queue of DEADQUEUE; what is not said the policy of the queue says, \
             and 0 is no limit. With TRACE it is kept what happens to the job, on every node that \
             it comes to; TRACE id shows it.",
        )],
        errors: &[
            SYNTAX,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
            "ERR REPLICATE must be between 1 and 65535",
            "ERR TTL must be a number > 0",
            "ERR RETRY time must be a non negative number",
            DELAY,
            "ERR MAXLEN must be a positive number",
            "ERR PRIORITY must be between 1 and 7",
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)",
            "ERR The specified DELAY is greater than TTL. Job refused since would never be \
             delivered",
            "NOREPL Not enough reachable nodes for the requested replication level",
            "ERR SYNC must be between 1 and REPLICATE",
            "ERR SYNC and ASYNC exclude each other",
            "ERR ZONES must be between 1 and REPLICATE, and not with ASYNC",
            "NOREPL Not enough reachable zones for the requested replication level",
            "NOREPL Timeout reached before replicating to the requested number of nodes",
            "NOREPL job removed (expired?) before the requested replication level was achieved",
            "ERR ATTR needs a name and a value",
            "ERR ATTR names must have 1 to 32 printable ASCII characters and no spaces",
            "ERR ATTR <name> is given twice",
            "ERR ATTR can be given at most 16 times",
            "ERR ATTR names and values can have at most 1024 bytes together",
            "ERR MAXDELIVERIES must be between 0 and 65535",
            "ERR DEADQUEUE must be a name of 1 to 255 bytes",
            "MAXLEN Queue is already longer than the specified MAXLEN count",
            PAUSED,
            QUEUE_NAME_TOO_LONG,
            LEAVING,
        ],
    },
    Command {
        name: "getjob",
        arity: -2,
        flags: W.and(F),
        roles: Roles::CONSUME,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Fetches jobs, and waits for one where there is none",
        usages: &[usage(
            &[
                word("NOHANG").optional(),
                integer("ms").after("TIMEOUT").optional(),
                integer("count").after("COUNT").optional(),
                word("WITHCOUNTERS").optional(),
                word("WITHATTRS").optional(),
                integer("seconds").after("LEASE").optional(),
                queue("queue").after("FROM").repeated(),
            ],
            "Array of `[queue, id, body]`, and with WITHCOUNTERS `[queue, id, body, nacks, n, \
             additional-deliveries, n]`. WITHATTRS puts `attrs` behind it, and an array of the \
             names and values of the job's attributes; it is empty for a job without, and null \
             for one that had some that this node does not know. Behind it a dead job has `dead`, and \
             one that was moved since `was-dead`: names and values of how it died. The queues are asked in their order, for one job each, \
             again and again until there are COUNT jobs (1 by default) or none is left; a client \
             that had to wait gets one job. A null array when TIMEOUT has passed, or at once with \
             NOHANG; without either the client waits without end. With LEASE the jobs come back in \
             so many seconds instead of their retry time, if they are not acknowledged; a job with \
             RETRY 0 never does. FROM comes last: all arguments behind it are queues.",
        )],
        errors: &[
            SYNTAX,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
            "ERR COUNT must be a number greater than zero",
            LEASE,
            QUEUE_NAME_TOO_LONG,
            LEAVING,
        ],
    },
    Command {
        name: "ackjob",
        arity: -1,
        flags: W.and(F),
        roles: Roles::CONSUME,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Reports that jobs are done, so that every node deletes them",
        usages: &[usage(
            IDS,
            "Integer: how many of the jobs were known here and not yet acknowledged. All IDs are \
             checked before any job is touched.",
        )],
        errors: &[BAD_ID],
    },
    Command {
        name: "fastack",
        arity: -1,
        flags: W.and(F),
        roles: Roles::CONSUME,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Deletes jobs everywhere with a single message, which may get lost",
        usages: &[usage(IDS, "Integer: how many of the jobs were here.")],
        errors: &[BAD_ID],
    },
    Command {
        name: "nack",
        arity: -1,
        flags: M.and(W).and(F),
        roles: Roles::CONSUME,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Reports that jobs could not be processed, and queues them again",
        usages: &[usage(
            &[
                job("id").optional().repeated(),
                integer("seconds").after("DELAY").optional(),
                one_of("fate", &[word("SILENT"), word("DEAD")]).optional(),
                text("text").after("REASON").optional(),
            ],
            "Integer: how many jobs went to their queue, or wait for it. Each counts one more \
             nack. With DELAY the jobs go to their queue in so many seconds, exactly; another NACK \
             sets another time, and ENQUEUE ends the wait. Without it they wait as long as `nack-delay` \
             of `queue-policy` says, by default not at all. With SILENT nothing is counted: for a \
             worker that gives back what it has not begun. A job that was delivered as often as its \
             limit says is dead, whatever DELAY says: it goes to the dead queue. With DEAD each does at once; one that is dead already \
             goes back to its queue. REASON, at most 256 bytes, is what SHOW \
             calls the note of the job from then on. The options stand behind the IDs, all \
             of which are checked before any job is touched. A job with RETRY 0 that was delivered \
             does not come again.",
        )],
        errors: &[
            BAD_ID,
            DELAY,
            "ERR REASON must be a text of at most 256 bytes",
            "ERR DELAY and DEAD exclude each other",
            "ERR SILENT and DEAD exclude each other",
            "ERR Job IDs stand in front of the options",
        ],
    },
    Command {
        name: "working",
        arity: -2,
        flags: W.and(F),
        roles: Roles::CONSUME,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Postpones the next delivery of a job that takes longer",
        usages: &[usage(
            &[job("id"), integer("seconds").after("LEASE").optional()],
            "Integer: the retry time of the job in seconds, or that of LEASE, by which the delivery \
             is postponed here and on the other nodes that have it. With RETRY 0 there is nothing to postpone: \
             0, and the job stays where it is.",
        )],
        errors: &[
            BAD_ID,
            "NOJOB Job not known in the context of this node.",
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the \
             next delivery.",
            "ACKED Job already acknowledged.",
            SYNTAX,
            LEASE,
        ],
    },
    Command {
        name: "show",
        arity: 2,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Shows all that this node knows of a job",
        usages: &[usage(
            &[job("id")],
            "Array of 15 names and values: id, queue, state, repl, ttl, ctime, delay, retry, \
             nacks, additional-deliveries, nodes-delivered, nodes-confirmed, next-requeue-within, \
             next-awake-within, body. A job with attributes has `attrs` at the end, with an array \
             of their names and values, or null if this node does not know them, one whose \
             priority is not 4 has `priority`, and one that was given back for a reason `note`. Null for a job \
             not known here.",
        )],
        errors: &[BAD_ID],
    },
    Command {
        name: "waitjob",
        arity: -2,
        flags: R.and(F),
        roles: Roles::PRODUCE.and(Roles::WATCH_OR_OPERATE),
        group: Group::Jobs,
        since: SINCE_OURS,
        summary: "Waits until jobs have ended",
        usages: &[usage(
            &[
                integer("ms").after("TIMEOUT").optional(),
                word("ALL").optional(),
                job("id").repeated(),
            ],
            "Array of `[id, ending]` for the jobs that ended, as soon as there is one, or with ALL \
             as soon as all have. The ending is acked, expired, dead, deleted (by DELJOB, FASTACK, \
             QPURGE or a flush), delivered (a job with RETRY 0), or unknown, which a job is that this node \
             does not know; endings of the last minute are remembered, 65,536 of them. A null \
             array when TIMEOUT has passed. At most 10,000 IDs; all are checked first.",
        )],
        errors: &[
            SYNTAX,
            BAD_ID,
            TIMEOUT_NOT_AN_INTEGER,
            TIMEOUT_NEGATIVE,
            "ERR WAITJOB takes at most 10000 IDs",
            LEAVING,
        ],
    },
    Command {
        name: "trace",
        arity: -2,
        flags: R.and(F),
        roles: Roles::PRODUCE.and(Roles::WATCH_OR_OPERATE),
        group: Group::Jobs,
        since: SINCE_OURS,
        summary: "Shows what happened to a traced job on all nodes",
        usages: &[usage(
            &[job("id"), integer("ms").after("TIMEOUT").optional()],
            "Array of `[unix-ms, node-id, event, name, value ...]`, by time and then by node. \
             Traced are the jobs of ADDJOB with TRACE and one in trace-sample, on nodes that have \
             this command; each node keeps its last 64 events of a job, and says `began-late` \
             where there were others before. Behind the events stands `[0, node-id, clock, \
             offset-ms, n, round-trip-ms, n]` for each other node that has some: how far its \
             clock is ahead of this node's, give or take half of the round trip; and last `[0, \
             node-id, silent]` for each node that has not answered within TIMEOUT, by default \
             250 ms. A null array when all nodes answered and none knows the job.",
        )],
        errors: &[BAD_ID, SYNTAX, "ERR TIMEOUT must be between 1 and 60000 milliseconds"],
    },
    Command {
        name: "jscan",
        arity: -1,
        flags: R,
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Walks through the jobs of this node, a part at a time",
        usages: &[usage(
            &[
                text("cursor").optional(),
                integer("count").after("COUNT").optional(),
                word("BUSYLOOP").optional(),
                queue("queue").after("QUEUE").optional().repeated_with_token(),
                one_of(
                    "state",
                    &[
                        word("wait-repl"),
                        word("active"),
                        word("queued"),
                        word("acked"),
                        word("delayed"),
                    ],
                )
                .after("STATE")
                .optional()
                .repeated_with_token(),
                one_of("form", &[word("id"), word("all")]).after("REPLY").optional(),
            ],
            "Array of two: the cursor to go on with, 0 when all is scanned, and the IDs of the \
             jobs, or with REPLY all what SHOW answers of them. QUEUE and STATE may stand more than once; \
             delayed are the active jobs that wait for the DELAY of their ADDJOB or NACK. \
             COUNT, 100 by default, is about how many jobs come at once; BUSYLOOP scans all in \
             one call. With REPLY all a call ends once its answer has 16 MiB, and the cursor goes \
             on.",
        )],
        errors: &[
            SYNTAX,
            BAD_CURSOR,
            NOT_AN_INTEGER,
            "ERR Invalid job state name",
            "ERR Invalid REPLY type, try ID or ALL",
            "ERR JSCAN takes at most 1000 queues",
        ],
    },
    Command {
        name: "deljob",
        arity: -1,
        flags: W.and(F),
        roles: Roles::OPERATE,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Deletes jobs on this node and no other",
        usages: &[usage(IDS, "Integer: how many of the jobs were here.")],
        errors: &[BAD_ID],
    },
    Command {
        name: "loadjob",
        arity: 2,
        flags: W,
        roles: Roles::ADMIN,
        group: Group::Jobs,
        since: SINCE_C,
        summary: "Is a record of the append only file, and nothing a client may send",
        usages: &[usage(&[text("bytes")], "Always an error.")],
        errors: &["ERR LOADJOB is a special command only processed from AOF"],
    },
];
