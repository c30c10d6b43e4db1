//! JSON as the tools write it.
//!
//! Strings are bytes that are often UTF-8 and need not be: those that are not become
//! `{"base64":"..."}`, so that nothing is lost.

use crate::base::ids::BASE64;

/// Appends a string, or an object when the bytes are no UTF-8.
pub fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_string(text, out),
        Err(_) => {
            out.extend_from_slice(b"{\"base64\":\"");
            write_base64(bytes, out);
            out.extend_from_slice(b"\"}");
        }
    }
}

/// Appends a string with its quotes. Every control character is escaped, also those that
/// JSON would allow and a terminal obeys.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if c.is_control() => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            out.push(if digit <= group.len() { BASE64[index as usize] } else { b'=' });
        }
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
