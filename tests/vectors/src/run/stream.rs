//! The events of a watch.

use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use http_body_util::BodyStream;
use kube::client::Body;
use serde_json::{Value, json};

/// A watch that is open.
pub(super) struct Events {
    body: BodyStream<Body>,
    buffered: Vec<u8>,
    ended: bool,
}

impl Events {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body: BodyStream::new(body),
            buffered: Vec::new(),
            ended: false,
        }
    }

    /// Reads so many events, or all up to the end. What does not come in time is noted as an event of its own.
    pub(super) async fn read(
        &mut self,
        count: Option<usize>,
        deadline: Duration,
    ) -> anyhow::Result<Vec<Value>> {
        let mut events = Vec::new();
        let reading = async {
            while count.is_none_or(|count| events.len() < count) {
                match self.next().await? {
                    Some(event) => events.push(event),
                    None => {
                        events.push(json!("(the stream ended)"));
                        break;
                    }
                }
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(deadline, reading).await {
            Ok(result) => result?,
            Err(_elapsed) => events.push(json!("(nothing more came in time)")),
        }
        Ok(events)
    }

    async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffered.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffered.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map(Some)
                    .with_context(|| format!("no event: {}", String::from_utf8_lossy(&line)));
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.next().await {
                Some(frame) => {
                    let frame = frame.context("the watch broke")?;
                    if let Ok(data) = frame.into_data() {
                        self.buffered.extend_from_slice(&data);
                    }
                }
                None => self.ended = true,
            }
        }
    }
}
