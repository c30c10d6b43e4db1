//! The command line tools: `disque`, and the benchmark.
//!
//! ```text
//! options     the command line            -> Options
//! session     commands and their replies, one-shot and in the repl
//! output      a reply                     -> bytes in one of four forms
//! latency stat pipe check                 modes that look at one server
//! nodes       finds all nodes by HELLO    for queues (and top) and cluster
//! connection  one socket; failure: why a run stopped, in one line
//! ```
//!
//! Everything blocks: a tool has nothing else to do. [`main`] alone ends the process.

pub mod benchmark;
pub mod check;
pub mod cluster;
pub mod connection;
pub mod failure;
pub mod help;
pub mod info;
pub mod latency;
pub mod nodes;
pub mod options;
pub mod output;
pub mod pipe;
pub mod queues;
pub mod repl;
pub mod session;
pub mod stat;
pub mod terminal;

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;

use crate::base::reason::reason;
use failure::{Failure, STATUS_FAILED};
use options::{CliOptions, CliRequest, RunMode, Surroundings};
use session::{RequestOutcome, Session, show_help};

/// Runs `disque` with its arguments, without the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let surroundings = Surroundings {
        prints_to_terminal: terminal::prints_to_terminal(),
        password: std::env::var_os("DISQUE_AUTH"),
    };
    let done = match CliOptions::parse(args, surroundings) {
        Ok(CliRequest::Usage) => {
            eprint!("{}", options::usage());
            Ok(STATUS_FAILED)
        }
        Ok(CliRequest::Version) => terminal::print(format!("{}\n", options::version())).map(|()| 0),
        Ok(CliRequest::Run(options)) => run(*options),
        Err(failure) => Err(failure),
    };
    ExitCode::from(match done {
        Ok(status) => status,
        Err(failure) => {
            // Whoever closed the pipe knows already.
            if !matches!(failure, Failure::Output(_)) {
                eprintln!("{failure}");
            }
            failure.status()
        }
    })
}

/// Runs what the options ask for. Returns the exit status.
fn run(mut options: CliOptions) -> Result<u8, Failure> {
    if options.asks_password {
        options.password = Some(terminal::ask_password()?);
    }
    match options.mode {
        RunMode::Latency(report) => latency::run(&options, report),
        RunMode::IntrinsicLatency { secs } => latency::intrinsic(secs),
        RunMode::Stat => stat::run(&options),
        RunMode::Pipe => pipe::run(&options),
        RunMode::Check => check::run(&options),
        RunMode::Command if options.command.is_empty() => repl::run(&options),
        RunMode::Command => match own_command(&options) {
            Some(done) => done,
            None => run_command(options),
        },
    }
}

/// Runs the command if it is one of the tool's own and not the server's.
fn own_command(options: &CliOptions) -> Option<Result<u8, Failure>> {
    let word = |index: usize| {
        let word = options.command.get(index)?;
        Some(String::from_utf8_lossy(word).to_ascii_lowercase())
    };
    if let Some(shown) = show_help(&options.command) {
        return Some(shown.map(|()| 0));
    }
    match (word(0)?.as_str(), word(1).as_deref()) {
        ("queues", None) => Some(queues::run(options)),
        ("top", None) => Some(queues::top(options)),
        ("cluster", Some("create")) => Some(cluster::create(options)),
        ("cluster", Some("check")) => Some(cluster::check(options)),
        _ => None,
    }
}

fn run_command(mut options: CliOptions) -> Result<u8, Failure> {
    let mut args = std::mem::take(&mut options.command);
    let mut session = Session::new(&options);
    session.connect()?;
    if options.last_argument_from_stdin {
        let mut last = Vec::new();
        std::io::stdin().read_to_end(&mut last).map_err(|error| {
            Failure::Told(format!("Reading from standard input: {}", reason(&error)))
        })?;
        args.push(last);
    }
    match session.execute_connected(&args, options.repeat)? {
        RequestOutcome::ErrorReply if options.stops_at_error => Ok(STATUS_FAILED),
        _ => Ok(0),
    }
}
