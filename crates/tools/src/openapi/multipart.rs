//! Bodies of type `multipart/form-data` (RFC 7578).

use serde_json::{Map, Value};

use crate::http::text_form;

/// A body and the `Content-Type` that names its boundary. `files` are the fields that are sent as
/// files.
pub(super) fn write(fields: &Map<String, Value>, files: &[String]) -> (Vec<u8>, String) {
    let mut parts = Vec::new();
    for (name, value) in fields {
        let is_file = files.iter().any(|file| file == name);
        match value {
            Value::Null => {}
            Value::Array(items) => {
                for item in items.iter().filter(|item| !item.is_null()) {
                    parts.push(part(name, item, is_file));
                }
            }
            value => parts.push(part(name, value, is_file)),
        }
    }
    let boundary = boundary(&parts);
    let mut body = String::new();
    for (head, content) in &parts {
        body.push_str(&format!("--{boundary}\r\n{head}\r\n\r\n{content}\r\n"));
    }
    body.push_str(&format!("--{boundary}--\r\n"));
    (
        body.into_bytes(),
        format!("multipart/form-data; boundary={boundary}"),
    )
}

fn part(name: &str, value: &Value, is_file: bool) -> (String, String) {
    let name = quoted(name);
    let mut head = format!("Content-Disposition: form-data; name=\"{name}\"");
    if is_file {
        head.push_str(&format!(
            "; filename=\"{name}\"\r\nContent-Type: application/octet-stream"
        ));
    }
    let content = match value {
        Value::Object(_) | Value::Array(_) => {
            head.push_str("\r\nContent-Type: application/json");
            value.to_string()
        }
        scalar => text_form(scalar).unwrap_or_default(),
    };
    (head, content)
}

/// As browsers write a name, so that it cannot end its quotes or its line.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// A boundary that none of the parts contains. Without chance, so that every attempt sends the same
/// bytes (OM-399).
fn boundary(parts: &[(String, String)]) -> String {
    let mut number = 0_u32;
    loop {
        let boundary = format!("mainstay-part-{number}");
        let taken = parts
            .iter()
            .any(|(head, content)| head.contains(&boundary) || content.contains(&boundary));
        if !taken {
            return boundary;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_files_become_parts() {
        let fields = json!({"note": "a", "tags": ["x", "y"], "meta": {"k": 1}, "file": "data\r\n--mainstay-part-0", "none": null});
        let (body, content_type) = write(fields.as_object().unwrap(), &["file".to_owned()]);
        assert_eq!(content_type, "multipart/form-data; boundary=mainstay-part-1");
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body.matches("--mainstay-part-1\r\n").count(), 5);
        assert!(body.ends_with("--mainstay-part-1--\r\n"));
        for part in [
            "name=\"note\"\r\n\r\na\r\n",
            "name=\"tags\"\r\n\r\ny\r\n",
            "name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{\"k\":1}\r\n",
            "name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\ndata\r\n--mainstay-part-0\r\n",
        ] {
            assert!(body.contains(part), "{part}\n{body}");
        }
        assert_eq!(quoted("a\"\r\nb"), "a%22%0D%0Ab");
    }
}
