//! AgentRuntime: resolves what an agent refers to, builds its workload when everything is usable, and says what is
//! missing when it is not (OM-252 … OM-295).
//!
//! Reading order: [`decision`] (the outcome table), [`gather`] (what is read), [`tools`] and [`models`] (what the agent
//! is told), [`workload`] (the objects), then this file, which puts them in order.

mod apply;
mod decision;
mod features;
mod gather;
mod models;
mod pods;
mod repair;
mod report;
mod tools;
mod watches;
mod workload;
mod written;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::ByteString;
use kube::{Api, Client, ResourceExt, api::Patch};
use mainstay_resources::{
    condition_types,
    names::AGENT_FINALIZER,
    omnia::{AgentRuntime, agent_runtime::Phase},
    reasons, validation,
};
use serde_json::json;

pub(crate) use self::watches::run;
use self::{
    decision::Blocked,
    gather::Gathered,
    report::{Built, Report},
    written::Written,
};
use crate::{
    error::{ReconcileError, is_not_found},
    events::{Notice, Publisher},
    options::ControllersOptions,
    status,
    work::{Dependencies, Next, Reconciler, Reference, named},
};

struct Controller {
    client: Client,
    options: ControllersOptions,
    publisher: Publisher,
    /// Secrets and ConfigMaps that each agent's last reconcile looked at.
    dependencies: Arc<Dependencies<Reference<AgentRuntime>>>,
    /// What was written of each agent's objects.
    written: Arc<Written>,
}

impl Controller {
    fn writer(&self) -> apply::Writer<'_> {
        apply::Writer {
            client: &self.client,
            written: &self.written,
        }
    }

    /// Everything of OM-255, in order. The first stage that is not usable ends it.
    async fn build(&self, agent: &AgentRuntime, report: &mut Report) -> Result<(), Stop> {
        let findings = validation::agent_runtime::validate(&agent.spec);
        if !findings.is_empty() {
            return Err(Stop::Blocked(Blocked {
                kind: condition_types::READY,
                reason: reasons::INVALID_SPEC,
                message: validation::join(&findings),
                phase: Phase::Failed,
                retry: false,
            }));
        }
        features::judge(&agent.spec)?;
        report.without_effect(&features::without_effect(&agent.spec));
        let gather = gather::Gather::new(self, agent);
        let source = gather.pack().await?;
        report.pack_found(&source.pack);
        let registry = gather.registry().await?;
        report.registry(&registry);
        let providers = gather.providers().await?;
        report.providers_found(&providers, models::are_mocked(agent));
        let gathered = gather.inputs(source, registry, providers, report).await?;
        Box::pin(self.apply(agent, &gathered, report)).await
    }

    async fn apply(
        &self,
        agent: &AgentRuntime,
        gathered: &Gathered,
        report: &mut Report,
    ) -> Result<(), Stop> {
        let objects = workload::build(agent, gathered, &self.options);
        let built = Box::pin(apply::apply(self.writer(), agent, objects)).await;
        match built {
            Ok(deployment) => {
                let ready = deployment
                    .status
                    .as_ref()
                    .and_then(|status| status.ready_replicas)
                    .unwrap_or(0);
                let cause = if ready > 0 {
                    None
                } else {
                    pods::cause(&self.client, agent).await?
                };
                report.built(&Built::new(&deployment, gathered, cause));
                Ok(())
            }
            Err(failures) => {
                report.build_failed(&failures);
                // The status names all of them; one is enough to try again.
                match failures.into_iter().next() {
                    Some(failure) => Err(Stop::Error(failure.error)),
                    None => Ok(()),
                }
            }
        }
    }

    /// Adds the finalizer, or removes it from an agent that is being deleted: what was generated goes with its owner
    /// (OM-250). Returns the agent when it is to be reconciled.
    async fn finalize(
        &self,
        agent: &AgentRuntime,
        api: &Api<AgentRuntime>,
    ) -> Result<Option<AgentRuntime>, ReconcileError> {
        let present = agent
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == AGENT_FINALIZER);
        let deleting = agent.metadata.deletion_timestamp.is_some();
        if present != deleting {
            return Ok((!deleting).then(|| agent.clone()));
        }
        let mut finalizers = agent.finalizers().to_vec();
        if deleting {
            finalizers.retain(|finalizer| finalizer != AGENT_FINALIZER);
        } else {
            finalizers.push(AGENT_FINALIZER.to_owned());
        }
        // The version makes it fail, and be tried again, when somebody else edits the list.
        let patch = json!({
            "metadata": { "resourceVersion": agent.resource_version(), "finalizers": finalizers },
        });
        match api
            .patch(&agent.name_any(), &status::parameters(), &Patch::Merge(&patch))
            .await
        {
            Ok(patched) => Ok((!deleting).then_some(patched)),
            Err(error) if is_not_found(&error) => Ok(None),
            // A conflict is tried again: what raised the version may be our own status write, which wakes nobody.
            Err(error) => Err(ReconcileError::api(format!(
                "finalize AgentRuntime {}",
                agent.name_any()
            ))(error)),
        }
    }
}

/// Why a build ended early.
enum Stop {
    /// Something that is recorded in the status.
    Blocked(Blocked),
    /// A credential of the tools is gone. These are left, and only these may be used from now on (OM-403).
    Withdrawn {
        blocked: Blocked,
        left: BTreeMap<String, ByteString>,
    },
    /// A call failed; the phase is kept (OM-257).
    Error(ReconcileError),
}

impl From<ReconcileError> for Stop {
    fn from(error: ReconcileError) -> Self {
        Stop::Error(error)
    }
}

impl From<Blocked> for Stop {
    fn from(blocked: Blocked) -> Self {
        Stop::Blocked(blocked)
    }
}

impl Reconciler<AgentRuntime> for Controller {
    async fn reconcile(&self, agent: &AgentRuntime) -> Result<Next, ReconcileError> {
        let namespace = agent.namespace().unwrap_or_default();
        let api: Api<AgentRuntime> = Api::namespaced(self.client.clone(), &namespace);
        self.dependencies.forget(&named(&agent.name_any(), &namespace));
        let Some(agent) = &self.finalize(agent, &api).await? else {
            return Ok(Next::AwaitChange);
        };
        let mut report = Report::new(
            agent,
            self.options.clock.now(),
            self.options.service_endpoint.clone(),
        );
        // Boxed: the futures of all the reads would otherwise lie on one stack frame.
        let outcome = match Box::pin(self.build(agent, &mut report)).await {
            Err(Stop::Withdrawn { blocked, left }) => {
                let secret = workload::tool_secrets(agent, &left);
                Err(match apply::withdraw(self.writer(), agent, &secret).await {
                    Ok(()) => Stop::Blocked(blocked),
                    Err(error) => Stop::Error(error),
                })
            }
            outcome => outcome,
        };
        let (result, write) = match outcome {
            Ok(()) => (Ok(Next::AwaitChange), true),
            Err(Stop::Blocked(blocked) | Stop::Withdrawn { blocked, .. }) => {
                let result = if blocked.retry {
                    Err(ReconcileError::Missing {
                        message: blocked.message.clone(),
                    })
                } else {
                    Ok(Next::AwaitChange)
                };
                report.blocked(&blocked);
                (result, true)
            }
            // A failed call says nothing about the agent, unless it was a write of its workload.
            Err(Stop::Error(error)) => (Err(error), report.has_build_failure()),
        };
        if write {
            let (new, notices) = report.finish();
            if status::write(&api, agent, &new).await? {
                self.publish(agent, notices).await;
            }
        }
        result
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

impl Controller {
    async fn publish(&self, agent: &AgentRuntime, notices: Vec<Notice>) {
        for notice in notices {
            self.publisher.publish(agent, notice).await;
        }
    }
}
