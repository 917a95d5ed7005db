//! URLs as Go's `net/url` takes them apart, which is what Kubernetes' library shows.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// A URL with a scheme, or an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    /// Host and port, without a user.
    pub(crate) host: String,
    /// As it was written, where that is a valid encoding.
    pub(crate) escaped_path: String,
    query: String,
    fragment: Option<String>,
    user: String,
    opaque: String,
}

impl Url {
    /// Reads what may stand in a request: a URL with a scheme, or an absolute path. The error is Go's explanation.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrapped = |reason: String| format!("parse {text:?}: {reason}");
        // Whether it is acceptable is decided with the fragment as part of the path.
        parts(text).map_err(wrapped)?;
        let (before, fragment) = match text.split_once('#') {
            Some((before, fragment)) => (before, Some(fragment)),
            None => (text, None),
        };
        let mut url = parts(before).map_err(wrapped)?;
        if let Some(fragment) = fragment {
            unescape(fragment, false).map_err(wrapped)?;
            url.fragment = Some(fragment.to_owned());
        }
        Ok(url)
    }

    /// The host without its port and without brackets.
    pub(crate) fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    /// The digits of the port; empty without one.
    pub(crate) fn port(&self) -> &str {
        let behind = match self.host.rsplit_once(']') {
            Some((_, behind)) => behind,
            None => &self.host[self.hostname().len()..],
        };
        behind.strip_prefix(':').unwrap_or_default()
    }

    /// The parameters of the query, each with its values in their order; what is no parameter is left out.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, true), unescape(value, true)) {
                parameters.entry(key).or_default().push(value);
            }
        }
        parameters
    }
}

fn parts(text: &str) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let (scheme, rest) = scheme_of(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        host: String::new(),
        escaped_path: String::new(),
        query: query.to_owned(),
        fragment: None,
        user: String::new(),
        opaque: String::new(),
    };
    if text == "*" {
        "*".clone_into(&mut url.escaped_path);
        return Ok(url);
    }
    if !rest.starts_with('/') {
        if scheme.is_empty() {
            return Err("invalid URI for request".to_owned());
        }
        rest.clone_into(&mut url.opaque);
        return Ok(url);
    }
    let mut path = rest;
    if let Some(behind) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        let at = behind.find('/').unwrap_or(behind.len());
        path = &behind[at..];
        let authority = &behind[..at];
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                if !user.bytes().all(is_user_byte) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                user.clone_into(&mut url.user);
                host
            }
            None => authority,
        };
        url.host = host_of(host)?;
    }
    let plain = unescape(path, false)?;
    url.escaped_path = if path
        .bytes()
        .all(|byte| byte == b'%' || b"!$&'()*+,;=:@[]".contains(&byte) || is_path_byte(byte))
    {
        path.to_owned()
    } else {
        escape_path(&plain)
    };
    Ok(url)
}

fn scheme_of(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn host_of(host: &str) -> Result<String, String> {
    if let Some(bracketed) = host.strip_prefix('[') {
        let Some((address, port)) = bracketed.rsplit_once(']') else {
            return Err("missing ']' in host".to_owned());
        };
        valid_port(port)?;
        let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
        if address.parse::<Ipv6Addr>().is_err() {
            return Err(format!(
                "invalid host: ParseAddr({address:?}): unable to parse IP"
            ));
        }
        unescape(zone, false)?;
        return Ok(host.to_owned());
    }
    if let Some(at) = host.rfind(':') {
        valid_port(&host[at..])?;
        if host[..at].contains(':') {
            return Err(format!(
                "invalid port {:?} after host",
                &host[host.find(':').unwrap_or(at)..]
            ));
        }
    }
    if let Some(wrong) = host.bytes().find(|&byte| byte < 0x80 && !is_host_byte(byte)) {
        return Err(format!(
            "invalid character {:?} in host name",
            char::from(wrong).to_string()
        ));
    }
    if let Some(at) = host.find('%') {
        // Of a host only bytes above ASCII may be escaped.
        let escape: String = host[at..].chars().take(3).collect();
        if !escape[1..].starts_with([
            '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'A', 'B', 'C', 'D', 'E', 'F',
        ]) {
            return Err(format!("invalid URL escape {escape:?}"));
        }
    }
    unescape(host, false)
}

fn valid_port(port: &str) -> Result<(), String> {
    let is_valid = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_valid {
        Ok(())
    } else {
        Err(format!("invalid port {port:?} after host"))
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

fn is_user_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)
}

fn is_host_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:[]<>\"%".contains(&byte)
}

/// What stands unescaped in the paths that Go writes.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"$&+,/:;=@".contains(&byte)
}

fn escape_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if is_path_byte(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape(text: &str, plus: bool) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'+' && plus {
            bytes.push(b' ');
            continue;
        }
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |index: usize| {
            rest.get(index)
                .and_then(|&byte| char::from(byte).to_digit(16))
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            let shown: String = std::iter::once('%')
                .chain(String::from_utf8_lossy(rest).chars().take(2))
                .collect();
            return Err(format!("invalid URL escape {shown:?}"));
        };
        bytes.push(high * 16 + low);
        rest = rest.get(2..).unwrap_or_default();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = Url::parse("HTTPS://user:x@example.com:80/a%20b/c?k=1&k=2&l=%41#f").unwrap();
        assert_eq!(url.scheme, "https");
        assert_eq!(url.host, "example.com:80");
        assert_eq!((url.hostname(), url.port()), ("example.com", "80"));
        assert_eq!(url.escaped_path, "/a%20b/c");
        assert_eq!(url.query()["k"], ["1", "2"]);
        assert_eq!(url.query()["l"], ["A"]);
        let url = Url::parse("https://[::1]:80/").unwrap();
        assert_eq!((url.hostname(), url.port()), ("::1", "80"));
        assert_eq!(Url::parse("/path").unwrap().escaped_path, "/path");
    }

    #[test]
    fn what_is_no_url_is_refused_in_the_words_of_the_reference() {
        for (text, reason) in [
            ("", "parse \"\": empty url"),
            ("example.com", "parse \"example.com\": invalid URI for request"),
            (":x", "parse \":x\": missing protocol scheme"),
            (
                "http://a b/",
                "parse \"http://a b/\": invalid character \" \" in host name",
            ),
            (
                "http://a:x/",
                "parse \"http://a:x/\": invalid port \":x\" after host",
            ),
            ("http://[::1/", "parse \"http://[::1/\": missing ']' in host"),
            ("/%zz", "parse \"/%zz\": invalid URL escape \"%zz\""),
        ] {
            assert_eq!(Url::parse(text), Err(reason.to_owned()), "{text}");
        }
    }
}
