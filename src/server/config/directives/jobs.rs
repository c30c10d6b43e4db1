//! Directives about jobs, the memory that they take, and their queues.

use super::{DirectiveGroup, LIVE, at_least, place, row, small_at_least, up_to};
use crate::base::memory;
use crate::engine::policy::RetryFrom;
use crate::server::Server;
use crate::server::config::form::{Choice as _, ValueForm};
use crate::server::config::{Config, MaxmemoryPolicy};

pub(super) const JOBS: DirectiveGroup = DirectiveGroup {
    title: "Jobs",
    directives: &[
        row(
            "retry-from",
            ValueForm::Choice(RetryFrom::NAMES),
            LIVE,
            place!(retry_from),
            "What the retry of a job counts from. With queue, as in C, it is the moment the job \
             was queued: one that waited 50 of 60 seconds is delivered again 10 seconds after it \
             was fetched. With delivery a client has the whole retry time, whatever the job \
             waited; a job that waited for a quarter of it or longer costs one small message to \
             each other node that has it.",
        ),
        row(
            "trace-sample",
            at_least(0, ""),
            LIVE,
            place!(trace_sample),
            "Of one in so many jobs it is kept what happens to them, for TRACE; 1 is all, 0 none \
             but those of ADDJOB with TRACE. Which ones follows from their IDs, so nodes with the \
             same number trace the same jobs, and those of 100 are among those of 10: set it on \
             all of them. It counts for jobs that come from then on.",
        ),
        row(
            "trace-max",
            up_to(10_000_000),
            LIVE,
            place!(trace_max),
            "Of how many jobs it is kept what happened to them, up to 64 events each, which take \
             32 bytes and the first 64 bytes of each reason and name of a queue. Jobs that are \
             over go first. 0 keeps nothing.",
        ),
    ],
};

pub(super) const MEMORY: DirectiveGroup = DirectiveGroup {
    title: "Memory",
    directives: &[
        row(
            "maxmemory",
            // Differs from C: 0 is no limit in the file as well, because CONFIG SET takes
            // it and CONFIG REWRITE must write a file that can be read.
            ValueForm::Bytes { min: 0 },
            LIVE,
            place!(maxmemory),
            "The memory the server may use; 0 is no limit. Above 75 %, jobs of which enough \
             other nodes have memory for copies are stored there; others are still taken. \
             Above 95 %, commands that add jobs are refused with `-OOM command not allowed \
             when used memory > 'maxmemory'.`, and no copies are taken: the producer of a \
             job that needs one gets `-NOREPL Timeout reached before replicating to the \
             requested number of nodes`. An at-most-once job has one copy and is kept here \
             only when no other node says that it has free memory. The log says once that \
             a level is reached, and once that memory is 5 % below it again. What \
             clients and nodes have sent of requests that are not whole yet does not count: \
             all of it together may take what is free otherwise, at least an eighth of \
             maxmemory, or 1gb without a limit; beyond that, whoever holds most is closed. \
             Units: 1k is 1000 bytes, 1kb is 1024, and so for m, mb, g and gb.",
        )
        .when_set(warn_of_little_memory),
        row(
            "maxmemory-policy",
            ValueForm::Choice(MaxmemoryPolicy::NAMES),
            LIVE,
            place!(maxmemory_policy),
            "What may be dropped when memory is short: acks drops acknowledged jobs that are \
             not yet forgotten everywhere and at-most-once jobs already delivered; noeviction \
             drops nothing.",
        ),
        row(
            "maxmemory-samples",
            small_at_least(1, ""),
            LIVE,
            place!(maxmemory_samples),
            "Accepted for the sake of old files, without effect.",
        ),
    ],
};

pub(super) const QUEUES: DirectiveGroup = DirectiveGroup {
    title: "Queues",
    directives: &[row(
        "queue-policy",
        ValueForm::QueuePolicy,
        LIVE,
        place!(queue_policies),
        "What holds for the queues whose name matches a glob. For each ADDJOB that does \
             not say it: default-ttl and default-retry in seconds, default-replicate in copies, \
             as far as there are nodes, default-sync, how many of these the reply waits for, and max-len as MAXLEN, 0 being no limit. A job whose \
             DELAY is not below default-ttl has the TTL of jobs without a policy. For each NACK \
             without DELAY: nack-delay, the seconds that a job waits after its first one; they \
             double with each, up to those behind a colon (a day without them), and are a tenth \
             more or less. For jobs that fail for good: max-deliveries, after how many \
             deliveries a job is dead if the last fails, and goes to the dead-queue (by default \
             the queue's name and .dead), 0 being no limit; dead-ttl, its TTL from then on, \
             in seconds (a week); and on-expire, what the end of the TTL does, drop (the \
             default) or dead. retry-from has the place of the directive. There may be up to \
             1000 lines; for each word that one counts which is the last of those that \
             match and have it. A later line for the same glob takes the place of the first, \
             and one without words takes it away. CONFIG SET takes such lines and changes those \
             of their globs, CONFIG GET shows all, QPOLICY what holds for a queue. Other nodes \
             are not told: set it on all of them.",
    )
    .when_read(|config, _| config.queue_policies.check())
    .when_set(|_, next| next.queue_policies.check())],
};

fn warn_of_little_memory(_: &mut Server, next: &mut Config) -> Result<(), String> {
    let used = memory::used() as u64;
    if next.maxmemory > 0 && next.maxmemory < used {
        log::warn!(
            "maxmemory is now {} bytes, less than the {used} in use: jobs may be dropped and new \
             ones refused, as maxmemory-policy says",
            next.maxmemory
        );
    }
    Ok(())
}
