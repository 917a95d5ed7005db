"""The official OpenAI SDK for Python talks to `mainstay mock-model`."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_order",
            "description": "Reads one order",
            "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
    }
]
messages = [{"role": "user", "content": "Where is order 1017?"}]

assert [model.id for model in client.models.list()], "no model is listed"

# Without a stream: a tool call, then the answer that quotes its result.
first = client.chat.completions.create(model="mock", messages=messages, tools=TOOLS)
call = first.choices[0].message.tool_calls[0]
assert first.choices[0].finish_reason == "tool_calls", first
assert call.function.name == "get_order" and json.loads(call.function.arguments) == {"id": 1017}, call
result = {"id": 1017, "status": "shipped", "carrier": "Harbour Express", "expected": "Friday"}
answered = [
    *messages,
    first.choices[0].message.model_dump(exclude_none=True),
    {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)},
]
second = client.chat.completions.create(model="mock", messages=answered, tools=TOOLS)
assert "Harbour Express" in second.choices[0].message.content, second
assert second.usage.total_tokens > 0, second

# The same as a stream.
text, usage, finish = "", None, None
for chunk in client.chat.completions.create(
    model="mock", messages=answered, tools=TOOLS, stream=True, stream_options={"include_usage": True}
):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert "Harbour Express" in text and finish == "stop" and usage.total_tokens > 0, (text, finish, usage)

name, arguments = "", ""
for chunk in client.chat.completions.create(model="mock", messages=messages, tools=TOOLS, stream=True):
    for choice in chunk.choices:
        for piece in choice.delta.tool_calls or []:
            name += piece.function.name or ""
            arguments += piece.function.arguments or ""
assert name == "get_order" and json.loads(arguments) == {"id": 1017}, (name, arguments)

# Errors have the shape that the SDK reads.
try:
    client.chat.completions.create(model="mock", messages=[])
    raise AssertionError("an empty conversation was answered")
except openai.BadRequestError as refused:
    assert "messages" in refused.message, refused
