import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ItemResult } from "../../../src/fleet/model/item.ts";
import { inSizeClasses } from "../../../src/operations/convert/conversion.ts";
import { ConversionCounts, conversionReport, convertedFile } from "../../../src/operations/convert/converted.ts";
import { folderOfFile } from "../../../src/operations/convert/layout.ts";

function result(more: Partial<ItemResult>): ItemResult {
  return {
    index: 0,
    key: "sub/a.pdf",
    status: "succeeded",
    run: "0123456789ab",
    attempt: 1,
    exitCode: 0,
    output: null,
    error: null,
    stderrLine: null,
    fields: { file: "sub/a.pdf" },
    startedAt: null,
    endedAt: "2026-01-01T00:00:00.000Z",
    durationMs: 1,
    memoryBytesPeak: null,
    ...more,
  };
}

const verdictOf = (more: Partial<ItemResult>) => {
  const { verdict, reason } = convertedFile(result(more)) ?? {};
  return [verdict, reason];
};

describe("what became of a file", () => {
  it("is done by the word of its container and by its end together", () => {
    const done = '{"verdict": "done", "type": "pdf", "files": ["text.txt"]}';
    expect(verdictOf({ output: done })).toEqual(["done", null]);
    expect(verdictOf({ output: done, status: "cached" })).toEqual(["done", null]);
    expect(verdictOf({ output: done, status: "failed" })).toEqual(["not possible", "failed"]);
    expect(verdictOf({ output: "nonsense" })).toEqual(["not possible", "failed"]);
    expect(verdictOf({ output: "[1]" })).toEqual(["not possible", "failed"]);
  });

  it("is not possible for a reason in words, whichever way it ended", () => {
    const output = '{"verdict": "not possible", "reason": "encrypted", "words": "it needs a password"}';
    expect(verdictOf({ output, status: "failed" })).toEqual(["not possible", "encrypted"]);
    expect(verdictOf({ output: output.replace("encrypted", "of my own"), status: "failed" })).toEqual([
      "not possible",
      "other",
    ]);
    expect(verdictOf({ status: "timed_out" })).toEqual(["not possible", "timed out"]);
    expect(verdictOf({ status: "oom_killed" })).toEqual(["not possible", "too large"]);
    expect(verdictOf({ status: "disk_limit" })).toEqual(["not possible", "too large"]);
    expect(verdictOf({ status: "signaled" })).toEqual(["not possible", "damaged"]);
    expect(verdictOf({ status: "failed" })).toEqual(["not possible", "failed"]);
    const error = { code: "X", message: "no" };
    expect(verdictOf({ status: "refused", error })).toEqual(["refused", "refused"]);
    expect(verdictOf({ status: "lost", error })).toEqual(["refused", "lost"]);
    expect(convertedFile(result({ status: "cancelled" }))).toBeNull();
  });

  it("is cut and harmless, whatever a container says", async () => {
    const output = JSON.stringify({
      verdict: "done",
      type: "\u001b[2Jpdf".padEnd(500, "x"),
      files: Array.from({ length: 1000 }, () => "<script>"),
      pages: -1,
      notes: [7, "a\u202Eb"],
    });
    const file = convertedFile(result({ output }));
    expect(file).toMatchObject({ pages: null, notes: ["a\\u{202e}b"] });
    expect(file?.type?.length).toBeLessThanOrEqual(60);
    expect(file?.type).not.toContain("\u001b");
    expect(file?.files).toHaveLength(20);
    const counts = new ConversionCounts();
    const files = [file, convertedFile(result({ key: "x", fields: { file: '"><img src=x>' } }))].flatMap(
      (one) => one ?? [],
    );
    for (const one of files) counts.see(one);
    const pieces = await Array.fromAsync(
      conversionReport(
        "corral convert --to text",
        counts,
        (async function* () {
          yield* files;
        })(),
      ),
    );
    const page = pieces.join("");
    expect(page).toContain("1 file done, 1 not possible (1 failed)");
    expect(page).toContain('<a href="./sub/a.pdf/">');
    expect(page).not.toMatch(/<script|<img/);
  });
});

describe("the files of one size", () => {
  it("get limits that grow with a file", () => {
    const file = (bytes: number) => ({ path: Buffer.from("/a"), folder: "a", shown: "a", bytes, isNameable: true });
    const classes = inSizeClasses([file(0), file(4 * 1024 ** 2), file(4 * 1024 ** 2 + 1), file(5 * 1024 ** 3)]);
    expect(classes.map(({ size, files }) => [size.limits.memory, files.length])).toEqual([
      ["1g", 2],
      ["2g", 1],
      ["8g", 1],
    ]);
  });
});

const names = (...parts: readonly (string | number[])[]): Buffer[] => parts.map((part) => Buffer.from(part as string));

describe("the folder of a file's results", () => {
  it.each([
    ["a.pdf", "a.pdf"],
    ["Übersicht 2.pdf", "Übersicht 2.pdf"],
    ["a\nb", "a%0Ab"],
    ["100%.txt", "100%25.txt"],
    ["-rf", "%2Drf"],
    [".git", "%2Egit"],
    ["..", "%2E%2E"],
    ["trail.pdf ", "trail.pdf%20"],
    ["C:\\x", "C%3A%5Cx"],
    ["{path}", "%7Bpath%7D"],
    ["gpj.\u202Eexe", "gpj.%E2%80%AEexe"],
    ["report.html", "report%2Ehtml"],
    ["results.jsonl", "results%2Ejsonl"],
  ])("is a plain name for %j", (name, folder) => {
    expect(folderOfFile(names(name))).toBe(folder);
  });

  it("keeps bytes that are no text, and the folders around a file", () => {
    expect(folderOfFile(names([0x63, 0x61, 0x66, 0xe9]))).toBe("caf%E9");
    expect(folderOfFile(names([0x2e, 0xa0, 0x0a, 0x2e, 0x74]))).toBe("%2E%A0%0A.t");
    expect(folderOfFile(names("sub", "report.html"))).toBe("sub/report.html");
  });

  it("is short enough for the disk, for any name and depth, and no name can be chosen to be that of another", () => {
    const long = "x".repeat(255);
    const short = folderOfFile(names(long));
    expect(Buffer.byteLength(short)).toBeLessThan(220);
    expect(folderOfFile(names(short))).not.toBe(short);
    expect(folderOfFile(names(`${long.slice(1)}y`))).not.toBe(short);
    const deep = folderOfFile(Array.from({ length: 60 }, () => Buffer.from("d".repeat(100))));
    expect(deep).toMatch(/^%~[0-9a-f]{24}$/);
  });

  it("is different for different files, and never leads elsewhere", () => {
    const name = fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 255 }),
      fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).map((text) => Buffer.from(text)),
      fc
        .constantFrom(".", "..", "%", "%25", "%~", " ", "-", "report.html", "report%2Ehtml")
        .map((text) => Buffer.from(text)),
    );
    const path = fc.array(
      name.map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0 || byte === 0x2f ? 0x5f : byte)))),
      { minLength: 1, maxLength: 4 },
    );
    fc.assert(
      fc.property(path, path, (one, other) => {
        const folder = folderOfFile(one);
        const isSame = Buffer.concat(one.flatMap((part) => [part, Buffer.from("/")])).equals(
          Buffer.concat(other.flatMap((part) => [part, Buffer.from("/")])),
        );
        expect(folderOfFile(other) === folder).toBe(isSame);
        for (const part of folder.split("/")) {
          expect(part).toMatch(/^[^\p{C}.\- ~][^\p{C}/\\]*$/u);
          expect(part).not.toMatch(/[ .]$/);
          expect(Buffer.byteLength(part)).toBeLessThanOrEqual(255);
        }
      }),
    );
  });
});
