//! The metrics of the node: one row each.

use std::sync::OnceLock;

use super::text::{MetricRow, Samples, counter, gauge, histogram, info};
use crate::base::histogram::DURATION_BOUNDS_US;
use crate::base::memory;
use crate::engine::cluster::PeerFigures;
use crate::proto::bus::MessageCounts;
use crate::server::Server;
use crate::server::http::health;
use crate::server::info as process;
use crate::server::version::{DISQUE_VERSION, GIT_SHA1, SERVER_VERSION};
use crate::store::aof::{AofFigures, AofState};
use crate::store::fsync;

/// Most nodes with series of their own.
pub const PEERS_MAX: usize = 1000;

fn file(server: &Server) -> AofFigures {
    server.persistence.aof().figures(server.clock.now.mono)
}

/// A sample for each other node.
fn each_peer(
    server: &Server,
    samples: &mut Samples<'_>,
    mut write: impl FnMut(&mut Samples<'_>, &str, &PeerFigures),
) {
    for peer in server.engine.cluster().peers(server.clock.now.mono).take(PEERS_MAX) {
        write(samples, &peer.id.to_string(), &peer);
    }
}

/// A sample for each type of message that there was.
fn each_type(counts: &MessageCounts, samples: &mut Samples<'_>) {
    for (name, count) in counts.by_type().filter(|(_, count)| *count > 0) {
        samples.with(&[("type", name)], count);
    }
}

/// Every metric of the node.
pub static FAMILIES: &[MetricRow<Server>] = &[
    // The process, by the names that every client library of Prometheus gives them.
    counter("process_cpu_seconds", "Processor time that the process has used.", |_, samples| {
        samples.real(process::cpu_secs())
    }),
    gauge("process_resident_memory_bytes", "Memory that is really there.", |_, samples| {
        samples.value(process::resident_bytes().unwrap_or(0));
    }),
    gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        |server, samples| {
            // The clocks may part: counted anew it would not stand still.
            static STARTED_AT_MS: OnceLock<u64> = OnceLock::new();
            let now = server.clock.now;
            let started_at = || now.wall_at(server.started_at).0;
            samples.seconds(*STARTED_AT_MS.get_or_init(started_at));
        },
    ),
    info("disque_build", "What this server is.", |_, samples| {
        samples.with(
            &[("version", SERVER_VERSION), ("protocol", DISQUE_VERSION), ("git", GIT_SHA1)],
            1,
        );
    }),
    info("disque_node", "Who this node is.", |server, samples| {
        samples.with(&[("node", &server.engine.cluster().my_id().to_string())], 1);
    }),
    gauge("disque_ready", "Whether /readyz says so.", |server, samples| {
        samples.flag(health::unready(server).is_none());
    }),
    gauge("disque_loading", "Whether the append only file is being loaded.", |server, samples| {
        samples.flag(server.persistence.is_loading());
    }),
    gauge("disque_leaving", "Whether this node leaves the cluster.", |server, samples| {
        samples.flag(server.engine.cluster().is_leaving());
    }),
    gauge(
        "disque_findings",
        "How much is not well, by how bad it is; /api/overview has it in sentences.",
        |server, samples| {
            let findings = health::findings(server);
            for severity in [health::HealthLevel::Warning, health::HealthLevel::Critical] {
                let count = findings.iter().filter(|it| it.severity == severity).count();
                samples.with(&[("severity", severity.name())], count as u64);
            }
        },
    ),
    // Memory.
    gauge("disque_memory_used_bytes", "Memory in use.", |_, samples| {
        samples.value(memory::used() as u64);
    }),
    gauge("disque_memory_peak_bytes", "The most memory that was in use.", |_, samples| {
        samples.value(memory::peak().max(memory::used()) as u64);
    }),
    gauge("disque_memory_max_bytes", "maxmemory; 0 is no limit.", |server, samples| {
        samples.value(server.config.maxmemory);
    }),
    gauge(
        "disque_memory_level",
        "0: there is enough, 1: new jobs go to other nodes, 2: new jobs are refused.",
        |server, samples| samples.value(server.engine.memory_level().into()),
    ),
    gauge(
        "disque_memory_unfinished_input_bytes",
        "Memory of requests and messages that are not whole yet.",
        |server, samples| samples.value(server.unfinished.bytes() as u64),
    ),
    // Clients.
    gauge("disque_clients_connected", "Clients connected.", |server, samples| {
        samples.value(server.clients.len() as u64);
    }),
    gauge("disque_clients_blocked", "Clients that wait for a job or copies.", |server, samples| {
        samples.value(server.engine.blocked_count() as u64);
    }),
    gauge("disque_clients_max", "maxclients.", |server, samples| {
        samples.value(server.config.maxclients.into());
    }),
    counter("disque_client_connections", "Clients accepted.", |server, samples| {
        samples.value(server.stats.since_start().connections_received);
    }),
    counter(
        "disque_client_connections_rejected",
        "Clients refused because of maxclients.",
        |server, samples| samples.value(server.stats.since_start().connections_rejected),
    ),
    counter("disque_client_input_bytes", "Bytes that clients sent.", |server, samples| {
        samples.value(server.stats.since_start().net_input_bytes);
    }),
    counter("disque_client_output_bytes", "Bytes sent to clients.", |server, samples| {
        samples.value(server.stats.since_start().net_output_bytes);
    }),
    // Commands.
    counter("disque_commands", "Commands that ran.", |server, samples| {
        samples.value(server.stats.since_start().commands_processed);
    }),
    histogram(
        "disque_command_duration_seconds",
        "How long commands held the server; not how long clients waited.",
        |server, samples| {
            for (place, durations) in server.stats.durations() {
                let labels = &[("command", server.commands.manual(place).name)];
                samples.histogram(labels, durations, &DURATION_BOUNDS_US, 1e6);
            }
        },
    ),
    // Jobs.
    gauge("disque_jobs", "Jobs known here, in any state.", |server, samples| {
        samples.value(server.engine.job_count() as u64);
    }),
    gauge("disque_jobs_in_state", "Jobs by what they wait for.", |server, samples| {
        let counts = server.engine.job_counts();
        for (state, count) in [
            ("wait-repl", counts.wait_repl),
            ("queued", counts.queued),
            ("in-flight", counts.in_flight),
            ("delayed", counts.delayed),
            ("passive", counts.passive),
            ("acked", counts.acked),
        ] {
            samples.with(&[("state", state)], count as u64);
        }
    }),
    counter("disque_jobs_died", "Jobs that died on this node, by reason.", |server, samples| {
        for (reason, count) in server.engine.deaths().all().iter() {
            samples.with(&[("reason", reason.name())], count);
        }
    }),
    // The cluster.
    gauge("disque_cluster_nodes", "Known nodes, this one included.", |server, samples| {
        samples.value(server.engine.cluster().size() as u64);
    }),
    gauge(
        "disque_cluster_reachable_nodes",
        "Other nodes that may get new copies of jobs.",
        |server, samples| samples.value(server.engine.cluster().reachable_count() as u64),
    ),
    gauge("disque_cluster_handshakes", "Nodes in handshake.", |server, samples| {
        samples.value(server.engine.cluster().handshake_count() as u64);
    }),
    counter("disque_cluster_messages_sent", "Messages sent to nodes.", |server, samples| {
        each_type(&server.engine.cluster().stats().sent, samples);
    }),
    counter("disque_cluster_messages_received", "Messages of nodes.", |server, samples| {
        each_type(&server.engine.cluster().stats().received, samples);
    }),
    counter("disque_cluster_output_bytes", "Bytes sent to nodes.", |server, samples| {
        samples.value(server.stats.since_start().bus_output_bytes);
    }),
    counter("disque_cluster_input_bytes", "Bytes that nodes sent.", |server, samples| {
        samples.value(server.stats.since_start().bus_input_bytes);
    }),
    info("disque_peer", "Another node, and where clients reach it.", |server, samples| {
        each_peer(server, samples, |samples, node, peer| {
            let address = peer.address.map_or_else(String::new, |address| address.to_string());
            samples.with(&[("node", node), ("address", &address)], 1);
        });
    }),
    gauge("disque_peer_linked", "Whether there is a link to a node.", |server, samples| {
        each_peer(server, samples, |samples, node, peer| {
            samples.with(&[("node", node)], peer.link.is_some().into());
        });
    }),
    gauge(
        "disque_peer_state",
        "1 for what a node is: ok, silent (to this node), or failing (to a majority).",
        |server, samples| {
            each_peer(server, samples, |samples, node, peer| {
                let is = peer.state();
                for state in PEER_STATES {
                    samples.with(&[("node", node), ("state", state)], (is == state).into());
                }
            });
        },
    ),
    gauge(
        "disque_peer_round_trip_seconds",
        "How long the last ping of a node took until it was answered.",
        |server, samples| {
            each_peer(server, samples, |samples, node, peer| {
                if let Some(ms) = peer.round_trip_ms {
                    samples.seconds_with(&[("node", node)], ms);
                }
            });
        },
    ),
    gauge("disque_peer_unsent_bytes", "Bytes that a node has yet to read.", |server, samples| {
        each_peer(server, samples, |samples, node, peer| {
            let unsent = peer.link.map_or(0, |link| server.link_unsent(link));
            samples.with(&[("node", node)], unsent as u64);
        });
    }),
    // The append only file.
    gauge("disque_aof_enabled", "Whether jobs are written to a file.", |server, samples| {
        samples.flag(server.persistence.aof().state() != AofState::Off);
    }),
    gauge("disque_aof_failing", "Whether writing or syncing it fails.", |server, samples| {
        samples.flag(server.persistence.aof().failure().is_some());
    }),
    gauge("disque_aof_size_bytes", "Length of the file.", |server, samples| {
        samples.value(file(server).current_len);
    }),
    gauge("disque_aof_base_size_bytes", "Its length after the last rewrite.", |server, samples| {
        samples.value(file(server).base_len);
    }),
    gauge("disque_aof_unwritten_bytes", "What could not be written yet.", |server, samples| {
        samples.value(file(server).unwritten_len as u64);
    }),
    gauge(
        "disque_aof_loss_window_seconds",
        "Age of the oldest byte that is not known to be on the disk.",
        |server, samples| samples.seconds(file(server).loss_window_ms),
    ),
    counter("disque_aof_syncs", "Syncs that were done.", |server, samples| {
        samples.value(server.persistence.aof().counters().syncs);
    }),
    histogram(
        "disque_aof_sync_duration_seconds",
        "How long syncs of the file and of its rewrites took, where they worked.",
        |_, samples| samples.histogram(&[], &fsync::sync_durations(), &DURATION_BOUNDS_US, 1e6),
    ),
    counter(
        "disque_aof_delayed_syncs",
        "Syncs that were still under way when the next was due.",
        |server, samples| samples.value(server.persistence.aof().counters().delayed_syncs),
    ),
    counter("disque_aof_rewrites", "Rewrites that came to their end.", |server, samples| {
        samples.value(server.persistence.aof().counters().rewrites);
    }),
    gauge("disque_aof_rewriting", "Whether the file is being rewritten.", |server, samples| {
        samples.flag(server.persistence.aof().is_rewriting());
    }),
    gauge(
        "disque_aof_rewrite_failures_in_a_row",
        "Rewrites that failed since the last one that worked.",
        |server, samples| samples.value(file(server).rewrite_failure_count.into()),
    ),
    gauge(
        "disque_aof_damaged_records",
        "Damaged records that were passed over at the start.",
        |server, samples| samples.value(server.persistence.damage_count()),
    ),
    // This port.
    gauge("disque_http_connections", "Connections to this port.", |server, samples| {
        samples.value(server.http.connections.len() as u64);
    }),
    counter("disque_http_answers", "Answers of this port by status.", |server, samples| {
        for (status, count) in &server.http.answers {
            samples.with(&[("code", &status.to_string())], *count);
        }
    }),
];

const PEER_STATES: [&str; 3] = ["ok", "silent", "failing"];
