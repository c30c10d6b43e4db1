//! Random numbers from one seed: the same seed draws the same numbers.
//!
//! ChaCha8 rather than a faster generator, because job IDs come from it and a
//! client that has seen many IDs must not be able to predict the next one.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

pub struct Rng(ChaCha8Rng);

impl Rng {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A number in `0..bound`, by multiplication: the bias is below `bound` / 2^32.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "there is nothing below 0 to draw");
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// An index into a slice of `len` elements; see [`Rng::below`].
    pub fn index(&mut self, len: usize) -> usize {
        self.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let draw = |seed| {
            let mut rng = Rng::from_seed([seed; 32]);
            (rng.next_u64(), rng.bytes::<18>(), rng.below(500))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn below_covers_its_range_and_nothing_else() {
        let mut rng = Rng::from_seed([3; 32]);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[rng.index(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
