//! ValidatingAdmissionPolicies: what vectors cannot show of them, because the reference does it otherwise or later.
//! Requirement KA-010.

use http::{Request, StatusCode, header};
use mainstay_kubeapi::{ApiOptions, Identity};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::{clock, random};
use serde_json::{Value, json};

use crate::{
    harness::{Answer, CONFIG_MAPS, Server, config_map},
    objects::deployment,
};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A policy about writes of these core resources, with these validations, and a binding of the same name.
async fn put_in_force(server: &Server, name: &str, resources: &[&str], spec: Value) {
    let mut spec = spec;
    spec["matchConstraints"] = json!({"resourceRules": [{
        "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": resources}]});
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    let answer = server.post(POLICIES, &policy).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    bind(server, name, &["Deny"]).await;
}

async fn bind(server: &Server, name: &str, actions: &[&str]) {
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": actions}});
    let answer = server.post(BINDINGS, &binding).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
}

fn denied(answer: &Answer, message: &str) {
    assert_eq!(
        answer.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{}",
        answer.message()
    );
    assert!(answer.message().ends_with(message), "{}", answer.message());
}

#[tokio::test]
async fn a_policy_is_in_force_from_the_answer_to_its_write_to_that_to_its_deletion_ka_010() {
    let server = Server::start().await;
    put_in_force(
        &server,
        "none",
        &["configmaps"],
        json!({"validations": [{"expression": "false", "message": "no"}]}),
    )
    .await;
    denied(
        &server.post(CONFIG_MAPS, &config_map("a", json!({}))).await,
        "denied request: no",
    );
    let changed = server
        .merge(
            &format!("{POLICIES}/none"),
            &json!({"spec": {"validations": [{"expression": "object.metadata.name != 'b'"}]}}),
        )
        .await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.message());
    assert_eq!(
        server.post(CONFIG_MAPS, &config_map("a", json!({}))).await.status,
        StatusCode::CREATED
    );
    denied(
        &server.post(CONFIG_MAPS, &config_map("b", json!({}))).await,
        "failed expression: object.metadata.name != 'b'",
    );
    server.delete(&format!("{BINDINGS}/none"), &Value::Null).await;
    assert_eq!(
        server.post(CONFIG_MAPS, &config_map("b", json!({}))).await.status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn policies_are_in_force_again_after_a_restart_ka_010() {
    let store = KubeStore::open(KubeOptions::in_memory()).unwrap();
    let options = || ApiOptions::new(store.clone(), clock::system(), random::system());
    let server = Server::over(options()).await;
    put_in_force(
        &server,
        "none",
        &["configmaps"],
        json!({"validations": [{"expression": "false"}]}),
    )
    .await;
    drop(server);
    let server = Server::over(options()).await;
    denied(
        &server.post(CONFIG_MAPS, &config_map("a", json!({}))).await,
        "failed expression: false",
    );
}

#[tokio::test]
async fn the_servers_own_work_passes_no_policy_ka_010_ka_023() {
    let server = Server::start().await;
    let owner = server
        .post(CONFIG_MAPS, &config_map("owner", json!({})))
        .await
        .json();
    let mut owned = config_map("owned", json!({}));
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    server.post(CONFIG_MAPS, &owned).await;
    let spec =
        json!({"validations": [{"expression": "oldObject == null || oldObject.metadata.name != 'owned'"}]});
    put_in_force(&server, "kept", &["configmaps"], spec).await;
    let path = format!("{CONFIG_MAPS}/owned");
    denied(
        &server.delete(&path, &Value::Null).await,
        "failed expression: oldObject == null || oldObject.metadata.name != 'owned'",
    );
    server.delete(&format!("{CONFIG_MAPS}/owner"), &Value::Null).await;
    server
        .until(&path, CONFIG_MAPS, |answer| {
            answer.status == StatusCode::NOT_FOUND
        })
        .await;
}

#[tokio::test]
async fn bindings_and_evictions_of_pods_are_judged_ka_010() {
    let server = Server::start().await;
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    for name in ["a", "kept"] {
        assert_eq!(server.post(PODS, &pod(name)).await.status, StatusCode::CREATED);
    }
    let spec = json!({"validations": [
        {"expression": "object.kind != 'Binding' || object.target.name != 'gone'",
         "messageExpression": "request.subResource + ' ' + request.name + ' to ' + object.target.name"},
        {"expression": "object.kind != 'Eviction' || request.name != 'kept'",
         "messageExpression": "request.subResource + ' of ' + object.metadata.name + ' ' + request.kind.kind"},
    ]});
    put_in_force(&server, "moves", &["pods/binding", "pods/eviction"], spec).await;
    let binding = |node: &str| json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": node}});
    let path = format!("{PODS}/a/binding");
    denied(
        &server.post(&path, &binding("gone")).await,
        "denied request: binding a to gone",
    );
    assert_eq!(
        server.post(&path, &binding("here")).await.status,
        StatusCode::CREATED
    );
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let answer = server
        .post(&format!("{PODS}/kept/eviction"), &eviction("kept"))
        .await;
    denied(&answer, "denied request: eviction of kept Eviction");
    let answer = server.post(&format!("{PODS}/a/eviction"), &eviction("a")).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
}

#[tokio::test]
async fn long_chains_of_variables_neither_exhaust_the_stack_nor_are_wrong_ka_010() {
    let server = Server::start().await;
    let mut variables = vec![json!({"name": "v0", "expression": "0"})];
    for index in 1..400 {
        // Nested, so that each takes some stack of its own.
        let expression = format!("[[variables.v{} + 1]].map(a, a.map(b, b))[0][0]", index - 1);
        variables.push(json!({"name": format!("v{index}"), "expression": expression}));
    }
    let spec = json!({"variables": variables, "validations": [
        {"expression": "variables.v399 < 0", "messageExpression": "string(variables.v399)"}]});
    put_in_force(&server, "chain", &["configmaps"], spec).await;
    denied(
        &server.post(CONFIG_MAPS, &config_map("a", json!({}))).await,
        "denied request: 399",
    );
}

#[tokio::test]
async fn a_deletion_of_many_warns_once_and_denies_by_the_first_ka_010() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, &config_map(name, json!({}))).await;
    }
    let spec = json!({"validations": [{"expression": "request.operation != 'DELETE'", "message": "noted"}]});
    put_in_force(&server, "noted", &["configmaps"], spec).await;
    denied(
        &server.delete(CONFIG_MAPS, &Value::Null).await,
        "denied request: noted",
    );
    server.delete(&format!("{BINDINGS}/noted"), &Value::Null).await;
    bind(&server, "noted", &["Warn"]).await;
    let answer = server.delete(CONFIG_MAPS, &Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        answer.warnings(),
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'noted' with binding 'noted': noted\""]
    );
}

#[tokio::test]
async fn several_policies_refuse_in_the_order_of_their_names_ka_010() {
    let server = Server::start().await;
    for name in ["second", "first"] {
        let spec = json!({"validations": [{"expression": "false", "message": name}]});
        put_in_force(&server, name, &["configmaps", "deployments"], spec).await;
    }
    denied(
        &server.post(CONFIG_MAPS, &config_map("a", json!({}))).await,
        "ValidatingAdmissionPolicy 'first' with binding 'first' denied request: first",
    );
    let answer = server
        .post("/apis/apps/v1/namespaces/default/deployments", &deployment())
        .await;
    denied(&answer, "'first' denied request: first");
}

#[tokio::test]
async fn an_author_is_asked_about_by_the_rights_of_the_moment_ka_010_ka_041() {
    let server = Server::start().await;
    let spec = json!({"validations": [{
        "expression": "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
        "message": "may not read secrets"}]});
    put_in_force(&server, "readers", &["configmaps"], spec).await;
    let create = |name: &str| {
        let mut request = Request::post(CONFIG_MAPS)
            .header(header::CONTENT_TYPE, "application/json")
            .body(axum::body::Body::from(config_map(name, json!({})).to_string()))
            .unwrap();
        request
            .extensions_mut()
            .insert(Identity::service_account("default", "writer"));
        request
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let grant = |name: &str, resource: &str| {
        (
            json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["*"]}]}),
            json!({"metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "writer", "namespace": "default"}]}),
        )
    };
    let (role, binding) = grant("maps", "configmaps");
    server.post(&format!("{roles}/roles"), &role).await;
    server.post(&format!("{roles}/rolebindings"), &binding).await;
    denied(
        &server.send_anonymously(create("a")).await,
        "denied request: may not read secrets",
    );
    let (role, binding) = grant("secrets", "secrets");
    server.post(&format!("{roles}/roles"), &role).await;
    server.post(&format!("{roles}/rolebindings"), &binding).await;
    assert_eq!(
        server.send_anonymously(create("a")).await.status,
        StatusCode::CREATED
    );
}
