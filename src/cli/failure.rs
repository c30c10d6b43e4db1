//! What ends a run of the tool before its work is done, and the one line an operator reads then.
//!
//! Every mode returns `Result<_, Failure>`; `cli::main` alone prints and exits. Error
//! *replies* are answers of the server and not failures.

use std::fmt;
use std::io;

use crate::base::reason::reason;

/// Exit status when something did not work.
pub const STATUS_FAILED: u8 = 1;
/// Exit status for what Disque cannot do at all.
pub const STATUS_UNSUPPORTED: u8 = 2;

/// The reason why a mode stopped.
#[derive(Debug)]
pub enum Failure {
    /// No connection could be made.
    Connect { address: String, reason: String },
    /// The server wants another password; what it said.
    Login(String),
    /// The server hung up.
    Closed,
    /// The socket failed.
    Socket(io::Error),
    /// No answer within the time a probe is willing to wait.
    Silent,
    /// Ctrl-C in the interactive client.
    Interrupted,
    /// What came back is not the protocol.
    Protocol(String),
    /// Nobody reads standard output any more.
    Output(io::Error),
    /// A sentence for the operator that stands by itself.
    Message(String),
    /// Something that only a Redis server could do was asked for.
    Unsupported(String),
}

impl Failure {
    /// Returns the status the process exits with.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Unsupported(_) => STATUS_UNSUPPORTED,
            _ => STATUS_FAILED,
        }
    }

    /// Returns whether the connection broke and a new one may do better.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Failure::Closed | Failure::Socket(_) | Failure::Silent)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect { address, reason } => {
                write!(f, "Could not connect to Disque at {address}: {reason}")
            }
            Failure::Login(refusal) => write!(
                f,
                "AUTH failed: {refusal}. Give the right password in DISQUE_AUTH or with --askpass."
            ),
            Failure::Closed => f.write_str("Error: Server closed the connection"),
            Failure::Socket(error) => write!(f, "Error: {}", reason(error)),
            Failure::Silent => f.write_str("Error: No answer from the server"),
            Failure::Interrupted => f.write_str("(interrupted)"),
            Failure::Protocol(what) => write!(f, "Error: {what}"),
            Failure::Output(error) => {
                write!(f, "Error: standard output: {}", reason(error))
            }
            Failure::Message(sentence) | Failure::Unsupported(sentence) => f.write_str(sentence),
        }
    }
}
