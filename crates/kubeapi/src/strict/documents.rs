//! Splitting a YAML stream.

/// The documents of a YAML stream that have content, each with the number of its first line (from 1). A line that
/// begins with `---` separates two documents; what follows on it is ignored, as `kubectl` ignores it.
pub fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut result = Vec::new();
    let mut start = 0;
    let mut first_line = 1;
    let mut position = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let end = position + line.len();
        if is_separator(line) {
            push(&mut result, first_line, &text[start..position]);
            start = end;
            first_line = index + 2;
        }
        position = end;
    }
    push(&mut result, first_line, &text[start..]);
    result
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn push<'a>(result: &mut Vec<(usize, &'a str)>, first_line: usize, text: &'a str) {
    let has_content = text.lines().any(|line| {
        let line = line.trim_start_matches('\u{feff}').trim();
        !line.is_empty() && !line.starts_with('#') && line != "..."
    });
    if has_content {
        result.push((first_line, text));
    }
}
