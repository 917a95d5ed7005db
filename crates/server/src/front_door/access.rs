//! Who may come in (contract 4).
//!
//! Three questions, in this order. Is the `Host` one of ours? Another name means that somebody else's name
//! was made to resolve to this address (DNS rebinding). Is the `Origin` absent or ours? Another one means that
//! a page of another site is asking. And is there a valid token, or does the request come from this machine?

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use mainstay_agent::event::Caller;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::problem::Problem;

/// The rules of one listener.
#[derive(Clone)]
pub struct Access {
    /// The token of `endpoints.json`.
    pub token: SecretString,
    /// Names, beside the loopback ones, under which this listener is reached; without a port, in lower case.
    pub own_names: Vec<String>,
    /// Whether every address counts as an own name: for a listener on all interfaces, which cannot know by which
    /// of them it is reached. A name that was made to resolve to this machine is still a name, so this opens
    /// nothing to DNS rebinding.
    pub any_address: bool,
    /// Further origins whose pages may come in, as a browser writes them: `https://host:port` (OM-505; `--allow-origin` and
    /// `OMNIA_ALLOWED_ORIGINS` of the binary).
    pub allowed_origins: Vec<String>,
}

impl Access {
    /// The rules of a listener on a loopback address.
    pub fn loopback(token: SecretString) -> Self {
        Self {
            token,
            own_names: Vec::new(),
            any_address: false,
            allowed_origins: Vec::new(),
        }
    }

    /// The rules of a listener at `address`: loopback names, the address itself, and no other origin.
    pub fn of(address: SocketAddr, token: SecretString) -> Self {
        let own_names = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        Self {
            token,
            own_names: vec![own_names],
            any_address: address.ip().is_unspecified(),
            allowed_origins: Vec::new(),
        }
    }

    /// Who the caller is.
    ///
    /// # Errors
    ///
    /// The answer to give instead of serving the request.
    pub fn judge(
        &self,
        peer: Option<IpAddr>,
        authority: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Caller, Denied> {
        let host = self.own_host(authority, headers).ok_or(Denied::Host)?;
        self.own_origin(&host, headers)?;
        match bearer(headers) {
            Some(given) => {
                let expected = self.token.expose_secret().as_bytes();
                // Never against an empty token, which everybody knows.
                let equal = !expected.is_empty() && bool::from(expected.ct_eq(given));
                if equal {
                    Ok(caller("token"))
                } else {
                    Err(Denied::Token)
                }
            }
            None if headers.contains_key(header::AUTHORIZATION) => Err(Denied::Token),
            None if peer.is_some_and(|peer| peer.to_canonical().is_loopback()) => Ok(caller("loopback")),
            None => Err(Denied::NoToken),
        }
    }

    /// The host the request is for, if it is one of ours. All the places that name it have to agree: a proxy
    /// and this program could otherwise read different ones.
    fn own_host(&self, authority: Option<&str>, headers: &HeaderMap) -> Option<Authority> {
        let mut named: Option<Authority> = None;
        let texts = headers.get_all(header::HOST).into_iter().map(HeaderValue::to_str);
        for text in texts.chain(authority.map(Ok)) {
            let next: Authority = text.ok()?.parse().ok()?;
            // `user@host` is no host.
            if next.as_str().contains('@') || named.as_ref().is_some_and(|named| *named != next) {
                return None;
            }
            named = Some(next);
        }
        named.filter(|named| self.is_own_name(named.host()))
    }

    fn is_own_name(&self, host: &str) -> bool {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        is_loopback_name(&name)
            || self.own_names.contains(&name)
            || (self.any_address && address_of(&name).is_some())
    }

    fn own_origin(&self, host: &Authority, headers: &HeaderMap) -> Result<(), Denied> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let origin = origin.to_str().map_err(|_| Denied::Origin)?;
        if origins.next().is_some() {
            return Err(Denied::Origin);
        }
        if self.allowed_origins.iter().any(|allowed| allowed == origin) {
            return Ok(());
        }
        // A page that this listener served: our name, and the port the request came to. Another port on this
        // machine is another program.
        let parsed = url::Url::parse(origin).map_err(|_| Denied::Origin)?;
        let own = matches!(parsed.scheme(), "http" | "https")
            && parsed.host_str().is_some_and(|name| self.is_own_name(name))
            && parsed.port_or_known_default() == host.port_u16().or(default_port(parsed.scheme()));
        if own { Ok(()) } else { Err(Denied::Origin) }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Access")
            .field("own_names", &self.own_names)
            .field("allowed_origins", &self.allowed_origins)
            .finish_non_exhaustive()
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The `Host` is missing, ambiguous or not ours.
    Host,
    /// The `Origin` is not ours.
    Origin,
    /// The token is wrong.
    Token,
    /// There is no token, and the request comes from another machine.
    NoToken,
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let (status, error, detail) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                "the Host header names a host that is not served here; use localhost or 127.0.0.1",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                "pages of other origins may not use this server",
            ),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "the bearer token is not valid",
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "a bearer token is required",
            ),
        };
        let mut response = Problem::new(status, error, detail).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The middleware. What is behind it finds the [`Caller`] in the request's extensions.
pub async fn check(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip());
    let authority = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().to_owned());
    match access.judge(peer, authority.as_deref(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(denied) => {
            tracing::warn!(?denied, ?peer, "a request was refused at the front door");
            denied.into_response()
        }
    }
}

fn caller(origin: &str) -> Caller {
    Caller {
        origin: origin.to_owned(),
        subject: "local".to_owned(),
        ..Caller::default()
    }
}

/// The credential of `Authorization: Bearer`; the scheme's case does not matter (RFC 9110).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    let (scheme, credential) = value.split_at_checked("bearer ".len())?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case(b"bearer ")).then(|| credential.trim_ascii())
}

fn is_loopback_name(name: &str) -> bool {
    if name == "localhost" {
        return true;
    }
    address_of(name).is_some_and(|address| address.to_canonical().is_loopback())
}

/// The address that a host is, where it is one.
fn address_of(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7480);
    const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const THERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)));

    fn access() -> Access {
        Access {
            own_names: vec!["mainstay.example".to_owned()],
            allowed_origins: vec!["https://dashboard.example".to_owned()],
            ..Access::of(LOOPBACK, "correct horse".to_owned().into())
        }
    }

    fn judge(peer: Option<IpAddr>, headers: &[(&str, &str)]) -> Result<String, Denied> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        access().judge(peer, None, &map).map(|caller| caller.origin)
    }

    #[test]
    fn contract_4_without_a_token_only_this_machine_may_come_in() {
        let host = ("host", "127.0.0.1:7480");
        assert_eq!(judge(HERE, &[host]).unwrap(), "loopback");
        let mapped: Option<IpAddr> = Some("::ffff:127.0.0.1".parse().unwrap());
        assert_eq!(judge(mapped, &[host]).unwrap(), "loopback");
        assert_eq!(judge(THERE, &[host]), Err(Denied::NoToken));
        assert_eq!(
            judge(None, &[host]),
            Err(Denied::NoToken),
            "an unknown peer is not this machine"
        );
    }

    #[test]
    fn contract_4_a_token_opens_from_anywhere_and_a_wrong_one_from_nowhere() {
        let host = ("host", "mainstay.example");
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let header = format!("{scheme} correct horse");
            assert_eq!(
                judge(THERE, &[host, ("authorization", &header)]).unwrap(),
                "token"
            );
        }
        for wrong in [
            "Bearer wrong",
            "Bearer ",
            "Bearer",
            "Basic correct horse",
            "correct horse",
            "Bearer correct horse2",
        ] {
            assert_eq!(
                judge(HERE, &[host, ("authorization", wrong)]),
                Err(Denied::Token),
                "{wrong}"
            );
        }
        let twice = [
            host,
            ("authorization", "Bearer correct horse"),
            ("authorization", "Bearer correct horse"),
        ];
        assert_eq!(judge(HERE, &twice), Err(Denied::Token));
        let open = Access::of(LOOPBACK, String::new().into());
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        headers.insert("authorization", HeaderValue::from_static("Bearer "));
        assert_eq!(
            open.judge(THERE, None, &headers),
            Err(Denied::Token),
            "no token is not an empty token"
        );
    }

    #[test]
    fn contract_4_dns_rebinding_a_host_that_is_not_ours_is_refused_even_with_a_token() {
        for host in [
            "localhost",
            "LOCALHOST:7480",
            "localhost.:1",
            "127.0.0.1",
            "127.8.9.1:80",
            "[::1]:7480",
            "Mainstay.Example:443",
        ] {
            assert!(judge(HERE, &[("host", host)]).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "192.0.2.1",
            "[fe80::1]",
            "0.0.0.0",
            "2130706433",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
        ] {
            let token = ("authorization", "Bearer correct horse");
            assert_eq!(judge(HERE, &[("host", host), token]), Err(Denied::Host), "{host}");
        }
        assert_eq!(judge(HERE, &[]), Err(Denied::Host), "no Host at all");
        assert_eq!(
            judge(HERE, &[("host", "localhost"), ("host", "evil.example")]),
            Err(Denied::Host)
        );
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        assert_eq!(
            access().judge(HERE, Some("evil.example"), &headers),
            Err(Denied::Host),
            "absolute form"
        );
        assert!(
            access().judge(HERE, Some("localhost"), &HeaderMap::new()).is_ok(),
            "HTTP/2 has :authority"
        );
    }

    #[test]
    fn contract_4_cross_site_a_page_of_another_origin_is_refused() {
        let host = ("host", "127.0.0.1:7480");
        for origin in [
            "http://127.0.0.1:7480",
            "http://localhost:7480",
            "https://dashboard.example",
        ] {
            assert!(judge(HERE, &[host, ("origin", origin)]).is_ok(), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "http://localhost:3000",
            "http://localhost",
            "http://localhost.evil.example:7480",
            "https://dashboard.example.evil.example",
            "https://dashboard.example:8443",
            "chrome-extension://localhost:7480",
            "null",
            "file://",
            "",
        ] {
            assert_eq!(
                judge(HERE, &[host, ("origin", origin)]),
                Err(Denied::Origin),
                "{origin}"
            );
        }
        let token = ("authorization", "Bearer correct horse");
        assert_eq!(
            judge(HERE, &[host, token, ("origin", "https://evil.example")]),
            Err(Denied::Origin)
        );
        let two = [
            host,
            ("origin", "http://localhost:7480"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(judge(HERE, &two), Err(Denied::Origin));
    }

    #[test]
    fn contract_4_a_listener_on_another_address_is_reached_by_addresses_but_not_by_foreign_names() {
        let token = || "t".to_owned().into();
        let allowed = |access: &Access, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().unwrap());
            headers.insert("authorization", HeaderValue::from_static("Bearer t"));
            access.judge(THERE, None, &headers).is_ok()
        };
        let one = Access::of("192.0.2.1:7480".parse().unwrap(), token());
        assert!(allowed(&one, "192.0.2.1:7480") && !allowed(&one, "192.0.2.2:7480"));
        let every = Access::of("[::]:7480".parse().unwrap(), token());
        assert!(allowed(&every, "192.0.2.2:7480") && allowed(&every, "[2001:db8::1]"));
        assert!(!allowed(&every, "evil.example") && !allowed(&every, "192.0.2.2.evil.example"));
    }

    #[test]
    fn the_token_is_not_in_the_debug_form() {
        assert!(!format!("{:?}", access()).contains("correct horse"));
    }
}
