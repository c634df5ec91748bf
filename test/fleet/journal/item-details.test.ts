import { randomBytes } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { causeOf, type ItemResult } from "../../../src/fleet/model/item.ts";
import { attempts, itemAt, items, noCollisions, SPEC, settlementOf } from "./journal-fixture.ts";
import { fixture, journal, journalForEach, reopen } from "./journal-for-each.ts";
import { isSqlite } from "./store-kind.ts";

journalForEach();

/** A fleet whose items print and end as said. */
async function fleetOf(
  ends: readonly (Partial<ItemResult> & { readonly stdout?: string; readonly stderr?: string })[],
): Promise<string> {
  const fleet = await journal.create(SPEC);
  const fields = (index: number) => ({
    fields: { path: `/in/doc-${index}.pdf`, ...(index === 1 ? { lang: "de" } : {}) },
  });
  await journal.load(
    fleet,
    items(ends.length, (index) => ({ ...itemAt(index), ...fields(index) })),
    noCollisions,
  );
  const queue = await journal.queue(fleet);
  const { items: claimed } = await queue.claim(1000, attempts());
  for (const { request, attempt } of claimed) {
    const { stdout = "", stderr = "", ...more } = ends[request.index] ?? {};
    const settled = settlementOf(request.index, { output: stdout || "text", ...more });
    await queue.settle(request.index, attempt, { ...settled, streams: { stdout, stderr } });
  }
  return fleet;
}

const failed = (stderrLine: string, more: Partial<ItemResult> = {}): Partial<ItemResult> => ({
  status: "failed",
  exitCode: 1,
  error: { code: "FAILED", message: `${stderrLine} (Worker w ended with exit code 1.)` },
  stderrLine,
  ...more,
});

describe("what an item printed", () => {
  it("is kept: both streams, short and long, as text", async () => {
    const random = randomBytes(20_000).toString("base64");
    const fleet = await fleetOf([
      { stdout: "out\n", stderr: "err \u{1f600}\n" },
      { stdout: random, stderr: "x".repeat(60_000), output: { parsed: true } },
      {},
    ]);
    expect((await journal.item(fleet, "doc-0.pdf"))?.streams).toEqual({ stdout: "out\n", stderr: "err \u{1f600}\n" });
    expect((await journal.item(fleet, "doc-1.pdf"))?.streams).toEqual({ stdout: random, stderr: "x".repeat(60_000) });
    expect((await journal.item(fleet, "doc-2.pdf"))?.streams).toEqual({ stdout: "", stderr: "" });
    expect(await journal.item(fleet, "doc-3.pdf")).toBeNull();
    expect((await Array.fromAsync(journal.logs(fleet, { failed: false }))).map(({ key }) => key)).toEqual([
      "doc-0.pdf",
      "doc-1.pdf",
    ]);
  });

  it("has its beginning and its end if it is long", async () => {
    const fleet = await fleetOf([{ stderr: `begin${"-".repeat(1_000_000)}end`, stdout: `${"y".repeat(200_000)}last` }]);
    const { stdout = "", stderr = "" } = (await journal.item(fleet, "doc-0.pdf"))?.streams ?? {};
    expect(stderr).toMatch(/^begin-+\n… \(934472 characters left out\)\n-+end$/);
    expect(stdout.length).toBeLessThan(66_000);
    expect(stdout.endsWith("last")).toBe(true);
  });

  it("goes with its fleet", async () => {
    const fleet = await fleetOf([{ stderr: "x" }]);
    await journal.end(fleet);
    expect(await journal.forget(fleet)).toBe(true);
    expect(await fixture.rows()).toBe(0);
  });
});

describe("failures", () => {
  it("are grouped by their last words, apart from numbers and names of items", async () => {
    const fleet = await fleetOf([
      failed("doc-0.pdf: page 1 of 20 is broken"),
      failed("doc-1.pdf: page 17 of 3 is broken"),
      failed("no such file"),
      { status: "timed_out", exitCode: null, error: { code: "TIMED_OUT", message: "took too long" } },
      failed("doc-4.pdf: page 9 of 9 is broken"),
      {},
    ]);
    expect(await journal.failureGroups(fleet)).toEqual([
      { count: 3, status: "failed", code: "FAILED", text: "doc-0.pdf: page 1 of 20 is broken", example: "doc-0.pdf" },
      { count: 1, status: "failed", code: "FAILED", text: "no such file", example: "doc-2.pdf" },
      { count: 1, status: "timed_out", code: "TIMED_OUT", text: "took too long", example: "doc-3.pdf" },
    ]);
  });
});

describe("the cause of a failure", () => {
  it.each(["alpha", "beta"])("has neither the item's name nor numbers: %s", (stem) => {
    const line = `/in/${stem}.pdf: ${stem} has page 0x1f of ${stem.length}`;
    expect(causeOf({ ...settlementOf(0, { key: `in/${stem}.pdf`, ...failed(line) }).result })).toBe(
      "/<item>: <item> has page N of N",
    );
  });

  it("has no name that the worker chose, and words with an apostrophe as they are", () => {
    const causes = ["can't open 'in put.xml' in /tmp/a1/x.zip: don't know", "can't open 'b' in ./c: don't know"].map(
      (line) => causeOf(settlementOf(0, { key: "k", ...failed(line) }).result),
    );
    expect(causes).toEqual(["can't open '<…>' in <path>: don't know", "can't open '<…>' in <path>: don't know"]);
  });
});

describe("the fields of items", () => {
  it("are in results, and their names are known", async () => {
    const fleet = await fleetOf([{}, {}]);
    expect((await Array.fromAsync(journal.results(fleet))).map(({ fields }) => fields)).toEqual([
      { path: "/in/doc-0.pdf" },
      { path: "/in/doc-1.pdf", lang: "de" },
    ]);
    expect(await journal.fieldNames(fleet, 10)).toEqual(["path", "lang"]);
    expect(await journal.fieldNames(fleet, 1)).toEqual(["path"]);
  });
});

describe.runIf(isSqlite)("a journal of version 1", () => {
  it("is migrated: its results are read, its items can be run, and failures without a cause are grouped by their code", async () => {
    const fleet = await fleetOf([failed("one"), failed("two"), {}]);
    await journal.pause(fleet, "a test");
    await journal[Symbol.asyncDispose]();
    const versionOf = () => {
      using db = new DatabaseSync(fixture.path, { readOnly: true });
      return db.prepare("PRAGMA user_version").get();
    };
    const newest = versionOf();
    using old = new DatabaseSync(fixture.path);
    old.exec(`ALTER TABLE items DROP COLUMN cause; ALTER TABLE items DROP COLUMN earlier; DROP TABLE streams;
      DROP TABLE attempts; DROP TABLE intents; DROP INDEX items_search; UPDATE requests SET json = json_remove(json, '$.fields');
      UPDATE results SET json = json_remove(json, '$.stderrLine'); PRAGMA user_version = 1`);
    old.close();
    await reopen();
    expect(await Array.fromAsync(journal.results(fleet))).toMatchObject([
      { key: "doc-0.pdf", status: "failed", stderrLine: null, fields: {} },
      { key: "doc-1.pdf" },
      { key: "doc-2.pdf", status: "succeeded", output: "text" },
    ]);
    expect(await journal.item(fleet, "doc-2.pdf")).toMatchObject({ streams: { stdout: "", stderr: "" }, attempts: [] });
    expect(await journal.failureGroups(fleet)).toMatchObject([{ count: 2, code: "FAILED", example: "doc-0.pdf" }]);
    expect(versionOf()).toEqual(newest);
  });
});

describe("a search", () => {
  it("finds parts of keys as they are, with other filters and in pages", async () => {
    const fleet = await fleetOf([{}, failed("one"), {}, failed("two")]);
    const keys = async (filter: object, page = { after: -1, limit: 10 }) =>
      (await journal.items(fleet, filter, page)).map(({ key }) => key);
    expect(await keys({ search: "doc-" })).toEqual(["doc-0.pdf", "doc-1.pdf", "doc-2.pdf", "doc-3.pdf"]);
    expect(await keys({ search: "doc-" }, { after: 0, limit: 2 })).toEqual(["doc-1.pdf", "doc-2.pdf"]);
    expect(await keys({ search: "-3", failed: true })).toEqual(["doc-3.pdf"]);
    expect(await keys({ search: "-2", failed: true })).toEqual([]);
    for (const search of ["DOC", "doc%", "doc_", "*"]) expect(await keys({ search }), search).toEqual([]);
  });
});

describe("items that failed alike", () => {
  it("are listed by the key of one of them", async () => {
    const fleet = await fleetOf([
      failed("page 7 has no text"),
      failed("page 12 has no text"),
      failed("page 3 has no text", { status: "timed_out" }),
      failed("the font is missing"),
      {},
    ]);
    const alike = async (key: string) =>
      (await journal.items(fleet, { alike: key }, { after: -1, limit: 10 })).map(({ index }) => index);
    expect(await alike("doc-1.pdf")).toEqual([0, 1]);
    expect(await alike("doc-2.pdf")).toEqual([2]);
    expect(await alike("doc-3.pdf")).toEqual([3]);
    // One that did not fail, and one that is not there.
    expect([...(await alike("doc-4.pdf")), ...(await alike("doc-9.pdf"))]).toEqual([]);
    expect(
      (await journal.items(fleet, { alike: "doc-0.pdf" }, { after: 0, limit: 10 })).map(({ index }) => index),
    ).toEqual([1]);
  });
});
