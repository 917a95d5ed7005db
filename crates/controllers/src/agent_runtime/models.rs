//! What an agent is told about its models: `providers.yaml`, and what has to be mounted for it. Pure.

use std::collections::BTreeSet;

use kube::ResourceExt;
use mainstay_llm::config::{Pricing, ProviderConfig, ProviderDefaults, ProvidersConfig};
use mainstay_resources::{
    duration::parse_go,
    names,
    omnia::{
        AgentRuntime, Provider,
        provider::{ProviderRole, ProviderType, settings},
    },
    validation::provider::{CredentialPlan, choose_key, credential},
};

use super::decision::UsableProvider;
use crate::provider::{azure, cost_controls, rate_limit};

/// A key of a Secret or ConfigMap that an entry needs as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The entry.
    pub(super) entry: String,
    /// The Secret or ConfigMap.
    pub(super) object: String,
    /// The key, which is also the file's name.
    pub(super) key: String,
    /// Digest of the content, or empty when it does not matter.
    pub(super) digest: String,
}

/// The models of an agent.
#[derive(Debug, Default)]
pub(super) struct Models {
    /// The file.
    pub(super) config: ProvidersConfig,
    /// Secrets with credentials.
    pub(super) secrets: Vec<Mount>,
    /// ConfigMaps with scenarios.
    pub(super) scenarios: Vec<Mount>,
}

/// What was read for one provider.
#[derive(Debug, Default)]
pub(super) struct ProviderFiles {
    /// Keys of its Secret, with the digest of each value.
    pub(super) secret: Option<Vec<(String, String)>>,
    /// Name, key and digest of its scenario.
    pub(super) scenario: Option<(String, String, String)>,
}

/// Whether an agent answers from the mock in place of its providers (OM-272).
pub(super) fn are_mocked(agent: &AgentRuntime) -> bool {
    agent
        .annotations()
        .get(names::MOCK_PROVIDER_ANNOTATION)
        .is_some_and(|value| value == "true")
}

impl Models {
    /// Adds an entry that the mock answers for, whatever its provider is. It keeps what does not reach a service: its
    /// names, defaults, capabilities, prices, and its scenario when it has one.
    pub(super) fn add_mocked(&mut self, usable: &UsableProvider, files: &ProviderFiles) {
        if usable.entry.role != ProviderRole::Llm {
            return;
        }
        let mut config = ProviderConfig {
            kind: ProviderType::Mock.to_string(),
            base_url: None,
            azure: None,
            rate_limit: None,
            headers: Default::default(),
            ..describe(&usable.entry.name, &usable.provider)
        };
        self.add_scenario(&usable.entry.name, files, &mut config);
        self.config.providers.push(config);
    }

    fn add_scenario(&mut self, entry: &str, files: &ProviderFiles, config: &mut ProviderConfig) {
        if let Some((object, key, digest)) = &files.scenario {
            config.scenario_file = Some(format!("{}/{entry}/{key}", names::SCENARIOS_DIRECTORY));
            self.scenarios.push(Mount {
                entry: entry.to_owned(),
                object: object.clone(),
                key: key.clone(),
                digest: digest.clone(),
            });
        }
    }

    /// Adds an entry. Only entries that hold conversations are told to the agent.
    ///
    /// # Errors
    ///
    /// What is missing of a provider that was Ready a moment ago.
    pub(super) fn add(&mut self, usable: &UsableProvider, files: &ProviderFiles) -> Result<(), String> {
        if usable.entry.role != ProviderRole::Llm {
            return Ok(());
        }
        let entry = &usable.entry.name;
        let provider = &usable.provider;
        let mut config = describe(entry, provider);
        match credential(&provider.spec) {
            CredentialPlan::NotRequired => {}
            CredentialPlan::EnvironmentVariable(name) => config.credential_env = Some(name.to_owned()),
            CredentialPlan::File(path) => config.credential_file = Some(path.to_owned()),
            CredentialPlan::Invalid { message, .. } => return Err(message),
            CredentialPlan::Secret { name, key } => {
                let data = files
                    .secret
                    .as_ref()
                    .ok_or_else(|| format!("Secret {name:?} does not exist"))?;
                let present: BTreeSet<String> = data.iter().map(|(key, _)| key.clone()).collect();
                let key = choose_key(provider.spec.kind, key, &present).map_err(|wanted| {
                    format!("Secret {name:?} has none of the keys {}", wanted.join(", "))
                })?;
                config.credential_file = Some(format!("{}/{entry}/{key}", names::PROVIDER_SECRETS_DIRECTORY));
                let digest = data
                    .iter()
                    .find(|(other, _)| *other == key)
                    .map(|(_, digest)| digest.clone());
                self.secrets.push(Mount {
                    entry: entry.clone(),
                    object: name.to_owned(),
                    key,
                    digest: digest.unwrap_or_default(),
                });
            }
        }
        self.add_scenario(entry, files, &mut config);
        self.config.providers.push(config);
        Ok(())
    }
}

fn describe(entry: &str, provider: &Provider) -> ProviderConfig {
    let spec = &provider.spec;
    let defaults = spec.defaults.clone().unwrap_or_default();
    let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
    let duration = |text: &Option<String>| text.as_deref().and_then(|text| parse_go(text).ok());
    ProviderConfig {
        name: entry.to_owned(),
        provider: provider.metadata.name.clone().unwrap_or_default(),
        namespace: provider.metadata.namespace.clone().unwrap_or_default(),
        kind: spec.kind.to_string(),
        role: spec.role.to_string(),
        model: spec.model.clone().unwrap_or_default(),
        base_url: spec.base_url.clone(),
        azure: azure(spec),
        headers: spec.headers.clone(),
        defaults: ProviderDefaults {
            temperature: defaults.temperature.as_ref().and_then(settings::decimal),
            top_p: defaults.top_p.as_ref().and_then(settings::decimal),
            max_tokens: tokens(defaults.max_tokens),
            context_window: tokens(defaults.context_window),
            truncation_strategy: defaults.truncation_strategy.map(|strategy| strategy.to_string()),
            request_timeout: duration(&defaults.request_timeout),
            stream_idle_timeout: duration(&defaults.stream_idle_timeout),
        },
        pricing: spec.pricing.as_ref().map(|pricing| Pricing {
            input_cost_per_1k: pricing.input_cost_per_1k.clone(),
            output_cost_per_1k: pricing.output_cost_per_1k.clone(),
            cached_cost_per_1k: pricing.cached_cost_per_1k.clone(),
        }),
        // One that cannot be used makes the Provider unusable, and so does not get here.
        cost_controls: cost_controls(provider).ok().flatten(),
        rate_limit: rate_limit(provider).ok().flatten(),
        capabilities: spec.capabilities.iter().map(ToString::to_string).collect(),
        ..ProviderConfig::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mainstay_llm::ProviderKey;
    use serde_json::{Value, json};

    use super::*;

    fn usable(role: &str, spec: Value) -> UsableProvider {
        UsableProvider {
            entry: serde_json::from_value(
                json!({ "name": "default", "role": role, "providerRef": { "name": "m" } }),
            )
            .unwrap(),
            provider: Provider::new("m", serde_json::from_value(spec).unwrap()),
        }
    }

    #[test]
    fn a_credential_is_told_as_a_path_and_its_key_is_mounted_om_179() {
        let mut models = Models::default();
        let spec = json!({ "type": "openai", "model": "m", "credential": { "secretRef": { "name": "s" } },
            "defaults": { "temperature": "0.7", "topP": 1, "requestTimeout": "2m" } });
        let files = ProviderFiles {
            secret: Some(vec![
                ("api-key".into(), "d1".into()),
                ("OPENAI_TOKEN".into(), "d2".into()),
            ]),
            scenario: None,
        };
        models.add(&usable("llm", spec), &files).unwrap();
        let config = &models.config.providers[0];
        assert_eq!(
            config.credential_file.as_deref(),
            Some("/var/run/secrets/omnia/providers/default/OPENAI_TOKEN")
        );
        assert_eq!(
            (config.defaults.temperature, config.defaults.top_p),
            (Some(0.7), Some(1.0))
        );
        assert_eq!(
            config.defaults.request_timeout,
            Some(std::time::Duration::from_secs(120))
        );
        let mount = Mount {
            entry: "default".into(),
            object: "s".into(),
            key: "OPENAI_TOKEN".into(),
            digest: "d2".into(),
        };
        assert_eq!(models.secrets, [mount]);
    }

    #[test]
    fn a_scenario_is_mounted_below_its_entry() {
        let mut models = Models::default();
        let files = ProviderFiles {
            secret: None,
            scenario: Some(("c".into(), "scenario.yaml".into(), "d".into())),
        };
        models
            .add(&usable("llm", json!({ "type": "mock" })), &files)
            .unwrap();
        assert_eq!(
            models.config.providers[0].scenario_file.as_deref(),
            Some("/etc/omnia/scenarios/default/scenario.yaml")
        );
        assert_eq!(models.scenarios.len(), 1);
    }

    #[test]
    fn a_provider_is_told_with_its_namespace_so_that_all_its_users_are_known_or_226() {
        let mut usable = usable("llm", json!({ "type": "ollama", "model": "m" }));
        usable.provider.metadata.namespace = Some("models".into());
        let mut models = Models::default();
        models.add(&usable, &ProviderFiles::default()).unwrap();
        let read_back = ProvidersConfig::parse(&models.config.render().unwrap()).unwrap();
        let config = &read_back.providers[0];
        assert_eq!(
            (config.namespace.as_str(), config.provider.as_str()),
            ("models", "m")
        );
        assert_eq!(ProviderKey::of(config).to_string(), "models/m/ollama");
    }

    #[test]
    fn a_resource_of_azure_is_told_as_one_or_244() {
        let told = |base: &str, kind: &str| {
            let mut models = Models::default();
            let usable = usable("llm", json!({ "type": kind, "model": "gpt", "baseURL": base }));
            models.add(&usable, &ProviderFiles::default()).unwrap();
            let read_back = ProvidersConfig::parse(&models.config.render().unwrap()).unwrap();
            read_back.providers[0].azure.is_some()
        };
        for azure in [
            "https://desk.openai.azure.com",
            "https://DESK.openai.azure.com./openai/v1",
            "https://desk.cognitiveservices.azure.com/?api-version=2024-10-21",
            "http://gateway/openai/deployments/gpt",
        ] {
            assert!(told(azure, "openai"), "{azure}");
        }
        for other in [
            "https://api.openai.com/v1",
            "https://openai.azure.com.example.com",
            "http://gateway/openai/v1",
        ] {
            assert!(!told(other, "openai"), "{other}");
        }
        assert!(!told("https://desk.openai.azure.com", "vllm"));
    }

    #[test]
    fn a_rate_limit_is_told_and_one_that_cannot_be_kept_is_refused_or_229() {
        let with = |kind: &str, text: &str| {
            let spec = json!({ "type": kind, "model": "m", "baseURL": "http://h" });
            let mut usable = usable("llm", spec);
            let annotations = usable.provider.metadata.annotations.get_or_insert_default();
            annotations.insert(names::RATE_LIMIT_ANNOTATION.into(), text.into());
            usable
        };
        let limited = with("openai", r#"{"requestsPerMinute": 60, "tokensPerMinute": 90000}"#);
        let mut models = Models::default();
        models.add(&limited, &ProviderFiles::default()).unwrap();
        let read_back = ProvidersConfig::parse(&models.config.render().unwrap()).unwrap();
        let limits = read_back.providers[0].rate_limit.clone().unwrap();
        assert_eq!(
            (limits.requests_per_minute, limits.tokens_per_minute),
            (Some(60), Some(90_000))
        );
        for (kind, text, part) in [
            ("openai", "60", "invalid type"),
            ("openai", "{}", "neither"),
            ("openai", r#"{"requestsPerMinute": 0}"#, "at least 1"),
            ("openai", r#"{"perMinute": 1}"#, "perMinute"),
            ("mock", r#"{"requestsPerMinute": 1}"#, "mock"),
        ] {
            let error = rate_limit(&with(kind, text).provider).unwrap_err();
            assert!(
                error.contains("mainstay.dev/rate-limit") && error.contains(part),
                "{error}"
            );
        }
    }

    #[test]
    fn a_mocked_provider_reaches_no_service_and_needs_no_credential_om_272() {
        let usable = usable(
            "llm",
            json!({
                "type": "openai", "model": "m", "baseURL": "https://x", "headers": { "X-Key": "v" },
                "credential": { "secretRef": { "name": "s" } },
            }),
        );
        let mut models = Models::default();
        models.add_mocked(&usable, &ProviderFiles::default());
        let read_back = ProvidersConfig::parse(&models.config.render().unwrap()).unwrap();
        let config = &read_back.providers[0];
        assert_eq!((config.kind.as_str(), config.model.as_str()), ("mock", "m"));
        assert_eq!((&config.base_url, &config.credential_file), (&None, &None));
        assert!(config.headers.is_empty() && models.secrets.is_empty());
    }

    #[test]
    fn a_missing_secret_is_an_error_and_other_roles_are_not_told() {
        let mut models = Models::default();
        let spec = json!({ "type": "openai", "model": "m", "credential": { "secretRef": { "name": "s" } } });
        assert!(
            models
                .add(&usable("llm", spec), &ProviderFiles::default())
                .unwrap_err()
                .contains("\"s\"")
        );
        let embedding = json!({ "type": "openai", "role": "embedding", "model": "m" });
        models
            .add(&usable("embedding", embedding), &ProviderFiles::default())
            .unwrap();
        assert!(models.config.providers.is_empty());
    }
}
