//! Deletion, finalizers, garbage collection and namespaces. Requirements KA-020 … KA-023.

use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    harness::{CONFIG_MAPS, Server, config_map},
    objects::deployment,
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut body = config_map(name, json!({}));
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block,
    }]);
    body
}

async fn gone(server: &Server, path: &str, watched: &str) {
    server
        .until(path, watched, |answer| answer.status == StatusCode::NOT_FOUND)
        .await;
}

#[tokio::test]
async fn a_deletion_answers_with_a_status_of_success() {
    let server = Server::start().await;
    let created = server.post(CONFIG_MAPS, &config_map("a", json!({}))).await.json();
    let answer = server.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!(
        answer.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
               "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}})
    );
    let answer = server.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!(
        (answer.status, answer.message()),
        (StatusCode::NOT_FOUND, "configmaps \"a\" not found".to_owned())
    );
}

#[tokio::test]
async fn a_deletion_keeps_to_its_preconditions_ka_022() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let answer = server
        .delete(&path, &json!({"preconditions": {"uid": "other"}}))
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(
        answer
            .message()
            .contains("the UID in the precondition (other) does not match the UID in record (")
    );
    let answer = server
        .delete(&path, &json!({"preconditions": {"resourceVersion": "1"}}))
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(server.get(&path).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_removed_ka_021() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut body = config_map("a", json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, &body).await;
    let held = server.delete(&path, &Value::Null).await.json();
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    let again = server.delete(&path, &Value::Null).await.json();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        held["metadata"]["resourceVersion"]
    );
    let answer = server
        .merge(
            &path,
            &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        )
        .await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer
            .message()
            .contains("no new finalizers can be added if the object is being deleted")
    );
    server
        .merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(server.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn dependents_follow_their_owner_in_the_background_ka_023() {
    let server = Server::start().await;
    let owner = server.post(DEPLOYMENTS, &deployment()).await.json();
    let child = server
        .post(CONFIG_MAPS, &owned("child", &owner, true))
        .await
        .json();
    let mut grandchild = child.clone();
    grandchild["apiVersion"] = json!("v1");
    grandchild["kind"] = json!("ConfigMap");
    server
        .post(CONFIG_MAPS, &owned("grandchild", &grandchild, false))
        .await;
    server
        .delete(
            &format!("{DEPLOYMENTS}/orders"),
            &json!({"propagationPolicy": "Background"}),
        )
        .await;
    gone(&server, &format!("{CONFIG_MAPS}/child"), CONFIG_MAPS).await;
    gone(&server, &format!("{CONFIG_MAPS}/grandchild"), CONFIG_MAPS).await;
}

#[tokio::test]
async fn an_object_whose_owner_never_was_is_collected_ka_023() {
    let server = Server::start().await;
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "uid": "none"}});
    server.post(CONFIG_MAPS, &owned("child", &owner, false)).await;
    gone(&server, &format!("{CONFIG_MAPS}/child"), CONFIG_MAPS).await;
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents_ka_023() {
    let server = Server::start().await;
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x", "uid": "none"}});
    server.post(CONFIG_MAPS, &owned("kept", &owner, false)).await;
    let absent =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "uid": "none"}});
    server
        .post(CONFIG_MAPS, &owned("z-collected-after", &absent, false))
        .await;
    gone(&server, &format!("{CONFIG_MAPS}/z-collected-after"), CONFIG_MAPS).await;
    assert_eq!(
        server.get(&format!("{CONFIG_MAPS}/kept")).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner_ka_023() {
    let server = Server::start().await;
    let owner = server.post(DEPLOYMENTS, &deployment()).await.json();
    server.post(CONFIG_MAPS, &owned("child", &owner, true)).await;
    server
        .delete(
            &format!("{DEPLOYMENTS}/orders"),
            &json!({"propagationPolicy": "Orphan"}),
        )
        .await;
    gone(&server, &format!("{DEPLOYMENTS}/orders"), DEPLOYMENTS).await;
    let child = server.get(&format!("{CONFIG_MAPS}/child")).await.json();
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_blocking_dependents_ka_023() {
    let server = Server::start().await;
    let owner = server.post(DEPLOYMENTS, &deployment()).await.json();
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(CONFIG_MAPS, &child).await;
    let path = format!("{DEPLOYMENTS}/orders");
    let waiting = server
        .delete(&path, &json!({"propagationPolicy": "Foreground"}))
        .await
        .json();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let child = format!("{CONFIG_MAPS}/child");
    server
        .until(&child, CONFIG_MAPS, |answer| {
            answer.json()["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    assert_eq!(server.get(&path).await.status, StatusCode::OK);
    server
        .merge(&child, &json!({"metadata": {"finalizers": null}}))
        .await;
    gone(&server, &path, DEPLOYMENTS).await;
}

#[tokio::test]
async fn objects_that_own_each_other_in_a_circle_block_nothing_ka_023() {
    for length in [2, 3] {
        let server = Server::start().await;
        let mut objects = Vec::new();
        for index in 0..length {
            let body = config_map(&format!("c{index}"), json!({}));
            let mut object = server.post(CONFIG_MAPS, &body).await.json();
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("ConfigMap");
            objects.push(object);
        }
        let path = |index: usize| format!("{CONFIG_MAPS}/c{index}");
        // The first is owned by the last, and each other by the one before it.
        for index in 0..length {
            let owner = &objects[(index + length - 1) % length];
            let references = owned("x", owner, true)["metadata"]["ownerReferences"].take();
            let patch = json!({"metadata": {"ownerReferences": references}});
            assert_eq!(server.merge(&path(index), &patch).await.status, StatusCode::OK);
        }
        server
            .delete(&path(0), &json!({"propagationPolicy": "Foreground"}))
            .await;
        for index in 0..length {
            gone(&server, &path(index), CONFIG_MAPS).await;
        }
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_its_selector_ka_020() {
    let server = Server::start().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = config_map(name, json!({}));
        body["metadata"]["labels"] = json!({"tier": tier});
        server.post(CONFIG_MAPS, &body).await;
    }
    let answer = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=tier%3Dx"), &Value::Null)
        .await;
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 2);
    let left = server.get(CONFIG_MAPS).await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

#[tokio::test]
async fn a_running_pod_gets_its_grace_period_and_a_pending_one_none_ka_010() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
               "spec": {"containers": [{"name": "main", "image": "mainstay"}]}})
    };
    let answer = server.post(path, &pod("pending")).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    let deleted = server.delete(&format!("{path}/pending"), &Value::Null).await;
    assert_eq!(deleted.json()["kind"], "Pod");
    assert_eq!(
        server.get(&format!("{path}/pending")).await.status,
        StatusCode::NOT_FOUND
    );
    server.post(path, &pod("bound")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "local"}});
    assert_eq!(
        server
            .post(&format!("{path}/bound/binding"), &binding)
            .await
            .status,
        StatusCode::CREATED
    );
    assert_eq!(
        server
            .post(&format!("{path}/bound/binding"), &binding)
            .await
            .status,
        StatusCode::CONFLICT
    );
    let dying = server.delete(&format!("{path}/bound"), &Value::Null).await.json();
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 30);
    let answer = server
        .delete(&format!("{path}/bound"), &json!({"gracePeriodSeconds": 0}))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        server.get(&format!("{path}/bound")).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_namespace_goes_with_its_content_and_refuses_more_meanwhile_ka_023() {
    let server = Server::start().await;
    let namespaces = "/api/v1/namespaces";
    let answer = server
        .post(
            namespaces,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        )
        .await;
    assert_eq!(answer.json()["status"]["phase"], "Active");
    let maps = "/api/v1/namespaces/shop/configmaps";
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(server.post(maps, &held).await.status, StatusCode::CREATED);
    server.post(maps, &config_map("free", json!({}))).await;
    let path = "/api/v1/namespaces/shop";
    let dying = server.delete(path, &Value::Null).await.json();
    assert_eq!(dying["status"]["phase"], "Terminating");
    gone(&server, &format!("{maps}/free"), maps).await;
    let refused = server.post(maps, &config_map("late", json!({}))).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refused.message(),
        "configmaps \"late\" is forbidden: unable to create new content in namespace shop because it is being terminated"
    );
    assert_eq!(
        refused.json()["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    server
        .merge(
            &format!("{maps}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    gone(&server, path, namespaces).await;
    let refused = server.delete("/api/v1/namespaces/default", &Value::Null).await;
    assert_eq!(
        refused.message(),
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test]
async fn every_namespace_has_a_default_service_account_ka_010() {
    let server = Server::start().await;
    assert_eq!(
        server
            .get("/api/v1/namespaces/default/serviceaccounts/default")
            .await
            .status,
        StatusCode::OK
    );
    server
        .post(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        )
        .await;
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    server
        .until(&format!("{accounts}/default"), accounts, |answer| {
            answer.status == StatusCode::OK
        })
        .await;
}

#[tokio::test]
async fn a_namespace_that_stays_says_what_holds_it_ka_023() {
    let server = Server::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "held"}});
    server.post("/api/v1/namespaces", &namespace).await;
    let mut body = config_map("a", json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post("/api/v1/namespaces/held/configmaps", &body).await;
    let path = "/api/v1/namespaces/held";
    server.delete(path, &Value::Null).await;
    let told = |answer: &super::harness::Answer| {
        let conditions = answer.json()["status"]["conditions"].to_string();
        conditions.contains("Some resources are remaining: configmaps. has 1 resource instances")
            && conditions.contains("example.com/hold in 1 resource instances")
    };
    server.until(path, "/api/v1/namespaces", told).await;
}

#[tokio::test]
async fn the_pods_of_a_namespace_go_before_anything_else_in_it_ka_023() {
    let server = Server::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.post("/api/v1/namespaces", &namespace).await;
    let (pods, maps) = (
        "/api/v1/namespaces/shop/pods",
        "/api/v1/namespaces/shop/configmaps",
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(server.post(pods, &pod).await.status, StatusCode::CREATED);
    server.post(maps, &config_map("needed", json!({}))).await;
    let path = "/api/v1/namespaces/shop";
    server.delete(path, &Value::Null).await;
    let told = |answer: &super::harness::Answer| {
        let conditions = answer.json()["status"]["conditions"].to_string();
        conditions.contains("Some resources are remaining: pods. has 1 resource instances\"")
    };
    server.until(path, "/api/v1/namespaces", told).await;
    let map = server.get(&format!("{maps}/needed")).await;
    assert_eq!(map.status, StatusCode::OK);
    assert!(map.json()["metadata"].get("deletionTimestamp").is_none());
    server
        .merge(
            &format!("{pods}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    gone(&server, path, "/api/v1/namespaces").await;
}

#[tokio::test]
async fn a_deleted_collection_is_answered_in_the_form_that_is_accepted_ka_007_ka_020() {
    let server = Server::start().await;
    server.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
    let request = http::Request::delete(format!("{CONFIG_MAPS}?fieldSelector=metadata.name=a"))
        .header(
            "accept",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        )
        .body(axum::body::Body::empty())
        .unwrap();
    let deleted = server.send(request).await.json();
    assert_eq!(deleted["kind"], "PartialObjectMetadataList");
    assert_eq!(deleted["items"][0]["metadata"]["name"], "a");
    assert_eq!(deleted["items"][0]["kind"], "PartialObjectMetadata");
}
