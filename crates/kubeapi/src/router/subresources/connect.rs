//! Connections to workloads: port-forwards, proxied requests, and commands, which admission is asked about as `CONNECT`.
//! Requirements KA-010, KA-052.

use axum::extract::Request;
use http::Uri;
use serde_json::{Map, Value, json};

use super::{super::dispatch::Call, proxy};
use crate::{
    admission::Target,
    answer::Answer,
    api::Api,
    request::{QueryOptions, percent_decoded},
    status::ApiResult,
};

impl Api {
    /// Connects a client with a workload, if admission lets it. As on the reference, admission is asked before anything is
    /// looked for.
    pub(super) async fn connected(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let (kind, options) = connect_options(call, request.uri());
        let mut creation = call.creation("");
        // A connection is no write, whatever its query says.
        creation.dry_run = false;
        if call.path.is_proxy() {
            creation.subresource = "proxy";
        }
        let warnings = self.admit_connection(creation, Target::new("", "v1", kind), &options)?;
        let outcome = match (call.path.resource.as_str(), call.path.subresource.as_str()) {
            ("services", _) => self.service_proxy(call, request).await,
            (_, "portforward") => self.pod_port_forward(call, request).await,
            (_, "exec" | "attach") => self.pod_process(call),
            _ => self.pod_proxy(call, request).await,
        };
        match outcome {
            Ok(answer) => Ok(answer.with_warnings(warnings)),
            Err(mut error) => {
                error.warnings.extend(warnings);
                Err(error)
            }
        }
    }
}

/// What a client asks of a workload as an object of the core group, and the kind of that.
fn connect_options(call: &Call, uri: &Uri) -> (&'static str, Value) {
    let query = &call.options;
    let mut fields = Map::new();
    let kind = match (call.path.resource.as_str(), call.path.subresource.as_str()) {
        (_, "portforward") => {
            let ports: Vec<i32> = texts(query, "ports")
                .flat_map(|ports| ports.split(','))
                // What is no number the connection itself refuses.
                .filter_map(|port| port.parse().ok())
                .collect();
            if !ports.is_empty() {
                fields.insert("ports".to_owned(), json!(ports));
            }
            "PodPortForwardOptions"
        }
        (_, subresource @ ("exec" | "attach")) => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.value(name).is_some_and(is_set) {
                    fields.insert(name.to_owned(), json!(true));
                }
            }
            if let Some(container) = query.value("container").filter(|name| !name.is_empty()) {
                fields.insert("container".to_owned(), json!(container));
            }
            if subresource == "attach" {
                "PodAttachOptions"
            } else {
                let command: Vec<&str> = texts(query, "command").collect();
                // There without a command too.
                fields.insert(
                    "command".to_owned(),
                    json!((!command.is_empty()).then_some(command)),
                );
                "PodExecOptions"
            }
        }
        (resource, _) => {
            let path = proxied_path(uri, resource);
            if !path.is_empty() {
                fields.insert("path".to_owned(), json!(path));
            }
            if resource == "services" {
                "ServiceProxyOptions"
            } else {
                "PodProxyOptions"
            }
        }
    };
    fields.insert("apiVersion".to_owned(), json!("v1"));
    fields.insert("kind".to_owned(), json!(kind));
    (kind, Value::Object(fields))
}

fn texts<'query>(query: &'query QueryOptions, name: &str) -> impl Iterator<Item = &'query str> {
    query
        .pairs
        .iter()
        .filter(move |(pair, _)| pair == name)
        .map(|(_, value)| value.as_str())
}

/// A flag of the query: any value but these two is true, none at all too.
fn is_set(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// The path that a workload is asked for; empty where nothing follows `proxy`.
fn proxied_path(uri: &Uri, resource: &str) -> String {
    let target = proxy::target(uri, resource);
    let path = target.split('?').next().unwrap_or_default();
    if path == "/" && !uri.path().ends_with('/') {
        return String::new();
    }
    percent_decoded(path).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_path_that_is_proxied_to_is_decoded_and_may_be_none_ka_052() {
        let path = |uri: &str| proxied_path(&uri.parse().unwrap(), "services");
        let base = "/api/v1/namespaces/default/services/http:orders:80/proxy";
        assert_eq!(path(base), "");
        assert_eq!(path(&format!("{base}?x=/y")), "");
        assert_eq!(path(&format!("{base}/")), "/");
        assert_eq!(path(&format!("{base}/a%20b/?x=1")), "/a b/");
    }

    #[test]
    fn a_flag_is_false_only_if_it_says_so() {
        assert!(is_set("") && is_set("true") && is_set("1") && is_set("x"));
        assert!(!is_set("0") && !is_set("FALSE"));
    }
}
