//! What must not be shown: MONITOR and the slow log print the arguments of commands, and
//! some of them are passwords.

/// What stands in place of a password.
pub const HIDDEN: &[u8] = b"(redacted)";
/// Directives whose values are secret. A user's has the hash of its password, which is no
/// password but helps to find one.
const SECRETS: [&[u8]; 3] = [b"requirepass", b"http-token", b"user"];

/// Whether the values of a directive are not to be shown.
pub fn is_secret(directive: &[u8]) -> bool {
    SECRETS.iter().any(|name| name.eq_ignore_ascii_case(directive))
}

/// A line of a configuration as it may be printed.
pub fn hidden_line(line: &[u8]) -> Vec<u8> {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let unquoted: Vec<u8> = name.iter().copied().filter(|byte| !b"\"'".contains(byte)).collect();
    match is_secret(&unquoted) && !rest.is_empty() {
        true => [name, b" ", HIDDEN].concat(),
        false => line.to_vec(),
    }
}

/// The arguments of a request as others may see them. `command` is the command's own
/// name, whatever it was renamed to; as it was sent it stands at `name_at`.
pub fn hidden<'a>(
    command: &'static str,
    name_at: usize,
    arguments: impl ExactSizeIterator<Item = &'a [u8]>,
) -> impl ExactSizeIterator<Item = &'a [u8]> {
    // Whether secrets come from here on.
    let mut is_behind = false;
    let mut last: &[u8] = b"";
    arguments.enumerate().map(move |(at, argument)| {
        let Some(at) = at.checked_sub(name_at) else { return argument };
        let is_hidden = is_behind;
        is_behind |= match command {
            "auth" => true,
            // Who left the user out, or quotes, has the password elsewhere than it belongs.
            "hello" => at > 0 && argument.eq_ignore_ascii_case(b"auth"),
            "config" => at == 2 && last.eq_ignore_ascii_case(b"set") && is_secret(argument),
            _ => false,
        };
        last = argument;
        if is_hidden { HIDDEN } else { argument }
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
    fn a_line_with_a_secret_shows_its_directive_only() {
        for (line, shown) in [
            ("user ann secret admin", "user (redacted)"),
            ("\"RequirePass\"\tsecret", "\"RequirePass\" (redacted)"),
            ("requirepass", "requirepass"),
            ("users ann", "users ann"),
            ("port 7711 7712", "port 7711 7712"),
        ] {
            assert_eq!(hidden_line(line.as_bytes()), shown.as_bytes(), "{line}");
        }
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
            "hello 3 AUTH (redacted) (redacted) (redacted) (redacted)"
        );
        assert_eq!(shown("hello", "hello auth me secret"), "hello auth (redacted) (redacted)");
        assert_eq!(shown("hello", "hello 3 setname auth"), "hello 3 setname auth");
        assert_eq!(shown("hello", "disque hello 3 auth secret"), "disque hello 3 auth (redacted)");
        assert_eq!(
            shown("config", "config set user ann hash set user"),
            "config set user (redacted) (redacted) (redacted) (redacted)"
        );
        assert_eq!(shown("config", "config set dir user secret"), "config set dir user secret");
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
