//! Directives about the append only file.

use super::{AT_START, DirectiveGroup, LIVE, UNSHOWN, place, row, small_at_least};
use crate::server::config::AppendFsync;
use crate::server::config::form::{Choice as _, ValueForm};

pub(super) const APPEND_ONLY_FILE: DirectiveGroup = DirectiveGroup {
    title: "Append only file",
    directives: &[
        row(
            "appendonly",
            ValueForm::YesNo,
            LIVE,
            place!(appendonly),
            "Logs jobs to a file that is loaded at the next start. Without it a node that \
             restarts comes back empty and relies on the copies that other nodes hold.",
        )
        .when_set(|server, next| match next.appendonly == server.config.appendonly {
            true => Ok(()),
            false => server.switch_append_only(next.appendonly),
        }),
        row(
            "appendfilename",
            ValueForm::FileName,
            UNSHOWN,
            place!(appendfilename),
            "The name of that file in the working directory.",
        ),
        row(
            "appendfsync",
            ValueForm::Choice(AppendFsync::NAMES),
            LIVE,
            place!(appendfsync),
            "When what was written is forced to the disk: always, before anybody gets a \
             reply; everysec, losing at most about a second; no, when the system sees fit.",
        ),
        row(
            "no-appendfsync-on-rewrite",
            ValueForm::YesNo,
            AT_START,
            place!(no_appendfsync_on_rewrite),
            "Leaves out those syncs while the file is being rewritten, for slow disks.",
        ),
        row(
            "auto-aof-rewrite-percentage",
            small_at_least(0, "percent"),
            LIVE,
            place!(auto_aof_rewrite_percentage),
            "Rewrites the file when it has grown by so much since the last time; 0 never does.",
        ),
        row(
            "auto-aof-rewrite-min-size",
            ValueForm::Bytes { min: 0 },
            LIVE,
            place!(auto_aof_rewrite_min_size),
            "A file smaller than this is not rewritten by itself.",
        ),
        row(
            "aof-rewrite-incremental-fsync",
            ValueForm::YesNo,
            LIVE,
            place!(aof_rewrite_incremental_fsync),
            "Syncs a rewritten file bit by bit instead of all at the end.",
        ),
        row(
            "aof-checksums",
            ValueForm::YesNo,
            AT_START,
            place!(aof_checksums),
            "Adds a checksum to each record, so that damage to the file is noticed when it is \
             loaded. C servers read such files.",
        ),
        row(
            "aof-load-truncated",
            ValueForm::YesNo,
            LIVE,
            place!(aof_load_truncated),
            "Starts although the file ends in the middle of a record, as after a crash, and \
             cuts that record off; with no the server refuses to start.",
        ),
        row(
            "aof-load-damaged",
            ValueForm::YesNo,
            LIVE,
            place!(aof_load_damaged),
            "Starts although the file is damaged, without what is damaged: other nodes deliver \
             the jobs that they hold copies of. At-most-once jobs that stand before the damage \
             are not delivered. With no the server refuses to start; disque-check-aof \
             --salvage repairs the file.",
        ),
        row(
            "aof-enqueue-jobs-once",
            ValueForm::YesNo,
            LIVE,
            place!(aof_enqueue_jobs_once),
            "At the next start, puts the jobs that were queued straight back into their \
             queues, even when the append only file is off otherwise; then turns itself off in \
             this file. For a planned restart: CONFIG SET aof-enqueue-jobs-once yes, CONFIG \
             REWRITE, SHUTDOWN REWRITE-AOF.",
        ),
        row(
            "aof-restore-queues",
            ValueForm::YesNo,
            LIVE,
            place!(aof_restore_queues),
            "Leaves the queues to the next start when the server is told to end, by SHUTDOWN \
             or by a signal as service managers send it: the append only file is rewritten \
             last, with what is queued, and the next start finds every job where it was. \
             Without it, and after a kill, queued jobs come back within their retry. Needs \
             appendonly yes, and as much time at the end as a rewrite takes.",
        ),
    ],
};
