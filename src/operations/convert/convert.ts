import { dirname } from "node:path";
import { utf8Note } from "../../declarations/place/host-place.ts";
import { ownerOfNewZone } from "../../declarations/place/zone-folder.ts";
import { loadDeclaredProject, type Project } from "../../declarations/project.ts";
import { isRoot } from "../../files/host/descriptor.ts";
import { makeResultsFolder, otherNames, readResult, realPathOf, writeResult } from "../../files/host/results-folder.ts";
import type { FleetSpec, ItemResult } from "../../fleet/model/item.ts";
import { inChunks } from "../../fleet/report/results-export.ts";
import type { FleetSummary } from "../../fleet/running/events.ts";
import { parseJson } from "../../json/parse-json.ts";
import { printableLine } from "../../text/visible.ts";
import { Changesets } from "../changesets.ts";
import type { FleetStart } from "../fleet-start.ts";
import { type FleetPlace, fleetResults, listFleets } from "../fleets.ts";
import type { MachinePlace } from "../machine.ts";
import { RequestError } from "../request-error.ts";
import {
  type ConversionOptions,
  conversionStart,
  conversionTexts,
  type FilesToConvert,
  inSizeClasses,
  type SizeClass,
} from "./conversion.ts";
import { ConversionCounts, type ConvertedFile, conversionReport, convertedFile, convertedLine } from "./converted.ts";
import { REPORT_FILE, RESULTS_FILE } from "./layout.ts";
import { type LeftOutEntry, type SourceFile, sourceFiles } from "./source-files.ts";

/** Files of folders, and where their results go. Disposing removes the other names that some of them got. */
export interface FoundFiles extends FilesToConvert, AsyncDisposable {
  /** The real path of the folder of results. */
  readonly out: string;
}

/**
 * The files of sources, each a folder or a file. The folder of the results is made. All paths are absolute; `cwd`: whose owner a new folder gets.
 *
 * @throws RequestError CONVERSION
 */
export async function filesToConvert(
  { sources, out: rawOut, cwd }: { readonly sources: readonly string[]; readonly out: string; readonly cwd: string },
  { signal, leftOut }: { readonly signal: AbortSignal; readonly leftOut: (what: LeftOutEntry) => void },
): Promise<FoundFiles> {
  const wrong = (path: string, why: string, cause?: unknown) =>
    new RequestError("CONVERSION", path, `${printableLine(path, 500)}: ${why}`, [], { cause });
  const real = await Promise.all(
    sources.map(async (one) => {
      const found = await realPathOf(one);
      if (found === null) throw wrong(one, `there is no such file or folder${utf8Note(one)}`);
      return found;
    }),
  );
  const out = await resultsFolder(rawOut, cwd).catch((error: Error) => {
    throw wrong(rawOut, `cannot be the folder of the results: ${error.message}`, error);
  });
  if (real.some((source) => source === out || source.startsWith(`${out}/`)))
    throw wrong(rawOut, "the folder of the results holds what is to be converted; name another folder");
  const files = await sourceFiles({ sources: real, out, signal, leftOut });
  if (files.length === 0) throw wrong(sources.join(", "), "there is no file");
  const named = await nameable(files, out);
  return { files, out, ...named, within: [...real.map(dirname), ...named.within] };
}

/** What is made belongs to whom its files will: root's own would be copied for each cell. */
export async function resultsFolder(path: string, cwd: string): Promise<string> {
  return await makeResultsFolder(path, isRoot() ? await ownerOfNewZone(cwd) : null);
}

/** Files whose names are no text get another name for this time, in a folder beside the results. */
async function nameable(
  files: readonly SourceFile[],
  out: string,
): Promise<Pick<FoundFiles, "pathOf" | "within" | typeof Symbol.asyncDispose>> {
  const odd = files.filter((file) => !file.isNameable);
  const plain = ({ path }: SourceFile): string => path.toString();
  if (odd.length === 0) return { pathOf: plain, within: [], [Symbol.asyncDispose]: async () => {} };
  const names = await otherNames(
    odd.map(({ path }) => path),
    out,
  );
  const paths = new Map(odd.map((file, at) => [file, names.paths[at]]));
  return {
    pathOf: (file) => paths.get(file) ?? plain(file),
    within: [names.folder],
    [Symbol.asyncDispose]: async () => await names[Symbol.asyncDispose](),
  };
}

/** How files are converted, beside into what. */
export interface ConversionManner extends Pick<FleetSpec, "concurrency" | "cache"> {
  /** Files from which nothing could be made run again too. */
  readonly retry: boolean;
  /** Absolute: the folder of the project that the fleets belong to. */
  readonly cwd: string;
  readonly machine: MachinePlace;
}

/** Runs one fleet, to its end or until it is stopped. */
export type RunsFleet = (project: Project, start: FleetStart) => Promise<FleetEnd>;

export type FleetEnd = Pick<FleetSummary, "fleet" | "state" | "why">;

/** What came of all files. */
export interface ConversionEnd {
  readonly counts: ConversionCounts;
  /** False: a fleet has stopped before its end. The same conversion continues. */
  readonly isWhole: boolean;
  readonly fleets: readonly string[];
}

/**
 * Converts files, those of one size after the others, and writes what came of each beside the results. What an earlier conversion of the same
 * kind into this folder began is finished first.
 *
 * @throws RequestError FLEET_REFUSED, and what `run` throws
 */
export async function convertFiles(
  found: FilesToConvert & { readonly out: string },
  asked: ConversionOptions,
  manner: ConversionManner,
  { run, tell }: { readonly run: RunsFleet; readonly tell: (line: string) => void },
): Promise<ConversionEnd> {
  const conversion = new Conversion(found, asked, manner, { run, tell });
  for (const { size, files } of inSizeClasses(found.files)) if (!(await conversion.convert(size, files))) break;
  return await conversion.end();
}

/** A fleet whose results count; `only`: of these files alone. */
interface CountedFleet {
  readonly id: string;
  readonly only: ReadonlySet<string> | null;
}

class Conversion {
  readonly #found: FilesToConvert & { readonly out: string };
  readonly #asked: ConversionOptions;
  readonly #manner: ConversionManner;
  readonly #run: RunsFleet;
  readonly #tell: (line: string) => void;
  readonly #fleets: CountedFleet[] = [];
  #place: FleetPlace;
  #isWhole = true;

  constructor(
    found: FilesToConvert & { readonly out: string },
    asked: ConversionOptions,
    manner: ConversionManner,
    { run, tell }: { readonly run: RunsFleet; readonly tell: (line: string) => void },
  ) {
    this.#found = found;
    this.#asked = asked;
    this.#manner = manner;
    this.#run = run;
    this.#tell = tell;
    this.#place = { ...manner.machine, projectDir: manner.cwd };
  }

  /** False: it has stopped. */
  async convert(size: SizeClass, files: readonly SourceFile[]): Promise<boolean> {
    const { cwd, machine, concurrency, cache, retry } = this.#manner;
    const { out } = this.#found;
    const project = await loadDeclaredProject(cwd, await conversionTexts(out, size, this.#asked), machine.engineEnv);
    this.#place = { ...this.#place, projectDir: project.dir };
    const source = `convert --to ${this.#asked.to} --out ${out}, ${size.name}`;
    const ran = cache ? await this.#continued(project, source) : new Set<string>();
    if (ran === null) return false;
    const again = retry ? await notDoneIn(out) : new Set<string>();
    const [others, retried] = [
      files.filter(({ folder }) => !again.has(folder)),
      files.filter((one) => again.has(one.folder)),
    ];
    const parts = [
      { cache, files: others.filter(({ folder }) => !ran.has(folder)) },
      // Nothing of an earlier time counts for these.
      { cache: false, files: retried.filter(({ folder }) => !ran.has(folder)) },
    ];
    for (const part of parts) {
      if (part.files.length === 0) continue;
      const start = conversionStart({ ...this.#found, files: part.files }, size, this.#asked, {
        concurrency,
        cache: part.cache,
        source,
        cwd,
      });
      if (!(await this.#ran(project, start))) return false;
    }
    return true;
  }

  /** Finishes what was interrupted. The folders of the files that ran now and are not done: they need not run twice. Null: it was stopped again. */
  async #continued(project: Project, source: string): Promise<ReadonlySet<string> | null> {
    const known = await listFleets(this.#place);
    const begun = known.find(
      ({ spec, state }) => spec.source === source && (state === "interrupted" || state === "paused"),
    );
    if (begun === undefined) return new Set();
    this.#tell(`corral: continuing fleet ${begun.id}, which was interrupted`);
    const from = new Date().toISOString();
    const wanted = new Set(this.#found.files.map(({ folder }) => folder));
    if (!(await this.#ran(project, { kind: "resume", fleet: begun.id }))) return null;
    this.#fleets.pop();
    const ran = new Set<string>();
    for await (const result of await fleetResults(this.#place, begun.id))
      if (wanted.has(result.key) && result.endedAt >= from && convertedFile(result)?.verdict !== "done")
        ran.add(result.key);
    this.#fleets.push({ id: begun.id, only: ran });
    return ran;
  }

  async #ran(project: Project, start: FleetStart): Promise<boolean> {
    const { fleet, state, why } = await this.#run(project, start);
    this.#fleets.push({ id: fleet, only: null });
    if (state === "done" || state === "pending") return true;
    this.#isWhole = false;
    const cause = why === null ? "" : `: ${printableLine(why, 500)}`;
    this.#tell(`corral: it stopped${cause}; the same command continues`);
    return false;
  }

  /** Writes what came of all files. */
  async end(): Promise<ConversionEnd> {
    await this.#discardHalves();
    const counts = new ConversionCounts();
    const { out } = this.#found;
    await writeResult(out, RESULTS_FILE, inChunks(this.#lines(counts)));
    const title = `corral convert --to ${this.#asked.to}`;
    await writeResult(out, REPORT_FILE, inChunks(conversionReport(title, counts, this.#files())));
    return { counts, isWhole: this.#isWhole, fleets: this.#fleets.map(({ id }) => id) };
  }

  async *#results(): AsyncGenerator<ItemResult> {
    for (const { id, only } of this.#fleets)
      for await (const result of await fleetResults(this.#place, id))
        if (only === null || only.has(result.key)) yield result;
  }

  async *#files(): AsyncGenerator<ConvertedFile> {
    for await (const result of this.#results()) {
      const file = convertedFile(result);
      if (file !== null) yield file;
    }
  }

  async *#lines(counts: ConversionCounts): AsyncGenerator<string> {
    for await (const file of this.#files()) {
      counts.see(file);
      yield convertedLine(file);
    }
  }

  /** A changeset that was applied in part is no result, and nobody would apply the rest. */
  async #discardHalves(): Promise<void> {
    const halves: { readonly id: string; readonly key: string }[] = [];
    for await (const { status, changeset, key } of this.#results())
      if (status !== "pending" && changeset?.id) halves.push({ id: changeset.id, key });
    if (halves.length === 0) return;
    const { stateDir, engineEnv } = this.#place;
    await using changesets = await Changesets.open(stateDir, engineEnv);
    for (const { id, key } of halves) {
      await changesets.discard(id).catch((error: Error) => {
        // Another process has done it.
        if (error instanceof RequestError && error.code === "UNKNOWN_CHANGESET") return;
        const what = `what was not applied of ${printableLine(key, 200)} could not be discarded`;
        this.#tell(
          `corral: warning: ${what}: ${printableLine(error.message, 500)}; \`corral changes discard ${id}\` does`,
        );
      });
    }
  }
}

/** The folders of the files that were not done, as the last conversion into this folder has written it. */
async function notDoneIn(out: string): Promise<ReadonlySet<string>> {
  const text = (await readResult(out, RESULTS_FILE)) ?? "";
  const folders = new Set<string>();
  for (const line of text.split("\n")) {
    const parsed = parseJson(line);
    const { folder, verdict } = ((parsed.ok ? parsed.value : null) ?? {}) as Partial<ConvertedFile>;
    if (typeof folder === "string" && verdict !== "done") folders.add(folder);
  }
  return folders;
}
