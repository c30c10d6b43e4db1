//! Commands as an operator gives them: sent to one server, their replies printed.
//!
//! The one-shot command and the interactive client both run on a [`Session`].

use std::io::IsTerminal;

use super::connection::{Login, ServerConnection};
use super::failure::{Failure, STATUS_FAILED};
use super::help::{self, Colour};
use super::options::{CliOptions, Repeat};
use super::{terminal, wait};
use crate::proto::reply_reader::Value;

/// How the server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    Served,
    ErrorReply,
}

/// A server to talk to, connected or not.
pub struct Session {
    /// The server's address and login are those of the moment: `connect` and AUTH change them.
    pub options: CliOptions,
    connection: Option<ServerConnection>,
}

impl Session {
    /// Prepares a session with the server the options name.
    pub fn new(options: CliOptions) -> Self {
        Session { options, connection: None }
    }

    /// Connects and logs in, also when there is a connection already.
    ///
    /// When the password is refused the connection stays, and the next one is made without
    /// it: whoever is there may send AUTH with the right one.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.connection = None;
        let mut connection = ServerConnection::connect(&self.options.address, None)?;
        let done = match &self.options.login {
            Some(login) => connection.log_in(login),
            None => Ok(()),
        };
        match done {
            Err(Failure::Login(_)) => self.options.login = None,
            Err(failure) => return Err(failure),
            Ok(()) => {}
        }
        self.connection = Some(connection);
        done
    }

    /// Returns the prompt of the interactive client.
    pub fn prompt(&self) -> String {
        match self.connection {
            Some(_) => self.options.address.prompt(),
            None => "not connected> ".to_string(),
        }
    }

    /// Executes a command and prints its replies, connecting first if need be.
    ///
    /// A lost connection is made anew once, and the command sent again. One on which a command
    /// was interrupted is made anew too: the server must see that nobody waits any more.
    pub fn execute(&mut self, args: &[Vec<u8>], repeat: Repeat) -> Result<RequestOutcome, Failure> {
        if self.connection.is_some() {
            match self.execute_connected(args, repeat) {
                Err(failure) if failure.is_lost_connection() => {}
                Err(failure @ Failure::Interrupted) => {
                    self.connect()?;
                    return Err(failure);
                }
                done => return done,
            }
        }
        self.connect()?;
        self.execute_connected(args, repeat)
    }

    /// Executes a command on the open connection, giving it up when it fails.
    fn execute_connected(
        &mut self,
        args: &[Vec<u8>],
        repeat: Repeat,
    ) -> Result<RequestOutcome, Failure> {
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        let done = converse(connection, &self.options, args, repeat);
        match done {
            // The server hangs up instead of answering when it shuts down.
            Err(failure) if failure.is_lost_connection() && is_word(args, "shutdown") => {
                self.connection = None;
                Ok(RequestOutcome::Served)
            }
            Err(failure) => {
                self.connection = None;
                Err(failure)
            }
            Ok(RequestOutcome::Served) if is_word(args, "auth") => {
                // The next connection, and those to other nodes, want it as well.
                self.options.login = args.get(1..).map(|login| Login(login.to_vec()));
                Ok(RequestOutcome::Served)
            }
            Ok(outcome) => Ok(outcome),
        }
    }
}

/// Executes one command on a connection of its own, as often as the options say. Returns the
/// exit status.
pub fn run(options: &CliOptions, args: &[Vec<u8>]) -> Result<u8, Failure> {
    let mut session = Session::new(options.clone());
    session.connect()?;
    match session.execute_connected(args, options.repeat)? {
        RequestOutcome::ErrorReply if options.stops_at_error => Ok(STATUS_FAILED),
        _ => Ok(0),
    }
}

/// Prints the help that a command asks for, if it does.
pub fn show_help(args: &[Vec<u8>]) -> Option<Result<(), Failure>> {
    if !is_word(args, "help") && !is_word(args, "?") {
        return None;
    }
    let colour = if terminal::prints_to_terminal() { Colour::On } else { Colour::Off };
    Some(terminal::draw(help::render(&args[1..], colour)))
}

/// Shows somebody in front of a terminal how to call a command that was called wrongly.
fn show_usage(args: &[Vec<u8>], error: &[u8]) {
    if std::io::stdout().is_terminal() {
        for syntax in help::after_error(args, error) {
            terminal::complain(format!("Usage: {syntax}"));
        }
    }
}

fn is_word(args: &[Vec<u8>], word: &str) -> bool {
    args.first().is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes()))
}

/// Sends the command as often as asked and prints every reply. Returns what the last one was.
fn converse(
    connection: &mut ServerConnection,
    options: &CliOptions,
    args: &[Vec<u8>],
    repeat: Repeat,
) -> Result<RequestOutcome, Failure> {
    let mut outcome = RequestOutcome::Served;
    let mut done = 0;
    while repeat == Repeat::Endless || repeat != Repeat::Times(done) {
        connection.send(args)?;
        loop {
            let reply = connection.receive()?;
            terminal::print_by(|out| options.format.write(args, &reply, out))?;
            outcome = match &reply {
                Value::Error(text) => {
                    show_usage(args, text);
                    RequestOutcome::ErrorReply
                }
                _ => RequestOutcome::Served,
            };
            // After MONITOR, lines come until somebody hangs up.
            if !is_word(args, "monitor") || outcome == RequestOutcome::ErrorReply {
                break;
            }
        }
        if options.stops_at_error && outcome == RequestOutcome::ErrorReply {
            break;
        }
        if let Some(interval) = options.interval {
            wait::pause(interval)?;
        }
        done += 1;
    }
    Ok(outcome)
}
