import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ItemResult } from "../../../src/fleet/model/item.ts";
import { junitXml } from "../../../src/fleet/report/results-export.ts";
import { reportOf, result } from "./report-fleet.ts";
import { strictXml, type XmlElement } from "./strict-xml.ts";

async function junitOf(
  results: readonly ItemResult[],
  { items = results.length, why = null as string | null, worker = "extract-text", stderr = "" } = {},
): Promise<XmlElement> {
  const counts = Map.groupBy(results, ({ status }) => status);
  const summary = [...counts].map(([status, { length }]) => ({ status, count: length }));
  const { fleet } = reportOf(results, items, { why, worker });
  const pieces = await Array.fromAsync(junitXml({ fleet, summary, results, stderrOf: async () => stderr }));
  return strictXml(pieces.join(""));
}

const casesOf = ({ children }: XmlElement): readonly XmlElement[] => children[0]?.children ?? [];
const error = (message: string) => ({ code: "WORKER_FAILED", message });

describe("a fleet in the form of JUnit", () => {
  it("has a test case for each item, with its time, and what did not succeed as a failure, an error or skipped", async () => {
    const statuses = ["succeeded", "cached", "failed", "timed_out", "refused", "lost", "pending"];
    const results = statuses.map((status, index) =>
      result(index, { key: status, status, durationMs: 1500, ...(index < 2 ? {} : { error: error("why\nmore") }) }),
    );
    const report = await junitOf(results, { stderr: "a\nb" });
    const totals = { tests: "7", failures: "2", errors: "2", skipped: "1" };
    expect(report).toMatchObject({ name: "testsuites", attributes: { name: "extract-text", ...totals } });
    expect(report.children[0]).toMatchObject({
      name: "testsuite",
      attributes: { id: "0123456789ab", timestamp: "2025-01-31T11:59:58", time: "62.000", ...totals },
    });
    const cases = casesOf(report);
    expect(cases[0]).toEqual({
      name: "testcase",
      attributes: { classname: "extract-text", name: "succeeded", time: "1.500" },
      children: [],
      text: "",
    });
    expect(cases.map(({ children }) => children.map(({ name }) => name))).toEqual([
      [],
      [],
      ["failure", "system-err"],
      ["failure", "system-err"],
      ["error", "system-err"],
      ["error", "system-err"],
      ["skipped"],
    ]);
    expect(cases[2]?.children).toMatchObject([
      { attributes: { type: "WORKER_FAILED", message: "why more" }, text: "why\nmore" },
      { text: "a\nb" },
    ]);
  });

  it("does not look whole if items have not ended", async () => {
    const report = await junitOf([result(0)], { items: 5, why: "too many failures" });
    expect(report.attributes).toMatchObject({ tests: "2", errors: "1" });
    expect(casesOf(report).at(-1)).toMatchObject({
      children: [
        { name: "error", attributes: { type: "NOT_ENDED", message: "4 of 5 items have not ended: too many failures" } },
      ],
    });
  });

  it("is XML whatever keys, messages and outputs have, and as many test cases as items", async () => {
    const pieces = fc.constantFrom(
      "]]>",
      "<![CDATA[",
      "&amp;",
      "</system-err>",
      '"',
      "\u0000",
      "\u001b[2J",
      "\ufffe",
      "\uffff",
      "\ud800",
      "\r\n",
      "\u202e",
      "<!--",
    );
    const text = fc
      .array(fc.oneof(pieces, fc.string({ unit: "binary", maxLength: 5 })), { maxLength: 8 })
      .map((all) => all.join(""));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(text, text, text)), text, text, async (given, stderr, worker) => {
        const results = given.map(([key, code, message], index) =>
          result(index, { key, status: "failed", error: { code, message } }),
        );
        const report = await junitOf(results, { stderr, worker });
        expect(casesOf(report)).toHaveLength(results.length);
        for (const one of casesOf(report))
          expect(one.children.map(({ name }) => name)).toEqual(stderr === "" ? ["failure"] : ["failure", "system-err"]);
      }),
    );
  });

  it("is bounded: names, messages and standard error are cut, and after 1,000 failures there is none of the last", async () => {
    const long = "x".repeat(100_000);
    const results = Array.from({ length: 1002 }, (_, index) =>
      result(index, { key: `${index}${long}`, status: "failed", error: error(long) }),
    );
    const cases = casesOf(await junitOf(results, { stderr: `${long}the end` }));
    expect(cases.at(999)?.children).toHaveLength(2);
    expect(cases.at(1000)?.children).toHaveLength(1);
    const [failure, stderr] = cases[0]?.children ?? [];
    expect(cases[0]?.attributes.name).toHaveLength(500);
    expect(failure?.text).toHaveLength(4000);
    expect(stderr?.text).toMatch(/^x{7993}the end$/);
  });
});
