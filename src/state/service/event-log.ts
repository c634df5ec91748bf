import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  openSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { projectMark, statePaths } from "../state-dir.ts";

/** One event, as JSON; `type` names it. */
export interface LoggedEvent {
  readonly type: string;
}

/** A line of the log. Its end in bytes is its id: a reader that continues there misses nothing and sees nothing twice. */
export interface EventLine {
  readonly id: number;
  readonly json: string;
}

/** Of one log. What comes later is left out, and a line says so; the last event is always written. */
export const MAX_LOG_BYTES = 64 * 1024 ** 2;
/** How many logs, and of all together. The oldest are removed. */
const LIMITS = { maxLogs: 2000, maxBytes: 2 * 1024 ** 3 };
const READ_BYTES = 256 * 1024;
const MAX_LINE_BYTES = 8 * 1024 ** 2;
const NAME = /^[0-9a-f]{12}$/;

/** No line has this id. */
export class EventIdError extends Error {
  override readonly name = "EventIdError";
}

/** The events of what a service started, on disk: what a client has not read yet takes no memory, and outlives the service. */
export class EventLogs {
  readonly #dir: string;
  readonly #limits: typeof LIMITS;
  readonly #open = new Map<string, EventLog>();
  /** Those that are over, with their bytes; the oldest first. */
  readonly #over = new Map<string, number>();
  #overBytes = 0;
  /** How many read each. */
  readonly #readers = new Map<string, number>();

  constructor(stateDir: string, limits = LIMITS) {
    this.#dir = join(statePaths(stateDir).service, "events");
    this.#limits = limits;
  }

  /**
   * Ready for logs; removes the oldest. Those that a dead service left open get `last` as their end. Those of `continued` stay open
   * or are opened again: a client that follows one waits for what comes.
   */
  async prepare(last: LoggedEvent, continued: ReadonlySet<string> = new Set()): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    for (const { name, bytes, isOver } of await this.#found()) {
      if (isOver && !continued.has(name)) {
        this.#keep(name, bytes);
        continue;
      }
      const log = this.append(name);
      if (!isOver) log.write(last);
      if (!continued.has(name)) log.end();
    }
    this.#prune();
  }

  /** Opens the log of a run or a fleet, to write to; continues one that is there. */
  append(id: string): EventLog {
    const known = this.#open.get(id);
    if (known !== undefined) return known;
    rmSync(this.#path(id, ".end"), { force: true });
    const log = new EventLog(this.#path(id), (result) => {
      writeFileSync(this.#path(id, ".end"), result, { mode: 0o600 });
      this.#open.delete(id);
      this.#keep(id, log.bytes + Buffer.byteLength(result));
      this.#prune();
    });
    this.#forget(id);
    this.#open.set(id, log);
    this.#prune();
    return log;
  }

  has(id: string): boolean {
    return NAME.test(id) && existsSync(this.#path(id));
  }

  /** Lines after `from`, some at a time; waits for new ones until the log has ended. Ends early with the signal. @throws EventIdError */
  async *read(
    id: string,
    from: number,
    signal: AbortSignal,
    idleMs: number,
  ): AsyncGenerator<EventLine[], void, undefined> {
    const fd = openSync(this.#path(id), constants.O_RDONLY | constants.O_NOFOLLOW);
    this.#readers.set(id, (this.#readers.get(id) ?? 0) + 1);
    try {
      let at = startOf(fd, from);
      while (!signal.aborted) {
        // Asked first: what is written before the end is then read.
        const log = this.#open.get(id);
        const lines = linesFrom(fd, at);
        at = lines.at(-1)?.id ?? at;
        if (lines.length > 0) yield lines;
        else if (log === undefined) return;
        else if (!(await log.changed(signal, idleMs)) && !signal.aborted) yield [];
      }
    } finally {
      closeSync(fd);
      const others = (this.#readers.get(id) ?? 1) - 1;
      if (others > 0) this.#readers.set(id, others);
      else this.#readers.delete(id);
      this.#prune();
    }
  }

  /** The JSON that the end of a log has; null if there is none. */
  async result(id: string): Promise<string | null> {
    if (!NAME.test(id)) return null;
    return (await readFile(this.#path(id, ".end"), "utf8").catch(nullFor("ENOENT"))) || null;
  }

  /** The end of the newest line, for clients that want only what comes. */
  endOf(id: string): number {
    const fd = openSync(this.#path(id), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      return fstatSync(fd).size;
    } finally {
      closeSync(fd);
    }
  }

  /** The oldest first. */
  async #found(): Promise<{ name: string; bytes: number; ms: number; isOver: boolean }[]> {
    const found: { name: string; bytes: number; ms: number; isOver: boolean }[] = [];
    for (const name of (await readdir(this.#dir)).filter((each) => NAME.test(each))) {
      const [log, end] = await Promise.all(
        ["", ".end"].map((each) => stat(this.#path(name, each)).catch(nullFor("ENOENT"))),
      );
      if (log) found.push({ name, bytes: log.size + (end?.size ?? 0), ms: log.mtimeMs, isOver: end !== null });
    }
    return found.sort((a, b) => a.ms - b.ms);
  }

  #keep(name: string, bytes: number): void {
    this.#over.set(name, bytes);
    this.#overBytes += bytes;
  }

  #forget(name: string): void {
    this.#overBytes -= this.#over.get(name) ?? 0;
    this.#over.delete(name);
  }

  /** Removes the oldest beyond the limits: none that is written, and none that a client reads. */
  #prune(): void {
    const openBytes = [...this.#open.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    const { maxLogs, maxBytes } = this.#limits;
    for (const name of this.#over.keys()) {
      if (this.#open.size + this.#over.size <= maxLogs && openBytes + this.#overBytes <= maxBytes) return;
      if (this.#readers.has(name)) continue;
      try {
        for (const end of ["", ".end"]) rmSync(this.#path(name, end), { force: true });
      } catch {
        // What ends here is a run, which a file that cannot be removed must not fail. The next end tries again.
        return;
      }
      this.#forget(name);
    }
  }

  #path(id: string, end = ""): string {
    if (!NAME.test(id)) throw new RangeError("that is not the id of a run or a fleet");
    return join(this.#dir, `${id}${end}`);
  }
}

/** A log that is being written. Written at once, so nothing waits in memory and the order is that of the events. */
export class EventLog {
  readonly #fd: number;
  readonly #onEnd: (result: string) => void;
  #bytes: number;
  #isFull = false;
  #isOver = false;
  #next = Promise.withResolvers<void>();

  constructor(path: string, onEnd: (result: string) => void) {
    const { O_CREAT, O_APPEND, O_RDWR, O_NOFOLLOW } = constants;
    this.#fd = openSync(path, O_CREAT | O_APPEND | O_RDWR | O_NOFOLLOW, 0o600);
    this.#onEnd = onEnd;
    this.#bytes = fstatSync(this.#fd).size;
    this.#closeLine();
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** `isLast`: is written although the log is full. Throws if the disk refuses it. */
  write(event: LoggedEvent, isLast = false): void {
    if (this.#isOver) return;
    const line = Buffer.from(`${JSON.stringify(event)}\n`);
    const fits = this.#bytes + line.length <= MAX_LOG_BYTES && line.length <= MAX_LINE_BYTES;
    if (fits || (isLast && line.length <= MAX_LINE_BYTES)) this.#put(line);
    else if (!this.#isFull) {
      this.#isFull = true;
      this.#put(Buffer.from(`${JSON.stringify({ type: "left_out", maxBytes: MAX_LOG_BYTES })}\n`));
    }
  }

  /** No event follows. `result`: JSON that is kept beside it. */
  end(result = ""): void {
    if (this.#isOver) return;
    this.#isOver = true;
    closeSync(this.#fd);
    try {
      this.#onEnd(result);
    } finally {
      this.#tell();
    }
  }

  /** True when there may be more, false after `idleMs`. */
  async changed(signal: AbortSignal, idleMs: number): Promise<boolean> {
    if (this.#isOver) return true;
    const idle = Promise.withResolvers<boolean>();
    const stop = (): void => idle.resolve(false);
    const timer = setTimeout(stop, idleMs);
    signal.addEventListener("abort", stop, { once: true });
    try {
      return await Promise.race([this.#next.promise.then(() => true), idle.promise]);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  #put(line: Buffer): void {
    for (let at = 0; at < line.length; ) at += writeSync(this.#fd, line, at);
    this.#bytes += line.length;
    this.#tell();
  }

  /** A process that was killed may have written a part of a line: it is ended, and readers leave it out. */
  #closeLine(): void {
    if (this.#bytes === 0) return;
    const last = Buffer.alloc(1);
    readSync(this.#fd, last, 0, 1, this.#bytes - 1);
    if (last[0] !== LINE_BREAK) this.#put(Buffer.from("\n"));
  }

  #tell(): void {
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }
}

const LINE_BREAK = 0x0a;

/** @throws EventIdError if no line ends there */
function startOf(fd: number, from: number): number {
  if (from === 0) return 0;
  const before = Buffer.alloc(1);
  const isEnd = Number.isSafeInteger(from) && from > 0 && readSync(fd, before, 0, 1, from - 1) === 1;
  if (!isEnd || before[0] !== LINE_BREAK) throw new EventIdError("no event has this id");
  return from;
}

/** Whole lines that are JSON. One that is longer than a piece is read alone. */
function linesFrom(fd: number, at: number): EventLine[] {
  for (let bytes = READ_BYTES; bytes <= MAX_LINE_BYTES + READ_BYTES; bytes *= 2) {
    const piece = Buffer.alloc(Math.min(bytes, Math.max(0, fstatSync(fd).size - at)));
    const length = readSync(fd, piece, 0, piece.length, at);
    const end = piece.lastIndexOf(LINE_BREAK, length - 1);
    if (length === 0) return [];
    if (end >= 0) return split(piece.subarray(0, end + 1), at);
    if (length < bytes) return [];
  }
  return [];
}

function split(piece: Buffer, start: number): EventLine[] {
  const lines: EventLine[] = [];
  for (let at = 0; at < piece.length; ) {
    const end = piece.indexOf(LINE_BREAK, at);
    const json = piece.toString("utf8", at, end);
    lines.push({ id: start + end + 1, json: isJson(json) ? json : '{"type":"broken"}' });
    at = end + 1;
  }
  return lines;
}

/** Only of a line that was cut by the end of its process is that not known. */
function isJson(text: string): boolean {
  return text.startsWith("{") && text.endsWith("}");
}

const FLEET_FILE = /^([0-9a-f]{16})-([0-9a-f]{12})$/;

/** Which fleets a service has started and not ended, so that the next one continues them: an empty file for each. */
export class StartedFleets {
  readonly #dir: string;

  constructor(stateDir: string) {
    this.#dir = join(statePaths(stateDir).service, "fleets");
  }

  async add(projectDir: string, fleet: string): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await writeFile(this.#path(projectDir, fleet), "", { mode: 0o600 });
  }

  async remove(projectDir: string, fleet: string): Promise<void> {
    await rm(this.#path(projectDir, fleet), { force: true });
  }

  /** Of this project. */
  async list(projectDir: string): Promise<string[]> {
    const names = (await readdir(this.#dir).catch(nullFor("ENOENT"))) ?? [];
    return names.flatMap((name) => {
      const [, mark, fleet = ""] = FLEET_FILE.exec(name) ?? [];
      return mark === projectMark(projectDir) ? [fleet] : [];
    });
  }

  #path(projectDir: string, fleet: string): string {
    const name = `${projectMark(projectDir)}-${fleet}`;
    if (!FLEET_FILE.test(name)) throw new RangeError("that is not the id of a fleet");
    return join(this.#dir, name);
  }
}
