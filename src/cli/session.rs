//! Commands as an operator gives them: sent to one server, their replies printed.
//!
//! The one-shot command and the interactive client both run on a [`Session`].

use super::connection::{ServerAddress, ServerConnection};
use super::failure::Failure;
use super::help::{self, Colour};
use super::options::{CliOptions, Repeat};
use super::terminal;
use crate::proto::reply_reader::Value;

/// How the server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    Served,
    ErrorReply,
}

/// A server to talk to, connected or not.
pub struct Session<'a> {
    options: &'a CliOptions,
    pub address: ServerAddress,
    connection: Option<ServerConnection>,
}

impl<'a> Session<'a> {
    /// Prepares a session with the server the options name.
    pub fn new(options: &'a CliOptions) -> Self {
        Session { options, address: options.address.clone(), connection: None }
    }

    /// Connects, also when there is a connection already.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.connection = None;
        let password = self.options.password.as_deref();
        self.connection = Some(ServerConnection::open(&self.address, password, None)?);
        Ok(())
    }

    /// Returns the prompt of the interactive client.
    pub fn prompt(&self) -> String {
        match self.connection {
            Some(_) => self.address.prompt(),
            None => "not connected> ".to_string(),
        }
    }

    /// Executes a command and prints its replies, connecting first if need be.
    ///
    /// A lost connection is made anew once, and the command sent again.
    pub fn execute(&mut self, args: &[Vec<u8>], repeat: Repeat) -> Result<RequestOutcome, Failure> {
        if self.connection.is_some() {
            match self.execute_connected(args, repeat) {
                Err(failure) if failure.is_lost_connection() => {}
                done => return done,
            }
        }
        self.connect()?;
        self.execute_connected(args, repeat)
    }

    /// Executes a command on the open connection, giving it up when it fails.
    pub fn execute_connected(
        &mut self,
        args: &[Vec<u8>],
        repeat: Repeat,
    ) -> Result<RequestOutcome, Failure> {
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        let done = converse(connection, self.options, args, repeat);
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
            Ok(outcome) => Ok(outcome),
        }
    }
}

/// Prints the help that a command asks for, if it does.
pub fn show_help(args: &[Vec<u8>]) -> Option<Result<(), Failure>> {
    if !is_word(args, "help") && !is_word(args, "?") {
        return None;
    }
    let colour = if terminal::prints_to_terminal() { Colour::On } else { Colour::Off };
    Some(terminal::print(help::render(&args[1..], colour)))
}

fn is_word(args: &[Vec<u8>], word: &str) -> bool {
    args.first().is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes()))
}

fn converse(
    connection: &mut ServerConnection,
    options: &CliOptions,
    args: &[Vec<u8>],
    repeat: Repeat,
) -> Result<RequestOutcome, Failure> {
    let mut done = 0;
    while repeat == Repeat::Endless || repeat != Repeat::Times(done) {
        connection.send(args)?;
        loop {
            let reply = connection.receive()?;
            terminal::print(options.format.render(args, &reply))?;
            if options.stops_at_error && matches!(reply, Value::Error(_)) {
                return Ok(RequestOutcome::ErrorReply);
            }
            // After MONITOR, lines come until somebody hangs up.
            if !is_word(args, "monitor") || matches!(reply, Value::Error(_)) {
                break;
            }
        }
        if let Some(interval) = options.interval {
            std::thread::sleep(interval);
        }
        done += 1;
    }
    Ok(RequestOutcome::Served)
}
