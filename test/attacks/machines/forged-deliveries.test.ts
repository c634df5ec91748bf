import { randomBytes } from "node:crypto";
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { type BlobStore, blobDigest, putBytes } from "../../../src/blobs/blob.ts";
import { openDirectoryBlobs } from "../../../src/blobs/directory-blobs.ts";
import { sendMounts } from "../../../src/blobs/send-mounts.ts";
import { startFleet } from "../../../src/fleet/fleet.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { settlingDelivered } from "../../../src/fleet/running/begun-effects.ts";
import { unrunResult } from "../../../src/fleet/running/item-result.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import { byteTree } from "../../changes/scan/byte-tree.ts";
import { requests, SPEC, whole } from "../../fleet/fleet-fixture.ts";
import { memoryEngine } from "../../run/memory-engine.ts";
import { openProject, type ProjectFixture } from "../../run/project-fixture.ts";

const NEW = "new text";
const OUT = { zones: [{ name: "data" }, { name: "out", mode: "rw", approval: "pre_approved" }] };
const AWAY = { concurrency: 0, machines: { needs: [], priority: 0, weight: 1 } } as const;

let project: ProjectFixture;
let store: PostgresStore;
let blobs: BlobStore;

beforeAll(async () => {
  project = await openProject(
    {
      policy: "batch",
      zones: { data: "ro", out: "rw" },
      workers: { w: { command: ["w"], sandbox: OUT } },
      files: { "data/kept": "kept" },
    },
    { engine: memoryEngine({ programs: { w: async () => 0 } }).open },
  );
  symlinkSync("../data", join(project.dir, "out/leak"));
  const schema = `test_${randomBytes(6).toString("hex")}`;
  store = await PostgresStore.open(await connectServer(inject("postgres") ?? "", schema), {
    ...{ project: randomBytes(32).toString("hex"), schema, self: "coordinator" },
    ...{ isDead: () => false, isAlive: () => false },
  });
  mkdirSync(join(project.stateDir, "blobs"));
  blobs = await openDirectoryBlobs(join(project.stateDir, "blobs"));
  await putBytes(blobs, Buffer.from(NEW));
});
afterAll(async () => {
  await store[Symbol.asyncDispose]();
  await project[Symbol.asyncDispose]();
});

/** The result of an item for which a machine delivers these changes of a mount. */
async function delivered(at: string, changes: readonly object[]) {
  const transport = {
    ...{ version: "0", blobs, settleChanges: settlingDelivered(blobs) },
    async sendTrees({ mounts }: Sandbox, signal: AbortSignal) {
      const sent = await sendMounts(mounts, { store: blobs, signal });
      return Object.fromEntries(sent.map(({ path, digest }) => [path, digest]));
    },
  };
  const env = { run: project.corral.environment, store, onEvent: () => {}, stop: new AbortController().signal };
  const opened = await startFleet({ ...SPEC, ...AWAY }, requests([{ key: "a" }]), { ...env, transport });
  if (!opened.ok) throw new Error(JSON.stringify(opened));
  await using machine = await store.work.join({ name: "m", labels: [], slots: 1, version: "0" });
  const changeset = await putBytes(blobs, Buffer.from(JSON.stringify({ version: 1, mounts: [{ path: at, changes }] })));
  const working = (async () => {
    const { id } = opened.fleet;
    await expect.poll(async () => (await machine.offers()).some(({ fleet }) => fleet === id)).toBe(true);
    const [item] = await machine.claim([id], 1, () => ({ run: randomBytes(6).toString("hex"), cell: null }));
    if (item === undefined) throw new Error("it got no item");
    const result = { ...unrunResult(item, "succeeded"), run: item.run, attempt: item.attempt, exitCode: 0 };
    await machine.deliver(id, 0, item.attempt, { result, streams: null, changeset, more: null });
  })();
  const { results } = await whole(opened);
  await working;
  return results.get("a");
}

const file = (path: string, more: object = {}): object => ({
  ...{ path, kind: "create", type: "file", base: null, refusal: null },
  next: { type: "file", mode: 0o644, bytes: NEW.length, sha256: blobDigest(Buffer.from(NEW)), ...more },
});
const link = (path: string, target: string): object => ({
  ...{ path, kind: "create", type: "link", base: null, refusal: null, next: { type: "link", mode: 0o777, target } },
});

describe("what a hostile machine delivers to the coordinator of a fleet", () => {
  it.each<[string, readonly object[], at?: string]>([
    ["a path with `..`", [file("fine"), file("../data/x")]],
    ["an absolute path", [file("/etc/x")]],
    ["a directory that is only read", [file("x")], "/data"],
    ["a mount that the item does not have", [file("x")], "/workers"],
    ["the project itself", [file("corral.yaml")], "/"],
    ["an absolute link", [link("x", "/etc/passwd")]],
    ["a link that leaves its directory", [link("x", "../corral.yaml")]],
    ["a file below its own link", [link("x", "../data"), file("x/y")]],
    ["a file below a link of the project", [file("leak/x")]],
    ["content that the store does not have", [file("x", { sha256: "0".repeat(64) })]],
    ["a file of another size than its content", [file("x", { bytes: 3 })]],
    ["a file of a size beyond all limits", [file("x", { bytes: 2 ** 50 })]],
  ])("changes nothing with %s, and its item does not succeed", async (_, changes, at = "/out") => {
    const was = byteTree(project.dir);
    const result = await delivered(at, changes);
    expect(byteTree(project.dir)).toEqual(was);
    expect(["refused", "failed", "conflict"]).toContain(result?.status);
  });

  it("applies what the item may write", async () => {
    expect(await delivered("/out", [file("made")])).toMatchObject({ status: "succeeded" });
    expect([...byteTree(project.dir).keys()].map(String)).toContain("out/made");
  });
});
