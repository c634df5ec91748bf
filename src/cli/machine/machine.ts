import { confirm } from "@clack/prompts";
import type { Project } from "../../declarations/project.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import type { ImageProgress } from "../../isolation/port/images.ts";
import type { ImagesOf, ListedImage } from "../../operations/images.ts";
import type { Finding } from "../../operations/machine.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted, durationText, roughBytesText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { known, projectMeant } from "../host/at-service.ts";
import { ageOf, type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import {
  colorsFor,
  columns,
  EXIT,
  printJson,
  printList,
  printResult,
  say,
  stoppable,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";

interface CollectOptions {
  readonly dryRun?: boolean;
  readonly olderThan?: string;
  readonly json?: boolean;
}

/** More of one kind is counted, and is in the JSON. */
const MAX_LINES = 20;

/** `corral du`: what Corral keeps, and how much of it. */
export async function duVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { stdout } = terminal;
  const kinds = await measuredBy(terminal);
  if (options.json) {
    printJson(
      terminal,
      kinds.map(({ measured, ...kind }) => ({
        ...kind,
        ...(measured ?? { bytes: null, count: null, complete: false }),
      })),
    );
    return 0;
  }
  const sum = kinds.reduce((total, { measured }) => total + (measured?.bytes ?? 0), 0);
  const rows = kinds.map(({ name, unit, one, measured }) => {
    if (measured === null) return [name, "?", ""];
    const size = `${measured.complete ? "" : "≥ "}${roughBytesText(measured.bytes)}`;
    return [name, size, counted(measured.count, one, unit)];
  });
  const table = columns([["KIND", "SIZE", "COUNT"], ...rows, ["all", roughBytesText(sum), ""]]);
  stdout.write(`${withoutControls(table)}\n`);
  for (const { name, trouble } of kinds)
    if (trouble !== null) say(terminal, `corral: ${name}: ${printableLine(trouble, 500)}`);
  return 0;
}

async function measuredBy({ service, env }: Terminal) {
  if (service !== undefined) return (await service.client.call("host.stored", {})).kinds;
  const { measureState } = await import("../../operations/stored/stored-state.ts");
  return await measureState({ stateDir: stateDirFrom(env), engineEnv: env });
}

/** `corral gc`: removes what may go. Exit status 1 if something could not be read. */
export async function gcVerb(options: CollectOptions, terminal: Terminal): Promise<number> {
  const { dryRun = false, olderThan } = options;
  const { env, stdout } = terminal;
  const olderThanMs = olderThan === undefined ? null : ageOf("--older-than", olderThan);
  const { collectState } = await import("../../operations/stored/stored-state.ts");
  const kinds = await collectState({ stateDir: stateDirFrom(env), engineEnv: env }, { dryRun, olderThanMs });
  const status = kinds.some(({ trouble }) => trouble !== null) ? 1 : 0;
  if (options.json) {
    printJson(terminal, { dryRun, kinds });
    return status;
  }
  const done = dryRun ? "would remove" : "removed";
  let [count, bytes] = [0, 0];
  for (const { name, unit, one, rule, removed, stays, trouble } of kinds) {
    count += removed.length;
    for (const one of removed) bytes += one.bytes ?? 0;
    const lines = removed.slice(0, MAX_LINES).map(({ what, why, bytes: size }) => {
      return `${done} ${name}: ${printable(what)}${size === null ? "" : `, ${roughBytesText(size)}`} (${why})`;
    });
    if (removed.length > MAX_LINES) lines.push(`${done} ${name}: ${removed.length - MAX_LINES} more`);
    for (const line of lines) stdout.write(`${line}\n`);
    if (stays > 0) say(terminal, `kept ${name}: ${counted(stays, one, unit)} (${rule})`);
    if (trouble !== null) say(terminal, `corral: ${name}: ${printableLine(trouble, 500)}`);
  }
  if (count === 0) say(terminal, "There is nothing to remove.");
  else
    say(
      terminal,
      `corral: ${done} ${count} of what Corral keeps, at least ${roughBytesText(bytes)}. \`corral du\` shows the rest`,
    );
  return status;
}

/** `corral ps`: every container of this state directory, whatever its state. Removes nothing. */
export async function psVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const cells = await cellsOf(terminal);
  const { isTTY, columns: room = DEFAULT_COLUMNS } = terminal.stdout;
  const isNarrow = isTTY && room < WIDE_COLUMNS;
  printList(terminal, options.json, cells, {
    head: ["RUN", "WORKER", "STATE", "MEMORY", "CPU", ...(isNarrow ? [] : ["DRIVER", "CALLED BY", "OWNER", "CREATED"])],
    rowOf: ({ run, worker, state, memoryBytes, cpuMs, driver, parent, owner, ownerAlive, createdAt }) => [
      run,
      printableLine(worker, isNarrow ? NARROW_NAME : 64),
      isNarrow && !ownerAlive ? "owner dead" : state,
      memoryBytes === null ? "-" : roughBytesText(memoryBytes),
      cpuMs === null ? "-" : durationText(cpuMs),
      ...(isNarrow ? [] : [driver, parent ?? "-", `${owner.pid}${ownerAlive ? "" : " (dead)"}`, createdAt]),
    ],
    none: "There are no containers.",
  });
  return 0;
}

async function cellsOf({ service, env }: Terminal) {
  if (service !== undefined) return (await service.client.call("host.cells", {})).cells;
  const { listCells } = await import("../../operations/machine.ts");
  return await listCells({ stateDir: stateDirFrom(env), engineEnv: env });
}

const DEFAULT_COLUMNS = 80;
/** A narrower terminal would break the lines of the whole table: it gets what a person looks for first. */
const WIDE_COLUMNS = 140;
const NARROW_NAME = 16;

/** `corral reap`: removes what dead orchestrators left behind, and lists it. */
export async function reapVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const { reapCells } = await import("../../operations/machine.ts");
  const reaped = await reapCells({ stateDir: stateDirFrom(env), engineEnv: env });
  if (options.json) {
    printJson(terminal, reaped);
    return 0;
  }
  const lines = [
    ...reaped.cells.map((run) => `container of run ${run}`),
    ...reaped.volumes.map((name) => `volume ${name}`),
    ...reaped.directories.map((name) => `directory ${name}`),
  ];
  if (lines.length === 0) say(terminal, "There is nothing to remove.");
  for (const line of lines) stdout.write(`removed ${line}\n`);
  return 0;
}

/** `corral doctor`. Exit status 1 if something is missing. */
export async function doctorVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const examined = await examinedBy(terminal);
  printResult(terminal, options.json, examined, () => findingsText(examined.findings, colorsFor(stdout, env)));
  return examined.ok ? 0 : 1;
}

async function examinedBy({ service, env }: Terminal) {
  if (service !== undefined) return await service.client.call("host.machine", {});
  const { examineMachine } = await import("../../operations/machine.ts");
  return await examineMachine({ stateDir: stateDirFrom(env), engineEnv: env });
}

function findingsText(findings: readonly Finding[], colors: Colors): string {
  const marks = { ok: colors.green("✓"), warning: colors.yellow("!"), missing: colors.red("✗") };
  return findings.map(({ what, state, detail }) => `${marks[state]} ${what.padEnd(16)} ${detail}`).join("\n");
}

/** What makes images is loaded by what does that: a service lists its own. */
const operations = () => import("../../operations/images.ts");

interface RemoveOptions extends ProjectOptions {
  readonly unused?: boolean;
  readonly yes?: boolean;
}

/** `corral images build`: what is missing or stale. Its progress is for people; the result is what is there now. */
export async function buildVerb(
  names: readonly string[],
  options: ProjectOptions,
  terminal: Terminal,
): Promise<number> {
  return await stoppably(terminal, async (signal) => {
    const of = await imagesOf(options, terminal, names);
    const { buildImages } = await operations();
    const built = await buildImages(of, {
      ...(names.length > 0 && { names }),
      onProgress: progressAt(terminal),
      signal,
    });
    const rows = built.map(({ tag, name, built, sizeBytes }) => [
      tag?.startsWith("corral/") ? tag : name,
      built ? "built" : "up to date",
      size(sizeBytes),
    ]);
    printResult(terminal, options.json, built, () => columns(rows));
  });
}

/** `corral images ls`. */
export async function listImagesVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const listed = await listedImages(options, terminal);
  const head = ["IMAGE", "STATE", "SIZE", "ID", "USED BY"];
  printResult(terminal, options.json, listed, () => columns([head, ...listed.map(row)]));
  return 0;
}

async function listedImages(options: ProjectOptions, terminal: Terminal): Promise<readonly ListedImage[]> {
  const { service } = terminal;
  if (service === undefined) return await (await operations()).listImages(await imagesOf(options, terminal));
  const { images, problems } = await service.client.call("projects.images", { project: await projectMeant(service) });
  for (const problem of problems) say(terminal, onlyOwn(problem));
  return known(images);
}

function onlyOwn(problem: string): string {
  return `corral: only the images that come with Corral are known here: ${printable(problem)}`;
}

function row({ name, kind, tag, state, sizeBytes, id, usedBy }: ListedImage): string[] {
  const shown = kind === "own" ? (tag ?? name) : name;
  return [printableLine(shown, 60), state, size(sizeBytes), shortId(id), printableLine(usedBy.join(" "), 60)];
}

/** `corral images pull`: for a worker's file, the digest matters. */
export async function pullVerb(name: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  return await stoppably(terminal, async (signal) => {
    const of = await imagesOf(options, terminal);
    const pulled = await (await operations()).pullImage(of, name, { onProgress: progressAt(terminal), signal });
    const { reference, digest } = pulled;
    printResult(terminal, options.json, pulled, () =>
      digest === null ? reference : `image: { pull: "${reference}", digest: "${digest}" }`,
    );
  });
}

/** `corral images rm`. Asks at a terminal; elsewhere the command itself is the answer. */
export async function removeImagesVerb(
  names: readonly string[],
  options: RemoveOptions,
  terminal: Terminal,
): Promise<number> {
  if ((names.length === 0) === !options.unused) throw new UsageError("name the images to remove, or use --unused");
  const of = await imagesOf(options, terminal);
  const { removableImages, removeImages } = await operations();
  const chosen = await removableImages(of, options.unused ? "unused" : names);
  const asks = chosen.length > 0 && !options.yes && terminal.stdin.isTTY && terminal.stderr.isTTY;
  if (asks && !(await agreed(chosen, terminal))) return EXIT.cancelled;
  await removeImages(of, chosen);
  printResult(terminal, options.json, chosen, () =>
    chosen.length === 0 ? "nothing to remove" : chosen.map((one) => `removed ${nameOf(one)}`).join("\n"),
  );
  return 0;
}

async function agreed(chosen: readonly ListedImage[], terminal: Terminal): Promise<boolean> {
  for (const one of chosen) say(terminal, `  ${nameOf(one)}  ${size(one.sizeBytes)}`);
  const streams = { input: terminal.stdin, output: terminal.stderr };
  return (
    (await confirm({ message: `Remove ${chosen.length === 1 ? "it" : "them"}?`, initialValue: false, ...streams })) ===
    true
  );
}

function nameOf({ name, id }: ListedImage): string {
  return `${printableLine(name, 80)} ${shortId(id)}`;
}

/** A project with mistakes has no images that could be listed; those that come with Corral need none. */
async function imagesOf(options: ProjectOptions, terminal: Terminal, names: readonly string[] = []): Promise<ImagesOf> {
  const machine = { stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env };
  return { ...machine, project: await projectAt(options, terminal, names) };
}

async function projectAt(
  { project }: ProjectOptions,
  terminal: Terminal,
  names: readonly string[],
): Promise<Project | null> {
  if (names.length > 0 && names.every((name) => name.startsWith("corral/"))) return null;
  try {
    return await (await import("../../declarations/project.ts")).loadProject(project, terminal.env);
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    say(terminal, onlyOwn(error.message));
    return null;
  }
}

async function stoppably(terminal: Terminal, act: (signal: AbortSignal) => Promise<void>): Promise<number> {
  using stop = stoppable(terminal, (line) => say(terminal, line));
  try {
    await act(stop.signal);
    return 0;
  } catch (error) {
    if (stop.signal.aborted) return EXIT.cancelled;
    throw error;
  }
}

/** Milestones and steps as lines; on a terminal also what each program prints, in one line that is written over. */
function progressAt(terminal: Terminal): (progress: ImageProgress) => void {
  const { stderr } = terminal;
  const colors = colorsFor(stderr, terminal.env);
  let lastStep = "";
  return ({ image, step, text }) => {
    const fresh = step !== undefined && `${image} ${step}` !== lastStep;
    if (fresh) lastStep = `${image} ${step}`;
    const back = stderr.isTTY ? "\r\u001b[K" : "";
    if (step === undefined) say(terminal, `${back}${colors.bold(image)} ${printable(text)}`);
    else if (fresh) say(terminal, `${back}${colors.bold(image)} ${colors.dim(printableLine(step, 150))}`);
    if (step !== undefined && stderr.isTTY) {
      stderr.write(`${back}${colors.dim(printableLine(text, Math.max(10, (stderr.columns ?? 80) - 1)))}`);
    }
  };
}

function size(bytes: number | null): string {
  return bytes === null ? "-" : `${Math.round(bytes / 1e6)} MB`;
}

function shortId(id: string | null): string {
  return id?.replace("sha256:", "").slice(0, 12) ?? "-";
}
