//! What the interactive client knows about the server's commands: help and completion.

use std::fmt::Write as _;

use crate::manual::{self, Command, Group, Usage};

/// Whether help may use the terminal's colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    On,
    Off,
}

/// Renders the answer to `help` and the arguments after it.
pub fn render(arguments: &[Vec<u8>], colour: Colour) -> String {
    let mut out = String::new();
    let topic =
        arguments.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    if topic.is_empty() {
        let _ = write!(
            out,
            "{}\r\n\
             Type: \"help @<group>\" for the commands of a group: {}\r\n\
             \x20     \"help <command>\" for one command\r\n\
             \x20     \"help <tab>\" to walk through the topics\r\n\
             \x20     \"connect <host> <port>\" to talk to another server\r\n\
             \x20     \"quit\" to leave\r\n",
            super::options::version("disque"),
            Group::ALL.map(Group::name).join(", "),
        );
        return out;
    }
    if let Some(name) = topic.strip_prefix('@') {
        for (command, usage) in usages() {
            if command.group.name().eq_ignore_ascii_case(name) {
                write_usage(&mut out, command, usage, colour);
            }
        }
    } else {
        for (command, usage) in usages() {
            let is_meant = |name: &str| name.eq_ignore_ascii_case(&topic);
            if is_meant(command.name) || is_meant(&name(command, usage)) {
                write_usage(&mut out, command, usage, colour);
                let _ = write!(out, "  {}\r\n", label("group:", command.group.name(), colour));
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
    candidates.extend(usages().map(|(command, usage)| name(command, usage)));
    let typed = &line[start..];
    candidates.retain(|candidate| {
        candidate.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed))
    });
    (start, candidates)
}

/// Every command and subcommand of the manual.
fn usages() -> impl Iterator<Item = (&'static Command, &'static Usage)> {
    manual::all().flat_map(|command| command.usages.iter().map(move |usage| (command, usage)))
}

/// The name in upper case, and the subcommand if there is one.
fn name(command: &Command, usage: &Usage) -> String {
    format!("{} {}", command.name.to_uppercase(), usage.subcommand).trim_end().to_owned()
}

fn label(name: &str, text: &str, colour: Colour) -> String {
    match colour {
        Colour::On => format!("\x1b[33m{name}\x1b[0m {text}"),
        Colour::Off => format!("{name} {text}"),
    }
}

fn write_usage(out: &mut String, command: &Command, usage: &Usage, colour: Colour) {
    let (name, parameters) = (name(command, usage), usage.parameters());
    let head = match colour {
        Colour::On => format!("\x1b[1m{name}\x1b[0m \x1b[90m{parameters}\x1b[0m"),
        Colour::Off => format!("{name} {parameters}"),
    };
    let summary = if usage.summary.is_empty() { command.summary } else { usage.summary };
    let _ = write!(out, "\r\n  {}\r\n", head.trim_end());
    let _ = write!(out, "  {}\r\n", label("summary:", summary, colour));
    let _ = write!(out, "  {}\r\n", label("since:", command.since, colour));
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
