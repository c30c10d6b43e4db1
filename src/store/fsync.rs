//! The thread that waits for the disk, so that the loop need not.
//!
//! Tasks go through a channel and are done strictly in their order; what became of each
//! comes back through another as an [`DiskEvent`] with the task's ticket. After each event
//! the thread calls `wake`, which makes the loop turn. Files are shared with the loop:
//! the one that lets go last closes, and the tasks see to it that this is the thread,
//! because closing the last descriptor of a large deleted file takes long.
//!
//! The thread ends when its [`DiskThread`] is dropped.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::base::histogram::{DURATION_BOUNDS_US, DurationHistogram};

use super::disk::{Disk, DiskEvent, DiskFile, DiskTask, FileIdentity, Ticket};
use super::replacement::{self, NEW_FILE_MODE, folder_of, sync_folder_of};

/// How long the syncs of this process took that worked, whoever waited for them.
static SYNC_DURATIONS: Mutex<DurationHistogram> = Mutex::new(DurationHistogram::new());

/// How long syncs of the append only file and of its rewrites took, in us.
pub fn sync_durations() -> DurationHistogram {
    *SYNC_DURATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called on the thread when there is an event.
pub type Wake = Box<dyn Fn() + Send>;

/// The system's files, and a thread for what may take long.
pub struct DiskThread {
    tasks: Sender<(Ticket, DiskTask<Arc<File>>)>,
    events: Receiver<DiskEvent>,
    next_ticket: u64,
}

impl DiskThread {
    /// Starts the thread. Fails when the system gives no more threads.
    pub fn start(wake: Wake) -> io::Result<Self> {
        let (tasks, todo) = mpsc::channel();
        let (done, events) = mpsc::channel();
        thread::Builder::new()
            .name("disque-disk".into())
            .spawn(move || work(&todo, &done, &*wake))?;
        Ok(Self { tasks, events, next_ticket: 0 })
    }

    /// Waits for the next event.
    #[cfg(test)]
    pub fn wait(&mut self) -> DiskEvent {
        self.events.recv().expect("the thread lives as long as this")
    }
}

impl DiskFile for Arc<File> {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&**self).write(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let started = Instant::now();
        self.sync_data()?;
        let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut durations = SYNC_DURATIONS.lock().unwrap_or_else(PoisonError::into_inner);
        durations.note(&DURATION_BOUNDS_US, us);
        Ok(())
    }
}

impl Disk for DiskThread {
    type File = Arc<File>;

    fn open(&mut self, path: &Path) -> io::Result<(Arc<File>, u64)> {
        let mut options = File::options();
        let file = options.append(true).create(true).mode(NEW_FILE_MODE).open(path)?;
        // It may be new, or renamed by a server that did not live to see that through.
        sync_folder_of(path);
        let len = file.metadata()?.len();
        Ok((Arc::new(file), len))
    }

    fn create(&mut self, path: &Path, successor_of: &Path) -> io::Result<Arc<File>> {
        replacement::create(path, successor_of).map(Arc::new)
    }

    fn replace(&mut self, file: &Arc<File>, from: &Path, to: &Path) -> io::Result<()> {
        replacement::take_place(file, from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_for_good(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        File::open(folder_of(path))?.sync_all()
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn identify(&mut self, path: &Path) -> io::Result<FileIdentity> {
        let file = fs::metadata(path)?;
        let written_at = (file.mtime(), file.mtime_nsec());
        Ok(FileIdentity { len: file.len(), inode: file.ino(), written_at })
    }

    fn submit(&mut self, task: DiskTask<Arc<File>>) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tasks.send((ticket, task)).expect("the thread lives as long as this");
        ticket
    }

    fn poll(&mut self) -> Option<DiskEvent> {
        self.events.try_recv().ok()
    }
}

fn work(todo: &Receiver<(Ticket, DiskTask<Arc<File>>)>, done: &Sender<DiskEvent>, wake: &dyn Fn()) {
    for (ticket, task) in todo {
        let result = match task {
            DiskTask::Write { file, bytes } => (&*file).write_all(&bytes),
            DiskTask::Sync(file) => file.sync_data(),
            DiskTask::Replace { file, from, to } => replacement::take_place(&file, &from, &to),
            DiskTask::Close(_) => continue,
        };
        if done.send(DiskEvent { ticket, result }).is_err() {
            return;
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn tasks_are_done_in_order_and_each_event_wakes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&to, b"old").expect("write");
        let file = Arc::new(File::create(&from).expect("create"));
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let wake = Box::new(move || {
            counter.fetch_add(1, SeqCst);
        });
        let mut disk = DiskThread::start(wake).expect("a thread");
        let mut tickets = Vec::new();
        for bytes in [&b"one "[..], b"two"] {
            let task = DiskTask::Write { file: Arc::clone(&file), bytes: bytes.to_vec() };
            tickets.push(disk.submit(task));
        }
        tickets.push(disk.submit(DiskTask::Sync(Arc::clone(&file))));
        disk.submit(DiskTask::Close(Arc::clone(&file)));
        tickets.push(disk.submit(DiskTask::Replace { file, from, to: to.clone() }));
        for ticket in tickets {
            let event = disk.wait();
            assert_eq!(event.ticket, ticket);
            event.result.expect("nothing fails here");
        }
        assert_eq!(fs::read(&to).expect("read"), b"one two");
        assert!(wakes.load(SeqCst) >= 3);
    }

    #[test]
    fn a_failed_task_says_why_and_the_next_is_done() {
        let mut disk = DiskThread::start(Box::new(|| {})).expect("a thread");
        let full = Arc::new(File::options().write(true).open("/dev/full").expect("/dev/full"));
        disk.submit(DiskTask::Write { file: full, bytes: vec![0; 10] });
        let null = Arc::new(File::options().write(true).open("/dev/null").expect("/dev/null"));
        disk.submit(DiskTask::Write { file: null, bytes: vec![0; 10] });
        assert_eq!(disk.wait().result.expect_err("full").kind(), io::ErrorKind::StorageFull);
        disk.wait().result.expect("written");
    }
}
