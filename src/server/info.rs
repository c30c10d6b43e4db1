//! The text of INFO: sections of `name:value` lines that tools take apart.
//!
//! Names, order and formats are the C server's, new fields stand at the end of their
//! section. [`render`] turns plain [`Facts`] into the text, so that a test can hold it to
//! the list without a server; `commands/info.rs` fills them.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, process};

use super::Server;
use super::command_table::{ServerCommand, row};
use super::stats::CommandStats;
use super::version::{
    ALLOCATOR, ARCH_BITS, DISQUE_VERSION, GIT_DIRTY, GIT_SHA1, SERVER_NAME, SERVER_VERSION,
};
use crate::base::memory;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;

pub(super) static COMMANDS: &[ServerCommand] = &[row("info", info)];

/// Everything INFO tells.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub server: ServerFacts,
    pub clients: ClientFacts,
    pub memory: MemoryFacts,
    pub registered_jobs: u64,
    pub registered_queues: u64,
    pub persistence: PersistenceFacts,
    pub stats: StatsFacts,
    pub cpu: CpuFacts,
    /// Name and counts of each command that was called.
    pub commands: Vec<(&'static str, CommandStats)>,
}

#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// Three words: system, release, machine.
    pub os: String,
    pub multiplexing_api: &'static str,
    pub process_id: u32,
    /// 40 hex digits, new at each start.
    pub run_id: String,
    pub tcp_port: u16,
    pub uptime_secs: u64,
    pub hz: u32,
    pub executable: String,
    pub config_file: String,
}

#[derive(Clone, Debug, Default)]
pub struct ClientFacts {
    pub connected: u64,
    pub longest_output_list: u64,
    pub biggest_input_buffer: u64,
    pub blocked: u64,
}

#[derive(Clone, Debug, Default)]
pub struct MemoryFacts {
    pub used: u64,
    pub resident: u64,
    pub peak: u64,
}

#[derive(Clone, Debug, Default)]
pub struct PersistenceFacts {
    pub aof_state: AofState,
    pub is_rewriting: bool,
    pub is_rewrite_scheduled: bool,
    /// How long the last rewrite took, when there was one.
    pub last_rewrite_secs: Option<u64>,
    pub current_rewrite_secs: Option<u64>,
    pub last_rewrite_failed: bool,
    pub last_write_failed: bool,
    pub aof: AofFacts,
    /// While the append only file is being loaded.
    pub loading: Option<LoadingFacts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AofState {
    #[default]
    Off,
    On,
    /// Turned on, and not in force before the first rewrite is done.
    WaitRewrite,
}

#[derive(Clone, Debug, Default)]
pub struct AofFacts {
    pub current_size: u64,
    pub base_size: u64,
    pub buffer_len: u64,
    pub rewrite_buffer_len: u64,
    pub pending_fsyncs: u64,
    pub delayed_fsyncs: u64,
}

#[derive(Clone, Debug, Default)]
pub struct LoadingFacts {
    pub started_at_unix_secs: u64,
    pub elapsed_secs: u64,
    pub total_bytes: u64,
    pub loaded_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StatsFacts {
    pub connections_received: u64,
    pub commands_processed: u64,
    pub ops_per_sec: u64,
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    pub input_bytes_per_sec: u64,
    pub output_bytes_per_sec: u64,
    pub connections_rejected: u64,
}

#[derive(Clone, Debug, Default)]
pub struct CpuFacts {
    pub system_secs: f64,
    pub user_secs: f64,
    pub children_system_secs: f64,
    pub children_user_secs: f64,
}

/// A section: its heading, and what writes its lines.
type Section = (&'static str, fn(&mut Text, &Facts));

const SECTIONS: [Section; 9] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Jobs", |text, facts| text.line("registered_jobs", facts.registered_jobs)),
    ("Queues", |text, facts| text.line("registered_queues", facts.registered_queues)),
    ("Persistence", persistence),
    ("Stats", stats),
    ("CPU", cpu),
    ("Commandstats", command_stats),
];

/// The sections asked for: one by its name, `all`, or `default`, which is all but
/// Commandstats. Names in any case; an unknown one gives an empty text.
pub fn render(section: &[u8], facts: &Facts) -> String {
    let mut text = Text(String::new());
    let is_all = section.eq_ignore_ascii_case(b"all");
    let is_default = section.eq_ignore_ascii_case(b"default");
    for (name, write) in SECTIONS {
        let is_named = section.eq_ignore_ascii_case(name.as_bytes());
        if is_named || is_all || is_default && name != "Commandstats" {
            text.heading(name);
            write(&mut text, facts);
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

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _infallible = write!(self.0, "{name}:{value}\r\n");
    }

    fn hundredths(&mut self, name: &str, value: f64) {
        self.line(name, format_args!("{value:.2}"));
    }
}

fn server(text: &mut Text, facts: &Facts) {
    let server = &facts.server;
    text.line("disque_version", DISQUE_VERSION);
    text.line("disque_git_sha1", GIT_SHA1);
    text.line("disque_git_dirty", GIT_DIRTY);
    text.line("disque_build_id", GIT_SHA1);
    text.line("os", &server.os);
    text.line("arch_bits", ARCH_BITS);
    text.line("multiplexing_api", server.multiplexing_api);
    // What C reports for a compiler that is not gcc.
    text.line("gcc_version", "0.0.0");
    text.line("process_id", server.process_id);
    text.line("run_id", &server.run_id);
    text.line("tcp_port", server.tcp_port);
    text.line("uptime_in_seconds", server.uptime_secs);
    text.line("uptime_in_days", server.uptime_secs / 86_400);
    text.line("hz", server.hz);
    text.line("executable", &server.executable);
    text.line("config_file", &server.config_file);
    text.line("server_name", SERVER_NAME);
    text.line("server_version", SERVER_VERSION);
}

fn clients(text: &mut Text, facts: &Facts) {
    let clients = &facts.clients;
    text.line("connected_clients", clients.connected);
    text.line("client_longest_output_list", clients.longest_output_list);
    text.line("client_biggest_input_buf", clients.biggest_input_buffer);
    text.line("blocked_clients", clients.blocked);
}

fn memory(text: &mut Text, facts: &Facts) {
    let memory = &facts.memory;
    let peak = memory.peak.max(memory.used);
    text.line("used_memory", memory.used);
    text.line("used_memory_human", human(memory.used));
    text.line("used_memory_rss", memory.resident);
    text.line("used_memory_peak", peak);
    text.line("used_memory_peak_human", human(peak));
    text.hundredths("mem_fragmentation_ratio", memory.resident as f64 / memory.used.max(1) as f64);
    text.line("mem_allocator", ALLOCATOR);
}

/// A size for people, as C writes it: bytes with a `B`, else two decimals and a unit.
fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{value:.2}{unit}") }
}

fn persistence(text: &mut Text, facts: &Facts) {
    let persistence = &facts.persistence;
    let state = match persistence.aof_state {
        AofState::Off => "off",
        AofState::On => "on",
        AofState::WaitRewrite => "wait-rewrite",
    };
    let is_scheduled = u8::from(persistence.is_rewrite_scheduled);
    text.line("loading", u8::from(persistence.loading.is_some()));
    text.line("aof_enabled", u8::from(persistence.aof_state != AofState::Off));
    text.line("aof_state", state);
    text.line("aof_rewrite_in_progress", u8::from(persistence.is_rewriting));
    text.line("aof_rewrite_scheduled", is_scheduled);
    text.line("aof_last_rewrite_time_sec", or_never(persistence.last_rewrite_secs));
    text.line("aof_current_rewrite_time_sec", or_never(persistence.current_rewrite_secs));
    text.line("aof_last_bgrewrite_status", status(persistence.last_rewrite_failed));
    text.line("aof_last_write_status", status(persistence.last_write_failed));
    if persistence.aof_state != AofState::Off {
        let aof = &persistence.aof;
        text.line("aof_current_size", aof.current_size);
        text.line("aof_base_size", aof.base_size);
        text.line("aof_pending_rewrite", is_scheduled);
        text.line("aof_buffer_length", aof.buffer_len);
        text.line("aof_rewrite_buffer_length", aof.rewrite_buffer_len);
        text.line("aof_pending_bio_fsync", aof.pending_fsyncs);
        text.line("aof_delayed_fsync", aof.delayed_fsyncs);
    }
    if let Some(loading) = &persistence.loading {
        let remaining = loading.total_bytes.saturating_sub(loading.loaded_bytes);
        let eta_secs = match loading.elapsed_secs {
            0 => 1,
            elapsed => elapsed.saturating_mul(remaining) / loading.loaded_bytes.max(1),
        };
        let loaded = loading.loaded_bytes as f64 / loading.total_bytes.max(1) as f64;
        text.line("loading_start_time", loading.started_at_unix_secs);
        text.line("loading_total_bytes", loading.total_bytes);
        text.line("loading_loaded_bytes", loading.loaded_bytes);
        text.hundredths("loading_loaded_perc", loaded * 100.0);
        text.line("loading_eta_seconds", eta_secs);
    }
}

fn or_never(secs: Option<u64>) -> String {
    secs.map_or("-1".to_owned(), |secs| secs.to_string())
}

fn status(failed: bool) -> &'static str {
    if failed { "err" } else { "ok" }
}

fn stats(text: &mut Text, facts: &Facts) {
    let stats = &facts.stats;
    text.line("total_connections_received", stats.connections_received);
    text.line("total_commands_processed", stats.commands_processed);
    text.line("instantaneous_ops_per_sec", stats.ops_per_sec);
    text.line("total_net_input_bytes", stats.net_input_bytes);
    text.line("total_net_output_bytes", stats.net_output_bytes);
    text.hundredths("instantaneous_input_kbps", stats.input_bytes_per_sec as f64 / 1024.0);
    text.hundredths("instantaneous_output_kbps", stats.output_bytes_per_sec as f64 / 1024.0);
    text.line("rejected_connections", stats.connections_rejected);
    // Nothing forks here.
    text.line("latest_fork_usec", 0);
}

fn cpu(text: &mut Text, facts: &Facts) {
    let cpu = &facts.cpu;
    text.hundredths("used_cpu_sys", cpu.system_secs);
    text.hundredths("used_cpu_user", cpu.user_secs);
    text.hundredths("used_cpu_sys_children", cpu.children_system_secs);
    text.hundredths("used_cpu_user_children", cpu.children_user_secs);
}

fn command_stats(text: &mut Text, facts: &Facts) {
    for (name, CommandStats { calls, total_us }) in &facts.commands {
        if *calls > 0 {
            let per_call = *total_us as f64 / *calls as f64;
            let value = format!("calls={calls},usec={total_us},usec_per_call={per_call:.2}");
            text.line(&format!("cmdstat_{name}"), value);
        }
    }
}

/// INFO [section] -> the section's text; without one, all but the command statistics.
fn info(server: &mut Server, call: &Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        server.reply(call).error(CommandError::Syntax.to_string());
        return Outcome::Done;
    }
    let text = render(call.args.get(1).unwrap_or(b"default"), &server.facts());
    server.reply(call).bulk(text);
    Outcome::Done
}

impl Server {
    /// What INFO tells, at this moment.
    pub fn facts(&self) -> Facts {
        Facts {
            server: self.server_facts(),
            clients: self.client_facts(),
            memory: MemoryFacts {
                used: memory::used() as u64,
                resident: resident_bytes().unwrap_or(0),
                peak: memory::peak() as u64,
            },
            registered_jobs: self.engine.job_count() as u64,
            registered_queues: self.engine.queue_count() as u64,
            persistence: self.persistence.facts(self.clock.now),
            stats: StatsFacts {
                connections_received: self.stats.connections_received,
                commands_processed: self.stats.commands_processed,
                ops_per_sec: self.stats.commands_per_sec(),
                net_input_bytes: self.stats.net_input_bytes,
                net_output_bytes: self.stats.net_output_bytes,
                input_bytes_per_sec: self.stats.input_bytes_per_sec(),
                output_bytes_per_sec: self.stats.output_bytes_per_sec(),
                connections_rejected: self.stats.connections_rejected,
            },
            cpu: cpu_facts(),
            commands: self
                .stats
                .commands
                .iter()
                .enumerate()
                .map(|(place, stats)| (self.commands.manual(place).name, *stats))
                .collect(),
        }
    }

    fn server_facts(&self) -> ServerFacts {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        ServerFacts {
            os: self.identity.os.clone(),
            multiplexing_api: SELECTOR,
            process_id: process::id(),
            run_id: self.identity.run_id.clone(),
            tcp_port: self.config.port,
            uptime_secs: self.clock.now.mono.ms_since(self.started_at) / 1000,
            hz: self.config.hz,
            executable: path(&self.identity.executable),
            config_file: self.config.config_file.as_deref().map(path).unwrap_or_default(),
        }
    }

    fn client_facts(&self) -> ClientFacts {
        let connections = || self.clients.iter().map(|client| &client.connection);
        let unsent_lists = connections().map(|connection| u64::from(connection.unsent() > 0));
        let inputs = connections().map(|connection| connection.input.len() as u64);
        ClientFacts {
            connected: self.clients.len() as u64,
            // Unsent output is one buffer here, where C has a list of them.
            longest_output_list: unsent_lists.max().unwrap_or(0),
            biggest_input_buffer: inputs.max().unwrap_or(0),
            blocked: self.engine.blocked_count() as u64,
        }
    }
}

/// What mio waits with on this system.
const SELECTOR: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
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

fn cpu_facts() -> CpuFacts {
    let (own, children) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN));
    CpuFacts {
        system_secs: secs(own.ru_stime),
        user_secs: secs(own.ru_utime),
        children_system_secs: secs(children.ru_stime),
        children_user_secs: secs(children.ru_utime),
    }
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

    fn fields(section: &str, facts: &Facts) -> Vec<String> {
        let text = render(section.as_bytes(), facts);
        let lines = text.split("\r\n").filter(|line| line.contains(':'));
        lines.map(|line| line.split(':').next().unwrap_or("").to_owned()).collect()
    }

    #[test]
    fn sections_stand_in_order_with_a_blank_line_between_them() {
        let text = render(b"ALL", &Facts::default());
        let headings: Vec<&str> =
            text.split("\r\n").filter_map(|line| line.strip_prefix("# ")).collect();
        assert_eq!(
            headings,
            [
                "Server",
                "Clients",
                "Memory",
                "Jobs",
                "Queues",
                "Persistence",
                "Stats",
                "CPU",
                "Commandstats"
            ]
        );
        assert!(text.starts_with("# Server\r\n"));
        assert!(text.contains("registered_jobs:0\r\n\r\n# Queues\r\n"));
        assert!(text.ends_with("\r\n# Commandstats\r\n"));
        assert!(!render(b"default", &Facts::default()).contains("Commandstats"));
        assert_eq!(render(b"nonsense", &Facts::default()), "");
    }

    #[test]
    fn persistence_says_more_with_the_file_on_and_while_loading() {
        let mut facts = Facts::default();
        assert_eq!(fields("persistence", &facts).len(), 9);
        facts.persistence.aof_state = AofState::On;
        assert_eq!(fields("persistence", &facts).len(), 16);
        facts.persistence.loading = Some(LoadingFacts {
            started_at_unix_secs: 100,
            elapsed_secs: 2,
            total_bytes: 400,
            loaded_bytes: 100,
        });
        let text = render(b"Persistence", &facts);
        assert!(
            text.starts_with("# Persistence\r\nloading:1\r\naof_enabled:1\r\naof_state:on\r\n")
        );
        assert!(text.contains("aof_last_rewrite_time_sec:-1\r\n"));
        assert!(text.ends_with(
            "loading_start_time:100\r\nloading_total_bytes:400\r\nloading_loaded_bytes:100\r\n\
             loading_loaded_perc:25.00\r\nloading_eta_seconds:6\r\n"
        ));
    }

    #[test]
    fn only_commands_that_were_called_are_listed() {
        let facts = Facts {
            commands: vec![
                ("ping", CommandStats { calls: 3, total_us: 10 }),
                ("info", CommandStats::default()),
            ],
            ..Facts::default()
        };
        assert_eq!(
            render(b"commandstats", &facts),
            "# Commandstats\r\ncmdstat_ping:calls=3,usec=10,usec_per_call=3.33\r\n"
        );
    }

    #[test]
    fn sizes_for_people_have_two_decimals_from_a_kilobyte_on() {
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(1536), "1.50K");
        assert_eq!(human(3 << 30), "3.00G");
        assert_eq!(human(u64::MAX), "16384.00P");
    }
}
