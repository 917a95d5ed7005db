//! Documents about the API: versions, discovery, OpenAPI, health and figures. Requirements KA-003, KA-004, KA-005.

use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    api::Api,
    discovery,
    negotiation::{Form, OBJECTS, accepted, check_accepted, check_media_type},
    openapi,
    request::{Document, QueryOptions},
    status::ApiResult,
};

/// The Kubernetes minor whose behaviour is followed.
const MINOR: &str = "37";
/// The checks that `?verbose` lists, named as clients know them: `etcd` is the store.
const CHECKS: [&str; 3] = ["ping", "etcd", "shutdown"];

impl Api {
    pub(super) fn document(&self, document: &Document, request: &Request) -> ApiResult<Answer> {
        if !matches!(request.method().as_str(), "GET" | "HEAD") {
            return Err(super::dispatch::not_allowed());
        }
        let headers = request.headers();
        if document.is_discovery() {
            check_media_type(headers, &OBJECTS)?;
        }
        let kinds = self.registry().snapshot().kinds.clone();
        let discovery_form =
            || accepted(headers, &[Form::Plain, Form::Discovery], false).map(|rendering| rendering.form);
        match document {
            Document::Root => Ok(Answer::ok(&json!({"paths": paths(&kinds)}))),
            Document::CoreVersions => match discovery_form()? {
                Form::Discovery => Ok(aggregated(&discovery::aggregated_core(&kinds))),
                _ => Ok(Answer::ok(&discovery::core_versions())),
            },
            Document::Groups => match discovery_form()? {
                Form::Discovery => Ok(aggregated(&discovery::aggregated_groups(&kinds))),
                _ => Ok(Answer::ok(&discovery::groups(&kinds))),
            },
            Document::Group(group) => found(discovery::group(&kinds, group)),
            Document::Resources { group, version } => match discovery::resources(&kinds, group, version) {
                // The core group is there in any case, so that the reference looks for the version in it.
                None if group.is_empty() => Err(super::dispatch::no_such_resource()),
                resources => found(resources),
            },
            Document::OpenApiTwo => self.openapi_two(&kinds, request),
            Document::OpenApiThreeIndex => {
                let mut answer = encoded(openapi::encoded_index(&kinds));
                // What the reference's HTTP library takes it for.
                answer.content_type = HeaderValue::from_static("text/plain; charset=utf-8");
                Ok(answer)
            }
            Document::OpenApiThree(path) => {
                Ok(openapi::encoded_document(&kinds, path).map_or_else(Answer::nothing_found, encoded))
            }
            Document::OpenIdConfiguration => Ok(Answer::ok(&self.openid_configuration())),
            Document::OpenIdKeys => {
                let mut answer = Answer::ok(&self.openid_keys());
                answer.content_type = HeaderValue::from_static("application/jwk-set+json");
                Ok(answer)
            }
            Document::Version => Ok(Answer::ok(&version())),
            Document::Health { endpoint, check } => Ok(self.health(request, endpoint, check.as_deref())),
            Document::Metrics => {
                let mut answer = Answer::text(StatusCode::OK, self.metrics().encode());
                answer.content_type =
                    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                Ok(answer)
            }
        }
    }

    fn openapi_two(&self, kinds: &crate::builtin::Kinds, request: &Request) -> ApiResult<Answer> {
        check_accepted(request.headers(), &["application/json"])?;
        Ok(encoded(openapi::encoded_v2(kinds)))
    }
}

fn aggregated(document: &Value) -> Answer {
    let mut answer = Answer::ok(document);
    answer.content_type =
        HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    answer
}

fn encoded(document: Bytes) -> Answer {
    Answer::encoded(StatusCode::OK, document)
}

fn found(document: Option<Value>) -> ApiResult<Answer> {
    Ok(document.map_or_else(Answer::page_not_found, |document| Answer::ok(&document)))
}

/// A `version.Info` that clients take for a server of the minor whose behaviour is followed.
fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.2+mainstay"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
    })
}

/// The machine's architecture, in the word that clients know.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Api {
    /// Answers a health endpoint, or one check below it.
    fn health(&self, request: &Request, endpoint: &str, check: Option<&str>) -> Answer {
        let checks: Vec<(&str, bool)> = CHECKS
            .iter()
            // A server that is ending is alive, and not ready for more.
            .filter(|check| **check != "shutdown" || endpoint == "readyz")
            .map(|check| (*check, self.passes(check)))
            .collect();
        let chosen: Vec<(&str, bool)> = checks
            .into_iter()
            .filter(|(name, _)| check.is_none_or(|check| check == *name))
            .collect();
        if chosen.is_empty() {
            return Answer::page_not_found();
        }
        let healthy = chosen.iter().all(|(_, passes)| *passes);
        let verbose = QueryOptions::parse(request.uri()).is_ok_and(|options| options.verbose);
        if healthy && !verbose {
            return Answer::text(StatusCode::OK, "ok");
        }
        let mut text = String::new();
        for (name, passes) in chosen {
            text.push_str(&if passes {
                format!("[+]{name} ok\n")
            } else {
                format!("[-]{name} failed\n")
            });
        }
        let (status, outcome) = if healthy {
            (StatusCode::OK, "passed")
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, "failed")
        };
        Answer::text(status, format!("{text}{endpoint} check {outcome}\n"))
    }

    fn passes(&self, check: &str) -> bool {
        match check {
            // A watch at the newest version fails only if the store is closed.
            "etcd" => self
                .store()
                .watch("/namespaces", None, self.store().revision())
                .is_ok_and(|mut watch| watch.try_next().is_ok()),
            "shutdown" => !self.closing().is_cancelled(),
            _ => true,
        }
    }
}

fn paths(kinds: &crate::builtin::Kinds) -> Vec<String> {
    let mut paths: Vec<String> = vec!["/api".to_owned(), "/apis".to_owned()];
    for kind in kinds.all() {
        if kind.group.is_empty() {
            paths.push(format!("/api/{}", kind.version));
        } else {
            paths.push(format!("/apis/{}", kind.group));
            paths.push(format!("/apis/{}/{}", kind.group, kind.version));
        }
    }
    for path in [
        "/.well-known/openid-configuration",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ] {
        paths.push(path.to_owned());
    }
    paths.sort();
    paths.dedup();
    paths
}
