//! Named tasks.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::task::JoinHandle;

/// Starts a task under a name. A panic in it is logged with the name before it reaches the owner's `JoinHandle`, so
/// that a task whose handle is awaited late is not silently dead.
///
/// # Panics
///
/// When called outside a tokio runtime.
#[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(Named {
        name,
        future: Box::pin(future),
    })
}

struct Named<F> {
    name: &'static str,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Named<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let polled = {
            let future = self.future.as_mut();
            // The future is dropped with the task after a panic and never polled again, so no broken state is seen.
            std::panic::catch_unwind(AssertUnwindSafe(|| future.poll(context)))
        };
        match polled {
            Ok(progress) => progress,
            Err(payload) => {
                tracing::error!(
                    task = self.name,
                    panic = panic_message(payload.as_ref()),
                    "a task panicked"
                );
                std::panic::resume_unwind(payload)
            }
        }
    }
}

/// The text of a panic's payload, or a stand-in where the payload is not text.
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_gives_back_its_value_and_a_panic_reaches_the_owner() {
        assert_eq!(spawn("adds", async { 1 + 1 }).await.ok(), Some(2));
        let failed = spawn("fails", async { panic!("on purpose") }).await;
        assert!(failed.is_err_and(|error| error.is_panic()));
    }
}
