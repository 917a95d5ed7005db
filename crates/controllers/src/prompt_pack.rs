//! PromptPack: whether a version is usable, and whether it is the one its pack serves (OM-297 … OM-318).

mod decision;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch},
    core::DeserializeGuard,
};
use mainstay_resources::{
    names,
    omnia::{
        AgentRuntime, PromptPack,
        prompt_pack::{CONTENT_KEY, Phase, SourceType},
    },
    pack_version::PackVersion,
};
use tokio_util::sync::CancellationToken;

use self::decision::{Content, Inputs};
use crate::{
    error::{ReconcileError, is_not_found},
    events::Publisher,
    options::ControllersOptions,
    status,
    work::{Change, Next, Reconciler, Revision, Seen, Work, matching, reference},
};

/// The content of a ConfigMap's `pack.json`, whichever way it is stored.
pub(crate) fn content(config_map: &ConfigMap) -> Option<Vec<u8>> {
    let text = config_map
        .data
        .as_ref()
        .and_then(|data| data.get(CONTENT_KEY))
        .map(|text| text.clone().into_bytes());
    text.or_else(|| {
        config_map
            .binary_data
            .as_ref()
            .and_then(|data| data.get(CONTENT_KEY))
            .map(|bytes| bytes.0.clone())
    })
}

struct Controller {
    client: Client,
    options: ControllersOptions,
    publisher: Publisher,
}

impl Controller {
    async fn content(&self, pack: &PromptPack, namespace: &str) -> Result<Content, ReconcileError> {
        let source = &pack.spec.source;
        if source.kind == SourceType::Live {
            return Ok(Content::NotRead);
        }
        let Some(reference) = &source.config_map_ref else {
            return Ok(Content::NotRead);
        };
        let name = &reference.name;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let config_map = api
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(format!("read ConfigMap {namespace}/{name}")))?;
        Ok(match config_map {
            None => Content::Missing(format!("ConfigMap {name:?} does not exist")),
            Some(config_map) => match content(&config_map) {
                None => Content::Missing(format!("ConfigMap {name:?} has no key {CONTENT_KEY:?}")),
                Some(bytes) => Content::Bytes(bytes),
            },
        })
    }

    /// The validated published versions of the same pack, without this one.
    async fn validated_siblings(
        &self,
        pack: &PromptPack,
        namespace: &str,
    ) -> Result<Vec<PackVersion>, ReconcileError> {
        let api: Api<DeserializeGuard<PromptPack>> = Api::namespaced(self.client.clone(), namespace);
        let packs = api
            .list(&ListParams::default())
            .await
            .map_err(ReconcileError::api(format!(
                "list the PromptPacks of {namespace}"
            )))?;
        let siblings = packs
            .into_iter()
            .filter_map(|guarded| guarded.0.ok())
            .filter(|sibling| {
                sibling.spec.pack_name == pack.spec.pack_name
                    && sibling.name_any() != pack.name_any()
                    && sibling.spec.source.kind != SourceType::Live
                    && sibling.metadata.deletion_timestamp.is_none()
                    && sibling
                        .status
                        .as_ref()
                        .is_some_and(|status| matches!(status.phase, Some(Phase::Active | Phase::Superseded)))
            });
        Ok(siblings
            .filter_map(|sibling| decision::version(&sibling))
            .collect())
    }

    async fn count_agents(&self, pack: &PromptPack, namespace: &str) -> Result<usize, ReconcileError> {
        let api: Api<DeserializeGuard<AgentRuntime>> = Api::namespaced(self.client.clone(), namespace);
        let agents = api
            .list(&ListParams::default())
            .await
            .map_err(ReconcileError::api(format!(
                "list the AgentRuntimes of {namespace}"
            )))?;
        let refers = |agent: &AgentRuntime| agent.spec.prompt_pack_ref.name == pack.spec.pack_name;
        Ok(agents
            .iter()
            .filter(|guarded| guarded.0.as_ref().is_ok_and(refers))
            .count())
    }

    /// OM-173. Selection never depends on the label, so an object that cannot take it (a pack name that is no label
    /// value) is left without.
    async fn stamp_label(&self, pack: &PromptPack, api: &Api<PromptPack>) -> Result<(), ReconcileError> {
        let wanted = &pack.spec.pack_name;
        if pack.labels().contains_key(names::PROMPT_PACK_LABEL) || !is_label_value(wanted) {
            return Ok(());
        }
        let patch = serde_json::json!({ "metadata": { "labels": { names::PROMPT_PACK_LABEL: wanted } } });
        match api
            .patch(&pack.name_any(), &status::parameters(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(ReconcileError::api(format!(
                "label PromptPack {}",
                pack.name_any()
            ))(error)),
        }
    }
}

fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

impl Reconciler<PromptPack> for Controller {
    async fn reconcile(&self, pack: &PromptPack) -> Result<Next, ReconcileError> {
        if pack.metadata.deletion_timestamp.is_some() {
            return Ok(Next::AwaitChange);
        }
        let namespace = pack.namespace().unwrap_or_default();
        let inputs = Inputs {
            content: self.content(pack, &namespace).await?,
            validated_siblings: self.validated_siblings(pack, &namespace).await?,
            agents: self.count_agents(pack, &namespace).await?,
        };
        let (new, notices) = decision::status(pack, &inputs, self.options.clock.now());
        let api = Api::namespaced(self.client.clone(), &namespace);
        if status::write(&api, pack, &new).await? {
            for notice in notices {
                self.publisher.publish(pack, notice).await;
            }
        }
        self.stamp_label(pack, &api).await?;
        Ok(Next::AwaitChange)
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

/// What a pack's siblings and agents depend on.
#[derive(Clone, PartialEq)]
struct Standing {
    phase: Option<Phase>,
    version: String,
    uid: Option<String>,
}

/// Runs until cancelled.
pub(crate) async fn run(client: Client, options: ControllersOptions, cancellation: CancellationToken) {
    let mut work: Work<PromptPack> = Work::new("prompt-pack-controller", client.clone(), cancellation);
    // A version that changes its phase, comes or goes wakes the others of its pack (OM-298, OM-309); its other status
    // writes do not, or each would wake all.
    let store = work.store();
    let mut standings: Seen<Standing> = Seen::new();
    let mut revisions = Seen::new();
    work.own(move |guarded, change| {
        let standing = match (&guarded.0, change) {
            (Ok(pack), Change::Applied) => Some(Standing {
                phase: pack.status.as_ref().and_then(|status| status.phase),
                version: pack.spec.version.clone(),
                uid: pack.metadata.uid.clone(),
            }),
            _ => None,
        };
        let revised = revisions.changed(guarded, Revision::of(guarded, change));
        let standing_changed = standings.changed(guarded, standing);
        let mut references = Vec::new();
        if revised || standing_changed {
            references.push(reference(guarded));
        }
        if standing_changed && let Ok(pack) = &guarded.0 {
            references.extend(matching(
                &store,
                guarded.meta().namespace.as_deref(),
                |sibling: &PromptPack| sibling.spec.pack_name == pack.spec.pack_name,
            ));
        }
        references
    });
    let store = work.store();
    work.also::<ConfigMap>(move |config_map, _| {
        let name = config_map.name_any();
        matching(
            &store,
            config_map.meta().namespace.as_deref(),
            |pack: &PromptPack| {
                pack.spec
                    .source
                    .config_map_ref
                    .as_ref()
                    .is_some_and(|reference| reference.name == name)
            },
        )
    });
    let store = work.store();
    let mut references: Seen<String> = Seen::new();
    work.also::<AgentRuntime>(move |guarded, change| {
        let pack_name = match (&guarded.0, change) {
            (Ok(agent), Change::Applied) => Some(agent.spec.prompt_pack_ref.name.clone()),
            _ => None,
        };
        let before = references.replace(guarded, pack_name.clone());
        if before == pack_name {
            return Vec::new();
        }
        matching(
            &store,
            guarded.meta().namespace.as_deref(),
            |pack: &PromptPack| {
                [&before, &pack_name]
                    .into_iter()
                    .flatten()
                    .any(|name| *name == pack.spec.pack_name)
            },
        )
    });
    let controller = Controller {
        publisher: Publisher::new(
            client.clone(),
            options.clock.clone(),
            options.random.clone(),
            "promptpack-controller",
        ),
        client,
        options,
    };
    work.run(1, controller).await;
}
