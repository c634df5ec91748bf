import { confirm } from "@clack/prompts";
import type { Project } from "../../declarations/project.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import type { ImageProgress } from "../../isolation/port/images.ts";
import type { ImagesOf, ListedImage } from "../../operations/images.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { known, projectMeant } from "../host/at-service.ts";
import { type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { colorsFor, columns, EXIT, printResult, say, stoppable, type Terminal } from "../terminal/terminal.ts";

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
