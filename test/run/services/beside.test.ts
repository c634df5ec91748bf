import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runcPaths } from "../../../src/isolation/runc/model/layout.ts";
import { runOutput, showRun } from "../../../src/operations/runs.ts";
import { openSession } from "../../../src/run/open-session.ts";
import { startOrchestrator } from "../orchestrator.ts";
import { openProject, type ProjectFixture, sh } from "../project-fixture.ts";

const never = new AbortController().signal;
/** Serves a line at each of some ports, and stays. */
const serves = (line: string, ...ports: number[]): string =>
  `mkdir /tmp/h; echo ${line} > /tmp/h/index.html; ${ports.map((port) => `/.corral/busybox httpd -p 127.0.0.1:${port} -h /tmp/h`).join("; ")};`;
const ask = (host: string, port: number): string =>
  `r=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | /.corral/busybox nc -w 5 ${host} ${port} 2> /dev/null | tail -n 1); echo "\${r:-nothing at ${host} ${port}}"`;
const echo = { worker: "echo", ports: [7001], ready_within: "20s" };

const workers = {
  // It is ready when its file is there, which is late. Then it looks for what listens in the worker's cell.
  late: {
    command: sh(
      `sleep 1; ${serves("from late", 7002)} touch /tmp/there; while sleep 0.2; do ${ask("127.0.0.1", 7001)}; done`,
    ),
  },
  echo: { command: sh(`echo up; echo no >&2; ${serves("from echo", 7001, 7009)} sleep 300`) },
  both: {
    command: sh(
      `${ask("localhost", 7001)}; ${ask("echo", 7001)}; ${ask("late", 7002)}; ${ask("127.0.0.1", 7009)}; sleep 1`,
    ),
    services: {
      echo,
      late: { worker: "late", ports: [7002], ready: ["test", "-e", "/tmp/there"], ready_within: "20s" },
    },
  },
  idle: {
    command: sh("echo began; exec sleep 300"),
    services: { echo },
    shell_rules: { default: "pre_approved" },
  },
  ends: { command: sh(`echo soon >&2; ${serves("x", 7003)} sleep 1.5; exit 3`) },
  waits: {
    command: sh(`while [ "$(${ask("ends", 7003)})" = x ]; do :; done; exit 1`),
    services: { ends: { worker: "ends", ports: [7003] } },
  },
  dies: { command: sh("echo cannot begin >&2; exit 4") },
  mute: { command: sh("exec sleep 300") },
  "with-dies": { command: sh("echo ran"), services: { echo, dies: { worker: "dies", ports: [1] } } },
  "with-mute": { command: sh("echo ran"), services: { mute: { worker: "mute", ports: [7004], ready_within: "1s" } } },
};

let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({ workers });
});

afterAll(() => project[Symbol.asyncDispose]());

async function logOf(run: string, service: string): Promise<string> {
  const place = { stateDir: project.stateDir, projectDir: project.dir };
  const pieces = await runOutput(place, run, { streams: ["stdout", "stderr"], service });
  return Buffer.concat((await Array.fromAsync(pieces)).map(({ bytes }) => bytes)).toString();
}

describe("a run with services", () => {
  it("reaches their ports by name and at localhost, and no other; each is alone, recorded, and gone at its end", async () => {
    const result = await project.run("both");
    expect(result.stdout.trim().split("\n")).toEqual([
      "from echo",
      "from echo",
      "from late",
      "nothing at 127.0.0.1 7009",
    ]);
    expect(result).toMatchObject({ status: "succeeded", calls: [] });
    expect(await project.traces()).toEqual([]);
    const record = await showRun({ stateDir: project.stateDir, projectDir: project.dir }, result.run);
    expect(record.calls.map(({ service, worker, status }) => [service, worker, status]).toSorted()).toEqual([
      ["echo", "echo", "succeeded"],
      ["late", "late", "succeeded"],
    ]);
    expect(await logOf(result.run, "echo")).toBe("up\nno\n");
    // It looked at its own network alone.
    expect(new Set((await logOf(result.run, "late")).trim().split("\n"))).toEqual(
      new Set(["nothing at 127.0.0.1 7001"]),
    );
    await expect(logOf(result.run, "../echo")).rejects.toThrow(/no service "..\/echo"; it had: echo, late/);
  });

  it("is refused if one is never ready or ends before, with what that printed last, and its worker does not start", async () => {
    const dies = await project.run("with-dies");
    expect(dies).toMatchObject({ status: "refused", stdout: "", violations: [{ code: "SERVICE_NOT_READY" }] });
    expect(dies.error?.message).toMatch(/'dies'.*ended with exit code 4 before.*cannot begin.*--service dies/);
    expect(await logOf(dies.run, "dies")).toBe("cannot begin\n");
    const running = project.run("with-mute");
    // The worker's own cell is made meanwhile, and waits at its gate.
    const made = async () => (await project.corral.environment.driver.list()).map(({ worker }) => worker).toSorted();
    await expect.poll(made, { interval: 50 }).toEqual(["mute", "with-mute"]);
    const mute = await running;
    expect(mute.error?.message).toMatch(/'mute'.*nothing listens on its port 7004, and it had 1s\. It printed nothing/);
    expect(await project.traces()).toEqual([]);
  });

  it("is told of one that ends before it", async () => {
    const result = await project.run("waits");
    expect(result).toMatchObject({ status: "failed", exitCode: 1 });
    expect(result.error?.message).toMatch(/While it ran, the service ends ended with exit code 3\.$/);
    expect(project.events).toContainEqual(
      expect.objectContaining({
        type: "trouble",
        detail: expect.stringMatching(/service ends ended with exit code 3/),
      }),
    );
    expect(project.events).toContainEqual(
      expect.objectContaining({
        type: "ended",
        service: "ends",
        result: expect.objectContaining({ status: "failed" }),
      }),
    );
    expect(await project.traces()).toEqual([]);
  });

  it("leaves none of them if its process is killed", async () => {
    const stateDir = join(project.dir, "../killed");
    await using victim = startOrchestrator({ projectDir: project.dir, stateDir, worker: "idle", runs: 1 });
    await victim.said("began", 1);
    victim.killOnly();
    await victim.exit;
    const left = () => readdir(runcPaths(stateDir).cells).catch(() => []);
    await expect.poll(left, { timeout: 30_000, interval: 200 }).toEqual([]);
  });
});

describe("a session with services", () => {
  it("has them in each of its cells, until it is closed", async () => {
    const worker = project.corral.project.workers.get("idle");
    if (worker === undefined) throw new Error("there is no worker idle");
    const opened = await openSession({ worker, signal: never }, project.corral.environment);
    if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
    const { session } = opened;
    const first = await session.exec({ command: ask("echo", 7001) }, never);
    expect(first.stdout).toBe("from echo\n");
    const cell = await session.cell(never);
    cell.kill();
    await expect.poll(() => cell.hasEnded()).toBe(true);
    const second = await session.exec({ command: ask("localhost", 7001) }, never);
    expect(second).toMatchObject({ stdout: "from echo\n", cellReplaced: true });
    await opened.finish();
    await opened[Symbol.asyncDispose]();
    expect(await project.traces()).toEqual([]);
  });
});
