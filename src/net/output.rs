//! What a socket did not take yet.
//!
//! Bytes go to the socket straight from where they were written (the reply arena,
//! the frames of a turn); only what it refuses is copied here and waits for the
//! writable event. While anything waits, later bytes queue up behind it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use super::stream::Stream;

/// Parts handed to the kernel in one call. Linux takes 1024.
const PARTS_MAX: usize = 64;
/// A block of unsent bytes takes no more behind it once it has so many.
const BLOCK_FULL: usize = 64 * 1024;

/// One connection's unsent bytes, in blocks, so that many of them are neither copied as
/// they get more, nor kept when they are sent.
#[derive(Default)]
pub struct Output {
    blocks: VecDeque<Vec<u8>>,
    /// How many bytes of the first block are sent.
    sent: usize,
    /// How many bytes wait.
    len: usize,
}

impl Output {
    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How much memory they take.
    pub fn capacity(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum()
    }

    /// Sends `parts` in order, behind what waits; returns how many bytes the socket took.
    pub fn send<'a>(
        &mut self,
        stream: &mut Stream,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        let mut written = 0;
        let mut parts = parts.peekable();
        let Some(mut first) = parts.next() else { return Ok(0) };
        // Mostly there is one, and no array has to be filled.
        if parts.peek().is_none() {
            return self.send_slices(stream, &[IoSlice::new(first)]);
        }
        loop {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            slices[0] = IoSlice::new(first);
            let mut count = 1;
            for (slice, part) in slices.iter_mut().skip(1).zip(&mut parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            written += self.send_slices(stream, &slices[..count])?;
            match parts.next() {
                Some(part) => first = part,
                None => return Ok(written),
            }
        }
    }

    fn send_slices(&mut self, stream: &mut Stream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match parts {
            _ if !self.is_empty() => 0,
            [part] => stream.write(part)?,
            parts => stream.write_vectored(parts)?,
        };
        let mut skip = written;
        for part in parts {
            let rest = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            self.keep(rest);
        }
        // Not before a write is refused altogether is it certain that a writable event
        // comes: mio's poll(2) backend watches for it from then on only.
        if written > 0 && !self.is_empty() {
            return Ok(written + self.flush(stream)?);
        }
        Ok(written)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len += bytes.len();
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK_FULL => last.extend_from_slice(bytes),
            _ => self.blocks.push_back(bytes.to_vec()),
        }
    }

    /// Sends what waits, now that the socket is writable; returns how many bytes it took.
    pub fn flush(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let mut written = 0;
        while let Some(first) = self.blocks.front() {
            let len = stream.write(&first[self.sent..])?;
            if len == 0 {
                break;
            }
            self.sent += len;
            self.len -= len;
            written += len;
            if self.sent == first.len() {
                self.blocks.pop_front();
                self.sent = 0;
            }
        }
        if self.is_empty() {
            *self = Self::default();
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Stream) {
        let (far, near) = UnixStream::pair().expect("a socket pair");
        near.set_nonblocking(true).expect("non-blocking");
        (far, Stream::Unix(mio::net::UnixStream::from_std(near)))
    }

    #[test]
    fn parts_arrive_in_order_however_little_the_socket_takes() {
        let (mut far, mut near) = pair();
        let mut output = Output::default();
        let parts: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; 5000]).collect();
        let total = parts.len() * 5000;
        let mut sent = output.send(&mut near, parts.iter().map(Vec::as_slice)).expect("send");
        assert_eq!(sent + output.len(), total);
        assert!(!output.is_empty(), "the socket cannot hold a million bytes");
        sent += output.send(&mut near, [b"end".as_slice()].into_iter()).expect("send");
        let mut got = vec![0; total + 3];
        let mut len = 0;
        while len < got.len() {
            len += far.read(&mut got[len..]).expect("read");
            sent += output.flush(&mut near).expect("flush");
        }
        assert_eq!(sent, total + 3);
        assert_eq!(got, [parts.concat(), b"end".to_vec()].concat());
        assert_eq!(output.capacity(), 0);
    }
}
