import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSession } from "../../src/run/open-session.ts";
import { personWho } from "./grants/person.ts";
import { openProject, type ProjectFixture, sh } from "./project-fixture.ts";

const never = new AbortController().signal;
const person = personWho("once");
let server: Server;
let project: ProjectFixture;
let to: (name: string) => string;

/** A program that prints which servers it hears. */
const hears = (...names: string[]): string =>
  names
    .map(
      (name) =>
        `$s = IO::Socket::INET->new("${to(name)}"); $l = $s ? <$s> : ""; print "${name}: ", $l =~ /hello/ ? "hello " : "no "`,
    )
    .join("; ");
const perl = (...names: string[]): string => `perl -MIO::Socket::INET -e '${hears(...names)}'`;

beforeAll(async () => {
  server = createServer((socket) => socket.on("error", () => {}).end("hello"));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as { port: number };
  to = (name) => `${name}.example:${port}`;
  const rules = (...names: string[]) => names.map((name) => ({ to: to(name), addresses: ["127.0.0.0/8"] }));
  const grants = { network: [to("b")] };
  const shell_rules = {
    default: "pre_approved",
    rules: [
      { pattern: "perl -MIO::Socket::INET -e **", approval: "ask", grants },
      { pattern: "perl -e *", approval: "pre_approved" },
    ],
  };
  const alone = {
    default: "pre_approved",
    rules: [{ pattern: "perl **", approval: "ask", grants: { network: true } }],
  };
  project = await openProject(
    {
      workers: {
        w: {
          command: sh(perl("a", "b")),
          sandbox: { network: { allow: rules("a", "b") } },
          calls: ["both"],
          shell_rules,
        },
        alone: { command: ["true"], sandbox: { network: { allow: rules("b") } }, shell_rules: alone },
        both: { command: sh(perl("a", "b")), sandbox: { network: { allow: rules("a", "b") } } },
        wider: {
          command: ["true"],
          sandbox: { network: { allow: rules("c") } },
          shell_rules: [{ pattern: "perl **", approval: "ask", grants: { network: [to("c")] } }],
        },
      },
      sandbox: { network: { allow: rules("a", "b") } },
      policy: "default",
    },
    { person, networkHost: { resolveName: async () => ["127.0.0.1"] } },
  );
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  server.close();
});

async function session(name: string) {
  const worker = project.corral.project.workers.get(name);
  if (worker === undefined) throw new Error("no worker");
  const opened = await openSession({ worker, signal: never }, project.corral.environment);
  if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
  return opened;
}

describe("what a shell rule grants a command", () => {
  it("is had by that one command alone, after consent that names it", async () => {
    await using opened = await session("w");
    const said = async (command: string, more = {}) => (await opened.session.exec({ command, ...more }, never)).stdout;
    // Left in the background by a command without the grant, it tries all the while.
    const tries = `$| = 1; use IO::Socket::INET; while (1) { ${hears("b")}; select(undef, undef, undef, 0.05) }`;
    await said(`perl -e '${tries}' > /tmp/heard 2>&1 &`);
    await said("until grep -q no /tmp/heard; do sleep 0.1; done");
    expect(person.asked).toEqual([]);

    expect(await said(perl("a", "b"))).toBe("a: hello b: hello ");
    expect(person.asked).toHaveLength(1);
    expect(person.asked[0]?.command).toContain(`(reaching also '${to("b")}')`);
    const heard = await said("cat /tmp/heard");
    expect([heard.includes("no"), heard.includes("hello")]).toEqual([true, false]);

    // Not by the same words beside others, with variables or by another program, nor by what it calls.
    expect(await said(`true; ${perl("a", "b")}`)).toBe("a: hello b: no ");
    expect(await said(perl("a", "b"), { env: { LANG: "C" } })).toBe("a: hello b: no ");
    expect(await said(`perl -e 'use IO::Socket::INET; ${hears("a", "b")}'`)).toBe("a: hello b: no ");
    const called = await opened.session.callWorker({ worker: "both", attachments: [] }, never);
    expect(called).toMatchObject({ data: { violations: [{ code: "NETWORK_NOT_AVAILABLE" }] } });
    expect(await said(perl("a", "b"), { network: [to("b")] })).toBe("a: no b: hello ");
    await expect(said("true", { network: [to("b")] })).rejects.toMatchObject({ code: "BAD_NETWORK" });
  });

  it("is the only network of a worker that has no other", async () => {
    await using opened = await session("alone");
    const said = async (command: string) => (await opened.session.exec({ command }, never)).stdout;
    expect(await said(`command ${perl("b")}`)).toBe("b: no ");
    expect(await said(perl("b"))).toBe("b: hello ");
    expect((await project.run("w")).stdout).toBe("a: hello b: no ");
  });

  it("is within what the worker's caller has", async () => {
    expect(await project.run("wider")).toMatchObject({
      status: "refused",
      violations: [{ code: "NETWORK_NOT_AVAILABLE", exceeding: [{ rule: { to: to("c") } }] }],
    });
  });
});
