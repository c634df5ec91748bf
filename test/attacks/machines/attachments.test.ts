import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Blob, type BlobStore, blobDigest, type Digest, putBytes } from "../../../src/blobs/blob.ts";
import { FetchedFiles } from "../../../src/blobs/fetched-files.ts";
import { sentAttachments } from "../../../src/fleet/fleet.ts";
import { type FleetJob, itemJob } from "../../../src/fleet/items/item-job.ts";
import type { ItemRequest } from "../../../src/fleet/model/item.ts";
import type { ClaimedWork } from "../../../src/fleet/model/work.ts";
import type { ItemExecutor } from "../../../src/fleet/running/item-result.ts";
import { withFetchedAttachments } from "../../../src/fleet/running/items-here.ts";
import { attemptWith } from "../../../src/fleet/work/host-fleet.ts";
import { refusedSourcesFor } from "../../../src/isolation/sources/refused-sources.ts";
import type { Job } from "../../../src/run/model/job.ts";
import { unstartedResult } from "../../../src/run/model/result.ts";
import { type MachinePair, machinePair, NEVER } from "../../blobs/machine-pair.ts";

const RUN = "0123456789ab";
const CANARY = "CANARY: a file of the machine's host";

let pair: MachinePair;
/** The owner of a fleet, with a directory of files that no worker reads. */
let home: { readonly job: FleetJob; readonly dir: string };
/** A machine, whose only directory is a mirror. */
let machine: { readonly job: FleetJob; readonly mirror: string; readonly ownerDir: string };
let seen: Record<string, string>[];

beforeEach(() => {
  pair = machinePair();
  const dir = (name: string): string => {
    fs.mkdirSync(join(pair.path, name), { recursive: true });
    return join(pair.path, name);
  };
  const jobOf = (host: string, ownerDir: string, more: Partial<FleetJob>): FleetJob => {
    const project = { delegation: { maxDepth: 1, maxCalls: 1 } };
    const env = { refusedSources: refusedSourcesFor(ownerDir, null), project };
    const sandbox = { mounts: [pair.mount({ host, mode: "ro" })] };
    return { worker: { name: "w" }, caller: sandbox, sandbox, reads: [], env, ...more } as unknown as FleetJob;
  };
  home = { job: jobOf(pair.home, dir("state-home"), {}), dir: dir("private") };
  const mirror = dir("mirror");
  const ownerDir = dir("owner");
  machine = { job: jobOf(mirror, ownerDir, { isElsewhere: true }), mirror, ownerDir };
  seen = [];
});
afterEach(async () => await pair[Symbol.asyncDispose]());

/** What a worker would see of its attachments. */
const cells: ItemExecutor = {
  async run({ run, attachments }: Job) {
    seen.push(Object.fromEntries(attachments.map(({ name, host }) => [name, fs.readFileSync(host, "utf8")])));
    return unstartedResult({ run, worker: "w" }, "succeeded", { code: "", message: "" });
  },
  [Symbol.asyncDispose]: async () => {},
};

const requestOf = (paths: readonly string[], index = 0): ItemRequest => ({
  ...{ index, key: `k${index}`, place: "" },
  attachments: paths.map((path) => ({ path, name: path.split("/").at(-1) ?? "" })),
});

async function sent(requests: readonly ItemRequest[], blobs: BlobStore = pair.store): Promise<ItemRequest[]> {
  async function* all() {
    yield* requests;
  }
  return await Array.fromAsync(sentAttachments(all(), { job: home.job, blobs, signal: NEVER }));
}

/** One attempt on the machine. */
async function attempted(request: unknown, blobs: BlobStore = pair.store, signal: AbortSignal = NEVER, run = RUN) {
  const executor = withFetchedAttachments(cells, { blobs, ownerDir: machine.ownerDir });
  const attempt = attemptWith({
    agreed: "",
    fleet: "f",
    job: machine.job,
    cells: executor,
    troubles: { take: () => [], add: () => {} } as never,
    sent: { take: () => null } as never,
    questions: { of: () => ({ [Symbol.dispose]() {} }) },
  });
  const claimed = { request, attempt: 1, earlier: 0, run, cell: null, fleet: "f" } as unknown as ClaimedWork;
  const brought = await attempt(claimed, { signal, turn: async () => {} });
  await executor[Symbol.asyncDispose]();
  expect(fs.readdirSync(machine.ownerDir)).toEqual([]);
  return brought.outcome === "delivery" ? brought.delivery.result : brought;
}

const file = (name: string, content: string, dir = home.dir): string => {
  fs.writeFileSync(join(dir, name), content);
  return join(dir, name);
};
const refusedAs = (message: RegExp) => ({
  status: "refused",
  error: { code: "ITEM_REFUSED", message: expect.stringMatching(message) },
});

describe("the id of a run that a database makes up", () => {
  it.each(["../../../canary", "/canary", "0123456789ab/..", "", "0123456789AB", "0123456789ab\n", "a".repeat(5000)])(
    "is refused before anything is opened: %j",
    async (run) => {
      const [request] = await sent([requestOf([file("a.txt", "first")])]);
      expect(await attempted(request, pair.store, NEVER, run)).toMatchObject(refusedAs(/^the id of its run/));
      expect(seen).toEqual([]);
    },
  );
});

describe("attachments that travel", () => {
  it("reach the machine by their digests, as they were when the fleet was loaded", async () => {
    const [a, b] = [file("a.txt", "first"), file("b.txt", "second")];
    file("c.txt", "of the project", pair.home);
    const [request] = await sent([requestOf([a, b, "/data/c.txt"])]);
    fs.writeFileSync(a, "changed since");
    fs.rmSync(b);
    // The same content is on the machine already: it is not fetched again.
    file("c.txt", "of the project", machine.mirror);
    expect(request?.attachments[0]?.sent).toEqual({ digest: blobDigest(Buffer.from("first")), bytes: 5 });
    expect(await attempted(request)).toMatchObject({ status: "succeeded" });
    expect(seen).toEqual([{ "a.txt": "first", "b.txt": "second", "c.txt": "of the project" }]);
  });

  it("are those of the digest on the machine of the owner too", async () => {
    const a = file("a.txt", "first");
    const [request] = await sent([requestOf([a])]);
    const executor = withFetchedAttachments(cells, { blobs: pair.store, ownerDir: machine.ownerDir });
    const how = { run: "r1", fleet: "f", signal: NEVER, turn: async () => {} };
    const run = async () => await executor.run(itemJob(home.job, request as ItemRequest, how));
    await run();
    fs.writeFileSync(a, "OTHER");
    await run();
    expect(seen).toEqual([{ "a.txt": "first" }, { "a.txt": "first" }]);
    await executor[Symbol.asyncDispose]();
  });

  it("stay as they were while an item runs at home, and are read once for all items", async () => {
    const a = file("a.txt", "first");
    const [request] = await sent([requestOf([a])]);
    let got = 0;
    const get: BlobStore["get"] = (...of) => {
      got += 1;
      return pair.store.get(...of);
    };
    const writing: ItemExecutor = {
      ...cells,
      run: async (job) => {
        fs.writeFileSync(a, "OTHER");
        return await cells.run(job);
      },
    };
    const blobs = { ...pair.store, get } as BlobStore;
    const executor = withFetchedAttachments(writing, { blobs, ownerDir: machine.ownerDir });
    const how = { run: "r1", fleet: "f", signal: NEVER, turn: async () => {} };
    for (let n = 0; n < 2; n += 1) await executor.run(itemJob(home.job, request as ItemRequest, how));
    expect([seen, got]).toEqual([[{ "a.txt": "first" }, { "a.txt": "first" }], 0]);
    await executor[Symbol.asyncDispose]();
  });

  it("are read once if many items have the same, and fetched once while they are used", async () => {
    const a = file("a.txt", "shared");
    let [put, got] = [0, 0];
    const counting: BlobStore = {
      ...{ maxBytes: pair.store.maxBytes, has: (digests) => pair.store.has(digests), flush: () => pair.store.flush() },
      sweep: (sweep) => pair.store.sweep(sweep),
      put: async (...of) => {
        put += 1;
        await pair.store.put(...of);
      },
      get: (...of) => {
        got += 1;
        return pair.store.get(...of);
      },
    };
    const requests = await sent(
      Array.from({ length: 9 }, (_, index) => requestOf([a], index)),
      counting,
    );
    expect(put).toBeLessThanOrEqual(4);
    const blob = requests[8]?.attachments[0]?.sent as Blob;
    await using files = new FetchedFiles(counting, join(machine.ownerDir, "fetched"));
    const opened = await Promise.all([1, 2, 3].map(() => files.open(blob, NEVER)));
    for (const one of opened) one[Symbol.dispose]();
    (await files.open(blob, NEVER))[Symbol.dispose]();
    expect(got).toBe(1);
  });

  it("end with their item, if that is ended while they are fetched", async () => {
    const [request] = await sent([requestOf([file("a.txt", "first")])]);
    const ends = new AbortController();
    const slow: BlobStore = { ...pair.store, get: (...of) => stalled(pair.store.get(...of), ends) } as BlobStore;
    expect(await attempted(request, slow, ends.signal)).toMatchObject({ outcome: "given_up", isUnwell: false });
    expect(seen).toEqual([]);
  });
});

async function* stalled(content: AsyncIterable<Uint8Array>, ends: AbortController) {
  ends.abort(new Error("it was ended"));
  yield* content;
}

describe("a file that cannot be sent", () => {
  it.each([
    ["a link", (path: string) => fs.symlinkSync("/etc/hostname", path), /symbolic link/],
    ["a FIFO", (path: string) => execFileSync("mkfifo", [path]), /neither a directory nor a regular file/],
    ["a directory", (path: string) => fs.mkdirSync(path), /one regular file/],
    ["nothing", () => {}, /does not exist/],
  ])("refuses its item alone: %s", { timeout: 30_000 }, async (_, make, reason) => {
    const bad = join(home.dir, "bad");
    make(bad);
    const [first, second] = await sent([requestOf([bad]), requestOf([file("good", "good")], 1)]);
    expect(first?.refusal).toMatch(reason);
    expect(second?.refusal).toBe(undefined);
    expect(await attempted(first)).toMatchObject(refusedAs(reason));
  });

  it("is refused if Corral shows it to no cell", async () => {
    const secret = file("secret", CANARY, join(pair.path, "state-home"));
    const [state, system] = await sent([requestOf([secret]), requestOf(["/etc/passwd"], 1)]);
    expect(state?.refusal).toMatch(/lies in Corral's own state/);
    expect(system?.refusal).toMatch(/directory of the operating system/);
    expect(fs.globSync("*/*", { cwd: pair.storeDir })).toEqual([]);
  });

  it("is refused with its size if the store does not take it, and sent when it does", async () => {
    const small = { ...pair.store, maxBytes: 4, has: pair.store.has.bind(pair.store) } as BlobStore;
    const [request] = await sent([requestOf([file("a", "12345")])], { ...small, flush: async () => {} });
    expect(request?.refusal).toMatch(/it has 5 bytes, and the blob store takes at most 4 bytes\. Set CORRAL_BLOBS/);
    const [again] = await sent([request as ItemRequest]);
    expect(again).toMatchObject({ attachments: [{ sent: { bytes: 5 } }] });
    expect(again?.refusal).toBe(undefined);
  });

  it("leaves an item refused whose template was", async () => {
    const request = { ...requestOf([]), refusal: "no such field" };
    expect(await sent([request])).toEqual([request]);
  });
});

describe("a hostile coordinator, or a database that it writes to", () => {
  const forged = (more: object, path = "/data/a") => ({
    ...requestOf([]),
    attachments: [{ path, name: "a", ...more }],
  });
  const blob = async (content: string) => ({
    digest: await putBytes(pair.store, Buffer.from(content)),
    bytes: content.length,
  });

  it("names no file of a machine's host", async () => {
    const canary = file("canary", CANARY, pair.path);
    for (const path of [canary, "/etc/passwd", "../canary", "/data/../canary", "", "/"])
      expect(await attempted(forged({}, path))).toMatchObject(refusedAs(/did not send the attachment/));
    // Not even if it knows what the file contains.
    const missing = { digest: blobDigest(Buffer.from(CANARY)), bytes: CANARY.length };
    for (const path of [canary, `/data/../${canary}`, `/proc/self/root${canary}`])
      expect(await attempted(forged({ sent: missing }, path))).toMatchObject(refusedAs(/does not have it/));
    expect(seen).toEqual([]);
  });

  it.each(["../a", "a/b", "/etc/x", ".", "..", "", "a\0b", "a\nb", "x".repeat(256)])(
    "gives no attachment the name %j",
    async (name) => {
      const request = { ...forged({ sent: await blob("x") }) };
      request.attachments = [{ ...request.attachments[0], name } as never];
      expect(await attempted(request)).toMatchObject(refusedAs(/no request of an item/));
      expect(seen).toEqual([]);
    },
  );

  it("gives no two attachments one name, and no more than there may be", async () => {
    const one = { path: "/a", name: "a", sent: await blob("x") };
    const many = Array.from({ length: 1001 }, (_, n) => ({ ...one, name: `${n}` }));
    const large = [1, 2].map((n) => ({
      ...one,
      name: `${n}`,
      sent: { digest: one.sent.digest, bytes: 3 * 1024 ** 3 },
    }));
    for (const attachments of [[one, one], many])
      expect(await attempted({ ...requestOf([]), attachments })).toMatchObject(refusedAs(/no request of an item/));
    expect(await attempted({ ...requestOf([]), attachments: large })).toMatchObject(refusedAs(/more than 1000 files/));
  });

  it.each([
    ["no digest", { digest: "../../etc/passwd", bytes: 1 }],
    ["another form of one", { digest: "A".repeat(64), bytes: 1 }],
    ["a negative size", { digest: "a".repeat(64), bytes: -1 }],
    ["a text as size", { digest: "a".repeat(64), bytes: "1" }],
    ["more keys", { digest: "a".repeat(64), bytes: 1, host: "/etc/passwd" }],
    ["a list", []],
  ])("sends nothing by %s", async (_, wrong) => {
    expect(await attempted(forged({ sent: wrong }))).toMatchObject(refusedAs(/no request of an item/));
  });

  it("refuses an item by no more than its blob: what is missing, shorter, longer or replaced", async () => {
    const { digest } = await blob("content");
    const path = join(pair.storeDir, digest.slice(0, 2), digest);
    expect(await attempted(forged({ sent: { digest, bytes: 3 } }))).toMatchObject(refusedAs(/cannot be fetched/));
    expect(await attempted(forged({ sent: { digest, bytes: 100 } }))).toMatchObject(refusedAs(/cannot be fetched/));
    fs.rmSync(path);
    expect(await attempted(forged({ sent: { digest, bytes: 7 } }))).toMatchObject(refusedAs(/does not have it/));
    fs.writeFileSync(path, "CONTENT");
    expect(await attempted(forged({ sent: { digest, bytes: 7 } }))).toMatchObject(
      refusedAs(/does not match its digest/),
    );
    fs.rmSync(path);
    fs.symlinkSync(file("canary", "content", pair.path), path);
    expect(await attempted(forged({ sent: { digest, bytes: 7 } }))).toMatchObject(refusedAs(/cannot be fetched/));
    expect(seen).toEqual([]);
  });

  it.each([1, "x", [], {}, { attachments: "x" }])("asks for nothing with %j", async (request) => {
    expect(await attempted(request)).toMatchObject(refusedAs(/no request of an item/));
  });
});

describe("files that were fetched", () => {
  it("are tried again after a failure, and removed at the end", async () => {
    const sentBlob: Blob = { digest: blobDigest(Buffer.from("late")) as Digest, bytes: 4 };
    const dir = join(machine.ownerDir, "fetched");
    {
      await using files = new FetchedFiles(pair.store, dir);
      await expect(files.open(sentBlob, NEVER)).rejects.toThrow("does not have it");
      expect(fs.readdirSync(dir)).toEqual([]);
      await putBytes(pair.store, Buffer.from("late"));
      using opened = await files.open(sentBlob, NEVER);
      expect(fs.readFileSync(opened.host, "utf8")).toBe("late");
      expect((fs.statSync(opened.host).mode & 0o777).toString(8)).toBe("444");
      await expect(files.open({ ...sentBlob, bytes: 5 }, NEVER)).rejects.toThrow("not 5");
    }
    expect(fs.existsSync(dir)).toBe(false);
  });

  it("are kept in a small number when nothing uses them", async () => {
    const dir = join(machine.ownerDir, "fetched");
    const maxIdle = { files: 3, bytes: 100 };
    await using files = new FetchedFiles(pair.store, dir, maxIdle);
    const open = async (text: string) => {
      const content = Buffer.from(text);
      return await files.open({ digest: await putBytes(pair.store, content), bytes: content.length }, NEVER);
    };
    const used = await open("in use all the time");
    for (let n = 0; n < 6; n += 1) (await open(`file ${n}`))[Symbol.dispose]();
    await expect.poll(() => fs.readdirSync(dir).length).toBe(1 + 3);
    (await open("x".repeat(90)))[Symbol.dispose]();
    await expect.poll(() => fs.readdirSync(dir).length).toBe(1 + 2);
    expect(fs.readFileSync(used.host, "utf8")).toBe("in use all the time");
    used[Symbol.dispose]();
  });
});
