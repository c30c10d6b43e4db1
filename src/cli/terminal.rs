//! Standard output and standard error, and the few things only a terminal can do.
//!
//! What a server sent may hold escape sequences, which would move the cursor, change titles
//! or type for the operator. They never reach a terminal: [`print`] and [`complain`] show
//! control characters as `\x1b`. Only [`draw`] writes as is, for sequences of our own.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};

use super::failure::Failure;
use crate::base::reason::reason;
use crate::base::sink::Sink;

/// Bytes after which a part of the output is sent.
const PIECE_LEN: usize = 64 * 1024;

/// Moves to the top left corner of an emptied screen.
pub const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Writes to standard output and sends it off, so that pipes see every reply at once. Bytes
/// that a terminal would obey are shown there, and kept elsewhere.
pub fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    print_by(|out| out.put(bytes.as_ref()))
}

/// As [`print`], for what comes piece by piece.
pub fn print_by(write: impl FnOnce(&mut dyn Sink)) -> Result<(), Failure> {
    let mut output =
        StandardOutput { held: Vec::new(), is_terminal: io::stdout().is_terminal(), done: Ok(()) };
    write(&mut output);
    output.send(output.held.len());
    output.done.map_err(Failure::Output)
}

/// Standard output, sent in pieces.
struct StandardOutput {
    held: Vec<u8>,
    is_terminal: bool,
    /// The first failure, after which nothing is sent any more.
    done: io::Result<()>,
}

impl Sink for StandardOutput {
    fn put(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(PIECE_LEN) {
            self.held.extend_from_slice(part);
            if self.held.len() >= PIECE_LEN {
                self.send(self.whole_len());
            }
        }
    }
}

impl StandardOutput {
    /// The length of what can be shown without knowing what follows: a character must not be
    /// cut, nor a line end of two bytes.
    fn whole_len(&self) -> usize {
        let continued = self.held.iter().rev().take_while(|byte| **byte & 0xc0 == 0x80).count();
        match self.held.len().checked_sub(continued + 1).map(|at| (at, self.held[at])) {
            Some((at, 0xc0.. | b'\r')) if continued < 4 => at,
            _ => self.held.len(),
        }
    }

    fn send(&mut self, len: usize) {
        let piece = &self.held[..len];
        let shown = if self.is_terminal { harmless(piece) } else { Cow::Borrowed("") };
        let bytes = if self.is_terminal { shown.as_bytes() } else { piece };
        if self.done.is_ok() {
            self.done = write_out(bytes);
        }
        self.held.drain(..len);
    }
}

/// As [`print`], for text of our own that a terminal is to obey.
pub fn draw(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    write_out(bytes.as_ref()).map_err(Failure::Output)
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Writes a line about what went wrong to standard error.
pub fn complain(what: impl Display) {
    eprintln!("{}", one_line(&what.to_string()));
}

/// Shows everything in one line: control characters, line ends too, are escaped.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(text.chars().fold(String::new(), with_char)),
        false => Cow::Borrowed(text),
    }
}

/// Escapes what a terminal obeys, but for tabs and line ends, and what is no UTF-8.
fn harmless(bytes: &[u8]) -> Cow<'_, str> {
    let is_layout = |c: char| matches!(c, '\n' | '\t');
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.contains(|c: char| c.is_control() && !is_layout(c))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut chars = chunk.valid().chars().peekable();
        while let Some(c) = chars.next() {
            if is_layout(c) || c == '\r' && chars.peek() == Some(&'\n') {
                out.push(c);
            } else {
                out = with_char(out, c);
            }
        }
        for byte in chunk.invalid() {
            let _infallible = write!(out, "\\x{byte:02x}");
        }
    }
    Cow::Owned(out)
}

fn with_char(mut out: String, c: char) -> String {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c.is_control() => {
            let _infallible = write!(out, "\\x{:02x}", u32::from(c));
        }
        c => out.push(c),
    }
    out
}

/// Returns whether standard output is a terminal; the variable FAKETTY claims so.
pub fn prints_to_terminal() -> bool {
    io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some()
}

/// How much a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenSize {
    pub lines: usize,
    pub columns: usize,
}

/// Returns the size of standard output, when it is a terminal that says so.
pub fn screen_size() -> Option<ScreenSize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the pointer it is given, and to nothing else.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let is_known = status == 0 && size.ws_row > 0 && size.ws_col > 0;
    is_known.then(|| ScreenSize { lines: size.ws_row.into(), columns: size.ws_col.into() })
}

/// Asks for a password on the terminal, whatever standard input and output are.
pub fn ask_password() -> Result<Vec<u8>, Failure> {
    let unable = |error: io::Error| {
        Failure::Message(format!(
            "Cannot ask for the password on the terminal ({}); set DISQUE_AUTH instead.",
            reason(&error)
        ))
    };
    let mut terminal =
        OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(unable)?;
    let mut password = Vec::new();
    {
        // Hidden before asked for: hiding throws away what has been typed so far.
        let _hidden = HiddenTyping::on(&terminal, libc::ECHO).map_err(unable)?;
        (&terminal).write_all(b"Password: ").map_err(unable)?;
        BufReader::new(&terminal).read_until(b'\n', &mut password).map_err(unable)?;
    }
    terminal.write_all(b"\n").map_err(unable)?;
    if password.last() == Some(&b'\n') {
        password.pop();
    }
    Ok(password)
}

/// Keys of the terminal at standard input come one by one and are not shown, until this is
/// dropped.
pub struct Keys {
    _typing: HiddenTyping<io::Stdin>,
}

impl Keys {
    /// `None` unless standard input and output are a terminal.
    pub fn watch() -> Option<Keys> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let typing = HiddenTyping::on(io::stdin(), libc::ECHO | libc::ICANON).ok()?;
        Some(Keys { _typing: typing })
    }
}

/// A terminal that does not show what is typed, until dropped.
struct HiddenTyping<T: AsFd> {
    terminal: T,
    before: libc::termios,
}

impl<T: AsFd> HiddenTyping<T> {
    /// Turns some of the terminal's modes off.
    fn on(terminal: T, modes: libc::tcflag_t) -> io::Result<Self> {
        // SAFETY: termios is a plain C struct for which all zeros is a value, and tcgetattr
        // fills it; the descriptor is open as long as the borrow lasts.
        let before = unsafe {
            let mut attributes: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(terminal.as_fd().as_raw_fd(), &raw mut attributes) != 0 {
                return Err(io::Error::last_os_error());
            }
            attributes
        };
        let hidden = HiddenTyping { terminal, before };
        let mut attributes = before;
        attributes.c_lflag &= !modes;
        hidden.apply(&attributes)?;
        Ok(hidden)
    }

    fn apply(&self, attributes: &libc::termios) -> io::Result<()> {
        // SAFETY: the attributes come from tcgetattr on this same open descriptor.
        let status = unsafe {
            libc::tcsetattr(self.terminal.as_fd().as_raw_fd(), libc::TCSAFLUSH, attributes)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl<T: AsFd> Drop for HiddenTyping<T> {
    fn drop(&mut self) {
        // Nothing better can be done about a terminal that is gone.
        let _ = self.apply(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(harmless(b"plain\ttext\r\n\xc3\xa9\n"), "plain\ttext\r\n\u{e9}\n");
        assert_eq!(harmless(b"\x1b[2J\rx\x07\x7f"), "\\x1b[2J\\rx\\x07\\x7f");
        // The control characters of 8 bits, in UTF-8 and bare, and bytes of no character.
        assert_eq!(harmless(b"\xc2\x9b2J \x9b2J \xff"), "\\x9b2J \\x9b2J \\xff");
    }

    #[test]
    fn pieces_cut_no_character_and_no_line_end() {
        let whole = |bytes: &[u8]| {
            StandardOutput { held: bytes.to_vec(), is_terminal: true, done: Ok(()) }.whole_len()
        };
        for (bytes, len) in [
            (&b""[..], 0),
            (b"abc", 3),
            (b"abc\r", 3),
            (b"abc\r\n", 5),
            (b"ab\xe2\x82", 2),
            (b"ab\xe2", 2),
            (b"ab\x80\x80\x80\x80", 6),
            (b"\x80", 1),
        ] {
            assert_eq!(whole(bytes), len, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn one_line_stays_one() {
        assert_eq!(one_line("a\r\nOK: \u{9b}\t\u{e9}"), "a\\r\\nOK: \\x9b\\t\u{e9}");
    }
}
