//! Glob patterns as Redis and the C server match them: `*`, `?`, `[abc]`, `[a-z]`,
//! `[^a]` and `\` before a byte that stands for itself.
//!
//! One pass with one place to go back to. A `*` takes as little as it can; when the
//! rest does not match, it takes one byte more. Only the latest `*` is ever reopened:
//! an earlier one could but move the later one further, so the work is at most pattern
//! times text, whatever the pattern.

/// Whether upper and lower case letters are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Sensitive,
    Insensitive,
}

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let mut pattern = pattern;
    let mut text = text;
    // Behind the latest `*`: the pattern after it, and the text it has not taken yet.
    let mut reopen: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = pattern {
            pattern = after;
            reopen = Some((after, text));
            continue;
        }
        match text {
            [] if pattern.is_empty() => return true,
            [] => return false,
            [byte, rest @ ..] => {
                if let Some(after) = match_one(pattern, *byte, case) {
                    pattern = after;
                    text = rest;
                    continue;
                }
            }
        }
        let Some((after_star, [_, untaken @ ..])) = reopen else { return false };
        pattern = after_star;
        text = untaken;
        reopen = Some((after_star, untaken));
    }
}

/// Matches one byte against the head of the pattern, which is no `*`; gives the pattern
/// that is left.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', class @ ..] => {
            let (found, after) = match_class(class, byte, case);
            found.then_some(after)
        }
        [b'\\', literal, after @ ..] | [literal, after @ ..] => {
            (fold(*literal, case) == fold(byte, case)).then_some(after)
        }
    }
}

/// Matches one byte against what follows a `[`; gives the pattern behind the `]`.
///
/// C: util.c stringmatchlen, a class without its `]` ends with the pattern, `[]` matches
/// nothing and `[a-]` is a range up to `]`.
fn match_class(class: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let (wanted, mut rest) = match class {
        [b'^', rest @ ..] => (false, rest),
        rest => (true, rest),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => return (found == wanted, rest),
            [b']', after @ ..] => return (found == wanted, after),
            [b'\\', literal, after @ ..] => {
                found |= *literal == byte;
                after
            }
            [from, b'-', to, after @ ..] => {
                let low = fold(*from.min(to), case);
                let high = fold(*from.max(to), case);
                found |= (low..=high).contains(&fold(byte, case));
                after
            }
            [literal, after @ ..] => {
                found |= fold(*literal, case) == fold(byte, case);
                after
            }
        };
    }
}

fn fold(byte: u8, case: Case) -> u8 {
    match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches_exactly(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive)
    }

    #[test]
    fn each_kind_of_pattern_matches_what_it_says() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("**a**", "xxa"),
            ("max*", "maxmemory"),
            ("*mem*", "maxmemory-policy"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("\\*", "*"),
            ("a\\", "a\\"),
            ("[\\]]", "]"),
            ("[abc", "b"),
            ("[^]x", "yx"),
            ("*a*b", "aabab"),
        ] {
            assert!(matches_exactly(pattern, text), "{pattern:?} should match {text:?}");
        }
    }

    #[test]
    fn each_kind_of_pattern_refuses_the_rest() {
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("[^a]", ""),
            ("a", "ab"),
            ("a*", "ba"),
            ("h[^e]llo", "hello"),
            ("h[a-c]llo", "hdllo"),
            ("\\*", "a"),
            ("[]", "a"),
            ("[]a]", "a"),
            ("A", "a"),
            ("*a*b", "aaba"),
        ] {
            assert!(!matches_exactly(pattern, text), "{pattern:?} should not match {text:?}");
        }
    }

    #[test]
    fn case_counts_only_when_asked() {
        assert!(matches(b"MAX*[A-C]", b"maxmemory-b", Case::Insensitive));
        assert!(!matches(b"MAX*[A-C]", b"maxmemory-b", Case::Sensitive));
    }

    #[test]
    fn many_stars_do_not_blow_up() {
        let pattern = b"a*".repeat(500);
        let text = b"a".repeat(2000);
        assert!(matches(&pattern, &text, Case::Sensitive));
        let never = [&pattern[..], b"b"].concat();
        assert!(!matches(&never, &text, Case::Sensitive));
    }

    /// The definition, by recursion: what the fast way is held against.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', after @ ..], _) => (0..=text.len()).any(|taken| naive(after, &text[taken..])),
            (_, []) => false,
            (_, [byte, rest @ ..]) => {
                match_one(pattern, *byte, Case::Sensitive).is_some_and(|after| naive(after, rest))
            }
        }
    }

    proptest! {
        #[test]
        fn going_back_to_the_latest_star_is_enough(
            pattern in "[ab*?\\[\\]^-]{0,8}",
            text in "[ab]{0,8}",
        ) {
            prop_assert_eq!(
                matches_exactly(&pattern, &text),
                naive(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
