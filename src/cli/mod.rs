//! The command line tools.

pub mod benchmark;
