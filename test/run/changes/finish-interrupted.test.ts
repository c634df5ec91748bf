import fs from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { auditKey, recordsOf, type SealedRecord } from "../../../src/audit/seal.ts";
import { ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import { finishInterrupted } from "../../../src/run/changes/settle.ts";
import { loadSealKey } from "../../../src/state/owner.ts";
import { projectPaths } from "../../../src/state/state-dir.ts";
import { stagedFolder, treeAt } from "../../changes/staged-folder.ts";

const ID = "0123456789ab";

async function recordsIn(stateDir: string, project: string): Promise<(SealedRecord | null)[]> {
  const records: (SealedRecord | null)[] = [];
  const key = auditKey(await loadSealKey(stateDir), project);
  for await (const some of recordsOf(projectPaths(stateDir, project).trail, key)) records.push(...some);
  return records;
}

it("writes down what a process that died had begun to apply, in the trail of the project whose changes they are", async () => {
  const staged = stagedFolder({ a: "old" }, { a: "new", b: "new" });
  onTestFinished(() => staged[Symbol.dispose]());
  const stateDir = join(staged.path, "state");
  fs.mkdirSync(stateDir, { mode: 0o700 });
  const store = new ChangesetStore(stateDir, { name: "me", isDead: (name) => name === "dead" });
  await store.keep(staged.changeset(ID), "held");
  const onStep = (step: string): void => {
    if (step === "note what is done") throw new Error("killed");
  };
  await expect(store.applyKept(ID, new Set([0, 1]), { onStep })).rejects.toThrow("killed");
  fs.writeFileSync(join(stateDir, "changes", ID, "owner"), "0123456789abcdef\ndead\n");

  const told = await finishInterrupted(store, stateDir);
  expect(told.map(({ text }) => text)).toEqual([`finished applying changeset ${ID}, which was interrupted: 2 applied`]);
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
  expect(await recordsIn(stateDir, "/p")).toMatchObject([
    { type: "changes_applied", changeset: ID, counts: { applied: 2 } },
  ]);
  expect(await finishInterrupted(store, stateDir)).toEqual([]);
});
