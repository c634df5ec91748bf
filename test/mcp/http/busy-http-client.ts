import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

/** A client in a process of its own, for a test to kill: it prints a line once a command of its runs. */
const [url = "", token = ""] = process.argv.slice(2);
const client = new Client({ name: "busy", version: "1" });
const requestInit = { headers: { authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
await client.callTool(
  { name: "exec", arguments: { command: "echo begun; sleep 4242" } },
  { onprogress: () => process.stdout.write("begun\n") },
);
