//! The command line tools: `disque`, and the benchmark.
//!
//! ```text
//! options     the command line            -> CliOptions
//! verb        what the tool does itself: queues, top, nodes, cluster ...
//! session     commands and their replies, one-shot and in the repl
//! output      a reply, table rows         -> bytes in one of four forms
//! latency stat pipe                       modes that watch one server
//! user_line   a line for the configuration, which needs no server
//! nodes       finds all nodes by HELLO; survey and condition ask them
//! connection  one socket, on which wait waits; failure: why a run stopped, in one line
//! terminal    what is printed, and what a terminal must not be sent
//! ```
//!
//! Everything blocks: a tool has nothing else to do. [`main`] alone ends the process.

pub mod address;
pub mod benchmark;
pub mod check;
pub mod cluster;
pub mod condition;
pub mod config_all;
pub mod connection;
pub mod dead;
pub mod differences;
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
pub mod roster;
pub mod session;
pub mod stat;
pub mod survey;
pub mod table;
pub mod terminal;
pub mod top;
pub mod trace;
pub mod user_line;
pub mod verb;
pub mod wait;

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;

use crate::base::reason::reason;
use connection::Login;
use failure::Failure;
use options::{CliOptions, CliRequest, RunMode, Surroundings};

/// Runs `disque` with its arguments, without the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let surroundings = Surroundings {
        prints_to_terminal: terminal::prints_to_terminal(),
        password: std::env::var_os("DISQUE_AUTH"),
    };
    let done = match CliOptions::parse(args, surroundings) {
        Ok(CliRequest::Usage) => terminal::print(options::usage()).map(|()| 0),
        Ok(CliRequest::Version) => {
            terminal::print(format!("{}\n", options::version("disque"))).map(|()| 0)
        }
        Ok(CliRequest::Run(options)) => run(*options),
        Err(failure) => Err(failure),
    };
    ExitCode::from(match done {
        Ok(status) => status,
        Err(failure) => {
            // Whoever closed the pipe knows already.
            if !matches!(failure, Failure::Output(_)) {
                terminal::complain(&failure);
            }
            failure.status()
        }
    })
}

/// Runs what the options ask for. Returns the exit status.
fn run(mut options: CliOptions) -> Result<u8, Failure> {
    if options.asks_password {
        let password = terminal::ask_password()?;
        options.login = Some(Login(options.user.take().into_iter().chain([password]).collect()));
    }
    match options.mode {
        RunMode::Latency(report) => latency::run(&options, report),
        RunMode::IntrinsicLatency { secs } => latency::intrinsic(secs),
        RunMode::Stat => stat::run(&options),
        RunMode::Pipe => pipe::run(&options),
        RunMode::Check => check::run(&options),
        RunMode::Command => match options.verb {
            Some(verb) => verb.run(&options),
            None if options.command.is_empty() => repl::run(&options),
            None => run_command(options),
        },
    }
}

fn run_command(mut options: CliOptions) -> Result<u8, Failure> {
    let mut args = std::mem::take(&mut options.command);
    if let Some(shown) = session::show_help(&args) {
        return shown.map(|()| 0);
    }
    if options.last_argument_from_stdin {
        let mut last = Vec::new();
        std::io::stdin().read_to_end(&mut last).map_err(|error| {
            Failure::Message(format!("Reading from standard input: {}", reason(&error)))
        })?;
        args.push(last);
    }
    session::run(&options, &args)
}
