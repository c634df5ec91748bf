import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { blobDigest, type Digest, putBytes } from "../../../src/blobs/blob.ts";
import { sendMounts } from "../../../src/blobs/send-mounts.ts";
import { keptBlobs } from "../../../src/changes/wire/document.ts";
import { machinePair, NEVER, told } from "../../blobs/machine-pair.ts";
import { plant } from "../staged-folder.ts";

describe("a sweep of the blob store", () => {
  it("keeps what living fleets and deliveries refer to, and removes all else", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "of the tree", "d/b": "of the tree, deeper" });
    const changes = (await pair.delivered((dir) => plant(dir, { a: "changed", new: "brought" }))) as Digest;
    const [tree] = await sendMounts([pair.mount()], { store: pair.store, signal: NEVER });
    const attached = await putBytes(pair.store, Buffer.from("attached"));
    const gone = await putBytes(pair.store, Buffer.from("of a fleet that has ended"));
    for (const file of fs.globSync("*/*", { cwd: pair.storeDir })) fs.utimesSync(join(pair.storeDir, file), 1, 1);
    const trees = [tree?.digest as Digest, blobDigest(Buffer.from("missing"))];
    const kept = await keptBlobs(pair.store, { trees, changesets: [changes], files: [attached, ...trees, changes] });
    expect(await pair.store.sweep({ isKept: (digest) => kept.has(digest), olderThanMs: 1000 })).toEqual({
      removed: 1,
      bytes: 25,
    });
    expect((await pair.store.has([gone])).size).toBe(0);
    const collected = await pair.imported(changes);
    expect(collected && told(collected)).toEqual(["modify file /data/a", "create file /data/new"]);
    const mirror = await pair.mirrors.open(trees[0] as Digest, pair.store, NEVER);
    expect(fs.readFileSync(join(mirror.path, "d/b"), "utf8")).toBe("of the tree, deeper");
    await mirror[Symbol.asyncDispose]();
  });

  it("fails if the store cannot be read, and does not keep less than it should", async () => {
    await using pair = machinePair();
    const tree = await putBytes(pair.store, Buffer.from('{"tree":1,"mode":493}\n'));
    fs.rmSync(pair.storeDir, { recursive: true });
    await expect(keptBlobs(pair.store, { trees: [tree], changesets: [] })).rejects.toThrow(
      "is no directory that can be opened",
    );
  });
});
