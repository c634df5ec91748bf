import { mkdir, mkdtemp, readdir, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { parseCiYaml } from "../../../src/declarations/ci/ci-yaml.ts";
import {
  foundReports,
  keptResults,
  makeCiFolder,
  makeCiResults,
  makeKeptResults,
  removeLeftOfCi,
} from "../../../src/files/host/ci-folder.ts";
import type { CiEnd, CiStepEnd } from "../../../src/operations/ci/ci-end.ts";
import {
  ciJson,
  ciTotals,
  codeQualityText,
  findingsIn,
  mergedJunit,
  sarifText,
} from "../../../src/operations/ci/findings.ts";
import { type CiPart, planCi } from "../../../src/operations/ci/plan-ci.ts";
import { coverageOf, junitTests, readReports } from "../../../src/operations/ci/reports.ts";
import { unstartedResult } from "../../../src/run/model/result.ts";
import { strictXml } from "../../fleet/report/strict-xml.ts";

const parsed = parseCiYaml(
  JSON.stringify({
    version: 1,
    jobs: {
      test: { run: "x", dir: "web", reports: { junit: "reports/*.xml", coverage: ["cov/l?ov.info", "cov/*.xml"] } },
      after: { run: "x", needs: ["test"] },
    },
  }),
  "ci.yaml",
);
if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
const steps = planCi(parsed.value);
const step = steps[0] as CiPart;

const JUNIT = `<testsuites><testsuite name="s" file="test/a.js"><testcase name="good" time="0.5"/>
<testcase name="bad" classname="c" line="7"><failure message="no&#10;::error::x">at file:///work/head/web/src/a.js:12:3</failure></testcase>
<testcase name="broken" file="../../../etc/passwd"><error>why</error></testcase>
<testsuite name="inner"><testcase name="left out"><skipped/></testcase></testsuite></testsuite></testsuites>`;

describe("a JUnit report", () => {
  it("has its tests with a place in the repository, or with none", () => {
    expect(junitTests(JUNIT, "web")).toMatchObject([
      { suite: "s", name: "good", status: "passed", seconds: 0.5, file: "web/test/a.js", line: null, message: "" },
      { suite: "c", name: "bad", status: "failed", file: "web/src/a.js", line: 12 },
      { suite: "s", name: "broken", status: "error", file: null, line: null, message: "why" },
      { suite: "inner", name: "left out", status: "skipped" },
    ]);
    for (const named of ["/etc/passwd", "a/../../b", "..", "a\nb", "x".repeat(500)])
      expect(junitTests(`<testsuite><testcase file="${named}" line="2"/></testsuite>`, "")).toMatchObject([
        { file: null, line: null },
      ]);
    expect(junitTests("<html/>", "")).toContain("testsuites");
  });
});

describe("coverage", () => {
  it("is counted in lines by lcov and by Cobertura, with totals or without", () => {
    expect(coverageOf("SF:a\nLF:10\nLH:7\nend_of_record\nSF:b\nDA:1,1\nDA:2,0\nend_of_record\n")).toEqual({
      covered: 8,
      total: 12,
    });
    expect(coverageOf('<coverage lines-covered="3" lines-valid="4"/>')).toEqual({ covered: 3, total: 4 });
    const lines = '<lines><line number="1" hits="2"/><line number="2" hits="0"/></lines>';
    const inner = `<classes><class><methods><method>${lines}</method></methods>${lines}</class></classes>`;
    expect(coverageOf(`<coverage><packages><package>${inner}</package></packages></coverage>`)).toEqual({
      covered: 1,
      total: 2,
    });
    expect(coverageOf("SF:a\nLF:1e999\nLH:-5\nend_of_record")).toEqual({ covered: 0, total: 0 });
    expect(coverageOf("LF:5\nLH:9\nend_of_record")).toEqual({ covered: 5, total: 5 });
    for (const other of ["{}", "<a/>", ""]) expect(typeof coverageOf(other)).toBe("string");
  });
});

async function readIn(files: Readonly<Record<string, string>>) {
  const dir = await mkdtemp(join(tmpdir(), "corral-reports-"));
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(join(dir, path, ".."), { recursive: true });
      await writeFile(join(dir, path), text);
    }
    await symlink("/etc/passwd", join(dir, "reports/link.xml"));
    return readReports(step, await foundReports(dir));
  } finally {
    await rm(dir, { recursive: true });
  }
}

const FILES = {
  "reports/deep/a.xml": JUNIT,
  "reports/bomb.xml": `<!DOCTYPE a [<!ENTITY a "b">]><a>&a;</a>`,
  "reports/large.xml": `<testsuite>${" ".repeat(8 * 1024 * 1024)}</testsuite>`,
  "cov/lcov.info": "LF:3\nLH:2\nend_of_record",
  "cov/other.txt": "left out",
};

describe("reports without end", () => {
  it("are counted, and at most so many tests are kept, those that failed first", () => {
    const many = `<testsuite>${"<testcase name='a'/>".repeat(15_000)}<testcase><error>why</error></testcase></testsuite>`;
    const files = Array.from({ length: 4 }, (_, at) => ({ path: `reports/${at}.xml`, text: many }));
    const reports = readReports(step, files);
    expect(reports.counts).toMatchObject({ passed: 60_000, error: 4 });
    expect(reports.tests).toHaveLength(20_000);
    expect(reports.tests.slice(0, 5).map(({ status }) => status)).toEqual([...Array(4).fill("error"), "passed"]);
    expect(readReports(step, files, 3).tests.map(({ text }) => text)).toEqual(["why", "why", "why"]);
    const failing = `<testsuite>${"<testcase><failure>why</failure></testcase>".repeat(300)}</testsuite>`;
    const texts = readReports(step, [{ path: "reports/a.xml", text: failing }]).tests.map(({ text }) => text);
    expect(texts.filter((text) => text === "why")).toHaveLength(200);
  });
});

describe("the folder of corral ci", () => {
  const maker = { name: "this", isDead: () => false };

  it("loses what a killed run left in the cache a day ago, and nothing that another may be about to fill", async () => {
    const dir = await mkdtemp(join(tmpdir(), "corral-ci-folder-"));
    try {
      const cache = join(dir, ".corral/ci/cache");
      for (const name of ["old", "new", "full"]) await mkdir(join(cache, name), { recursive: true });
      await writeFile(join(cache, "full", "data.tar"), "");
      const before = new Date(Date.now() - 2 * 24 * 60 * 60_000);
      for (const name of ["old", "full"]) await utimes(join(cache, name), before, before);
      await (await makeCiFolder(dir, null, maker))[Symbol.asyncDispose]();
      expect((await readdir(cache)).sort()).toEqual(["full", "new"]);
      expect(await readdir(join(dir, ".corral/ci"))).toEqual([".gitignore", "cache"]);
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it("loses at the next start what processes left that have ended, and nothing of those that run", async () => {
    const dir = await mkdtemp(join(tmpdir(), "corral-ci-folder-"));
    onTestFinished(() => rm(dir, { recursive: true }));
    const dead = { ...maker, name: "dead" };
    const living = { ...maker, name: "living" };
    const own = await makeCiFolder(dir, null, living);
    // A killed process disposes nothing.
    await makeCiFolder(dir, null, dead);
    await makeKeptResults(dir, "a", null, dead);
    await makeKeptResults(dir, "b", null, living);
    for (const id of ["a", "b"]) await makeCiResults(keptResults(dir, id), null);
    const top = join(dir, ".corral/ci");
    for (const name of ["run-new", "run-old"]) await mkdir(join(top, name));
    const before = new Date(Date.now() - 2 * 24 * 60 * 60_000);
    await utimes(join(top, "run-old"), before, before);
    expect(await readdir(top)).toHaveLength(8);
    await removeLeftOfCi(dir, { isDead: (name) => name === "dead" });
    const kept = [".gitignore", "cache", "results-b", "run-new", basename(own.run)].toSorted();
    expect((await readdir(top)).toSorted()).toEqual(kept);
    await removeLeftOfCi(join(dir, "nowhere"), maker);
    // So does the next run of jobs, whichever face starts it.
    await using _next = await makeCiFolder(dir, null, { name: "next", isDead: () => true });
    expect((await readdir(top)).filter((name) => name.startsWith("results-"))).toEqual([]);
  });
});

describe("the results of corral ci", () => {
  it("have what the reports say, what was not read, and Corral's own verdict before", async () => {
    const reports = await readIn(FILES);
    expect(reports.counts).toEqual({ passed: 1, failed: 1, error: 1, skipped: 1 });
    expect(reports.coverage).toEqual({ covered: 2, total: 3 });
    expect(reports.faults.map(({ file }) => file).sort()).toEqual(["reports/bomb.xml", "reports/large.xml"]);
    const failed = { code: "WORKER_FAILED", message: "it ended with 1 ]]> \u0007" };
    const line = { to: "evil.example:443", count: 2, reason: "not_allowed", detail: "no network" };
    const result = {
      ...unstartedResult({ run: "r", worker: "test" }, "failed", failed),
      exitCode: 1,
      network: { allowed: [], denied: [line], unlisted: 0 },
    } as unknown as CiStepEnd["result"];
    const ends: CiStepEnd[] = [
      { step, status: "failed", result, reports },
      { step: steps[1] ?? step, status: "skipped", result: null, reports: null },
    ];
    const end: CiEnd = { base: "b", head: "h", isChanged: false, isTrusted: false, ends, trail: { seq: 3, hash: "f" } };

    const junit = strictXml(mergedJunit(end));
    expect(junit.attributes).toMatchObject({ tests: "6", failures: "2", errors: "1", skipped: "2" });
    const [own, test] = junit.children;
    expect(own?.children.map(({ attributes, children }) => [attributes.name, children[0]?.name])).toEqual([
      ["test", "failure"],
      ["after", "skipped"],
    ]);
    expect(test?.children.map(({ attributes }) => attributes.name)).toEqual(["bad", "broken", "good", "left out"]);

    const findings = findingsIn(end);
    const rules = ["job-failed", "network-denied", "report-unread", "report-unread", "test-failed", "test-failed"];
    expect(findings.map(({ rule }) => rule)).toEqual(rules);
    expect(findings.every(({ message }) => !message.includes("\n") && !message.includes("\u0007"))).toBe(true);
    const sarif = JSON.parse(sarifText(findings, "0"));
    expect(sarif.runs[0].results[4].locations[0].physicalLocation).toEqual({
      artifactLocation: { uri: "web/src/a.js" },
      region: { startLine: 12 },
    });
    const quality: { fingerprint: string }[] = JSON.parse(codeQualityText(findings));
    expect(new Set(quality.map(({ fingerprint }) => fingerprint)).size).toBe(6);
    expect(ciTotals(ends)).toMatchObject({ coverage: 66.66 });
    expect(ciJson(end)).toMatchObject({
      status: "failed",
      coverage: 66.66,
      trail: { seq: 3 },
      steps: [{ exitCode: 1, unread: [{}, {}], denied: [line] }, { status: "skipped" }],
    });
  });
});
