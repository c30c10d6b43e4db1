//! Replies to clients, written straight into the turn's output.
//!
//! The caller keeps the promise of [`ReplyWriter::array`] and [`ReplyWriter::map`]: that
//! many values follow. RESP3 differs in two things, the null and the map.

use crate::base::number;

/// How a client is replied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resp {
    #[default]
    V2,
    /// Chosen with HELLO.
    V3,
    /// Not at all: CLIENT REPLY. What is written all the same is the caller's to throw away.
    Muted,
}

/// Appends replies of one client to a buffer.
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    resp: Resp,
}

impl<'a> ReplyWriter<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, resp: Resp) -> Self {
        Self { out, resp }
    }

    /// Gives the protocol of the client.
    pub fn resp(&self) -> Resp {
        self.resp
    }

    /// Writes a simple string; a line end within becomes a space.
    pub fn status(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// Writes an error: its code word and text, without the dash. A line end within becomes
    /// a space.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// Writes an integer.
    pub fn integer(&mut self, value: i64) {
        self.out.push(b':');
        number::append_i64(self.out, value);
        self.end_line();
    }

    /// Writes a bulk string.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.out.reserve(bytes.len() + 16);
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    /// Writes a number as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        let sign_len = usize::from(value < 0);
        self.length(b'$', sign_len + number::decimal_len(value.unsigned_abs()));
        number::append_i64(self.out, value);
        self.end_line();
    }

    /// Writes the null of commands that answer with a bulk string.
    pub fn null_bulk(&mut self) {
        self.null(b"$-1\r\n");
    }

    /// Writes the null of commands that answer with an array.
    pub fn null_array(&mut self) {
        self.null(b"*-1\r\n");
    }

    /// Opens an array: the next `len` values are its elements.
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// Opens a map of `len` pairs, each a key and a value that follow. RESP2 has a flat
    /// array in its place.
    pub fn map(&mut self, len: usize) {
        match self.resp {
            Resp::V2 | Resp::Muted => self.length(b'*', len * 2),
            Resp::V3 => self.length(b'%', len),
        }
    }

    fn null(&mut self, resp2: &[u8]) {
        self.out.extend_from_slice(match self.resp {
            Resp::V2 | Resp::Muted => resp2,
            Resp::V3 => b"_\r\n",
        });
    }

    fn length(&mut self, kind: u8, len: usize) {
        // Most lengths have one or two digits, and go out in one piece.
        match u8::try_from(len) {
            Ok(ones @ 0..10) => self.out.extend_from_slice(&[kind, b'0' + ones, b'\r', b'\n']),
            Ok(len @ 10..100) => {
                let (tens, ones) = (b'0' + len / 10, b'0' + len % 10);
                self.out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
            }
            _ => {
                self.out.push(kind);
                number::append_u64(self.out, u64::try_from(len).expect("a length fits 64 bits"));
                self.end_line();
            }
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        if memchr::memchr2(b'\r', b'\n', text).is_none() {
            self.out.extend_from_slice(text);
        } else {
            let in_line = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
            self.out.extend(text.iter().map(in_line));
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp: Resp, write: impl FnOnce(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, resp));
        String::from_utf8(out).expect("these replies are text")
    }

    #[test]
    fn each_kind_of_value_is_written_as_resp2_says() {
        let text = written(Resp::V2, |reply| {
            reply.array(8);
            reply.status("OK");
            reply.error("ERR syntax error");
            reply.integer(-7);
            reply.bulk("body");
            reply.bulk("");
            reply.bulk_integer(i64::MIN);
            reply.null_bulk();
            reply.null_array();
        });
        assert_eq!(
            text,
            "*8\r\n+OK\r\n-ERR syntax error\r\n:-7\r\n$4\r\nbody\r\n$0\r\n\r\n\
             $20\r\n-9223372036854775808\r\n$-1\r\n*-1\r\n"
        );
    }

    #[test]
    fn resp3_differs_in_nulls_and_maps() {
        let write = |reply: &mut ReplyWriter<'_>| {
            reply.map(1);
            reply.bulk("proto");
            reply.null_bulk();
            reply.null_array();
        };
        assert_eq!(written(Resp::V2, write), "*2\r\n$5\r\nproto\r\n$-1\r\n*-1\r\n");
        assert_eq!(written(Resp::V3, write), "%1\r\n$5\r\nproto\r\n_\r\n_\r\n");
    }

    #[test]
    fn a_line_end_in_a_status_or_error_cannot_forge_a_reply() {
        assert_eq!(
            written(Resp::V2, |reply| {
                reply.status("a\r\n+b");
                reply.error("ERR unknown command 'x\n'");
            }),
            "+a  +b\r\n-ERR unknown command 'x '\r\n"
        );
    }
}
