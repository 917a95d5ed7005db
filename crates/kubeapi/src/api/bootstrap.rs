//! What has to be there before the first request. Requirement KA-010.

use serde_json::{Value, json};

use super::{Api, OpenError};
use crate::{
    builtin::services,
    custom::DEFINITIONS,
    status::Reason,
    write::{Intention, WriteRequest},
};

/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Api {
    /// Reads what is stored into the registry and the index of owners.
    pub(super) fn load(&self) -> Result<(), OpenError> {
        self.registry()
            .refresh(self.store())
            .map_err(|(name, source)| OpenError::Stored {
                resource: DEFINITIONS.to_owned(),
                name,
                source,
            })?;
        for resource in self.stored_resources() {
            for stored in self.store().list(&resource, None).items {
                let object: Value =
                    serde_json::from_slice(&stored.value).map_err(|source| OpenError::Stored {
                        resource: resource.clone(),
                        name: stored.key.name.to_string(),
                        source,
                    })?;
                self.aftermath().recall(&stored.key, &object, stored.revision);
            }
        }
        Ok(())
    }

    /// Every place of the store that a served kind keeps its objects in, or a definition whose kinds are not served, once
    /// each: the owners and dependents among the latter count as soon as the definition is corrected.
    fn stored_resources(&self) -> Vec<String> {
        let snapshot = self.registry().snapshot();
        let mut resources: Vec<String> = snapshot
            .kinds
            .all()
            .iter()
            .map(|kind| kind.storage_resource.as_str())
            .chain(snapshot.defined_resources())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        resources.sort();
        resources.dedup();
        resources
    }

    pub(super) async fn ensure_namespaces(&self) -> Result<(), OpenError> {
        for name in NAMESPACES {
            self.ensure("Namespace", "namespaces", "", name).await?;
            self.ensure("ServiceAccount", "serviceaccounts", name, "default")
                .await?;
        }
        Ok(())
    }

    /// Creates a core object that has nothing but its name, unless it is there.
    pub(crate) async fn ensure(
        &self,
        kind: &'static str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), OpenError> {
        let snapshot = self.registry().snapshot();
        let Some(info) = snapshot.kinds.lookup("", "v1", plural) else {
            return Ok(());
        };
        if self
            .store()
            .get(&crate::commit::key(&info.storage_resource, namespace, name))
            .is_some()
        {
            return Ok(());
        }
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let request = WriteRequest::by_server(info, snapshot, namespace, "", Intention::Create(body));
        match self.write(request).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason == Reason::AlreadyExists => Ok(()),
            Err(source) => Err(OpenError::Bootstrap {
                kind,
                name: name.to_owned(),
                source,
            }),
        }
    }

    /// Makes the Service that programs look for an API server by, or corrects it. Its endpoint is this process, which
    /// workloads reach in other ways, so there are no endpoints.
    ///
    /// Users can take its name or its address. Nothing here needs it, so that is reported and stops nothing.
    pub(crate) async fn publish_service(&self, port: u16) {
        let snapshot = self.registry().snapshot();
        let Some(info) = snapshot.kinds.lookup("", "v1", "services") else {
            return;
        };
        let configuration = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": services::API_SERVER,
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            },
        });
        let intention = Intention::Apply {
            configuration,
            force: true,
        };
        let request = WriteRequest::by_server(info, snapshot, "default", "kubernetes", intention);
        if let Err(error) = self.write(request).await {
            tracing::error!(
                service = "default/kubernetes",
                address = services::API_SERVER,
                reason = error.reason.as_str(),
                %error,
                hint = "delete the Service that has this name or this address and start again",
                "the Service of the API server was not written; programs that look for it find another one or none"
            );
        }
    }
}
