//! The interactive client: lines typed, or piped in, are commands.
//!
//! A terminal gets a prompt, line editing, completion and a history kept in
//! `~/.disque_history`, one line each as the C client keeps it. A pipe gets replies only.
//! Nothing that fails ends the client: the next command connects again. Ctrl-C ends a command
//! that waits, or a verb that goes on for ever; at the prompt it ends the client.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::address::{ServerAddress, split_host};
use super::failure::{Failure, STATUS_FAILED};
use super::help;
use super::options::{self, CliOptions, CliRequest, Repeat};
use super::session::{RequestOutcome, Session, show_help};
use super::terminal::{self, CLEAR_SCREEN};
use super::verb;
use super::wait;
use crate::base::reason::reason;
use crate::proto::quoting;

/// Commands that took this long have their time shown.
const SLOW: Duration = Duration::from_millis(500);
/// Lines kept in the history.
const HISTORY_MAX: usize = 1000;

/// Runs the client until the input ends. Returns the exit status.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let mut session = Session::new(options.clone());
    let is_watched = io::stdin().is_terminal();
    if let Err(failure) = session.connect() {
        if !is_watched && matches!(failure, Failure::Login(_)) {
            return Err(failure);
        }
        terminal::complain(failure);
    }
    if is_watched { edit_lines(&mut session) } else { read_lines(&mut session) }
}

/// What a line leads to.
enum Next {
    Line,
    Quit,
}

fn read_lines(session: &mut Session) -> Result<u8, Failure> {
    let stops_at_error = session.options.stops_at_error;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(0),
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::Message(format!(
                    "Reading from standard input: {}",
                    reason(&error)
                )));
            }
        }
        match run_line(session, &line) {
            Ok((Next::Quit, _)) => return Ok(0),
            Ok((Next::Line, RequestOutcome::ErrorReply)) if stops_at_error => {
                return Ok(STATUS_FAILED);
            }
            Ok(_) => {}
            Err(failure) if stops_at_error => return Err(failure),
            Err(failure @ (Failure::Output(_) | Failure::Protocol(_))) => return Err(failure),
            Err(failure) => terminal::complain(failure),
        }
    }
}

fn edit_lines(session: &mut Session) -> Result<u8, Failure> {
    let broken =
        |error: ReadlineError| Failure::Message(format!("Cannot read from the terminal: {error}"));
    let config = Config::builder()
        .completion_type(CompletionType::Circular)
        .max_history_size(HISTORY_MAX)
        .map_err(broken)?
        .build();
    let mut editor: Editor<NameCompleter, MemHistory> =
        Editor::with_history(config.clone(), MemHistory::with_config(&config)).map_err(broken)?;
    editor.set_helper(Some(NameCompleter));
    let history_file = history_path();
    if let Some(path) = &history_file {
        let lines = std::fs::read(path).unwrap_or_default();
        for line in String::from_utf8_lossy(&lines).lines().filter(|line| may_be_kept(line)) {
            editor.add_history_entry(line).map_err(broken)?;
        }
    }
    wait::catch_interrupts()?;
    loop {
        // While a line is edited Ctrl-C is a key. Before, nothing waited for it.
        wait::forget_interrupt();
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
            Err(failure) => terminal::complain(failure),
        }
    }
}

/// Runs one line: a local command, or one for the server.
fn run_line(session: &mut Session, line: &[u8]) -> Result<(Next, RequestOutcome), Failure> {
    let Ok(args) = quoting::split(line) else {
        terminal::print("Invalid argument(s)\n")?;
        return Ok((Next::Line, RequestOutcome::Served));
    };
    let word = args.first().map(|first| first.to_ascii_lowercase());
    let outcome = match (word.as_deref(), args.as_slice()) {
        (None, _) => RequestOutcome::Served,
        (Some(b"quit" | b"exit"), _) => return Ok((Next::Quit, RequestOutcome::Served)),
        (Some(b"clear"), [_]) => {
            terminal::draw(CLEAR_SCREEN)?;
            RequestOutcome::Served
        }
        (Some(b"connect"), [_, place @ ..]) if !place.is_empty() => {
            session.options.address = typed_address(place)?;
            session.connect()?;
            RequestOutcome::Served
        }
        _ => execute(session, &args)?,
    };
    Ok((Next::Line, outcome))
}

/// Executes a verb, or a command as often as a number in front of it says.
fn execute(session: &mut Session, args: &[Vec<u8>]) -> Result<RequestOutcome, Failure> {
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
    let words: Vec<OsString> = args.iter().cloned().map(OsString::from_vec).collect();
    if verb::find(&words).is_some() {
        return execute_verb(session, words);
    }
    let start = Instant::now();
    let outcome = session.execute(args, repeat);
    let took = start.elapsed();
    if took >= SLOW {
        terminal::print(format!("({:.2}s)\n", took.as_secs_f64()))?;
    }
    outcome
}

/// Executes a verb with the server, the login and the form of output of the moment.
fn execute_verb(session: &Session, words: Vec<OsString>) -> Result<RequestOutcome, Failure> {
    match session.options.clone().with(words)? {
        CliRequest::Run(options) => {
            if let Some(verb) = options.verb {
                verb.run(&options)?;
            }
        }
        CliRequest::Usage => terminal::print(options::usage())?,
        CliRequest::Version => terminal::print(format!("{}\n", options::version("disque")))?,
    }
    Ok(RequestOutcome::Served)
}

fn leading_count(word: &[u8]) -> Option<Repeat> {
    match std::str::from_utf8(word).ok()?.parse::<i64>().ok()? {
        0 => None,
        times => Some(u64::try_from(times).map_or(Repeat::Endless, Repeat::Times)),
    }
}

/// Reads `HOST PORT` or `HOST:PORT`.
///
/// Differs from C: leaves a unix socket behind, because the host and port were just asked for.
fn typed_address(place: &[Vec<u8>]) -> Result<ServerAddress, Failure> {
    let text: Vec<_> = place.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let (host, port) = match text.as_slice() {
        [host, port] => (host.clone().into_owned(), port.parse().ok()),
        [host] => split_host(host),
        _ => (String::new(), None),
    };
    let port = port.ok_or_else(|| {
        Failure::Message(format!("connect takes a host and a port, not '{}'", text.join(" ")))
    })?;
    Ok(ServerAddress::Tcp { host, port })
}

/// Returns whether a line may go into the history: passwords may not.
///
/// Whatever has AUTH, requirepass, the hash of a password or an option -a in it stays out, however
/// it is quoted.
fn may_be_kept(line: &str) -> bool {
    let is_secret = |word: &[u8]| {
        let word = word.to_ascii_lowercase();
        word.starts_with(b"-a")
            || [b"auth".as_slice(), b"requirepass", b"http-token", b"sha256:"]
                .iter()
                .any(|name| memchr::memmem::find(&word, name).is_some())
    };
    match quoting::split(line.as_bytes()) {
        Ok(words) => !words.is_empty() && !words.iter().any(|word| is_secret(word)),
        // Quotes that do not match do not make a password public.
        Err(_) => !line.split_whitespace().any(|word| is_secret(word.as_bytes())),
    }
}

fn history_path() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".disque_history"))
}

fn save_history(path: Option<&std::path::Path>, history: &MemHistory) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // The C client leaves it to all.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let mut text = String::new();
    for line in history {
        text.push_str(line);
        text.push('\n');
    }
    file.write_all(text.as_bytes())
}

/// Completes the names of commands, verbs and help topics.
struct NameCompleter;

impl Completer for NameCompleter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(help::complete(line.get(..cursor).unwrap_or(line)))
    }
}

impl Hinter for NameCompleter {
    type Hint = String;
}
impl Highlighter for NameCompleter {}
impl Validator for NameCompleter {}
impl Helper for NameCompleter {}

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
        for line in ["ping", "addjob q author-less 0", "queues --json", "\"open"] {
            assert_eq!(may_be_kept(line), !line.contains("author"), "{line}");
        }
        for line in [
            " AUTH secret",
            "2 auth secret",
            "\"AUTH\" secret",
            "\"a\\x75th\" secret",
            "auth \"secret",
            "hello 3 auth default secret",
            "config set requirepass secret",
            "config set user 'ann sha256:00 admin'",
            "config set \"require\\x70ass\" secret",
            "queues -asecret",
            "  ",
        ] {
            assert!(!may_be_kept(line), "{line}");
        }
    }
}
