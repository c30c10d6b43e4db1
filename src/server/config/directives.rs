//! The table of directives: the one place that knows their names.
//!
//! The same row is read by the configuration file, by `--options`, by CONFIG GET, SET
//! and REWRITE, and by the two texts made from it, `conf/disque.conf` and
//! `docs/configuration.md`. What reading or setting one does beside that stands in its row
//! too. Adding a directive is a field in [`Config`] and a row here.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::form::{Choice as _, DirectiveValue, Field as _, ValueForm};
use super::{AppendFsync, Config, LogLevel, MaxmemoryPolicy, SyslogFacility};
use crate::base::limits::CLIENT_PORT_MAX;
use crate::base::memory;
use crate::base::reason::reason;
use crate::engine::config::RetryFrom;
use crate::server::command_names::CommandNames;
use crate::server::{Server, daemon, logger};

/// A directive: its name, the values it takes, and the field it stands for.
pub struct Directive {
    pub name: &'static str,
    pub form: ValueForm,
    pub access: Access,
    /// What it is for, in a few sentences.
    pub about: &'static str,
    /// `None` for `include`, which stands for other lines and not for a value.
    place: Option<FieldAccess>,
    /// What a line of the file, or an option, needs beside its form. May put the value
    /// right; `dir_before` is the working directory of the lines above.
    pub when_read: fn(config: &mut Config, dir_before: &Path) -> Result<(), String>,
    /// What CONFIG SET does before `next`, which has the new value, becomes the
    /// configuration. An error leaves the old one.
    pub when_set: fn(server: &mut Server, next: &mut Config) -> Result<(), String>,
}

/// Where a directive may be read and written.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Accepted in the file and as an option.
    pub file: bool,
    /// Shown by CONFIG GET.
    pub get: bool,
    /// Taken by CONFIG SET.
    pub set: bool,
    /// Written by CONFIG REWRITE, which leaves the lines of the others alone.
    pub rewrite: bool,
}

const LIVE: Access = Access { file: true, get: true, set: true, rewrite: true };
const AT_START: Access = Access { set: false, ..LIVE };
/// C does not show these either, so nothing expects them among the shown.
const UNSHOWN: Access = Access { get: false, ..AT_START };
const NOT_REWRITTEN: Access = Access { rewrite: false, ..AT_START };
const FILE_ONLY: Access = Access { file: true, get: false, set: false, rewrite: false };
/// A secret that is set and not shown.
const HIDDEN: Access = Access { get: false, ..LIVE };
/// Holds until the server ends.
const SET_ONLY: Access = Access { file: false, get: true, set: true, rewrite: false };

struct FieldAccess {
    read: fn(&Config) -> DirectiveValue,
    put: fn(&mut Config, DirectiveValue),
}

macro_rules! place {
    ($field:ident) => {
        Some(FieldAccess { read: |c| c.$field.value(), put: |c, value| c.$field.put(value) })
    };
}

/// Directives that belong together.
pub struct DirectiveGroup {
    pub title: &'static str,
    pub directives: &'static [Directive],
}

const fn row(
    name: &'static str,
    form: ValueForm,
    access: Access,
    place: Option<FieldAccess>,
    about: &'static str,
) -> Directive {
    Directive {
        name,
        form,
        access,
        about,
        place,
        when_read: |_, _| Ok(()),
        when_set: |_, _| Ok(()),
    }
}

impl Directive {
    const fn when_read(mut self, check: fn(&mut Config, &Path) -> Result<(), String>) -> Self {
        self.when_read = check;
        self
    }

    const fn when_set(
        mut self,
        effect: fn(&mut Server, &mut Config) -> Result<(), String>,
    ) -> Self {
        self.when_set = effect;
        self
    }
}

const PORT_MAX: i64 = CLIENT_PORT_MAX as i64;

const fn up_to(max: i64) -> ValueForm {
    ValueForm::Number { min: 0, max, unit: "" }
}

const fn at_least(min: i64, unit: &'static str) -> ValueForm {
    ValueForm::Number { min, max: i64::MAX, unit }
}

const fn small_at_least(min: i64, unit: &'static str) -> ValueForm {
    ValueForm::Number { min, max: i32::MAX as i64, unit }
}

pub static SECTIONS: &[DirectiveGroup] = &[
    DirectiveGroup {
        title: "Network",
        directives: &[
            row(
                "port",
                // Differs from C: 0 is refused, because C then closes the client port and
                // still opens a bus on port 10000.
                ValueForm::Number { min: 1, max: PORT_MAX, unit: "" },
                AT_START,
                place!(port),
                "TCP port for clients. The cluster bus listens on this port + 10000.",
            ),
            row(
                "bind",
                ValueForm::Addresses,
                AT_START,
                place!(bind),
                "Addresses to listen on, for clients and for the bus; without this line, all of \
                 them. Connections to other nodes come from the first one that can reach them. The bus \
                 asks nobody for a password: bind to a trusted network or put a firewall in front.",
            ),
            row(
                "unixsocket",
                ValueForm::OptionalPath,
                AT_START,
                place!(unixsocket),
                "Path of a unix socket to listen on besides TCP. A file already there is removed.",
            ),
            row(
                "unixsocketperm",
                ValueForm::Mode,
                AT_START,
                place!(unixsocketperm),
                "Permissions of the unix socket in octal; 0 leaves what the umask gives.",
            ),
            row(
                "tcp-backlog",
                small_at_least(0, ""),
                AT_START,
                place!(tcp_backlog),
                "Connections the kernel may keep waiting for the server to accept them. Linux \
                 cuts this at net.core.somaxconn, so raise both.",
            ),
            row(
                "timeout",
                at_least(0, "seconds"),
                LIVE,
                place!(timeout_secs),
                "Closes a client that has sent nothing for so long; 0 never does. Clients that \
                 wait for a job or for replication are left alone.",
            ),
            row(
                "tcp-keepalive",
                // Differs from C: the file takes yes and no and CONFIG SET takes seconds too,
                // because C accepts either in one of the two places only.
                ValueForm::SecondsOrYesNo { max: i32::MAX as i64 },
                LIVE,
                place!(tcp_keepalive_secs),
                // Differs from C, where it is 0: the consumer of a host that vanished would be
                // kept for ever, and swallow the next job of its queue.
                "Seconds after which a silent client's connection is probed, so that those of hosts \
                 that vanished are closed, after twice as long, and firewalls keep the others \
                 open; 0 sends no probes. A consumer that is gone and still waits swallows the next \
                 job of its queue until its retry. Linux takes 32767 at most, which is what higher \
                 values mean.",
            ),
            row(
                "maxclients",
                ValueForm::Number { min: 1, max: i32::MAX as i64, unit: "" },
                LIVE,
                place!(maxclients),
                "Most clients connected at once; one more gets an error and is closed. Lowered at \
                 start when the limit of open files does not allow it: 1568 more are kept for \
                 the server and its links to other nodes, which is enough for 500 nodes. Of a \
                 low limit the links get a quarter.",
            )
            .when_set(raise_file_limit),
            row(
                "client-output-buffer-limit",
                ValueForm::OutputLimit,
                LIVE,
                place!(client_output_buffer_limit),
                "Drops a client that does not read: at once over the first size, or after so many \
                 seconds on end over the second; 0 is no limit. The only class is normal.",
            ),
        ],
    },
    DirectiveGroup {
        title: "HTTP port for operators",
        directives: &[
            row(
                "http-port",
                up_to(u16::MAX as i64),
                AT_START,
                place!(http_port),
                "TCP port for what operators' tools ask over HTTP: /metrics for Prometheus, /livez \
                 and /readyz for probes, /api/... in JSON, and a page at /. 0, the default, is no \
                 such port. It answers only questions; docs/operations.md has them.",
            ),
            row(
                "http-bind",
                ValueForm::Addresses,
                AT_START,
                place!(http_bind),
                "Addresses that the HTTP port listens on. Whoever reaches one of them may read the \
                 names of queues, numbers and, without requirepass, bodies of jobs, unless \
                 http-token is set; nothing is encrypted.",
            ),
            row(
                "http-token",
                ValueForm::Password,
                HIDDEN,
                place!(http_token),
                "What a client of the HTTP port has to send with everything but /livez, /readyz and \
                 the page itself: Authorization: Bearer TOKEN. The page asks for it. Visible ASCII \
                 characters; empty is none. CONFIG GET does not show it.",
            )
            .when_read(|config, _| check_http_token(config))
            .when_set(|_, next| check_http_token(next)),
        ],
    },
    DirectiveGroup {
        title: "General",
        directives: &[
            row(
                "include",
                ValueForm::Include,
                FILE_ONLY,
                None,
                "Reads another file in place of this line. A relative path starts at the working \
                 directory. Later lines win, so an include at the end of the file overrides it. \
                 CONFIG REWRITE does not write to included files.",
            ),
            row(
                "daemonize",
                ValueForm::YesNo,
                AT_START,
                place!(daemonize),
                "Runs the server in the background and writes its process ID to the pidfile. \
                 Leave it off under systemd and the like.",
            ),
            row(
                "pidfile",
                ValueForm::Path,
                AT_START,
                place!(pidfile),
                "Where the process ID is written when the server runs in the background.",
            ),
            row(
                "dir",
                ValueForm::Path,
                LIVE,
                place!(dir),
                "The working directory: the append only file, the cluster's file and relative \
                 paths start here. It must exist, and the server's user must be able to write to \
                 it. Without this line, the directory the server was started in.",
            )
            .when_read(find_working_dir)
            .when_set(change_working_dir),
            row(
                "hz",
                ValueForm::Clamped { min: 1, max: 500, unit: "a second" },
                LIVE,
                place!(hz),
                "How often the server does its periodic work, such as closing idle clients. Job \
                 and client timeouts do not depend on it.",
            )
            .when_set(|server, next| {
                server.start_timers(next.hz);
                Ok(())
            }),
            row(
                "databases",
                small_at_least(1, ""),
                NOT_REWRITTEN,
                place!(databases),
                "Accepted for the sake of old files, without effect: there is one.",
            )
            // Differs from C, which shows what the file says, and has none: tools that find
            // sixteen offer sixteen, of which SELECT takes one.
            .when_read(|config, _| {
                config.databases = 1;
                Ok(())
            }),
            row(
                "activerehashing",
                ValueForm::YesNo,
                LIVE,
                place!(activerehashing),
                "Accepted for the sake of old files, without effect: tables here grow in steps.",
            ),
        ],
    },
    DirectiveGroup {
        title: "Log",
        directives: &[
            row(
                "loglevel",
                ValueForm::Choice(LogLevel::NAMES),
                LIVE,
                place!(loglevel),
                "The least important lines to log: debug and verbose are for finding faults, \
                 notice suits production, warning leaves only what needs somebody's attention.",
            )
            .when_set(|_, next| {
                logger::set_level(next.loglevel);
                Ok(())
            }),
            row(
                "logfile",
                ValueForm::Path,
                AT_START,
                place!(logfile),
                "Where to log; empty is standard output, which goes nowhere in the background. \
                 The file is opened anew for each line, so it can be rotated by renaming it.",
            )
            .when_read(try_logfile),
            row(
                "syslog-enabled",
                ValueForm::YesNo,
                UNSHOWN,
                place!(syslog_enabled),
                "Logs to the system's logger as well.",
            ),
            row(
                "syslog-ident",
                ValueForm::Text,
                UNSHOWN,
                place!(syslog_ident),
                "The name lines carry in the system's log.",
            ),
            row(
                "syslog-facility",
                ValueForm::Choice(SyslogFacility::NAMES),
                AT_START,
                place!(syslog_facility),
                "The facility lines are sent under to the system's log.",
            ),
        ],
    },
    DirectiveGroup {
        title: "Security",
        directives: &[
            row(
                "requirepass",
                ValueForm::Password,
                LIVE,
                place!(requirepass),
                "The password a client must give with AUTH before anything else. Somebody can try \
                 very many in a second, so make it long. It does not protect the bus. Until then a \
                 request may have 10 arguments of 16kb.",
            ),
            row(
                "rename-command",
                ValueForm::Rename,
                FILE_ONLY,
                place!(rename_commands),
                "Gives a command another name, or takes it away when the new name is empty. \
                 Renaming does not reach the append only file, which keeps the first names.",
            )
            .when_read(|config, _| CommandNames::new(&config.rename_commands).map(|_| ())),
        ],
    },
    DirectiveGroup {
        title: "Jobs",
        directives: &[row(
            "retry-from",
            ValueForm::Choice(RetryFrom::NAMES),
            LIVE,
            place!(retry_from),
            "What the retry of a job counts from. With queue, as in C, it is the moment the job was \
             queued: one that waited 50 of 60 seconds is delivered again 10 seconds after it was \
             fetched. With delivery a client has the whole retry time, whatever the job waited; a \
             job that waited for a quarter of it or longer costs one small message to each other \
             node that has it.",
        )],
    },
    DirectiveGroup {
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
    },
    DirectiveGroup {
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
            .when_set(|server, next| {
                match next.appendonly == server.config.appendonly {
                    true => Ok(()),
                    false => server.switch_append_only(next.appendonly),
                }
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
    },
    DirectiveGroup {
        title: "Queues",
        directives: &[
            row(
                "queue-policy",
                ValueForm::QueuePolicy,
                LIVE,
                place!(queue_policies),
                "What holds for the queues whose name matches a glob. For each ADDJOB that does \
                 not say it: default-ttl and default-retry in seconds, default-replicate in copies, \
                 as far as there are nodes, and max-len as MAXLEN, 0 being no limit. A job whose \
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
            .when_set(|_, next| next.queue_policies.check()),
        ],
    },
    DirectiveGroup {
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
        ],
    },
    DirectiveGroup {
        title: "Slow log, latency monitor and watchdog",
        directives: &[
            row(
                "slowlog-log-slower-than",
                // Differs from C: CONFIG SET takes a negative number too, because the file does.
                ValueForm::Number { min: i64::MIN, max: i64::MAX, unit: "microseconds" },
                LIVE,
                place!(slowlog_log_slower_than_us),
                "Commands that ran longer are kept for SLOWLOG; 0 keeps all, a negative number \
                 none.",
            ),
            row(
                "slowlog-max-len",
                at_least(0, "entries"),
                LIVE,
                place!(slowlog_max_len),
                "How many entries the slow log keeps; the oldest goes first.",
            )
            .when_set(|server, next| {
                server.slowlog.shorten(next.slowlog_max_len);
                Ok(())
            }),
            row(
                "latency-monitor-threshold",
                at_least(0, "milliseconds"),
                LIVE,
                place!(latency_monitor_threshold_ms),
                "Anything that holds the server up for at least this long is kept for LATENCY; 0 \
                 turns this off.",
            ),
            row(
                "watchdog-period",
                at_least(0, "milliseconds"),
                SET_ONLY,
                place!(watchdog_period_ms),
                "Logs a report when the server has not come round for so long; 0 turns this off. \
                 For finding what holds a server up; CONFIG SET only.",
            )
            .when_set(|server, next| {
                next.watchdog_period_ms =
                    server.watchdog.set_period(next.watchdog_period_ms, next.hz);
                Ok(())
            }),
        ],
    },
];

/// The directory as an absolute path without links, if it can be worked in.
fn working_dir(path: &Path) -> io::Result<PathBuf> {
    let dir = fs::canonicalize(path)?;
    match fs::metadata(&dir)?.is_dir() {
        true => Ok(dir),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

fn find_working_dir(config: &mut Config, dir_before: &Path) -> Result<(), String> {
    let path = dir_before.join(&config.dir);
    config.dir = working_dir(&path)
        .map_err(|e| format!("can't use {} as working directory: {e}", path.display()))?;
    Ok(())
}

fn change_working_dir(server: &mut Server, next: &mut Config) -> Result<(), String> {
    next.dir = working_dir(&server.config.dir.join(&next.dir))
        .map_err(|e| reason(&e))
        .and_then(|dir| server.change_dir(&dir).map(|()| dir))
        .map_err(|reason| format!("Changing directory: {reason}"))?;
    Ok(())
}

/// Opens the log file once at start: later nobody sees that it fails.
fn try_logfile(config: &mut Config, dir_before: &Path) -> Result<(), String> {
    if config.logfile == Path::new("") {
        return Ok(());
    }
    let path = dir_before.join(&config.logfile);
    match OpenOptions::new().append(true).create(true).open(&path) {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("can't open the log file {}: {e}", path.display())),
    }
}

fn check_http_token(config: &mut Config) -> Result<(), String> {
    let is_sendable = |token: &Vec<u8>| token.iter().all(u8::is_ascii_graphic);
    let is_right = config.http_token.as_ref().is_none_or(is_sendable);
    is_right.then_some(()).ok_or("http-token has characters that no header can have".into())
}

fn raise_file_limit(server: &mut Server, next: &mut Config) -> Result<(), String> {
    if next.maxclients <= server.config.maxclients {
        return Ok(());
    }
    let granted = daemon::raise_file_limit(next.maxclients).clients;
    if granted < next.maxclients {
        return Err(format!(
            "The operating system is not able to handle the specified number of clients, try \
             with {granted}"
        ));
    }
    Ok(())
}

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

/// Every directive in the order of the sections.
pub fn all() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|section| section.directives)
}

/// The directive of that name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    all().find(|directive| directive.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Directive {
    /// Takes the words that follow the name in a file or in options.
    pub fn take_words(&self, config: &mut Config, words: &[Vec<u8>]) -> Result<(), String> {
        let value = self.form.parse(words)?;
        self.put(config, value);
        Ok(())
    }

    /// Takes the argument of CONFIG SET.
    pub fn take_argument(&self, config: &mut Config, argument: &[u8]) -> Result<(), String> {
        let value = self.form.parse_argument(argument)?;
        self.put(config, value);
        Ok(())
    }

    /// The value as CONFIG GET shows it.
    pub fn shown(&self, config: &Config) -> Vec<u8> {
        self.form.shown(&self.value(config))
    }

    /// The lines that set the present value: one for most directives, none when there is none
    /// to set.
    pub fn lines(&self, config: &Config) -> Vec<Vec<u8>> {
        let values = match self.value(config) {
            DirectiveValue::Absent => vec![],
            DirectiveValue::PolicyLines(lines) => {
                lines.into_iter().map(|line| DirectiveValue::PolicyLine(Box::new(line))).collect()
            }
            value => vec![value],
        };
        let line = |value| [self.name.as_bytes(), b" ", &self.form.written(value)].concat();
        values.iter().map(line).collect()
    }

    pub fn is_default(&self, config: &Config) -> bool {
        self.value(config) == self.value(&Config::default())
    }

    fn value(&self, config: &Config) -> DirectiveValue {
        self.place.as_ref().map_or(DirectiveValue::Absent, |place| (place.read)(config))
    }

    fn put(&self, config: &mut Config, value: DirectiveValue) {
        if let Some(place) = &self.place {
            (place.put)(config, value);
        }
    }
}
