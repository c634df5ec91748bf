import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { applyChangeset, continueApplication } from "../../../src/changes/apply/application.ts";
import type { Changeset } from "../../../src/changes/model/changeset.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type StagedFolder, stagedFolder, type Tree, treeAt } from "../staged-folder.ts";
import type { Order } from "./apply-child.ts";

const BEFORE: Tree = {
  "modified.txt": "old",
  "deleted/a.txt": "gone soon",
  link: { link: "modified.txt" },
  "was-file": "a file",
  "was-folder/inner.txt": "inner",
};
const AFTER: Tree = {
  "modified.txt": "new",
  "new/created.txt": "fresh",
  link: { link: "new" },
  "new-link": { link: "new/created.txt" },
  "was-file/inner.txt": "inner",
  "was-folder": "a file",
};
/** Far more than there are: a test that needs as many is broken. */
const MAX_STEPS = 200;

/** Answers with whether it got to its end, and the steps that it took. */
async function applyInChild(staged: StagedFolder, changeset: Changeset, killAt: number) {
  const order: Order = { changeset, logDir: staged.logDir, killAt };
  const file = join(staged.path, "order.json");
  fs.writeFileSync(file, JSON.stringify(order));
  const script = join(import.meta.dirname, "apply-child.ts");
  const child = spawn(process.execPath, [script, file], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await once(child, "close");
  if (child.signalCode !== "SIGKILL") expect(child.exitCode).toBe(0);
  return { ended: child.signalCode === null, steps: text.split("\n").filter((line) => line !== "") };
}

/** Every file is whole, be it the old or the new one. */
function expectNoHalfFile(staged: StagedFolder): void {
  const [before, after] = [BEFORE, treeAt(staged.content)];
  for (const [path, entry] of Object.entries(treeAt(staged.target))) {
    if (!path.includes(".corral-unfinished-"))
      expect([before[path] ?? null, after[path] ?? null]).toContainEqual(entry);
  }
}

async function finishHere(staged: StagedFolder, changeset: Changeset): Promise<void> {
  const all = changeset.changes.map(({ index }) => index);
  const settled =
    (await continueApplication(changeset, { logDir: staged.logDir })) ??
    (await applyChangeset(changeset, all, { logDir: staged.logDir }));
  expect(settled.filter(({ outcome }) => outcome !== "applied")).toEqual([]);
  expectAllDone(staged);
}

function expectAllDone(staged: StagedFolder): void {
  expect(treeAt(staged.target)).toEqual(treeAt(staged.content));
  expect(fs.readdirSync(staged.logDir)).toEqual([]);
}

/** The steps of an application that nobody kills. */
async function stepsOf(): Promise<string[]> {
  using staged = stagedFolder(BEFORE, AFTER);
  const { ended, steps } = await applyInChild(staged, staged.changeset(), MAX_STEPS);
  expect(ended).toBe(true);
  return steps;
}

it("goes on after kill -9 before any step, and ends as if nothing had happened", { timeout: 240_000 }, async () => {
  const steps = await stepsOf();
  expect(steps.filter((step) => step.startsWith("put "))).toHaveLength(13);

  for (let killAt = 1; killAt <= steps.length; killAt++) {
    using staged = stagedFolder(BEFORE, AFTER);
    const changeset = staged.changeset();
    expect((await applyInChild(staged, changeset, killAt)).ended).toBe(false);
    expectNoHalfFile(staged);
    // Whoever finishes it may be killed as well, here on its second change of the disk.
    const again = AT_LENGTH || killAt % 6 === 0;
    const isDone = again && (await applyInChild(staged, changeset, 2)).ended;
    expectNoHalfFile(staged);
    if (!isDone) await finishHere(staged, changeset);
    expectAllDone(staged);
  }
});

it("does not take its own finished work for somebody else's, whatever of its log was lost at the end", async () => {
  for (let lost = 0; ; lost += 5) {
    using staged = stagedFolder(BEFORE, AFTER);
    const changeset = staged.changeset();
    const log = join(staged.logDir, "journal");
    const all = changeset.changes.map(({ index }) => index);
    let text = "";
    await applyChangeset(changeset, all, {
      logDir: staged.logDir,
      onSettled: async () => {
        text = fs.readFileSync(log, "utf8");
      },
    });
    // What was noted before it was put in place cannot be lost: it had reached the disk by then.
    const last = text.indexOf("\n", text.lastIndexOf('{"ready"')) + 1;
    if (text.length - lost < last) break;
    fs.writeFileSync(log, text.slice(0, text.length - lost));
    await finishHere(staged, changeset);
  }
});

it("overwrites nothing that somebody changed while nobody was applying", { timeout: 120_000 }, async () => {
  const steps = await stepsOf();
  for (let killAt = 2; killAt < steps.length; killAt += AT_LENGTH ? 3 : 6) {
    using staged = stagedFolder(BEFORE, AFTER);
    const changeset = staged.changeset();
    await applyInChild(staged, changeset, killAt);
    fs.writeFileSync(join(staged.target, "modified.txt"), "theirs");
    await continueApplication(changeset, { logDir: staged.logDir });
    expect(fs.readFileSync(join(staged.target, "modified.txt"), "utf8")).toBe("theirs");
  }
});
