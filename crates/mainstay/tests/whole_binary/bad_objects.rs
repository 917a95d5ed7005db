//! Manifests and objects that are wrong: each is named with its place and its cause, and everything else goes on.

use serde_json::json;

use crate::support::{
    backend::Backend,
    desk,
    objects::{becomes, blocked, condition_of, create, edit, objects, omnia, reaches},
    server::Running,
    world::{World, assert_ran},
};

const MALFORMED: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: broken
data: [
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: whole
data:
  a: b
";

const UNKNOWN_FIELDS: &str = "# The second document has two words that nobody knows.
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: Provider
metadata:
  name: typo
spec:
  type: mock
  modle: x
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: typo
spec:
  replcas: 2
  selector:
    matchLabels: {app: typo}
  template:
    metadata:
      labels: {app: typo}
    spec:
      containers: [{name: a, image: mainstay}]
---
apiVersion: example.com/v1
kind: Dance
metadata:
  name: tango
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: Provider
metadata:
  name: wrong-type
spec:
  type: crystal-ball
";

const WRONG: &str = r#"apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolPolicy
metadata:
  name: bad
spec:
  selector: {registry: no-http}
  rules: [{name: half, deny: {cel: "body.id <", message: never}}]
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolRegistry
metadata:
  name: no-http
spec:
  handlers:
    - name: lookup
      type: http
      tool: {name: lookup, description: Looks up, inputSchema: {type: object}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: bad-pack
data:
  pack.json: |
    {"id": "Bad", "name": "x", "version": "1.0.0", "prompts": {}, "extra": 1,
     "template_engine": {"version": "v1", "syntax": "{{variable}}"}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: PromptPack
metadata:
  name: bad
spec:
  packName: bad
  version: 1.0.0
  source: {type: configmap, configMapRef: {name: bad-pack}}
---
apiVersion: v1
kind: Pod
metadata:
  name: foreign
spec:
  containers: [{name: web, image: "nginx:1.27"}]
---
apiVersion: v1
kind: Pod
metadata:
  name: dancer
spec:
  containers: [{name: main, image: mainstay, args: [dance]}]
"#;

const KEYED: &str = r#"apiVersion: omnia.altairalabs.ai/v1alpha1
kind: Provider
metadata: {name: keyed}
spec:
  type: openai
  model: m
  baseURL: http://[ADDRESS]/v1
  credential: {secretRef: {name: model-key, key: api-key}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: AgentRuntime
metadata: {name: keyed-model}
spec:
  promptPackRef: {name: desk}
  providers: [{name: default, providerRef: {name: keyed}}]
  facades: [{type: websocket}]
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolRegistry
metadata: {name: keyed}
spec:
  handlers:
    - name: get
      type: http
      httpConfig:
        endpoint: http://orders.default.svc.cluster.local/orders
        authType: bearer
        authSecretRef: {name: tool-key, key: token}
      tool: {name: get_order, description: Reads, inputSchema: {type: object}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: AgentRuntime
metadata: {name: keyed-tools}
spec:
  promptPackRef: {name: desk}
  toolRegistryRef: {name: keyed}
  providers: [{name: default, providerRef: {name: desk}}]
  facades: [{type: websocket}]
"#;

fn desk_world(backend: &Backend) -> World {
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    world
}

#[tokio::test]
async fn bad_manifests_are_named_with_file_line_and_field_and_the_others_are_applied() {
    let world = desk_world(&Backend::start(200));
    world.write("desk/malformed.yaml", MALFORMED);
    world.write("desk/unknown.yaml", UNKNOWN_FIELDS);
    world.write("desk/wrong.yaml", WRONG);
    assert_ran!("up_bad_manifests", world.detach(&["desk"]).await);
    let answer = world.run(&["chat", "desk", "-m", "hello"]).await.succeeded();
    assert_eq!(answer.stdout, "Hello.\n", "nothing else stops: {answer}");

    let client = crate::support::server::Endpoints::read(&world.data())
        .unwrap()
        .client()
        .await;
    let message = blocked(
        &omnia(&client, "ToolRegistry"),
        "no-http",
        "HandlersValid",
        "ValidationFailed",
    )
    .await;
    assert_eq!(
        message,
        "handler \"lookup\": spec.handlers[0].httpConfig: httpConfig is required for http handlers"
    );

    // OM-552: all findings together, each with its path.
    let message = blocked(
        &omnia(&client, "PromptPack"),
        "bad",
        "SchemaValid",
        "SchemaValidationFailed",
    )
    .await;
    assert!(message.starts_with("invalid pack.json: "), "{message}");
    for finding in ["/extra: ", "/id: ", "/prompts: "] {
        assert!(message.contains(finding), "{message}");
    }
    let events = objects(&client, "", "v1", "Event")
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    let event = events
        .items
        .iter()
        .find(|event| event.data["reason"] == "SchemaValidationFailed")
        .expect("an Event");
    assert_eq!(event.data["type"], "Warning");
    assert_eq!(event.data["involvedObject"]["name"], "bad");
    assert_eq!(event.data["message"], message.as_str());

    let message = blocked(&omnia(&client, "ToolPolicy"), "bad", "Compiled", "CompileError").await;
    assert!(message.contains("half"), "the rule is named: {message}");
    assert_ran!("status_bad_objects", world.run(&["status"]).await);

    let pods = objects(&client, "", "v1", "Pod");
    let message = blocked(&pods, "foreign", "Ready", "NoContainerEngine").await;
    assert!(message.contains("nginx:1.27"), "{message}");
    let message = blocked(&pods, "dancer", "Ready", "UnknownRole").await;
    assert!(
        message.contains("\"dance\"") && message.contains("agent, demo, mock-model"),
        "{message}"
    );
    for pod in ["foreign", "dancer"] {
        reaches(&pods, pod, "Pending").await;
    }
    world.run(&["down"]).await.succeeded();
}

#[tokio::test]
async fn om_257_an_agent_without_its_keys_waits_and_runs_when_they_come() {
    let backend = Backend::start(200);
    let world = desk_world(&backend);
    let server = world.up(&["desk"]);
    world.write(
        "keyed.yaml",
        &KEYED.replace("[ADDRESS]", &backend.address.to_string()),
    );
    world.run(&["apply", "-f", "keyed.yaml"]).await.succeeded();
    let client = server.client().await;
    let agents = omnia(&client, "AgentRuntime");
    let secrets = objects(&client, "", "v1", "Secret");

    let message = blocked(&agents, "keyed-tools", "DeploymentReady", "ToolAuthUnsupported").await;
    assert!(message.contains("tool-key"), "{message}");
    let failed = world.run(&["chat", "keyed-tools", "-m", "hello"]).await.failed();
    assert!(
        failed
            .stderr
            .contains("DeploymentReady is False (ToolAuthUnsupported)"),
        "{failed}"
    );
    let message = blocked(&agents, "keyed-model", "ProviderReady", "ProviderNotReady").await;
    assert!(
        message.contains("keyed") && message.contains("model-key"),
        "{message}"
    );
    blocked(
        &omnia(&client, "Provider"),
        "keyed",
        "SecretFound",
        "SecretNotFound",
    )
    .await;

    let secret = |name: &str, key: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { key: "s3cr3t" } });
    create(&secrets, secret("tool-key", "other")).await;
    let message = blocked(&agents, "keyed-tools", "DeploymentReady", "ToolAuthUnsupported").await;
    assert!(!message.contains("s3cr3t"), "{message}");
    create(&secrets, secret("model-key", "other")).await;
    blocked(
        &omnia(&client, "Provider"),
        "keyed",
        "SecretFound",
        "SecretKeyMissing",
    )
    .await;

    edit(
        &secrets,
        "tool-key",
        json!({ "stringData": { "token": "s3cr3t" } }),
    )
    .await;
    reaches(&agents, "keyed-tools", "Running").await;
    edit(
        &secrets,
        "model-key",
        json!({ "stringData": { "api-key": "s3cr3t" } }),
    )
    .await;
    reaches(&agents, "keyed-model", "Running").await;
    let log = std::fs::read_to_string(world.data().join("logs/mainstay.log")).unwrap();
    assert!(!log.contains("s3cr3t"), "secrets never reach the log");
}

#[tokio::test]
async fn contract_5_a_field_that_somebody_edited_is_a_conflict_and_nothing_is_pruned() {
    let backend = Backend::start(200);
    let world = desk_world(&backend);
    let server = world.up(&["desk"]);
    let running = Running { server, world };
    let client = running.server.client().await;
    let policies = omnia(&client, "ToolPolicy");
    let edited = json!({ "spec": { "selector": { "registry": "other" } } });
    edit(&policies, "desk", edited).await;

    // What `up` says of the registry follows from the edit as well.
    let registries = omnia(&client, "ToolRegistry");
    blocked(&registries, "desk", "PolicyBound", "NoPolicySelectsRegistry").await;
    assert_ran!("up_conflict", running.world.run(&["up", "desk"]).await);
    becomes(&policies, "desk", "left as it was edited", |policy| {
        policy["spec"]["selector"]["registry"] == "other"
    })
    .await;
    running
        .world
        .run(&["up", "--force-conflicts", "desk"])
        .await
        .succeeded();
    becomes(&policies, "desk", "taken over", |policy| {
        policy["spec"]["selector"]["registry"] == "desk"
    })
    .await;

    becomes(&registries, "desk", "selected again", |registry| {
        condition_of(registry, "PolicyBound").is_some_and(|bound| bound["status"] == "True")
    })
    .await;

    let manifests = std::fs::read_to_string(running.world.path("desk/desk.yaml")).unwrap();
    let fewer: Vec<&str> = manifests
        .split("---\n")
        .filter(|text| !text.contains("kind: ToolPolicy"))
        .collect();
    running.world.write("desk/desk.yaml", &fewer.join("---\n"));
    assert_ran!("up_left_behind", running.world.run(&["up", "desk"]).await);
    policies.get("desk").await.expect("it stays");
}
