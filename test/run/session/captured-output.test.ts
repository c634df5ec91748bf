import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CapturedOutput } from "../../../src/run/session/exec-command.ts";
import { OutputDir } from "../../../src/run/session/write-room.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-out-"));
});

afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

async function captured(bytes: Buffer, step: number): Promise<{ text: string; cut: boolean; file: Buffer | null }> {
  const host = join(dir, "1.stdout");
  const output = new CapturedOutput(host, "/shown");
  for (let at = 0; at < bytes.length; at += step) await output.add(bytes.subarray(at, at + step));
  const { text, cut, fileBytes, bytes: counted } = await output.end();
  expect(counted).toBe(bytes.length);
  const file = await readFile(host).catch(() => null);
  expect(fileBytes).toBe(file?.length ?? 0);
  return { text, cut, file };
}

describe("the captured output of a command", () => {
  it.each([0, 1, 11_999, 12_000])("of %i bytes is in the answer, and in no file", async (length) => {
    const bytes = Buffer.alloc(length, "abc");
    expect(await captured(bytes, 1000)).toEqual({ text: bytes.toString(), cut: false, file: null });
  });

  it.each([12_001, 24_000])("of %i bytes is whole in the answer", async (length) => {
    const bytes = Buffer.alloc(length, "abcd");
    expect(await captured(bytes, 7)).toEqual({ text: bytes.toString(), cut: false, file: bytes });
  });

  it.each([1, 17, 4096, 12_000, 24_001, 100_000])(
    "that comes in pieces of %i bytes is cut in the middle, and whole in the file",
    async (step) => {
      const bytes = Buffer.from(Array.from({ length: 60_000 }, (_, index) => 97 + (index % 23)));
      const { text, cut, file } = await captured(bytes, step);
      expect(cut).toBe(true);
      expect(file?.equals(bytes)).toBe(true);
      const mark = "\n[… 36000 bytes left out; the whole output is in /shown …]\n";
      expect(text).toBe(bytes.toString("utf8", 0, 12_000) + mark + bytes.toString("utf8", 48_000));
    },
  );

  it("is never cut within a character", async () => {
    const { text } = await captured(Buffer.from(`x${"€".repeat(20_000)}`), 5000);
    expect(text).not.toContain("\ufffd");
    expect(text).toMatch(/^x€+\n\[… \d+ bytes left out; .*\]\n€+$/);
  });

  it("says when the disk is behind, and when it has caught up", async () => {
    const output = new CapturedOutput(join(dir, "1.stdout"), "/shown");
    expect(output.add(Buffer.alloc(12_000))).toBeUndefined();
    const behind = output.add(Buffer.alloc(1_000_000));
    expect(behind).toBeInstanceOf(Promise);
    expect(output.add(Buffer.alloc(1))).toBe(behind);
    await behind;
    expect(output.add(Buffer.alloc(1))).toBeUndefined();
    expect((await output.end()).fileBytes).toBe(1_012_002);
  });

  it("says that the rest could not be kept where there is no room for it, and holds nobody up", async () => {
    const output = new CapturedOutput("/dev/full", "/shown");
    const blocked = new CapturedOutput(join(dir, "missing", "1"), "/shown");
    for (const one of [output, blocked]) {
      for (let piece = 0; piece < 20; piece += 1) await one.add(Buffer.alloc(100_000, "x"));
      expect((await one.end()).text).toContain("bytes left out; the rest could not be kept …]");
    }
  });
});

describe("the output that a session keeps", () => {
  it("is bounded: the oldest makes room, and the newest stays", async () => {
    const output = await OutputDir.make(dir, "r1");
    const huge = 200 * 1024 * 1024;
    for (const [name, bytes] of [
      ["1.stdout", 0],
      ["2.stdout", huge],
      ["3.stderr", huge],
      ["4.stdout", 2 * huge],
    ] as const) {
      await writeFile(join(output.path, name), "stands for it");
      await output.keep(name, bytes);
    }
    // What is empty was never counted, for it has no file.
    expect(await readdir(output.path)).toEqual(["1.stdout", "4.stdout"]);
    await output[Symbol.asyncDispose]();
    expect(await readdir(dir)).toEqual([]);
  });
});
