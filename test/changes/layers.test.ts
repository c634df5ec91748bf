import fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { applyChangeset } from "../../src/changes/apply/application.ts";
import type { ChangesOf } from "../../src/changes/collect.ts";
import { releaseLayers, SnapshotStore } from "../../src/changes/layers/snapshot-store.ts";
import { Stage, type StageRequest } from "../../src/changes/stage.ts";
import type { FrozenView } from "../../src/changes/view/view.ts";
import { detachMountsBelow } from "../../src/files/host/descriptor.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { makeOwnerDir, reapLiveDirs } from "../../src/state/live-dir.ts";
import { currentOwner, formatOwner } from "../../src/state/owner.ts";
import { present } from "../../src/text/present.ts";
import { roomy } from "../sandbox/sandboxes.ts";
import { byteTree, carryOut, operations, PLAIN_NAMES } from "./scan/byte-tree.ts";
import { plant, treeAt } from "./staged-folder.ts";
import { mountsBelow, type ViewPlaces, viewPlaces } from "./view/opened-view.ts";

const OF: ChangesOf = {
  id: "0123456789ab",
  run: "0123456789ab",
  root: "0123456789ab",
  worker: "w",
  project: "/p",
  createdAt: "2026-11-22T00:00:00.000Z",
};

interface Opening {
  readonly overlays: boolean;
  readonly mounts?: readonly Mount[];
  readonly from?: readonly FrozenView[];
  readonly onViews?: StageRequest["onViews"];
}

async function openStage(
  places: ViewPlaces,
  { overlays, mounts = [places.mount()], from = [], onViews }: Opening,
): Promise<Stage> {
  const staging = await Stage.open({
    sandbox: { mounts } as unknown as Sandbox,
    dir: join(places.path, `stage-${fs.readdirSync(places.path).length}`),
    maxBytes: roomy.maxLimits.diskBytes,
    overlays,
    from,
    ...present({ onViews }),
  });
  if (!staging.ok) throw new Error(JSON.stringify(staging.violations));
  return staging.stage;
}

function hostOf(stage: Stage): string {
  return stage.sandbox.mounts[0]?.host ?? "";
}

function layersIn(places: ViewPlaces): () => Promise<string> {
  const root = join(places.path, "layers");
  fs.mkdirSync(root, { recursive: true });
  return async () => join(root, String(fs.readdirSync(root).length));
}

async function applied(places: ViewPlaces, stage: Stage) {
  const collected = await stage.collect(OF);
  if (collected === null) return [];
  const indexes = collected.changeset.changes.map(({ index }) => index);
  const logDir = join(places.path, `log-${fs.readdirSync(places.path).length}`);
  return await applyChangeset(collected.changeset, indexes, { logDir });
}

/** As an overlay, as a copy with layers above it (a copy because of the suffix), and as copies alone. */
const KINDS = [
  { kind: "an overlay", overlays: true, more: {} },
  { kind: "a copy with layers", overlays: true, more: { maxFileBytes: 1024 ** 2 } },
  { kind: "copies alone", overlays: false, more: {} },
];

describe.each(KINDS)("a frozen view as $kind", ({ overlays, more }) => {
  it("is what it was, whatever is written above it, and forks know nothing of each other", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "old", gone: "x", "d/e": "e", l: { link: "a" } });
    const mounts = [places.mount(more)];
    await using stage = await openStage(places, { overlays, mounts });
    plant(hostOf(stage), { a: "first", "new/f": "f" });
    fs.rmSync(join(hostOf(stage), "gone"));
    const host = hostOf(stage);
    const frozen = await stage.freeze(layersIn(places));
    const then = treeAt(host);
    expect(hostOf(stage)).toBe(host);
    plant(host, { a: "second" });
    fs.rmSync(join(host, "new"), { recursive: true });
    await using fork = await openStage(places, { overlays, mounts, from: frozen });
    expect(treeAt(hostOf(fork))).toEqual(then);
    plant(hostOf(fork), { "new/f": "of the fork" });
    await using other = await openStage(places, { overlays, mounts, from: frozen });
    expect(treeAt(hostOf(other))).toEqual(then);
    expect(await stage.restore(frozen)).toEqual([]);
    expect([hostOf(stage), treeAt(host)]).toEqual([host, then]);
    expect(treeAt(places.target)).toEqual({ a: "old", d: null, "d/e": "e", gone: "x", l: { link: "a" } });
    const settled = await applied(places, fork);
    expect(settled.map(({ change: { kind, path }, outcome }) => [kind, path, outcome])).toEqual([
      ["create", "/data/new", "applied"],
      ["modify", "/data/a", "applied"],
      ["create", "/data/new/f", "applied"],
      ["delete", "/data/gone", "applied"],
    ]);
    expect(treeAt(places.target)).toMatchObject({ a: "first", "new/f": "of the fork" });
  });

  it("is judged by the directory that it was made of: what another changed since is a conflict, or stays", async () => {
    await using places = viewPlaces();
    plant(places.target, { mine: "old", both: "old", theirs: "old" });
    const mounts = [places.mount(more)];
    await using stage = await openStage(places, { overlays, mounts });
    plant(hostOf(stage), { mine: "session", both: "session", made: "session" });
    const frozen = await stage.freeze(layersIn(places));
    plant(places.target, { both: "another", theirs: "another", made: "another" });
    await using fork = await openStage(places, { overlays, mounts, from: frozen });
    const settled = await applied(places, fork);
    const outcomes = settled.map(({ change, outcome }) => [change.path, outcome]).toSorted();
    expect(outcomes).toEqual([
      ["/data/both", "conflict"],
      ["/data/made", "conflict"],
      ["/data/mine", "applied"],
    ]);
    expect(treeAt(places.target)).toMatchObject({ both: "another", theirs: "another", mine: "session" });
  });

  it("applied from any number of layers makes the directory what the run saw", { timeout: 240_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        operations(PLAIN_NAMES),
        fc.array(operations(PLAIN_NAMES), { minLength: 2, maxLength: 4 }),
        async (before, rounds) => {
          await using places = viewPlaces();
          carryOut(places.target, before);
          const mounts = [places.mount(more)];
          const layers = layersIn(places);
          let from: readonly FrozenView[] = [];
          for (const round of rounds.slice(0, -1)) {
            await using stage = await openStage(places, { overlays, mounts, from });
            carryOut(hostOf(stage), round);
            from = await stage.freeze(layers);
          }
          await using last = await openStage(places, { overlays, mounts, from });
          carryOut(hostOf(last), rounds.at(-1) ?? []);
          const seen = byteTree(hostOf(last));
          const settled = await applied(places, last);
          const unfit = settled.filter(({ outcome }) => outcome !== "applied");
          fc.pre(unfit.length === 0);
          expect(byteTree(places.target)).toEqual(seen);
        },
      ),
      { numRuns: 12 },
    );
  });

  it("leaves nothing mounted and nothing open", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "old" });
    const mounts = [places.mount(more)];
    const open = fs.readdirSync("/proc/self/fd").length;
    {
      await using stage = await openStage(places, { overlays, mounts });
      plant(hostOf(stage), { a: "new" });
      const from = await stage.freeze(layersIn(places));
      await stage.restore(from);
      await using fork = await openStage(places, { overlays, mounts, from });
      expect(await fork.collect(OF)).not.toBeNull();
    }
    expect(mountsBelow(places.path)).toEqual([]);
    expect(fs.readdirSync("/proc/self/fd")).toHaveLength(open);
  });
});

describe("a frozen view", () => {
  it("is not opened for another directory, or for less than it had", async () => {
    await using places = viewPlaces();
    await using stage = await openStage(places, { overlays: true });
    plant(hostOf(stage), { a: "x" });
    const from = await stage.freeze(layersIn(places));
    const opened = (mount: Mount) => openStage(places, { overlays: true, mounts: [mount], from });
    await expect(opened(places.mount({ host: places.path }))).rejects.toThrow("another directory");
    await expect(opened(places.mount({ mode: "ro" }))).rejects.toThrow("no staged writing");
    await expect(openStage(places, { overlays: false, from })).rejects.toThrow("cannot be laid over each other");
    fs.renameSync(places.target, `${places.target}-before`);
    fs.mkdirSync(places.target);
    await expect(opened(places.mount())).rejects.toThrow("another directory has its place");
  });

  it("costs no layer if nothing was written, and at most 100 lie over each other", { timeout: 60_000 }, async () => {
    await using places = viewPlaces();
    await using stage = await openStage(places, { overlays: true });
    const layers = layersIn(places);
    plant(hostOf(stage), { a: "0" });
    const [first] = await stage.freeze(layers);
    expect((await stage.freeze(layers))[0]?.layers).toEqual(first?.layers);
    for (let count = 1; count < 100; count += 1) {
      plant(hostOf(stage), { [`a${count}`]: "x" });
      await stage.freeze(layers);
    }
    plant(hostOf(stage), { last: "x" });
    await expect(stage.freeze(layers)).rejects.toThrow("100 snapshots lie over each other");
    expect(fs.readdirSync(hostOf(stage))).toHaveLength(101);
    expect(await stage.restore([first as FrozenView])).toEqual([]);
    expect(fs.readdirSync(hostOf(stage))).toEqual(["a"]);
  });
});

describe("a session whose process dies", () => {
  it.each(KINDS)(
    "leaves its last snapshot, as $kind, to the next process, and nothing if it has ended in order",
    async ({ overlays, more }) => {
      await using places = viewPlaces();
      plant(places.target, { a: "old", "d/e": "e" });
      const liveDir = join(places.path, "live");
      const store = new SnapshotStore(join(places.path, "snapshots"), liveDir);
      const mounts = [places.mount(more)];
      const about = { name: null, isLast: true, session: "dev", worker: "w", policy: null, sandbox: {} };
      const dies = async (run: string, from: readonly FrozenView[], edit: (host: string) => void, isEnded = false) => {
        const ownerDir = await makeOwnerDir(liveDir, currentOwner());
        const stage = await openStage(places, {
          overlays,
          mounts,
          from,
          onViews: (views, direct) => store.prepare(ownerDir, { ...about, run, direct: [...direct] }, views),
        });
        edit(hostOf(stage));
        if (isEnded) await releaseLayers(ownerDir, run);
        // Its views stay mounted, as those of a process that was killed.
        fs.writeFileSync(join(ownerDir, "owner"), formatOwner({ ...currentOwner(), startTicks: "1" }));
        // Another process looks for layers that nothing needs.
        await store.remove(() => false);
        await detachMountsBelow(places.path);
        expect((await reapLiveDirs(liveDir, currentOwner())).failed).toEqual([]);
      };
      const first = "0123456789ab";
      await dies(first, [], (host) => plant(host, { a: "first", "new/f": "f" }));
      const live = await makeOwnerDir(liveDir, currentOwner());
      const opened = await store.open("dev", live, "0123456789ac");
      await dies("0123456789ad", opened.views, (host) => {
        plant(host, { a: "second" });
        fs.rmSync(join(host, "d"), { recursive: true });
      });
      const { record, views } = await store.open("dev", live, "0123456789ac");
      expect(record).toMatchObject({ run: "0123456789ad", isLast: true, session: "dev" });
      await using again = await openStage(places, { overlays, mounts, from: views });
      expect(treeAt(hostOf(again))).toEqual({ a: "second", new: null, "new/f": "f" });
      expect((await applied(places, again)).map(({ outcome }) => outcome)).not.toContain("conflict");
      expect(fs.readFileSync(join(places.target, "a"), "utf8")).toBe("second");
      await dies("0123456789ae", [], (host) => plant(host, { a: "third" }), true);
      expect((await store.list()).map(({ run }) => run)).toEqual([first, "0123456789ad"]);
    },
  );
});
