//! What a provider's status says (OM-348). Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_resources::{
    condition_types,
    conditions::{ConditionStatus, NewCondition, find_condition, remove_condition, set_condition},
    omnia::{
        Provider, ProviderStatus,
        provider::{
            Phase, ProviderType,
            settings::{HostingPlatform, HostingPlatformType},
        },
    },
    reasons,
    validation::{self, provider::CredentialPlan},
};
use secrecy::ExposeSecret;

use super::{SecretData, cost_controls, rate_limit};
use crate::events::Notice;

/// The Secret of the credential.
pub(super) enum SecretLookup {
    /// The credential is elsewhere, or there is none.
    NotNeeded,
    /// It does not exist.
    Missing,
    /// It exists and holds this.
    Found(SecretData),
}

/// The scenario of a mock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// None is named.
    None,
    /// It can be used.
    Valid,
    /// It cannot.
    Wrong(String),
}

/// What the decision depends on, beside the spec.
pub(super) struct Inputs {
    pub(super) secret: SecretLookup,
    pub(super) scenario: Scenario,
    /// Result of the health check; `None` when the endpoint was not checked.
    pub(super) endpoint: Option<Result<String, String>>,
    /// Whether the variable of the credential is among those that agents are given; `None` where agents get theirs
    /// elsewhere, and it cannot be known.
    pub(super) variable_set: Option<bool>,
}

/// Whether the provider is wrong whatever its endpoint says.
pub(super) fn is_faulty(provider: &Provider, inputs: &Inputs) -> bool {
    spec_conditions(provider, inputs)
        .iter()
        .any(|condition| condition.status == ConditionStatus::False)
}

/// The whole status, and the Events of what changed for the worse.
pub(super) fn status(provider: &Provider, inputs: &Inputs, now: Timestamp) -> (ProviderStatus, Vec<Notice>) {
    let before = provider.status.clone().unwrap_or_default();
    let generation = provider.metadata.generation;
    let time = Time(now);
    let mut conditions = before.conditions.clone();
    let mut decided = spec_conditions(provider, inputs);
    let faulty = decided
        .iter()
        .any(|condition| condition.status == ConditionStatus::False);
    match &inputs.endpoint {
        Some(Ok(message)) => decided.push(NewCondition::met(
            condition_types::ENDPOINT_REACHABLE,
            reasons::ENDPOINT_REACHABLE,
            message.clone(),
        )),
        Some(Err(message)) => decided.push(NewCondition::unmet(
            condition_types::ENDPOINT_REACHABLE,
            reasons::ENDPOINT_UNREACHABLE,
            message.clone(),
        )),
        None => {
            remove_condition(&mut conditions, condition_types::ENDPOINT_REACHABLE);
        }
    }
    let unreachable = matches!(inputs.endpoint, Some(Err(_)));
    if provider.spec.platform.is_none() {
        remove_condition(&mut conditions, condition_types::AUTH_CONFIGURED);
    }
    let mut notices = Vec::new();
    for condition in decided {
        let previous = find_condition(&conditions, condition.kind).map(|old| old.reason.clone());
        // Conditions that follow from one another have one Event.
        let said = notices
            .iter()
            .any(|notice: &Notice| notice.message == condition.message);
        if condition.status == ConditionStatus::False
            && previous.as_deref() != Some(condition.reason)
            && !said
        {
            notices.push(Notice::warning(condition.reason, condition.message.clone()));
        }
        set_condition(&mut conditions, condition, generation, &time);
    }
    let phase = if faulty {
        Phase::Error
    } else if unreachable {
        Phase::Unavailable
    } else {
        Phase::Ready
    };
    // The time alone is no reason to write a status.
    let unchanged = before.phase == Some(phase) && before.observed_generation == generation;
    let last_validated = match (phase, unchanged) {
        (Phase::Ready, false) => Some(time),
        _ => before.last_validated,
    };
    (
        ProviderStatus {
            phase: Some(phase),
            conditions,
            last_validated,
            observed_generation: generation,
        },
        notices,
    )
}

/// Everything but the endpoint.
fn spec_conditions(provider: &Provider, inputs: &Inputs) -> Vec<NewCondition> {
    let (secret, configured) = credential(provider, inputs);
    let usable = secret.status == ConditionStatus::True && configured.status == ConditionStatus::True;
    let valid = if usable {
        NewCondition::met(
            condition_types::CREDENTIAL_VALID,
            reasons::CREDENTIAL_VALID,
            configured.message.clone(),
        )
    } else if configured.status == ConditionStatus::Unknown {
        NewCondition::unknown(
            condition_types::CREDENTIAL_VALID,
            configured.reason,
            configured.message.clone(),
        )
    } else {
        let cause = if secret.status == ConditionStatus::True {
            &configured
        } else {
            &secret
        };
        NewCondition::unmet(
            condition_types::CREDENTIAL_VALID,
            reasons::CREDENTIAL_INVALID,
            cause.message.clone(),
        )
    };
    let mut conditions = vec![secret, configured, valid, model(provider, &inputs.scenario)];
    if let Some(platform) = &provider.spec.platform {
        conditions.push(NewCondition::unmet(
            condition_types::AUTH_CONFIGURED,
            reasons::HOSTING_NOT_SERVED,
            hosting(provider.spec.kind, platform),
        ));
    }
    conditions
}

/// What is not served of a model that a cloud platform hosts, and what is instead (OM-183).
fn hosting(kind: ProviderType, platform: &HostingPlatform) -> String {
    let not_served = format!(
        "spec.platform: a model of type {kind} that {} hosts is not served by this version",
        platform.kind
    );
    match (kind, platform.kind, &platform.endpoint) {
        // The same deployment takes a key, and then needs neither spec.platform nor spec.auth.
        (ProviderType::OpenAi, HostingPlatformType::Azure, Some(endpoint)) => format!(
            "{not_served}; with spec.baseURL {endpoint:?} and the resource's key in spec.credential it is, without spec.platform"
        ),
        _ => not_served,
    }
}

/// `SecretFound` and `CredentialConfigured`.
fn credential(provider: &Provider, inputs: &Inputs) -> (NewCondition, NewCondition) {
    let found = |reason, message: &str| NewCondition::met(condition_types::SECRET_FOUND, reason, message);
    let configured =
        |reason, message: String| NewCondition::met(condition_types::CREDENTIAL_CONFIGURED, reason, message);
    let no_secret = || found(reasons::NO_SECRET_REQUIRED, "no Secret is named");
    match validation::provider::credential(&provider.spec) {
        CredentialPlan::NotRequired => (
            no_secret(),
            configured(reasons::NO_CREDENTIAL_REQUIRED, "no credential is needed".into()),
        ),
        // Not a fault: an agent can have the variable from its own spec.
        CredentialPlan::EnvironmentVariable(name) if inputs.variable_set == Some(false) => (
            no_secret(),
            NewCondition::unknown(
                condition_types::CREDENTIAL_CONFIGURED,
                reasons::ENV_VAR_NOT_SET,
                format!(
                    "environment variable {name} is not among those that agents are given; use secretRef, or set it \
                     before the server starts if it is one that is handed on, or in spec.runtime.extraEnv of each agent"
                ),
            ),
        ),
        CredentialPlan::EnvironmentVariable(name) => (
            no_secret(),
            configured(
                reasons::ENV_VAR_CONFIGURED,
                format!("the credential is in environment variable {name}"),
            ),
        ),
        CredentialPlan::File(path) => (
            no_secret(),
            configured(
                reasons::FILE_PATH_CONFIGURED,
                format!("the credential is in file {path}"),
            ),
        ),
        CredentialPlan::Invalid { reason, message } => (
            no_secret(),
            NewCondition::unmet(condition_types::CREDENTIAL_CONFIGURED, reason, message),
        ),
        CredentialPlan::Secret { name, key } => from_secret(provider.spec.kind, name, key, &inputs.secret),
    }
}

fn from_secret(
    kind: ProviderType,
    name: &str,
    named: Option<&str>,
    secret: &SecretLookup,
) -> (NewCondition, NewCondition) {
    let missing = |reason, message: String| {
        (
            NewCondition::unmet(condition_types::SECRET_FOUND, reason, message.clone()),
            NewCondition::unmet(condition_types::CREDENTIAL_CONFIGURED, reason, message),
        )
    };
    let SecretLookup::Found(data) = secret else {
        return missing(
            reasons::SECRET_NOT_FOUND,
            format!("Secret {name:?} does not exist"),
        );
    };
    let present: BTreeSet<String> = data.keys().cloned().collect();
    let key = match validation::provider::choose_key(kind, named, &present) {
        Ok(key) => key,
        Err(wanted) => {
            let message = format!("Secret {name:?} has none of the keys {}", wanted.join(", "));
            return missing(reasons::SECRET_KEY_MISSING, message);
        }
    };
    let found = NewCondition::met(
        condition_types::SECRET_FOUND,
        reasons::SECRET_FOUND,
        format!("Secret {name:?} has key {key:?}"),
    );
    let placeholder = data
        .get(&key)
        .and_then(|value| std::str::from_utf8(value.expose_secret()).ok())
        .is_some_and(validation::provider::is_placeholder);
    let configured = if placeholder {
        NewCondition::unmet(
            condition_types::CREDENTIAL_CONFIGURED,
            reasons::PLACEHOLDER_CREDENTIAL,
            format!("Secret {name:?}, key {key:?} holds an example value"),
        )
    } else {
        NewCondition::met(
            condition_types::CREDENTIAL_CONFIGURED,
            reasons::SECRET_FOUND,
            format!("the credential is in Secret {name:?}, key {key:?}"),
        )
    };
    (found, configured)
}

/// `ModelValid`: the model is named, a mock's scenario and a budget can be used, and the spec is one that admission would take.
fn model(provider: &Provider, scenario: &Scenario) -> NewCondition {
    let kind = condition_types::MODEL_VALID;
    let findings = validation::provider::validate(&provider.spec);
    if !findings.is_empty() {
        return NewCondition::unmet(kind, reasons::INVALID_SPEC, validation::join(&findings));
    }
    if let Scenario::Wrong(message) = scenario {
        return NewCondition::unmet(kind, reasons::SCENARIO_INVALID, message.clone());
    }
    if let Err(message) = cost_controls(provider) {
        return NewCondition::unmet(kind, reasons::COST_CONTROLS_INVALID, message);
    }
    if let Err(message) = rate_limit(provider) {
        return NewCondition::unmet(kind, reasons::RATE_LIMIT_INVALID, message);
    }
    match validation::provider::model(&provider.spec) {
        Ok(reason) => {
            let model = provider.spec.model.as_deref().filter(|model| !model.is_empty());
            let message = model.map_or_else(
                || "no model is needed".to_owned(),
                |model| format!("model {model}"),
            );
            NewCondition::met(kind, reason, message)
        }
        Err(reason) => NewCondition::unmet(
            kind,
            reason,
            format!("spec.model is required for type {}", provider.spec.kind),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn provider(spec: serde_json::Value) -> Provider {
        Provider::new("p", serde_json::from_value(spec).unwrap())
    }

    fn inputs(secret: SecretLookup) -> Inputs {
        Inputs {
            secret,
            scenario: Scenario::None,
            endpoint: None,
            variable_set: None,
        }
    }

    fn secret(key: &str, value: &str) -> SecretLookup {
        SecretLookup::Found([(key.to_owned(), value.as_bytes().to_vec().into())].into())
    }

    fn judged(spec: serde_json::Value, inputs: &Inputs) -> (Phase, Vec<String>) {
        let (status, _) = status(&provider(spec), inputs, Timestamp::UNIX_EPOCH);
        let conditions = status
            .conditions
            .iter()
            .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason));
        (status.phase.unwrap(), conditions.collect())
    }

    const WITH_SECRET: fn() -> serde_json::Value =
        || json!({ "type": "openai", "model": "m", "credential": { "secretRef": { "name": "s" } } });

    #[test]
    fn a_mock_is_ready_by_itself_om_348() {
        let (phase, conditions) = judged(json!({ "type": "mock" }), &inputs(SecretLookup::NotNeeded));
        assert_eq!(phase, Phase::Ready);
        assert_eq!(
            conditions,
            [
                "SecretFound=True NoSecretRequired",
                "CredentialConfigured=True NoCredentialRequired",
                "CredentialValid=True CredentialValid",
                "ModelValid=True ModelNotRequired",
            ]
        );
    }

    #[test]
    fn a_model_that_a_platform_hosts_is_refused_and_the_way_round_is_named_om_183() {
        let told = |kind: &str, platform: serde_json::Value| {
            let spec = json!({ "type": kind, "model": "m", "platform": platform, "auth": { "type": "workloadIdentity" } });
            let (status, _) = status(
                &provider(spec),
                &inputs(SecretLookup::NotNeeded),
                Timestamp::UNIX_EPOCH,
            );
            assert_eq!(status.phase, Some(Phase::Error));
            let condition = find_condition(&status.conditions, "AuthConfigured").unwrap();
            assert_eq!(
                (condition.status.as_str(), condition.reason.as_str()),
                ("False", "HostingNotServed")
            );
            condition.message.clone()
        };
        let message = told("claude", json!({ "type": "bedrock", "region": "eu" }));
        assert!(message.contains("type claude that bedrock hosts"), "{message}");
        let azure = json!({ "type": "azure", "endpoint": "https://desk.openai.azure.com" });
        let message = told("openai", azure);
        assert!(
            message.contains("spec.baseURL \"https://desk.openai.azure.com\""),
            "{message}"
        );
    }

    #[test]
    fn the_secret_decides_until_it_can_be_used_om_348_om_350() {
        let (phase, conditions) = judged(WITH_SECRET(), &inputs(SecretLookup::Missing));
        assert_eq!(phase, Phase::Error);
        assert!(
            conditions.contains(&"SecretFound=False SecretNotFound".to_owned()),
            "{conditions:?}"
        );
        let (phase, conditions) = judged(WITH_SECRET(), &inputs(secret("other", "x")));
        assert_eq!(phase, Phase::Error);
        assert!(
            conditions.contains(&"SecretFound=False SecretKeyMissing".to_owned()),
            "{conditions:?}"
        );
        let (phase, conditions) = judged(WITH_SECRET(), &inputs(secret("api-key", "changeme")));
        assert_eq!(phase, Phase::Error);
        assert!(
            conditions.contains(&"CredentialConfigured=False PlaceholderCredential".to_owned()),
            "{conditions:?}"
        );
        let (phase, conditions) = judged(WITH_SECRET(), &inputs(secret("OPENAI_API_KEY", "sk-1\n")));
        assert_eq!(phase, Phase::Ready);
        assert!(
            conditions.contains(&"CredentialConfigured=True SecretFound".to_owned()),
            "{conditions:?}"
        );
    }

    #[test]
    fn a_variable_that_agents_are_not_given_is_not_called_configured_om_348() {
        let spec = || json!({ "type": "openai", "model": "m", "credential": { "envVar": "MY_KEY" } });
        let mut inputs = inputs(SecretLookup::NotNeeded);
        for (set, wanted) in [
            (None, "True EnvVarConfigured"),
            (Some(true), "True EnvVarConfigured"),
            (Some(false), "Unknown EnvVarNotSet"),
        ] {
            inputs.variable_set = set;
            let (phase, conditions) = judged(spec(), &inputs);
            assert_eq!(phase, Phase::Ready, "an agent may have it from its own spec");
            let wanted = format!("CredentialConfigured={wanted}");
            assert!(conditions.contains(&wanted), "{wanted}: {conditions:?}");
        }
    }

    #[test]
    fn no_message_shows_the_credential() {
        let (status, notices) = status(
            &provider(WITH_SECRET()),
            &inputs(secret("api-key", "your-api-key-hunter2")),
            Timestamp::UNIX_EPOCH,
        );
        let text = format!("{}{notices:?}", serde_json::to_string(&status).unwrap());
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn an_unreachable_endpoint_makes_the_provider_unavailable_om_349() {
        let mut inputs = inputs(secret("api-key", "sk-1"));
        inputs.endpoint = Some(Err("refused".into()));
        let (phase, conditions) = judged(WITH_SECRET(), &inputs);
        assert_eq!(phase, Phase::Unavailable);
        assert!(
            conditions.contains(&"EndpointReachable=False EndpointUnreachable".to_owned()),
            "{conditions:?}"
        );
        inputs.endpoint = Some(Ok("answered 401".into()));
        assert_eq!(judged(WITH_SECRET(), &inputs).0, Phase::Ready);
    }

    #[test]
    fn model_and_scenario_are_faults_of_the_provider() {
        let missing = judged(
            json!({ "type": "vllm", "baseURL": "http://x" }),
            &inputs(SecretLookup::NotNeeded),
        );
        assert_eq!(missing.0, Phase::Error);
        assert!(
            missing.1.contains(&"ModelValid=False ModelMissing".to_owned()),
            "{missing:?}"
        );
        let wrong = Inputs {
            scenario: Scenario::Wrong("ConfigMap \"s\" of the scenario does not exist".into()),
            ..inputs(SecretLookup::NotNeeded)
        };
        let (phase, conditions) = judged(json!({ "type": "mock" }), &wrong);
        assert_eq!(phase, Phase::Error);
        assert!(
            conditions.contains(&"ModelValid=False ScenarioInvalid".to_owned()),
            "{conditions:?}"
        );
    }

    #[test]
    fn om_204_a_budget_that_cannot_be_kept_is_a_fault_of_the_provider() {
        let priced = json!({ "type": "mock", "pricing": { "inputCostPer1K": "0.01" } });
        for (spec, annotation, fault) in [
            (
                priced.clone(),
                r#"{"dailyBudget": "5", "alertThresholds": [80]}"#,
                None,
            ),
            (
                priced.clone(),
                r#"{"dailyBudget": "five"}"#,
                Some("no amount of dollars"),
            ),
            (priced.clone(), r#"{"weeklyBudget": "5"}"#, Some("weeklyBudget")),
            (priced, "5 dollars", Some("mainstay.dev/cost-controls")),
            (
                json!({ "type": "mock" }),
                r#"{"dailyBudget": "5"}"#,
                Some("spec.pricing"),
            ),
        ] {
            let mut provider = provider(spec);
            provider.metadata.annotations =
                Some([("mainstay.dev/cost-controls".to_owned(), annotation.to_owned())].into());
            let (status, _) = status(&provider, &inputs(SecretLookup::NotNeeded), Timestamp::UNIX_EPOCH);
            let condition = find_condition(&status.conditions, condition_types::MODEL_VALID).unwrap();
            match fault {
                None => assert_eq!(status.phase, Some(Phase::Ready), "{annotation}"),
                Some(fault) => {
                    assert_eq!(condition.reason, "CostControlsInvalid", "{annotation}");
                    assert!(condition.message.contains(fault), "{}", condition.message);
                }
            }
        }
    }

    #[test]
    fn an_unchanged_state_gives_the_same_status_and_no_event_om_249_om_295() {
        let mut provider = provider(WITH_SECRET());
        let (first, notices) = status(&provider, &inputs(SecretLookup::Missing), Timestamp::UNIX_EPOCH);
        let reasons: Vec<&str> = notices.iter().map(|notice| notice.reason).collect();
        assert_eq!(reasons, ["SecretNotFound"], "one Event for one missing Secret");
        provider.status = Some(first.clone());
        let later = Timestamp::from_second(1000).unwrap();
        let (second, notices) = status(&provider, &inputs(SecretLookup::Missing), later);
        assert_eq!(second, first);
        assert!(notices.is_empty());
    }
}
