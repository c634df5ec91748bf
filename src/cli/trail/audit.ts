import type { SealedRecord } from "../../audit/seal.ts";
import type { Verdict } from "../../audit/verify.ts";
import type { AuditFilter } from "../../operations/audit.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type TrailOffer, trailOffered } from "../host/decisions.ts";
import { dateOf, type ProjectOptions, projectPlaceOf, UsageError } from "../terminal/arguments.ts";
import {
  columns,
  printJson,
  printJsonLine,
  printResult,
  say,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";

const HEAD = ["TIME", "RUN", "WORKER", "WHAT", "OUTCOME"];

/** Records as a table. Workers chose some of their content, so all of it is escaped for the terminal. */
export function auditTable(records: readonly SealedRecord[]): string {
  const rows = records.map((record) => {
    const [what, outcome] = wordsOf(record);
    const worker = record.worker === undefined ? "-" : printableLine(record.worker, 40);
    const run = printableLine(record.run ?? "-", 20);
    return [record.at, run, worker, printableLine(what, 100), printableLine(outcome, 120)];
  });
  return columns([HEAD, ...rows]);
}

/** The columns WHAT and OUTCOME. A record that another version wrote may lack anything, and is shown for what it has. */
function wordsOf(record: SealedRecord): readonly [what: string, outcome: string] {
  const { type } = record;
  const changes = `changes ${text(record.changeset)}`;
  const grant = `grant ${text(record.directory ?? record.to)}`;
  const mounts = listed(record.mounts, mountWords) || "no files";
  switch (type) {
    case "run_requested":
      return [
        record.parent === null ? "run" : `call by ${text(record.parent)}`,
        record.continues === undefined ? "requested" : `requested; continues run ${text(record.continues)}`,
      ];
    case "run_started":
      return ["run", `started with ${mounts}`];
    case "agent_started":
      return ["agent", `started on ${text(record.model)} with ${listed(record.tools) || "no tools"}; ${mounts}`];
    case "tool_used":
      return [`tool ${text(record.tool)} ${onWords(record.on)}`.trim(), usedWords(record)];
    case "run_ended": {
      const words = [text(record.status), exitWords(record), countWords(record.changes)];
      return ["run", words.filter(Boolean).join(", ")];
    }
    case "refused":
      return ["run", `refused: ${listed(record.codes)}`];
    case "approval":
      return [askedWords(record), `${text(record.outcome)} (${text(record.scope)}): ${text(record.reason)}`];
    case "grant":
      return [record.to === undefined ? `${grant} ${text(record.mode)}` : grant, `granted (${text(record.scope)})`];
    case "grant_revoked":
      return [grant, `revoked: ${text(record.reason)}`];
    case "changes_applying":
      return [changes, `applying ${text(record.count)}`];
    case "changes_applied":
      return [changes, countWords(record.counts) || "none"];
    case "changes_discarded":
      return [
        changes,
        `discarded ${text(record.count)}${record.reason === undefined ? "" : `: ${text(record.reason)}`}`,
      ];
    case "egress":
      return ["network", egressWords(record)];
    case "pushed":
      return [`push to ${text(record.repo)}`, `pushed ${text(record.commit).slice(0, 12)} to ${text(record.branch)}`];
    case "repaired":
      return ["audit trail", `repaired: ${text(record.what)}, ${text(record.bytes)} bytes`];
    default:
      return [type, ""];
  }
}

/** The hosts, refused ones first and with the reason. */
function egressWords({ allowed, denied, unlisted }: SealedRecord): string {
  const words = [listed(denied, (line) => `denied ${hostWords(line)}`), listed(allowed, hostWords)];
  const more = typeof unlisted === "number" && unlisted > 0 ? `and ${unlisted} more` : "";
  return [...words, more].filter(Boolean).join(", ");
}

function hostWords(line: unknown): string {
  const { to, connections, count, reason } = (line ?? {}) as Record<string, unknown>;
  const why = reason === undefined ? "" : ` (${text(reason)})`;
  return `${text(to)}${why} ×${text(connections ?? count)}`;
}

/** What a tool was used on: the values alone, which are paths, commands and names. */
function onWords(on: unknown): string {
  return typeof on === "object" && on !== null ? Object.values(on).map(text).join(" ") : "";
}

function usedWords(record: SealedRecord): string {
  const { ok, status, code, message } = record;
  if (ok === true) return typeof status === "string" ? [status, exitWords(record)].filter(Boolean).join(", ") : "done";
  return `refused: ${text(code)}${message === undefined ? "" : ` ${text(message)}`}`;
}

function askedWords({ operations, command, directory, paths }: SealedRecord): string {
  const asked = listed(operations);
  if (typeof command === "string") return `${asked} ${command}`;
  return `${asked} ${typeof directory === "string" ? directory : listed(paths)}`;
}

function exitWords({ exitCode, signal }: SealedRecord): string {
  if (typeof signal === "string") return signal;
  return typeof exitCode === "number" && exitCode !== 0 ? `exit code ${exitCode}` : "";
}

function countWords(counts: unknown): string {
  if (typeof counts !== "object" || counts === null) return "";
  return Object.entries(counts)
    .map(([outcome, count]) => `${text(count)} ${outcome}`)
    .join(", ");
}

function mountWords(mount: unknown): string {
  const { path, mode } = Object(mount) as { path?: unknown; mode?: unknown };
  return `${text(path)} ${text(mode)}`;
}

const MAX_LISTED = 5;

/** The first of a list, and how many more there are; the trail itself marks what it left out. */
function listed(list: unknown, words: (item: unknown) => string = text): string {
  if (!Array.isArray(list)) return "";
  const shown = list.slice(0, MAX_LISTED).map(words).join(", ");
  return list.length > MAX_LISTED ? `${shown} and ${list.length - MAX_LISTED} more` : shown;
}

function text(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "-";
}

export interface AuditOptions extends ProjectOptions {
  readonly verify?: boolean;
  readonly run?: string;
  readonly type?: string;
  readonly since?: string;
  readonly limit?: string;
}

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 100_000;

/** `corral audit`: the newest record last. Needs no Engine. */
export async function auditVerb(options: AuditOptions, terminal: Terminal): Promise<number> {
  const filter = filterFrom(options);
  if (options.verify) return await verify(options, terminal);
  const trail = await trailOffered(options, terminal);
  const limit = limitFrom(options);
  const foreign =
    options.json && limit === null
      ? await printAll(trail, filter, terminal)
      : await printNewest(trail, filter, { limit: limit ?? DEFAULT_LIMIT, json: options.json === true }, terminal);
  if (foreign > 0)
    say(
      terminal,
      `corral: ${foreign === 1 ? "1 line is not a sealed record" : `${foreign} lines are not sealed records`}; corral audit --verify says what is wrong`,
    );
  return 0;
}

function filterFrom({ run, type, since }: AuditOptions): AuditFilter {
  return {
    ...present({ run, type }),
    ...(since === undefined ? {} : { since: dateOf("--since", since) }),
  };
}

/** Null if the option is absent. */
function limitFrom({ limit }: AuditOptions): number | null {
  if (limit === undefined) return null;
  if (!/^[1-9]\d{0,6}$/.test(limit) || Number(limit) > MAX_LIMIT)
    throw new UsageError(`--limit takes a number from 1 to ${MAX_LIMIT}, not ${printableLine(limit, 80)}`);
  return Number(limit);
}

/** Answers with the number of lines that are no records. */
async function printNewest(
  trail: TrailOffer,
  filter: AuditFilter,
  { limit, json }: { limit: number; json: boolean },
  terminal: Terminal,
): Promise<number> {
  const { records, sealed, foreign } = await trail.newest(filter, limit);
  if (json) for (const record of records) printJsonLine(terminal, record);
  else if (records.length > 0) terminal.stdout.write(`${withoutControls(auditTable(records))}\n`);
  else say(terminal, sealed === 0 ? "Nothing is recorded." : "No record matches.");
  return foreign;
}

/** The same for all of them, as they are read, for they may be many. */
async function printAll(trail: TrailOffer, filter: AuditFilter, terminal: Terminal): Promise<number> {
  let foreign = 0;
  for await (const some of trail.all(filter)) {
    foreign += some.foreign;
    for (const record of some.records) printJsonLine(terminal, record);
    await drained(terminal);
  }
  return foreign;
}

/** Settles when the reader has read, or has closed the pipe. */
async function drained({ stdout }: Terminal): Promise<void> {
  await new Promise((resolve) => stdout.write("", resolve));
}

async function verify(options: AuditOptions, terminal: Terminal): Promise<number> {
  const { verifyAudit } = await import("../../operations/audit.ts");
  const verdict = await verifyAudit(await projectPlaceOf(options, terminal));
  const { json } = options;
  if (verdict === null) {
    if (json) printJson(terminal, { ok: true, records: 0, firstAt: null, lastAt: null, problems: [], notes: [] });
    else say(terminal, "Nothing is recorded.");
    return 0;
  }
  printResult(terminal, json, verdict, () => verdictText(verdict));
  return verdict.ok ? 0 : 1;
}

function verdictText({ ok, records, firstAt, lastAt, problems, notes }: Verdict): string {
  const span = firstAt === null ? "" : `, ${firstAt} to ${lastAt}`;
  const count = `${counted(records, "record")}${span}`;
  const remark = ({ line, what }: { line: number; what: string }): string =>
    line === 0 ? what : `line ${line}: ${what}`;
  return [
    ok ? `whole: ${count}` : `BROKEN: ${count}`,
    ...problems.map((problem) => `  ✗ ${remark(problem)}`),
    ...notes.map((note) => `  - ${remark(note)}`),
  ].join("\n");
}
