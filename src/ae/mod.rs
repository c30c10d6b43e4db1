//! The event loop: file events of sockets, time events of recurring work.
//!
//! Knows mio and nothing of this project. `net` registers sockets with it, `server`
//! turns it.

pub mod event_loop;
pub mod time_event;
