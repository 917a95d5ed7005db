//! Pods, and the templates from which they are made.

use serde_json::{Value, json};

use super::{
    Errors, Field, addresses,
    containers::{self, Surroundings},
    ephemeral, formats,
    handlers::Pod,
    profiles,
    resources::{self, Asker},
    scheduling, security, spreading, systems, volumes,
};
use crate::{
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names,
    names::NameRule,
};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const NAME_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
const NAME_SERVERS: usize = 3;
const SEARCH_PATHS: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// All containers of a Pod, in the order of the reference.
pub(super) fn all_containers<'object>(
    spec: &Field<'object>,
) -> impl Iterator<Item = Field<'object>> + use<'object> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].map(|list| spec.child(list));
    lists.into_iter().flat_map(|list| list.items())
}

/// What is wrong with a Pod that is to be made.
pub(crate) fn check(object: &Value, errors: &mut Errors) {
    check_always(object, errors);
    let spec = Field::of(object, "spec");
    if spec.child("ephemeralContainers").count() > 0 {
        spec.child("ephemeralContainers")
            .forbidden(errors, "cannot be set on create");
    }
    if !spec.text_of("nodeName").is_empty() && spec.child("schedulingGates").count() > 0 {
        let detail = "cannot be set until all schedulingGates have been cleared";
        spec.child("nodeName").forbidden(errors, detail);
    }
    let annotations = object.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    profiles::check_agreement(annotations, &spec, errors);
}

/// What is wrong with a Pod, whether it is new or not.
pub(super) fn check_always(object: &Value, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    let annotations = Field::of(object, "metadata").child("annotations");
    profiles::check(&annotations, &spec, errors);
    check_spec(&spec, Some(object), errors);
    // The reference moreover refuses a token of a Pod that names no account. Its admission names `default` for such a Pod
    // before it looks; here a Pod without a name has that account.
    spec.child("terminationGracePeriodSeconds").not_negative(errors);
    for list in ["containers", "initContainers"] {
        for container in spec.child(list).items() {
            containers::check_image_of_pod(&container, errors);
        }
    }
}

/// What is wrong with a template of Pods.
pub(crate) fn check_template(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.child("metadata");
    // The reference leaves out the metadata, in which these are.
    let own_labels = metadata.child("labels");
    labels::validate_labels(own_labels.value, &template.path.child("labels"), errors);
    let annotations = metadata
        .child("annotations")
        .at(template.path.child("annotations"));
    names::check_annotations(annotations.value, &annotations.path, errors);
    let spec = template.child("spec");
    profiles::check(&annotations, &spec, errors);
    check_spec(&spec, None, errors);
    profiles::check_agreement(annotations.value, &spec, errors);
    let added = spec.child("ephemeralContainers");
    if added.count() > 0 {
        added.forbidden(errors, "ephemeral containers not allowed in pod template");
    }
}

/// What is wrong with the spec of a Pod; `pod` is the Pod where there is one, and not a template.
fn check_spec(spec: &Field<'_>, pod: Option<&Value>, errors: &mut Errors) {
    if !spec.is_set() {
        // An empty spec would have defaults for the rest.
        spec.child("containers").required(errors, "");
        return;
    }
    let system = spec.child("os");
    let mut surroundings = Surroundings {
        volumes: volumes::check(&spec.child("volumes"), pod, errors),
        claims: Vec::new(),
        host_users: spec.value.get("hostUsers") != Some(&Value::Bool(false)),
        restart_policy: spec.text_of("restartPolicy"),
        pod: Pod {
            grace: spec.child("terminationGracePeriodSeconds").number(),
            system: system.is_set().then(|| system.text_of("name")),
        },
    };
    let claims = spec.child("resourceClaims");
    surroundings.claims = claims
        .items()
        .map(|claim| claim.text_of("name"))
        .filter(|name| !name.is_empty())
        .collect();
    check_device_claims(&claims, pod, errors);
    let containers = spec.child("containers");
    containers::check(&containers, &surroundings, errors);
    containers::check_initial(&spec.child("initContainers"), &containers, &surroundings, errors);
    ephemeral::check(spec, &surroundings, errors);
    resources::check_pod(spec, &surroundings.claims, errors);
    check_host_network(spec, pod.is_some(), errors);
    spec.child("restartPolicy").one_of(errors, &RESTART_POLICIES);
    spec.child("dnsPolicy").one_of(errors, &NAME_POLICIES);
    let selector = spec.child("nodeSelector");
    labels::validate_labels(selector.value, &selector.path, errors);
    security::check_pod(spec, errors);
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        spec.child("shareProcessNamespace").invalid(errors, detail);
    }
    scheduling::check_affinity(&spec.child("affinity"), errors);
    check_names(spec, errors);
    for gate in spec.child("readinessGates").items() {
        let condition = gate.child("conditionType");
        condition.texts(errors, names::qualified_name(condition.text()));
    }
    scheduling::check_gates(&spec.child("schedulingGates"), errors);
    spreading::check(&spec.child("topologySpreadConstraints"), errors);
    systems::check_host_processes(spec, errors);
    systems::check_host_users(spec, errors);
    systems::check_host_name(spec, errors);
    check_references(spec, errors);
    systems::check(spec, errors);
    check_group(&spec.child("schedulingGroup"), errors);
    check_files(spec, errors);
}

fn check_device_claims(claims: &Field<'_>, pod: Option<&Value>, errors: &mut Errors) {
    let is_mirror = pod.is_some_and(|pod| {
        pod.pointer("/metadata/annotations")
            .is_some_and(|annotations| annotations.get("kubernetes.io/config.mirror").is_some())
    });
    let mut seen = Vec::new();
    for claim in claims.items() {
        if is_mirror {
            let detail = "static pods do not support resource claims";
            errors.push(FieldError::forbidden(&FieldPath::root(), detail));
            continue;
        }
        let name = claim.child("name");
        if seen.contains(&name.text()) {
            name.duplicate(errors);
        } else {
            name.demand_as(errors, names::label);
            if !name.text().is_empty() {
                seen.push(name.text());
            }
        }
        let sources = [
            claim.child("resourceClaimName"),
            claim.child("resourceClaimTemplateName"),
        ];
        let shown = || {
            let fields = [
                ("name", "Name", json!("")),
                ("resourceClaimName", "ResourceClaimName", Value::Null),
                (
                    "resourceClaimTemplateName",
                    "ResourceClaimTemplateName",
                    Value::Null,
                ),
            ];
            super::internal(claim.value, &fields)
        };
        let detail = match sources.iter().filter(|source| source.is_set()).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            claim.invalid_structure(errors, &shown(), detail);
        }
        for source in sources.iter().filter(|source| source.is_set()) {
            source.texts(errors, names::subdomain(source.text()));
        }
    }
}

/// Containers in the node's network have its ports.
fn check_host_network(spec: &Field<'_>, is_pod: bool, errors: &mut Errors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for container in spec.child("containers").items() {
        for port in container.child("ports").items() {
            let (of_host, own) = (port.number_of("hostPort"), port.number_of("containerPort"));
            if (is_pod || of_host != 0) && of_host != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                port.child("hostPort").invalid_as(errors, json!(of_host), detail);
            }
        }
    }
}

/// What is wrong with how a Pod finds names.
fn check_names(spec: &Field<'_>, errors: &mut Errors) {
    let field = spec.child("dnsConfig");
    let (servers, searches) = (field.child("nameservers"), field.child("searches"));
    if spec.text_of("dnsPolicy") == "None" {
        if !field.is_set() {
            field.required(errors, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.count() == 0 {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            servers.required(errors, detail);
            return;
        }
    }
    if servers.count() > NAME_SERVERS {
        servers.invalid(
            errors,
            format!("must not have more than {NAME_SERVERS} nameservers"),
        );
    }
    for server in servers.items() {
        addresses::check(&server, errors);
    }
    if searches.count() > SEARCH_PATHS {
        searches.invalid(
            errors,
            format!("must not have more than {SEARCH_PATHS} search paths"),
        );
    }
    let characters: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if characters > SEARCH_CHARACTERS + 1 {
        let detail = format!(
            "must not have more than {SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        searches.invalid(errors, detail);
    }
    for search in searches.items() {
        let text = search.text();
        if text != "." {
            let text = text.strip_suffix('.').unwrap_or(text);
            for message in formats::subdomain_with_underscore(text) {
                search.invalid_as(errors, json!(text), message);
            }
        }
    }
    for option in field.child("options").items() {
        if option.text_of("name").is_empty() {
            option.required(errors, "must not be empty");
        }
    }
}

/// What is wrong with the names of a Pod's things, and with some numbers.
fn check_references(spec: &Field<'_>, errors: &mut Errors) {
    let named = |name: &str, rule: NameRule, errors: &mut Errors| {
        let field = spec.child(name);
        if !field.text().is_empty() {
            field.texts(errors, rule.check(field.text(), false));
        }
    };
    named("serviceAccountName", NameRule::Subdomain, errors);
    named("nodeName", NameRule::Subdomain, errors);
    spec.child("activeDeadlineSeconds")
        .between(errors, 1, i64::from(i32::MAX));
    named("hostname", NameRule::Label, errors);
    named("subdomain", NameRule::Label, errors);
    scheduling::check_tolerations(&spec.child("tolerations"), errors);
    for alias in spec.child("hostAliases").items() {
        addresses::check(&alias.child("ip"), errors);
        for name in alias.child("hostnames").items() {
            name.texts(errors, names::subdomain(name.text()));
        }
    }
    named("priorityClassName", NameRule::Subdomain, errors);
    let class = spec.child("runtimeClassName");
    if class.is_set() {
        class.texts(errors, names::subdomain(class.text()));
    }
    let preemption = spec.child("preemptionPolicy");
    if preemption.is_set() {
        preemption.one_of(errors, &PREEMPTION_POLICIES);
    }
    check_overhead(&spec.child("overhead"), errors);
}

/// What is wrong with what a Pod needs beside its containers.
pub(crate) fn check_overhead(field: &Field<'_>, errors: &mut Errors) {
    let asked = json!({"limits": field.value});
    resources::check(
        &Field::new(&asked, field.path.clone()),
        Asker::Container,
        &[],
        errors,
    );
}

fn check_group(group: &Field<'_>, errors: &mut Errors) {
    if !group.is_set() {
        return;
    }
    let name = group.child("podGroupName");
    if name.is_set() {
        name.texts(errors, names::subdomain(name.text()));
    } else {
        name.invalid(errors, "must specify one of: `podGroupName`");
    }
}

/// A file with variables lies in a folder that the Pod is given empty.
fn check_files(spec: &Field<'_>, errors: &mut Errors) {
    let volumes: Vec<Field<'_>> = spec.child("volumes").items().collect();
    for container in all_containers(spec) {
        for variable in container.child("env").items() {
            let source = variable.child("valueFrom").child("fileKeyRef");
            if !source.is_set() {
                continue;
            }
            let name = source.child("volumeName");
            match volumes
                .iter()
                .rfind(|volume| volume.text_of("name") == name.text())
            {
                None => name.not_found(errors, ""),
                Some(volume) if !volume.has("emptyDir") => {
                    name.invalid_text(errors, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}
