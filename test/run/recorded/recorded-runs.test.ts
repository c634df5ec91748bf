import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { planHash } from "../../../src/isolation/port/labels.ts";
import { openProject, sh, writable } from "../project-fixture.ts";
import { trailOf } from "./trail-of.ts";

describe("a run leaves in the audit trail", () => {
  it("that it was asked for, what it was given, and how it ended; and nothing of what it read or printed", async () => {
    await using project = await openProject({
      workers: {
        w: {
          command: sh("cat /docs/a.txt; exit 3"),
          env: { TOKEN: "of-its-own" },
          sandbox: { zones: [{ name: "docs" }, writable("out")] },
        },
      },
      zones: { docs: "ro", out: "rw" },
      files: { "docs/a.txt": "a document" },
    });
    const { run } = await project.run("w", { input: { secret: "an input" } });
    const plan = project.planOf("w");
    const { records, verdict } = await trailOf(project);
    expect(verdict).toMatchObject({ ok: true, records: 3, problems: [], notes: [] });
    expect(records).toMatchObject([
      { type: "run_requested", run, root: run, parent: null, worker: "w" },
      {
        type: "run_started",
        run,
        plan: planHash(plan),
        policy: "untrusted",
        image: { name: "corral/base" },
        network: "none",
        mounts: [
          { path: "/docs", mode: "ro" },
          { path: "/out", mode: "rw" },
        ],
      },
      { type: "run_ended", run, status: "failed", exitCode: 3, codes: ["FAILED"] },
    ]);
    for (const secret of ["a document", "an input", "of-its-own", "cat /docs"])
      expect(JSON.stringify(records)).not.toContain(secret);
  });

  it("every violation of an escalation that was refused", async () => {
    await using project = await openProject({
      workers: {
        boss: {
          command: sh("corral-call greedy; true"),
          calls: ["greedy"],
          sandbox: { zones: [{ name: "docs" }] },
          limits: { memory: "128m" },
        },
        greedy: { command: ["true"], sandbox: { zones: [{ name: "docs", mode: "rw" }] }, limits: { memory: "200m" } },
      },
      zones: { docs: "rw" },
    });
    const { run } = await project.run("boss");
    const { records } = await trailOf(project);
    const refused = records.filter(({ type }) => type === "refused");
    expect(refused).toMatchObject([{ worker: "greedy", root: run, codes: ["WRITE_NOT_AVAILABLE", "LIMIT_TOO_LARGE"] }]);
    expect(records.find(({ worker, type }) => worker === "greedy" && type === "run_requested")).toMatchObject({
      parent: run,
    });
  });
});

describe("an approval leaves its record", () => {
  const EXEC = {
    workers: {
      w: {
        command: sh(
          'curl -s --unix-socket $CORRAL_SOCKET --data-binary \'{"command":"echo hello"}\' http://corral/v1/tools/exec',
        ),
      },
    },
  };

  it.each([
    ["approve_all", "approved"],
    ["auto_deny", "denied"],
  ] as const)("with who decided what: %s", async (approvalMode, outcome) => {
    await using project = await openProject(EXEC, { approvalMode });
    const { run, stdout } = await project.run("w");
    expect(JSON.parse(stdout).ok).toBe(outcome === "approved" ? true : undefined);
    const { records } = await trailOf(project);
    expect(records.filter(({ type }) => type === "approval")).toMatchObject([
      { run, root: run, worker: "w", operations: ["exec"], command: "echo hello", outcome },
    ]);
  });

  it("or is none, where the trail cannot be written: the command does not run, and a person is told", async () => {
    await using project = await openProject(EXEC, { approvalMode: "approve_all" });
    const audit = join(project.stateDir, "audit");
    await writeFile(audit, "not a directory");
    const { status, stdout } = await project.run("w");
    expect(status).toBe("succeeded");
    expect(JSON.parse(stdout)).toMatchObject({ code: "APPROVAL_DENIED" });
    expect(stdout).toContain("could not be recorded");
    expect(stdout).not.toContain(project.stateDir);
    expect(project.events.filter(({ type }) => type === "trouble").length).toBeGreaterThan(0);
    await rm(audit);
  });
});

describe("a project that is only opened", () => {
  it("leaves no trail", async () => {
    await using project = await openProject({ workers: { w: { command: ["true"] } } });
    await project.corral[Symbol.asyncDispose]();
    expect(await readdir(project.stateDir)).not.toContain("audit");
  });
});
