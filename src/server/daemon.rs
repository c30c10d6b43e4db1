//! The process among other processes: going into the background, the pid file, the
//! title in `ps`, the limit of open files, and warnings about the machine's settings.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process;

use super::config::Config;
use crate::base::limits::LINKS_RESERVED;

/// Descriptors kept for listeners, files and the like. C: CONFIG_MIN_RESERVED_FDS, which is
/// for links too; differs from C, because many clients would keep the node out of its cluster.
const OWN_FILES: u64 = 32;

/// Goes on in a child that belongs to no terminal; the calling process exits. Must come
/// before any thread is started: a fork takes only the one that calls it.
pub fn daemonize() -> io::Result<()> {
    // SAFETY: there are no other threads yet, so the child can go on as if nothing were.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        _ => process::exit(0),
    }
    // SAFETY: setsid takes nothing and a fresh child leads no group, so it cannot fail.
    unsafe { libc::setsid() };
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: replaces the three standard descriptors, which nobody owns.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Writes the process ID. A server without its pid file is better than none, so failure
/// is only logged.
pub fn write_pidfile(path: &Path) {
    if let Err(e) = fs::write(path, format!("{}\n", process::id())) {
        log::warn!("Can't write the pid file {}: {e}", path.display());
    }
}

/// Removes the pid file at the end.
pub fn remove_pidfile(path: &Path) {
    if let Err(e) = fs::remove_file(path) {
        log::debug!("Can't remove the pid file {}: {e}", path.display());
    }
}

/// Makes `ps` show where the server listens: `disque-server *:7711`.
///
/// The kernel shows the memory in which it laid down the arguments at start, so that is
/// where the title goes, through `/proc`. A title longer than the arguments were is left
/// alone: past them lies the environment. Elsewhere than on Linux nothing happens.
pub fn show_title(program: &OsStr, config: &Config) {
    let address = config.bind.first().map_or("*", String::as_str);
    let title = [program.as_bytes(), format!(" {address}:{}", config.port).as_bytes()].concat();
    if let Err(e) = write_over_arguments(&title) {
        log::debug!("The process keeps its title: {e}");
    }
}

fn write_over_arguments(title: &[u8]) -> io::Result<()> {
    let not_told = || io::Error::other("the place of the arguments is not told");
    // Of this line, the words after the parenthesis are numbered from 3; 48 and 49 are
    // where the arguments begin and end.
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, words) = stat.rsplit_once(')').ok_or_else(not_told)?;
    let mut places = words.split_ascii_whitespace().skip(45).map(str::parse::<u64>);
    let (Some(Ok(start)), Some(Ok(end))) = (places.next(), places.next()) else {
        return Err(not_told());
    };
    let room = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    if title.len() >= room {
        return Err(io::Error::other("it is longer than the arguments"));
    }
    // The last byte stays zero, so every argument, as std may read them again, ends.
    let mut padded = title.to_vec();
    padded.resize(room, 0);
    // SAFETY: no `unsafe`, and yet it writes to memory. The bytes from `start` to `end` are
    // the kernel's copy of the arguments, which it laid down writable and outside of
    // anything Rust allocates. Nothing refers to them but std, which copies them whenever
    // it is asked for the arguments; nobody asks after the start, and each copy still ends.
    let mut memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    memory.write_all(&padded)
}

/// How many open files the system lets us have of what, at most as many as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBudget {
    /// 0 when there is not even place for the server's own files.
    pub clients: u32,
    /// Links to and from other nodes.
    pub links: usize,
}

impl FileBudget {
    /// Divides `limit` open files: the server's own first, then the links, that get a quarter of
    /// a limit too low for everybody, then up to `maxclients` clients.
    fn of(limit: u64, maxclients: u32) -> Self {
        let links = LINKS_RESERVED.min(usize::try_from(limit / 4).unwrap_or(usize::MAX));
        let clients = limit.saturating_sub(OWN_FILES + links as u64);
        Self { clients: u32::try_from(clients).unwrap_or(u32::MAX).min(maxclients), links }
    }

    /// How many open files `maxclients` clients need, with all that is kept for others.
    fn wanted(maxclients: u32) -> u64 {
        u64::from(maxclients) + OWN_FILES + LINKS_RESERVED as u64
    }
}

/// Raises the limit of open files to what `maxclients` clients need, as far as the system
/// lets us, and returns what there is.
pub fn raise_file_limit(maxclients: u32) -> FileBudget {
    let wanted = FileBudget::wanted(maxclients);
    let granted = match file_limit() {
        Ok(limit) if limit.rlim_cur >= wanted => limit.rlim_cur,
        Ok(limit) => {
            // Root may raise the hard limit as well; others go up to it.
            let hard = limit.rlim_max;
            set_file_limit(wanted, hard.max(wanted))
                .or_else(|_| set_file_limit(wanted.min(hard), hard))
                .unwrap_or(limit.rlim_cur)
        }
        Err(e) => {
            log::warn!("Can't read the limit of open files, taking it for 1024: {e}");
            1024
        }
    };
    FileBudget::of(granted, maxclients)
}

/// Lowers `maxclients` to what the limit of open files allows and says so; returns how many
/// of them are for links. An error is the sentence to exit with.
pub fn settle_maxclients(config: &mut Config) -> Result<usize, String> {
    let maxclients = config.maxclients;
    let (wanted, granted) = (FileBudget::wanted(maxclients), raise_file_limit(maxclients));
    if granted.clients == 0 {
        return Err(format!(
            "The limit of open files (ulimit -n) is too low for the server to start; it needs \
             {wanted} for maxclients {maxclients}"
        ));
    }
    if granted.clients < maxclients {
        log::warn!(
            "maxclients {maxclients} needs {wanted} open files, which the system does not allow: \
             lowered to {}. Raise 'ulimit -n' for more.",
            granted.clients
        );
        config.maxclients = granted.clients;
    }
    Ok(granted.links)
}

fn file_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit to where it is told.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_file_limit(soft: u64, hard: u64) -> io::Result<u64> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: setrlimit only reads the rlimit it is given.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(soft),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Warns of settings of the machine and of the configuration that bite later.
pub fn warn_of_settings(config: &Config) {
    if number_in("/proc/sys/vm/overcommit_memory") == Some(0) {
        log::warn!(
            "WARNING: overcommit_memory is 0, so the system may refuse memory while there is \
             some. Set vm.overcommit_memory = 1 in /etc/sysctl.conf, or run 'sysctl \
             vm.overcommit_memory=1' for now."
        );
    }
    match number_in("/proc/sys/net/core/somaxconn") {
        Some(most) if most > 0 && most < u64::from(config.tcp_backlog) => log::warn!(
            "WARNING: the TCP backlog of {} is cut to {most} by /proc/sys/net/core/somaxconn.",
            config.tcp_backlog
        ),
        _ => {}
    }
    if config.bind.is_empty() && !config.has_logins() && !config.protected_mode {
        log::warn!(
            "WARNING: anybody who reaches port {} may use this server, since neither bind nor \
             requirepass nor a user is set. Set bind to the addresses that only trusted machines \
             reach, or requirepass to a long password, or protected-mode to yes.",
            config.port
        );
    }
    config.warn_of_no_admin();
    if (1..1024 * 1024).contains(&config.maxmemory) {
        log::warn!(
            "WARNING: maxmemory is less than 1MB ({} bytes). Is this what you want?",
            config.maxmemory
        );
    }
}

fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_limit_already_high_enough_is_left_alone() {
        raise_file_limit(2);
        let before = file_limit().expect("it can be read").rlim_cur;
        assert_eq!(raise_file_limit(1).clients, 1);
        assert_eq!(file_limit().expect("it can be read").rlim_cur, before);
    }

    #[test]
    fn links_have_their_files_whatever_clients_want() {
        let budget = |limit| FileBudget::of(limit, 10_000);
        let wanted = FileBudget::wanted(10_000);
        assert_eq!(budget(wanted), FileBudget { clients: 10_000, links: LINKS_RESERVED });
        assert_eq!(budget(wanted - 1), FileBudget { clients: 9_999, links: LINKS_RESERVED });
        assert_eq!(budget(1024), FileBudget { clients: 736, links: 256 });
        assert_eq!(budget(32).clients, 0);
    }

    #[test]
    fn a_pid_file_holds_the_process_id_and_goes_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disque.pid");
        write_pidfile(&path);
        let text = fs::read_to_string(&path).expect("it was written");
        assert_eq!(text, format!("{}\n", process::id()));
        remove_pidfile(&path);
        assert!(!path.exists());
    }
}
