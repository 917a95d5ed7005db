//! Changes of manifest files, as they are saved.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::{
    manifests,
    terminal::{self, Failure},
};

/// How long nothing may change before the files are read: an editor writes a file in several steps.
const QUIET: Duration = Duration::from_millis(150);
/// How long they are waited for at most: where something is written all the time, nothing would be read otherwise.
const RESTLESS_AT_MOST: Duration = Duration::from_secs(2);

/// The files below some paths, and what they held when they were last looked at.
pub(crate) struct ManifestWatch {
    paths: Vec<PathBuf>,
    held: BTreeMap<PathBuf, Vec<u8>>,
    // One place is enough: what counts is that something has changed since the last look.
    changes: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

/// What a look at the files found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Files that are new or hold something else.
    pub(crate) written: Vec<PathBuf>,
    /// Files that are gone.
    pub(crate) gone: Vec<PathBuf>,
}

impl Changed {
    fn is_empty(&self) -> bool {
        self.written.is_empty() && self.gone.is_empty()
    }
}

impl ManifestWatch {
    /// Begins to watch. What the files hold now is no change.
    ///
    /// # Errors
    ///
    /// When a path cannot be watched.
    pub(crate) fn start(paths: &[PathBuf]) -> Result<Self, Failure> {
        let failed = |path: &Path, error: notify::Error| {
            Failure::new(format!("{} cannot be watched: {error}", path.display()))
        };
        let (sender, changes) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading a file is reported on some systems, and our own look at one must not bring about the next.
            let matters = !matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_)));
            if matters {
                // Full, it says already what this would say; closed, nobody watches any more.
                let _ = sender.try_send(());
            }
        })
        .map_err(|error| failed(Path::new("the file system"), error))?;
        for path in paths {
            // An editor puts a new file in the place of the old one: only their folder sees both.
            let folder = if path.is_dir() {
                path.as_path()
            } else {
                path.parent()
                    .filter(|parent| !parent.as_os_str().is_empty())
                    .unwrap_or(Path::new("."))
            };
            watcher
                .watch(folder, RecursiveMode::NonRecursive)
                .map_err(|error| failed(folder, error))?;
        }
        let mut watch = Self {
            paths: paths.to_vec(),
            held: BTreeMap::new(),
            changes,
            _watcher: watcher,
        };
        watch.held = watch.read();
        Ok(watch)
    }

    /// Waits until a file holds something else than before.
    pub(crate) async fn next(&mut self) -> Changed {
        loop {
            if self.changes.recv().await.is_none() {
                // The watcher lives as long as `self`.
                return std::future::pending().await;
            }
            settled(&mut self.changes).await;
            let changed = self.look();
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    fn look(&mut self) -> Changed {
        let now = self.read();
        let changed = Changed {
            written: now
                .iter()
                .filter(|(file, text)| self.held.get(*file) != Some(*text))
                .map(|(file, _)| file.clone())
                .collect(),
            gone: self
                .held
                .keys()
                .filter(|file| !now.contains_key(*file))
                .cloned()
                .collect(),
        };
        self.held = now;
        changed
    }

    fn read(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for path in &self.paths {
            // A path that is gone for a moment, while a file is replaced, is looked at again with its return.
            for file in manifests::files_below(path).unwrap_or_default() {
                match std::fs::read(&file) {
                    Ok(text) => {
                        found.insert(file, text);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => terminal::warning(format!("{}: {error}", file.display())),
                }
            }
        }
        found
    }
}

/// Returns when nothing has changed for a while, or has not stopped changing for a longer one.
async fn settled(changes: &mut mpsc::Receiver<()>) {
    let at_the_latest = Instant::now() + RESTLESS_AT_MOST;
    while Instant::now() < at_the_latest {
        let quiet_until = at_the_latest.min(Instant::now() + QUIET);
        match timeout_at(quiet_until, changes.recv()).await {
            Ok(Some(())) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_that_change_all_the_time_are_read_all_the_same() {
        let (sender, mut changes) = mpsc::channel(1);
        let began = Instant::now();
        let restless = async {
            loop {
                let _ = sender.try_send(());
                tokio::time::sleep(QUIET / 3).await;
            }
        };
        tokio::select! {
            () = settled(&mut changes) => {}
            () = restless => {}
        }
        assert_eq!(began.elapsed(), RESTLESS_AT_MOST);
        // A single save is read soon.
        while changes.try_recv().is_ok() {}
        let began = Instant::now();
        settled(&mut changes).await;
        assert_eq!(began.elapsed(), QUIET);
    }

    async fn next(watch: &mut ManifestWatch) -> Changed {
        tokio::time::timeout(Duration::from_secs(20), watch.next())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn saved_replaced_new_and_deleted_files_are_named_and_untouched_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("a.yaml"), "a: 1").unwrap();
        std::fs::write(file("b.yaml"), "b: 1").unwrap();
        let mut watch = ManifestWatch::start(&[directory.path().to_owned()]).unwrap();

        std::fs::write(file("a.yaml"), "a: 2").unwrap();
        assert_eq!(next(&mut watch).await.written, [file("a.yaml")]);

        // As an editor does that writes beside and renames.
        std::fs::write(file("b.yaml.tmp"), "b: 2").unwrap();
        std::fs::rename(file("b.yaml.tmp"), file("b.yaml")).unwrap();
        assert_eq!(next(&mut watch).await.written, [file("b.yaml")]);

        std::fs::write(file("notes.txt"), "no manifest").unwrap();
        // The same text again is no change.
        std::fs::write(file("a.yaml"), "a: 2").unwrap();
        std::fs::write(file("c.yaml"), "c: 1").unwrap();
        assert_eq!(next(&mut watch).await.written, [file("c.yaml")]);

        std::fs::remove_file(file("c.yaml")).unwrap();
        let changed = next(&mut watch).await;
        assert_eq!(
            (changed.written, changed.gone),
            (Vec::new(), vec![file("c.yaml")])
        );
    }

    #[tokio::test]
    async fn a_single_file_is_followed_through_its_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("one.yaml");
        std::fs::write(&file, "a: 1").unwrap();
        let mut watch = ManifestWatch::start(std::slice::from_ref(&file)).unwrap();
        std::fs::write(directory.path().join("other.yaml"), "a: 1").unwrap();
        std::fs::write(directory.path().join("new"), "a: 2").unwrap();
        std::fs::rename(directory.path().join("new"), &file).unwrap();
        assert_eq!(next(&mut watch).await.written, [file]);
    }
}
