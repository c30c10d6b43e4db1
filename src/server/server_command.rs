//! The shape of a command that the server carries out: an entry in the manual, and a row
//! beside a function.

use super::Server;
use crate::engine::command::{Call, Outcome};
use crate::manual::{self, Command};

/// A command that the server carries out.
#[derive(Clone, Copy)]
pub struct ServerCommand {
    pub manual: &'static Command,
    pub run: fn(&mut Server, &Call<'_>) -> Outcome,
}

/// The row of a command: its name, under which the manual has the rest, and its function.
pub(super) const fn row(name: &str, run: fn(&mut Server, &Call<'_>) -> Outcome) -> ServerCommand {
    ServerCommand { manual: manual::named(name), run }
}
