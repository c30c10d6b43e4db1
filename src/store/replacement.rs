//! Puts a new text in the place of a file, so that a reader finds the old one or the new
//! one whole, whatever happens meanwhile.
//!
//! **By a rename.** The new file is written beside the old one under a name of its own,
//! synced, and renamed over it; then the folder is synced. The name leads to the real
//! file: links were followed by [`resolve`].
//!
//! **In place**, where a rename cannot work: the file is a mount of its own, as containers
//! have them, or nobody may create files in its folder. A complete copy of the new text
//! goes behind the old one first, in lines that every reader of the file takes for
//! comments:
//!
//! ```text
//! step                                        a reader afterwards finds
//! 1. the copy goes behind the old text        the old text, and ignores the rest
//! 2. a last line says that it is complete     the copy
//! 3. the new text goes over the old one       the copy
//! 4. the file is cut behind the new text      the new text
//! ```
//!
//! Each step is synced before the next. [`recovered`] says what a file that was left in the
//! middle means; the C server, which knows nothing of this, reads the old text after
//! step 1 and 2, and the new one after step 3.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};

/// Permissions of new files that hold what clients sent, or who is in the cluster; the umask
/// may take some away.
pub const NEW_FILE_MODE: u32 = 0o640;
/// Permissions of a file that is not yet what it will be.
const PRIVATE_MODE: u32 = 0o600;
/// Permissions of the group.
const GROUP_BITS: u32 = 0o070;
/// Links that lead from one to the next before they are taken for a circle. Linux: 40.
const LINKS_MAX: usize = 40;

/// What a line begins with that readers of the file ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comment(pub &'static str);

/// The comments of `nodes.conf`: variables that no server knows.
pub const NODES_COMMENT: Comment = Comment("vars ");
/// The comments of the configuration.
pub const CONFIG_COMMENT: Comment = Comment("# ");

const BEGINS: &str = "disque:unfinished-write-takes-the-place-of-all-above";
const CONTAINS: &str = "disque:line ";
const ENDS: &str = "disque:unfinished-write-ends";

/// The file that a path leads to, as an absolute path. Its last part is no link; there may be
/// no file yet.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path::absolute(path)?;
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            // It is no link, or there is nothing.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Creates the file that is to take the place of another, under a temporary name. What has
/// that name is removed, and never followed: somebody may have put a link there.
pub fn create(temporary: &Path, successor_of: &Path) -> io::Result<File> {
    let mode = match fs::metadata(successor_of) {
        Ok(old) if !old.is_file() => return Err(not_regular()),
        Ok(_) => PRIVATE_MODE,
        Err(_) => NEW_FILE_MODE,
    };
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(mode);
    match options.open(temporary) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(temporary)?;
            options.open(temporary)
        }
        opened => opened,
    }
}

/// Makes a file under a temporary name the one under `path`, for good: it gets the owner and
/// the permissions of the old one, if there is one, is synced and renamed.
pub fn take_place(file: &File, temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(old) if !old.is_file() => return Err(not_regular()),
        Ok(old) => copy_access(file, &old)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    file.sync_all()?;
    fs::rename(temporary, path)?;
    sync_folder_of(path);
    Ok(())
}

/// The error of a file that is a device, a pipe or a folder.
pub(super) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Gives a file the owner, the group and the permissions of another. Only root may give
/// files away. A group that cannot be kept must not become one that can read the file.
fn copy_access(file: &File, old: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::fchown;
    let (owner, group) = (Some(old.uid()), Some(old.gid()));
    let is_group_kept = fchown(file, owner, group).is_ok() || fchown(file, None, group).is_ok();
    let lost = if is_group_kept { 0 } else { GROUP_BITS };
    file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777 & !lost))
}

/// Syncs the folder of a file, so that its name is there after a loss of power. The name is
/// the new file's already when this fails, so it is no error: it is logged.
pub fn sync_folder_of(path: &Path) {
    let folder = folder_of(path);
    if let Err(e) = File::open(folder).and_then(|folder| folder.sync_all()) {
        log::warn!("Can't sync the folder {}: {e}", folder.display());
    }
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}

/// A text file, and how it is replaced.
pub struct TextFile<'a> {
    /// No link; see [`resolve`].
    pub path: &'a Path,
    /// What the new file is called until it takes the place of the old one.
    pub temporary: &'a Path,
    pub comment: Comment,
}

impl TextFile<'_> {
    /// Replaces the text by another one of whole lines. Returns the file that is under the
    /// path then: after a rename a new one, for which `prepare` was called before it had its
    /// name, else `current`, which is to be open for reading and for
    /// writing, not for appending.
    pub fn replace(
        &self,
        text: &[u8],
        prepare: impl FnOnce(&File) -> io::Result<()>,
        current: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<File> {
        let is_device = fs::metadata(self.path).is_ok_and(|old| !old.is_file());
        if !is_device {
            match self.replace_by_rename(text, prepare) {
                Err(e) if forbids_rename(&e) => {}
                replaced => return replaced,
            }
        }
        let current = current()?;
        write_in_place(&current, text, self.comment)?;
        Ok(current)
    }

    fn replace_by_rename(
        &self,
        text: &[u8],
        prepare: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        let mut file = create(self.temporary, self.path)?;
        let written = prepare(&file)
            .and_then(|()| file.write_all(text))
            .and_then(|()| take_place(&file, self.temporary, self.path));
        match written {
            Ok(()) => Ok(file),
            Err(e) => {
                // What is left of it would only use space on a full disk.
                let _ = fs::remove_file(self.temporary);
                Err(e)
            }
        }
    }
}

/// Whether an error says that no rename works at this place.
fn forbids_rename(error: &io::Error) -> bool {
    const ERRORS: [i32; 6] =
        [libc::EBUSY, libc::EXDEV, libc::EACCES, libc::EPERM, libc::EROFS, libc::ENAMETOOLONG];
    error.raw_os_error().is_some_and(|number| ERRORS.contains(&number))
}

/// Writes a text over the one in a file. After an error the file says what it said before,
/// or what it is to say.
pub(super) fn write_in_place(mut file: &File, text: &[u8], comment: Comment) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        // A device, such as /dev/null, takes what it is given.
        return file.write_all(text);
    }
    let mut old = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut old)?;
    let old_len = kept_len(&old, comment) as u64;
    // An earlier copy that is not complete would only be in the way.
    file.set_len(old_len)?;
    for (number, step) in steps(old_len, text, comment).iter().enumerate() {
        if let Err(e) = take(file, step) {
            if number < STEPS_OF_COPY {
                // The old text is still there; what is behind it would only use space.
                let _ = file.set_len(old_len);
            }
            return Err(e);
        }
    }
    Ok(())
}

/// How much of a file its next writer must not touch before there is another copy.
fn kept_len(text: &[u8], comment: Comment) -> usize {
    match latest_copy(text, comment) {
        Some(_) => text.len(),
        None => old_len(text, comment),
    }
}

/// A step of writing in place: bytes at a place of the file, which ends there or goes on.
#[derive(Debug)]
struct InPlaceStep {
    at: u64,
    bytes: Vec<u8>,
    cuts: bool,
}

/// The first steps, which write the copy.
const STEPS_OF_COPY: usize = 2;

/// The four steps that put a text in the place of one of this length.
fn steps(old_len: u64, text: &[u8], comment: Comment) -> [InPlaceStep; 4] {
    assert!(text.is_empty() || text.ends_with(b"\n"), "copies are told apart line by line");
    let text_len = text.len() as u64;
    // The copy begins a line, and lies neither in the old text nor where the new one goes.
    let copy_at = text_len.max(old_len + 1);
    let line_ends = |from: u64, to: u64| {
        vec![b'\n'; usize::try_from(to - from).expect("a text of this size was in memory")]
    };
    let mut copy = line_ends(old_len, copy_at);
    append_copy(&mut copy, text, comment);
    let copy_end = old_len + copy.len() as u64;
    [
        InPlaceStep { at: old_len, bytes: copy, cuts: false },
        InPlaceStep { at: copy_end, bytes: last_line(comment), cuts: false },
        InPlaceStep { at: 0, bytes: [text, &line_ends(text_len, copy_at)].concat(), cuts: false },
        InPlaceStep { at: text_len, bytes: Vec::new(), cuts: true },
    ]
}

fn take(file: &File, step: &InPlaceStep) -> io::Result<()> {
    file.write_all_at(&step.bytes, step.at)?;
    if step.cuts {
        file.set_len(step.at)?;
    }
    file.sync_all()
}

fn append_copy(out: &mut Vec<u8>, text: &[u8], comment: Comment) {
    out.extend_from_slice(&first_line(comment));
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        out.extend_from_slice(&prefix(comment));
        out.extend_from_slice(line);
    }
}

fn first_line(comment: Comment) -> Vec<u8> {
    format!("{}{BEGINS}\n", comment.0).into_bytes()
}

fn last_line(comment: Comment) -> Vec<u8> {
    format!("{}{ENDS}\n", comment.0).into_bytes()
}

fn prefix(comment: Comment) -> Vec<u8> {
    format!("{}{CONTAINS}", comment.0).into_bytes()
}

/// Reads a text file that may have been left in the middle of a write in place, and
/// finishes that write if the file can be written.
pub fn read(path: &Path, comment: Comment) -> io::Result<Vec<u8>> {
    let open = || File::options().read(true).write(true).open(path);
    let finish = |text: &[u8]| write_in_place(&open()?, text, comment);
    Ok(recovered(fs::read(path)?, comment, finish))
}

/// What a file says that may have been left in the middle of a write in place.
///
/// A complete copy of the new text counts, the latest if there are several: each was written
/// because the one before could not be put in its place. `finish` puts it there; when that
/// fails, the copy stays for the next reader. One that is not complete is ignored, with the
/// zeros that a loss of power leaves at the end of a file that had grown before its bytes
/// were written.
pub fn recovered(
    mut text: Vec<u8>,
    comment: Comment,
    finish: impl FnOnce(&[u8]) -> io::Result<()>,
) -> Vec<u8> {
    if let Some(copy) = latest_copy(&text, comment) {
        if let Err(e) = finish(&copy) {
            log::debug!("An interrupted write cannot be finished: {e}");
        }
        return copy;
    }
    let old_len = old_len(&text, comment);
    // Where nothing would be left, the file is damaged.
    if old_len > 0 {
        text.truncate(old_len);
    }
    text
}

fn latest_copy(text: &[u8], comment: Comment) -> Option<Vec<u8>> {
    let (first, last, prefix) = (first_line(comment), last_line(comment), prefix(comment));
    let mut copy: Option<Vec<u8>> = None;
    let mut complete = None;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if line == first {
            copy = Some(Vec::new());
        } else if line == last {
            complete = copy.take().or(complete);
        } else if let (Some(copy), Some(line)) = (&mut copy, line.strip_prefix(&prefix[..])) {
            copy.extend_from_slice(line);
        }
    }
    complete
}

/// How much of a file comes before a copy that is not complete.
fn old_len(text: &[u8], comment: Comment) -> usize {
    let first = first_line(comment);
    let mut line_at = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let is_cut_off = !line.ends_with(b"\n");
        let ends_in_zeros = is_cut_off && line.ends_with(b"\0");
        if line == first || is_cut_off && first.starts_with(line) || ends_in_zeros {
            return line_at;
        }
        line_at += line.len();
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use std::os::unix::fs::symlink;

    const OLD: &[u8] = b"old 1\nold 2\nold 3\n";

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
        let temporary = path.with_extension("tmp");
        let file = TextFile { path, temporary: &temporary, comment: CONFIG_COMMENT };
        file.replace(text, |_| Ok(()), || File::options().read(true).write(true).open(path))
    }

    /// What a file says after a step of which a crash left something: some of its bytes, or
    /// also zeros where more were to come.
    fn crashed(rng: &mut Rng, file: &[u8], step: &InPlaceStep) -> Vec<u8> {
        let at = usize::try_from(step.at).expect("small");
        let mut left = file.to_vec();
        if step.cuts {
            return left;
        }
        let written = rng.index(step.bytes.len() + 1);
        let grown = written + rng.index(step.bytes.len() - written + 1);
        let grown = if at < file.len() { written } else { grown };
        left.resize(left.len().max(at + grown), 0);
        left[at..at + written].copy_from_slice(&step.bytes[..written]);
        left
    }

    fn done(file: &mut Vec<u8>, step: &InPlaceStep) {
        let at = usize::try_from(step.at).expect("small");
        file.resize(file.len().max(at + step.bytes.len()), 0);
        file[at..at + step.bytes.len()].copy_from_slice(&step.bytes);
        if step.cuts {
            file.truncate(at);
        }
    }

    fn meaning(file: &[u8]) -> Vec<u8> {
        let mut text = recovered(file.to_vec(), NODES_COMMENT, |_| Ok(()));
        // Empty lines at the end are nothing to any reader.
        while text.ends_with(b"\n\n") {
            text.pop();
        }
        text
    }

    #[test]
    fn a_crash_at_any_moment_leaves_the_old_text_or_the_new_one() {
        let mut rng = Rng::from_seed([7; 32]);
        for _ in 0..2000 {
            let new = b"a new line\n".repeat(1 + rng.index(4));
            let mut file = OLD.to_vec();
            let mut said = OLD.to_vec();
            // The second attempt meets what the first one left, and so on.
            for _ in 0..3 {
                let crash_in = rng.index(5);
                file.truncate(kept_len(&file, NODES_COMMENT));
                for (number, step) in (0..).zip(steps(file.len() as u64, &new, NODES_COMMENT)) {
                    if number == crash_in {
                        file = crashed(&mut rng, &file, &step);
                        break;
                    }
                    done(&mut file, &step);
                }
                let meaning = meaning(&file);
                assert!(meaning == said || meaning == new, "{}", file.escape_ascii());
                if crash_in >= STEPS_OF_COPY {
                    assert_eq!(meaning, new);
                }
                said = meaning;
            }
        }
    }

    #[test]
    fn a_complete_copy_is_put_in_its_place_by_the_next_reader() {
        let folder = folder();
        let path = folder.path().join("text");
        let mut file = OLD.to_vec();
        for step in &steps(OLD.len() as u64, b"new\n", CONFIG_COMMENT)[..STEPS_OF_COPY] {
            done(&mut file, step);
        }
        fs::write(&path, &file).expect("write");
        assert_eq!(read(&path, CONFIG_COMMENT).expect("readable"), b"new\n");
        assert_eq!(fs::read(&path).expect("readable"), b"new\n");
    }

    #[test]
    fn texts_that_nobody_interrupted_are_read_as_they_are() {
        for text in [&b""[..], b"one\n", b"no end", b"\0\0\0", b"\0\nx\n", b"# a\n\n#b"] {
            let same = recovered(text.to_vec(), CONFIG_COMMENT, |_| panic!("nothing to finish"));
            assert_eq!(same, text);
        }
    }

    #[test]
    fn a_link_leads_to_the_file_that_is_replaced() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).expect("create");
        symlink("elsewhere/second", at("first")).expect("link");
        symlink("real", at("elsewhere/second")).expect("link");
        // Nothing is at its end yet.
        let path = resolve(&at("first")).expect("resolved");
        assert_eq!(path, at("elsewhere/real"));
        for text in [b"one\n", b"two\n"] {
            replace(&path, text).expect("replaced");
            assert_eq!(fs::read(at("first")).expect("readable"), text);
        }
        symlink("circle", at("circle")).expect("link");
        resolve(&at("circle")).expect_err("a circle leads nowhere");
    }

    #[test]
    fn a_new_file_is_not_for_everybody_and_an_old_one_keeps_its_mode() {
        let folder = folder();
        let path = folder.path().join("text");
        replace(&path, b"new\n").expect("created");
        assert_eq!(mode_of(&path) & !NEW_FILE_MODE, 0);
        for mode in [0o600, 0o644, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            replace(&path, b"newer\n").expect("replaced");
            assert_eq!(mode_of(&path), mode);
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_private() {
        let folder = folder();
        let (path, temporary) = (folder.path().join("text"), folder.path().join("tmp"));
        fs::write(&path, b"secret\n").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        create(&temporary, &path).expect("created");
        assert_eq!(mode_of(&temporary), PRIVATE_MODE);
    }

    #[test]
    fn a_planted_link_is_removed_and_not_followed() {
        let folder = folder();
        let (path, temporary) = (folder.path().join("text"), folder.path().join("text.tmp"));
        let victim = folder.path().join("victim");
        fs::write(&victim, b"precious").expect("write");
        symlink(&victim, &temporary).expect("link");
        let file = TextFile { path: &path, temporary: &temporary, comment: CONFIG_COMMENT };
        file.replace(b"new\n", |_| Ok(()), || unreachable!("a rename works")).expect("replaced");
        assert_eq!(fs::read(&victim).expect("readable"), b"precious");
        assert_eq!(fs::read(&path).expect("readable"), b"new\n");
        assert!(!fs::symlink_metadata(&path).expect("it is there").is_symlink());
    }

    #[test]
    fn a_device_is_written_and_never_replaced() {
        let folder = folder();
        let null = folder.path().join("null");
        symlink("/dev/null", &null).expect("link");
        let path = resolve(&null).expect("resolved");
        assert_eq!(path, Path::new("/dev/null"));
        replace(&path, b"text\n").expect("it takes everything");
        assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
        let temporary = folder.path().join("tmp");
        create(&temporary, &path).expect_err("nothing takes the place of a device");
        assert!(!temporary.exists());
    }

    #[test]
    fn a_full_disk_leaves_the_old_text() {
        let folder = folder();
        let path = folder.path().join("text");
        fs::create_dir(folder.path().join("text.tmp")).expect("create");
        fs::write(&path, OLD).expect("write");
        replace(&path, b"new\n").expect_err("the temporary name is taken by a folder");
        assert_eq!(fs::read(&path).expect("readable"), OLD);
    }
}
