//! The disk as the append only file sees it.
//!
//! There are two ways to it. What must be done before the turn goes on is asked of a
//! [`DiskFile`] or of the [`Disk`] and is done when the call returns. What may take long is
//! a [`DiskTask`]: it is done later, strictly in the order of the tasks, and an [`DiskEvent`] with
//! its [`Ticket`] tells what became of it. [`super::fsync`] has the system's files and a
//! thread; the simulator of the tests has a disk that fails as it likes.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

/// A file that is open for writing at its end; clones are the same file.
pub trait DiskFile: Clone + Debug {
    /// Writes some of the bytes, and tells how many.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Has what was written survive a loss of power.
    fn sync(&self) -> io::Result<()>;
}

pub trait Disk {
    type File: DiskFile;

    /// Opens or creates a file, to go on at its end; returns its length too. The file has
    /// its name for good when this returns.
    fn open(&mut self, path: &Path) -> io::Result<(Self::File, u64)>;

    /// Creates an empty file that is to take the place of another, whatever had its name
    /// before. Fails when nothing can take that place, because it is a device.
    fn create(&mut self, path: &Path, successor_of: &Path) -> io::Result<Self::File>;

    /// Syncs a file and gives it the name of another, its owner and permissions, durably.
    fn replace(&mut self, file: &Self::File, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&mut self, path: &Path) -> io::Result<()>;

    /// Removes a file so that it is not there after a loss of power either.
    fn remove_for_good(&mut self, path: &Path) -> io::Result<()>;

    /// Reads a small file.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// Tells which file is under a path.
    fn identify(&mut self, path: &Path) -> io::Result<FileIdentity>;

    fn submit(&mut self, task: DiskTask<Self::File>) -> Ticket;

    /// The next event, if there is one by now.
    fn poll(&mut self) -> Option<DiskEvent>;
}

/// Which file it is, and in which state. Who writes to it makes it another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub len: u64,
    pub inode: u64,
    /// Seconds since 1970, and nanoseconds.
    pub written_at: (i64, i64),
}

/// Tells the events of one task from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

#[derive(Debug)]
pub enum DiskTask<F> {
    Write {
        file: F,
        bytes: Vec<u8>,
    },
    Sync(F),
    /// As [`Disk::replace`].
    Replace {
        file: F,
        from: PathBuf,
        to: PathBuf,
    },
    /// Lets go of a file, of which whoever asks keeps no clone: closing the last descriptor
    /// of a large file that has no name any more takes long.
    Close(F),
}

/// What became of a task. Closing makes no event.
#[derive(Debug)]
pub struct DiskEvent {
    pub ticket: Ticket,
    pub result: io::Result<()>,
}

/// Writes until all is written or an error comes, and tells how far it came.
pub fn write_all(file: &impl DiskFile, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(len) => written += len,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (written, Err(e)),
        }
    }
    (written, Ok(()))
}
