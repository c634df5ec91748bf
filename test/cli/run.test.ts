import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { RunResult } from "../../src/run/model/result.ts";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

const out = { name: "out", mode: "rw", approval: "pre_approved" };
const workers = {
  echo: { command: sh("cat; ls /attachments; cat /attachments/* ; echo to people >&2"), sandbox: {} },
  silent: { command: sh("cat") },
  three: { command: sh("echo before; exit 3") },
  signaled: { command: sh("kill -SEGV $$") },
  slow: { command: sh("echo begun; sleep 60"), limits: { timeout: "1s" } },
  patient: { command: sh("echo begun; sleep 60") },
  flood: { command: sh("yes"), limits: { output: "1k" } },
  hungry: { command: sh("exec tail /dev/zero"), limits: { memory: "16m" } },
  asks: { command: sh("echo text > /out/asked; echo wrote"), sandbox: { zones: [{ name: "out", mode: "rw" }] } },
  escalates: { command: sh("true"), sandbox: { zones: [{ name: "docs", mode: "rw" }, { name: "secrets" }] } },
  caller: {
    command: sh("corral-call three >/dev/null 2>&1; corral-call nobody >/dev/null 2>&1; echo called"),
    calls: ["three"],
    sandbox: { zones: [{ name: "docs" }, out] },
  },
};

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" }, docs: { path: "docs", mode: "ro" } } },
    },
    workers,
    folders: ["out"],
    files: { "docs/a.txt": "a document\n", "own.txt": "a file of the person\n", "name=odd": "odd\n", "in.json": "[1]" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("corral run", () => {
  it("gives the worker its input and attachments, and keeps its two streams apart", async () => {
    const attached = ["--attach", "own.txt=mine.txt", "--attach", "/docs/a.txt", "--attach", "name=odd"];
    const { status, stdout, stderr } = await project.built(["run", "echo", "--input", '{"n":1}', ...attached]);
    expect(stdout).toBe('{"n":1}\na.txt\nmine.txt\nname=odd\na document\na file of the person\nodd\n');
    expect(stderr).toBe("to people\n");
    expect(status).toBe(0);
  });

  it("reads the input from a file and from standard input", async () => {
    const [file, stdin] = await Promise.all([
      project.corral(["run", "silent", "--input", "@in.json"]),
      project.corral(["run", "silent", "--input", "-"], { stdin: '{ "from": "stdin" }' }),
    ]);
    expect(file.stdout).toBe("[1]\n");
    expect(stdin.stdout).toBe('{"from":"stdin"}\n');
  });

  it.each([
    ["three", 3, "exit code 3"],
    ["signaled", 139, "SIGSEGV"],
    ["slow", 124, "time limit"],
    ["hungry", 137, "memory"],
    ["flood", 153, "1 KiB"],
  ])("ends %s with the exit status %i", async (worker, status, says) => {
    const outcome = await project.corral(["run", worker]);
    expect(outcome.stderr).toContain(says);
    expect(outcome.status).toBe(status);
  });

  it("refuses with 126 and names every reason", async () => {
    const { status, stderr, stdout } = await project.corral(["run", "escalates"]);
    expect(stderr).toContain("'/docs'");
    expect(stderr).toContain("'secrets'");
    expect(stdout).toBe("");
    expect(status).toBe(126);
  });

  it("denies with 126 where nobody can be asked, and runs where the mode agrees", async () => {
    const denied = await project.corral(["run", "asks"]);
    expect(denied.stderr).toContain("no terminal");
    expect(denied.status).toBe(126);
    expect(await readdir(join(project.dir, "out"))).toEqual([]);
    const approved = await project.corral(["run", "asks", "--approve", "approve_all"]);
    expect(approved).toMatchObject({ status: 0, stdout: "wrote\n" });
    expect(await readdir(join(project.dir, "out"))).toEqual(["asked"]);
  });

  it("prints with --json the result on one line of standard output, and nothing else", async () => {
    const { status, stdout, stderr } = await project.corral(["run", "caller", "--json"]);
    const result = JSON.parse(stdout) as RunResult;
    expect(stdout.split("\n")).toHaveLength(2);
    expect(stderr).toBe("");
    expect(status).toBe(0);
    expect(result.stdout).toBe("called\n");
    expect(result.calls.map((call) => [call.worker, call.status, call.exitCode])).toEqual([
      ["three", "failed", 3],
      ["nobody", "refused", null],
    ]);
  });

  it("tells of calls that did not succeed, and with --tree who saw what", async () => {
    const { stdout, stderr } = await project.corral(["run", "caller", "--tree"]);
    expect(stdout).toBe("called\n");
    expect(stderr).toContain("corral: call of three failed: Worker three ended with exit code 3.");
    const tree = stderr.split("\n").filter((line) => !line.startsWith("corral:"));
    expect(tree.map((line) => line.replace(/ \d+\.\ds$/, ""))).toEqual([
      "✓ caller",
      "│   mounts: /docs (ro), /out (rw)",
      "├─ ✗ three failed with 3",
      "│      mounts: none",
      "└─ ⊘ nobody refused",
      "       The worker 'nobody' is not listed under `calls` of this worker. It may call: three.",
      "",
    ]);
  });

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("cancels on %s, and leaves nothing behind", async (signal) => {
    const { child, ended } = project.start(["run", "patient"]);
    await once(child.stdout as NonNullable<typeof child.stdout>, "data");
    const running = await project.corral(["ps", "--json"]);
    expect(JSON.parse(running.stdout)).toMatchObject([{ worker: "patient", state: "running", ownerAlive: true }]);
    child.kill(signal);
    // A closed terminal may be told twice: that is not a second request to stop.
    if (signal === "SIGHUP") child.kill(signal);
    const { status, stdout } = await ended;
    expect(stdout).toBe("begun\n");
    expect(status).toBe(130);
    expect(await project.cells()).toEqual([]);
    expect(await readdir(join(project.stateDir, "live"))).toEqual([]);
  });

  it("leaves at once on the second signal, and its container is removed soon after", async () => {
    const { child, ended } = project.start(["run", "patient"]);
    await once(child.stdout as NonNullable<typeof child.stdout>, "data");
    child.kill("SIGINT");
    await once(child.stderr as NonNullable<typeof child.stderr>, "data");
    child.kill("SIGINT");
    expect((await ended).status).toBe(130);
    await vi.waitFor(async () => expect(await project.cells()).toEqual([]), { timeout: 30_000, interval: 500 });
  });

  it("is killed with SIGKILL: its container ends too, though no other corral runs", async () => {
    const { child, ended } = project.start(["run", "patient"]);
    await once(child.stdout as NonNullable<typeof child.stdout>, "data");
    expect(await project.cells()).toHaveLength(1);
    child.kill("SIGKILL");
    expect((await ended).signal).toBe("SIGKILL");
    await vi.waitFor(async () => expect(await project.cells()).toEqual([]), { timeout: 30_000, interval: 500 });
  });

  it("says that nobody reads its output any more, also of a worker that ends by itself", async () => {
    const { child, ended } = project.start(["run", "three"]);
    child.stdout?.destroy();
    const { status, stderr } = await ended;
    expect(stderr).toMatch(/^corral: Nobody reads the output any more.*\ncorral: .*worker three /is);
    expect(status).toBe(141);
  });
});

describe("corral run, used wrongly", () => {
  it.each([
    [["run", "thre"], "did you mean `three`?"],
    [["run", "three", "--input", '{"a":1,\n x}'], "--input:2:2:"],
    [["run", "three", "--input", "@no.json"], "no.json cannot be read"],
    [["run", "three", "--attach", "nowhere.txt"], "no such file, neither on the host nor in the project"],
    [["run", "three", "--attach", "docs"], "not a regular file"],
    [["run", "three", "--attach", "own.txt=x", "--attach", "in.json=x"], "another attachment has the name x"],
    [["run", "three", "--policy", "untrusty"], "`untrusted`"],
    [["run", "three", "--approve", "perhaps"], "approve_all"],
    [["run", "three", "--project", "nowhere"], "nowhere: the project's folder does not exist"],
    [["run"], "name a worker, or write a command after --"],
    [["rum"], "Did you mean run?"],
  ])("says what is wrong with %j, and ends with 2", async (args, says) => {
    const { status, stdout, stderr } = await project.corral(args);
    expect(stderr).toContain(says);
    expect(stderr).not.toContain("    at ");
    expect(stdout).toBe("");
    expect(status).toBe(2);
  });

  it("prints its version, and help with examples", async () => {
    expect((await project.built(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    const help = await project.corral(["run", "--help"]);
    expect(help.stdout).toContain("Examples:");
    expect(help.status).toBe(0);
  });
});
