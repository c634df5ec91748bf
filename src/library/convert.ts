import { resolve } from "node:path";
import type { ItemResult } from "../fleet/model/item.ts";
import type { ConversionOptions } from "../operations/convert/conversion.ts";
import { convertFiles, filesToConvert, type RunsFleet } from "../operations/convert/convert.ts";
import { type ConvertedFile, convertedFile } from "../operations/convert/converted.ts";
import { DPI, OCR_LANGUAGES, TARGETS } from "../operations/convert/layout.ts";
import { ranAlone } from "../operations/run-fleet.ts";
import type { Emit } from "../run/model/events.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { amount, any, checkKeys, type KeyChecks, text, trueOrFalse } from "./checked-request.ts";

/** What files become, and how. Paths may be relative to the working directory. */
export interface ConvertRequest extends Omit<ConversionOptions, "program"> {
  /** The folder of the results; a missing one is made. */
  readonly out: string;
  /** Usually `process.env`: as of `openProject`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** As of `openProject`. */
  readonly stateDir?: string;
  /** Absent: `auto`. */
  readonly concurrency?: number | "auto";
  /** False: every file is converted, even if its result is there. */
  readonly cache?: boolean;
  /** What was not possible the last time is tried again. */
  readonly retry?: boolean;
  /** Ends what runs. The same call continues. */
  readonly signal?: AbortSignal;
  /** Receives each file that has ended. It must not throw. */
  readonly onFile?: (file: ConvertedFile) => void;
  /** Receives each file of the sources that is no regular file, or cannot be read. It must not throw. */
  readonly onLeftOut?: (place: string, why: string) => void;
  /** Receives every event of every run. It must not throw. */
  readonly emit?: Emit;
}

/** What came of all files. `results.jsonl` and `report.html` in the folder of the results have each. */
export interface Converted {
  readonly done: number;
  /** How many files ended for which reason: `encrypted`, `damaged`, …, and `refused`. */
  readonly reasons: Readonly<Record<string, number>>;
  /** False: it was stopped before its end. */
  readonly isWhole: boolean;
}

/**
 * Makes texts, PDF, pictures, parts or facts of files and of all files in folders: each in a container of its own, which sees it alone.
 *
 *     const { done, reasons } = await convert(["inbox"], { to: "text", out: "texts", env: process.env });
 *
 * @throws RangeError for a wrong option, RequestError CONVERSION for a source or folder that does not fit, EngineUnavailableError
 */
export async function convert(sources: string | readonly string[], request: ConvertRequest): Promise<Converted> {
  checkKeys(request, KEYS, "convert");
  const { out: rawOut, env = {}, stateDir, concurrency = "auto", cache = true, retry = false, ...more } = request;
  const { signal = NEVER, onFile = () => {}, onLeftOut = () => {}, emit, passwordFile, ...asked } = more;
  const cwd = process.cwd();
  const machine = { stateDir: resolve(stateDir ?? stateDirFrom(env)), engineEnv: env };
  const places = { sources: [sources].flat().map((one) => resolve(one)), out: resolve(rawOut), cwd };
  const leftOut = ({ place, why }: { place: string; why: string }): void => onLeftOut(place, why);
  await using found = await filesToConvert(places, { signal, leftOut });
  const passwords = passwordFile === undefined ? {} : { passwordFile: resolve(passwordFile) };
  const onResult = (result: ItemResult): void => {
    const file = convertedFile(result);
    if (file !== null) onFile(file);
  };
  const run: RunsFleet = (project, start) =>
    ranAlone(project, start, { machine, stop: signal, onResult, ...present({ emit }) });
  const manner = { machine, cwd, concurrency, cache, retry };
  const { counts, isWhole } = await convertFiles(found, { ...asked, ...passwords }, manner, { run, tell: () => {} });
  return { done: counts.done, reasons: Object.fromEntries(counts.reasons), isWhole };
}

const NEVER = new AbortController().signal;

const KEYS: KeyChecks<ConvertRequest> = {
  to: (value, name) => {
    if (!TARGETS.some((one) => one === value)) throw new RangeError(`${name} must be one of: ${TARGETS.join(", ")}`);
  },
  out: text,
  ocr: (value, name) => {
    if (typeof value !== "string" || !OCR_LANGUAGES.test(value))
      throw new RangeError(`${name} must be a language of tesseract, such as "eng" or "eng+deu"`);
  },
  dpi: (value, name) => {
    if (!Number.isInteger(value) || Number(value) < DPI.least || Number(value) > DPI.most)
      throw new RangeError(`${name} must be a whole number from ${DPI.least} to ${DPI.most}`);
  },
  timeoutMs: amount,
  memoryBytes: amount,
  diskBytes: amount,
  passwordFile: text,
  policy: text,
  env: any,
  stateDir: text,
  concurrency: any,
  cache: trueOrFalse,
  retry: trueOrFalse,
  signal: any,
  onFile: any,
  onLeftOut: any,
  emit: any,
};
