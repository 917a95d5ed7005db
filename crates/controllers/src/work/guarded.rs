//! Objects that may not have the form of their kind.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use serde::{Deserialize, Deserializer, de::Error as _};

/// An object, or why it cannot be read.
///
/// What kube's [`DeserializeGuard`] is, which keeps a copy of every object for the case that it cannot be read: here that is
/// read twice which cannot, and every other object once. The watches of this crate see each ConfigMap of a cluster, four times.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, InvalidObject>);

impl<'de, K> Deserialize<'de> for Guarded<K>
where
    K: Resource + for<'any> Deserialize<'any>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if let Ok(object) = K::deserialize(&value) {
            return Ok(Self(Ok(object)));
        }
        let DeserializeGuard(object) = serde_json::from_value(value).map_err(D::Error::custom)?;
        Ok(Self(object))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_metadata_and_says_why_as_kube_does() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"containers": "none"}});
        let ours: Guarded<Pod> = serde_json::from_value(pod.clone()).unwrap();
        let DeserializeGuard(theirs) = serde_json::from_value::<DeserializeGuard<Pod>>(pod).unwrap();
        assert_eq!(ours.meta().name.as_deref(), Some("a"));
        assert_eq!(ours.0.unwrap_err().error, theirs.unwrap_err().error);
    }

    #[test]
    fn an_object_of_its_kind_is_read_from_text_and_value() {
        let text =
            r#"{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v\n"}}"#;
        let read: Guarded<ConfigMap> = serde_json::from_str(text).unwrap();
        let data = read.0.unwrap().data.unwrap();
        assert_eq!(data.get("k").map(String::as_str), Some("v\n"));
    }
}
