//! The server program over real sockets, one behaviour a test. `support` starts it on a
//! free port in a folder of its own; each other file is a family of behaviours.

mod admin;
mod aof;
mod cluster;
mod config;
mod connection;
mod info;
mod limits;
mod pipeline;
mod process;
mod startup;
mod support;
