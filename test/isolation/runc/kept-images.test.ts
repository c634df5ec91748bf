import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { connect } from "../../../src/isolation/engine/connect.ts";
import { layerStore } from "../../../src/isolation/engine/images/layer-store.ts";
import type { LayerStore } from "../../../src/isolation/port/layer-store.ts";
import { KeptImages } from "../../../src/isolation/runc/ground/kept-images.ts";
import { currentOwner, formatOwner, loadSealKey } from "../../../src/state/owner.ts";

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
  store = layerStore(docker, await loadSealKey(stateDir));
  return async () => {
    for (const image of await store.kept()) await store.release(image);
    await rm(stateDir, { recursive: true });
  };
});

const images = (owner = currentOwner()) => new KeptImages({ dir, store, owner });
const keepers = async () => {
  const listed = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  return listed.map(({ State }) => State);
};

it("gives the layers of an image as directories of this machine, short enough for the kernel, the topmost first", async () => {
  const root = await images().rootOf(base);
  const { GraphDriver } = await docker.getImage(base).inspect();
  expect(root?.layers).toHaveLength(
    1 + (GraphDriver.Data as unknown as { LowerDir: string }).LowerDir.split(":").length,
  );
  for (const layer of root?.layers ?? []) expect(layer).toMatch(/\/overlay2\/l\/[0-9A-Z]{26}$/);
  expect(await readdir(root?.layers.at(-1) ?? "")).toContain("etc");
});

it("keeps the image by one container that never starts, whichever process asks, also two at once, and makes no volume", async () => {
  await Promise.all([images().rootOf(base), images().rootOf(base), images(dead).rootOf(base)]);
  await images().rootOf(base);
  expect(await keepers()).toEqual(["created"]);
  const [keeper] = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  expect((await docker.getContainer(keeper?.Id ?? "").inspect()).Mounts).toEqual([]);
});

it("makes a keeper again that a prune has removed", async () => {
  await images().rootOf(base);
  await store.release(base);
  expect(await keepers()).toEqual([]);
  await images().rootOf(base);
  expect(await keepers()).toEqual(["created"]);
});

it("an image that is kept cannot be removed by its name's last owner", async () => {
  await images().rootOf(base);
  await expect(docker.getImage(base).remove()).rejects.toMatchObject({ statusCode: 409 });
});

it("knows no image that the Engine does not have, and leaves nothing of the question", async () => {
  expect(await images().rootOf(`sha256:${"0".repeat(64)}`)).toBeNull();
  expect((await readdir(dir)).filter((name) => name.includes("0000"))).toEqual([]);
});

it("lets an image go that only dead processes use, and not one that a living one uses", async () => {
  await images(dead).rootOf(base);
  const mine = images();
  await mine.rootOf(base);
  expect(await mine.letGo({})).toEqual({ letGo: [], inUse: [base] });
  expect(await keepers()).toEqual(["created"]);
  for (const name of await readdir(dir)) await writeFile(join(dir, name), formatOwner(dead)).catch(() => {});
  expect(await mine.letGo({ dryRun: true })).toEqual({ letGo: [base], inUse: [] });
  expect(await keepers()).toEqual(["created"]);
  expect(await mine.letGo({})).toEqual({ letGo: [base], inUse: [] });
  expect(await keepers()).toEqual([]);
});

it("does not touch what another state directory keeps, or a container with a name like a keeper's", async () => {
  await images().rootOf(base);
  const other = layerStore(docker, Buffer.alloc(32, 1));
  expect(await other.kept()).toEqual([]);
  await other.release(base);
  expect(await keepers()).toEqual(["created"]);
});

it("uses no container as a keeper that Corral did not seal", async () => {
  await images().rootOf(base);
  const [{ Names = [] } = {}] = await docker.listContainers({ all: true, filters: { label: [`${KEEPS}=${base}`] } });
  await store.release(base);
  const planted = await docker.createContainer({
    name: (Names[0] ?? "").slice(1),
    Image: base,
    Cmd: ["/bin/true"],
    Labels: { [KEEPS]: base, "dev.corral.seal": "0".repeat(64) },
    HostConfig: { Tmpfs: { "/data": "" } },
  });
  await expect(images().rootOf(base)).rejects.toThrow("is not Corral's");
  await expect(store.release(base)).rejects.toThrow("is not Corral's");
  expect(await store.kept()).toEqual([]);
  await planted.remove();
});
