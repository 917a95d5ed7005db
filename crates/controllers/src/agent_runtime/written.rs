//! What was written last of each generated object. Most reconciles of an agent are about its pods: one that would write what
//! is there already writes nothing, and reads what it would have written.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt, core::ObjectMeta};
use mainstay_resources::omnia::AgentRuntime;
use serde::Serialize;
use serde_json::Value;

/// The namespace and the name of an agent.
type Agent = (String, String);
/// The kind and the name of an object in the agent's namespace.
type Object = (String, String);

/// What was rendered, and what the API made of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pair {
    rendered: u64,
    stored: u64,
}

/// See the module. In memory: after a start everything is applied once.
#[derive(Default)]
pub(super) struct Written(Mutex<HashMap<Agent, BTreeMap<Object, Pair>>>);

impl Written {
    /// Whether `existing` is what the API made of `rendered` when it was written last.
    pub(super) fn holds<K>(&self, agent: &AgentRuntime, rendered: &Value, existing: &K) -> bool
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let Some(now) = pair(rendered, existing) else {
            return false;
        };
        let known = self.lock();
        let of_agent = known.get(&key(&agent.metadata));
        of_agent.and_then(|objects| objects.get(&object(existing))) == Some(&now)
    }

    /// `stored` is what the API made of `rendered`.
    pub(super) fn note<K>(&self, agent: &AgentRuntime, rendered: &Value, stored: &K)
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let mut known = self.lock();
        let objects = known.entry(key(&agent.metadata)).or_default();
        match pair(rendered, stored) {
            Some(pair) => objects.insert(object(stored), pair),
            None => objects.remove(&object(stored)),
        };
    }

    /// The agent is gone.
    pub(super) fn forget(&self, agent: &ObjectMeta) {
        self.lock().remove(&key(agent));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Agent, BTreeMap<Object, Pair>>> {
        // Every critical section is one look or one insertion; a panic inside one leaves the map usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(agent: &ObjectMeta) -> Agent {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (text(&agent.namespace), text(&agent.name))
}

fn object<K: Resource<DynamicType = ()>>(object: &K) -> Object {
    (K::kind(&()).into_owned(), object.name_any())
}

fn pair<K: Serialize>(rendered: &Value, stored: &K) -> Option<Pair> {
    let mut stored = serde_json::to_value(stored).ok()?;
    // What changes without anybody changing what we write.
    stored.as_object_mut()?.remove("status");
    if let Some(metadata) = stored.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    Some(Pair {
        rendered: hash(rendered),
        stored: hash(&stored),
    })
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    fn service(change: impl FnOnce(&mut Value)) -> Service {
        let mut service = json!({
            "metadata": { "name": "a", "resourceVersion": "7", "managedFields": [{ "manager": "us" }] },
            "spec": { "ports": [{ "port": 80 }] },
        });
        change(&mut service);
        serde_json::from_value(service).unwrap()
    }

    #[test]
    fn om_253_only_what_is_as_it_was_written_is_not_written_again() {
        let agent = AgentRuntime::new(
            "a",
            serde_json::from_value(json!({ "promptPackRef": { "name": "p" }, "facades": [] })).unwrap(),
        );
        let (rendered, written) = (
            json!({ "spec": { "ports": [{ "port": 80 }] } }),
            Written::default(),
        );
        let stored = service(|_| {});
        assert!(!written.holds(&agent, &rendered, &stored));
        written.note(&agent, &rendered, &stored);
        assert!(written.holds(&agent, &rendered, &stored));
        let of_a_controller = service(|service| {
            service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
            service["metadata"]["resourceVersion"] = json!("8");
            service["metadata"]["managedFields"] = json!([{ "manager": "us" }, { "manager": "them" }]);
        });
        assert!(written.holds(&agent, &rendered, &of_a_controller));
        for edited in [
            service(|service| service["spec"]["ports"][0]["port"] = json!(81)),
            service(|service| service["metadata"]["labels"] = json!({ "theirs": "too" })),
            service(|service| service["metadata"]["name"] = json!("b")),
        ] {
            assert!(!written.holds(&agent, &rendered, &edited));
        }
        assert!(!written.holds(&agent, &json!({ "spec": {} }), &stored));
        written.forget(&agent.metadata);
        assert!(!written.holds(&agent, &rendered, &stored));
    }
}
