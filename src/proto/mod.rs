//! Bytes to values and back: what clients, peers and files write and read.
//!
//! Nothing here waits, and nothing believes a length before the bytes are there. A
//! decoder takes a whole or refuses it with a reason; none can panic on its input,
//! which the lints below and `tests/fuzz.rs` hold it to.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::as_conversions))]

pub mod aof_record;
pub mod aof_sum;
pub mod attributes;
pub mod bus;
pub mod extensions;
pub mod facts;
pub mod job_limits;
pub mod job_record;
pub mod moved;
pub mod node_info;
pub mod nodes_conf;
pub mod priority;
pub mod queue_figures;
pub mod quoting;
pub mod reader;
pub mod reply;
pub mod reply_reader;
pub mod request;
pub mod trace;
