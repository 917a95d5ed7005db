//! The role `mock-model`: a scenario served as an OpenAI-compatible model.

use std::sync::Arc;

use async_trait::async_trait;
use axum::serve::ListenerExt;
use mainstay_llm::mock::{self, MockModel, Scenario};
use mainstay_telemetry::clock::SharedClock;
use mainstay_workload::{Role, RoleError, WorkloadContext};

use crate::serve::send_at_once;

/// Serves the scenario of the mounted file that `--scenario` names, on the container port `http`.
pub(crate) struct MockModelRole {
    /// Wall-clock time.
    pub(crate) clock: SharedClock,
}

/// The model that `text` scripts; without a script one that answers by itself.
pub(crate) fn model(text: Option<&str>) -> Result<MockModel, mock::ScenarioError> {
    Ok(match text {
        Some(text) => MockModel::with_scenario("mock", Scenario::parse(text)?),
        None => MockModel::without_scenario("mock"),
    })
}

#[async_trait]
impl Role for MockModelRole {
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError> {
        let text = match context.arguments.as_slice() {
            [] => None,
            [flag, path] if flag == "--scenario" => Some(
                context
                    .files
                    .read_to_string(path)
                    .map_err(|error| RoleError::new(error.to_string()))?,
            ),
            other => {
                return Err(RoleError::new(format!(
                    "arguments {other:?} are not of the form `--scenario FILE`"
                )));
            }
        };
        let model = model(text.as_deref()).map_err(|error| RoleError::new(error.to_string()))?;
        let listener = context
            .ports
            .listen("http")
            .await
            .map_err(|error| RoleError::new(format!("port `http` cannot be listened on: {error}")))?;
        context.log.line("the mock model is ready");
        context.readiness.ready();
        let cancelled = context.cancellation.clone();
        axum::serve(
            listener.tap_io(send_at_once),
            mock::router(model, Arc::clone(&self.clock)),
        )
        .with_graceful_shutdown(async move { cancelled.cancelled().await })
        .await
        .map_err(|error| RoleError::new(format!("the mock model ended: {error}")))
    }
}
