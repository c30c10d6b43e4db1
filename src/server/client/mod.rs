//! What the server knows of a client beside its connection.
//!
//! ```text
//!                    a blocking command              its end: answered or timed out
//!           running -------------------> blocked ---------------------------> running
//!              |  ^
//!    a slice   |  | its turn again
//!              v  |
//!             busy            any of them --> closing (AfterReply, AfterTurn) --> gone
//! ```
//!
//! Only a running client's input is executed. Input that has to wait is kept in the
//! connection, and `pending` says that there is some: when whatever held it up is over,
//! the pipeline goes on from there before anything more is read.

pub mod command;
pub(super) mod life;

use std::sync::Arc;

use crate::ae::event_loop::Token;
use crate::base::ids::ClientId;
use crate::base::time::MonoMs;
use crate::net::connection::Connection;
use crate::proto::reply::Resp;
use crate::proto::request::{ArgRange, RequestParser};
use crate::server::command_table::NamedCommand;
use crate::server::config::Config;
use crate::server::users::{DEFAULT_USER, User};

/// The kind of tokens under which clients' sockets are registered.
pub const CLIENT_TOKENS: u8 = 0;

pub struct Client {
    pub id: ClientId,
    /// Counts up from 1 and is never given twice. CLIENT ID, CLIENT LIST.
    pub number: u64,
    pub connection: Connection,
    pub parser: RequestParser,
    /// The protocol the client has chosen with HELLO; [`Client::reply_form`] is how it is
    /// replied to.
    pub resp: Resp,
    pub name: Box<[u8]>,
    /// Whether it has sent a right password.
    pub is_authenticated: bool,
    /// Who it is; `None` for the user default.
    pub user: Option<Arc<User>>,
    pub is_monitor: bool,
    pub replies: ReplyMode,
    pub connected_at: MonoMs,
    pub active_at: MonoMs,
    pub last_command: Option<&'static str>,
    pub is_blocked: bool,
    pub closing: Option<Closing>,
    /// A long command between two of its slices.
    pub busy: Option<Box<Busy>>,
    /// Kept input may hold whole requests.
    pub is_pending: bool,
    /// The socket may hold unread bytes.
    pub is_readable: bool,
    /// The other side sends no more.
    pub is_read_closed: bool,
    /// The loop was told to come back to this client.
    pub is_still_ready: bool,
}

/// Whether a client wants to be answered. CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command is not answered.
    SkipNext,
    /// The command that runs now is not answered.
    Skip,
}

impl ReplyMode {
    /// What holds for the next command, now that the one before is over.
    pub fn of_next_command(self) -> Self {
        match self {
            Self::On | Self::Skip => Self::On,
            Self::SkipNext => Self::Skip,
            Self::Off => Self::Off,
        }
    }
}

/// How a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Once its replies are sent.
    AfterReply,
    /// At the end of the turn, sent or not.
    AfterTurn,
}

/// A command that returned [`crate::engine::command::Outcome::Again`]. Its request is
/// still the first in the input.
pub struct Busy {
    pub named: NamedCommand,
    pub args: Vec<ArgRange>,
    pub request_len: usize,
}

impl Client {
    /// A client that has just connected.
    pub fn new(id: ClientId, number: u64, connection: Connection, now: MonoMs) -> Self {
        Self {
            id,
            number,
            connection,
            parser: RequestParser::default(),
            resp: Resp::V2,
            name: Box::default(),
            is_authenticated: false,
            user: None,
            is_monitor: false,
            replies: ReplyMode::On,
            connected_at: now,
            active_at: now,
            last_command: None,
            is_blocked: false,
            closing: None,
            busy: None,
            is_pending: false,
            is_readable: false,
            is_read_closed: false,
            is_still_ready: false,
        }
    }

    /// Whether it has said who it is, as far as it has to.
    pub fn is_logged_in(&self, config: &Config) -> bool {
        match &config.requirepass {
            _ if self.user.is_some() => true,
            Some(_) => self.is_authenticated,
            None => config.users.is_empty(),
        }
    }

    /// The name of its user; empty while it has to say who it is.
    pub fn user_name(&self, config: &Config) -> &str {
        match &self.user {
            Some(user) => &user.name,
            None if self.is_logged_in(config) => DEFAULT_USER,
            None => "",
        }
    }

    /// Whether its commands may be executed now.
    pub fn runs(&self) -> bool {
        !self.is_blocked && self.closing.is_none() && !self.connection.stops_reading()
    }

    /// Whether its socket may be read now, to execute what comes. What is kept has to run
    /// first, so that the end of the stream is noticed after everything that came before it.
    pub fn reads(&self) -> bool {
        self.runs() && !self.is_pending && self.busy.is_none()
    }

    /// How the command that runs is replied to.
    pub fn reply_form(&self) -> Resp {
        match self.replies {
            ReplyMode::On | ReplyMode::SkipNext => self.resp,
            ReplyMode::Off | ReplyMode::Skip => Resp::Muted,
        }
    }
}

/// The token of a client's socket.
pub fn token_of(id: ClientId) -> Token {
    Token { kind: CLIENT_TOKENS, slot: id.slot, generation: id.generation }
}

const _: () = assert!(size_of::<Client>() <= 400, "10,000 idle clients are cheap");
