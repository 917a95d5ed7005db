//! Paths to fields, as `selectableFields` and the `fieldPath` of rules name them: `.spec.a`, `.spec['a-b']`.

use serde_json::Value;

use crate::field::FieldPath;

/// Follows a path through a schema document. Gives the path as messages render it, and the schema found there.
/// `brackets` tells whether `['name']` may be used.
pub(super) fn resolve<'schema>(
    path: &str,
    schema: &'schema Value,
    brackets: bool,
) -> Result<(String, &'schema Value), String> {
    let mut rendered = FieldPath::root();
    let mut at = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".to_owned());
            }
            let Some(after) = after.strip_prefix('\'') else {
                let token: String = after
                    .chars()
                    .take_while(|c| !matches!(c, '.' | '[' | ']'))
                    .collect();
                return Err(format!("expected single quoted string but got {token}"));
            };
            let Some((name, after)) = after.split_once("']") else {
                return Err("unexpected end of JSON path".to_owned());
            };
            rest = after;
            name.replace("\\'", "'")
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 {
                return Err(match after.chars().next() {
                    None => "unexpected end of JSON path".to_owned(),
                    Some(_) => "does not refer to a valid field".to_owned(),
                });
            }
            rest = &after[end..];
            after[..end].to_owned()
        } else {
            let token: String = rest
                .chars()
                .take_while(|c| !matches!(c, '.' | '[' | ']'))
                .collect();
            return Err(format!("expected [ or . but got: {token}"));
        };
        let no_field = || "does not refer to a valid field".to_owned();
        if let Some(properties) = at.get("properties").and_then(Value::as_object) {
            at = properties.get(&name).ok_or_else(no_field)?;
            rendered = rendered.child(&name);
        } else if let Some(additional) = at.get("additionalProperties").filter(|schema| schema.is_object()) {
            at = additional;
            rendered = rendered.key(&name);
        } else {
            return Err(no_field());
        }
    }
    Ok((rendered.as_str().to_owned(), at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;

    #[test]
    fn a_path_is_followed_through_properties_and_maps() {
        let schema = json!({"properties": {"spec": {"properties": {
            "a": {"type": "string"}, "m": {"additionalProperties": {"type": "integer"}}}}}});
        assert_eq!(
            resolve(".spec.a", &schema, false).map(|found| found.0),
            Ok("spec.a".to_owned())
        );
        assert_eq!(
            resolve(".spec.m['x']", &schema, true).map(|found| found.0),
            Ok("spec.m[x]".to_owned())
        );
        assert_eq!(
            resolve(".spec.b", &schema, false).map(|found| found.0),
            Err("does not refer to a valid field".to_owned())
        );
        assert_eq!(
            resolve("spec", &schema, false).map(|found| found.0),
            Err("expected [ or . but got: spec".to_owned())
        );
        assert_eq!(
            resolve(".spec['a']", &schema, false).map(|found| found.0),
            Err("array notation is not allowed".to_owned())
        );
    }
}
