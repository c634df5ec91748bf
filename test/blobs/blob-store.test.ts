import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  type BlobRefused,
  type BlobStore,
  blobDigest,
  type Content,
  type Digest,
  putBytes,
  wholeBlob,
} from "../../src/blobs/blob.ts";
import { openDirectoryBlobs } from "../../src/blobs/directory-blobs.ts";
import type { PostgresStore } from "../../src/fleet/postgres/postgres-store.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";
import { isSqlite } from "../fleet/journal/store-kind.ts";
import { postgresFixture } from "../fleet/postgres/postgres-fixture.ts";

interface Opened extends AsyncDisposable {
  readonly store: BlobStore;
  /** Makes all blobs look as if they were last used long ago. */
  age(): Promise<void>;
  digests(): Promise<string[]>;
}

const postgres = postgresFixture();
let queue: Promise<PostgresStore> | null = null;
afterAll(async () => await (await queue)?.[Symbol.asyncDispose]());

async function inDatabase(): Promise<Opened> {
  queue ??= postgres.open();
  const { work } = await queue;
  await postgres.query("DELETE FROM corral.blobs");
  return {
    store: await work.blobs(),
    age: async () => void (await postgres.query("UPDATE corral.blobs SET used_at = now() - interval '3 days'")),
    digests: async () =>
      (await postgres.query<{ digest: string }>("SELECT digest FROM corral.blobs")).map(({ digest }) => digest),
    [Symbol.asyncDispose]: async () => {},
  };
}

async function inDirectory(): Promise<Opened> {
  const folder = temporaryFolder();
  const files = (): string[] => fs.globSync("*/*", { cwd: folder.path });
  return {
    store: await openDirectoryBlobs(folder.path),
    age: async () => {
      for (const file of files()) fs.utimesSync(join(folder.path, file), 1, 1);
    },
    digests: async () => files().map((file) => file.slice(3)),
    [Symbol.asyncDispose]: async () => folder.remove(),
  };
}

async function* pieces(...all: readonly (string | Uint8Array)[]): Content {
  for (const one of all) yield Buffer.from(one as string);
}

const refusedAs = (code: BlobRefused["code"]) => expect.objectContaining({ name: "BlobRefused", code });
const HELLO = blobDigest(Buffer.from("hello"));
const OTHER = blobDigest(Buffer.from("other"));

const [where, open] = isSqlite ? (["a directory", inDirectory] as const) : (["PostgreSQL", inDatabase] as const);

describe(`blobs in ${where}`, () => {
  it("are read as they were stored, whatever their size", { timeout: 60_000 }, async () => {
    await using opened = await open();
    for (const content of [Buffer.alloc(0), Buffer.from("hello"), Buffer.alloc(300_000), randomBytes(5_000_001)]) {
      const digest = await putBytes(opened.store, content);
      expect((await wholeBlob(opened.store, digest, content.length)).equals(content)).toBe(true);
      await putBytes(opened.store, content);
    }
    expect((await opened.store.has([HELLO, OTHER])).has(OTHER)).toBe(false);
    expect(await opened.store.has([HELLO, OTHER])).toEqual(new Set([HELLO]));
  });

  it("are stored once, by however many at the same time", async () => {
    await using opened = await open();
    const blob = { digest: HELLO, bytes: 5 };
    await Promise.all(Array.from({ length: 8 }, () => opened.store.put(blob, pieces("he", "llo"))));
    expect(await opened.digests()).toEqual([HELLO]);
  });

  it("are refused, and leave nothing, if the content is not what was said", async () => {
    await using opened = await open();
    const { store } = opened;
    await expect(store.put({ digest: HELLO, bytes: 5 }, pieces("hullo"))).rejects.toEqual(refusedAs("mismatch"));
    await expect(store.put({ digest: HELLO, bytes: 4 }, pieces("hello"))).rejects.toEqual(refusedAs("mismatch"));
    await expect(store.put({ digest: HELLO, bytes: 6 }, pieces("hello"))).rejects.toEqual(refusedAs("mismatch"));
    await expect(store.put({ digest: HELLO, bytes: store.maxBytes + 1 }, pieces("x"))).rejects.toEqual(
      refusedAs("too_large"),
    );
    expect(await opened.digests()).toEqual([]);
    await expect(wholeBlob(store, HELLO, 10)).rejects.toEqual(refusedAs("missing"));
  });

  it("are not read beyond what the reader allows", async () => {
    await using opened = await open();
    await putBytes(opened.store, Buffer.from("hello"));
    await expect(wholeBlob(opened.store, HELLO, 4)).rejects.toEqual(refusedAs("too_large"));
  });

  it("are swept if they are old and nothing refers to them", async () => {
    await using opened = await open();
    await putBytes(opened.store, Buffer.from("hello"));
    await putBytes(opened.store, Buffer.from("other"));
    const sweep = async (...kept: Digest[]) =>
      await opened.store.sweep({ isKept: (digest) => kept.includes(digest), olderThanMs: 86_400_000 });
    // Just stored: what refers to them is still on its way.
    expect(await sweep()).toEqual({ removed: 0, bytes: 0 });
    await opened.age();
    expect(await sweep(OTHER)).toEqual({ removed: 1, bytes: 5 });
    expect(await opened.digests()).toEqual([OTHER]);
    // A machine that finds it there does not store it again, and relies on it.
    await opened.store.has([OTHER]);
    expect(await sweep()).toEqual({ removed: 0, bytes: 0 });
    await opened.age();
    expect(await sweep()).toEqual({ removed: 1, bytes: 5 });
  });
});

describe.skipIf(isSqlite)("blobs in PostgreSQL", () => {
  it("are refused by the database itself if a machine lies about them", { timeout: 60_000 }, async () => {
    await using opened = await inDatabase();
    const insert = postgres.query("SELECT corral.blob_put($1, $2)", [HELLO, Buffer.from("hullo")]);
    await expect(insert).rejects.toThrow(/check constraint/);
    expect(await opened.digests()).toEqual([]);
  });
});

describe.runIf(isSqlite)("blobs in a directory", () => {
  it("have the permission bits of the directory, whatever the umask", async () => {
    const folder = temporaryFolder();
    fs.chmodSync(folder.path, 0o2770);
    const umask = process.umask(0o077);
    try {
      const digest = await putBytes(await openDirectoryBlobs(folder.path), Buffer.from("hello"));
      const mode = (path: string) => (fs.statSync(join(folder.path, path)).mode & 0o7777).toString(8);
      expect([mode(digest.slice(0, 2)), mode(`${digest.slice(0, 2)}/${digest}`)]).toEqual(["2770", "440"]);
    } finally {
      process.umask(umask);
      folder.remove();
    }
  });

  it("are found through a link that leads to the directory, and nowhere if it is missing", async () => {
    const folder = temporaryFolder();
    try {
      fs.mkdirSync(join(folder.path, "store"));
      fs.symlinkSync("store", join(folder.path, "link"));
      await putBytes(await openDirectoryBlobs(join(folder.path, "link")), Buffer.from("hello"));
      expect(fs.globSync("store/*/*", { cwd: folder.path })).toHaveLength(1);
      fs.writeFileSync(join(folder.path, "file"), "");
      for (const name of ["missing", "file"])
        await expect(openDirectoryBlobs(join(folder.path, name))).rejects.toThrow("is no directory that can be opened");
    } finally {
      folder.remove();
    }
  });
});
