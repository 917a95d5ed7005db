//! Provider: resolves the credential, checks the endpoint, says whether agents can use it (OM-348 … OM-350).

mod decision;
mod health;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource, ResourceExt};
use mainstay_agent::budget::BudgetLimits;
use mainstay_llm::config::{AzureConfig, CostControls, RateLimits};
use mainstay_resources::{
    names,
    omnia::{
        Provider,
        provider::{Phase, ProviderSpec, ProviderType},
    },
    validation::provider as validation,
};
use tokio_util::sync::CancellationToken;

use self::decision::{Inputs, Scenario, SecretLookup};
use crate::{
    error::ReconcileError,
    events::Publisher,
    options::ControllersOptions,
    status,
    work::{Next, Reconciler, Revision, Seen, Work, matching, reference},
};

/// Time between two checks of an endpoint that cannot be reached (OM-349).
const RECHECK: Duration = Duration::from_secs(30);

/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The ConfigMap and key that a provider's scenario annotation names.
///
/// # Errors
///
/// What is wrong with the annotation.
pub(crate) fn scenario_reference(provider: &Provider) -> Result<Option<(String, String)>, String> {
    let Some(text) = provider.annotations().get(names::SCENARIO_ANNOTATION) else {
        return Ok(None);
    };
    match text.split_once('/') {
        Some((name, key)) if !name.is_empty() && !key.is_empty() && !key.contains('/') => {
            Ok(Some((name.to_owned(), key.to_owned())))
        }
        _ => Err(format!(
            "annotation {}: {text:?} is not of the form CONFIGMAP/KEY",
            names::SCENARIO_ANNOTATION
        )),
    }
}

/// What may be spent on a provider (OM-204).
///
/// # Errors
///
/// What is wrong with the annotation. A budget that cannot be kept is refused, not left out.
pub(crate) fn cost_controls(provider: &Provider) -> Result<Option<CostControls>, String> {
    const NAME: &str = names::COST_CONTROLS_ANNOTATION;
    let Some(text) = provider.annotations().get(NAME) else {
        return Ok(None);
    };
    let controls: CostControls =
        serde_json::from_str(text).map_err(|error| format!("annotation {NAME}: {error}"))?;
    BudgetLimits::of(&controls).map_err(|error| format!("annotation {NAME}: {error}"))?;
    if provider.spec.pricing.is_none() {
        return Err(format!(
            "annotation {NAME} needs spec.pricing: without prices nothing is counted"
        ));
    }
    Ok(Some(controls))
}

/// How much may be asked of a provider in a minute (OR-229).
///
/// # Errors
///
/// What is wrong with the annotation. A limit that cannot be kept is refused, not left out.
pub(crate) fn rate_limit(provider: &Provider) -> Result<Option<RateLimits>, String> {
    const NAME: &str = names::RATE_LIMIT_ANNOTATION;
    let Some(text) = provider.annotations().get(NAME) else {
        return Ok(None);
    };
    let limits: RateLimits =
        serde_json::from_str(text).map_err(|error| format!("annotation {NAME}: {error}"))?;
    limits
        .check()
        .map_err(|error| format!("annotation {NAME}: {error}"))?;
    if provider.spec.kind == ProviderType::Mock {
        return Err(format!(
            "annotation {NAME}: a provider of type mock is played and not asked, so nothing of it is limited"
        ));
    }
    Ok(Some(limits))
}

/// How Azure is spoken to, where a provider of type openai is a resource of Azure: by its host, or by the path of a
/// deployment, which no other server has (OR-244).
pub(crate) fn azure(spec: &ProviderSpec) -> Option<AzureConfig> {
    const HOSTS: &[&str] = &[
        ".openai.azure.com",
        ".openai.azure.us",
        ".openai.azure.cn",
        ".cognitiveservices.azure.com",
        ".services.ai.azure.com",
    ];
    if spec.kind != ProviderType::OpenAi {
        return None;
    }
    let url = url::Url::parse(spec.base_url.as_deref()?.trim()).ok()?;
    let host = url.host_str()?.trim_end_matches('.');
    let is_azure = HOSTS.iter().any(|end| host.ends_with(end)) || url.path().contains("/openai/deployments/");
    is_azure.then(AzureConfig::default)
}

struct Controller {
    client: Client,
    options: ControllersOptions,
    publisher: Publisher,
}

impl Controller {
    /// The Secret that the credential comes from, if the spec names one.
    async fn secret(&self, provider: &Provider, namespace: &str) -> Result<SecretLookup, ReconcileError> {
        let validation::CredentialPlan::Secret { name, .. } = validation::credential(&provider.spec) else {
            return Ok(SecretLookup::NotNeeded);
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = api
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(format!("read Secret {namespace}/{name}")))?;
        Ok(match secret {
            None => SecretLookup::Missing,
            Some(secret) => SecretLookup::Found(
                secret
                    .data
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(key, value)| (key, value.0.into()))
                    .collect(),
            ),
        })
    }

    /// Whether agents are given the variable of the credential. Only where they run in this process is that known.
    fn variable_set(&self, provider: &Provider) -> Option<bool> {
        let validation::CredentialPlan::EnvironmentVariable(name) = validation::credential(&provider.spec)
        else {
            return None;
        };
        self.options.service_endpoint.is_some().then(|| {
            self.options
                .environment
                .get(name)
                .is_some_and(|value| !value.is_empty())
        })
    }

    async fn scenario(&self, provider: &Provider, namespace: &str) -> Result<Scenario, ReconcileError> {
        let (name, key) = match scenario_reference(provider) {
            Ok(None) => return Ok(Scenario::None),
            Ok(Some(reference)) => reference,
            Err(message) => return Ok(Scenario::Wrong(message)),
        };
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let config_map = api
            .get_opt(&name)
            .await
            .map_err(ReconcileError::api(format!("read ConfigMap {namespace}/{name}")))?;
        let Some(config_map) = config_map else {
            return Ok(Scenario::Wrong(format!(
                "ConfigMap {name:?} of the scenario does not exist"
            )));
        };
        Ok(match config_map.data.unwrap_or_default().get(&key) {
            None => Scenario::Wrong(format!("ConfigMap {name:?} has no key {key:?}")),
            Some(text) => match mainstay_llm::mock::Scenario::parse(text) {
                Ok(_) => Scenario::Valid,
                Err(error) => Scenario::Wrong(format!("ConfigMap {name:?}, key {key:?}: {error}")),
            },
        })
    }
}

impl Reconciler<Provider> for Controller {
    async fn reconcile(&self, provider: &Provider) -> Result<Next, ReconcileError> {
        if provider.metadata.deletion_timestamp.is_some() {
            return Ok(Next::AwaitChange);
        }
        let namespace = provider.namespace().unwrap_or_default();
        let mut inputs = Inputs {
            secret: self.secret(provider, &namespace).await?,
            scenario: self.scenario(provider, &namespace).await?,
            endpoint: None,
            variable_set: self.variable_set(provider),
        };
        // A provider that is wrong already needs no request to somebody's server.
        if !decision::is_faulty(provider, &inputs)
            && let Some(base) = health::base_url(&provider.spec, &self.options.environment)
        {
            inputs.endpoint = Some(health::check(&self.options.connector, &namespace, &base).await);
        }
        let unreachable = matches!(inputs.endpoint, Some(Err(_)));
        let (new, notices) = decision::status(provider, &inputs, self.options.clock.now());
        let api = Api::namespaced(self.client.clone(), &namespace);
        if status::write(&api, provider, &new).await? {
            for notice in notices {
                self.publisher.publish(provider, notice).await;
            }
        }
        Ok(if unreachable {
            Next::After(RECHECK)
        } else {
            Next::AwaitChange
        })
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

/// Whether a provider reads a Secret.
fn reads_secret(provider: &Provider, name: &str) -> bool {
    let credential = provider
        .spec
        .credential
        .as_ref()
        .and_then(|credential| credential.secret_ref.as_ref());
    let hosting = provider
        .spec
        .auth
        .as_ref()
        .and_then(|auth| auth.credentials_secret_ref.as_ref());
    credential
        .into_iter()
        .chain(hosting)
        .any(|secret| secret.name == name)
}

/// Runs until cancelled.
pub(crate) async fn run(client: Client, options: ControllersOptions, cancellation: CancellationToken) {
    let mut work: Work<Provider> = Work::new("provider-controller", client.clone(), cancellation);
    // The annotation that names a scenario counts; a status write must not repeat the health check.
    let mut revisions = Seen::new();
    work.own(move |provider, change| {
        if revisions.changed(provider, Revision::of(provider, change)) {
            vec![reference(provider)]
        } else {
            Vec::new()
        }
    });
    let store = work.store();
    work.also::<Secret>(move |secret, _| {
        matching(&store, secret.meta().namespace.as_deref(), |provider| {
            reads_secret(provider, &secret.name_any())
        })
    });
    let store = work.store();
    work.also::<ConfigMap>(move |config_map, _| {
        matching(&store, config_map.meta().namespace.as_deref(), |provider| {
            scenario_reference(provider)
                .is_ok_and(|found| found.is_some_and(|(name, _)| name == config_map.name_any()))
        })
    });
    let store = work.store();
    let environment = options.environment.clone();
    // A server that starts beside its provider is not there at the first check, and its endpoint says when it is.
    work.also::<EndpointSlice>(move |slice, _| {
        let (Some(namespace), Some(service)) = (slice.namespace(), slice.labels().get(SERVICE_NAME)) else {
            return Vec::new();
        };
        let waits = |provider: &Provider| {
            let status = provider.status.as_ref();
            status.and_then(|status| status.phase) == Some(Phase::Unavailable)
                && health::base_url(&provider.spec, &environment).is_some_and(|base| {
                    let home = provider.namespace().unwrap_or_default();
                    health::is_at_service(&base, &home, service, &namespace)
                })
        };
        store
            .state()
            .iter()
            .filter(|provider| provider.0.as_ref().is_ok_and(waits))
            .map(|provider| reference(provider.as_ref()))
            .collect()
    });
    let controller = Controller {
        publisher: Publisher::new(
            client.clone(),
            options.clock.clone(),
            options.random.clone(),
            "provider-controller",
        ),
        client,
        options,
    };
    // Health checks may take their five seconds; one slow endpoint must not hold up the other providers.
    work.run(3, controller).await;
}

/// The content of a Secret, by key.
type SecretData = BTreeMap<String, secrecy::SecretSlice<u8>>;
