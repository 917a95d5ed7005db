//! One model made of several providers: retries of each, then the next (OR-216…OR-228).

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_telemetry::random::SharedRandom;
use tokio::time::Instant;

use crate::{
    cooldown::{Cooldown, LONGEST_WAIT, Next, ProviderHealth, Ticket},
    error::{ModelError, ModelErrorKind},
    event::ModelStream,
    model::Model,
    observer::{CallEvent, CallObserver, Unobserved},
    rate_limit::{Permit, RateLimit},
    request::Request,
    retry::{RetryPolicy, call},
};

/// One provider of a chain.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The provider; makes each call once.
    pub model: Arc<dyn Model>,
    /// What is known of its failures.
    pub health: Arc<ProviderHealth>,
    /// How much may be asked of it in a minute (OR-229).
    pub limit: Option<RateLimit>,
    /// The model to ask it for: `None` leaves the request's, empty means the provider's own
    /// configured one (OR-221).
    pub model_name: Option<String>,
}

/// Providers in order of preference.
///
/// A call goes to the first one that does not cool down, is retried there, and moves on when the
/// error allows it. Only what happens before the first event of an answer is retried or moved on
/// from; later errors pass through (OR-217, OR-228).
#[derive(Debug)]
pub struct Chain {
    name: String,
    candidates: Vec<Candidate>,
    policy: RetryPolicy,
    random: SharedRandom,
}

/// How a call at one provider ended without an answer.
enum Miss {
    /// It was called and failed.
    Failed(ModelError),
    /// It was not called.
    Denied(ModelError),
}

impl Chain {
    /// A chain that is called `name` in errors and records.
    pub fn new(
        name: impl Into<String>,
        candidates: Vec<Candidate>,
        policy: RetryPolicy,
        random: SharedRandom,
    ) -> Self {
        Self {
            name: name.into(),
            candidates,
            policy,
            random,
        }
    }

    /// Calls one provider until it answers, fails for good, or may not be called.
    async fn attempt(
        &self,
        candidate: &Candidate,
        mut ticket: Ticket,
        mut permit: Option<Permit>,
        request: &Request,
        observer: &dyn CallObserver,
    ) -> Result<ModelStream, Miss> {
        let provider = candidate.model.name();
        let waits_until = Instant::now() + LONGEST_WAIT;
        let mut retry = 0;
        loop {
            let mut error = match call(&*candidate.model, request.clone()).await {
                Ok(stream) => {
                    let stream = match permit.take() {
                        Some(permit) => permit.settling(stream),
                        None => stream,
                    };
                    ticket.succeeded();
                    observer.observe(CallEvent::Answering {
                        provider: provider.to_owned(),
                        model: request.model.clone(),
                        attempts: retry + 1,
                    });
                    return Ok(stream);
                }
                Err(error) => error,
            };
            if let Some(permit) = permit.take() {
                permit.failed(&error);
            }
            error.attempts = retry + 1;
            // A probe is one attempt (OR-227).
            let may_retry = error.is_retryable() && retry < self.policy.retries && !ticket.is_probe();
            let delay = self
                .policy
                .delay(retry, error.retry_after, &*self.random)
                .filter(|_| may_retry);
            let Some(delay) = delay else {
                if let Some(cooldown) = ticket.gave_up(&error) {
                    cooled(provider, cooldown, observer);
                }
                return Err(Miss::Failed(error));
            };
            tracing::warn!(
                provider,
                service = candidate.model.service(),
                status = error.status,
                reason = error.reason(),
                attempt = error.attempts,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "model call failed, trying again"
            );
            ticket = match ticket.failed(&error) {
                Next::Retry(ticket) => {
                    observer.observe(CallEvent::Retrying {
                        provider: provider.to_owned(),
                        attempts: error.attempts,
                        delay,
                        error: error.clone(),
                    });
                    tokio::time::sleep(delay).await;
                    if ticket.is_cooling() {
                        return Err(Miss::Failed(error));
                    }
                    ticket
                }
                Next::Join => {
                    let waiting = |reason| waiting(provider, reason, observer);
                    match candidate.health.ticket(waits_until, waiting).await {
                        Ok(ticket) => ticket,
                        Err(_) => return Err(Miss::Failed(error)),
                    }
                }
            };
            // Each attempt is a request. One that would come too late is not made, and what the provider said before is
            // what the call ends with.
            permit = match candidate.admit(request, observer).await {
                Ok(permit) => permit,
                Err(_) => return Err(Miss::Failed(error)),
            };
            retry += 1;
        }
    }

    async fn try_candidate(
        &self,
        candidate: &Candidate,
        request: &Request,
        observer: &dyn CallObserver,
    ) -> Result<ModelStream, Miss> {
        let provider = candidate.model.name();
        // Before the ticket: whoever has one and waits would keep the others waiting for what it finds out. A provider that
        // cools down is not waited for at all.
        let permit = match candidate.health.remaining().await {
            Some(_) => None,
            None => candidate.admit(request, observer).await.map_err(Miss::Failed)?,
        };
        let deadline = Instant::now() + LONGEST_WAIT;
        let waiting = |reason| waiting(provider, reason, observer);
        match candidate.health.ticket(deadline, waiting).await {
            Ok(ticket) => self.attempt(candidate, ticket, permit, request, observer).await,
            Err(denied) => Err(Miss::Denied(candidate.health.denial(provider, &denied))),
        }
    }

    /// Probes the provider with the least time left, where every one cools down (OR-227).
    async fn probe(&self, request: &Request, observer: &dyn CallObserver) -> Result<ModelStream, ModelError> {
        let mut best: Option<(&Candidate, std::time::Duration)> = None;
        for candidate in &self.candidates {
            let remaining = candidate.health.remaining().await.unwrap_or_default();
            if best.is_none_or(|(_, least)| remaining < least) {
                best = Some((candidate, remaining));
            }
        }
        let Some((candidate, _)) = best else {
            return Err(ModelError::new(
                &self.name,
                ModelErrorKind::Configuration,
                "the chain has no provider",
            ));
        };
        let provider = candidate.model.name();
        let deadline = Instant::now() + LONGEST_WAIT;
        let waiting = |reason| waiting(provider, reason, observer);
        let ticket = match candidate.health.probe(deadline, waiting).await {
            Ok(ticket) => ticket,
            Err(denied) => return Err(candidate.health.denial(provider, &denied)),
        };
        let request = candidate.request(request);
        let permit = candidate.admit(&request, observer).await?;
        match self.attempt(candidate, ticket, permit, &request, observer).await {
            Ok(stream) => Ok(stream),
            Err(Miss::Failed(error) | Miss::Denied(error)) => Err(error),
        }
    }

    /// The error of a call that no provider answered.
    fn failed(&self, last: ModelError) -> ModelError {
        if self.candidates.len() < 2 {
            return last;
        }
        let message = format!("all providers failed: {last}");
        ModelError {
            message: mainstay_telemetry::text::escape(&message, crate::error::MESSAGE_LIMIT),
            provider: self.name.clone(),
            attempts: 1,
            ..last
        }
    }
}

impl Candidate {
    /// Waits until the provider's rate limit leaves room for a request (OR-229).
    async fn admit(
        &self,
        request: &Request,
        observer: &dyn CallObserver,
    ) -> Result<Option<Permit>, ModelError> {
        let Some(limit) = &self.limit else {
            return Ok(None);
        };
        let provider = self.model.name();
        let told = |reason| waiting(provider, reason, observer);
        limit.admit(provider, request, told).await.map(Some)
    }

    fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if let Some(model) = &self.model_name {
            request.model.clone_from(model);
        }
        request
    }
}

fn waiting(provider: &str, reason: String, observer: &dyn CallObserver) {
    // The one that tries logs its failures; a line for each that waits would be hundreds in an outage.
    tracing::debug!(provider, reason, "a model call waits for another one");
    observer.observe(CallEvent::Waiting {
        provider: provider.to_owned(),
        reason,
    });
}

fn cooled(provider: &str, cooldown: Cooldown, observer: &dyn CallObserver) {
    tracing::warn!(
        provider,
        until = %cooldown.until,
        failures = cooldown.failures,
        reason = cooldown.reason,
        "the provider cools down"
    );
    observer.observe(CallEvent::Cooled {
        provider: provider.to_owned(),
        cooldown,
    });
}

#[async_trait]
impl Model for Chain {
    fn name(&self) -> &str {
        &self.name
    }

    fn service(&self) -> &'static str {
        self.candidates
            .first()
            .map_or("unknown", |candidate| candidate.model.service())
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        self.stream_observed(request, &Unobserved).await
    }

    async fn stream_observed(
        &self,
        request: Request,
        observer: &dyn CallObserver,
    ) -> Result<ModelStream, ModelError> {
        // What called providers said counts more than that others were not called.
        let mut failed: Option<ModelError> = None;
        let mut waited = None;
        let mut next = self.candidates.iter().peekable();
        while let Some(candidate) = next.next() {
            let error = match self
                .try_candidate(candidate, &candidate.request(&request), observer)
                .await
            {
                Ok(stream) => return Ok(stream),
                Err(Miss::Failed(error)) if !error.allows_fallback() => return Err(error),
                Err(Miss::Failed(error)) => {
                    failed = Some(error.clone());
                    error
                }
                Err(Miss::Denied(error)) => {
                    if error.retry_after.is_none() {
                        waited = Some(error.clone());
                    }
                    error
                }
            };
            if let Some(to) = next.peek() {
                tracing::warn!(
                    chain = self.name,
                    from = candidate.model.name(),
                    to = to.model.name(),
                    status = error.status,
                    reason = error.reason(),
                    error = error.message,
                    "a model call goes on with another provider"
                );
                observer.observe(CallEvent::FailedOver {
                    from: candidate.model.name().to_owned(),
                    to: to.model.name().to_owned(),
                    error,
                });
            }
        }
        match failed.or(waited) {
            Some(last) => {
                let last = self.failed(last);
                tracing::warn!(
                    chain = self.name,
                    status = last.status,
                    reason = last.reason(),
                    error = last.message,
                    "no provider answered a model call"
                );
                Err(last)
            }
            None => self
                .probe(&request, observer)
                .await
                .map_err(|error| self.failed(error)),
        }
    }
}

#[cfg(test)]
mod tests;
