//! The names under which commands are found: their own, or those that rename-command gives.
//!
//! A name is looked up once a request, so the names are a small open hash of what differs
//! most between them: length, first and last letter. Renamed commands are found under
//! their new name only; everything else knows them by their own.
//!
//! A proxy, or a server that has other stores beside, may want names that tell whose they are.
//! So where no command has a name, `DISQUE.NAME` and `DISQUE NAME` are the command of that name.

use crate::manual;

/// The name of each command, in lower case, and its place in the manual.
pub struct CommandNames {
    names: Vec<(Box<[u8]>, usize)>,
    /// Numbers of names by hash; a taken place means the next one.
    index: [u8; INDEX_LEN],
}

const INDEX_LEN: usize = 256;
const VACANT: u8 = u8::MAX;

impl CommandNames {
    /// The names after renaming, in order, old names to new ones; an empty new name takes
    /// the command away. An error says which pair makes no sense.
    pub fn new(renames: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, String> {
        let names = manual::all().map(|command| command.name.as_bytes().into()).zip(0..);
        let mut names = Self { names: names.collect(), index: [VACANT; INDEX_LEN] };
        names.rename(renames)?;
        names.build_index();
        Ok(names)
    }

    fn rename(&mut self, renames: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        for (old, new) in renames {
            let number_of = |name: &[u8]| {
                self.names.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))
            };
            let number = number_of(old).ok_or_else(|| {
                format!("rename-command: no such command '{}'", old.escape_ascii())
            })?;
            if new.is_empty() {
                self.names.remove(number);
            } else if number_of(new).is_none() {
                self.names[number].0 = new.to_ascii_lowercase().into();
            } else {
                return Err(format!(
                    "rename-command: there is a command '{}' already",
                    new.escape_ascii()
                ));
            }
        }
        Ok(())
    }

    fn build_index(&mut self) {
        assert!(self.names.len() < INDEX_LEN / 2, "the index stays sparse");
        for (number, (name, _)) in self.names.iter().enumerate() {
            let mut at = hash(name);
            while self.index[at] != VACANT {
                at = (at + 1) % INDEX_LEN;
            }
            self.index[at] = number as u8;
        }
    }

    /// The place of a command, whatever the case of its name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let mut at = hash(name);
        loop {
            let number = self.index[at];
            if number == VACANT {
                return None;
            }
            let (known, place) = &self.names[usize::from(number)];
            if known.eq_ignore_ascii_case(name) {
                return Some(*place);
            }
            at = (at + 1) % INDEX_LEN;
        }
    }

    /// The places of the commands that are there, in their order.
    pub fn places(&self) -> impl ExactSizeIterator<Item = usize> {
        self.names.iter().map(|&(_, place)| place)
    }
}

/// Whose commands these are.
const OWNER: &[u8] = b"disque";

/// Whether a word says whose the command is that stands behind it.
pub fn is_owner(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(OWNER)
}

/// The name in `DISQUE.NAME`.
pub fn without_owner(name: &[u8]) -> Option<&[u8]> {
    let (owner, rest) = name.split_at_checked(OWNER.len())?;
    rest.strip_prefix(b".").filter(|_| is_owner(owner))
}

/// The name in `DISQUE.NAME` or `DISQUE NAME`, and at which of a request's arguments it stands.
pub fn name_behind_owner<'a>(
    argument: impl Fn(usize) -> Option<&'a [u8]>,
) -> Option<(&'a [u8], usize)> {
    let first = argument(0)?;
    if is_owner(first) {
        return argument(1).map(|name| (name, 1));
    }
    without_owner(first).map(|name| (name, 0))
}

/// Something different for nearly every name, whatever its case.
fn hash(name: &[u8]) -> usize {
    let letter = |byte: Option<&u8>| usize::from(byte.map_or(0, |byte| byte | 0x20));
    (name.len() * 61 + letter(name.first()) * 7 + letter(name.last()) * 29) % INDEX_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(renames: &[(&str, &str)]) -> Result<CommandNames, String> {
        let pair = |(old, new): &(&str, &str)| (old.as_bytes().to_vec(), new.as_bytes().to_vec());
        CommandNames::new(&renames.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        let names = renamed(&[]).expect("nothing is renamed");
        for (place, command) in manual::all().enumerate() {
            for name in [command.name.to_uppercase(), command.name.to_owned()] {
                assert_eq!(names.find(name.as_bytes()), Some(place));
            }
        }
        assert_eq!(names.find(b"nosuch"), None);
        assert_eq!(names.find(b""), None);
    }

    #[test]
    fn a_renamed_command_has_its_new_name_only() {
        let names = renamed(&[("TIME", "clock"), ("ping", "")]).expect("both are there");
        assert_eq!(names.find(b"time"), None);
        assert_eq!(names.find(b"ping"), None);
        let time = manual::all().position(|command| command.name == "time");
        assert_eq!(names.find(b"CLOCK"), time);
    }

    #[test]
    fn a_name_may_stand_behind_its_owner() {
        let split = |line: &'static str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            name_behind_owner(move |at| words.get(at).copied())
        };
        assert_eq!(split("Disque.Ping x"), Some((&b"Ping"[..], 0)));
        assert_eq!(split("DISQUE ping"), Some((&b"ping"[..], 1)));
        assert_eq!(split("disque."), Some((&b""[..], 0)));
        for other in ["ping", "disque", "disque_ping x", "disqueping", "xdisque.ping", ""] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn senseless_renames_are_refused() {
        assert!(renamed(&[("nosuch", "x")]).is_err());
        assert!(renamed(&[("time", "ping")]).is_err());
    }
}
