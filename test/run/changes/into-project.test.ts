import fs from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { AuditRecord } from "../../../src/audit/records.ts";
import { AuditTrailError } from "../../../src/audit/trail.ts";
import { ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import { KeptFolder } from "../../../src/changes/store/kept-folder.ts";
import { intoProject } from "../../../src/run/changes/into-project.ts";
import { UnfinishedChanges } from "../../../src/run/model/result.ts";
import { tryHoldFile } from "../../../src/state/file-lock.ts";
import { stagedFolder, treeAt } from "../../changes/staged-folder.ts";

const ID = "0123456789ab";

function begin(append: (record: AuditRecord) => Promise<void>) {
  const staged = stagedFolder({ a: "old" }, { a: "new", b: "new" });
  onTestFinished(() => staged[Symbol.dispose]());
  const store = new ChangesetStore(join(staged.path, "state"), { name: "me", isDead: () => false });
  return { staged, store, changesets: intoProject(store, { append }) };
}

it("applies nothing that cannot be recorded, and loses nothing of it", async () => {
  const { staged, store, changesets } = begin(async () => {
    throw new AuditTrailError("the disk is full");
  });
  const outcomes = await changesets.apply(staged.changeset(ID), new Set([0, 1]));
  expect(outcomes).toMatchObject([{ outcome: "held" }, { outcome: "held" }]);
  expect(treeAt(staged.target)).toEqual({ a: "old" });
  expect(await store.applyKept(ID, new Set([0, 1]))).toMatchObject({ ok: true, left: 0 });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
});

it("tells what was applied, also where its end cannot be recorded any more", async () => {
  const types: string[] = [];
  const { staged, changesets } = begin(async ({ type }) => {
    types.push(type);
    if (type === "changes_applied") throw new AuditTrailError("the disk is full");
  });
  const outcomes = await changesets.apply(staged.changeset(ID), new Set([0, 1]));
  expect(outcomes).toMatchObject([{ outcome: "applied" }, { outcome: "applied" }]);
  expect(types).toEqual(["changes_applying", "changes_applied"]);
});

it("finishes what was begun only when it can be recorded: until then it waits, as trouble that pauses a fleet", async () => {
  let isFull = true;
  const { staged, store, changesets } = begin(async () => {
    if (isFull) throw new AuditTrailError("the disk is full");
  });
  await store.keep(staged.changeset(ID), "held");
  const trouble = await changesets.finish(ID).catch((error: unknown) => error);
  expect(trouble).toBeInstanceOf(UnfinishedChanges);
  expect(trouble).toMatchObject({ message: expect.stringMatching(/cannot be recorded.*the disk is full/) });
  expect(treeAt(staged.target)).toEqual({ a: "old" });
  isFull = false;
  expect(await changesets.finish(ID)).toMatchObject({ outcomes: [{ outcome: "applied" }, { outcome: "applied" }] });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
});

it("an item that has begun waits in the same way, and nobody is asked about its changes", async () => {
  let isFull = true;
  const types: string[] = [];
  const { staged, changesets } = begin(async ({ type }) => {
    if (isFull) throw new AuditTrailError("the disk is full");
    types.push(type);
  });
  const beginning = { refused: [], begin: async () => null };
  const applying = changesets.apply(staged.changeset(ID), new Set([0, 1]), beginning);
  await expect(applying).rejects.toThrow(UnfinishedChanges);
  expect(treeAt(staged.target)).toEqual({ a: "old" });
  isFull = false;
  expect(await changesets.finish(ID)).toMatchObject({ outcomes: [{ outcome: "applied" }, { outcome: "applied" }] });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
  expect(types).toEqual(["changes_applying", "changes_applied"]);
});

it("withdraws what many runs and those that they called left, and reads what waits once", async () => {
  const { staged, store, changesets } = begin(async () => {});
  const keep = async (id: string, root: string, reason: string | null) => {
    const folder = stagedFolder({}, { a: "new" });
    onTestFinished(() => folder[Symbol.dispose]());
    await store.keep({ ...folder.changeset(id), root }, "held", reason);
  };
  await store.keep(staged.changeset(ID), "held");
  await keep("000000000001", "000000000001", "it was not approved");
  await keep("000000000002", ID, null);
  await keep("000000000003", "000000000003", "it was not approved");
  const reads = vi.spyOn(KeptFolder.prototype, "readState");
  onTestFinished(() => reads.mockRestore());
  expect(await store.leftOf(new Set([ID, "000000000001"]))).toHaveLength(2);
  const scan = reads.mock.calls.length;
  expect(scan).toBe(4);
  reads.mockClear();
  await changesets.withdraw([ID, "000000000001"], "its process died");
  // One scan, and each of the three that are removed is read once more.
  expect(reads.mock.calls.length).toBe(scan + 3);
  expect((await store.list()).map(({ id }) => id)).toEqual(["000000000003"]);
});

it("flushes the files that are applied before it says that it begins, so that a power failure leaves them as they were", async () => {
  const { staged, changesets } = begin(async () => {});
  const flushed: string[] = [];
  const real = fs.fsync;
  const fsync = vi.spyOn(fs, "fsync").mockImplementation((fd, done) => {
    flushed.push(fs.readlinkSync(`/proc/self/fd/${fd}`));
    real(fd, done);
  });
  onTestFinished(() => fsync.mockRestore());
  const begun: string[][] = [];
  await changesets.apply(staged.changeset(ID), new Set([1]), {
    refused: [0],
    begin: async () => {
      begun.push([...flushed]);
      return null;
    },
  });
  expect(begun).toEqual([[expect.stringMatching(/\/changes\/0123456789ab\/content\/0\/b$/)]]);
  expect(treeAt(staged.target)).toEqual({ a: "old", b: "new" });
});

describe("a process that was stopped after it had begun to apply", () => {
  const begun = { refused: [], begin: async () => null };

  it("records and applies nothing more if another has completed that meanwhile", async () => {
    const types: string[] = [];
    const { staged, store, changesets } = begin(async ({ type }) => {
      types.push(type);
    });
    const other = intoProject(store, { append: async ({ type }) => void types.push(`other: ${type}`) });
    const outcomes = await changesets.apply(staged.changeset(ID), new Set([0, 1]), {
      ...begun,
      begin: async () => {
        await other.finish(ID);
        return null;
      },
    });
    expect(outcomes).toMatchObject([{ outcome: "held" }, { outcome: "held" }]);
    expect(types).toEqual(["other: changes_applying", "other: changes_applied"]);
    expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
  });

  it("does not apply again what was in conflict for the one that completed it", async () => {
    const types: string[] = [];
    const { staged, store, changesets } = begin(async ({ type }) => {
      types.push(type);
    });
    const other = intoProject(store, { append: async () => {} });
    const outcomes = await changesets.apply(staged.changeset(ID), new Set([0, 1]), {
      ...begun,
      begin: async () => {
        fs.writeFileSync(join(staged.target, "b"), "of another");
        await other.finish(ID);
        fs.rmSync(join(staged.target, "b"));
        return null;
      },
    });
    expect(outcomes).toMatchObject([{ outcome: "held" }, { outcome: "held" }]);
    expect(types).toEqual([]);
    expect(treeAt(staged.target)).toEqual({ a: "new" });
  });

  it("is waited for by the one that has its fleet now and applies the changes, which then are applied", async () => {
    const { staged, changesets } = begin(async () => {});
    const lock = join(staged.path, "state/changes", ID, "owner");
    const changeset = staged.changeset(ID);
    let free = async (): Promise<void> => {};
    const applying = changesets.apply(changeset, new Set([0, 1]), {
      ...begun,
      begin: async () => {
        const other = await tryHoldFile(lock, { name: "another", isDead: () => false });
        free = async () => await other?.[Symbol.asyncDispose]();
        return null;
      },
    });
    expect(await Promise.race([applying, sleep(500, "waits")])).toBe("waits");
    expect(treeAt(staged.target)).toEqual({ a: "old" });
    await free();
    expect(await applying).toMatchObject([{ outcome: "applied" }, { outcome: "applied" }]);
    expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
  });

  it("keeps nothing among what the one that has its fleet now keeps of the same attempt", async () => {
    const { staged, store, changesets } = begin(async () => {});
    const theirs = stagedFolder({ a: "old" }, { a: "new", b: "new" });
    onTestFinished(() => theirs[Symbol.dispose]());
    await store.keep(theirs.changeset(ID), "held");
    const file = join(store.dirOf(ID), "content/0/a");
    const { ino } = fs.statSync(file);
    const confirm = async (): Promise<void> => Promise.reject(new Error("another process took over the fleet"));
    const changes = [staged.changeset(ID), new Set([0, 1]), { ...begun, confirm }] as const;
    await expect(changesets.apply(...changes)).rejects.toThrow("took over");
    expect(fs.statSync(file).ino).toBe(ino);
    expect(treeAt(staged.target)).toEqual({ a: "old" });
  });

  it("is waited for by the one that has its fleet now, while it keeps the changes", async () => {
    const { staged, store, changesets } = begin(async () => {});
    const changeset = staged.changeset(ID);
    await store.keep({ ...changeset, changes: [] }, "held");
    const lock = join(staged.path, "state/changes", ID, "owner");
    const other = await tryHoldFile(lock, { name: "another", isDead: () => false });
    const kept = changesets.keep(changeset, "held", "it waits");
    expect(await Promise.race([kept, sleep(300, "waits")])).toBe("waits");
    await other?.[Symbol.asyncDispose]();
    await kept;
    expect(await store.load(ID)).toMatchObject({ ok: true, waiting: new Set([0, 1]) });
  });
});
