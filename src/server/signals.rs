//! Signals and panics.
//!
//! | signal | what happens |
//! |---|---|
//! | TERM, INT | an event of the loop: see [`Termination`] |
//! | INT, a second time before the server ended | exit 1 at once, even out of a stuck loop |
//! | HUP, PIPE | ignored: the log needs no reload, and writes report their errors |
//! | SEGV, BUS, FPE, ILL | a line in the log, then the signal does what it does by default |
//!
//! A panic is reported in the log where it happens; what becomes of the process is for
//! the caller of the loop to decide.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{backtrace, panic, process};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook_mio::v1_0::Signals;

use super::logger;
use super::version::DISQUE_VERSION;

/// SIGTERM and SIGINT as a source of the event loop: readable means that somebody wants
/// the server to end.
pub struct Termination {
    signals: Signals,
    is_pending: Arc<AtomicBool>,
}

impl Termination {
    pub fn new() -> io::Result<Self> {
        let is_pending = Arc::new(AtomicBool::new(false));
        // The order counts: the first SIGINT finds the flag down and raises it, the second
        // finds it up.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 1, Arc::clone(&is_pending))?;
        signal_hook::flag::register(SIGINT, Arc::clone(&is_pending))?;
        signal_hook::flag::register(SIGTERM, Arc::clone(&is_pending))?;
        Ok(Self { signals: Signals::new([SIGTERM, SIGINT])?, is_pending })
    }

    /// Returns, once for each signal, whether the server is to shut down.
    pub fn is_asked(&mut self) -> bool {
        let mut is_asked = false;
        for signal in self.signals.pending() {
            is_asked = true;
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            log::warn!("Received {name}, shutting down");
        }
        is_asked
    }

    /// The server could not end and goes on; the next SIGINT is a first one again.
    pub fn refuse(&self) {
        self.is_pending.store(false, Ordering::SeqCst);
    }
}

impl Source for Termination {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.signals.register(registry, token, interest)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.signals.reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.signals.deregister(registry)
    }
}

/// Ignores SIGHUP, SIGPIPE and SIGXFSZ, and reports faults and panics in the log. Called
/// once, after the log was started. A limit on the size of files is an error when one is
/// written then, as a full disk is.
pub fn install() {
    for signal in [libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        // SAFETY: the handler makes only calls that are allowed in one. It runs on the
        // stack that std set aside for overflows, and only once: SA_RESETHAND brings the
        // default back before it starts.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = report_fault as extern "C" fn(c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    panic::set_hook(Box::new(|panic| {
        log::error!("=== DISQUE BUG REPORT START ===");
        log::error!("Disque {DISQUE_VERSION} panicked: {panic}");
        let trace = backtrace::Backtrace::force_capture();
        log::error!(target: logger::RAW, "{trace}");
    }));
}

/// Writes one line to the log and dies of the signal. Only calls that POSIX allows in a
/// signal handler: no allocation, no lock, no formatting.
extern "C" fn report_fault(signal: c_int) {
    let mut line = SignalLine { bytes: [0; 160], len: 0 };
    line.number(process::id().into());
    line.text(b":signal-handler (");
    // SAFETY: time only returns a number when it is given no place to write to.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    line.number(now.unsigned_abs());
    line.text(b") Disque ");
    line.text(DISQUE_VERSION.as_bytes());
    line.text(b" crashed by signal: ");
    line.number(signal.unsigned_abs().into());
    line.text(b"\n");
    // SAFETY: open, write and raise are allowed in a handler; the path ends with a zero
    // byte and lives for ever, the line lives for the call.
    unsafe {
        let file = match logger::file_for_handlers() {
            Some(path) if !path.is_empty() => {
                let flags = libc::O_APPEND | libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
                libc::open(path.as_ptr(), flags, 0o644)
            }
            _ => libc::STDOUT_FILENO,
        };
        libc::write(file, line.bytes.as_ptr().cast(), line.len);
        libc::raise(signal);
    }
}

/// A line put together without an allocator. What does not fit is left out.
struct SignalLine {
    bytes: [u8; 160],
    len: usize,
}

impl SignalLine {
    fn text(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.text(&[b'0' + (number % 10) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_numbers_and_stops_when_full() {
        let mut line = SignalLine { bytes: [0; 160], len: 0 };
        line.number(0);
        line.text(b" ");
        line.number(u64::MAX);
        assert_eq!(&line.bytes[..line.len], b"0 18446744073709551615");
        line.text(&[b'x'; 500]);
        assert_eq!(line.len, 160);
    }
}
