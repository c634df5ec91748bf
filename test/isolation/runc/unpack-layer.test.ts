import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { lstatSync, readFileSync, readlinkSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import { type Header, pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type LayerTaker, readSavedImage } from "../../../src/isolation/runc/ground/layers.ts";
import { UnfitLayer, unpackLayer } from "../../../src/isolation/runc/ground/unpack-layer.ts";

type Entry = Partial<Header> & { readonly name: string; readonly text?: string };

async function tarOf(...entries: readonly Entry[]): Promise<Buffer> {
  const archive = pack();
  for (const { text = "", ...header } of entries)
    archive.entry({ mode: 0o644, mtime: new Date(0), type: "file", ...header }, text);
  archive.finalize();
  return Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
}
const dirEntry = (name: string, more: Partial<Header> = {}): Entry => ({
  name,
  type: "directory",
  mode: 0o755,
  ...more,
});
const digestOf = (bytes: Buffer): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-layers-"));
});
afterEach(() => rm(dir, { recursive: true }));

async function unpacked(name: string, ...entries: readonly Entry[]): Promise<string> {
  const layer = await tarOf(...entries);
  const place = join(dir, name);
  await mkdir(place);
  const { sha256 } = await unpackLayer([layer], place);
  expect(`sha256:${sha256}`).toBe(digestOf(layer));
  return place;
}

/** What the kernel shows of both. */
function merged(upper: string, lower: string): string[] {
  const script = 'mount -t overlay -o "lowerdir=$0:$1" none /mnt && cd /mnt && find . -mindepth 1 | sort';
  return execFileSync("unshare", ["--mount", "sh", "-c", script, upper, lower], { encoding: "utf8" })
    .trim()
    .split("\n");
}

describe.skipIf(process.getuid?.() !== 0)("a layer of an image", () => {
  it("is on the disk as it was made: owners, modes, links, times, pipes and long names", async () => {
    const long = `${"d".repeat(80)}/${"n".repeat(90)}`;
    const at = await unpacked(
      "all",
      dirEntry("./", { mode: 0o750 }),
      dirEntry("a/", { mode: 0o1777, mtime: new Date(5000) }),
      { name: "a/*", text: "star", pax: { uid: "4000000000", gid: "300000" }, mode: 0o4755 },
      { name: "a/shut", text: "shut", mode: 0o10000 },
      { name: "a/hard", type: "link", linkname: "./a/shut" },
      { name: "a/soft", type: "symlink", linkname: "/etc/../passwd" },
      { name: "a/pipe", type: "fifo" },
      { name: "/a/été", text: "é" },
      dirEntry(`${"d".repeat(80)}/`),
      { name: long, text: "long" },
    );
    const of = (path: string) => lstatSync(join(at, path));
    expect(lstatSync(at).mode & 0o7777).toBe(0o750);
    expect([of("a").mode & 0o7777, of("a").mtimeMs]).toEqual([0o1777, 5000]);
    expect([of("a/*").uid, of("a/*").gid, of("a/*").mode & 0o7777]).toEqual([4_000_000_000, 300_000, 0o4755]);
    expect([of("a/shut").mode & 0o7777, of("a/shut").nlink, of("a/hard").ino]).toEqual([0, 2, of("a/shut").ino]);
    expect(readlinkSync(join(at, "a/soft"))).toBe("/etc/../passwd");
    expect(of("a/pipe").isFIFO()).toBe(true);
    expect(["a/été", long].map((path) => readFileSync(join(at, path), "utf8"))).toEqual(["é", "long"]);
  });

  it("hides of lower ones what it deleted, and all of a directory that it replaced", async () => {
    const files = ["a/kept", "a/gone", "b/one", "b/two/three", "c/d", "e/f"].map((name) => ({ name, text: name }));
    const lower = await unpacked("lower", ...["a", "b", "b/two", "c", "e"].map((name) => dirEntry(name)), ...files);
    const upper = await unpacked(
      "upper",
      dirEntry("a"),
      { name: "a/.wh.gone" },
      { name: "a/.wh..wh.plnk" },
      dirEntry("b", { mode: 0o700 }),
      { name: "b/new", text: "new" },
      { name: "b/.wh..wh..opq" },
      { name: ".wh.c" },
      { name: ".wh.e" },
      dirEntry("e"),
    );
    expect(merged(upper, lower)).toEqual(["./a", "./a/kept", "./b", "./b/new", "./e"]);
    expect(lstatSync(join(upper, "b")).mode & 0o7777).toBe(0o700);
  });

  it("keeps the capabilities of files, and no attribute that means something to an overlay", async () => {
    // Effective and permitted: NET_RAW, in the form of version 2.
    const capability = "\u0001\0\0\u0002\0 \0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const at = await unpacked(
      "attributes",
      { name: "ping", text: "ping", pax: { "SCHILY.xattr.security.capability": capability } },
      dirEntry("d", { pax: { "SCHILY.xattr.trusted.overlay.redirect": "/etc" } }),
    );
    const back = execFileSync("tar", ["--xattrs", "--xattrs-include=*", "-cf", "-", "ping", "d"], {
      cwd: at,
      encoding: "latin1",
    });
    expect(back).toContain(`SCHILY.xattr.security.capability=${capability}`);
    expect(back).not.toContain("trusted.overlay");
  });

  it.each<[string, string, readonly Entry[]]>([
    ["a device", "a device", [{ name: "disk", type: "block-device", devmajor: 8, devminor: 0 }]],
    [
      "a device that would hide a file",
      "a device",
      [{ name: "x", type: "character-device", devmajor: 0, devminor: 0 }],
    ],
    ["a name that leads upwards", "leads upwards", [{ name: "a/../../x", text: "x" }]],
    ["a deleted file above it", "leads upwards", [{ name: ".wh..." }, { name: "a/.wh.../x" }]],
    ["a hard link that leads upwards", "leads upwards", [{ name: "x", type: "link", linkname: "../../etc/passwd" }]],
    ["a hard link to nothing", "hard link", [{ name: "x", type: "link", linkname: "etc/passwd" }]],
    [
      "a file below a link",
      "no directory",
      [
        { name: "l", type: "symlink", linkname: "/tmp" },
        { name: "l/x", text: "x" },
      ],
    ],
    [
      "a hard link by a link",
      "hard link",
      [
        { name: "l", type: "symlink", linkname: "/etc" },
        { name: "x", type: "link", linkname: "l/passwd" },
      ],
    ],
    [
      "a deleted file below a link",
      "no directory",
      [{ name: "l/.wh.x" }, { name: "l", type: "symlink", linkname: "/tmp" }],
    ],
    ["a sparse file", "sparse", [{ name: "x", text: "1\n0\n1\n", pax: { "GNU.sparse.major": "1" } }]],
    ["a replaced root", "replaces all", [{ name: ".wh..wh..opq" }]],
  ])("with %s is unfit, and nothing is written outside", async (_, reason, entries) => {
    const outside = join(dir, "outside");
    await writeFile(outside, "");
    const place = join(dir, "place");
    await mkdir(place);
    const refused = await unpackLayer([await tarOf(...entries)], place).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(UnfitLayer);
    expect((refused as UnfitLayer).message).toContain(reason);
    expect((refused as UnfitLayer).message).not.toContain(dir);
    expect(readFileSync(outside, "utf8")).toBe("");
  });

  it("with names or attributes longer than any is not unpacked", async () => {
    const place = join(dir, "place");
    await mkdir(place);
    const named = await tarOf({ name: `a/${"n".repeat(5000)}` });
    await expect(unpackLayer([named], place)).rejects.toThrow("a name that is too long");
    const noted = await tarOf({ name: "a", pax: { "SCHILY.xattr.user.x": "v".repeat(70_000) } });
    await expect(unpackLayer([noted], place)).rejects.toThrow("attributes that are too long");
  });

  it("that breaks off, or is no archive, is not unpacked", async () => {
    const layer = await tarOf({ name: "a", text: "x".repeat(100_000) });
    const place = join(dir, "place");
    await mkdir(place);
    for (const wrong of [layer.subarray(0, 5000), Buffer.alloc(2048, 7)])
      await expect(unpackLayer([wrong], place)).rejects.toThrow();
    const broken = (async function* () {
      yield layer.subarray(0, 5000);
      throw new Error("the connection broke");
    })();
    await expect(unpackLayer(broken, place)).rejects.toThrow("the connection broke");
  });
});

describe("a saved image", () => {
  /** As Docker saves it since version 25, here with one layer compressed, for two kinds of machines. */
  async function ociLayout(change: (config: { rootfs: { diff_ids: string[] } }) => void = () => {}) {
    const layers = await Promise.all(["one", "two"].map((name) => tarOf({ name, text: name })));
    const blobs = new Map<string, Buffer>();
    const blob = (bytes: Buffer): string => {
      blobs.set(digestOf(bytes), bytes);
      return digestOf(bytes);
    };
    const json = (value: unknown): string => blob(Buffer.from(JSON.stringify(value)));
    const [first, second] = layers as [Buffer, Buffer];
    const digests = [blob(first), blob(gzipSync(second))].map((digest) => ({ digest }));
    const config = { architecture: "amd64", rootfs: { type: "layers", diff_ids: layers.map(digestOf) } };
    change(config);
    const manifest = json({ schemaVersion: 2, config: { digest: json(config) }, layers: digests });
    const absent = { digest: digestOf(Buffer.from("absent")) };
    const index = json({ schemaVersion: 2, manifests: [absent, { digest: manifest }] });
    const files = [...blobs].map(([digest, bytes]) => ({ name: `blobs/sha256/${digest.slice(7)}`, bytes }));
    const others = [
      { name: "index.json", bytes: Buffer.from(JSON.stringify({ manifests: [{ digest: index }] })) },
      { name: "oci-layout", bytes: Buffer.from("{}") },
    ];
    const archive = pack();
    for (const { name, bytes } of [...files, ...others]) archive.entry({ name }, bytes);
    archive.finalize();
    const bytes = Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
    return { index, manifest, layers: layers.map(digestOf), archive: bytes };
  }

  async function taken(archive: Buffer, id: string, expected: readonly string[], has: readonly string[] = []) {
    const found: string[] = [];
    const taker: LayerTaker = {
      has: (name) => has.includes(name),
      take: async (_, layer) => {
        found.push(digestOf(Buffer.concat(await Array.fromAsync(layer))));
      },
    };
    await readSavedImage(Readable.from([archive]), { id, expected }, taker);
    return found;
  }

  it("gives its layers uncompressed, if its id is that of an index or of a manifest", async () => {
    const { index, manifest, layers, archive } = await ociLayout();
    expect(await taken(archive, index, layers)).toEqual(layers);
    expect(await taken(archive, manifest, layers)).toEqual(layers);
  });

  it("that breaks off, or is damaged, within a compressed layer ends nothing but its reading", async () => {
    const { index, layers, archive } = await ociLayout();
    const zipped = archive.indexOf(Buffer.from("1f8b", "hex"));
    const damaged = Buffer.from(archive);
    damaged.fill(0xff, zipped + 20, zipped + 60);
    await expect(taken(damaged, index, layers)).rejects.toThrow();
    const cut = Readable.from(
      (async function* () {
        yield archive.subarray(0, zipped + 40);
        throw new Error("the connection broke");
      })(),
    );
    const taker: LayerTaker = { has: () => false, take: async (_, layer) => void (await Array.fromAsync(layer)) };
    await expect(readSavedImage(cut, { id: index, expected: layers }, taker)).rejects.toThrow("the connection broke");
    // Closed before it is read, as by a process that ends: it says so no more.
    const closed = Readable.from([archive]).destroy();
    await once(closed, "close");
    await expect(readSavedImage(closed, { id: index, expected: layers }, taker)).rejects.toThrow(
      "the Engine broke off",
    );
  });

  it("that names itself a thousand times over is looked through once", async () => {
    const archive = pack();
    let below = digestOf(Buffer.from("absent"));
    for (let depth = 0; depth < 4; depth += 1) {
      const bytes = Buffer.from(JSON.stringify({ manifests: Array.from({ length: 1000 }, () => ({ digest: below })) }));
      archive.entry({ name: `blobs/sha256/${digestOf(bytes).slice(7)}` }, bytes);
      below = digestOf(bytes);
    }
    archive.finalize();
    const bytes = Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
    await expect(taken(bytes, below, ["x"])).rejects.toThrow("is not the image of this id");
  });

  it("does not read the layers that are there", async () => {
    const { index, layers, archive } = await ociLayout();
    const [first = ""] = layers;
    expect(await taken(archive, index, layers, [`blobs/sha256/${first.slice(7)}`])).toEqual(layers.slice(1));
  });

  it("is refused if its configuration names other layers than the Engine, or is not that of the id", async () => {
    const { index, layers } = await ociLayout();
    const other = await ociLayout(({ rootfs }) => rootfs.diff_ids.reverse());
    await expect(taken(other.archive, other.index, layers)).rejects.toThrow("is not the image of this id");
    await expect(taken(other.archive, index, layers)).rejects.toThrow("is not the image of this id");
  });
});
