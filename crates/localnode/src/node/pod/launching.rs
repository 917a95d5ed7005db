//! A container's work: its role as a task of this process, or a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use mainstay_workload::process::{KubernetesAccess, Port, Start};
use mainstay_workload::{FileRoot, Identity, LogSink, Readiness, Role, WorkloadContext, WorkloadLog};
use tokio_util::sync::CancellationToken;

use super::{Worker, foreign};
use crate::ProcessOptions;
use crate::logs::RunLog;
use crate::node::container::{ContainerPorts, Outcome, as_task};
use crate::node::environment::{ConfigError, service_account};
use crate::node::objects::Objects;
use crate::node::process::{Process, api_variables};
use crate::node::tokens::{TokenKey, Tokens};
use crate::node::volumes::FileContent;
use crate::node::{Shared, image, quantity};

/// Mode of the files by which a container speaks to the Kubernetes API.
const ACCESS_MODE: u32 = 0o600;
/// The same where the container runs in an engine.
const SHARED_ACCESS_MODE: u32 = 0o644;

/// A container that is to run.
pub(super) struct Launch<'a> {
    pub(super) container: &'a Container,
    /// The role's name and the role.
    pub(super) role: (String, Arc<dyn Role>),
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) root: PathBuf,
    pub(super) log: Arc<RunLog>,
    pub(super) readiness: Readiness,
    pub(super) cancellation: CancellationToken,
}

/// The tokens that a Pod needs: those of its volumes, and in a process of its own one for the API.
pub(super) fn tokens(pod: &Pod, shared: &Shared) -> Tokens {
    let tokens = Tokens::of(pod);
    let isolated = shared
        .processes
        .as_ref()
        .is_some_and(|processes| wants_access(pod, processes));
    if isolated || foreign::wants_access(pod, shared) {
        tokens.and(TokenKey::of_the_api())
    } else {
        tokens
    }
}

/// Whether a Pod has a process of its own that wants to speak to the API.
fn wants_access(pod: &Pod, processes: &ProcessOptions) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let isolated = |container: &Container| {
        let role = image::words(container).into_iter().next();
        role.is_some_and(|role| processes.roles.contains(&role))
    };
    spec.automount_service_account_token != Some(false) && image::containers(spec).any(isolated)
}

impl Worker {
    /// Writes the files by which the Pod's processes speak to the API.
    pub(super) fn write_access(&self, found: &Objects) -> Result<(), ConfigError> {
        let isolated = self.shared.processes.as_deref();
        let in_engine = foreign::wants_access(&self.pod, &self.shared);
        let engines = self.shared.engines.as_ref().filter(|_| in_engine);
        let authority = match (isolated, engines) {
            (Some(processes), _) => &processes.certificate_authority,
            (None, Some(engines)) => &engines.options.certificate_authority,
            (None, None) => return Ok(()),
        };
        let file = |bytes: &[u8]| FileContent {
            bytes: bytes.to_owned(),
            // In a container the user may be anybody; nobody else gets to the Pod's folder.
            mode: if in_engine {
                SHARED_ACCESS_MODE
            } else {
                ACCESS_MODE
            },
        };
        let mut files = BTreeMap::from([
            ("ca.crt".to_owned(), file(authority.as_bytes())),
            ("namespace".to_owned(), file(self.namespace.as_bytes())),
        ]);
        let wants_access = isolated.is_some_and(|processes| wants_access(&self.pod, processes));
        if (wants_access || in_engine)
            && let Some(token) = found.tokens.get(&TokenKey::of_the_api())
        {
            files.insert("token".to_owned(), file(token.text.as_bytes()));
        }
        self.files.write_access(files, &self.shared.stamp())
    }

    /// The work of a container.
    pub(super) fn launch(&mut self, launch: Launch<'_>) -> Result<BoxFuture<'static, Outcome>, ConfigError> {
        let (name, role) = &launch.role;
        let ports = ContainerPorts {
            pods: self.shared.pods.clone(),
            uid: self.uid.clone(),
            container: launch.container.name.clone(),
            declared: self.declared.clone(),
        };
        if let Some(processes) = self.shared.processes.clone() {
            if processes.roles.contains(name) {
                return self.as_process(processes, launch, ports);
            }
            let note = format!(
                "Container {} runs inside the server: the role `{name}` shares its state with it and does not run as a process yet",
                launch.container.name
            );
            self.note(false, "NotIsolated", note);
        }
        let role = Arc::clone(role);
        let service_account = service_account(&self.pod);
        let connector = self
            .shared
            .connector(&self.namespace)
            .map_err(|error| ConfigError::Write {
                place: format!("container {:?}", launch.container.name),
                error: error.to_string(),
            })?;
        let context = WorkloadContext {
            arguments: launch.arguments,
            environment: launch.environment,
            files: FileRoot::at(launch.root),
            connector,
            log: WorkloadLog::new(launch.log as Arc<dyn LogSink>),
            identity: Identity {
                client: self.shared.clients.client(&self.namespace, &service_account),
                namespace: self.namespace.clone(),
                service_account,
                pod: self.pod.name_any(),
            },
            ports: Arc::new(ports),
            readiness: launch.readiness,
            cancellation: launch.cancellation,
            server: None,
        };
        Ok(as_task(role, context).boxed())
    }

    fn as_process(
        &self,
        processes: Arc<ProcessOptions>,
        launch: Launch<'_>,
        ports: ContainerPorts,
    ) -> Result<BoxFuture<'static, Outcome>, ConfigError> {
        let container = launch.container;
        let access = self.files.access();
        let wants_access = wants_access(&self.pod, &processes);
        if wants_access {
            self.files.mount_access(&container.name)?;
        }
        let mut environment = api_variables(&processes.kubernetes);
        environment.extend(launch.environment);
        let own_ports = self
            .declared
            .iter()
            .filter(|declared| declared.container == container.name);
        let limits = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        let start = Start {
            role: launch.role.0,
            arguments: launch.arguments,
            environment,
            root: launch.root,
            namespace: self.namespace.clone(),
            pod: self.pod.name_any(),
            container: container.name.clone(),
            service_account: service_account(&self.pod),
            ports: own_ports
                .map(|declared| Port {
                    name: declared.name.clone(),
                    number: declared.number,
                })
                .collect(),
            kubernetes: KubernetesAccess {
                server: processes.kubernetes.clone(),
                certificate_authority: access.join("ca.crt"),
                token: wants_access.then(|| access.join("token")),
            },
            services: self.shared.services.routes(),
            memory_limit: limits
                .and_then(|limits| limits.get("memory"))
                .and_then(|memory| quantity::bytes(&memory.0)),
        };
        let process = Process {
            options: processes,
            start,
            services: self.shared.services.clone(),
            ports,
            log: launch.log,
            readiness: launch.readiness,
            cancellation: launch.cancellation,
        };
        Ok(process.run().boxed())
    }
}
