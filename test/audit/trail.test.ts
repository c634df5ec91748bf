import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { describe, expect, it } from "vitest";
import { recordsOf, sealedHead } from "../../src/audit/seal.ts";
import { AuditTrailError } from "../../src/audit/trail.ts";
import type { TrailPaths } from "../../src/state/state-dir.ts";
import { KEY, record, trailFixture } from "./trail-fixture.ts";

describe("the audit trail", () => {
  it("is one record a line, each with its number, its time, and the hash of the one before it", async () => {
    using fixture = trailFixture();
    await fixture.write(3);
    const lines = readFileSync(fixture.place.trail, "utf8").trimEnd().split("\n");
    const records = lines.map((line) => JSON.parse(line));
    expect(records.map(({ seq, run }) => [seq, run])).toEqual([
      [1, "r0"],
      [2, "r1"],
      [3, "r2"],
    ]);
    expect(records[0].prev).toBe("0".repeat(64));
    expect(records[1].prev).toBe(records[0].hash);
    expect(records[2].prev).toBe(records[1].hash);
    expect(records[0].at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 3, problems: [], notes: [] });
  });

  it("lets nobody else look into it, says which project it is of, and leaves nothing besides", async () => {
    using fixture = trailFixture();
    await fixture.write(1);
    const { dir, trail, project } = fixture.place;
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    expect(statSync(dirname(dir)).mode & 0o777).toBe(0o700);
    expect(statSync(trail).mode & 0o777).toBe(0o600);
    expect(readFileSync(project, "utf8")).toBe("/project\n");
    expect(readdirSync(dir).sort()).toEqual(["head", "project", "trail.ndjson"]);
  });

  it("touches nothing before the first record", async () => {
    using fixture = trailFixture();
    await using trail = fixture.open();
    await trail.close();
    expect(() => statSync(fixture.place.dir)).toThrow(/ENOENT/);
  });

  it("goes on where it had ended, and settles only when a record is on disk", async () => {
    using fixture = trailFixture();
    await fixture.write(2);
    await using trail = fixture.open();
    await trail.append(record(2));
    expect(readFileSync(fixture.place.trail, "utf8").trimEnd().split("\n")).toHaveLength(3);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 3 });
  });

  it("keeps the order of several that append in one process, and writes what came together at once", async () => {
    using fixture = trailFixture();
    const trails = [fixture.open(), fixture.open()];
    await Promise.all(
      trails.flatMap((trail) => Array.from({ length: 300 }, (_, index) => trail.append(record(index)))),
    );
    await Promise.all(trails.map((trail) => trail.close()));
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 600 });
    const runs: unknown[] = [];
    for await (const some of recordsOf(fixture.place, KEY)) runs.push(...some.map((one) => one?.run));
    const once = Array.from({ length: 300 }, (_, index) => `r${index}`);
    expect(runs).toEqual([...once, ...once]);
  });

  it("writes what waits when it is closed, and takes nothing after", async () => {
    using fixture = trailFixture();
    const trail = fixture.open();
    const written = Promise.all([trail.append(record(0)), trail.append(record(1))]);
    await trail.close();
    await written;
    await expect(trail.append(record(2))).rejects.toThrow(AuditTrailError);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 2 });
  });

  it("rejects what cannot be written, and writes again where it can", async () => {
    using fixture = trailFixture();
    const { dir } = fixture.place;
    mkdirSync(dirname(dir), { recursive: true });
    writeFileSync(dir, "not a directory");
    await using trail = fixture.open();
    await expect(trail.append(record(0))).rejects.toThrow(/the audit trail cannot be written/);
    rmSync(dir);
    await trail.append(record(1));
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 1 });
  });

  it("rejects instead of growing without bound where records come faster than they are written", async () => {
    using fixture = trailFixture();
    await using trail = fixture.open();
    const appended = Array.from({ length: 10_050 }, (_, index) => trail.append(record(index)));
    const settled = await Promise.allSettled(appended);
    const rejected = settled.filter(({ status }) => status === "rejected").length;
    expect(rejected).toBe(50);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 10_000 });
  });

  it("does not write through a link that stands in its place", async () => {
    using fixture = trailFixture();
    await fixture.write(1);
    const { trail: path, dir, head } = fixture.place;
    rmSync(path);
    rmSync(head);
    writeFileSync(`${dir}/elsewhere`, "");
    symlinkSync(`${dir}/elsewhere`, path);
    await using trail = fixture.open();
    await expect(trail.append(record(1))).rejects.toThrow(/ELOOP/);
    expect(readFileSync(`${dir}/elsewhere`, "utf8")).toBe("");
  });
});

describe("a trail whose last line was not written to its end", () => {
  it.each([
    ["half a record", (line: string) => line.slice(0, line.length / 2)],
    ["what is no text", () => "\0\0\0\xff\0"],
  ])("keeps %s where it is, and tells of it in the next record", async (_, torn) => {
    using fixture = trailFixture();
    await fixture.write(2);
    const before = readFileSync(fixture.place.trail, "latin1");
    const left = torn(before.split("\n")[0] ?? "");
    writeFileSync(fixture.place.trail, before + left, "latin1");
    const found = await fixture.verify();
    expect(found).toMatchObject({ ok: true, records: 2, notes: [{ line: 3 }] });
    expect(found.notes[0]?.what).toContain("incomplete");

    await fixture.write(1);
    const after = readFileSync(fixture.place.trail, "latin1");
    expect(after.startsWith(`${before}${left}\n`)).toBe(true);
    const repaired = JSON.parse(after.split("\n")[3] ?? "");
    expect(repaired).toMatchObject({ seq: 3, type: "repaired", what: "torn", bytes: left.length });
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 4, problems: [], notes: [{ line: 4 }] });
  });

  it("takes a record that lacks nothing but its line break for what it is", async () => {
    using fixture = trailFixture();
    await fixture.write(1);
    const head = readFileSync(fixture.place.head);
    await fixture.write(1);
    writeFileSync(fixture.place.head, head);
    writeFileSync(fixture.place.trail, readFileSync(fixture.place.trail).subarray(0, -1));
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 2 });
    await fixture.write(1);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 3, problems: [], notes: [] });
  });
});

describe("a trail that is ahead of its head, as after a crash between the two", () => {
  it("is whole, and goes on from its last record", async () => {
    using fixture = trailFixture();
    await fixture.write(2);
    const head = readFileSync(fixture.place.head);
    await fixture.write(3);
    writeFileSync(fixture.place.head, head);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 5, notes: [{ line: 0 }] });
    await fixture.write(1);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 6, notes: [] });
  });

  it("is whole as well where the first record came before any other head", async () => {
    using fixture = trailFixture();
    await fixture.write(1);
    writeFileSync(fixture.place.head, sealedHead(KEY, { seq: 0, hash: "0".repeat(64), size: 0 }));
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 1 });
    await fixture.write(1);
    expect(await fixture.verify()).toMatchObject({ ok: true, records: 2 });
  });
});

describe("a trail that was tampered with", () => {
  it.each([
    ["cut off", ({ trail }: TrailPaths) => cutLines(trail, 2), "records before this one were removed"],
    ["removed", ({ trail }: TrailPaths) => rmSync(trail), "were removed before"],
    ["robbed of its head", ({ head }: TrailPaths) => rmSync(head), "head was missing"],
    ["given another head", ({ head }: TrailPaths) => writeFileSync(head, "{}"), "head was missing"],
    ["added to", ({ trail }: TrailPaths) => appendFileSync(trail, '{"seq":5}\n{"seq":6}\n'), "are not records"],
    [
      "given its first record once more",
      ({ trail }: TrailPaths) => appendFileSync(trail, firstLine(trail)),
      "a duplicate",
    ],
  ])("goes on, and stays broken for ever, when it was %s", async (_, tamper, told) => {
    using fixture = trailFixture();
    await fixture.write(4);
    tamper(fixture.place);
    expect((await fixture.verify()).ok).toBe(false);
    await fixture.write(1);
    await fixture.write(1);
    const { ok, problems } = await fixture.verify();
    expect(ok).toBe(false);
    expect(problems.map(({ what }) => what).join()).toContain(told);
    const numbers: number[] = [];
    for await (const some of recordsOf(fixture.place, KEY)) numbers.push(...some.map((one) => one?.seq ?? 0));
    // A repair, and the two that were appended, whatever is before them.
    const last = numbers.at(-1) ?? 0;
    expect(numbers.slice(-3)).toEqual([last - 2, last - 1, last]);
    expect(last).toBe(7);
  });
});

function firstLine(path: string): string {
  return `${readFileSync(path, "utf8").split("\n")[0]}\n`;
}

function cutLines(path: string, kept: number): void {
  const lines = readFileSync(path, "utf8").split("\n").slice(0, kept);
  writeFileSync(path, `${lines.join("\n")}\n`);
}
