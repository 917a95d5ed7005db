//! Having an image: there already, or pulled, with the states, Events and words of a kubelet.

use std::time::Duration;

use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::reference::{ImageName, PullPolicy};
use super::run::{ForeignRun, Report};
use super::{ANSWER, Engine, EngineError, within};

/// The longest time without progress, and the longest of all, in which an image is pulled.
const PROGRESS: Duration = Duration::from_secs(120);
const WHOLE: Duration = Duration::from_secs(60 * 60);

/// Why there is no image: the reason of the container's state, and what is said.
struct Missing {
    reason: &'static str,
    message: String,
}

impl ForeignRun {
    /// Gives the image once it is there. Tries again with waits that double, as long as the container is wanted.
    pub(super) async fn image(&self, engine: &mut Engine) -> ImageInspect {
        let image = &self.plan.image;
        let mut wait = self.back_off.initial;
        loop {
            let Missing { reason, message } = match self.try_image(engine).await {
                Ok(found) => return found,
                Err(missing) => missing,
            };
            self.note(true, "Failed", format!("Error: {reason}")).await;
            self.waiting(reason, message.clone()).await;
            if reason == "ErrImagePull" {
                self.note(false, "BackOff", format!("Back-off pulling image {image:?}"))
                    .await;
                self.note(true, "Failed", "Error: ImagePullBackOff".to_owned())
                    .await;
                // Its state says both: why the last try failed, and that another one comes.
                tokio::time::sleep(wait.min(SHOWN)).await;
                self.waiting(
                    "ImagePullBackOff",
                    format!("Back-off pulling image {image:?}: {reason}: {message}"),
                )
                .await;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.back_off.limit);
            *engine = self.engine().await;
        }
    }

    async fn try_image(&self, engine: &Engine) -> Result<ImageInspect, Missing> {
        let image = &self.plan.image;
        let failed = |message: String| Missing {
            reason: "ErrImagePull",
            message,
        };
        let Some(name) = ImageName::parse(image) else {
            let message = format!(
                "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: invalid reference format"
            );
            self.note(true, "InspectFailed", message.clone()).await;
            return Err(Missing {
                reason: "InvalidImageName",
                message,
            });
        };
        let present = match within(ANSWER, engine.docker.inspect_image(image)).await {
            Ok(found) => Some(found),
            Err(error) if error.status() == Some(404) => None,
            Err(error) => {
                let message = format!("Failed to inspect image {image:?}: {error}");
                self.note(true, "InspectFailed", message.clone()).await;
                return Err(Missing {
                    reason: "ImageInspectError",
                    message,
                });
            }
        };
        match (self.plan.pull_policy, present) {
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(found)) => {
                let note = format!("Container image {image:?} already present on machine");
                self.note(false, "Pulled", note).await;
                return Ok(found);
            }
            (PullPolicy::Never, None) => {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.note(true, "ErrImageNeverPull", message.clone()).await;
                return Err(Missing {
                    reason: "ErrImageNeverPull",
                    message,
                });
            }
            (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, None) => {}
        }
        self.note(false, "Pulling", format!("Pulling image {image:?}"))
            .await;
        let began = Instant::now();
        let pulled = match self.pull(engine, &name).await {
            Ok(()) => within(ANSWER, engine.docker.inspect_image(image)).await,
            Err(error) => Err(error),
        };
        match pulled {
            Ok(found) => {
                let took = began.elapsed();
                let size = found.size.unwrap_or_default();
                let note = format!(
                    "Successfully pulled image {image:?} in {took:.3?} ({took:.3?} including waiting). Image size: {size} bytes."
                );
                self.note(false, "Pulled", note).await;
                Ok(found)
            }
            Err(error) => {
                let note = format!("Failed to pull image {image:?}: {error}");
                self.note(true, "Failed", note).await;
                Err(failed(error.to_string()))
            }
        }
    }

    async fn pull(&self, engine: &Engine, name: &ImageName) -> Result<(), EngineError> {
        let options = CreateImageOptions {
            from_image: Some(name.name.clone()),
            tag: Some(name.version()),
            ..CreateImageOptions::default()
        };
        let credentials = self.plan.keyring.of(name);
        let mut progress = std::pin::pin!(engine.docker.create_image(Some(options), None, credentials));
        let end = Instant::now() + WHOLE;
        loop {
            let limit = end.min(Instant::now() + PROGRESS);
            match timeout_at(limit, progress.next()).await {
                Ok(Some(step)) => drop(step?),
                Ok(None) => return Ok(()),
                Err(_) => return Err(EngineError::Stalled(PROGRESS)),
            }
        }
    }

    /// Tells the Pod why the container does not run yet.
    pub(super) async fn waiting(&self, reason: &'static str, message: String) {
        self.tell(Report::Waiting { reason, message }).await;
    }
}

/// How long the reason of a failed pull is shown before the state says that it is tried again.
const SHOWN: Duration = Duration::from_secs(2);
