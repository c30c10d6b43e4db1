//! Reading a command's arguments behind the fixed ones: options in any order and case.

use crate::base::limits::QUEUE_NAME_MAX;
use crate::base::number::parse_i64;
use crate::base::time::MonoMs;
use crate::proto::priority::Priority;
use crate::proto::request::Args;

use super::error::CommandError;

/// A cursor over the arguments of a command.
pub struct Arguments<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Arguments<'a> {
    /// Begins at a place, counted from the command's name.
    pub fn new(args: Args<'a>, at: usize) -> Self {
        Self { args, at }
    }

    /// The argument that an option needs behind it.
    pub fn value(&mut self) -> Result<&'a [u8], CommandError> {
        self.next().ok_or(CommandError::Syntax)
    }

    /// The number that an option needs behind it, at least `min`; `error` names the option.
    pub fn number(&mut self, min: i64, error: CommandError) -> Result<u64, CommandError> {
        match parse_i64(self.value()?) {
            Some(number) if number >= min => Ok(number.unsigned_abs()),
            _ => Err(error),
        }
    }

    /// As [`Arguments::number`], kept at the maximum of 32 bits, where a number that is not there
    /// is the same error.
    pub fn named_number(&mut self, min: i64, error: CommandError) -> Result<u32, CommandError> {
        match self.next().and_then(parse_i64) {
            Some(number) if number >= min => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
            _ => Err(error),
        }
    }

    /// The priority that an option needs behind it.
    pub fn priority(&mut self) -> Result<Priority, CommandError> {
        let number = self.number(0, CommandError::Priority)?;
        let priority = u8::try_from(number).ok().and_then(Priority::new);
        priority.ok_or(CommandError::Priority)
    }

    /// Where the next argument stands, counted from the command's name.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let argument = self.args.get(self.at)?;
        self.at += 1;
        Some(argument)
    }
}

/// Whether an argument is an option or keyword, in any case.
pub fn is(argument: &[u8], name: &str) -> bool {
    argument.eq_ignore_ascii_case(name.as_bytes())
}

/// The name of a queue that may come into being.
///
/// Differs from C, which has no limit: a name that fills a frame of the bus beside the body
/// could never be sent to a peer.
pub fn queue_name(argument: &[u8]) -> Result<&[u8], CommandError> {
    if argument.len() > QUEUE_NAME_MAX { Err(CommandError::QueueNameTooLong) } else { Ok(argument) }
}

/// A timeout argument in milliseconds, as the time at which it ends; 0 never does.
pub fn deadline(argument: &[u8], now: MonoMs) -> Result<MonoMs, CommandError> {
    match parse_i64(argument).ok_or(CommandError::TimeoutNotAnInteger)? {
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
