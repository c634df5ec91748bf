import { constants } from "node:fs";
import { lstat, mkdir, mkdtemp, open, readdir, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, sep } from "node:path";
import { ApiError, type SentFile } from "../../client/client.ts";
import type { ItemResult } from "../../fleet/model/item.ts";
import { inChunks } from "../../fleet/report/results-export.ts";
import type { FleetSummary } from "../../fleet/running/events.ts";
import type { AnswerOf, AskOf } from "../../operations/contract/table.ts";
import type { ConversionOptions } from "../../operations/convert/conversion.ts";
import {
  ConversionCounts,
  type ConvertedFile,
  conversionReport,
  convertedLine,
  UNCONVERTED,
} from "../../operations/convert/converted.ts";
import { folderOfFile, REPORT_FILE, RESULTS_FILE } from "../../operations/convert/layout.ts";
import type { LeftOutEntry } from "../../operations/convert/source-files.ts";
import { tarEntries } from "../../platform/tar-entries.ts";
import { formatBytes } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import type { WatchOptions } from "../fleet/map-options.ts";
import { type FleetWatch, type WatchedFleet, watchedFleet } from "../fleet/ran-fleet.ts";
import { Allowance, placeBelow, receivedFile } from "../session/transfers.ts";
import { UsageError } from "../terminal/arguments.ts";
import { type AtService, EXIT, say, type Terminal } from "../terminal/terminal.ts";

/** What is converted into what, and where. All paths are absolute. */
export interface NamedConversion {
  readonly places: { readonly sources: readonly string[]; readonly out: string; readonly cwd: string };
  /** Of files that are there and are not converted. */
  readonly leftOut: (entry: LeftOutEntry) => void;
  readonly asked: ConversionOptions;
  readonly manner: {
    readonly cache: boolean;
    readonly retry: boolean;
    readonly concurrency: number | "auto";
  };
}

/** What came of it. `out`: the real path. */
export interface EndedConversion {
  readonly out: string;
  readonly counts: ConversionCounts;
  readonly isWhole: boolean;
  readonly isInterrupted: boolean;
}

/** What a form of the service takes, with room for others: 1,000 files of at most 1 GiB. */
const MAX_FILE_BYTES = 1024 ** 3;
const BATCH = { files: 500, bytes: 1024 ** 3 } as const;
const MAX_FILES = 1_000_000;
const MAX_DEPTH = 64;
const WAIT_S = 2;

/** A file of this machine. */
interface ClientFile {
  /** As bytes: a name need not be text. */
  readonly path: Buffer;
  /** Where its results go, below that of all. */
  readonly folder: string;
  readonly shown: string;
  readonly bytes: number;
}

/** `corral convert` at a service: the files go up, each is converted there as it would be here, and what was made comes down. */
export async function convertedAt(
  service: AtService,
  { places, leftOut, asked }: NamedConversion,
  options: WatchOptions,
  terminal: Terminal,
): Promise<EndedConversion | null> {
  const order = await orderOf(asked);
  const search = new AbortController();
  using _ = { [Symbol.dispose]: terminal.onStop(() => search.abort()) };
  const found = await clientFiles(places, search.signal, leftOut).catch((error: unknown) => {
    if (search.signal.aborted) return null;
    throw error;
  });
  if (found === null) return null;
  const conversion = new RemoteConversion(service, order, found);
  const status = await watchedFleet(options, terminal, async (watch) => conversion.watched(watch), {
    onEnded: () => {},
    lineOf: ({ index }) => convertedLine(conversion.ended.get(index) as ConvertedFile),
  });
  const counts = await conversion.written(`corral convert --to ${asked.to}`);
  const { out, why } = conversion;
  if (why !== null) say(terminal, `corral: it stopped: ${why}; the same command begins again`);
  return { out, counts, isWhole: why === null, isInterrupted: status === EXIT.cancelled };
}

type Order = AskOf<"conversions.start">;

const MAX_PASSWORDS = 100;

/** @throws UsageError */
async function orderOf({ passwordFile, policy: _, ...asked }: ConversionOptions): Promise<Order> {
  if (passwordFile === undefined) return asked;
  const text = await readFile(passwordFile, "utf8").catch((cause: Error) => {
    throw new UsageError(`--password-file ${passwordFile}: ${cause.message}`, { cause });
  });
  const passwords = text.split(/\r?\n/).filter((line) => line !== "");
  if (passwords.length > MAX_PASSWORDS)
    throw new UsageError(
      `--password-file ${passwordFile} has more than ${MAX_PASSWORDS} passwords, which no service takes`,
    );
  return { ...asked, ...(passwords.length === 0 ? {} : { passwords }) };
}

/** The files of one place of this machine, whatever system it has. No link is followed. @throws UsageError */
async function clientFiles(
  { sources, out: rawOut }: NamedConversion["places"],
  signal: AbortSignal,
  leftOut: (entry: LeftOutEntry) => void,
): Promise<{ readonly files: readonly ClientFile[]; readonly out: string }> {
  const wrong = (path: string, why: string, cause?: unknown) =>
    new UsageError(`${printableLine(path, 500)}: ${why}`, { cause });
  const real = await Promise.all(
    sources.map((one) =>
      realpath(one).catch((error: Error) => {
        throw wrong(one, "there is no such file or folder", error);
      }),
    ),
  );
  const twin = real.find((path, at) => real.findIndex((other) => basename(other) === basename(path)) < at);
  if (twin !== undefined) throw wrong(twin, `two sources are named ${basename(twin)}: convert one after the other`);
  await mkdir(rawOut, { recursive: true }).catch((error: Error) => {
    throw wrong(rawOut, `cannot be the folder of the results: ${error.message}`, error);
  });
  const out = await realpath(rawOut);
  if (real.some((source) => source === out || source.startsWith(`${out}${sep}`)))
    throw wrong(rawOut, "the folder of the results holds what is to be converted; name another folder");
  const files: ClientFile[] = [];
  for (const source of real) {
    const top = Buffer.from(basename(source));
    if ((await stat(source)).isDirectory()) await walk(Buffer.from(source), real.length > 1 ? [top] : [], 0);
    else await add(Buffer.from(source), [top]);
  }
  if (files.length === 0) throw wrong(sources.join(", "), "there is no file");
  return { files, out };

  async function walk(folder: Buffer, names: readonly Buffer[], depth: number): Promise<void> {
    const entries = await readdir(folder, { encoding: "buffer", withFileTypes: true });
    entries.sort((one, other) => Buffer.compare(one.name, other.name));
    for (const entry of entries) {
      signal.throwIfAborted();
      const here = Buffer.concat([folder, Buffer.from(sep), entry.name]);
      const inside = [...names, entry.name];
      const skip = (why: string): void => leftOut({ place: here.toString(), why });
      if (here.equals(Buffer.from(out))) continue;
      if (entry.isSymbolicLink()) skip("is a symbolic link, which is not followed");
      else if (entry.isDirectory() && depth >= MAX_DEPTH) skip(`is more than ${MAX_DEPTH} directories deep`);
      else if (entry.isDirectory()) await walk(here, inside, depth + 1).catch(unread(skip));
      else if (entry.isFile()) await add(here, inside).catch(unread(skip));
      else skip("is not a regular file");
    }
  }

  function unread(skip: (why: string) => void): (error: NodeJS.ErrnoException) => void {
    return (error) => {
      if (signal.aborted || error instanceof UsageError || error.code === undefined) throw error;
      skip(`cannot be read: ${error.message}`);
    };
  }

  async function add(path: Buffer, names: readonly Buffer[]): Promise<void> {
    await using file = await open(path, FLAGS);
    const stats = await file.stat();
    if (!stats.isFile()) return leftOut({ place: path.toString(), why: "is not a regular file" });
    if (files.length >= MAX_FILES) throw wrong(rawOut, `there are more than ${MAX_FILES} files; convert parts of them`);
    files.push({ path, folder: folderOfFile(names), shown: names.map(String).join("/"), bytes: stats.size });
  }
}

/** Windows has neither. */
const FLAGS = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

type Shown = AnswerOf<"conversions.show">;

/** Files that go to the service in parts, one after the other. */
class RemoteConversion {
  readonly #service: AtService;
  readonly #order: Order;
  readonly #files: readonly ClientFile[];
  readonly out: string;
  /** By the file's place among all. */
  readonly ended = new Map<number, ConvertedFile>();
  /** Why it has stopped before its end; null: it has not. */
  why: string | null = null;

  constructor(
    service: AtService,
    order: Order,
    { files, out }: { readonly files: readonly ClientFile[]; readonly out: string },
  ) {
    this.#service = service;
    this.#order = order;
    this.#files = files;
    this.out = out;
  }

  watched({ see, drain, stop }: FleetWatch): WatchedFleet {
    const signal = AbortSignal.any([drain, stop]);
    const startedAt = performance.now();
    return {
      place: null,
      run: async () => {
        const ask = async (batch: readonly number[]): Promise<void> => await this.#batch(batch, see, signal);
        see({ type: "loaded", fleet: this.#service.url, what: "conversion at", items: this.#files.length, done: 0 });
        for (const batch of this.#batches(see)) {
          if (this.why === null && signal.aborted) this.why = "it was interrupted";
          if (this.why === null) await ask(batch);
        }
        return this.#summary(performance.now() - startedAt);
      },
      junit: async () => inChunks((async function* () {})()),
      [Symbol.asyncDispose]: async () => {},
    };
  }

  /** What no service takes is refused here. */
  #batches(see: FleetWatch["see"]): number[][] {
    const batches: number[][] = [];
    let bytes = 0;
    for (const [at, file] of this.#files.entries()) {
      if (file.bytes > MAX_FILE_BYTES) {
        const words = `a service takes files of at most ${formatBytes(MAX_FILE_BYTES)}: convert it on the machine itself`;
        this.#settle(at, { ...UNCONVERTED, verdict: "refused", reason: "too large", words }, see);
        continue;
      }
      const last = batches.at(-1);
      if (last === undefined || last.length >= BATCH.files || bytes + file.bytes > BATCH.bytes) {
        batches.push([at]);
        bytes = file.bytes;
      } else {
        last.push(at);
        bytes += file.bytes;
      }
    }
    return batches;
  }

  async #batch(batch: readonly number[], see: FleetWatch["see"], signal: AbortSignal): Promise<void> {
    const { client } = this.#service;
    // A form has names without folders. What a file is, no name says.
    const places = new Map(batch.map((at) => [`${at}-${basename(this.#files[at]?.folder ?? "")}`, at]));
    const files = [...places].map(
      ([name, at]): SentFile => ({ name, content: contentOf(this.#files[at] as ClientFile) }),
    );
    let id: string;
    try {
      id = (await client.call("conversions.start", this.#order, { files, signal })).conversion;
    } catch (error) {
      if (!signal.aborted) throw error;
      this.why = "it was interrupted";
      return;
    }
    try {
      const [made, none] = [new Map<string, string>(), [] as string[]];
      for (let shown: Shown | null = null; shown?.state !== "done" && this.why === null; ) {
        shown = await client.call("conversions.show", { conversion: id, wait: signal.aborted ? 0 : WAIT_S });
        see({ type: "elsewhere", running: shown.files.filter(({ verdict }) => verdict === null).length });
        for (const { file: name, folder, ...entry } of shown.files) {
          const at = places.get(name);
          if (at === undefined || entry.verdict === null || this.ended.has(at)) continue;
          const { folder: here = "" } = this.#files[at] ?? {};
          if (entry.verdict === "done") made.set(folder, here);
          else if (entry.verdict === "not possible" && !BY_CHANCE.has(entry.reason ?? "")) none.push(here);
          this.#settle(at, { ...UNCONVERTED, ...entry, verdict: entry.verdict }, see);
        }
        if (shown.state === "stopped") this.why = printableLine(shown.why ?? "", 300);
        else if (signal.aborted && shown.state === "running") this.why = "it was interrupted";
      }
      await this.#take(id, made);
      for (const folder of none) await this.#emptied(folder);
    } finally {
      await client.call("conversions.remove", { conversion: id }).catch((error: unknown) => {
        // Where it is not there any more, nothing is left of it.
        if (!(error instanceof ApiError)) throw error;
      });
    }
  }

  /** Writes what was made of files, that of each at once. `made`: folders there, and here. */
  async #take(id: string, made: ReadonlyMap<string, string>): Promise<void> {
    if (made.size === 0) return;
    const part = await mkdtemp(join(this.out, ".part-"));
    try {
      const pieces = await this.#service.client.download("conversions.files", { conversion: id });
      for await (const entry of tarEntries(pieces)) {
        const { name, type } = entry.header;
        const place = placeBelow(part, name);
        const [top = ""] = name.split("/");
        if (made.has(top) && type === "directory") await mkdir(place, { recursive: true });
        if (made.has(top) && type === "file") {
          await mkdir(dirname(place), { recursive: true });
          await receivedFile(entry, place, new Allowance(place, Number.POSITIVE_INFINITY));
        } else entry.resume();
      }
      for (const [there, here] of made) {
        await mkdir(join(part, there), { recursive: true });
        await rename(join(part, there), await this.#emptied(here));
      }
    } finally {
      await rm(part, { recursive: true, force: true });
    }
  }

  /** Where the results of a file go: what was made of it before is gone. Nothing is written through a link. */
  async #emptied(folder: string): Promise<string> {
    let place = this.out;
    const names = folder.split("/");
    for (const name of names.slice(0, -1)) {
      place = join(place, name);
      await mkdir(place).catch(async (error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST" || !(await lstat(place)).isDirectory()) throw error;
      });
    }
    place = join(place, names.at(-1) ?? "");
    await rm(place, { recursive: true, force: true });
    return place;
  }

  #settle(index: number, said: Omit<ConvertedFile, "file" | "folder">, see: FleetWatch["see"]): void {
    const { folder = "", shown = "" } = this.#files[index] ?? {};
    const reason = said.reason === null ? null : printableLine(said.reason, 60);
    // In the order that it has on the machine itself.
    const { verdict: how, words: why, type, files, pages, notes, cached, run, durationMs: tookMs } = said;
    const made = { type, files, pages, notes, cached, run, durationMs: tookMs };
    this.ended.set(index, {
      file: shown,
      folder,
      ...made,
      verdict: how,
      reason,
      words: why,
      memoryBytesPeak: said.memoryBytesPeak,
    });
    const { verdict, words, durationMs, memoryBytesPeak } = said;
    const isDone = verdict === "done";
    const status = STATUS[verdict];
    const message = [reason, words].flatMap((one) => one ?? []).join(": ");
    const ended = { status, error: isDone ? null : { code: reason ?? "other", message }, durationMs, memoryBytesPeak };
    const none = { run: null, attempt: 1, exitCode: null, output: null, stderrLine: null, fields: {}, startedAt: null };
    const result: ItemResult = { index, key: folder, ...none, ...ended, endedAt: new Date().toISOString() };
    see({ type: "settled", result, retryInMs: null, at: performance.now() });
  }

  #summary(durationMs: number): FleetSummary {
    const byStatus: Record<string, number> = {};
    for (const { verdict } of this.ended.values()) byStatus[STATUS[verdict]] = (byStatus[STATUS[verdict]] ?? 0) + 1;
    const state = this.why === null ? "done" : "paused";
    const { size: done } = this.ended;
    const counts = { items: this.#files.length, done, byStatus, byReason: {}, failures: [] };
    return { fleet: this.#service.url, state, why: this.why, ...counts, durationMs };
  }

  /** What came of all files, beside the results. */
  async written(title: string): Promise<ConversionCounts> {
    const counts = new ConversionCounts();
    const files = [...this.ended].toSorted(([one], [other]) => one - other).map(([, file]) => file);
    for (const file of files) counts.see(file);
    const write = async (name: string, text: AsyncIterable<string>): Promise<void> => {
      const to = join(this.out, name);
      const bytes = async function* () {
        for await (const piece of text) yield Buffer.from(piece);
      };
      await receivedFile(bytes(), to, new Allowance(to, Number.POSITIVE_INFINITY));
    };
    const each = async function* () {
      yield* files;
    };
    const lines = async function* () {
      for (const file of files) yield convertedLine(file);
    };
    await write(RESULTS_FILE, inChunks(lines()));
    await write(REPORT_FILE, inChunks(conversionReport(title, counts, each())));
    return counts;
  }
}

const STATUS = { done: "succeeded", "not possible": "not_possible", refused: "refused" } as const;

/** Why nothing was made this time: what was made before stays. */
const BY_CHANCE: ReadonlySet<string> = new Set(["timed out", "too large", "failed"]);

/** As much as was there when it was found: a file that grows meanwhile is sent as it was. */
async function* contentOf({ path, bytes }: ClientFile): AsyncGenerator<Uint8Array> {
  if (bytes === 0) return;
  await using file = await open(path, FLAGS);
  yield* file.createReadStream({ autoClose: false, end: bytes - 1 });
}
