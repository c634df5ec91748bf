import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import { FailedChanges } from "../../../src/run/changes/into-project.ts";
import { stagedFolder } from "../../changes/staged-folder.ts";

const KIB = 1024;

/** Keeps so many changesets of 64 KiB, one second apart, under a bound. */
async function kept(ids: readonly string[], maxBytes: number, reasonOf: (id: string) => string) {
  const first = stagedFolder({}, {});
  onTestFinished(() => first[Symbol.dispose]());
  const store = new ChangesetStore(join(first.path, "state"), { name: "me", isDead: () => false });
  const discarded: string[] = [];
  const discard = async (id: string): Promise<void> => {
    discarded.push(id);
    await store.drop(id);
  };
  const failed = new FailedChanges(store, discard, maxBytes);
  for (const [at, id] of ids.entries()) {
    const staged = stagedFolder({}, { large: "x".repeat(64 * KIB) });
    onTestFinished(() => staged[Symbol.dispose]());
    const createdAt = new Date(Date.UTC(2026, 0, 1, 0, 0, at)).toISOString();
    const changeset = { ...staged.changeset(id), createdAt };
    await store.keep(changeset, "held", reasonOf(id));
    await failed.kept(changeset, reasonOf(id));
  }
  return { discarded, left: (await store.list()).map(({ id }) => id) };
}

const IDS = Array.from({ length: 8 }, (_, at) => `${at}`.repeat(12));

it("removes the oldest changes of runs that failed, when there are more than a project keeps", async () => {
  const { discarded, left } = await kept(IDS, 256 * KIB, () => "the run did not succeed (failed)");
  expect(left.length).toBeLessThanOrEqual(4);
  expect(left).toEqual(IDS.slice(discarded.length));
  expect(discarded).toEqual(IDS.slice(0, discarded.length));
});

it("removes nothing that waits for a person, however much that is", async () => {
  const { discarded, left } = await kept(IDS, 64 * KIB, () => "nobody answered");
  expect([discarded, left]).toEqual([[], IDS]);
});

it("counts changes that wait for a person neither as old nor as too much", async () => {
  const asked = new Set(IDS.slice(0, 4));
  const reason = (id: string): string => (asked.has(id) ? "nobody answered" : "the run did not succeed (failed)");
  const { discarded, left } = await kept(IDS, 128 * KIB, reason);
  expect(left.filter((id) => asked.has(id))).toEqual([...asked]);
  expect(discarded.length).toBeGreaterThan(0);
});
