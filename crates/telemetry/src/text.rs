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

/// The text of `error` and of each of its causes, in one line: `OUTER: CAUSE: CAUSE`. A cause whose text the one before it
/// ends with already is not repeated.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fault(&'static str, Option<Box<Fault>>);

    impl std::fmt::Display for Fault {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl std::error::Error for Fault {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_are_told_once_and_in_one_line() {
        let refused = Fault("connection\n  refused", None);
        let told = Fault("no answer: connection\n  refused", Some(Box::new(refused)));
        let outer = Fault("the model cannot be reached", Some(Box::new(told)));
        assert_eq!(
            with_causes(&outer),
            "the model cannot be reached: no answer: connection refused"
        );
    }

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
