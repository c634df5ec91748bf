import { createHash } from "node:crypto";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";
import { startWithin } from "./within-process.ts";

const workers = {
  prints: { command: sh("cat; echo out; echo err >&2; exit 3") },
  reads: { command: sh("cat /attachments/*") },
  counts: { command: sh("i=0; while true; do i=$((i+1)); echo line $i; sleep 0.1; done"), limits: { timeout: "1m" } },
  caller: {
    command: sh("corral-call prints >/dev/null 2>&1; corral-call nobody >/dev/null 2>&1; echo called"),
    calls: ["prints"],
  },
  asks: { command: sh("echo text > /out/asked"), sandbox: { zones: [{ name: "out", mode: "rw" }] } },
  gives: {
    command: sh("corral-call reads --attach /out/a.txt >/dev/null"),
    calls: ["reads"],
    sandbox: { zones: [{ name: "out", mode: "rw" }] },
    limits: { memory: "300m" },
  },
  waits: { command: sh("head -c 30000000 /dev/zero | tail > /tmp/x; echo up; exec sleep 30") },
  tools: { command: sh("true"), tools: ["exec", "list_files"], shell_rules: { default: "pre_approved" } },
};

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } } },
    workers,
    folders: ["out"],
    files: { "own.txt": "a file\n" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("corral runs", () => {
  it("shows how a run ended, with digests of its input and its attachments, and not the input", async () => {
    await project.corral(["run", "prints", "--input", '{"secret":"orchard"}']);
    const shown = await json("runs", "show", "latest");
    const input = '{"secret":"orchard"}\n';
    expect(shown).toMatchObject({
      kind: "run",
      worker: "prints",
      status: "failed",
      exitCode: 3,
      image: "corral/base",
      policy: "default",
      input: { bytes: input.length, sha256: createHash("sha256").update(input).digest("hex") },
      stderr: { bytes: 4, keptBytes: 4 },
    });
    expect(Date.parse(shown.queuedAt)).toBeLessThanOrEqual(Date.parse(shown.startedAt));
    expect(Date.parse(shown.startedAt)).toBeLessThanOrEqual(Date.parse(shown.endedAt));
    await project.corral(["run", "reads", "--attach", "own.txt=mine.txt"]);
    const sha256 = createHash("sha256").update("a file\n").digest("hex");
    expect((await json("runs", "show", "latest")).attachments).toEqual([{ name: "mine.txt", bytes: 7, sha256 }]);
    const { stdout } = await project.corral(["runs", "show", "latest"]);
    expect(stdout).toContain(`mine.txt, 7 bytes, sha256 ${sha256.slice(0, 16)}…`);
  });

  it("shows what each run could see and reach, and the names of what it was given", async () => {
    await writeFile(join(project.dir, "out", "a.txt"), "a file\n");
    const { stdout } = await project.corral(["run", "gives", "--json"]);
    const shown = await json("runs", "show", "latest");
    expect(shown, stdout).toMatchObject({
      held: { mounts: [{ path: "/out", mode: "rw" }], network: [], secrets: [], tools: null },
      calls: [
        {
          worker: "reads",
          status: "succeeded",
          attachments: ["a.txt"],
          held: { mounts: [], network: [], secrets: [], tools: null },
        },
      ],
    });
    expect(JSON.stringify(shown.held)).not.toContain(project.dir);
    await rm(join(project.dir, "out", "a.txt"));
  });

  it("prints what it printed, each stream to its own, or the last lines of one", async () => {
    await project.corral(["run", "prints", "--input", "[1]"]);
    expect(await project.built(["runs", "logs", "latest"])).toMatchObject({ stdout: "[1]\nout\n", stderr: "err\n" });
    expect((await project.corral(["runs", "logs", "latest", "--stderr"])).stdout).toBe("err\n");
    expect((await project.corral(["runs", "logs", "latest", "--stdout", "-n", "1"])).stdout).toBe("out\n");
    expect((await project.corral(["runs", "logs", "latest", "--stdout", "-n", "0"])).stdout).toBe("");
    expect((await project.corral(["runs", "logs", "latest", "--stdout", "-n", "9"])).stdout).toBe("[1]\nout\n");
  });

  it.each(["engine", "prefer-runc"])(
    "and corral ps show memory and processor time, now and at the end, of a cell of %s",
    async (driver) => {
      const env = { CORRAL_DRIVER: driver };
      const { child, ended } = project.start(["run", "waits"], { env });
      await new Promise((up) => child.stdout?.once("data", up));
      const printed = async (args: readonly string[], columns = 0): Promise<string> => {
        const { CORRAL_DRIVER: _, ...rest } = process.env;
        const around = { env: { ...rest, NO_COLOR: "1", CORRAL_STATE_DIR: project.stateDir }, cwd: project.dir };
        const { stdout, ended: status } = startWithin(
          [...args, ...(args[0] === "ps" ? [] : ["-C", project.dir])],
          around,
        );
        if (columns > 0) Object.assign(stdout, { isTTY: true, columns });
        const [shown] = await Promise.all([text(stdout), status]);
        return shown;
      };
      try {
        const all = JSON.parse(await printed(["ps", "--json"]));
        const cell = all.find(({ worker }: { worker: string }) => worker === "waits");
        expect(cell).toMatchObject({ state: "running", driver: driver === "engine" ? "engine" : "runc" });
        expect(cell.memoryBytes).toBeGreaterThan(20_000_000);
        expect(cell.memoryBytesPeak).toBeGreaterThanOrEqual(cell.memoryBytes);
        expect(cell.cpuMs).toBeGreaterThan(0);
        expect(await printed(["ps"])).toMatch(
          new RegExp(`${cell.run}  waits +running +[\\d.]+ MiB +[\\d.]+m?s +${cell.driver}`),
        );
        const narrow = (await printed(["ps"], 60)).split("\n");
        expect(Math.max(...narrow.map((line) => line.length))).toBeLessThanOrEqual(60);
        expect(narrow.find((line) => line.startsWith(cell.run))).toMatch(/waits +running +[\d.]+ MiB +[\d.]+m?s$/);
        expect(await printed(["runs", "show", cell.run])).toMatch(
          /memory +[\d.]+ MiB now, [\d.]+ MiB at most\n +processor +[\d.]+m?s/,
        );
      } finally {
        child.kill("SIGTERM");
        await ended;
      }
      const { usage } = await json("runs", "show", "latest");
      expect(usage.memoryBytesPeak).toBeGreaterThan(20_000_000);
      expect(usage.cpuMs).toBeGreaterThan(0);
      expect(await printed(["runs", "show", "latest"])).toMatch(/memory +[\d.]+ MiB at most\n +processor +[\d.]+m?s/);
    },
  );

  it("has calls in the record of their root run", async () => {
    await project.corral(["run", "caller"]);
    const { calls } = await json("runs", "show", "latest");
    expect(calls).toMatchObject([
      { worker: "prints", status: "failed", exitCode: 3, calls: [] },
      { worker: "nobody", status: "refused", startedAt: null },
    ]);
    const { runs } = await json("runs", "ls", "--worker", "prints");
    expect(runs.every(({ worker }: { worker: string }) => worker === "prints")).toBe(true);
  });

  it("says in JSON and in words that there are more than it lists", async () => {
    expect(await json("runs", "ls", "--limit", "1")).toMatchObject({ runs: [{ kind: "run" }], more: true });
    const { stdout, stderr } = await project.corral(["runs", "ls", "--limit", "1"]);
    expect(stdout.split("\n")).toHaveLength(3);
    expect(stderr).toBe("corral: there are more; listed are the newest 1\n");
    const { length } = (await json("runs", "ls")).runs;
    expect(await json("runs", "ls", "--limit", `${length}`)).toMatchObject({ more: false });
  });

  it("names the changeset that waits", async () => {
    await project.corral(["run", "asks", "--approve", "auto_deny"]);
    const shown = await json("runs", "show", "latest");
    expect(shown).toMatchObject({ status: "denied", changeset: { id: shown.id, counts: { denied: 1 } } });
    await project.corral(["changes", "discard", "latest"]);
  });

  it("stops a run of another process, which ends as cancelled, and follows it until then", async () => {
    const { ended } = project.start(["run", "counts"]);
    const id = await running("counts");
    const followed = project.start(["runs", "logs", id.slice(0, 10), "--follow", "--stdout"]);
    await vi.waitFor(async () => expect((await json("runs", "show", id)).stdout.bytes).toBeGreaterThan(20), 30_000);
    const before = performance.now();
    const stopped = await project.corral(["runs", "stop", id, "--json"]);
    // It would run for a minute.
    expect(performance.now() - before).toBeLessThan(30_000);
    expect(JSON.parse(stopped.stdout)).toEqual({ run: id, outcome: "stopped", status: "cancelled" });
    expect((await ended).status).toBe(130);
    const { stdout, status } = await followed.ended;
    expect(status).toBe(0);
    expect(stdout).toBe((await project.corral(["runs", "logs", id, "--stdout"])).stdout);
    expect(stdout).toMatch(/^line 1\nline 2\n/);
    expect((await project.corral(["runs", "stop", id])).stderr).toContain("has already ended: it is cancelled");
  });

  it("says that a run was interrupted if its process was killed, and keeps what it printed", async () => {
    const { child, ended } = project.start(["run", "counts"]);
    const id = await running("counts");
    await vi.waitFor(async () => expect((await json("runs", "show", id)).stdout.bytes).toBeGreaterThan(20), 30_000);
    expect((await project.corral(["runs", "rm", id])).stderr).toMatch(/only a run that has ended.*corral runs stop/);
    child.kill("SIGKILL");
    await ended;
    await vi.waitFor(async () => expect((await json("runs", "show", id)).status).toBe("interrupted"), 30_000);
    expect((await project.corral(["runs", "logs", id])).stdout).toMatch(/^line 1\n/);
    expect((await project.corral(["runs", "rm", id])).status).toBe(0);
    expect((await project.corral(["runs", "show", id])).status).toBe(2);
    await project.corral(["reap"]);
  });

  it("has a session that ran a command, and none that only looked", async () => {
    const before = (await json("runs", "ls")).runs.length;
    await project.corral(["tool", "list_files", '{"path":"/"}', "--worker", "tools"]);
    expect((await json("runs", "ls")).runs).toHaveLength(before);
    await project.corral(["tool", "exec", '{"command":"echo hi"}', "--worker", "tools"]);
    expect(await json("runs", "show", "latest")).toMatchObject({ kind: "session", worker: "tools", status: "closed" });
  });

  it("removes nothing without being told what, and all of the project if so", async () => {
    expect((await project.corral(["runs", "rm"])).status).toBe(2);
    const other = await project.corral(["runs", "rm", "--before", "2001-01-01"]);
    expect(other.stderr).toContain("0 of 0 runs removed");
    await project.corral(["runs", "rm", "--all"]);
    expect(await json("runs", "ls")).toEqual({ runs: [], more: false });
    expect((await project.corral(["runs", "show", "latest"])).stderr).toBe("corral: there are no runs\n");
  });
});

describe("corral du and corral gc", () => {
  it("show what Corral keeps, and remove what is older", async () => {
    await project.corral(["run", "prints"]);
    const [runs] = await json("du");
    expect(runs).toMatchObject({ name: "runs", complete: true });
    expect(runs.count).toBeGreaterThan(0);
    expect((await project.corral(["du"])).stdout).toMatch(/^runs +[\d.]+ KiB +\d+ runs?$/m);
    const rehearsed = await project.corral(["gc", "--dry-run", "--older-than", "0d"]);
    expect(rehearsed.stdout).toMatch(/^would remove runs: [0-9a-f]{12}, /m);
    expect((await json("runs", "ls")).runs.length).toBeGreaterThan(0);
    const { status, stdout, stderr } = await project.corral(["gc", "--older-than", "0d"]);
    expect({ status, stdout }).toMatchObject({
      status: 0,
      stdout: rehearsed.stdout.replaceAll("would remove", "removed"),
    });
    expect(stderr).toContain("kept audit: 1 project (never");
    expect(await json("runs", "ls")).toEqual({ runs: [], more: false });
    expect((await project.corral(["gc", "--older-than", "soon"])).status).toBe(2);
  });
});

describe("the history", () => {
  it("is off where corral.yaml or the environment says so", async () => {
    await using silent = await cliProject({ yaml: { version: 1, history: "off" }, workers });
    expect((await silent.corral(["run", "prints"])).status).toBe(3);
    const env = { CORRAL_HISTORY: "off" };
    await writeFile(join(silent.dir, "corral.yaml"), "version: 1\n");
    expect((await silent.corral(["run", "prints"], { env })).status).toBe(3);
    expect(await readdir(silent.stateDir)).not.toContain("runs");
    const wrong = await silent.corral(["run", "prints"], { env: { CORRAL_HISTORY: "much" } });
    expect(wrong).toMatchObject({ status: 125, stderr: expect.stringContaining("such as 512m or 2g") });
  });

  it("that cannot be written fails no run, and a line says why", async () => {
    await rm(join(project.stateDir, "runs"), { recursive: true, force: true });
    await writeFile(join(project.stateDir, "runs"), "no folder");
    const { status, stdout, stderr } = await project.corral(["run", "prints"]);
    expect({ status, stdout }).toEqual({ status: 3, stdout: "out\n" });
    expect(stderr.match(/the history of run [0-9a-f]{12} could not be written/g)).toHaveLength(1);
    await rm(join(project.stateDir, "runs"));
    await mkdir(join(project.stateDir, "runs"));
  });
});

// biome-ignore lint/suspicious/noExplicitAny: what the command line prints is checked by the tests.
async function json(...args: string[]): Promise<any> {
  const { stdout, stderr } = await project.corral([...args, "--json"]);
  expect(stderr).toBe("");
  return JSON.parse(stdout);
}

/** The id of the one run of this worker that runs. */
async function running(worker: string): Promise<string> {
  return await vi.waitFor(async () => {
    const { runs } = await json("runs", "ls", "--status", "running", "--worker", worker);
    const [run] = runs;
    expect(run).toBeDefined();
    return run.id as string;
  }, 30_000);
}
