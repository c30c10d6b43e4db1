//! INFO: everything there is to know about the server, gathered.

use std::path::Path;
use std::{fs, process};

use crate::base::memory;
use crate::engine::command::{Call, Outcome};
use crate::engine::error::CommandError;
use crate::server::Server;
use crate::server::info::{
    self, ClientFacts, CpuFacts, Facts, MemoryFacts, ServerFacts, StatsFacts,
};

/// INFO [section] -> the section's text; without one, all but the command statistics.
pub fn info(server: &mut Server, call: &Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        server.reply(call).error(CommandError::Syntax.to_string());
        return Outcome::Done;
    }
    let text = info::render(call.args.get(1).unwrap_or(b"default"), &server.facts());
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
                .map(|(place, stats)| (self.commands.spec(place).name, *stats))
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
