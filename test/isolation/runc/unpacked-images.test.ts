import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import type Docker from "dockerode";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { savedImage } from "../../../src/isolation/engine/examined-images.ts";
import { connect } from "../../../src/isolation/engine/open.ts";
import type { SavedImage } from "../../../src/isolation/port/images.ts";
import { layerName } from "../../../src/isolation/runc/ground/layers.ts";
import { UnpackedImages, type UnpackedImagesOptions } from "../../../src/isolation/runc/ground/unpacked-images.ts";
import { runcPaths } from "../../../src/isolation/runc/model/layout.ts";
import { currentOwner, formatOwner } from "../../../src/state/owner.ts";

let docker: Docker;
let base: string;
let stateDir: string;
/** How often the Engine saved an image. */
let saved = 0;

/** Another orchestrator, which has ended. */
const dead = { ...currentOwner(), startTicks: "1" };
const TAGS = ["base", "other"].map((name) => `corral-test/unpacked-${name}:${process.pid}`);

/** An image with few files, and one above it. */
async function imported(): Promise<string[]> {
  const { pack } = await import("tar-stream");
  const archive = pack();
  archive.entry({ name: "etc/", type: "directory", mode: 0o755 });
  archive.entry({ name: "etc/name", mode: 0o640, uid: 7 }, "one\n");
  archive.finalize();
  const [first = "", second = ""] = TAGS;
  const [repo, tag] = first.split(":");
  await ended(await docker.importImage(archive as never, { repo, tag }));
  const container = await docker.createContainer({ Image: first, Cmd: ["/none"] });
  await container.putArchive(await packed("two"), { path: "/etc" });
  const [otherRepo, otherTag] = second.split(":");
  await container.commit({ repo: otherRepo, tag: otherTag });
  await container.remove();
  return await Promise.all(TAGS.map(async (name) => (await docker.getImage(name).inspect()).Id));
}

async function packed(name: string): Promise<Buffer> {
  const { pack } = await import("tar-stream");
  const archive = pack();
  archive.entry({ name, mode: 0o644 }, name);
  archive.finalize();
  return Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
}

async function ended(stream: NodeJS.ReadableStream): Promise<void> {
  for await (const _ of stream);
}

let other: string;
beforeAll(async () => {
  ({ docker } = await connect({}));
  [base = "", other = ""] = await imported();
});
afterAll(async () => {
  for (const tag of TAGS.toReversed())
    await docker
      .getImage(tag)
      .remove({ force: true })
      .catch(() => {});
});
beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-unpacked-"));
  saved = 0;
  return async () => await rm(stateDir, { recursive: true });
});

const images = (owner = currentOwner(), more: Partial<UnpackedImagesOptions> = {}) => {
  const { images: dir, layers: layersDir } = runcPaths(stateDir);
  const ground: UnpackedImagesOptions["ground"] = {
    savedImage: async (id) => {
      saved += 1;
      return await savedImage(docker, id);
    },
  };
  return new UnpackedImages({ dir, layersDir, ground, owner, ...more });
};
const layersHere = async () => (await readdir(runcPaths(stateDir).layers)).filter((name) => !name.endsWith(".json"));

async function* beginningOf(content: Readable): AsyncGenerator<Buffer> {
  for await (const chunk of content) yield chunk.subarray(0, 1000);
  throw new Error("the connection broke");
}

describe("an image of the Engine", () => {
  it("is unpacked by the first process that uses it, also by two at once, and never again", async () => {
    const [one, two] = await Promise.all([images().use(base), images().use(base)]);
    expect(one?.layers).toEqual(two?.layers);
    expect((await images(dead).use(base))?.layers).toEqual(one?.layers);
    expect(saved).toBe(1);
    expect(await readdir(join(one?.dir ?? "", one?.layers[0] ?? "", "etc"))).toEqual(["name"]);
  });

  it("shares its layers with another one, the uppermost of which comes first", async () => {
    const [lower] = (await images().use(base))?.layers ?? [];
    const above = await images().use(other);
    expect(above?.layers).toEqual([expect.any(String), lower]);
    expect(await readdir(join(above?.dir ?? "", above?.layers[0] ?? "", "etc"))).toEqual(["two"]);
    expect((await layersHere()).sort()).toEqual([...(above?.layers ?? [])].sort());
  });

  it("can be removed there, and cells still have it", async () => {
    await images().use(base);
    const gone = images(currentOwner(), { ground: { savedImage: async () => null } });
    expect((await gone.use(base))?.layers).toHaveLength(1);
  });

  it("is not waited for by cells of others if it is large, and is unpacked beside many of them, once", async () => {
    const large = {
      savedImage: async (id: string) => ({ ...((await savedImage(docker, id)) as SavedImage), bytes: 1e9 }),
    };
    const here = images(currentOwner(), { ground: large });
    expect(await images().isAtHand(base)).toBe(true);
    for (let cells = 0; cells < 8; cells += 1) expect(await here.isAtHand(base)).toBe(false);
    expect(existsSync(runcPaths(stateDir).layers)).toBe(false);
    await expect.poll(() => here.isAtHand(base)).toBe(true);
    expect(await layersHere()).toHaveLength(1);
    expect(await images(currentOwner(), { ground: large }).isAtHand(base)).toBe(true);
  });

  it("is not unpacked further when its process has closed", async () => {
    const here = images();
    here.close();
    await expect(here.use(base)).rejects.toThrow();
    expect(await layersHere()).toEqual([]);
  });

  it("is none if the Engine does not have it, and nothing is left of the question", async () => {
    expect(await images().use(`sha256:${"0".repeat(64)}`)).toBeNull();
    expect(await readdir(runcPaths(stateDir).images)).toEqual([]);
  });

  it("is not used if its layers are not those that its id stands for", async () => {
    const theirs = await savedImage(docker, other);
    const ground = { savedImage: async () => theirs };
    await expect(images(currentOwner(), { ground }).use(base)).rejects.toThrow("is not the image of this id");
    expect(await images(currentOwner(), { ground }).objection(base)).toContain("is not the image of this id");
  });

  it("is not used if the Engine breaks off", async () => {
    const ground: UnpackedImagesOptions["ground"] = {
      savedImage: async (id) => {
        const image = await savedImage(docker, id);
        return (
          image && {
            ...image,
            content: async () => Readable.from(beginningOf((await image.content()) ?? Readable.from([]))),
          }
        );
      },
    };
    await expect(images(currentOwner(), { ground }).use(base)).rejects.toMatchObject({ name: "EngineTrouble" });
    expect((await images().use(base))?.layers).toHaveLength(1);
  });
});

describe("what was unpacked", () => {
  it("is removed if dead processes use it, and not if a living one has a cell of it", async () => {
    await images(dead).use(base);
    const mine = images();
    const [cell, second] = [await mine.use(base), await mine.use(base)];
    expect(await images().letGo({ imageId: base })).toEqual({ letGo: [], inUse: [base], bytes: 0 });
    cell?.[Symbol.dispose]();
    cell?.[Symbol.dispose]();
    expect(await images().letGo({})).toEqual({ letGo: [], inUse: [base], bytes: 0 });
    second?.[Symbol.dispose]();
    expect(await images().letGo({ dryRun: true })).toEqual({ letGo: [base], inUse: [], bytes: 4 });
    expect(await layersHere()).toHaveLength(1);
    expect(await images().letGo({})).toEqual({ letGo: [base], inUse: [], bytes: 4 });
    expect(await layersHere()).toEqual([]);
  });

  it("is unpacked again for a process that had no cell meanwhile, and what that has mounted is of no use", async () => {
    const mine = images();
    const before = await mine.use(base);
    before?.[Symbol.dispose]();
    await images().letGo({ imageId: base });
    const [cell] = await Promise.all([mine.use(base), mine.use(base)]);
    expect(cell?.layers).toEqual(before?.layers);
    expect(cell?.mark).not.toBe(before?.mark);
    expect(await images().letGo({ imageId: base })).toEqual({ letGo: [], inUse: [base], bytes: 0 });
  });

  it("is there for a cell that begins while it is removed", async () => {
    const [mine, another] = [images(), images()];
    for (let round = 0; round < 10; round += 1) {
      const [cell] = await Promise.all([mine.use(base), another.letGo({ imageId: base })]);
      expect(existsSync(join(cell?.dir ?? "", cell?.layers[0] ?? "", "etc/name"))).toBe(true);
      cell?.[Symbol.dispose]();
    }
  });

  it("goes by its age, and a layer stays with an image that has it", async () => {
    for (const id of [base, other]) (await images().use(id))?.[Symbol.dispose]();
    const file = join(runcPaths(stateDir).images, `${other.slice("sha256:".length)}.json`);
    await utimes(file, 1, 1);
    expect(await images().measure()).toEqual({ count: 2, bytes: 7 });
    expect(await images().letGo({ usedBefore: 2000 })).toEqual({ letGo: [other], inUse: [], bytes: 3 });
    expect(await images().measure()).toEqual({ count: 1, bytes: 4 });
  });

  it("is taken up after a process was killed: complete layers stay, and half a one is removed", async () => {
    const { layers } = runcPaths(stateDir);
    await images().use(base);
    const [whole = ""] = await layersHere();
    const drafts = [dead, currentOwner()].map((owner) =>
      join(layers, `.new-${encodeURIComponent(formatOwner(owner))}.0123456789ab`),
    );
    for (const draft of drafts) await mkdir(join(draft, "etc"), { recursive: true });
    await images().reap();
    expect(drafts.map((draft) => existsSync(draft))).toEqual([false, true]);
    // It had its name, and was no more noted.
    const { layers: digests } = (await savedImage(docker, other)) ?? { layers: [] };
    const half = join(layers, layerName(digests.at(-1) ?? ""));
    await mkdir(half);
    await writeFile(join(half, "half"), "");
    expect((await images().use(other))?.layers).toContain(whole);
    expect(await readdir(half)).toEqual(["etc"]);
  });
});
