//! Bytes over sockets: clients, bus links and the listeners they come from.
//!
//! Knows framing and limits and nothing of jobs: `server` reads requests and
//! messages out of the [`input::Input`]s kept here and hands replies and frames to
//! the [`output::Output`]s. Sockets are non-blocking; an error belongs to one
//! connection and never ends more than that.
//!
//! An idle connection holds no buffers.

pub mod connection;
pub mod input;
pub mod link;
pub mod listener;
pub mod output;
pub mod slots;
pub mod stream;
