//! Output by a JSONPath template, as `kubectl` reads it: `{range .items[*]}{.metadata.name}{"\n"}{end}`.

use mainstay_kubeapi::table::jsonpath::{JsonPath, print};
use serde_json::Value;

/// How deep `range` may be nested.
const DEEPEST: usize = 16;

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Values(JsonPath),
    Range(JsonPath, Vec<Part>),
}

impl Template {
    /// Parses a template. A text without braces is taken for a path.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        if !text.contains('{') {
            return Ok(Template(vec![Part::Values(path(text)?)]));
        }
        // The innermost `range` that is open is the last: its path, and what stands in it so far.
        let mut open: Vec<(JsonPath, Vec<Part>)> = Vec::new();
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = action_end(behind).ok_or_else(|| format!("`{{{behind}` is not closed"))?;
            let (action, after) = behind.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let action = action.trim();
            if action == "end" {
                let (over, outer) = open.pop().ok_or("`{end}` without `{range …}`")?;
                let inside = std::mem::replace(&mut parts, outer);
                parts.push(Part::Range(over, inside));
            } else if let Some(over) = action.strip_prefix("range ") {
                if open.len() == DEEPEST {
                    return Err(format!("`range` is nested deeper than {DEEPEST}"));
                }
                open.push((path(over.trim())?, std::mem::take(&mut parts)));
            } else {
                parts.push(Part::Values(path(action)?));
            }
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        match open.pop() {
            Some(_) => Err("`{range …}` without `{end}`".to_owned()),
            None => Ok(Template(parts)),
        }
    }

    /// The text for a value. What the value does not have gives nothing.
    pub(crate) fn render(&self, value: &Value) -> Result<String, String> {
        let mut text = String::new();
        render(&self.0, value, &mut text)?;
        Ok(text)
    }
}

fn path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).map_err(|error| format!("`{text}`: {error}"))
}

/// Where the brace closes that opened before `text`: not inside a quoted text.
fn action_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (position, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '}') => return Some(position),
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
    }
    None
}

fn render(parts: &[Part], value: &Value, text: &mut String) -> Result<(), String> {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Values(path) => {
                let found = path.find(value).map_err(|error| error.to_string())?;
                let shown: Vec<String> = found.iter().map(|value| print(value)).collect();
                text.push_str(&shown.join(" "));
            }
            Part::Range(over, inside) => {
                for item in over.find(value).map_err(|error| error.to_string())? {
                    render(inside, &item, text)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn rendered(template: &str) -> String {
        let value = json!({"items": [
            {"metadata": {"name": "a", "labels": {"x/y": "1"}}, "ports": [1, 2]},
            {"metadata": {"name": "b"}, "ports": []},
        ]});
        Template::parse(template).unwrap().render(&value).unwrap()
    }

    #[test]
    fn values_text_and_ranges_are_put_out_as_kubectl_does() {
        assert_eq!(rendered("{.items[*].metadata.name}"), "a b");
        assert_eq!(
            rendered("{range .items[*]}{.metadata.name}={.ports}{\"\\n\"}{end}"),
            "a=[1,2]\nb=[]\n"
        );
        assert_eq!(
            rendered("{range .items[*]}{range .ports[*]}<{@}>{end}{end}!"),
            "<1><2>!"
        );
        assert_eq!(rendered("{.items[0].metadata.labels.x/y}"), "1");
        assert_eq!(rendered("{.items[?(@.metadata.name==\"b\")].ports}"), "[]");
        assert_eq!(rendered("name: {.items[1].metadata.name}"), "name: b");
        assert_eq!(rendered(".items[0].metadata.name"), "a");
        assert_eq!(rendered("[{.items[0].absent}]"), "[]");
        assert_eq!(rendered("{\"}\"}"), "}");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (template, why) in [
            ("{.a", "not closed"),
            ("{end}", "without `{range"),
            ("{range .a[*]}x", "without `{end}`"),
            ("{.a[}", "unterminated array"),
        ] {
            let error = Template::parse(template).unwrap_err();
            assert!(error.contains(why), "{template}: {error}");
        }
    }
}
