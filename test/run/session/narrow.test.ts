import { afterEach, describe, expect, it } from "vitest";
import type { ApprovalRequest } from "../../../src/approval/approver.ts";
import { openSession } from "../../../src/run/open-session.ts";
import { openProject, type ProjectFixture } from "../project-fixture.ts";
import { HANDY } from "./session-fixture.ts";

let project: ProjectFixture;
afterEach(() => project[Symbol.asyncDispose]());

const NEVER = new AbortController().signal;

describe("a session that begins narrower than its worker", () => {
  it("sees what is left, in its tools and in its cell, and is granted nothing past that", async () => {
    const asked: ApprovalRequest[] = [];
    project = await openProject(
      {
        workers: { w: { ...HANDY, sandbox: { ...HANDY.sandbox, dynamic: true } } },
        zones: { docs: "ro", out: "rw" },
        files: { "docs/a.txt": "a", "docs/sub/b.txt": "b" },
      },
      {
        person: {
          async decide(request) {
            asked.push(request);
            return { outcome: "approved", scope: "once", reason: "why not" };
          },
        },
      },
    );
    const worker = project.corral.project.workers.get("w");
    if (worker === undefined) throw new Error("the fixture has no worker w");
    const opened = await openSession(
      {
        worker,
        signal: NEVER,
        narrow(sandbox) {
          expect(sandbox.mounts.map(({ path }) => path)).toEqual(["/docs", "/out"]);
          return { allowRead: ["/docs/sub"], allowWrite: [] };
        },
      },
      project.corral.environment,
    );
    if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
    await using _ = opened;
    const { session, run } = opened;
    expect(run).toMatch(/^[0-9a-f]{12}$/);
    expect(await session.runTool("read_file", { path: "/docs/sub/b.txt" }, NEVER)).toMatchObject({ text: "b" });
    for (const path of ["/docs/a.txt", "/out/x"])
      expect(await session.runTool("read_file", { path }, NEVER)).toMatchObject({ code: "GRANT_LIMITED_CALL" });
    const printed: string[] = [];
    const command = "find /docs /out -type f 2>/dev/null; true";
    await session.runTool("exec", { command }, NEVER, (_, chunk) => void printed.push(Buffer.from(chunk).toString()));
    expect(printed.join("")).toBe("/docs/sub/b.txt\n");
    expect(asked).toEqual([]);
  });

  it("is as its worker's where nothing is taken away, and refused where what is left cannot be", async () => {
    project = await openProject({ workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } });
    const worker = project.corral.project.workers.get("w");
    if (worker === undefined) throw new Error("the fixture has no worker w");
    const open = (narrow: { allowWrite: string[] } | null) =>
      openSession({ worker, signal: NEVER, narrow: () => narrow }, project.corral.environment);
    const whole = await open(null);
    if (!whole.ok) throw new Error(JSON.stringify(whole.violations));
    await using _ = whole;
    expect(whole.session.files.writableRoots()).toEqual(["/out"]);
    expect(await open({ allowWrite: ["/docs"] })).toMatchObject({
      ok: false,
      violations: [{ code: "WRITE_NOT_AVAILABLE" }],
    });
  });
});
