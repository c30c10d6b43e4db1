//! `disque-server --test-memory`: writes patterns over a block of memory and reads them
//! back. Finds broken memory that has the luck to lie in the block; for certainty, test
//! a machine that runs nothing else, for hours.

use std::hint::black_box;
use std::io::{self, Write};

/// Times that every pattern is tried. C: the same 50.
const PASSES: usize = 50;
const WORDS_PER_MEGABYTE: usize = 1024 * 1024 / size_of::<u64>();

/// What a word of the block is to hold, by its place and the pass.
type Pattern = fn(place: u64, pass: u64) -> u64;

const PATTERNS: [(&str, Pattern); 5] = [
    ("addresses", |place, _| place),
    ("random bits", |place, pass| scramble(place ^ pass << 48)),
    ("solid bits", |place, _| if place.is_multiple_of(2) { 0 } else { u64::MAX }),
    (
        "checkers",
        |place, _| if place.is_multiple_of(2) { 0x5555_5555_5555_5555 } else { !0 / 3 * 2 },
    ),
    ("walking bit", |place, pass| 1 << ((place + pass) % 64)),
];

/// Tests so many megabytes, telling about it on `out`. `Ok(false)` when a word came back
/// other than it was written.
pub fn run(megabytes: usize, out: &mut impl Write) -> io::Result<bool> {
    let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
    let words = megabytes.checked_mul(WORDS_PER_MEGABYTE).ok_or_else(too_much)?;
    let mut block: Vec<u64> = Vec::new();
    block.try_reserve_exact(words).map_err(|_| too_much())?;
    block.resize(words, 0);
    for pass in 0..PASSES {
        write!(out, "Pass {} of {PASSES}:", pass + 1)?;
        for (name, pattern) in PATTERNS {
            write!(out, " {name}")?;
            out.flush()?;
            if let Some(place) = first_fault(&mut block, pattern, pass as u64) {
                writeln!(
                    out,
                    "\nMEMORY ERROR at word {place} of the block. This machine is broken."
                )?;
                return Ok(false);
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "No fault found in {megabytes} megabytes.")?;
    Ok(true)
}

/// Fills the block, then reads it; the first place that does not hold what was written.
fn first_fault(block: &mut [u64], pattern: Pattern, pass: u64) -> Option<usize> {
    for (place, word) in block.iter_mut().enumerate() {
        *word = pattern(place as u64, pass);
    }
    // Without this the compiler may see that the words just written are read.
    black_box(&mut *block)
        .iter()
        .enumerate()
        .position(|(place, &word)| word != pattern(place as u64, pass))
}

/// Spreads a number over all bits (the finisher of SplitMix64).
fn scramble(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_memory_passes_every_pass() {
        let mut out = Vec::new();
        assert!(run(1, &mut out).expect("a vector takes what is written"));
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("Pass 50 of 50:"), "{text}");
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(run(usize::MAX, &mut Vec::new()).is_err());
    }
}
