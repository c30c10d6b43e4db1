//! The interactive client: lines typed, or piped in, are commands.
//!
//! A terminal gets a prompt, line editing, completion and a history kept in
//! `~/.disque_history`, one line each as the C client keeps it. A pipe gets replies only.
//! Nothing that fails ends the client: the next command connects again.

use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::connection::ServerAddress;
use super::failure::{Failure, STATUS_FAILED};
use super::help;
use super::options::{CliOptions, Repeat};
use super::session::{RequestOutcome, Session, show_help};
use super::terminal::{self, CLEAR_SCREEN};
use crate::base::reason::reason;
use crate::proto::quoting;

/// Commands that took this long have their time shown.
const SLOW: Duration = Duration::from_millis(500);
/// Lines kept in the history.
const HISTORY_MAX: usize = 1000;

/// Runs the client until the input ends. Returns the exit status.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let mut session = Session::new(options);
    if let Err(failure) = session.connect() {
        eprintln!("{failure}");
    }
    if io::stdin().is_terminal() {
        edit_lines(&mut session)
    } else {
        read_lines(&mut session, options)
    }
}

/// What a line leads to.
enum Next {
    Line,
    Quit,
}

fn read_lines(session: &mut Session<'_>, options: &CliOptions) -> Result<u8, Failure> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(0),
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::Told(format!(
                    "Reading from standard input: {}",
                    reason(&error)
                )));
            }
        }
        match run_line(session, &line) {
            Ok((Next::Quit, _)) => return Ok(0),
            Ok((Next::Line, RequestOutcome::ErrorReply)) if options.stops_at_error => {
                return Ok(STATUS_FAILED);
            }
            Ok(_) => {}
            Err(failure) if options.stops_at_error => return Err(failure),
            Err(failure @ (Failure::Output(_) | Failure::Protocol(_))) => return Err(failure),
            Err(failure) => eprintln!("{failure}"),
        }
    }
}

fn edit_lines(session: &mut Session<'_>) -> Result<u8, Failure> {
    let broken =
        |error: ReadlineError| Failure::Told(format!("Cannot read from the terminal: {error}"));
    let config = Config::builder()
        .completion_type(CompletionType::Circular)
        .max_history_size(HISTORY_MAX)
        .map_err(broken)?
        .build();
    let mut editor: Editor<CommandNames, MemHistory> =
        Editor::with_history(config.clone(), MemHistory::with_config(&config)).map_err(broken)?;
    editor.set_helper(Some(CommandNames));
    let history_file = history_path();
    if let Some(path) = &history_file {
        let lines = std::fs::read(path).unwrap_or_default();
        for line in String::from_utf8_lossy(&lines).lines() {
            editor.add_history_entry(line).map_err(broken)?;
        }
    }
    loop {
        let line = match editor.readline(&session.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(0),
            Err(error) => return Err(broken(error)),
        };
        if may_be_kept(&line) && editor.add_history_entry(line.as_str()).map_err(broken)? {
            // A history that cannot be written is no reason to stop working.
            let _ = save_history(history_file.as_deref(), editor.history());
        }
        match run_line(session, line.as_bytes()) {
            Ok((Next::Quit, _)) => return Ok(0),
            Ok((Next::Line, _)) => {}
            Err(failure @ Failure::Output(_)) => return Err(failure),
            Err(failure) => eprintln!("{failure}"),
        }
    }
}

/// Runs one line: a local command, or one for the server.
fn run_line(session: &mut Session<'_>, line: &[u8]) -> Result<(Next, RequestOutcome), Failure> {
    let Ok(args) = quoting::split(line) else {
        terminal::print("Invalid argument(s)\n")?;
        return Ok((Next::Line, RequestOutcome::Served));
    };
    let word = args.first().map(|first| first.to_ascii_lowercase());
    let outcome = match (word.as_deref(), args.as_slice()) {
        (None, _) => RequestOutcome::Served,
        (Some(b"quit" | b"exit"), _) => return Ok((Next::Quit, RequestOutcome::Served)),
        (Some(b"clear"), [_]) => {
            terminal::print(CLEAR_SCREEN)?;
            RequestOutcome::Served
        }
        (Some(b"connect"), [_, host, port]) => {
            session.address = typed_address(host, port)?;
            session.connect()?;
            RequestOutcome::Served
        }
        _ => execute(session, &args)?,
    };
    Ok((Next::Line, outcome))
}

/// Executes a command, as often as a number in front of it says.
fn execute(session: &mut Session<'_>, args: &[Vec<u8>]) -> Result<RequestOutcome, Failure> {
    let (repeat, args) = match args {
        [number, rest @ ..] if !rest.is_empty() => match leading_count(number) {
            Some(repeat) => (repeat, rest),
            None => (Repeat::Times(1), args),
        },
        _ => (Repeat::Times(1), args),
    };
    if let Some(shown) = show_help(args) {
        return shown.map(|()| RequestOutcome::Served);
    }
    let start = Instant::now();
    let outcome = session.execute(args, repeat);
    let took = start.elapsed();
    if took >= SLOW {
        terminal::print(format!("({:.2}s)\n", took.as_secs_f64()))?;
    }
    outcome
}

fn leading_count(word: &[u8]) -> Option<Repeat> {
    match std::str::from_utf8(word).ok()?.parse::<i64>().ok()? {
        0 => None,
        times => Some(u64::try_from(times).map_or(Repeat::Endless, Repeat::Times)),
    }
}

/// Differs from C: leaves a unix socket behind, because the host and port were just asked for.
fn typed_address(host: &[u8], port: &[u8]) -> Result<ServerAddress, Failure> {
    let port_text = String::from_utf8_lossy(port);
    let port = port_text.parse().map_err(|_| {
        Failure::Told(format!("connect takes a host and a port, not '{port_text}'"))
    })?;
    Ok(ServerAddress::Tcp { host: String::from_utf8_lossy(host).into_owned(), port })
}

/// Returns whether a line may go into the history file: passwords may not.
fn may_be_kept(line: &str) -> bool {
    let lower = line.trim_start().to_ascii_lowercase();
    !lower.is_empty() && !lower.starts_with("auth") && !lower.contains("requirepass")
}

fn history_path() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".disque_history"))
}

fn save_history(path: Option<&std::path::Path>, history: &MemHistory) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut text = String::new();
    for line in history {
        text.push_str(line);
        text.push('\n');
    }
    file.write_all(text.as_bytes())
}

/// Completes the names of commands and help topics.
struct CommandNames;

impl Completer for CommandNames {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(help::complete(&line[..cursor]))
    }
}

impl Hinter for CommandNames {
    type Hint = String;
}
impl Highlighter for CommandNames {}
impl Validator for CommandNames {}
impl Helper for CommandNames {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_front_repeats_a_command() {
        assert_eq!(leading_count(b"5"), Some(Repeat::Times(5)));
        assert_eq!(leading_count(b"-1"), Some(Repeat::Endless));
        assert_eq!(leading_count(b"0"), None);
        assert_eq!(leading_count(b"5x"), None);
    }

    #[test]
    fn passwords_stay_out_of_the_history() {
        assert!(may_be_kept("ping"));
        assert!(!may_be_kept(" AUTH secret"));
        assert!(!may_be_kept("config set requirepass secret"));
        assert!(!may_be_kept("  "));
    }
}
