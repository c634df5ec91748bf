import { readFileSync, rmSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { auditKey } from "../../src/audit/seal.ts";
import { MAX_REMARKS, verifyTrail } from "../../src/audit/verify.ts";
import { KEY, type TrailFixture, trailFixture } from "./trail-fixture.ts";

const RECORDS = 12;

let fixture: TrailFixture;
let trail: Buffer;
let head: Buffer;
let lines: readonly string[];

beforeAll(async () => {
  fixture = trailFixture();
  await fixture.write(RECORDS);
  trail = readFileSync(fixture.place.trail);
  head = readFileSync(fixture.place.head);
  lines = trail.toString("utf8").trimEnd().split("\n");
});

afterAll(() => {
  fixture[Symbol.dispose]();
});

/** The verdict on the trail with these contents in place of its own. */
async function judged(contents: { trail?: Buffer | string; head?: Buffer | string }, key = KEY) {
  writeFileSync(fixture.place.trail, contents.trail ?? trail);
  writeFileSync(fixture.place.head, contents.head ?? head);
  return await fixture.verify(key);
}

async function problemsOf(contents: Parameters<typeof judged>[0]): Promise<string[]> {
  const { ok, problems } = await judged(contents);
  expect(ok).toBe(problems.length === 0);
  return problems.map(({ line, what }) => `${line}: ${what}`);
}

const joined = (list: readonly string[]): string => list.map((line) => `${line}\n`).join("");
const place = fc.nat();

describe("the verdict on a trail", () => {
  it("is that it is whole, and what it spans", async () => {
    const verdict = await judged({});
    const [first, last] = [lines[0], lines.at(-1)].map((line) => JSON.parse(line ?? "").at);
    expect(verdict).toEqual({ ok: true, records: RECORDS, firstAt: first, lastAt: last, problems: [], notes: [] });
  });

  it("finds any single byte that is changed", async () => {
    const changed = fc.asyncProperty(place, fc.integer({ min: 1, max: 255 }), async (at, by) => {
      const bytes = Buffer.from(trail);
      const index = at % bytes.length;
      bytes[index] = ((bytes[index] ?? 0) + by) % 256;
      expect((await judged({ trail: bytes })).ok).toBe(false);
    });
    await fc.assert(changed, { numRuns: 400 });
  });

  it("finds any byte that is changed in the head", async () => {
    for (let index = 0; index < head.length; index += 1) {
      const bytes = Buffer.from(head);
      bytes[index] = (bytes[index] ?? 0) ^ 1;
      expect((await judged({ head: bytes })).ok).toBe(false);
    }
  });

  it("finds any record that is removed, or is there twice", async () => {
    for (let index = 0; index < RECORDS; index += 1) {
      expect((await judged({ trail: joined(lines.toSpliced(index, 1)) })).ok).toBe(false);
      expect((await judged({ trail: joined(lines.toSpliced(index, 0, lines[index] ?? "")) })).ok).toBe(false);
    }
  });

  it("finds any two records that are swapped, and any list of them that is cut out or moved", async () => {
    const moved = fc.asyncProperty(place, place, place, async (a, b, c) => {
      const [from, to] = [a % RECORDS, b % RECORDS];
      fc.pre(from !== to);
      const swapped = lines.with(from, lines[to] ?? "").with(to, lines[from] ?? "");
      expect((await judged({ trail: joined(swapped) })).ok).toBe(false);
      const [start, end] = [Math.min(from, to), Math.max(from, to)];
      const rest = lines.toSpliced(start, end - start);
      expect((await judged({ trail: joined(rest) })).ok).toBe(false);
      const at = c % (rest.length + 1);
      fc.pre(at !== start);
      expect((await judged({ trail: joined(rest.toSpliced(at, 0, ...lines.slice(start, end))) })).ok).toBe(false);
    });
    await fc.assert(moved, { numRuns: 150 });
  });

  it("finds any truncation, wherever it cuts, down to nothing and to no file at all", async () => {
    const cut = fc.asyncProperty(place, async (at) => {
      expect((await judged({ trail: trail.subarray(0, at % trail.length) })).ok).toBe(false);
    });
    await fc.assert(cut, { numRuns: 200, examples: [[0], [trail.length - 1], [Buffer.byteLength(lines[0] ?? "")]] });
    await judged({});
    rmSync(fixture.place.trail);
    expect((await fixture.verify()).problems.map(({ what }) => what)).toEqual([
      "the trail is truncated: 12 records were written, and the last one here is 0",
    ]);
  });

  it("finds anything that is inserted between records", async () => {
    const inserted = fc.asyncProperty(place, fc.string({ unit: "binary" }), async (at, text) => {
      const index = at % RECORDS;
      expect((await judged({ trail: joined(lines.toSpliced(index, 0, text)) })).ok).toBe(false);
    });
    await fc.assert(inserted, { numRuns: 100 });
  });

  it("names what is wrong, and the line", async () => {
    expect(await problemsOf({ trail: joined(lines.with(4, (lines[4] ?? "").replace('"r4"', '"r5"'))) })).toEqual([
      "5: record 5 was changed",
    ]);
    expect(await problemsOf({ trail: joined(lines.toSpliced(4, 2)) })).toEqual([
      "5: records 5 to 6 are missing before this one",
    ]);
    expect(await problemsOf({ trail: joined(lines.toSpliced(4, 1).toSpliced(7, 0, lines[4] ?? "")) })).toEqual([
      "5: record 5 is missing before this one",
      "8: record 5 is out of order, or a duplicate",
    ]);
    expect(await problemsOf({ trail: joined(lines.toSpliced(4, 0, '{"a":1}', "b")) })).toEqual([
      "5: this line is not a record (and 1 more after it)",
    ]);
    expect(await problemsOf({ trail: joined(lines.slice(0, 10)) })).toEqual([
      "10: the trail is truncated: 12 records were written, and the last one here is 10",
    ]);
    expect(await problemsOf({ head: "" })).toEqual([
      "0: the head was changed, or not sealed with this key; records at the end may have been removed",
    ]);
  });

  it("says so where all of it was sealed with another key, as with that of another project", async () => {
    const { ok, problems } = await judged({}, auditKey(Buffer.alloc(32, 7), "/another"));
    expect(ok).toBe(false);
    expect(problems[0]?.what).toBe("the records and the head were not sealed with this state directory's key");
  });

  it("finds a record that this key sealed for another trail's place", async () => {
    using other = trailFixture();
    await other.write(RECORDS, "another");
    const foreign = readFileSync(other.place.trail, "utf8").split("\n")[3] ?? "";
    expect((await judged({ trail: joined(lines.with(3, foreign)) })).ok).toBe(false);
  });

  it("tells of so many problems, and how many more there are", async () => {
    using long = trailFixture();
    await long.write(500);
    const even = readFileSync(long.place.trail, "utf8")
      .split("\n")
      .filter((_, index) => index % 2 === 1);
    writeFileSync(long.place.trail, joined(even));
    const { problems } = await long.verify();
    expect(problems).toHaveLength(MAX_REMARKS);
    expect(problems.at(-1)?.what).toBe("and 151 more");
  });

  it("reads a line without an end in pieces, and takes it for none", async () => {
    const { problems } = await judged({
      trail: Buffer.concat([Buffer.alloc(3_000_000, "x"), Buffer.from("\n"), trail]),
    });
    expect(problems).toEqual([{ line: 1, what: "this line is not a record" }]);
  });

  it("is none where there is no trail", async () => {
    using none = trailFixture();
    expect(await verifyTrail(none.place, KEY)).toBeNull();
  });
});
