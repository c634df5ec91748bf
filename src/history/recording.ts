import { createHash, randomUUID } from "node:crypto";
import { closeSync, constants, mkdirSync, openSync, writeSync } from "node:fs";
import { readdir, readFile, rename, rm, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { hasCode, nullFor } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";

/** The folder of one root run. Its name has the time at which it began, so that the newest are found without reading any. */
export interface RunFolder {
  readonly run: string;
  readonly dir: string;
  /** Milliseconds since 1970. */
  readonly beganMs: number;
}

const NAME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{3})Z-([0-9a-f]{12})$/;
const PROJECT = /^[0-9a-f]{16}$/;
/** A record that is being removed. */
const REMOVED = ".removed-";
/** More projects than any state directory has; the rest is not read. */
const MAX_PROJECTS = 10_000;

/** Only of Corral's own: the id of a run is 12 hex digits. */
export function runFolderName(run: string, beganMs: number): string {
  const name = `${new Date(beganMs).toISOString().replaceAll(/[-:.]/g, "")}-${run}`;
  if (!NAME.test(name)) throw new RangeError("that is not the id of a run");
  return name;
}

/** Those of one project, the newest first. What has another name is left out. */
export async function runFolders(projectRuns: string): Promise<RunFolder[]> {
  const names = (await readdir(projectRuns).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  return names
    .toSorted((a, b) => (a < b ? 1 : -1))
    .flatMap((name) => {
      const [, year, month, day, hours, minutes, seconds, ms, run] = NAME.exec(name) ?? [];
      if (run === undefined) return [];
      const beganMs = Date.parse(`${year}-${month}-${day}T${hours}:${minutes}:${seconds}.${ms}Z`);
      return [{ run, dir: join(projectRuns, name), beganMs: Number.isNaN(beganMs) ? 0 : beganMs }];
    });
}

/** The folders of all projects of a state directory. */
export async function projectFolders(runsDir: string): Promise<string[]> {
  const names = (await readdir(runsDir).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  return names
    .filter((name) => PROJECT.test(name))
    .slice(0, MAX_PROJECTS)
    .map((name) => join(runsDir, name));
}

/** Removes a record; false if another process was faster. It is renamed first, so that no reader sees a part of it. */
export async function removeRunFolder(dir: string): Promise<boolean> {
  const away = join(dirname(dir), `${REMOVED}${randomUUID()}`);
  if ((await rename(dir, away).then(() => true, nullFor("ENOENT"))) === null) return false;
  await rm(away, { recursive: true, force: true });
  return true;
}

/** Removes what a process that died in the middle of a removal left. */
export async function clearRemoved(projectRuns: string): Promise<void> {
  const names = (await readdir(projectRuns).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  for (const name of names.filter((one) => one.startsWith(REMOVED)))
    await rm(join(projectRuns, name), { recursive: true, force: true });
}

/** The lines of a record, in its folder. */
export const RECORD_FILE = "record.ndjson";
/** Of calls, more than this is counted and left out, so that the end still fits. */
export const MAX_RECORD_BYTES = 2 * 1024 * 1024;
/** Of all attachments of a run, so many bytes are read for their digests. */
const MAX_DIGESTED_BYTES = 16 * 1024 * 1024;
const READ_BYTES = 1024 * 1024;

const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND | constants.O_NOFOLLOW;

/**
 * Writes the record of one run. What is added is in the file when the call returns, except output, which is written in the
 * next turn of the event loop: thousands of small pieces are one write. Nothing waits for the disk to be flushed.
 *
 * It never throws: at the first error it reports why, and writes no more.
 */
export class Recording {
  readonly #dir: string;
  readonly #onTrouble: (why: string) => void;
  /** By what printed: `""` is the run itself, any other is one of its services. */
  readonly #streams = new Map<string, Readonly<Record<StreamName, StreamWriter>>>();
  #record: number | null = null;
  #recordBytes = 0;
  #leftOut = 0;
  #outputBytes = 0;
  #pending: { readonly service: string; readonly stream: StreamName; readonly chunk: Buffer }[] = [];
  #flushing: NodeJS.Immediate | null = null;
  #digesting: Promise<void> | null = null;
  #isOver = false;

  /** `dir`: a folder that does not exist yet. */
  constructor(dir: string, onTrouble: (why: string) => void) {
    this.#dir = dir;
    this.#onTrouble = onTrouble;
    this.#attempt(() => {
      madeFolder(dir);
      this.#record = openSync(join(dir, RECORD_FILE), NEW, 0o600);
    });
  }

  get leftOut(): number {
    return this.#leftOut;
  }

  /** Of both streams, whether or not all of it is kept. */
  get outputBytes(): number {
    return this.#outputBytes;
  }

  add(entry: HistoryEntry, { mayBeLeftOut = false } = {}): void {
    const line = Buffer.from(`${JSON.stringify(entry)}\n`);
    if (mayBeLeftOut && this.#recordBytes + line.length > MAX_RECORD_BYTES) {
      this.#leftOut += entry.type === "called" ? 1 : 0;
      return;
    }
    this.#attempt(() => {
      if (this.#record === null) return;
      this.#recordBytes += line.length;
      writeSync(this.#record, line);
    });
  }

  /** The chunk may not be changed afterwards. `service`: the name of the one that printed it; absent: the run itself. */
  output(stream: StreamName, chunk: Buffer, service = ""): void {
    if (this.#isOver) return;
    if (service === "") this.#outputBytes += chunk.length;
    this.#pending.push({ service, stream, chunk });
    this.#flushing ??= setImmediate(() => this.#flush());
  }

  /** Adds the size and the digest of each file, while the run runs. A file that cannot be read has none. */
  digest(files: readonly { readonly name: string; readonly host: string }[]): void {
    if (this.#isOver || files.length === 0) return;
    this.#digesting = this.#digestAll(files).catch(() => {});
  }

  /** Writes what waits, and adds the last line. Resolves when everything is written. */
  async end(last: () => HistoryEntry): Promise<void> {
    this.#flush();
    this.add(last());
    await this.#digesting;
    this.#close();
  }

  /** Removes the record: there is nothing to keep. */
  async discard(): Promise<void> {
    this.#close();
    await removeRunFolder(this.#dir).catch(() => false);
  }

  #flush(): void {
    if (this.#flushing !== null) clearImmediate(this.#flushing);
    this.#flushing = null;
    const pending = this.#pending;
    this.#pending = [];
    this.#attempt(() => {
      for (const service of new Set(pending.map((one) => one.service))) {
        const streams = this.#streamsOf(service);
        for (const stream of ["stdout", "stderr"] as const) {
          const printed = pending.filter((one) => one.service === service && one.stream === stream);
          const [first, ...others] = printed.map(({ chunk }) => chunk);
          if (first !== undefined)
            streams[stream].write(others.length === 0 ? first : Buffer.concat([first, ...others]));
        }
      }
    });
  }

  #streamsOf(service: string): Readonly<Record<StreamName, StreamWriter>> {
    const known = this.#streams.get(service);
    if (known !== undefined) return known;
    const dir = service === "" ? this.#dir : serviceDir(this.#dir, service);
    if (service !== "") mkdirSync(dir, { recursive: true, mode: 0o700 });
    const made = { stdout: new StreamWriter(dir, "stdout"), stderr: new StreamWriter(dir, "stderr") };
    this.#streams.set(service, made);
    return made;
  }

  async #digestAll(files: readonly { readonly name: string; readonly host: string }[]): Promise<void> {
    let left = MAX_DIGESTED_BYTES;
    for (const { name, host } of files) {
      // The run judges the file; here only its facts are read: opening a FIFO or a device would block.
      await using file = await openRegular(host, constants.O_RDONLY).catch(() => null);
      if (file === null) continue;
      const bytes = (await file.stat()).size;
      const hash = bytes <= left ? createHash("sha256") : null;
      const piece = Buffer.alloc(hash === null ? 0 : Math.min(READ_BYTES, Math.max(1, bytes)));
      for (let at = 0; hash !== null && at < bytes; ) {
        const { bytesRead } = await file.read(piece, 0, piece.length, at);
        if (bytesRead === 0) break;
        hash.update(piece.subarray(0, bytesRead));
        at += bytesRead;
      }
      left -= hash === null ? 0 : bytes;
      this.add({ type: "attachment", name, bytes, sha256: hash?.digest("hex") ?? null });
    }
  }

  #attempt(write: () => void): void {
    if (this.#isOver) return;
    try {
      write();
    } catch (error) {
      this.#close();
      this.#onTrouble((error as Error).message);
    }
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#pending = [];
    for (const { stdout, stderr } of this.#streams.values())
      for (const stream of [stdout, stderr]) stream[Symbol.dispose]();
    if (this.#record !== null) closeSync(this.#record);
    this.#record = null;
  }
}

/** Where the record of a run, in `dir`, has what a service printed. */
export function serviceDir(dir: string, service: string): string {
  if (!/^[a-z][a-z0-9-]{0,62}$/.test(service)) throw new RangeError("that is not the name of a service");
  return join(dir, "services", service);
}

/** Its parents are missing only for the first run of a project. */
function madeFolder(dir: string): void {
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
  }
}

/*
 * The lines of a run's record, in the order in which they are written: one `begin`, then what happened, then the `ended` of the
 * root run. A process that is killed leaves whole lines and at most a part of the last one.
 */

const text = z.string();
const count = z.number().nonnegative();
const error = z.object({ code: text, message: text }).nullable();

export const BeginEntry = z.object({
  type: z.literal("begin"),
  version: z.literal(1),
  run: text,
  /** `session`: the tools of a worker for a user, a program or an MCP client. */
  kind: z.enum(["run", "session"]),
  worker: text,
  /** Its absolute folder. */
  project: text,
  /** The process, as `formatOwner` writes it. */
  owner: text,
  /** ISO 8601. */
  at: text,
  /** Of what the worker reads on its standard input; the input itself is not kept. Null: it has none. */
  input: z.object({ bytes: count, sha256: text }).nullable(),
  /** What was added to the command of its worker. */
  arguments: z.array(text).optional(),
  /** By name. */
  attachments: z.array(text),
  /** The run whose conversation it continues. */
  continues: text.optional(),
  /** The project's retention. */
  keep: z.object({ days: count, runs: count }),
});

/** What a file was when the run began. */
export const AttachmentEntry = z.object({
  type: z.literal("attachment"),
  name: text,
  bytes: count,
  /** Null for a file that is too large to read it for this. */
  sha256: text.nullable(),
});

/** A run that a run of the tree asked for. */
const CalledEntry = z.object({
  type: z.literal("called"),
  run: text,
  parent: text.nullable(),
  worker: text,
  at: text,
  attachments: z.array(text),
  /** It is no call, but the service of this name. */
  service: text.optional(),
});

/**
 * What a run had: its mounts, in the paths of its container, with their modes; the hosts that it reached (`open`: all, null: not recorded);
 * the names of its secrets; and the tools of an agent. Lists may be cut.
 */
export const HeldEntry = z.object({
  mounts: z.array(z.object({ path: text, mode: z.enum(["ro", "rw"]) })),
  network: z.union([z.literal("open"), z.array(text)]).nullable(),
  secrets: z.array(text),
  tools: z.array(text).nullable(),
});

/** Its container runs, or its model is asked. */
export const StartedEntry = z.object({
  type: z.literal("started"),
  run: text,
  at: text,
  policy: text,
  image: text.nullable(),
  model: text.nullable(),
  limits: z.record(text, z.number()).nullable(),
  /** Absent: an older version wrote the record. */
  held: HeldEntry.optional(),
});

export const EndedEntry = z.object({
  type: z.literal("ended"),
  run: text,
  at: text,
  status: text,
  exitCode: z.number().nullable(),
  signal: text.nullable(),
  error,
  durationMs: count,
  cpuMs: z.number().nullable(),
  memoryBytesPeak: z.number().nullable(),
  /** The worker printed more than its limit. */
  truncated: z.boolean(),
  changeset: z.object({ id: text.nullable(), counts: z.record(text, z.number()) }).nullable(),
  /** As in the result of the run; null without an allow list, or if it is too long. */
  network: z.record(text, z.unknown()).nullable(),
  agent: z.record(text, z.unknown()).nullable(),
  /** How many calls are not in the record, because it was full. */
  leftOut: count,
});

export type BeginEntry = z.output<typeof BeginEntry>;
export type HeldEntry = z.output<typeof HeldEntry>;
export type StartedEntry = z.output<typeof StartedEntry>;
export type EndedEntry = z.output<typeof EndedEntry>;
export type AttachmentEntry = z.output<typeof AttachmentEntry>;
export type CalledEntry = z.output<typeof CalledEntry>;

export const HistoryEntry = z.discriminatedUnion("type", [
  BeginEntry,
  AttachmentEntry,
  CalledEntry,
  StartedEntry,
  EndedEntry,
]);
export type HistoryEntry = z.output<typeof HistoryEntry>;

/** Null for a line that is not one of these: it was cut off, or another version wrote it. */
export function parseEntry(line: string): HistoryEntry | null {
  try {
    return HistoryEntry.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}

export type StreamName = "stdout" | "stderr";
export const STREAMS: readonly StreamName[] = ["stdout", "stderr"];

/**
 * A stream is kept in pieces of this size, each a file that is named by its number. So the offset of each byte is known, and
 * what is dropped is whole files: nothing is ever rewritten.
 */
export const PIECE_BYTES = 256 * 1024;
/** 512 KiB. */
const FIRST_PIECES = 2;
/** The last one may be almost empty: at least 512 KiB. */
const LAST_PIECES = 3;
/** The most that is kept of both streams of a run. */
export const MAX_STREAMS_BYTES = STREAMS.length * (FIRST_PIECES + LAST_PIECES) * PIECE_BYTES;

/** Writes one stream of a run: its beginning and its end are kept. Throws if the disk refuses it. */
class StreamWriter implements Disposable {
  readonly #dir: string;
  readonly #name: StreamName;
  #bytes = 0;
  #file: number | null = null;

  constructor(dir: string, name: StreamName) {
    this.#dir = dir;
    this.#name = name;
  }

  get bytes(): number {
    return this.#bytes;
  }

  write(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      const room = PIECE_BYTES - (this.#bytes % PIECE_BYTES);
      this.#file ??= this.#next();
      const written = writeSync(this.#file, rest.subarray(0, room));
      this.#bytes += written;
      rest = rest.subarray(written);
      if (this.#bytes % PIECE_BYTES === 0) this[Symbol.dispose]();
    }
  }

  [Symbol.dispose](): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #next(): number {
    const piece = Math.floor(this.#bytes / PIECE_BYTES);
    const file = openSync(join(this.#dir, `${this.#name}.${piece}`), NEW, 0o600);
    const dropped = piece - LAST_PIECES;
    // It may be gone already, with the rest of the record.
    if (dropped >= FIRST_PIECES) unlink(join(this.#dir, `${this.#name}.${dropped}`)).catch(() => {});
    return file;
  }
}

/** A part of a stream that is still there. */
export interface KeptPiece {
  /** Of its first byte in the stream. */
  readonly offset: number;
  readonly bytes: Buffer;
}

/** What is kept of a stream from `offset` on, one piece at a time. Pieces that were dropped are left out. */
export async function* keptPieces(
  dir: string,
  name: StreamName,
  offset = 0,
): AsyncGenerator<KeptPiece, void, undefined> {
  const numbers = pieceNumbers(await readdir(dir).catch(nullFor("ENOENT")), name);
  for (const number of numbers.filter((piece) => (piece + 1) * PIECE_BYTES > offset)) {
    const start = number * PIECE_BYTES;
    const file = await readFile(join(dir, `${name}.${number}`)).catch(nullFor("ENOENT"));
    const from = Math.max(0, offset - start);
    if (file !== null && file.length > from) yield { offset: start + from, bytes: file.subarray(from, PIECE_BYTES) };
  }
}

/** In order. `names`: of the files of a record. */
export function pieceNumbers(names: readonly string[] | null, name: StreamName): number[] {
  return (names ?? [])
    .flatMap((file) => {
      const [, stream, number] = /^(stdout|stderr)\.(\d{1,9})$/.exec(file) ?? [];
      return stream === name ? [Number(number)] : [];
    })
    .toSorted((a, b) => a - b);
}
