import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { connect } from "../../../src/isolation/engine/connect.ts";
import { layerStore } from "../../../src/isolation/engine/images/layer-store.ts";
import type { LayerStore } from "../../../src/isolation/port/layer-store.ts";
import { KeptImages } from "../../../src/isolation/runc/ground/kept-images.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";

let docker: Docker;
let base: string;
let dir: string;
let store: LayerStore;
let stateDir: string;
const KEEPS = "dev.corral.keeps";

/** Another orchestrator, which has ended. */
const dead = { ...currentOwner(), startTicks: "1" };

beforeAll(async () => {
  ({ docker } = await connect({}));
  const { Id } = await docker.getImage("corral/base").inspect();
  // An image of this test's own: what is done to it concerns no other test.
  const container = await docker.createContainer({ Image: Id, Cmd: ["/bin/true"], Labels: { test: "kept-images" } });
  const made = await container.commit({ repo: "corral-test/kept", tag: String(process.pid), changes: "VOLUME /data" });
  base = (made as { Id: string }).Id;
  await container.remove();
});
afterAll(async () => {
  await docker.getImage(`corral-test/kept:${process.pid}`).remove({ force: true });
});
beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-kept-"));
  dir = join(stateDir, "runc/images");
  store = storeOf(stateDir, await loadSealKey(stateDir));
  return async () => {
    for (const image of await store.kept()) await store.release(image);
    await rm(stateDir, { recursive: true });
  };
});

const storeOf = (at: string, sealKey: Buffer): LayerStore =>
  layerStore({ docker, stateDir: at, maker: { owner: currentOwner(), sealKey } });
const images = (owner = currentOwner()) => new KeptImages({ dir, store, owner });
const keepers = async () => {
  const listed = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  return listed.map(({ State }) => State);
};

it("gives the layers of an image as directories of this machine, short enough for the kernel, the topmost first", async () => {
  const root = await images().use(base);
  const { GraphDriver } = await docker.getImage(base).inspect();
  expect(root?.layers).toHaveLength(
    1 + (GraphDriver.Data as unknown as { LowerDir: string }).LowerDir.split(":").length,
  );
  for (const layer of root?.layers ?? []) expect(layer).toMatch(/\/overlay2\/l\/[0-9A-Z]{26}$/);
  expect(await readdir(root?.layers.at(-1) ?? "")).toContain("etc");
});

it("keeps the image by one container that never starts, whichever process asks, also two at once, and makes no volume", async () => {
  await Promise.all([images().use(base), images().use(base), images(dead).use(base)]);
  await images().use(base);
  expect(await keepers()).toEqual(["created"]);
  const [keeper] = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  expect((await docker.getContainer(keeper?.Id ?? "").inspect()).Mounts).toEqual([]);
});

it("makes a keeper again that a prune has removed", async () => {
  await images().use(base);
  await store.release(base);
  expect(await keepers()).toEqual([]);
  await images().use(base);
  expect(await keepers()).toEqual(["created"]);
});

it("an image that is kept cannot be removed by its name's last owner", async () => {
  await images().use(base);
  await expect(docker.getImage(base).remove()).rejects.toMatchObject({ statusCode: 409 });
});

it("knows no image that the Engine does not have, and leaves nothing of the question", async () => {
  expect(await images().use(`sha256:${"0".repeat(64)}`)).toBeNull();
  expect((await readdir(dir)).filter((name) => name.includes("0000"))).toEqual([]);
});

it("lets an image go that dead processes use, and not one of which a living one has a cell", async () => {
  await images(dead).use(base);
  const mine = images();
  const [cell, other] = [await mine.use(base), await mine.use(base)];
  expect(await images().letGo({ imageId: base })).toEqual({ letGo: [], inUse: [base] });
  cell?.[Symbol.dispose]();
  cell?.[Symbol.dispose]();
  expect(await images().letGo({})).toEqual({ letGo: [], inUse: [base] });
  expect(await keepers()).toEqual(["created"]);
  other?.[Symbol.dispose]();
  expect(await images().letGo({ dryRun: true })).toEqual({ letGo: [base], inUse: [] });
  expect(await keepers()).toEqual(["created"]);
  expect(await images().letGo({})).toEqual({ letGo: [base], inUse: [] });
  expect(await keepers()).toEqual([]);
});

it("keeps an image again that was let go while a process that knows it had no cell", async () => {
  const mine = images();
  (await mine.use(base))?.[Symbol.dispose]();
  await images().letGo({ imageId: base });
  expect(await keepers()).toEqual([]);
  const [cell] = await Promise.all([mine.use(base), mine.use(base)]);
  expect(cell?.layers.length).toBeGreaterThan(0);
  expect(await keepers()).toEqual(["created"]);
  expect(await images().letGo({ imageId: base })).toEqual({ letGo: [], inUse: [base] });
});

it("a cell that begins while an image is let go has it kept, or gets none: never one that is not kept", async () => {
  const mine = images();
  const other = images();
  for (let round = 0; round < 30; round += 1) {
    const [cell] = await Promise.all([mine.use(base), other.letGo({ imageId: base })]);
    expect(await keepers()).toEqual(["created"]);
    cell?.[Symbol.dispose]();
  }
});

it("an image of too many layers for one mount is none for runc, and another driver may take it", async () => {
  const many = {
    ok: true,
    dirs: Array.from({ length: 80 }, (_, n) => `/var/lib/docker/overlay2/l/${n}-of-many-layers-of-it`),
  };
  const kept = new KeptImages({ dir, store: { ...store, layers: async () => many as never }, owner: currentOwner() });
  expect(await kept.objection(base)).toContain("its 80 layers are too many");
  await expect(kept.use(base)).rejects.toThrow("too many");
});

it("removes the keepers of state directories that are gone when one is made, and when all are let go, and no others", async () => {
  const gone = await mkdtemp(join(tmpdir(), "corral-gone-"));
  const planted = await docker.createContainer({
    name: "corral-test-not-a-keeper",
    Image: base,
    Cmd: ["/bin/true"],
    Labels: { [KEEPS]: base, "dev.corral.state": "/no/such/state", "dev.corral.machine": currentOwner().machine },
    HostConfig: { Tmpfs: { "/data": "" } },
  });
  try {
    const theirs = storeOf(gone, await loadSealKey(gone));
    await theirs.keep(base);
    await images().use(base);
    expect(await keepers()).toHaveLength(3);
    await rm(gone, { recursive: true });
    expect((await images().letGo({ dryRun: true })).letGo).toContain(base);
    expect(await keepers()).toHaveLength(3);
    expect((await images().letGo({})).letGo).toEqual(expect.arrayContaining([base]));
    await mkdir(gone);
    await theirs.keep(base);
    await rm(gone, { recursive: true });
    expect(await theirs.kept()).toEqual([base]);
    await store.release(base);
    await images().use(base);
    expect(await theirs.kept()).toEqual([]);
    expect(await keepers()).toHaveLength(2);
  } finally {
    await planted.remove();
    await rm(gone, { recursive: true, force: true });
  }
});

it("does not touch what another state directory keeps, or a container with a name like a keeper's", async () => {
  await images().use(base);
  const other = storeOf(stateDir, Buffer.alloc(32, 1));
  expect(await other.kept()).toEqual([]);
  await other.release(base);
  expect(await keepers()).toEqual(["created"]);
});

it("uses no container as a keeper that Corral did not seal", async () => {
  await images().use(base);
  const [{ Names = [] } = {}] = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  await store.release(base);
  const planted = await docker.createContainer({
    name: (Names[0] ?? "").slice(1),
    Image: base,
    Cmd: ["/bin/true"],
    Labels: { [KEEPS]: base, "dev.corral.seal": "0".repeat(64) },
    HostConfig: { Tmpfs: { "/data": "" } },
  });
  await expect(images().use(base)).rejects.toThrow("is not Corral's");
  await expect(store.release(base)).rejects.toThrow("is not Corral's");
  expect(await store.kept()).toEqual([]);
  await planted.remove();
});
