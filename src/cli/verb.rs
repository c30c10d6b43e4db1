//! The verbs of the tool: commands that look like the server's and are carried out here,
//! most of them with the help of all nodes.
//!
//! One table, [`VERBS`]. The command line, `--help`, the interactive client and its
//! completion read it; a verb is a row here and a function in the file of its noun.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::failure::Failure;
use super::options::CliOptions;
use super::{cluster, config_all, dead, queues, roster, top, trace, user_line};

/// A verb of the tool.
pub struct Verb {
    /// One or two words, lower case.
    pub name: &'static str,
    /// What follows the name; empty for nothing.
    pub syntax: &'static str,
    /// One sentence, without its full stop.
    pub summary: &'static str,
    run: fn(&CliOptions) -> Result<u8, Failure>,
}

/// Every verb, in the order of `--help`.
pub static VERBS: &[Verb] = &[
    Verb {
        name: "queues",
        syntax: "[<pattern> ...]",
        summary: "The queues of the cluster: length, age, rates, pauses",
        run: queues::run,
    },
    Verb { name: "top", syntax: "[<pattern> ...]", summary: "The same, live", run: top::run },
    Verb {
        name: "nodes",
        syntax: "",
        summary: "The nodes of the cluster: version, state, memory, jobs, clients",
        run: roster::run,
    },
    Verb {
        name: "dead",
        syntax: "[<pattern> ...]",
        summary: "The queues that hold dead letters, and what these died of",
        run: dead::run,
    },
    Verb {
        name: "trace",
        syntax: "<id> [--watch]",
        summary: "What happened to a traced job, on all nodes",
        run: trace::run,
    },
    Verb {
        name: "config-all",
        syntax: "get <directive> | set <directive> <value>",
        summary: "CONFIG GET or CONFIG SET on every node of the cluster",
        run: config_all::run,
    },
    Verb {
        name: "cluster create",
        syntax: "<host:port> ...",
        summary: "Make one cluster of these nodes",
        run: cluster::create,
    },
    Verb {
        name: "cluster check",
        syntax: "[<host:port>]",
        summary: "Compare what the nodes of a cluster know of each other, and what they are",
        run: cluster::check,
    },
    Verb {
        name: "cluster forget",
        syntax: "<node>",
        summary: "CLUSTER FORGET, with the node's ID, the start of it, or its host:port",
        run: cluster::forget,
    },
    Verb {
        name: "user-line",
        syntax: "<name> <role>[,<role> ...] [<glob> ...]",
        summary: "The line of a user for the configuration; asks for its password",
        run: user_line::run,
    },
];

/// Finds the verb that the words begin with, and the words behind it.
pub fn find(words: &[OsString]) -> Option<(&'static Verb, &[OsString])> {
    VERBS.iter().find_map(|verb| {
        let name: Vec<&str> = verb.name.split(' ').collect();
        let (head, rest) = words.split_at_checked(name.len())?;
        let is_named = head
            .iter()
            .zip(name)
            .all(|(word, name)| word.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
        is_named.then_some((verb, rest))
    })
}

impl Verb {
    /// Carries the verb out with the words of the options' command as its arguments. Returns
    /// the exit status.
    pub fn run(&self, options: &CliOptions) -> Result<u8, Failure> {
        (self.run)(options)
    }

    /// Returns the name with what follows it.
    pub fn usage(&self) -> String {
        format!("{} {}", self.name, self.syntax).trim_end().to_string()
    }
}

impl std::fmt::Debug for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_have_every_verb() {
        let documents = include_str!("../../docs/tools.md");
        for verb in VERBS {
            assert!(documents.contains(&format!("\n| `{}", verb.name)), "{}", verb.name);
        }
    }
}
