//! A disk that a trace is played to, and what a loss of power may leave of it.
//!
//! Of each file it leaves what was synced, and of what was done to it since then a beginning,
//! the last of that maybe in part, with zeros where the file had grown. Of the names it
//! leaves those of some moment since the folder was synced.

use std::collections::BTreeMap;

use disque::base::rng::Rng;

use crate::trace::Event;

/// A file, whatever its name. Inode numbers are used again, these are not.
type FileNumber = usize;

#[derive(Clone, Debug)]
enum Change {
    Write { place: usize, bytes: Vec<u8> },
    Cut { len: usize },
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Vec<u8>,
    /// Since then.
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Renaming {
    Create { name: String, file: FileNumber },
    Rename { from: String, to: String },
    Remove { name: String },
}

type Names = BTreeMap<String, FileNumber>;

#[derive(Default)]
pub struct Disk {
    files: Vec<File>,
    /// Of the files that were opened.
    numbers: BTreeMap<u64, FileNumber>,
    synced_names: Names,
    /// Since the folder was synced.
    renamings: Vec<Renaming>,
    names: Names,
}

impl Disk {
    /// A disk with files on it.
    pub fn with(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut disk = Self::default();
        for (name, bytes) in files {
            disk.names.insert(name.clone(), disk.files.len());
            disk.files.push(File { synced: bytes.clone(), changes: Vec::new() });
        }
        disk.synced_names = disk.names.clone();
        disk
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Open { name, inode } => self.open(name, *inode),
            Event::Write { inode, place, bytes, .. } => {
                let change = Change::Write { place: *place, bytes: bytes.clone() };
                self.file(*inode).changes.push(change);
            }
            Event::Cut { inode, len } => self.file(*inode).changes.push(Change::Cut { len: *len }),
            Event::Sync { inode } => {
                let file = self.file(*inode);
                for change in std::mem::take(&mut file.changes) {
                    change.apply(&mut file.synced);
                }
            }
            Event::SyncFolder => {
                self.renamings.clear();
                self.synced_names = self.names.clone();
            }
            Event::Rename { from, to } => {
                self.rename(Renaming::Rename { from: from.clone(), to: to.clone() });
            }
            Event::Remove { name } => self.rename(Renaming::Remove { name: name.clone() }),
            Event::Send { .. } => {}
        }
    }

    fn open(&mut self, name: &str, inode: u64) {
        let file = match self.names.get(name) {
            Some(file) => *file,
            None => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                self.rename(Renaming::Create { name: name.to_owned(), file });
                file
            }
        };
        self.numbers.insert(inode, file);
    }

    fn rename(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.names);
        self.renamings.push(renaming);
    }

    fn file(&mut self, inode: u64) -> &mut File {
        let number = self.numbers[&inode];
        &mut self.files[number]
    }

    /// The name and the inode of each file that has changes which were not synced.
    pub fn unsynced(&self) -> Vec<&str> {
        let is_unsynced = |file: &FileNumber| !self.files[*file].changes.is_empty();
        let names = self.names.iter().filter(|(_, file)| is_unsynced(file));
        names.map(|(name, _)| name.as_str()).collect()
    }

    /// Whether names were changed since the folder was synced.
    pub fn has_unsynced_names(&self) -> bool {
        !self.renamings.is_empty()
    }

    /// What may be found when power is back, by name.
    pub fn after_power_loss(&self, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.synced_names.clone();
        for renaming in &self.renamings[..rng.index(self.renamings.len() + 1)] {
            renaming.apply(&mut names);
        }
        names.into_iter().map(|(name, file)| (name, self.files[file].left(rng))).collect()
    }
}

impl File {
    fn left(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let done = rng.index(self.changes.len() + 1);
        for change in &self.changes[..done] {
            change.apply(&mut bytes);
        }
        if let Some(Change::Write { place, bytes: written }) = self.changes.get(done) {
            let part = rng.index(written.len() + 1);
            Change::Write { place: *place, bytes: written[..part].to_vec() }.apply(&mut bytes);
            let end = place + part + rng.index(written.len() - part + 1);
            if rng.below(4) == 0 && end > bytes.len() {
                bytes.resize(end, 0);
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { place, bytes } => {
                file.resize(file.len().max(place + bytes.len()), 0);
                file[*place..place + bytes.len()].copy_from_slice(bytes);
            }
            Self::Cut { len } => file.resize(*len, 0),
        }
    }
}

impl Renaming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, file } => {
                names.insert(name.clone(), *file);
            }
            Self::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove { name } => {
                names.remove(name);
            }
        }
    }
}
