//! Which containers this program runs itself. Contract "What a workload sees".

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use mainstay_workload::Roles;

/// The last part of our image's name.
const OWN_IMAGE: &str = "mainstay";

/// Why a Pod cannot run here. It stays pending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unrunnable {
    #[error(
        "container {container:?} has the image {image:?}: {why}, so only Pods of the image \
         \"mainstay\" run here; run the program yourself and give its Service the annotation mainstay.dev/local-address, or use a \
         cluster"
    )]
    Foreign {
        container: String,
        image: String,
        why: String,
    },
    #[error(
        "container {container:?} names the role {role:?}, which this program does not know; it knows: {known}"
    )]
    UnknownRole {
        container: String,
        role: String,
        known: String,
    },
    #[error("container {container:?} names no role: its first argument must be one of: {known}")]
    NoRole { container: String, known: String },
    #[error(
        "init container {container:?} has restartPolicy Always: sidecars do not run here; make it one of the Pod's containers"
    )]
    Sidecar { container: String },
}

impl Unrunnable {
    /// The reason in the Pod's conditions and container states.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "NoContainerEngine",
            Self::Sidecar { .. } => "SidecarNotSupported",
            Self::UnknownRole { .. } | Self::NoRole { .. } => "UnknownRole",
        }
    }
}

/// True for our own image, wherever it is kept and whatever its tag or digest.
pub(crate) fn is_own(image: &str) -> bool {
    let without_digest = image.split_once('@').map_or(image, |(name, _)| name);
    let last = without_digest.rsplit('/').next().unwrap_or(without_digest);
    last.split_once(':').map_or(last, |(name, _)| name) == OWN_IMAGE
}

/// The container's words: its command without the program, then its arguments. References are not replaced yet.
pub(crate) fn words(container: &Container) -> Vec<String> {
    let command = container.command.iter().flatten().skip(1);
    command.chain(container.args.iter().flatten()).cloned().collect()
}

/// Checks that every container can run here. Those of images by others need a container engine: `no_engine` says why there
/// is none.
pub(crate) fn check(pod: &Pod, roles: &Roles, no_engine: Option<&String>) -> Result<(), Unrunnable> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let known = || roles.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    for container in containers(spec) {
        let image = container.image.clone().unwrap_or_default();
        let name = container.name.clone();
        if !is_own(&image) {
            if let Some(why) = no_engine {
                return Err(Unrunnable::Foreign {
                    container: name,
                    image,
                    why: why.clone(),
                });
            }
            continue;
        }
        match words(container).first() {
            None => {
                return Err(Unrunnable::NoRole {
                    container: name,
                    known: known(),
                });
            }
            Some(role) if !roles.contains_key(role) => {
                return Err(Unrunnable::UnknownRole {
                    container: name,
                    role: role.clone(),
                    known: known(),
                });
            }
            Some(_) => {}
        }
    }
    let mut sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|init| init.restart_policy.as_deref() == Some("Always"));
    match sidecars.next() {
        Some(sidecar) => Err(Unrunnable::Sidecar {
            container: sidecar.name.clone(),
        }),
        None => Ok(()),
    }
}

/// All containers of a Pod in the order in which they start: init containers one after another, then the others.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_image_is_known_by_its_last_part() {
        let digest = "mainstay@sha256:0123456789012345678901234567890123456789012345678901234567890123";
        for own in [
            "mainstay",
            "mainstay:1.2",
            "ghcr.io/x/mainstay:dev",
            "localhost:5000/mainstay",
            digest,
        ] {
            assert!(is_own(own), "{own}");
        }
        for foreign in [
            "",
            "nginx",
            "mainstay-extra",
            "mainstay/nginx:1",
            "ghcr.io/mainstay/other",
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
