import fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, expect, it, vi } from "vitest";
import { type BlobStore, blobDigest, type Digest, putBytes, wholeBlob } from "../../src/blobs/blob.ts";
import { DirectoryBlobs } from "../../src/blobs/directory-blobs.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

const DAY_MS = 86_400_000;
/** What the store asks of the file system while it looks, renews, removes and stores. */
const CALLS = ["lstatSync", "fstatSync", "utimesSync", "renameSync", "linkSync", "unlinkSync", "openSync"] as const;

afterEach(() => void vi.restoreAllMocks());

/** Before the call with this number, and again before the one with the next number, something else happens. */
function interleaved(at: readonly { readonly call: number; readonly act: () => void }[]): void {
  let [count, isInside] = [0, false];
  for (const name of CALLS) {
    const real = fs[name] as (...given: unknown[]) => unknown;
    vi.spyOn(fs, name).mockImplementation(((...given: unknown[]) => {
      if (isInside) return real(...given);
      count += 1;
      isInside = true;
      try {
        for (const { call, act } of at) if (call === count) act();
      } finally {
        isInside = false;
      }
      return real(...given);
    }) as never);
  }
}

const content = (n: number): Buffer => Buffer.from(`blob ${n}`);
const digests = [0, 1, 2].map((n) => blobDigest(content(n)));

/** All of it happens in one turn, as far as the store asks the file system itself. */
function asked(store: BlobStore, digest: Digest): { found: boolean } {
  const answer = { found: false };
  void store.has([digest]).then((found) => {
    answer.found = found.has(digest);
  });
  return answer;
}

it("keeps what a machine was told is there, and what is referred to, wherever a sweep and questions meet", async () => {
  const act = fc.record({
    call: fc.integer({ min: 1, max: 30 }),
    which: fc.nat(2),
    does: fc.constantFrom("has", "sweep"),
  });
  const schedule = fc.record({
    main: fc.constantFrom("has", "sweep", "put"),
    which: fc.nat(2),
    old: fc.subarray([0, 1, 2]),
    kept: fc.subarray([0, 1, 2]),
    acts: fc.array(act, { minLength: 1, maxLength: 4 }),
  });
  await fc.assert(
    fc.asyncProperty(schedule, async ({ main, which, old, kept, acts }) => {
      const folder = temporaryFolder();
      try {
        const store = new DirectoryBlobs(folder.path);
        for (const n of [0, 1, 2]) await putBytes(store, content(n));
        const path = (n: number): string => join(folder.path, (digests[n] ?? "").slice(0, 2), digests[n] ?? "");
        for (const n of old) fs.utimesSync(path(n), 1, 1);
        const isKept = (digest: Digest): boolean => kept.some((n) => digests[n] === digest);
        const sweep = (): void => void store.sweep({ isKept, olderThanMs: DAY_MS });
        const relied: { n: number; answer: { found: boolean } }[] = [];
        const has = (n: number): void => void relied.push({ n, answer: asked(store, digests[n] as Digest) });
        const does = (what: string, n: number): void => (what === "has" ? has(n) : sweep());
        interleaved(acts.map(({ call, which: n, does: what }) => ({ call, act: () => does(what, n) })));
        if (main === "put") {
          await store.put({ digest: digests[which] as Digest, bytes: content(which).length }, once(content(which)));
          relied.push({ n: which, answer: { found: true } });
        } else does(main, which);
        vi.restoreAllMocks();
        await new Promise((resolve) => setImmediate(resolve));
        sweep();
        const there = new Set([...kept, ...[0, 1, 2].filter((n) => !old.includes(n))]);
        for (const { n, answer } of relied) if (answer.found) there.add(n);
        for (const n of there)
          expect((await wholeBlob(store, digests[n] as Digest, 100)).equals(content(n)), `blob ${n} is gone`).toBe(
            true,
          );
        // Nothing stays for ever.
        for (const file of fs.globSync("*/*", { cwd: folder.path })) fs.utimesSync(join(folder.path, file), 1, 1);
        await store.sweep({ isKept: () => false, olderThanMs: DAY_MS });
        expect(fs.globSync("*/*", { cwd: folder.path })).toEqual([]);
      } finally {
        vi.restoreAllMocks();
        folder.remove();
      }
    }),
    { numRuns: 200 },
  );
});

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
