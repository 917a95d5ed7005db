//! What a person at the terminal sees. Data goes to standard output, everything else to standard error; a one-line
//! message has no full stop, literals stand in backticks, a hint has its own line.

use std::io::{self, Write};

/// Writes `text` and a newline to standard output. A closed pipe ends the process quietly, as `head` expects.
pub(crate) fn data(text: impl AsRef<str>) {
    write_to(&mut io::stdout().lock(), text.as_ref(), true);
}

/// Writes `text` to standard output without a newline, at once: streamed answers.
pub(crate) fn stream(text: &str) {
    write_to(&mut io::stdout().lock(), text, false);
}

/// Writes a message to standard error, without what would drive the terminal: it may quote text from outside.
pub(crate) fn message(text: impl AsRef<str>) {
    tell(&printable(text.as_ref()), true);
}

/// `text` without control characters, other than new lines and tabs, and without the marks that reorder text.
pub(crate) fn printable(text: &str) -> String {
    let drives = |letter: char| {
        (letter.is_control() && !matches!(letter, '\n' | '\t'))
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|letter| !drives(*letter)).collect()
}

/// Writes a prompt to standard error, without a newline.
pub(crate) fn prompt(text: &str) {
    tell(text, false);
}

/// Writes `error: …` and, where there is one, `hint: …`.
pub(crate) fn error(text: impl AsRef<str>, hint: Option<&str>) {
    message(format!("error: {}", text.as_ref()));
    if let Some(hint) = hint {
        message(format!("hint: {hint}"));
    }
}

/// Tells all failures but the last, which is given back to be told as every verb's.
///
/// # Errors
///
/// The last one, if there is any.
pub(crate) fn all(mut failures: Vec<Failure>) -> Result<(), Failure> {
    let Some(last) = failures.pop() else {
        return Ok(());
    };
    for failure in &failures {
        error(&failure.text, failure.hint.as_deref());
    }
    Err(last)
}

/// Writes `warning: …`.
pub(crate) fn warning(text: impl AsRef<str>) {
    message(format!("warning: {}", text.as_ref()));
}

fn write_to(target: &mut impl Write, text: &str, line: bool) {
    if let Err(failure) = written(target, text, line) {
        let code = if failure.kind() == io::ErrorKind::BrokenPipe {
            0
        } else {
            1
        };
        std::process::exit(code);
    }
}

fn written(target: &mut impl Write, text: &str, line: bool) -> io::Result<()> {
    let written = if line {
        writeln!(target, "{text}")
    } else {
        write!(target, "{text}")
    };
    written.and_then(|()| target.flush())
}

/// Messages that nobody reads any more stop nothing: a server goes on when the terminal it was started from is gone.
fn tell(text: &str, line: bool) {
    // There is nowhere left to say that it could not be said.
    let _ = written(&mut io::stderr().lock(), text, line);
}

/// A table of left-aligned columns, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}", width = *width))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// An error that a user caused or can mend: its text, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What went wrong, naming the object and the field or file.
    pub(crate) text: String,
    /// What would mend it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_reordering_marks_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n\tc\r\u{202e}d"), "a[2Jb\n\tcd");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["NAME".to_owned(), "PHASE".to_owned()],
            vec!["helpdesk".to_owned(), "Running".to_owned()],
        ];
        assert_eq!(table(&rows), "NAME      PHASE\nhelpdesk  Running");
    }
}
