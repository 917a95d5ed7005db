//! Lists: pages, versions, selectors and forms. Requirements KA-007, KA-024, KA-025.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{CONFIG_MAPS, Server, config_map};

async fn with_objects(count: usize) -> Server {
    let server = Server::start().await;
    for index in 0..count {
        let mut body = config_map(&format!("m{index:02}"), json!({"k": index.to_string()}));
        body["metadata"]["labels"] = json!({"parity": if index % 2 == 0 { "even" } else { "odd" }});
        assert_eq!(server.post(CONFIG_MAPS, &body).await.status, StatusCode::CREATED);
    }
    server
}

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_one_snapshot_ka_025() {
    let server = with_objects(5).await;
    let first = server.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["m00".into(), "m01".into()], &json!(3))
    );
    server.post(CONFIG_MAPS, &config_map("m02a", json!({}))).await;
    server.delete(&format!("{CONFIG_MAPS}/m03"), &Value::Null).await;
    let mut seen = names(&first);
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    loop {
        let page = server
            .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
            .await
            .json();
        assert_eq!(
            page["metadata"]["resourceVersion"],
            first["metadata"]["resourceVersion"]
        );
        seen.extend(names(&page));
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, vec!["m00", "m01", "m02", "m03", "m04"]);
}

#[tokio::test]
async fn pages_behind_a_selector_are_full_and_count_nothing_ka_024_ka_025() {
    let server = with_objects(7).await;
    let query = "limit=2&labelSelector=parity%3Deven";
    let first = server.get(&format!("{CONFIG_MAPS}?{query}")).await.json();
    assert_eq!(names(&first), vec!["m00", "m02"]);
    assert!(first["metadata"].get("remainingItemCount").is_none());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = server
        .get(&format!("{CONFIG_MAPS}?{query}&continue={token}"))
        .await
        .json();
    assert_eq!(names(&second), vec!["m04", "m06"]);
    assert!(
        second["metadata"].get("continue").is_none_or(|token| token == ""),
        "{second}"
    );
}

#[tokio::test]
async fn a_version_may_be_demanded_exactly_and_must_exist_ka_025() {
    let server = with_objects(2).await;
    let before = server.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    server.delete(&format!("{CONFIG_MAPS}/m00"), &Value::Null).await;
    let exact = server
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={before}&resourceVersionMatch=Exact"
        ))
        .await
        .json();
    assert_eq!(
        (names(&exact).len(), &exact["metadata"]["resourceVersion"]),
        (2, &json!(before))
    );
    let newer = server
        .get(&format!("{CONFIG_MAPS}?resourceVersion={before}"))
        .await
        .json();
    assert_eq!(names(&newer).len(), 1);
    let answer = server.get(&format!("{CONFIG_MAPS}?resourceVersion=999999")).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(
        answer.json()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    assert_eq!(answer.headers["retry-after"], "1");
    let answer = server
        .get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact"))
        .await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let answer = server.get(&format!("{CONFIG_MAPS}?resourceVersion=abc")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_token_older_than_the_window_is_expired_and_offers_another_ka_025() {
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::in_memory()).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, &config_map(name, json!({}))).await;
    }
    let first = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.post(CONFIG_MAPS, &config_map("d", json!({}))).await;
    store.compact(Some(store.revision())).await.unwrap();
    let answer = server
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::GONE, &json!("Expired"))
    );
    let other = answer.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = server
        .get(&format!("{CONFIG_MAPS}?continue={other}"))
        .await
        .json();
    assert_eq!(names(&rest), vec!["b", "c", "d"]);
}

#[tokio::test]
async fn a_list_whose_history_cannot_be_read_is_not_called_too_old_ka_025() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kube.db");
    let store =
        mainstay_store::kube::KubeStore::open(mainstay_store::kube::KubeOptions::file(&file)).unwrap();
    let options = mainstay_kubeapi::ApiOptions::new(
        store.clone(),
        mainstay_telemetry::clock::system(),
        mainstay_telemetry::random::system(),
    );
    let server = Server::over(options).await;
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, &config_map(name, json!({}))).await;
    }
    let first = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.post(CONFIG_MAPS, &config_map("c", json!({}))).await;
    // The writer keeps its open file; a reader of history finds none under the name.
    std::fs::rename(&file, directory.path().join("elsewhere")).unwrap();
    let path = format!("{CONFIG_MAPS}?limit=1&continue={token}");
    let answer = server.get(&path).await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::INTERNAL_SERVER_ERROR, &json!("InternalError"))
    );
    store.close().await;
    let answer = server.get(&path).await;
    assert_eq!(
        (answer.status, &answer.json()["reason"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("ServiceUnavailable"))
    );
}

#[tokio::test]
async fn selectors_pick_by_labels_and_fields_ka_024() {
    let server = with_objects(4).await;
    let of = async |query: &str| names(&server.get(&format!("{CONFIG_MAPS}?{query}")).await.json());
    assert_eq!(of("labelSelector=parity%20in%20(odd)").await, vec!["m01", "m03"]);
    assert_eq!(of("fieldSelector=metadata.name%3Dm02").await, vec!["m02"]);
    let answer = server
        .get(&format!("{CONFIG_MAPS}?fieldSelector=data.k%3D1"))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer = server
        .get(&format!("{CONFIG_MAPS}?labelSelector=%3D%3D%3D"))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn lists_come_as_tables_and_as_metadata_ka_007_ka_028() {
    let server = with_objects(2).await;
    let table = server
        .get_as(CONFIG_MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await
        .json();
    assert_eq!(
        (&table["kind"], table["rows"].as_array().unwrap().len()),
        (&json!("Table"), 2)
    );
    let list = server
        .get_as(
            CONFIG_MAPS,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        )
        .await
        .json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["items"][0].get("data").is_none());
    assert_eq!(list["items"][0]["metadata"]["name"], "m00");
}

#[tokio::test]
async fn a_plain_list_says_what_it_is_and_holds_what_a_get_shows_ka_025() {
    let server = with_objects(2).await;
    let list = server.get(CONFIG_MAPS).await.json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    // The items of a built-in kind are of the list's type and do not repeat it, as on the reference.
    let mut shown = server.get(&format!("{CONFIG_MAPS}/m01")).await.json();
    for field in ["apiVersion", "kind"] {
        shown.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(list["items"][1], shown);
    let all = server.get("/api/v1/configmaps").await.json();
    assert_eq!(names(&all), names(&list));
    assert_eq!(
        names(
            &server
                .get("/api/v1/namespaces/kube-system/configmaps")
                .await
                .json()
        )
        .len(),
        0
    );
}

#[tokio::test]
async fn a_large_answer_is_compressed_on_request_ka_007() {
    let server = Server::start().await;
    server
        .post(CONFIG_MAPS, &config_map("big", json!({"k": "x".repeat(200_000)})))
        .await;
    let request = http::Request::get(CONFIG_MAPS)
        .header("accept-encoding", "gzip")
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert!(answer.body.len() < 20_000);
    assert!(
        !server
            .get(CONFIG_MAPS)
            .await
            .headers
            .contains_key("content-encoding")
    );
}
