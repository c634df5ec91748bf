import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { applyChangeset } from "../../src/changes/apply/application.ts";
import type { ChangesOf } from "../../src/changes/collect.ts";
import { Stage } from "../../src/changes/stage.ts";
import { sha256 } from "../../src/platform/sha256.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
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

async function openStage(places: ViewPlaces, overlays: boolean, mounts: readonly Mount[]): Promise<Stage> {
  const staging = await Stage.open({
    sandbox: { mounts } as unknown as Sandbox,
    dir: join(places.path, `stage-${fs.readdirSync(places.path).length}`),
    maxBytes: roomy.maxLimits.diskBytes,
    overlays,
  });
  if (!staging.ok) throw new Error(JSON.stringify(staging.violations));
  return staging.stage;
}

function hostOf(stage: Stage): string {
  return stage.sandbox.mounts[0]?.host ?? "";
}

async function applied(places: ViewPlaces, collected: Awaited<ReturnType<Stage["collect"]>>) {
  if (collected === null) return [];
  const indexes = collected.changeset.changes.map(({ index }) => index);
  const logDir = join(places.path, `log-${fs.readdirSync(places.path).length}`);
  return await applyChangeset(collected.changeset, indexes, { logDir });
}

describe.each([true, false])("what a stage collects (overlays: %s)", (overlays) => {
  it("makes the directory what the run saw in the end, whatever it did", { timeout: 240_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(operations(PLAIN_NAMES), operations(PLAIN_NAMES), async (before, during) => {
        await using places = viewPlaces();
        carryOut(places.target, before);
        await using stage = await openStage(places, overlays, [places.mount()]);
        carryOut(hostOf(stage), during);
        const seen = byteTree(hostOf(stage));
        const collected = await stage.collect(OF);
        const unfit = collected?.changeset.changes.filter(({ refusal }) => refusal !== null) ?? [];
        const settled = await applied(places, collected);
        fc.pre(unfit.length === 0);
        expect(settled.filter(({ outcome }) => outcome !== "applied")).toEqual([]);
        expect(byteTree(places.target)).toEqual(seen);
      }),
      { numRuns: 60 },
    );
  });

  it("while the run goes on is what was looked at: files, folders and links, whatever is written next", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "old", gone: "x" });
    await using stage = await openStage(places, overlays, [places.mount()]);
    const host = hostOf(stage);
    plant(host, { a: "new", "d/e/f": "made", empty: null, l: { link: "a" }, run: { text: "x", mode: 0o755 } });
    fs.chownSync(join(host, "empty"), 1234, 1234);
    fs.rmSync(join(host, "gone"));
    const collected = await stage.collectSoFar(OF);
    plant(host, { a: "later", "d/e/f": "later" });
    fs.rmSync(join(host, "l"));
    fs.rmdirSync(join(host, "empty"));
    const settled = await applied(places, collected);
    expect(settled.map(({ outcome, reason }) => reason ?? outcome)).toEqual(Array(8).fill("applied"));
    expect(treeAt(places.target)).toEqual({
      a: "new",
      d: null,
      "d/e": null,
      "d/e/f": "made",
      empty: null,
      l: { link: "a" },
      run: "x",
    });
    expect(fs.statSync(join(places.target, "run")).mode & 0o777).toBe(0o755);
    expect(fs.statSync(join(places.target, "empty")).uid).toBe(1234);
    if (collected !== null) stage.applied(collected.changeset, new Set(settled.map(({ change }) => change.index)));
    const rest = await stage.collect(OF);
    expect(rest?.changeset.changes.map(({ kind, parts }) => `${kind} ${parts.join("/")}`)).toEqual([
      "modify a",
      "modify d/e/f",
      "delete empty",
      "delete l",
    ]);
  });

  it("is nothing where nothing was changed, and after it was applied once", async () => {
    await using places = viewPlaces();
    await using stage = await openStage(places, overlays, [places.mount()]);
    expect(await stage.collectSoFar(OF)).toBeNull();
    plant(hostOf(stage), { "d/a": "x" });
    const collected = await stage.collectSoFar(OF);
    const settled = await applied(places, collected);
    if (collected !== null) stage.applied(collected.changeset, new Set(settled.map(({ change }) => change.index)));
    expect(await stage.collect(OF)).toBeNull();
  });

  it("asks for what nobody agreed to: another version of a file, and a folder's bits", async () => {
    await using places = viewPlaces();
    plant(places.target, { "d/old": "x" });
    await using stage = await openStage(places, overlays, [places.mount()]);
    plant(hostOf(stage), { "made/a": "agreed", b: "agreed" });
    const shown = { before: null, after: sha256("agreed"), mode: null };
    for (const path of ["/data/made/a", "/data/b"]) await stage.agreedToDiff(path as VirtualPath, shown);
    stage.agreedToDelete("/data/d/old" as VirtualPath);
    plant(hostOf(stage), { b: "another" });
    fs.rmSync(join(hostOf(stage), "d/old"));
    fs.chmodSync(join(hostOf(stage), "d"), 0o700);
    const collected = await stage.collect(OF);
    expect(collected?.toAsk.map(({ kind, path }) => `${kind} ${path}`)).toEqual(["modify /data/d", "create /data/b"]);
  });
});

describe("a stage that cannot be opened", () => {
  it("leaves nothing mounted and nothing behind", async () => {
    await using places = viewPlaces();
    const deep = join(places.path, "deep");
    fs.mkdirSync(join(deep, "d/".repeat(129)), { recursive: true });
    const dir = join(places.path, "stage");
    const second = places.mount({ name: "deep", path: "/deep" as VirtualPath, host: deep });
    const sandbox = { mounts: [places.mount(), second] } as unknown as Sandbox;
    const staging = await Stage.open({ sandbox, dir, maxBytes: 1000, overlays: true });
    expect(staging).toMatchObject({ ok: false, violations: [{ code: "MOUNT_SOURCE_REFUSED", path: "/deep" }] });
    expect(JSON.stringify(staging)).not.toContain(places.path);
    expect(mountsBelow(places.path)).toEqual([]);
    expect(fs.existsSync(dir)).toBe(false);
  });
});

describe("a stage that is closed", () => {
  it("removes what no path can name any more, and what nobody may look into", async () => {
    await using places = viewPlaces();
    const stage = await openStage(places, true, [places.mount()]);
    const script = "n=$(printf %0200d 0); for i in $(seq 40); do mkdir $n; cd $n || exit; done; touch f; chmod 000 .";
    execFileSync("bash", ["-c", script], { cwd: hostOf(stage) });
    await stage[Symbol.asyncDispose]();
    expect(fs.readdirSync(places.path)).toEqual(["target"]);
    expect(mountsBelow(places.path)).toEqual([]);
  });
});
