//! Names of object properties as identifiers.

/// Words that the language keeps for itself.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier under which a rule reaches a property of an object, as Kubernetes escapes it
/// (KA-015): `__` → `__underscores__`, `.` → `__dot__`, `-` → `__dash__`, `/` → `__slash__`, a
/// reserved word → `__WORD__`. `None` for a name that no rule can reach.
pub fn escape_property(name: &str) -> Option<String> {
    let first = name.as_bytes().first()?;
    if first.is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match character {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => escaped.push(character),
            _ => return None,
        }
        rest = &rest[character.len_utf8()..];
    }
    Some(escaped)
}
