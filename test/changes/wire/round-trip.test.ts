import fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Digest } from "../../../src/blobs/blob.ts";
import { Agreed, type Collected, collectChanges } from "../../../src/changes/collect.ts";
import { only } from "../../../src/changes/model/changeset.ts";
import { ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import { lockOwner } from "../../../src/state/owner.ts";
import { machinePair, OF, told, viewOf } from "../../blobs/machine-pair.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { ALL_NAMES, byteTree, carryOut, type Operation, operations } from "../scan/byte-tree.ts";
import { plant } from "../staged-folder.ts";

/** The same run on this machine alone. */
async function locally(before: readonly Operation[], during: readonly Operation[]) {
  await using pair = machinePair();
  carryOut(pair.home, before);
  const view = await viewOf(pair.mount(), join(pair.path, "view"));
  try {
    carryOut(view.host, during);
    const collected = await collectChanges([view], new Agreed(), 1024 ** 3, OF, undefined);
    const settled = collected === null ? [] : await pair.apply(collected);
    return {
      told: collected === null ? [] : told(collected),
      outcomes: settled.map(outcomeOf),
      tree: byteTree(pair.home),
    };
  } finally {
    await view.close();
  }
}

function outcomeOf({
  change: { path },
  outcome,
  reason,
}: {
  change: { path: string };
  outcome: string;
  reason: string | null;
}) {
  return `${outcome} ${path} ${reason}`;
}

describe("changes of a run on another machine", () => {
  it("are judged and applied as those of a run at home, whatever it did", { timeout: 240_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(operations(ALL_NAMES), operations(ALL_NAMES), async (before, during) => {
        await using pair = machinePair();
        carryOut(pair.home, before);
        const was = byteTree(pair.home);
        const digest = await pair.delivered((dir) => {
          expect(byteTree(dir)).toEqual(was);
          carryOut(dir, during);
        });
        const collected = digest === null ? null : await pair.imported(digest);
        expect(byteTree(pair.home)).toEqual(was);
        const settled = collected === null ? [] : await pair.apply(collected);
        const expected = await locally(before, during);
        // A name that is not UTF-8 is refused, and so has no place in the order.
        expect(collected === null ? [] : told(collected).sort()).toEqual(expected.told.sort());
        expect(settled.map(outcomeOf).sort()).toEqual(expected.outcomes.sort());
        expect(byteTree(pair.home)).toEqual(expected.tree);
      }),
      { numRuns: AT_LENGTH ? 60 : 30 },
    );
  });

  it("are of every kind", async () => {
    await using pair = machinePair();
    plant(pair.home, {
      a: "1",
      b: "2",
      "d/x": "3",
      "gone/deep/er": "4",
      l: { link: "a" },
      t: "5",
      keep: "6",
      run: "7",
    });
    const digest = await pair.delivered((dir) => {
      fs.writeFileSync(join(dir, "a"), "changed");
      fs.rmSync(join(dir, "gone"), { recursive: true });
      fs.rmSync(join(dir, "t"));
      fs.rmSync(join(dir, "l"));
      fs.rmSync(join(dir, "d"), { recursive: true });
      plant(dir, {
        "t/now/a folder": "8",
        l: { link: "keep" },
        d: "a file",
        "empty/one": null,
        new: { text: "9", mode: 0o755 },
      });
      fs.chmodSync(join(dir, "run"), 0o700);
    });
    const collected = await pair.imported(digest as never);
    if (collected === null) throw new Error("nothing was changed");
    expect(collected.toAsk.length).toBe(collected.changeset.changes.length);
    expect((await pair.apply(collected)).filter(({ outcome }) => outcome !== "applied")).toEqual([]);
    const tree = Object.fromEntries(byteTree(pair.home));
    expect(tree).toEqual({
      a: "file 644 changed",
      b: "file 644 2",
      d: "file 644 a file",
      empty: "directory 755",
      "empty/one": "directory 755",
      keep: "file 644 6",
      l: "link keep",
      new: "file 755 9",
      run: "file 700 7",
      t: "directory 755",
      "t/now": "directory 755",
      "t/now/a folder": "file 644 8",
    });
  });

  it("conflict with what changed at home meanwhile, even if a file looks the same", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "old", b: "old", c: "old", d: "old", e: "old", l: { link: "a" } });
    const digest = await pair.delivered((dir) => {
      for (const name of ["a", "b", "d"]) fs.writeFileSync(join(dir, name), "ours");
      for (const name of ["c", "e", "l"]) fs.rmSync(join(dir, name));
      plant(dir, { new: "ours" });
    });
    fs.writeFileSync(join(pair.home, "a"), "new");
    fs.rmSync(join(pair.home, "b"));
    fs.chmodSync(join(pair.home, "c"), 0o600);
    // The same content in another file is what the run began with.
    fs.writeFileSync(join(pair.home, "other"), "old");
    fs.renameSync(join(pair.home, "other"), join(pair.home, "d"));
    fs.rmSync(join(pair.home, "l"));
    plant(pair.home, { new: "theirs", l: { link: "d" } });
    const collected = (await pair.imported(digest as never)) as Collected;
    const settled = await pair.apply(collected);
    expect(Object.fromEntries(settled.map(({ change, outcome, reason }) => [change.path, reason ?? outcome]))).toEqual({
      "/data/a": "it was changed since the run began",
      "/data/b": "it was deleted since the run began",
      "/data/c": "it was changed since the run began",
      "/data/d": "applied",
      "/data/e": "applied",
      "/data/l": "it was changed since the run began",
      "/data/new": "another entry of that name was created since the run began",
    });
  });

  it("wait in the store of changesets, and are applied from there, when the import is over", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "1", b: "2" });
    const digest = await pair.delivered((dir) => plant(dir, { a: "changed", "new/deep": "brought", b: "held" }));
    const stateDir = join(pair.path, "state");
    fs.mkdirSync(stateDir, { mode: 0o700 });
    const store = new ChangesetStore(stateDir, lockOwner());
    const collected = await pair.imported(digest as Digest, { dir: join(pair.path, "delivered") });
    if (collected === null) throw new Error("nothing was changed");
    const { changeset } = collected;
    const held = changeset.changes.filter(({ path }) => path === "/data/b").map(({ index }) => index);
    const rest = new Set(changeset.changes.map(({ index }) => index).filter((index) => !held.includes(index)));
    await store.keep(only(changeset, new Set(held)), "held", "it waits");
    const settled = await store.apply(changeset, rest);
    expect(settled?.map(({ outcome }) => outcome)).toEqual(["applied", "applied", "applied"]);
    await collected[Symbol.asyncDispose]();
    expect(fs.existsSync(join(pair.path, "delivered"))).toBe(false);
    const later = await store.applyKept(changeset.id, new Set(held));
    expect(later).toMatchObject({ ok: true, left: 0 });
    expect(Object.fromEntries(byteTree(pair.home))).toEqual({
      a: "file 644 changed",
      b: "file 644 held",
      new: "directory 755",
      "new/deep": "file 644 brought",
    });
  });
});
