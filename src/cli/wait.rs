//! Waiting: for a socket, for time to pass, and in the interactive client for Ctrl-C too.
//!
//! Every wait blocks. Once [`catch_interrupts`] has been called, Ctrl-C ends the wait under way,
//! or the next one, with [`Failure::Interrupted`], and no longer the process. A second Ctrl-C
//! before any wait has answered the first ends the process: the tool may be in a name
//! lookup, which cannot be ended in another way.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

use super::failure::Failure;
use crate::base::reason::reason;

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Readable,
    Writable,
}

/// What Ctrl-C reaches. A process has one disposition of SIGINT, so there is one of these.
static INTERRUPTS: OnceLock<Interrupts> = OnceLock::new();

struct Interrupts {
    /// Readable from a SIGINT on until a wait has answered it.
    bell: UnixStream,
    is_unanswered: Arc<AtomicBool>,
}

impl Interrupts {
    fn watch() -> io::Result<Interrupts> {
        let (bell, hammer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let is_unanswered = Arc::new(AtomicBool::new(false));
        // In this order: the first reads the flag before the second sets it.
        let flag = || Arc::clone(&is_unanswered);
        signal_hook::flag::register_conditional_default(SIGINT, flag())?;
        signal_hook::flag::register(SIGINT, flag())?;
        signal_hook::low_level::pipe::register(SIGINT, hammer)?;
        Ok(Interrupts { bell, is_unanswered })
    }

    /// Returns whether there was a SIGINT since the last call.
    fn answer(&self) -> bool {
        let mut rings = [0; 64];
        // An empty pipe fails to read at once.
        let was_rung = (&self.bell).read(&mut rings).is_ok();
        self.is_unanswered.swap(false, Ordering::Relaxed) || was_rung
    }
}

/// Makes Ctrl-C end waits instead of the process, from now on.
pub fn catch_interrupts() -> Result<(), Failure> {
    let interrupts = Interrupts::watch().map_err(|error| {
        Failure::Message(format!("Cannot watch for Ctrl-C: {}", reason(&error)))
    })?;
    // The second of two calls changes nothing.
    let _ = INTERRUPTS.set(interrupts);
    Ok(())
}

/// Forgets a Ctrl-C that came when nothing was waited for.
pub fn forget_interrupt() {
    if let Some(interrupts) = INTERRUPTS.get() {
        interrupts.answer();
    }
}

/// Waits until a socket is ready. Fails with `Silent` when it is not before the deadline.
pub fn for_socket(
    socket: &impl AsFd,
    readiness: Readiness,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let events = match readiness {
        Readiness::Readable => libc::POLLIN,
        Readiness::Writable => libc::POLLOUT,
    };
    match poll(socket.as_fd().as_raw_fd(), events, deadline)? {
        WaitEnd::Ready => Ok(()),
        WaitEnd::TimedOut => Err(Failure::Silent),
    }
}

/// Returns whether Ctrl-C ends waits.
pub fn catches_interrupts() -> bool {
    INTERRUPTS.get().is_some()
}

/// Waits for a key, so long at most. `None`: there was none.
pub fn for_key(longest: Duration) -> Result<Option<u8>, Failure> {
    match for_socket(&io::stdin(), Readiness::Readable, Some(Instant::now() + longest)) {
        Ok(()) => {}
        Err(Failure::Silent) => return Ok(None),
        Err(failure) => return Err(failure),
    }
    let mut key = [0];
    // The terminal is gone: nobody will ever type.
    match io::stdin().lock().read(&mut key).map_err(Failure::Socket)? {
        0 => Err(Failure::Interrupted),
        _ => Ok(Some(key[0])),
    }
}

/// Lets some time pass.
pub fn pause(length: Duration) -> Result<(), Failure> {
    if INTERRUPTS.get().is_none() {
        std::thread::sleep(length);
        return Ok(());
    }
    poll(NO_SOCKET, 0, Some(Instant::now() + length)).map(|_| ())
}

enum WaitEnd {
    Ready,
    TimedOut,
}

/// Stands for a descriptor that poll(2) passes over.
const NO_SOCKET: RawFd = -1;

fn poll(
    socket: RawFd,
    events: libc::c_short,
    deadline: Option<Instant>,
) -> Result<WaitEnd, Failure> {
    let interrupts = INTERRUPTS.get();
    let bell = interrupts.map_or(NO_SOCKET, |interrupts| interrupts.bell.as_raw_fd());
    loop {
        let mut watched = [
            libc::pollfd { fd: socket, events, revents: 0 },
            libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 },
        ];
        let left_ms = deadline.map(|deadline| {
            // Rounded up, or the last part of a millisecond would be spent in a busy loop.
            let left = deadline.saturating_duration_since(Instant::now());
            left.as_micros().div_ceil(1000)
        });
        let timeout_ms = left_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        // SAFETY: the array of two lives through the call, and both descriptors are open or -1.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), 2, timeout_ms) };
        if interrupts.is_some_and(Interrupts::answer) {
            return Err(Failure::Interrupted);
        }
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Failure::Socket(error));
            }
        } else if ready > 0 {
            return Ok(WaitEnd::Ready);
        } else if left_ms.is_some_and(|ms| ms <= i32::MAX as u128) {
            return Ok(WaitEnd::TimedOut);
        }
    }
}
