import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type BlobStore, blobDigest, type Digest, putBytes, wholeBlob } from "../../../src/blobs/blob.ts";
import { PostgresBlobs } from "../../../src/blobs/postgres-blobs.ts";
import { machinePair } from "../../blobs/machine-pair.ts";
import { byteTree } from "../../changes/scan/byte-tree.ts";
import { plant } from "../../changes/staged-folder.ts";

const CANARY = "CANARY: nobody may read or change this";

/** What another machine puts in the place of a blob in the shared directory. */
const SWAPS: Readonly<Record<string, (path: string, outside: string) => void>> = {
  "other content of the same size": (path) => replaced(path, () => fs.writeFileSync(path, "HELLO")),
  "a shorter file": (path) => replaced(path, () => fs.writeFileSync(path, "he")),
  "an empty file": (path) => replaced(path, () => fs.writeFileSync(path, "")),
  "a longer file": (path) => replaced(path, () => fs.writeFileSync(path, "hello and more")),
  "a huge sparse file": (path) => replaced(path, () => execFileSync("truncate", ["-s", "3T", path])),
  "a link to a file that others may not read": (path, outside) => replaced(path, () => fs.symlinkSync(outside, path)),
  "a FIFO": (path) => replaced(path, () => execFileSync("mkfifo", [path])),
  "a device": (path) => replaced(path, () => execFileSync("mknod", [path, "c", "1", "5"])),
  "a directory": (path) => replaced(path, () => fs.mkdirSync(path)),
  nothing: (path) => fs.rmSync(path),
};

function replaced(path: string, by: () => void): void {
  fs.rmSync(path);
  by();
}

describe("a database that answers what no database would", () => {
  const piece = Buffer.alloc(5 * 1024 ** 2);
  it.each<[string, unknown]>([
    ["more than was asked for", { bytes: 1, piece }],
    ["a size that is a list", { bytes: [1], piece: Buffer.alloc(1) }],
    ["a size that is a text", { bytes: "1", piece: Buffer.alloc(1) }],
    ["no number for a size", { bytes: Number.NaN, piece: Buffer.alloc(1) }],
    ["a text for content", { bytes: 1, piece: "a" }],
    ["nothing for content", { bytes: 1, piece: null }],
  ])("is refused at its first piece if it is %s", async (_, answer) => {
    const blobs = new PostgresBlobs({ query: async <Row>() => [answer as Row] });
    const digest = blobDigest(Buffer.from("a"));
    await expect(wholeBlob(blobs, digest, 1024 ** 2)).rejects.toThrow("with what is no piece of a blob");
  });
});

describe("a shared directory that a hostile machine writes to", () => {
  it.each(Object.keys(SWAPS))(
    "gives no content for a blob that became %s, and does not hang",
    { timeout: 20_000 },
    async (what) => {
      await using pair = machinePair();
      const digest = await putBytes(pair.store, Buffer.from("hello"));
      const outside = join(pair.path, "outside");
      fs.writeFileSync(outside, CANARY);
      SWAPS[what]?.(join(pair.storeDir, digest.slice(0, 2), digest), outside);
      await expect(wholeBlob(pair.store, digest, 100)).rejects.toThrow(/^blob [0-9a-f]{12} is refused: /);
      expect(fs.readFileSync(outside, "utf8")).toBe(CANARY);
    },
  );

  it("leads nothing elsewhere through the folder of a blob", async () => {
    await using pair = machinePair();
    const digest = await putBytes(pair.store, Buffer.from("hello"));
    const folder = join(pair.storeDir, digest.slice(0, 2));
    const outside = join(pair.path, "outside");
    fs.renameSync(folder, outside);
    fs.symlinkSync(outside, folder);
    await expect(wholeBlob(pair.store, digest, 100)).rejects.toThrow("the blob store does not have it");
    expect((await pair.store.has([digest])).size).toBe(0);
    await expect(putBytes(pair.store, Buffer.from("hello"))).rejects.toThrow();
    await pair.store.sweep({ isKept: () => false, olderThanMs: -1000 });
    expect(fs.readdirSync(outside)).toEqual([digest]);
  });

  it("changes no file at home if a blob is changed after it was delivered", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "1" });
    const digest = (await pair.delivered((dir) => plant(dir, { a: "changed", b: "new" }))) as Digest;
    const was = byteTree(pair.home);
    const blobs = fs.globSync("*/*", { cwd: pair.storeDir }).filter((one) => !one.endsWith(digest));
    for (const one of blobs) fs.chmodSync(join(pair.storeDir, one), 0o600);
    for (const one of blobs) fs.writeFileSync(join(pair.storeDir, one), "other!!");
    await expect(pair.imported(digest)).rejects.toThrow(/is refused: /);
    expect(byteTree(pair.home)).toEqual(was);
    expect(fs.readdirSync(pair.path).filter((name) => name.startsWith("imported"))).toEqual([]);
  });

  it("makes no mirror if a blob of a tree was changed, and leaves nothing of it", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "secret", "d/b": "text" });
    const { digest } = await pair.mirrored();
    await pair.mirrors.sweep();
    fs.rmSync(join(pair.mirrorsDir, digest), { recursive: true });
    const blob = fs
      .globSync("*/*", { cwd: pair.storeDir })
      .find((one) => fs.readFileSync(join(pair.storeDir, one), "utf8") === "text");
    fs.chmodSync(join(pair.storeDir, blob ?? ""), 0o600);
    fs.writeFileSync(join(pair.storeDir, blob ?? ""), "TEXT");
    await expect(pair.mirrors.open(digest, pair.store, new AbortController().signal)).rejects.toThrow(
      "does not match its digest",
    );
    expect(fs.readdirSync(pair.mirrorsDir).filter((name) => !/use-|ticket/.test(name))).toEqual([]);
  });

  it("that changes while changes are fetched leads nothing elsewhere, and overwrites nothing", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "1", "d/b": "2", "e/c": "3" });
    const digest = (await pair.delivered((dir) =>
      plant(dir, { a: "ours", "d/b": "ours", "e/c": "ours", "d/new": "n" }),
    )) as Digest;
    const outside = join(pair.path, "outside");
    plant(outside, { b: CANARY, c: "3" });
    let fetched = 0;
    const store: BlobStore = {
      maxBytes: pair.store.maxBytes,
      has: (digests) => pair.store.has(digests),
      put: (blob, content, signal) => pair.store.put(blob, content, signal),
      flush: () => pair.store.flush(),
      sweep: (sweep) => pair.store.sweep(sweep),
      get: (one, maxBytes, signal) => {
        fetched += 1;
        // The list was read and judged: now its first content is asked for.
        if (fetched === 2) {
          fs.writeFileSync(join(pair.home, "a"), "9");
          for (const name of ["d", "e"]) fs.rmSync(join(pair.home, name), { recursive: true });
          fs.symlinkSync(outside, join(pair.home, "d"));
          plant(pair.home, { "e/c": "3" });
        }
        return pair.store.get(one, maxBytes, signal);
      },
    };
    const collected = await pair.imported(digest, { store });
    if (collected === null) throw new Error("nothing was changed");
    const settled = await pair.apply(collected);
    expect(Object.fromEntries(settled.map(({ change: { path }, outcome }) => [path, outcome]))).toEqual({
      "/data/a": "conflict",
      "/data/d/b": "refused",
      "/data/d/new": "refused",
      "/data/e/c": "conflict",
    });
    expect(Object.fromEntries(byteTree(outside))).toEqual({ b: `file 644 ${CANARY}`, c: "file 644 3" });
    expect(fs.readFileSync(join(pair.home, "e/c"), "utf8")).toBe("3");
  });
});
