//! Numbers as text: strict where a client, a file or an operator wrote them, and
//! fast where the server writes them.
//!
//! Nothing here guesses. A byte too many, a blank in front or a value that does not
//! fit gives `None`, and the caller answers with the error of that argument.

/// The most digits that a `u64` has in decimal.
const U64_DIGITS_MAX: usize = 20;

const KB: u64 = 1024;
const MB: u64 = 1024 * KB;
const GB: u64 = 1024 * MB;

/// Reads a number argument: 64-bit decimal, with an optional sign and any leading zeros.
///
/// C: object.c getLongLongFromObject, an empty argument is 0.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (digits, Sign::Minus),
        [b'+', digits @ ..] => (digits, Sign::Plus),
        digits => (digits, Sign::Plus),
    };
    let magnitude = parse_digits(digits)?;
    match sign {
        Sign::Plus => i64::try_from(magnitude).ok(),
        Sign::Minus => 0i64.checked_sub_unsigned(magnitude),
    }
}

enum Sign {
    Plus,
    Minus,
}

/// Reads a number that cannot be negative, else as [`parse_i64`].
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [] => Some(0),
        [b'+', digits @ ..] | digits => parse_digits(digits),
    }
}

/// Reads one or more decimal digits and nothing else.
pub fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Reads a number of bytes: digits and an optional unit in either case. `k`, `m` and `g`
/// are powers of 1000; `kb`, `mb` and `gb` are powers of 1024; `b` is one byte.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let unit_at = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => KB,
        b"m" => 1_000_000,
        b"mb" => MB,
        b"g" => 1_000_000_000,
        b"gb" => GB,
        _ => return None,
    };
    parse_digits(digits)?.checked_mul(factor)
}

/// Reads `yes` or `no` in either case.
pub fn parse_yes_no(text: &[u8]) -> Option<bool> {
    if text.eq_ignore_ascii_case(b"yes") {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"no") {
        Some(false)
    } else {
        None
    }
}

/// Appends a number in decimal. Replies are full of small ones, hence the short cut.
pub fn append_u64(out: &mut Vec<u8>, value: u64) {
    let last_digit =
        |value: u64| b'0' + u8::try_from(value % 10).expect("a remainder of 10 is one digit");
    if value < 10 {
        out.push(last_digit(value));
        return;
    }
    let mut digits = [0; U64_DIGITS_MAX];
    let mut rest = value;
    let mut len = 0;
    for slot in digits.iter_mut().rev() {
        *slot = last_digit(rest);
        rest /= 10;
        len += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[U64_DIGITS_MAX - len..]);
}

/// Shows a number of bytes to people: whole bytes with a `B`, else two decimals and a unit.
/// C: server.c and disque-cli.c, bytesToHuman.
pub fn human_bytes(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{value:.2}{unit}") }
}

/// Returns how many digits [`append_u64`] writes.
pub fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends a signed number in decimal.
pub fn append_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    append_u64(out, value.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn number_arguments_take_a_sign_and_leading_zeros() {
        for (text, value) in [
            ("0", 0),
            ("", 0),
            ("007", 7),
            ("+5", 5),
            ("-0", 0),
            ("-12", -12),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("00000000000000000000000000001", 1),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text:?}");
        }
    }

    #[test]
    fn anything_else_is_no_number() {
        for text in [
            " 1",
            "1 ",
            "+",
            "-",
            "--1",
            "+-1",
            "1.0",
            "0x10",
            "1e3",
            "a",
            "1\0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn an_unsigned_number_has_no_minus() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b""), Some(0));
        assert_eq!(parse_u64(b"+3"), Some(3));
        assert_eq!(parse_u64(b"-3"), None);
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }

    #[test]
    fn memory_units_come_in_thousands_and_in_1024s() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("1b", 1),
            ("1k", 1000),
            ("1KB", 1024),
            ("2m", 2_000_000),
            ("2mB", 2 * 1024 * 1024),
            ("3g", 3_000_000_000),
            ("3Gb", 3 * 1024 * 1024 * 1024),
        ] {
            assert_eq!(parse_memory(text.as_bytes()), Some(bytes), "{text:?}");
        }
    }

    #[test]
    fn a_memory_size_needs_digits_a_known_unit_and_room() {
        for text in ["", "kb", "-1", "1 kb", "1tb", "1kbb", "1.5gb", "99999999999999gb"] {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn yes_and_no_are_read_in_either_case() {
        assert_eq!(parse_yes_no(b"Yes"), Some(true));
        assert_eq!(parse_yes_no(b"NO"), Some(false));
        assert_eq!(parse_yes_no(b"y"), None);
        assert_eq!(parse_yes_no(b"true"), None);
    }

    #[test]
    fn sizes_for_people_have_two_decimals_from_a_kilobyte_on() {
        assert_eq!(human_bytes(1023), "1023B");
        assert_eq!(human_bytes(1536), "1.50K");
        assert_eq!(human_bytes(3 << 30), "3.00G");
        assert_eq!(human_bytes(u64::MAX), "16384.00P");
    }

    proptest! {
        #[test]
        fn written_numbers_read_back(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            let mut text = Vec::new();
            append_i64(&mut text, value);
            prop_assert_eq!(&text, &value.to_string().into_bytes());
            prop_assert_eq!(parse_i64(&text), Some(value));
            let sign_len = usize::from(value < 0);
            prop_assert_eq!(text.len(), sign_len + decimal_len(value.unsigned_abs()));
        }
    }
}
