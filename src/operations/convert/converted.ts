import type { ItemResult } from "../../fleet/model/item.ts";
import { escaped, REPORT_PAGE_END, reportPageStart, TABLE_END } from "../../fleet/report/measures/gathered.ts";
import { jsonLine } from "../../fleet/report/results-export.ts";
import { parseJson } from "../../json/parse-json.ts";
import { counted } from "../../text/amounts.ts";
import { clipped, printableLine } from "../../text/visible.ts";

/** Why nothing can be made of a file, in the words of the program in its cell and of Corral. */
const REASONS = [
  "encrypted",
  "damaged",
  "failed",
  "unknown type",
  "bomb",
  "timed out",
  "too large",
  "empty",
  "no text",
  "no pages",
  "no parts",
] as const;

export type ConversionVerdict = "done" | "not possible" | "refused";

/** What became of one file. All but `file`, `folder`, the times and the memory is the word of the container that read the file, cut and made harmless. */
export interface ConvertedFile {
  /** Its path below what was named. */
  readonly file: string;
  /** The folder of its results, below that of all. */
  readonly folder: string;
  readonly verdict: ConversionVerdict;
  readonly reason: string | null;
  readonly words: string | null;
  readonly type: string | null;
  /** What is in the folder. */
  readonly files: readonly string[];
  readonly pages: number | null;
  readonly notes: readonly string[];
  /** Its result is of an earlier time: nothing that it depends on has changed. */
  readonly cached: boolean;
  readonly run: string | null;
  readonly durationMs: number;
  readonly memoryBytesPeak: number | null;
}

/** What there is of a file that was not converted. */
export const UNCONVERTED = {
  run: null,
  cached: false,
  reason: null,
  words: null,
  type: null,
  files: [],
  pages: null,
  notes: [],
  durationMs: 0,
  memoryBytesPeak: null,
} as const satisfies Partial<ConvertedFile>;

const MAX_WORD = 60;
const MAX_WORDS = 300;
const MAX_LISTED = 20;

/** Null: it has not been converted, since the user ended it. */
export function convertedFile(result: ItemResult): ConvertedFile | null {
  const { status, key, fields, run, durationMs, memoryBytesPeak } = result;
  if (status === "cancelled") return null;
  const said = verdictIn(result.output);
  const { file } = fields;
  const told = {
    file: typeof file === "string" ? file : key,
    folder: key,
    type: lineOf(said.type, MAX_WORD),
    notes: linesOf(said.notes),
    cached: status === "cached",
    run,
    durationMs,
    memoryBytesPeak,
  };
  const none = { ...told, files: [], pages: null };
  const isDone = status === "succeeded" || status === "cached";
  if (isDone && said.verdict === "done")
    return {
      ...told,
      verdict: "done",
      reason: null,
      words: null,
      files: linesOf(said.files),
      pages: countOf(said.pages),
    };
  const ended = isDone ? null : endedBy(result);
  if (ended !== null) return { ...none, ...ended };
  if (said.verdict !== "not possible")
    return {
      ...none,
      verdict: "not possible",
      reason: "failed",
      words: lineOf(result.stderrLine, MAX_WORDS) ?? NO_VERDICT,
    };
  const reason = REASONS.find((one) => one === said.reason) ?? "other";
  return { ...none, verdict: "not possible", reason, words: lineOf(said.words, MAX_WORDS) };
}

/** The result as a person reads it while files are converted: one from which nothing could be made is no success, whichever way its container ended. */
export function shownResult(result: ItemResult): ItemResult {
  const file = convertedFile(result);
  if (file === null || file.verdict !== "not possible") return result;
  const { reason, words } = file;
  const message = [reason, words].flatMap((one) => one ?? []).join(": ");
  return { ...result, status: "not_possible", error: { code: reason ?? "other", message } };
}

const NO_VERDICT = "the program that reads it ended without a verdict";

/** What Corral says of how a cell ended; null if its program has said more. */
function endedBy({ status, error }: ItemResult): Pick<ConvertedFile, "verdict" | "reason" | "words"> | null {
  const how = ENDS[status];
  if (how !== undefined) return { verdict: "not possible", reason: how[0], words: how[1] };
  if (status === "failed") return null;
  return { verdict: "refused", reason: status, words: lineOf(error?.message, MAX_WORDS) };
}

const ENDS: Readonly<Record<string, readonly [(typeof REASONS)[number], string]>> = {
  timed_out: ["timed out", "it was not done within its time: --timeout gives more"],
  oom_killed: ["too large", "it needs more memory than its limit: --memory gives more"],
  disk_limit: ["too large", "it writes more than its limit: --disk gives more"],
  output_limit: ["damaged", "the program that reads it prints without end"],
  signaled: ["damaged", "the program that reads it was ended by a signal"],
};

function verdictIn(output: unknown): Readonly<Record<string, unknown>> {
  const parsed = typeof output === "string" ? parseJson(output) : { ok: true as const, value: output };
  const value = parsed.ok ? parsed.value : null;
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

function lineOf(said: unknown, max: number): string | null {
  return typeof said === "string" && said !== "" ? printableLine(said, max) : null;
}

function linesOf(said: unknown): string[] {
  return Array.isArray(said) ? said.slice(0, MAX_LISTED).flatMap((one) => lineOf(one, MAX_WORDS) ?? []) : [];
}

function countOf(said: unknown): number | null {
  return Number.isSafeInteger(said) && Number(said) >= 0 ? Number(said) : null;
}

/** How many files ended how. */
export class ConversionCounts {
  readonly #reasons = new Map<string, number>();
  #done = 0;

  see({ verdict, reason }: Pick<ConvertedFile, "verdict" | "reason">): void {
    if (verdict === "done") this.#done += 1;
    else {
      const why = verdict === "refused" ? "refused" : (reason ?? "other");
      this.#reasons.set(why, (this.#reasons.get(why) ?? 0) + 1);
    }
  }

  get done(): number {
    return this.#done;
  }

  /** The most frequent first. `refused` is one of them. */
  get reasons(): readonly (readonly [reason: string, files: number])[] {
    return [...this.#reasons].toSorted(([, one], [, other]) => other - one);
  }

  /** `12 done, 3 not possible (2 encrypted, 1 damaged), 1 refused`. */
  get text(): string {
    const refused = this.#reasons.get("refused") ?? 0;
    const others = this.reasons.filter(([reason]) => reason !== "refused");
    const impossible = others.reduce((sum, [, files]) => sum + files, 0);
    return [
      `${counted(this.#done, "file")} done`,
      ...(impossible === 0
        ? []
        : [`${impossible} not possible (${others.map(([reason, files]) => `${files} ${reason}`).join(", ")})`]),
      ...(refused === 0 ? [] : [`${refused} refused`]),
    ].join(", ");
  }
}

/** One line of `results.jsonl`. */
export function convertedLine(file: ConvertedFile): string {
  return jsonLine(file);
}

/** A report has the first of each kind; `results.jsonl` has all. */
const MAX_ROWS = 5000;

/** `report.html` in pieces: self-contained, without scripts, and all of a stranger's text is escaped. */
export async function* conversionReport(
  title: string,
  counts: ConversionCounts,
  files: AsyncIterable<ConvertedFile>,
): AsyncGenerator<string> {
  yield reportPageStart(title, [counts.text], ["File", "Verdict", "Type", "What was made, or why nothing"]);
  let rows = 0;
  for await (const one of files) {
    rows += 1;
    if (rows <= MAX_ROWS) yield rowOf(one);
  }
  const beyond = rows > MAX_ROWS ? `<p>${rows - MAX_ROWS} further files are in results.jsonl.</p>\n` : "";
  yield `${TABLE_END}${beyond}${REPORT_PAGE_END}`;
}

function rowOf({ file, folder, verdict, reason, words, type, files, pages, notes }: ConvertedFile): string {
  const name = `<bdi>${escaped(file, MAX_WORDS)}</bdi>`;
  const linked = verdict === "done" ? `<a href="${addressOf(folder)}">${name}</a>` : name;
  const made = [files.join(", "), ...(pages === null ? [] : [counted(pages, "page")]), ...notes].join(" · ");
  const why = verdict === "done" ? made : (words ?? "");
  const shown = verdict === "done" ? verdict : `${verdict}${reason === null ? "" : `: ${reason}`}`;
  return `<tr><td>${linked}</td><td class="${verdict.split(" ")[0]}">${escaped(shown, MAX_WORD)}</td><td>${escaped(type ?? "–", MAX_WORD)}</td><td><bdi>${escaped(clipped(why, MAX_WORDS), MAX_WORDS)}</bdi></td></tr>\n`;
}

/** Relative to the report. A folder's own `%` is one. */
function addressOf(folder: string): string {
  return `./${folder.split("/").map(encodeURIComponent).join("/")}/`;
}
