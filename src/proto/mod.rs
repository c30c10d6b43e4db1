//! Bytes to values and back: what clients, peers and files write and read.

pub mod quoting;
