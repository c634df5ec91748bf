import { mkdtemp, readdir, rm } from "node:fs/promises";
import { request } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CallRequest } from "../../../src/run/calls/call.ts";
import { type Broker, type BrokerService, openBroker } from "../../../src/run/cell/broker.ts";
import { type RunResult, refusedResult, unstartedResult } from "../../../src/run/model/result.ts";
import type { ToolResult } from "../../../src/tools/tool.ts";
import { openProject, sh } from "../project-fixture.ts";

const WHO = { run: "r1", worker: "kid" };
const DONE: RunResult = { ...unstartedResult(WHO, "succeeded", { code: "", message: "" }), error: null };

let dir: string;
let broker: Broker;
let calls: CallRequest[];
let troubles: string[];

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "cr-"));
  broker = await openBroker(dir, "r1");
  calls = [];
  troubles = [];
});

afterEach(async () => {
  await broker[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

function serve(
  answer: (signal: AbortSignal) => RunResult | Promise<RunResult> = () => DONE,
  tool: BrokerService["tool"] = () => Promise.reject(new Error("no tool is asked for here")),
): void {
  const service: BrokerService = {
    sandbox: () => ({ readablePaths: ["/docs"] }),
    tool,
    access: () => Promise.reject(new Error("no access is asked for here")),
    trouble: (detail) => void troubles.push(detail),
    async call(call, signal) {
      calls.push(call);
      return await answer(signal);
    },
  };
  broker.serve(service);
}

interface Told {
  readonly status: number | undefined;
  readonly body: { code?: string; message?: string; [name: string]: unknown };
}

function ask(method: string, path: string, body?: string | Buffer): Promise<Told> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath: broker.socket.path, method, path }, async (response) => {
      resolve({ status: response.statusCode, body: JSON.parse(await text(response)) });
    });
    asked.on("error", reject).end(body);
  });
}

const call = (body: unknown): Promise<Told> =>
  ask("POST", "/v1/calls", typeof body === "string" ? body : JSON.stringify(body));

describe("the broker's socket", () => {
  it("answers a call with its result", async () => {
    serve();
    expect(await call({ worker: "kid", input: { a: 1 } })).toEqual({ status: 200, body: DONE });
    expect(calls).toEqual([{ worker: "kid", input: { a: 1 }, attachments: [], narrow: null }]);
  });

  it("understands attachments as paths or with names, and what is to be narrowed", async () => {
    serve();
    await call({
      worker: "kid",
      attachments: ["/docs/a", { path: "/docs/b", name: "c" }, { path: "/docs/d", name: null }],
      narrow: { allow_read: "/docs", allow_write: ["/out/a", "/out/b"], readonly: false },
    });
    expect(calls[0]).toMatchObject({
      attachments: [{ path: "/docs/a" }, { path: "/docs/b", name: "c" }, { path: "/docs/d" }],
      narrow: { allowRead: ["/docs"], allowWrite: ["/out/a", "/out/b"], readonly: false },
    });
  });

  it("answers a refusal with 403 and each violation in words", async () => {
    serve(() => refusedResult(WHO, [{ code: "CALL_LIMIT", max: 3 }]));
    expect(await call({ worker: "kid" })).toMatchObject({
      status: 403,
      body: { code: "CALL_LIMIT", violations: [{ code: "CALL_LIMIT", max: 3, message: expect.stringContaining("3") }] },
    });
  });

  it.each([
    ["is no JSON", "{nope", /not JSON/],
    ["is empty", "", /not JSON/],
    ["names no worker", {}, /worker/],
    ["holds an unknown field", { worker: "kid", sudo: true }, /sudo/],
    ["narrows by an unknown word", { worker: "kid", narrow: { network: true } }, /network/],
    ["attaches what is no path", { worker: "kid", attachments: [1] }, /attachments/],
    ["attaches too much", { worker: "kid", attachments: Array(257).fill("/docs/a") }, /attachments/],
    ["is nested without end", `{"worker":"kid","input":${"[".repeat(100_000)}${"]".repeat(100_000)}}`, /500 levels/],
    ["has too many values", `{"worker":"kid","input":[${"[],".repeat(100_000)}0]}`, /more than 100000 values/],
    ["is larger than it may be", { worker: "kid", input: "x".repeat(5 << 20) }, /larger than 4194304 bytes/],
    ["is very much larger than it may be", { worker: "kid", input: "x".repeat(50 << 20) }, /larger than 4194304 bytes/],
  ])("answers a request that %s with 400, and says so", async (_, body, message) => {
    serve();
    const told = await call(body);
    expect(told).toMatchObject({ status: 400, body: { code: "BAD_REQUEST", message: expect.stringMatching(message) } });
    expect(calls).toEqual([]);
  });

  it("answers any other route with 404, and names those that there are", async () => {
    serve();
    const told = await ask("GET", "/v1/secrets");
    expect(told).toMatchObject({ status: 404, body: { code: "NO_SUCH_ROUTE" } });
    expect(told.body.message).toMatch(/There are POST \/v1\/calls,? .*GET \/v1\/sandbox/);
    expect((await ask("DELETE", "/v1/calls")).status).toBe(404);
  });

  it("tells what the run may do", async () => {
    serve();
    expect(await ask("GET", "/v1/sandbox")).toEqual({ status: 200, body: { readablePaths: ["/docs"] } });
  });

  it("tells nothing of the host, nor ends, where Corral itself fails", async () => {
    serve(() => Promise.reject(new Error("ENOSPC /var/secret")));
    const told = await call({ worker: "kid" });
    expect(told).toMatchObject({ status: 500, body: { code: "INTERNAL" } });
    expect(JSON.stringify(told)).not.toContain("secret");
    expect(troubles).toEqual([
      expect.stringContaining("internal error at POST /v1/calls: Error: ENOSPC /var/secret (at "),
    ]);
    expect((await ask("GET", "/v1/sandbox")).status).toBe(200);
  });

  it("survives a result that cannot be written as JSON", async () => {
    let deep: unknown = null;
    for (let level = 0; level < 100_000; level += 1) deep = [deep];
    serve(() => ({ ...DONE, output: deep }));
    expect((await call({ worker: "kid" })).body).toEqual({
      code: "INTERNAL",
      message: "The answer is too large to be sent.",
    });
    expect((await ask("GET", "/v1/sandbox")).status).toBe(200);
  });

  it("lets the call know when the worker hangs up", async () => {
    const { promise: hungUp, resolve } = Promise.withResolvers<void>();
    const { promise: called, resolve: arrived } = Promise.withResolvers<void>();
    serve(async (signal) => {
      signal.addEventListener("abort", () => resolve());
      arrived();
      await hungUp;
      return DONE;
    });
    const asked = request({ socketPath: broker.socket.path, method: "POST", path: "/v1/calls" });
    asked.on("error", () => {}).end('{"worker":"kid"}');
    await called;
    asked.destroy();
    await hungUp;
  });

  it("lets only so many requests wait, however they come", async () => {
    const { promise: held, resolve: letGo } = Promise.withResolvers<void>();
    serve(async () => {
      await held;
      return DONE;
    });
    const body = '{"worker":"kid"}';
    const one = `POST /v1/calls HTTP/1.1\r\nhost: corral\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    const last = one.replace("host: corral", "host: corral\r\nconnection: close");
    const socket = connect(broker.socket.path);
    socket.write(one.repeat(299) + last);
    await expect.poll(() => calls.length).toBe(256);
    letGo();
    const answers = await text(socket);
    expect(answers.match(/HTTP\/1.1 200/g)).toHaveLength(256);
    expect(answers.match(/HTTP\/1.1 503/g)).toHaveLength(44);
  });
});

describe("tools at the broker's socket", () => {
  const body = "{}";
  const asking = `POST /v1/tools/read_file HTTP/1.1\r\nhost: corral\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const long: ToolResult = { ok: true, text: "x".repeat(5_000_000), data: {} };

  it("are 8 at once, and each is at work until its answer has been read", async () => {
    let begun = 0;
    serve(undefined, async () => {
      begun += 1;
      return long;
    });
    const sockets = Array.from({ length: 20 }, () => connect(broker.socket.path).pause());
    for (const socket of sockets) socket.write(asking);
    await expect.poll(() => begun).toBe(8);
    expect(await ask("GET", "/v1/sandbox")).toMatchObject({ status: 200 });
    expect(begun).toBe(8);
    for (const socket of sockets.slice(0, 8)) socket.resume();
    await expect.poll(() => begun).toBe(16);
    for (const socket of sockets.slice(8)) socket.destroy();
    expect(await ask("POST", "/v1/tools/read_file", body)).toMatchObject({ status: 200 });
    for (const socket of sockets) socket.destroy();
  });

  it("are not begun for whoever has hung up by then", async () => {
    const held = Promise.withResolvers<void>();
    let begun = 0;
    serve(undefined, async () => {
      begun += 1;
      await held.promise;
      return long;
    });
    const sockets = Array.from({ length: 12 }, () => connect(broker.socket.path));
    for (const socket of sockets) socket.write(asking);
    await expect.poll(() => begun).toBe(8);
    for (const socket of sockets) socket.destroy();
    held.resolve();
    expect(await ask("POST", "/v1/tools/read_file", body)).toMatchObject({ status: 200 });
    expect(begun).toBe(9);
  });
});

describe("openBroker", () => {
  it("refuses a state directory whose path a socket cannot have, and says which setting helps", async () => {
    await expect(openBroker(join(dir, "x".repeat(100)), "r2")).rejects.toThrow(/CORRAL_STATE_DIR/);
  });

  it("leaves nothing behind", async () => {
    const other = await openBroker(dir, "r2");
    expect(await readdir(dir)).toEqual(["r1", "r2"]);
    await other[Symbol.asyncDispose]();
    expect(await readdir(dir)).toEqual(["r1"]);
  });
});

describe("a worker at its own socket", () => {
  it("reads what it may do, in its own paths, and no host path", async () => {
    const w = {
      command: sh("corral-call --sandbox"),
      output: "json",
      sandbox: { zones: [{ name: "docs" }] },
      calls: ["kid"],
    };
    await using project = await openProject({
      workers: { w, kid: { command: ["true"] } },
      zones: { docs: "ro" },
      files: { x: "X" },
    });
    const result = await project.run("w", { attachments: [{ name: "x", host: join(project.dir, "x") }] });
    expect(result.output).toMatchObject({
      worker: "w",
      readablePaths: ["/docs"],
      writablePaths: [],
      attachments: ["/attachments/x"],
      network: false,
      policy: "untrusted",
      calls: ["kid"],
    });
    expect(result.stdout).not.toContain(project.dir);
  });

  it("is told what is wrong with a request, by plain curl", async () => {
    const ask = `curl -s --unix-socket "$CORRAL_SOCKET" -w '%{http_code}\\n' http://corral/v1/calls`;
    const script = `${ask} -d '{'; ${ask} -d '{"worker":"w","as":"root"}'; head -c 20000000 /dev/zero | ${ask} --data-binary @-`;
    await using project = await openProject({ workers: { w: { command: sh(script) } } });
    const { stdout } = await project.run("w");
    const lines = stdout.trim().split("\n");
    expect(lines.filter((_, index) => index % 2 === 1)).toEqual(["400", "400", "400"]);
    expect(stdout).toMatch(/not JSON.*\n.*\n.*Unrecognized key.*\n.*\n.*larger than/);
  });
});
