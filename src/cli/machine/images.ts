import type { ImageProgress } from "../../isolation/port/images.ts";
import { buildImages, listImages } from "../../operations/machine.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { stoppable } from "../terminal/stop.ts";
import { colorsFor, columns, printResult, say, type Terminal } from "../terminal/terminal.ts";

interface ImagesOptions {
  readonly json?: boolean;
}

/** `corral images build`: what is missing or stale. Its progress is for people; the result is what is there now. */
export async function buildVerb(names: readonly string[], options: ImagesOptions, terminal: Terminal): Promise<number> {
  const { env } = terminal;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  try {
    const machine = { stateDir: stateDirFrom(env), engineEnv: env };
    const built = await buildImages(machine, { names, onProgress: progressAt(terminal), signal: stop.signal });
    const rows = built.map((image) => [image.tag, image.built ? "built" : "up to date", size(image.sizeBytes)]);
    printResult(terminal, options.json, built, () => columns(rows));
    return 0;
  } catch (error) {
    if (stop.signal.aborted) return EXIT.cancelled;
    throw error;
  }
}

/** `corral images ls`. */
export async function listVerb(options: ImagesOptions, terminal: Terminal): Promise<number> {
  const statuses = await listImages({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
  const rows = statuses.map(({ tag, state, sizeBytes, id }) => [tag, state, size(sizeBytes), shortId(id)]);
  printResult(terminal, options.json, statuses, () => columns([["IMAGE", "STATE", "SIZE", "ID"], ...rows]));
  return 0;
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
    if (step === undefined) say(terminal, `${back}${colors.bold(image)} ${printableLine(text, 150)}`);
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
