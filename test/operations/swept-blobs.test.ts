import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { putBytes } from "../../src/blobs/blob.ts";
import { sweepBlobs } from "../../src/operations/run-fleet.ts";
import { machinePair, NEVER } from "../blobs/machine-pair.ts";
import { plant } from "../changes/staged-folder.ts";

describe("blobs to which no fleet refers", () => {
  it("are removed after a day, and none while the queue cannot be asked", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "of the tree" });
    const { digest } = await pair.mirrored();
    const gone = await putBytes(pair.store, Buffer.from("of a fleet that has ended"));
    const attached = await putBytes(pair.store, Buffer.from("an attachment of an item that has not ended"));
    const fresh = await putBytes(pair.store, Buffer.from("of one that begins"));
    const there = async () => [...(await pair.store.has([digest, gone, attached, fresh]))];
    const age = (): void => {
      const files = fs.globSync("*/*", { cwd: pair.storeDir }).filter((file) => !file.endsWith(fresh));
      for (const file of files) fs.utimesSync(join(pair.storeDir, file), 1, 1);
    };
    age();
    await sweepBlobs({ referred: () => Promise.reject(new Error("no database")) }, pair.store, NEVER);
    expect(await there()).toEqual([digest, gone, attached, fresh]);
    age();
    await sweepBlobs(
      { referred: async () => ({ trees: [digest, "forged"], changesets: ["../x"], files: [attached, "*"] }) },
      pair.store,
      NEVER,
    );
    expect(await there()).toEqual([digest, attached, fresh]);
    await (await pair.mirrored())[Symbol.asyncDispose]();
  });
});
