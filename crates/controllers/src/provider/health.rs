//! Whether a provider's endpoint answers (OM-349).

use std::{collections::BTreeMap, time::Duration};

use mainstay_resources::omnia::provider::{ProviderSpec, ProviderType};
use mainstay_telemetry::text::with_causes;
use mainstay_workload::{Connector, OutboundRequest};
use url::Url;

/// Limit of one check.
const DEADLINE: Duration = Duration::from_secs(5);

/// The address that is checked; `None` for a mock, for a provider that a platform hosts, and where it cannot be told.
pub(super) fn base_url(spec: &ProviderSpec, environment: &BTreeMap<String, String>) -> Option<String> {
    if spec.kind == ProviderType::Mock || spec.platform.is_some() {
        return None;
    }
    if let Some(base) = spec.base_url.as_ref().filter(|base| !base.is_empty()) {
        return Some(base.clone());
    }
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    let (from_environment, public) = match spec.kind {
        ProviderType::Claude => (variable("ANTHROPIC_BASE_URL"), "https://api.anthropic.com"),
        ProviderType::OpenAi => (variable("OPENAI_BASE_URL"), "https://api.openai.com/v1"),
        ProviderType::Gemini | ProviderType::Imagen => (None, "https://generativelanguage.googleapis.com"),
        ProviderType::Ollama => (None, "http://localhost:11434"),
        ProviderType::VoyageAi => (None, "https://api.voyageai.com"),
        ProviderType::Cartesia => (None, "https://api.cartesia.ai"),
        ProviderType::ElevenLabs => (None, "https://api.elevenlabs.io"),
        ProviderType::HuggingFace => (None, "https://api-inference.huggingface.co"),
        ProviderType::Vllm | ProviderType::Mock => return None,
    };
    Some(from_environment.unwrap_or_else(|| public.to_owned()))
}

/// Whether the host of `base` is a name of that Service: its own, seen from `home`, or one with its namespace.
pub(super) fn is_at_service(base: &str, home: &str, service: &str, namespace: &str) -> bool {
    let Ok(url) = Url::parse(base) else { return false };
    let Some(host) = url.host_str() else { return false };
    let mut labels = host.trim_end_matches('.').splitn(3, '.');
    labels.next() == Some(service)
        && match (labels.next(), labels.next()) {
            (None, _) => home == namespace,
            (Some(named), rest) => {
                named == namespace && matches!(rest, None | Some("svc" | "svc.cluster.local"))
            }
        }
}

/// Asks for the base address, without a credential. Any HTTP answer will do: what counts is that somebody listens.
pub(super) async fn check(connector: &Connector, namespace: &str, base: &str) -> Result<String, String> {
    let url = Url::parse(base).map_err(|error| format!("{base:?} is not a URL: {error}"))?;
    let connector = connector
        .in_namespace(namespace)
        .map_err(|error| error.to_string())?;
    let shown = shown(&url);
    let request = OutboundRequest {
        method: http::Method::GET,
        url,
        headers: http::HeaderMap::new(),
        body: None,
        deadline: DEADLINE,
    };
    match connector.send(request).await {
        Ok(response) => Ok(format!("{shown} answered {}", response.status.as_u16())),
        Err(error) => Err(format!("{shown} does not answer: {}", with_causes(&error))),
    }
}

/// An address without what may be a credential.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both are refused for an address without a host only, and that has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn base(spec: serde_json::Value, environment: &[(&str, &str)]) -> Option<String> {
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        base_url(&serde_json::from_value(spec).unwrap(), &environment)
    }

    #[test]
    fn mock_and_hosted_providers_are_not_checked_om_349() {
        assert_eq!(base(json!({ "type": "mock", "baseURL": "http://x" }), &[]), None);
        let hosted = json!({ "type": "claude", "platform": { "type": "bedrock" }, "auth": { "type": "workloadIdentity" } });
        assert_eq!(base(hosted, &[]), None);
    }

    #[test]
    fn the_base_address_is_the_one_that_calls_go_to() {
        let variable = [("OPENAI_BASE_URL", "http://proxy/v1")];
        assert_eq!(
            base(json!({ "type": "openai" }), &[]).as_deref(),
            Some("https://api.openai.com/v1")
        );
        assert_eq!(
            base(json!({ "type": "openai" }), &variable).as_deref(),
            Some("http://proxy/v1")
        );
        assert_eq!(
            base(json!({ "type": "openai", "baseURL": "http://own" }), &variable).as_deref(),
            Some("http://own")
        );
        assert_eq!(base(json!({ "type": "vllm" }), &[]), None);
    }

    #[test]
    fn a_message_shows_no_credential_of_the_address() {
        let url = Url::parse("https://user:secret@example.com/v1?key=secret").unwrap();
        assert_eq!(shown(&url), "https://example.com/v1");
    }

    #[test]
    fn a_service_is_known_by_each_of_its_names() {
        let at = |host: &str, home: &str| is_at_service(&format!("http://{host}/v1"), home, "model", "ai");
        for host in [
            "model.ai",
            "model.ai.svc:8080",
            "model.ai.svc.cluster.local",
            "MODEL.ai.svc.cluster.local.",
        ] {
            assert!(at(host, "default"), "{host}");
        }
        assert!(at("model", "ai"));
        for host in [
            "model",
            "model.default.svc",
            "other.ai.svc",
            "model.ai.example.com",
            "10.0.0.1",
        ] {
            assert!(!at(host, "default"), "{host}");
        }
    }
}
