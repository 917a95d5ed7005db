//! Reads everything an agent's workload is made from, before anything is written (OM-256).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, ResourceExt, api::ListParams, core::DeserializeGuard};
use mainstay_agent::{
    LoadedPack,
    pack::{self, Admission, Allowlist, Pack},
};
use mainstay_resources::{
    condition_types, discovery,
    omnia::{
        AgentRuntime, PromptPack, Provider, ToolRegistry,
        agent_runtime::{Phase, PromptPackRef},
        prompt_pack::SourceType,
        reference::SecretKey,
    },
    pack_version::{PackCandidate, select},
    reasons,
    validation::{
        agent_runtime::needs_provider,
        provider::{CredentialPlan, credential},
    },
};
use serde_json::json;

use super::{
    Controller, Stop,
    decision::{
        Blocked, ProviderInput, ProviderLookup, Registry, UsableProvider, judge_content, judge_pack,
        judge_providers,
    },
    models::{Models, ProviderFiles, are_mocked},
    report::Report,
    tools,
};
use crate::{
    error::ReconcileError,
    prompt_pack::content,
    provider::scenario_reference,
    work::{Dependency, named},
};

/// Kind of a dependency.
pub(super) const SECRET: &str = "Secret";
/// Kind of a dependency.
pub(super) const CONFIG_MAP: &str = "ConfigMap";

/// The pack in use.
pub(super) struct Source {
    pub(super) pack: PromptPack,
    /// ConfigMap with its content.
    config_map: String,
    content: Vec<u8>,
    /// The content as the runtime reads it; `None` where no prompt is run.
    loaded: Option<LoadedPack>,
}

/// Everything that the workload is made from. Not `Debug`: it holds credentials.
pub(super) struct Gathered {
    pub(super) pack: PromptPack,
    /// ConfigMap with the pack's content.
    pub(super) pack_config_map: String,
    /// `tools.yaml`.
    pub(super) tools_file: String,
    pub(super) models: Models,
    /// `providers.yaml`.
    pub(super) providers_file: String,
    /// Content of the agent's tool Secret.
    pub(super) tool_secrets: BTreeMap<String, ByteString>,
    /// Handler → audience of its ServiceAccount token.
    pub(super) tool_tokens: BTreeMap<String, String>,
    /// OM-269.
    pub(super) config_hash: String,
}

pub(super) struct Gather<'a> {
    controller: &'a Controller,
    agent: &'a AgentRuntime,
    namespace: String,
}

impl<'a> Gather<'a> {
    pub(super) fn new(controller: &'a Controller, agent: &'a AgentRuntime) -> Self {
        Self {
            controller,
            agent,
            namespace: agent.namespace().unwrap_or_default(),
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.controller.client.clone(), &self.namespace)
    }

    /// Stage 1: the pack, its content, and whether it can be run.
    pub(super) async fn pack(&self) -> Result<Source, Stop> {
        let pack = self.chosen_pack().await?;
        let (config_map, content) = self.pack_content(&pack).await?;
        // Facades that only repeat or demonstrate run no prompt (OM-504).
        let loaded = if needs_provider(&self.agent.spec) {
            Some(judge_content(&pack.name_any(), &content)?)
        } else {
            None
        };
        Ok(Source {
            pack,
            config_map,
            content,
            loaded,
        })
    }

    async fn chosen_pack(&self) -> Result<PromptPack, Stop> {
        let packs: Vec<PromptPack> = self
            .api::<DeserializeGuard<PromptPack>>()
            .list(&ListParams::default())
            .await
            .map_err(ReconcileError::api(format!(
                "list the PromptPacks of {}",
                self.namespace
            )))?
            .into_iter()
            .filter_map(|guarded| guarded.0.ok())
            .filter(|pack| pack.metadata.deletion_timestamp.is_none())
            .collect();
        let candidates: Vec<PackCandidate> = packs.iter().map(PackCandidate::from_resource).collect();
        let rollout = self.agent.spec.rollout.as_ref();
        let reference = &self.agent.spec.prompt_pack_ref;
        let chosen = judge_pack(select(reference, rollout.is_some(), &candidates))?;
        self.judge_candidate(
            rollout.and_then(|rollout| rollout.candidate.as_ref()?.prompt_pack_ref.as_ref()),
            &candidates,
        )?;
        // The choice is one of the list.
        packs
            .into_iter()
            .find(|pack| pack.name_any() == chosen.name)
            .ok_or_else(|| {
                Stop::Error(ReconcileError::Missing {
                    message: format!("PromptPack {} is gone", chosen.name),
                })
            })
    }

    /// A live pack is no candidate of a rollout either (OM-573).
    fn judge_candidate(
        &self,
        reference: Option<&PromptPackRef>,
        candidates: &[PackCandidate],
    ) -> Result<(), Blocked> {
        let live = reference.is_some_and(|reference| {
            candidates
                .iter()
                .any(|candidate| candidate.live && candidate.pack_name == reference.name)
        });
        if !live {
            return Ok(());
        }
        Err(Blocked {
            kind: condition_types::PROMPT_PACK_READY,
            reason: reasons::PROMPT_PACK_REF_INVALID,
            message:
                "spec.rollout.candidate.promptPackRef names a live pack, which takes no part in a rollout"
                    .into(),
            phase: Phase::Failed,
            retry: false,
        })
    }

    /// Stage 2: the registry.
    pub(super) async fn registry(&self) -> Result<Registry, ReconcileError> {
        let Some(reference) = &self.agent.spec.tool_registry_ref else {
            return Ok(Registry::NotReferenced);
        };
        let name = &reference.name;
        if reference
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != self.namespace)
        {
            return Ok(Registry::CrossNamespace(format!(
                "ToolRegistry {name:?} is in namespace {:?}, and other namespaces are never used",
                reference.namespace.as_deref().unwrap_or_default()
            )));
        }
        let found = self
            .api::<DeserializeGuard<ToolRegistry>>()
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(format!(
                "read ToolRegistry {}/{name}",
                self.namespace
            )))?;
        Ok(match found {
            None => Registry::NotFound(format!(
                "ToolRegistry {name:?} does not exist; the agent runs without tools"
            )),
            Some(DeserializeGuard(Ok(registry))) => Registry::Found(Box::new(registry)),
            Some(DeserializeGuard(Err(invalid))) => Registry::NotFound(format!(
                "ToolRegistry {name:?} cannot be read, and the agent runs without tools: {}",
                invalid.error
            )),
        })
    }

    /// Stage 3: the providers. Facades that only repeat or demonstrate need none (OM-261).
    pub(super) async fn providers(&self) -> Result<Vec<UsableProvider>, Stop> {
        if !needs_provider(&self.agent.spec) {
            return Ok(Vec::new());
        }
        let mut inputs = Vec::new();
        for entry in &self.agent.spec.providers {
            let reference = &entry.provider_ref;
            let elsewhere = reference
                .namespace
                .as_ref()
                .is_some_and(|namespace| *namespace != self.namespace);
            let lookup = if elsewhere {
                ProviderLookup::CrossNamespace
            } else {
                self.provider(&reference.name).await?
            };
            inputs.push(ProviderInput {
                entry: entry.clone(),
                lookup,
            });
        }
        Ok(judge_providers(&self.agent.spec, &inputs)?)
    }

    async fn provider(&self, name: &str) -> Result<ProviderLookup, ReconcileError> {
        let found = self
            .api::<DeserializeGuard<Provider>>()
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(format!(
                "read Provider {}/{name}",
                self.namespace
            )))?;
        Ok(match found {
            None => ProviderLookup::Missing,
            Some(DeserializeGuard(Ok(provider))) => ProviderLookup::Found(Box::new(provider)),
            Some(DeserializeGuard(Err(invalid))) => ProviderLookup::Unreadable(invalid.error),
        })
    }

    /// Everything else.
    pub(super) async fn inputs(
        &self,
        source: Source,
        registry: Registry,
        providers: Vec<UsableProvider>,
        report: &mut Report,
    ) -> Result<Gathered, Stop> {
        let Source {
            pack,
            config_map: pack_config_map,
            content,
            loaded,
        } = source;
        let registry = match registry {
            Registry::Found(registry) => Some(registry),
            _ => None,
        };
        let sandbox_enabled = self
            .agent
            .spec
            .sandbox
            .as_ref()
            .is_some_and(|sandbox| sandbox.enabled);
        let tools = registry
            .as_ref()
            .map(|registry| tools::render(registry, &self.namespace, sandbox_enabled))
            .unwrap_or_default();
        if registry.is_some() {
            let lists = match &loaded {
                Some(loaded) => allowlists(&loaded.pack),
                // A pack that cannot be parsed lists nothing; it does not get here unless it is live.
                None => pack::validate(&content)
                    .map(|pack| allowlists(&pack))
                    .unwrap_or_default(),
            };
            report.tools(&tools, sandbox_enabled, &unlisted(&tools.names, &lists));
        }
        if !tools.auth_faults.is_empty() {
            return Err(tool_auth_blocked(tools.auth_faults.join("; "), false).into());
        }
        let tool_secrets = self.tool_secrets(&tools.secrets).await?;
        let models = self.models(&providers).await?;
        let tools_file = tools.config.render().map_err(unrenderable)?;
        let providers_file = models.config.render().map_err(unrenderable)?;
        let config_hash = config_hash(&pack, &content, &tools_file, &providers_file, &models);
        Ok(Gathered {
            pack,
            pack_config_map,
            tools_file,
            models,
            providers_file,
            tool_secrets,
            tool_tokens: tools.tokens,
            config_hash,
        })
    }

    fn record(&self, dependencies: impl IntoIterator<Item = Dependency>) {
        let dependencies: BTreeSet<Dependency> = dependencies.into_iter().collect();
        self.controller
            .dependencies
            .record(named(&self.agent.name_any(), &self.namespace), dependencies);
    }

    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, ReconcileError> {
        self.record([(CONFIG_MAP, name.to_owned())]);
        let operation = format!("read ConfigMap {}/{name}", self.namespace);
        self.api::<ConfigMap>()
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(operation))
    }

    async fn secret(&self, name: &str) -> Result<Option<BTreeMap<String, ByteString>>, ReconcileError> {
        self.record([(SECRET, name.to_owned())]);
        let operation = format!("read Secret {}/{name}", self.namespace);
        let secret = self
            .api::<Secret>()
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(operation))?;
        Ok(secret.map(|secret| secret.data.unwrap_or_default()))
    }

    /// The ConfigMap of the pack, and its content.
    async fn pack_content(&self, pack: &PromptPack) -> Result<(String, Vec<u8>), Stop> {
        let blocked = |reason, phase, message: String| {
            Stop::Blocked(Blocked {
                kind: condition_types::PROMPT_PACK_READY,
                reason,
                message,
                phase,
                retry: false,
            })
        };
        let source = &pack.spec.source;
        let reference = match source.kind {
            SourceType::ConfigMap => source.config_map_ref.as_ref(),
            SourceType::Live => source.live.as_ref().and_then(|live| live.config_map_ref.as_ref()),
        };
        let Some(name) = reference.map(|reference| &reference.name) else {
            let message = format!(
                "PromptPack {:?}: spec.source.live.path is not served by this version; use live.configMapRef",
                pack.name_any()
            );
            return Err(blocked(reasons::PROMPT_PACK_INVALID, Phase::Failed, message));
        };
        let content = self.config_map(name).await?.as_ref().and_then(content);
        match content {
            Some(content) => Ok((name.clone(), content)),
            // The pack's own controller is about to say so; the ConfigMap's watch brings both back.
            None => Err(blocked(
                reasons::PROMPT_PACK_NOT_READY,
                Phase::Pending,
                format!(
                    "ConfigMap {name:?} of PromptPack {:?} has no content",
                    pack.name_any()
                ),
            )),
        }
    }

    /// The values of the tool Secret. One that is missing stops the build: an agent never starts in a state in which it
    /// would call a backend without its credential (OM-276, DD-18).
    async fn tool_secrets(
        &self,
        wanted: &BTreeMap<String, SecretKey>,
    ) -> Result<BTreeMap<String, ByteString>, Stop> {
        let names: BTreeSet<&String> = wanted.values().map(|secret| &secret.name).collect();
        let mut found = BTreeMap::new();
        for name in names {
            found.insert(name.clone(), self.secret(name).await?);
        }
        let mut values = BTreeMap::new();
        let mut missing = Vec::new();
        for (target, secret) in wanted {
            match found.get(&secret.name) {
                Some(Some(data)) => match data.get(&secret.key) {
                    Some(value) => {
                        values.insert(target.clone(), value.clone());
                    }
                    None => missing.push(format!("Secret {:?} has no key {:?}", secret.name, secret.key)),
                },
                _ => missing.push(format!("Secret {:?} does not exist", secret.name)),
            }
        }
        if missing.is_empty() {
            return Ok(values);
        }
        missing.dedup();
        Err(Stop::Withdrawn {
            blocked: tool_auth_blocked(
                format!("a credential of the tools is missing: {}", missing.join("; ")),
                true,
            ),
            left: values,
        })
    }

    async fn models(&self, providers: &[UsableProvider]) -> Result<Models, Stop> {
        let mut models = Models::default();
        let mocked = are_mocked(self.agent);
        for usable in providers {
            let mut files = ProviderFiles::default();
            if !mocked && let CredentialPlan::Secret { name, .. } = credential(&usable.provider.spec) {
                files.secret = self.secret(name).await?.map(|data| {
                    data.into_iter()
                        .map(|(key, value)| (key, discovery::sha256(&value.0)))
                        .collect()
                });
            }
            if let Ok(Some((object, key))) = scenario_reference(&usable.provider) {
                let text = self
                    .config_map(&object)
                    .await?
                    .and_then(|map| map.data?.remove(&key));
                files.scenario = text.map(|text| (object, key, discovery::sha256(text.as_bytes())));
            }
            if mocked {
                models.add_mocked(usable, &files);
                continue;
            }
            // What was there when the Provider became Ready is gone; its own watch brings the agent back.
            models.add(usable, &files).map_err(|message| Blocked {
                kind: condition_types::PROVIDER_READY,
                reason: reasons::PROVIDER_NOT_READY,
                message: format!("entry {:?}: {message}", usable.entry.name),
                phase: Phase::Pending,
                retry: false,
            })?;
        }
        Ok(models)
    }
}

/// Changes when, and only when, pods have to be replaced: what they read once, at their start, is another (OM-269). Of
/// the registry and the providers that is what is rendered for the agent, whatever object it came from: one that was
/// deleted and made again with another spec counts its generations from one again. The values of tool credentials are not
/// part of it, because the runtime reads them anew for each call (OM-277). Neither is the content of a live pack, which
/// is read by each session.
fn config_hash(
    pack: &PromptPack,
    content: &[u8],
    tools_file: &str,
    providers_file: &str,
    models: &Models,
) -> String {
    let digest = (pack.spec.source.kind == SourceType::ConfigMap).then(|| pack::digest(content));
    let mounts = |list: &[super::models::Mount]| {
        list.iter()
            .map(|mount| json!([mount.entry, mount.object, mount.key, mount.digest]))
            .collect::<Vec<_>>()
    };
    let inputs = json!({
        "pack": [pack.name_any(), pack.metadata.generation, digest],
        "tools": tools_file,
        "providers": providers_file,
        "secrets": mounts(&models.secrets),
        "scenarios": mounts(&models.scenarios),
    });
    let digest = discovery::sha256(inputs.to_string().as_bytes());
    digest.trim_start_matches("sha256:").chars().take(16).collect()
}

/// A file of the agent's that cannot be written down. Nothing was applied then.
fn unrenderable(message: String) -> Blocked {
    Blocked {
        kind: condition_types::DEPLOYMENT_READY,
        reason: reasons::DEPLOYMENT_FAILED,
        message,
        phase: Phase::Failed,
        retry: false,
    }
}

fn tool_auth_blocked(message: String, retry: bool) -> Blocked {
    Blocked {
        kind: condition_types::DEPLOYMENT_READY,
        reason: reasons::TOOL_AUTH_UNSUPPORTED,
        message,
        phase: Phase::Failed,
        retry,
    }
}

fn allowlists(pack: &Pack) -> Vec<Allowlist> {
    pack.prompts.values().map(Allowlist::of).collect()
}

/// Registry tools that no prompt of the pack lists (OM-294).
fn unlisted(names: &[String], allowlists: &[Allowlist]) -> Vec<String> {
    let listed = |name: &str| {
        allowlists
            .iter()
            .any(|list| list.admission(name) != Admission::NotListed)
    };
    names.iter().filter(|name| !listed(name)).cloned().collect()
}
