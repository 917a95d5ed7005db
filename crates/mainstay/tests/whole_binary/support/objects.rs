//! Objects of the Kubernetes API, as JSON.

use futures::TryStreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::watcher,
};
use serde_json::Value;

use super::DEADLINE;

/// Objects of an Omnia kind in `default`.
pub(crate) fn omnia(client: &Client, kind: &str) -> Api<DynamicObject> {
    objects(client, "omnia.altairalabs.ai", "v1alpha1", kind)
}

/// Objects of a kind in `default`.
pub(crate) fn objects(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Waits until the object `name` is as `wanted` says, and gives it.
pub(crate) async fn becomes(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = Value::Null;
    let waiting = async {
        let mut changes = Box::pin(watcher::watch_object(api.clone(), name));
        while let Some(change) = changes.try_next().await.expect("the watch goes on") {
            last = change
                .map(|object| serde_json::to_value(object).unwrap())
                .unwrap_or_default();
            if wanted(&last) {
                return true;
            }
        }
        false
    };
    if let Ok(true) = tokio::time::timeout(DEADLINE, waiting).await {
        return last;
    }
    panic!("{name} does not become {what}: {last:#}");
}

/// Waits until `status.phase` of the object `name` is `phase`.
pub(crate) async fn reaches(api: &Api<DynamicObject>, name: &str, phase: &str) -> Value {
    becomes(api, name, phase, |object| object["status"]["phase"] == phase).await
}

/// Waits until a condition of the object `name` is False for `reason`; gives its message.
pub(crate) async fn blocked(api: &Api<DynamicObject>, name: &str, condition: &str, reason: &str) -> String {
    let blocked = |object: &Value| {
        condition_of(object, condition)
            .filter(|found| found["status"] == "False")
            .cloned()
    };
    let object = becomes(api, name, &format!("{condition} False ({reason})"), |object| {
        blocked(object).is_some_and(|found| found["reason"] == reason)
    })
    .await;
    blocked(&object).unwrap()["message"].as_str().unwrap().to_owned()
}

/// A condition of an object.
pub(crate) fn condition_of<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == name)
}

/// A merge patch by `kubectl`.
pub(crate) async fn edit(api: &Api<DynamicObject>, name: &str, patch: Value) {
    let parameters = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
}

/// Creates an object.
pub(crate) async fn create(api: &Api<DynamicObject>, object: Value) {
    api.create(
        &kube::api::PostParams::default(),
        &serde_json::from_value(object).unwrap(),
    )
    .await
    .unwrap();
}
