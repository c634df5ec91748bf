import { parse } from "csv-parse/sync";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ItemResult } from "../../../src/fleet/model/item.ts";
import { inChunks, jsonLine, resultsCsv, resultsJsonl } from "../../../src/fleet/report/results-export.ts";
import { result } from "./report-fleet.ts";

const anyText = fc.string({ unit: "binary", maxLength: 40 });

async function csvOf(results: readonly ItemResult[]): Promise<string> {
  return (await Array.fromAsync(resultsCsv(results, ["path", "=n"]))).join("");
}

describe("resultsCsv", () => {
  it("gives every result one record of as many fields as the first line has names", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(anyText, anyText, anyText)), async (given) => {
        const results = given.map(([key, message, output], index) =>
          result(index, { key, error: { code: "EXIT", message }, output }),
        );
        const records = parse(await csvOf(results)) as string[][];
        expect(records).toHaveLength(results.length + 1);
        expect(new Set(records.map((record) => record.length))).toEqual(new Set([16]));
        expect(records.slice(1).map(([index]) => index)).toEqual(results.map(({ index }) => String(index)));
      }),
    );
  });

  it("keeps plain text as it is, and quotes what must be", async () => {
    const csv = await csvOf([result(0, { key: 'a "b", c\nd', output: { n: [1, "x"] } })]);
    const [head, record] = parse(csv, { columns: false }) as string[][];
    expect(head?.slice(0, 3)).toEqual(["index", "key", "status"]);
    expect(record?.[1]).toBe('a "b", c\nd');
    expect(record?.[12]).toBe('{"n":[1,"x"]}');
    expect(csv).toMatch(/^index,key,[a-z_,]+output,stderr_line,item\.path,item\.=n\r\n0,"a ""b"", c\nd",succeeded,/);
    expect(csv).toMatch(/\r\n$/);
  });

  it("has a column for each field of the items, whatever they are called, and the last line of standard error", async () => {
    const fields = { path: "@a", "=n": { deep: [1] } };
    const [, record] = parse(await csvOf([result(0, { stderrLine: "-x", fields }), result(1)])) as string[][];
    expect(record?.slice(13)).toEqual(["'-x", "'@a", '{"deep":[1]}']);
  });

  it.each(["=cmd()", "+1", "-1", "@x", " =1", "\t=1", "\r=1", "\n=1", "\uff1d1", '=HYPERLINK("x")'])(
    "lets no spreadsheet take %j for a formula",
    async (text) => {
      const records = parse(await csvOf([result(0, { key: text, output: text })])) as string[][];
      expect(records[1]?.[1]).toBe(`'${text}`);
      expect(records[1]?.[12]).toBe(`'${text}`);
    },
  );

  it("lets no control or formatting character through, and cuts what no spreadsheet takes", async () => {
    const csv = await csvOf([result(0, { key: "a\u001b]0;x\u0007\u202eb", output: "y".repeat(100_000) })]);
    expect(csv).toContain("a\\u{1b}]0;x\\u{7}\\u{202e}b");
    expect(csv.length).toBeLessThan(33_000);
  });
});

describe("resultsJsonl", () => {
  it("gives every result one line, which means the same and is fit for a terminal", () => {
    fc.assert(
      fc.property(anyText, anyText, (key, output) => {
        const given = result(0, { key, output: { [key]: output } });
        const line = jsonLine(given);
        expect(line.indexOf("\n")).toBe(line.length - 1);
        expect(line.slice(0, -1)).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
        expect(JSON.parse(line)).toEqual(JSON.parse(JSON.stringify(given)));
      }),
    );
  });

  it("comes in the order of the results, of none as nothing", async () => {
    const lines = await Array.fromAsync(resultsJsonl([result(3), result(1)]));
    expect(lines.map((line) => JSON.parse(line).index)).toEqual([3, 1]);
    expect(await Array.fromAsync(resultsJsonl([]))).toEqual([]);
  });
});

describe("inChunks", () => {
  it("is the same text, in few pieces", async () => {
    const lines = Array.from({ length: 10_000 }, (_, index) => `${index}\n`);
    const chunks = await Array.fromAsync(inChunks(lines));
    expect(chunks.join("")).toBe(lines.join(""));
    expect(chunks).toHaveLength(1);
    expect(await Array.fromAsync(inChunks(["x".repeat(70_000), "y"]))).toHaveLength(2);
    expect(await Array.fromAsync(inChunks([]))).toEqual([]);
  });
});
