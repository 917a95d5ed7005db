#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

#[test]
fn a_version_at_the_end_of_the_base_is_not_doubled_or_250() {
    for (base, expected) in [
        (
            "https://api.anthropic.com",
            "https://api.anthropic.com/v1/messages",
        ),
        (
            "https://api.anthropic.com/",
            "https://api.anthropic.com/v1/messages",
        ),
        ("http://h:1/v1", "http://h:1/v1/messages"),
        ("http://h:1/v1/", "http://h:1/v1/messages"),
        (" http://h/proxy/v1/ ", "http://h/proxy/v1/messages"),
        ("http://h/proxy", "http://h/proxy/v1/messages"),
        ("http://h/v1/messages", "http://h/v1/messages"),
        ("http://h/v1/v1", "http://h/v1/v1/messages"),
        ("http://h/v1?key=1", "http://h/v1/messages?key=1"),
    ] {
        assert_eq!(endpoint(base).unwrap().as_str(), expected, "{base}");
    }
    assert!(endpoint("ftp://h").is_err());
}
