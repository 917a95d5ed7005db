use k8s_openapi::api::{core::v1::Secret, discovery::v1::EndpointSlice};
use mainstay_resources::omnia::{Provider, ToolPolicy, ToolRegistry, provider::Phase};
use serde_json::{Value, json};

use crate::world::{World, condition};

fn phase(provider: &Provider) -> Option<Phase> {
    provider.status.as_ref().and_then(|status| status.phase)
}

fn has(provider: &Provider, kind: &str, wanted: &str) -> bool {
    provider
        .status
        .as_ref()
        .is_some_and(|status| condition(&status.conditions, kind) == wanted)
}

/// A server that answers every connection with 401, which counts as reachable.
pub(crate) async fn server() -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    (address, serve(listener))
}

fn serve(listener: tokio::net::TcpListener) -> tokio::task::JoinHandle<()> {
    mainstay_telemetry::task::spawn("server", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The request is read first: closing with unread bytes would reset the connection.
            let mut request = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
            let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    })
}

fn provider(base: &str) -> Value {
    json!({
        "metadata": { "name": "model" },
        "spec": {
            "type": "openai", "model": "m", "baseURL": base,
            "credential": { "secretRef": { "name": "key" } },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_flips_the_phase_without_an_edit_of_the_provider_om_350() {
    let world = World::start().await;
    let (base, _server) = server().await;
    world.create::<Provider>(provider(&base)).await;
    let missing = world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Error)
        })
        .await;
    assert!(has(&missing, "SecretFound", "False SecretNotFound"));
    world
        .create::<Secret>(json!({ "metadata": { "name": "key" }, "stringData": { "other": "x" } }))
        .await;
    world
        .until("model", |provider: &Provider| {
            has(provider, "SecretFound", "False SecretKeyMissing")
        })
        .await;
    world
        .merge::<Secret>("key", json!({ "stringData": { "OPENAI_API_KEY": "sk-1" } }))
        .await;
    let ready = world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Ready)
        })
        .await;
    assert!(
        has(&ready, "EndpointReachable", "True EndpointReachable"),
        "any answer will do (OM-349)"
    );
    assert!(ready.status.as_ref().unwrap().last_validated.is_some());
    world.delete::<Secret>("key").await;
    world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Error)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_does_not_answer_makes_the_provider_unavailable_om_349() {
    let world = World::start().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", closed.local_addr().unwrap());
    drop(closed);
    world
        .create::<Secret>(json!({ "metadata": { "name": "key" }, "stringData": { "api-key": "sk-1" } }))
        .await;
    world.create::<Provider>(provider(&base)).await;
    let unavailable = world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Unavailable)
        })
        .await;
    assert!(has(
        &unavailable,
        "EndpointReachable",
        "False EndpointUnreachable"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_with_its_service_makes_the_provider_ready_at_once() {
    let world = World::start().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    world
        .create::<Secret>(json!({ "metadata": { "name": "key" }, "stringData": { "api-key": "sk-1" } }))
        .await;
    // The one name that leads to this machine stands for that of a Service.
    let base = format!("http://localhost:{}/v1", address.port());
    world.create::<Provider>(provider(&base)).await;
    world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Unavailable)
        })
        .await;
    let _server = serve(tokio::net::TcpListener::bind(address).await.unwrap());
    world
        .create::<EndpointSlice>(json!({
            "metadata": { "name": "localhost-1", "labels": { "kubernetes.io/service-name": "localhost" } },
            "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }], "ports": [],
        }))
        .await;
    world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Ready)
        })
        .await;
}

/// Kinds of an installation that knows more words than this version: objects can be stored that it cannot read.
fn looser(document: &mut Value) {
    if document["metadata"]["name"] == "providers.omnia.altairalabs.ai" {
        let spec = &mut document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["type"].as_object_mut().unwrap().remove("enum");
        spec.as_object_mut().unwrap().remove("x-kubernetes-validations");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_disturbs_no_other_dd_2() {
    let world = World::with(looser, |_| {}).await;
    let odd: kube::api::DynamicObject = serde_json::from_value(json!({
        "apiVersion": "omnia.altairalabs.ai/v1alpha1", "kind": "Provider",
        "metadata": { "name": "odd" }, "spec": { "type": "from-the-future" },
    }))
    .unwrap();
    let resource = kube::api::ApiResource::erase::<Provider>(&());
    let untyped: kube::Api<kube::api::DynamicObject> =
        kube::Api::namespaced_with(world.client.clone(), crate::world::NAMESPACE, &resource);
    untyped
        .create(&kube::api::PostParams::default(), &odd)
        .await
        .unwrap();
    world
        .create::<Provider>(json!({ "metadata": { "name": "model" }, "spec": { "type": "mock" } }))
        .await;
    world
        .until("model", |provider: &Provider| {
            phase(provider) == Some(Phase::Ready)
        })
        .await;
    let events = world.events("Provider", "odd", 1).await;
    assert!(
        events.iter().all(|(reason, _)| reason == "InvalidSpec"),
        "{events:?}"
    );
    // The other controllers go on as well.
    world
        .create::<ToolRegistry>(
            json!({ "metadata": { "name": "r" }, "spec": { "handlers": [{ "name": "a", "type": "http" }] } }),
        )
        .await;
    world
        .until("r", |registry: &ToolRegistry| {
            registry.status.as_ref().is_some_and(|status| {
                condition(&status.conditions, "HandlersValid") == "False ValidationFailed"
            })
        })
        .await;
    assert!(
        world
            .api::<ToolPolicy>()
            .list(&kube::api::ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
