//! Patterns of schemas are Go regular expressions. The `regex` crate reads nearly the same language; this module
//! rewrites the places where the two differ, so that a pattern matches the same texts as on the reference.

mod syntax;

use regex::Regex;

/// Compiles a pattern as Go would read it.
///
/// # Errors
/// The message of Go's parser, when it is not a valid expression there; for what only this server cannot compile, the first
/// line of its own.
pub fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if let Some(fault) = syntax::fault(pattern) {
        return Err(fault);
    }
    Regex::new(&translate(pattern)).map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("expression is larger than {limit} bytes when compiled")
        }
        other => other
            .to_string()
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("error: ").map(str::to_owned))
            .unwrap_or_else(|| other.to_string()),
    })
}

/// Go's `\d`, `\w`, `\s` and `\b` are about ASCII; inside a bracket an opening bracket and doubled `&`, `~` or `-` are
/// plain characters there, and `{` that opens no repetition stands for itself.
fn translate(pattern: &str) -> String {
    let characters: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut at = 0;
    let mut in_class = false;
    let mut class_start = 0;
    while let Some(&character) = characters.get(at) {
        match character {
            '\\' => {
                let next = characters.get(at + 1).copied();
                match next {
                    Some('Q') if !in_class => {
                        at += 2;
                        while at < characters.len() {
                            if characters[at] == '\\' && characters.get(at + 1) == Some(&'E') {
                                at += 1;
                                break;
                            }
                            out.push_str(&regex::escape(&characters[at].to_string()));
                            at += 1;
                        }
                        at += 1;
                        continue;
                    }
                    Some('d') => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                    Some('D') => out.push_str("[^0-9]"),
                    Some('w') => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                    Some('W') => out.push_str("[^0-9A-Za-z_]"),
                    Some('s') => out.push_str(if in_class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                    Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                    Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
                    Some(
                        '/' | '"' | '\'' | '`' | '<' | '>' | '=' | ':' | ',' | ';' | '!' | '@' | '%' | '_',
                    ) => {
                        out.extend(next);
                    }
                    Some(class @ ('p' | 'P' | 'x')) if characters.get(at + 2) == Some(&'{') => {
                        // `\p{Greek}` and `\x{41}`: the braces belong to the escape.
                        let length = characters[at..]
                            .iter()
                            .position(|&c| c == '}')
                            .map_or(3, |end| end + 1);
                        out.push('\\');
                        out.push(class);
                        out.extend(characters[at..].iter().skip(2).take(length - 2));
                        at += length;
                        continue;
                    }
                    Some(other) => {
                        out.push('\\');
                        out.push(other);
                    }
                    None => out.push('\\'),
                }
                at += 2;
                continue;
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                at += 1;
                if characters.get(at) == Some(&'^') {
                    out.push('^');
                    at += 1;
                }
                class_start = at;
                continue;
            }
            ']' if in_class && at > class_start => {
                in_class = false;
                out.push(']');
            }
            '[' if characters.get(at + 1) == Some(&':') => out.push('['),
            '[' | ']' | '&' | '~' if in_class => {
                // A POSIX class such as `[:alpha:]` closes with its own bracket.
                if character == ']' && at > 0 && characters[at - 1] == ':' {
                    out.push(']');
                } else {
                    out.push('\\');
                    out.push(character);
                }
            }
            '-' if in_class && (at == class_start || characters.get(at + 1) == Some(&'-')) => {
                out.push_str(r"\-")
            }
            '{' if !in_class && !opens_repetition(&characters[at + 1..]) => out.push_str(r"\{"),
            '}' if !in_class && !closes_repetition(&characters[..at]) => out.push_str(r"\}"),
            other => out.push(other),
        }
        if in_class && character == '[' && characters.get(at + 1) == Some(&':') {
            // Copy the whole POSIX class so that its closing bracket is not taken for ours.
            at += 1;
            while let Some(&inner) = characters.get(at) {
                out.push(inner);
                at += 1;
                if inner == ']' {
                    break;
                }
            }
            continue;
        }
        at += 1;
    }
    out
}

fn opens_repetition(rest: &[char]) -> bool {
    let Some(end) = rest.iter().position(|&character| character == '}') else {
        return false;
    };
    let body: String = rest[..end].iter().collect();
    let (low, high) = body.split_once(',').unwrap_or((&body, ""));
    !low.is_empty() && low.chars().all(|c| c.is_ascii_digit()) && high.chars().all(|c| c.is_ascii_digit())
}

fn closes_repetition(before: &[char]) -> bool {
    before
        .iter()
        .rposition(|&character| character == '{')
        .is_some_and(|start| {
            let mut tail: Vec<char> = before[start + 1..].to_vec();
            tail.push('}');
            opens_repetition(&tail)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::compile_pattern;

    #[test]
    fn go_classes_are_about_ascii_only() {
        // KA-013
        let digits = compile_pattern(r"^\d+$").expect("compiles");
        assert!(digits.is_match("12"));
        assert!(!digits.is_match("١٢"));
        let word = compile_pattern(r"^[\w.-]+$").expect("compiles");
        assert!(word.is_match("a_b.c-d"));
        assert!(!word.is_match("ä"));
    }

    #[test]
    fn brackets_inside_a_class_stand_for_themselves() {
        let pattern = compile_pattern(r"^[[\]&~-]+$").expect("compiles");
        assert!(pattern.is_match("[]&~-"));
        assert!(!pattern.is_match("a"));
        assert!(
            compile_pattern(r"^[[:alpha:]_]+$")
                .expect("compiles")
                .is_match("a_b")
        );
        assert!(compile_pattern(r"^[]a]+$").expect("compiles").is_match("]a"));
    }

    #[test]
    fn a_brace_that_opens_no_repetition_stands_for_itself() {
        assert!(compile_pattern(r"^{a}$").expect("compiles").is_match("{a}"));
        assert!(compile_pattern(r"^a{2,3}$").expect("compiles").is_match("aa"));
        assert!(
            compile_pattern(r"^\p{Lu}x\x{41}$")
                .expect("compiles")
                .is_match("AxA")
        );
        assert!(
            compile_pattern(r"^https?:\/\/[^\s]+$")
                .expect("compiles")
                .is_match("http://a")
        );
    }

    #[test]
    fn an_invalid_expression_is_refused_with_a_one_line_text() {
        let error = compile_pattern("^[a").expect_err("is invalid");
        assert!(!error.contains('\n'), "{error}");
        assert!(compile_pattern("a(?=b)").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_compiled_or_refused(pattern in ".{0,40}") {
            // KA-008
            let _ = compile_pattern(&pattern);
        }

        #[test]
        fn a_quoted_text_matches_itself(text in "[ -~]{1,20}") {
            // KA-013: Go quotes a text between `\\Q` and `\\E`.
            let quoted = format!("^\\Q{}\\E$", text.replace('\\', "/"));
            let regex = compile_pattern(&quoted).expect("compiles");
            proptest::prop_assert!(regex.is_match(&text.replace('\\', "/")));
        }
    }
}
