import { join, relative, resolve } from "node:path";
import { parseDuration, parseSize } from "../../declarations/yaml/shape.ts";
import type { ConversionOptions } from "../../operations/convert/conversion.ts";
import type { FleetEnd } from "../../operations/convert/convert.ts";
import { type ConversionTarget, DPI, OCR_LANGUAGES, REPORT_FILE } from "../../operations/convert/layout.ts";
import type { LeftOutEntry } from "../../operations/convert/source-files.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine, shellWord } from "../../text/visible.ts";
import type { WatchOptions } from "../fleet/map-options.ts";
import { ranFleet } from "../fleet/ran-fleet.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, say, type Terminal } from "../terminal/terminal.ts";
import type { EndedConversion, NamedConversion } from "./remote-convert.ts";

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
  readonly retry?: boolean;
  readonly init?: string;
  readonly policy?: string;
}

/** `corral convert`: each file in a container of its own. The files of one size are a fleet. Exit status 0 if every file is done. */
export async function convertVerb(
  raw: readonly string[],
  options: ConvertOptions,
  terminal: Terminal,
): Promise<number> {
  const { cwd } = terminal;
  if (options.init !== undefined) return await written(options.init, raw, options, terminal);
  const asked = conversionIn(options, cwd);
  if (options.out === undefined) throw new UsageError("name the folder of the results: --out DIR");
  if (raw.length === 0)
    throw new UsageError("name a folder or files to convert, such as: corral convert --to text inbox --out texts");
  const { concurrency = "auto", cache, retry = false } = options;
  if (concurrency !== "auto" && !/^[1-9]\d{0,3}$/.test(concurrency))
    throw new UsageError("--concurrency must be a whole number from 1, or auto");
  const named = {
    places: { sources: raw.map((one) => resolve(cwd, one)), out: resolve(cwd, options.out), cwd },
    leftOut: ({ place, why }: LeftOutEntry) => say(terminal, `corral: left out ${printableLine(place, 200)}: ${why}`),
    asked,
    manner: { cache, retry, concurrency: concurrency === "auto" ? concurrency : Number(concurrency) },
  } as const;
  const { service } = terminal;
  const ended =
    service === undefined
      ? await convertedHere(named, options, terminal)
      : await (await import("./remote-convert.ts")).convertedAt(service, named, options, terminal);
  if (ended === null) return EXIT.cancelled;
  const { out, counts, isWhole, isInterrupted } = ended;
  const shown = shellWord(printableLine(relative(cwd, join(out, REPORT_FILE)), 300));
  say(terminal, `corral: ${counts.text}; ${shown} has each`);
  if (isInterrupted) return EXIT.cancelled;
  return isWhole && counts.reasons.length === 0 ? 0 : EXIT.someFailed;
}

/** On this machine. The files of one size are a fleet. Null: the user ended the search for files. */
async function convertedHere(
  { places, leftOut, asked, manner }: NamedConversion,
  options: WatchOptions,
  terminal: Terminal,
): Promise<EndedConversion | null> {
  const { convertFiles, filesToConvert } = await import("../../operations/convert/convert.ts");
  const { convertedFile, convertedLine, shownResult } = await import("../../operations/convert/converted.ts");
  const { cwd, env } = terminal;
  let isInterrupted = false;
  // A fleet has its own answer to Ctrl-C. Before it the search ends, and after it what came of the files is written whole.
  const search = new AbortController();
  using _ = { [Symbol.dispose]: terminal.onStop(() => search.abort()) };
  const searched = await filesToConvert(places, {
    signal: search.signal,
    leftOut,
  }).catch((error: unknown) => {
    if (search.signal.aborted) return null;
    throw error;
  });
  if (searched === null) return null;
  await using found = searched;
  const machine = { stateDir: stateDirFrom(env), engineEnv: env };
  const { counts, isWhole } = await convertFiles(
    found,
    asked,
    { machine, cwd, ...manner },
    {
      tell: (line) => say(terminal, line),
      async run(project, start) {
        let end: FleetEnd | null = null;
        const status = await ranFleet(project, options, terminal, start, {
          onEnded: (summary) => {
            end = summary;
          },
          lineOf(result) {
            const file = convertedFile(result);
            return file === null ? "" : convertedLine(file);
          },
          shownAs: shownResult,
        });
        isInterrupted ||= status === EXIT.cancelled;
        // It has ended: else it has thrown.
        return end as unknown as FleetEnd;
      },
    },
  );
  return { out: found.out, counts, isWhole, isInterrupted };
}

/** @throws UsageError */
function conversionIn(options: ConvertOptions, cwd: string): ConversionOptions {
  const { to, ocr, dpi, timeout, memory, disk, passwordFile, policy } = options;
  if (to === undefined) throw new UsageError("say what to make: --to text, pdf, safe-pdf, png, parts or facts");
  if (ocr !== undefined && !OCR_LANGUAGES.test(ocr))
    throw new UsageError("--ocr must be a language of tesseract, such as eng, or several: eng+deu");
  if (dpi !== undefined && !(/^\d{2,3}$/.test(dpi) && Number(dpi) >= DPI.least && Number(dpi) <= DPI.most))
    throw new UsageError(`--dpi must be a whole number from ${DPI.least} to ${DPI.most}`);
  const timeoutMs = timeout === undefined ? undefined : parseDuration(timeout);
  if (timeoutMs === null) throw new UsageError("--timeout must be a duration such as 30s, 5m or 1h");
  const [memoryBytes, diskBytes] = [["--memory", memory] as const, ["--disk", disk] as const].map(([option, size]) => {
    const bytes = size === undefined ? undefined : parseSize(size);
    if (bytes === null) throw new UsageError(`${option} must be a size such as 512m or 4g`);
    return bytes;
  });
  return {
    to,
    ...present({
      ocr,
      timeoutMs,
      memoryBytes,
      diskBytes,
      policy,
      dpi: dpi === undefined ? undefined : Number(dpi),
      passwordFile: passwordFile === undefined ? undefined : resolve(cwd, passwordFile),
    }),
  };
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
