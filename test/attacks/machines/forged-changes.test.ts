import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { blobDigest, type Digest, putBytes } from "../../../src/blobs/blob.ts";
import type { ImportRequest } from "../../../src/changes/wire/import.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { SecretSearch } from "../../../src/secrets/read-secret.ts";
import { DATA, type MachinePair, machinePair, told } from "../../blobs/machine-pair.ts";
import { byteTree } from "../../changes/scan/byte-tree.ts";
import { plant } from "../../changes/staged-folder.ts";

const CANARY = "CANARY: nobody may read or change this";
const NEW = "new text";
const OLD = "old text";
const sha = (text: string): Digest => blobDigest(Buffer.from(text));

const entry = (text: string, more: object = {}): object => ({
  type: "file",
  mode: 0o644,
  bytes: text.length,
  sha256: sha(text),
  ...more,
});
const FOLDER = { type: "directory", mode: 0o755 };
const link = (target: string | null): object => ({ type: "link", mode: 0o777, target });

const create = (path: string, more: object = {}): object => ({
  path,
  kind: "create",
  type: "file",
  base: null,
  next: entry(NEW),
  refusal: null,
  ...more,
});
const makeFolder = (path: string): object => create(path, { type: "directory", next: FOLDER });
const makeLink = (path: string, target: string): object => create(path, { type: "link", next: link(target) });
const modify = (path: string, more: object = {}): object => create(path, { kind: "modify", base: entry(OLD), ...more });
const remove = (path: string, more: object = {}): object =>
  create(path, { kind: "delete", base: entry(OLD), next: null, ...more });

/** A project with canaries around what the item may write, and a machine that says whatever it likes. */
async function attacked(): Promise<
  MachinePair & { forge(changes: readonly object[], at?: string): Promise<Digest>; unharmed(): void }
> {
  const pair = machinePair();
  plant(pair.path, { "outside/canary": CANARY, "home/sub/canary": CANARY, "home/a": OLD, "home/folder/b": OLD });
  await putBytes(pair.store, Buffer.from(NEW));
  return {
    ...pair,
    forge: async (changes, at = DATA) =>
      await putBytes(pair.store, Buffer.from(JSON.stringify({ version: 1, mounts: [{ path: at, changes }] }))),
    unharmed() {
      expect(fs.readFileSync(join(pair.path, "outside/canary"), "utf8")).toBe(CANARY);
      expect(fs.readFileSync(join(pair.home, "sub/canary"), "utf8")).toBe(CANARY);
      expect(fs.readdirSync(join(pair.path, "outside"))).toEqual(["canary"]);
      expect(fs.readdirSync(pair.path).filter((name) => name.startsWith("imported"))).toEqual([]);
    },
  };
}

/** What no machine of Corral says: nothing of the delivery counts. */
const REFUSED: Readonly<Record<string, readonly [readonly object[], RegExp, at?: string]>> = {
  "a path that leaves the mount": [[create("../outside/canary")], /its path is not valid/],
  "`..` after a name": [[create("folder/../../outside/x")], /its path is not valid/],
  "an absolute path": [[create("/etc/x")], /its path is not valid/],
  "the mount itself": [[create("")], /its path is not valid/],
  NUL: [[create("x\0y")], /its path is not valid/],
  "half a character": [[create("\ud800")], /its path is not valid/],
  "bytes that are UTF-8": [
    [{ ...create("x"), path: undefined, path64: Buffer.from("../x").toString("base64") }],
    /its path is not valid/,
  ],
  "a file twice": [[create("x"), create("x")], /a path is changed twice/],
  "a file and a directory of one name": [[makeFolder("x"), create("x")], /a path is changed twice/],
  "a file below its own link": [[makeLink("x", "../outside"), create("x/canary")], /below what is no directory/],
  "a file far below its own link": [
    [makeLink("x", "/"), makeFolder("x/y"), create("x/y/z")],
    /below what is no directory/,
  ],
  "a file below its own file": [[create("x"), create("x/y")], /below what is no directory/],
  "a mount that the item does not have": [[create("x")], /\/etc has changes that the item may not make/, "/etc"],
  "the project's root": [[create("outside/x")], /\/ has changes that the item may not make/, "/"],
  "a mount that is no path": [[create("x")], /no valid path/, "/data/../etc"],
  "a relative mount": [[create("x")], /no valid path/, "data"],
  "a modification of nothing": [[modify("a", { base: null })], /contradicts itself/],
  "a creation of what was there": [[create("a", { base: entry(OLD) })], /contradicts itself/],
  "a deletion that brings something": [[remove("a", { next: entry(NEW) })], /contradicts itself/],
  "a deletion of another type": [[remove("folder", { type: "directory" })], /contradicts itself/],
  "a file that is a link": [[create("x", { next: link("a") })], /contradicts itself/],
  "a file without content": [[create("x", { next: null })], /contradicts itself/],
  "a file without a digest": [[create("x", { next: entry(NEW, { sha256: null }) })], /contradicts itself/],
  "a link without a target": [[create("x", { type: "link", next: link(null) })], /contradicts itself/],
  "a digest that is a path": [[create("x", { next: entry(NEW, { sha256: "../../outside/canary" }) })], /sha256/],
  "a negative size": [[create("x", { next: entry(NEW, { bytes: -1 }) })], /bytes/],
  "a type of its own": [[create("x", { type: "device" })], /type/],
  "a host path": [[create("x", { target: "/etc" })], /target/],
  "a decision": [[create("x", { decision: "approved" })], /decision/],
};

describe("a list of changes that a hostile machine has forged", () => {
  it.each(Object.keys(REFUSED))("counts for nothing with %s", async (what) => {
    await using pair = await attacked();
    const [changes, why, at] = REFUSED[what] ?? [[], /./];
    const was = byteTree(pair.path);
    const digest = await pair.forge([create("fine"), ...changes], at);
    await expect(pair.imported(digest)).rejects.toThrow(why);
    fs.rmSync(join(pair.storeDir, digest.slice(0, 2), digest));
    expect([...byteTree(pair.path)].filter(([path]) => !path.startsWith("store"))).toEqual(
      [...was].filter(([path]) => !path.startsWith("store")),
    );
    pair.unharmed();
  });

  it.each([
    ["{", "it is not valid JSON"],
    ["[".repeat(100_000), "nested more than"],
    [`[${"0,".repeat(2_100_000)}0]`, "values"],
    [JSON.stringify({ version: 2, mounts: [] }), "version"],
    [JSON.stringify({ version: 1, mounts: [], more: 1 }), "more"],
    [
      JSON.stringify({ version: 1, mounts: Array.from({ length: 1001 }, () => ({ path: "/data", changes: [] })) }),
      "mounts",
    ],
  ])("counts for nothing as a document of its own (%#)", async (text, why) => {
    await using pair = await attacked();
    await expect(pair.imported(await putBytes(pair.store, Buffer.from(text)))).rejects.toThrow(why);
    pair.unharmed();
  });

  it("counts for nothing as a huge document, without reading it", async () => {
    await using pair = await attacked();
    const digest = await putBytes(pair.store, Buffer.alloc(65 * 1024 ** 2, 32));
    await expect(pair.imported(digest)).rejects.toThrow("at most 67108864 are allowed");
  });

  it.each([
    ["a larger size", { bytes: NEW.length + 1 }],
    ["a smaller size", { bytes: NEW.length - 1 }],
    ["a digest that the store does not have", { sha256: sha("nowhere") }],
    ["an enormous size", { bytes: 900 * 1024 ** 2 }],
  ])("brings no file with %s than its content has", async (_, lie) => {
    await using pair = await attacked();
    const digest = await pair.forge([create("fine"), create("x", { next: entry(NEW, lie) })]);
    await expect(pair.imported(digest)).rejects.toThrow(/^blob [0-9a-f]{12} is refused/);
    pair.unharmed();
  });

  it("is refused in the words of home where the item may not write", async () => {
    await using pair = await attacked();
    const path = (rest: string) => `${DATA}/${rest}` as VirtualPath;
    const own = pair.mount({
      suffixes: [".md"],
      maxFileBytes: 20,
      approval: { read: "pre_approved", write: "pre_approved", delete: "blocked" } as never,
    });
    const sub = pair.mount({ path: path("sub"), host: join(pair.home, "sub"), mode: "ro" });
    plant(pair.home, { "secret.txt": OLD, "big.md": "x".repeat(50), "ok.md": OLD });
    const digest = await pair.forge([
      create("x.md"),
      create("x.txt"),
      create("large.md", { next: entry(NEW, { bytes: 21 }) }),
      create("setuid.md", { next: entry(NEW, { mode: 0o4755 }) }),
      create("secret.txt"),
      create("big.md"),
      remove("ok.md"),
      remove("sub", { type: "directory", base: FOLDER }),
      create("sub/x.md"),
      makeLink("l.md", "/etc/passwd"),
      makeLink("up.md", "../outside/canary"),
    ]);
    const request: Partial<ImportRequest> = { home: { sandbox: { mounts: [own, sub] } } };
    const collected = await pair.imported(digest, request);
    if (collected === null) throw new Error("nothing was found");
    expect(
      told(collected)
        .filter((line) => line.includes(": "))
        .sort(),
    ).toEqual([
      "create file /data/big.md: an entry that may not be read has that name",
      "create file /data/large.md: it has 21 bytes, and at most 20 bytes are allowed there",
      "create file /data/secret.txt: an entry that may not be read has that name",
      "create file /data/setuid.md: it is setuid or setgid: it would run as its owner or group",
      "create file /data/x.txt: only files ending in .md are allowed there",
      "create link /data/l.md: it is an absolute link",
      "create link /data/up.md: it is a link that leaves its directory",
      "delete directory /data/sub: deleting is blocked there, and no approval can allow it",
      "delete file /data/ok.md: deleting is blocked there, and no approval can allow it",
    ]);
    const settled = await pair.apply(collected);
    const reasons = Object.fromEntries(settled.map(({ change, outcome, reason }) => [change.path, reason ?? outcome]));
    expect(reasons["/data/x.md"]).toBe("applied");
    expect(reasons["/data/sub/x.md"]).toBe(
      "it is in a directory that was granted separately, or one of the project's own files",
    );
    expect(fs.readFileSync(join(pair.home, "big.md"), "utf8")).toBe("x".repeat(50));
    expect(fs.readdirSync(join(pair.home, "sub"))).toEqual(["canary"]);
    const replaces = await pair.imported(await pair.forge([makeLink("sub", "a")]), {
      home: { sandbox: { mounts: [pair.mount(), sub] } },
    });
    expect(replaces && told(replaces)).toEqual([
      "create link /data/sub: it contains a directory that was granted separately",
    ]);
  });

  it("is refused below a directory that is read-only, and asks for what home asks", async () => {
    await using pair = await attacked();
    const digest = await pair.forge([create("x")]);
    const readOnly = await pair.imported(digest, { home: { sandbox: { mounts: [pair.mount({ mode: "ro" })] } } });
    expect(readOnly && told(readOnly)).toEqual(["create file /data/x: its directory is read-only"]);
    const asks = await pair.imported(digest);
    expect(asks?.toAsk.map(({ path }) => path)).toEqual(["/data/x"]);
    const approval = { read: "pre_approved", write: "pre_approved", delete: "ask" } as never;
    const open = await pair.imported(digest, { home: { sandbox: { mounts: [pair.mount({ approval })] } } });
    expect(open?.toAsk).toEqual([]);
    const discards = pair.imported(digest, { home: { sandbox: { mounts: [pair.mount({ discard: true })] } } });
    await expect(discards).rejects.toThrow("changes that the item may not make");
  });

  it("cannot say of a file that it is refused and bring it all the same", async () => {
    await using pair = await attacked();
    const huge = { ...entry(NEW), bytes: 900 * 1024 ** 2 };
    const digest = await pair.forge([create("x"), create("x", { next: huge, refusal: "no\u001b[2J" })]);
    const collected = await pair.imported(digest, { maxBytes: 1000 });
    expect(collected && told(collected)).toEqual([
      "create file /data/x",
      "create file /data/x: with this change, more than 1000 bytes would be written",
    ]);
    const settled = await pair.apply(collected as never);
    expect(settled.map(({ outcome }) => outcome)).toEqual(["applied", "refused"]);
    expect(fs.readFileSync(join(pair.home, "x"), "utf8")).toBe(NEW);
  });

  it("shows no control characters in what a machine says of a refusal", async () => {
    await using pair = await attacked();
    const digest = await pair.forge([create("x", { refusal: "no\u001b[2J\nyes" })]);
    const collected = await pair.imported(digest);
    expect(collected && told(collected)).toEqual(["create file /data/x: no\\u{1b}[2J\\u{a}yes"]);
  });

  it("brings no secret, whatever the machine looked for", async () => {
    await using pair = await attacked();
    const digest = await pair.forge([create("x")]);
    const search = (): SecretSearch => new SecretSearch([["token", NEW]]);
    const collected = await pair.imported(digest, { search });
    expect(collected && told(collected)).toEqual(["create file /data/x: it contains the secret `token`"]);
    expect(collected?.toAsk).toEqual([]);
  });

  it("writes no more than the run may, counted before anything is fetched", async () => {
    await using pair = await attacked();
    const digest = await pair.forge([create("x"), create("y"), create("z")]);
    const collected = await pair.imported(digest, { maxBytes: 2 * NEW.length });
    expect(collected && told(collected)).toEqual([
      "create file /data/x",
      "create file /data/y",
      "create file /data/z: with this change, more than 16 bytes would be written",
    ]);
  });

  it("overwrites nothing by a lie about what was there", async () => {
    await using pair = await attacked();
    plant(pair.home, { mode: { text: OLD, mode: 0o600 }, l: { link: "a" } });
    const digest = await pair.forge([
      modify("a", { base: entry("other txt") }),
      modify("folder/b", { base: entry(OLD, { bytes: 1 }) }),
      modify("mode"),
      create("l"),
      modify("folder", { type: "directory", base: { ...FOLDER, mode: 0o700 }, next: { ...FOLDER, mode: 0o777 } }),
      remove("sub", { type: "directory", base: FOLDER }),
      remove("sub/canary", { base: entry(CANARY, { sha256: sha("?") }) }),
    ]);
    const was = byteTree(pair.home);
    const collected = await pair.imported(digest);
    const settled = await pair.apply(collected as never);
    expect([...new Set(settled.map(({ outcome }) => outcome))]).toEqual(["conflict"]);
    expect(byteTree(pair.home)).toEqual(was);
  });

  it("changes nothing beside a mount that is one file", async () => {
    await using pair = await attacked();
    const own: Mount = pair.mount({ path: "/one" as VirtualPath, host: join(pair.home, "a") });
    const request: Partial<ImportRequest> = { home: { sandbox: { mounts: [own] } } };
    for (const path of ["b", "sub/canary", "folder/b"])
      await expect(pair.imported(await pair.forge([create(path)], "/one"), request)).rejects.toThrow(
        "/one has changes that the item may not make",
      );
    const fine = await pair.imported(await pair.forge([modify("a")], "/one"), request);
    expect((await pair.apply(fine as never)).map(({ outcome }) => outcome)).toEqual(["applied"]);
    expect(fs.readFileSync(join(pair.home, "a"), "utf8")).toBe(NEW);
  });

  it("makes nothing beside a directory that is still to be made", async () => {
    await using pair = await attacked();
    const around = pair.mount();
    const own = pair.mount({ path: `${DATA}/out/item` as VirtualPath, host: join(pair.home, "out/item") });
    const readable = pair.mount({ mode: "ro" });
    const home = { sandbox: { mounts: [readable, own] }, makesBelow: { mounts: [around] } };
    const way = [makeFolder("out"), makeFolder("out/item")];
    for (const change of [
      create("x"),
      create("out/x"),
      makeFolder("other"),
      makeFolder("out/other"),
      modify("a"),
      remove("a"),
      makeLink("out2", "a"),
    ]) {
      const digest = await pair.forge([...way, create("out/item/fine"), change]);
      // The directory of the item is read-only but for what is its own.
      const collected = await pair.imported(digest, { home });
      const refused = told(collected as never).filter((line) => line.endsWith("its directory is read-only"));
      expect(refused.length).toBe((collected?.changeset.changes ?? []).length);
    }
    const deeper = { sandbox: { mounts: [own] }, makesBelow: { mounts: [around] } };
    for (const change of [
      create("x"),
      create("out/x"),
      makeFolder("other"),
      makeFolder("out/other"),
      modify("a"),
      remove("a"),
      makeLink("out2", "a"),
    ])
      await expect(pair.imported(await pair.forge([...way, change]), { home: deeper })).rejects.toThrow(
        "/data has changes that the item may not make",
      );
    const fine = await pair.imported(await pair.forge([...way, create("out/item/fine")]), { home });
    expect((await pair.apply(fine as never)).map(({ outcome }) => outcome)).toEqual(["applied", "applied", "applied"]);
    expect(fs.readFileSync(join(pair.home, "out/item/fine"), "utf8")).toBe(NEW);
  });

  it("follows no link that was planted at home meanwhile", async () => {
    await using pair = await attacked();
    fs.rmSync(join(pair.home, "folder"), { recursive: true });
    fs.symlinkSync("../outside", join(pair.home, "folder"));
    const digest = await pair.forge([
      create("folder/x"),
      modify("folder/canary", { base: entry(CANARY) }),
      remove("folder/b"),
    ]);
    const collected = await pair.imported(digest);
    const settled = await pair.apply(collected as never);
    expect(settled.map(({ outcome }) => outcome)).toEqual(["refused", "refused", "refused"]);
    expect(fs.readdirSync(join(pair.path, "outside"))).toEqual(["canary"]);
    expect(fs.readFileSync(join(pair.path, "outside/canary"), "utf8")).toBe(CANARY);
  });
});
