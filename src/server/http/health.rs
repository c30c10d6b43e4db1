//! Health: whether the loop comes round, whether clients may be sent here, and everything that
//! is not well, in sentences.
//!
//! A probe that fails has consequences, so `/livez` says no more than that the loop turns, and
//! `/readyz` no more than what another node would do better. A full node is ready: consumers
//! have to reach it to drain it. Who only adds jobs asks `/readyz?for=producers`.

use super::answer::HttpAnswer;
use super::request::HttpRequest;
use crate::base::memory;
use crate::proto::bus::NodeFlags;
use crate::server::Server;
use crate::store::aof::{AofState, LastRewrite};

/// For so long after its start a node waits for its links before it calls itself ready, in ms.
const LINKS_WAIT_MS: u64 = 30_000;
/// Most nodes named in a sentence.
const NODES_NAMED_MAX: usize = 3;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthLevel {
    Warning,
    Critical,
}

impl HealthLevel {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Something that is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthFinding {
    pub severity: HealthLevel,
    /// One word for programs, which never changes.
    pub about: &'static str,
    pub sentence: String,
}

/// GET /livez -> 200: the loop came round.
pub fn livez(_: &Server, _: &HttpRequest) -> HttpAnswer {
    HttpAnswer::line(200, "alive")
}

/// GET /readyz[?for=producers] -> 200 or 503, and a line that says why.
pub fn readyz(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let is_for_producers = match request.parameter("for") {
        None | Some(b"consumers") => false,
        Some(b"producers") => true,
        Some(_) => return HttpAnswer::line(400, "for is producers or consumers"),
    };
    match unready(server).or_else(|| is_for_producers.then(|| full(server)).flatten()) {
        Some(why) => HttpAnswer::line(503, &format!("not ready: {why}; {}", words(server))),
        None => HttpAnswer::line(200, &format!("ready; {}", words(server))),
    }
}

/// Why no client should be sent here, if so.
pub fn unready(server: &Server) -> Option<String> {
    if let Some(load) = server.persistence.load() {
        let (loaded, total) = (load.reader.loaded_len(), load.reader.total_len());
        let percent = loaded.saturating_mul(100) / total.max(1);
        return Some(format!("loading the append only file, {percent} %"));
    }
    let cluster = server.engine.cluster();
    if cluster.is_leaving() {
        return Some("leaving the cluster".into());
    }
    if server.uptime_ms(server.clock.now.mono) < LINKS_WAIT_MS {
        let (mut known, mut linked) = (0_usize, 0_usize);
        for peer in cluster.peers(server.clock.now.mono) {
            known += 1;
            linked += usize::from(peer.link.is_some());
        }
        if linked < known {
            return Some(format!("{linked} of {known} links to other nodes are up"));
        }
    }
    None
}

/// Why jobs are refused here, if so.
fn full(server: &Server) -> Option<String> {
    if server.engine.memory_level() >= 2 {
        return Some("memory is used up".into());
    }
    server.persistence.write_error().map(|error| format!("the append only file fails: {error}"))
}

/// Memory and file, in a few words.
fn words(server: &Server) -> String {
    let memory = match memory_percent(server) {
        Some(percent) => format!("memory {percent} %"),
        None => "memory without limit".into(),
    };
    let file = match server.persistence.aof().state() {
        _ if server.persistence.write_error().is_some() => "file failing",
        AofState::Off => "file off",
        AofState::On => "file ok",
        AofState::WaitRewrite => "file not written yet",
    };
    format!("{memory}, {file}")
}

/// How full memory is; `None` without a limit.
pub fn memory_percent(server: &Server) -> Option<u64> {
    let max = server.config.maxmemory;
    (max > 0).then(|| (memory::used() as u64).saturating_mul(100) / max)
}

/// Everything that is not well on this node, as far as it knows, the worst first.
pub fn findings(server: &Server) -> Vec<HealthFinding> {
    let mut findings = Vec::new();
    let mut find = |severity, about, sentence: String| {
        findings.push(HealthFinding { severity, about, sentence });
    };
    if let Some(why) = unready(server) {
        find(HealthLevel::Warning, "not-ready", format!("This node is not ready: {why}."));
    }
    let percent = memory_percent(server).unwrap_or(0);
    match server.engine.memory_level() {
        0 => {}
        1 => find(
            HealthLevel::Warning,
            "memory",
            format!("Memory is {percent} % full: new jobs are stored on other nodes if they can."),
        ),
        _ => find(
            HealthLevel::Critical,
            "memory",
            format!("Memory is {percent} % full: new jobs are refused."),
        ),
    }
    let aof = server.persistence.aof();
    if let Some(error) = server.persistence.write_error() {
        find(
            HealthLevel::Critical,
            "file",
            format!("The append only file fails, and jobs are refused: {error}."),
        );
    }
    if aof.figures(server.clock.now.mono).last_rewrite == LastRewrite::Failed {
        let why = aof.rewrite_error().unwrap_or("unknown");
        find(
            HealthLevel::Warning,
            "file-rewrite",
            format!("The last rewrite of the append only file failed: {why}."),
        );
    }
    if server.persistence.damage_count() > 0 {
        find(
            HealthLevel::Warning,
            "file-damage",
            format!(
                "{} damaged records of the append only file were passed over at the start.",
                server.persistence.damage_count()
            ),
        );
    }
    find_nodes(server, &mut find);
    let (clients, max) = (server.clients.len() as u64, u64::from(server.config.maxclients));
    if clients * 10 >= max * 9 {
        find(
            HealthLevel::Warning,
            "clients",
            format!("{clients} of {max} clients are connected: more are refused."),
        );
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn find_nodes(server: &Server, find: &mut impl FnMut(HealthLevel, &'static str, String)) {
    let (mut failed, mut silent) = (Vec::new(), Vec::new());
    for peer in server.engine.cluster().peers(server.clock.now.mono) {
        let name = peer.address.map_or_else(|| peer.id.to_string(), |at| at.to_string());
        if peer.flags.contains(NodeFlags::FAIL) {
            failed.push(name);
        } else if peer.flags.contains(NodeFlags::PFAIL) || peer.link.is_none() {
            silent.push(name);
        }
    }
    let sentence = |names: &[String], one: &str, several: &str| {
        let shown = names.iter().take(NODES_NAMED_MAX).map(String::as_str);
        let mut text = shown.collect::<Vec<_>>().join(", ");
        if names.len() > NODES_NAMED_MAX {
            text.push_str(&format!(" and {} more", names.len() - NODES_NAMED_MAX));
        }
        match names.len() {
            1 => format!("Node {text} {one}."),
            count => format!("{count} nodes {several}: {text}."),
        }
    };
    if !failed.is_empty() {
        let text = sentence(&failed, "is failing", "are failing");
        find(HealthLevel::Critical, "nodes-failing", text);
    }
    if !silent.is_empty() {
        let text = sentence(&silent, "does not answer this one", "do not answer this one");
        find(HealthLevel::Warning, "nodes-silent", text);
    }
}
