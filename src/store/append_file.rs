//! A file that grows at its end, on a disk that may be full.
//!
//! What cannot be written is kept and tried again, from the very byte at which the disk
//! gave up, so nothing is in the file twice and nothing is left out.
//!
//! Where the file has checksums, each record gets its own before it is written.
//!
//! Invariant: `len` bytes are in the file and `unwritten` belong behind them.

use std::io;

use super::aof_sums::SumWriter;
use super::disk::{DiskFile, write_all};
use crate::proto::aof_sum::SumKind;

/// A file that is open for appending, shared with the disk's thread.
pub struct AppendFile<F> {
    file: F,
    len: u64,
    unwritten: Vec<u8>,
    /// Without them, records are written as they are.
    sums: Option<SumWriter>,
}

impl<F: DiskFile> AppendFile<F> {
    /// Goes on behind the `len` bytes of a file.
    pub fn new(file: F, len: u64, sums: Option<SumWriter>) -> Self {
        Self { file, len, unwritten: Vec::new(), sums }
    }

    /// Appends what is still unwritten, then the records, whose sums are filled. On an error,
    /// what could not be written is kept for the next call; an empty one tries again.
    pub fn append(&mut self, records: &mut [u8]) -> io::Result<()> {
        let offset = self.end_offset();
        if let Some(sums) = &mut self.sums {
            sums.fill(records, offset);
        }
        self.write(records)
    }

    /// Appends a carrier for the records behind the last sum; nothing if there are none.
    pub fn cover_gap(&mut self) -> io::Result<()> {
        if self.has_gap() { self.append_carrier(SumKind::Carrier) } else { Ok(()) }
    }

    /// Appends the carrier that closes the file, unless it was closed before.
    pub fn close(&mut self) -> io::Result<()> {
        let is_open = self.sums.as_ref().is_some_and(|sums| !sums.end().is_closed);
        if is_open { self.append_carrier(SumKind::Close) } else { Ok(()) }
    }

    fn append_carrier(&mut self, kind: SumKind) -> io::Result<()> {
        let offset = self.end_offset();
        match &mut self.sums {
            Some(sums) => {
                let carrier = sums.carrier(kind, offset);
                self.write(&carrier)
            }
            None => Ok(()),
        }
    }

    /// Whether there are records that no sum covers yet.
    pub fn has_gap(&self) -> bool {
        self.sums.as_ref().is_some_and(|sums| sums.end().has_gap)
    }

    fn end_offset(&self) -> u64 {
        self.len + self.unwritten.len() as u64
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.unwritten.is_empty() {
            let (written, result) = write_all(&self.file, bytes);
            self.len += written as u64;
            self.unwritten.extend_from_slice(&bytes[written..]);
            result
        } else {
            self.unwritten.extend_from_slice(bytes);
            let (written, result) = write_all(&self.file, &self.unwritten);
            self.len += written as u64;
            if written == self.unwritten.len() {
                // Gives back what a long failure gathered.
                self.unwritten = Vec::new();
            } else {
                self.unwritten.drain(..written);
            }
            result
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn unwritten_len(&self) -> usize {
        self.unwritten.len()
    }

    pub fn file(&self) -> &F {
        &self.file
    }

    /// Lets go of the file; it is for closing.
    pub fn into_file(self) -> F {
        self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::sync::Arc;

    /// A pipe whose writing end refuses what does not fit.
    fn pipe() -> (File, File) {
        let mut ends = [0; 2];
        // SAFETY: pipe2 fills the two numbers, which are ours alone then.
        let (reader, writer) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        (reader.into(), writer.into())
    }

    #[test]
    fn a_write_that_stops_halfway_goes_on_from_there() {
        let (mut reader, writer) = pipe();
        let mut file = AppendFile::new(Arc::new(writer), 0, None);
        let records: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let mut appended = records.clone();
        let (first, rest) = appended.split_at_mut(150_000);
        file.append(first).expect_err("more than a pipe holds");
        assert!(!file.is_empty());
        let mut read = Vec::new();
        let mut chunk = vec![0; 10_000];
        let mut unappended = rest;
        while read.len() < records.len() {
            let len = reader.read(&mut chunk).expect("some");
            read.extend_from_slice(&chunk[..len]);
            let next;
            (next, unappended) = unappended.split_at_mut(unappended.len().min(5_000));
            // Whether it fits does not matter: what does not is kept.
            let _ = file.append(next);
            assert_eq!(
                file.len() + file.unwritten_len() as u64,
                (records.len() - unappended.len()) as u64
            );
        }
        assert!(read == records);
        assert_eq!(file.unwritten_len(), 0);
    }
}
