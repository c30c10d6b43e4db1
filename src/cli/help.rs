//! What the interactive client knows of the server's commands and the tool's verbs: help,
//! completion, and how a command is called after one that was called wrongly.

use std::fmt::Write as _;

use super::terminal;
use super::verb;
use crate::manual::{self, Command, Group, Usage};

/// The group of the verbs; those of the commands are in the manual.
const TOOL_GROUP: &str = "tool";

/// Whether help may use the terminal's colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    On,
    Off,
}

/// A command, a subcommand or a verb.
struct Topic {
    name: String,
    parameters: String,
    summary: &'static str,
    /// The version that has it first. None for verbs.
    since: Option<&'static str>,
    group: &'static str,
}

/// Renders the answer to `help` and the arguments after it.
///
/// A group may be shortened, and so may a name that is no topic by itself.
pub fn render(arguments: &[Vec<u8>], colour: Colour) -> String {
    let asked =
        arguments.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    if asked.is_empty() {
        return overview();
    }
    let topics = topics();
    let found: Vec<&Topic> = match asked.strip_prefix('@') {
        Some(group) => topics.iter().filter(|topic| begins_with(topic.group, group)).collect(),
        None => {
            let exact: Vec<&Topic> =
                topics.iter().filter(|topic| topic.is_called(&asked)).collect();
            match exact.as_slice() {
                [] => topics.iter().filter(|topic| begins_with(&topic.name, &asked)).collect(),
                _ => exact,
            }
        }
    };
    let mut out = String::new();
    for topic in &found {
        topic.write(&mut out, colour);
        if !asked.starts_with('@') {
            let _infallible = write!(out, "  {}\r\n", label("group:", topic.group, colour));
        }
    }
    if found.is_empty() {
        let asked = terminal::one_line(&asked);
        let _infallible =
            write!(out, "\r\n  No help on \"{asked}\". Type \"help\" for how to find some.\r\n");
    }
    out.push_str("\r\n");
    out
}

fn overview() -> String {
    format!(
        "{}\r\n\
         Type: \"help @<group>\" for the commands of a group: {}\r\n\
         \x20     \"help <command>\" for one command, or all that begin so\r\n\
         \x20     \"help <tab>\" to walk through the topics\r\n\
         \x20     \"connect <host> <port>\" to talk to another server\r\n\
         \x20     \"quit\" to leave\r\n",
        super::options::version("disque"),
        groups().collect::<Vec<_>>().join(", "),
    )
}

/// Returns what the text before the cursor can become: commands and verbs, and after `help`
/// the groups too.
///
/// The first value is the offset in the line at which the candidates begin.
pub fn complete(line: &str) -> (usize, Vec<String>) {
    let mut start = 0;
    let mut candidates: Vec<String> = Vec::new();
    if line.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("help ")) {
        start = line.len() - line[5..].trim_start().len();
        candidates.extend(groups().map(|group| format!("@{group}")));
    }
    candidates.extend(topics().into_iter().map(|topic| topic.name));
    let typed = &line[start..];
    candidates.retain(|candidate| begins_with(candidate, typed));
    (start, candidates)
}

/// Returns how a command is called, one line for each way, when the error is that it was
/// called in another.
pub fn after_error(args: &[Vec<u8>], error: &[u8]) -> Vec<String> {
    let error = String::from_utf8_lossy(error);
    let is_about_the_call = ["number of arguments", "syntax error", "subcommand"]
        .iter()
        .any(|part| error.contains(part));
    if !is_about_the_call {
        return Vec::new();
    }
    let is_word = |index: usize, name: &str| {
        args.get(index).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let of_command: Vec<_> = usages().filter(|(command, _)| is_word(0, command.name)).collect();
    let mut meant: Vec<_> =
        of_command.iter().filter(|(_, usage)| is_word(1, usage.subcommand)).collect();
    if meant.is_empty() {
        meant = of_command.iter().collect();
    }
    meant.into_iter().map(|(command, usage)| usage.syntax(command)).collect()
}

/// Every command and subcommand of the manual.
fn usages() -> impl Iterator<Item = (&'static Command, &'static Usage)> {
    manual::all().flat_map(|command| command.usages.iter().map(move |usage| (command, usage)))
}

fn groups() -> impl Iterator<Item = &'static str> {
    Group::ALL.into_iter().map(Group::name).chain([TOOL_GROUP])
}

fn topics() -> Vec<Topic> {
    let of_command = |(command, usage): (&'static Command, &'static Usage)| Topic {
        name: format!("{} {}", command.name.to_uppercase(), usage.subcommand).trim_end().to_owned(),
        parameters: usage.parameters(),
        summary: if usage.summary.is_empty() { command.summary } else { usage.summary },
        since: Some(command.since),
        group: command.group.name(),
    };
    let of_verb = |verb: &'static verb::Verb| Topic {
        name: verb.name.to_owned(),
        parameters: verb.syntax.to_owned(),
        summary: verb.summary,
        since: None,
        group: TOOL_GROUP,
    };
    usages().map(of_command).chain(verb::VERBS.iter().map(of_verb)).collect()
}

/// Whether `text` begins with `start`, in any case.
fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

fn label(name: &str, text: &str, colour: Colour) -> String {
    match colour {
        Colour::On => format!("\x1b[33m{name}\x1b[0m {text}"),
        Colour::Off => format!("{name} {text}"),
    }
}

impl Topic {
    /// Whether it has this name, or is a part of the command that has.
    fn is_called(&self, asked: &str) -> bool {
        let first_word = self.name.split(' ').next().unwrap_or_default();
        self.name.eq_ignore_ascii_case(asked) || first_word.eq_ignore_ascii_case(asked)
    }

    fn write(&self, out: &mut String, colour: Colour) {
        let (name, parameters) = (&self.name, &self.parameters);
        let head = match colour {
            Colour::On => format!("\x1b[1m{name}\x1b[0m \x1b[90m{parameters}\x1b[0m"),
            Colour::Off => format!("{name} {parameters}"),
        };
        let _infallible = write!(out, "\r\n  {}\r\n", head.trim_end());
        let _infallible = write!(out, "  {}\r\n", label("summary:", self.summary, colour));
        if let Some(since) = self.since {
            let _infallible = write!(out, "  {}\r\n", label("since:", since, colour));
        }
    }
}

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
            "\r\n  QLEN queue\r\n  summary: Counts the jobs that are queued on this node\r\n  \
             since: 1.0.0\r\n  group: queues\r\n\r\n"
        );
        assert!(help("config get").contains("CONFIG GET pattern"));
        assert!(!help("config get").contains("CONFIG SET"));
        assert!(help("config").contains("CONFIG SET"));
        assert!(help("nosuch").contains("No help on \"nosuch\""));
    }

    #[test]
    fn a_topic_may_be_shortened_unless_it_is_one_by_itself() {
        assert_eq!(help("getj"), help("getjob"));
        assert!(help("cluster f").contains("CLUSTER FORGET node-id"), "{}", help("cluster f"));
        assert_eq!(help("@queue"), help("@queues"));
        assert!(help("nack").contains("NACK") && !help("nack").contains("ACKJOB"));
        assert!(help("ack").contains("ACKJOB"));
    }

    #[test]
    fn verbs_are_topics_too() {
        assert!(help("top").contains("  top [<pattern> ...]\r\n  summary: "));
        assert!(help("@tool").contains("cluster create <host:port> ..."));
        assert!(!help("top").contains("since:"));
    }

    #[test]
    fn a_wrong_call_is_answered_by_the_right_ones() {
        let after = |line: &str, error: &str| {
            let args: Vec<_> = line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect();
            after_error(&args, error.as_bytes())
        };
        assert_eq!(
            after("qlen", "ERR wrong number of arguments for 'qlen' command"),
            ["QLEN queue"]
        );
        let getjob = after("GetJob x", "ERR syntax error");
        assert!(getjob.len() == 1 && getjob[0].starts_with("GETJOB ["), "{getjob:?}");
        let one = after("config get", "ERR Wrong number of arguments for CONFIG get");
        assert_eq!(one, ["CONFIG GET pattern"]);
        let all = after("config nosuch", "ERR CONFIG subcommand must be one of these");
        assert!(all.len() > 2 && all.contains(&"CONFIG REWRITE".to_owned()), "{all:?}");
        assert_eq!(after("qlen q", "NOAUTH Authentication required."), Vec::<String>::new());
        assert_eq!(after("nosuch", "ERR syntax error"), Vec::<String>::new());
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
