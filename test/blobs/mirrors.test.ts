import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type BlobStore, blobDigest, type Digest, putBytes } from "../../src/blobs/blob.ts";
import { formatManifest } from "../../src/blobs/manifest.ts";
import { Mirrors } from "../../src/blobs/mirrors.ts";
import { readTree, sendTree } from "../../src/blobs/send-mounts.ts";
import { CELL_USER, lendings } from "../../src/changes/view/lending.ts";
import { loadPolicy } from "../../src/declarations/policy/policy.ts";
import { isRoot } from "../../src/files/host/descriptor.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { lockOwner } from "../../src/state/owner.ts";
import { byteTree } from "../changes/scan/byte-tree.ts";
import { plant } from "../changes/staged-folder.ts";
import { type MachinePair, machinePair, NEVER } from "./machine-pair.ts";

/** Digests of directories with one file of ten bytes each. */
async function sent(pair: MachinePair, ...texts: readonly string[]): Promise<Digest[]> {
  const digests: Digest[] = [];
  for (const text of texts) {
    const host = join(pair.path, `tree-${text}`);
    plant(host, { file: text.padEnd(10, ".") });
    const mount = pair.mount({ host });
    digests.push(await sendTree((await readTree({ mount, mounts: [] })).tree, { mount, store: pair.store }));
  }
  return digests;
}

/** What an entry counts for beside its content. */
const ENTRY = 4096;

const kept = (pair: MachinePair): string[] =>
  fs.readdirSync(pair.mirrorsDir).filter((name) => /^[0-9a-f]{64}$/.test(name));

describe("mirrors", () => {
  it("are made once, by however many at the same time", async () => {
    await using pair = machinePair();
    const [digest] = (await sent(pair, "a")) as [Digest];
    let read = 0;
    const store: BlobStore = new Proxy(pair.store, {
      get: (target, name: keyof BlobStore) => {
        if (name === "get") read += 1;
        const value = target[name];
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const others = new Mirrors({ dir: pair.mirrorsDir, owner: lockOwner() });
    const opened = await Promise.all([pair.mirrors, others, pair.mirrors].map((one) => one.open(digest, store, NEVER)));
    expect(new Set(opened.map(({ path }) => path)).size).toBe(1);
    // The manifest each time, the file once.
    expect(read).toBe(4);
    for (const one of opened) await one[Symbol.asyncDispose]();
    expect(fs.readdirSync(pair.mirrorsDir)).toEqual([digest]);
  });

  it.runIf(isRoot())(
    "belong to the user of cells if one is named, so that no view is a copy for each item",
    async () => {
      await using pair = machinePair();
      plant(pair.home, { "sub/file": "a", secret: "b" });
      fs.chmodSync(join(pair.home, "secret"), 0o600);
      fs.symlinkSync("nowhere", join(pair.home, "link"));
      const own = pair.mount();
      const digest = await sendTree((await readTree({ mount: own, mounts: [own] })).tree, {
        mount: own,
        store: pair.store,
      });
      const mirrorsOf = (user?: typeof CELL_USER): Mirrors =>
        new Mirrors({
          dir: join(pair.mirrorsDir, user === undefined ? "own" : "lent"),
          owner: lockOwner(),
          ...(user && { user }),
        });
      const policy = await loadPolicy("untrusted", { dirs: [] });
      const lentOf = async (mirrors: Mirrors): Promise<VirtualPath[]> => {
        await using mirror = await mirrors.open(digest, pair.store, NEVER);
        const mounts = (["ro", "rw"] as const).map((mode) => ({
          ...own,
          mode,
          host: mirror.path,
          stage: true as const,
        }));
        return mounts.flatMap((mount) => [...lendings({ mounts: [mount], policy: policy }, () => false).keys()]);
      };
      expect(await lentOf(mirrorsOf())).toHaveLength(2);
      expect(await lentOf(mirrorsOf(CELL_USER))).toEqual([]);
      const tree = join(pair.mirrorsDir, "lent", digest, "tree");
      for (const name of ["", "sub", "sub/file", "secret", "link"])
        expect(fs.lstatSync(join(tree, name))).toMatchObject(CELL_USER);
      expect(fs.statSync(join(tree, "secret")).mode & 0o777).toBe(0o600);
    },
  );

  it("are made again if something in them was changed, even if it looks the same", async () => {
    await using pair = machinePair();
    const [digest] = (await sent(pair, "a")) as [Digest];
    const changes: ((path: string) => void)[] = [
      (path) => fs.writeFileSync(join(path, "file"), "aaaaaaaaaa"),
      (path) => fs.chmodSync(join(path, "file"), 0o777),
      (path) => fs.writeFileSync(join(path, "more"), ""),
      (path) => {
        const { atime, mtime } = fs.statSync(join(path, "file"));
        fs.writeFileSync(join(path, "file"), "b.........");
        fs.utimesSync(join(path, "file"), atime, mtime);
      },
      (path) => fs.rmSync(join(path, "file")),
      (path) => fs.writeFileSync(join(path, "../record.json"), "{}"),
    ];
    for (const change of changes) {
      const before = await pair.mirrors.open(digest, pair.store, NEVER);
      expect(Object.fromEntries(byteTree(before.path))).toEqual({ file: "file 644 a........." });
      await before[Symbol.asyncDispose]();
      change(before.path);
    }
    await using last = await pair.mirrors.open(digest, pair.store, NEVER);
    expect(Object.fromEntries(byteTree(last.path))).toEqual({ file: "file 644 a........." });
    fs.writeFileSync(join(last.path, "file"), "changed");
    await expect(pair.mirrors.open(digest, pair.store, NEVER)).rejects.toThrow(
      "was changed, and other processes use it",
    );
  });

  it("take files from each other, if the store has them too and they are what they were", async () => {
    await using pair = machinePair();
    const numbers = Array.from({ length: 5 }, (_, n) => n);
    for (const n of numbers) plant(pair.home, { [`sub/${n}`]: `content ${n}` });
    const before = await pair.mirrored();
    // One file of the first mirror is changed, one is gone, and the store has lost one.
    fs.writeFileSync(join(before.path, "sub/0"), "forged   ");
    fs.rmSync(join(before.path, "sub/1"));
    const lost = blobDigest(Buffer.from("content 2"));
    plant(pair.home, { new: "new", empty: "" });
    const own = pair.mount();
    const { tree } = await readTree({ mount: own, mounts: [own] });
    const digest = await sendTree(tree, { mount: own, store: pair.store });
    const got: string[] = [];
    const store: BlobStore = {
      ...pair.store,
      maxBytes: pair.store.maxBytes,
      has: async (asked) => new Set([...(await pair.store.has(asked))].filter((one) => one !== lost)),
      get: (asked, ...more) => {
        got.push(asked);
        return pair.store.get(asked, ...more);
      },
    };
    await using after = await pair.mirrors.open(digest, store, NEVER);
    expect(Object.fromEntries(byteTree(after.path))).toEqual(Object.fromEntries(byteTree(pair.home)));
    const fetched = ["content 0", "content 1", "content 2", "new"].map((text) => blobDigest(Buffer.from(text)));
    expect(got.filter((asked) => asked !== digest && asked !== before.digest).toSorted()).toEqual(fetched.toSorted());
  });

  it("are made as a whole if no manifest of another one is there", async () => {
    await using pair = machinePair();
    const [a, b] = (await sent(pair, "a", "b")) as [Digest, Digest];
    await (await pair.mirrors.open(a, pair.store, NEVER))[Symbol.asyncDispose]();
    fs.rmSync(join(pair.storeDir, a.slice(0, 2), a));
    await using mirror = await pair.mirrors.open(b, pair.store, NEVER);
    expect(Object.fromEntries(byteTree(mirror.path))).toEqual({ file: "file 644 b........." });
  });

  it("that are used least recently make room, unless a process uses them", async () => {
    await using pair = machinePair();
    const [a, b, c, d] = (await sent(pair, "a", "b", "c", "d")) as [Digest, Digest, Digest, Digest];
    const small = new Mirrors({ dir: pair.mirrorsDir, owner: lockOwner(), maxBytes: 25 + 2 * ENTRY });
    const open = async (digest: Digest) => await small.open(digest, pair.store, NEVER);
    const used = await open(a);
    await (await open(b))[Symbol.asyncDispose]();
    await (await open(c))[Symbol.asyncDispose]();
    expect(kept(pair).sort()).toEqual([a, c].sort());
    await using _ = await open(d);
    expect(kept(pair).sort()).toEqual([a, d].sort());
    await expect(open(b)).rejects.toThrow("mirrors that are in use have 8212 bytes of 8217 bytes");
    await used[Symbol.asyncDispose]();
    await using __ = await open(b);
    expect(kept(pair).sort()).toEqual([b, d].sort());
  });

  it("that processes left unfinished, or still used when they died, are removed", async () => {
    await using pair = machinePair();
    const [a, b] = (await sent(pair, "a", "b")) as [Digest, Digest];
    const small = new Mirrors({
      dir: pair.mirrorsDir,
      owner: { ...lockOwner(), isDead: () => true },
      maxBytes: 15 + ENTRY,
    });
    await small.open(a, pair.store, NEVER);
    fs.mkdirSync(join(pair.mirrorsDir, `${b}.new/tree`), { recursive: true });
    fs.writeFileSync(join(pair.mirrorsDir, `${b}.new/tree/file`), "half");
    await small.sweep();
    expect(fs.existsSync(join(pair.mirrorsDir, `${b}.new`))).toBe(false);
    expect(fs.readdirSync(pair.mirrorsDir).filter((name) => name.includes(".use-"))).toEqual([]);
    await using mirror = await small.open(b, pair.store, NEVER);
    expect(fs.readFileSync(join(mirror.path, "file"), "utf8")).toBe("b.........");
    expect(kept(pair)).toEqual([b]);
  });

  it("make room too if nothing in them has content, and are no more entries than fit", async () => {
    await using pair = machinePair();
    const small = new Mirrors({ dir: pair.mirrorsDir, owner: lockOwner(), maxBytes: 5 * ENTRY });
    const empty = async (name: string, folders: number) => {
      const entries = Array.from({ length: folders }, (_, at) => {
        return { path: `${name}${at}`, mode: 0o755, type: "directory" as const };
      });
      const digest = await putBytes(pair.store, formatManifest({ rootMode: 0o755, entries, bytes: 0 }));
      await (await small.open(digest, pair.store, NEVER))[Symbol.asyncDispose]();
      return digest;
    };
    await empty("a", 3);
    const last = await empty("b", 3);
    expect(kept(pair)).toEqual([last]);
    await expect(empty("c", 6)).rejects.toThrow("a directory of 24 KiB does not fit: mirrors may have 20 KiB");
  });

  it("are not made of more than the limit, before anything is written", async () => {
    await using pair = machinePair();
    const [a] = (await sent(pair, "a")) as [Digest];
    const small = new Mirrors({ dir: pair.mirrorsDir, owner: lockOwner(), maxBytes: 5 });
    await expect(small.open(a, pair.store, NEVER)).rejects.toThrow(
      "does not fit: mirrors may have 5 bytes on this machine",
    );
    expect(fs.readdirSync(pair.mirrorsDir)).toEqual([]);
  });
});
