//! Text from outside, made fit to be logged or shown.

/// `untrusted` with control characters escaped and cut to at most `limit` bytes of output, so that a name, header or
/// message from a client can neither forge a log line nor fill the log. A cut text ends with `…`.
pub fn escape(untrusted: &str, limit: usize) -> String {
    let mut escaped = String::with_capacity(untrusted.len().min(limit));
    for letter in untrusted.chars() {
        let start = escaped.len();
        // Besides the control characters, the marks that reorder or break lines in a terminal or viewer.
        if letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            escaped.extend(letter.escape_default());
        } else {
            escaped.push(letter);
        }
        if escaped.len() > limit {
            escaped.truncate(start);
            escaped.push('…');
            break;
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_cannot_forge_a_line() {
        assert_eq!(escape("a\nERROR b\u{1b}[2J", 100), "a\\nERROR b\\u{1b}[2J");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(escape("äöü", 4), "äö…");
        assert_eq!(escape("abc", 3), "abc");
    }
}
