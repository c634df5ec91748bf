import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { editedContent } from "../../src/files/edit/edited-content.ts";
import type { ReadOptions, TextResult } from "../../src/files/model/files.ts";
import { type ByteSource, readContent } from "../../src/files/read/read-text.ts";

function source(content: string | Uint8Array): ByteSource {
  const bytes = Buffer.from(content);
  return {
    size: bytes.length,
    read: async (position, length) => bytes.subarray(position, position + length),
    changed: () => false,
  };
}

async function text(content: string | Uint8Array | ByteSource, options: ReadOptions = {}): Promise<TextResult> {
  const from = typeof content === "object" && "read" in content ? content : source(content);
  const read = await readContent(from, "/data/f", options);
  if (read.type !== "text") throw new Error("not text");
  return read;
}

const fiveLines = "one\ntwo\nthree\nfour\nfive\n";
const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const GIF = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");

describe("text", () => {
  it("in UTF-16 is recognised by its mark, in both orders, and read as text", async () => {
    const little = Buffer.from("\ufeffone\ntwö\n", "utf16le");
    const big = Buffer.from(little).swap16();
    for (const bytes of [little, big]) {
      expect(await text(bytes)).toMatchObject({ content: "one\ntwö\n", bytes: 18, totalLines: 2 });
      expect((await text(bytes, { offset: 2 })).hint).toContain("The file is UTF-16 text. Tools write UTF-8");
    }
    await expect(text(Buffer.from([0xff, 0xfe, 0x00, 0xd8]))).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    const edited = editedContent(source(little), "/data/f", [{ old: "one", new: "two" }]);
    await expect(edited).rejects.toThrow("it is UTF-16 text, and only UTF-8 can be edited");
  });

  it("is read by lines, and says how to go on", async () => {
    expect(await text(fiveLines, { offset: 2, limit: 2 })).toEqual({
      type: "text",
      content: "two\nthree\n",
      bytes: 24,
      totalLines: 5,
      outputLines: 2,
      truncated: true,
      truncatedBy: "lines",
      hint: "There is more: continue with offset 4.",
    });
    expect(await text(fiveLines, { offset: 4, limit: 2 })).toMatchObject({ truncated: false, hint: null });
  });

  it("is read by characters, in whole lines where one fits", async () => {
    expect(await text(fiveLines, { maxChars: 10 })).toMatchObject({
      content: "one\ntwo\n",
      totalLines: 5,
      outputLines: 2,
      truncatedBy: "chars",
      hint: "There is more: continue with offset 3.",
    });
    expect(await text(fiveLines, { maxChars: 24 })).toMatchObject({ content: fiveLines, truncated: false });
  });

  it("is cut within a line only where the line is longer than what was asked for", async () => {
    expect(await text("a\nlong line\nb", { offset: 2, maxChars: 4 })).toMatchObject({
      content: "long",
      totalLines: 3,
      outputLines: 1,
      truncatedBy: "chars",
      hint: "Line 2 is too long to show whole: continue with offset 2 and column 5.",
    });
    const next = await text("a\nlong line\nb", { offset: 2, column: 5, maxChars: 4 });
    expect(next).toMatchObject({ content: " lin", totalLines: 3 });
    expect(next.hint).toMatch(/column 9/);
    expect(await text("a\nlong line\nb", { offset: 2, column: 9 })).toMatchObject({ content: "e\nb", totalLines: 3 });
  });

  it("is limited to 200,000 characters where nothing is said", async () => {
    expect((await text("x".repeat(200_001))).content.length).toBe(200_000);
    expect((await text("x".repeat(200_000))).truncated).toBe(false);
  });

  it("keeps a byte order mark, CRLF and a missing last newline", async () => {
    const content = "\ufeffone\r\ntwo";
    expect(await text(content)).toMatchObject({ content, bytes: 11, totalLines: 2, outputLines: 2 });
    expect(await text(content, { offset: 2 })).toMatchObject({ content: "two" });
  });

  it("may be empty, and has no lines after its last", async () => {
    expect(await text("")).toMatchObject({ content: "", totalLines: 0, outputLines: 0, hint: null });
    for (const content of ["a\nb\n", "a\nb"]) {
      expect(await text(content, { offset: 3 })).toMatchObject({
        content: "",
        totalLines: 2,
        truncated: false,
        hint: "The file has 2 lines: offset 3 is after its end.",
      });
    }
  });

  it("never loses, repeats or cuts a character, however it is paged through", async () => {
    const unit = fc.constantFrom("a", "é", "€", "😀", "\n", "\r\n", "\ufeff", "0123456789");
    const file = fc.array(unit, { maxLength: 60 }).map((units) => units.join(""));
    const bounds = fc.record({ maxChars: fc.integer({ min: 1, max: 12 }), limit: fc.integer({ min: 1, max: 4 }) });
    await fc.assert(
      fc.asyncProperty(file, bounds, async (content, asked) => {
        const lines = content.split("\n").length - (content.endsWith("\n") || content === "" ? 1 : 0);
        let all = "";
        let [offset, column] = [1, 1];
        for (let page = 0; page < 500; page++) {
          const read = await text(content, { ...asked, offset, column });
          expect(read.content.isWellFormed()).toBe(true);
          expect(read.totalLines).toBe(lines);
          all += read.content;
          if (!read.truncated) break;
          const next = /offset (\d+)(?: and column (\d+))?/.exec(read.hint ?? "");
          offset = Number(next?.[1]);
          column = Number(next?.[2] ?? 1);
        }
        expect(all).toBe(content);
      }),
      { numRuns: 300 },
    );
  });

  it("is decoded across the pieces in which a file is read", async () => {
    const content = `${"é€😀".repeat(40_000)}\n`;
    expect((await text(`x${content}`, { maxChars: 2_000_000 })).content).toBe(`x${content}`);
  });

  it("is refused where offset, limit or size make no sense", async () => {
    for (const options of [{ offset: 0 }, { limit: -1 }, { maxChars: 0.5 }, { column: Number.NaN }]) {
      await expect(text("a", options)).rejects.toThrow(/whole number of at least 1/);
    }
  });

  it("says that the file was changed while it was read", async () => {
    const changing = { ...source("a\n"), changed: () => true };
    expect((await text(changing)).hint).toMatch(/changed while it was read/);
  });

  it("is read to where the file ends, where it was cut off meanwhile", async () => {
    const cut = { ...source("a\nb\n"), size: 4_000_000, changed: () => true };
    expect(await text(cut)).toMatchObject({ content: "a\nb\n", truncated: false });
  });
});

describe("other content", () => {
  it.each([
    ["image/png", PNG],
    ["image/gif", GIF],
    ["image/jpeg", Buffer.from("ffd8ffe000104a46494600010100000100010000ffd9", "hex")],
    ["image/webp", Buffer.from("524946461a000000574542505650384c0d0000002f00000010071011118888fe0700", "hex")],
    ["image/bmp", Buffer.concat([Buffer.from("BM"), Buffer.alloc(60)])],
  ])("that is %s is an image", async (mimeType, content) => {
    expect(await readContent(source(content), "/data/f.txt", {})).toEqual({
      type: "image",
      content,
      bytes: content.length,
      mimeType,
    });
  });

  it.each([
    ["application/zip", Buffer.from("504b03040a0000000000", "hex")],
    ["not UTF-8 text", Buffer.from("caf\xe9", "latin1")],
    ["not UTF-8 text", Buffer.from("a\0b")],
    ["not UTF-8 text", Buffer.concat([Buffer.alloc(9000, "a"), Buffer.of(0xff)])],
    ["not UTF-8 text", Buffer.from("ends in half a character \xe2\x82", "latin1")],
  ])("is refused (%s), with what it is", async (what, content) => {
    const refusal = readContent(source(content), "/data/f.txt", {});
    await expect(refusal).rejects.toThrow(/^Cannot read '\/data\/f\.txt': it is .*\.$/);
    await expect(refusal).rejects.toThrow(what);
  });

  it("is refused where an image is too large to be passed on", async () => {
    const large = { ...source(PNG), size: 30_000_000 };
    await expect(readContent(large, "/data/f", {})).rejects.toMatchObject({
      code: "FILE_SYSTEM",
      message: expect.stringMatching(/an image of 30000000 bytes, and at most 10 MiB are shown\.$/),
    });
  });
});
