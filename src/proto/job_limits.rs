//! What a producer says of a job's failing, in the place of the policy of its queue. Attribute 2
//! of a job.
//!
//! ```text
//! 0   u32  how often it may be delivered, little endian; the highest number where the policy
//!          says it
//! 4        the name of its dead queue, up to the end; nothing where the policy says it
//! ```
//!
//! What is malformed says nothing.

/// Longest name of a dead queue, in bytes.
pub const DEAD_QUEUE_MAX: usize = 255;

const NOT_SAID: u32 = u32::MAX;

/// The limits of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits<'a> {
    /// How often it is delivered before it is dead; 0 is without end.
    pub max_deliveries: Option<u16>,
    /// Where it goes then; at most [`DEAD_QUEUE_MAX`] bytes, and not empty.
    pub dead_queue: Option<&'a [u8]>,
}

impl<'a> Limits<'a> {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As the value of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let number = self.max_deliveries.map_or(NOT_SAID, u32::from);
        [&number.to_le_bytes(), self.dead_queue.unwrap_or_default()].concat()
    }

    /// What a value says.
    pub fn decode(value: &'a [u8]) -> Self {
        let Some((number, name)) = value.split_first_chunk() else { return Self::default() };
        Self {
            max_deliveries: u16::try_from(u32::from_le_bytes(*number)).ok(),
            dead_queue: Some(name).filter(|name| (1..=DEAD_QUEUE_MAX).contains(&name.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_back_and_what_is_malformed_says_nothing() {
        let name = [b'x'; 255];
        for max_deliveries in [None, Some(0), Some(1), Some(u16::MAX)] {
            for dead_queue in [None, Some(&b"d"[..]), Some(&name[..])] {
                let limits = Limits { max_deliveries, dead_queue };
                assert_eq!(Limits::decode(&limits.encode()), limits);
            }
        }
        assert_eq!(Limits::decode(b"\x01\0\0"), Limits::default());
        assert!(Limits::decode(&[&[255; 4][..], &[b'x'; 256]].concat()).is_empty());
    }
}
