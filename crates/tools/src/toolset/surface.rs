//! The tools of all handlers together, as they are at one moment.
//!
//! Each handler has a place, in the registry's order. A handler that finds out its tools at run time
//! changes its place from a task of its own; every change makes a new [`Surface`], so that a reader
//! sees all of a change or nothing of it and never waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::{
    OfferedTool, Unavailable,
    discovery::{Discovered, Undiscovered},
};
use crate::{arguments::ArgumentCheck, breaker::Breaker, executor::Executor};

/// A tool that can be called.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) offered: OfferedTool,
    pub(crate) check: ArgumentCheck,
    /// `None`: the connected client runs it.
    pub(crate) executor: Option<Box<dyn Executor>>,
    pub(crate) breaker: Breaker,
}

/// What one handler contributes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) handler: String,
    pub(crate) tools: Vec<Arc<Tool>>,
    /// The name of an explicit tool that cannot be served. It keeps its place too: its calls must not go
    /// to another backend that happens to have a tool of the same name (OM-035).
    pub(crate) reserved: Option<String>,
    pub(crate) problem: Option<Unavailable>,
    /// Whether the handler's tools are still to be found out for the first time.
    pub(crate) pending: bool,
}

/// The tools of all handlers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Surface {
    pub(crate) tools: BTreeMap<String, Arc<Tool>>,
    pub(crate) unavailable: Vec<Unavailable>,
    /// Tool and handler, where a later handler has a tool of the same name.
    shadowed: BTreeSet<(String, String)>,
    pub(crate) pending: bool,
}

impl Surface {
    fn of(places: &[Place]) -> Self {
        let mut surface = Self::default();
        let mut owners: BTreeMap<&str, (&str, Option<&Arc<Tool>>)> = BTreeMap::new();
        for place in places {
            surface.unavailable.extend(place.problem.clone());
            surface.pending |= place.pending;
            let tools = place
                .tools
                .iter()
                .map(|tool| (tool.offered.name.as_str(), Some(tool)))
                .chain(place.reserved.iter().map(|name| (name.as_str(), None)));
            for (name, tool) in tools {
                if let Some((earlier, _)) = owners.insert(name, (&place.handler, tool)) {
                    surface.shadowed.insert((name.to_owned(), earlier.to_owned()));
                }
            }
        }
        surface.tools = owners
            .into_iter()
            .filter_map(|(name, (_, tool))| Some((name.to_owned(), Arc::clone(tool?))))
            .collect();
        surface
    }
}

/// The places and the surface made of them.
#[derive(Debug)]
pub(crate) struct Surfaces {
    registry: String,
    // A std mutex: held to change one place, never across an await.
    places: Mutex<Vec<Place>>,
    current: ArcSwap<Surface>,
    changes: watch::Sender<u64>,
}

impl Surfaces {
    pub(crate) fn new(registry: &str, places: Vec<Place>) -> Arc<Self> {
        let surfaces = Arc::new(Self {
            registry: registry.to_owned(),
            places: Mutex::new(Vec::new()),
            current: ArcSwap::default(),
            changes: watch::Sender::new(0),
        });
        surfaces.change(|current| *current = places);
        surfaces
    }

    pub(crate) fn current(&self) -> Arc<Surface> {
        self.current.load_full()
    }

    /// Counts the changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change(&self, apply: impl FnOnce(&mut Vec<Place>)) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        apply(&mut places);
        let surface = Surface::of(&places);
        for (tool, handler) in surface.shadowed.difference(&self.current.load().shadowed) {
            tracing::warn!(
                registry = self.registry,
                tool,
                handler,
                "several handlers have this tool; the later one serves it (OM-035)"
            );
        }
        // Stored under the lock, so that a slower task cannot put back what another one replaced.
        self.current.store(Arc::new(surface));
        drop(places);
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The right to change one handler's place.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) surfaces: Arc<Surfaces>,
    pub(crate) index: usize,
}

impl Publisher {
    /// Replaces the handler's tools.
    pub(crate) fn publish(&self, discovered: Discovered) {
        let Discovered { tools, incomplete } = discovered;
        let count = tools.len();
        self.change(|place| {
            place.tools = tools.into_iter().map(Arc::new).collect();
            place.problem = None;
            place.pending = false;
            if let Some(Undiscovered { reason, message }) = incomplete {
                tracing::warn!(
                    registry = self.surfaces.registry,
                    handler = place.handler,
                    reason,
                    "{message}"
                );
                place.problem = Some(Unavailable {
                    handler: place.handler.clone(),
                    reason,
                    message,
                });
            }
            tracing::info!(
                registry = self.surfaces.registry,
                handler = place.handler,
                tools = count,
                "the tools of a handler were discovered"
            );
        });
    }

    /// Notes why the handler's tools cannot be found out, and keeps the ones that are known.
    pub(crate) fn fail(&self, problem: Undiscovered) {
        self.change(|place| {
            let Undiscovered { reason, message } = problem;
            let problem = Unavailable {
                handler: place.handler.clone(),
                reason,
                message,
            };
            // The same cause every half a minute would bury everything else.
            if place.problem.as_ref() == Some(&problem) {
                tracing::debug!(
                    registry = self.surfaces.registry,
                    handler = problem.handler,
                    reason,
                    "{}",
                    problem.message
                );
            } else {
                tracing::warn!(
                    registry = self.surfaces.registry,
                    handler = problem.handler,
                    reason,
                    "{}; it is tried again in the background",
                    problem.message
                );
            }
            place.problem = Some(problem);
            place.pending = false;
        });
    }

    fn change(&self, apply: impl FnOnce(&mut Place)) {
        self.surfaces.change(|places| {
            if let Some(place) = places.get_mut(self.index) {
                apply(place);
            }
        });
    }
}
