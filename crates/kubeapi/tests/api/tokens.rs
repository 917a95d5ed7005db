//! Tokens of ServiceAccounts and the reviews. Requirements KA-040, KA-041.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use jiff::Timestamp;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use mainstay_kubeapi::{Api, ApiOptions, Identity, ServeOptions};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::{clock::ManualClock, random};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{access::user, harness::Server};

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

async fn token(server: &Server, spec: Value) -> String {
    let answer = server.post(TOKEN, &json!({"spec": spec})).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    answer.json()["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(server: &Server, token: &str, audiences: Value) -> Value {
    let answer = server
        .post(
            REVIEWS,
            &json!({"spec": {"token": token, "audiences": audiences}}),
        )
        .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    answer.json()["status"].clone()
}

#[tokio::test]
async fn a_token_stands_for_its_account_for_its_audiences_until_it_expires_ka_040() {
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse::<Timestamp>().unwrap());
    let shared: mainstay_telemetry::clock::SharedClock = clock.clone();
    let server = Server::with(|options| options.clock = shared).await;
    let answer = server
        .post(
            TOKEN,
            &json!({"spec": {"audiences": ["vault", ISSUER], "expirationSeconds": 600}}),
        )
        .await;
    assert_eq!(
        answer.json()["status"]["expirationTimestamp"],
        "2026-11-30T12:10:00Z"
    );
    let token = answer.json()["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&server, &token, json!(["vault", "other"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(
        status["user"]["username"],
        "system:serviceaccount:default:default"
    );
    assert_eq!(
        status["user"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    assert!(status["user"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
    let status = review(&server, &token, json!(["other"])).await;
    assert_eq!(
        status,
        json!({"user": {}, "error": format!("[invalid bearer token, token audiences [\"vault\" \"{ISSUER}\"] is invalid for the target audiences [\"other\"]]")})
    );
    let mut changed = token.clone();
    changed.insert(10, 'x');
    let status = review(&server, &changed, json!(["vault"])).await;
    assert_eq!(status["authenticated"], Value::Null);
    assert_eq!(
        review(&server, "nonsense", json!([])).await["error"],
        "invalid bearer token"
    );
    clock.advance(Duration::from_secs(600 + 61));
    let status = review(&server, &token, json!(["vault"])).await;
    assert_eq!(
        status["error"],
        "[invalid bearer token, service account token has expired]"
    );
}

#[tokio::test]
async fn a_token_ends_with_its_account_and_with_what_it_is_bound_to_ka_040() {
    let server = Server::start().await;
    let secret = json!({"metadata": {"name": "anchor"}});
    let secret = server
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .json();
    let bound =
        json!({"kind": "Secret", "apiVersion": "v1", "name": "anchor", "uid": secret["metadata"]["uid"]});
    let of_secret = token(&server, json!({"boundObjectRef": bound})).await;
    let of_account = token(&server, json!({})).await;
    for token in [&of_secret, &of_account] {
        assert_eq!(review(&server, token, json!([])).await["authenticated"], true);
    }
    server
        .delete("/api/v1/namespaces/default/secrets/anchor", &Value::Null)
        .await;
    assert_eq!(
        review(&server, &of_secret, json!([])).await["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );
    server
        .delete("/api/v1/namespaces/default/serviceaccounts/default", &Value::Null)
        .await;
    let status = review(&server, &of_account, json!([])).await;
    assert_eq!(status["authenticated"], Value::Null, "{status}");
}

#[tokio::test]
async fn a_request_for_a_token_is_checked_ka_040() {
    let server = Server::start().await;
    for (spec, code, message) in [
        (
            json!({"expirationSeconds": 1}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "x"}}),
            404,
            "pods \"x\" not found",
        ),
    ] {
        let answer = server.post(TOKEN, &json!({"spec": spec})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.message().as_str()),
            (code, message)
        );
    }
    let absent = TOKEN.replace("accounts/default", "accounts/absent");
    assert_eq!(
        server.post(&absent, &json!({})).await.message(),
        "serviceaccounts \"absent\" not found"
    );
    let refused = server.send_as(&user("ann"), "POST", TOKEN, &json!({})).await;
    assert_eq!(
        refused.message(),
        "serviceaccounts \"default\" is forbidden: User \"ann\" cannot create resource \"serviceaccounts/token\" in API group \"\" in the namespace \"default\""
    );
}

#[tokio::test]
async fn a_token_works_over_the_socket_and_after_a_restart_ka_040() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("kube.db");
    let keys = directory.path().join("keys");
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let mut token = String::new();
    for start in 0..2 {
        let store = KubeStore::open(KubeOptions::file(database.clone())).unwrap();
        let options = ApiOptions {
            keys: Some(keys.clone()),
            ..ApiOptions::new(
                store.clone(),
                mainstay_telemetry::clock::system(),
                random::system(),
            )
        };
        let api = Api::open(options).await.unwrap();
        if start == 0 {
            let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
                kube::Api::namespaced(api.client(Identity::admin()), "default");
            let asked = accounts
                .create_token_request("default", &Default::default(), &Default::default())
                .await
                .unwrap();
            token = asked.status.unwrap().token;
        }
        let cancellation = CancellationToken::new();
        let options = ServeOptions {
            address: ([127, 0, 0, 1], 0).into(),
            directory: directory.path().join("ca"),
            kubeconfig: directory.path().join("kubeconfig"),
        };
        let serving = api.serve_tls(options, cancellation.clone()).await.unwrap();
        let mut kubeconfig = Kubeconfig::read_from(&serving.kubeconfig).unwrap();
        kubeconfig.auth_infos[0].auth_info.as_mut().unwrap().token = Some(token.clone().into());
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json")
            .body(b"{}".to_vec())
            .unwrap();
        let answer: Value = client.request(request).await.unwrap();
        assert_eq!(
            answer["status"]["userInfo"]["username"],
            "system:serviceaccount:default:default"
        );
        let request = http::Request::get("/api/v1/namespaces/default/secrets")
            .body(Vec::new())
            .unwrap();
        match client.request::<Value>(request).await.unwrap_err() {
            kube::Error::Api(status) => assert_eq!(status.code, 403),
            other => panic!("{other}"),
        }
        cancellation.cancel();
        store.close().await;
    }
}

#[tokio::test]
async fn the_issuer_publishes_the_key_that_signs_ka_040() {
    let server = Server::start().await;
    let token = token(&server, json!({})).await;
    let configuration = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(configuration["issuer"], ISSUER);
    assert_eq!(
        configuration["id_token_signing_alg_values_supported"],
        json!(["ES256"])
    );
    let answer = server.get("/openid/v1/jwks").await;
    assert_eq!(answer.headers["content-type"], "application/jwk-set+json");
    let key = answer.json()["keys"][0].clone();
    // The published coordinates verify the signature, as another program would.
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let mut point = vec![4];
    point.extend(decode(key["x"].as_str().unwrap()));
    point.extend(decode(key["y"].as_str().unwrap()));
    let (message, signature) = token.rsplit_once('.').unwrap();
    ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point)
        .verify(message.as_bytes(), &decode(signature))
        .unwrap();
    let header: Value = serde_json::from_slice(&decode(message.split('.').next().unwrap())).unwrap();
    assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &key["kid"]));
    let request = Request::get("/openid/v1/jwks").body(Body::empty()).unwrap();
    assert_eq!(
        server.send_anonymously(request).await.status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn reviews_tell_what_somebody_may_do_and_are_not_stored_ka_041() {
    let server = Server::start().await;
    let ann = user("ann");
    let attributes = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = json!({"spec": {"resourceAttributes": attributes}});
    let answer = server.send_as(&ann, "POST", own, &asked).await;
    assert_eq!(
        (answer.status, &answer.json()["status"]),
        (StatusCode::CREATED, &json!({"allowed": false}))
    );
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    assert_eq!(
        server.send_as(&ann, "POST", own, &path).await.json()["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\""})
    );
    let others = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let asked =
        json!({"spec": {"user": "bob", "groups": ["system:masters"], "resourceAttributes": attributes}});
    assert_eq!(
        server.post(others, &asked).await.json()["status"],
        json!({"allowed": true})
    );
    assert_eq!(
        server.send_as(&ann, "POST", others, &asked).await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        server
            .post(others, &json!({"spec": {"user": "bob"}}))
            .await
            .message(),
        ".authorization.k8s.io \"\" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    );
    let local = "/apis/authorization.k8s.io/v1/namespaces/kube-system/localsubjectaccessreviews";
    let asked = json!({"spec": {"user": "bob", "resourceAttributes": attributes}});
    assert!(
        server
            .post(local, &asked)
            .await
            .message()
            .contains("must match metadata.namespace")
    );
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = server
        .send_as(&ann, "POST", rules, &json!({"spec": {"namespace": "default"}}))
        .await
        .json();
    assert!(
        answer["status"]["nonResourceRules"]
            .to_string()
            .contains("/healthz"),
        "{answer}"
    );
    assert_eq!(answer["status"]["incomplete"], false);
    assert_eq!(server.get(REVIEWS).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn an_event_is_the_same_object_in_both_groups_ka_010() {
    let server = Server::start().await;
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let older = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-11-30T12:00:00.000000Z", "note": "pulled",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "Pulled", "type": "Normal",
        "action": "Pulling", "reportingController": "kubelet", "reportingInstance": "here"});
    let created = server.post(newer, &event).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.message());
    assert_eq!(created.json()["apiVersion"], "events.k8s.io/v1");
    let seen = server.get(&format!("{older}/e")).await.json();
    assert_eq!(
        (&seen["message"], &seen["involvedObject"]["name"]),
        (&json!("pulled"), &json!("p"))
    );
    assert_eq!(
        (&seen["apiVersion"], &seen["reportingComponent"]),
        (&json!("v1"), &json!("kubelet"))
    );
    server
        .merge(&format!("{older}/e"), &json!({"message": "pulled again"}))
        .await;
    let list = server
        .get(&format!("{newer}?fieldSelector=regarding.name%3Dp"))
        .await
        .json();
    assert_eq!(list["items"][0]["note"], "pulled again");
    assert_eq!(list["items"][0]["message"], Value::Null);
    let none = server
        .get(&format!("{newer}?fieldSelector=regarding.name%3Dq"))
        .await
        .json();
    assert_eq!(none["items"], json!([]));
    server
        .merge(
            &format!("{newer}/e"),
            &json!({"series": {"count": 2, "lastObservedTime": "2026-11-30T12:00:01.000000Z"}}),
        )
        .await;
    assert_eq!(
        server.get(&format!("{older}/e")).await.json()["series"]["count"],
        2
    );
    let mut incomplete = event;
    incomplete["metadata"]["name"] = json!("f");
    incomplete.as_object_mut().unwrap().remove("action");
    assert_eq!(
        server.post(newer, &incomplete).await.message(),
        "Event \"f\" is invalid: action: Required value"
    );
}
