//! What must not be shown: MONITOR and the slow log print the arguments of commands, and
//! some of them are passwords.

/// What stands in place of a password.
const HIDDEN: &[u8] = b"(redacted)";
/// Directives whose values are secret. A user's has the hash of its password, which is no
/// password but helps to find one.
const SECRETS: [&[u8]; 3] = [b"requirepass", b"http-token", b"user"];

/// The arguments of a request as others may see them. `command` is the command's own
/// name, whatever it was renamed to; as it was sent it stands at `name_at`.
pub fn hidden<'a>(
    command: &'static str,
    name_at: usize,
    arguments: impl ExactSizeIterator<Item = &'a [u8]>,
) -> impl ExactSizeIterator<Item = &'a [u8]> {
    let mut before: [&[u8]; 2] = [b"", b""];
    arguments.enumerate().map(move |(at, argument)| {
        let [second_last, last] = before;
        before = [last, argument];
        let at = at.saturating_sub(name_at);
        let is_secret = match command {
            "auth" => at > 0,
            // HELLO 3 AUTH user password
            "hello" => at > 2 && second_last.eq_ignore_ascii_case(b"auth"),
            "config" => {
                at == 3
                    && second_last.eq_ignore_ascii_case(b"set")
                    && SECRETS.iter().any(|name| last.eq_ignore_ascii_case(name))
            }
            _ => false,
        };
        if is_secret { HIDDEN } else { argument }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &'static str, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let name_at = usize::from(words[0] == b"disque");
        let words: Vec<&[u8]> = hidden(command, name_at, words.into_iter()).collect();
        String::from_utf8(words.join(&b' ')).expect("text")
    }

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        assert_eq!(shown("auth", "Auth secret"), "Auth (redacted)");
        assert_eq!(shown("auth", "auth user secret"), "auth (redacted) (redacted)");
        assert_eq!(shown("auth", "disque auth secret"), "disque auth (redacted)");
        assert_eq!(
            shown("config", "disque config set requirepass secret"),
            "disque config set requirepass (redacted)"
        );
        assert_eq!(
            shown("hello", "hello 3 AUTH default secret SETNAME x"),
            "hello 3 AUTH default (redacted) SETNAME x"
        );
        assert_eq!(
            shown("config", "config SET RequirePass secret"),
            "config SET RequirePass (redacted)"
        );
        assert_eq!(shown("config", "config set http-token x"), "config set http-token (redacted)");
        assert_eq!(shown("config", "config set USER line"), "config set USER (redacted)");
        assert_eq!(shown("config", "config get requirepass"), "config get requirepass");
        assert_eq!(shown("addjob", "addjob auth secret 0"), "addjob auth secret 0");
    }
}
