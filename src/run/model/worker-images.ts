import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import type { Driver } from "../../isolation/port/driver.ts";
import type { OnImageProgress } from "../../isolation/port/images.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { RunIdentity } from "./events.ts";

/** Brings the image of a worker, and what is prepared on it, to this machine, or says what is missing. */
export interface WorkerImages {
  ready(worker: WorkerDefinition, ask: MakeAsk): Promise<Readiness>;
}

export interface MakeAsk {
  /** The run that needs it, which is the parent of what is run to make it; null: none. */
  readonly owner: RunIdentity | null;
  readonly signal: AbortSignal;
  readonly onProgress: OnImageProgress;
}

export type Readiness =
  | {
      readonly state: "ready";
      /** The Engine's name of the image. */
      readonly name: string;
      readonly environments: readonly ShownEnvironment[];
    }
  | { readonly state: "refused"; readonly violations: readonly Violation[] }
  /** Nothing is made here: for a preview, or because the user does not want it. */
  | { readonly state: "unmade"; readonly parts: readonly PartOfImage[] };

/** Packages that are shown to a cell, read-only. */
export interface ShownEnvironment {
  readonly kind: "pip" | "npm";
  readonly digest: string;
  /** The directory on the host. */
  readonly host: string;
  readonly sizeBytes: number;
}

/** One of the things that a worker's cells are made of. */
export interface PartOfImage {
  readonly kind: "named" | "build" | "pull" | "apt" | "pip" | "npm";
  /** As `corral images` calls it: `corral/base`, `images/ocr`, `pip:requirements.txt`. */
  readonly name: string;
}

/** What a run needs and the Engine does not have, as a violation. */
export function unmadeViolation({ kind, name }: PartOfImage): Violation {
  if (kind === "named") return { code: "IMAGE_MISSING", image: name };
  return { code: "IMAGE_NOT_MADE", image: name, reason: unmadeText(kind), get: getCommand({ kind, name }) };
}

/** What the user can type to have it. */
export function getCommand({ kind, name }: PartOfImage): string {
  const own = kind === "named" && name.startsWith("corral/");
  if (kind === "named" && !own) return `docker pull ${name}`;
  return `corral images ${kind === "pull" ? "pull" : "build"} ${name}`;
}

function unmadeText(kind: PartOfImage["kind"]): string {
  if (kind === "pull") return "it is not pulled yet";
  return kind === "pip" || kind === "npm" ? "it is not prepared yet" : "it is not built yet";
}

/** For a preview. `isImplied`: no other command knows of it. */
export function madeAtFirstUse(part: PartOfImage, isImplied?: boolean): string {
  const other = isImplied ? "" : `, and so does \`${getCommand(part)}\``;
  return `${part.name}: ${unmadeText(part.kind)}. The first run does it${other}.`;
}

/** Of those that make nothing. */
export const NO_ASK: MakeAsk = { owner: null, signal: new AbortController().signal, onProgress: () => {} };

/** What the Engine reports of the image of a worker that runs; null if it has none. */
export async function knownFacts(
  worker: WorkerDefinition,
  { images, driver }: { readonly images: WorkerImages; readonly driver: Pick<Driver, "imageFacts"> },
): Promise<ImageFacts | null> {
  const ready = await images.ready(worker, NO_ASK);
  return ready.state === "ready" ? await driver.imageFacts(ready.name) : null;
}
