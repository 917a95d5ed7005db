//! Which families of kinds are served, and what becomes of faulty objects of Agent Kourier.

use kube::{Api, api::PostParams};
use serde_json::json;

use crate::support::{
    objects::{create, objects},
    server::Endpoints,
    world::World,
};

const GROUP: &str = "agentkourier.dev";

#[tokio::test]
async fn a_binding_with_two_faults_is_refused_with_both_ak_010() {
    let world = World::new();
    let server = world.up(&[]);
    let client = server.client().await;
    let bindings = objects(&client, GROUP, "v1alpha1", "Binding");
    let binding = |name: &str, channel: &str, identity: serde_json::Value| {
        json!({
            "apiVersion": "agentkourier.dev/v1alpha1", "kind": "Binding", "metadata": {"name": name},
            "spec": {"connectionRef": {"name": "team"}, "backendRef": {"name": "helpdesk"},
                     "chat": {"channel": channel}, "identity": identity},
        })
    };
    let refused = bindings
        .create(
            &PostParams::default(),
            &serde_json::from_value(binding("bad", "general", json!({}))).unwrap(),
        )
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let causes: Vec<(String, String)> = status
        .details
        .unwrap()
        .causes
        .into_iter()
        .map(|cause| (cause.field, cause.message))
        .collect();
    assert_eq!(
        causes,
        [
            (
                "spec.chat.channel".to_owned(),
                "Invalid value: \"general\": spec.chat.channel in body should match '^[CG][A-Z0-9]+$'"
                    .to_owned()
            ),
            (
                "spec.identity".to_owned(),
                "Invalid value: \"object\": set userId, tokenSecretRef, or both".to_owned()
            ),
        ]
    );
    create(&bindings, binding("good", "C0123", json!({"userId": "a"}))).await;
    let stored = bindings.get("good").await.unwrap();
    assert_eq!(stored.data["spec"]["suspend"], false, "defaults are stored");
}

#[tokio::test]
async fn a_family_that_is_left_out_is_not_served_and_one_that_was_served_keeps_its_objects() {
    let world = World::new();
    let server = world.up(&["--families", "omnia"]);
    let found = definitions(&server).await;
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        found.iter().all(|name| name.ends_with(".omnia.altairalabs.ai")),
        "{found:?}"
    );
    assert!(server.end().success());

    let server = world.up(&["--families", "kourier"]);
    let found = definitions(&server).await;
    assert_eq!(found.len(), 8, "the five stay: {found:?}");
    assert!(server.end().success());

    let unknown = world.run(&["up", "--families", "orka"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown}");
    assert!(unknown.stderr.contains("omnia, kourier"), "{unknown}");
}

/// The names of the definitions that a server has.
async fn definitions(endpoints: &Endpoints) -> Vec<String> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let client = endpoints.client().await;
    let found = Api::<CustomResourceDefinition>::all(client)
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    found
        .items
        .into_iter()
        .filter_map(|found| found.metadata.name)
        .collect()
}
