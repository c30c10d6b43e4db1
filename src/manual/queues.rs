//! The manual on queues: what is in them, and whether jobs may enter and leave.

use super::{
    Argument, BAD_CURSOR, BAD_ID, Command, Flags, Group, NOT_AN_INTEGER, PAUSED,
    QUEUE_NAME_TOO_LONG, Roles, SINCE_C, SINCE_OURS, SYNTAX, integer, job, one_of, queue, text,
    usage, word,
};

const W: Flags = Flags::WRITE;
const R: Flags = Flags::READONLY;
const M: Flags = Flags::DENYOOM;
const F: Flags = Flags::FAST;

const DELAY: &str = "ERR DELAY time must be a non negative number";
const PRIORITY: &str = "ERR PRIORITY must be between 1 and 7";
const COUNT_OF_JOBS: &str = "ERR COUNT must be between 1 and 10000";

const IDS: &[Argument] = &[job("id").optional().repeated()];

pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "qlen",
        arity: 2,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Counts the jobs that are queued on this node",
        usages: &[usage(&[queue("queue")], "Integer, 0 for a queue not known here.")],
        errors: &[],
    },
    Command {
        name: "qpeek",
        arity: -3,
        flags: R,
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Shows queued jobs and fetches none",
        usages: &[usage(
            &[queue("queue"), integer("count"), integer("count").after("SKIP").optional()],
            "Array of `[queue, id, body]`, in the order in which they are fetched: by priority, \
             then by age. From the last one back for a negative count. SKIP passes over \
             so many first. No further job once the \
             reply has 64 MiB.",
        )],
        errors: &[NOT_AN_INTEGER, SYNTAX],
    },
    Command {
        name: "qstat",
        arity: -2,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Shows all that this node knows of a queue",
        usages: &[usage(
            &[queue("queue"), word("CLUSTER").optional()],
            "Array of 10 names and values: name, len, age, idle, blocked, import-from, \
             import-rate, jobs-in, jobs-out, pause. With CLUSTER the sums of all nodes, as far as \
             they answer within 250 ms: name, len, age (the greatest), blocked, import-rate, \
             jobs-in, jobs-out, in-flight (jobs that clients of a node have), delayed, dead \
             (jobs of the queue that died since a node started), nodes (how \
             many are summed up), silent (how many did not answer; C nodes never do). A null array \
             for a queue not known.",
        )],
        errors: &[SYNTAX, QUEUE_NAME_TOO_LONG],
    },
    Command {
        name: "qpolicy",
        arity: 2,
        flags: R.and(F),
        roles: Roles::ALL,
        group: Group::Queues,
        since: SINCE_OURS,
        summary: "Shows what queue-policy says of a queue",
        usages: &[usage(
            &[queue("queue")],
            "Map from words to arrays of the value, an integer where it is a number, and the glob of the line that \
             says it. Words that no line says are left out. The queue need not be there.",
        )],
        errors: &[QUEUE_NAME_TOO_LONG],
    },
    Command {
        name: "qscan",
        arity: -1,
        flags: R,
        roles: Roles::WATCH_OR_OPERATE,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Walks through the queues of this node, a part at a time",
        usages: &[usage(
            &[
                text("cursor").optional(),
                integer("count").after("COUNT").optional(),
                word("BUSYLOOP").optional(),
                integer("len").after("MINLEN").optional(),
                integer("len").after("MAXLEN").optional(),
                integer("rate").after("IMPORTRATE").optional(),
            ],
            "Array of two: the cursor to go on with, 0 when all is scanned, and the names of the \
             queues. IMPORTRATE is the least number of jobs that come from other nodes each \
             second. COUNT, 100 by default, is about how many queues come at once; BUSYLOOP scans \
             all in one call.",
        )],
        errors: &[SYNTAX, BAD_CURSOR, NOT_AN_INTEGER],
    },
    Command {
        name: "pause",
        arity: -3,
        flags: R.and(F),
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Stops jobs from entering or leaving a queue, or shows whether they are stopped",
        usages: &[usage(
            &[
                queue("queue"),
                one_of(
                    "way",
                    &[
                        word("in"),
                        word("out"),
                        word("all"),
                        word("none"),
                        word("state"),
                        word("bcast"),
                    ],
                )
                .repeated(),
            ],
            "Status: in, out, all or none, which is how the queue is paused afterwards. The \
             arguments replace what was; `state` changes nothing; `bcast` sends the result to all \
             nodes. An ADDJOB to a queue paused in is refused, a GETJOB from one paused out waits.",
        )],
        errors: &[SYNTAX, QUEUE_NAME_TOO_LONG],
    },
    Command {
        name: "enqueue",
        arity: -1,
        flags: M.and(W).and(F),
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Queues active jobs at once",
        usages: &[usage(
            IDS,
            "Integer: how many jobs went to their queue. Each counts one more delivery, unless it \
             had never been queued before. One that was delivered as often as its limit allows goes \
             to the dead queue instead.",
        )],
        errors: &[BAD_ID],
    },
    Command {
        name: "dequeue",
        arity: -1,
        flags: W.and(F),
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_C,
        summary: "Takes jobs out of their queue",
        usages: &[usage(
            IDS,
            "Integer: how many jobs left their queue. They come back when their retry time has \
             passed; jobs with RETRY 0 do not.",
        )],
        errors: &[BAD_ID],
    },
    Command {
        name: "movejob",
        arity: -3,
        flags: W,
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_OURS,
        summary: "Moves jobs to another queue",
        usages: &[usage(
            &[
                queue("queue"),
                job("id").repeated(),
                integer("priority").after("PRIORITY").optional(),
                integer("seconds").after("DELAY").optional(),
            ],
            "Integer: how many jobs were moved, here and on the other nodes that have them. A queued job \
             is queued in the new queue at once; one in work comes there when its retry is over, if it \
             is not acknowledged. ID, body, age, TTL and counters stay; a dead letter's counters begin at 0. PRIORITY, 1 to 7, gives the \
             jobs another place within the queue, which may be their own. With DELAY they are queued in so many \
             seconds. Jobs that are not known here or acknowledged are left alone, and those with RETRY 0 that \
             were delivered. The options stand behind the IDs, all of which are checked before any job is \
             touched.",
        )],
        errors: &[
            BAD_ID,
            PRIORITY,
            DELAY,
            "ERR Job IDs stand in front of the options",
            PAUSED,
            QUEUE_NAME_TOO_LONG,
        ],
    },
    Command {
        name: "qmove",
        arity: -3,
        flags: W,
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_OURS,
        summary: "Moves the jobs of a queue to another one",
        usages: &[usage(
            &[queue("source"), queue("target"), integer("count").after("COUNT").optional()],
            "Integer: how many jobs were moved, of those queued on this node, in their order. COUNT is \
             100 by default, and 10,000 at most. Jobs in work and those queued on other nodes stay.",
        )],
        errors: &[
            SYNTAX,
            "ERR Source and target must be different queues",
            COUNT_OF_JOBS,
            PAUSED,
            QUEUE_NAME_TOO_LONG,
        ],
    },
    Command {
        name: "qredrive",
        arity: -2,
        flags: W,
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_OURS,
        summary: "Moves dead letters back to the queues where they died",
        usages: &[usage(
            &[
                queue("dead-queue"),
                integer("count").after("COUNT").optional(),
                text("glob").after("REASON").optional(),
            ],
            "Integer: how many of the jobs that are queued on this node were moved, in their order and \
             up to COUNT: 100 by default, 10,000 at most. Each goes to the queue where it died and gets the TTL that it was \
             added with; its counters begin anew. REASON takes those whose cause of death matches: \
             max-deliveries, nack or expired. Jobs that did not die are passed over, and those \
             whose queue is paused for input or has a name of more than 255 bytes.",
        )],
        errors: &[SYNTAX, COUNT_OF_JOBS],
    },
    Command {
        name: "qpurge",
        arity: -2,
        flags: W,
        roles: Roles::OPERATE,
        group: Group::Queues,
        since: SINCE_OURS,
        summary: "Acknowledges the jobs of a queue, so that nobody gets them any more",
        usages: &[usage(
            &[queue("queue"), integer("count").after("COUNT").optional()],
            "Integer: how many of the first COUNT jobs that are queued on this node were \
             acknowledged, 100 by default and 10,000 at most. No copy of them comes back.",
        )],
        errors: &[SYNTAX, COUNT_OF_JOBS],
    },
];
