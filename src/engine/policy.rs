//! Policies of queues: what holds for an ADDJOB that does not say it, by the name of its queue.
//!
//! ```text
//! queue-policy mail*      default-ttl 3600 max-len 100000
//! queue-policy mail.slow  default-retry 600
//! ```
//!
//! A line has a glob and words with values. For each word that line counts which is the last of
//! those whose glob matches the name and that have the word. What comes of this for a queue is
//! evaluated when it is asked for first, kept with the queue while there is one, and evaluated anew
//! once the lines have changed. Without lines nothing is looked up, evaluated or kept.

use crate::base::glob::{self, Case};
use crate::base::number;
use crate::proto::quoting;

use super::Engine;

/// Most lines there may be: each is compared with the name of each queue.
const LINES_MAX: usize = 1000;
/// Longest glob, in bytes: comparing takes as many steps as its length times that of the name.
const GLOB_MAX: usize = 255;

/// What a policy can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWord {
    /// The TTL in seconds, unless the job's DELAY is not below it.
    DefaultTtl,
    /// The RETRY in seconds.
    DefaultRetry,
    /// The REPLICATE, as far as the cluster has nodes.
    DefaultReplicate,
    /// The MAXLEN; 0 is none.
    MaxLen,
}

impl PolicyWord {
    pub const ALL: [Self; 4] =
        [Self::DefaultTtl, Self::DefaultRetry, Self::DefaultReplicate, Self::MaxLen];

    pub fn name(self) -> &'static str {
        match self {
            Self::DefaultTtl => "default-ttl",
            Self::DefaultRetry => "default-retry",
            Self::DefaultReplicate => "default-replicate",
            Self::MaxLen => "max-len",
        }
    }

    /// The lowest and the highest value.
    pub fn range(self) -> (u64, u64) {
        match self {
            // A default of 0 would make jobs at-most-once whose producers do not say so.
            Self::DefaultTtl | Self::DefaultRetry => (1, u32::MAX.into()),
            Self::DefaultReplicate => (1, u16::MAX.into()),
            Self::MaxLen => (0, i64::MAX.unsigned_abs()),
        }
    }

    fn find(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// One line: a glob, and what it says of queues that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLine {
    glob: Box<[u8]>,
    /// By word.
    values: [Option<u64>; PolicyWord::ALL.len()],
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
            let (min, max) = word.range();
            let value = number::parse_u64(value).filter(|value| (min..=max).contains(value));
            let value =
                value.ok_or_else(|| format!("{name} must be a number from {min} to {max}"))?;
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
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'');
        let mut text = match &*self.glob {
            glob if !glob.is_empty() && glob.iter().all(is_plain) => glob.to_vec(),
            glob => quoting::quote(glob),
        };
        for (word, value) in PolicyWord::ALL.into_iter().zip(self.values) {
            if let Some(value) = value {
                text.extend_from_slice(format!(" {} {value}", word.name()).as_bytes());
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
        for (at, line) in self.0.iter().enumerate() {
            if glob::matches(&line.glob, name, Case::Sensitive) {
                for (said, value) in policy.said.iter_mut().zip(line.values) {
                    *said = value.map(|value| Said { value, line: at }).or(*said);
                }
            }
        }
        policy
    }
}

/// What the policies say of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePolicy {
    /// By word.
    said: [Option<Said>; PolicyWord::ALL.len()],
}

/// A value, and the place of the line that says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    value: u64,
    line: usize,
}

impl QueuePolicy {
    /// The value of a word; `None` if no line says it.
    pub fn value(&self, word: PolicyWord) -> Option<u64> {
        self.said[word as usize].map(|said| said.value)
    }
}

/// A policy that is kept with its queue.
pub struct KeptPolicy {
    /// How often the lines had changed when it was evaluated.
    version: u64,
    policy: QueuePolicy,
}

impl Engine {
    /// What the policies say of a queue, whether it is there or not; `None` if there are none.
    pub(super) fn policy_of(&mut self, name: &[u8]) -> Option<QueuePolicy> {
        if self.config.policies.is_empty() { None } else { Some(self.evaluated_policy(name)) }
    }

    /// Apart, so that who has no policies pays one test.
    #[cold]
    fn evaluated_policy(&mut self, name: &[u8]) -> QueuePolicy {
        let policies = &self.config.policies;
        let version = self.policy_version;
        let queue = self.queues.find(name).and_then(|q| self.queues[q].live_mut());
        let Some(queue) = queue else { return policies.evaluate(name) };
        match &queue.policy {
            Some(kept) if kept.version == version => kept.policy,
            _ => {
                let policy = policies.evaluate(name);
                queue.policy = Some(Box::new(KeptPolicy { version, policy }));
                policy
            }
        }
    }

    /// What the policies say of a queue: words, their values, and the globs that say them.
    pub(super) fn policy_words(&mut self, name: &[u8]) -> Vec<(PolicyWord, u64, Box<[u8]>)> {
        let policy = self.policy_of(name).unwrap_or_default();
        let lines = self.config.policies.lines();
        let said = |word: PolicyWord| {
            let said = policy.said[word as usize]?;
            Some((word, said.value, lines.get(said.line)?.glob.clone()))
        };
        PolicyWord::ALL.into_iter().filter_map(said).collect()
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
            ("* default-replicate 65536", "default-replicate must be a number from 1 to 65535"),
        ] {
            assert_eq!(line(text), Err(reason.to_owned()), "{text}");
        }
        assert_eq!(line(&"x".repeat(256)), Err("a glob has at most 255 bytes".to_owned()));
    }

    #[test]
    fn later_lines_win_word_by_word() {
        let policies = policies(&["* default-ttl 1 max-len 1", "a* max-len 2", "*b default-ttl 3"]);
        let said = |name: &str| {
            let policy = policies.evaluate(name.as_bytes());
            (policy.value(PolicyWord::DefaultTtl), policy.value(PolicyWord::MaxLen))
        };
        assert_eq!(said("x"), (Some(1), Some(1)));
        assert_eq!(said("a"), (Some(1), Some(2)));
        assert_eq!(said("ab"), (Some(3), Some(2)));
        assert_eq!(policies.evaluate(b"x").value(PolicyWord::DefaultRetry), None);
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
            let words = [glob, "max-len", "0", "default-ttl", "7"].map(|word| word.into());
            let line = PolicyLine::parse(&words).expect("right");
            let again = quoting::split(&line.text()).expect("balanced");
            assert_eq!(PolicyLine::parse(&again), Ok(line), "{glob:?}");
        }
    }
}
