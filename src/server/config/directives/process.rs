//! Directives about the process: its directory, its periodic work, its log.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::{
    AT_START, DirectiveGroup, FILE_ONLY, LIVE, NOT_REWRITTEN, UNSHOWN, place, row, small_at_least,
};
use crate::base::reason::reason;
use crate::server::config::form::{Choice as _, ValueForm};
use crate::server::config::{Config, LogLevel, SyslogFacility};
use crate::server::{Server, logger};

pub(super) const GENERAL: DirectiveGroup = DirectiveGroup {
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
};

pub(super) const LOG: DirectiveGroup = DirectiveGroup {
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
};

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
