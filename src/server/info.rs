//! INFO: the figures of the server, in sections of `name:value` lines that tools take apart.
//!
//! Names, order and formats are the C server's, new fields stand at the end of their
//! section. A field is a line here, which asks whoever knows its value.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::{fs, process};

use super::Server;
use super::server_command::{ServerCommand, row};
use super::version::{
    ALLOCATOR, ARCH_BITS, DISQUE_VERSION, GIT_DIRTY, GIT_SHA1, SERVER_NAME, SERVER_VERSION,
};
use crate::base::{memory, number};
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::store::aof::{AofState, LastRewrite};

pub(super) static COMMANDS: &[ServerCommand] = &[row("info", info)];

/// INFO [section] -> the section's text; without one, all but the command statistics.
fn info(server: &mut Server, call: &Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        server.reply(call).error(CommandError::Syntax.to_string());
        return Outcome::Done;
    }
    let text = render(call.args.get(1).unwrap_or(b"default"), server);
    server.reply(call).bulk(text);
    Outcome::Done
}

/// A section's heading, and what writes its lines.
type InfoSection = (&'static str, fn(&mut Text, &Server));

const SECTIONS: [InfoSection; 9] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Jobs", jobs),
    ("Queues", |text, server| text.line("registered_queues", server.engine.queue_count())),
    ("Persistence", persistence),
    ("Stats", stats),
    ("CPU", cpu),
    ("Commandstats", command_stats),
];

/// The sections asked for: one by its name, `all`, or `default`, which is all but
/// Commandstats. Names in any case; an unknown one gives an empty text.
pub fn render(section: &[u8], server: &Server) -> String {
    let mut text = Text(String::new());
    let is_all = section.eq_ignore_ascii_case(b"all");
    let is_default = section.eq_ignore_ascii_case(b"default");
    for (name, write) in SECTIONS {
        let is_named = section.eq_ignore_ascii_case(name.as_bytes());
        if is_named || is_all || is_default && name != "Commandstats" {
            text.heading(name);
            write(&mut text, server);
        }
    }
    text.0
}

struct Text(String);

impl Text {
    fn heading(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        let _infallible = write!(self.0, "# {name}\r\n");
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let _infallible = write!(self.0, "{name}:{value}\r\n");
    }

    fn hundredths(&mut self, name: &str, value: f64) {
        self.line(name, format_args!("{value:.2}"));
    }
}

fn server(text: &mut Text, server: &Server) {
    let Server { config, identity, .. } = server;
    let uptime_secs = server.clock.now.mono.ms_since(server.started_at) / 1000;
    text.line("disque_version", DISQUE_VERSION);
    text.line("disque_git_sha1", GIT_SHA1);
    text.line("disque_git_dirty", GIT_DIRTY);
    text.line("disque_build_id", GIT_SHA1);
    text.line("os", &identity.os);
    text.line("arch_bits", ARCH_BITS);
    text.line("multiplexing_api", SELECTOR);
    // What C reports for a compiler that is not gcc.
    text.line("gcc_version", "0.0.0");
    text.line("process_id", process::id());
    text.line("run_id", &identity.run_id);
    text.line("tcp_port", config.port);
    text.line("uptime_in_seconds", uptime_secs);
    text.line("uptime_in_days", uptime_secs / 86_400);
    text.line("hz", config.hz);
    text.line("executable", identity.executable.display());
    text.line("config_file", config.config_file.as_deref().unwrap_or(Path::new("")).display());
    text.line("server_name", SERVER_NAME);
    text.line("server_version", SERVER_VERSION);
    text.line("availability_zone", &config.availability_zone);
}

fn clients(text: &mut Text, server: &Server) {
    let connections = || server.clients.iter().map(|client| &client.connection);
    // Unsent output is one buffer here, where C has a list of them.
    let has_unsent = connections().any(|connection| connection.unsent() > 0);
    let inputs = connections().map(|connection| connection.input.len());
    text.line("connected_clients", server.clients.len());
    text.line("client_longest_output_list", u8::from(has_unsent));
    text.line("client_biggest_input_buf", inputs.max().unwrap_or(0));
    text.line("blocked_clients", server.engine.blocked_count());
}

fn memory(text: &mut Text, server: &Server) {
    let (used, resident) = (memory::used(), resident_bytes().unwrap_or(0));
    let peak = memory::peak().max(used);
    text.line("used_memory", used);
    text.line("used_memory_human", number::human_bytes(used as u64));
    text.line("used_memory_rss", resident);
    text.line("used_memory_peak", peak);
    text.line("used_memory_peak_human", number::human_bytes(peak as u64));
    text.hundredths("mem_fragmentation_ratio", resident as f64 / used.max(1) as f64);
    text.line("mem_allocator", ALLOCATOR);
    text.line("used_memory_unfinished_input", server.unfinished.bytes());
}

fn jobs(text: &mut Text, server: &Server) {
    let counts = server.engine.job_counts();
    text.line("registered_jobs", server.engine.job_count());
    text.line("jobs_queued", counts.queued);
    text.line("jobs_in_flight", counts.in_flight);
    text.line("jobs_delayed", counts.delayed);
    text.line("jobs_passive", counts.passive);
    text.line("jobs_acked", counts.acked);
    text.line("jobs_wait_repl", counts.wait_repl);
    text.line("jobs_short_of_copies", server.engine.short_of_copies_count());
}

fn persistence(text: &mut Text, server: &Server) {
    let aof = server.persistence.aof();
    let figures = aof.figures(server.clock.now.mono);
    let state = match aof.state() {
        AofState::Off => "off",
        AofState::On => "on",
        AofState::WaitRewrite => "wait-rewrite",
    };
    let is_on = aof.state() != AofState::Off;
    let is_scheduled = u8::from(figures.waits_for_rewrite);
    text.line("loading", u8::from(server.persistence.is_loading()));
    text.line("aof_enabled", u8::from(is_on));
    text.line("aof_state", state);
    text.line("aof_rewrite_in_progress", u8::from(aof.is_rewriting()));
    text.line("aof_rewrite_scheduled", is_scheduled);
    text.line("aof_last_rewrite_time_sec", or_never(figures.last_rewrite_secs));
    text.line("aof_current_rewrite_time_sec", or_never(figures.current_rewrite_secs));
    text.line("aof_last_bgrewrite_status", status(figures.last_rewrite == LastRewrite::Failed));
    text.line("aof_last_write_status", status(aof.failure().is_some()));
    if is_on {
        text.line("aof_current_size", figures.current_len);
        text.line("aof_base_size", figures.base_len);
        text.line("aof_pending_rewrite", is_scheduled);
        text.line("aof_buffer_length", figures.unwritten_len);
        text.line("aof_rewrite_buffer_length", figures.rewrite_unwritten_len);
        text.line("aof_pending_bio_fsync", figures.syncs_in_flight);
        text.line("aof_delayed_fsync", figures.delayed_sync_count);
        text.line("aof_loss_window_ms", figures.loss_window_ms);
        text.line("aof_damaged_records", server.persistence.damage_count());
        text.line("records_expired_while_down", server.engine.expired_while_down_count());
    }
    if let Some(load) = server.persistence.load() {
        let elapsed_secs = server.clock.now.mono.ms_since(load.begun_at.mono) / 1000;
        let (loaded, total) = (load.reader.loaded_len(), load.reader.total_len());
        text.line("loading_start_time", load.begun_at.wall.secs());
        text.line("loading_total_bytes", total);
        text.line("loading_loaded_bytes", loaded);
        text.hundredths("loading_loaded_perc", loaded as f64 / total.max(1) as f64 * 100.0);
        text.line("loading_eta_seconds", eta_secs(elapsed_secs, loaded, total));
    }
    text.line("aof_rewrites_consecutive_failures", figures.rewrite_failure_count);
    text.line("aof_rewrite_pause_sec", figures.rewrite_pause_secs);
    if let Some(error) = aof.rewrite_error() {
        text.line("aof_last_bgrewrite_error", error);
    }
}

/// Seconds until all is loaded, if it goes on as it went. C: 1 in the first second.
fn eta_secs(elapsed_secs: u64, loaded: u64, total: u64) -> u64 {
    match elapsed_secs {
        0 => 1,
        _ => elapsed_secs.saturating_mul(total.saturating_sub(loaded)) / loaded.max(1),
    }
}

fn or_never(secs: Option<u64>) -> String {
    secs.map_or("-1".to_owned(), |secs| secs.to_string())
}

fn status(failed: bool) -> &'static str {
    if failed { "err" } else { "ok" }
}

fn stats(text: &mut Text, server: &Server) {
    let stats = &server.stats;
    let kib_per_sec = |bytes_per_sec: u64| bytes_per_sec as f64 / 1024.0;
    text.line("total_connections_received", stats.counters.connections_received);
    text.line("total_commands_processed", stats.counters.commands_processed);
    text.line("instantaneous_ops_per_sec", stats.commands_per_sec());
    text.line("total_net_input_bytes", stats.counters.net_input_bytes);
    text.line("total_net_output_bytes", stats.counters.net_output_bytes);
    text.hundredths("instantaneous_input_kbps", kib_per_sec(stats.input_bytes_per_sec()));
    text.hundredths("instantaneous_output_kbps", kib_per_sec(stats.output_bytes_per_sec()));
    text.line("rejected_connections", stats.counters.connections_rejected);
    // Nothing forks here.
    text.line("latest_fork_usec", 0);
}

fn cpu(text: &mut Text, _: &Server) {
    let (own, children) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN));
    text.hundredths("used_cpu_sys", secs(own.ru_stime));
    text.hundredths("used_cpu_user", secs(own.ru_utime));
    text.hundredths("used_cpu_sys_children", secs(children.ru_stime));
    text.hundredths("used_cpu_user_children", secs(children.ru_utime));
}

fn command_stats(text: &mut Text, server: &Server) {
    for (place, stats) in server.stats.commands.iter().enumerate() {
        if stats.calls > 0 {
            let name = server.commands.manual(place).name;
            text.line(&format!("cmdstat_{name}"), stats);
        }
    }
}

/// What mio waits with on this system.
const SELECTOR: &str = if cfg!(mio_unsupported_force_poll_poll) {
    "poll"
} else if cfg!(any(target_os = "linux", target_os = "android")) {
    "epoll"
} else if cfg!(any(target_os = "solaris", target_os = "illumos")) {
    "evport"
} else {
    "kqueue"
};

/// Memory of the process that is really there.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 =
        fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: sysconf only returns a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_size).ok()?)
}

/// Processor time of this process, in seconds.
pub fn cpu_secs() -> f64 {
    let own = usage(libc::RUSAGE_SELF);
    secs(own.ru_utime) + secs(own.ru_stime)
}

fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is numbers, for which zero is a value; getrusage writes one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    }
}

fn secs(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_speed_so_far() {
        assert_eq!(eta_secs(0, 0, 400), 1);
        assert_eq!(eta_secs(2, 100, 400), 6);
        assert_eq!(eta_secs(2, 0, 400), 800);
        assert_eq!(eta_secs(2, 500, 400), 0);
    }
}
