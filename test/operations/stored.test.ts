import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { SnapshotStore } from "../../src/changes/layers/snapshot-store.ts";
import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import { layerName } from "../../src/isolation/runc/ground/layers.ts";
import { cancelFleet } from "../../src/operations/fleets.ts";
import { collectState, measured, measureState } from "../../src/operations/stored/stored-state.ts";
import { changesetStore } from "../../src/run/changes/into-project.ts";
import { makeOwnerDir } from "../../src/state/live-dir.ts";
import { currentOwner } from "../../src/state/owner.ts";
import { stagedFolder } from "../changes/staged-folder.ts";
import { loadedFleet } from "../fleet/journal/journal-fixture.ts";

const PROJECT = "0123456789abcdef";
const DAY_MS = 86_400_000;
let base: string;
let machine: { stateDir: string; engineEnv: Record<string, string> };

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), "corral-stored-")));
  machine = { stateDir: join(base, "state"), engineEnv: { DOCKER_HOST: "unix:///nonexistent/docker.sock" } };
  await mkdir(machine.stateDir, { mode: 0o700 });
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe("what Corral keeps", () => {
  it("is measured by kind, and what needs an Engine says why it is not known", async () => {
    await add(`transcripts/${PROJECT}/aaaaaaaaaaaa.jsonl`, 100_000);
    await add("changes/bbbbbbbbbbbb/content/0/file", 200_000);
    await add("seal.key", 32);
    const kinds = new Map((await measureState(machine)).map((kind) => [kind.name, kind]));
    expect(kinds.get("transcripts")?.measured).toMatchObject({ count: 1, complete: true });
    expect(kinds.get("transcripts")?.measured?.bytes).toBeGreaterThanOrEqual(100_000);
    expect(kinds.get("changes")?.measured?.bytes).toBeGreaterThanOrEqual(200_000);
    expect(kinds.get("other")?.measured).toMatchObject({ count: 1 });
    expect(kinds.get("images")).toMatchObject({ measured: null, trouble: expect.stringContaining("docker.sock") });
  });

  it("has snapshots, and those without a name go by their age", async () => {
    const at = join(machine.stateDir, "snapshots", PROJECT);
    const store = new SnapshotStore(at, join(machine.stateDir, "live"));
    const of = {
      run: "0123456789ab",
      session: null,
      worker: "w",
      policy: null,
      isLast: false,
      direct: [],
      sandbox: {},
    };
    const named = await store.add({ ...of, name: "kept" }, []);
    const { id } = await store.add({ ...of, name: null }, []);
    await add(`snapshots/${PROJECT}/layers/0123456789abcdef/large`, 300_000);
    const kindOf = async () => (await measureState(machine)).find(({ name }) => name === "snapshots")?.measured;
    expect(await kindOf()).toMatchObject({ count: 2, complete: true });
    expect((await kindOf())?.bytes).toBeGreaterThanOrEqual(300_000);
    const gone = async (olderThanMs: number | null, dryRun = false) =>
      (await collectState(machine, { olderThanMs, dryRun })).find(({ name }) => name === "snapshots")?.removed;
    expect(await gone(null)).toEqual([]);
    const path = join(at, id, "snapshot.json");
    const old = { ...(JSON.parse(await readFile(path, "utf8")) as object), createdAt: "2026-01-01T00:00:00.000Z" };
    await writeFile(path, JSON.stringify(old));
    expect(await gone(null, true)).toMatchObject([{ what: id }]);
    expect(await gone(null)).toMatchObject([{ what: id }]);
    expect((await kindOf())?.bytes).toBeLessThan(100_000);
    expect(await gone(-1000)).toMatchObject([{ what: named.name }]);
    expect(await kindOf()).toMatchObject({ count: 0 });
  });

  it("is measured without following a link", async () => {
    await add("../elsewhere/large", 5_000_000);
    await mkdir(join(machine.stateDir, "changes/cccccccccccc"), { recursive: true });
    await symlink(join(base, "elsewhere"), join(machine.stateDir, "changes/cccccccccccc/link"));
    await symlink(join(base, "elsewhere"), join(machine.stateDir, "changes/dddddddddddd"));
    const changes = (await measureState(machine)).find(({ name }) => name === "changes");
    expect(changes?.measured?.bytes).toBeLessThan(100_000);
  });

  it("that is too much to be measured in time is not complete", async () => {
    for (let n = 0; n < 3000; n += 1) await add(`changes/aaaaaaaaaaaa/${n % 50}/${n}`, 0);
    const late = await measured([join(machine.stateDir, "changes/aaaaaaaaaaaa")], AbortSignal.abort());
    expect(late.complete).toBe(false);
  });
});

describe("collecting it", () => {
  it("removes environments that no run used for long, and tells what it would remove", async () => {
    const [old, young] = ["a".repeat(64), "b".repeat(64)];
    for (const digest of [old, young]) {
      const record = { kind: "pip", name: "pip:requirements.txt", project: PROJECT, sizeBytes: 7, entries: 1 };
      await add(`environments/${digest}/tree/file`, 7);
      await writeFile(join(machine.stateDir, `environments/${digest}/record.json`), JSON.stringify(record));
    }
    const past = (Date.now() - 40 * DAY_MS) / 1000;
    await utimes(join(machine.stateDir, `environments/${old}/record.json`), past, past);
    const names = () => readdir(join(machine.stateDir, "environments"));
    const asked = { olderThanMs: null, nowMs: Date.now() };
    const foreseen = await collectState(machine, { ...asked, dryRun: true });
    expect(foreseen.find(({ name }) => name === "environments")?.removed).toMatchObject([{ bytes: 7 }]);
    expect(await names()).toHaveLength(2);
    await collectState(machine, { ...asked, dryRun: false });
    expect(await names()).toEqual([young]);
  });

  it("removes writable roots that no run used for long, but for one that a living process uses", async () => {
    const [old, young, held] = ["a".repeat(32), "b".repeat(32), "c".repeat(32)];
    for (const name of [old, young, held]) {
      const about = { image: `sha256:${name}`, uid: 1000, gid: 1000, bytes: 7 };
      await add(`roots/${name}/tree/usr/file`, 7);
      await writeFile(join(machine.stateDir, `roots/${name}/about.json`), JSON.stringify(about));
    }
    const past = (Date.now() - 40 * DAY_MS) / 1000;
    for (const name of [old, held]) await utimes(join(machine.stateDir, `roots/${name}/about.json`), past, past);
    const path = await makeOwnerDir(join(machine.stateDir, "live"), currentOwner());
    await mkdir(join(path, "0123456789ab.stage"));
    await writeFile(join(path, "0123456789ab.stage/root"), held);
    const removed = async (dryRun: boolean) =>
      (await collectState(machine, { dryRun })).find(({ name }) => name === "roots")?.removed;
    const names = async () => (await readdir(join(machine.stateDir, "roots"))).filter((name) => name !== "lock");
    expect(await removed(true)).toMatchObject([{ what: `sha256:${old}`, bytes: 7 }]);
    expect(await names()).toHaveLength(3);
    expect(await removed(false)).toHaveLength(1);
    expect((await names()).toSorted()).toEqual([young, held]);
  });

  it("removes old transcripts and mirrors, and never changes that wait or an audit trail", async () => {
    const old = [
      `transcripts/${PROJECT}/aaaaaaaaaaaa.jsonl`,
      `audit/${PROJECT}/trail.ndjson`,
      "changes/bbbbbbbbbbbb/x",
    ];
    for (const path of [...old, `git/${PROJECT}/r.git/config`]) await add(path, 10, 31);
    await utimes(join(machine.stateDir, `git/${PROJECT}/r.git`), 1, 1);
    await add(`transcripts/${PROJECT}/cccccccccccc.jsonl`, 10, 29);
    expect(await removedOf(await collectState(machine, { dryRun: true }))).toEqual(["aaaaaaaaaaaa.jsonl", "r.git"]);
    expect(await readdir(join(machine.stateDir, `transcripts/${PROJECT}`))).toHaveLength(2);
    const kinds = await collectState(machine);
    expect(await removedOf(kinds)).toEqual(["aaaaaaaaaaaa.jsonl", "r.git"]);
    expect(kinds.filter(({ stays }) => stays > 0).map(({ name }) => name)).toEqual(["changes", "audit"]);
    expect(kinds.find(({ name }) => name === "live")?.trouble).toContain("docker.sock");
    expect(await readdir(join(machine.stateDir, `transcripts/${PROJECT}`))).toEqual(["cccccccccccc.jsonl"]);
    expect(await readdir(join(machine.stateDir, `audit/${PROJECT}`))).toEqual(["trail.ndjson"]);
    expect(await readdir(join(machine.stateDir, "changes"))).toEqual(["bbbbbbbbbbbb"]);
    expect(await readdir(join(machine.stateDir, `git/${PROJECT}`))).toEqual([]);
  });

  it("removes what runs that failed 30 days ago wrote, and no other changes", async () => {
    const store = changesetStore(machine.stateDir);
    const keep = async (id: string, days: number, reason: string): Promise<void> => {
      const staged = stagedFolder({}, { a: "x".repeat(10_000) });
      onTestFinished(() => staged[Symbol.dispose]());
      const createdAt = new Date(Date.now() - days * DAY_MS).toISOString();
      await store.keep({ ...staged.changeset(id), createdAt }, "held", reason);
    };
    const failed = "the run did not succeed (timed_out)";
    await keep("a".repeat(12), 31, failed);
    await keep("b".repeat(12), 29, failed);
    await keep("c".repeat(12), 31, "nobody answered");
    const left = async () => (await store.list()).map(({ id }) => id[0]).toSorted();
    expect(await removedOf(await collectState(machine, { dryRun: true }))).toEqual(["a".repeat(12)]);
    expect(await left()).toEqual(["a", "b", "c"]);
    const kinds = await collectState(machine);
    expect(await removedOf(kinds)).toEqual(["a".repeat(12)]);
    expect(kinds.find(({ name }) => name === "changes")).toMatchObject({ stays: 1 });
    expect(await left()).toEqual(["b", "c"]);
  });

  it("leaves mirrors alone while a corral process lives, which may use one", async () => {
    await add(`git/${PROJECT}/r.git/config`, 10, 31);
    await utimes(join(machine.stateDir, `git/${PROJECT}/r.git`), 1, 1);
    await makeOwnerDir(join(machine.stateDir, "live"), currentOwner());
    expect(await removedOf(await collectState(machine))).toEqual([]);
  });

  it("removes what was unpacked of images that no process used for long, as it was measured before", async () => {
    const layer = `sha256:${"c".repeat(64)}`;
    const file = join("runc/layers", layerName(layer));
    await add(`${file}/etc/name`, 5);
    const note = JSON.stringify({ layer, saved: "blobs/c", bytes: 5 });
    await writeFile(join(machine.stateDir, `${file}.json`), note);
    const image = `runc/images/${"d".repeat(64)}.json`;
    await add(image, 0);
    await writeFile(join(machine.stateDir, image), JSON.stringify({ layers: [layer] }));
    const withEngine = { ...machine, engineEnv: process.env };
    const measure = async () =>
      (await measureState(withEngine)).find(({ name }) => name === "unpacked images")?.measured;
    const collect = async (dryRun: boolean) =>
      (await collectState(withEngine, { dryRun })).find(({ name }) => name === "unpacked images")?.removed;
    const used = async (days: number) => {
      const at = (Date.now() - days * DAY_MS) / 1000;
      await utimes(join(machine.stateDir, image), at, at);
    };
    expect(await measure()).toEqual({ bytes: 5, count: 1, complete: true });
    await used(29);
    expect(await collect(false)).toEqual([]);
    await used(31);
    const removed = [{ what: `sha256:${"d".repeat(64)}`, bytes: 5, why: expect.stringContaining("stays") }];
    expect(await collect(true)).toEqual(removed);
    expect(await collect(false)).toEqual(removed);
    expect(await measure()).toEqual({ bytes: 0, count: 0, complete: true });
    expect(await readdir(join(machine.stateDir, "runc/layers"))).toEqual([]);
  });

  it("removes fleets only if it is told an age, and none that has not ended", async () => {
    const place = { ...machine, projectDir: join(base, "project") };
    await using store = await openFleetStore(place.stateDir, place.projectDir, {});
    const [ended, running] = [await loadedFleet(store, 3), await loadedFleet(store, 3)];
    await cancelFleet(place, ended);
    expect(await store.end(ended)).toBe("cancelled");
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(await removedOf(await collectState(machine))).toEqual([]);
    expect(await removedOf(await collectState(machine, { olderThanMs: DAY_MS }))).toEqual([]);
    expect(await removedOf(await collectState(machine, { olderThanMs: 1, dryRun: true }))).toEqual([ended]);
    expect(await removedOf(await collectState(machine, { olderThanMs: 1 }))).toEqual([ended]);
    expect((await store.list()).map(({ id }) => id)).toEqual([running]);
  });
});

async function removedOf(kinds: Awaited<ReturnType<typeof collectState>>): Promise<string[]> {
  return kinds.flatMap(({ removed }) => removed.map(({ what }) => what));
}

async function add(path: string, bytes: number, ageDays = 0): Promise<void> {
  const file = join(machine.stateDir, path);
  await mkdir(join(file, ".."), { recursive: true });
  await writeFile(file, Buffer.alloc(bytes, 1));
  const at = (Date.now() - ageDays * DAY_MS) / 1000;
  await utimes(file, at, at);
}
