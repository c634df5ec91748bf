import { execFileSync } from "node:child_process";
import { readdir, readlink } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newestAuditRecords } from "../../src/operations/audit.ts";
import { openSession } from "../../src/run/open-session.ts";
import { openProject, type ProjectFixture, sh } from "./project-fixture.ts";

type Greeting = Server & { readonly port: number };

/** A server of this machine that says one line to each client. */
async function greeting(text: string): Promise<Greeting> {
  const server = createServer((socket) => socket.on("error", () => {}).end(`${text}\n`));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  return Object.assign(server, { port: typeof address === "object" ? (address?.port ?? 0) : 0 });
}

/** A command that prints what a server says, or `no` if there is none. */
function hears(host: string, port: number): string {
  const perl = `$s = IO::Socket::INET->new("${host}:${port}"); print "${host}: ", $s ? (<$s> || "nothing\\n") : "no\\n"`;
  return `perl -MIO::Socket::INET -e '${perl}'`;
}

const never = new AbortController().signal;
const asked: string[] = [];
let one: Greeting;
let two: Greeting;
let project: ProjectFixture;

beforeAll(async () => {
  [one, two] = await Promise.all([greeting("one"), greeting("two")]);
  const addresses = ["127.0.0.0/8"];
  const [first, second] = [one, two].map(({ port }, index) => ({ to: `${index + 1}.example:${port}`, addresses }));
  const third = { to: "3.example:9", addresses };
  const [both, some] = [{ network: { allow: [first, second, third] } }, { network: { allow: [second] } }];
  const commands = { shell_rules: { default: "pre_approved" } };
  project = await openProject(
    {
      workers: {
        caller: {
          command: sh(
            [
              hears("1.example", one.port),
              hears("1.example", 1),
              hears("4.example", one.port),
              "corral-call called",
              "curl -s --unix-socket $CORRAL_SOCKET http://corral/v1/sandbox >&2",
            ].join("; "),
          ),
          sandbox: both,
          calls: ["called"],
        },
        called: { command: sh(`${hears("1.example", one.port)}; ${hears("2.example", two.port)}`), sandbox: some },
        stray: { command: sh(hears("3.example", 9)), sandbox: both },
        commands: { command: ["true"], sandbox: both, ...commands },
      },
      sandbox: both,
      policy: "default",
    },
    {
      networkHost: {
        resolveName: async (name) => {
          asked.push(name);
          return name === "3.example" ? ["10.1.2.3"] : ["127.0.0.1"];
        },
      },
    },
  );
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  one.close();
  two.close();
});

/** Descriptors of this process that are sockets. */
async function sockets(): Promise<number> {
  const names = await readdir("/proc/self/fd");
  const links = await Promise.all(names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => "")));
  return links.filter((link) => link.startsWith("socket:")).length;
}

describe("a run with an allow list", () => {
  it("reaches what it names and nothing else, and a run that it calls only what that one names", async () => {
    const result = await project.run("caller");
    expect(result.stdout).toBe("1.example: one\n1.example: no\n4.example: no\n1.example: no\n2.example: two\n");
    const line = "loopback only, 3 hosts through Corral";
    expect(result.enforcement).toMatchObject({ requested: { network: line }, actual: { network: line } });
    const to = [`1.example:${one.port}`, `2.example:${two.port}`];
    expect(result.network).toMatchObject({
      allowed: [{ to: to[0], connections: 1, down: 4 }],
      denied: [],
      unlisted: 0,
    });
    expect(result.calls[0]?.network).toMatchObject({ allowed: [{ to: to[1], connections: 1, down: 4 }], denied: [] });
    expect(JSON.parse(result.stderr)).toMatchObject({
      network: { allow: [...to, "3.example:9"].map((each) => ({ to: each })) },
    });
    expect(asked).toEqual(["1.example", "2.example"]);

    expect(await project.traces()).toEqual([]);
  });

  it("is told, as is its audit trail, what did not leave its cell, and why", async () => {
    const result = await project.run("stray");
    expect(result.stdout).toBe("3.example: nothing\n");
    const denied = { to: "3.example:9", count: 1, reason: "address" };
    expect(result.network).toMatchObject({ allowed: [], denied: [denied] });
    const { run } = result;
    expect(project.events.filter((event) => event.run === run).map(({ type }) => type)).toEqual([
      "requested",
      "started",
      "network_denied",
      "output",
      "network_used",
      "ended",
    ]);
    const place = { stateDir: project.stateDir, projectDir: project.dir };
    const recorded = async () => (await newestAuditRecords(place, { run, type: "egress" }, 9)).records;
    await expect.poll(recorded).toMatchObject([
      { allowed: [], denied: [denied], whole: false },
      { allowed: [], denied: [denied], whole: true },
    ]);
    const [started] = (await newestAuditRecords(place, { run, type: "run_started" }, 9)).records;
    expect(started?.network).toMatch(/^1\.example:\d+, 2\.example:\d+, 3\.example:9$/);
  });

  it.each(process.env.CORRAL_LONG ? [200] : [4])(
    "leaves no socket, process or file after %i runs",
    async (rounds) => {
      await project.run("stray");
      const before = await sockets();
      for (let round = 0; round < rounds; round += 1) await project.run("stray");
      // Connections to the Engine stay open for some seconds.
      await expect.poll(sockets, { timeout: 30_000 }).toBeLessThanOrEqual(before);
      expect(await project.traces()).toEqual([]);
      const own = execFileSync("ps", ["--ppid", String(process.pid), "-o", "args"], { encoding: "utf8" });
      expect(own).not.toContain("listenInside");
    },
    900_000,
  );
});

describe("the commands of a session with an allow list", () => {
  it("reach what it names, and less if they ask for less, as often as they are replaced", async () => {
    const worker = project.corral.project.workers.get("commands");
    if (worker === undefined) throw new Error("no worker");
    const opened = await openSession({ worker, signal: never }, project.corral.environment);
    if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
    await using _ = opened;
    const exec = async (network?: readonly string[]): Promise<string> => {
      const command = `${hears("1.example", one.port)}; ${hears("2.example", two.port)}`;
      return (await opened.session.exec({ command, network }, never)).stdout;
    };
    const [first, all] = [`1.example:${one.port}`, "1.example: one\n2.example: two\n"];
    expect(await exec()).toBe(all);
    expect(await exec([first])).toMatch(/^1\.example: one\n2\.example: HTTP\/1\.1 403 /);
    expect(await exec([])).toMatch(/^1\.example: HTTP\/1\.1 403 .*\s+2\.example: HTTP\/1\.1 403 /);
    expect(await exec()).toBe(all);
    const failing = "echo 'curl: (6) Could not resolve host: 9.example' >&2; exit 6";
    const denied = await opened.session.exec({ command: failing, network: [] }, never);
    expect(denied.hints.join()).toMatch(/network/);
    expect(denied.hints.join()).not.toContain(first);
    await expect(exec(["1.example:1"])).rejects.toMatchObject({ code: "BAD_NETWORK" });
    const tool = await opened.session.runTool("exec", { command: "true", network: ["9.example:1"] }, never);
    expect(tool).toMatchObject({ ok: false, code: "BAD_NETWORK", message: expect.stringContaining(first) });
  });
});
