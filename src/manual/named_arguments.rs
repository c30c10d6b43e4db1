//! Which of a request's arguments name queues and jobs.
//!
//! A request is read by the manual's own description of its command, which COMMAND DOCS shows
//! too, so that an option that names a queue cannot be forgotten. It is read as the commands
//! read their arguments:
//!
//! ```text
//! arguments that have to be there, in front      in their order, whatever they say
//! then each word: a token, or a word of a choice the option, and the values behind it
//!                 anything else                  the argument without a token, if there is one
//! ```
//!
//! Invariant: where the command takes a request, every queue that it works on because of an
//! argument is among those found. A word that fits nowhere is [`Misplaced`]: the command would
//! refuse it too, and nobody has to rely on that.

use super::{Argument, Command, Kind, Repetition, Usage};

/// A queue or a job that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    Queue(&'a [u8]),
    Job(&'a [u8]),
}

/// A request has a word that the manual does not know there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

impl Command {
    /// The way to call it that a request means by the word behind the name; `None` where it
    /// is none of those there are.
    pub fn usage(&self, word: Option<&[u8]>) -> Option<&'static Usage> {
        let is_meant = |usage: &&Usage| {
            let subcommand = usage.subcommand.as_bytes();
            word.is_some_and(|word| word.eq_ignore_ascii_case(subcommand)) && !subcommand.is_empty()
        };
        let whole = |usage: &&Usage| usage.subcommand.is_empty();
        self.usages.iter().find(is_meant).or_else(|| self.usages.iter().find(whole))
    }
}

impl Usage {
    /// Whether any of its arguments names a queue or a job.
    pub fn has_names(&self) -> bool {
        has_names(self.arguments)
    }

    /// Visits each queue and each job that the words name which stand behind the name and the
    /// subcommand. After an error there may be more.
    pub fn visit_names<'a>(
        &self,
        mut words: impl Iterator<Item = &'a [u8]>,
        mut visit: impl FnMut(Named<'a>),
    ) -> Result<(), Misplaced> {
        let fixed = self.arguments.iter().take_while(|argument| argument.is_fixed()).count();
        let (fixed, rest) = self.arguments.split_at(fixed);
        for argument in fixed {
            take_values(argument, &mut words, &mut visit);
        }
        let loose = rest.iter().find(|argument| argument.token.is_none() && argument.is_value());
        while let Some(word) = words.next() {
            match (rest.iter().find(|argument| argument.is_begun_by(word)), loose) {
                (Some(option), _) if option.token.is_none() => {}
                (Some(option), _) if option.repetition == Repetition::Values => {
                    words.by_ref().for_each(|word| visit_value(option, word, &mut visit));
                }
                (Some(option), _) => take_values(option, &mut words, &mut visit),
                (None, Some(argument)) => visit_value(argument, word, &mut visit),
                (None, None) => return Err(Misplaced),
            }
        }
        Ok(())
    }
}

impl Argument {
    /// Whether it is known by its place.
    fn is_fixed(&self) -> bool {
        let is_once = self.repetition == Repetition::Once;
        self.token.is_none() && !self.is_optional && is_once && self.is_value()
    }

    /// Whether it is one word of the caller's own.
    fn is_value(&self) -> bool {
        !matches!(self.kind, Kind::Word | Kind::OneOf(_) | Kind::Block(_))
    }

    /// Whether a word says that this argument stands there.
    fn is_begun_by(&self, word: &[u8]) -> bool {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match (self.token, self.kind) {
            (Some(token), _) => is(token),
            (None, Kind::Word) => is(self.name),
            (None, Kind::OneOf(words)) => words.iter().any(|one| one.is_begun_by(word)),
            (None, _) => false,
        }
    }
}

fn has_names(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| match argument.kind {
        Kind::Queue | Kind::Job => true,
        Kind::OneOf(parts) | Kind::Block(parts) => has_names(parts),
        _ => false,
    })
}

/// Takes as many words as an argument has. Where there are too few the command refuses them.
fn take_values<'a>(
    argument: &Argument,
    words: &mut impl Iterator<Item = &'a [u8]>,
    visit: &mut impl FnMut(Named<'a>),
) {
    if let Kind::Block(parts) = argument.kind {
        parts.iter().for_each(|part| take_values(part, words, visit));
    } else if let Some(word) = words.next() {
        visit_value(argument, word, visit);
    }
}

fn visit_value<'a>(argument: &Argument, word: &'a [u8], visit: &mut impl FnMut(Named<'a>)) {
    match argument.kind {
        Kind::Queue => visit(Named::Queue(word)),
        Kind::Job => visit(Named::Job(word)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual;

    /// The queues and jobs that a request names, and whether it could be read to its end.
    fn named(line: &str) -> (String, Result<(), Misplaced>) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let name = line.split(' ').next().expect("a name").to_lowercase();
        let command = manual::named(&name);
        let usage = command.usage(words.get(1).copied()).expect("it is called so");
        let behind = 1 + usize::from(!usage.subcommand.is_empty());
        let mut found = Vec::new();
        let read = usage.visit_names(words[behind..].iter().copied(), |named| {
            let (Named::Queue(name) | Named::Job(name)) = named;
            found.push(String::from_utf8_lossy(name).into_owned());
        });
        (found.join(" "), read)
    }

    #[test]
    fn queues_and_jobs_are_found_in_their_places_and_behind_their_options() {
        for (line, found) in [
            ("ADDJOB q body 0", "q"),
            ("ADDJOB TTL DEADQUEUE 0 ASYNC", "TTL"),
            ("ADDJOB q b 0 ttl 5 ATTR DEADQUEUE x deadqueue d TRACE", "q d"),
            ("ADDJOB q b 0 ATTR DEADQUEUE DEADQUEUE DEADQUEUE DEADQUEUE", "q DEADQUEUE"),
            ("GETJOB NOHANG COUNT 3 FROM a FROM count", "a FROM count"),
            ("GETJOB TIMEOUT FROM FROM q", "q"),
            ("JSCAN QUEUE a 0 COUNT 5 queue b STATE queued REPLY all", "a b"),
            ("JSCAN STATE QUEUE QUEUE a", "a"),
            ("QSTAT q CLUSTER", "q"),
            ("QPEEK SKIP 1 SKIP 2", "SKIP"),
            ("PAUSE in out bcast", "in"),
            ("ACKJOB x y z", "x y z"),
            ("NACK x DELAY 5 REASON DEAD DEAD", "x"),
            ("NACK x REASON y", "x"),
            ("WAITJOB TIMEOUT 5 ALL x y", "x y"),
            ("MOVEJOB q x y PRIORITY 2", "q x y"),
            ("QMOVE a b COUNT 5", "a b"),
            ("QREDRIVE d REASON x COUNT 5", "d"),
            ("TRACE x TIMEOUT 5", "x"),
            ("WORKING x LEASE 5", "x"),
        ] {
            assert_eq!(named(line), (found.to_owned(), Ok(())), "{line}");
        }
    }

    #[test]
    fn a_word_that_fits_nowhere_is_told() {
        for line in ["ADDJOB q b 0 QUEUE x", "QSTAT q q2", "GETJOB q", "PAUSE q in sideways"] {
            assert_eq!(named(line).1, Err(Misplaced), "{line}");
        }
        for line in ["ADDJOB q b 0 DEADQUEUE", "ADDJOB q b 0 ATTR x", "GETJOB FROM", "ACKJOB"] {
            assert_eq!(named(line).1, Ok(()), "what is missing the command misses too: {line}");
        }
    }

    #[test]
    fn a_subcommand_is_found_in_any_case_and_a_command_without_by_its_name() {
        let usage = |name: &str, word: Option<&str>| {
            let usage = manual::named(name).usage(word.map(str::as_bytes));
            usage.map(|usage| usage.subcommand)
        };
        assert_eq!(usage("client", Some("kill")), Some("KILL"));
        assert_eq!(usage("client", Some("nosuch")), None);
        assert_eq!(usage("client", Some("")), None);
        assert_eq!(usage("command", None), Some(""));
        assert_eq!(usage("qlen", Some("q")), Some(""));
    }

    /// All arguments of a command, those within others too.
    fn each(arguments: &'static [Argument]) -> Vec<&'static Argument> {
        let parts = |argument: &'static Argument| match argument.kind {
            Kind::OneOf(parts) | Kind::Block(parts) => each(parts),
            _ => vec![],
        };
        arguments.iter().flat_map(|argument| [vec![argument], parts(argument)].concat()).collect()
    }

    #[test]
    fn what_is_called_a_queue_or_an_id_is_one() {
        for command in manual::all() {
            for argument in command.usages.iter().flat_map(|usage| each(usage.arguments)) {
                let is_queue = argument.name.split('-').any(|word| word == "queue")
                    || matches!(argument.name, "source" | "target");
                assert_eq!(
                    matches!(argument.kind, Kind::Queue),
                    is_queue,
                    "{} of {}",
                    argument.name,
                    command.name
                );
                let is_job = argument.name == "id" && !matches!(argument.kind, Kind::Word);
                assert_eq!(matches!(argument.kind, Kind::Job), is_job, "{}", command.name);
            }
        }
    }
}
