import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { reportHtml } from "../../../src/fleet/report/html.ts";
import type { ReportData } from "../../../src/fleet/report/measures/gathered.ts";
import { manyResults, reportOf, result } from "./report-fleet.ts";

async function pageOf(data: ReportData): Promise<string> {
  return (await Array.fromAsync(reportHtml(data))).join("");
}

const VOID = new Set(["meta", "!doctype"]);

/** The names of all elements; fails where one is not closed, or closed and never opened. */
function elementsOf(page: string): string[] {
  const open: string[] = [];
  const names: string[] = [];
  for (const [, slash, name = "", rest = ""] of page.matchAll(/<(\/?)([a-z!][a-z0-9]*)((?:"[^"]*"|[^">])*)>/gi)) {
    if (slash === "/") expect(open.pop()).toBe(name);
    else {
      names.push(name);
      if (!VOID.has(name) && !rest.endsWith("/")) open.push(name);
    }
  }
  expect(open).toEqual([]);
  return names;
}

const SMALL = [
  result(0, { atMs: 0, durationMs: 1200 }),
  result(1, { atMs: 10, durationMs: 300 }),
  result(2, {
    atMs: 320,
    durationMs: 900,
    status: "failed",
    exitCode: 1,
    error: { code: "EXIT", message: "ended with 1" },
  }),
  result(3, { status: "cached", run: null, attempt: 0, exitCode: null, startedAt: null, durationMs: 0 }),
  result(4, {
    atMs: 1230,
    durationMs: 30_000,
    attempt: 2,
    status: "timed_out",
    exitCode: null,
    error: { code: "TIMED_OUT", message: "took longer than 30s" },
  }),
];

describe("reportHtml", () => {
  it("is, of a small fleet, what its golden page says, to the byte", async () => {
    await expect(await pageOf(reportOf(SMALL, 6, { state: "paused", why: "interrupted" }))).toMatchFileSnapshot(
      "./golden/small-fleet.html",
    );
  });

  it("is one well-formed page that loads nothing and has no script", async () => {
    const page = await pageOf(reportOf(SMALL, 5));
    const elements = elementsOf(page);
    for (const loading of ["script", "link", "img", "iframe", "object", "use", "image", "foreignObject", "a"]) {
      expect(elements).not.toContain(loading);
    }
    expect(page.match(/https?:\S+/g)?.filter((url) => !url.startsWith("http://www.w3.org/2000/svg"))).toEqual([]);
    expect(page).not.toMatch(/@import|url\(/);
    expect(page).toContain(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src`);
  });

  it("names every drawing and every table for those who do not see them", async () => {
    const page = await pageOf(reportOf(SMALL, 5));
    for (const [, ids = ""] of page.matchAll(/<svg [^>]*aria-labelledby="([^"]+)"/g)) {
      for (const id of ids.split(" ")) expect(page.split(`id="${id}"`)).toHaveLength(2);
    }
    expect(page.match(/<svg /g)).toHaveLength(3);
    expect(page.match(/<svg [^>]*role="img"/g)).toHaveLength(3);
    expect(page.match(/<table aria-label="/g)).toHaveLength(page.match(/<table/g)?.length ?? 0);
  });

  it("shows hostile text as text, wherever it comes from", async () => {
    const hostile = `</td></title></svg><script>alert(1)</script>"' onload=x <!-- \u001b[2J\u202egnp.exe\u0000`;
    const items = [
      result(0, { key: hostile, run: hostile, durationMs: 40_000 }),
      result(1, { key: hostile, status: hostile, error: { code: hostile, message: hostile } }),
    ];
    const page = await pageOf(
      reportOf(items, 2, { id: hostile, worker: hostile, source: hostile, policy: hostile, why: hostile }),
    );
    expect(elementsOf(page)).not.toContain("script");
    expect(page).toContain("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39; onload=x &lt;!--");
    expect(page).toContain("\\u{1b}[2J\\u{202e}gnp.exe\\u{0}");
    // biome-ignore lint/suspicious/noControlCharactersInRegex: that there are none is what is asked.
    expect(page).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  });

  it("cuts long text and lists no more failures than a browser can take, and says where the others are", async () => {
    const message = "x".repeat(70_000);
    const items = Array.from({ length: 1500 }, (_, index) =>
      result(index, { key: `${index}`.padEnd(5000, "k"), status: "failed", error: { code: "EXIT", message } }),
    );
    const page = await pageOf(reportOf(items, 1500));
    expect(page).toContain(
      "The first 1,000 of 1,500; <code>corral fleet results 0123456789ab --jsonl</code> lists all.",
    );
    expect(page.length).toBeLessThan(2_000_000);
  });

  it("says so of a fleet in which nothing ran", async () => {
    const page = await pageOf(reportOf([], 0));
    elementsOf(page);
    expect(page).toContain("No item ran.");
    expect(page).not.toMatch(/NaN|Infinity|undefined|null/);
  });

  it("draws one item, and one that took no time", async () => {
    for (const durationMs of [0, 1, 400, 5_000_000]) {
      const page = await pageOf(reportOf([result(0, { durationMs })], 1));
      elementsOf(page);
      expect(page).toContain("1 item in 1 lane");
      expect(page).not.toMatch(/NaN|Infinity|undefined|null/);
    }
  });

  it("survives clocks that were put back, and times that are none", async () => {
    const items = [
      result(0, { startedAt: "2030-01-01T00:00:00.000Z", endedAt: "2025-01-31T12:00:00.000Z" }),
      result(1, { startedAt: "1970-01-01T00:00:00.000Z" }),
      result(2, { startedAt: "yesterday", endedAt: "today" }),
    ];
    const page = await pageOf(reportOf(items, 3));
    elementsOf(page);
    expect(page).not.toMatch(/NaN|Infinity|undefined/);
  });

  it("shows each cell up to 2,000 of them, and from then on how many were at work", async () => {
    expect(await pageOf(reportOf(manyResults(2000), 2000))).toContain("2,000 items in 16 lanes");
    const page = await pageOf(reportOf(manyResults(2001), 2001));
    elementsOf(page);
    expect(page).toContain("<h2>Cells at work</h2>");
    expect(page.length).toBeLessThan(200_000);
  });

  it("makes the page of 100,000 items with large outputs in little memory", async () => {
    const program = join(import.meta.dirname, "large-report.ts");
    // What passes through is 2 GB; what is kept must fit in 64 MB with all of Node's own.
    const { stdout } = await promisify(execFile)(process.execPath, ["--max-old-space-size=64", program]);
    expect(Number(stdout)).toBeGreaterThan(100_000);
    expect(Number(stdout)).toBeLessThan(1_000_000);
  });
});
