//! Handlers whose tools are found out at run time (OM-017, OM-424, OM-431).

use std::time::Duration;

use async_trait::async_trait;
use mainstay_telemetry::random::{Random, SharedRandom};
use tokio::time::Instant;

use super::surface::{Publisher, Tool};

/// Wait after the first failure; each further one doubles it (OM-422, OM-431).
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

// A backend that says all the time that its tools changed is not asked more often than this.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// Finds out the tools of one handler.
#[async_trait]
pub(crate) trait ToolSource: std::fmt::Debug + Send + Sync {
    /// The tools as they are now. Ends within a bounded time of its own.
    ///
    /// # Errors
    /// Why they are not known.
    async fn discover(&self) -> Result<Discovered, Undiscovered>;

    /// Returns when the tools may have changed since they were discovered: the connection was lost, or
    /// the backend says so. Never, for a source that is read once.
    async fn stale(&self) {
        std::future::pending().await
    }
}

/// The tools of one handler.
#[derive(Debug)]
pub(crate) struct Discovered {
    pub(crate) tools: Vec<Tool>,
    /// Why there may be more than these.
    pub(crate) incomplete: Option<Undiscovered>,
}

/// Why a handler's tools are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Undiscovered {
    /// Stable word for logs.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Undiscovered {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

// Names of a message; what follows is counted.
const NAMED: usize = 8;

/// Some names for a message about all of them: what a backend says of itself is quoted in bounds.
pub(crate) fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let further = names.len().saturating_sub(NAMED);
    let shown: Vec<String> = names
        .take(NAMED)
        .map(|name| format!("`{}`", mainstay_telemetry::text::escape(name, 64)))
        .collect();
    match further {
        0 => shown.join(", "),
        _ => format!("{} and {further} more", shown.join(", ")),
    }
}

/// Keeps the tools of one handler up to date, until dropped. A failure leaves the last known tools in
/// place; their calls fail on their own while the backend is away.
pub(crate) async fn keep(source: Box<dyn ToolSource>, publisher: Publisher, random: SharedRandom) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match source.discover().await {
            Ok(discovered) => {
                failures = 0;
                publisher.publish(discovered);
                source.stale().await;
                tokio::time::sleep_until(began + SHORTEST_INTERVAL).await;
            }
            Err(problem) => {
                failures += 1;
                publisher.fail(problem);
                tokio::time::sleep(wait(failures, &*random)).await;
            }
        }
    }
}

/// The wait after so many failures in a row: doubled each time, with a jitter of a tenth so that the
/// agents of a cluster do not ask a recovering backend together, and never above the cap.
fn wait(failures: u32, random: &dyn Random) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let grown = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    grown.mul_f64(0.9 + 0.2 * random.fraction()).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex},
    };

    use mainstay_telemetry::{random::SeededRandom, task};
    use serde_json::Value;
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        arguments::ArgumentCheck,
        breaker::Breaker,
        toolset::{
            OfferedTool, ToolKind,
            surface::{Place, Surfaces},
        },
    };

    #[test]
    fn waits_double_from_one_second_to_half_a_minute_om_431() {
        let random = SeededRandom::new(3);
        for (failures, expected) in [
            (1, 1.0),
            (2, 2.0),
            (3, 4.0),
            (5, 16.0),
            (6, 30.0),
            (4_000_000, 30.0),
        ] {
            let wait = wait(failures, &*random).as_secs_f64();
            assert!(
                (expected * 0.9..=(expected * 1.1_f64).min(30.0)).contains(&wait),
                "{failures}: {wait}"
            );
        }
    }

    /// Gives what its script says, and changes when told so.
    #[derive(Debug)]
    struct Scripted {
        script: Mutex<VecDeque<Result<Vec<&'static str>, &'static str>>>,
        changed: Arc<Notify>,
    }

    #[async_trait]
    impl ToolSource for Scripted {
        async fn discover(&self) -> Result<Discovered, Undiscovered> {
            let next = self.script.lock().unwrap().pop_front().unwrap();
            let names = next.map_err(|message| Undiscovered::new("Lost", message))?;
            Ok(Discovered {
                tools: names.into_iter().map(tool).collect(),
                incomplete: None,
            })
        }

        async fn stale(&self) {
            self.changed.notified().await;
        }
    }

    fn tool(name: &str) -> Tool {
        Tool {
            offered: OfferedTool {
                name: name.to_owned(),
                description: String::new(),
                parameters: Value::Null,
                handler: "h".to_owned(),
                timeout: Duration::from_secs(1),
                kind: ToolKind::Backend,
                repeat_safe: false,
            },
            check: ArgumentCheck::compile(&Value::Null).unwrap(),
            executor: None,
            breaker: Breaker::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_of_tools_changes_while_the_agent_runs_and_outlives_a_lost_backend_om_422_om_423() {
        let place = Place {
            handler: "h".to_owned(),
            tools: Vec::new(),
            reserved: None,
            problem: None,
            pending: true,
        };
        let surfaces = Surfaces::new("r", vec![place]);
        let changed = Arc::new(Notify::new());
        let source = Scripted {
            script: Mutex::new(VecDeque::from([
                Ok(vec!["a", "b"]),
                Err("gone"),
                Err("gone"),
                Ok(vec!["b", "c"]),
            ])),
            changed: Arc::clone(&changed),
        };
        let publisher = Publisher {
            surfaces: Arc::clone(&surfaces),
            index: 0,
        };
        let kept = task::spawn("test", keep(Box::new(source), publisher, SeededRandom::new(1)));
        let mut changes = surfaces.changes();
        let names =
            |surfaces: &Surfaces| -> Vec<String> { surfaces.current().tools.keys().cloned().collect() };

        changes.wait_for(|_| !surfaces.current().pending).await.unwrap();
        assert_eq!(names(&surfaces), ["a", "b"]);
        changed.notify_one();
        changes
            .wait_for(|_| !surfaces.current().unavailable.is_empty())
            .await
            .unwrap();
        // The last known tools stay.
        assert_eq!(names(&surfaces), ["a", "b"]);
        assert_eq!(surfaces.current().unavailable[0].message, "gone");
        changes
            .wait_for(|_| surfaces.current().unavailable.is_empty())
            .await
            .unwrap();
        assert_eq!(names(&surfaces), ["b", "c"]);
        kept.abort();
    }
}
