//! A program in a terminal of its own, as somebody sits in front of it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{PATIENCE, Program};

pub struct Terminal {
    keyboard_and_screen: File,
    program: Program,
    seen: String,
}

impl Terminal {
    /// Starts the program with the terminal as its three streams and as its /dev/tty.
    pub fn run(command: Command) -> Terminal {
        Terminal::on(open_pair(None), command)
    }

    fn on((master, slave): (File, OwnedFd), mut command: Command) -> Terminal {
        let stream = || Stdio::from(slave.try_clone().expect("a second handle"));
        command.stdin(stream()).stdout(stream()).stderr(stream()).env("TERM", "xterm");
        // SAFETY: setsid and ioctl may be called between fork and exec; standard input is the
        // terminal by then.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let program = Program::start(&mut command);
        Terminal { keyboard_and_screen: master, program, seen: String::new() }
    }

    /// As [`run`](Self::run), on a screen of this size.
    pub fn run_sized(command: Command, lines: u16, columns: u16) -> Terminal {
        Terminal::on(open_pair(Some((lines, columns))), command)
    }

    /// Types keys.
    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard_and_screen.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Waits until a text has appeared since the last one waited for. Returns what came before.
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(start) = self.seen.find(text) {
                let rest = self.seen.split_off(start + text.len());
                let mut before = std::mem::replace(&mut self.seen, rest);
                before.truncate(start);
                return before;
            }
            assert!(self.read_more(deadline), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Waits until the terminal makes signals of Ctrl-C again, which it does not while a line
    /// is edited.
    pub fn wait_for_cooked_mode(&self) {
        let deadline = Instant::now() + PATIENCE;
        // SAFETY: termios is a plain C struct for which all zeros is a value, and tcgetattr
        // fills it; the descriptor is open as long as the borrow lasts.
        let is_cooked = || unsafe {
            let mut attributes: libc::termios = std::mem::zeroed();
            let terminal = self.keyboard_and_screen.as_raw_fd();
            libc::tcgetattr(terminal, &raw mut attributes) == 0
                && attributes.c_lflag & libc::ISIG != 0
        };
        while !is_cooked() {
            assert!(Instant::now() < deadline, "the line is edited for ever");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the program ends. Returns its exit status and what was not waited for.
    pub fn wait_for_end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.read_more(deadline) {}
        assert!(Instant::now() <= deadline, "the program goes on after {:?}", self.seen);
        (self.program.wait().code(), self.seen)
    }

    /// Reads what is there, waiting for something. False: nothing will come.
    fn read_more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut interest = libc::pollfd {
            fd: self.keyboard_and_screen.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let left_ms = i32::try_from(left.as_millis()).expect("patience is short");
        // SAFETY: one pollfd is passed, and it lives through the call.
        let ready = unsafe { libc::poll(&raw mut interest, 1, left_ms) };
        if ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            return true;
        }
        if ready <= 0 {
            return false;
        }
        let mut buffer = [0; 4096];
        // A terminal whose other side is closed fails to read instead of ending.
        match self.keyboard_and_screen.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(len) => {
                self.seen.push_str(&String::from_utf8_lossy(&buffer[..len]));
                true
            }
        }
    }
}

/// Opens a terminal, of so many lines and columns if it is to say that.
fn open_pair(size: Option<(u16, u16)>) -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let (ws_row, ws_col) = size.unwrap_or_default();
    let mut size = libc::winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: openpty writes two descriptors and reads the size; the optional pointers may be
    // null.
    let status = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut size,
        )
    };
    assert_eq!(status, 0, "no terminal: {}", std::io::Error::last_os_error());
    // SAFETY: both descriptors were just opened and belong to nobody else. The master must not
    // leak into the child, or its end would never be noticed.
    unsafe {
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}
