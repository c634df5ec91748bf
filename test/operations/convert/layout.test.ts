import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { folderOfFile } from "../../../src/operations/convert/layout.ts";

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
