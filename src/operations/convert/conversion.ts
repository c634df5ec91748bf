import { join } from "node:path";
import { parse, stringify } from "yaml";
import type { DeclaredTexts } from "../../declarations/corral-file.ts";
import { PACKAGE_ROOT, templateFiles } from "../../declarations/place/package-root.ts";
import { parseDuration, parseSize } from "../../declarations/yaml/shape.ts";
import type { FleetSpec } from "../../fleet/model/item.ts";
import { present } from "../../text/present.ts";
import type { FleetStart } from "../fleet-start.ts";
import type { ConversionTarget } from "./layout.ts";
import type { SourceFile } from "./source-files.ts";

/** What is allowed for a file grows with its size. The largest are the ceilings of the policy `batch`. */
export interface SizeClass {
  readonly name: string;
  readonly maxBytes: number;
  readonly limits: { readonly timeout: string; readonly memory: string; readonly disk: string };
}

const MIB = 1024 ** 2;
const SIZE_CLASSES: readonly SizeClass[] = [
  { name: "up to 4 MiB", maxBytes: 4 * MIB, limits: { timeout: "15m", memory: "1g", disk: "1g" } },
  { name: "up to 64 MiB", maxBytes: 64 * MIB, limits: { timeout: "1h", memory: "2g", disk: "4g" } },
  { name: "up to 1 GiB", maxBytes: 1024 * MIB, limits: { timeout: "4h", memory: "4g", disk: "16g" } },
  { name: "larger", maxBytes: Number.POSITIVE_INFINITY, limits: { timeout: "12h", memory: "8g", disk: "32g" } },
];

/** Those that some of the files are in, the smallest first, each with its files. */
export function inSizeClasses(
  files: readonly SourceFile[],
): { readonly size: SizeClass; readonly files: SourceFile[] }[] {
  const classes = SIZE_CLASSES.map((size) => ({ size, files: [] as SourceFile[] }));
  for (const file of files) classes.find(({ size }) => file.bytes <= size.maxBytes)?.files.push(file);
  return classes.filter((one) => one.files.length > 0);
}

/** What a user may say beside the target. */
export interface ConversionOptions {
  readonly to: ConversionTarget;
  /** Of one file; absent: what its size allows. */
  readonly timeoutMs?: number;
  readonly memoryBytes?: number;
  readonly diskBytes?: number;
  /** Languages of tesseract: `eng+deu`. */
  readonly ocr?: string;
  readonly dpi?: number;
  /** The absolute path of a file with a password in each line. */
  readonly passwordFile?: string;
  readonly policy?: string;
  /** Absolute: the folder of the programs that read files. Absent: that of the package. */
  readonly program?: string;
}

/** Of the package. */
export const PROGRAM_DIR = join(PACKAGE_ROOT, "templates", "convert", "program");

/** The packaged project, for files of one size, with its results in `out`. */
export async function conversionTexts(
  out: string,
  size: SizeClass,
  options: ConversionOptions,
): Promise<DeclaredTexts> {
  const files = await templateFiles(PROJECT);
  const corral = parse(files.get("corral.yaml") ?? "");
  corral.sandbox.paths.out = { root: out, mode: "rw", stage: true };
  corral.sandbox.paths.program.root = options.program ?? PROGRAM_DIR;
  if (options.policy !== undefined) corral.policy = options.policy;
  const limits = limitsFor(size, options);
  const workers = [...files].flatMap(([path, text]) => {
    const name = /^workers\/([\w-]+)\.worker$/.exec(path)?.[1];
    if (name === undefined) return [];
    const worker = parse(text.split("---\n")[1] ?? "");
    return [[name, `---\n${stringify({ ...worker, limits })}---\n`] as const];
  });
  return { corral: stringify(corral), workers: new Map(workers) };
}

/** The folder of the project below `templates/`. */
export const PROJECT = "convert";

/** As a worker's file has them. */
function limitsFor({ limits }: SizeClass, { timeoutMs, memoryBytes, diskBytes }: ConversionOptions) {
  const timeout = timeoutMs === undefined ? undefined : `${timeoutMs}ms`;
  return { ...limits, ...present({ timeout, memory: memoryBytes, disk: diskBytes }) };
}

export interface FilesToConvert {
  readonly files: readonly SourceFile[];
  /** Of each file the path that its cell is given it from: its own, or one with a name that Corral can say. */
  readonly pathOf: (file: SourceFile) => string;
  /** The folders in which these are. */
  readonly within: readonly string[];
}

/** The program in a cell gives up a little before its container ends, so that it can say so. */
const SPARE = 0.92;

/** The fleet that converts files of one size. */
export function conversionStart(
  { files, pathOf, within }: FilesToConvert,
  size: SizeClass,
  options: ConversionOptions,
  manner: Pick<FleetSpec, "concurrency" | "cache"> & { readonly source: string; readonly cwd: string },
): Extract<FleetStart, { kind: "new" }> {
  const { cwd, ...said } = manner;
  const { to, ocr, dpi, passwordFile } = options;
  const limits = limitsFor(size, options);
  const seconds = Math.floor(((parseDuration(limits.timeout) ?? 0) / 1000) * SPARE);
  // Beside what is unpacked, what is made of it needs room.
  const unpackedBytes = Math.floor((parseSize(limits.disk) ?? 0) / 2);
  const spec: FleetSpec = {
    version: 1,
    worker: to,
    policy: null,
    reuse: "fresh",
    timeoutMs: null,
    retries: 0,
    maxFailures: null,
    machines: null,
    ...said,
  };
  const items = files.map((file) => ({
    path: pathOf(file),
    folder: `/out/${file.folder}`,
    key: file.folder,
    file: file.shown,
  }));
  const passwords = passwordFile === undefined ? [] : [`${passwordFile.replaceAll(/[{}]/g, "$&$&")}=passwords`];
  const template = {
    key: "{key}",
    attach: ["{path}=file", ...passwords],
    // Without it an item would read the results of the others.
    allowRead: ["/program", "{folder}"],
    allowWrite: ["{folder}"],
    // A verdict that would be the same again is a result, so that it is not found out again.
    input: { folder: "{folder}", seconds, max_bytes: unpackedBytes, verdict_is_result: true, ...present({ ocr, dpi }) },
  };
  return {
    kind: "new",
    spec,
    requests: { source: { kind: "values", values: items }, template, within, templateDir: cwd },
    cwd,
  };
}
