// server-filesystem speaks over its standard streams only: this hands its messages on over streamable HTTP, with the official SDK.
//
// mcp_filesystem.mjs SERVER PORT DIRECTORY
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const [server, port, directory] = process.argv.slice(2);
const child = new StdioClientTransport({ command: server, args: [directory], stderr: "ignore" });
const http = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
http.onmessage = (message) => child.send(message);
child.onmessage = (message) => http.send(message);
await child.start();
createServer((request, response) => http.handleRequest(request, response)).listen(Number(port), "127.0.0.1", () =>
  console.log(`listening at http://127.0.0.1:${port}/`),
);
process.on("SIGTERM", async () => {
  await child.close();
  process.exit(0);
});
