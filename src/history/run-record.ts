import { constants } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";
import {
  type AttachmentEntry,
  type BeginEntry,
  type CalledEntry,
  type EndedEntry,
  type HeldEntry,
  type HistoryEntry,
  MAX_RECORD_BYTES,
  PIECE_BYTES,
  parseEntry,
  pieceNumbers,
  RECORD_FILE,
  type StartedEntry,
  type StreamName,
} from "./recording.ts";

/** Room for the last line, which is written even if the others have filled the record. */
const MAX_READ_BYTES = MAX_RECORD_BYTES * 2;
/** Callers above a run; deeper calls are shown below the deepest. */
const MAX_DEPTH = 64;

/** One run of a tree, as it was recorded. Times are ISO 8601; null: not yet, or never. */
export interface RecordedCall {
  readonly run: string;
  readonly worker: string;
  /** The service of its caller that it is; null: it is none. */
  readonly service: string | null;
  /** Names of the attachments. */
  readonly attachments: readonly string[];
  readonly queuedAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  /** That of its result. `running`; `interrupted`: its process died; `closed`: a session that ended in order. */
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly durationMs: number | null;
  readonly policy: string | null;
  readonly image: string | null;
  /** Of an agent; its transcript has the run's id. */
  readonly model: string | null;
  readonly limits: Readonly<Record<string, number>> | null;
  /** What it could see and reach; null before it started, or in the record of an older version. */
  readonly held: HeldEntry | null;
  readonly usage: { readonly cpuMs: number | null; readonly memoryBytesPeak: number | null } | null;
  readonly truncated: boolean;
  readonly changeset: EndedEntry["changeset"];
  readonly network: Readonly<Record<string, unknown>> | null;
  readonly agent: Readonly<Record<string, unknown>> | null;
  readonly calls: readonly RecordedCall[];
}

/** How much of a stream was printed, and how much of it is kept. */
export interface RecordedStream {
  readonly bytes: number;
  readonly keptBytes: number;
}

/** One root run of the history, with the runs below it. */
export interface RunRecord extends Omit<RecordedCall, "run" | "service" | "attachments"> {
  /** 12 hex digits. */
  readonly id: string;
  readonly kind: BeginEntry["kind"];
  /** The absolute folder of its project. */
  readonly project: string;
  readonly input: BeginEntry["input"];
  /** `bytes` and `sha256` are null if the file could not be read, or was too large for a digest. */
  readonly attachments: readonly {
    readonly name: string;
    readonly bytes: number | null;
    readonly sha256: string | null;
  }[];
  /** What was added to the command of its worker. */
  readonly arguments: readonly string[];
  readonly continues: string | null;
  /** The process that runs it, or ran it. */
  readonly owner: string;
  /** How many calls are not in the record. */
  readonly leftOut: number;
  readonly stdout: RecordedStream;
  readonly stderr: RecordedStream;
}

/** Null if there is no record that can be read. `isDead`: whether a process has certainly ended. */
export async function readRun(dir: string, isDead: (owner: string) => boolean): Promise<RunRecord | null> {
  const entries = await entriesIn(dir);
  const begin = entries.find((entry) => entry.type === "begin");
  if (begin === undefined) return null;
  const { run, kind, project, owner, input, continues = null, arguments: words = [] } = begin;
  const left = isDead(owner) ? "interrupted" : "running";
  const { run: _, service: __, attachments: names, ...root } = treeOf(begin, entries, left);
  const files = new Map(
    entries.flatMap((entry) => (entry.type === "attachment" ? [[entry.name, entry] as const] : [])),
  );
  const attachments = names.map((name) => digestOf(name, files.get(name)));
  const leftOut = entries.reduce(
    (sum, entry) => sum + (entry.type === "ended" && entry.run === run ? entry.leftOut : 0),
    0,
  );
  const streams = { stdout: await streamOf(dir, "stdout"), stderr: await streamOf(dir, "stderr") };
  return {
    id: run,
    kind,
    project,
    owner,
    input,
    arguments: words,
    continues,
    attachments,
    leftOut,
    ...root,
    ...streams,
  };
}

/** The first line of a record; null if it cannot be read. */
export async function readBegin(dir: string): Promise<BeginEntry | null> {
  return (await entriesIn(dir)).find((entry) => entry.type === "begin") ?? null;
}

function digestOf(name: string, file: AttachmentEntry | undefined): RunRecord["attachments"][number] {
  return { name, bytes: file?.bytes ?? null, sha256: file?.sha256 ?? null };
}

/** The lines that can be read; none if something else is in the place of the record. */
async function entriesIn(dir: string): Promise<HistoryEntry[]> {
  const file = await openRegular(join(dir, RECORD_FILE), constants.O_RDONLY).catch(() => null);
  if (file === null) return [];
  await using _ = file;
  const buffer = Buffer.alloc(Math.min((await file.stat()).size, MAX_READ_BYTES));
  const { bytesRead } = await file.read(buffer, 0, buffer.length, 0);
  const lines = buffer.toString("utf8", 0, bytesRead).split("\n");
  return lines.flatMap((line) => parseEntry(line) ?? []);
}

interface Node extends Omit<RecordedCall, "calls"> {
  readonly calls: Node[];
}

function treeOf(begin: BeginEntry, entries: readonly HistoryEntry[], left: string): RecordedCall {
  const started = new Map<string, StartedEntry>();
  const ended = new Map<string, EndedEntry>();
  for (const entry of entries) {
    // Of an agent that commands follow: the first is its own.
    if (entry.type === "started" && !started.has(entry.run)) started.set(entry.run, entry);
    if (entry.type === "ended") ended.set(entry.run, entry);
  }
  const nodeOf = (of: Pick<CalledEntry, "run" | "worker" | "at" | "attachments" | "service">): Node => {
    const [start, end] = [started.get(of.run), ended.get(of.run)];
    return {
      run: of.run,
      worker: of.worker,
      service: of.service ?? null,
      attachments: of.attachments,
      queuedAt: of.at,
      startedAt: start?.at ?? null,
      endedAt: end?.at ?? null,
      status: end?.status ?? left,
      exitCode: end?.exitCode ?? null,
      signal: end?.signal ?? null,
      error: end?.error ?? null,
      durationMs: end?.durationMs ?? null,
      policy: start?.policy ?? null,
      image: start?.image ?? null,
      model: start?.model ?? null,
      limits: start?.limits ?? null,
      held: start?.held ?? null,
      usage: end === undefined ? null : { cpuMs: end.cpuMs, memoryBytesPeak: end.memoryBytesPeak },
      truncated: end?.truncated ?? false,
      changeset: end?.changeset ?? null,
      network: end?.network ?? null,
      agent: end?.agent ?? null,
      calls: [],
    };
  };
  const root = nodeOf(begin);
  const known = new Map([[begin.run, { node: root, depth: 0 }]]);
  for (const entry of entries) {
    if (entry.type !== "called" || known.has(entry.run)) continue;
    const caller = known.get(entry.parent ?? begin.run) ?? { node: root, depth: 0 };
    const node = nodeOf(entry);
    caller.node.calls.push(node);
    known.set(entry.run, caller.depth >= MAX_DEPTH ? caller : { node, depth: caller.depth + 1 });
  }
  return root;
}

/** Pieces are whole, except the last. */
async function streamOf(dir: string, name: StreamName): Promise<RecordedStream> {
  const numbers = pieceNumbers(await readdir(dir).catch(nullFor("ENOENT")), name);
  const last = numbers.at(-1);
  if (last === undefined) return { bytes: 0, keptBytes: 0 };
  const lastBytes = (await lstat(join(dir, `${name}.${last}`)).catch(nullFor("ENOENT")))?.size ?? 0;
  return { bytes: last * PIECE_BYTES + lastBytes, keptBytes: (numbers.length - 1) * PIECE_BYTES + lastBytes };
}
