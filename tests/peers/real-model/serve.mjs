// Serves a small real model as Chat Completions, streaming only: what the help desk needs and no more.
// usage: node serve.mjs MODEL.gguf
import http from "node:http";
import { getLlama, LlamaChatSession } from "node-llama-cpp";

const llama = await getLlama({ build: "never", gpu: false, logLevel: "error" });
const model = await llama.loadModel({ modelPath: process.argv[2] });

async function answer(request, response) {
  let body = "";
  for await (const chunk of request) body += chunk;
  const asked = JSON.parse(body);
  const system = asked.messages.find((message) => message.role === "system")?.content;
  const user = asked.messages.findLast((message) => message.role === "user").content;
  const context = await model.createContext({ contextSize: 2048 });
  const session = new LlamaChatSession({ contextSequence: context.getSequence(), systemPrompt: system });
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (choices, more = {}) =>
    response.write(`data: ${JSON.stringify({ id: "real", object: "chat.completion.chunk", model: "smollm2", choices, ...more })}\n\n`);
  await session.prompt(user, {
    // A small model rambles; a sentence is enough to show that it streams.
    maxTokens: Math.min(asked.max_completion_tokens ?? asked.max_tokens ?? 64, 48),
    temperature: 0,
    onTextChunk: (content) => send([{ index: 0, delta: { role: "assistant", content }, finish_reason: null }]),
  });
  send([{ index: 0, delta: {}, finish_reason: "stop" }]);
  send([], { usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
  response.end("data: [DONE]\n\n");
  await context.dispose();
}

const server = http.createServer((request, response) => {
  answer(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) response.writeHead(500, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: String(error) } }));
  });
});
server.listen(0, "127.0.0.1", () => console.log(`model at http://127.0.0.1:${server.address().port}/v1`));
