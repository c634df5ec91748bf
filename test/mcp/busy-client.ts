import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

/** A client in a process of its own, for a test to kill: it prints its server's pid once a command runs there. */
const [program = "", dir = ""] = process.argv.slice(2);
const transport = new StdioClientTransport({
  command: process.execPath,
  args: [program, "mcp", "--project", dir, "--worker", "w"],
  env: process.env as Record<string, string>,
});
const client = new Client({ name: "busy", version: "1" });
await client.connect(transport);
const command = "echo begun; sleep 4242";
await client.callTool(
  { name: "exec", arguments: { command } },
  { onprogress: () => process.stdout.write(`${transport.pid}\n`) },
);
