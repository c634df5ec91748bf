import { createHmac } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, it } from "vitest";
import { httpServer } from "../egress/servers.ts";
import { servedProject } from "./served-project.ts";
import { startService } from "./service-client.ts";

it("posts the end of each run and fleet of the service, signed, and nothing that they printed", async () => {
  const received: { readonly type: string; readonly data: Record<string, unknown> }[] = [];
  const key = "k".repeat(40);
  await using receiver = await httpServer(async (request, response) => {
    const body = await text(request);
    const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature } = request.headers;
    expect(signature).toBe(`v1,${createHmac("sha256", key).update(`${id}.${at}.${body}`).digest("base64")}`);
    received.push(JSON.parse(body));
    response.end();
  });
  await using project = await servedProject();
  await writeFile(join(project.dir, "key"), `${key}\n`, { mode: 0o600 });
  const args = ["--webhook", `http://127.0.0.1:${receiver.port}/`, "--webhook-key-file", "key"];
  await using service = await startService(project, { args });
  const { json: run } = await service.ask("POST", "/v1/runs", { body: { worker: "echo", input: "a secret text" } });
  await expect.poll(() => received.length).toBe(1);
  const { json: fleet } = await service.ask("POST", "/v1/fleets", { body: { worker: "echo", items: [{ a: "x" }] } });
  await expect.poll(() => received.length).toBe(2);
  const [first, second] = received;
  expect(first).toMatchObject({
    type: "run.ended",
    data: { project: run.project, run: run.run, worker: "echo", status: "succeeded", exitCode: 0, changeset: null },
  });
  expect(second).toMatchObject({
    type: "fleet.ended",
    data: { fleet: fleet.fleet, worker: "echo", state: "done", items: 1, done: 1, byStatus: { succeeded: 1 } },
  });
  expect(JSON.stringify(received)).not.toContain("secret");
});
