//! Forms of texts that several kinds demand, with the words of `k8s.io/apimachinery/pkg/util/validation`.

use crate::names;

const KEY_LENGTH: usize = 253;
const PORT_NAME_LENGTH: usize = 15;
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const VARIABLE_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const UNDERSCORE_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// What is wrong with the key of a ConfigMap or a Secret.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if key.len() > KEY_LENGTH {
        messages.push(too_long(KEY_LENGTH));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if key.is_empty() || !key.chars().all(allowed) {
        messages.push(CONFIG_KEY.to_owned());
    }
    match key {
        "." | ".." => messages.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// What is wrong with the name of an environment variable.
pub(crate) fn variable_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    let is_allowed = |c: char| matches!(c, ' '..='~') && c != '=';
    if name.chars().all(is_allowed) {
        Vec::new()
    } else {
        vec![VARIABLE_NAME.to_owned()]
    }
}

/// What is wrong with a port's name (IANA service name).
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > PORT_NAME_LENGTH {
        messages.push(too_long(PORT_NAME_LENGTH));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(allowed) {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// What is wrong with the number of a port.
pub(crate) fn port_number(number: i64) -> Vec<String> {
    if (1..=65535).contains(&number) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// The number before a percent sign; what is wrong with a text that has none.
pub(crate) fn percent(text: &str) -> Result<i64, String> {
    text.strip_suffix('%')
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|digits| digits.parse().unwrap_or(i64::MAX))
        .ok_or_else(|| PERCENT.to_owned())
}

/// What is wrong with the name of an HTTP header.
pub(crate) fn header_name(name: &str) -> Vec<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !name.is_empty() && name.chars().all(allowed) {
        Vec::new()
    } else {
        vec![HEADER_NAME.to_owned()]
    }
}

/// What is wrong with a name that stands for all names below another one.
pub(crate) fn wildcard(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > KEY_LENGTH {
        messages.push(too_long(KEY_LENGTH));
    }
    let is_subdomain = |rest: &str| {
        names::subdomain(rest)
            .iter()
            .all(|message| message.starts_with("must be"))
    };
    if !name.strip_prefix("*.").is_some_and(is_subdomain) {
        messages.push(WILDCARD.to_owned());
    }
    messages
}

/// What is wrong with a host's name, which may have labels that begin with an underscore.
pub(crate) fn subdomain_with_underscore(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > KEY_LENGTH {
        messages.push(too_long(KEY_LENGTH));
    }
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        label.starts_with(outer)
            && label.ends_with(outer)
            && label.chars().all(|c| outer(c) || matches!(c, '-' | '_'))
    };
    if !name.split('.').all(is_label) {
        messages.push(UNDERSCORE_SUBDOMAIN.to_owned());
    }
    messages
}

/// What is wrong with a user's or a group's number.
pub(crate) fn identity(number: i64) -> Vec<String> {
    if (0..=i64::from(i32::MAX)).contains(&number) {
        Vec::new()
    } else {
        vec![format!("must be between 0 and {}, inclusive", i32::MAX)]
    }
}

/// What is wrong with a name that is a part of a path.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    names::NameRule::PathSegment.check(name, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_forms_of_the_reference_ka_010() {
        assert_eq!(percent("25%"), Ok(25));
        assert!(percent("+5%").is_err() && percent("%").is_err() && percent("5").is_err());
        for right in ["*.example.com", "*.a"] {
            assert_eq!(wildcard(right), [] as [&str; 0], "{right}");
        }
        for wrong in ["*", "*.", "a.*.b", "*.A"] {
            assert_eq!(wildcard(wrong).len(), 1, "{wrong}");
        }
        assert_eq!(subdomain_with_underscore("_sip._tcp.example"), [] as [&str; 0]);
        assert_eq!(subdomain_with_underscore("a..b").len(), 1);
        assert_eq!(variable_name("my var"), [] as [&str; 0]);
        assert_eq!(variable_name("ä").len(), 1);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(port_name("").len(), 2);
    }
}
