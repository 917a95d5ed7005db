//! The indexes of an indexed Job, in the form in which its status lists them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads a list; what lies outside of `0..completions`, as after a Job became smaller, is left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = BTreeSet::new();
        for interval in text.split(',') {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend(first.max(0)..=last.min(completions.saturating_sub(1)));
            }
        }
        Self(indexes)
    }

    pub(super) fn insert(&mut self, index: i32) {
        self.0.insert(index);
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i32> {
        self.0.iter().copied()
    }

    /// The list: three or more in a row are shortened.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut rest = self.0.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if !text.is_empty() {
                text.push(',');
            }
            // Writing to a String does not fail.
            let _ = match last - first {
                0 => write!(text, "{first}"),
                1 => write!(text, "{first},{last}"),
                _ => write!(text, "{first}-{last}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Indexes;

    #[test]
    fn indexes_are_listed_as_on_a_cluster() {
        // KA-050
        for text in ["", "0", "1,2", "1,3-5,7", "0-99"] {
            assert_eq!(Indexes::parse(text, 100).text(), text);
        }
        assert_eq!(Indexes::parse("1,3-5,7", 5).text(), "1,3,4");
        assert_eq!(Indexes::parse("1,3-5,7", 100).len(), 5);
        assert_eq!(Indexes::parse("x,4-", 100).text(), "");
    }
}
