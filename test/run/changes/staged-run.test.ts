import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../../src/approval/approver.ts";
import { ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import { openProject, type ProjectFixture, type ProjectSpec, sh } from "../project-fixture.ts";

/** Writes down what it is asked, and answers the same each time. */
function asked(outcome: Decision["outcome"]): { person: Approver; requests: ApprovalRequest[] } {
  const requests: ApprovalRequest[] = [];
  const decide = async (request: ApprovalRequest): Promise<Decision> => {
    requests.push(request);
    return { outcome, scope: "once", reason: "the test says so" };
  };
  return { person: { decide }, requests };
}

function spec(script: string, zone: Record<string, unknown> = {}, worker: Record<string, unknown> = {}): ProjectSpec {
  return {
    workers: { w: { command: sh(script), sandbox: { zones: [{ name: "data", mode: "rw", ...zone }] }, ...worker } },
    zones: { data: "rw" },
    files: { "data/a.txt": "old\n", "data/sub/b.txt": "b\n" },
  };
}

/** What became of each change of a run that waits, and why, as a person is told later. */
async function kept({ stateDir }: ProjectFixture, run: string): Promise<string[]> {
  const loaded = await new ChangesetStore(stateDir, { name: "this test", isDead: () => false }).load(run);
  if (!loaded.ok) throw new Error(loaded.reason);
  return loaded.state.changes.map(({ outcome, reason }) => `${outcome}: ${reason}`);
}

describe.each([true, false])("a run whose writes must be agreed to (overlays: %s)", (overlays) => {
  const script = "echo new > /data/a.txt; echo made > /data/made.txt; rm -r /data/sub; cat /data/a.txt; ls /data";

  it("sees its own changes, and the directory has them once somebody agreed", async () => {
    const { person, requests } = asked("approved");
    await using project = await openProject(spec(script), { person, overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "succeeded", stdout: "new\na.txt\nmade.txt\n", error: null });
    expect(result.changeset).toEqual({ id: null, counts: { applied: 4, refused: 0, conflict: 0, denied: 0, held: 0 } });
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).toBe("new\n");
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["a.txt", "made.txt"]);
    expect(requests).toMatchObject([
      {
        operations: ["write", "delete"],
        paths: ["/data/a.txt", "/data/made.txt", "/data/sub/b.txt", "/data/sub"],
        diff: expect.stringContaining("+new"),
      },
    ]);
    expect(await project.traces()).toEqual([]);
  });

  it("is denied where nobody agrees, the directory is untouched, and what it wrote waits", async () => {
    const { person } = asked("denied");
    await using project = await openProject(spec(script), { person, overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "denied", exitCode: 0, error: { code: "APPROVAL_DENIED" } });
    expect(result.changeset).toMatchObject({ id: result.run, counts: { denied: 4 } });
    expect(await kept(project, result.run)).toEqual(Array(4).fill("denied: the test says so"));
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).toBe("old\n");
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["a.txt", "sub"]);
  });

  it("is told apart where nobody answered in time", async () => {
    const { person } = asked("timed_out");
    await using project = await openProject(spec(script), { person, overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "denied", error: { code: "APPROVAL_TIMED_OUT" } });
    expect(await kept(project, result.run)).toEqual(Array(4).fill("held: the test says so"));
  });

  it("asks for nothing, and changes nothing, where it failed", async () => {
    const { person, requests } = asked("approved");
    await using project = await openProject(spec(`${script}; exit 3`), { person, overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "failed", exitCode: 3, changeset: { counts: { held: 4 } } });
    expect(await kept(project, result.run)).toEqual(Array(4).fill("held: the run did not succeed (failed)"));
    expect(requests).toEqual([]);
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).toBe("old\n");
  });

  it("is settled as that of a success if the user wants what a failed worker wrote, and its status stays", async () => {
    const { person, requests } = asked("approved");
    await using project = await openProject(spec(`${script}; exit 3`), { person, overlays });
    const result = await project.run("w", { appliesFailed: true });
    expect(result).toMatchObject({ status: "failed", exitCode: 3, changeset: { id: null, counts: { applied: 4 } } });
    expect(requests).toHaveLength(1);
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).not.toBe("old\n");
  });

  it("is refused where it must be, also if the user wants what a failed worker wrote", async () => {
    const { person } = asked("approved");
    await using project = await openProject(spec("ln -s /etc/passwd /data/link; exit 3"), { person, overlays });
    const result = await project.run("w", { appliesFailed: true });
    expect(result).toMatchObject({ status: "failed", exitCode: 3, changeset: { counts: { refused: 1, applied: 0 } } });
    expect(result.violations).toHaveLength(1);
    expect(await readdir(join(project.dir, "data"))).not.toContain("link");
  });

  it("is held even so if the run was cancelled", async () => {
    const { person } = asked("approved");
    await using project = await openProject(spec(`${script}; echo up; sleep 60`), { person, overlays });
    const stop = new AbortController();
    const running = project.run("w", { appliesFailed: true, signal: stop.signal });
    await project.printed("w", "up");
    stop.abort(new Error("stopped"));
    expect(await running).toMatchObject({ status: "cancelled", changeset: { counts: { held: 4 } } });
  });

  it("does not overwrite what somebody changed meanwhile", async () => {
    const { person } = asked("approved");
    const waiting = spec("echo new > /data/a.txt; echo up; sleep 1");
    await using slow = await openProject(waiting, { person, overlays });
    const running = slow.run("w");
    await slow.printed("w", "up");
    await writeFile(join(slow.dir, "data/a.txt"), "mine\n");
    expect(await running).toMatchObject({ status: "refused", error: { code: "CHANGES_CONFLICT" } });
    expect(await readFile(join(slow.dir, "data/a.txt"), "utf8")).toBe("mine\n");
  });

  it("asks for what asks alone: what is agreed to beforehand is applied in any case", async () => {
    const { person, requests } = asked("denied");
    const zone = { approval: { write: "pre_approved", delete: "ask" } };
    await using project = await openProject(spec(script, zone), { person, overlays });
    expect(await project.run("w")).toMatchObject({
      status: "denied",
      changeset: { counts: { applied: 2, denied: 2 } },
    });
    expect(requests).toMatchObject([{ operations: ["delete"], paths: ["/data/sub/b.txt", "/data/sub"] }]);
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["a.txt", "made.txt", "sub"]);
  });

  it("is refused what is blocked, whoever agrees", async () => {
    const zone = { approval: { write: "ask", delete: "blocked" } };
    await using project = await openProject(spec(script, zone), { approvalMode: "approve_all", overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", error: { code: "CHANGES_REFUSED" } });
    expect(result.changeset?.counts).toMatchObject({ applied: 2, refused: 2 });
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["a.txt", "made.txt", "sub"]);
  });

  it("keeps a file that was moved to where it may not be: it would be lost", async () => {
    const constrained = {
      zones: { data: { path: "./data", mode: "rw", approval: "pre_approved", suffixes: [".txt"] } },
    };
    const zone = { approval: "pre_approved" };
    const moving = { ...spec("mv /data/a.txt /data/a.bin; rm /data/sub/b.txt", zone), sandbox: constrained };
    await using project = await openProject(moving, { approvalMode: "auto_deny", overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", changeset: { counts: { applied: 1, refused: 2 } } });
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).toBe("old\n");
    expect(await readdir(join(project.dir, "data/sub"))).toEqual([]);
  });

  it("brings nothing back from what is discarded, and nobody is asked", async () => {
    const { person, requests } = asked("denied");
    await using project = await openProject(spec(script, { discard: true }), { person, overlays });
    const result = await project.run("w");
    expect(result).toMatchObject({
      status: "succeeded",
      stdout: "new\na.txt\nmade.txt\n",
      changes: [],
      changeset: null,
    });
    expect(requests).toEqual([]);
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["a.txt", "sub"]);
  });

  it("stages what says so, although everything in it is agreed to", async () => {
    const zone = { approval: "pre_approved", stage: true };
    await using project = await openProject(spec(`${script}; exit 1`, zone), { approvalMode: "auto_deny", overlays });
    expect(await project.run("w")).toMatchObject({ status: "failed", changeset: { counts: { held: 4 } } });
    expect(await readFile(join(project.dir, "data/a.txt"), "utf8")).toBe("old\n");
  });
});

describe("a called run", () => {
  it("changes its caller's view first, and the directory has it once the caller's changes are agreed to", async () => {
    const { person, requests } = asked("approved");
    const zones = [{ name: "data", mode: "rw" }];
    await using project = await openProject(
      {
        workers: {
          parent: {
            command: sh("corral-call child > /dev/null; cat /data/c.txt; echo p > /data/p.txt"),
            calls: ["child"],
            sandbox: { zones },
          },
          child: { command: sh("echo c > /data/c.txt"), sandbox: { zones } },
        },
        zones: { data: "rw" },
      },
      { person },
    );
    const result = await project.run("parent");
    expect(result).toMatchObject({ status: "succeeded", stdout: "c\n" });
    expect(result.calls).toMatchObject([{ status: "succeeded", changeset: { counts: { applied: 1 } } }]);
    // The child's was not asked about by itself: it is part of what its caller changed.
    expect(requests).toMatchObject([{ worker: "parent", paths: ["/data/c.txt", "/data/p.txt"] }]);
    expect((await readdir(join(project.dir, "data"))).sort()).toEqual(["c.txt", "p.txt"]);
  });

  it("goes no further than its caller's view where nobody agrees", async () => {
    const { person } = asked("denied");
    const zones = [{ name: "data", mode: "rw" }];
    await using project = await openProject(
      {
        workers: {
          parent: {
            command: sh("corral-call child > /dev/null; cat /data/c.txt"),
            calls: ["child"],
            sandbox: { zones },
          },
          child: { command: sh("echo c > /data/c.txt"), sandbox: { zones } },
        },
        zones: { data: "rw" },
      },
      { person },
    );
    expect(await project.run("parent")).toMatchObject({ status: "denied", stdout: "c\n" });
    expect(await readdir(join(project.dir, "data"))).toEqual([]);
  });
});
