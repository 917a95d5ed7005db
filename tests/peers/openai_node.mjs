// The official OpenAI SDK for Node.js talks to `mainstay mock-model`.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
const tools = [
  {
    type: "function",
    function: {
      name: "get_order",
      description: "Reads one order",
      parameters: { type: "object", properties: { id: { type: "integer" } }, required: ["id"] },
    },
  },
];
const messages = [{ role: "user", content: "Where is order 1017?" }];

const stream = client.chat.completions.stream({ model: "mock", messages, tools });
const first = await stream.finalChatCompletion();
const call = first.choices[0].message.tool_calls[0];
assert.equal(call.function.name, "get_order");
assert.deepEqual(JSON.parse(call.function.arguments), { id: 1017 });

const second = await client.chat.completions.create({
  model: "mock",
  tools,
  messages: [
    ...messages,
    first.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: JSON.stringify({ id: 1017, status: "shipped", carrier: "Harbour Express", expected: "Friday" }) },
  ],
});
assert.match(second.choices[0].message.content, /Harbour Express/);
