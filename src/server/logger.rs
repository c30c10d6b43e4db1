//! Log lines as the C server writes them, made from the `log` macros.
//!
//! ```text
//! PID:P DD Mon HH:MM:SS.mmm LEVEL message     local time; LEVEL is . - * or #
//! ```
//!
//! debug!, info! and warn! are the C levels verbose, notice and warning; trace! is
//! debug. The file is opened for each line and closed after it, so rotation is a rename
//! and needs no signal. With syslog on, the same messages go there without the prefix.
//!
//! Invariant: one line is one write, so lines of several processes do not mix.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::config::{Config, LogLevel, SyslogFacility};

/// The target of lines that are written as they are: the banner, and reports of many lines.
pub const RAW: &str = "disque::raw";

/// Longest message in bytes; the rest is cut off. C: LOG_MAX_LEN, without the end mark.
const MESSAGE_MAX: usize = 1023;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The log file for signal handlers, which cannot ask anybody for it.
static FILE_FOR_HANDLERS: OnceLock<CString> = OnceLock::new();

/// Begins to log as the configuration says. Called once, after the process went into the
/// background, since the lines carry its ID.
pub fn start(config: &Config) {
    let logger = file_logger(config.logfile.clone());
    if let Ok(path) = CString::new(config.logfile.as_os_str().as_bytes()) {
        FILE_FOR_HANDLERS.get_or_init(|| path);
    }
    if config.syslog_enabled {
        open_syslog(&config.syslog_ident, config.syslog_facility);
    }
    let logger = ServerLog { logger, has_syslog: config.syslog_enabled };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        set_level(config.loglevel);
    }
}

fn file_logger(path: PathBuf) -> env_logger::Logger {
    env_logger::Builder::new()
        .filter_module("disque", LevelFilter::Trace)
        .target(env_logger::Target::Pipe(Box::new(LogFile { path })))
        .format(write_line)
        .build()
}

/// Logs lines of this level and above from now on.
pub fn set_level(level: LogLevel) {
    log::set_max_level(match level {
        LogLevel::Debug => LevelFilter::Trace,
        LogLevel::Verbose => LevelFilter::Debug,
        LogLevel::Notice => LevelFilter::Info,
        LogLevel::Warning => LevelFilter::Warn,
    });
}

/// The log file as a path for signal handlers; empty is standard output.
pub(super) fn file_for_handlers() -> Option<&'static CString> {
    FILE_FOR_HANDLERS.get()
}

struct ServerLog {
    logger: env_logger::Logger,
    has_syslog: bool,
}

impl Log for ServerLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.logger.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        self.logger.log(record);
        if self.has_syslog && self.logger.matches(record) && record.level() <= log::max_level() {
            write_syslog(record);
        }
    }

    fn flush(&self) {}
}

/// Writes each line to the file under its path at that moment.
struct LogFile {
    /// Empty: standard output.
    path: PathBuf,
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.path == Path::new("") {
            return io::stdout().write(line);
        }
        OpenOptions::new().append(true).create(true).open(&self.path)?.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

fn write_line(out: &mut env_logger::fmt::Formatter, record: &Record<'_>) -> io::Result<()> {
    if record.target() == RAW {
        return write!(out, "{}", record.args());
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    let time = local_time(secs);
    let month = usize::try_from(time.tm_mon).ok().and_then(|month| MONTHS.get(month));
    write!(
        out,
        "{}:P {:02} {} {:02}:{:02}:{:02}.{:03} {} ",
        process::id(),
        time.tm_mday,
        month.unwrap_or(&"???"),
        time.tm_hour,
        time.tm_min,
        time.tm_sec,
        since_epoch.subsec_millis(),
        level_mark(record.level()),
    )?;
    let message = record.args().to_string();
    out.write_all(&message.as_bytes()[..message.len().min(MESSAGE_MAX)])?;
    out.write_all(b"\n")
}

fn level_mark(level: Level) -> char {
    match level {
        Level::Trace => '.',
        Level::Debug => '-',
        Level::Info => '*',
        Level::Warn | Level::Error => '#',
    }
}

/// The time in the machine's time zone, which std does not know.
pub(super) fn local_time(unix_secs: i64) -> libc::tm {
    // SAFETY: `tm` is plain numbers and a pointer that is not read, for all of which
    // zero is a value; localtime_r writes to it and keeps neither pointer.
    unsafe {
        let mut time = std::mem::zeroed();
        libc::localtime_r(&unix_secs, &mut time);
        time
    }
}

fn open_syslog(ident: &str, facility: SyslogFacility) {
    let facility = match facility {
        SyslogFacility::User => libc::LOG_USER,
        SyslogFacility::Local0 => libc::LOG_LOCAL0,
        SyslogFacility::Local1 => libc::LOG_LOCAL1,
        SyslogFacility::Local2 => libc::LOG_LOCAL2,
        SyslogFacility::Local3 => libc::LOG_LOCAL3,
        SyslogFacility::Local4 => libc::LOG_LOCAL4,
        SyslogFacility::Local5 => libc::LOG_LOCAL5,
        SyslogFacility::Local6 => libc::LOG_LOCAL6,
        SyslogFacility::Local7 => libc::LOG_LOCAL7,
    };
    let ident = CString::new(ident).expect("text directives have no zero bytes");
    let options = libc::LOG_PID | libc::LOG_NDELAY | libc::LOG_NOWAIT;
    // SAFETY: openlog keeps the pointer, so the name is given away for good.
    unsafe { libc::openlog(ident.into_raw(), options, facility) };
}

fn write_syslog(record: &Record<'_>) {
    let priority = match record.level() {
        Level::Trace => libc::LOG_DEBUG,
        Level::Debug => libc::LOG_INFO,
        Level::Info => libc::LOG_NOTICE,
        Level::Warn | Level::Error => libc::LOG_WARNING,
    };
    let mut message = record.args().to_string().into_bytes();
    message.truncate(MESSAGE_MAX);
    message.retain(|&byte| byte != 0);
    let message = CString::new(message).expect("the zero bytes are gone");
    // SAFETY: both strings end with a zero byte and outlive the call; the format takes
    // exactly the one that is given.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), message.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_and_its_line_ends_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let logger = file_logger(path.clone());
        for len in [MESSAGE_MAX, MESSAGE_MAX + 1, 100_000] {
            let message = "x".repeat(len);
            let args = format_args!("{message}");
            let record = Record::builder().target("disque").level(Level::Warn).args(args).build();
            logger.log(&record);
        }
        let log = std::fs::read_to_string(path).expect("it was written");
        let messages: Vec<&str> = log.lines().map(|line| &line[line.len() - 1024..]).collect();
        assert_eq!(messages, vec![format!(" {}", "x".repeat(1023)); 3]);
    }
}
