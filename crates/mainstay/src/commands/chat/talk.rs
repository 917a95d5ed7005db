//! A conversation: messages of the user, one after the other, each with everything that belongs to its turn: what is shown,
//! questions about tools that run here, Ctrl-C, and a connection that breaks.

use std::{
    collections::{BTreeSet, VecDeque},
    io::IsTerminal,
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use mainstay_agent::event::{ClientToolRequested, Event, Payload, TurnStarted};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin},
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

use super::{
    client_tools::{Answer, ClientTools},
    connection::{Connection, Frame, NotOpened, Place},
    view::View,
};
use crate::{arguments::ChatArguments, endpoints::Endpoints, terminal, terminal::Failure};

/// How long a connection that broke is sought again. A server that is restarted drains first.
const RECONNECTS_WITHIN: Duration = Duration::from_secs(60);
/// The pause before the first and between later attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The protocol's code for an answer to a call of a client tool that does not wait for one.
const LATE_ANSWER: &str = "TOOL_FAILED";

/// A conversation that goes on until its input ends.
pub(super) struct Talk<'a> {
    arguments: &'a ChatArguments,
    connection: Connection,
    view: View,
    variables: Map<String, Value>,
    tools: ClientTools,
    lines: Lines<BufReader<Stdin>>,
    interrupts: Signal,
    /// Number of the newest event that was seen; `None` before the first.
    seen: Option<u64>,
    /// Whether it was said that a value has no effect.
    warned: bool,
}

/// The message that is being answered.
struct Turn {
    message: String,
    /// By which its turn is recognised, and which makes sending it twice harmless.
    key: String,
    /// Its turn, once it was begun.
    own: Option<String>,
    /// Whether the user wants it to end.
    cancelling: bool,
    /// Whether events are passed over until its turn begins: they are older than this conversation.
    quiet: bool,
    /// Calls of client tools that wait for an answer of the user. The first is being asked about.
    asked: VecDeque<Question>,
    /// Client tools that run.
    running: FuturesUnordered<BoxFuture<'static, (String, Answer)>>,
    /// Calls that have a result, whoever gave it: what is found out here later interests nobody.
    settled: BTreeSet<String>,
}

/// How a turn ended that did not fail.
enum Ended {
    /// With an answer.
    Answered,
    /// The user wanted it.
    Cancelled,
}

/// What is asked about a call of a client tool.
struct Question {
    call: ClientToolRequested,
    /// Whether it was agreed to, so that its result is asked for.
    agreed: bool,
}

impl<'a> Talk<'a> {
    /// A conversation over `connection`.
    pub(super) fn new(
        arguments: &'a ChatArguments,
        connection: Connection,
        variables: Map<String, Value>,
        tools: ClientTools,
    ) -> Result<Self, Failure> {
        let interrupts = signal(SignalKind::interrupt())
            .map_err(|error| Failure::new(format!("signals cannot be watched: {error}")))?;
        Ok(Self {
            arguments,
            connection,
            view: View::new(arguments.json),
            variables,
            tools,
            lines: BufReader::new(tokio::io::stdin()).lines(),
            interrupts,
            seen: None,
            warned: false,
        })
    }

    /// The session's id.
    pub(super) fn session(&self) -> &str {
        self.connection.session()
    }

    /// One message with `-m`, else line by line until the input ends.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let arguments = self.arguments;
        if let Some(message) = &arguments.message {
            return match self.turn(message).await? {
                Ended::Answered => Ok(()),
                Ended::Cancelled => Err(Failure::new("the turn was cancelled")),
            };
        }
        let interactive = std::io::stdin().is_terminal() && !self.arguments.json;
        loop {
            if interactive {
                terminal::prompt("> ");
            }
            let line = tokio::select! {
                line = self.lines.next_line() => line
                    .map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?,
                _ = self.interrupts.recv() => None,
            };
            let Some(line) = line else {
                if interactive {
                    terminal::message("");
                }
                return Ok(());
            };
            let message = line.trim();
            if message.is_empty() {
                continue;
            }
            match self.turn(message).await {
                // One failed turn does not end a conversation with a person.
                Err(failure) if interactive && self.connection.is_open() => {
                    terminal::error(&failure.text, failure.hint.as_deref());
                }
                Err(failure) => return Err(failure),
                Ok(Ended::Answered) => {}
                // Ctrl-C ended the turn and not the program.
                Ok(Ended::Cancelled) => terminal::message("(the turn was cancelled)"),
            }
        }
    }

    /// Sends `message` and shows everything until its turn has ended.
    async fn turn(&mut self, message: &str) -> Result<Ended, Failure> {
        let mut turn = Turn {
            message: message.to_owned(),
            key: uuid::Uuid::new_v4().to_string(),
            own: None,
            cancelling: false,
            quiet: false,
            asked: VecDeque::new(),
            running: FuturesUnordered::new(),
            settled: BTreeSet::new(),
        };
        if let Err(failure) = self.send(&turn).await {
            self.reconnect(&mut turn, &failure).await?;
        }
        loop {
            tokio::select! {
                frame = self.connection.next() => match frame {
                    Ok(frame) => if let Some(ended) = self.arrived(&mut turn, frame).await? {
                        return ended;
                    },
                    Err(failure) if self.connection.is_open() => return Err(failure),
                    Err(failure) => self.reconnect(&mut turn, &failure).await?,
                },
                _ = self.interrupts.recv() => self.interrupted(&mut turn).await?,
                line = self.lines.next_line(), if !turn.asked.is_empty() => {
                    let line = line
                        .map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
                    self.told(&mut turn, line.as_deref()).await?;
                }
                Some((call, answer)) = turn.running.next(), if !turn.running.is_empty() => {
                    if !turn.settled.contains(&call) {
                        self.answer(&call, answer).await?;
                    }
                }
            }
        }
    }

    async fn send(&mut self, turn: &Turn) -> Result<(), Failure> {
        self.connection
            .send(&turn.message, &turn.key, &self.variables)
            .await
    }

    /// Something arrived. `Some` ends the turn.
    async fn arrived(
        &mut self,
        turn: &mut Turn,
        frame: Frame,
    ) -> Result<Option<Result<Ended, Failure>>, Failure> {
        let (event, raw) = match frame {
            // An answer that crossed with the end of its call: it may have been given in the turn before. No turn ends by it.
            Frame::Error { code, message } if code == LATE_ANSWER => {
                self.view.break_line();
                terminal::message(format!("(an answer came too late: {message})"));
                return Ok(None);
            }
            Frame::Error { code, message } => {
                self.view.break_line();
                return Ok(Some(Err(Failure::new(format!("{message} ({code})")))));
            }
            Frame::Event(event, raw) => (event, raw),
        };
        self.seen = self.seen.max(event.seq);
        let payload = event.payload();
        if let Some(Payload::TurnStarted(started)) = &payload
            && started.client_key.as_deref() == Some(turn.key.as_str())
        {
            turn.own.clone_from(&event.turn);
            turn.quiet = false;
            self.warn_unused(started);
            if turn.cancelling {
                // It was not there to be cancelled when the user wanted it to end.
                self.cancel().await?;
            }
        }
        if turn.quiet {
            return Ok(None);
        }
        self.view.show(&event, &raw);
        match payload {
            Some(Payload::ClientToolRequested(call)) => {
                self.requested(turn, &event, call).await?;
                Ok(None)
            }
            Some(Payload::ToolFinished(finished)) => {
                self.finished(turn, &finished.call_id);
                Ok(None)
            }
            Some(payload) if payload.ends_turn() && turn.own == event.turn => Ok(Some(ended(payload, turn))),
            _ => Ok(None),
        }
    }

    /// A name that the prompt does not declare is most often misspelt; without a word it would just have no effect.
    fn warn_unused(&mut self, started: &TurnStarted) {
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        for name in &started.unused {
            self.view.break_line();
            terminal::warning(format!(
                "`--set {name}=…` has no effect: the prompt declares no variable `{name}`"
            ));
        }
    }

    /// The model wants a tool to run here.
    async fn requested(
        &mut self,
        turn: &mut Turn,
        event: &Event,
        call: ClientToolRequested,
    ) -> Result<(), Failure> {
        self.view.break_line();
        if turn.own != event.turn {
            // Whoever sent that message answers.
            return Ok(());
        }
        // Within five seconds, whatever the user takes (OM-434).
        let acknowledged = self.connection.acknowledge(&call.call_id).await;
        self.tolerated(acknowledged)?;
        turn.asked.push_back(Question { call, agreed: false });
        if turn.asked.len() == 1 {
            self.ask(turn);
        }
        Ok(())
    }

    /// Asks the user about the first call that waits, or runs what needs no answer.
    fn ask(&self, turn: &mut Turn) {
        while let Some(question) = turn.asked.front() {
            let call = &question.call;
            terminal::message(self.tools.question(call));
            if self.tools.runs_unasked(&call.tool) {
                turn.running.push(self.tools.run(call));
                turn.asked.pop_front();
                continue;
            }
            terminal::prompt("run it? [y/N] ");
            return;
        }
    }

    /// The user answered; `None` is the end of the input.
    async fn told(&mut self, turn: &mut Turn, line: Option<&str>) -> Result<(), Failure> {
        let Some(question) = turn.asked.front_mut() else {
            return Ok(());
        };
        let call_id = question.call.call_id.clone();
        let line = line.map(str::trim);
        let answer = match (question.agreed, line) {
            (true, Some(text)) => ClientTools::typed(text),
            (_, None) => Answer::Rejected("nobody is there to agree to it".to_owned()),
            (false, Some(word)) if word.eq_ignore_ascii_case("y") || word.eq_ignore_ascii_case("yes") => {
                if self.tools.has(&question.call.tool) {
                    turn.running.push(self.tools.run(&question.call));
                    turn.asked.pop_front();
                    self.ask(turn);
                    return Ok(());
                }
                question.agreed = true;
                terminal::prompt("its result, JSON or text: ");
                return Ok(());
            }
            (false, Some(_)) => Answer::Rejected("the user does not agree to it".to_owned()),
        };
        turn.asked.pop_front();
        self.answer(&call_id, answer).await?;
        self.ask(turn);
        Ok(())
    }

    async fn answer(&mut self, call_id: &str, answer: Answer) -> Result<(), Failure> {
        let answered = self.connection.answer(call_id, answer).await;
        self.tolerated(answered)
    }

    async fn cancel(&mut self) -> Result<(), Failure> {
        let cancelled = self.connection.cancel().await;
        self.tolerated(cancelled)
    }

    /// A connection that is found broken while something is sent is sought again by the next read.
    fn tolerated(&self, sent: Result<(), Failure>) -> Result<(), Failure> {
        match sent {
            Err(failure) if self.connection.is_open() => Err(failure),
            _ => Ok(()),
        }
    }

    /// A call that is asked about got a result: its time was up, or another client of the session answered.
    fn finished(&self, turn: &mut Turn, call_id: &str) {
        turn.settled.insert(call_id.to_owned());
        let asking = turn
            .asked
            .front()
            .is_some_and(|question| question.call.call_id == call_id);
        turn.asked.retain(|question| question.call.call_id != call_id);
        if asking {
            terminal::message("\n(the question is settled)");
            self.ask(turn);
        }
    }

    /// Ctrl-C: the first ends the turn, the second the program.
    async fn interrupted(&mut self, turn: &mut Turn) -> Result<(), Failure> {
        self.view.break_line();
        if std::mem::replace(&mut turn.cancelling, true) {
            return Err(Failure::new("interrupted; a turn that runs goes on and is kept"));
        }
        terminal::message("(cancelling the turn; Ctrl-C again ends the program)");
        self.cancel().await
    }

    /// The connection broke: it is sought again, and everything that was missed is shown. The message is sent again unless
    /// its turn was seen to begin; its key keeps it from being taken twice.
    async fn reconnect(&mut self, turn: &mut Turn, why: &Failure) -> Result<(), Failure> {
        self.view.break_line();
        terminal::message(format!("({}; connecting again)", why.text));
        let ends = Instant::now() + RECONNECTS_WITHIN;
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = self.interrupts.recv() => {
                    return Err(Failure::new("interrupted; a turn that runs goes on and is kept"));
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.open_again(turn).await {
                Ok(connection) => {
                    self.connection = connection;
                    if turn.own.is_some() {
                        // What the user wanted may have been lost with the connection.
                        return if turn.cancelling {
                            self.cancel().await
                        } else {
                            Ok(())
                        };
                    }
                    match self.send(turn).await {
                        Ok(()) => return Ok(()),
                        Err(failure) if Instant::now() >= ends => return Err(failure),
                        Err(_) => {}
                    }
                }
                Err(NotOpened::Expired(failure)) => return Err(failure),
                Err(NotOpened::Absent(failure) | NotOpened::Failed(failure)) => {
                    if Instant::now() >= ends {
                        return Err(
                            failure.with_hint(format!("continue it with `--session {}`", self.session()))
                        );
                    }
                }
            }
        }
    }

    async fn open_again(&self, turn: &mut Turn) -> Result<Connection, NotOpened> {
        // The server may have been restarted on another port.
        let endpoints = Endpoints::running(&self.arguments.data.data)?
            .ok_or_else(|| Endpoints::absent(&self.arguments.data.data))?;
        let place = Place {
            endpoints: &endpoints,
            namespace: &self.arguments.namespace,
            name: &self.arguments.name,
        };
        // Nothing was seen yet: the session is gone through from its beginning, up to the turn of this message.
        turn.quiet = self.seen.is_none();
        let opened = Connection::open(&place, Some(self.session()), Some(self.seen.unwrap_or(0))).await;
        match opened {
            // A session is stored with its first message; without one there is nothing to continue.
            Err(NotOpened::Expired(_)) if self.seen.is_none() && self.arguments.session.is_none() => {
                turn.quiet = false;
                Connection::open(&place, None, None).await
            }
            opened => opened,
        }
    }
}

/// What the end of the message's own turn means to the user.
fn ended(payload: Payload, turn: &Turn) -> Result<Ended, Failure> {
    match payload {
        Payload::TurnFailed(failed) => {
            let failure = Failure::new(format!("{} ({})", failed.message, failed.reason));
            Err(Failure {
                hint: failed.hint,
                ..failure
            })
        }
        Payload::TurnCancelled(_) if turn.cancelling => Ok(Ended::Cancelled),
        Payload::TurnCancelled(cancelled) => Err(Failure::new(format!(
            "the turn was cancelled: {}",
            cancelled.reason
        ))),
        _ => Ok(Ended::Answered),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use clap::Parser;
    use futures::SinkExt;
    use mainstay_telemetry::task;
    use serde_json::json;
    use tokio::net::TcpStream;
    use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

    use super::*;
    use crate::arguments::{Arguments, Command};

    /// An agent's end of a connection.
    struct Agent {
        socket: WebSocketStream<TcpStream>,
        seq: u64,
    }

    impl Agent {
        async fn send(&mut self, frame: Value) {
            self.socket.send(Message::text(frame.to_string())).await.unwrap();
        }

        async fn event(&mut self, turn: &str, kind: &str, data: Value) {
            self.seq += 1;
            let event = json!({"seq": self.seq, "session": "s", "turn": turn, "time": "2026-01-01T00:00:00Z", "type": kind, "data": data});
            self.send(json!({"type": "event", "event": event})).await;
        }

        /// The next frame of this type.
        async fn receive(&mut self, kind: &str) -> Value {
            loop {
                let frame = self.socket.next().await.unwrap().unwrap();
                let Message::Text(text) = frame else { continue };
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["type"] == kind {
                    return frame;
                }
            }
        }

        async fn begin(&mut self, turn: &str) {
            let message = self.receive("message").await;
            let pack = json!({"id": "p", "version": "1", "digest": "d"});
            let data = json!({
                "pack": pack, "prompt": "default", "provider": "default", "model": "m", "ceiling_ms": 1000,
                "client_key": message["client_key"],
            });
            self.event(turn, "turn.started", data).await;
        }
    }

    #[tokio::test]
    async fn om_434_an_answer_that_comes_too_late_fails_no_turn() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let done =
            json!({"message_id": "m", "rounds": 1, "tool_calls": 0, "input_tokens": 1, "output_tokens": 1});
        let script = task::spawn("agent", async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut agent = Agent {
                socket: accept_async(stream).await.unwrap(),
                seq: 0,
            };
            agent.send(json!({"type": "connected", "session_id": "s"})).await;
            agent.begin("t1").await;
            let call = json!({"call_id": "c1", "tool": "locate", "arguments": {}});
            agent.event("t1", "client_tool.requested", call).await;
            agent.receive("tool_call_ack").await;
            // The answer and the end of the call cross.
            agent.receive("tool_result").await;
            agent.event("t1", "turn.done", done.clone()).await;
            agent.begin("t2").await;
            let error = json!({"code": "TOOL_FAILED", "message": "no tool call `c1` is waiting"});
            agent.send(json!({"type": "error", "error": error})).await;
            agent.event("t2", "turn.done", done).await;
            // A refusal of the message itself is its end.
            agent.receive("message").await;
            let error = json!({"code": "RATE_LIMITED", "message": "too many"});
            agent.send(json!({"type": "error", "error": error})).await;
        });
        let words = ["mainstay", "chat", "a", "--yes", "--client-tool", "locate=cat"];
        let Command::Chat(arguments) = Arguments::try_parse_from(words).unwrap().command else {
            panic!("not `chat`");
        };
        let endpoints = Endpoints {
            http: format!("http://{address}"),
            kubernetes: String::new(),
            kubeconfig: PathBuf::new(),
            token: "t".to_owned(),
            pid: 1,
            version: String::new(),
        };
        let place = Place {
            endpoints: &endpoints,
            namespace: "default",
            name: "a",
        };
        let connection = Connection::open(&place, None, None).await.unwrap();
        let tools = ClientTools::read(&arguments.client_tools, arguments.yes).unwrap();
        let mut talk = Talk::new(&arguments, connection, Map::new(), tools).unwrap();
        for message in ["where am I?", "hello"] {
            let ended = talk.turn(message).await;
            assert!(
                matches!(ended, Ok(Ended::Answered)),
                "{message}: {:?}",
                ended.err()
            );
        }
        let refused = talk.turn("again").await;
        assert_eq!(refused.err().unwrap().text, "too many (RATE_LIMITED)");
        script.await.unwrap();
    }
}
