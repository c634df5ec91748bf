import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it } from "vitest";
import type { McpConnection } from "../../../src/mcp/connection/connection.ts";
import { type HttpRequest, SharedSession } from "../../../src/mcp/http/server.ts";
import { protocolServer } from "../../../src/mcp/protocol-server.ts";

it("the shared session opens nothing more for a request that is on its way when the server is stopped", async () => {
  let [opened, closed] = [0, 0];
  const connect = (): McpConnection => {
    opened += 1;
    const connection = {
      worker: { name: "w", description: "", calls: [] },
      workers: new Map(),
      tools: new Map(),
      [Symbol.asyncDispose]: async () => {
        closed += 1;
      },
    };
    return connection as unknown as McpConnection;
  };
  const times = { idleMs: 60_000, goneMs: 60_000 };
  const shared = new SharedSession({ connect, serve: protocolServer, times, onTrouble: () => {} });
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const body = { jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta: meta } };
  const server = createServer((request, response) => {
    request.resume().once("end", async () => {
      const handled = shared.handle(request as HttpRequest, response, body);
      await Promise.all([handled, shared[Symbol.asyncDispose]()]);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const headers = {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/list",
    };
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    expect(response.ok).toBe(false);
    expect([opened, closed]).toEqual([1, 1]);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
