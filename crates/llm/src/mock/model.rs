//! The script as a [`Model`].

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use mainstay_workload::FileRoot;
use tokio::time::Instant;

use super::{
    scenario::{Scenario, ScenarioError},
    script::{Performance, perform},
};
use crate::{
    build::BuildContext,
    config::ProviderConfig,
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream, Usage},
    idle,
    model::Model,
    request::Request,
};

/// A model that follows a scenario, or speaks for itself without one.
#[derive(Debug, Clone)]
pub struct MockModel {
    name: String,
    source: Source,
    // As of a provider over HTTP (OM-371). None for a model that another process asks: that one has a clock.
    idle_timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Source {
    None,
    Fixed(Arc<Scenario>),
    File(Arc<ScenarioFile>),
}

/// A mounted scenario. It is read for every call, so that an edit needs no restart, and parsed
/// when its bytes differ from the last ones.
#[derive(Debug)]
struct ScenarioFile {
    files: FileRoot,
    path: String,
    // A std mutex: held to compare and replace, never across an await.
    parsed: Mutex<Option<(Vec<u8>, Arc<Scenario>)>>,
}

impl ScenarioFile {
    fn load(&self) -> Result<Arc<Scenario>, ScenarioError> {
        let bytes = self.files.read(&self.path).map_err(ScenarioError::File)?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, scenario)) = parsed.as_ref()
            && *known == bytes
        {
            return Ok(Arc::clone(scenario));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| ScenarioError::Form(error.to_string()))?;
        let scenario = Arc::new(Scenario::parse(text)?);
        *parsed = Some((bytes, Arc::clone(&scenario)));
        Ok(scenario)
    }
}

impl MockModel {
    /// A model that speaks for itself.
    pub fn without_scenario(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source: Source::None,
            idle_timeout: None,
        }
    }

    /// A model that follows `scenario`.
    pub fn with_scenario(name: impl Into<String>, scenario: Scenario) -> Self {
        Self {
            name: name.into(),
            source: Source::Fixed(Arc::new(scenario)),
            idle_timeout: None,
        }
    }

    /// A model that follows the mounted file `path`, also after it changed.
    ///
    /// # Errors
    /// [`ScenarioError`] when the file cannot be used now.
    pub fn from_file(
        name: impl Into<String>,
        files: &FileRoot,
        path: impl Into<String>,
    ) -> Result<Self, ScenarioError> {
        let file = ScenarioFile {
            files: files.clone(),
            path: path.into(),
            parsed: Mutex::new(None),
        };
        file.load()?;
        Ok(Self {
            name: name.into(),
            source: Source::File(Arc::new(file)),
            idle_timeout: None,
        })
    }

    pub(crate) fn from_config(
        config: &ProviderConfig,
        context: &BuildContext,
    ) -> Result<Self, ScenarioError> {
        let mut model = match &config.scenario_file {
            Some(path) => Self::from_file(&config.name, &context.files, path)?,
            None => Self::without_scenario(&config.name),
        };
        let limit = config.defaults.stream_idle_timeout;
        model.idle_timeout = Some(limit.unwrap_or(idle::DEFAULT_IDLE_TIMEOUT));
        Ok(model)
    }

    /// Token counts of the answer to `request`. Nothing is played.
    pub(super) fn usage(&self, request: &Request) -> Usage {
        match self.scenario() {
            Ok(scenario) => perform(scenario.as_deref(), request).usage,
            // The call itself reports what is wrong with the scenario.
            Err(_) => Usage::default(),
        }
    }

    pub(super) fn scenario(&self) -> Result<Option<Arc<Scenario>>, ModelError> {
        match &self.source {
            Source::None => Ok(None),
            Source::Fixed(scenario) => Ok(Some(Arc::clone(scenario))),
            Source::File(file) => file.load().map(Some).map_err(|error| {
                ModelError::new(&self.name, ModelErrorKind::Configuration, error.to_string())
            }),
        }
    }
}

#[async_trait]
impl Model for MockModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let scenario = self.scenario()?;
        let mut performance = perform(scenario.as_deref(), &request);
        if performance.fail.as_ref().is_some_and(|fail| !fail.strikes()) {
            performance.fail = None;
        }
        if let Some(limit) = self.idle_timeout.filter(|limit| *limit < performance.wait) {
            tokio::time::sleep(limit).await;
            return Err(idle::error(&self.name, limit));
        }
        tokio::time::sleep(performance.wait).await;
        if let Some(fail) = &performance.fail
            && !fail.in_stream
            && let Some(error) = failure(&self.name, &performance, 0)
        {
            tokio::time::sleep(performance.delay).await;
            return Err(error);
        }
        let events = play(self.name.clone(), performance);
        Ok(match self.idle_timeout {
            Some(limit) => idle::limited(&self.name, limit, events.map(|event| event.map(Some))),
            None => Box::pin(events),
        })
    }
}

/// The failure that comes before piece number `chunk`.
fn failure(provider: &str, performance: &Performance, chunk: usize) -> Option<ModelError> {
    let fail = performance.fail.as_ref()?;
    if fail.after_chunks.min(performance.chunks.len()) != chunk {
        return None;
    }
    let mut error = match fail.status {
        _ if fail.malformed => ModelError::new(provider, ModelErrorKind::Protocol, &fail.message),
        Some(status) => ModelError::with_status(provider, status, &fail.message),
        None => ModelError::new(provider, ModelErrorKind::Network, &fail.message),
    };
    error.code.clone_from(&fail.code);
    error.retry_after = fail.retry_after.map(std::time::Duration::from_secs);
    Some(error)
}

fn play(
    provider: String,
    mut performance: Performance,
) -> impl futures::Stream<Item = Result<ModelEvent, ModelError>> + Send {
    async_stream::stream! {
        // An error that is the first event comes before anything has begun.
        if let Some(error) = failure(&provider, &performance, 0) {
            yield Err(error);
            return;
        }
        // Counted from the beginning of the answer and not from the piece before: what a timer is late would add up, and a
        // model does not wait for its reader.
        let began = Instant::now();
        let mut due = Duration::ZERO;
        yield Ok(ModelEvent::Started);
        for thought in std::mem::take(&mut performance.thoughts) {
            due = due.saturating_add(performance.delay);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
            yield Ok(ModelEvent::Thinking(thought));
        }
        for index in 0..performance.chunks.len() {
            if let Some(error) = failure(&provider, &performance, index) {
                yield Err(error);
                return;
            }
            due = due.saturating_add(performance.delay);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
            let chunk = performance.chunks.get_mut(index).map(std::mem::take).unwrap_or_default();
            yield Ok(ModelEvent::Text(chunk));
        }
        if performance.chunks.is_empty() {
            due = due.saturating_add(performance.delay);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
        if let Some(error) = failure(&provider, &performance, performance.chunks.len()) {
            yield Err(error);
            return;
        }
        for call in performance.calls {
            yield Ok(ModelEvent::ToolCall(call));
        }
        yield Ok(ModelEvent::Usage(performance.usage));
        yield Ok(ModelEvent::Finished(performance.finish));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::{message::Message, model::complete};

    fn request() -> Request {
        Request {
            messages: vec![Message::user("hi")].into(),
            ..Request::default()
        }
    }

    fn model(step: &str) -> MockModel {
        let text = format!("turns:\n- default: true\n  steps:\n  - {step}\n");
        MockModel::with_scenario("mock", Scenario::parse(&text).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_does_not_slow_the_model_down() {
        let began = Instant::now();
        let mut answer = model("{text: one two three, delay: 30ms}")
            .stream(request())
            .await
            .unwrap();
        assert!(matches!(answer.next().await, Some(Ok(ModelEvent::Started))));
        // The reader does something else while two pieces become due, and has them at once.
        tokio::time::advance(Duration::from_millis(70)).await;
        for due in [70, 70, 90] {
            assert!(matches!(answer.next().await, Some(Ok(ModelEvent::Text(_)))));
            assert_eq!(began.elapsed(), Duration::from_millis(due));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_piece_comes_after_its_delay() {
        let began = Instant::now();
        let answer = complete(&model("{text: one two three, delay: 30ms}"), request())
            .await
            .unwrap();
        assert_eq!(answer.text, "one two three");
        assert_eq!(began.elapsed(), Duration::from_millis(90));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_comes_in_place_of_the_answer_or_in_its_middle() {
        let error = complete(
            &model("fail: {status: 500, message: down, retryAfter: 7}"),
            request(),
        )
        .await
        .unwrap_err();
        assert_eq!(error.status, Some(500));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));

        let model = model("{text: one two three, fail: {afterChunks: 2}}");
        let events: Vec<_> = model.stream(request()).await.unwrap().collect().await;
        assert_eq!(events.len(), 4);
        assert_eq!(events[3].clone().unwrap_err().kind, ModelErrorKind::Network);
    }

    #[tokio::test(start_paused = true)]
    async fn om_371_a_configured_script_is_held_to_the_limit_on_silence() {
        for (step, after, shown) in [
            ("{text: one two, delay: 6s}", None, 5),
            ("{text: one two, delay: 8s}", Some(7), 1),
            ("{text: one, wait: 8s}", Some(7), 0),
        ] {
            let began = Instant::now();
            let mut model = model(step);
            model.idle_timeout = Some(Duration::from_secs(7));
            let (events, error) = match model.stream(request()).await {
                Ok(stream) => {
                    let (events, errors): (Vec<_>, Vec<_>) = stream
                        .collect::<Vec<_>>()
                        .await
                        .into_iter()
                        .partition(Result::is_ok);
                    (events.len(), errors.into_iter().next().map(Result::unwrap_err))
                }
                Err(error) => (0, Some(error)),
            };
            assert_eq!(events, shown, "{step}");
            assert_eq!(error.is_some(), after.is_some(), "{step}");
            if let (Some(error), Some(after)) = (error, after) {
                assert_eq!(error.kind, ModelErrorKind::StreamIdle, "{step}");
                assert_eq!(began.elapsed().as_secs(), after, "{step}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_can_fail_a_few_times_and_then_answer() {
        let model = model("{text: ok, fail: {status: 503, times: 2}}");
        for expected in [Some(503), Some(503), None, None] {
            let answer = complete(&model.clone(), request()).await;
            assert_eq!(answer.err().and_then(|error| error.status), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_can_begin_late_think_in_pieces_and_be_empty() {
        let began = Instant::now();
        let model = model("{wait: 5s, think: one two, text: '', delay: 1s}");
        let mut stream = model.stream(request()).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event.unwrap());
        }
        assert_eq!(events[1], ModelEvent::Thinking("one ".to_owned()));
        assert_eq!(events[2], ModelEvent::Thinking("two".to_owned()));
        assert_eq!(events.len(), 5);
        assert_eq!(began.elapsed(), Duration::from_secs(8));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_can_be_the_first_event_of_a_stream_or_216() {
        let model = model("{text: ok, fail: {status: 529, code: overloaded_error, inStream: true}}");
        let events: Vec<_> = model.stream(request()).await.unwrap().collect().await;
        let error = events[0].clone().unwrap_err();
        assert_eq!((events.len(), error.status), (1, Some(529)));
        assert_eq!(error.code.as_deref(), Some("overloaded_error"));
    }

    #[tokio::test]
    async fn an_edited_scenario_file_is_used_by_the_next_call() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let text = format!("turns:\n- default: true\n  steps:\n  - text: {text}\n");
            std::fs::write(directory.path().join("scenario.yaml"), text).unwrap();
        };
        write("before");
        let files = FileRoot::at(directory.path());
        let model = MockModel::from_file("mock", &files, "/scenario.yaml").unwrap();
        assert_eq!(complete(&model, request()).await.unwrap().text, "before");
        write("after");
        assert_eq!(complete(&model, request()).await.unwrap().text, "after");
        write("[");
        let error = complete(&model, request()).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Configuration);
        assert!(matches!(
            MockModel::from_file("mock", &files, "/absent.yaml"),
            Err(ScenarioError::File(_))
        ));
    }
}
