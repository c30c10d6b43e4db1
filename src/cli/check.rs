//! `--check`: the health of one node in one line, for probes and humans in a hurry.
//!
//! ```text
//! critical (2)  no answer, a refused login, loading, no write to the append only file,
//!               memory over 95 %, half of the cluster or more out of reach
//! warning  (1)  memory over 75 %, some peers out of reach, a failed rewrite, leaving,
//!               a queue over --max-length or --max-age
//! ```

use super::connection::ServerConnection;
use super::failure::Failure;
use super::info::Info;
use super::nodes::{self, NodePeer, short};
use super::options::{CliOptions, QueueLimits};
use super::queues::{self, shown_age, shown_name};
use super::terminal;
use crate::base::number::human_bytes;
use crate::proto::reply_reader::Value;

/// Shares of maxmemory, in percent, above which a node stops taking copies and refuses jobs.
const MEMORY_WARNING: i64 = 75;
const MEMORY_CRITICAL: i64 = 95;
/// Queues named in the line; more are counted.
const NAMED_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Ok,
    Warning,
    Critical,
}

impl Severity {
    fn status(self) -> u8 {
        match self {
            Severity::Ok => 0,
            Severity::Warning => 1,
            Severity::Critical => 2,
        }
    }
}

/// What was found, the worst of it, and why.
struct HealthVerdict {
    severity: Severity,
    reasons: Vec<String>,
}

impl HealthVerdict {
    fn add(&mut self, severity: Severity, reason: String) {
        self.severity = self.severity.max(severity);
        self.reasons.push(reason);
    }

    fn line(&self, summary: &str) -> String {
        let word = match self.severity {
            Severity::Ok => return format!("OK: {summary}\n"),
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        };
        format!("{word}: {}\n", self.reasons.join("; "))
    }
}

/// Examines the node and prints the line. Returns the severity as exit status.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let limits = options.queue_limits;
    if limits == QueueLimits::default() && !options.command.is_empty() {
        return Err(Failure::Unsupported(
            "Queues are checked against a limit: give --max-length or --max-age.".to_string(),
        ));
    }
    let mut verdict = HealthVerdict { severity: Severity::Ok, reasons: Vec::new() };
    let summary = match examine(options, &mut verdict) {
        Ok(summary) => summary,
        Err(failure) => {
            terminal::print(format!("CRITICAL: {failure}\n"))?;
            return Ok(Severity::Critical.status());
        }
    };
    terminal::print(verdict.line(&summary))?;
    Ok(verdict.severity.status())
}

/// Looks at everything. Returns the line of a healthy node.
fn examine(options: &CliOptions, verdict: &mut HealthVerdict) -> Result<String, Failure> {
    let mut connection = nodes::open(&options.address, options)?;
    let info = Info::read(&mut connection)?;
    if info.field("loading") == Some("1") {
        verdict.add(Severity::Critical, "still loading the append only file".to_string());
        return Ok(String::new());
    }
    if info.field("aof_last_write_status") == Some("err") {
        let text = "cannot write the append only file: make room on the disk and see the log";
        verdict.add(Severity::Critical, text.to_string());
    }
    if info.field("aof_last_bgrewrite_status") == Some("err") {
        let text = "the last rewrite of the append only file failed: see the log";
        verdict.add(Severity::Warning, text.to_string());
    }
    let memory = examine_memory(&mut connection, &info, verdict)?;
    let peers = examine_peers(&mut connection, verdict)?;
    examine_queues(&mut connection, options, verdict)?;
    Ok(format!(
        "{peers}, {memory}, {} jobs in {} queues",
        info.number("registered_jobs"),
        info.number("registered_queues")
    ))
}

fn examine_memory(
    connection: &mut ServerConnection,
    info: &Info,
    verdict: &mut HealthVerdict,
) -> Result<String, Failure> {
    let used = info.number("used_memory");
    let reply = connection.call(&["CONFIG", "GET", "maxmemory"])?;
    let limit: i64 = match &reply {
        Value::Array(items) => match items.as_slice() {
            [_, Value::Bulk(digits)] => String::from_utf8_lossy(digits).parse().unwrap_or(0),
            _ => 0,
        },
        // CONFIG may be renamed away: then only the used part is known.
        _ => 0,
    };
    if limit <= 0 {
        return Ok(format!("{} of memory used", human_bytes(used.unsigned_abs())));
    }
    let percent = used.saturating_mul(100) / limit;
    let text = format!("memory {percent}% of {}", human_bytes(limit.unsigned_abs()));
    if percent >= MEMORY_CRITICAL {
        verdict.add(Severity::Critical, format!("{text}: new jobs are refused"));
    } else if percent >= MEMORY_WARNING {
        verdict.add(Severity::Warning, format!("{text}: new jobs go to other nodes"));
    }
    Ok(text)
}

fn examine_peers(
    connection: &mut ServerConnection,
    verdict: &mut HealthVerdict,
) -> Result<String, Failure> {
    let view = nodes::view(connection)?;
    if view.iter().any(|peer| peer.has("myself") && peer.has("leaving")) {
        verdict.add(Severity::Warning, "this node is leaving the cluster".to_string());
    }
    // A handshake is somebody who may join, and nobody who is missed.
    let view: Vec<NodePeer> = view.into_iter().filter(|peer| !peer.has("handshake")).collect();
    let lost: Vec<String> = view
        .iter()
        .filter_map(|peer| {
            let trouble = peer.trouble()?;
            Some(format!("{} {} {trouble}", short(&peer.id), peer.address))
        })
        .collect();
    if !lost.is_empty() {
        let severity =
            if lost.len() * 2 >= view.len() { Severity::Critical } else { Severity::Warning };
        verdict.add(
            severity,
            format!("{} of {} nodes out of reach: {}", lost.len(), view.len(), lost.join(", ")),
        );
    }
    Ok(format!("{} nodes", view.len()))
}

fn examine_queues(
    connection: &mut ServerConnection,
    options: &CliOptions,
    verdict: &mut HealthVerdict,
) -> Result<(), Failure> {
    let limits = options.queue_limits;
    if limits == QueueLimits::default() {
        return Ok(());
    }
    let names = if options.command.is_empty() {
        queues::queue_names(connection)?
    } else {
        options.command.clone()
    };
    let mut over = Vec::new();
    for (name, numbers) in queues::numbers_of(connection, &names)? {
        let name = shown_name(&name);
        if let Some(max) = limits.length_max.filter(|max| numbers.length > *max) {
            over.push(format!("queue {name} holds {} jobs, over {max}", numbers.length));
        }
        if let (Some(age), Some(max)) = (numbers.oldest_age, limits.age_max_secs)
            && age.as_secs() > max
        {
            over.push(format!("queue {name} has a job {} old, over {max}s", shown_age(age)));
        }
    }
    if !over.is_empty() {
        let more = over.len().saturating_sub(NAMED_MAX);
        over.truncate(NAMED_MAX);
        if more > 0 {
            over.push(format!("{more} more"));
        }
        verdict.add(Severity::Warning, over.join(", "));
    }
    Ok(())
}
