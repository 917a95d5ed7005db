//! The ConfigMaps and Secrets that a Pod names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

/// Something that a Pod names is not there. The text names the object and the key, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Unresolved {
    pub(crate) message: String,
    /// Whether the API failed to answer, which is worth a retry by itself; else a change of the object is waited for.
    pub(crate) transient: bool,
}

impl Unresolved {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), transient: false }
    }

    fn transient(message: impl Into<String>) -> Self {
        Self { message: message.into(), transient: true }
    }
}

/// Reads ConfigMaps and Secrets of one namespace.
#[derive(Clone)]
pub(crate) struct Sources {
    config_maps: Api<ConfigMap>,
    secrets: Api<Secret>,
    namespace: String,
}

/// The files or variables of an object, by key.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

impl Sources {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            config_maps: Api::namespaced(client.clone(), namespace),
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// The data of a ConfigMap; empty where it is optional and absent.
    pub(crate) async fn config_map(&self, name: &str, optional: bool) -> Result<Data, Unresolved> {
        let found = self.config_maps.get_opt(name).await;
        match found.map_err(|error| Unresolved::transient(format!("configmap {name:?} cannot be read: {error}")))? {
            Some(found) => {
                let text = found.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
                let binary = found.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
                Ok(text.chain(binary).collect())
            }
            None if optional => Ok(Data::new()),
            None => Err(Unresolved::new(format!("configmap {name:?} not found in namespace {:?}", self.namespace))),
        }
    }

    /// The data of a Secret; empty where it is optional and absent.
    pub(crate) async fn secret(&self, name: &str, optional: bool) -> Result<Data, Unresolved> {
        let found = self.secrets.get_opt(name).await;
        match found.map_err(|error| Unresolved::transient(format!("secret {name:?} cannot be read: {error}")))? {
            Some(found) => Ok(found.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()),
            None if optional => Ok(Data::new()),
            None => Err(Unresolved::new(format!("secret {name:?} not found in namespace {:?}", self.namespace))),
        }
    }

    /// One key of a ConfigMap as text.
    pub(crate) async fn config_map_key(
        &self,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, Unresolved> {
        let data = self.config_map(name, optional).await?;
        one(data, "configmap", name, key, optional)
    }

    /// One key of a Secret as text.
    pub(crate) async fn secret_key(&self, name: &str, key: &str, optional: bool) -> Result<Option<String>, Unresolved> {
        let data = self.secret(name, optional).await?;
        one(data, "secret", name, key, optional)
    }
}

fn one(mut data: Data, kind: &str, name: &str, key: &str, optional: bool) -> Result<Option<String>, Unresolved> {
    match data.remove(key) {
        Some(value) => String::from_utf8(value)
            .map(Some)
            .map_err(|_| Unresolved::new(format!("key {key:?} of {kind} {name:?} is not text"))),
        None if optional => Ok(None),
        None => Err(Unresolved::new(format!("couldn't find key {key:?} in {kind} {name:?}"))),
    }
}
