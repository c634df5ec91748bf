import { environmentInputs } from "../../declarations/images/environment-inputs.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { ImageBuildError } from "../../isolation/port/images.ts";
import {
  getCommand,
  type MakeAsk,
  type PartOfImage,
  type Readiness,
  type ShownEnvironment,
  type WorkerImages,
} from "../model/worker-images.ts";
import { environmentStep } from "./environment-step.ts";
import { aptStep, imageStep } from "./image-steps.ts";
import type { ImagePlace, ImageThere, Step } from "./step.ts";

type WorkerParts = Pick<WorkerDefinition, "image" | "imageFrom" | "environment">;

/** Looks for one thing, or makes it; null: it is missing. */
export type Reach = <Found>(step: Step<Found>) => Promise<Found | null>;

/** The parts of one worker, each as it was reached. A part whose image is missing is missing too. */
export interface ReachedParts {
  readonly image: ImageThere | null;
  readonly environments: readonly (ShownEnvironment | null)[];
  readonly parts: readonly (PartOfImage & { readonly found: ImageThere | ShownEnvironment | null })[];
}

/** The steps from the image to what is prepared on it, in their order. */
export async function reachParts(worker: WorkerDefinition, place: ImagePlace, reach: Reach): Promise<ReachedParts> {
  const parts: { kind: PartOfImage["kind"]; name: string; found: ImageThere | ShownEnvironment | null }[] = [];
  const through = async <Found extends ImageThere | ShownEnvironment>(step: Step<Found>): Promise<Found | null> => {
    const found = await reach(step);
    parts.push({ kind: step.kind, name: step.name, found });
    return found;
  };
  let image = await through(imageStep(worker, place));
  const { apt } = worker.environment ?? {};
  if (apt !== undefined) image = await through(aptStep(apt, image, place));
  const environments: (ShownEnvironment | null)[] = [];
  for (const input of await inputsOf(worker, place))
    environments.push(await through(environmentStep(input, worker.environment ?? {}, image, place)));
  return { image, environments, parts };
}

async function inputsOf({ image, environment }: WorkerDefinition, { projectDir }: ImagePlace) {
  const read = environment === undefined ? null : await environmentInputs(projectDir, environment);
  if (read?.ok === false) throw new ImageBuildError(image, read.faults.join("\n"));
  return read?.inputs ?? [];
}

/** For runs: what is missing is made. Each worker's parts are looked for once, so that all its runs have the same. */
export function makingImages(place: ImagePlace): WorkerImages {
  return rememberingReady((worker, ask) => reached(worker, place, making(ask)));
}

/** For previews: nothing is made. */
export function lookingImages(place: ImagePlace): WorkerImages {
  return rememberingReady((worker) => reached(worker, place, (step) => step.look()));
}

/** Looks first. @throws ImageBuildError */
export function making(ask: MakeAsk): Reach {
  return async (step) => {
    ask.signal.throwIfAborted();
    return (await step.look()) ?? (await step.make(ask));
  };
}

async function reached(worker: WorkerDefinition, place: ImagePlace, reach: Reach): Promise<Readiness> {
  const { image, environments, parts } = await reachParts(worker, place, reach);
  const missing = parts.filter(({ found }) => found === null);
  if (image === null || missing.length > 0) return { state: "unmade", parts: missing };
  return { state: "ready", name: image.reference, environments: environments.filter((one) => one !== null) };
}

/** Only what is ready is remembered. A worker that has an image and nothing else needs no asking. */
function rememberingReady(find: WorkerImages["ready"]): WorkerImages {
  const known = new Map<string, Promise<Readiness>>();
  return {
    async ready(worker, ask) {
      const { image, imageFrom, environment }: WorkerParts = worker;
      if (imageFrom === undefined && environment === undefined)
        return { state: "ready", name: image, environments: [] };
      const key = JSON.stringify([image, imageFrom, environment]);
      for (;;) {
        const others = known.get(key);
        const finding = others ?? find(worker, ask).catch((error: unknown) => failed(worker, error, ask));
        known.set(key, finding);
        try {
          const readiness = await finding;
          if (readiness.state !== "ready") known.delete(key);
          return readiness;
        } catch (error) {
          if (known.get(key) === finding) known.delete(key);
          ask.signal.throwIfAborted();
          // Another run was cancelled while it made what this one waited for.
          if (others === undefined) throw error;
        }
      }
    },
  };
}

/** The person sees the whole of it as progress; a worker that called this one sees the first line. */
function failed(worker: WorkerParts, error: unknown, { signal, onProgress }: MakeAsk): Readiness {
  signal.throwIfAborted();
  if (!(error instanceof ImageBuildError)) throw error;
  const { imageFrom, environment } = worker;
  // What is added to an image has a name of its own; a base image has none here.
  const isAdded = environment !== undefined && /^(pip|npm|apt):/.test(error.image);
  const image = isAdded ? error.image : worker.image;
  const [reason = "", ...rest] = error.message.replace(`${image}: `, "").split("\n");
  if (rest.length > 0) onProgress({ image, text: [reason, ...rest].join("\n") });
  const get = getCommand({ kind: isAdded ? "build" : (imageFrom?.kind ?? "named"), name: image });
  return { state: "refused", violations: [{ code: "IMAGE_NOT_MADE", image, reason, get }] };
}
