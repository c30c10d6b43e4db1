//! Walks over the replies in an input buffer without copying or allocating.
//!
//! A [`Cursor`] either finds a whole piece and moves past it, or stops and says why:
//! [`Stop::Incomplete`] asks for more bytes and the caller starts the reply again,
//! [`Stop::Malformed`] ends the connection. The peers' readers in `peer.rs` are built
//! from its steps.

/// Why a reply could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// More bytes are needed.
    Incomplete,
    /// These bytes are no reply of this protocol.
    Malformed,
}

/// A place in an input buffer.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes it has moved past.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next byte, which stays unread.
    pub fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    /// A line up to CR LF, without it.
    pub fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let line_len = memchr::memchr(b'\n', rest).ok_or(Stop::Incomplete)?;
        self.at += line_len + 1;
        rest[..line_len].strip_suffix(b"\r").ok_or(Stop::Malformed)
    }

    /// The number of a line such as `$12`, `*-1` or `:3`, which starts with `kind`.
    pub fn header(&mut self, kind: u8) -> Result<i64, Stop> {
        if self.peek()? != kind {
            return Err(Stop::Malformed);
        }
        let line = self.line()?;
        parse_number(&line[1..]).ok_or(Stop::Malformed)
    }

    /// A bulk string; `None` is the null bulk.
    pub fn bulk(&mut self) -> Result<Option<&'a [u8]>, Stop> {
        let Ok(len) = usize::try_from(self.header(b'$')?) else { return Ok(None) };
        self.block(len).map(Some)
    }

    /// So many bytes and the CR LF behind them.
    pub fn block(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = len.checked_add(2).ok_or(Stop::Malformed)?;
        let block = rest.get(..end).ok_or(Stop::Incomplete)?;
        self.at += end;
        block.strip_suffix(b"\r\n").ok_or(Stop::Malformed)
    }

    /// The length of an array whose elements follow; the null array has none.
    pub fn array(&mut self) -> Result<usize, Stop> {
        Ok(usize::try_from(self.header(b'*')?).unwrap_or(0))
    }
}

/// A decimal number with an optional minus, or `None`.
pub fn parse_number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_reply_is_incomplete() {
        let whole = b"*2\r\n$5\r\nhello\r\n$-1\r\n";
        let read = |bytes: &[u8]| -> Result<usize, Stop> {
            let mut cursor = Cursor::new(bytes);
            let len = cursor.array()?;
            for _ in 0..len {
                cursor.bulk()?;
            }
            Ok(cursor.position())
        };
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Err(Stop::Incomplete), "{end} bytes");
        }
        assert_eq!(read(whole), Ok(whole.len()));
    }

    #[test]
    fn the_wrong_kind_and_broken_numbers_are_malformed() {
        for bytes in [&b"+OK\r\n"[..], b"$x\r\n", b"$\r\n", b"$1\n", b"$9999999999999999999\r\n"] {
            assert_eq!(Cursor::new(bytes).bulk(), Err(Stop::Malformed));
        }
        assert_eq!(Cursor::new(b"$1\r\nxyz").bulk(), Err(Stop::Malformed));
    }

    #[test]
    fn numbers_may_be_negative() {
        assert_eq!(parse_number(b"-12"), Some(-12));
        assert_eq!(parse_number(b"120"), Some(120));
        assert_eq!(parse_number(b"1-2"), None);
    }
}
