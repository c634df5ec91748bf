import { chmod, mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import type Docker from "dockerode";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";

/** The one in the checkout, whatever the image holds. */
const program = join(import.meta.dirname, "../../images/base/corral-call");

/** What the fake broker got, and what it answers: each of `next` once, then always `answer`. */
const broker = {
  requests: [] as { route: string; body: unknown }[],
  next: [] as unknown[],
  answer: { status: 200, body: {} as unknown },
};
const SUCCEEDED = { run: "r1", worker: "extract", status: "succeeded", exitCode: 0, signal: null, error: null };

let dir: string;
let server: Server;
let container: Docker.Container;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-call-"));
  server = createServer(async (request, response) => {
    const body = await text(request);
    broker.requests.push({ route: `${request.method} ${request.url}`, body: body && JSON.parse(body) });
    response.writeHead(broker.answer.status, { "content-type": "application/json" });
    response.end(JSON.stringify(broker.next.shift() ?? broker.answer.body));
  });
  const socket = join(dir, "corral.sock");
  await new Promise<void>((listening) => server.listen(socket, listening));
  await chmod(dir, 0o755);
  await chmod(socket, 0o666);
  const { docker } = await connect(process.env);
  container = await docker.createContainer({
    Image: "corral/base",
    Entrypoint: ["/bin/sleep", "600"],
    User: "65532:65532",
    HostConfig: {
      NetworkMode: "none",
      ReadonlyRootfs: true,
      Binds: [`${dir}:/run/corral:ro`, `${program}:/usr/bin/corral-call:ro`],
      Init: true,
    },
  });
  await container.start();
});

afterAll(async () => {
  await container?.remove({ force: true });
  server?.closeAllConnections();
  server?.close();
  await rm(dir, { recursive: true, force: true });
});

beforeEach(() => {
  broker.requests = [];
  broker.next = [];
  broker.answer = { status: 200, body: { ...SUCCEEDED, stdout: "", stderr: "" } };
});

/** Runs corral-call in a cell of corral/base under one of the shells that it must work with. */
async function corralCall(
  args: readonly string[],
  { shell = ["dash"], stdin = "", socket = "/run/corral/corral.sock" } = {},
) {
  return await inContainer([...shell, "/usr/bin/corral-call", ...args], stdin, socket);
}

/** Several calls by one program, as to start one in a container takes longer than a call does. */
async function corralCalls(calls: readonly (readonly string[])[]) {
  const quoted = (arg: string): string => `'${arg.replaceAll("'", "'\\''")}'`;
  const lines = calls.map((args) => `dash /usr/bin/corral-call ${args.map(quoted).join(" ")}; echo "$END$?" >&2`);
  const end = "---- status ";
  const { stdout, stderr } = await inContainer(["dash", "-c", `END='${end}'\n${lines.join("\n")}`]);
  const parts = [...stderr.matchAll(new RegExp(`([^]*?)${end}(\\d+)\\n`, "g"))];
  return { stdout, statuses: parts.map(([, , status]) => Number(status)), errors: parts.map(([, said]) => said) };
}

async function inContainer(command: readonly string[], stdin = "", socket = "/run/corral/corral.sock") {
  const exec = await container.exec({
    Cmd: [...command],
    Env: [`CORRAL_SOCKET=${socket}`],
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
  });
  const stream = await exec.start({ hijack: true, stdin: true });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  container.modem.demuxStream(stream, stdout, stderr);
  stream.end(stdin);
  stream.on("end", () => [stdout, stderr].map((side) => side.end()));
  const [out, err] = await Promise.all([text(stdout), text(stderr)]);
  return { status: (await exec.inspect()).ExitCode, stdout: out, stderr: err };
}

describe.each([
  ["dash", ["dash"]],
  ["busybox", ["busybox", "sh"]],
])("corral-call under %s", (_name, shell) => {
  it("sends the worker, its input and its attachments, whatever characters they hold", async () => {
    const input = { text: `it's "quoted" $HOME \`x\`\n`, n: 1 };
    const attach = ["--attach", "/inbox/a b'\".pdf", "--attach", "/inbox/b.pdf=in.pdf"];
    const args = ["extract", JSON.stringify(input), ...attach];
    expect((await corralCall(args, { shell })).status).toBe(0);
    expect(broker.requests).toEqual([
      {
        route: "POST /v1/calls",
        body: {
          worker: "extract",
          input,
          attachments: [
            { path: "/inbox/a b'\".pdf", name: "a b'\".pdf" },
            { path: "/inbox/b.pdf", name: "in.pdf" },
          ],
        },
      },
    ]);
  });

  it("narrows only in what is asked for", async () => {
    await corralCall(["--allow-read", "/in", "--allow-write", "/out/a", "--allow-write", "/out/b", "extract"], {
      shell,
    });
    await corralCall(["extract", "--readonly"], { shell });
    expect(broker.requests.map(({ body }) => (body as { narrow: unknown }).narrow)).toEqual([
      { allow_read: ["/in"], allow_write: ["/out/a", "/out/b"] },
      { readonly: true },
    ]);
  });

  it("prints the worker's two streams byte for byte, each on its own", async () => {
    const stdout = "line\n\n\ttab 'ü' \\n no newline at the end";
    broker.answer.body = { ...SUCCEEDED, stdout, stderr: "two\n\n" };
    expect(await corralCall(["extract"], { shell })).toEqual({ status: 0, stdout, stderr: "two\n\n" });
  });
});

describe("corral-call", () => {
  it.each([
    ["null", [], ""],
    ["false", ["false"], ""],
    ['{"a":[1]}', ["-"], '{"a":\n[1]}\n'],
    ["null", ["-"], ""],
  ])("sends %s as the input", async (sent, args, stdin) => {
    await corralCall(["extract", ...args], { stdin });
    expect(broker.requests.map(({ body }) => (body as { input: unknown }).input)).toEqual([JSON.parse(sent)]);
  });

  it("ends as the worker did", async () => {
    const ends: readonly (readonly [end: object, status: number])[] = [
      [{ status: "succeeded", exitCode: 0 }, 0],
      [{ status: "failed", exitCode: 3 }, 3],
      [{ status: "failed", exitCode: null }, 1],
      [{ status: "signaled", exitCode: null, signal: "SIGSEGV" }, 139],
      [{ status: "signaled", exitCode: null, signal: "SIGTERM" }, 143],
      [{ status: "timed_out", exitCode: null, signal: "SIGKILL" }, 124],
      [{ status: "oom_killed", exitCode: null, signal: "SIGKILL" }, 137],
      [{ status: "cancelled", exitCode: null }, 130],
      [{ status: "refused", exitCode: null }, 126],
      [{ status: "denied", exitCode: null }, 126],
      [{ status: "lost", exitCode: null }, 125],
      [{ status: "output_limit", exitCode: null }, 1],
    ];
    broker.next = ends.map(([end]) => ({ ...SUCCEEDED, stdout: "out", stderr: "", ...end }));
    const { stdout, statuses } = await corralCalls(ends.map(() => ["extract"]));
    expect(stdout).toBe(ends.map(() => "out").join(""));
    expect(statuses).toEqual(ends.map(([, status]) => status));
  });

  it("tells a refusal on standard error, with status 126", async () => {
    broker.answer = {
      status: 403,
      body: { code: "CALL_NOT_LISTED", message: "extract may not be called.", violations: [] },
    };
    expect(await corralCall(["extract"])).toEqual({
      status: 126,
      stdout: "",
      stderr: "corral-call: extract may not be called.\n",
    });
  });

  it("tells trouble with status 125: an error of the broker, no broker, no socket named", async () => {
    broker.answer = { status: 500, body: { code: "ENGINE", message: "the Engine is gone" } };
    expect(await corralCall(["extract"])).toMatchObject({ status: 125, stderr: "corral-call: the Engine is gone\n" });
    expect(await corralCall(["extract"], { socket: "/run/none.sock" })).toMatchObject({ status: 125 });
    const unset = await corralCall(["extract"], { socket: "" });
    expect(unset).toMatchObject({ status: 125, stderr: expect.stringContaining("CORRAL_SOCKET is not set") });
  });

  it("prints the whole answer with --json, a refusal as well", async () => {
    broker.answer.body = { ...SUCCEEDED, stdout: "out", stderr: "err" };
    const { stdout, stderr } = await corralCall(["extract", "--json"]);
    expect(JSON.parse(stdout)).toEqual(broker.answer.body);
    expect(stderr).toBe("");
    broker.answer = { status: 403, body: { code: "X", message: "no", violations: [{ code: "X" }] } };
    const refused = await corralCall(["--json", "extract"]);
    expect(refused.status).toBe(126);
    expect(JSON.parse(refused.stdout)).toEqual(broker.answer.body);
  });

  it("prints what the run may do with --sandbox", async () => {
    broker.answer.body = { readable: ["/inbox"] };
    const { status, stdout } = await corralCall(["--sandbox"]);
    expect({ status, answer: JSON.parse(stdout) }).toEqual({ status: 0, answer: { readable: ["/inbox"] } });
    expect(broker.requests[0]?.route).toBe("GET /v1/sandbox");
  });

  it("carries a large input and a large answer", async () => {
    const large = "x".repeat(3_000_000);
    broker.answer.body = { ...SUCCEEDED, stdout: large, stderr: "" };
    const { stdout } = await corralCall(["extract", "-"], { stdin: JSON.stringify(large) });
    expect(broker.requests[0]?.body).toMatchObject({ input: large });
    expect(stdout === large).toBe(true);
  });

  it("refuses wrong usage without calling", async () => {
    const wrong = [
      [],
      ["extract", "{not json"],
      ["extract", "1 2"],
      ["extract", "{}", "{}"],
      ["extract", "--attach"],
      ["extract", "--attach", ""],
      ["extract", "--unknown"],
      ["--sandbox", "extract"],
    ];
    const { stdout, statuses, errors } = await corralCalls(wrong);
    expect({ stdout, statuses }).toEqual({ stdout: "", statuses: wrong.map(() => 2) });
    for (const error of errors) expect(error).toContain("usage:");
    expect(broker.requests).toEqual([]);
  });
});
