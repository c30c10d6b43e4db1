//! The disk of one machine, as `store` wants one, and as bad as disks are.
//!
//! Writes come short, stop halfway, or find the disk full; syncs fail and are then never
//! made good; what may take long is done a step at a time, while the node goes on. A loss
//! of power leaves of each file what was synced, and of the rest some, cut off anywhere or
//! ending in zeros; of the names it leaves those of some moment since the directory was
//! synced. A process that is killed leaves everything as it stands.
//!
//! Not simulated: a directory that cannot be synced, and a failed sync that is forgotten
//! with the process that was told of it.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use disque::base::rng::Rng;
use disque::store::disk::{self, DiskEvent, DiskFile, DiskTask, FileIdentity, Ticket};

type Names = BTreeMap<PathBuf, usize>;

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Bytes that still fit; without a number there is room for all.
    pub room: Option<usize>,
    /// Writes stop somewhere with an error.
    pub writes_fail: bool,
    pub syncs_fail: bool,
}

#[derive(Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced_len: usize,
    /// A sync failed, and none will ever do any more what it says.
    is_doubtful: bool,
}

/// A step of what is done behind the node's back.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Sync(usize),
    Rename(PathBuf, PathBuf),
    SyncNames,
}

struct Device {
    inodes: Vec<Inode>,
    /// The names since the directory was synced: those that are on the disk first, those
    /// that a process sees last.
    names: Vec<Names>,
    faults: Faults,
    rng: Rng,
    now_ms: u64,
    /// A step takes up to so long.
    step_ms_max: u32,
    /// When the next step of the first task is done, and the steps of all of them.
    step_at: u64,
    tasks: VecDeque<(Ticket, VecDeque<Step>)>,
    events: VecDeque<DiskEvent>,
    next_ticket: u64,
}

/// Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Device>>);

#[derive(Clone)]
pub struct File {
    device: Rc<RefCell<Device>>,
    inode: usize,
    /// One for each clone.
    handles: Rc<()>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.inode)
    }
}

impl Disk {
    /// An empty disk. A step of a task takes up to `step_ms_max`.
    pub fn new(rng: Rng, step_ms_max: u32) -> Self {
        Self(Rc::new(RefCell::new(Device {
            inodes: Vec::new(),
            names: vec![Names::new()],
            faults: Faults::default(),
            rng,
            now_ms: 0,
            step_ms_max,
            step_at: 0,
            tasks: VecDeque::new(),
            events: VecDeque::new(),
            next_ticket: 0,
        })))
    }

    fn file(&self, inode: usize) -> File {
        File { device: Rc::clone(&self.0), inode, handles: Rc::new(()) }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    pub fn faults(&self) -> Faults {
        self.0.borrow().faults
    }

    /// What stands under a name.
    pub fn read(&self, path: &Path) -> Option<Ref<'_, [u8]>> {
        Ref::filter_map(self.0.borrow(), |device| {
            let inode = *device.current_names().get(path)?;
            Some(device.inodes[inode].bytes.as_slice())
        })
        .ok()
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.borrow().current_names().keys().cloned().collect()
    }

    /// Puts a text under a name, all of it or nothing, for good.
    pub fn save(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let mut device = self.0.borrow_mut();
        let inode = device.new_inode();
        let mut written = 0;
        while written < text.len() {
            written += device.write(inode, &text[written..])?;
        }
        device.sync(inode)?;
        let replaced = device.current_names().get(path).copied();
        device.change_names(|names| names.insert(path.into(), inode));
        device.sync_names();
        if let Some(replaced) = replaced {
            // Nobody has it open; large clusters save often.
            device.inodes[replaced] = Inode::default();
        }
        Ok(())
    }

    /// Cuts a file, for good.
    pub fn cut(&self, path: &Path, len: usize) {
        let mut device = self.0.borrow_mut();
        let inode = device.current_names()[path];
        let inode = &mut device.inodes[inode];
        inode.bytes.truncate(len);
        inode.synced_len = len;
    }

    /// Changes a bit of a file, for good.
    pub fn flip_bit(&self, path: &Path, at: usize, bit: u32) {
        let mut device = self.0.borrow_mut();
        let inode = device.current_names()[path];
        device.inodes[inode].bytes[at] ^= 1 << bit;
    }

    /// Removes a file, for good.
    pub fn lose(&self, path: &Path) {
        let mut device = self.0.borrow_mut();
        device.change_names(|names| names.remove(path));
        device.sync_names();
    }

    /// When the next step of a task is done.
    pub fn next_step_at(&self) -> Option<u64> {
        let device = self.0.borrow();
        (!device.tasks.is_empty()).then_some(device.step_at)
    }

    /// Does the steps that are due.
    pub fn pass_time(&self, now_ms: u64) {
        let mut device = self.0.borrow_mut();
        device.now_ms = now_ms;
        while !device.tasks.is_empty() && device.step_at <= now_ms {
            device.take_step();
        }
    }

    /// The process is gone, and its tasks with it.
    pub fn kill(&self) {
        let mut device = self.0.borrow_mut();
        device.tasks.clear();
        device.events.clear();
        for inode in &mut device.inodes {
            inode.is_doubtful = false;
        }
    }

    /// The machine is gone, and with it what was not synced.
    pub fn lose_power(&self) {
        self.kill();
        let device = &mut *self.0.borrow_mut();
        let moment = device.rng.index(device.names.len());
        device.names = vec![device.names.swap_remove(moment)];
        for inode in &mut device.inodes {
            let unsynced_len = inode.bytes.len() - inode.synced_len;
            let kept_len = inode.synced_len + device.rng.index(unsynced_len + 1);
            let lost_len = inode.bytes.len() - kept_len;
            inode.bytes.truncate(kept_len);
            if device.rng.below(4) == 0 {
                // The file had grown, and its bytes were still to come.
                inode.bytes.resize(kept_len + device.rng.index(lost_len + 1), 0);
            }
            inode.synced_len = inode.bytes.len();
        }
    }
}

impl Device {
    fn current_names(&self) -> &Names {
        self.names.last().expect("there is always one moment")
    }

    fn change_names<T>(&mut self, change: impl FnOnce(&mut Names) -> T) -> T {
        let mut names = self.current_names().clone();
        let changed = change(&mut names);
        self.names.push(names);
        changed
    }

    fn sync_names(&mut self) {
        self.names.drain(..self.names.len() - 1);
    }

    fn new_inode(&mut self) -> usize {
        self.inodes.push(Inode::default());
        self.inodes.len() - 1
    }

    fn write(&mut self, inode: usize, bytes: &[u8]) -> io::Result<usize> {
        let some = 1 + self.rng.index(bytes.len());
        let mut len = if self.rng.below(4) == 0 { some } else { bytes.len() };
        if self.faults.writes_fail {
            // As likely as not it has written something before.
            if self.rng.below(2) == 0 {
                return Err(io::Error::other("the disk does not answer"));
            }
            len = some;
        }
        if let Some(room) = &mut self.faults.room {
            len = len.min(*room);
            *room -= len;
        }
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inodes[inode].bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn sync(&mut self, inode: usize) -> io::Result<()> {
        let inode = &mut self.inodes[inode];
        if self.faults.syncs_fail {
            inode.is_doubtful = true;
            return Err(io::Error::other("the disk did not keep it"));
        }
        if !inode.is_doubtful {
            inode.synced_len = inode.bytes.len();
        }
        Ok(())
    }

    fn submit(&mut self, steps: VecDeque<Step>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if self.tasks.is_empty() {
            self.plan_step();
        }
        self.tasks.push_back((ticket, steps));
        ticket
    }

    fn plan_step(&mut self) {
        self.step_at = self.now_ms + u64::from(self.rng.below(self.step_ms_max + 1));
    }

    fn take_step(&mut self) {
        let (ticket, steps) = self.tasks.front_mut().expect("there is a task");
        let ticket = *ticket;
        let step = steps.pop_front();
        let is_last = steps.is_empty();
        let result = match step {
            None => Ok(()),
            Some(Step::Write(inode, bytes)) => self.write_all(inode, &bytes),
            Some(Step::Sync(inode)) => self.sync(inode),
            Some(Step::Rename(from, to)) => self.rename(&from, &to),
            Some(Step::SyncNames) => {
                self.sync_names();
                Ok(())
            }
        };
        if is_last || result.is_err() {
            self.tasks.pop_front();
            self.events.push_back(DiskEvent { ticket, result });
        }
        self.plan_step();
    }

    fn write_all(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            written += self.write(inode, &bytes[written..])?;
        }
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = *self.current_names().get(from).ok_or(io::ErrorKind::NotFound)?;
        self.change_names(|names| {
            names.remove(from);
            names.insert(to.into(), inode);
        });
        Ok(())
    }
}

impl DiskFile for File {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.device.borrow_mut().write(self.inode, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.borrow_mut().sync(self.inode)
    }
}

impl disk::Disk for Disk {
    type File = File;

    fn open(&mut self, path: &Path) -> io::Result<(File, u64)> {
        let mut device = self.0.borrow_mut();
        let inode = match device.current_names().get(path) {
            Some(inode) => *inode,
            None => {
                let inode = device.new_inode();
                device.change_names(|names| names.insert(path.into(), inode));
                inode
            }
        };
        device.sync_names();
        let len = device.inodes[inode].bytes.len() as u64;
        Ok((self.file(inode), len))
    }

    fn create(&mut self, path: &Path, _successor_of: &Path) -> io::Result<File> {
        let mut device = self.0.borrow_mut();
        let inode = device.new_inode();
        device.change_names(|names| names.insert(path.into(), inode));
        Ok(self.file(inode))
    }

    fn replace(&mut self, file: &File, from: &Path, to: &Path) -> io::Result<()> {
        let mut device = self.0.borrow_mut();
        device.sync(file.inode)?;
        device.rename(from, to)?;
        device.sync_names();
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let mut device = self.0.borrow_mut();
        let removed = device.change_names(|names| names.remove(path));
        removed.map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_for_good(&mut self, path: &Path) -> io::Result<()> {
        self.remove(path)?;
        self.0.borrow_mut().sync_names();
        Ok(())
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let bytes = Self::read(self, path).map(|bytes| bytes.to_vec());
        bytes.ok_or(io::ErrorKind::NotFound.into())
    }

    fn identify(&mut self, path: &Path) -> io::Result<FileIdentity> {
        let device = self.0.borrow();
        let inode = *device.current_names().get(path).ok_or(io::ErrorKind::NotFound)?;
        let len = device.inodes[inode].bytes.len() as u64;
        // Nobody writes to a file here without making it longer or shorter.
        Ok(FileIdentity { len, inode: inode as u64, written_at: (0, 0) })
    }

    fn submit(&mut self, task: DiskTask<File>) -> Ticket {
        let steps = match task {
            DiskTask::Write { file, bytes } => vec![Step::Write(file.inode, bytes)],
            DiskTask::Sync(file) => vec![Step::Sync(file.inode)],
            DiskTask::Replace { file, from, to } => {
                vec![Step::Sync(file.inode), Step::Rename(from, to), Step::SyncNames]
            }
            DiskTask::Close(file) => {
                let is_last = Rc::strong_count(&file.handles) == 1;
                assert!(is_last, "the node must not be who closes a large file");
                Vec::new()
            }
        };
        self.0.borrow_mut().submit(steps.into())
    }

    fn poll(&mut self) -> Option<DiskEvent> {
        self.0.borrow_mut().events.pop_front()
    }
}
