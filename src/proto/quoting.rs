//! Words on a line, quoted as in the shell. Inline requests and lines of the
//! configuration are split here; MONITOR and CONFIG REWRITE quote here.
//!
//! ```text
//! word   bare bytes up to white space
//! "..."  any bytes; \n \r \t \b \a \xHH, and \ before another byte is that byte
//! '...'  any bytes; \' is a quote, everything else stands for itself
//! ```
//!
//! Invariant: what [`quote`] writes, [`split`] reads back as one word.

/// A quote that is not closed, or closed in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

/// Splits a line into words. An empty quoted word counts; a blank line has none.
///
/// C: sds.c sdssplitargs, a quote may open in the middle of a word (`a"b c"` is one
/// word) but must be followed by white space or the end when it closes.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = next_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

fn next_word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), UnbalancedQuotes> {
    let mut word = Vec::new();
    while let [byte, after @ ..] = rest {
        rest = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => break,
            b'"' => ended(double_quoted(after, &mut word)?)?,
            b'\'' => ended(single_quoted(after, &mut word)?)?,
            _ => {
                word.push(*byte);
                after
            }
        };
    }
    Ok((word, rest))
}

/// Lets a closing quote pass only where the word ends.
fn ended(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest {
        [byte, ..] if !byte.is_ascii_whitespace() => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_value(*high) << 4 | hex_value(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

/// The value of a byte known to be a hex digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// The bytes in double quotes, with everything that is not printable ASCII escaped.
pub fn quote(bytes: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(bytes.len() + 2);
    append_quoted(&mut quoted, bytes);
    quoted
}

/// A word of a line as it is, or as [`quote`] writes it where it would not be read back so.
pub fn quote_if_needed(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'');
    if !word.is_empty() && word.iter().all(is_plain) { word.to_vec() } else { quote(word) }
}

/// As [`quote`], at the end of `out`.
pub fn append_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            _ => out.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).expect("balanced quotes");
        words.into_iter().map(|word| String::from_utf8(word).expect("UTF-8")).collect()
    }

    #[test]
    fn white_space_separates_words() {
        assert_eq!(words("  a\tbc \r\n d "), ["a", "bc", "d"]);
        assert_eq!(words(" \t "), Vec::<String>::new());
    }

    #[test]
    fn quotes_keep_spaces_and_empty_words() {
        assert_eq!(words(r#"a "b c" 'd e' "" ''"#), ["a", "b c", "d e", "", ""]);
        assert_eq!(words(r#"a"b c""#), ["ab c"]);
    }

    #[test]
    fn escapes_are_those_of_the_documentation() {
        assert_eq!(words(r#""\n\r\t\b\a\x41\"\\\q""#), ["\n\r\t\u{8}\u{7}A\"\\q"]);
        assert_eq!(words(r"'\n\'\x41'"), [r"\n'\x41"]);
        assert_eq!(words(r#""\xg1""#), ["xg1"]);
    }

    #[test]
    fn an_open_quote_and_one_closed_inside_a_word_are_refused() {
        for line in [r#""abc"#, "'abc", r#"a "b"c"#, "'a'b", r#""a\"#, r#""a\""#] {
            assert_eq!(split(line.as_bytes()), Err(UnbalancedQuotes), "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_splits_back(list in prop::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let line = list.iter().map(|word| quote(word)).collect::<Vec<_>>().join(&b' ');
            prop_assert_eq!(split(&line), Ok(list));
        }

        #[test]
        fn no_line_panics(line in any::<Vec<u8>>()) {
            let _words = split(&line);
        }
    }
}
