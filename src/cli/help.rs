//! What the interactive client knows about the server's commands: help and completion.
//!
//! One table, [`COMMANDS`]; a test in `tests/cli.rs` holds it against the server's own list.

use std::fmt::Write as _;

/// The areas commands belong to, as `help @area` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Connection,
    Server,
    Cluster,
    Queues,
    Jobs,
}

impl Group {
    const ALL: [Group; 5] =
        [Group::Connection, Group::Server, Group::Cluster, Group::Queues, Group::Jobs];

    fn name(self) -> &'static str {
        match self {
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Queues => "queues",
            Group::Jobs => "jobs",
        }
    }
}

/// The help on one command or subcommand.
#[derive(Debug)]
pub struct CommandHelp {
    /// One or two words, upper case.
    pub name: &'static str,
    params: &'static str,
    summary: &'static str,
    group: Group,
}

/// Whether help may use the terminal's colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    On,
    Off,
}

/// Renders the answer to `help` and the words after it.
pub fn render(words: &[Vec<u8>], colour: Colour) -> String {
    let mut out = String::new();
    let topic =
        words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    if topic.is_empty() {
        let _ = write!(
            out,
            "{}\r\n\
             Type: \"help @<group>\" for the commands of a group: {}\r\n\
             \x20     \"help <command>\" for one command\r\n\
             \x20     \"help <tab>\" to walk through the topics\r\n\
             \x20     \"connect <host> <port>\" to talk to another server\r\n\
             \x20     \"quit\" to leave\r\n",
            super::options::version(),
            Group::ALL.map(Group::name).join(", "),
        );
        return out;
    }
    if let Some(name) = topic.strip_prefix('@') {
        for help in COMMANDS {
            if help.group.name().eq_ignore_ascii_case(name) {
                help.write(&mut out, colour);
            }
        }
    } else {
        for help in COMMANDS {
            let first_word = help.name.split(' ').next().unwrap_or(help.name);
            if help.name.eq_ignore_ascii_case(&topic) || first_word.eq_ignore_ascii_case(&topic) {
                help.write(&mut out, colour);
                let _ = write!(out, "  {}\r\n", label("group:", help.group.name(), colour));
            }
        }
    }
    if out.is_empty() {
        let _ =
            write!(out, "\r\n  No help on \"{topic}\". Type \"help\" for how to find some.\r\n");
    }
    out.push_str("\r\n");
    out
}

/// Returns what the text before the cursor can become: command names, and after `help` the
/// groups too.
///
/// The first value is the offset in the line at which the candidates begin.
pub fn complete(line: &str) -> (usize, Vec<String>) {
    let mut start = 0;
    let mut candidates: Vec<String> = Vec::new();
    if line.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("help ")) {
        start = line.len() - line[5..].trim_start().len();
        candidates.extend(Group::ALL.map(|group| format!("@{}", group.name())));
    }
    candidates.extend(COMMANDS.iter().map(|help| help.name.to_string()));
    let typed = &line[start..];
    candidates.retain(|candidate| {
        candidate.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed))
    });
    (start, candidates)
}

fn label(name: &str, text: &str, colour: Colour) -> String {
    match colour {
        Colour::On => format!("\x1b[33m{name}\x1b[0m {text}"),
        Colour::Off => format!("{name} {text}"),
    }
}

impl CommandHelp {
    fn write(&self, out: &mut String, colour: Colour) {
        let (name, params) = (self.name, self.params);
        let _ = match colour {
            Colour::On => write!(out, "\r\n  \x1b[1m{name}\x1b[0m \x1b[90m{params}\x1b[0m\r\n"),
            Colour::Off => write!(out, "\r\n  {name} {params}\r\n"),
        };
        let _ = write!(out, "  {}\r\n", label("summary:", self.summary, colour));
        let _ = write!(out, "  {}\r\n", label("since:", "1.0.0", colour));
    }
}

const fn row(
    group: Group,
    name: &'static str,
    params: &'static str,
    summary: &'static str,
) -> CommandHelp {
    CommandHelp { name, params, summary, group }
}

/// Every command, by group.
pub static COMMANDS: &[CommandHelp] = &[
    row(Group::Connection, "AUTH", "password", "Log in"),
    row(Group::Connection, "PING", "[message]", "Answer PONG, or the message"),
    row(Group::Connection, "QUIT", "-", "Close the connection after the pending replies"),
    row(Group::Connection, "MONITOR", "-", "Show every command the server executes, as it comes"),
    row(Group::Connection, "CLIENT GETNAME", "-", "The name of this connection"),
    row(Group::Connection, "CLIENT SETNAME", "name", "Name this connection; no name clears it"),
    row(Group::Connection, "CLIENT LIST", "-", "One line for each connected client"),
    row(
        Group::Connection,
        "CLIENT KILL",
        "ip:port | [ID id] [ADDR ip:port] [TYPE normal] [SKIPME yes|no]",
        "Close connections of clients",
    ),
    row(Group::Connection, "CLIENT PAUSE", "milliseconds", "Let all clients wait for some time"),
    row(Group::Connection, "CLIENT REPLY", "ON|OFF|SKIP", "Whether this connection gets replies"),
    row(
        Group::Server,
        "INFO",
        "[section]",
        "Numbers about the server: server clients memory jobs queues persistence stats cpu commandstats, or all",
    ),
    row(Group::Server, "TIME", "-", "The server's clock: seconds and microseconds"),
    row(Group::Server, "COMMAND", "[COUNT | INFO name ...]", "The commands the server knows"),
    row(Group::Server, "CONFIG GET", "pattern", "The directives that match, with their values"),
    row(Group::Server, "CONFIG SET", "directive value", "Change a directive of the running server"),
    row(
        Group::Server,
        "CONFIG REWRITE",
        "-",
        "Write the present configuration to the configuration file",
    ),
    row(Group::Server, "CONFIG RESETSTAT", "-", "Start the statistics of INFO afresh"),
    row(Group::Server, "SLOWLOG GET", "[count]", "The latest commands that took long"),
    row(Group::Server, "SLOWLOG LEN", "-", "How many slow commands are kept"),
    row(Group::Server, "SLOWLOG RESET", "-", "Forget the slow commands"),
    row(Group::Server, "LATENCY LATEST", "-", "The last and the worst delay of each kind"),
    row(Group::Server, "LATENCY HISTORY", "event", "The delays of one kind over time"),
    row(Group::Server, "LATENCY GRAPH", "event", "The same, drawn"),
    row(Group::Server, "LATENCY RESET", "[event ...]", "Forget the delays"),
    row(Group::Server, "LATENCY DOCTOR", "-", "What the delays mean and what helps"),
    row(Group::Server, "BGREWRITEAOF", "-", "Rewrite the append only file to what is needed now"),
    row(
        Group::Server,
        "SHUTDOWN",
        "[REWRITE-AOF]",
        "Stop the server; REWRITE-AOF saves all jobs first",
    ),
    row(Group::Server, "DEBUG FLUSHALL", "-", "Delete all jobs and queues of this node"),
    row(Group::Server, "DEBUG SLEEP", "seconds", "Stop serving for some time"),
    row(Group::Server, "DEBUG SEGFAULT", "-", "Crash the server"),
    row(
        Group::Cluster,
        "HELLO",
        "-",
        "This node's ID, and ID, address and priority of each node: 1 is good, 100 is bad",
    ),
    row(
        Group::Cluster,
        "CLUSTER MEET",
        "ip port [bus-port]",
        "Make this node know another one, and so join their clusters",
    ),
    row(Group::Cluster, "CLUSTER NODES", "-", "One line for each known node"),
    row(Group::Cluster, "CLUSTER INFO", "-", "Numbers about the cluster as this node sees it"),
    row(Group::Cluster, "CLUSTER MYID", "-", "This node's ID"),
    row(Group::Cluster, "CLUSTER FORGET", "node-id", "Remove a node from this node's view"),
    row(
        Group::Cluster,
        "CLUSTER LEAVING",
        "[yes|no]",
        "Whether this node prepares to leave: it takes no new jobs then",
    ),
    row(
        Group::Cluster,
        "CLUSTER RESET",
        "[SOFT|HARD]",
        "Forget all nodes, jobs and queues; HARD takes a new ID too",
    ),
    row(Group::Cluster, "CLUSTER SAVECONFIG", "-", "Write the cluster configuration file now"),
    row(Group::Queues, "QLEN", "queue", "How many jobs are queued on this node"),
    row(Group::Queues, "QSTAT", "queue", "Numbers about a queue on this node"),
    row(
        Group::Queues,
        "QPEEK",
        "queue count",
        "Look at queued jobs, oldest first; a negative count: newest first",
    ),
    row(
        Group::Queues,
        "QSCAN",
        "[cursor] [COUNT count] [BUSYLOOP] [MINLEN len] [MAXLEN len] [IMPORTRATE rate]",
        "Walk through the queues of this node",
    ),
    row(
        Group::Queues,
        "PAUSE",
        "queue [in] [out] [all] [none] [state] [bcast]",
        "Stop jobs from entering or leaving a queue; bcast: on every node",
    ),
    row(Group::Queues, "ENQUEUE", "job-id [job-id ...]", "Queue jobs now, if they are not"),
    row(
        Group::Queues,
        "DEQUEUE",
        "job-id [job-id ...]",
        "Take jobs out of the queue until their retry time",
    ),
    row(
        Group::Jobs,
        "ADDJOB",
        "queue body ms-timeout [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN count] [ASYNC]",
        "Add a job; the reply is its ID",
    ),
    row(
        Group::Jobs,
        "GETJOB",
        "[NOHANG] [TIMEOUT ms] [COUNT count] [WITHCOUNTERS] FROM queue [queue ...]",
        "Fetch jobs, waiting for one when there is none",
    ),
    row(
        Group::Jobs,
        "ACKJOB",
        "job-id [job-id ...]",
        "Jobs are done: delete them everywhere, and make sure of it",
    ),
    row(
        Group::Jobs,
        "FASTACK",
        "job-id [job-id ...]",
        "Jobs are done: delete them everywhere with one message to each node",
    ),
    row(Group::Jobs, "NACK", "job-id [job-id ...]", "Jobs were not done: queue them again now"),
    row(Group::Jobs, "WORKING", "job-id", "A job takes longer: postpone its next delivery"),
    row(Group::Jobs, "SHOW", "job-id", "All this node knows about a job"),
    row(
        Group::Jobs,
        "JSCAN",
        "[cursor] [COUNT count] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY id|all]",
        "Walk through the jobs of this node",
    ),
    row(Group::Jobs, "DELJOB", "job-id [job-id ...]", "Delete jobs on this node only"),
    row(Group::Jobs, "LOADJOB", "bytes", "Only inside the append only file: a saved job"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect();
        render(&words, Colour::Off)
    }

    #[test]
    fn help_on_a_command_shows_syntax_summary_and_group() {
        assert_eq!(
            help("qlen"),
            "\r\n  QLEN queue\r\n  summary: How many jobs are queued on this node\r\n  \
             since: 1.0.0\r\n  group: queues\r\n\r\n"
        );
        assert!(help("config get").contains("CONFIG GET pattern"));
        assert!(!help("config get").contains("CONFIG SET"));
        assert!(help("config").contains("CONFIG SET"));
        assert!(help("nosuch").contains("No help on \"nosuch\""));
    }

    #[test]
    fn every_group_has_commands() {
        for group in Group::ALL {
            assert!(help(&format!("@{}", group.name())).contains("summary:"), "{group:?}");
        }
        assert!(help("@nosuch").contains("No help on"));
    }

    #[test]
    fn names_complete_in_any_case_and_groups_only_after_help() {
        assert_eq!(complete("addj"), (0, vec!["ADDJOB".to_string()]));
        assert_eq!(complete("help  @q"), (6, vec!["@queues".to_string()]));
        assert_eq!(complete("@q"), (0, vec![]));
        assert_eq!(complete("help nac"), (5, vec!["NACK".to_string()]));
        assert_eq!(complete("héé"), (0, vec![]));
    }
}
