import { randomBytes } from "node:crypto";
import { copiedFolder, type ResultEntry, resultEntries, resultFile } from "../../files/host/results-folder.ts";
import { type ConversionOptions, PROGRAM_DIR } from "../../operations/convert/conversion.ts";
import { convertFiles, type RunsFleet, resultsFolder } from "../../operations/convert/convert.ts";
import { type ConvertedFile, convertedFile, UNCONVERTED } from "../../operations/convert/converted.ts";
import { cancelFleet, listFleets, removeFleets } from "../../operations/fleets.ts";
import type { MachinePlace } from "../../operations/machine.ts";
import { ranAlone } from "../../operations/run-fleet.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { UploadBatch } from "../../state/service/upload-folder.ts";
import { makeClosedDir, statePaths } from "../../state/state-dir.ts";
import type { HidePaths } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Log } from "../logging/log.ts";
import type { MeasuredProject, Metrics } from "../metrics/metrics.ts";
import type { ConversionOrder, Conversions, ShownConversion } from "../model/served.ts";

/** They share the machine: more would only wait for each other. */
const MAX_RUNNING = 16;
/** Those that have ended are removed, the oldest first. */
const MAX_KEPT = 200;
const KEPT_MS = 24 * 60 * 60_000;
const LOOK_MS = 10 * 60_000;
/** In metrics and in the log: a served project may have any other name, but none with a space. */
const NAME = "corral convert";
const MAX_LOOKED = 10_000;
/** Of one file; the archive has all. */
const MAX_LISTED = 100;

interface Kept {
  readonly id: string;
  readonly to: ConversionOptions["to"];
  readonly batch: UploadBatch;
  readonly out: string;
  readonly startedAt: string;
  endedAt: string | null;
  why: string | null;
  /** By the folders of their results; null: it waits or runs. */
  readonly files: Map<string, { readonly name: string; ended: ConvertedFile | null }>;
  readonly stop: AbortController;
  ended: Promise<void>;
}

interface Parts {
  readonly machine: MachinePlace;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly hide: HidePaths;
  readonly over: AbortSignal;
}

/**
 * The conversions of the service. Each is a project of its own without a folder: its workers are those of `corral convert`, its files are where
 * uploads are, outside of the state directory, and all of it ends with the service. No served project takes part.
 */
export class ServiceConversions implements Conversions, AsyncDisposable {
  readonly #parts: Parts;
  readonly #dir: string;
  readonly #kept = new Map<string, Kept>();
  readonly #timer: NodeJS.Timeout;
  /** Fleets of an earlier service. */
  readonly #left: readonly string[];

  private constructor(parts: Parts, dir: string, left: readonly string[]) {
    this.#parts = parts;
    this.#dir = dir;
    this.#left = left;
    this.#timer = setInterval(() => void this.#removeOld(), LOOK_MS).unref();
  }

  static async open(parts: Parts): Promise<ServiceConversions> {
    const { conversions } = statePaths(parts.machine.stateDir);
    await makeClosedDir(conversions);
    const left = await listFleets({ ...parts.machine, projectDir: conversions }, MAX_LOOKED).catch(() => []);
    return new ServiceConversions(
      parts,
      conversions,
      left.map(({ id }) => id),
    );
  }

  /** What an earlier service has left: its files are gone, so nothing of it is continued. It needs the Engine. */
  async removeLeft(): Promise<void> {
    await this.#forget(this.#left);
  }

  refuseMore(): void {
    const running = [...this.#kept.values()].filter(({ endedAt }) => endedAt === null);
    if (running.length >= MAX_RUNNING)
      throw new ServiceFault(503, "TOO_MANY", `${MAX_RUNNING} conversions are running already`);
  }

  async start({ files, batch, ...asked }: ConversionOrder): Promise<string> {
    const id = randomBytes(6).toString("hex");
    const out = await resultsFolder(`${batch.dir}/results`, this.#dir);
    const kept: Kept = {
      id,
      to: asked.to,
      batch,
      out,
      startedAt: new Date().toISOString(),
      endedAt: null,
      why: null,
      files: new Map(files.map(({ folder, shown }) => [folder, { name: shown, ended: null }])),
      stop: new AbortController(),
      ended: Promise.resolve(),
    };
    this.#kept.set(id, kept);
    kept.ended = this.#convert(kept, { files, batch, ...asked });
    await this.#removeOld();
    return id;
  }

  get all(): readonly ShownConversion[] {
    return [...this.#kept.values()].toReversed().map((one) => shown(one, this.#parts.hide));
  }

  find(id: string): ShownConversion {
    return shown(this.#found(id), this.#parts.hide);
  }

  ending(id: string): Promise<void> | null {
    const kept = this.#found(id);
    return kept.endedAt === null ? kept.ended : null;
  }

  file(id: string, path: string): ResultEntry {
    const file = resultFile(this.#found(id).out, path);
    if (file === null) throw new ServiceFault(404, "NOT_FOUND", "the results have no such file, or not yet");
    return file;
  }

  files(id: string): AsyncIterable<ResultEntry> {
    return resultEntries(this.#found(id).out);
  }

  async remove(id: string): Promise<void> {
    const kept = this.#found(id);
    kept.stop.abort(new Error("the conversion was removed"));
    await kept.ended;
    this.#kept.delete(id);
    await kept.batch[Symbol.asyncDispose]();
  }

  /** When all have ended. */
  async idle(): Promise<void> {
    await Promise.allSettled([...this.#kept.values()].map(({ ended }) => ended));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.idle();
    for (const { batch } of this.#kept.values()) await batch[Symbol.asyncDispose]();
  }

  get #place() {
    return { ...this.#parts.machine, projectDir: this.#dir };
  }

  #found(id: string): Kept {
    const kept = this.#kept.get(id);
    if (kept === undefined) throw new ServiceFault(404, "UNKNOWN_CONVERSION", `the service has no conversion ${id}`);
    return kept;
  }

  async #convert(kept: Kept, { files, batch, ...asked }: ConversionOrder): Promise<void> {
    const { machine, log, metrics, hide, over } = this.#parts;
    const { id, out, stop } = kept;
    const of: MeasuredProject = { project: NAME, declares: () => true };
    const measured = metrics.fleet(NAME);
    const fleets: string[] = [];
    const listing: Promise<void>[] = [];
    const run: RunsFleet = (project, start) =>
      ranAlone(project, start, {
        machine,
        emit: (event: RunEvent) => metrics.see(event, of),
        stop: AbortSignal.any([over, stop.signal]),
        onEvent(event) {
          measured.see(event, asked.to);
          if (event.type === "loaded") fleets.push(event.fleet);
        },
        onResult: (result) => {
          listing.push(this.#see(kept, convertedFile(result)));
        },
      });
    const manner = { machine, cwd: this.#dir, concurrency: "auto", cache: false, retry: false } as const;
    const pathOf = ({ path }: { readonly path: Buffer }): string => path.toString();
    try {
      const found = { files, out, pathOf, within: [batch.dir] };
      // In a container, the host does not have the package: what is mounted lies with the files.
      const program = await copiedFolder(PROGRAM_DIR, `${batch.dir}/program`);
      const { counts, isWhole } = await convertFiles(found, { ...asked, program }, manner, {
        run,
        tell: (line) => log.info({ conversion: id }, hide(line)),
      });
      if (!isWhole) kept.why = "it was stopped before its end";
      else if (!batch.take(await bytesOf(out))) kept.why = NO_ROOM;
      log.info({ conversion: id, counts: counts.text }, "conversion ended");
    } catch (error) {
      kept.why = hide((error as Error).message);
      log.warn({ conversion: id, error: (error as Error).name }, "a conversion failed");
    } finally {
      measured.end();
      await Promise.all(listing);
      // What the end of the service stops is removed by the next one.
      if (!over.aborted) await this.#forget(fleets);
      kept.endedAt = new Date().toISOString();
    }
    if (kept.why === NO_ROOM) await batch[Symbol.asyncDispose]();
  }

  /** With the files that are there, whatever its container has said. */
  async #see({ files, out }: Kept, file: ConvertedFile | null): Promise<void> {
    const entry = file === null ? undefined : files.get(file.folder);
    if (file === null || entry === undefined) return;
    const names: string[] = [];
    try {
      if (file.verdict === "done")
        for await (const { path, type } of resultEntries(out, file.folder)) {
          if (type === "file") names.push(path.slice(file.folder.length + 1));
          if (names.length === MAX_LISTED) break;
        }
    } finally {
      entry.ended = { ...file, files: names };
    }
  }

  async #forget(fleets: readonly string[]): Promise<void> {
    if (fleets.length === 0) return;
    try {
      for (const fleet of fleets) await cancelFleet(this.#place, fleet);
      await removeFleets(this.#place, { ids: fleets });
    } catch (error) {
      this.#parts.log.warn({ error: (error as Error).name }, "what conversions left stays until the next service");
    }
  }

  async #removeOld(): Promise<void> {
    const ended = [...this.#kept.values()].filter(({ endedAt }) => endedAt !== null);
    const beyond = Math.max(0, this.#kept.size - MAX_KEPT);
    const old = ended.filter(({ endedAt }, at) => at < beyond || Date.parse(endedAt ?? "") < Date.now() - KEPT_MS);
    for (const { id } of old) await this.remove(id).catch(() => {});
  }
}

const NO_ROOM = "its results are larger than the room that the service has for files of clients";

async function bytesOf(out: string): Promise<number> {
  let sum = 0;
  for await (const { bytes } of resultEntries(out)) sum += bytes;
  return sum;
}

function shown({ id, to, startedAt, endedAt, why, files }: Kept, hide: HidePaths): ShownConversion {
  const all = [...files].map(([folder, { name, ended }]) => {
    const { run: _, cached: __, ...file } = ended ?? { ...UNCONVERTED, verdict: null, folder };
    return { ...file, file: name, words: file.words === null ? null : hide(file.words) };
  });
  const having = (verdict: string): number => all.filter((one) => one.verdict === verdict).length;
  return {
    id,
    to,
    state: endedAt === null ? "running" : why === null ? "done" : "stopped",
    startedAt,
    endedAt,
    why,
    counts: {
      total: all.length,
      done: having("done"),
      notPossible: having("not possible"),
      refused: having("refused"),
    },
    files: all,
  };
}
