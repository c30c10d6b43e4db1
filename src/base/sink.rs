//! What takes rendered text: a buffer or a terminal.

/// Where rendered bytes go.
pub trait Sink {
    /// Takes the next bytes. What becomes of them is the sink's business.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
