//! What can be set: one typed field for each directive, with its default.
//!
//! A [`Config`] is plain data. It is filled by [`super::config_file`] at start, read by
//! everybody, and changed while the server runs by CONFIG SET only. How a directive is
//! written, which values it takes, who may see it and what setting it does stands in one
//! table, [`directives`].
//!
//! Invariant: every value held here is one that its directive's form accepts.

pub mod command;
pub mod directives;
pub mod documents;
pub mod form;

use std::net::IpAddr;
use std::path::PathBuf;

use crate::base::network::Network;
use crate::engine::config::{Announce, EngineConfig, EnqueueAtLoad, Eviction, TRACE_MAX_DEFAULT};
use crate::engine::policy::{Policies, RetryFrom};
use crate::proto::aof_record::SumPlace;
use crate::server::users::Users;
use crate::server::version::SERVER_VERSION;

/// Every setting of the server. A field is named as its directive, plus its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file the server was started with, absolute; CONFIG REWRITE writes it.
    pub config_file: Option<PathBuf>,

    pub daemonize: bool,
    pub pidfile: PathBuf,

    pub port: u16,
    pub tcp_backlog: u32,
    /// No address means all of them. The first one is also the source address of links.
    pub bind: Vec<String>,
    pub protected_mode: bool,
    pub unixsocket: Option<PathBuf>,
    /// Mode of the unix socket; 0 leaves what the umask gives.
    pub unixsocketperm: u32,
    /// 0 never closes an idle client.
    pub timeout_secs: u64,
    /// 0 sends no keepalive probes.
    pub tcp_keepalive_secs: u32,
    pub maxclients: u32,
    pub client_output_buffer_limit: OutputLimit,

    /// 0: there is no HTTP port.
    pub http_port: u16,
    pub http_bind: Vec<String>,
    pub http_token: Option<Vec<u8>>,

    pub loglevel: LogLevel,
    /// Empty: standard output.
    pub logfile: PathBuf,
    pub syslog_enabled: bool,
    pub syslog_ident: String,
    pub syslog_facility: SyslogFacility,

    /// The working directory; absolute once the configuration is loaded.
    pub dir: PathBuf,
    /// That of the user default.
    pub requirepass: Option<Vec<u8>>,
    /// Beside the user default.
    pub users: Users,
    /// Pairs of old and new name; an empty new name takes the command away.
    pub rename_commands: Vec<(Vec<u8>, Vec<u8>)>,

    pub retry_from: RetryFrom,
    /// 0 for no jobs, 1 for all.
    pub trace_sample: u64,
    /// In jobs.
    pub trace_max: usize,

    /// In bytes; 0 is no limit.
    pub maxmemory: u64,
    pub maxmemory_policy: MaxmemoryPolicy,
    /// Accepted and shown, without effect.
    pub maxmemory_samples: u32,
    /// Accepted and shown, without effect.
    pub activerehashing: bool,
    /// 1, whatever is set.
    pub databases: u32,
    /// Turns of the server's own periodic work, a second.
    pub hz: u32,

    pub appendonly: bool,
    pub appendfilename: String,
    pub appendfsync: AppendFsync,
    pub no_appendfsync_on_rewrite: bool,
    /// Growth since the last rewrite that starts the next one; 0 never does.
    pub auto_aof_rewrite_percentage: u32,
    /// In bytes.
    pub auto_aof_rewrite_min_size: u64,
    pub aof_rewrite_incremental_fsync: bool,
    pub aof_checksums: bool,
    pub aof_load_truncated: bool,
    pub aof_load_damaged: bool,
    pub aof_enqueue_jobs_once: bool,
    pub aof_restore_queues: bool,

    /// In the order in which they count.
    pub queue_policies: Policies,

    pub cluster_config_file: PathBuf,
    pub cluster_node_timeout_ms: u64,
    /// Where nodes may connect from; none means from everywhere.
    pub cluster_allow: Vec<Network>,
    /// The address told to peers and clients, when it is not the one links arrive at.
    pub cluster_announce_ip: Option<IpAddr>,
    /// The client port told to peers and clients; 0: `port`.
    pub cluster_announce_port: u16,
    /// The bus port told to peers that understand it; 0: the client port + 10000.
    pub cluster_announce_bus_port: u16,
    /// Empty: none.
    pub availability_zone: String,
    /// Empty: none.
    pub cluster_name: String,
    /// 0: never.
    pub cluster_forget_after_secs: u64,
    /// Hosts, each with a port or without.
    pub cluster_seeds: Vec<String>,

    /// Negative: nothing is logged; 0: every command.
    pub slowlog_log_slower_than_us: i64,
    pub slowlog_max_len: u64,
    /// 0 turns the latency monitor off.
    pub latency_monitor_threshold_ms: u64,
    /// 0 turns the watchdog off.
    pub watchdog_period_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            config_file: None,
            daemonize: false,
            pidfile: "/var/run/disque.pid".into(),
            port: 7711,
            tcp_backlog: 511,
            bind: Vec::new(),
            protected_mode: false,
            unixsocket: None,
            unixsocketperm: 0,
            timeout_secs: 0,
            tcp_keepalive_secs: 300,
            maxclients: 10_000,
            client_output_buffer_limit: OutputLimit::default(),
            http_port: 0,
            http_bind: vec!["127.0.0.1".into()],
            http_token: None,
            loglevel: LogLevel::Notice,
            logfile: PathBuf::new(),
            syslog_enabled: false,
            syslog_ident: "disque".into(),
            syslog_facility: SyslogFacility::Local0,
            dir: "./".into(),
            requirepass: None,
            users: Users::default(),
            rename_commands: Vec::new(),
            retry_from: RetryFrom::Queue,
            trace_sample: 0,
            trace_max: TRACE_MAX_DEFAULT,
            maxmemory: 1024 * 1024 * 1024,
            maxmemory_policy: MaxmemoryPolicy::Acks,
            maxmemory_samples: 5,
            activerehashing: true,
            databases: 1,
            hz: 10,
            appendonly: false,
            appendfilename: "disque.aof".into(),
            appendfsync: AppendFsync::EverySec,
            no_appendfsync_on_rewrite: false,
            auto_aof_rewrite_percentage: 100,
            auto_aof_rewrite_min_size: 64 * 1024 * 1024,
            aof_rewrite_incremental_fsync: true,
            aof_checksums: true,
            aof_load_truncated: true,
            aof_load_damaged: false,
            aof_enqueue_jobs_once: false,
            aof_restore_queues: false,
            queue_policies: Policies::default(),
            cluster_config_file: "nodes.conf".into(),
            cluster_node_timeout_ms: 15_000,
            cluster_allow: Vec::new(),
            cluster_announce_ip: None,
            cluster_announce_port: 0,
            cluster_announce_bus_port: 0,
            availability_zone: String::new(),
            cluster_name: String::new(),
            cluster_seeds: Vec::new(),
            cluster_forget_after_secs: 0,
            slowlog_log_slower_than_us: 10_000,
            slowlog_max_len: 128,
            latency_monitor_threshold_ms: 0,
            watchdog_period_ms: 0,
        }
    }
}

impl Config {
    /// What of it decides what the engine does. Whether it enqueues jobs while it loads is not
    /// the configuration's decision alone.
    pub fn for_engine(&self, enqueue_at_load: EnqueueAtLoad) -> EngineConfig {
        let unless_0 = |port| (port != 0).then_some(port);
        EngineConfig {
            port: self.port,
            node_timeout_ms: self.cluster_node_timeout_ms,
            aof_sums: if self.aof_checksums { SumPlace::Yes } else { SumPlace::No },
            enqueue_at_load,
            eviction: match self.maxmemory_policy {
                MaxmemoryPolicy::Acks => Eviction::Acks,
                MaxmemoryPolicy::NoEviction => Eviction::None,
            },
            retry_from: self.retry_from,
            trace_sample: self.trace_sample,
            trace_max: self.trace_max,
            announce: Announce {
                ip: self.cluster_announce_ip,
                port: unless_0(self.cluster_announce_port),
                bus_port: unless_0(self.cluster_announce_bus_port),
            },
            policies: self.queue_policies.clone(),
            version: SERVER_VERSION,
            zone: self.availability_zone.clone(),
            cluster_name: self.cluster_name.clone(),
            forget_after_secs: self.cluster_forget_after_secs,
        }
    }
}

/// When a client that does not read its replies is dropped; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Over this many unsent bytes: at once.
    pub hard_bytes: u64,
    /// Over this many unsent bytes for `soft_secs` on end.
    pub soft_bytes: u64,
    pub soft_secs: u64,
}

/// How much the server tells in its log; each level includes those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// The syslog facility lines are sent under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyslogFacility {
    User,
    Local0,
    Local1,
    Local2,
    Local3,
    Local4,
    Local5,
    Local6,
    Local7,
}

/// What may be dropped when memory runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxmemoryPolicy {
    /// Acknowledged jobs, and at-most-once jobs already delivered.
    Acks,
    NoEviction,
}

/// When the append only file is synced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    Always,
    EverySec,
    No,
}
