//! How urgent a job is, as three of its flags say it.

use super::extensions::job_flag;

/// Bits 8, 16 and 32 of a job's flags: (4 - priority) mod 8. So a job of a C node, which leaves
/// them alone and passes them on, has the default.
const FLAGS_SHIFT: u32 = 3;
const FLAGS_MASK: u8 = job_flag::PRIORITY;

/// A job's priority within its queue: 1 goes first, 7 last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u8);

impl Priority {
    pub const FIRST: Self = Self(1);
    /// That of a job of which nothing is said.
    pub const DEFAULT: Self = Self(4);
    pub const LAST: Self = Self(7);

    /// `None` for a number that is no priority.
    pub const fn new(number: u8) -> Option<Self> {
        if Self::FIRST.0 <= number && number <= Self::LAST.0 { Some(Self(number)) } else { None }
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// What a job's flags say. The value that no priority has is read as the default.
    pub const fn of_flags(flags: u8) -> Self {
        match (flags & FLAGS_MASK) >> FLAGS_SHIFT {
            below @ 1..=3 => Self(4 - below),
            above @ 5..=7 => Self(12 - above),
            _ => Self::DEFAULT,
        }
    }

    /// The flags of a job that gets this priority.
    pub const fn in_flags(self, flags: u8) -> u8 {
        let value = (12 - self.0) & (FLAGS_MASK >> FLAGS_SHIFT);
        (flags & !FLAGS_MASK) | (value << FLAGS_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_the_priority_and_keep_the_rest() {
        for number in 1..=7 {
            let priority = Priority::new(number).expect("it is one");
            for flags in 0..=u8::MAX {
                let with = priority.in_flags(flags);
                assert_eq!(Priority::of_flags(with), priority);
                assert_eq!(with & !FLAGS_MASK, flags & !FLAGS_MASK);
                assert_eq!(with & FLAGS_MASK, ((12 - number) % 8) << 3, "(4 - p) mod 8");
            }
        }
        assert_eq!([Priority::new(0), Priority::new(8)], [None, None]);
    }

    #[test]
    fn a_job_of_a_c_node_and_the_unused_value_have_the_default() {
        assert_eq!(Priority::of_flags(0b1000_0111), Priority::DEFAULT);
        assert_eq!(Priority::of_flags(0b10_0000), Priority::DEFAULT);
        assert_eq!(Priority::DEFAULT.in_flags(0), 0);
    }
}
