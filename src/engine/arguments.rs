//! Reading a command's words after the fixed ones: options in any order and case.

use crate::base::number::parse_i64;
use crate::base::time::MonoMs;
use crate::proto::request::Args;

use super::error::CommandError;

/// A cursor over words.
pub struct Options<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Options<'a> {
    /// Begins at a word of the command, counted from its name.
    pub fn new(args: Args<'a>, at: usize) -> Self {
        Self { args, at }
    }

    /// The next word, if there is one.
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.args.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The word that an option needs behind it.
    pub fn value(&mut self) -> Result<&'a [u8], CommandError> {
        self.word().ok_or(CommandError::Syntax)
    }

    /// The number that an option needs behind it, at least `min`; `error` names the option.
    pub fn number(&mut self, min: i64, error: CommandError) -> Result<u64, CommandError> {
        match parse_i64(self.value()?) {
            Some(number) if number >= min => Ok(number.unsigned_abs()),
            _ => Err(error),
        }
    }

    /// Where the next word stands, counted from the command's name.
    pub fn position(&self) -> usize {
        self.at
    }
}

/// Whether a word is an option or keyword, in any case.
pub fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// A timeout argument in milliseconds, as the time at which it ends; 0 never does.
pub fn deadline(word: &[u8], now: MonoMs) -> Result<MonoMs, CommandError> {
    match parse_i64(word).ok_or(CommandError::TimeoutNotAnInteger)? {
        0 => Ok(MonoMs::NEVER),
        ms => {
            u64::try_from(ms).map(|ms| now.plus_ms(ms)).map_err(|_| CommandError::TimeoutNegative)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_zero_never_ends_and_a_negative_one_is_refused() {
        assert_eq!(deadline(b"0", MonoMs(5)), Ok(MonoMs::NEVER));
        assert_eq!(deadline(b"10", MonoMs(5)), Ok(MonoMs(15)));
        assert_eq!(deadline(b"-1", MonoMs(5)), Err(CommandError::TimeoutNegative));
        assert_eq!(deadline(b"1x", MonoMs(5)), Err(CommandError::TimeoutNotAnInteger));
    }
}
