//! Identifiers: nodes and jobs in their text form, which is also their form on the
//! wire and on disk; clients and links as this process numbers them.

use std::fmt;

pub const NODE_ID_LEN: usize = 40;
pub const JOB_ID_LEN: usize = 40;

/// A node's ID: 40 lower-case hex characters when this server made it; whatever
/// 40 bytes a peer sent otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; NODE_ID_LEN]);

/// A job's ID: `D-` + 8 characters of its creator's node ID + `-` + 24 characters
/// of base64 + `-` + 4 hex digits, the TTL in minutes. The last bit of the digits is 1
/// for at-least-once jobs (retry > 0) and 0 for at-most-once jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub [u8; JOB_ID_LEN]);

/// The characters of base64, by their values.
pub const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HEX: &[u8; 16] = b"0123456789abcdef";
/// The other way round; 64 for a character that is none of them.
const FROM_BASE64: [u8; 256] = {
    let mut table = [64; 256];
    let mut digit = 0;
    while digit < 64 {
        table[BASE64[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// The largest number of minutes that four hex digits can say.
const TTL_MINUTES_MAX: u32 = 0xffff;

/// A connected client. The generation distinguishes a client from an earlier one that
/// had the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    pub slot: u32,
    pub generation: u32,
}

/// A connection of the bus, made or accepted; slot and generation as in [`ClientId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub slot: u32,
    pub generation: u32,
}

impl ClientId {
    /// The number by which clients and operators know it (CLIENT ID), as far as 32 bits have it.
    pub fn number(self) -> u64 {
        u64::from(self.generation) + 1
    }
}

impl NodeId {
    /// An ID of 40 hex digits from 20 random bytes.
    pub fn from_random(random: [u8; 20]) -> Self {
        let mut id = [0; NODE_ID_LEN];
        for (pair, byte) in id.chunks_exact_mut(2).zip(random) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        Self(id)
    }

    /// Takes any 40 bytes; `None` for another length.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.try_into().ok().map(Self)
    }
}

impl JobId {
    /// A new ID. `random` must not be predictable by clients.
    pub fn generate(node: &NodeId, random: [u8; 18], ttl_secs: u32, retry_secs: u32) -> Self {
        let mut id = [0; JOB_ID_LEN];
        id[..2].copy_from_slice(b"D-");
        id[2..10].copy_from_slice(&node.0[..8]);
        id[10] = b'-';
        for (quad, three) in id[11..35].chunks_exact_mut(4).zip(random.chunks_exact(3)) {
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for (i, character) in quad.iter_mut().enumerate() {
                *character = BASE64[(bits >> (18 - 6 * i) & 63) as usize];
            }
        }
        id[35] = b'-';
        let minutes = (ttl_secs / 60).min(TTL_MINUTES_MAX);
        let digits = if retry_secs > 0 { minutes | 1 } else { minutes & !1 };
        for (i, digit) in id[36..].iter_mut().enumerate() {
            *digit = HEX[(digits >> (12 - 4 * i) & 15) as usize];
        }
        Self(id)
    }

    /// The random bytes that [`JobId::generate`] was given; `None` when no 18 bytes read so.
    pub fn random(&self) -> Option<[u8; 18]> {
        let mut random = [0; 18];
        let mut seen = 0;
        for (three, quad) in random.chunks_exact_mut(3).zip(self.0[11..35].chunks_exact(4)) {
            let digits = [quad[0], quad[1], quad[2], quad[3]].map(|c| FROM_BASE64[usize::from(c)]);
            seen |= digits[0] | digits[1] | digits[2] | digits[3];
            let bits = digits.iter().fold(0, |bits, &digit| bits << 6 | u32::from(digit));
            three.copy_from_slice(&bits.to_be_bytes()[1..]);
        }
        (seen < 64).then_some(random)
    }

    /// Checks what C checks: the length and the fixed characters.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; JOB_ID_LEN] = text.try_into().ok()?;
        (id.starts_with(b"D-") && id[10] == b'-' && id[35] == b'-').then_some(Self(id))
    }

    /// The four TTL digits as a number; a character that is no hex digit counts as 0.
    fn ttl_digits(&self) -> u32 {
        self.0[36..].iter().fold(0, |sum, &c| sum << 4 | char::from(c).to_digit(16).unwrap_or(0))
    }

    /// The TTL in minutes that the ID carries, low bit included.
    pub fn ttl_minutes(&self) -> u32 {
        self.ttl_digits()
    }

    /// Whether the ID says that the job may be delivered more than once (retry > 0).
    pub fn is_at_least_once(&self) -> bool {
        self.ttl_digits() & 1 == 1
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeId {
        NodeId::from_random(*b"abcdefghijklmnopqrst")
    }

    #[test]
    fn a_generated_id_has_the_documented_shape() {
        let id = JobId::generate(&node(), [0xff; 18], 86_400, 300);
        assert_eq!(id.to_string(), "D-61626364-////////////////////////-05a1");
        assert_eq!(JobId::parse(&id.0), Some(id));
    }

    #[test]
    fn the_random_bytes_can_be_read_back() {
        for random in [*b"eighteen bytes it ", [0; 18], [0xff; 18]] {
            assert_eq!(JobId::generate(&node(), random, 60, 1).random(), Some(random));
        }
        let id = JobId::parse(b"D-61626364-///////////////////////_-05a1").expect("valid shape");
        assert_eq!(id.random(), None);
    }

    #[test]
    fn the_last_bit_tells_at_least_once_from_at_most_once() {
        let once = JobId::generate(&node(), [7; 18], 86_460, 0);
        assert!(!once.is_at_least_once());
        assert_eq!(once.ttl_minutes(), 1440);
        assert!(JobId::generate(&node(), [7; 18], 59, 1).is_at_least_once());
    }

    #[test]
    fn a_ttl_over_65535_minutes_stays_at_the_largest_digits() {
        let id = JobId::generate(&node(), [7; 18], u32::MAX, 1);
        assert!(id.to_string().ends_with("-ffff"));
    }

    #[test]
    fn only_length_and_fixed_characters_are_checked() {
        assert!(JobId::parse(b"D-________-________________________-zzzz").is_some());
        assert!(JobId::parse(b"D-61626364-////////////////////////-05a").is_none());
        assert!(JobId::parse(b"X-61626364-////////////////////////-05a1").is_none());
        assert!(JobId::parse(b"D-61626364+////////////////////////-05a1").is_none());
        assert!(JobId::parse(b"D-61626364-////////////////////////+05a1").is_none());
    }

    #[test]
    fn ttl_digits_are_read_in_either_case_and_junk_counts_as_zero() {
        let id = JobId::parse(b"D-61626364-////////////////////////-0Ag1").expect("valid shape");
        assert_eq!(id.ttl_minutes(), 0x0a01);
    }
}
