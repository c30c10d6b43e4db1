//! Policies of queues, by their names: what holds for an ADDJOB that does not say it, and what
//! becomes of jobs that fail.
//!
//! ```text
//! queue-policy mail*      default-ttl 3600 max-deliveries 5 nack-delay 5:300
//! queue-policy mail.slow  default-retry 600
//! ```
//!
//! A line has a glob and words with values. For each word that line counts which is the last of
//! those whose glob matches the name and that have the word. What comes of this for a queue is
//! evaluated when it is asked for first, kept with the queue while there is one, and evaluated anew
//! once the lines have changed. Without lines nothing is looked up, evaluated or kept.

mod word;

use crate::base::glob::{self, Case};
use crate::proto::quoting;

use super::Engine;
use super::queue::QueueRef;
pub use word::{Backoff, PolicyValue, PolicyWord};

/// Most lines there may be: each is compared with the name of each queue.
const LINES_MAX: usize = 1000;
/// Longest glob, in bytes: comparing takes as many steps as its length times that of the name.
const GLOB_MAX: usize = 255;

/// What the time counts from after which a job comes again that nobody acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryFrom {
    /// When it was queued, as with C.
    Queue,
    /// When a client got it.
    Delivery,
}

/// One line: a glob, and what it says of queues that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLine {
    glob: Box<[u8]>,
    /// By word.
    values: [Option<PolicyValue>; PolicyWord::ALL.len()],
}

impl PolicyLine {
    /// Reads a glob and the words behind it, of which there may be none. An error names the
    /// word that is wrong.
    pub fn parse(words: &[Vec<u8>]) -> Result<Self, String> {
        let Some((glob, words)) = words.split_first() else {
            return Err("a glob is missing".to_owned());
        };
        if glob.len() > GLOB_MAX {
            return Err(format!("a glob has at most {GLOB_MAX} bytes"));
        }
        let mut line = Self { glob: glob.as_slice().into(), values: Default::default() };
        for pair in words.chunks(2) {
            let word = PolicyWord::find(&pair[0])
                .ok_or_else(|| format!("'{}' is no word of a policy", pair[0].escape_ascii()))?;
            let name = word.name();
            let value = pair.get(1).ok_or_else(|| format!("{name} needs a value"))?;
            let value = word.parse(value)?;
            if line.values[word as usize].replace(value).is_some() {
                return Err(format!("{name} stands twice"));
            }
        }
        Ok(line)
    }

    /// Whether it says nothing: as a change, it takes the line of its glob away.
    fn is_bare(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// The line as [`PolicyLine::parse`] reads it back, split into words.
    pub fn text(&self) -> Vec<u8> {
        let mut text = quoting::quote_if_needed(&self.glob);
        for (word, value) in PolicyWord::ALL.into_iter().zip(&self.values) {
            if let Some(value) = value {
                text.extend_from_slice(format!(" {} ", word.name()).as_bytes());
                text.extend_from_slice(&value.word());
            }
        }
        text
    }
}

/// All lines, in their order; no two have the same glob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies(Vec<PolicyLine>);

impl Policies {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn lines(&self) -> &[PolicyLine] {
        &self.0
    }

    /// Takes a line in: in the place of that of the same glob, else behind all others. A line
    /// without words takes that of its glob away.
    pub fn set(&mut self, line: PolicyLine) {
        let same = self.0.iter().position(|known| known.glob == line.glob);
        match same {
            Some(at) if line.is_bare() => drop(self.0.remove(at)),
            Some(at) => self.0[at] = line,
            None if line.is_bare() => {}
            None => self.0.push(line),
        }
    }

    /// Checks that there are not too many lines.
    pub fn check(&self) -> Result<(), String> {
        if self.0.len() > LINES_MAX { Err(format!("at most {LINES_MAX} lines")) } else { Ok(()) }
    }

    fn evaluate(&self, name: &[u8]) -> QueuePolicy {
        let mut policy = QueuePolicy::default();
        for (at, line) in (0..).zip(&self.0) {
            if glob::matches(&line.glob, name, Case::Sensitive) {
                for (said_by, value) in policy.said_by.iter_mut().zip(&line.values) {
                    *said_by = value.as_ref().map(|_| at).or(*said_by);
                }
            }
        }
        policy
    }
}

/// What the policies say of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueuePolicy {
    /// By word: the place of the line that says it.
    said_by: [Option<u16>; PolicyWord::ALL.len()],
}

/// A policy that is kept with its queue.
pub struct KeptPolicy {
    /// How often the lines had changed when it was evaluated.
    version: u64,
    policy: QueuePolicy,
}

/// What the policies say of one queue, with the lines that say it.
#[derive(Clone, Copy)]
pub(super) struct PolicyView<'a> {
    lines: &'a [PolicyLine],
    policy: QueuePolicy,
}

impl<'a> PolicyView<'a> {
    /// The line that says a word; `None` if none does.
    fn line(&self, word: PolicyWord) -> Option<&'a PolicyLine> {
        self.lines.get(usize::from(self.policy.said_by[word as usize]?))
    }

    fn value(&self, word: PolicyWord) -> Option<&'a PolicyValue> {
        self.line(word)?.values[word as usize].as_ref()
    }

    /// The value of a word that takes a number; `None` if no line says it.
    pub fn number(&self, word: PolicyWord) -> Option<u64> {
        match self.value(word)? {
            PolicyValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// What the retry counts from.
    pub fn retry_from(&self) -> Option<RetryFrom> {
        match self.value(PolicyWord::RetryFrom)? {
            PolicyValue::Choice("delivery") => Some(RetryFrom::Delivery),
            PolicyValue::Choice(_) => Some(RetryFrom::Queue),
            _ => None,
        }
    }

    /// How long a NACK without DELAY waits.
    pub fn nack_delay(&self) -> Option<Backoff> {
        match self.value(PolicyWord::NackDelay)? {
            PolicyValue::Backoff(backoff) => Some(*backoff),
            _ => None,
        }
    }

    /// Whether the end of the TTL makes a job a dead one.
    pub fn dies_of_expiry(&self) -> bool {
        self.value(PolicyWord::OnExpire) == Some(&PolicyValue::Choice("dead"))
    }

    /// Where dead jobs go.
    pub fn dead_queue(&self) -> Option<&'a [u8]> {
        match self.value(PolicyWord::DeadQueue)? {
            PolicyValue::Name(name) => Some(name),
            _ => None,
        }
    }

    /// All words that are said, their values, and the globs that say them.
    pub fn words(self) -> impl Iterator<Item = (PolicyWord, &'a PolicyValue, &'a [u8])> {
        PolicyWord::ALL.into_iter().filter_map(move |word| {
            let line = self.line(word)?;
            Some((word, line.values[word as usize].as_ref()?, &*line.glob))
        })
    }
}

impl Engine {
    /// What the policies say of a queue, whether it is there or not; `None` if there are none.
    pub(super) fn policy_of(&mut self, name: &[u8]) -> Option<PolicyView<'_>> {
        if self.config.policies.is_empty() { None } else { Some(self.evaluated_policy(name)) }
    }

    /// As [`Engine::policy_of`], of the queue of a job.
    pub(super) fn policy_of_queue(&mut self, q: QueueRef) -> Option<PolicyView<'_>> {
        if self.config.policies.is_empty() { None } else { Some(self.kept_policy(q)) }
    }

    /// Apart, so that who has no policies pays one test.
    #[cold]
    fn evaluated_policy(&mut self, name: &[u8]) -> PolicyView<'_> {
        match self.queues.find(name) {
            Some(q) => self.kept_policy(q),
            None => {
                let policy = self.config.policies.evaluate(name);
                PolicyView { lines: self.config.policies.lines(), policy }
            }
        }
    }

    #[cold]
    fn kept_policy(&mut self, q: QueueRef) -> PolicyView<'_> {
        let policies = &self.config.policies;
        let version = self.policy_version;
        let entry = &mut self.queues[q];
        let policy = match entry.live().and_then(|queue| queue.policy.as_ref()) {
            Some(kept) if kept.version == version => kept.policy,
            _ => {
                let policy = policies.evaluate(&entry.name);
                if let Some(queue) = entry.live_mut() {
                    queue.policy = Some(Box::new(KeptPolicy { version, policy }));
                }
                policy
            }
        };
        PolicyView { lines: policies.lines(), policy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<PolicyLine, String> {
        PolicyLine::parse(&quoting::split(text.as_bytes()).expect("balanced"))
    }

    fn policies(lines: &[&str]) -> Policies {
        let mut policies = Policies::default();
        lines.iter().for_each(|text| policies.set(line(text).expect(text)));
        policies
    }

    fn texts(policies: &Policies) -> Vec<String> {
        let text = |line: &PolicyLine| String::from_utf8_lossy(&line.text()).into_owned();
        policies.lines().iter().map(text).collect()
    }

    #[test]
    fn errors_name_the_word() {
        for (text, reason) in [
            ("", "a glob is missing"),
            ("* max-lne 5", "'max-lne' is no word of a policy"),
            ("* max-len", "max-len needs a value"),
            ("* max-len -1", "max-len must be a number from 0 to 9223372036854775807"),
            ("* MAX-LEN 5 default-retry 0", "default-retry must be a number from 1 to 4294967295"),
            ("* default-ttl 1 default-ttl 1", "default-ttl stands twice"),
            (
                "* nack-delay 5:4",
                "nack-delay must be a number of seconds from 0 to 1000000000, or two with a colon between them, the second one not below the first",
            ),
            ("* on-expire never", "on-expire must be drop or dead"),
            ("* retry-from now", "retry-from must be queue or delivery"),
            ("* dead-queue \"\"", "dead-queue must be a name of 1 to 255 bytes"),
            ("* dead-ttl 0", "dead-ttl must be a number from 1 to 1000000000"),
            ("* max-deliveries 65536", "max-deliveries must be a number from 0 to 65535"),
            ("* default-replicate 65536", "default-replicate must be a number from 1 to 65535"),
        ] {
            assert_eq!(line(text), Err(reason.to_owned()), "{text}");
        }
        assert_eq!(line(&"x".repeat(256)), Err("a glob has at most 255 bytes".to_owned()));
    }

    #[test]
    fn later_lines_win_word_by_word() {
        let policies = policies(&["* default-ttl 1 max-len 1", "a* max-len 2", "*b default-ttl 3"]);
        let view = |name: &str| PolicyView {
            lines: policies.lines(),
            policy: policies.evaluate(name.as_bytes()),
        };
        let said = |name: &str| {
            let policy = view(name);
            (policy.number(PolicyWord::DefaultTtl), policy.number(PolicyWord::MaxLen))
        };
        assert_eq!(said("x"), (Some(1), Some(1)));
        assert_eq!(said("a"), (Some(1), Some(2)));
        assert_eq!(said("ab"), (Some(3), Some(2)));
        assert_eq!(view("x").number(PolicyWord::DefaultRetry), None);
    }

    #[test]
    fn a_line_is_set_in_its_place_or_behind_all_and_taken_away_when_bare() {
        let mut policies = policies(&["a max-len 1 default-ttl 9", "b max-len 2"]);
        for text in ["a max-len 3", "\"c d\" max-len 4", "b", "nosuch"] {
            policies.set(line(text).expect(text));
        }
        assert_eq!(texts(&policies), ["a max-len 3", "\"c d\" max-len 4"]);
    }

    #[test]
    fn there_are_a_thousand_lines_at_most() {
        let mut many = policies(&[]);
        for number in 0..LINES_MAX {
            many.set(line(&format!("{number} max-len 1")).expect("right"));
        }
        assert_eq!(many.check(), Ok(()));
        many.set(line("more max-len 1").expect("right"));
        assert_eq!(many.check(), Err("at most 1000 lines".to_owned()));
    }

    #[test]
    fn a_line_reads_back_what_it_writes() {
        for glob in ["mail*", "", "a b", "'", "\\*", "\n", "#", "\u{e4}"] {
            let words = [
                glob,
                "max-len",
                "0",
                "dead-queue",
                if glob.is_empty() { "x" } else { glob },
                "nack-delay",
                "5:9",
            ]
            .map(|word| word.into());
            let line = PolicyLine::parse(&words).expect("right");
            let again = quoting::split(&line.text()).expect("balanced");
            assert_eq!(PolicyLine::parse(&again), Ok(line), "{glob:?}");
        }
    }
}
