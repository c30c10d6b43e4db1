//! The cluster's configuration file: read at start, locked for life, replaced on change.
//!
//! No two servers may share the file, so it is locked with flock from start to end. When it
//! is replaced by a rename, its successor is locked before it gets the name, and its
//! descriptor is kept; the old one is closed. So at every moment the file under the name is
//! locked by this server, and a C server sees the lock as well. How a replacement survives
//! a crash is said in [`super::replacement`].
//!
//! The path is fixed when the file is opened: links are followed, and it stays where it is
//! when the server goes to another folder.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::replacement::{self, NEW_FILE_MODE, NODES_COMMENT, TextFile};

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
    file: File,
}

impl NodesFile {
    /// Opens the file, creating it when it is missing, locks it, and reads what it says.
    pub fn open(path: &Path) -> Result<(Self, Vec<u8>), NodesFileError> {
        let failed = |e| NodesFileError::Io(path.into(), e);
        let path = &replacement::resolve(path).map_err(failed)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
        loop {
            let mut file = options.open(path).map_err(failed)?;
            if file.metadata().map_err(failed)?.file_type().is_fifo() {
                return Err(failed(replacement::not_regular()));
            }
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
            let finish = |text: &[u8]| replacement::write_in_place(&file, text, NODES_COMMENT);
            let text = replacement::recovered(text, NODES_COMMENT, finish);
            return Ok((Self { path: path.into(), file }, text));
        }
    }

    /// Without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path leads to this file.
    pub fn is_at(&self, path: &Path) -> bool {
        is_at(&self.file, path).unwrap_or(false)
    }

    /// Puts another text of whole lines in the place of the present one. After an error the
    /// file says one or the other.
    pub fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        let text_file = TextFile {
            path: &self.path,
            temporary: &self.temporary_path(),
            comment: NODES_COMMENT,
        };
        // A clone of the descriptor has its lock.
        self.file = text_file.replace(text, lock, || self.file.try_clone())?;
        Ok(())
    }

    /// Derived from the file's own name, so servers in one folder do not meet there.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;

    /// Makes a pipe with a name.
    pub fn make_pipe(path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL byte");
        // SAFETY: the path ends in a NUL byte and lives for the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

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
    fn a_link_stays_and_a_pipe_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (link, real) = (path_in(&dir), dir.path().join("real"));
        std::os::unix::fs::symlink("real", &link).expect("the name is free");
        let (mut file, _) = open(&link);
        file.replace(b"x\n").expect("saved");
        assert_eq!(fs::read(&real).expect("read"), b"x\n");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        for path in [&link, &real] {
            assert!(matches!(NodesFile::open(path), Err(NodesFileError::Locked(_))));
        }
        let pipe = dir.path().join("pipe");
        make_pipe(&pipe);
        assert!(matches!(NodesFile::open(&pipe), Err(NodesFileError::Io(..))));
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
