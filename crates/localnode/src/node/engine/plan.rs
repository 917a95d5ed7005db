//! What a container in an engine is to be: pure functions over the Pod and what it refers to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, PortBinding, RestartPolicy, RestartPolicyNameEnum,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};
use kube::ResourceExt;

use super::probe::Checks;
use super::reference::{ImageName, Keyring, PullPolicy};
use crate::node::environment::{ConfigError, expand};
use crate::node::mount::PodFiles;
use crate::node::{image, quantity};

/// Size of a container's output in the engine before it is rotated there. What is read is kept by the node itself.
const OUTPUT: &str = "10m";
/// Where a container says why it ended, unless it names another place.
const MESSAGE_PATH: &str = "/dev/termination-log";
/// Longest name of a host.
const HOST_NAME: usize = 63;

/// How a container is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) enum Network {
    /// In a network of its own. These ports are published; `leads` if the Pod's other containers live in it too.
    Own { publish: BTreeSet<u16>, leads: bool },
    /// In the network of the container that leads.
    Joined,
    /// In the host's.
    Host,
}

/// All that a run needs to know of its container.
#[derive(Clone, Debug)]
pub(in crate::node) struct Plan {
    pub(in crate::node) image: String,
    pub(in crate::node) pull_policy: PullPolicy,
    pub(in crate::node) keyring: Keyring,
    /// As it is sent, but for the name, the labels and the network.
    pub(in crate::node) body: ContainerCreateBody,
    pub(in crate::node) network: Network,
    pub(in crate::node) checks: Checks,
    pub(in crate::node) grace: Duration,
    /// The image must not run as root.
    pub(in crate::node) not_root: bool,
    /// The file with its last words, and whether its output stands in for it.
    pub(in crate::node) last_words: PathBuf,
    pub(in crate::node) output_as_last_words: bool,
}

/// What a plan is made from.
pub(in crate::node) struct Given<'a> {
    pub(in crate::node) pod: &'a Pod,
    pub(in crate::node) container: &'a Container,
    pub(in crate::node) init: bool,
    pub(in crate::node) environment: &'a BTreeMap<String, String>,
    pub(in crate::node) files: &'a PodFiles,
    /// Distinguishes this run.
    pub(in crate::node) stamp: &'a str,
    pub(in crate::node) keyring: Keyring,
    /// Whether the container may speak to the Kubernetes API.
    pub(in crate::node) access: bool,
    pub(in crate::node) grace: Duration,
}

/// The plan, or which field of the Pod stands against it.
pub(in crate::node) fn plan(given: Given<'_>) -> Result<Plan, ConfigError> {
    let Given { pod, container, .. } = given;
    refuse(pod, container)?;
    let image = container.image.clone().unwrap_or_default();
    let checks = Checks::of(container)?;
    let network = network(pod, container, given.init)?;
    let pod_context = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.clone())
        .unwrap_or_default();
    let context = container.security_context.clone().unwrap_or_default();
    let user = context.run_as_user.or(pod_context.run_as_user);
    let not_root = context.run_as_non_root.or(pod_context.run_as_non_root) == Some(true);
    if not_root && user == Some(0) {
        return Err(unsupported(
            container,
            "runAsUser 0 and runAsNonRoot, which contradict each other: that",
        ));
    }
    let last_words = given.files.last_words(&container.name, given.stamp)?;
    let expanded = |words: &Option<Vec<String>>| {
        let words = words.as_ref()?;
        let words = words.iter().map(|word| expand(word, given.environment));
        Some(words.collect::<Vec<_>>()).filter(|words| !words.is_empty())
    };
    let mut binds = given
        .files
        .binds(pod, container, given.environment, given.access)?;
    let message_path = container
        .termination_message_path
        .as_deref()
        .unwrap_or(MESSAGE_PATH);
    binds.push(bind(container, &last_words, message_path, false)?);
    let host_name = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.hostname.clone())
        .unwrap_or_else(|| pod.name_any());
    let owns_name = matches!(network, Network::Own { .. });
    let body = ContainerCreateBody {
        image: Some(image.clone()),
        hostname: owns_name.then(|| {
            host_name
                .chars()
                .take(HOST_NAME)
                .collect::<String>()
                .trim_end_matches(['-', '.'])
                .to_owned()
        }),
        user: user.map(|user| match context.run_as_group.or(pod_context.run_as_group) {
            Some(group) => format!("{user}:{group}"),
            None => user.to_string(),
        }),
        env: Some(
            given
                .environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        entrypoint: expanded(&container.command),
        cmd: expanded(&container.args),
        working_dir: container.working_dir.clone(),
        host_config: Some(host_config(pod, container, &context, &pod_context, binds)),
        ..ContainerCreateBody::default()
    };
    let policy = container.termination_message_policy.as_deref();
    Ok(Plan {
        pull_policy: PullPolicy::of(container, ImageName::parse(&image).as_ref()),
        image,
        keyring: given.keyring,
        body,
        network,
        checks,
        grace: given.grace,
        not_root: not_root && user.is_none(),
        last_words,
        output_as_last_words: policy == Some("FallbackToLogsOnError"),
    })
}

fn unsupported(container: &Container, what: &'static str) -> ConfigError {
    ConfigError::Unsupported {
        place: format!("container {:?}", container.name),
        what,
    }
}

/// What would give a container the machine, or what the engine cannot do: refused by name rather than left out.
fn refuse(pod: &Pod, container: &Container) -> Result<(), ConfigError> {
    let context = container.security_context.as_ref();
    let pod_context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let spec = pod.spec.as_ref();
    let profile = context
        .and_then(|context| context.seccomp_profile.as_ref())
        .or_else(|| pod_context.and_then(|context| context.seccomp_profile.as_ref()));
    let what = if context.and_then(|context| context.privileged) == Some(true) {
        "securityContext.privileged"
    } else if spec.and_then(|spec| spec.host_pid) == Some(true) {
        "the Pod's hostPID"
    } else if spec.and_then(|spec| spec.host_ipc) == Some(true) {
        "the Pod's hostIPC"
    } else if profile.is_some_and(|profile| profile.type_ == "Localhost") {
        "a seccompProfile of the type Localhost"
    } else if container
        .volume_devices
        .as_ref()
        .is_some_and(|devices| !devices.is_empty())
    {
        "volumeDevices"
    } else {
        return Ok(());
    };
    Err(unsupported(container, what))
}

/// The first container of an image by somebody else leads the others.
pub(in crate::node) fn leader(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut foreign = containers.filter(|container| is_foreign(container));
    foreign.next().map(|container| container.name.as_str())
}

/// Whether a container's image is by somebody else.
pub(in crate::node) fn is_foreign(container: &Container) -> bool {
    !image::is_own(container.image.as_deref().unwrap_or_default())
}

/// Whether a Pod lives in the host's network.
pub(in crate::node) fn uses_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
}

fn network(pod: &Pod, container: &Container, init: bool) -> Result<Network, ConfigError> {
    if uses_host_network(pod) {
        return Ok(Network::Host);
    }
    if init {
        return Ok(Network::Own {
            publish: BTreeSet::new(),
            leads: false,
        });
    }
    if leader(pod) != Some(container.name.as_str()) {
        return Ok(Network::Joined);
    }
    let mut publish = BTreeSet::new();
    let mut count = 0;
    for container in pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .filter(|container| is_foreign(container))
    {
        count += 1;
        publish.extend(tcp_ports(container));
        publish.extend(Checks::of(container)?.ports());
    }
    Ok(Network::Own {
        publish,
        leads: count > 1,
    })
}

/// The TCP ports that a container declares.
pub(in crate::node) fn tcp_ports(container: &Container) -> impl Iterator<Item = u16> {
    let ports = container.ports.iter().flatten();
    let tcp = ports.filter(|port| matches!(port.protocol.as_deref(), None | Some("" | "TCP")));
    tcp.filter_map(|port| u16::try_from(port.container_port).ok())
}

/// Publishes ports: each on a free one of the loopback address, and on no other (KA-042).
pub(in crate::node) fn publish(body: &mut ContainerCreateBody, ports: &BTreeSet<u16>) {
    let name = |port: &u16| format!("{port}/tcp");
    body.exposed_ports = Some(ports.iter().map(name).collect());
    let free = || PortBinding {
        host_ip: Some("127.0.0.1".to_owned()),
        host_port: Some(String::new()),
    };
    if let Some(host) = &mut body.host_config {
        let bindings = ports.iter().map(|port| (name(port), Some(vec![free()])));
        host.port_bindings = Some(bindings.collect());
    }
}

/// A mount as an engine is told it. `z` lets containers read it where SELinux would not.
pub(in crate::node) fn bind(
    container: &Container,
    source: &std::path::Path,
    target: &str,
    read_only: bool,
) -> Result<String, ConfigError> {
    let source = source.to_str().filter(|source| !source.contains(':'));
    let source = source.ok_or_else(|| unsupported(container, "a data directory with a colon in its path"))?;
    if !target.starts_with('/') || target.contains(':') {
        return Err(ConfigError::Path {
            place: format!("a mount of container {:?}", container.name),
            path: target.to_owned(),
        });
    }
    let options = if read_only { "ro,z" } else { "z" };
    Ok(format!("{source}:{target}:{options}"))
}

fn host_config(
    pod: &Pod,
    container: &Container,
    context: &SecurityContext,
    pod_context: &PodSecurityContext,
    binds: Vec<String>,
) -> HostConfig {
    let of = |amounts: &Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
              name: &str| {
        amounts
            .as_ref()
            .and_then(|amounts| amounts.get(name))
            .map(|amount| amount.0.clone())
    };
    let resources = container.resources.clone().unwrap_or_default();
    let memory = of(&resources.limits, "memory")
        .and_then(|text| quantity::bytes(&text))
        .and_then(|bytes| i64::try_from(bytes).ok());
    let nano_cpus = of(&resources.limits, "cpu")
        .and_then(|text| quantity::billionths(&text))
        .and_then(|count| i64::try_from(count).ok());
    // As a kubelet: 1024 shares for each processor, at least two.
    let cpu_shares = of(&resources.requests, "cpu")
        .or_else(|| of(&resources.limits, "cpu"))
        .and_then(|text| quantity::billionths(&text))
        .map(|count| {
            i64::try_from(count / 1_000_000 * 1024 / 1000)
                .unwrap_or(i64::MAX)
                .clamp(2, 262_144)
        });
    let mut security = Vec::new();
    if context.allow_privilege_escalation == Some(false) {
        security.push("no-new-privileges".to_owned());
    }
    let profile = context
        .seccomp_profile
        .as_ref()
        .or(pod_context.seccomp_profile.as_ref());
    if profile.is_some_and(|profile| profile.type_ == "Unconfined") {
        security.push("seccomp=unconfined".to_owned());
    }
    let groups = pod_context
        .supplemental_groups
        .iter()
        .flatten()
        .chain(&pod_context.fs_group);
    let groups: Vec<String> = groups.map(i64::to_string).collect();
    let capabilities = context.capabilities.clone().unwrap_or_default();
    let hosts = pod
        .spec
        .iter()
        .flat_map(|spec| spec.host_aliases.iter().flatten());
    let hosts: Vec<String> = hosts
        .flat_map(|alias| {
            let names = alias.hostnames.iter().flatten();
            names.map(move |name| format!("{name}:{}", alias.ip))
        })
        .collect();
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    HostConfig {
        binds: Some(binds),
        memory,
        // No more by swapping.
        memory_swap: memory,
        nano_cpus,
        cpu_shares,
        readonly_rootfs: context.read_only_root_filesystem,
        cap_add: capabilities.add.and_then(some),
        cap_drop: capabilities.drop.and_then(some),
        security_opt: some(security),
        group_add: some(groups),
        // A container in the network of another one has its names.
        extra_hosts: some(hosts),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // What every engine can read back, whatever its own configuration says.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([("max-size".to_owned(), OUTPUT.to_owned())])),
        }),
        ..HostConfig::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        let object = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn plan_of(spec: Value, index: usize) -> Result<Plan, ConfigError> {
        let pod = pod(spec);
        let folder = tempfile::tempdir().unwrap();
        let files = PodFiles::new(folder.path(), "u").for_containers();
        let contents = [("scratch".to_owned(), crate::node::volumes::Content::Empty)].into();
        files.write(&contents, "1").unwrap();
        plan(Given {
            pod: &pod,
            container: &pod.spec.as_ref().unwrap().containers[index],
            init: false,
            environment: &[("WHO".to_owned(), "me".to_owned())].into(),
            files: &files,
            stamp: "1",
            keyring: Keyring::default(),
            access: false,
            grace: Duration::from_secs(30),
        })
    }

    #[test]
    fn a_container_gets_what_kubernetes_would_give_it_ka_051() {
        let container = json!({
            "name": "c", "image": "tool:1", "command": ["serve", "$(WHO)"], "args": ["$(NOT)"], "workingDir": "/w",
            "resources": { "limits": { "memory": "64Mi", "cpu": "1500m" }, "requests": { "cpu": "250m" } },
            "securityContext": {
                "runAsUser": 1000, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
            },
            "volumeMounts": [{ "name": "scratch", "mountPath": "/s", "readOnly": true }],
        });
        let spec = json!({
            "securityContext": { "runAsGroup": 7, "fsGroup": 8 },
            "hostAliases": [{ "ip": "1.2.3.4", "hostnames": ["a", "b"] }],
            "volumes": [{ "name": "scratch", "emptyDir": {} }],
            "containers": [container],
        });
        let body = plan_of(spec, 0).unwrap().body;
        assert_eq!(body.entrypoint.unwrap(), ["serve", "me"]);
        assert_eq!(body.cmd.unwrap(), ["$(NOT)"]);
        assert_eq!(
            (body.user.as_deref(), body.hostname.as_deref()),
            (Some("1000:7"), Some("p"))
        );
        assert_eq!(body.env.unwrap(), ["WHO=me"]);
        let host = body.host_config.unwrap();
        assert_eq!((host.memory, host.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!(
            (host.nano_cpus, host.cpu_shares),
            (Some(1_500_000_000), Some(256))
        );
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.security_opt.unwrap(), ["no-new-privileges"]);
        assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
        assert_eq!(host.group_add.unwrap(), ["8"]);
        assert_eq!(host.extra_hosts.unwrap(), ["a:1.2.3.4", "b:1.2.3.4"]);
        let binds = host.binds.unwrap();
        assert!(binds[0].ends_with("/u/volumes/scratch:/s:ro,z"), "{binds:?}");
        assert!(binds[1].ends_with(":/dev/termination-log:z"), "{binds:?}");
    }

    #[test]
    fn the_first_container_leads_and_publishes_the_ports_of_all_ka_051() {
        let spec = json!({ "containers": [
            { "name": "own", "image": "mainstay" },
            { "name": "a", "image": "a", "ports": [{ "containerPort": 80 }, { "containerPort": 53, "protocol": "UDP" }] },
            { "name": "b", "image": "b", "livenessProbe": { "tcpSocket": { "port": 9 } } },
        ] });
        let leading = plan_of(spec.clone(), 1).unwrap();
        let publish_all = [9, 80].into();
        assert_eq!(
            leading.network,
            Network::Own {
                publish: publish_all,
                leads: true
            }
        );
        assert_eq!(plan_of(spec.clone(), 2).unwrap().network, Network::Joined);
        let mut host = spec;
        host["hostNetwork"] = json!(true);
        assert_eq!(plan_of(host, 1).unwrap().network, Network::Host);
        let mut body = leading.body;
        publish(&mut body, &[80].into());
        let bound = &body.host_config.unwrap().port_bindings.unwrap()["80/tcp"];
        assert_eq!(bound.as_ref().unwrap()[0].host_ip.as_deref(), Some("127.0.0.1"));
    }

    #[test]
    fn what_would_give_a_container_the_machine_is_refused_by_name_ka_051() {
        let refused = |pod_fields: Value, context: Value| {
            let mut spec =
                json!({ "containers": [{ "name": "c", "image": "x", "securityContext": context }] });
            spec.as_object_mut()
                .unwrap()
                .extend(pod_fields.as_object().unwrap().clone());
            plan_of(spec, 0).unwrap_err().to_string()
        };
        let none = json!({});
        assert!(refused(none.clone(), json!({ "privileged": true })).contains("securityContext.privileged"));
        assert!(refused(json!({ "hostPID": true }), none.clone()).contains("hostPID"));
        let contradiction = json!({ "runAsUser": 0, "runAsNonRoot": true });
        assert!(refused(none, contradiction).contains("runAsNonRoot"));
    }
}
