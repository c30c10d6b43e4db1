//! The server's side of what is kept on disk.

use crate::engine::Engine;

/// What the loop hands to the disk, and what the disk keeps clients from.
#[derive(Default)]
pub struct Persistence {
    write_error: Option<String>,
    is_loading: bool,
}

impl Persistence {
    /// Why the append only file cannot be written, while that is so.
    pub fn write_error(&self) -> Option<&str> {
        self.write_error.as_deref()
    }

    /// Whether jobs are still being read from the append only file.
    pub fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Takes a turn's records.
    pub fn append(&mut self, _records: &[u8]) {}

    /// Writes the nodes of the cluster.
    pub fn save_nodes(&mut self, _engine: &Engine) {}
}
