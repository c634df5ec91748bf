import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, sh } from "../run/project-fixture.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";

/* What a worker can make Corral keep of its changes is bounded by its limits, however it goes about it. */

const zones = [{ name: "out", mode: "rw" }];

async function staged(project: ProjectFixture): Promise<string[]> {
  const live = join(project.stateDir, "live");
  const names = await readdir(live, { recursive: true });
  return names.filter((name) => /\.stage\/commit-\d+/.test(name));
}

describe("a worker that commits for ever", () => {
  it("leaves no copy of its changes behind, whether or not anybody agrees", async () => {
    await using s = await openSessionIn(
      {
        workers: { w: { command: ["true"], sandbox: { zones }, shell_rules: { default: "pre_approved" } } },
        zones: { out: "rw" },
      },
      { approvalMode: "auto_deny" },
    );
    await s.exec("head -c 1000000 /dev/urandom > /out/x");
    for (let times = 0; times < 3; times += 1)
      expect(await s.tool("commit_changes", {})).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(await staged(s.project)).toEqual([]);
  });

  it("has each commit take its turn", async () => {
    await using s = await openSessionIn(
      {
        workers: { w: { command: ["true"], sandbox: { zones }, shell_rules: { default: "pre_approved" } } },
        zones: { out: "rw" },
      },
      { approvalMode: "approve_all" },
    );
    await s.exec("for i in 1 2 3; do echo $i > /out/$i; done");
    const commits = await Promise.all(Array.from({ length: 5 }, () => s.tool("commit_changes", {})));
    const applied = commits.map((commit) => (commit.ok ? (commit.data.changes as unknown[]).length : commit.code));
    expect(applied.toSorted()).toEqual([0, 0, 0, 0, 3]);
    expect((await readdir(join(s.project.dir, "out"))).toSorted()).toEqual(["1", "2", "3"]);
  });
});

describe("a worker whose changes have endless names", () => {
  const script = [
    "n=$(printf 'd%.0s' $(seq 250)); cd /out",
    "i=0; while [ $i -lt 15 ]; do mkdir $n && cd -P ./$n || exit 9; i=$((i+1)); done 2> /dev/null",
    "i=0; while [ $i -lt 5000 ]; do : > $i; i=$((i+1)); done",
  ];

  it("is refused, and nothing of it is kept", async () => {
    await using project = await openProject({
      workers: { w: { command: sh(script.join("\n")), sandbox: { zones } } },
      zones: { out: "rw" },
    });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", error: { code: "CHANGES_NOT_TAKEN" } });
    expect(result.error?.message).toContain("paths of all changes");
    expect(await readdir(join(project.dir, "out"))).toEqual([]);
    expect(await project.traces()).toEqual([]);
  });

  it("is told so as well where it failed, for then nothing waits", async () => {
    await using project = await openProject({
      workers: { w: { command: sh([...script, "exit 3"].join("\n")), sandbox: { zones } } },
      zones: { out: "rw" },
    });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "failed", exitCode: 3, changeset: null });
    expect(result.violations).toMatchObject([{ code: "CHANGES_NOT_TAKEN" }]);
  });
});
