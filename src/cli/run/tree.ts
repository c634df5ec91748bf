import pc from "picocolors";
import type { AgentEvent } from "../../agent/events.ts";
import { grantedMounts } from "../../isolation/plan/plan.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { RunResult, RunStatus } from "../../run/model/result.ts";
import { formatDuration } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import type { WatchedEvent } from "../terminal/terminal.ts";

/** Characters of one line of what an agent says, and of what it calls a tool with. */
const MAX_LINE = 400;
const MAX_INPUT = 160;
/** Agents whose end was not reported are forgotten. */
const MAX_AGENTS = 1000;

/**
 * What agents do, as lines for a person: what each says, line by line as it comes, and what it calls. All of it is the
 * model's, and as untrusted as what it has read.
 */
export class AgentLines {
  readonly #colors: Colors;
  /** Of each run: the beginning of a line whose end has not come. */
  readonly #begun = new Map<string, string>();

  constructor(colors: Colors) {
    this.#colors = colors;
  }

  /** The lines that an event completes. */
  see(event: WatchedEvent): string[] {
    if (event.type === "ended") return this.#flushed(event);
    if (event.type !== "agent") return [];
    const { act } = event;
    if (act.kind === "text") return this.#said(event, act.piece);
    const line = this.#lineOf(act);
    return [...this.#flushed(event), ...(line === null ? [] : [this.#headed(event, line)])];
  }

  #said({ run, worker }: WatchedEvent, piece: string): string[] {
    const lines = ((this.#begun.get(run) ?? "") + piece).split("\n");
    const rest = (lines.pop() ?? "").slice(0, MAX_LINE);
    if (this.#begun.size < MAX_AGENTS || this.#begun.has(run)) this.#begun.set(run, rest);
    return lines.map((line) => this.#headed({ worker }, printableLine(line, MAX_LINE)));
  }

  #flushed({ run, worker }: WatchedEvent): string[] {
    const rest = this.#begun.get(run) ?? "";
    this.#begun.delete(run);
    return rest === "" ? [] : [this.#headed({ worker }, printableLine(rest, MAX_LINE))];
  }

  #headed({ worker }: Pick<WatchedEvent, "worker">, line: string): string {
    return `${this.#colors.dim(`${printableLine(worker, 80)} │`)} ${line}`;
  }

  #lineOf(act: Exclude<AgentEvent, { kind: "text" }>): string | null {
    const { dim, red, cyan } = this.#colors;
    switch (act.kind) {
      case "call":
        return `${cyan("→")} ${printableLine(act.tool, 80)} ${dim(printableLine(JSON.stringify(act.input) ?? "", MAX_INPUT))}`;
      case "called":
        return act.code === null ? null : `${red("✗")} ${printableLine(act.tool, 80)} was refused: ${act.code}`;
      case "retry":
        return dim(`${printableLine(act.reason, MAX_LINE)} Asked again in ${(act.waitMs / 1000).toFixed(1)} s.`);
      default:
        return null;
    }
  }
}

/** What a run's container had, in the paths of that container. */
export interface SeenMount {
  readonly path: string;
  readonly mode: "ro" | "rw";
}

/** One run of a tree, finished or not, as far as a drawing needs it. */
export interface TreeRun {
  readonly worker: string;
  readonly status: RunStatus | "waiting" | "running";
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly durationMs: number;
  /** Names below `/attachments`. */
  readonly attachments: readonly string[];
  /** Null if no container was created, or if none was inspected. */
  readonly mounts: readonly SeenMount[] | null;
  /** What went wrong, in words; null for a success. */
  readonly message: string | null;
  readonly calls: readonly TreeRun[];
  /** Calls that were not recorded one by one. */
  readonly unrecorded: number;
}

export interface TreeStyle {
  /** Absent: none. */
  readonly colors?: Colors;
  /** The drawing loses detail until it fits: first what each run saw, then finished calls, then lines in the middle. Absent: 500. */
  readonly maxLines?: number;
  /** Characters of one line of a message. Absent: 2000. */
  readonly maxMessage?: number;
}

/** Draws a tree of runs: who saw what, how each ended, and what was refused and why. */
export function drawTree(root: TreeRun, style: TreeStyle = {}): string {
  const { colors = pc.createColors(false), maxLines = 500, maxMessage = 2000 } = style;
  let lines: string[] = [];
  for (const detail of DETAILS) {
    lines = linesOf(root, { ...detail, maxMessage }, colors);
    if (lines.length <= maxLines) return lines.join("\n");
  }
  return cut(lines, maxLines).join("\n");
}

interface Detail {
  /** What each run saw. */
  readonly sights: boolean;
  /** Whole messages, or their first line. */
  readonly messages: boolean;
  /** Calls of one run that ended well and are drawn one by one; the others are counted. */
  readonly maxClean: number;
  readonly maxMessage: number;
}

const DETAILS: readonly Omit<Detail, "maxMessage">[] = [
  { sights: true, messages: true, maxClean: 50 },
  { sights: false, messages: true, maxClean: 10 },
  { sights: false, messages: false, maxClean: 3 },
  { sights: false, messages: false, maxClean: 0 },
];

function linesOf(run: TreeRun, detail: Detail, colors: Colors): string[] {
  const { drawn, counted } = chooseCalls(run, detail.maxClean);
  const below = [
    ...drawn.map((call) => linesOf(call, detail, colors)),
    ...countedLines(counted, run.unrecorded, colors),
  ];
  const bar = below.length > 0 ? "│ " : "  ";
  const notes = notesOf(run, detail, colors).map((line) => `${colors.dim(bar)}  ${line}`);
  return [
    headline(run, colors),
    ...notes,
    ...below.flatMap((lines, index) => branch(lines, index === below.length - 1, colors)),
  ];
}

/** The lines of one call, hung below those of its caller. */
export function branch(lines: readonly string[], last: boolean, colors: Colors): string[] {
  const [first, others] = last ? ["└─ ", "   "] : ["├─ ", "│  "];
  return lines.map((line, index) => `${colors.dim(index === 0 ? first : others)}${line}`);
}

function headline(run: TreeRun, colors: Colors): string {
  const { mark, paint } = MARKS[run.status];
  const attached =
    run.attachments.length === 0 ? "" : ` ${colors.dim(`[${printableLine(run.attachments.join(", "), 100)}]`)}`;
  const words = run.status === "succeeded" ? "" : ` ${paint(colors)(endingOf(run))}`;
  const time = run.status === "waiting" || run.durationMs === 0 ? "" : ` ${colors.dim(seconds(run.durationMs))}`;
  return `${paint(colors)(mark)} ${colors.bold(printableLine(run.worker, 80))}${attached}${words}${time}`;
}

function endingOf({ status, exitCode, signal }: TreeRun): string {
  const detail =
    status === "failed" && exitCode !== null
      ? ` with ${exitCode}`
      : status === "signaled"
        ? ` by ${signal}${exitCode !== null && exitCode > 128 ? `, or ended with ${exitCode}` : ""}`
        : "";
  return `${status.replaceAll("_", " ")}${detail}`;
}

function notesOf(run: TreeRun, detail: Detail, colors: Colors): string[] {
  const notes: string[] = [];
  if (detail.sights && run.mounts !== null) {
    const seen = run.mounts.map(
      ({ path, mode }) => `${printableLine(path)} (${mode === "rw" ? colors.yellow(mode) : mode})`,
    );
    notes.push(`${colors.dim("mounts:")} ${seen.length === 0 ? "none" : seen.join(", ")}`);
  }
  if (run.message !== null && !isSelfExplaining(run)) {
    const lines = run.message.split("\n").map((line) => printableLine(line, detail.maxMessage));
    notes.push(...(detail.messages ? lines : lines.slice(0, 1)));
  }
  return notes;
}

/** The message would only repeat the headline. A worker can also fail with 0, and then it says why. */
function isSelfExplaining({ status, exitCode }: TreeRun): boolean {
  return status === "signaled" || status === "cancelled" || (status === "failed" && exitCode !== 0);
}

/** What did not end well is always drawn; of the rest the latest, for in a live tree those are the news. */
function chooseCalls(run: TreeRun, maxClean: number): { drawn: readonly TreeRun[]; counted: readonly TreeRun[] } {
  const clean = run.calls.filter(isClean);
  const counted = new Set(clean.slice(0, Math.max(0, clean.length - maxClean)));
  return { drawn: run.calls.filter((call) => !counted.has(call)), counted: [...counted] };
}

function isClean(run: TreeRun): boolean {
  return run.status === "succeeded" && run.unrecorded === 0 && run.calls.every(isClean);
}

function countedLines(counted: readonly TreeRun[], unrecorded: number, colors: Colors): string[][] {
  const byWorker = new Map<string, number>();
  for (const { worker } of counted) byWorker.set(worker, (byWorker.get(worker) ?? 0) + 1);
  const lines = [...byWorker].map(
    ([worker, count]) => `${colors.green("✓")} ${colors.dim(`${count} × ${worker} succeeded`)}`,
  );
  if (unrecorded > 0) lines.push(colors.dim(`… and ${unrecorded} more calls`));
  return lines.map((line) => [line]);
}

/** Keeps the beginning, where the root is, and the end, where the latest is. */
function cut(lines: readonly string[], max: number): string[] {
  if (max < 3) return lines.slice(0, Math.max(0, max));
  const head = Math.ceil((max - 1) / 3);
  const tail = max - 1 - head;
  return [...lines.slice(0, head), `… ${lines.length - head - tail} more lines …`, ...lines.slice(lines.length - tail)];
}

function seconds(ms: number): string {
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)}s` : formatDuration(Math.round(ms / 1000) * 1000);
}

type Paint = (colors: Colors) => (text: string) => string;
const good: Paint = (colors) => colors.green;
const bad: Paint = (colors) => colors.red;
const stopped: Paint = (colors) => colors.yellow;
const going: Paint = (colors) => colors.cyan;

const MARKS: Readonly<Record<TreeRun["status"], { readonly mark: string; readonly paint: Paint }>> = {
  waiting: { mark: "·", paint: going },
  running: { mark: "▸", paint: going },
  succeeded: { mark: "✓", paint: good },
  failed: { mark: "✗", paint: bad },
  signaled: { mark: "✗", paint: bad },
  timed_out: { mark: "✗", paint: bad },
  oom_killed: { mark: "✗", paint: bad },
  output_limit: { mark: "✗", paint: bad },
  disk_limit: { mark: "✗", paint: bad },
  lost: { mark: "?", paint: bad },
  cancelled: { mark: "■", paint: stopped },
  refused: { mark: "⊘", paint: stopped },
  denied: { mark: "⊘", paint: stopped },
};

/** What the Engine or the host said; it is for people, and may hold host paths. */
export function troubleText({ worker, detail }: WatchedEvent & { readonly type: "trouble" }): string {
  return `corral: error in ${printableLine(worker, 80)}: ${printable(detail)}`;
}

/** How a run ended that did not succeed. */
export function endingText({ worker, status, error, violations, changeset }: RunResult): string {
  // The error names the refused changes and the result of all changes.
  const ending = `corral: ${printable(error?.message ?? status)}`;
  if (violations.length === 0 || changeset !== null) return ending;
  const reasons = violations.map(({ message }) => `  - ${printableLine(message, 1000)}`);
  return [status === "refused" ? `corral: worker ${worker} was refused:` : ending, ...reasons].join("\n");
}

/** The outcomes of a run's changes in staged directories, and the command for those that wait, unless `told` has it; null if nothing was changed. */
export function changesetText({ run, changeset }: RunResult, told: string): string | null {
  if (changeset === null) return null;
  const { counts, id } = changeset;
  const outcomes = Object.entries(counts).filter(([, count]) => count > 0);
  const summary = outcomes.map(([outcome, count]) => `${count} ${outcome}`).join(", ");
  const way = id === null || told.includes("corral changes") ? "" : `; see \`corral changes show ${run}\``;
  return `corral: changes: ${summary}${way}`;
}

/** More runs of one tree than this are counted and not kept: a worker can make refused calls as fast as it likes. */
const MAX_RUNS = 5_000;

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

interface WitnessedRun extends Mutable<Omit<TreeRun, "calls">> {
  readonly requestedAt: number;
  readonly calls: WitnessedRun[];
}

/** Watches the events of one root run, and knows at any moment what its tree looks like. Keeps no output. */
export class Witness {
  readonly #now: () => number;
  readonly #records = new Map<string, WitnessedRun>();
  #root: WitnessedRun | null = null;

  /** `now`: milliseconds of a clock that only goes forward. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  see(event: WatchedEvent): void {
    if (event.type === "requested") this.#begin(event);
    const record = this.#records.get(event.run);
    if (record === undefined) return;
    if (event.type === "started") {
      record.status = "running";
      record.mounts = event.plan && grantedMounts(event.plan).map(({ path, mode }) => ({ path, mode }));
    } else if (event.type === "agent_started") {
      record.status = "running";
      record.mounts = event.mounts;
    } else if (event.type === "ended") {
      const { status, exitCode, signal, durationMs, error } = event.result;
      Object.assign(record, { status, exitCode, signal, durationMs, message: error?.message ?? null });
    }
  }

  /** Null before the root run was asked for. */
  tree(): TreeRun | null {
    return this.#root === null ? null : this.#drawn(this.#root);
  }

  #begin({ run, parent, worker, attachments }: WatchedEvent): void {
    const caller = parent === null ? null : (this.#records.get(parent) ?? this.#root);
    if (this.#records.size >= MAX_RUNS) {
      if (caller !== null) caller.unrecorded += 1;
      return;
    }
    const record: WitnessedRun = {
      worker,
      attachments,
      requestedAt: this.#now(),
      status: "waiting",
      exitCode: null,
      signal: null,
      durationMs: 0,
      mounts: null,
      message: null,
      unrecorded: 0,
      calls: [],
    };
    this.#records.set(run, record);
    if (caller === null) this.#root = record;
    else caller.calls.push(record);
  }

  #drawn({ requestedAt, calls, ...record }: WitnessedRun): TreeRun {
    const going = record.status === "waiting" || record.status === "running";
    const durationMs = going ? this.#now() - requestedAt : record.durationMs;
    return { ...record, durationMs, calls: calls.map((call) => this.#drawn(call)) };
  }
}
