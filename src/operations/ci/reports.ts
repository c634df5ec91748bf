import type { FoundReport } from "../../files/host/ci-folder.ts";
import { parseXml, type XmlElement } from "../../text/xml.ts";
import type { CiPart } from "./plan-ci.ts";

/*
 * What the head's own tests wrote about themselves. They are read in this process: the reader is one pass over at most 8 MiB, without entities, and its
 * results are texts, which every face escapes. A container for each report would cost more and bear nothing else.
 */

/** One test as its report says. Nothing of it is more than a claim of the head. */
export interface CiTest {
  readonly suite: string;
  readonly name: string;
  readonly status: "passed" | "failed" | "error" | "skipped";
  readonly seconds: number;
  /** Empty if it passed. */
  readonly message: string;
  readonly text: string;
  /** In the repository; null: the report does not say, or says a place that is not in it. */
  readonly file: string | null;
  readonly line: number | null;
}

/** Lines. */
export interface CiCoverage {
  readonly covered: number;
  readonly total: number;
}

/** All reports of one part. */
export interface CiReports {
  /** Those that failed first; `counts` has all, also those that are too many to keep. */
  readonly tests: readonly CiTest[];
  readonly counts: Readonly<Record<CiTest["status"], number>>;
  /** Null: no report of coverage could be read. */
  readonly coverage: CiCoverage | null;
  /** Reports that were not read. */
  readonly faults: readonly { readonly file: string; readonly why: string }[];
}

/** Kept of all parts together. What is beyond is counted. */
export const MAX_TESTS = 100_000;
/** Kept of one part. */
const MAX_PART_TESTS = 20_000;
/** Of these, the text of the failure is kept. */
const MAX_TEXTS = 200;
const MAX_TEXT = 8000;
const MAX_NAME = 500;
/** A count that a report claims. */
const MAX_COUNT = 1e9;

/** `files`: below the folder of the part's reports. `room`: how many tests may be kept. A file is read as that whose patterns it fits. */
export function readReports(
  { job }: Pick<CiPart, "job">,
  files: readonly FoundReport[],
  room: number = MAX_TESTS,
): CiReports {
  const most = Math.min(room, MAX_PART_TESTS);
  let tests: readonly CiTest[] = [];
  const faults: { file: string; why: string }[] = [];
  const counts = { passed: 0, failed: 0, error: 0, skipped: 0 };
  const coverages: CiCoverage[] = [];
  const isJunit = matcher(job.reports.junit);
  const isCoverage = matcher(job.reports.coverage);
  for (const { path, text } of files) {
    if (text === null) faults.push({ file: path, why: "it is too large, or there are too many" });
    else if (isJunit(path)) {
      const found = junitTests(text, job.dir);
      if (typeof found === "string") faults.push({ file: path, why: found });
      else {
        for (const { status } of found) counts[status] += 1;
        tests = byGravity([...tests, ...found]).slice(0, most);
      }
    } else if (isCoverage(path)) {
      const found = coverageOf(text);
      if (typeof found === "string") faults.push({ file: path, why: found });
      else coverages.push(found);
    }
  }
  return { tests: copied(tests), counts, coverage: sumOf(coverages), faults };
}

function sumOf(all: readonly CiCoverage[]): CiCoverage | null {
  if (all.length === 0) return null;
  const sum = (key: keyof CiCoverage): number => all.reduce((count, one) => count + one[key], 0);
  return { covered: sum("covered"), total: sum("total") };
}

/** A piece of a text would keep the whole report in memory. */
function copied(tests: readonly CiTest[]): readonly CiTest[] {
  return structuredClone(tests.map((test, at) => (at < MAX_TEXTS ? test : { ...test, text: "" })));
}

function byGravity(tests: readonly CiTest[]): readonly CiTest[] {
  const isBad = ({ status }: CiTest): boolean => status === "failed" || status === "error";
  return [...tests.filter(isBad), ...tests.filter((test) => !isBad(test))];
}

/** As `find -path` in the cell: a `*` stands for slashes, too. */
function matcher(patterns: readonly string[]): (path: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const source = pattern.replace(/\*+/g, "*").replace(/[.+]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
    return new RegExp(`^${source}$`, "s");
  });
  return (path) => expressions.some((expression) => expression.test(path));
}

/** A text says why it is no report. `dir`: of the job, from which relative paths are. */
export function junitTests(source: string, dir: string): readonly CiTest[] | string {
  const parsed = parseXml(source);
  if (!parsed.ok) return parsed.why;
  const { root } = parsed;
  if (root.name !== "testsuites" && root.name !== "testsuite") return `its element is not testsuites or testsuite`;
  return [...testsIn(root, { name: "", file: "" }, dir)];
}

function* testsIn(element: XmlElement, outer: { name: string; file: string }, dir: string): Generator<CiTest> {
  const { attributes } = element;
  const suite = { name: attributes.get("name") ?? outer.name, file: attributes.get("file") ?? outer.file };
  for (const child of element.children) {
    if (child.name === "testsuite") yield* testsIn(child, suite, dir);
    else if (child.name === "testcase") yield testOf(child, suite, dir);
  }
}

const STATUS_OF: ReadonlyMap<string, CiTest["status"]> = new Map([
  ["failure", "failed"],
  ["error", "error"],
  ["skipped", "skipped"],
]);

function testOf({ attributes, children }: XmlElement, suite: { name: string; file: string }, dir: string): CiTest {
  const end = children.find(({ name }) => STATUS_OF.has(name));
  const text = (end?.text ?? "").trim().slice(0, MAX_TEXT);
  const message = (end?.attributes.get("message") ?? text.split("\n", 1)[0] ?? "").slice(0, MAX_NAME);
  const named = attributes.get("file") ?? suite.file;
  const [, traced, tracedLine] = /\/work\/head\/([\w.@+/-]{1,300}):(\d{1,7})/.exec(text) ?? [];
  const file = repositoryPath(traced === undefined ? named : `/work/head/${traced}`, dir);
  const line = Number(tracedLine ?? attributes.get("line") ?? "");
  return {
    suite: (attributes.get("classname") ?? suite.name).slice(0, MAX_NAME),
    name: (attributes.get("name") ?? "").slice(0, MAX_NAME),
    status: STATUS_OF.get(end?.name ?? "") ?? "passed",
    seconds: countIn(attributes.get("time")),
    message,
    text,
    file,
    line: file !== null && Number.isInteger(line) && line > 0 && line <= MAX_COUNT ? line : null,
  };
}

const HEAD = "/work/head/";

/** A place in the repository, or null: never one outside, and no name that is not plain. */
function repositoryPath(named: string, dir: string): string | null {
  const path = named.replace(/^file:\/\//, "");
  const inside = path.startsWith(HEAD) ? path.slice(HEAD.length) : dir === "" ? path : `${dir}/${path}`;
  if (path === "" || inside.length > 400 || (path.startsWith("/") && !path.startsWith(HEAD))) return null;
  const parts = inside.split("/").filter((part) => part !== ".");
  return parts.every((part) => /^[\w.@+-][\w.@+ -]*$/.test(part) && part !== "..") ? parts.join("/") : null;
}

/** Of lcov or Cobertura; a text says why it is neither. */
export function coverageOf(source: string): CiCoverage | string {
  return /^\s*(\uFEFF)?</.test(source.slice(0, 1000)) ? coberturaOf(source) : lcovOf(source);
}

function lcovOf(source: string): CiCoverage | string {
  let [covered, total, sections] = [0, 0, 0];
  // Of a section without totals, its lines are counted.
  let [lines, hit, hasTotal] = [0, 0, false];
  for (const line of source.split("\n")) {
    const [, key, value = ""] = /^(LF|LH|DA|end_of_record)(?::(.*))?$/.exec(line.trimEnd()) ?? [];
    if (key === "LF") [total, hasTotal] = [total + countIn(value), true];
    else if (key === "LH") covered += countIn(value);
    else if (key === "DA") {
      lines += 1;
      if (countIn(value.split(",")[1]) > 0) hit += 1;
    } else if (key === "end_of_record") {
      sections += 1;
      if (!hasTotal) [covered, total] = [covered + hit, total + lines];
      [lines, hit, hasTotal] = [0, 0, false];
    }
  }
  if (sections === 0) return "it is neither lcov nor Cobertura";
  return { covered: Math.min(covered, total), total };
}

function coberturaOf(source: string): CiCoverage | string {
  const parsed = parseXml(source);
  if (!parsed.ok) return parsed.why;
  const { root } = parsed;
  if (root.name !== "coverage") return "its element is not coverage";
  const [claimed, valid] = [root.attributes.get("lines-covered"), root.attributes.get("lines-valid")];
  if (claimed !== undefined && valid !== undefined) {
    const total = countIn(valid);
    return { covered: Math.min(countIn(claimed), total), total };
  }
  const lines = [...linesIn(root)];
  return { covered: lines.filter(({ attributes }) => countIn(attributes.get("hits")) > 0).length, total: lines.length };
}

/** Lines of classes; those of methods are among them. */
function* linesIn({ name, children }: XmlElement): Generator<XmlElement> {
  for (const child of children)
    if (child.name === "lines" && name === "class") yield* child.children;
    else if (child.name !== "methods") yield* linesIn(child);
}

function countIn(text: string | undefined): number {
  const count = Number(text ?? "");
  return Number.isFinite(count) && count > 0 ? Math.min(count, MAX_COUNT) : 0;
}
