//! One open connection.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use futures::stream::SplitStream;
use futures::{Stream, StreamExt};
use mainstay_agent::event::{Caller, Event, Payload};
use mainstay_agent::{
    ClientAttachment, ClientReply, FirstCopy, IncomingMessage, SendError, SessionError, SessionHandle,
    SubscriptionError, Ticket,
};
use mainstay_telemetry::text::escape;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use uuid::Uuid;

use super::frame::{self, Capabilities, ClientFrame, Connected, ErrorBody, ErrorCode, ServerFrame};
use super::intake::{Rate, text_of};
use super::presenter::Presenter;
use super::writer::{Ended, FAILED, FAREWELL, GOING_AWAY, Unwritable, Writer};
use super::{Facade, frame::IncomingMessage as MessageFrame, violation};

/// What a client asked for when it connected.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) caller: Caller,
    pub(super) binary: bool,
    pub(super) resume: Option<String>,
    pub(super) events: bool,
    pub(super) after: Option<u64>,
}

type Events = Pin<Box<dyn Stream<Item = Result<Arc<Event>, SubscriptionError>> + Send>>;

/// The session a connection shows.
struct View {
    session: SessionHandle,
    session_id: String,
    events: Events,
    /// Events up to this number happened before the session was opened here. They are replayed as `event`
    /// frames only: a client of OM D.2 would take an old `done` for the answer to its next message.
    replayed: u64,
    presenter: Presenter,
    /// Newest event that was shown here.
    seen: u64,
    _client: ClientAttachment,
}

impl View {
    fn open(session: SessionHandle, after: Option<u64>) -> Self {
        let replayed = session.last_seq();
        Self {
            session_id: session.id().to_string(),
            events: Box::pin(session.subscribe(after)),
            replayed,
            presenter: Presenter::default(),
            seen: after.unwrap_or(replayed),
            _client: session.attach_client(),
            session,
        }
    }
}

/// The one message of this connection that is not answered yet (OM-526).
enum InFlight {
    None,
    /// Admitted; not stored yet.
    Waiting(Ticket),
    Running {
        turn: String,
    },
    /// Sent before, by this client or another connection of it, and not stored yet: its turn waits for another one.
    Repeated {
        message: Box<IncomingMessage>,
        first: FirstCopy,
    },
}

/// Why a connection ends.
enum End {
    /// With a close frame.
    Goodbye((u16, &'static str)),
    /// The socket is of no use any more.
    Gone,
}

impl From<Unwritable> for End {
    fn from(_: Unwritable) -> Self {
        Self::Gone
    }
}

struct Connection<'a> {
    facade: &'a Facade,
    asked: Asked,
    writer: Writer,
    view: View,
    in_flight: InFlight,
    rate: Rate,
    heard: Instant,
}

/// Serves a connection until it ends. Turns of its session go on without it.
pub(super) async fn serve(socket: WebSocket, facade: &Facade, asked: Asked) {
    let limits = &facade.options.limits;
    let (sink, mut stream) = socket.split();
    let writer = Writer::start(sink, limits.outgoing_frames, limits.write_wait);
    let (opened, complaint) = open(facade, &asked).await;
    let Ok(session) = opened else {
        // Nothing is connected, so there is no session a frame could name.
        writer.close(Some(GOING_AWAY)).await;
        return;
    };
    let resumed = session.resumed();
    let after = if resumed { asked.after } else { None };
    let mut connection = Connection {
        facade,
        view: View::open(session, after),
        writer,
        in_flight: InFlight::None,
        rate: Rate::new(limits),
        heard: Instant::now(),
        asked,
    };
    let end = match connection.greet(resumed, complaint).await {
        Ok(()) => connection.run(&mut stream).await,
        Err(end) => end,
    };
    let goodbye = match end {
        End::Goodbye(goodbye) => Some(goodbye),
        End::Gone => None,
    };
    if connection.writer.close(goodbye).await == Ended::TooSlow {
        facade.options.metrics.too_slow.inc();
        tracing::warn!(
            session = connection.view.session_id,
            "a client read too slowly; its connection ended"
        );
    }
}

/// The session of a new connection: the one it asks for, else a new one together with what became of the
/// other (OM-507, OM-528).
async fn open(facade: &Facade, asked: &Asked) -> (Result<SessionHandle, SessionError>, Option<ServerFrame>) {
    let complaint = match &asked.resume {
        None => None,
        Some(requested) => match open_existing(facade, requested).await {
            Ok(session) => return (Ok(session), None),
            Err(complaint) => Some(complaint),
        },
    };
    (facade.engine.open_session(None).await, complaint)
}

async fn open_existing(facade: &Facade, requested: &str) -> Result<SessionHandle, ServerFrame> {
    let expired = || {
        let text = format!("session {} does not exist or has expired", escape(requested, 64));
        ServerFrame::error(ErrorCode::SessionExpired, text)
    };
    let Ok(id) = requested.parse::<Uuid>() else {
        return Err(expired());
    };
    facade
        .engine
        .open_session(Some(id))
        .await
        .map_err(|error| match error {
            SessionError::Expired { .. } => expired(),
            SessionError::Unavailable(source) => {
                tracing::warn!(session = %id, error = %source, "a session cannot be looked up");
                let text = "the session cannot be looked up at the moment; try again";
                ServerFrame::error(ErrorCode::InternalError, text)
            }
            SessionError::Elsewhere { .. } => ServerFrame::error(
                ErrorCode::AgentUnavailable,
                "the session is still busy in the Pod that this one replaces; try again",
            ),
            SessionError::Draining => {
                ServerFrame::error(ErrorCode::AgentUnavailable, "the agent is about to end")
            }
        })
}

impl Connection<'_> {
    async fn greet(&mut self, resumed: bool, complaint: Option<ServerFrame>) -> Result<(), End> {
        let limit = self.facade.options.limits.message_bytes;
        let capabilities = self.asked.binary.then(|| Capabilities::new(limit));
        self.send(&ServerFrame::Connected {
            connected: Connected {
                capabilities,
                resumed,
            },
        })
        .await?;
        match complaint {
            Some(complaint) => self.send(&complaint).await,
            None => self.present_waiting_calls().await,
        }
    }

    /// Calls of client tools that still wait for an answer: the client that was asked is gone, and this one may be its
    /// successor (OM-432). Their `tool_call` frames would otherwise never come again.
    async fn present_waiting_calls(&mut self) -> Result<(), End> {
        let Some(turn) = self.view.session.running_turn() else {
            return Ok(());
        };
        let events = match self.view.session.events_of(&turn).await {
            Ok(events) => events,
            Err(error) => return self.complain(ErrorCode::InternalError, error.to_string()).await,
        };
        let finished: HashSet<String> = events
            .iter()
            .filter_map(|event| match event.payload() {
                Some(Payload::ToolFinished(finished)) => Some(finished.call_id),
                _ => None,
            })
            .collect();
        for event in events {
            // What is newer comes as it happens.
            let old = event.seq <= Some(self.view.replayed);
            match event.payload() {
                Some(Payload::ClientToolRequested(asked)) if old && !finished.contains(&asked.call_id) => {
                    for frame in Presenter::default().frames(&event) {
                        self.send(&frame).await?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn run(&mut self, stream: &mut SplitStream<WebSocket>) -> End {
        let limits = &self.facade.options.limits;
        let mut ping = pings(limits.ping);
        loop {
            let silent_until = self.heard + limits.pong_wait;
            let step = tokio::select! {
                biased;
                // Before the events: what becomes of a message is known before anything of its turn is shown.
                settled = settled(&mut self.in_flight) => self.settled(settled).await,
                received = stream.next() => self.received(received).await,
                event = self.view.events.next() => self.happened(event).await,
                _ = ping.tick() => self.writer.send(Message::Ping(Bytes::new())).await.map_err(End::from),
                () = tokio::time::sleep_until(silent_until) => Err(End::Gone),
                // Last: what is there to be shown is shown before the goodbye.
                () = self.facade.engine.stopped() => Err(End::Goodbye(GOING_AWAY)),
                () = self.facade.options.shutdown.cancelled() => Err(End::Goodbye(GOING_AWAY)),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn send(&mut self, frame: &ServerFrame) -> Result<(), End> {
        let now = self.facade.engine.clock().now();
        match frame::write(frame, &self.view.session_id, now) {
            Some(text) => Ok(self.writer.send(Message::Text(text.into())).await?),
            None => Ok(()),
        }
    }

    async fn complain(&mut self, code: ErrorCode, message: impl Into<String>) -> Result<(), End> {
        self.send(&ServerFrame::error(code, message)).await
    }

    /// Something happened in the session.
    async fn happened(&mut self, event: Option<Result<Arc<Event>, SubscriptionError>>) -> Result<(), End> {
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                tracing::error!(session = self.view.session_id, %error, "a session cannot be shown any further");
                self.complain(ErrorCode::InternalError, error.to_string()).await?;
                return Err(End::Goodbye(FAILED));
            }
            None => return Err(End::Goodbye(FAILED)),
        };
        self.view.seen = self.view.seen.max(event.seq.unwrap_or(0));
        let live = event.seq.is_none_or(|seq| seq > self.view.replayed);
        let frames = if live {
            self.view.presenter.frames(&event)
        } else {
            Vec::new()
        };
        if event.ends_turn()
            && matches!(&self.in_flight, InFlight::Running { turn } if Some(turn) == event.turn.as_ref())
        {
            self.in_flight = InFlight::None;
        }
        if self.asked.events {
            self.send(&ServerFrame::Event { event }).await?;
        }
        for frame in &frames {
            self.send(frame).await?;
        }
        Ok(())
    }

    /// The message in flight was stored, or not.
    async fn settled(&mut self, settled: Settled) -> Result<(), End> {
        match (std::mem::replace(&mut self.in_flight, InFlight::None), settled) {
            (InFlight::Waiting(ticket), Settled::Own(Ok(()))) => {
                self.in_flight = InFlight::Running { turn: ticket.turn };
                Ok(())
            }
            (InFlight::Waiting(_), Settled::Own(Err(error))) => self.refused(error).await,
            (InFlight::Repeated { .. }, Settled::First(Some(turn))) => self.accepted_before(turn).await,
            // The first copy was refused, so this one is the first now: its sender is told what becomes of it.
            (InFlight::Repeated { message, .. }, Settled::First(None)) => self.admit(*message).await,
            (other, _) => {
                self.in_flight = other;
                Ok(())
            }
        }
    }

    async fn refused(&mut self, error: SendError) -> Result<(), End> {
        let code = match &error {
            SendError::Duplicate { turn } => return self.accepted_before(turn.clone()).await,
            SendError::Waiting(_) | SendError::TooLong { .. } => ErrorCode::InvalidMessage,
            SendError::Busy => ErrorCode::RateLimited,
            SendError::Draining | SendError::Elsewhere => ErrorCode::AgentUnavailable,
            SendError::Unavailable(source) => {
                tracing::error!(session = self.view.session_id, error = %source, "a message cannot be stored");
                ErrorCode::InternalError
            }
        };
        self.complain(code, error.to_string()).await
    }

    /// A repeated message gets the answer of the first time: now if there is one, else when its turn ends.
    async fn accepted_before(&mut self, turn: String) -> Result<(), End> {
        let events = match self.view.session.events_of(&turn).await {
            Ok(events) => events,
            Err(error) => return self.complain(ErrorCode::InternalError, error.to_string()).await,
        };
        let end = events.iter().rev().find(|event| event.ends_turn());
        match end {
            // Already shown here, or older than this connection: shown again, from the store.
            Some(end) if end.seq <= Some(self.view.seen) => {
                let mut presenter = Presenter::default();
                let frames: Vec<ServerFrame> =
                    events.iter().flat_map(|event| presenter.frames(event)).collect();
                for frame in frames
                    .iter()
                    .filter(|frame| !matches!(frame, ServerFrame::ToolCall { .. }))
                {
                    self.send(frame).await?;
                }
                Ok(())
            }
            _ => {
                self.in_flight = InFlight::Running { turn };
                Ok(())
            }
        }
    }

    async fn received(&mut self, received: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.heard = Instant::now();
        match received {
            None => Err(End::Gone),
            Some(Err(error)) => {
                tracing::debug!(session = self.view.session_id, %error, "a connection broke off");
                let Some(violation) = violation::of(error, self.facade.options.limits.message_bytes) else {
                    return Err(End::Gone);
                };
                self.complain(ErrorCode::InvalidMessage, violation.text).await?;
                Err(End::Goodbye(violation.goodbye))
            }
            Some(Ok(Message::Text(text))) => self.text(text.as_str()).await,
            Some(Ok(Message::Binary(_))) => {
                self.complain(
                    ErrorCode::MediaNotEnabled,
                    "binary frames carry media, which are not enabled",
                )
                .await
            }
            Some(Ok(Message::Close(_))) => Err(End::Goodbye(FAREWELL)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
        }
    }

    async fn text(&mut self, text: &str) -> Result<(), End> {
        self.facade.options.metrics.messages.inc();
        if !self.rate.admit() {
            let limits = &self.facade.options.limits;
            let text = format!("more than {} messages per second", limits.messages_per_second);
            return self.complain(ErrorCode::RateLimited, text).await;
        }
        let parsed = match serde_json::from_str::<ClientFrame>(text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let text = format!("the frame cannot be read: {}", escape(&error.to_string(), 256));
                return self.complain(ErrorCode::InvalidMessage, text).await;
            }
        };
        match parsed {
            ClientFrame::Message(message) => self.message(message).await,
            ClientFrame::ToolResult { tool_result } => {
                let result = match (tool_result.result, tool_result.error) {
                    (_, Some(error)) if !error.is_null() => Err(words(&error)),
                    (Some(result), _) => Ok(result),
                    (None, _) => {
                        let text = "`tool_result` needs `result` or `error`";
                        return self.complain(ErrorCode::InvalidMessage, text).await;
                    }
                };
                self.reply(&tool_result.call_id, ClientReply::Finished { result })
                    .await
            }
            ClientFrame::ToolCallAck { tool_call_ack } => {
                self.reply(&tool_call_ack.call_id, ClientReply::Acknowledged)
                    .await
            }
            ClientFrame::ToolCallNack { tool_call_nack } => {
                let reason = tool_call_nack.reason;
                self.reply(&tool_call_nack.call_id, ClientReply::Rejected { reason })
                    .await
            }
            ClientFrame::UploadRequest => {
                self.complain(
                    ErrorCode::MediaNotEnabled,
                    "uploads are not enabled for this agent",
                )
                .await
            }
            ClientFrame::Hangup => {
                self.complain(
                    ErrorCode::MediaNotEnabled,
                    "there is no duplex session to hang up",
                )
                .await
            }
            ClientFrame::Cancel => {
                // A turn that does not run needs no cancelling; its end was or will be told.
                self.view.session.cancel();
                Ok(())
            }
        }
    }

    async fn reply(&mut self, call_id: &str, reply: ClientReply) -> Result<(), End> {
        if self.view.session.client_reply(call_id, reply) {
            return Ok(());
        }
        let text = format!("no tool call `{}` is waiting", escape(call_id, 64));
        self.complain(ErrorCode::ToolFailed, text).await
    }

    async fn message(&mut self, message: MessageFrame) -> Result<(), End> {
        if !matches!(self.in_flight, InFlight::None) {
            let text = "too many in-flight requests: the previous message is not answered yet";
            return self.complain(ErrorCode::RateLimited, text).await;
        }
        let content = match text_of(&message) {
            Ok(content) => content,
            Err((code, text)) => return self.complain(code, text).await,
        };
        if let Some(requested) = message
            .session_id
            .filter(|requested| *requested != self.view.session_id)
        {
            match open_existing(self.facade, &requested).await {
                Ok(session) => self.view = View::open(session, None),
                Err(complaint) => return self.send(&complaint).await,
            }
            self.present_waiting_calls().await?;
        }
        let message = IncomingMessage {
            content,
            client_key: message.client_key,
            metadata: message.metadata.unwrap_or_default(),
            caller: self.asked.caller.clone(),
            client_tools: true,
        };
        self.admit(message).await
    }

    /// Gives a message to the session.
    async fn admit(&mut self, message: IncomingMessage) -> Result<(), End> {
        let repeated = message.client_key.is_some().then(|| message.clone());
        match (self.view.session.send(message), repeated) {
            (Ok(ticket), _) => {
                self.in_flight = InFlight::Waiting(ticket);
                Ok(())
            }
            (Err(SendError::Waiting(first)), Some(message)) => {
                self.in_flight = InFlight::Repeated {
                    message: Box::new(message),
                    first,
                };
                Ok(())
            }
            (Err(SendError::Busy), _) => {
                let frame = ServerFrame::Error {
                    error: ErrorBody {
                        code: ErrorCode::RateLimited,
                        message: format!("too many in-flight requests: {}", SendError::Busy),
                        details: Some(json!({"reason": "SessionBusy"})),
                    },
                };
                self.send(&frame).await
            }
            (Err(error), _) => self.refused(error).await,
        }
    }
}

/// What became of the message in flight.
enum Settled {
    /// It was stored, or not.
    Own(Result<(), SendError>),
    /// The first copy of it was stored, and this turn answers it; `None` when that one was not stored.
    First(Option<String>),
}

/// Waits for the message in flight to be stored; for ever when there is none.
async fn settled(in_flight: &mut InFlight) -> Settled {
    match in_flight {
        InFlight::Waiting(ticket) => Settled::Own(ticket.started().await),
        InFlight::Repeated { first, .. } => Settled::First(first.settled().await),
        InFlight::None | InFlight::Running { .. } => std::future::pending().await,
    }
}

fn pings(every: std::time::Duration) -> Interval {
    let mut ping = tokio::time::interval_at(Instant::now() + every, every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping
}

/// An error as text, whether the client wrote a text or an object.
fn words(error: &Value) -> String {
    match error {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
