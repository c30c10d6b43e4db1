//! The lowest layer: time, randomness, identifiers, numbers, limits and tables.
//! Knows nothing of jobs, sockets or files.

pub mod glob;
pub mod histogram;
pub mod id_index;
pub mod ids;
pub mod json;
pub mod limits;
pub mod memory;
pub mod network;
pub mod number;
pub mod ordered;
pub mod password;
pub mod ranked;
pub mod reason;
pub mod rng;
pub mod sink;
pub mod table;
pub mod time;
pub mod wheel;
