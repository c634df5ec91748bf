import type { Verdict } from "../../audit/verify.ts";
import {
  type AuditFilter,
  auditRecords,
  newestAuditRecords,
  type ProjectPlace,
  verifyAudit,
} from "../../operations/audit.ts";
import { printableLine } from "../../text/visible.ts";
import { dateOf, type ProjectOptions, placeOf, UsageError } from "../terminal/arguments.ts";
import { printJson, printJsonLine, printResult, say, type Terminal } from "../terminal/terminal.ts";
import { auditTable } from "./audit-text.ts";

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
  const place = await placeOf(options, terminal);
  const filter = filterFrom(options);
  if (options.verify) return await verify(place, options, terminal);
  const limit = limitFrom(options);
  const foreign =
    options.json && limit === null
      ? await printAll(place, filter, terminal)
      : await printNewest(place, filter, { limit: limit ?? DEFAULT_LIMIT, json: options.json === true }, terminal);
  if (foreign > 0)
    say(
      terminal,
      `corral: ${foreign === 1 ? "1 line is not a sealed record" : `${foreign} lines are not sealed records`}; corral audit --verify says what is wrong`,
    );
  return 0;
}

function filterFrom({ run, type, since }: AuditOptions): AuditFilter {
  return {
    ...(run === undefined ? {} : { run }),
    ...(type === undefined ? {} : { type }),
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
  place: ProjectPlace,
  filter: AuditFilter,
  { limit, json }: { limit: number; json: boolean },
  terminal: Terminal,
): Promise<number> {
  const { records, sealed, foreign } = await newestAuditRecords(place, filter, limit);
  if (json) for (const record of records) printJsonLine(terminal, record);
  else if (records.length > 0) terminal.stdout.write(`${auditTable(records)}\n`);
  else say(terminal, sealed === 0 ? "Nothing is recorded." : "No record matches.");
  return foreign;
}

/** The same for all of them, as they are read, for they may be many. */
async function printAll(place: ProjectPlace, filter: AuditFilter, terminal: Terminal): Promise<number> {
  let foreign = 0;
  for await (const some of auditRecords(place, filter)) {
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

async function verify(place: ProjectPlace, { json }: AuditOptions, terminal: Terminal): Promise<number> {
  const verdict = await verifyAudit(place);
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
  const count = `${records} record${records === 1 ? "" : "s"}${span}`;
  const remark = ({ line, what }: { line: number; what: string }): string =>
    line === 0 ? what : `line ${line}: ${what}`;
  return [
    ok ? `whole: ${count}` : `BROKEN: ${count}`,
    ...problems.map((problem) => `  ✗ ${remark(problem)}`),
    ...notes.map((note) => `  - ${remark(note)}`),
  ].join("\n");
}
