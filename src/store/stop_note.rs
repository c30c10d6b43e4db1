//! The note of a planned stop, after which the next start finds the queues as they were.
//!
//! The append only file says which jobs there are, and only a rewrite says which of them are
//! queued. A server that is told to end may rewrite it as the last thing it does, and leave
//! a note beside it:
//!
//! ```text
//! disque.aof.stopped    len 7011 inode 1835 written 1795968488.206000111
//! ```
//!
//! The note is about that file, and as it is. Whoever writes to the file or puts another one
//! in its place makes the note void, be it a C server that knows nothing of notes. A copy
//! that is brought back is another file. A note counts once: it is removed, for good, before
//! the file is loaded, so that whatever ends the server after that finds none.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, FileIdentity, write_all};

const SUFFIX: &str = ".stopped";

/// Leaves a note about the append only file under this path, which is written and synced.
pub fn leave(disk: &mut impl Disk, aof_path: &Path) -> io::Result<()> {
    let note = note_path(aof_path);
    let temporary = with_suffix(&note, ".tmp");
    let text = text(&disk.identify(aof_path)?);
    let file = disk.create(&temporary, &note)?;
    let left =
        write_all(&file, text.as_bytes()).1.and_then(|()| disk.replace(&file, &temporary, &note));
    if left.is_err() {
        // What is left of it would only use space on a full disk.
        let _ = disk.remove(&temporary);
    }
    left
}

/// Takes the note about the append only file under this path, and tells whether there was one
/// that counts. After an error there may still be one.
pub fn take(disk: &mut impl Disk, aof_path: &Path) -> io::Result<bool> {
    let note = note_path(aof_path);
    let left = match disk.read(&note) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        left => left?,
    };
    let counts = disk.identify(aof_path).is_ok_and(|aof| left == text(&aof).as_bytes());
    disk.remove_for_good(&note)?;
    Ok(counts)
}

fn text(aof: &FileIdentity) -> String {
    let FileIdentity { len, inode, written_at: (secs, nanos) } = aof;
    format!("len {len} inode {inode} written {secs}.{nanos:09}\n")
}

fn note_path(aof_path: &Path) -> PathBuf {
    with_suffix(aof_path, SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path: OsString = path.into();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::super::fsync::DiskThread;
    use super::*;
    use std::fs::{self, File};
    use std::io::Write as _;

    struct World {
        dir: tempfile::TempDir,
        disk: DiskThread,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a temporary folder");
            fs::write(dir.path().join("disque.aof"), b"records").expect("write");
            Self { dir, disk: DiskThread::start(Box::new(|| {})).expect("a thread") }
        }

        fn aof(&self) -> PathBuf {
            self.dir.path().join("disque.aof")
        }

        fn leave(&mut self) {
            let aof = self.aof();
            leave(&mut self.disk, &aof).expect("the disk works");
        }

        fn take(&mut self) -> bool {
            let aof = self.aof();
            take(&mut self.disk, &aof).expect("the disk works")
        }
    }

    #[test]
    fn a_note_counts_once() {
        let mut world = World::new();
        assert!(!world.take());
        world.leave();
        assert!(world.take());
        assert!(!world.take());
        assert_eq!(fs::read_dir(world.dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_note_about_a_file_that_was_changed_is_void() {
        let mut world = World::new();
        for change in [
            // Appended to, replaced by a copy, written without growing, and gone.
            |aof: &Path| {
                let mut file = File::options().append(true).open(aof)?;
                file.write_all(b"more")
            },
            |aof: &Path| {
                let copy = aof.with_extension("copy");
                fs::copy(aof, &copy)?;
                fs::rename(copy, aof)
            },
            |aof: &Path| {
                let written_at = fs::metadata(aof)?.modified()?;
                let later = written_at + std::time::Duration::from_nanos(1);
                File::options().write(true).open(aof)?.set_modified(later)
            },
            |aof: &Path| fs::remove_file(aof),
        ] {
            world.leave();
            change(&world.aof()).expect("the file is ours");
            assert!(!world.take());
            assert!(!world.take(), "it is gone");
        }
    }

    #[test]
    fn what_is_no_note_counts_for_nothing() {
        let mut world = World::new();
        fs::write(note_path(&world.aof()), b"len 7").expect("write");
        assert!(!world.take());
    }
}
