import { CI_FILE } from "../../declarations/ci/ci-yaml.ts";
import { jsonLine, xmlAttribute, xmlContent } from "../../fleet/report/results-export.ts";
import { sha256 } from "../../platform/sha256.ts";
import { printableLine } from "../../text/visible.ts";
import { deniedIn } from "../wording/question-text.ts";
import { type CiEnd, type CiStepEnd, isGood } from "./ci-end.ts";
import type { CiTest } from "./reports.ts";

/* What a run of `corral ci` found, in the forms that CI systems read. The head chose most of the texts: each is cut, and has no control characters. */

const RULES = {
  "job-failed": "A job did not succeed",
  "test-failed": "A test failed, as the head's own report says",
  "report-unread": "A report was not read",
  "network-denied": "A job tried to reach a host that it may not",
} as const;

/** Something that a person should look at. */
export interface CiFinding {
  readonly rule: keyof typeof RULES;
  readonly step: string;
  readonly message: string;
  /** In the repository; of a finding without a place `ci.yaml`. */
  readonly file: string;
  readonly line: number;
}

/** Code scanning takes no more. */
const MAX_FINDINGS = 5000;
const MAX_MESSAGE = 500;

/** Those of Corral come before what the head says of itself. */
export function findingsIn({ ends }: Pick<CiEnd, "ends">): readonly CiFinding[] {
  const found = ends.flatMap((end) => [...ofCorral(end)]);
  for (const { step, reports } of ends)
    for (const test of reports?.tests ?? []) if (isBadTest(test)) found.push(testFinding(step.title, test));
  return found.slice(0, MAX_FINDINGS);
}

function* ofCorral({ step, status, result, reports }: CiStepEnd): Generator<CiFinding> {
  const at = { step: step.title, file: CI_FILE, line: 1 };
  const say = (rule: CiFinding["rule"], text: string): CiFinding => ({
    rule,
    ...at,
    message: printableLine(`${step.title}: ${text}`, MAX_MESSAGE),
  });
  if (!isGood(status) && status !== "skipped")
    yield say(
      "job-failed",
      `${status.replaceAll("_", " ")}${result?.error == null ? "" : `: ${result.error.message}`}`,
    );
  for (const { worker: _, line } of result === null ? [] : deniedIn(result))
    yield say(
      "network-denied",
      `tried to reach ${line.to}${line.count > 1 ? ` ${line.count} times` : ""}: ${line.detail}`,
    );
  for (const { file, why } of reports?.faults ?? []) yield say("report-unread", `${file}: ${why}`);
}

function isBadTest({ status }: CiTest): boolean {
  return status === "failed" || status === "error";
}

function testFinding(step: string, { suite, name, message, file, line }: CiTest): CiFinding {
  const title = [suite, name].filter((part) => part !== "").join(" › ");
  const said = message === "" ? "" : `: ${message}`;
  const at = { file: file ?? CI_FILE, line: file === null ? 1 : (line ?? 1) };
  return { rule: "test-failed", step, message: printableLine(`${step}: ${title}${said}`, MAX_MESSAGE), ...at };
}

/** The same finding of another run has the same one. */
function fingerprintOf({ rule, step, message, file }: CiFinding): string {
  return sha256(JSON.stringify([rule, step, message, file]));
}

/** SARIF 2.1.0, for code scanning. */
export function sarifText(findings: readonly CiFinding[], version: string): string {
  const rules = Object.entries(RULES).map(([id, text]) => ({ id, shortDescription: { text } }));
  const results = findings.map((finding) => ({
    ruleId: finding.rule,
    level: finding.rule === "report-unread" ? "warning" : "error",
    message: { text: finding.message },
    locations: [
      {
        physicalLocation: {
          artifactLocation: { uri: finding.file.split("/").map(encodeURIComponent).join("/") },
          region: { startLine: finding.line },
        },
      },
    ],
    partialFingerprints: { "corralFinding/v1": fingerprintOf(finding) },
  }));
  const tool = { driver: { name: "corral", version, rules } };
  const $schema = "https://json.schemastore.org/sarif-2.1.0.json";
  return jsonLine({ $schema, version: "2.1.0", runs: [{ tool, results }] });
}

/** GitLab's report of code quality. */
export function codeQualityText(findings: readonly CiFinding[]): string {
  const issues = findings.map((finding) => ({
    description: finding.message,
    check_name: finding.rule,
    fingerprint: fingerprintOf(finding),
    severity: finding.rule === "report-unread" ? "minor" : "major",
    location: { path: finding.file, lines: { begin: finding.line } },
  }));
  return jsonLine(issues);
}

/** Of these, a test case has the text of its failure. */
const MAX_WITH_TEXT = 1000;

/**
 * The reports of all parts as one. The first suite is Corral's own, with a case for each step: a head that reports that all its tests passed, and
 * fails, is a failure there.
 */
export function mergedJunit({ ends }: Pick<CiEnd, "ends">): string {
  const own = ends.map(({ step, status, result }) => {
    const seconds = (result?.durationMs ?? 0) / 1000;
    const kind = isGood(status) ? "passed" : (STEP_STATUS[status] ?? "error");
    const message = kind === "passed" ? "" : (result?.error?.message ?? status.replaceAll("_", " "));
    return { suite: "corral", name: step.title, status: kind, seconds, message, text: message, file: null, line: null };
  }) satisfies CiTest[];
  const suites = [{ name: "corral ci", tests: own as readonly CiTest[] }];
  for (const { step, reports } of ends)
    if (reports !== null && reports.tests.length > 0) suites.push({ name: step.title, tests: reports.tests });
  let left = MAX_WITH_TEXT;
  const written = suites.map(({ name, tests }) => {
    const cases = tests.map((test) => testCaseXml(test, isBadTest(test) && left-- > 0));
    return `<testsuite name="${xmlAttribute(name)}" ${totals(tests)}>\n${cases.join("")}</testsuite>\n`;
  });
  const all = totals(suites.flatMap(({ tests }) => tests));
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="corral ci" ${all}>\n${written.join("")}</testsuites>\n`;
}

/** Of a step that did not succeed; what is not here was refused, denied, cancelled or lost. */
const STEP_STATUS: Readonly<Record<string, CiTest["status"]>> = {
  skipped: "skipped",
  failed: "failed",
  signaled: "failed",
  timed_out: "failed",
  oom_killed: "failed",
  output_limit: "failed",
  disk_limit: "failed",
};

function totals(tests: readonly CiTest[]): string {
  const count = (status: CiTest["status"]): number => tests.filter((test) => test.status === status).length;
  return `tests="${tests.length}" failures="${count("failed")}" errors="${count("error")}" skipped="${count("skipped")}"`;
}

const ELEMENT = { failed: "failure", error: "error", skipped: "skipped" } as const;

function testCaseXml({ suite, name, status, seconds, message, text, file, line }: CiTest, hasText: boolean): string {
  const place = file === null ? "" : ` file="${xmlAttribute(file)}"${line === null ? "" : ` line="${line}"`}`;
  const head = `<testcase classname="${xmlAttribute(suite)}" name="${xmlAttribute(name)}" time="${seconds.toFixed(3)}"${place}`;
  if (status === "passed") return `${head}/>\n`;
  const element = ELEMENT[status];
  const content = hasText ? xmlContent(text, 8000) : "";
  return `${head}><${element} message="${xmlAttribute(message)}">${content}</${element}></testcase>\n`;
}

/** Sums over all parts. */
export interface CiTotals {
  readonly tests: Readonly<Record<CiTest["status"], number>>;
  /** Percent of lines, with two digits; null: no report says it. */
  readonly coverage: number | null;
}

export function ciTotals(ends: readonly Pick<CiStepEnd, "reports">[]): CiTotals {
  const tests = { passed: 0, failed: 0, error: 0, skipped: 0 };
  let [covered, total] = [0, 0];
  for (const { reports } of ends) {
    for (const status of Object.keys(tests) as CiTest["status"][]) tests[status] += reports?.counts[status] ?? 0;
    covered += reports?.coverage?.covered ?? 0;
    total += reports?.coverage?.total ?? 0;
  }
  return { tests, coverage: total === 0 ? null : Math.floor((covered / total) * 10_000) / 100 };
}

/** `ci.json`: how all ended, without what was printed. */
export function ciJson(end: CiEnd): object {
  const { ends, base, head, isChanged, isTrusted, trail } = end;
  const steps = ends.map(({ step, status, result, reports }) => ({
    name: step.name,
    title: step.title,
    kind: step.kind,
    ...(step.kind === "part" ? { job: step.job.name, matrix: step.values } : {}),
    status,
    exitCode: result?.exitCode ?? null,
    signal: result?.signal ?? null,
    durationMs: result?.durationMs ?? 0,
    error: result?.error ?? null,
    run: result?.run ?? null,
    ...(reports === null ? {} : { ...ciTotals([{ reports }]), unread: reports.faults }),
    denied: result === null ? [] : deniedIn(result).map(({ line }) => line),
  }));
  const status = ends.every((one) => isGood(one.status)) ? "succeeded" : "failed";
  return { base, head, isChanged, isTrusted, status, ...ciTotals(ends), trail, steps };
}
