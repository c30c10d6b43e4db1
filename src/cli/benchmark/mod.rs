//! `disque-benchmark`: loads a job queue, ours or a peer, and measures how it bears it.
//!
//! One command line is one run over one set of connections:
//!
//! ```text
//! options    what to do                       request   the bytes to send, built once
//! run        a step, or a flow                connection  bytes and what they answer
//! closed     each client waits for its batch  peer, reply  what the answers say
//! flow       producers and waiting consumers  process   what the servers spent
//! worker     what threads share               report, plot  rows, as text or picture
//! ```
//!
//! Connections are opened and logged in as every tool does it. What is sent and read then has
//! code of its own, because the tool must not be what is measured: a batch is one write and
//! one read, and no byte of a request or a reply is allocated or copied twice. Replies as
//! values would cost 0.2 microseconds a job more. Server CPU a job is the figure to
//! trust on a shared machine; jobs a second depend on who else is running.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use std::os::unix::ffi::OsStringExt;

use super::connection::Login;
use super::failure::Failure;
use super::options::version;
use super::terminal;
use options::BenchmarkRequest;
use peer::BenchmarkPeer;

mod closed;
mod connection;
mod flow;
mod options;
mod peer;
mod plot;
mod process;
mod reply;
mod report;
mod request;
mod run;
mod worker;

/// Runs the tool with the process's arguments.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::complain(format!("disque-benchmark: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: impl IntoIterator<Item = OsString>) -> Result<(), RunFailure> {
    let mut options = match options::parse(args)? {
        BenchmarkRequest::Help => return print(options::USAGE),
        BenchmarkRequest::Version => {
            return print(&format!("{}\n", version("disque-benchmark")));
        }
        BenchmarkRequest::Run(options) => *options,
    };
    if options.login.is_none() && options.peer == BenchmarkPeer::Disque {
        let password = std::env::var_os("DISQUE_AUTH");
        options.login = password.map(|password| Login(vec![password.into_vec()]));
    }
    let rows = run::run(&options)?;
    print(&report::render(&options, &rows))?;
    if let Some(path) = &options.plot {
        let picture = plot::draw(&report::title(&options), &rows);
        std::fs::write(path, picture).map_err(|error| RunFailure::Output(path.clone(), error))?;
    }
    Ok(())
}

/// Writes to stdout; a reader that has gone away is no failure.
fn print(text: &str) -> Result<(), RunFailure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(RunFailure::Output("stdout".into(), error))
        }
        _ => Ok(()),
    }
}

/// Why a run ended without figures.
#[derive(Debug)]
pub enum RunFailure {
    /// The command line makes no sense.
    Usage(String),
    /// A server could not be connected to, or did not let the tool in.
    Greeting(Failure),
    /// A socket could not be read or written.
    Socket(SocketAddr, io::Error),
    /// A server closed a connection.
    Closed(SocketAddr),
    /// A server sent what is no reply to anything.
    Nonsense(SocketAddr, String),
    /// The system's selector failed.
    Selector(io::Error),
    /// A process given with --pid cannot be read.
    NoProcess(u32),
    /// A file could not be written.
    Output(PathBuf, io::Error),
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => write!(f, "{why} (see --help)"),
            Self::Greeting(failure) => failure.fmt(f),
            Self::Socket(server, error) => write!(f, "{server}: {error}"),
            Self::Closed(server) => write!(f, "{server} closed a connection"),
            Self::Nonsense(server, text) => write!(f, "{server} sent {text:?}, which is no reply"),
            Self::Selector(error) => write!(f, "waiting for events: {error}"),
            Self::NoProcess(pid) => write!(f, "there is no process {pid} in /proc"),
            Self::Output(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl From<lexopt::Error> for RunFailure {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(error.to_string())
    }
}
