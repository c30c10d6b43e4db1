//! Passwords of users as files keep them: by their SHA-256, as Redis does.
//!
//! Who reads the file, or a copy of it, has no password. There is neither salt nor repetition, so
//! that a login costs next to nothing: a password has to be long and drawn at random, as
//! those of programs are, for nobody to find it by trying.

use core::fmt;
use core::hint;

use sha2::{Digest as _, Sha256};

/// Bytes of a hash.
const LEN: usize = 32;
/// What stands in front of a hash that is written.
const PREFIX: &[u8] = b"sha256:";

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash([u8; LEN]);

impl PasswordHash {
    /// That of no password: nobody knows of any that has it.
    pub const NONE: Self = Self([0; LEN]);

    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Reads `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        if digits.len() != 2 * LEN {
            return None;
        }
        let mut bytes = [0; LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            for digit in pair {
                let digit = char::from(*digit).to_digit(16)?;
                *byte = *byte << 4 | u8::try_from(digit).ok()?;
            }
        }
        Some(Self(bytes))
    }

    /// Compares in the same time wherever the first difference is.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |sum, (one, other)| hint::black_box(sum | (one ^ other))) == 0
    }
}

/// What [`PasswordHash::parse`] reads.
impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `secret`, as `printf secret | sha256sum` has it.
    const SECRET: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_hash_is_that_of_other_programs_and_reads_back() {
        let hash = PasswordHash::of(b"secret");
        assert_eq!(hash.to_string(), SECRET);
        assert_eq!(PasswordHash::parse(SECRET.as_bytes()), Some(hash.clone()));
        let upper = SECRET.to_uppercase().replace("SHA256", "sha256");
        assert_eq!(PasswordHash::parse(upper.as_bytes()), Some(hash.clone()));
        assert!(!format!("{hash:?}").contains("2bb80d"));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let short = &SECRET[..SECRET.len() - 1];
        for text in ["", "secret", &SECRET[7..], short, &format!("{SECRET}0"), &format!("{short}g")]
        {
            assert_eq!(PasswordHash::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn hashes_are_the_same_in_every_bit() {
        let hash = PasswordHash::of(b"secret");
        assert!(hash.is_same(&PasswordHash::of(b"secret")));
        for bit in 0..8 * LEN {
            let mut other = hash.clone();
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!hash.is_same(&other));
        }
    }
}
