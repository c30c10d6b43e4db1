//! Objects of JSON, written field by field.

use crate::base::{json, number};

/// An object under way.
pub struct Object<'a> {
    pub out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    pub fn end(self) {
        self.out.push(b'}');
    }

    /// Begins a field whose value is written next.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        json::write_string(key, self.out);
        self.out.push(b':');
        self.out
    }

    pub fn number(&mut self, key: &str, value: u64) {
        number::append_u64(self.key(key), value);
    }

    /// A number that may be none.
    pub fn maybe(&mut self, key: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(key, value),
            None => self.key(key).extend_from_slice(b"null"),
        }
    }

    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub fn text(&mut self, key: &str, value: &str) {
        json::write_string(value, self.key(key));
    }

    /// Bytes that somebody has chosen; see [`json::write_bytes`].
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        json::write_bytes(value, self.key(key));
    }

    pub fn object(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) {
        let mut object = Object::begin(self.key(key));
        write(&mut object);
        object.end();
    }

    /// A list, each of whose items `write` writes.
    pub fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Vec<u8>, T),
    ) {
        let out = self.key(key);
        out.push(b'[');
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write(out, item);
        }
        out.push(b']');
    }
}
