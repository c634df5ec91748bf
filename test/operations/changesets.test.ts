import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver } from "../../src/approval/approver.ts";
import { ChangesetStore } from "../../src/changes/store/changeset-store.ts";
import { Changesets } from "../../src/operations/changesets.ts";
import type { AppliedChangeset } from "../../src/operations/foreseen-changes.ts";
import { type StagedFolder, stagedFolder, treeAt } from "../changes/staged-folder.ts";

const ID = "0123456789ab";
const BEFORE = { "a.txt": "old\n", "b.txt": "old\n", "gone.txt": "x" };
const AFTER = { "a.txt": "new\n", "b.txt": "new\n", "new/deep/c.txt": "fresh\n" };

let project: string;
let stateDir: string;
let staged: StagedFolder;
let changesets: Changesets;

beforeEach(async () => {
  project = await realpath(await mkdtemp(join(tmpdir(), "corral-operations-")));
  stateDir = await mkdtemp(join(tmpdir(), "corral-state-"));
  await withApproval({});
  staged = stagedFolder(BEFORE, AFTER);
  const store = new ChangesetStore(stateDir, { name: "this test", isDead: () => false });
  await store.keep({ ...staged.changeset(ID), project }, "held");
  changesets = await Changesets.open(stateDir, {});
});

afterEach(async () => {
  staged[Symbol.dispose]();
  await rm(project, { recursive: true, force: true });
  await rm(stateDir, { recursive: true, force: true });
});

describe("Changesets", () => {
  it("lists and shows what is kept, and knows no other", async () => {
    expect(await changesets.list(project)).toMatchObject([{ ok: true, id: ID, worker: "w", counts: { held: 6 } }]);
    expect(await changesets.list("/elsewhere")).toEqual([]);
    expect((await changesets.show(ID)).changes).toContainEqual(
      expect.objectContaining({ path: "/work/a.txt", kind: "modify", bytes: 4, outcome: "held" }),
    );
    await expect(changesets.show("ffffffffffff")).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
    await expect(changesets.diff("../changes")).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
  });

  it("finds one by a beginning of its id, first in the project of the user, and `latest` only there", async () => {
    expect(await changesets.idsOf(["012", "latest", ID], project)).toEqual([ID, ID, ID]);
    expect(await changesets.idsOf(["012"], "/elsewhere")).toEqual([ID]);
    await expect(changesets.idsOf(["latest"], "/elsewhere")).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
    const own = changesets.idsOf(["012"], "/elsewhere", { elsewhere: false });
    await expect(own).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
  });

  it("asks the given approver once for what no rule decides, with the diff, and records the answer", async () => {
    await withApproval({ rules: [{ operation: "delete", decide: "deny", why: "keep it" }] });
    const asked = approverThat("approved");
    const applied = await changesets.apply(ID, { approval: () => ({ approver: asked.approver }) });
    expect(asked.requests).toHaveLength(1);
    expect(asked.requests[0]).toMatchObject({ worker: "w", operations: ["write"] });
    expect(asked.requests[0]?.diff).toContain("+new");
    expect(asked.requests[0]?.paths).not.toContain("/work/gone.txt");
    expect(outcomesOf(applied)).toMatchObject({ "/work/a.txt": "applied", "/work/gone.txt": "denied" });
    expect(applied.left).toBe(1);
    expect(treeAt(staged.target)).toEqual({ ...AFTER, new: null, "new/deep": null, "gone.txt": "x" });
    expect(recorded("approval")).toHaveLength(2);
    expect(recorded("changes_applied")).toHaveLength(1);
  });

  it.each([
    ["denied", "denied"],
    ["timed_out", "held"],
  ] as const)("applies nothing if the answer is %s, and keeps all of it", async (outcome, as) => {
    const { approver } = approverThat(outcome);
    const applied = await changesets.apply(ID, { approval: () => ({ approver }) });
    expect(new Set(Object.values(outcomesOf(applied)))).toEqual(new Set([as]));
    expect(applied.left).toBe(6);
    expect(treeAt(staged.target)).toEqual(BEFORE);
    expect(recorded("changes_applying")).toEqual([]);
  });

  it("takes the caller's own agreement in place of a question, but not against a rule", async () => {
    await withApproval({ mode: "auto_deny", rules: [{ paths: ["/work/a.txt"], decide: "deny" }] });
    const applied = await changesets.apply(ID, { approval: "agreed" });
    expect(outcomesOf(applied)).toMatchObject({ "/work/a.txt": "denied", "/work/b.txt": "applied" });
    expect(treeAt(staged.target)).toMatchObject({ "a.txt": "old\n", "b.txt": "new\n" });
  });

  it("holds by the project's mode if no user can be asked", async () => {
    const applied = await changesets.apply(ID, { approval: () => ({}) });
    expect(applied.changes[0]).toMatchObject({ outcome: "held", reason: expect.stringContaining("interactive") });
    expect(treeAt(staged.target)).toEqual(BEFORE);
  });

  it("applies nothing of a project that cannot be read: its rules are not known", async () => {
    await writeFile(join(project, "corral.yaml"), "version: 1\nrules: nonsense");
    await expect(changesets.apply(ID, { approval: "agreed" })).rejects.toThrow("corral.yaml");
    expect(treeAt(staged.target)).toEqual(BEFORE);
  });

  it("asks and applies nothing at a path where no change waits", async () => {
    const asked = approverThat("approved");
    const only = ["/work/none"];
    await expect(changesets.apply(ID, { only, approval: () => asked })).rejects.toMatchObject({
      code: "UNKNOWN_CHANGE",
    });
    expect(asked.requests).toEqual([]);
  });

  it.each(["only", "which"] as const)(
    "applies nothing if %s is an empty list: only an absent one means all",
    async (list) => {
      const asked = approverThat("approved");
      const none = { [list]: [] };
      expect(await changesets.apply(ID, { ...none, approval: "agreed" })).toEqual({ id: ID, changes: [], left: 6 });
      expect(await changesets.apply(ID, { ...none, approval: () => asked })).toMatchObject({ changes: [], left: 6 });
      expect([asked.requests, treeAt(staged.target)]).toEqual([[], BEFORE]);
    },
  );

  it.each(["before", "after"])("records once what a process applied that is killed %s it records it", async (when) => {
    const child = join(import.meta.dirname, "killed-applying.ts");
    const { signal } = spawnSync(process.execPath, [child, stateDir, ID, when], { stdio: "inherit" });
    expect([signal, treeAt(staged.target)]).toEqual(["SIGKILL", { ...AFTER, new: null, "new/deep": null }]);
    expect(recorded("changes_applied")).toHaveLength(when === "after" ? 1 : 0);
    for (let start = 0; start < 2; start++) {
      const told: string[] = [];
      await using next = await Changesets.open(stateDir, {}, (text) => told.push(text));
      expect(told).toEqual(start === 0 ? [expect.stringContaining("6 applied")] : []);
      expect(await next.list(null)).toEqual([]);
      expect(recorded("changes_applied").map((line) => JSON.parse(line))).toMatchObject([{ counts: { applied: 6 } }]);
    }
  });

  it("stops where its caller stops", async () => {
    const stop = new AbortController();
    const approver: Approver = { decide: () => new Promise(() => stop.abort(new Error("enough"))) };
    const applying = changesets.apply(ID, { approval: () => ({ approver }), signal: stop.signal });
    await expect(applying).rejects.toThrow("enough");
    expect(treeAt(staged.target)).toEqual(BEFORE);
  });

  it("discards what is kept, and records that", async () => {
    await changesets.discard(ID);
    expect(await changesets.list(null)).toEqual([]);
    expect(recorded("changes_discarded")).toHaveLength(1);
    await expect(changesets.discard(ID)).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
  });
});

async function withApproval(approval: unknown): Promise<void> {
  await writeFile(join(project, "corral.yaml"), JSON.stringify({ version: 1, approval }));
}

function approverThat(outcome: "approved" | "denied" | "timed_out") {
  const requests: ApprovalRequest[] = [];
  const approver: Approver = {
    async decide(request) {
      requests.push(request);
      return { outcome, scope: "once", reason: "as the test says" };
    },
  };
  return { approver, requests };
}

function outcomesOf({ changes }: AppliedChangeset): Record<string, string> {
  return Object.fromEntries(changes.map(({ path, outcome }) => [path, outcome]));
}

function recorded(type: string): string[] {
  const dir = join(stateDir, "audit");
  const [name = ""] = fs.existsSync(dir) ? fs.readdirSync(dir) : [];
  const lines = fs.readFileSync(join(dir, name, "trail.ndjson"), "utf8").split("\n");
  return lines.filter((line) => line.includes(`"type":"${type}"`));
}
