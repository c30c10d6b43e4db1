//! The system's words about an error.

use core::fmt::Display;

/// Returns what the system says about an error, as strerror and gai_strerror word it:
/// without the number and the prefix that std adds.
pub fn reason(error: &impl Display) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    match text.find(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_like_the_systems_own() {
        assert_eq!(reason(&"Connection refused (os error 111)"), "Connection refused");
        assert_eq!(
            reason(&"failed to lookup address information: Name or service not known"),
            "Name or service not known"
        );
        assert_eq!(reason(&"early eof"), "early eof");
    }
}
