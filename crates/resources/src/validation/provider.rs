//! Validator of Provider, and how its credential is found (OM-174 … OM-184, OM-348).

use std::collections::BTreeSet;

use super::{Finding, endpoint};
use crate::{
    duration::parse_go,
    omnia::provider::{
        HostingAuthType as A, HostingPlatformType as P, ProviderRole, ProviderSpec, ProviderType, settings,
    },
    reasons,
};

/// Judges a spec, apart from credential and model, which have conditions of their own ([`credential`], [`model`]).
#[must_use]
pub fn validate(spec: &ProviderSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !spec.role.types().contains(&spec.kind) {
        let types: Vec<_> = spec.role.types().iter().map(|kind| kind.as_str()).collect();
        findings.push(Finding::new(
            "spec.type",
            format!("role {} is served by types {}", spec.role, types.join(", ")),
        ));
    }
    if let Some(base) = &spec.base_url
        && let Err(message) = endpoint::absolute_url(base)
    {
        findings.push(Finding::new("spec.baseURL", message));
    }
    hosting(&mut findings, spec);
    role_settings(&mut findings, spec);
    defaults(&mut findings, spec);
    findings
}

fn hosting(findings: &mut Vec<Finding>, spec: &ProviderSpec) {
    let (platform, auth) = match (&spec.platform, &spec.auth) {
        (None, None) => return,
        (Some(platform), Some(auth)) => (platform, auth),
        _ => {
            findings.push(Finding::new(
                "spec.platform",
                "platform and auth are set together or not at all",
            ));
            return;
        }
    };
    if !matches!(spec.role, ProviderRole::Llm | ProviderRole::Embedding)
        || !matches!(
            spec.kind,
            ProviderType::Claude | ProviderType::OpenAi | ProviderType::Gemini
        )
    {
        findings.push(Finding::new(
            "spec.platform",
            "is only for roles llm and embedding and types claude, openai and gemini",
        ));
    }
    let pair = matches!(
        (platform.kind, auth.kind),
        (_, A::WorkloadIdentity)
            | (P::Bedrock, A::AccessKey)
            | (P::Vertex, A::ServiceAccount)
            | (P::Azure, A::ServicePrincipal)
    );
    if !pair {
        findings.push(Finding::new(
            "spec.auth.type",
            format!("{} does not take {}", platform.kind, auth.kind),
        ));
    }
    let hosted = !matches!(
        (spec.kind, platform.kind),
        (ProviderType::OpenAi, P::Vertex) | (ProviderType::Gemini, P::Bedrock | P::Azure)
    );
    if !hosted {
        findings.push(Finding::new(
            "spec.platform.type",
            format!("type {} is not hosted on {}", spec.kind, platform.kind),
        ));
    }
    if platform.kind == P::Vertex && platform.project.is_none() {
        findings.push(Finding::new("spec.platform.project", "vertex needs project"));
    }
    if platform.kind == P::Azure && platform.endpoint.is_none() {
        findings.push(Finding::new("spec.platform.endpoint", "azure needs endpoint"));
    }
    if auth.kind != A::WorkloadIdentity && auth.credentials_secret_ref.is_none() {
        findings.push(Finding::new(
            "spec.auth.credentialsSecretRef",
            "is required unless type is workloadIdentity",
        ));
    }
}

fn role_settings(findings: &mut Vec<Finding>, spec: &ProviderSpec) {
    let blocks = [
        ("tts", spec.tts.is_some(), ProviderRole::Tts),
        ("stt", spec.stt.is_some(), ProviderRole::Stt),
        ("embedding", spec.embedding.is_some(), ProviderRole::Embedding),
    ];
    for (name, present, role) in blocks {
        if present && spec.role != role {
            findings.push(Finding::new(
                format!("spec.{name}"),
                format!("is only for role {role}"),
            ));
        }
    }
}

fn defaults(findings: &mut Vec<Finding>, spec: &ProviderSpec) {
    let Some(defaults) = &spec.defaults else { return };
    for (name, value, maximum) in [
        ("temperature", &defaults.temperature, 2.0),
        ("topP", &defaults.top_p, 1.0),
    ] {
        if let Some(value) = value
            && settings::decimal(value).is_none_or(|number| !(0.0..=maximum).contains(&number))
        {
            findings.push(Finding::new(
                format!("spec.defaults.{name}"),
                format!("must be a number from 0 to {maximum}"),
            ));
        }
    }
    for (name, value) in [
        ("requestTimeout", &defaults.request_timeout),
        ("streamIdleTimeout", &defaults.stream_idle_timeout),
    ] {
        if let Some(Err(error)) = value.as_deref().map(parse_go) {
            findings.push(Finding::new(format!("spec.defaults.{name}"), error.to_string()));
        }
    }
}

/// How a provider gets its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialPlan<'a> {
    /// It needs none.
    NotRequired,
    /// From a Secret; `key` is the one the spec names, if it names one.
    Secret {
        /// Name of the Secret.
        name: &'a str,
        /// Key that the spec names.
        key: Option<&'a str>,
    },
    /// From an environment variable of the runtime.
    EnvironmentVariable(&'a str),
    /// From a file in the runtime.
    File(&'a str),
    /// Not at all: the spec is wrong.
    Invalid {
        /// Reason of `CredentialConfigured`.
        reason: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// How a provider gets its credential, judged from the spec alone.
#[must_use]
pub fn credential(spec: &ProviderSpec) -> CredentialPlan<'_> {
    let invalid = |reason, message: String| CredentialPlan::Invalid { reason, message };
    let Some(credential) = &spec.credential else {
        return if requires_credential(spec) {
            invalid(
                reasons::CREDENTIAL_REQUIRED,
                format!(
                    "type {} needs spec.credential with one of secretRef, envVar and filePath",
                    spec.kind
                ),
            )
        } else {
            CredentialPlan::NotRequired
        };
    };
    match (&credential.secret_ref, &credential.env_var, &credential.file_path) {
        (Some(secret), None, None) => CredentialPlan::Secret {
            name: &secret.name,
            key: secret.key.as_deref(),
        },
        (None, Some(name), None) if is_variable_name(name) => CredentialPlan::EnvironmentVariable(name),
        (None, Some(name), None) => invalid(
            reasons::INVALID_ENV_VAR,
            format!("spec.credential.envVar: {name:?} is not a name of an environment variable"),
        ),
        (None, None, Some(path)) if path.starts_with('/') && !path.split('/').any(|part| part == "..") => {
            CredentialPlan::File(path)
        }
        (None, None, Some(path)) => invalid(
            reasons::INVALID_FILE_PATH,
            format!("spec.credential.filePath: {path:?} is not an absolute path"),
        ),
        (None, None, None) => invalid(
            reasons::NO_STRATEGY_SPECIFIED,
            "spec.credential names none of secretRef, envVar and filePath".into(),
        ),
        _ => invalid(
            reasons::MULTIPLE_STRATEGIES,
            "spec.credential names more than one of secretRef, envVar and filePath".into(),
        ),
    }
}

/// Services with a public address need a key. A service at an address of the user's own may be open, and a hosted one
/// authenticates through its platform.
fn requires_credential(spec: &ProviderSpec) -> bool {
    spec.base_url.is_none()
        && spec.platform.is_none()
        && !matches!(
            spec.kind,
            ProviderType::Mock | ProviderType::Ollama | ProviderType::Vllm
        )
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Keys of a Secret in which a provider of a type looks for its credential, first match wins (OM-179).
#[must_use]
pub fn secret_keys(kind: ProviderType) -> &'static [&'static str] {
    match kind {
        ProviderType::Claude => &["ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "api-key"],
        ProviderType::OpenAi => &["OPENAI_API_KEY", "OPENAI_TOKEN", "api-key"],
        ProviderType::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY", "api-key"],
        ProviderType::VoyageAi => &["VOYAGE_API_KEY", "api-key"],
        _ => &["api-key"],
    }
}

/// The key of a Secret that holds the credential: the one the spec names, else the first usual one that is there.
///
/// # Errors
///
/// The keys that were looked for.
pub fn choose_key(
    kind: ProviderType,
    named: Option<&str>,
    present: &BTreeSet<String>,
) -> Result<String, Vec<String>> {
    let candidates: Vec<&str> = match named {
        Some(key) => vec![key],
        None => secret_keys(kind).to_vec(),
    };
    match candidates.iter().find(|key| present.contains(**key)) {
        Some(key) => Ok((*key).to_owned()),
        None => Err(candidates.into_iter().map(str::to_owned).collect()),
    }
}

/// Whether a credential is an example value that somebody forgot to replace. Only values that no service ever issues
/// count: words like `changeme`, something in angle brackets, or nothing but one repeated character.
#[must_use]
pub fn is_placeholder(credential: &str) -> bool {
    let value = credential.trim().to_ascii_lowercase();
    let bare = value.trim_start_matches("sk-ant-").trim_start_matches("sk-");
    let words = [
        "changeme",
        "change-me",
        "change_me",
        "replaceme",
        "replace-me",
        "replace_me",
        "placeholder",
        "todo",
        "dummy",
    ];
    let phrases = [
        "your-api-key",
        "your_api_key",
        "your-key-here",
        "api-key-here",
        "your-openai",
        "your-anthropic",
    ];
    value.is_empty()
        || (value.starts_with('<') && value.ends_with('>'))
        || words.contains(&bare)
        || phrases.iter().any(|phrase| value.contains(phrase))
        || (bare.len() >= 3
            && bare
                .bytes()
                .all(|byte| byte == b'x' || byte == b'.' || byte == b'*'))
}

/// Whether the model is named, as reason of `ModelValid` (OM-348).
///
/// # Errors
///
/// The reason when it is missing.
pub fn model(spec: &ProviderSpec) -> Result<&'static str, &'static str> {
    match (spec.model.as_deref(), spec.kind) {
        (Some(model), _) if !model.is_empty() => Ok(reasons::MODEL_SET),
        (_, ProviderType::Mock) => Ok(reasons::MODEL_NOT_REQUIRED),
        _ => Err(reasons::MODEL_MISSING),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> ProviderSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_role_is_served_by_its_types_om_175() {
        for role in ProviderRole::ALL {
            for kind in ProviderType::ALL {
                let spec = spec(json!({ "type": kind.as_str(), "role": role.as_str(), "model": "m" }));
                assert_eq!(
                    validate(&spec).is_empty(),
                    role.types().contains(kind),
                    "{role} {kind}"
                );
            }
        }
    }

    #[test]
    fn the_key_is_chosen_by_type_unless_it_is_named_om_179() {
        let present = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
        let both = present(&["api-key", "OPENAI_TOKEN", "OPENAI_API_KEY"]);
        assert_eq!(
            choose_key(ProviderType::OpenAi, None, &both).unwrap(),
            "OPENAI_API_KEY"
        );
        assert_eq!(
            choose_key(ProviderType::OpenAi, Some("api-key"), &both).unwrap(),
            "api-key"
        );
        assert_eq!(choose_key(ProviderType::Vllm, None, &both).unwrap(), "api-key");
        assert_eq!(
            choose_key(ProviderType::Claude, None, &present(&["CLAUDE_API_KEY"])).unwrap(),
            "CLAUDE_API_KEY"
        );
        assert_eq!(
            choose_key(ProviderType::Gemini, None, &present(&["OPENAI_API_KEY"])).unwrap_err(),
            ["GEMINI_API_KEY", "GOOGLE_API_KEY", "api-key"]
        );
        assert_eq!(
            choose_key(ProviderType::OpenAi, Some("token"), &both).unwrap_err(),
            ["token"]
        );
    }

    #[test]
    fn the_credential_comes_from_exactly_one_place_om_348() {
        let reason = |value| match credential(&spec(value)) {
            CredentialPlan::Invalid { reason, .. } => reason,
            _ => "",
        };
        assert_eq!(
            reason(json!({ "type": "openai", "model": "m" })),
            "CredentialRequired"
        );
        assert_eq!(
            reason(json!({ "type": "openai", "model": "m", "credential": {} })),
            "NoStrategySpecified"
        );
        assert_eq!(
            reason(json!({ "type": "openai", "credential": { "envVar": "A", "filePath": "/x" } })),
            "MultipleStrategies"
        );
        assert_eq!(
            reason(json!({ "type": "openai", "credential": { "envVar": "9A" } })),
            "InvalidEnvVar"
        );
        assert_eq!(
            reason(json!({ "type": "openai", "credential": { "filePath": "x" } })),
            "InvalidFilePath"
        );
        assert_eq!(
            reason(json!({ "type": "openai", "credential": { "filePath": "/a/../b" } })),
            "InvalidFilePath"
        );
        let open = spec(json!({ "type": "openai", "baseURL": "http://localhost:8000/v1" }));
        assert_eq!(credential(&open), CredentialPlan::NotRequired);
        assert_eq!(
            credential(&spec(json!({ "type": "mock" }))),
            CredentialPlan::NotRequired
        );
        let secret = spec(json!({ "type": "openai", "credential": { "secretRef": { "name": "s" } } }));
        assert_eq!(
            credential(&secret),
            CredentialPlan::Secret { name: "s", key: None }
        );
    }

    #[test]
    fn only_values_that_no_service_issues_are_placeholders_om_348() {
        for value in [
            "",
            " \n",
            "changeme",
            "<your key>",
            "your-api-key",
            "sk-your-api-key-here",
            "sk-xxxx",
            "sk-...",
            "TODO",
        ] {
            assert!(is_placeholder(value), "{value}");
        }
        for value in ["sk-proj-3fJk2", "xai-9a", "local", "none", "test", "EMPTY", "ab"] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn a_model_is_required_except_for_mock_om_176() {
        assert_eq!(model(&spec(json!({ "type": "mock" }))), Ok("ModelNotRequired"));
        assert_eq!(model(&spec(json!({ "type": "openai" }))), Err("ModelMissing"));
        assert_eq!(
            model(&spec(json!({ "type": "openai", "model": "" }))),
            Err("ModelMissing")
        );
        assert_eq!(
            model(&spec(json!({ "type": "openai", "model": "gpt" }))),
            Ok("ModelSet")
        );
    }

    #[test]
    fn numbers_and_decimal_text_are_both_parameters_om_180() {
        for (temperature, valid) in [
            (json!(0.7), true),
            (json!("0.7"), true),
            (json!(2), true),
            (json!(2.1), false),
            (json!("hot"), false),
            (json!(true), false),
        ] {
            let spec = spec(json!({ "type": "mock", "defaults": { "temperature": temperature } }));
            assert_eq!(validate(&spec).is_empty(), valid, "{temperature}");
            let stored = serde_json::to_value(&spec).unwrap();
            assert_eq!(stored["defaults"]["temperature"], temperature, "kept as written");
        }
    }
}
