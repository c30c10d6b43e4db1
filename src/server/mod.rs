//! The server: the only place where engine, sockets, files and clock meet.

pub mod banner;
pub mod command_line;
pub mod config;
pub mod config_file;
pub mod daemon;
pub mod info;
pub mod latency;
pub mod log;
pub mod memory_test;
pub mod monitor;
pub mod secrets;
pub mod signals;
pub mod slowlog;
pub mod stats;
pub mod version;
