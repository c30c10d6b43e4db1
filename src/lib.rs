//! A drop-in replacement for Disque, the in-memory distributed job queue.
//!
//! The layers, and who may use whom:
//!
//! ```text
//! bin/*     may use: server, cli, store, proto, base
//! server/   may use: engine, net, store, manual, proto, base, ae    the only place where they meet
//! net/      may use: ae, proto, base                                moves bytes over sockets
//! store/    may use: proto, base                                    moves bytes to and from files
//! engine/   may use: manual, proto, base                            decides; never does
//! cli/      may use: manual, proto, base (and its own sockets)      the command line tools
//! manual/                                                           what each command is, as data
//! proto/    may use: base                                           bytes <-> values; never waits
//! ae/       mio only                                                the event loop
//! base/     std collections and numbers
//! ```
//!
//! The engine touches nothing: it is handed inputs and leaves outputs in lanes.
//! `server` drives it with sockets, files and a clock; `tests/simulation` drives many
//! of them on a virtual clock over a network that fails.

pub mod ae;
pub mod base;
#[cfg(feature = "tools")]
pub mod cli;
pub mod engine;
pub mod manual;
pub mod net;
pub mod proto;
pub mod server;
pub mod store;
