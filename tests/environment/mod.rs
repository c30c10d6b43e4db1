//! How much of a test the environment asks for, as in `SEEDS=10000`.
//!
//! A value that is no number is an error and not the default, and so is none at all of
//! something: a test of nothing would pass.

use std::env;

/// The number in a variable; `None` where it is not set.
///
/// # Panics
/// When it is something else.
pub fn number(name: &str) -> Option<u64> {
    let text = env::var_os(name)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name} is a number, not {text:?}")))
}

/// How many a variable asks for, or else the default.
///
/// # Panics
/// When it asks for none.
pub fn count(name: &str, default: u64) -> u64 {
    let count = number(name).unwrap_or(default);
    assert!(count > 0, "{name}=0 would test nothing");
    count
}
