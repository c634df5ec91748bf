import { clipped, printable } from "../../text/visible.ts";
import type { SummaryLine } from "../model/store.ts";
import { escaped } from "./measures/escaped.ts";
import { type OutcomeClass, outcomeOf, type ReportFleet, type ReportItem } from "./measures/gathered.ts";

/** The input of a report in the form of JUnit. */
export interface JunitData {
  readonly fleet: Pick<ReportFleet, "id" | "worker" | "items" | "why" | "createdAt" | "endedAt">;
  /** How many items ended with which status. */
  readonly summary: readonly Pick<SummaryLine, "status" | "count">[];
  /** Every done item once, in any order. */
  readonly results: AsyncIterable<ReportItem> | Iterable<ReportItem>;
  /** What an item printed on standard error. */
  readonly stderrOf: (key: string) => Promise<string>;
}

const MAX_NAME = 500;
const MAX_MESSAGE = 4000;
const MAX_STDERR = 8000;
/** Further failures have their message alone. */
const MAX_WITH_STDERR = 1000;

/** What a test case has for an item that did not succeed; an item that was not allowed to do something, or was lost, is an error. */
const ELEMENTS: Readonly<Record<OutcomeClass, "failure" | "error" | "skipped" | null>> = {
  succeeded: null,
  cached: null,
  pending: "skipped",
  failed: "failure",
  limited: "failure",
  refused: "error",
  stopped: "error",
};

/**
 * A fleet's results as XML in the form of JUnit, in pieces: one test case for each item. Keys, messages and outputs are as manifests and
 * workers chose them: they are cut and escaped, and characters that XML cannot have become their codes. If items have not ended, the last
 * test case is an error that counts them: a report does not look whole if the fleet is not.
 */
export async function* junitXml({ fleet, summary, results, stderrOf }: JunitData): AsyncGenerator<string> {
  const counts = { failure: 0, error: 0, skipped: 0 };
  let done = 0;
  for (const { status, count } of summary) {
    done += count;
    const element = ELEMENTS[outcomeOf(status)];
    if (element !== null) counts[element] += count;
  }
  const left = fleet.items - done;
  if (left > 0) counts.error += 1;
  const totals = `tests="${done + (left > 0 ? 1 : 0)}" failures="${counts.failure}" errors="${counts.error}" skipped="${counts.skipped}"`;
  const name = attribute(fleet.worker);
  const time = seconds(Date.parse(fleet.endedAt ?? fleet.createdAt) - Date.parse(fleet.createdAt));
  yield `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="${name}" ${totals}>\n`;
  yield `<testsuite name="${name}" id="${attribute(fleet.id)}" timestamp="${fleet.createdAt.slice(0, 19)}" time="${time}" ${totals}>\n`;
  let withStderr = 0;
  for await (const item of results) {
    const element = ELEMENTS[outcomeOf(item.status)];
    const hasStderr = element !== null && element !== "skipped" && ++withStderr <= MAX_WITH_STDERR;
    yield testCase(fleet.worker, item, element, hasStderr ? await stderrOf(item.key) : "");
  }
  if (left > 0) {
    const why = `${left} of ${fleet.items} items have not ended${fleet.why === null ? "" : `: ${fleet.why}`}`;
    yield `<testcase classname="${name}" name="items that have not ended"><error type="NOT_ENDED" message="${attribute(why)}"/></testcase>\n`;
  }
  yield "</testsuite>\n</testsuites>\n";
}

function testCase(
  worker: string,
  { key, status, error, durationMs }: ReportItem,
  element: "failure" | "error" | "skipped" | null,
  stderr: string,
): string {
  const head = `<testcase classname="${attribute(worker)}" name="${attribute(key)}" time="${seconds(durationMs)}"`;
  if (element === null) return `${head}/>\n`;
  const message = error?.message ?? status.replaceAll("_", " ");
  if (element === "skipped") return `${head}><skipped message="${attribute(message)}"/></testcase>\n`;
  const printed = stderr === "" ? "" : `<system-err>${content(stderr.slice(-MAX_STDERR), MAX_STDERR)}</system-err>`;
  const type = attribute(error?.code ?? status);
  return `${head}><${element} type="${type}" message="${attribute(message)}">${content(message, MAX_MESSAGE)}</${element}>${printed}</testcase>\n`;
}

function attribute(text: string): string {
  return escaped(possible(text), MAX_NAME);
}

/** Text with its line breaks. A `>` is always escaped, so it cannot end a section. */
function content(text: string, max: number): string {
  const lines = printable(clipped(possible(text), max), "\n\t");
  return lines.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Without the characters that XML 1.0 cannot have and that are no control characters. */
function possible(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(/[\ufffe\uffff]/g, "\ufffd");
}

function seconds(ms: number): string {
  return (Math.max(0, ms) / 1000).toFixed(3);
}
