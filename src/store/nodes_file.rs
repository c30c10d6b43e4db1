//! The cluster's configuration file: read at start, locked for life, replaced on change.
//!
//! No two servers may share the file, so it is locked with flock from start to end. A
//! replacement is written under another name, locked, synced, and renamed over it; its
//! descriptor is kept and the old one closed. So at every moment the file under the
//! name is whole, and locked by this server: a C server sees the lock as well.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::fsync::rename_durably;

/// Why the file cannot be used.
#[derive(Debug)]
pub enum NodesFileError {
    /// Another server has it.
    Locked(PathBuf),
    Io(PathBuf, io::Error),
}

impl fmt::Display for NodesFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(path) => write!(
                f,
                "The cluster's file {} is in use by another server. Every node needs its own, \
                 in its own directory or by the directive cluster-config-file.",
                path.display()
            ),
            Self::Io(path, e) => write!(f, "Can't use the cluster's file {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for NodesFileError {}

#[derive(Debug)]
pub struct NodesFile {
    path: PathBuf,
    /// The lock is this descriptor's.
    _lock: File,
}

impl NodesFile {
    /// Opens the file, creating it when it is missing, locks it, and reads what it says.
    pub fn open(path: &Path) -> Result<(Self, Vec<u8>), NodesFileError> {
        let failed = |e| NodesFileError::Io(path.into(), e);
        loop {
            let mut file =
                File::options().read(true).append(true).create(true).open(path).map_err(failed)?;
            lock(&file).map_err(|e| match e.kind() {
                io::ErrorKind::WouldBlock => NodesFileError::Locked(path.into()),
                _ => failed(e),
            })?;
            // Before the lock was there, the file may have been replaced by another server.
            if !is_at(&file, path).map_err(failed)? {
                continue;
            }
            let mut text = Vec::new();
            file.read_to_end(&mut text).map_err(failed)?;
            return Ok((Self { path: path.into(), _lock: file }, text));
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts another text in the place of the present one. After an error the file is as it
    /// was.
    pub fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        let temporary_path = self.temporary_path();
        let replacement = write_locked(&temporary_path, text)
            .and_then(|file| rename_durably(&temporary_path, &self.path).map(|()| file));
        match replacement {
            Ok(file) => {
                self._lock = file;
                Ok(())
            }
            Err(e) => {
                // What is left of it would only take room on a full disk.
                let _ = fs::remove_file(&temporary_path);
                Err(e)
            }
        }
    }

    /// Derived from the file's own name, so servers in one directory do not meet there.
    fn temporary_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".tmp");
        path.into()
    }
}

/// Locks a file until its descriptor is closed; `WouldBlock` when another has it.
fn lock(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and flock touches nothing of ours.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn write_locked(path: &Path, text: &[u8]) -> io::Result<File> {
    let mut file = File::create(path)?;
    lock(&file)?;
    file.write_all(text)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_in(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("nodes.conf")
    }

    fn open(path: &Path) -> (NodesFile, Vec<u8>) {
        NodesFile::open(path).expect("opens")
    }

    #[test]
    fn a_missing_file_is_created_empty_and_a_text_comes_back() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = path_in(&dir);
        let (mut file, text) = open(&path);
        assert_eq!(text, b"");
        file.replace(b"a longer text\n").expect("saved");
        file.replace(b"short\n").expect("saved");
        drop(file);
        assert_eq!(open(&path).1, b"short\n");
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_second_server_is_kept_out_before_and_after_a_save() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = path_in(&dir);
        let (mut file, _) = open(&path);
        assert!(matches!(NodesFile::open(&path), Err(NodesFileError::Locked(_))));
        for _ in 0..2 {
            file.replace(b"x\n").expect("saved");
            assert!(matches!(NodesFile::open(&path), Err(NodesFileError::Locked(_))));
        }
        drop(file);
        open(&path);
    }

    #[test]
    fn a_failed_save_leaves_file_and_lock_as_they_were() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = path_in(&dir);
        let (mut file, _) = open(&path);
        file.replace(b"good\n").expect("saved");
        fs::create_dir(file.temporary_path()).expect("create");
        file.replace(b"bad\n").expect_err("the temporary name is taken by a directory");
        assert_eq!(fs::read(&path).expect("read"), b"good\n");
        assert!(matches!(NodesFile::open(&path), Err(NodesFileError::Locked(_))));
        fs::remove_dir(file.temporary_path()).expect("remove");
        file.replace(b"better\n").expect("saved");
        assert_eq!(fs::read(&path).expect("read"), b"better\n");
    }
}
