//! `--check`: the health of a cluster in one line, for probes and humans in a hurry.
//!
//! One node is asked for the others, and all are looked at; with `--local` that node alone.
//!
//! ```text
//! critical (2)  the node cannot be asked, or a job added there without options would be
//!               refused; half of the cluster or more is out of reach; two servers have one
//!               ID; a queue that was named is paused for input
//! warning  (1)  another node cannot be asked or would refuse jobs; memory over 75 %; a peer
//!               out of reach; a failed rewrite; a node is leaving; a queue is over
//!               --max-length or --max-age, paused, or known to no node
//! ```

use std::collections::BTreeMap;

use super::condition::{MEMORY_SHORT, NodeCondition};
use super::failure::Failure;
use super::info::Info;
use super::nodes::{self, NodeView, short};
use super::options::{CheckScope, CliOptions, QueueLimits};
use super::output::PrintForm;
use super::survey::{QueueNumbers, Survey};
use super::table::{counted, shown_age, shown_name};
use super::terminal;
use crate::base::json;
use crate::base::number::human_bytes;

/// Nodes or queues named for one reason; more are counted.
const NAMED_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    fn word(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }
}

/// What was found, and what there is to say when that is nothing.
#[derive(Default)]
struct HealthVerdict {
    reasons: Vec<(Severity, String)>,
    summary: String,
}

impl HealthVerdict {
    fn add(&mut self, severity: Severity, reason: impl Into<String>) {
        self.reasons.push((severity, reason.into()));
    }

    /// Returns the worst of what was found.
    fn severity(&self) -> Severity {
        self.reasons.iter().map(|(severity, _)| *severity).max().unwrap_or(Severity::Ok)
    }

    /// Renders one line, whatever servers have put into it. The worst reason comes first.
    fn line(&self) -> String {
        let mut reasons: Vec<&(Severity, String)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
        let texts: Vec<&str> = reasons.iter().map(|(_, text)| text.as_str()).collect();
        let text = if texts.is_empty() { self.summary.clone() } else { texts.join("; ") };
        format!("{}: {}\n", self.severity().word(), terminal::one_line(&text))
    }

    fn json(&self) -> Vec<u8> {
        let mut out = b"{\"status\":".to_vec();
        json::write_string(self.severity().word(), &mut out);
        out.extend_from_slice(b",\"summary\":");
        json::write_string(&self.summary, &mut out);
        out.extend_from_slice(b",\"reasons\":[");
        for (index, (severity, text)) in self.reasons.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{\"status\":" } else { b",{\"status\":" });
            json::write_string(severity.word(), &mut out);
            out.extend_from_slice(b",\"reason\":");
            json::write_string(text, &mut out);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
        out
    }
}

/// Examines the cluster and prints the line. Returns the severity as exit status.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let mut verdict = HealthVerdict::default();
    match examine(options, &mut verdict) {
        Err(failure @ Failure::Interrupted) => return Err(failure),
        Err(failure) => verdict.add(Severity::Critical, failure.to_string()),
        Ok(()) => {}
    }
    terminal::print(match options.format.form {
        PrintForm::Json => verdict.json(),
        _ => verdict.line().into_bytes(),
    })?;
    Ok(verdict.severity().status())
}

fn examine(options: &CliOptions, verdict: &mut HealthVerdict) -> Result<(), Failure> {
    let mut nodes = match options.check_scope {
        CheckScope::Cluster => nodes::find(options)?,
        CheckScope::Local => vec![nodes::find_one(options)?],
    };
    let conditions = nodes::ask(&mut nodes, NodeCondition::read)?;
    let entry = match conditions.first() {
        Some(Ok(entry)) => entry,
        Some(Err(reason)) => return Err(Failure::Message(reason.clone())),
        None => return Err(Failure::Closed),
    };
    for (severity, text) in node_reasons(entry) {
        verdict.add(severity, text);
    }
    examine_peers(&nodes, &conditions, entry, verdict);
    examine_others(&nodes, &conditions, verdict);
    let reached: Vec<&NodeCondition> = conditions.iter().flatten().collect();
    verdict.summary = summary(options.check_scope, entry, &reached);
    examine_queues(&mut nodes, options, verdict)
}

/// What there is to say of healthy nodes.
fn summary(scope: CheckScope, entry: &NodeCondition, reached: &[&NodeCondition]) -> String {
    let fullest = reached
        .iter()
        .filter_map(|condition| Some((condition.memory_percent()?, condition.memory_max?)))
        .max();
    let memory = match fullest {
        Some((percent, max)) if reached.len() == 1 => {
            format!("memory {percent}% of {}", human_bytes(max))
        }
        Some((percent, _)) => format!("memory at most {percent}%"),
        None => {
            let used = reached.iter().map(|condition| condition.memory_used());
            format!("{} of memory used", human_bytes(used.fold(0, u64::saturating_add)))
        }
    };
    let jobs = reached.iter().map(|condition| condition.info.number("registered_jobs"));
    let jobs = jobs.fold(0, u64::saturating_add);
    if let [condition] = reached {
        let queues = counted(condition.info.number("registered_queues"), "queue");
        let nodes = match scope {
            CheckScope::Cluster => counted(1, "node"),
            CheckScope::Local => {
                format!("1 of {}", counted(entry.members().count() as u64, "node"))
            }
        };
        return format!("{nodes}, {memory}, {} in {queues}", counted(jobs, "job"));
    }
    format!("{}, {memory}, {jobs} copies of jobs", counted(reached.len() as u64, "node"))
}

/// Looks for nodes out of reach, of the first node or of this tool, and for copied IDs.
fn examine_peers(
    nodes: &[NodeView],
    conditions: &[Result<NodeCondition, String>],
    entry: &NodeCondition,
    verdict: &mut HealthVerdict,
) {
    let lost: Vec<(&str, String)> = entry
        .members()
        .filter_map(|peer| {
            let trouble = peer.trouble()?;
            Some((peer.id.as_str(), format!("{} {} {trouble}", short(&peer.id), peer.address)))
        })
        .collect();
    let known = entry.members().count();
    if !lost.is_empty() {
        let severity = if lost.len() * 2 >= known { Severity::Critical } else { Severity::Warning };
        let nodes = counted(known as u64, "node");
        let named = some_of(lost.iter().map(|(_, text)| text.clone()).collect());
        verdict.add(severity, format!("{} of {nodes} out of reach: {named}", lost.len()));
    }
    let mut unasked = Vec::new();
    for (node, condition) in nodes.iter().zip(conditions) {
        if let Err(reason) = condition
            && lost.iter().all(|(id, _)| *id != node.id)
        {
            unasked.push(format!("{}: {reason}", node.label()));
        }
        if let Some(text) = nodes::copied_id(node, nodes) {
            verdict.add(Severity::Critical, text);
        }
    }
    if !unasked.is_empty() {
        let text = format!("cannot be asked from here: node {}", some_of(unasked));
        verdict.add(Severity::Warning, text);
    }
}

/// Finds what is wrong with one node by itself.
fn node_reasons(condition: &NodeCondition) -> Vec<(Severity, String)> {
    let mut reasons = Vec::new();
    let refusal = condition.refusal();
    if condition.is_leaving() && refusal.is_none() {
        reasons.push((Severity::Warning, "leaving the cluster".to_string()));
    }
    if let Some(refusal) = refusal {
        reasons.push((Severity::Critical, refusal));
    } else if let (Some(percent), Some(max)) = (condition.memory_percent(), condition.memory_max)
        && percent >= MEMORY_SHORT
    {
        let max = human_bytes(max);
        let text = format!("memory {percent}% of {max}: new jobs go to nodes with free memory");
        reasons.push((Severity::Warning, text));
    }
    if let Some(text) = rewrite_failure(&condition.info) {
        reasons.push((Severity::Warning, text));
    }
    reasons
}

/// Says how rewrites of the append only file fail, if they do. A C server has the status alone.
fn rewrite_failure(info: &Info) -> Option<String> {
    if info.field("aof_last_bgrewrite_status") != Some("err") {
        return None;
    }
    let Some(error) = info.field("aof_last_bgrewrite_error") else {
        return Some("the last rewrite of the append only file failed: see the log".to_string());
    };
    Some(format!(
        "{} of the append only file failed, the next is due in {} s: {error}",
        counted(info.number("aof_rewrites_consecutive_failures"), "rewrite"),
        info.number("aof_rewrite_pause_sec"),
    ))
}

/// Finds what is wrong with the other nodes. Those with the same trouble are named together,
/// and it is a warning: clients can go to another node.
fn examine_others(
    nodes: &[NodeView],
    conditions: &[Result<NodeCondition, String>],
    verdict: &mut HealthVerdict,
) {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, condition) in nodes.iter().zip(conditions).skip(1) {
        let reasons = condition.iter().flat_map(node_reasons);
        for (_, text) in reasons {
            by_text.entry(text).or_default().push(node.label());
        }
    }
    for (text, labels) in by_text {
        verdict.add(Severity::Warning, format!("node {}: {text}", some_of(labels)));
    }
}

/// Names the first few of many, and counts the rest.
fn some_of(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Looks at the queues that were named, or at all when there is a limit for them.
fn examine_queues(
    nodes: &mut [NodeView],
    options: &CliOptions,
    verdict: &mut HealthVerdict,
) -> Result<(), Failure> {
    let (patterns, limits) = (&options.command, options.queue_limits);
    if patterns.is_empty() && limits == QueueLimits::default() {
        return Ok(());
    }
    let survey = Survey::take(nodes, patterns)?;
    for (label, reason) in &survey.left_out {
        // Who could not be reached at all has been named already.
        if nodes.iter().any(|node| node.label() == *label && node.connection.is_ok()) {
            verdict.add(Severity::Warning, format!("without the queues of node {label}: {reason}"));
        }
    }
    for pattern in survey.unmatched(patterns) {
        let text = format!("queue {} is known to no node", shown_name(pattern));
        verdict.add(Severity::Warning, text);
    }
    let is_named = !patterns.is_empty();
    let mut over = Vec::new();
    for (name, numbers) in total(&survey) {
        let name = shown_name(name);
        if let Some(max) = limits.length_max.filter(|max| numbers.length > *max) {
            let jobs = counted(numbers.length, "job");
            over.push(format!("queue {name} holds {jobs}, over {max}"));
        }
        if let (Some(age), Some(max)) = (numbers.oldest_age, limits.age_max_secs)
            && age.as_secs() > max
        {
            over.push(format!("queue {name} has a job {} old, over {max}s", shown_age(age)));
        }
        if numbers.pause.is_in {
            let severity = if is_named { Severity::Critical } else { Severity::Warning };
            verdict.add(severity, format!("queue {name} is paused for input: ADDJOB is refused"));
        }
        if numbers.pause.is_out {
            let text = format!("queue {name} is paused for output: GETJOB gets nothing");
            verdict.add(Severity::Warning, text);
        }
    }
    if !over.is_empty() {
        verdict.add(Severity::Warning, some_of(over));
    }
    Ok(())
}

/// Adds up what all nodes say of each queue. It is paused when it is so on one node.
fn total(survey: &Survey) -> BTreeMap<&[u8], QueueNumbers> {
    let mut total: BTreeMap<&[u8], QueueNumbers> = BTreeMap::new();
    for (name, numbers) in survey.nodes.values().flatten() {
        total.entry(name).or_default().add(numbers);
    }
    total
}
