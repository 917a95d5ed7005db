//! Placeholders of a script: `{namespace}`, `{id}`, `{group}`, `{each}`, captured values, and `{repeat:TEXT:COUNT}`.

use std::collections::BTreeMap;

use serde_json::Value;

/// The values that placeholders of one case stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placeholders {
    values: BTreeMap<String, String>,
}

impl Placeholders {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Replaces what is known; other braces stay, since bodies are full of them.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let (before, from) = rest.split_at(start);
            filled.push_str(before);
            let known = from
                .find('}')
                .and_then(|end| Some((self.value(from.get(1..end)?)?, from.get(end + 1..)?)));
            if let Some((value, after)) = known {
                filled.push_str(&value);
                rest = after;
            } else {
                filled.push('{');
                rest = from.get(1..).unwrap_or_default();
            }
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some(repeat) = name.strip_prefix("repeat:") {
            let (text, count) = repeat.rsplit_once(':')?;
            return Some(text.repeat(count.parse().ok()?));
        }
        self.values.get(name).cloned()
    }

    /// Replaces placeholders in every string and key of a value.
    pub(crate) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(elements) => elements.iter().map(|element| self.fill_value(element)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| (self.fill(key), self.fill_value(member)))
                .collect(),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Placeholders;

    #[test]
    fn known_names_are_replaced_and_other_braces_stay() {
        let mut placeholders = Placeholders::default();
        placeholders.set("namespace", "n1");
        assert_eq!(
            placeholders.fill("/ns/{namespace}/{x}/{{namespace}}"),
            "/ns/n1/{x}/{n1}"
        );
        assert_eq!(placeholders.fill("{repeat:ab:3}"), "ababab");
        assert_eq!(placeholders.fill("{'a': {repeat:z:2}} {"), "{'a': zz} {");
    }
}
