import fs from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { ChangesetBusy, ChangesetStore } from "../../../src/changes/store/changeset-store.ts";
import type { LockOwner } from "../../../src/state/file-lock.ts";
import { type StagedFolder, stagedFolder, treeAt } from "../staged-folder.ts";

const ID = "0123456789ab";
/** What a process leaves that ends while it holds a lock. */
const left = (name: string): string => `0123456789abcdef\n${name}\n`;
const me: LockOwner = { name: "me", isDead: (name) => name.startsWith("dead") };

function begin(before = { a: "old", b: "old" }, after: Record<string, string> = { a: "new", b: "new" }) {
  const staged = stagedFolder(before, after);
  onTestFinished(() => staged[Symbol.dispose]());
  const stateDir = join(staged.path, "state");
  const storeOf = (owner: LockOwner): ChangesetStore => new ChangesetStore(stateDir, owner);
  return { staged, stateDir, store: storeOf(me), storeOf, changeset: staged.changeset(ID) };
}

function namesIn(path: string): string[] {
  return fs.readdirSync(path);
}

const all = (staged: StagedFolder): Set<number> => new Set(staged.changeset().changes.map(({ index }) => index));

it("takes over a changeset with its content, lists and loads it", async () => {
  const { staged, stateDir, store, changeset } = begin();
  await store.keep(changeset, "held");
  expect(fs.existsSync(staged.content)).toBe(false);
  expect(fs.statSync(join(stateDir, "changes", ID)).mode & 0o777).toBe(0o700);
  expect(await store.list()).toMatchObject([
    { id: ID, ok: true, applying: false, state: { worker: "w", project: "/p" } },
  ]);
  const loaded = await store.load(ID);
  expect(loaded).toMatchObject({
    ok: true,
    changeset: { id: ID, changes: changeset.changes },
    waiting: new Set([0, 1]),
  });
});

it("asks whether it may keep while no other process can work on it, and keeps nothing if it may not", async () => {
  const { staged, stateDir, store, storeOf, changeset } = begin();
  const other = storeOf({ name: "another", isDead: () => false });
  const refused = async (): Promise<void> => {
    await expect(other.keep(changeset, "held")).rejects.toThrow(ChangesetBusy);
    throw new Error("it may not");
  };
  await expect(store.keep(changeset, "held", null, refused)).rejects.toThrow("it may not");
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
  expect(fs.existsSync(staged.content)).toBe(true);
  await store.keep({ ...changeset, changes: changeset.changes.slice(0, 1) }, "held");
  await expect(store.keep(changeset, "held", null, refused)).rejects.toThrow("it may not");
  expect(await store.load(ID)).toMatchObject({ ok: true, waiting: new Set([0]) });
});

it("keeps a changeset for which a process that was killed had only made the folder", async () => {
  const { stateDir, store, changeset } = begin();
  fs.mkdirSync(join(stateDir, "changes", ID), { recursive: true });
  await store.keep(changeset, "held");
  expect(await store.load(ID)).toMatchObject({ ok: true, waiting: new Set([0, 1]) });
});

it("applies what waits, and forgets the changeset when nothing is left", async () => {
  const { staged, stateDir, store, changeset } = begin();
  await store.keep(changeset, "denied");
  expect(await store.applyKept(ID, new Set([0]))).toMatchObject({ ok: true, left: 1 });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "old" });
  expect(await store.load(ID)).toMatchObject({ waiting: new Set([1]) });
  // What is applied is not applied again, and is no conflict.
  expect(await store.applyKept(ID, new Set([0, 1]))).toMatchObject({
    ok: true,
    left: 0,
    settled: [{ outcome: "applied" }],
  });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
});

it("keeps a conflict, which can be applied when it is none any more", async () => {
  const { staged, store, changeset } = begin({ a: "old", b: "old" }, { a: "new", b: "old", c: "new" });
  await store.keep(changeset, "held");
  fs.writeFileSync(join(staged.target, "c"), "theirs");
  expect(await store.applyKept(ID, all(staged))).toMatchObject({ left: 1 });
  expect(await store.list()).toMatchObject([{ state: { changes: [{ outcome: "applied" }, { outcome: "conflict" }] } }]);
  fs.rmSync(join(staged.target, "c"));
  expect(await store.applyKept(ID, new Set([0, 1]))).toMatchObject({ left: 0 });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "old", c: "new" });
});

it("gives the content back to a run of which everything was applied, so that other changes can still be kept", async () => {
  const { staged, stateDir, store, changeset } = begin();
  const settled = await store.apply(changeset, new Set([0]));
  expect(settled?.map(({ change, outcome }) => [change.path, outcome])).toEqual([["/work/a", "applied"]]);
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
  await store.keep({ ...changeset, changes: changeset.changes.slice(1) }, "denied");
  expect(await store.applyKept(ID, new Set([1]))).toMatchObject({ ok: true, left: 0 });
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
});

it("keeps what a run could not apply, together with what is kept of it later", async () => {
  const { staged, store, changeset } = begin();
  fs.writeFileSync(join(staged.target, "a"), "theirs");
  expect(await store.apply(changeset, new Set([0]))).toMatchObject([{ outcome: "conflict" }]);
  await store.keep({ ...changeset, changes: changeset.changes.slice(1) }, "held");
  expect(await store.load(ID)).toMatchObject({
    waiting: new Set([0, 1]),
    state: { changes: [{ outcome: "conflict" }, { outcome: "held" }] },
  });
});

it("does not keep what nobody may agree to", async () => {
  const { stateDir, store, changeset } = begin();
  const [first, second] = changeset.changes;
  if (first === undefined || second === undefined) throw new Error("there are two changes");
  await store.keep({ ...changeset, changes: [first, { ...second, refusal: "too large" }] }, "held");
  expect(await store.applyKept(ID, new Set([0, 1]))).toMatchObject({
    ok: true,
    left: 0,
    settled: [{ outcome: "applied" }],
  });
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
});

it("discards a changeset with its content", async () => {
  const { staged, stateDir, store, changeset } = begin();
  await store.keep(changeset, "held");
  expect(await store.discard(ID)).toEqual({ ok: true });
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
  expect(treeAt(staged.target)).toEqual({ a: "old", b: "old" });
  expect(await store.discard(ID)).toMatchObject({ ok: false, code: "missing" });
});

it("leaves alone what another living process works on, and takes over from a dead one", async () => {
  const { stateDir, store, storeOf, changeset } = begin();
  await store.keep(changeset, "held");
  const owner = join(stateDir, "changes", ID, "owner");
  fs.writeFileSync(owner, left("somebody else"));
  expect(await store.applyKept(ID, new Set([0]))).toMatchObject({ ok: false, code: "busy" });
  expect(await store.discard(ID)).toMatchObject({ ok: false, code: "busy" });
  expect(await store.list()).toMatchObject([{ applying: true }]);
  fs.writeFileSync(owner, left("dead process"));
  expect(await storeOf(me).applyKept(ID, new Set([0]))).toMatchObject({ ok: true, left: 1 });
  expect(namesIn(join(stateDir, "changes", ID)).sort()).toEqual(["changeset.json", "content", "state.json"]);
});

it("names the lock to remove if its process is in another container, and cannot be seen from here", async () => {
  const { stateDir, store, storeOf, changeset } = begin();
  await store.keep(changeset, "held");
  const lock = join(stateDir, "changes", ID, "owner");
  const named = (namespace: string): LockOwner => ({ ...me, name: `machine|boot|${namespace}|7|99` });
  fs.writeFileSync(lock, left(named("pid:[1]").name));
  const busy = async (owner: LockOwner) => await storeOf(owner).discard(ID);
  expect(await busy(named("pid:[2]"))).toMatchObject({ code: "busy", reason: expect.stringContaining(`: rm ${lock}`) });
  expect(await busy(named("pid:[1]"))).toMatchObject({ code: "busy", reason: expect.not.stringContaining(lock) });
});

it("lets only one of many apply a changeset", async () => {
  const { staged, store, storeOf, changeset } = begin();
  await store.keep(changeset, "held");
  const stores = Array.from({ length: 8 }, (_, index) => storeOf({ ...me, name: `process ${index}` }));
  const results = await Promise.all(stores.map((one) => one.applyKept(ID, new Set([0, 1]))));
  const applied = results.flatMap((result) => (result.ok ? result.settled : []));
  expect(applied.map(({ outcome }) => outcome)).toEqual(["applied", "applied"]);
  expect(treeAt(staged.target)).toEqual({ a: "new", b: "new" });
});

it("finishes what a dead process had begun to apply, with what was agreed to then", async () => {
  const { staged, stateDir, store, changeset } = begin({ a: "old", b: "old" }, { a: "new", b: "new", c: "new" });
  await store.keep(changeset, "held");
  class Killed extends Error {}
  const onStep = (step: string): void => {
    if (step.startsWith("note what is done")) throw new Killed();
  };
  await expect(store.applyKept(ID, new Set([0, 2]), { onStep })).rejects.toThrow(Killed);
  fs.writeFileSync(join(stateDir, "changes", ID, "owner"), left("dead process"));
  const finished = await store.finishInterrupted();
  expect(finished).toMatchObject([{ id: ID, settled: [{ outcome: "applied" }, { outcome: "applied" }] }]);
  expect(treeAt(staged.target)).toMatchObject({ b: "old" });
  expect(await store.load(ID)).toMatchObject({ waiting: new Set([1]) });
  expect(await store.finishInterrupted()).toEqual([]);
});

it("clears what a dead process had begun to remove", async () => {
  const { stateDir, store, changeset } = begin();
  await store.keep(changeset, "held");
  fs.renameSync(join(stateDir, "changes", ID), join(stateDir, "changes", ".removed-x"));
  await store.finishInterrupted();
  expect(namesIn(join(stateDir, "changes"))).toEqual([]);
});

it.each<[string, (dir: string) => void, RegExp]>([
  ["is no JSON", (dir) => fs.writeFileSync(join(dir, "changeset.json"), "{"), /changeset.json: it is not JSON/],
  ["is missing", (dir) => fs.rmSync(join(dir, "changeset.json")), /changeset.json: it is missing/],
  [
    "says what it may not",
    (dir) => rewrite(dir, (record) => ({ ...record, more: 1 })),
    /changeset.json: Unrecognized key/,
  ],
  ["leads elsewhere", (dir) => rewrite(dir, (record) => ({ ...record, id: "../../x" })), /id: is not a changeset id/],
])("tells of a record that %s, applies nothing of it, and can discard it", async (_, spoil, reason) => {
  const { staged, stateDir, store, changeset } = begin();
  await store.keep(changeset, "held");
  spoil(join(stateDir, "changes", ID));
  expect(await store.load(ID)).toMatchObject({ ok: false, code: "broken", reason: expect.stringMatching(reason) });
  expect(await store.applyKept(ID, new Set([0]))).toMatchObject({ ok: false, code: "broken" });
  expect(treeAt(staged.target)).toEqual({ a: "old", b: "old" });
  expect(await store.discard(ID)).toEqual({ ok: true });
});

it("lists what has no readable state as broken", async () => {
  const { stateDir, store, changeset } = begin();
  await store.keep(changeset, "held");
  fs.writeFileSync(join(stateDir, "changes", ID, "state.json"), "[]");
  expect(await store.list()).toMatchObject([{ id: ID, ok: false, reason: expect.stringContaining("state.json") }]);
});

it.each(["..", "0123456789ab/../x", "0123456789AB", "", "0123456789ab.", "0123456789ab.1234567"])(
  "takes %j for no id",
  async (id) => {
    const { store } = begin();
    expect(await store.load(id)).toMatchObject({ ok: false, code: "missing", reason: "that is not a changeset id" });
    expect(await store.discard(id)).toMatchObject({ ok: false, code: "missing" });
  },
);

function rewrite(dir: string, change: (record: object) => object): void {
  const path = join(dir, "changeset.json");
  fs.writeFileSync(path, JSON.stringify(change(JSON.parse(fs.readFileSync(path, "utf8")) as object)));
}
