import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Approver } from "../../../src/approval/approver.ts";
import { listGrants, revokeGrant } from "../../../src/operations/approvals.ts";
import { openSession } from "../../../src/run/open-session.ts";
import { openProject, type ProjectFixture, sh, type WorkerSpec } from "../project-fixture.ts";
import { personWho } from "./person.ts";

const ASK = `ask() { curl -s --unix-socket "$CORRAL_SOCKET" -d "{\\"host\\":\\"$1\\",\\"reason\\":\\"for its work\\"}" http://corral/v1/access; }`;
const never = new AbortController().signal;

let server: Server;
let port = 0;
const open = new Set<Socket>();
let project: ProjectFixture | null = null;

/** Greets each client, and keeps the connection open until it is told to end. */
beforeAll(async () => {
  server = createServer((socket) => {
    open.add(socket.on("error", () => {}));
    socket.once("close", () => open.delete(socket));
    socket.write("hello\n");
    socket.on("data", (bytes) => bytes.includes("end") && socket.end());
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  port = (server.address() as { port: number }).port;
});

afterAll(() => {
  for (const socket of open) socket.destroy();
  server.close();
});

afterEach(async () => {
  await project?.[Symbol.asyncDispose]();
  project = null;
});

const to = (name: string) => `${name}.example:${port}`;

/** Prints what a host says, or `no`. */
const hears = (name: string): string =>
  `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("${to(name)}"); print "${name}: ", $s ? (<$s> || "nothing\\n") : "no\\n"'`;

async function opened(
  person: Approver,
  workers: Readonly<Record<string, WorkerSpec>>,
  policy?: string,
): Promise<ProjectFixture> {
  const allow = ["a", "b"].map((name) => ({ to: to(name), addresses: ["127.0.0.0/8"] }));
  project = await openProject(
    policy === undefined ? { workers, sandbox: { network: { allow } }, policy: "default" } : { workers, policy },
    { person, networkHost: { resolveName: async () => ["127.0.0.1"] } },
  );
  return project;
}

const dynamic = (...names: string[]) => ({ network: { dynamic: { within: names.map(to) } } });

describe("a host that is granted to a run", () => {
  it("is reached by its name from then on, in the cell that asked, and is in the result and the trail", async () => {
    const person = personWho("session");
    const p = await opened(person, {
      w: {
        command: sh(`${ASK}; ${hears("a")}; ask ${to("A").toUpperCase()}; ${hears("a")}; ${hears("b")}`),
        sandbox: dynamic("a", "b"),
      },
    });
    const result = await p.run("w");
    const [before, answer, after, other] = result.stdout.split("\n");
    expect([before, after, other]).toEqual(["a: no", "a: hello", "b: no"]);
    expect(JSON.parse(answer ?? "")).toEqual({ granted: true, host: to("a"), scope: "session" });
    expect(person.asked).toMatchObject([
      { operations: ["grant_network"], to: to("a"), reaches: [], why: "for its work" },
    ]);
    expect(result.network?.allowed).toMatchObject([{ to: to("a"), connections: 1 }]);
    expect(p.corral.environment.grants.told).toMatchObject([{ to: to("a"), granted: ["w"] }]);
    expect(await listGrants(p.stateDir)).toEqual([]);
    // The directory for grants is there until the project is closed.
    expect(await p.traces()).toEqual(["socket of run grants"]);
  });

  it("is reached by workers that are called after that, and through the caller that was granted it too", async () => {
    const p = await opened(personWho("session"), {
      root: {
        command: sh(`corral-call leaf; ${hears("a")}; corral-call heir`),
        sandbox: dynamic("a"),
        calls: ["leaf", "heir"],
      },
      leaf: { command: sh(`${ASK}; ask ${to("a")} >/dev/null; ${hears("a")}`), sandbox: dynamic("a") },
      heir: { command: sh(hears("a")), sandbox: { network: { allow: [to("a")] } } },
    });
    const result = await p.run("root");
    expect(result.calls.map(({ stdout, status }) => [status, stdout])).toEqual([
      ["succeeded", "a: hello\n"],
      ["succeeded", "a: hello\n"],
    ]);
    expect(result.stdout).toContain("a: hello\n");
  });

  it("leaves a session's cell as it is, which reaches it at once", async () => {
    const p = await opened(personWho("session"), {
      w: { command: ["true"], sandbox: dynamic("a"), shell_rules: { default: "pre_approved" } },
    });
    const worker = p.corral.project.workers.get("w");
    if (worker === undefined) throw new Error("no worker");
    const session = await openSession({ worker, signal: never }, p.corral.environment);
    if (!session.ok) throw new Error(JSON.stringify(session.violations));
    await using _ = session;
    const exec = async (command: string) => await session.session.exec({ command }, never);
    expect((await exec(`echo kept > /tmp/f; ${hears("a")}`)).stdout).toBe("a: no\n");
    const granted = await session.session.runTool("request_access", { host: to("a"), reason: "why not" }, never);
    expect(granted).toMatchObject({ ok: true, data: { host: to("a"), scope: "session" } });
    expect(await exec(`cat /tmp/f; ${hears("a")}`)).toMatchObject({ stdout: "kept\na: hello\n", cellReplaced: false });
    const { hints } = await exec("curl -sS https://nowhere.example/");
    expect(hints).toEqual([expect.stringContaining(`This worker reaches only these hosts: ${to("a")}.`)]);
    const [refused, both] = [
      await session.session.runTool("request_access", { host: to("b") }, never),
      await session.session.runTool("request_access", { host: to("b"), path: "/x" }, never),
    ];
    expect(refused).toMatchObject({ ok: false, code: "GRANT_OUTSIDE" });
    expect(both).toMatchObject({ ok: false, code: "BAD_INPUT" });
  });
});

describe("a host that is revoked", () => {
  it("loses its connections at once, and takes none after that", async () => {
    const hold = `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("${to("a")}"); print scalar <$s>; $| = 1; print "held\\n"; print defined(<$s>) ? "more\\n" : "closed\\n"'`;
    const p = await opened(personWho("session"), {
      w: {
        command: sh(`${ASK}; ask ${to("a")} >/dev/null; ${hold}; ${hears("a")}; ask ${to("a")}`),
        sandbox: dynamic("a"),
      },
    });
    const running = p.run("w");
    while (open.size === 0) await sleep(50);
    const [grant] = await listGrants(p.stateDir);
    const begun = performance.now();
    await revokeGrant(p.stateDir, grant?.id ?? "");
    while (open.size > 0) await sleep(10);
    expect(performance.now() - begun).toBeLessThan(10_000);
    const { stdout } = await running;
    const lines = stdout.split("\n");
    expect(lines.slice(0, 3)).toEqual(["hello", "held", "closed"]);
    expect(lines[3]).toMatch(/^a: HTTP\/1\.1 403/);
    expect(JSON.parse(lines[4] ?? "")).toMatchObject({ code: "GRANT_REVOKED" });
  });
});

/** Connects through the proxy of the cell, and prints the status line and what the host or the refusal says. */
const VIA = `via() { perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("127.88.0.1:3128"); print $s "CONNECT $ARGV[0] HTTP/1.1\\r\\nHost: $ARGV[0]\\r\\n\\r\\n"; while (<$s>) { s/\\r//; print if /HTTP|hello|allowed/; last if /hello/ }' $1; }`;

describe("a connection through the proxy", () => {
  it("is refused at once and asks by itself, so that the next one is let through", async () => {
    const person = personWho("session");
    const p = await opened(person, {
      w: { command: sh(`${VIA}; via ${to("a")}; sleep 1; via ${to("a")}; via c.example:1`), sandbox: dynamic("a") },
    });
    const { stdout } = await p.run("w");
    expect(stdout.split("\n")).toEqual([
      "HTTP/1.1 403 Refused",
      `${to("a")} is not allowed. Allowed: none. The user is asked if this run may reach it: try again in a while.`,
      "HTTP/1.1 200 Connection established",
      "hello",
      "HTTP/1.1 403 Refused",
      expect.stringMatching(/^c\.example:1 is not allowed\. Allowed: a\.example:\d+\.$/),
      "",
    ]);
    expect(person.asked).toMatchObject([{ to: to("a"), why: "a program in its container tried to connect" }]);
  });

  it("asks once for each host, whatever the answer is, and for at most so many as may be granted", async () => {
    const person = personWho("no");
    const p = await opened(person, {
      w: {
        command: sh(`${VIA}; for i in 1 2 3; do via ${to("a")}; via ${to("A")}; via ${to("b")}; done; sleep 1`),
        sandbox: dynamic("a", "b"),
      },
    });
    const { stdout } = await p.run("w");
    expect(stdout.match(/403 Refused/g)).toHaveLength(9);
    expect(person.asked.map((asked) => asked.to)).toEqual([to("a"), to("b")]);
  });
});

describe("a run that learns its network", () => {
  it("waits for the answer to each new host, and goes on with what was agreed to", async () => {
    const person = personWho("session", "no");
    const p = await opened(person, {
      w: {
        command: sh(
          `${VIA}; via ${to("a")}; via ${to("b")}; via ${to("b")}; ${hears("a")}; corral-call leaf >/dev/null`,
        ),
        calls: ["leaf"],
      },
      leaf: { command: sh(`${VIA}; via ${to("a")}`) },
    });
    const result = await p.run("w", { learnsNetwork: true });
    expect(result.stdout.match(/^(HTTP|hello|a: ).*$/gm)).toEqual([
      "HTTP/1.1 200 Connection established",
      "hello",
      "HTTP/1.1 403 Refused",
      "HTTP/1.1 403 Refused",
      "a: hello",
    ]);
    expect(result.calls[0]?.stdout).toMatch(/403/);
    expect(person.asked.map(({ to: host, through }) => [host, through])).toEqual([
      [to("a"), ["w"]],
      [to("b"), ["w"]],
      [to("a"), ["w", "leaf"]],
    ]);
    expect(p.corral.environment.grants.told).toMatchObject([{ to: to("a"), worker: "w" }]);
  });

  it("lets a request to the proxy wait as well", async () => {
    const person = personWho("session", "no");
    const ask = (name: string) => `curl -s -o /dev/null -w '%{http_code}\\n' http://${to(name)}/`;
    const p = await opened(person, { w: { command: sh(`${ask("a")}; ${ask("b")}; true`) } });
    const { stdout } = await p.run("w", { learnsNetwork: true });
    // What listens there does not speak HTTP.
    expect(stdout).toBe("502\n403\n");
    expect(person.asked.map((asked) => asked.to)).toEqual([to("a"), to("b")]);
  });

  it("does not reach what the policy does not allow, whoever agrees", async () => {
    const person = personWho("session");
    const p = await opened(person, { w: { command: sh(`${VIA}; via ${to("a")}; via one.one.one.one:443`) } }, "ci");
    const result = await p.run("w", { learnsNetwork: true });
    expect(result.stdout.match(/403 Refused/g)).toHaveLength(2);
    expect(person.asked).toEqual([]);
  });
});
