//! Standard output, and the few things only a terminal can do.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsRawFd;

use super::failure::Failure;
use crate::base::reason::reason;

/// Moves to the top left corner of an emptied screen.
pub const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Writes to standard output and sends it off, so that pipes see every reply at once.
pub fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes.as_ref()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Returns whether standard output is a terminal; the variable FAKETTY claims so.
pub fn prints_to_terminal() -> bool {
    io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some()
}

/// Returns how many lines standard output shows, when it is a terminal that says so.
pub fn height() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the pointer it is given, and to nothing else.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (status == 0 && size.ws_row > 0).then_some(usize::from(size.ws_row))
}

/// Asks for a password on the terminal, whatever standard input and output are.
pub fn ask_password() -> Result<Vec<u8>, Failure> {
    let unable = |error: io::Error| {
        Failure::Told(format!(
            "Cannot ask for the password on the terminal ({}); set DISQUE_AUTH instead.",
            reason(&error)
        ))
    };
    let mut terminal =
        OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(unable)?;
    let mut password = Vec::new();
    {
        // Hidden before asked for: hiding throws away what has been typed so far.
        let _hidden = HiddenTyping::on(&terminal).map_err(unable)?;
        (&terminal).write_all(b"Password: ").map_err(unable)?;
        BufReader::new(&terminal).read_until(b'\n', &mut password).map_err(unable)?;
    }
    terminal.write_all(b"\n").map_err(unable)?;
    if password.last() == Some(&b'\n') {
        password.pop();
    }
    Ok(password)
}

/// A terminal that does not show what is typed, until dropped.
struct HiddenTyping<'a> {
    terminal: &'a File,
    before: libc::termios,
}

impl<'a> HiddenTyping<'a> {
    fn on(terminal: &'a File) -> io::Result<Self> {
        // SAFETY: termios is a plain C struct for which all zeros is a value, and tcgetattr
        // fills it; the descriptor is open as long as the borrow lasts.
        let before = unsafe {
            let mut attributes: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(terminal.as_raw_fd(), &raw mut attributes) != 0 {
                return Err(io::Error::last_os_error());
            }
            attributes
        };
        let hidden = HiddenTyping { terminal, before };
        let mut attributes = before;
        attributes.c_lflag &= !libc::ECHO;
        hidden.apply(&attributes)?;
        Ok(hidden)
    }

    fn apply(&self, attributes: &libc::termios) -> io::Result<()> {
        // SAFETY: the attributes come from tcgetattr on this same open descriptor.
        let status =
            unsafe { libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSAFLUSH, attributes) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for HiddenTyping<'_> {
    fn drop(&mut self) {
        // Nothing better can be done about a terminal that is gone.
        let _ = self.apply(&self.before);
    }
}
