//! Roles, refusals and impersonation. Requirements KA-040, KA-041, KA-042.

use axum::body::Body;
use http::{Request, StatusCode, header};
use mainstay_kubeapi::Identity;
use serde_json::{Value, json};

use super::harness::{Answer, CONFIG_MAPS, Server, config_map};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Somebody with a name and no right but those that all have.
pub(crate) fn user(name: &str) -> Identity {
    let mut identity = Identity::admin();
    identity.username = name.to_owned();
    identity.groups = vec!["system:authenticated".to_owned()];
    identity
}

impl Server {
    pub(crate) async fn send_as(
        &self,
        identity: &Identity,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(if body.is_null() {
                Body::empty()
            } else {
                Body::from(body.to_string())
            })
            .unwrap();
        request.extensions_mut().insert(identity.clone());
        self.send_anonymously(request).await
    }

    pub(crate) async fn get_by(&self, identity: &Identity, path: &str) -> Answer {
        self.send_as(identity, "GET", path, &Value::Null).await
    }

    pub(crate) async fn grant(&self, namespace: &str, name: &str, rules: Value, to: Value) {
        let scope = format!("{RBAC}/namespaces/{namespace}");
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let answer = self.post(&format!("{scope}/roles"), &role).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
        let binding =
            json!({"metadata": {"name": name}, "roleRef": {"kind": "Role", "name": name}, "subjects": [to]});
        let answer = self.post(&format!("{scope}/rolebindings"), &binding).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.message());
    }
}

#[tokio::test]
async fn a_user_without_a_role_is_refused_in_the_words_of_the_reference_ka_041() {
    let server = Server::start().await;
    let ann = user("ann");
    for (path, message) in [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "deployments.apps is forbidden: User \"ann\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            "/api/v1/namespaces/default/secrets/a",
            "secrets \"a\" is forbidden: User \"ann\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "/api/v1/nodes?watch=1",
            "nodes is forbidden: User \"ann\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/namespaces/default",
            "namespaces \"default\" is forbidden: User \"ann\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "/api/v1/namespaces/default/pods/p/log",
            "pods \"p\" is forbidden: User \"ann\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\"",
        ),
        // What is not served is not told to those who may not see it.
        (
            "/apis/nowhere.io/v1/things",
            "things.nowhere.io is forbidden: User \"ann\" cannot list resource \"things\" in API group \"nowhere.io\" at the cluster scope",
        ),
        ("/metrics", "forbidden: User \"ann\" cannot get path \"/metrics\""),
        ("/a<b>", "forbidden: User \"ann\" cannot get path \"/a&lt;b&gt;\""),
    ] {
        let path = path.replace('<', "%3C").replace('>', "%3E");
        let message = message.replace("/a&lt;b&gt;", "/a%3Cb%3E");
        let answer = server.get_by(&ann, &path).await;
        assert_eq!(
            (answer.status, answer.message()),
            (StatusCode::FORBIDDEN, message),
            "{path}"
        );
        assert_eq!(answer.json()["reason"], "Forbidden");
    }
    let answer = server
        .get_by(&ann, "/apis/apps/v1/namespaces/default/deployments/x")
        .await;
    assert_eq!(
        answer.json()["details"],
        json!({"name": "x", "group": "apps", "kind": "deployments"})
    );
    for (method, path, verb) in [
        ("POST", CONFIG_MAPS, "create"),
        ("DELETE", CONFIG_MAPS, "deletecollection"),
    ] {
        let answer = server
            .send_as(&ann, method, path, &config_map("a", json!({})))
            .await;
        assert!(
            answer
                .message()
                .contains(&format!("cannot {verb} resource \"configmaps\"")),
            "{}",
            answer.message()
        );
    }
    // Discovery and the documents are for everybody who is known.
    for path in [
        "/api",
        "/apis",
        "/apis/apps/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
    ] {
        assert_eq!(server.get_by(&ann, path).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_role_holds_in_its_namespace_from_the_answer_that_bound_it_until_it_is_removed_ka_041() {
    let server = Server::start().await;
    let ann = user("ann");
    server
        .grant(
            "default",
            "reader",
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch"]}]),
            json!({"kind": "User", "name": "ann"}),
        )
        .await;
    assert_eq!(server.get_by(&ann, CONFIG_MAPS).await.status, StatusCode::OK);
    let elsewhere = server
        .get_by(&ann, "/api/v1/namespaces/kube-system/configmaps")
        .await;
    assert_eq!(elsewhere.status, StatusCode::FORBIDDEN);
    let named = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da");
    assert_eq!(server.get_by(&ann, &named).await.status, StatusCode::OK);
    // An apply that would create needs the right to create.
    let mut request = Request::patch(format!("{CONFIG_MAPS}/new?fieldManager=ann"))
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Body::from(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}).to_string(),
        ))
        .unwrap();
    request.extensions_mut().insert(ann.clone());
    let answer = server.send_anonymously(request).await;
    assert_eq!(
        answer.message(),
        "configmaps \"new\" is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    server
        .delete(
            &format!("{RBAC}/namespaces/default/rolebindings/reader"),
            &Value::Null,
        )
        .await;
    assert_eq!(
        server.get_by(&ann, CONFIG_MAPS).await.status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn an_agent_reads_tool_policies_and_no_secret_of_any_namespace_ka_041() {
    let server = Server::start().await;
    let agent = Identity::service_account("default", "default");
    for path in [
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/secrets",
    ] {
        assert_eq!(
            server.get_by(&agent, path).await.status,
            StatusCode::FORBIDDEN,
            "{path}"
        );
    }
    let policies = "/apis/omnia.altairalabs.ai/v1alpha1/namespaces/default/toolpolicies";
    // Allowed, and not there: the definition is not installed.
    assert_eq!(
        server.get_by(&agent, policies).await.status,
        StatusCode::NOT_FOUND
    );
    let answer = server.send_as(&agent, "DELETE", policies, &Value::Null).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have_ka_041() {
    let server = Server::start().await;
    let ann = user("ann");
    server
        .grant(
            "default",
            "role-maker",
            json!([
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "update"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
            ]),
            json!({"kind": "User", "name": "ann"}),
        )
        .await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |verbs: Value| {
        json!({"metadata": {"name": "mine"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]})
    };
    let answer = server
        .send_as(&ann, "POST", &roles, &role(json!(["get", "delete"])))
        .await;
    assert_eq!(
        (answer.status, answer.message()),
        (
            StatusCode::FORBIDDEN,
            "roles.rbac.authorization.k8s.io \"mine\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}".to_owned()
        )
    );
    assert_eq!(
        server
            .send_as(&ann, "POST", &roles, &role(json!(["get"])))
            .await
            .status,
        StatusCode::CREATED
    );
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let binding = |kind: &str, name: &str| {
        json!({"metadata": {"generateName": "b-"},
        "roleRef": {"kind": kind, "name": name}, "subjects": [{"kind": "Group", "name": "team"}]})
    };
    let answer = server
        .send_as(&ann, "POST", &bindings, &binding("ClusterRole", "cluster-admin"))
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(
        server
            .send_as(&ann, "POST", &bindings, &binding("Role", "mine"))
            .await
            .status,
        StatusCode::CREATED
    );
    let answer = server
        .send_as(&ann, "POST", &bindings, &binding("Role", "absent"))
        .await;
    assert_eq!(
        answer.message(),
        "role.rbac.authorization.k8s.io \"absent\" not found"
    );
    // `bind` is the right to hand out a role one does not have.
    server
        .grant(
            "default",
            "binder",
            json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["edit"], "verbs": ["bind"]}]),
            json!({"kind": "User", "name": "ann"}),
        )
        .await;
    assert_eq!(
        server
            .send_as(&ann, "POST", &bindings, &binding("ClusterRole", "edit"))
            .await
            .status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn roles_and_bindings_are_checked_ka_010() {
    let server = Server::start().await;
    let refused = |answer: Answer| (answer.status.as_u16(), answer.message());
    let roles = format!("{RBAC}/namespaces/default/roles");
    let answer = server
        .post(
            &roles,
            &json!({"metadata": {"name": "a"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
        )
        .await;
    assert_eq!(
        refused(answer),
        (422, "Role.rbac.authorization.k8s.io \"a\" is invalid: rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs".to_owned())
    );
    let bindings = format!("{RBAC}/clusterrolebindings");
    let reference = json!({"kind": "ClusterRole", "name": "view"});
    let answer = server
        .post(
            &bindings,
            &json!({"metadata": {"name": "a"}, "roleRef": reference, "subjects": [{"kind": "Robot", "name": "x"}]}),
        )
        .await;
    assert_eq!(
        refused(answer).1,
        "ClusterRoleBinding.rbac.authorization.k8s.io \"a\" is invalid: subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\""
    );
    let answer = server
        .post(
            &bindings,
            &json!({"metadata": {"name": "a"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "x"}]}),
        )
        .await;
    assert_eq!(
        answer.json()["subjects"][0]["apiGroup"],
        "rbac.authorization.k8s.io"
    );
    let mut changed = answer.json();
    changed["roleRef"]["name"] = json!("edit");
    let answer = server.put(&format!("{bindings}/a"), &changed).await;
    assert!(
        answer.message().contains("roleRef: Invalid value"),
        "{}",
        answer.message()
    );
}

#[tokio::test]
async fn an_aggregated_cluster_role_follows_the_roles_it_selects_ka_041() {
    let server = Server::start().await;
    let view = format!("{RBAC}/clusterroles/view");
    assert!(server.get(&view).await.json()["rules"].as_array().unwrap().len() > 5);
    let role = json!({"metadata": {"name": "see-widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}]});
    server.post(&format!("{RBAC}/clusterroles"), &role).await;
    let has_widgets = |answer: &Answer| answer.json()["rules"].to_string().contains("widgets");
    let roles = format!("{RBAC}/clusterroles");
    server.until(&view, &roles, has_widgets).await;
    // `admin` is made of `edit`, which is made of `view`.
    server
        .until(&format!("{RBAC}/clusterroles/admin"), &roles, has_widgets)
        .await;
    server.delete(&format!("{roles}/see-widgets"), &Value::Null).await;
    server.until(&view, &roles, |answer| !has_widgets(answer)).await;
}

#[tokio::test]
async fn impersonation_is_a_right_of_its_own_ka_041() {
    let server = Server::start().await;
    let request = |headers: &[(&str, &str)]| {
        let mut request = Request::get(CONFIG_MAPS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    };
    let answer = server.send(request(&[("Impersonate-User", "ann")])).await;
    assert_eq!(
        answer.message(),
        "configmaps is forbidden: User \"ann\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let answer = server
        .send(request(&[
            ("Impersonate-User", "ann"),
            ("Impersonate-Group", "system:masters"),
        ]))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    let answer = server.send(request(&[("Impersonate-Group", "team")])).await;
    assert_eq!(
        (answer.status, answer.message()),
        (
            StatusCode::BAD_REQUEST,
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"team"}, Extra:map[string][]string(nil)} without impersonating a user name"#.to_owned()
        )
    );
    let mut asked = request(&[("Impersonate-User", "kubernetes-admin")]);
    asked.extensions_mut().insert(user("ann"));
    let answer = server.send_anonymously(asked).await;
    assert_eq!(
        answer.message(),
        "users \"kubernetes-admin\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
}
