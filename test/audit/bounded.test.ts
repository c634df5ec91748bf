import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { changesApplied } from "../../src/audit/records.ts";
import { linesBack, linesOf, type TrailLine } from "../../src/audit/seal.ts";
import { boundedJson } from "../../src/audit/trail.ts";

const read = (value: object): Record<string, unknown> => JSON.parse(boundedJson(value));

describe("what a record holds", () => {
  it("is kept as it is where it is short", () => {
    const value = { type: "x", a: "b", n: null, list: [{ c: 1 }], yes: true };
    expect(read(value)).toEqual(value);
  });

  it("is cut, text by text and list by list, with how much there was", () => {
    const { text, list } = read({ type: "x", text: "a".repeat(5000), list: Array.from({ length: 1234 }, () => "p") });
    expect(text).toBe(`${"a".repeat(4096)}… (904 more characters)`);
    expect(list).toHaveLength(1001);
    expect((list as unknown[]).at(-1)).toEqual({ more: 234 });
  });

  it("leaves out what is not there, and has no text that is no Unicode", () => {
    expect(read({ type: "x", none: undefined, odd: "\ud800" })).toEqual({ type: "x", odd: "\ufffd" });
  });

  it("is cut harder where all of it is too long, so that no record is longer than 256 KiB", () => {
    const paths = Array.from({ length: 100_000 }, (_, index) => ({
      path: `/out/${"d".repeat(2000)}/${index}`,
      kind: "create",
      outcome: "applied",
    }));
    const json = boundedJson(changesApplied({ id: "r", run: "r", root: "r", worker: "w" }, paths));
    expect(json.length).toBeLessThan(256 * 1024);
    expect(JSON.parse(json)).toMatchObject({ run: "r", counts: { applied: 100_000 } });
  });

  it("counts bytes, so that a text of another script makes no longer record", () => {
    const paths = Array.from({ length: 60 }, () => "\u6587".repeat(4096));
    expect(Buffer.byteLength(boundedJson({ type: "x", paths }))).toBeLessThan(256 * 1024);
  });

  it("stays bounded for what no record is", () => {
    const wide = (depth: number): object =>
      Object.fromEntries(
        Array.from({ length: 40 }, (_, index) => [`${"n".repeat(300)}${index}`, depth > 0 ? wide(depth - 1) : "v"]),
      );
    expect(boundedJson({ type: "x", ...wide(2) }).length).toBeLessThan(256 * 1024);
  });
});

const CHUNK = 256 * 1024;
const shown = (lines: readonly TrailLine[]) =>
  lines.map(({ start, end, bytes }) => [start, end, bytes?.length ?? null]);

it.each([0, 1, 3000, CHUNK - 1, CHUNK, CHUNK + 1, 600_000])(
  "lines of %i bytes are the same from the end as from the beginning, without one that is not ended",
  async (size) => {
    const dir = await mkdtemp(join(tmpdir(), "corral-lines-"));
    const file = join(dir, "lines");
    let text = "";
    for (let index = 0; text.length < size; index += 1) text += `${"x".repeat((index * 7919) % 5000)}\n`;
    for (const content of [text, `${text}torn`, `\n\n${text}`, `${"y".repeat(2 * 1024 ** 2)}\n${text}`]) {
      await writeFile(file, content);
      await using handle = await open(file);
      const forth = (await Array.fromAsync(linesOf(handle, 0, content.length))).flat();
      const back = (await Array.fromAsync(linesBack(handle, content.length))).flat();
      expect(shown(back.toReversed())).toEqual(shown(forth.filter(({ terminated }) => terminated)));
      // A page that begins where another one ended.
      const middle = forth[Math.floor(forth.length / 2)]?.start ?? 0;
      const older = (await Array.fromAsync(linesBack(handle, middle))).flat();
      expect(shown(older.toReversed())).toEqual(shown(forth.filter(({ end }) => end <= middle)));
    }
    await rm(dir, { recursive: true });
  },
);
