//! The files mounted into a workload.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// The root of a workload's mounted files. Container paths, such as `/etc/omnia/pack/pack.json`, are looked up below it;
/// in a container the root is `/`.
#[derive(Clone, Debug)]
pub struct FileRoot {
    root: PathBuf,
}

impl FileRoot {
    /// The files below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the container path `path` really is.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a path with a `..` part: it could name another workload's files.
    pub fn path(&self, path: &str) -> io::Result<PathBuf> {
        let mut found = self.root.clone();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => found.push(name),
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!("path {path:?} leaves the workload's files"),
                    ));
                }
            }
        }
        Ok(found)
    }

    /// The bytes of the file at the container path `path`.
    ///
    /// # Errors
    ///
    /// The error's text names the container path, not where it really is.
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(path)?).map_err(|error| named(path, &error))
    }

    /// The text of the file at the container path `path`.
    ///
    /// # Errors
    ///
    /// As [`FileRoot::read`]; `InvalidData` where the file is not UTF-8.
    pub fn read_to_string(&self, path: &str) -> io::Result<String> {
        text(path, self.read(path)?)
    }

    /// As [`FileRoot::read_to_string`], for a caller on the async runtime: a slow disk must not hold up other work.
    ///
    /// # Errors
    ///
    /// As [`FileRoot::read_to_string`].
    pub async fn read_text(&self, path: &str) -> io::Result<String> {
        text(path, self.read_bytes(path).await?)
    }

    /// As [`FileRoot::read`], for a caller on the async runtime.
    ///
    /// # Errors
    ///
    /// As [`FileRoot::read`].
    pub async fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        tokio::fs::read(self.path(path)?)
            .await
            .map_err(|error| named(path, &error))
    }
}

fn text(path: &str, bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {error}")))
}

fn named(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn files_are_read_off_the_runtime_with_the_same_errors() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), "abc").unwrap();
        std::fs::write(directory.path().join("binary"), [0xff]).unwrap();
        let files = FileRoot::at(directory.path());
        assert_eq!(files.read_text("/token").await.unwrap(), "abc");
        let error = files.read_text("/absent").await.unwrap_err();
        assert!(error.to_string().starts_with("/absent: "), "{error}");
        let error = files.read_text("/binary").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(files.read_text("/../x").await.is_err());
    }

    #[test]
    fn container_paths_stay_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("etc/omnia")).unwrap();
        std::fs::write(directory.path().join("etc/omnia/tools.yaml"), "registry: a").unwrap();
        let files = FileRoot::at(directory.path());
        assert_eq!(
            files.read_to_string("/etc/omnia/tools.yaml").unwrap(),
            "registry: a"
        );
        assert_eq!(
            files.read("/etc/../../x").unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        let missing = files.read("/etc/omnia/absent").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(
            missing.to_string().starts_with("/etc/omnia/absent: "),
            "{missing}"
        );
    }
}
