"""The official Anthropic SDK for Python talks to `mainstay mock-model`."""

import json
import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1].removesuffix("/v1"), api_key="none", max_retries=0)
TOOLS = [
    {
        "name": "get_order",
        "description": "Reads one order",
        "input_schema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    }
]
ASKED = {"model": "mock", "max_tokens": 256, "tools": TOOLS}
messages = [{"role": "user", "content": "Where is order 1017?"}]

assert [model.id for model in client.models.list()], "no model is listed"
assert client.messages.count_tokens(model="mock", messages=messages).input_tokens > 0

# The scenario has the provider busy twice: as an error inside a stream that began with 200.
for _ in range(2):
    try:
        with client.messages.stream(messages=messages, **ASKED) as stream:
            stream.get_final_message()
        raise AssertionError("a busy provider answered")
    except anthropic.APIStatusError as busy:
        assert busy.body["error"]["type"] == "overloaded_error", busy.body

# As a stream: signed thoughts, text, a call.
with client.messages.stream(messages=messages, **ASKED) as stream:
    kinds = {event.type for event in stream}
    first = stream.get_final_message()
assert {"message_start", "content_block_delta", "message_stop"} <= kinds, kinds
thought, text, call = first.content
assert thought.type == "thinking" and "1017" in thought.thinking and thought.signature, thought
assert text.text == "Let me look that up. ", text
assert call.name == "get_order" and call.input == {"id": 1017} and first.stop_reason == "tool_use", first

# What was thought goes back as it came; with another mark it is refused.
result = {"id": 1017, "status": "shipped", "carrier": "Harbour Express", "expected": "Friday"}
answered = [
    *messages,
    {"role": "assistant", "content": first.model_dump(exclude_none=True)["content"]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(result)}]},
]
second = client.messages.create(messages=answered, **ASKED)
assert "Harbour Express" in second.content[0].text and second.stop_reason == "end_turn", second
assert second.usage.input_tokens > 0 and second.usage.output_tokens > 0, second
answered[1]["content"][0]["signature"] = "another"
try:
    client.messages.create(messages=answered, **ASKED)
    raise AssertionError("changed thoughts were taken")
except anthropic.BadRequestError as refused:
    assert "signature" in refused.message, refused

# Errors have the shape that the SDK reads.
try:
    client.messages.create(messages=[], **ASKED)
    raise AssertionError("an empty conversation was answered")
except anthropic.BadRequestError as refused:
    assert "messages" in refused.message, refused
