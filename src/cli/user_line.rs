//! `user-line`: the line of the configuration for a user, with the hash of a password.
//!
//! The password is asked for on the terminal and stands nowhere else: not on the command line, which
//! others can see, and not in what is printed.

use super::failure::Failure;
use super::options::CliOptions;
use super::terminal;
use crate::base::limits::PASSWORD_MAX;
use crate::base::password::PasswordHash;
use crate::manual::Roles;
use crate::proto::quoting;

const USAGE: &str = "user-line takes NAME ROLE[,ROLE ...] [GLOB ...]; roles are produce, consume, \
                     watch, operate and admin.";

/// Asks for a password and prints the line of a user that has it.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let words = words_of(&options.command)?;
    let password = terminal::ask_password()?;
    if password.is_empty() || password.len() > PASSWORD_MAX {
        return Err(Failure::Message(format!("A password has 1 to {PASSWORD_MAX} bytes.")));
    }
    terminal::print(line(&words, &PasswordHash::of(&password)))?;
    Ok(0)
}

/// What the line is to say beside the password.
#[derive(Debug, PartialEq, Eq)]
struct LineWords<'a> {
    name: &'a [u8],
    roles: Roles,
    globs: &'a [Vec<u8>],
}

fn words_of(words: &[Vec<u8>]) -> Result<LineWords<'_>, Failure> {
    let read = match words {
        [name, roles, globs @ ..] => {
            Roles::parse(roles).map(|roles| LineWords { name, roles, globs })
        }
        _ => None,
    };
    read.ok_or_else(|| Failure::Message(USAGE.to_owned()))
}

fn line(words: &LineWords<'_>, password: &PasswordHash) -> Vec<u8> {
    let mut line = b"user ".to_vec();
    line.extend(quoting::quote_if_needed(words.name));
    line.extend_from_slice(format!(" {password} {}", words.roles).as_bytes());
    for glob in words.globs {
        line.push(b' ');
        line.extend(quoting::quote_if_needed(glob));
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_line_has_the_hash_and_what_is_to_be_quoted() {
        let words = [words("ann Consume,produce mail*"), vec![b"a b".to_vec()]].concat();
        let words = words_of(&words).expect("right");
        let line = String::from_utf8(line(&words, &PasswordHash::of(b"secret"))).expect("text");
        let hash = PasswordHash::of(b"secret");
        assert_eq!(line, format!("user ann {hash} produce,consume mail* \"a b\"\n"));
    }

    #[test]
    fn a_name_and_roles_have_to_be_there() {
        for wrong in ["ann", "ann root", "ann produce,", "ann mail* produce"] {
            let failure = words_of(&words(wrong)).expect_err(wrong);
            assert_eq!(failure.to_string(), USAGE);
        }
    }
}
