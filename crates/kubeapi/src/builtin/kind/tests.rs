#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::json;

use super::*;
use crate::builtin::{Kinds, services};

fn info(group: &str, plural: &str) -> Arc<KindInfo> {
    Kinds::builtin().lookup(group, "v1", plural).expect("is built in")
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "orders", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "orders"}},
            "template": {"metadata": {"labels": {"app": "orders"}},
                "spec": {"containers": [{"name": "orders", "image": "mainstay", "args": ["demo", "orders"],
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "readinessProbe": {"httpGet": {"port": "http"}}}],
                    "volumes": [{"name": "config", "configMap": {"name": "c"}}, {"name": "empty"}]}},
        },
    })
}

#[test]
fn a_deployment_gets_the_defaults_of_the_reference() {
    // KA-011
    let info = info("apps", "deployments");
    let mut object = deployment();
    assert_eq!(info.decode_error(&object), None);
    info.default_object(&mut object);
    let spec = &object["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["revisionHistoryLimit"], 10);
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Always");
    assert_eq!(pod["dnsPolicy"], "ClusterFirst");
    assert_eq!(pod["schedulerName"], "default-scheduler");
    assert_eq!(pod["terminationGracePeriodSeconds"], 30);
    assert_eq!(pod["securityContext"], json!({}));
    assert_eq!(pod["volumes"][0]["configMap"]["defaultMode"], 420);
    assert_eq!(pod["volumes"][1]["emptyDir"], json!({}));
    let container = &pod["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(container["terminationMessagePolicy"], "File");
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(container["resources"], json!({}));
    assert_eq!(
        container["readinessProbe"],
        json!({"httpGet": {"path": "/", "port": "http", "scheme": "HTTP"}, "failureThreshold": 3, "periodSeconds": 10,
               "successThreshold": 1, "timeoutSeconds": 1})
    );
    assert_eq!(texts(&info.validate(&object, None)), [] as [String; 0]);
}

#[test]
fn a_deployment_is_refused_with_the_texts_of_the_reference() {
    // KA-013
    let info = info("apps", "deployments");
    let faults = |change: &dyn Fn(&mut Value), old: Option<&Value>| {
        let mut object = deployment();
        change(&mut object);
        info.default_object(&mut object);
        texts(&info.validate(&object, old))
    };
    assert_eq!(
        faults(
            &|it| it["spec"]["template"]["metadata"]["labels"] = json!({"app": "x"}),
            None
        ),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"
        ]
    );
    assert_eq!(
        faults(&|it| it["spec"]["selector"] = json!({}), None),
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    );
    assert_eq!(
        faults(&|it| it["spec"]["replicas"] = json!(-1), None),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert_eq!(
        faults(
            &|it| it["spec"]["template"]["spec"]["restartPolicy"] = json!("Never"),
            None
        ),
        ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
    );
    assert_eq!(
        faults(
            &|it| it["spec"]["template"]["spec"]["containers"] = json!([]),
            None
        ),
        ["spec.template.spec.containers: Required value"]
    );
    assert_eq!(
        faults(
            &|it| it["spec"]["template"]["spec"]["containers"][0]["name"] = json!("Bad_Name"),
            None
        )
        .len(),
        1
    );
    let mut old = deployment();
    old["spec"]["selector"] = json!({"matchLabels": {"app": "before"}});
    assert_eq!(
        faults(&|_| {}, Some(&old)),
        ["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"orders\"}}: field is immutable"]
    );
}

#[test]
fn a_pod_is_defaulted_prepared_and_keeps_its_spec() {
    // KA-010, KA-011
    let info = info("", "pods");
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [
        {"name": "a", "image": "x:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"}});
    info.default_object(&mut pod);
    info.strategy.prepare(&mut pod, None);
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "Guaranteed"})
    );
    assert_eq!(pod["spec"]["enableServiceLinks"], true);
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "1", "memory": "1Gi"})
    );
    let mut changed = pod.clone();
    changed["spec"]["containers"][0]["image"] = json!("x:2");
    assert_eq!(texts(&info.validate(&changed, Some(&pod))), [] as [String; 0]);
    // A node is given by a binding, never by an update.
    for (pointer, value) in [
        ("/spec/nodeName", json!("local")),
        ("/spec/containers/0/args", json!(["b"])),
    ] {
        let mut refused = changed.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        refused.pointer_mut(parent).unwrap()[name] = value;
        assert!(
            texts(&info.validate(&refused, Some(&pod)))[0]
                .starts_with("spec: Forbidden: pod updates may not change"),
            "{pointer}"
        );
    }
}

#[test]
fn a_secret_takes_texts_and_an_immutable_one_keeps_its_data() {
    // KA-010
    let info = info("", "secrets");
    let mut secret =
        json!({"metadata": {"name": "a"}, "data": {"old": "eA=="}, "stringData": {"key": "text"}});
    info.default_object(&mut secret);
    info.strategy.prepare(&mut secret, None);
    assert_eq!(secret["data"], json!({"old": "eA==", "key": "dGV4dA=="}));
    assert_eq!(secret.get("stringData"), None);
    assert_eq!(secret["type"], "Opaque");
    secret["immutable"] = json!(true);
    let mut changed = secret.clone();
    changed["data"]["key"] = json!("eA==");
    assert_eq!(
        texts(&info.validate(&changed, Some(&secret))),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    let tls = json!({"metadata": {"name": "a"}, "type": "kubernetes.io/tls", "data": {"tls.key": ""}});
    assert_eq!(
        texts(&info.validate(&tls, None)),
        ["data[tls.crt]: Required value"]
    );
    let bad = json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"a b": ""}});
    assert!(
        texts(&info.validate(&bad, None))[0]
            .starts_with("data[a b]: Invalid value: \"a b\": a valid config key")
    );
}

#[test]
fn a_service_gets_ports_and_an_address_of_the_range() {
    // KA-010, KA-011
    let info = info("", "services");
    let mut service = json!({"metadata": {"name": "orders", "namespace": "default"},
        "spec": {"selector": {"app": "orders"}, "ports": [{"port": 80}]}});
    info.default_object(&mut service);
    info.strategy.prepare(&mut service, None);
    services::allocate(&mut service, None, |_| false).expect("an address is free");
    let spec = &service["spec"];
    assert_eq!(spec["type"], "ClusterIP");
    assert_eq!(spec["sessionAffinity"], "None");
    assert_eq!(spec["internalTrafficPolicy"], "Cluster");
    assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
    assert_eq!(
        spec["ports"],
        json!([{"port": 80, "protocol": "TCP", "targetPort": 80}])
    );
    let address = spec["clusterIP"].as_str().expect("an address").to_owned();
    assert!(address.starts_with("10."), "{address}");
    assert_eq!(spec["clusterIPs"], json!([address]));
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
    assert_eq!(texts(&info.validate(&service, None)), [] as [String; 0]);

    let mut other = service.clone();
    other["spec"]["clusterIP"] = json!("");
    other["spec"]["clusterIPs"] = json!([]);
    services::allocate(&mut other, None, |taken| taken == address).expect("another address is free");
    assert_ne!(other["spec"]["clusterIP"], service["spec"]["clusterIP"]);
    let refused =
        services::allocate(&mut service.clone(), None, |taken| taken == address).expect_err("it is taken");
    assert!(
        texts(&refused)[0].ends_with("provided IP is already allocated"),
        "{refused:?}"
    );

    let mut update = json!({"metadata": {"name": "orders"}, "spec": {"ports": [{"port": 81}]}});
    info.default_object(&mut update);
    info.strategy.prepare(&mut update, Some(&service));
    assert_eq!(update["spec"]["clusterIP"], json!(address));
    let mut two =
        json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 0, "targetPort": 1}, {"port": 80}]}});
    info.default_object(&mut two);
    assert_eq!(
        texts(&info.validate(&two, None)),
        [
            "spec.ports[0].name: Required value",
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[1].name: Required value",
        ]
    );
}

#[test]
fn a_headless_and_an_external_service_need_no_address() {
    // KA-010
    let info = info("", "services");
    let mut headless =
        json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}});
    info.default_object(&mut headless);
    info.strategy.prepare(&mut headless, None);
    services::allocate(&mut headless, None, |_| true).expect("nothing to allocate");
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(texts(&info.validate(&headless, None)), [] as [String; 0]);
    let mut external =
        json!({"metadata": {"name": "a"}, "spec": {"type": "ExternalName", "externalName": "example.com"}});
    info.default_object(&mut external);
    services::allocate(&mut external, None, |_| true).expect("nothing to allocate");
    assert_eq!(external["spec"].get("clusterIP"), None);
    assert_eq!(texts(&info.validate(&external, None)), [] as [String; 0]);
}

#[test]
fn a_namespace_is_labelled_with_its_name_and_waits_for_its_content() {
    // KA-011
    let info = info("", "namespaces");
    let mut namespace = json!({"metadata": {"name": "agents"}});
    info.default_object(&mut namespace);
    info.strategy.prepare(&mut namespace, None);
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "agents"})
    );
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"]["phase"], "Active");
}

#[test]
fn a_definition_gets_the_names_that_follow_from_its_kind() {
    // KA-011, KA-012
    let info = info("apiextensions.k8s.io", "customresourcedefinitions");
    let mut crd = json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    info.default_object(&mut crd);
    info.strategy.prepare(&mut crd, None);
    assert_eq!(crd["spec"]["names"]["singular"], "thing");
    assert_eq!(crd["spec"]["names"]["listKind"], "ThingList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(texts(&info.validate(&crd, None)), [] as [String; 0]);
}

#[test]
fn an_event_lies_in_the_namespace_of_what_it_is_about() {
    // KA-010
    let info = info("", "events");
    let event =
        json!({"metadata": {"name": "a", "namespace": "default"}, "involvedObject": {"namespace": "other"}});
    assert_eq!(
        texts(&info.validate(&event, None)),
        ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
    );
}

#[test]
fn metadata_of_a_custom_kind_is_decoded_like_that_of_a_built_in_one() {
    // KA-006
    let kinds = Kinds::with_custom(&[json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    })]);
    let thing = kinds.lookup("example.com", "v1", "things").expect("is served");
    assert_eq!(
        thing
            .decode_error(&json!({"metadata": {"labels": {"a": 1}}}))
            .as_deref(),
        Some(
            "Thing in version \"v1\" cannot be handled as a Thing: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string"
        )
    );
    assert_eq!(thing.storage_resource, "example.com/things");
    assert!(thing.custom);
}

#[test]
fn empty_texts_and_zero_counts_take_the_defaults_as_in_go() {
    // KA-011
    let info = info("", "pods");
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {"restartPolicy": "", "containers": [{"name": "a", "image": "x",
        "imagePullPolicy": "", "livenessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 0}}]}});
    info.default_object(&mut pod);
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(pod["spec"]["containers"][0]["livenessProbe"]["timeoutSeconds"], 1);
}

fn thing(spec: Value) -> Arc<KindInfo> {
    let crd = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    });
    Kinds::with_custom(&[crd])
        .lookup("example.com", "v1", "things")
        .expect("is served")
}

#[test]
fn rules_run_beside_faults_that_they_can_bear_and_are_named_as_unchecked_otherwise() {
    // KA-015
    let info = thing(json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "integer", "minimum": 1}},
        "x-kubernetes-validations": [{"rule": "!has(self.a) || self.a > 5", "message": "too small"}]}));
    assert_eq!(
        texts(&info.validate(&json!({"spec": {"a": 0}}), None)),
        [
            "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1",
            "spec: Invalid value: \"object\": too small",
        ]
    );
    assert_eq!(
        texts(&info.validate(&json!({"spec": {}}), None)),
        [
            "spec.a: Required value",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
             the existing errors to complete validation",
        ]
    );
}

#[test]
fn duplicates_that_were_there_before_do_not_refuse_an_update() {
    // KA-013
    let info = thing(json!({"type": "object", "properties": {
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "n": {"type": "integer"}}}));
    let old = json!({"spec": {"tags": ["a", "a"]}});
    let new = json!({"spec": {"tags": ["a", "a"], "n": 1}});
    assert_eq!(info.validate(&new, Some(&old)), []);
    assert_eq!(
        texts(&info.validate(&new, None)),
        ["spec.tags[1]: Duplicate value: \"a\""]
    );
}

fn job(spec: Value) -> Value {
    let mut whole = json!({
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    });
    json_patch::merge(&mut whole, &spec);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "once", "namespace": "default", "uid": "u-1"}, "spec": whole,
    })
}

fn created_job(spec: Value) -> Value {
    let mut job = job(spec);
    let info = info("batch", "jobs");
    info.default_object(&mut job);
    info.strategy.prepare(&mut job, None);
    job
}

#[test]
fn a_job_selects_its_own_pods_unless_it_says_which() {
    // KA-010, KA-011
    let info = info("batch", "jobs");
    let made = created_job(json!({"template": {"metadata": {"labels": {"app": "x"}}}}));
    assert_eq!(texts(&info.validate(&made, None)), Vec::<String>::new());
    assert_eq!(
        made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"],
        "u-1"
    );
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (&labels["app"], &labels["job-name"]),
        (&json!("x"), &json!("once"))
    );
    assert_eq!(&made["metadata"]["labels"], labels);
    assert_eq!(made["status"], json!({}));
    let manual = created_job(json!({
        "manualSelector": true, "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}},
    }));
    assert_eq!(texts(&info.validate(&manual, None)), Vec::<String>::new());
    assert_eq!(manual["metadata"]["labels"], json!({"app": "x"}));
    let stolen = created_job(json!({"template": {"metadata": {"labels": {"controller-uid": "other"}}}}));
    let errors = texts(&info.validate(&stolen, None));
    assert!(
        errors[0].starts_with("spec.template.metadata.labels[controller-uid]: Invalid value: ")
            && errors[0].ends_with(": must be 'u-1'"),
        "{errors:?}"
    );
    let mut limited = created_job(json!({
        "completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1, "scheduling": {},
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "T"}]}]},
    }));
    assert_eq!(texts(&info.validate(&limited, None)), Vec::<String>::new());
    let spec = &limited["spec"];
    assert_eq!(spec["backoffLimit"], i32::MAX);
    assert_eq!(spec["podReplacementPolicy"], "Failed");
    assert_eq!(
        spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"],
        "True"
    );
    assert!(spec.get("scheduling").is_none());
    limited["metadata"]["name"] = json!("a".repeat(62));
    assert!(
        texts(&info.validate(&limited, None))
            .iter()
            .any(|text| text.contains("will not able to create pod with invalid DNS label"))
    );
}

#[test]
fn the_policies_of_a_job_are_checked() {
    // KA-010
    let info = info("batch", "jobs");
    let errors = |spec: Value| texts(&info.validate(&created_job(spec), None));
    for (spec, error) in [
        (
            json!({"podFailurePolicy": {"rules": [{"action": "Stop", "onExitCodes": {"operator": "In", "values": [1]}}]}}),
            "spec.podFailurePolicy.rules[0].action: Unsupported value: \"Stop\": supported values: \"Count\", \"FailIndex\", \
             \"FailJob\", \"Ignore\"",
        ),
        (
            json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}]}}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
        ),
        (
            json!({"podFailurePolicy": {"rules": [{"action": "FailJob"}]}}),
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            json!({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"}),
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
        ),
        (
            json!({"completionMode": "Indexed", "completions": 2, "successPolicy": {"rules": [{"succeededIndexes": "0-2"}]}}),
            "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0-2\": error parsing succeededIndexes: too large \
             index: \"2\"",
        ),
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            json!({"managedBy": "me"}),
            "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    ] {
        assert!(
            errors(spec.clone()).contains(&error.to_owned()),
            "{error}: {:?}",
            errors(spec)
        );
    }
}

#[test]
fn what_a_suspended_job_gives_its_pods_may_change_and_nothing_else() {
    // KA-010
    let info = info("batch", "jobs");
    let running = created_job(json!({}));
    let suspended = created_job(json!({"suspend": true}));
    let changed = |old: &Value, pointer: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        texts(&info.validate(&new, Some(old)))
    };
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}});
    let at = "/spec/template/spec/containers/0/resources";
    assert_eq!(changed(&suspended, at, resources.clone()), Vec::<String>::new());
    assert!(changed(&running, at, resources)[0].starts_with("spec.template: Invalid value: "));
    let image = changed(
        &suspended,
        "/spec/template/spec/containers/0/image",
        json!("other"),
    );
    assert!(
        image[0].starts_with("spec.template.spec: Invalid value: "),
        "{image:?}"
    );
    assert_eq!(
        changed(&running, "/spec/parallelism", json!(3)),
        Vec::<String>::new()
    );
    assert_eq!(
        changed(&running, "/spec/completions", json!(3)),
        ["spec.completions: Invalid value: 3: field is immutable"]
    );
}

#[test]
fn the_status_of_a_job_goes_one_way() {
    // KA-010, KA-021
    let info = info("batch", "jobs");
    let errors = |old: Value, new: Value| {
        let (mut before, mut after) = (created_job(json!({})), created_job(json!({})));
        before["status"] = old;
        after["status"] = new;
        texts(&info.validate(&after, Some(&before)))
    };
    let is = |type_: &str| json!({"type": type_, "status": "True"});
    let done = json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 1,
        "conditions": [is("SuccessCriteriaMet"), is("Complete")],
    });
    let started = json!({"startTime": "2026-01-01T00:00:00Z", "active": 1, "ready": 1});
    assert_eq!(errors(json!({}), started.clone()), Vec::<String>::new());
    assert_eq!(errors(started.clone(), done.clone()), Vec::<String>::new());
    for (old, new, error) in [
        (
            done.clone(),
            started.clone(),
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
        ),
        (
            started.clone(),
            json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [is("Failed")]}),
            "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            started.clone(),
            json!({"startTime": "2026-01-01T00:00:05Z", "active": 1}),
            "status.startTime: Invalid value: \"2026-01-01T00:00:05Z\": field is immutable for unsuspended job once set",
        ),
        (
            started.clone(),
            json!({"startTime": "2026-01-01T00:00:00Z", "active": 1, "ready": 2}),
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
        ),
        (
            json!({"failed": 2}),
            json!({"failed": 1}),
            "status.failed: Invalid value: 1: cannot decrease the failed counter",
        ),
        (
            json!({}),
            json!({"completedIndexes": "0"}),
            "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion \
             mode",
        ),
    ] {
        assert!(
            errors(old.clone(), new.clone()).contains(&error.to_owned()),
            "{error}: {:?}",
            errors(old, new)
        );
    }
}

#[test]
fn what_is_stored_already_does_not_keep_an_object_from_changing() {
    // KA-010
    let info = info("apps", "deployments");
    let workload = |replicas: i64, image: &str| {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 70000}]}]},
            },
        }});
        info.default_object(&mut object);
        object
    };
    let old = workload(1, "i");
    let port = "spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and \
                65535, inclusive";
    assert_eq!(texts(&info.validate(&old, None)), [port]);
    assert_eq!(
        texts(&info.validate(&workload(2, "j"), Some(&old))),
        [] as [String; 0]
    );
    assert_eq!(
        texts(&info.validate(&workload(-1, "j"), Some(&old))),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
}

#[test]
fn a_pod_without_an_account_may_have_a_token() {
    // KA-010: on a cluster its admission gives it the account `default` first.
    let info = info("", "pods");
    let source = json!({"serviceAccountToken": {"path": "token"}});
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "projected": {"sources": [source]}}],
    }});
    info.default_object(&mut pod);
    assert_eq!(texts(&info.validate(&pod, None)), [] as [String; 0]);
}

#[test]
fn endpoints_of_pods_may_be_on_this_machine() {
    // KA-010, KA-050
    let info = info("discovery.k8s.io", "endpointslices");
    let told = |target: Value| {
        let endpoint = json!({"addresses": ["127.0.0.1"], "targetRef": target});
        let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [endpoint]});
        texts(&info.validate(&slice, None)).len()
    };
    assert_eq!(
        (
            told(json!({"kind": "Pod", "name": "p"})),
            told(json!({"kind": "Node"}))
        ),
        (0, 1)
    );
}
