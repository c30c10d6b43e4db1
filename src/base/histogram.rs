//! Histograms with fixed bounds, for what is counted all the time: a note is one addition to
//! one of a handful of buckets, and nothing is ever forgotten.

/// The bounds of the durations of commands and of syncs, in us.
pub const DURATION_BOUNDS_US: [u64; 11] =
    [100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 100_000, 1_000_000, u64::MAX];

/// Durations, in us.
pub type DurationHistogram = Histogram<{ DURATION_BOUNDS_US.len() }>;

/// How often a value was not above each of `N` bounds, and above the one before. The last bound
/// is `u64::MAX`, so that every value has its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const N: usize> {
    counts: [u64; N],
    sum: u64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Histogram<N> {
    /// Nothing was noted yet.
    pub const fn new() -> Self {
        Self { counts: [0; N], sum: 0 }
    }

    /// Notes a value. The bounds rise, are the same each time, and end with `u64::MAX`.
    pub fn note(&mut self, bounds: &[u64; N], value: u64) {
        let buckets = bounds.iter().zip(&mut self.counts);
        if let Some((_, count)) = buckets.into_iter().find(|(bound, _)| value <= **bound) {
            *count += 1;
            self.sum = self.sum.saturating_add(value);
        }
    }

    /// Returns how many values there were up to each bound, the ones below included.
    pub fn up_to(&self) -> [u64; N] {
        let mut total = 0;
        self.counts.map(|count| {
            total += count;
            total
        })
    }

    /// Returns how many values were noted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_at_its_bound_and_at_all_above() {
        const BOUNDS: [u64; 3] = [10, 100, u64::MAX];
        let mut histogram = Histogram::default();
        for value in [0, 10, 11, 100, 101, u64::MAX] {
            histogram.note(&BOUNDS, value);
        }
        assert_eq!(histogram.up_to(), [2, 4, 6]);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }
}
