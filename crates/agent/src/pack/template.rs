//! Finding placeholders in a template.
//!
//! Only `{{name}}` is a placeholder, with spaces allowed inside the braces. Single braces, JSON examples
//! and double braces around anything that is not a name stay as they are (D16). Block tags of richer
//! template languages are told apart, so that a pack that needs them is refused rather than sent to a
//! model half rendered.

use std::ops::Range;

/// What stands between double braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// A placeholder.
    Name(&'a str),
    /// `{{#if …}}`, `{{/if}}`, `{{else}}`, `{{name | filter}}`: features that are not built.
    Unsupported(&'a str),
}

/// All tags of a text with the range of bytes each covers, braces included.
pub(super) fn tags(text: &str) -> Vec<(Range<usize>, Tag<'_>)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find("{{").map(|at| from + at) {
        let Some(close) = text[open + 2..].find("}}").map(|at| open + 2 + at) else {
            break;
        };
        // `{{ {{a}}`: the braces nearest to the name are the placeholder.
        let open = text[open + 2..close].rfind("{{").map_or(open, |at| open + 2 + at);
        match classify(text[open + 2..close].trim()) {
            Some(tag) => {
                found.push((open..close + 2, tag));
                from = close + 2;
            }
            None => from = open + 2,
        }
    }
    found
}

fn classify(inner: &str) -> Option<Tag<'_>> {
    if is_name(inner) {
        return Some(if inner == "else" {
            Tag::Unsupported(inner)
        } else {
            Tag::Name(inner)
        });
    }
    if inner.starts_with(['#', '/', '^', '>', '!']) {
        return Some(Tag::Unsupported(inner));
    }
    match inner.split_once('|') {
        Some((name, _)) if is_name(name.trim()) => Some(Tag::Unsupported(inner)),
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || matches!(next, '_' | '-' | '.'))
}
