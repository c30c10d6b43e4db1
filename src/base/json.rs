//! JSON as the tools and the HTTP port write it.
//!
//! Strings are bytes that are often UTF-8 and need not be: those that are not become
//! `{"base64":"..."}`, so that nothing is lost.

use super::ids::BASE64;
use super::sink::Sink;

/// Appends a string, or an object when the bytes are no UTF-8.
pub fn write_bytes(bytes: &[u8], out: &mut dyn Sink) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_string(text, out),
        Err(_) => {
            out.put(b"{\"base64\":\"");
            write_base64(bytes, out);
            out.put(b"\"}");
        }
    }
}

/// Appends a string with its quotes. Every control character is escaped, also those that
/// JSON would allow and a terminal obeys.
pub fn write_string(text: &str, out: &mut dyn Sink) {
    out.put(b"\"");
    // What needs no escape goes in one piece.
    let mut plain_from = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| matches!(c, '"' | '\\') || c.is_control()) {
        out.put(&text.as_bytes()[plain_from..at]);
        plain_from = at + c.len_utf8();
        match c {
            '"' => out.put(b"\\\""),
            '\\' => out.put(b"\\\\"),
            '\n' => out.put(b"\\n"),
            '\r' => out.put(b"\\r"),
            '\t' => out.put(b"\\t"),
            c => out.put(format!("\\u{:04x}", u32::from(c)).as_bytes()),
        }
    }
    out.put(&text.as_bytes()[plain_from..]);
    out.put(b"\"");
}

/// Appends bytes in base64.
pub fn write_base64(bytes: &[u8], out: &mut dyn Sink) {
    for group in bytes.chunks(3) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let mut digits = [b'='; 4];
        for (place, digit) in digits.iter_mut().enumerate().take(group.len() + 1) {
            let index = (bits >> (18 - 6 * place)) & 63;
            *digit = BASE64[index as usize];
        }
        out.put(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write_bytes(bytes, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn strings_keep_every_byte_and_hold_no_control_character() {
        assert_eq!(written(b"a\"\\\n\x1b\x7f"), r#""a\"\\\n\u001b\u007f""#);
        assert_eq!(written("\u{e9}\u{9b}".as_bytes()), "\"\u{e9}\\u009b\"");
        assert_eq!(written(b"\xff\xfe"), r#"{"base64":"//4="}"#);
    }
}
