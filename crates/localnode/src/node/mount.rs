//! Writing a Pod's volumes below its folder, and the root of each container's files.
//!
//! ```text
//! PODS/UID/volumes/NAME/..2026…/key      the files of one version
//!                       ..data           → the present version, replaced in one step
//!                       key              → ..data/key
//! PODS/UID/containers/NAME/root/etc/pack → the volume
//! ```
//!
//! A reader that opens two files through `..data` may see two versions, as in a container; one file is always whole.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};

use super::engine::plan::bind;
use super::environment::{ConfigError, expand};
use super::volumes::{Content, FileContent, is_inside};

const PRESENT: &str = "..data";
/// The volume with which a container finds the Kubernetes API. No volume of a Pod has such a name.
const ACCESS: &str = "..kubernetes";
/// Where containers look for it.
const ACCESS_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The files of one Pod.
#[derive(Clone, Debug)]
pub(crate) struct PodFiles {
    folder: PathBuf,
    /// Containers mount the volumes, whose users are not this process's. Nobody else gets past the folder.
    shared: bool,
}

impl PodFiles {
    pub(crate) fn new(pods: &Path, uid: &str) -> Self {
        Self {
            // What an engine is told has to be absolute. Only an empty path has no such form.
            folder: std::path::absolute(pods)
                .unwrap_or_else(|_| pods.to_owned())
                .join(uid),
            shared: false,
        }
    }

    /// Of a Pod whose containers mount the volumes.
    pub(crate) fn for_containers(self) -> Self {
        Self { shared: true, ..self }
    }

    fn volume(&self, name: &str) -> PathBuf {
        self.folder.join("volumes").join(name)
    }

    /// Where the container finds its files.
    pub(crate) fn root(&self, container: &str) -> PathBuf {
        self.folder.join("containers").join(container).join("root")
    }

    /// Brings the volumes to `contents`. `stamp` names the version; it must differ from those before.
    pub(crate) fn write(&self, contents: &BTreeMap<String, Content>, stamp: &str) -> Result<(), ConfigError> {
        for (name, content) in contents {
            let folder = self.volume(name);
            let written = create_private(&folder).and_then(|()| match content {
                Content::Empty if self.shared => {
                    std::fs::set_permissions(&folder, Permissions::from_mode(0o777))
                }
                Content::Empty => Ok(()),
                Content::Files(files) => {
                    if self.shared {
                        std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
                    }
                    replace(&folder, files, stamp, if self.shared { 0o755 } else { 0o700 })
                }
            });
            written.map_err(|error| ConfigError::Write {
                place: format!("volume {name:?}"),
                error: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// Brings the volume to `files` by which a container speaks to the Kubernetes API.
    pub(crate) fn write_access(
        &self,
        files: BTreeMap<String, FileContent>,
        stamp: &str,
    ) -> Result<(), ConfigError> {
        self.write(&[(ACCESS.to_owned(), Content::Files(files))].into(), stamp)
    }

    /// The folder of these files.
    pub(crate) fn access(&self) -> PathBuf {
        self.volume(ACCESS)
    }

    /// Shows these files in a container's root where each client looks for them, unless something is mounted there.
    pub(crate) fn mount_access(&self, container: &str) -> Result<(), ConfigError> {
        let root = self.root(container);
        let Some(target) = below(&root, ACCESS_PATH) else {
            return Ok(());
        };
        match link(&root, &self.access(), "", &target, false) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::Unsupported
                ) =>
            {
                Err(ConfigError::Write {
                    place: format!("container {container:?}"),
                    error: error.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Lays out a container's root anew: a link for each of its mounts.
    pub(crate) fn mount(
        &self,
        pod: &Pod,
        container: &Container,
        environment: &BTreeMap<String, String>,
    ) -> Result<PathBuf, ConfigError> {
        let root = self.root(&container.name);
        let failed = |error: io::Error| ConfigError::Write {
            place: format!("container {:?}", container.name),
            error: error.to_string(),
        };
        match std::fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        create_private(&root).map_err(failed)?;
        let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
        // An outer mount first, so that an inner one is found to lie in it.
        mounts.sort_by_key(|mount| mount.mount_path.len());
        for mount in mounts {
            let (volume, sub_path) = mounted(pod, container, mount, environment)?;
            let target = below(&root, &mount.mount_path).ok_or_else(|| ConfigError::Path {
                place: format!(
                    "mountPath of volume mount {:?} in container {:?}",
                    mount.name, container.name
                ),
                path: mount.mount_path.clone(),
            })?;
            let volume_folder = self.volume(&volume.name);
            link(
                &root,
                &volume_folder,
                &sub_path,
                &target,
                volume.empty_dir.is_some(),
            )
            .map_err(failed)?;
        }
        Ok(root)
    }

    /// An empty file for what a container says last, which it may write whoever its user is.
    pub(crate) fn last_words(&self, container: &str, stamp: &str) -> Result<PathBuf, ConfigError> {
        let folder = self.folder.join("containers").join(container);
        let path = folder.join(format!("last-words-{stamp}"));
        let written = create_private(&folder)
            .and_then(|()| std::fs::write(&path, ""))
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o666)));
        match written {
            Ok(()) => Ok(path),
            Err(error) => Err(ConfigError::Write {
                place: format!("container {container:?}"),
                error: error.to_string(),
            }),
        }
    }

    /// A container's mounts as a container engine is told them: outer ones first.
    pub(crate) fn binds(
        &self,
        pod: &Pod,
        container: &Container,
        environment: &BTreeMap<String, String>,
        access: bool,
    ) -> Result<Vec<String>, ConfigError> {
        let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
        mounts.sort_by_key(|mount| mount.mount_path.len());
        let mut binds = Vec::new();
        for mount in &mounts {
            let (volume, sub_path) = mounted(pod, container, mount, environment)?;
            let failed = |error: io::Error| ConfigError::Write {
                place: format!("volume mount {:?} of container {:?}", mount.name, container.name),
                error: error.to_string(),
            };
            let folder = std::fs::canonicalize(self.volume(&volume.name)).map_err(failed)?;
            let writable = volume.empty_dir.is_some();
            let mut source = folder.clone();
            if !sub_path.is_empty() {
                source.push(&sub_path);
                if writable && !source.exists() {
                    DirBuilder::new()
                        .mode(0o777)
                        .recursive(true)
                        .create(&source)
                        .and_then(|()| std::fs::set_permissions(&source, Permissions::from_mode(0o777)))
                        .map_err(failed)?;
                }
                // A container may have put a link there that leads out of its volume.
                source = std::fs::canonicalize(&source).map_err(failed)?;
                if !source.starts_with(&folder) {
                    return Err(ConfigError::Path {
                        place: format!(
                            "subPath of volume mount {:?} in container {:?}",
                            mount.name, container.name
                        ),
                        path: sub_path,
                    });
                }
            }
            let read_only = !writable || mount.read_only == Some(true);
            binds.push(bind(container, &source, &mount.mount_path, read_only)?);
        }
        if access
            && !mounts
                .iter()
                .any(|mount| mount.mount_path.trim_end_matches('/') == ACCESS_PATH)
        {
            binds.push(bind(container, &self.access(), ACCESS_PATH, true)?);
        }
        Ok(binds)
    }

    /// Removes everything of the Pod.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The volume that a mount shows, and which part of it.
fn mounted<'a>(
    pod: &'a Pod,
    container: &Container,
    mount: &VolumeMount,
    environment: &BTreeMap<String, String>,
) -> Result<(&'a Volume, String), ConfigError> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let volume = volumes
        .into_iter()
        .flatten()
        .find(|volume| volume.name == mount.name)
        .ok_or_else(|| ConfigError::NoVolume {
            container: container.name.clone(),
            mount: mount.name.clone(),
        })?;
    let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
        (Some(path), _) => path.clone(),
        (None, Some(expression)) => expand(expression, environment),
        (None, None) => String::new(),
    };
    if !sub_path.is_empty() && !is_inside(&sub_path) {
        let place = format!(
            "subPath of volume mount {:?} in container {:?}",
            mount.name, container.name
        );
        return Err(ConfigError::Path {
            place,
            path: sub_path,
        });
    }
    Ok((volume, sub_path))
}

fn create_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}

/// The container path below the root; `None` if it would leave it.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let mut found = root.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (found != root).then_some(found)
}

fn link(root: &Path, volume: &Path, sub_path: &str, target: &Path, writable: bool) -> io::Result<()> {
    let mut outer = target.parent();
    while let Some(folder) = outer.filter(|folder| *folder != root) {
        if folder.is_symlink() {
            let text = format!(
                "mounts inside other mounts are not supported: {}",
                target.display()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        outer = folder.parent();
    }
    if let Some(parent) = target.parent() {
        create_private(parent)?;
    }
    if sub_path.is_empty() {
        return symlink(volume, target);
    }
    let source = volume.join(sub_path);
    if writable {
        create_private(&source)?;
        return symlink(source, target);
    }
    // As in a container, what is mounted by a sub-path does not follow later changes, so it is a copy.
    copy(&source, target)
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    if source.is_dir() {
        create_private(target)?;
        for entry in std::fs::read_dir(source)? {
            let name = entry?.file_name();
            copy(&source.join(&name), &target.join(&name))?;
        }
        return Ok(());
    }
    std::fs::copy(source, target).map(drop)
}

/// Writes the files as a new version and makes it the present one in one step.
fn replace(
    folder: &Path,
    files: &BTreeMap<String, FileContent>,
    stamp: &str,
    folder_mode: u32,
) -> io::Result<()> {
    let version = format!("..{stamp}");
    let new = folder.join(&version);
    let create = |folder: &Path| DirBuilder::new().mode(folder_mode).recursive(true).create(folder);
    create(&new)?;
    for (path, content) in files {
        let file = new.join(path);
        if let Some(parent) = file.parent() {
            create(parent)?;
        }
        let mut opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file)?;
        opened.write_all(&content.bytes)?;
        opened.set_permissions(Permissions::from_mode(content.mode))?;
    }
    let old = std::fs::read_link(folder.join(PRESENT)).ok();
    let next = folder.join("..data_new");
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(&version, &next)?;
    std::fs::rename(&next, folder.join(PRESENT))?;
    let first_parts: std::collections::BTreeSet<String> = files
        .keys()
        .filter_map(|path| path.split('/').next().map(str::to_owned))
        .collect();
    for name in &first_parts {
        let link = folder.join(name);
        if !link.is_symlink() {
            symlink(Path::new(PRESENT).join(name), link)?;
        }
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !first_parts.contains(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    match old {
        Some(old) if old != Path::new(&version) => std::fs::remove_dir_all(folder.join(old)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(entries: &[(&str, &str, u32)]) -> BTreeMap<String, Content> {
        let file = |text: &str, mode| FileContent {
            bytes: text.as_bytes().to_vec(),
            mode,
        };
        let files = entries
            .iter()
            .map(|(path, text, mode)| ((*path).to_owned(), file(text, *mode)))
            .collect();
        BTreeMap::from([
            ("v".to_owned(), Content::Files(files)),
            ("e".to_owned(), Content::Empty),
        ])
    }

    fn pod(mounts: serde_json::Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": {
            "containers": [{ "name": "c", "volumeMounts": mounts }],
            "volumes": [{ "name": "v", "configMap": { "name": "x" } }, { "name": "e", "emptyDir": {} }],
        } }))
        .unwrap()
    }

    fn mount(files: &PodFiles, mounts: serde_json::Value) -> Result<PathBuf, ConfigError> {
        let pod = pod(mounts);
        let environment = BTreeMap::from([("WHO".to_owned(), "me".to_owned())]);
        files.mount(&pod, &pod.spec.as_ref().unwrap().containers[0], &environment)
    }

    #[test]
    fn a_mounted_volume_follows_its_changes_and_loses_what_is_gone() {
        let world = tempfile::tempdir().unwrap();
        let pod_files = PodFiles::new(world.path(), "uid");
        pod_files
            .write(&files(&[("a", "1", 0o644), ("deep/b", "2", 0o400)]), "1")
            .unwrap();
        let root = mount(&pod_files, json!([{ "name": "v", "mountPath": "/etc/pack" }])).unwrap();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        assert_eq!(read("etc/pack/a").as_deref(), Some("1"));
        assert_eq!(read("etc/pack/deep/b").as_deref(), Some("2"));
        let mode = std::fs::metadata(root.join("etc/pack/deep/b"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o400);
        pod_files
            .write(&files(&[("a", "new", 0o644), ("c", "3", 0o644)]), "2")
            .unwrap();
        assert_eq!(read("etc/pack/a").as_deref(), Some("new"));
        assert_eq!(read("etc/pack/c").as_deref(), Some("3"));
        assert_eq!(read("etc/pack/deep/b"), None);
        let left: Vec<String> = std::fs::read_dir(world.path().join("uid/volumes/v"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(left.len(), 4, "old versions were left: {left:?}");
        pod_files.remove().unwrap();
        assert!(!world.path().join("uid").exists());
    }

    #[test]
    fn sub_paths_are_copies_of_files_and_folders_of_their_own_in_writable_volumes() {
        let world = tempfile::tempdir().unwrap();
        let pod_files = PodFiles::new(world.path(), "uid");
        pod_files.write(&files(&[("a", "1", 0o644)]), "1").unwrap();
        let mounts = json!([
            { "name": "v", "mountPath": "/app/config.txt", "subPath": "a" },
            { "name": "e", "mountPath": "/data", "subPathExpr": "for-$(WHO)" },
        ]);
        let root = mount(&pod_files, mounts).unwrap();
        std::fs::write(root.join("data/x"), "written").unwrap();
        assert!(world.path().join("uid/volumes/e/for-me/x").exists());
        pod_files.write(&files(&[("a", "new", 0o644)]), "2").unwrap();
        assert_eq!(std::fs::read_to_string(root.join("app/config.txt")).unwrap(), "1");
    }

    #[test]
    fn paths_cannot_leave_the_pods_folder() {
        let world = tempfile::tempdir().unwrap();
        let pod_files = PodFiles::new(world.path(), "uid");
        pod_files.write(&files(&[("a", "1", 0o644)]), "1").unwrap();
        for bad in [
            json!([{ "name": "v", "mountPath": "/../../x" }]),
            json!([{ "name": "v", "mountPath": "/x", "subPath": "../../y" }]),
            json!([{ "name": "e", "mountPath": "/x", "subPathExpr": "../$(WHO)" }]),
            json!([{ "name": "none", "mountPath": "/x" }]),
            json!([{ "name": "v", "mountPath": "/x" }, { "name": "e", "mountPath": "/x/y" }]),
        ] {
            assert!(mount(&pod_files, bad.clone()).is_err(), "{bad}");
        }
    }
}
