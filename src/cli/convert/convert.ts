import { constants } from "node:fs";
import { copyFile, link, mkdir, mkdtemp, open, realpath, rename, rm } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { ownerOfNewZone } from "../../declarations/place/zone-folder.ts";
import { loadDeclaredProject, type Project } from "../../declarations/project.ts";
import { parseDuration, parseSize } from "../../declarations/yaml/shape.ts";
import { inChunks } from "../../fleet/report/results-export.ts";
import { Changesets } from "../../operations/changesets.ts";
import {
  type ConversionOptions,
  conversionStart,
  conversionTexts,
  inSizeClasses,
  type SizeClass,
} from "../../operations/convert/conversion.ts";
import {
  ConversionCounts,
  type ConvertedFile,
  conversionReport,
  convertedFile,
  convertedLine,
} from "../../operations/convert/converted.ts";
import { type ConversionTarget, REPORT_FILE, RESULTS_FILE } from "../../operations/convert/layout.ts";
import { type SourceFile, sourceFiles } from "../../operations/convert/source-files.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { type FleetPlace, fleetResults, listFleets } from "../../operations/fleets.ts";
import { shellWord } from "../../platform/shell-word.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { ranFleet, type WatchOptions } from "../fleet/ran-fleet.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, say, type Terminal } from "../terminal/terminal.ts";

export interface ConvertOptions extends WatchOptions {
  readonly to?: ConversionTarget;
  readonly out?: string;
  readonly passwordFile?: string;
  readonly ocr?: string;
  readonly dpi?: string;
  readonly timeout?: string;
  readonly memory?: string;
  readonly disk?: string;
  readonly concurrency?: string;
  readonly cache: boolean;
  readonly init?: string;
  readonly policy?: string;
}

/** `corral convert`: each file in a container of its own. The files of one size are a fleet. Exit status 0 if every file is done. */
export async function convertVerb(
  raw: readonly string[],
  options: ConvertOptions,
  terminal: Terminal,
): Promise<number> {
  if (options.init !== undefined) return await written(options.init, raw, options, terminal);
  const asked = conversionIn(options, terminal.cwd);
  if (options.out === undefined) throw new UsageError("name the folder of the results: --out DIR");
  if (raw.length === 0)
    throw new UsageError("name a folder or files to convert, such as: corral convert --to text inbox --out texts");
  const sources = await Promise.all(raw.map((one) => realSource(one, terminal.cwd)));
  const out = await outFolder(options.out, terminal.cwd);
  const around = sources.find((source) => source === out || source.startsWith(`${out}/`));
  if (around !== undefined)
    throw new UsageError(`--out ${printableLine(options.out, 200)} holds what is to be converted; name another folder`);
  const files = await sourceFiles({
    sources,
    out,
    signal: new AbortController().signal,
    leftOut: ({ place, why }) => say(terminal, `corral: left out ${printableLine(place, 200)}: ${why}`),
  });
  if (files.length === 0)
    throw new UsageError(`there is no file in ${raw.map((one) => printableLine(one, 200)).join(", ")}`);
  await using named = await nameable(files, out);
  const conversion = new Conversion(
    asked,
    { ...named, within: [...sources.map(dirname), ...named.within] },
    out,
    options,
    terminal,
  );
  for (const { size, files: ofSize } of inSizeClasses(files)) {
    await conversion.run(size, ofSize);
    if (conversion.isInterrupted) break;
  }
  return await conversion.end();
}

/** @throws UsageError */
function conversionIn(options: ConvertOptions, cwd: string): ConversionOptions {
  const { to, ocr, dpi, timeout, memory, disk, passwordFile, policy } = options;
  if (to === undefined) throw new UsageError("say what to make: --to text, pdf, safe-pdf, png, parts or facts");
  if (ocr !== undefined && !/^[A-Za-z_]{2,20}(\+[A-Za-z_]{2,20}){0,9}$/.test(ocr))
    throw new UsageError("--ocr must be a language of tesseract, such as eng, or several: eng+deu");
  if (dpi !== undefined && !(/^\d{2,3}$/.test(dpi) && Number(dpi) >= 36 && Number(dpi) <= 600))
    throw new UsageError("--dpi must be a whole number from 36 to 600");
  if (timeout !== undefined && parseDuration(timeout) === null)
    throw new UsageError("--timeout must be a duration such as 30s, 5m or 1h");
  for (const [option, size] of [["--memory", memory] as const, ["--disk", disk] as const])
    if (size !== undefined && parseSize(size) === null)
      throw new UsageError(`${option} must be a size such as 512m or 4g`);
  return {
    to,
    ...present({
      ocr,
      timeout,
      memory,
      disk,
      policy,
      dpi: dpi === undefined ? undefined : Number(dpi),
      passwordFile: passwordFile === undefined ? undefined : resolve(cwd, passwordFile),
    }),
  };
}

async function realSource(raw: string, cwd: string): Promise<string> {
  return await realpath(resolve(cwd, raw)).catch(() => {
    throw new UsageError(`${printableLine(raw, 200)}: there is no such file or folder`);
  });
}

/** What is made belongs to whom its files will: root's own would be copied for each cell. */
async function outFolder(raw: string, cwd: string): Promise<string> {
  const path = resolve(cwd, raw);
  const made = await mkdir(path, { recursive: true }).catch((error: Error) => {
    throw new UsageError(`--out ${printableLine(raw, 200)}: ${error.message}`, { cause: error });
  });
  if (made !== undefined && process.getuid?.() === 0) {
    const { uid, gid } = await ownerOfNewZone(cwd);
    await using folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    await folder.chown(uid, gid);
  }
  return await realpath(path);
}

interface NamedFiles extends AsyncDisposable {
  readonly pathOf: (file: SourceFile) => string;
  readonly within: readonly string[];
}

/** Files whose names are no text get another name for this time, in a folder beside the results: a link if the disk allows it, else a copy. */
async function nameable(files: readonly SourceFile[], out: string): Promise<NamedFiles> {
  const odd = files.filter((file) => !file.isNameable);
  const none = { pathOf: ({ path }: SourceFile) => path.toString(), within: [], [Symbol.asyncDispose]: async () => {} };
  if (odd.length === 0) return none;
  const folder = await mkdtemp(join(out, ".names-"));
  const paths = new Map<SourceFile, string>();
  for (const [at, file] of odd.entries()) {
    const path = join(folder, String(at));
    await link(file.path, path).catch(async () => await copyFile(file.path, path, constants.COPYFILE_FICLONE));
    paths.set(file, path);
  }
  return {
    pathOf: (file) => paths.get(file) ?? none.pathOf(file),
    within: [folder],
    [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true, force: true }),
  };
}

/** The fleets of one command, one after another, and what came of them. */
class Conversion {
  readonly #asked: ConversionOptions;
  readonly #named: Pick<NamedFiles, "pathOf" | "within">;
  readonly #out: string;
  readonly #options: ConvertOptions;
  readonly #terminal: Terminal;
  #place: FleetPlace;
  readonly #fleets: string[] = [];
  readonly #statuses: number[] = [];

  constructor(
    asked: ConversionOptions,
    named: Pick<NamedFiles, "pathOf" | "within">,
    out: string,
    options: ConvertOptions,
    terminal: Terminal,
  ) {
    this.#asked = asked;
    this.#named = named;
    this.#out = out;
    this.#options = options;
    this.#terminal = terminal;
    this.#place = { stateDir: stateDirFrom(terminal.env), projectDir: terminal.cwd, engineEnv: terminal.env };
  }

  get isInterrupted(): boolean {
    return this.#statuses.includes(EXIT.cancelled);
  }

  /** What an earlier command of the same words began is finished first: only then its results count. */
  async run(size: SizeClass, files: readonly SourceFile[]): Promise<void> {
    const { cwd, env } = this.#terminal;
    const { concurrency = "auto", cache } = this.#options;
    if (concurrency !== "auto" && !/^[1-9]\d{0,3}$/.test(concurrency))
      throw new UsageError("--concurrency must be a whole number from 1, or auto");
    const project = await loadDeclaredProject(cwd, await conversionTexts(this.#out, size, this.#asked), env);
    this.#place = { ...this.#place, projectDir: project.dir };
    const source = `convert --to ${this.#asked.to} --out ${this.#out}, ${size.name}`;
    const begun = (await listFleets(this.#place)).find(
      ({ spec, state }) => spec.source === source && (state === "interrupted" || state === "paused"),
    );
    if (begun !== undefined) {
      say(this.#terminal, `corral: continuing fleet ${begun.id}, which was interrupted`);
      await this.#ran(project, { kind: "resume", fleet: begun.id });
      this.#fleets.pop();
      if (this.isInterrupted) return;
      this.#statuses.pop();
    }
    const manner = {
      concurrency: concurrency === "auto" ? concurrency : Number(concurrency),
      cache,
      source,
      cwd,
    } as const;
    await this.#ran(project, conversionStart({ files, ...this.#named }, size, this.#asked, manner));
  }

  async #ran(project: Project, start: FleetStart): Promise<void> {
    const status = await ranFleet(project, this.#options, this.#terminal, start, {
      onEnded: ({ fleet, state, why }) => {
        this.#fleets.push(fleet);
        if (state !== "done" && state !== "pending")
          say(
            this.#terminal,
            `corral: it stopped${why === null ? "" : `: ${printableLine(why, 500)}`}; the same command continues`,
          );
      },
      lineOf(result) {
        const file = convertedFile(result);
        return file === null ? "" : convertedLine(file);
      },
    });
    this.#statuses.push(status);
  }

  /** Writes what came of all files, and says it in one line. */
  async end(): Promise<number> {
    await this.#discardHalves();
    const counts = new ConversionCounts();
    await this.#write(RESULTS_FILE, this.#lines(counts));
    const title = `corral convert --to ${this.#asked.to}`;
    await this.#write(REPORT_FILE, conversionReport(title, counts, this.#files()));
    const shown = shellWord(printableLine(relative(this.#terminal.cwd, join(this.#out, REPORT_FILE)), 300));
    say(this.#terminal, `corral: ${counts.text}; ${shown} has each`);
    if (this.isInterrupted) return EXIT.cancelled;
    return this.#statuses.find((status) => status === EXIT.someFailed) ?? Math.max(0, ...this.#statuses);
  }

  async *#files(): AsyncGenerator<ConvertedFile> {
    for (const fleet of this.#fleets) {
      for await (const result of await fleetResults(this.#place, fleet)) {
        const file = convertedFile(result);
        if (file !== null) yield file;
      }
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
    const halves: string[] = [];
    for (const fleet of this.#fleets) {
      for await (const { status, changeset } of await fleetResults(this.#place, fleet))
        if (status !== "pending" && changeset?.id) halves.push(changeset.id);
    }
    if (halves.length === 0) return;
    await using changesets = await Changesets.open(this.#place.stateDir, this.#terminal.env);
    for (const id of halves) await changesets.discard(id).catch(() => {});
  }

  /** At once: a reader sees the results of one time. A link there, which a file could have been named like, is replaced. */
  async #write(name: string, pieces: AsyncIterable<string>): Promise<void> {
    const path = join(this.#out, `.${name}-${process.pid}`);
    await using file = await open(path, "wx");
    for await (const piece of inChunks(pieces)) await file.appendFile(piece);
    await rename(path, join(this.#out, name));
  }
}

/** `--init`: the packaged project, to be changed. */
async function written(
  dir: string,
  sources: readonly string[],
  { to, json }: ConvertOptions,
  terminal: Terminal,
): Promise<number> {
  if (sources.length > 0 || to !== undefined)
    throw new UsageError("--init writes a project and converts nothing: leave out the rest");
  const { writtenProject } = await import("../project/init.ts");
  return await writtenProject("convert", ["corral map --fleet text", "corral fleet ls"], dir, { json }, terminal);
}
