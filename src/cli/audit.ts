import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import { recordsOf } from "../audit/read.ts";
import { AUDIT_TYPES } from "../audit/records.ts";
import { auditKey, type SealedRecord } from "../audit/seal.ts";
import { type Verdict, verifyTrail } from "../audit/verify.ts";
import { nearest } from "../declarations/yaml/issue.ts";
import { printableLine } from "../operations/wording/printable.ts";
import { loadSealKey } from "../state/owner.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { projectPaths, type TrailPaths } from "../state/state-paths.ts";
import { auditTable } from "./audit-text.ts";
import { dateOf } from "./terminal/date.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";
import { UsageError } from "./terminal/usage-error.ts";

export interface AuditOptions {
  readonly project: string;
  readonly verify?: boolean;
  readonly run?: string;
  readonly type?: string;
  readonly since?: string;
  readonly limit?: string;
  readonly json?: boolean;
}

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 100_000;

/** `corral audit`: what was asked for, agreed to and done in a project, newest last. Needs no Engine. */
export async function auditVerb(options: AuditOptions, terminal: Terminal): Promise<number> {
  const stateDir = stateDirFrom(terminal.env);
  const dir = await projectFolder(options.project, terminal);
  const place = projectPaths(stateDir, dir).trail;
  const wanted = filterFrom(options);
  const key = auditKey(await loadSealKey(stateDir), dir);
  if (options.verify) return await verify(place, key, options, terminal);
  const limit = limitFrom(options);
  const foreign =
    options.json && limit === null
      ? await printAll(place, key, wanted, terminal)
      : await printNewest(place, key, wanted, { limit: limit ?? DEFAULT_LIMIT, json: options.json === true }, terminal);
  if (foreign > 0)
    say(terminal, `corral: lines that are no sealed records: ${foreign}; corral audit --verify tells more`);
  return 0;
}

/** A folder that is not there any more may have a trail yet. */
async function projectFolder(dir: string, { cwd }: Terminal): Promise<string> {
  const path = resolve(cwd, dir);
  return await realpath(path).catch(() => path);
}

type Filter = (record: SealedRecord) => boolean;

function filterFrom({ run, type, since }: AuditOptions): Filter {
  const from = since === undefined ? null : dateOf("--since", since);
  const types: readonly string[] = AUDIT_TYPES;
  if (type !== undefined && !types.includes(type))
    throw new UsageError(
      `there are no records of type ${printableLine(type, 80)}${nearest(type, types) ?? `; there are: ${types.join(", ")}`}`,
    );
  return (record) =>
    (run === undefined || record.run === run || record.root === run) &&
    (type === undefined || record.type === type) &&
    (from === null || Date.parse(record.at) >= from);
}

/** Null where none is asked for. */
function limitFrom({ limit }: AuditOptions): number | null {
  if (limit === undefined) return null;
  if (!/^[1-9]\d{0,6}$/.test(limit) || Number(limit) > MAX_LIMIT)
    throw new UsageError(`--limit takes a number from 1 to ${MAX_LIMIT}, not ${printableLine(limit, 80)}`);
  return Number(limit);
}

/** Answers with the number of lines that are no records. */
async function printNewest(
  place: TrailPaths,
  key: Buffer,
  wanted: Filter,
  { limit, json }: { limit: number; json: boolean },
  terminal: Terminal,
): Promise<number> {
  let records: SealedRecord[] = [];
  let [known, foreign] = [0, 0];
  for await (const some of recordsOf(place, key)) {
    for (const record of some) {
      if (record === null) foreign += 1;
      else known += 1;
      if (record !== null && wanted(record)) records.push(record);
    }
    if (records.length > limit) records = records.slice(-limit);
  }
  if (json) for (const record of records) printLine(terminal, record);
  else if (records.length > 0) terminal.stdout.write(`${auditTable(records)}\n`);
  else say(terminal, known === 0 ? "Nothing is recorded." : "No record matches.");
  return foreign;
}

/** The same for all of them, as they are read, for they may be many. */
async function printAll(place: TrailPaths, key: Buffer, wanted: Filter, terminal: Terminal): Promise<number> {
  let foreign = 0;
  for await (const some of recordsOf(place, key)) {
    for (const record of some) {
      if (record === null) foreign += 1;
      else if (wanted(record)) printLine(terminal, record);
    }
    await drained(terminal);
  }
  return foreign;
}

function printLine({ stdout }: Terminal, record: SealedRecord): void {
  stdout.write(`${JSON.stringify(record)}\n`);
}

/** Settles when whoever reads has read; or has gone, which ends the writing as well. */
async function drained({ stdout }: Terminal): Promise<void> {
  await new Promise((resolve) => stdout.write("", resolve));
}

async function verify(place: TrailPaths, key: Buffer, { json }: AuditOptions, terminal: Terminal): Promise<number> {
  const verdict = await verifyTrail(place, key);
  if (verdict === null) {
    if (json) printJson(terminal, { ok: true, records: 0, firstAt: null, lastAt: null, problems: [], notes: [] });
    else say(terminal, "Nothing is recorded.");
    return 0;
  }
  if (json) printJson(terminal, verdict);
  else terminal.stdout.write(`${verdictText(verdict)}\n`);
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
