//! `POST /v1/responses`.

use std::sync::Arc;

use axum::{
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
    response::{Response, sse},
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Form, Server, error_object, failed, pieces, read_body, refuse, respond, text_of};
use crate::{
    conversion::openai_responses::{part, request_from_wire, usage_to_wire},
    error::ModelError,
    event::{FinishReason, ModelEvent, Usage},
    message::ToolCall,
    model::Answer,
    types::openai_responses as wire,
};

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let invalid =
        |status, param: Option<&str>, message: &str| refuse(status, "invalid_request_error", param, message);
    let body: wire::ResponsesRequest = match read_body(body, "responses request") {
        Ok(body) => body,
        Err((status, message)) => return invalid(status, None, &message),
    };
    let required = |param| invalid(StatusCode::BAD_REQUEST, Some(param), "this parameter is required");
    if body.model.is_empty() {
        return required("model");
    }
    match &body.input {
        wire::Input::Items(items) if items.is_empty() => return required("input"),
        _ => {}
    }
    if body.previous_response_id.is_some() {
        return invalid(
            StatusCode::BAD_REQUEST,
            Some("previous_response_id"),
            "answers are not kept: send the whole conversation as `input`",
        );
    }
    let number = server.next_answer();
    let form = Responses {
        number,
        created: server.clock.now().as_second(),
        model: body.model.clone(),
        echo: echo(&body),
        sequence: 0,
        output: Vec::new(),
        open: None,
        usage: None,
    };
    let streamed = body.stream.unwrap_or(false);
    respond(&server, request_from_wire(body), streamed, form).await
}

/// The fields of the request that an answer repeats.
fn echo(body: &wire::ResponsesRequest) -> Map<String, Value> {
    let fields = json!({
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.extra.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": body.temperature.unwrap_or(1.0),
        "text": body.text.clone().unwrap_or_else(|| json!({"format": {"type": "text"}})),
        "tool_choice": body.tool_choice.clone().unwrap_or_else(|| json!("auto")),
        "tools": body.tools.clone().unwrap_or_default(),
        "top_p": body.top_p.unwrap_or(1.0),
        "truncation": "disabled",
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The item that text is being added to.
struct OpenItem {
    is_message: bool,
    text: String,
}

/// One answer.
struct Responses {
    number: u64,
    created: i64,
    model: String,
    echo: Map<String, Value>,
    sequence: u64,
    output: Vec<wire::Item>,
    open: Option<OpenItem>,
    usage: Option<Usage>,
}

impl Responses {
    fn index(&self) -> u64 {
        self.output.len() as u64
    }

    fn id(&self, kind: &str, index: u64) -> String {
        format!("{kind}_mock_{}_{index}", self.number)
    }

    fn response(&self, status: &str, reason: Option<&str>) -> wire::ResponseObject {
        wire::ResponseObject {
            id: format!("resp_mock_{}", self.number),
            object: "response".to_owned(),
            created_at: Some(self.created.into()),
            status: Some(status.to_owned()),
            error: None,
            incomplete_details: reason.map(|reason| wire::IncompleteDetails {
                reason: Some(reason.to_owned()),
                extra: Map::new(),
            }),
            model: self.model.clone(),
            output: self.output.clone(),
            usage: self.usage.map(usage_to_wire),
            extra: self.echo.clone(),
        }
    }

    fn send(&mut self, kind: &str, event: wire::StreamEvent, out: &mut Vec<sse::Event>) {
        let event = wire::StreamEvent {
            kind: kind.to_owned(),
            sequence_number: Some(self.sequence),
            ..event
        };
        self.sequence += 1;
        out.push(sse::Event::default().event(kind).data(text_of(&event)));
    }

    fn message(&self, index: u64, status: &str, text: Option<&str>) -> wire::Item {
        let parts = text.map(|text| part("output_text", text)).into_iter();
        wire::Item::Message(wire::MessageItem {
            kind: Some("message".to_owned()),
            id: Some(self.id("msg", index)),
            status: Some(status.to_owned()),
            role: "assistant".to_owned(),
            content: wire::Content::Parts(parts.collect()),
            extra: Map::new(),
        })
    }

    fn reasoning(&self, index: u64, text: Option<&str>) -> wire::Item {
        wire::Item::Reasoning(wire::ReasoningItem {
            kind: "reasoning".to_owned(),
            id: Some(self.id("rs", index)),
            summary: text.map(|text| part("summary_text", text)).into_iter().collect(),
            content: None,
            extra: Map::new(),
        })
    }

    fn call(&self, index: u64, call: &ToolCall, arguments: &str, status: &str) -> wire::Item {
        wire::Item::FunctionCall(wire::FunctionCallItem {
            kind: "function_call".to_owned(),
            id: Some(self.id("fc", index)),
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: arguments.to_owned(),
            status: Some(status.to_owned()),
            extra: Map::new(),
        })
    }

    /// An event about a part of the item at `index`.
    fn of_part(&self, index: u64, is_message: bool) -> wire::StreamEvent {
        wire::StreamEvent {
            output_index: Some(index),
            item_id: Some(self.id(if is_message { "msg" } else { "rs" }, index)),
            content_index: is_message.then_some(0),
            summary_index: (!is_message).then_some(0),
            ..wire::StreamEvent::default()
        }
    }

    fn item(&mut self, kind: &str, index: u64, item: wire::Item, out: &mut Vec<sse::Event>) {
        let event = wire::StreamEvent {
            output_index: Some(index),
            item: Some(item),
            ..wire::StreamEvent::default()
        };
        self.send(kind, event, out);
    }

    fn open(&mut self, is_message: bool, out: &mut Vec<sse::Event>) {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.is_message == is_message)
        {
            return;
        }
        self.close(out);
        let index = self.index();
        let item = if is_message {
            self.message(index, "in_progress", None)
        } else {
            self.reasoning(index, None)
        };
        self.item("response.output_item.added", index, item, out);
        let (kind, name) = names(is_message);
        let event = wire::StreamEvent {
            part: Some(part(name, "")),
            ..self.of_part(index, is_message)
        };
        self.send(&format!("{kind}part.added"), event, out);
        self.open = Some(OpenItem {
            is_message,
            text: String::new(),
        });
    }

    fn add(&mut self, is_message: bool, piece: String, out: &mut Vec<sse::Event>) {
        self.open(is_message, out);
        if let Some(open) = &mut self.open {
            open.text.push_str(&piece);
        }
        let event = wire::StreamEvent {
            delta: Some(Value::String(piece)),
            extra: logprobs(is_message),
            ..self.of_part(self.index(), is_message)
        };
        self.send(text_event(is_message, "delta"), event, out);
    }

    fn close(&mut self, out: &mut Vec<sse::Event>) {
        let Some(OpenItem { is_message, text }) = self.open.take() else {
            return;
        };
        let index = self.index();
        let event = wire::StreamEvent {
            text: Some(text.clone()),
            extra: logprobs(is_message),
            ..self.of_part(index, is_message)
        };
        self.send(text_event(is_message, "done"), event, out);
        let (kind, name) = names(is_message);
        let event = wire::StreamEvent {
            part: Some(part(name, &text)),
            ..self.of_part(index, is_message)
        };
        self.send(&format!("{kind}part.done"), event, out);
        let item = if is_message {
            self.message(index, "completed", Some(&text))
        } else {
            self.reasoning(index, Some(&text))
        };
        self.item("response.output_item.done", index, item.clone(), out);
        self.output.push(item);
    }

    fn stream_call(&mut self, call: &ToolCall, out: &mut Vec<sse::Event>) {
        self.close(out);
        let index = self.index();
        let begun = self.call(index, call, "", "in_progress");
        self.item("response.output_item.added", index, begun, out);
        let of_call = |responses: &Self| wire::StreamEvent {
            output_index: Some(index),
            item_id: Some(responses.id("fc", index)),
            ..wire::StreamEvent::default()
        };
        for piece in pieces(&call.arguments) {
            let event = wire::StreamEvent {
                delta: Some(Value::String(piece)),
                ..of_call(self)
            };
            self.send("response.function_call_arguments.delta", event, out);
        }
        let event = wire::StreamEvent {
            arguments: Some(call.arguments.clone()),
            extra: Map::from_iter([("name".to_owned(), json!(call.name))]),
            ..of_call(self)
        };
        self.send("response.function_call_arguments.done", event, out);
        let item = self.call(index, call, &call.arguments, "completed");
        self.item("response.output_item.done", index, item.clone(), out);
        self.output.push(item);
    }

    fn begin(&mut self, out: &mut Vec<sse::Event>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", None);
            self.send(kind, Self::with_response(response), out);
        }
    }

    fn with_response(response: wire::ResponseObject) -> wire::StreamEvent {
        wire::StreamEvent {
            response: Some(response),
            ..wire::StreamEvent::default()
        }
    }
}

fn names(is_message: bool) -> (&'static str, &'static str) {
    if is_message {
        ("response.content_", "output_text")
    } else {
        ("response.reasoning_summary_", "summary_text")
    }
}

fn text_event(is_message: bool, end: &str) -> &'static str {
    match (is_message, end) {
        (true, "delta") => "response.output_text.delta",
        (true, _) => "response.output_text.done",
        (false, "delta") => "response.reasoning_summary_text.delta",
        (false, _) => "response.reasoning_summary_text.done",
    }
}

fn logprobs(is_message: bool) -> Map<String, Value> {
    let field = is_message.then(|| ("logprobs".to_owned(), json!([])));
    field.into_iter().collect()
}

/// Status of an answer, its reason where it is incomplete, and the last event of its stream.
fn ended(finish: FinishReason) -> (&'static str, Option<&'static str>, &'static str) {
    match finish {
        FinishReason::Incomplete => ("incomplete", Some("max_output_tokens"), "response.incomplete"),
        FinishReason::Refused => ("incomplete", Some("content_filter"), "response.incomplete"),
        FinishReason::Failed => ("failed", None, "response.failed"),
        FinishReason::Completed | FinishReason::ToolCalls | FinishReason::Unknown => {
            ("completed", None, "response.completed")
        }
    }
}

impl Form for Responses {
    fn plain(mut self, answer: Answer) -> Value {
        if !answer.thinking.is_empty() {
            let item = self.reasoning(self.index(), Some(&answer.thinking));
            self.output.push(item);
        }
        if !answer.text.is_empty() {
            let item = self.message(self.index(), "completed", Some(&answer.text));
            self.output.push(item);
        }
        for call in &answer.tool_calls {
            let item = self.call(self.index(), call, &call.arguments, "completed");
            self.output.push(item);
        }
        self.usage = answer.usage;
        let (status, reason, _) = ended(answer.finish);
        json!(self.response(status, reason))
    }

    fn failed(error: &ModelError) -> Response {
        failed(error)
    }

    fn event(&mut self, event: ModelEvent, out: &mut Vec<sse::Event>) {
        match event {
            ModelEvent::Started => self.begin(out),
            ModelEvent::Text(piece) => self.add(true, piece, out),
            ModelEvent::Thinking(piece) => self.add(false, piece, out),
            // Signed reasoning is not asked for, since answers are not kept.
            ModelEvent::Thought(_) => {}
            ModelEvent::ToolCall(call) => self.stream_call(&call, out),
            ModelEvent::Usage(usage) => self.usage = Some(usage),
            ModelEvent::Finished(finish) => {
                self.close(out);
                let (status, reason, kind) = ended(finish);
                let response = self.response(status, reason);
                self.send(kind, Self::with_response(response), out);
            }
        }
    }

    fn end(&mut self, _out: &mut Vec<sse::Event>) {}

    fn error(&mut self, error: &ModelError, out: &mut Vec<sse::Event>) {
        if self.sequence == 0 {
            // The format's streams begin with the answer, also where nothing comes of it.
            self.begin(out);
        }
        let object = error_object(error);
        let event = wire::StreamEvent {
            kind: "error".to_owned(),
            sequence_number: Some(self.sequence),
            code: object.code,
            message: Some(object.message),
            extra: Map::from_iter([("param".to_owned(), Value::Null)]),
            ..wire::StreamEvent::default()
        };
        out.push(sse::Event::default().event("error").data(text_of(&event)));
    }
}
