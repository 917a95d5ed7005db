//! Where Pods of images by others run: which sockets a container engine may answer at (KA-051).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mainstay_kubeapi::Serving;
use mainstay_localnode::ContainerEngineOptions;
use mainstay_store::data_directory::DataDirectory;

use crate::{
    arguments::{self, ContainerEngine, ServeArguments},
    terminal::Failure,
};

/// As the arguments say.
pub(super) fn of(
    arguments: &ServeArguments,
    serving: &Serving,
    data: &DataDirectory,
) -> Result<Option<ContainerEngineOptions>, Failure> {
    let sockets = match &arguments.container_engine {
        ContainerEngine::Nowhere => return Ok(None),
        ContainerEngine::Socket(path) => vec![path.clone()],
        ContainerEngine::Auto => usual_sockets(&arguments::engine_environment()),
    };
    let used = std::path::absolute(data.pods_dir().with_file_name("container-engine"))
        .map_err(|error| Failure::new(format!("the path of the data directory cannot be found: {error}")))?;
    Ok(Some(ContainerEngineOptions {
        sockets,
        used,
        kubernetes: format!("https://{}", serving.address),
        certificate_authority: serving.certificate_authority.clone(),
    }))
}

/// Where engines listen: as the user says, Docker's socket of the system, Podman's of the user and of the system, and that of
/// Docker Desktop.
fn usual_sockets(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let below = |name: &str, path: &str| variable(name).map(|folder| Path::new(folder).join(path));
    let named = variable("DOCKER_HOST").and_then(|host| host.strip_prefix("unix://"));
    [
        named.map(PathBuf::from),
        Some(PathBuf::from("/var/run/docker.sock")),
        below("XDG_RUNTIME_DIR", "podman/podman.sock"),
        Some(PathBuf::from("/run/podman/podman.sock")),
        below("HOME", ".docker/run/docker.sock"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(environment: &[(&str, &str)]) -> Vec<String> {
        let pairs = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let found = usual_sockets(&pairs.collect());
        found.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_sockets_of_docker_and_podman_are_tried_in_order_ka_051() {
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"];
        assert_eq!(sockets(&[]), usual);
        assert_eq!(sockets(&[("DOCKER_HOST", "tcp://10.0.0.1:2375")]), usual);
        let all = sockets(&[
            ("DOCKER_HOST", "unix:///x.sock"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("HOME", "/home/me"),
        ]);
        let expected = [
            "/x.sock",
            "/var/run/docker.sock",
            "/run/user/1000/podman/podman.sock",
            "/run/podman/podman.sock",
            "/home/me/.docker/run/docker.sock",
        ];
        assert_eq!(all, expected);
    }
}
