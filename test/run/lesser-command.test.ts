import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSession } from "../../src/run/open-session.ts";
import { personWho } from "./grants/person.ts";
import { openProject, type ProjectFixture, sh } from "./project-fixture.ts";

const commands = { shell_rules: { default: "pre_approved" } };
const never = new AbortController().signal;
const person = personWho("session");
let server: Server;
let project: ProjectFixture;
let to: (name: string) => string;

/** A command that prints what a server says. */
const hears = (name: string): string =>
  `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("${to(name)}"); print "${name}: ", $s ? (<$s> || "nothing") : "no"'`;

beforeAll(async () => {
  server = createServer((socket) => socket.on("error", () => {}).end("hello"));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as { port: number };
  to = (name) => `${name}.example:${port}`;
  const rules = (...names: string[]) => names.map((name) => ({ to: to(name), addresses: ["127.0.0.0/8"] }));
  project = await openProject(
    {
      workers: {
        w: {
          command: ["true"],
          sandbox: { network: { allow: rules("a", "b"), dynamic: { within: [to("c")] } } },
          calls: ["one", "both"],
          ...commands,
        },
        one: { command: sh(hears("a")), sandbox: { network: { allow: rules("a") } } },
        both: { command: sh(`${hears("a")}; ${hears("b")}`), sandbox: { network: { allow: rules("a", "b") } } },
      },
      sandbox: { network: { allow: rules("a", "b", "c") } },
      policy: "default",
    },
    { person, networkHost: { resolveName: async () => ["127.0.0.1"] } },
  );
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  server.close();
});

async function session(name: string, { corral }: ProjectFixture = project) {
  const worker = corral.project.workers.get(name);
  if (worker === undefined) throw new Error("no worker");
  const opened = await openSession({ worker, signal: never }, corral.environment);
  if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
  return opened;
}

/** Asks at the socket of the cell, once for each route with its body; prints an answer a line. */
function asks(...requests: readonly (readonly [route: string, body: object | null])[]): string {
  return requests
    .map(([route, body]) => {
      const data = body === null ? "" : `-d '${JSON.stringify(body)}'`;
      return `curl -s --unix-socket "$CORRAL_SOCKET" ${data} http://corral/v1/${route} | tr -d '\\n'; echo`;
    })
    .join("; ");
}

describe("a command with less network than its run", () => {
  it("passes no more on: not by calls, not by tools, and it is granted nothing", async () => {
    await using opened = await session("w");
    const command = asks(
      ["calls", { worker: "one" }],
      ["calls", { worker: "both" }],
      ["tools/call_worker", { worker: "both" }],
      ["access", { host: to("c") }],
      ["access", { host: to("b") }],
      ["tools/request_access", { host: to("c"), reason: "to see" }],
      ["access", { host: to("a") }],
      ["sandbox", null],
    );
    const exec = async (network?: readonly string[]) => {
      const { stdout } = await opened.session.exec({ command, network }, never);
      return stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
    };
    const violation = { code: "NETWORK_NOT_AVAILABLE", by: "w (exec)", exceeding: [{ rule: { to: to("b") } }] };
    expect(await exec([to("a")])).toMatchObject([
      { status: "succeeded", stdout: "a: hello" },
      { code: "NETWORK_NOT_AVAILABLE", violations: [violation] },
      { code: "NETWORK_NOT_AVAILABLE" },
      { code: "GRANT_LIMITED_COMMAND" },
      { code: "GRANT_LIMITED_COMMAND" },
      { code: "GRANT_LIMITED_COMMAND" },
      { granted: true, scope: "had" },
      { network: { allow: [{ to: to("a") }] } },
    ]);
    expect(person.asked).toEqual([]);
    const whole = { status: "succeeded", stdout: "a: hellob: hello" };
    expect(await exec()).toMatchObject([
      { status: "succeeded", stdout: "a: hello" },
      whole,
      { ok: true },
      { granted: true, scope: "session" },
      { granted: true, scope: "had" },
      { ok: true },
      { granted: true, scope: "had" },
      { network: { allow: [{ to: to("a") }, { to: to("b") }, { to: to("c") }] } },
    ]);
  });

  it.each([[["a.example:1"]], [[]]])("is refused if the run has every host: %j", async (network) => {
    const workers = { w: { command: ["true"], sandbox: { network: true }, ...commands } };
    await using open = await openProject({ workers, sandbox: { network: true }, policy: "default" });
    await using opened = await session("w", open);
    await expect(opened.session.exec({ command: "true", network }, never)).rejects.toMatchObject({
      code: "BAD_NETWORK",
      message: expect.stringContaining("no list of hosts"),
    });
  });
});
