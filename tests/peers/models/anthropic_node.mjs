// The official Anthropic SDK for Node.js talks to `mainstay mock-model`.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2].replace(/\/v1$/, ""), apiKey: "none", maxRetries: 0 });
const tools = [
  {
    name: "get_order",
    description: "Reads one order",
    input_schema: { type: "object", properties: { id: { type: "integer" } }, required: ["id"] },
  },
];
const asked = { model: "mock", max_tokens: 256, tools };
const messages = [{ role: "user", content: "Where is order 1017?" }];

// The scenario has the provider busy twice, inside a stream that began with 200.
for (let busy = 0; busy < 2; busy += 1) {
  await assert.rejects(client.messages.stream({ ...asked, messages }).finalMessage(), /overloaded_error/);
}
const first = await client.messages.stream({ ...asked, messages }).finalMessage();
assert.equal(first.stop_reason, "tool_use");
const call = first.content.find((block) => block.type === "tool_use");
assert.equal(call.name, "get_order");
assert.deepEqual(call.input, { id: 1017 });
const thought = first.content.find((block) => block.type === "thinking");
assert.ok(thought.signature);

const second = await client.messages.create({
  ...asked,
  messages: [
    ...messages,
    { role: "assistant", content: first.content },
    {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: call.id, content: JSON.stringify({ id: 1017, status: "shipped", carrier: "Harbour Express", expected: "Friday" }) },
      ],
    },
  ],
});
assert.match(second.content[0].text, /Harbour Express/);
