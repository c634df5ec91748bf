import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { putBytes } from "../../../src/blobs/blob.ts";
import { machinePair, NEVER } from "../../blobs/machine-pair.ts";

const CANARY = "CANARY: nobody may read or change this";
const FILE = { type: "file", mode: 0o644, bytes: 5, sha256: "" };
const FOLDER = { type: "directory", mode: 0o755 };
const file = (path: string, more: object = {}): object => ({ path, ...FILE, ...more });
const folder = (path: string): object => ({ path, ...FOLDER });
const link = (path: string, target: unknown): object => ({ path, type: "link", mode: 0o777, target });
const HEADER = { tree: 1, mode: 0o755 };
const deep = (levels: number): object[] =>
  Array.from({ length: levels }, (_, index) => folder(Array.from({ length: index + 1 }, () => "d").join("/")));

/** The lines of manifests that no machine of Corral makes, or a text; and what they are refused with. */
const FORGED: Readonly<Record<string, readonly [readonly (object | string)[], RegExp]>> = {
  "a path that leaves it": [[HEADER, file("../outside")], /its path is not valid/],
  "`..` in the middle": [[HEADER, folder("d"), file("d/../../outside")], /its path is not valid/],
  "an absolute path": [[HEADER, file("/etc/outside")], /its path is not valid/],
  "an empty name": [[HEADER, folder("d"), file("d//x")], /its path is not valid/],
  "`.`": [[HEADER, file(".")], /its path is not valid/],
  "NUL in a name": [[HEADER, file("a\0b")], /its path is not valid/],
  "half a character": [[HEADER, '{"path":"\\ud800","type":"directory","mode":493}'], /has no valid path/],
  "UTF-8 as if it were none": [
    [HEADER, { path64: Buffer.from("../x").toString("base64"), ...FOLDER }],
    /has no valid path/,
  ],
  "`..` in bytes that are not UTF-8": [
    [HEADER, { path64: Buffer.from("../\xff", "latin1").toString("base64"), ...FOLDER }],
    /its path is not valid/,
  ],
  "two forms of a path": [[HEADER, { path: "a", path64: "/w==", ...FOLDER }], /has no valid path/],
  "base64 with more behind it": [[HEADER, { path64: "/w==AAAA", ...FOLDER }], /has no valid path/],
  "a name twice": [[HEADER, file("a"), file("a")], /'a'\) is there twice/],
  "a file and a directory of one name": [[HEADER, file("a"), folder("a")], /'a'\) is there twice/],
  "an order of its own": [[HEADER, file("b"), file("a")], /'a'\) is there twice, or not in its order/],
  "something below a file": [[HEADER, file("a"), file("a/b")], /'a\/b'\) is below what is no directory/],
  "something below a link": [
    [HEADER, link("a", "/etc"), file("a/outside")],
    /'a\/outside'\) is below what is no directory/,
  ],
  "something below nothing": [[HEADER, file("a/b")], /is below what is no directory/],
  "a link to an empty text": [[HEADER, link("a", "")], /is no entry/],
  "a link with NUL": [[HEADER, link("a", "x\0y")], /target is not valid/],
  "a link that is too long": [[HEADER, link("a", "x".repeat(5000))], /target is not valid/],
  "a link to a number": [[HEADER, link("a", 5)], /is no entry/],
  setuid: [[HEADER, file("a", { mode: 0o4755 })], /is no entry/],
  "a negative size": [[HEADER, file("a", { bytes: -1 })], /is no entry/],
  "half a byte": [[HEADER, file("a", { bytes: 0.5 })], /is no entry/],
  "a size beyond numbers": [[HEADER, '{"path":"a","type":"file","mode":420,"bytes":1e400,"sha256":""}'], /is no entry/],
  "more bytes than any machine has": [[HEADER, file("a", { bytes: 2 ** 52 })], /more than \d+ bytes/],
  "the same small blob a thousand times": [
    [
      HEADER,
      ...Array.from({ length: 9000 }, (_, index) =>
        file(`f${String(index).padStart(5, "0")}`, { bytes: 2 * 1024 ** 2 }),
      ),
    ],
    /more than \d+ bytes/,
  ],
  "a digest that is a path": [[HEADER, file("a", { sha256: "../../../etc/passwd" })], /is no entry/],
  "a type of its own": [[HEADER, { path: "a", type: "fifo", mode: 0o644 }], /is no entry/],
  "a key of its own": [[HEADER, file("a", { owner: 0 })], /is no entry/],
  "levels without end": [[HEADER, ...deep(200)], /deeper than 128 levels/],
  "a name that no file system has": [[HEADER, file("n".repeat(256))], /its name is longer than 255 bytes/],
  "another version": [[{ tree: 2, mode: 0 }], /line 1 is no beginning/],
  "one file that is in a directory": [[{ tree: 1, single: true }, folder("d"), file("d/a")], /it is of one file/],
  "one file that is a link": [[{ tree: 1, single: true }, link("a", "/etc/passwd")], /it is of one file/],
  "a line without an end": [[HEADER, `{"path":"${"x".repeat(40_000)}`], /line 2 is incomplete or longer/],
  "what is no JSON": [[HEADER, "{"], /line 2 is no entry/],
  "JSON that is too deep": [["[".repeat(20_000)], /line 1 is no beginning/],
  nothing: [[], /it is empty/],
};

describe("a manifest of a directory that a hostile machine or database has forged", () => {
  it.each(Object.keys(FORGED))("makes no mirror with %s", { timeout: 20_000 }, async (what) => {
    await using pair = machinePair();
    const outside = join(pair.path, "outside");
    fs.writeFileSync(outside, CANARY);
    const content = await putBytes(pair.store, Buffer.from("hello"));
    const [lines, why] = FORGED[what] ?? [[], /./];
    const text = lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");
    const digest = await putBytes(pair.store, Buffer.from(text.replaceAll('"sha256":""', `"sha256":"${content}"`)));
    await expect(pair.mirrors.open(digest, pair.store, NEVER)).rejects.toThrow(why);
    expect(fs.readdirSync(pair.mirrorsDir)).toEqual([]);
    expect(fs.readFileSync(outside, "utf8")).toBe(CANARY);
    expect(fs.readdirSync(pair.path).sort()).toEqual(["home", "mirrors", "outside", "store"]);
  });

  it("makes no mirror that is not UTF-8, or is larger than any", async () => {
    await using pair = machinePair();
    const odd = await putBytes(
      pair.store,
      Buffer.from('{"tree":1,"mode":493}\n{"path":"\xff","type":"directory","mode":493}\n', "latin1"),
    );
    await expect(pair.mirrors.open(odd, pair.store, NEVER)).rejects.toThrow("it is not UTF-8");
    const large = await putBytes(pair.store, Buffer.alloc(65 * 1024 ** 2));
    await expect(pair.mirrors.open(large, pair.store, NEVER)).rejects.toThrow("at most 67108864 are allowed");
  });

  it.each([4, 6])("fills no file with a blob of another size than it says (%i)", async (bytes) => {
    await using pair = machinePair();
    const content = await putBytes(pair.store, Buffer.from("hello"));
    const lines = [HEADER, file("a", { bytes, sha256: content })].map((line) => `${JSON.stringify(line)}\n`).join("");
    const digest = await putBytes(pair.store, Buffer.from(lines));
    await expect(pair.mirrors.open(digest, pair.store, NEVER)).rejects.toThrow(/^blob .* is refused/);
    expect(fs.readdirSync(pair.mirrorsDir)).toEqual([]);
  });

  it("follows no link of it: not when it is made, looked at, changed or removed", async () => {
    await using pair = machinePair();
    const outside = join(pair.path, "outside");
    fs.mkdirSync(outside, { mode: 0o700 });
    fs.writeFileSync(join(outside, "canary"), CANARY);
    const was = fs.statSync(outside, { bigint: true }).ctimeNs;
    const lines = [HEADER, link("a", outside), link("b", "../../../outside"), link("c", `${outside}/canary`)];
    const digest = await putBytes(pair.store, Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join("")));
    for (let round = 0; round < 2; round += 1) {
      const mirror = await pair.mirrors.open(digest, pair.store, NEVER);
      expect(fs.readlinkSync(join(mirror.path, "a"))).toBe(outside);
      await mirror[Symbol.asyncDispose]();
      fs.rmSync(join(pair.mirrorsDir, digest, "record.json"));
    }
    await pair.mirrors.sweep();
    expect(fs.readdirSync(pair.mirrorsDir)).toEqual([]);
    expect(fs.readFileSync(join(outside, "canary"), "utf8")).toBe(CANARY);
    expect(fs.statSync(outside, { bigint: true }).ctimeNs).toBe(was);
  });
});
