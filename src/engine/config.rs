//! The settings that decide what the engine does; the server fills them from its own.

use core::net::IpAddr;

use crate::proto::aof_record::SumPlace;

use super::policy::{Policies, RetryFrom};

/// Jobs whose traces are kept, unless an operator says otherwise.
pub const TRACE_MAX_DEFAULT: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The port clients connect to, as peers learn it.
    pub port: u16,
    /// How long a peer may leave a ping unanswered, in ms. Directive: cluster-node-timeout.
    pub node_timeout_ms: u64,
    /// Whether records for the append only file have places for sums. Directive: aof-checksums.
    pub aof_sums: SumPlace,
    /// Whether loading puts jobs that were queued back into their queues at once.
    pub enqueue_at_load: EnqueueAtLoad,
    /// Whether jobs may be evicted for memory's sake. Directive: maxmemory-policy.
    pub eviction: Eviction,
    /// What a job's retry counts from. Directive: retry-from.
    pub retry_from: RetryFrom,
    /// What peers learn instead of what sockets show. Directives: cluster-announce-*.
    pub announce: Announce,
    /// One in so many jobs is traced, 0 for none. Directive: trace-sample.
    pub trace_sample: u64,
    /// Of so many jobs it is kept what happened to them. Directive: trace-max.
    pub trace_max: usize,
    /// Directive: queue-policy.
    pub policies: Policies,
    /// Of the server, for peers.
    pub version: &'static str,
    /// Directive: availability-zone.
    pub zone: String,
    /// Directive: cluster-forget-after; 0 is never.
    pub forget_after_secs: u64,
    /// Directive: cluster-name.
    pub cluster_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueAtLoad {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Acknowledged jobs, and delivered ones that will never be delivered again.
    Acks,
    None,
}

/// How this node is reached, where that differs from what its sockets show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announce {
    pub ip: Option<IpAddr>,
    pub port: Option<u16>,
    pub bus_port: Option<u16>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            port: 7711,
            node_timeout_ms: 15_000,
            aof_sums: SumPlace::No,
            enqueue_at_load: EnqueueAtLoad::No,
            eviction: Eviction::Acks,
            retry_from: RetryFrom::Queue,
            announce: Announce::default(),
            trace_sample: 0,
            trace_max: TRACE_MAX_DEFAULT,
            policies: Policies::default(),
            version: "",
            zone: String::new(),
            forget_after_secs: 0,
            cluster_name: String::new(),
        }
    }
}
