//! Bytes to and from files. What the bytes say is others' business.
//!
//! | module | what it does |
//! |---|---|
//! | [`aof`] | appends to the append only file, under a sync policy |
//! | [`append_file`] | a file that grows, on a disk that may be full |
//! | [`aof_load`] | reads it at start |
//! | [`aof_sums`] | the checksums in it |
//! | [`aof_rewrite`] | writes its successor while it is in use |
//! | [`rewrite_history`] | how rewrites went, and when the next one may begin |
//! | [`stop_note`] | says that a stop was planned, and the queues are in the file |
//! | [`disk`] | what these want of a disk |
//! | [`fsync`] | the system's disk, and the thread that waits for it |
//! | [`replacement`] | a new text, or file, in the place of an old one |
//! | [`nodes_file`] | the cluster's file, locked for life |
//! | [`salvage`] | repairs a damaged one |
//! | [`check`] | what `disque-check-aof` does |

pub mod aof;
pub mod aof_load;
pub mod aof_rewrite;
pub mod aof_sums;
pub mod append_file;
pub mod check;
pub mod disk;
pub mod fsync;
pub mod nodes_file;
pub mod replacement;
pub mod rewrite_history;
pub mod salvage;
pub mod stop_note;
