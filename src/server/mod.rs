//! The server: the only place where engine, sockets, files and clock meet.

pub mod config;
pub mod config_file;
