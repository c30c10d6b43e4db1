//! A cursor that cannot run past the end, and the reasons a decoder gives up.
//!
//! Every read shortens the slice or fails. The decoders of the bus, of job records and
//! of the append only file are built on it.

use std::fmt;

use crate::base::ids::{JOB_ID_LEN, JobId, NodeId};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does.
    Truncated,
    /// A length is over its limit.
    TooLong,
    /// Bytes are left after the value.
    TrailingBytes,
    /// A bus frame does not start with `DbuZ`.
    BadSignature,
    /// A bus frame of a version other than 1.
    BadVersion(u16),
    /// A bus message of a type this version does not know.
    UnknownType(u16),
    /// A length that does not agree with the bytes around it.
    BadLength,
    /// A count that does not agree with the bytes around it.
    BadCount,
    /// An address that is none.
    BadAddress,
    /// A node ID that is not letters and digits.
    BadNodeId,
    /// A job ID without the fixed characters.
    BadJobId,
    /// A job state that there is not.
    BadState(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end too early"),
            Self::TooLong => f.write_str("a length is over its limit"),
            Self::TrailingBytes => f.write_str("there are bytes left over"),
            Self::BadSignature => f.write_str("wrong signature"),
            Self::BadVersion(version) => write!(f, "unknown version {version}"),
            Self::UnknownType(kind) => write!(f, "unknown message type {kind}"),
            Self::BadLength => f.write_str("a length does not agree with the bytes"),
            Self::BadCount => f.write_str("a count does not agree with the bytes"),
            Self::BadAddress => f.write_str("an address is not an IP address"),
            Self::BadNodeId => f.write_str("a node ID is not 40 letters and digits"),
            Self::BadJobId => f.write_str("a job ID is malformed"),
            Self::BadState(state) => write!(f, "unknown job state {state}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The bytes not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Takes a little-endian number; so do the others that end in `_le`.
    pub fn u16_le(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// See [`Reader::u16_le`].
    pub fn u32_le(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// See [`Reader::u16_le`].
    pub fn u64_le(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes a big-endian number; so do the others that end in `_be`.
    pub fn u16_be(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// See [`Reader::u16_be`].
    pub fn u32_be(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// See [`Reader::u16_be`].
    pub fn u64_be(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes 40 bytes as a node ID, unchecked: for IDs that are only looked up.
    pub fn node_id(&mut self) -> Result<NodeId, DecodeError> {
        Ok(NodeId(self.array()?))
    }

    /// Takes a job ID and checks its fixed characters.
    pub fn job_id(&mut self) -> Result<JobId, DecodeError> {
        JobId::parse(&self.array::<JOB_ID_LEN>()?).ok_or(DecodeError::BadJobId)
    }

    /// Takes a little-endian 32-bit length and that many bytes. The limit is checked
    /// before the bytes are searched for, so a wrong length costs nothing.
    pub fn bytes_le(&mut self, len_max: usize) -> Result<&'a [u8], DecodeError> {
        match usize::try_from(self.u32_le()?) {
            Ok(len) if len <= len_max => self.take(len),
            _ => Err(DecodeError::TooLong),
        }
    }

    /// Takes everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns how many bytes are left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_shorten_the_slice_or_fail() {
        let mut reader = Reader::new(&[1, 2, 0, 0, 0, 3, 9]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16_le(), Ok(2));
        assert_eq!(reader.u32_le(), Ok(0x0903_0000));
        assert_eq!(reader.u8(), Err(DecodeError::Truncated));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_lying_length_is_refused_before_its_bytes_are_looked_for() {
        let bytes = [0xff, 0xff, 0xff, 0xff, b'a'];
        assert_eq!(Reader::new(&bytes).bytes_le(1000), Err(DecodeError::TooLong));
        let bytes = [2, 0, 0, 0, b'a'];
        assert_eq!(Reader::new(&bytes).bytes_le(1000), Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_left_over_are_an_error() {
        assert_eq!(Reader::new(b"x").finish(), Err(DecodeError::TrailingBytes));
    }
}
