//! The server's own commands, one function each. What they answer goes into the same
//! arena as the engine's replies, so that the order of a pipeline holds.

pub mod command;
pub mod info;
pub mod monitor;
pub mod persistence;
pub mod shutdown;
pub mod slowlog;
