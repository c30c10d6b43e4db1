//! What must not be shown: MONITOR and the slow log print the arguments of commands, and
//! some of them are passwords.

/// What stands in place of a password.
const HIDDEN: &[u8] = b"(redacted)";

/// The arguments of a command as others may see them. `command` is the command's own
/// name, whatever it was renamed to; `arguments` begin with the name as it was sent.
pub fn hidden<'a>(
    command: &str,
    arguments: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = &'a [u8]> {
    let command = command.to_owned();
    let mut before: [&[u8]; 2] = [b"", b""];
    arguments.enumerate().map(move |(at, argument)| {
        let [second_last, last] = before;
        before = [last, argument];
        let is_secret = match command.as_str() {
            "auth" => at > 0,
            // HELLO 3 AUTH user password
            "hello" => at > 2 && second_last.eq_ignore_ascii_case(b"auth"),
            "config" => {
                at == 3
                    && second_last.eq_ignore_ascii_case(b"set")
                    && last.eq_ignore_ascii_case(b"requirepass")
            }
            _ => false,
        };
        if is_secret { HIDDEN } else { argument }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &str, line: &str) -> String {
        let words = hidden(command, line.split(' ').map(str::as_bytes));
        let words: Vec<&[u8]> = words.collect();
        String::from_utf8(words.join(&b' ')).expect("text")
    }

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        assert_eq!(shown("auth", "Auth secret"), "Auth (redacted)");
        assert_eq!(shown("auth", "auth user secret"), "auth (redacted) (redacted)");
        assert_eq!(
            shown("hello", "hello 3 AUTH default secret SETNAME x"),
            "hello 3 AUTH default (redacted) SETNAME x"
        );
        assert_eq!(
            shown("config", "config SET RequirePass secret"),
            "config SET RequirePass (redacted)"
        );
        assert_eq!(shown("config", "config get requirepass"), "config get requirepass");
        assert_eq!(shown("addjob", "addjob auth secret 0"), "addjob auth secret 0");
    }
}
