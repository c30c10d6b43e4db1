//! How a directive's value is written and which values it takes.
//!
//! Text and typed field meet in a [`DirectiveValue`]: a [`ValueForm`] turns words into a value
//! (checking it) and a value into words; a [`Field`] moves it into and out of the
//! [`Config`](super::Config). A form admits only values its field can hold, so
//! [`Field::put`] cannot fail; a test puts the extremes of every row to prove it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{AppendFsync, LogLevel, MaxmemoryPolicy, OutputLimit, SyslogFacility};
use crate::base::limits::PASSWORD_MAX;
use crate::base::network::Network;
use crate::base::number;
use crate::engine::policy::RetryFrom;
use crate::engine::policy::{Policies, PolicyLine, PolicyWord};
use crate::manual::Roles;
use crate::proto::node_info::is_node_text;
use crate::proto::quoting;
use crate::server::seeds::parse_seed;
use crate::server::users::{UserLine, Users};

/// Most addresses of one `bind`. C: CONFIG_BINDADDR_MAX.
const ADDRESSES_MAX: usize = 16;
/// Most networks of one `cluster-allow`: each is compared with each connection.
const NETWORKS_MAX: usize = 100;
/// Most hosts of cluster-seeds.
const SEEDS_MAX: usize = 100;

/// A directive's value between its text and its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectiveValue {
    /// Not set, for the directives that have no default.
    Absent,
    YesNo(bool),
    Number(i64),
    Text(Vec<u8>),
    Words(Vec<Vec<u8>>),
    Networks(Vec<Network>),
    Limit(OutputLimit),
    /// All lines there are, or those of a CONFIG SET.
    PolicyLines(Vec<PolicyLine>),
    /// A line of a file.
    PolicyLine(Box<PolicyLine>),
    /// All users there are, or the lines of a CONFIG SET.
    UserLines(Vec<UserLine>),
    /// A line of a file.
    UserLine(UserLine),
}

/// The shape of a directive's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    YesNo,
    /// A decimal number; out of range is an error.
    Number {
        min: i64,
        max: i64,
        unit: &'static str,
    },
    /// A decimal number; out of range is taken as the nearest one in range.
    Clamped {
        min: i64,
        max: i64,
        unit: &'static str,
    },
    /// Seconds, or `yes` (1) and `no` (0); shown as the latter.
    SecondsOrYesNo {
        max: i64,
    },
    /// A size: a number with an optional unit.
    Bytes {
        min: i64,
    },
    /// File permissions in octal.
    Mode,
    /// Any text that is valid UTF-8.
    Text,
    /// An IPv4 or IPv6 address; empty is absent.
    OptionalIp,
    /// A path.
    Path,
    /// The path of a file that is read in place of the line.
    Include,
    /// As `Path`; empty is absent.
    OptionalPath,
    /// A file name without a folder.
    FileName,
    /// Any bytes up to 512; empty is absent.
    Password,
    Choice(&'static [&'static str]),
    /// A word of printable ASCII; empty is none.
    Label {
        max: usize,
    },
    /// One or more addresses, a word each.
    Addresses,
    /// One or more networks, a word each; one empty word is none.
    Networks,
    /// Hosts, each with a port or without, a word each; empty is none.
    Seeds,
    /// Client class, hard limit, soft limit, seconds.
    OutputLimit,
    /// Old and new name of a command.
    Rename,
    /// A glob, and words with their values.
    QueuePolicy,
    /// A name, the hash of a password, roles, and globs of names of queues.
    User,
}

impl ValueForm {
    /// Reads the words that follow the directive in a file or in options.
    pub fn parse(self, words: &[Vec<u8>]) -> Result<DirectiveValue, String> {
        match (self, words) {
            (Self::Addresses, [_, ..]) => addresses(words),
            (Self::Networks, [_, ..]) => networks(words),
            (Self::Seeds, [_, ..]) => seeds(words),
            (Self::OutputLimit, [class, hard, soft, secs]) => output_limit(class, hard, soft, secs),
            (Self::Rename, [_, _]) => Ok(DirectiveValue::Words(words.to_vec())),
            (Self::QueuePolicy, [_, ..]) => {
                PolicyLine::parse(words).map(|line| DirectiveValue::PolicyLine(Box::new(line)))
            }
            (Self::User, [_, ..]) => UserLine::parse(words).map(DirectiveValue::UserLine),
            (
                Self::Addresses
                | Self::Networks
                | Self::Seeds
                | Self::OutputLimit
                | Self::Rename
                | Self::QueuePolicy
                | Self::User,
                _,
            ) => Err(WRONG_COUNT.into()),
            (_, [word]) => self.parse_word(word),
            _ => Err(WRONG_COUNT.into()),
        }
    }

    /// Reads the one argument of CONFIG SET. Several groups of an output limit may
    /// follow each other; all are checked and the last one counts. So may several lines of
    /// queues' policies, or of users.
    pub fn parse_argument(self, argument: &[u8]) -> Result<DirectiveValue, String> {
        match self {
            Self::OutputLimit => {}
            Self::Networks => {
                let words = argument.split(u8::is_ascii_whitespace);
                let words = words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
                return networks(&words.collect::<Vec<_>>());
            }
            Self::QueuePolicy => {
                return changes(argument, PolicyLine::parse).map(DirectiveValue::PolicyLines);
            }
            Self::User => return changes(argument, UserLine::parse).map(DirectiveValue::UserLines),
            Self::Seeds => {
                let words = argument.split(|&c| c == b' ').filter(|word| !word.is_empty());
                return seeds(&words.map(<[u8]>::to_vec).collect::<Vec<_>>());
            }
            _ => return self.parse(&[argument.to_vec()]),
        }
        let words: Vec<Vec<u8>> = argument.split(|&c| c == b' ').map(<[u8]>::to_vec).collect();
        let groups: Result<Vec<DirectiveValue>, String> =
            words.chunks(4).map(|g| self.parse(g)).collect();
        groups?.pop().ok_or_else(|| WRONG_COUNT.into())
    }

    fn parse_word(self, word: &[u8]) -> Result<DirectiveValue, String> {
        match self {
            Self::YesNo => yes_no(word).map(DirectiveValue::YesNo),
            Self::Number { min, max, .. } => in_range(number::parse_i64(word), min, max),
            Self::Clamped { min, max, .. } => match number::parse_i64(word) {
                Some(n) => Ok(DirectiveValue::Number(n.clamp(min, max))),
                None => in_range(None, min, max),
            },
            Self::SecondsOrYesNo { max } => match yes_no(word) {
                Ok(yes) => Ok(DirectiveValue::Number(yes.into())),
                Err(_) => in_range(number::parse_i64(word), 0, max),
            },
            Self::Bytes { min } => bytes(word, min).map(DirectiveValue::Number),
            Self::Mode => mode(word),
            Self::Text => text(word),
            Self::Path | Self::Include => path(word),
            Self::OptionalIp | Self::OptionalPath | Self::Password if word.is_empty() => {
                Ok(DirectiveValue::Absent)
            }
            Self::OptionalIp => ip(word),
            Self::OptionalPath => path(word),
            Self::Password if word.len() > PASSWORD_MAX => {
                Err(format!("a password has at most {PASSWORD_MAX} bytes"))
            }
            Self::Password => Ok(DirectiveValue::Text(word.to_vec())),
            Self::FileName if word.is_empty() || word.contains(&b'/') => {
                Err("this is the name of a file, not a path".into())
            }
            Self::FileName => text(word),
            Self::Choice(names) => names
                .iter()
                .find(|name| name.as_bytes().eq_ignore_ascii_case(word))
                .map(|name| DirectiveValue::Text(name.as_bytes().to_vec()))
                .ok_or_else(|| format!("must be one of {}", names.join(", "))),
            Self::Label { max } => match is_node_text(word, max) {
                true => Ok(DirectiveValue::Text(word.to_vec())),
                false => Err(format!("must be at most {max} printable characters without spaces")),
            },
            Self::Addresses
            | Self::Networks
            | Self::Seeds
            | Self::OutputLimit
            | Self::Rename
            | Self::QueuePolicy
            | Self::User => Err(WRONG_COUNT.into()),
        }
    }

    /// The value as CONFIG GET shows it.
    pub fn shown(self, value: &DirectiveValue) -> Vec<u8> {
        match (self, value) {
            (Self::SecondsOrYesNo { .. }, DirectiveValue::Number(n)) => yes_no_text(*n != 0).into(),
            (Self::Mode, DirectiveValue::Number(n)) => format!("{n:o}").into_bytes(),
            (_, DirectiveValue::Absent) => Vec::new(),
            (_, DirectiveValue::YesNo(yes)) => yes_no_text(*yes).into(),
            (_, DirectiveValue::Number(n)) => n.to_string().into_bytes(),
            (_, DirectiveValue::Text(text)) => text.clone(),
            (_, DirectiveValue::Words(words)) => words.join(&b' '),
            (_, DirectiveValue::Networks(networks)) => {
                networks.iter().map(Network::to_string).collect::<Vec<_>>().join(" ").into_bytes()
            }
            (_, DirectiveValue::Limit(limit)) => {
                let OutputLimit { hard_bytes, soft_bytes, soft_secs } = limit;
                format!("normal {hard_bytes} {soft_bytes} {soft_secs}").into_bytes()
            }
            (_, DirectiveValue::PolicyLine(line)) => line.text(),
            (_, DirectiveValue::PolicyLines(lines)) => {
                lines.iter().map(PolicyLine::text).collect::<Vec<_>>().join(&b'\n')
            }
            (_, DirectiveValue::UserLine(line)) => line.text(),
            (_, DirectiveValue::UserLines(lines)) => {
                lines.iter().map(UserLine::text).collect::<Vec<_>>().join(&b'\n')
            }
        }
    }

    /// The value as a file holds it: what [`ValueForm::parse`] reads back, quoted where free
    /// text could hold spaces.
    pub fn written(self, value: &DirectiveValue) -> Vec<u8> {
        match (self, value) {
            (Self::SecondsOrYesNo { .. }, DirectiveValue::Number(n)) => n.to_string().into_bytes(),
            (Self::Bytes { .. }, DirectiveValue::Number(n)) => size_text(unsigned(*n)).into_bytes(),
            (Self::Choice(_), _) => self.shown(value),
            (_, DirectiveValue::Text(text)) => quoting::quote(text),
            (Self::Rename, DirectiveValue::Words(words)) => {
                words.iter().map(|word| quoting::quote(word)).collect::<Vec<_>>().join(&b' ')
            }
            (_, DirectiveValue::Limit(OutputLimit { hard_bytes, soft_bytes, soft_secs })) => {
                let (hard, soft) = (size_text(*hard_bytes), size_text(*soft_bytes));
                format!("normal {hard} {soft} {soft_secs}").into_bytes()
            }
            _ => self.shown(value),
        }
    }

    /// The accepted values in a few words, for people.
    pub fn explained(self) -> String {
        match self {
            Self::YesNo => "yes or no".into(),
            Self::Number { min, max, unit } | Self::Clamped { min, max, unit } => {
                let range = match (min, max) {
                    (i64::MIN, i64::MAX) => "any number".into(),
                    (min, i64::MAX) => format!("number, {min} or more"),
                    (min, max) => format!("number, {min} to {max}"),
                };
                match unit {
                    "" => range,
                    unit => format!("{range} ({unit})"),
                }
            }
            Self::SecondsOrYesNo { .. } => "number, 0 or more (seconds), or yes or no".into(),
            Self::Bytes { min: 0 } => "size".into(),
            Self::Bytes { .. } => "size, more than 0".into(),
            Self::Mode => "octal number, 0 to 777".into(),
            Self::Text => "text".into(),
            Self::OptionalIp => "IPv4 or IPv6 address".into(),
            Self::Path | Self::Include | Self::OptionalPath => "path".into(),
            Self::FileName => "file name".into(),
            Self::Password => format!("text, up to {PASSWORD_MAX} bytes"),
            Self::Choice(names) => names.join(", "),
            Self::Label { max } => format!("printable characters without spaces, up to {max}"),
            Self::Addresses => format!("1 to {ADDRESSES_MAX} addresses"),
            Self::Networks => format!("up to {NETWORKS_MAX} networks: an address, or address/bits"),
            Self::Seeds => format!("up to {SEEDS_MAX} hosts, each with a port or without"),
            Self::OutputLimit => "normal, size (hard), size (soft), seconds".into(),
            Self::Rename => "command, new name".into(),
            Self::QueuePolicy => {
                let word = |word: PolicyWord| format!("{} ({})", word.name(), word.values());
                let words: Vec<String> = PolicyWord::ALL.into_iter().map(word).collect();
                format!("glob, then words with their values: {}", words.join(", "))
            }
            Self::User => {
                let roles = Roles::NAMES.map(|(_, name)| name).join(", ");
                format!(
                    "name, sha256: and 64 hexadecimal digits, one or several of {roles} with \
                     commas between them, then globs"
                )
            }
        }
    }

    /// Whether an error of CONFIG SET says what is wrong. C says no more than that something is, and
    /// in its directives there is one word that may be.
    pub fn explains_errors(self) -> bool {
        matches!(self, Self::QueuePolicy | Self::Networks | Self::User)
    }

    /// What stands for the value in an example.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::YesNo | Self::Choice(_) => "<word>",
            Self::Number { .. } | Self::Clamped { .. } | Self::SecondsOrYesNo { .. } => "<number>",
            Self::Bytes { .. } => "<size>",
            Self::Mode => "<octal number>",
            Self::Text => "<text>",
            Self::OptionalIp => "<address>",
            Self::Path | Self::Include | Self::OptionalPath => "<path>",
            Self::FileName => "<file name>",
            Self::Password => "<password>",
            Self::Label { .. } => "<name>",
            Self::Addresses => "<address> [<address> ...]",
            Self::Networks => "<network> [<network> ...]",
            Self::Seeds => "<host>[:<port>] [<host>[:<port>] ...]",
            Self::OutputLimit => "<class> <hard limit> <soft limit> <seconds>",
            Self::Rename => "<command> <new name>",
            Self::QueuePolicy => "<glob> <word> <value> [<word> <value> ...]",
            Self::User => "<name> sha256:<hex> <role>[,<role> ...] [<queue-glob> ...]",
        }
    }
}

/// What a line with an unknown directive or too few or too many words is told.
pub const WRONG_COUNT: &str = "unknown directive or wrong number of arguments";

fn yes_no(word: &[u8]) -> Result<bool, String> {
    number::parse_yes_no(word).ok_or_else(|| "must be yes or no".into())
}

fn yes_no_text(yes: bool) -> &'static [u8] {
    if yes { b"yes" } else { b"no" }
}

/// Differs from C: text after the number is an error, because C's `atoi` takes
/// `timeout 3OO` as 3 without a word.
fn in_range(number: Option<i64>, min: i64, max: i64) -> Result<DirectiveValue, String> {
    match number {
        Some(n) if (min..=max).contains(&n) => Ok(DirectiveValue::Number(n)),
        _ if max == i64::MAX && min == i64::MIN => Err("must be a number".into()),
        _ if max == i64::MAX => Err(format!("must be a number, {min} or more")),
        _ => Err(format!("must be a number from {min} to {max}")),
    }
}

fn bytes(word: &[u8], min: i64) -> Result<i64, String> {
    match number::parse_memory(word).and_then(|n| i64::try_from(n).ok()) {
        Some(n) if n >= min => Ok(n),
        Some(_) => Err("must be more than zero".into()),
        None => Err("must be a size: a number and optionally b, k, kb, m, mb, g or gb".into()),
    }
}

/// The shortest exact text with a unit. C: rewriteConfigFormatMemory
fn size_text(bytes: u64) -> String {
    let units = [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)];
    match units.iter().find(|(_, size)| bytes != 0 && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

fn mode(word: &[u8]) -> Result<DirectiveValue, String> {
    let digits = std::str::from_utf8(word).ok().filter(|digits| !digits.starts_with('+'));
    match digits.and_then(|digits| u32::from_str_radix(digits, 8).ok()) {
        Some(mode) if mode <= 0o777 => Ok(DirectiveValue::Number(mode.into())),
        _ => Err("must be an octal number up to 777".into()),
    }
}

fn text(word: &[u8]) -> Result<DirectiveValue, String> {
    match std::str::from_utf8(word) {
        Ok(text) if !text.contains('\0') => Ok(DirectiveValue::Text(word.to_vec())),
        _ => Err("must be UTF-8 text without zero bytes".into()),
    }
}

fn ip(word: &[u8]) -> Result<DirectiveValue, String> {
    let address = std::str::from_utf8(word).ok().and_then(|text| text.parse::<IpAddr>().ok());
    address.map(|ip| ip.value()).ok_or_else(|| "must be an IPv4 or IPv6 address".into())
}

fn path(word: &[u8]) -> Result<DirectiveValue, String> {
    if word.contains(&0) {
        return Err("a path has no zero bytes".into());
    }
    Ok(DirectiveValue::Text(word.to_vec()))
}

fn addresses(words: &[Vec<u8>]) -> Result<DirectiveValue, String> {
    if words.len() > ADDRESSES_MAX {
        return Err(format!("at most {ADDRESSES_MAX} addresses"));
    }
    words.iter().try_for_each(|word| match text(word)? {
        DirectiveValue::Text(address) if !address.is_empty() && !address.contains(&b' ') => Ok(()),
        _ => Err("an address is empty or has a space in it".to_owned()),
    })?;
    Ok(DirectiveValue::Words(words.to_vec()))
}

fn networks(words: &[Vec<u8>]) -> Result<DirectiveValue, String> {
    let words = if matches!(words, [word] if word.is_empty()) { &[] } else { words };
    if words.len() > NETWORKS_MAX {
        return Err(format!("at most {NETWORKS_MAX} networks"));
    }
    let network = |word: &Vec<u8>| {
        Network::parse(word).ok_or_else(|| {
            let word = word.escape_ascii();
            format!("'{word}' is no network: an address, or an address, / and a number of bits")
        })
    };
    words.iter().map(network).collect::<Result<Vec<_>, _>>().map(DirectiveValue::Networks)
}

fn seeds(words: &[Vec<u8>]) -> Result<DirectiveValue, String> {
    let words: Vec<Vec<u8>> = words.iter().filter(|word| !word.is_empty()).cloned().collect();
    if words.len() > SEEDS_MAX {
        return Err(format!("at most {SEEDS_MAX} hosts"));
    }
    for word in &words {
        let seed = std::str::from_utf8(word).ok();
        if seed.and_then(parse_seed).is_none() {
            return Err(format!("'{}' is not a host, or a host:port", word.escape_ascii()));
        }
    }
    Ok(DirectiveValue::Words(words))
}

fn output_limit(
    class: &[u8],
    hard: &[u8],
    soft: &[u8],
    secs: &[u8],
) -> Result<DirectiveValue, String> {
    if !class.eq_ignore_ascii_case(b"normal") {
        return Err("the only client class is normal".into());
    }
    let (hard, soft) = (bytes(hard, 0)?, bytes(soft, 0)?);
    let Ok(DirectiveValue::Number(secs)) = in_range(number::parse_i64(secs), 0, i64::MAX) else {
        return Err("the soft limit's seconds must be a number, 0 or more".into());
    };
    Ok(DirectiveValue::Limit(OutputLimit {
        hard_bytes: unsigned(hard),
        soft_bytes: unsigned(soft),
        soft_secs: unsigned(secs),
    }))
}

/// Reads the changes of a CONFIG SET, one a line.
fn changes<T>(
    argument: &[u8],
    parse: fn(&[Vec<u8>]) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let lines = argument.split(|&c| c == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let read = |line| parse(&quoting::split(line).map_err(|_| "unbalanced quotes".to_owned())?);
    lines.map(read).collect()
}

/// A number known not to be negative.
fn unsigned(n: i64) -> u64 {
    u64::try_from(n).expect("sizes and seconds are parsed as 0 or more")
}

/// A typed field of the configuration.
pub trait Field {
    fn value(&self) -> DirectiveValue;
    /// Takes a value that the directive's form admitted.
    fn put(&mut self, value: DirectiveValue);
}

impl Field for bool {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::YesNo(*self)
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::YesNo(yes) => *self = yes,
            other => unreachable!("a yes/no form does not make {other:?}"),
        }
    }
}

macro_rules! number_field {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn value(&self) -> DirectiveValue {
                DirectiveValue::Number(i64::try_from(*self).expect("fields hold what their form admits"))
            }

            fn put(&mut self, value: DirectiveValue) {
                match value {
                    DirectiveValue::Number(n) => {
                        *self = <$number>::try_from(n).expect("the form's range fits its field");
                    }
                    other => unreachable!("a number's form does not make {other:?}"),
                }
            }
        }
    )*};
}
number_field!(u16, u32, u64, usize, i64);

/// Field types that are one text.
trait Textual {
    fn bytes(&self) -> Vec<u8>;
    fn from_bytes(bytes: Vec<u8>) -> Self;
}

impl Textual for String {
    fn bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        Self::from_utf8(bytes).expect("text forms check for UTF-8")
    }
}

impl Textual for PathBuf {
    fn bytes(&self) -> Vec<u8> {
        self.as_os_str().as_bytes().to_vec()
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        OsString::from_vec(bytes).into()
    }
}

impl Textual for IpAddr {
    fn bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        String::from_bytes(bytes).parse().expect("the form checks addresses")
    }
}

impl Textual for Vec<u8> {
    fn bytes(&self) -> Vec<u8> {
        self.clone()
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        bytes
    }
}

impl<T: Textual> Field for T {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::Text(self.bytes())
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Text(text) => *self = T::from_bytes(text),
            other => unreachable!("a text's form does not make {other:?}"),
        }
    }
}

impl<T: Textual> Field for Option<T> {
    fn value(&self) -> DirectiveValue {
        self.as_ref().map_or(DirectiveValue::Absent, |text| DirectiveValue::Text(text.bytes()))
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Text(text) => *self = Some(T::from_bytes(text)),
            DirectiveValue::Absent => *self = None,
            other => unreachable!("an optional text's form does not make {other:?}"),
        }
    }
}

impl Field for Vec<String> {
    fn value(&self) -> DirectiveValue {
        if self.is_empty() {
            return DirectiveValue::Absent;
        }
        DirectiveValue::Words(self.iter().map(Textual::bytes).collect())
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Words(words) => {
                *self = words.into_iter().map(String::from_bytes).collect()
            }
            other => unreachable!("addresses do not make {other:?}"),
        }
    }
}

impl Field for Vec<Network> {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::Networks(self.clone())
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Networks(networks) => *self = networks,
            other => unreachable!("networks do not make {other:?}"),
        }
    }
}

/// Each line adds a pair; the field as a whole has no text.
impl Field for Vec<(Vec<u8>, Vec<u8>)> {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::Absent
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Words(words) => {
                let pair: [Vec<u8>; 2] = words.try_into().expect("a rename has two words");
                self.push(pair.into());
            }
            other => unreachable!("a rename does not make {other:?}"),
        }
    }
}

impl Field for OutputLimit {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::Limit(*self)
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::Limit(limit) => *self = limit,
            other => unreachable!("an output limit does not make {other:?}"),
        }
    }
}

/// What is put in changes the lines of its globs. How many there are is checked afterwards.
impl Field for Policies {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::PolicyLines(self.lines().to_vec())
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::PolicyLine(line) => self.set(*line),
            DirectiveValue::PolicyLines(lines) => lines.into_iter().for_each(|line| self.set(line)),
            other => unreachable!("a policy does not make {other:?}"),
        }
    }
}

/// What is put in changes the users of its names. How many there are is checked afterwards.
impl Field for Users {
    fn value(&self) -> DirectiveValue {
        DirectiveValue::UserLines(self.lines())
    }

    fn put(&mut self, value: DirectiveValue) {
        match value {
            DirectiveValue::UserLine(line) => self.set(line),
            DirectiveValue::UserLines(lines) => lines.into_iter().for_each(|line| self.set(line)),
            other => unreachable!("a user does not make {other:?}"),
        }
    }
}

/// A field that is one of several names.
pub trait Choice: Copy + PartialEq + Sized + 'static {
    /// The values in the order of `NAMES`.
    const ALL: &'static [Self];
    const NAMES: &'static [&'static str];

    fn name(self) -> &'static str {
        let at = Self::ALL.iter().position(|&value| value == self);
        Self::NAMES[at.expect("every value stands in ALL")]
    }
}

macro_rules! choice_field {
    ($($choice:ty: $($value:ident = $name:literal),+;)*) => {$(
        impl Choice for $choice {
            const ALL: &'static [Self] = &[$(Self::$value),+];
            const NAMES: &'static [&'static str] = &[$($name),+];
        }

        impl Field for $choice {
            fn value(&self) -> DirectiveValue {
                DirectiveValue::Text(self.name().into())
            }

            fn put(&mut self, value: DirectiveValue) {
                let DirectiveValue::Text(name) = value else {
                    unreachable!("a choice does not make {value:?}");
                };
                let at = Self::NAMES.iter().position(|known| known.as_bytes() == name);
                *self = Self::ALL[at.expect("the form admits listed names only")];
            }
        }
    )*};
}
choice_field! {
    LogLevel: Debug = "debug", Verbose = "verbose", Notice = "notice", Warning = "warning";
    SyslogFacility: User = "user", Local0 = "local0", Local1 = "local1", Local2 = "local2",
        Local3 = "local3", Local4 = "local4", Local5 = "local5", Local6 = "local6",
        Local7 = "local7";
    MaxmemoryPolicy: Acks = "acks", NoEviction = "noeviction";
    RetryFrom: Queue = "queue", Delivery = "delivery";
    AppendFsync: Always = "always", EverySec = "everysec", No = "no";
}
