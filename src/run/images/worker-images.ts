import { resolve } from "node:path";
import { baseImagesOf, readBuildFolder } from "../../declarations/images/build-folder.ts";
import {
  type Environment,
  type EnvironmentInput,
  environmentInputs,
  pulledName,
} from "../../declarations/images/environment-inputs.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import {
  causeIn,
  type EngineImages,
  type FoundImage,
  IMAGE_PREFIX,
  ImageBuildError,
  type MadeFrom,
  madeTag,
} from "../../isolation/port/images.ts";
import { sha256 } from "../../platform/sha256.ts";
import { closeTree, findEnvironment, lendTree, prepareEnvironment } from "../../state/stored-environments.ts";
import { formatBytes } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import {
  getCommand,
  type MakeAsk,
  type PartOfImage,
  type Readiness,
  type ShownEnvironment,
  type WorkerImages,
} from "../model/worker-images.ts";

/** The image itself, before anything is added to it. */
function imageStep({ image: name, imageFrom }: WorkerDefinition, place: ImagePlace): Step<ImageThere> {
  if (imageFrom?.kind === "build") return buildStep(name, resolve(place.projectDir, imageFrom.folder), place);
  const { images } = place;
  if (imageFrom === undefined) {
    const make = () => Promise.reject(new ImageBuildError(name, "the Engine does not have it"));
    return { kind: "named", name, look: () => there(images, name), make };
  }
  const reference = pulledName(imageFrom);
  return {
    kind: "pull",
    name,
    look: () => there(images, reference),
    make: async (ask) => ({ reference, ...(await images.pull(reference, ask)) }),
  };
}

function buildStep(name: string, dir: string, place: ImagePlace): Step<ImageThere> {
  const { images, env } = place;
  const fail = (fault: string): never => {
    throw new ImageBuildError(name, `cannot be built: ${fault}`);
  };
  const folder = async () => {
    const read = await readBuildFolder(dir);
    const bases = read.ok ? baseImagesOf(read.value.dockerfile) : read;
    if (!read.ok) return fail(read.fault);
    return bases.ok ? { ...read.value, bases: bases.value } : fail(bases.fault);
  };
  const from = (digest: string, ids: readonly string[]): MadeFrom => ({
    kind: "build",
    project: place.project,
    name,
    digest: sha256(JSON.stringify([digest, ids])),
  });
  return {
    kind: "build",
    name,
    async look() {
      const { sha256: digest, bases } = await folder();
      const found = await Promise.all(bases.map((base) => images.find(base)));
      if (found.some((base) => base === null)) return null;
      return await madeThere(
        images,
        from(
          digest,
          found.map((base) => base?.id ?? ""),
        ),
      );
    },
    async make(ask) {
      const { files, sha256: digest, bases } = await folder();
      const ids: string[] = [];
      for (const base of bases) ids.push((await baseThere(base, ask, place)).id);
      const made = from(digest, ids);
      return { reference: madeTag(made), ...(await images.make({ made, files, env, ...ask })) };
    },
  };
}

/** A base comes with Corral, is there already, or has a digest: a name alone could mean another image tomorrow. */
async function baseThere(base: string, ask: MakeAsk, { images, imagesDir, env }: ImagePlace): Promise<FoundImage> {
  const found = await images.find(base);
  if (found !== null) return found;
  if (base.startsWith(`${IMAGE_PREFIX}/`)) {
    await images.build({ imagesDir, names: [base], env, ...ask });
    const built = await images.find(base);
    if (built !== null) return built;
  }
  if (/@sha256:[0-9a-f]{64}$/.test(base)) return await images.pull(base, ask);
  throw new ImageBuildError(
    base,
    `the Engine does not have this base image. Run \`corral images pull ${base}\`, and write the digest that it prints: FROM ${base}@sha256:…`,
  );
}

/** Raise it if the recipe below changes what an image holds. */
const APT_RECIPE = 1;

/** The same image with packages of Debian. */
function aptStep(packages: readonly string[], base: ImageThere | null, place: ImagePlace): Step<ImageThere> {
  const name = aptName(packages);
  const { images, project, env } = place;
  const made = (id: string): MadeFrom => ({
    kind: "apt",
    project,
    name,
    digest: sha256(JSON.stringify([APT_RECIPE, id, packages])),
  });
  return {
    kind: "apt",
    name,
    look: async () => (base === null ? null : await madeThere(images, made(base.id))),
    async make(ask) {
      if (base === null) throw new Error("packages are added to an image that is there");
      const files = [{ name: "Dockerfile", content: aptDockerfile(base.id, packages) }];
      const from = made(base.id);
      return { reference: madeTag(from), ...(await images.make({ made: from, files, env, ...ask })) };
    },
  };
}

function aptName(packages: readonly string[]): string {
  return `apt:${packages.join(",")}`;
}

/**
 * The packages' own scripts, such as those of fonts and libraries, want the whole file system and root. So this is a build of
 * an image, and no cell: what it makes is run only in cells.
 */
function aptDockerfile(baseId: string, packages: readonly string[]): Buffer {
  return Buffer.from(`FROM ${baseId}
USER root
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${packages.map((name) => `'${name}'`).join(" ")} \\
 && apt-get clean \\
 && rm -rf /var/lib/apt/lists/*
`);
}

async function there(images: EngineImages, reference: string): Promise<ImageThere | null> {
  const found = await images.find(reference);
  return found === null ? null : { reference, ...found };
}

/** By its name and its digest: names can be moved by hand. */
async function madeThere(images: EngineImages, made: MadeFrom): Promise<ImageThere | null> {
  const tag = madeTag(made);
  const known = (await images.made()).find((one) => one.tag === tag && one.digest === made.digest);
  return known === undefined ? null : { reference: tag, id: known.id, sizeBytes: known.sizeBytes, digests: [] };
}

type WorkerParts = Pick<WorkerDefinition, "image" | "imageFrom" | "environment">;

/** Looks for one thing, or makes it; null: it is missing. */
export type ReachStep = <Found>(step: Step<Found>) => Promise<Found | null>;

/** The parts of one worker, each as it was reached. A part whose image is missing is missing too. */
export interface ReachedParts {
  readonly image: ImageThere | null;
  readonly environments: readonly (ShownEnvironment | null)[];
  readonly parts: readonly (PartOfImage & { readonly found: ImageThere | ShownEnvironment | null })[];
}

/** The steps from the image to what is prepared on it, in their order. */
export async function reachParts(worker: WorkerDefinition, place: ImagePlace, reach: ReachStep): Promise<ReachedParts> {
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
  return rememberingReady(place, (worker, ask) => reached(worker, place, making(ask)));
}

/** For previews: nothing is made. */
export function lookingImages(place: ImagePlace): WorkerImages {
  return rememberingReady(place, (worker) => reached(worker, place, (step) => step.look()));
}

/** Looks first. @throws ImageBuildError */
export function making(ask: MakeAsk): ReachStep {
  return async (step) => {
    ask.signal.throwIfAborted();
    return (await step.look()) ?? (await step.make(ask));
  };
}

async function reached(worker: WorkerDefinition, place: ImagePlace, reach: ReachStep): Promise<Readiness> {
  const { image, environments, parts } = await reachParts(worker, place, reach);
  const missing = parts.filter(({ found }) => found === null);
  if (image === null || missing.length > 0) return { state: "unmade", parts: missing };
  return { state: "ready", name: image.reference, environments: environments.filter((one) => one !== null) };
}

/** Only what is ready is remembered. A worker that has an image and nothing else needs no asking. */
function rememberingReady(place: ImagePlace, find: WorkerImages["ready"]): WorkerImages {
  const known = new Map<string, Promise<Readiness>>();
  return {
    async ready(worker, ask) {
      const { image, imageFrom, environment }: WorkerParts = worker;
      if (imageFrom === undefined && environment === undefined)
        return { state: "ready", name: image, environments: [] };
      const key = JSON.stringify([image, imageFrom, environment]);
      for (;;) {
        const others = known.get(key);
        const finding = others ?? find(worker, ask).catch((error: unknown) => failed(worker, error, ask, place));
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

/** The person sees the whole of it as progress, and why at once; a worker that called this one sees the first line. */
function failed(
  worker: WorkerParts,
  error: unknown,
  { owner, signal, onProgress }: MakeAsk,
  { isImplied }: ImagePlace,
): Readiness {
  signal.throwIfAborted();
  if (!(error instanceof ImageBuildError)) throw error;
  const { imageFrom, environment } = worker;
  // What is added to an image has a name of its own; a base image has none here.
  const isAdded = environment !== undefined && /^(pip|npm|apt):/.test(error.image);
  const image = isAdded ? error.image : worker.image;
  const [first = "", ...rest] = error.message.replace(`${image}: `, "").split("\n");
  if (rest.length > 0) onProgress({ image, text: [first, ...rest].join("\n") });
  const isPersons = owner === null || owner.run === owner.root;
  const cause = isPersons ? (error.why ?? causeIn(rest.filter((line) => line.startsWith("  ")))) : "";
  const reason = (cause === "" ? first : `${first}: ${cause}`).replace(/\.$/, "");
  const get = getCommand({ kind: isAdded ? "build" : (imageFrom?.kind ?? "named"), name: image });
  return {
    state: "refused",
    violations: [{ code: "IMAGE_NOT_MADE", image, reason, ...present({ get: isImplied ? undefined : get }) }],
  };
}

/** Raise it if a recipe changes what an environment holds. */
const RECIPE = 1;
/** What a preparation may write, with all that it removes again. */
export const MAX_ENVIRONMENT_BYTES = 4 * 1024 ** 3;

/** The packages that one file names, prepared on an image. */
function environmentStep(
  input: EnvironmentInput,
  { addresses = [] }: Environment,
  image: ImageThere | null,
  place: ImagePlace,
): Step<ShownEnvironment> {
  const name = environmentName(input);
  const { stateDir, ownerDir, project, prepare } = place;
  const digest = sha256(JSON.stringify([RECIPE, input.kind, image?.id, input.sha256]));
  const look = async (): Promise<ShownEnvironment | null> => {
    const found = image === null ? null : await findEnvironment(stateDir, digest, ownerDir);
    return found === null ? null : { kind: input.kind, digest, host: found.tree, sizeBytes: found.sizeBytes };
  };
  return {
    kind: input.kind,
    name,
    look,
    async make(ask) {
      if (image === null || prepare === null) throw new Error("packages are prepared by a run, on an image");
      const { signal, onProgress } = ask;
      const onWait = (pid: number): void =>
        onProgress({ image: name, text: `waiting for process ${pid}, which prepares the same` });
      const started = performance.now();
      await prepareEnvironment(stateDir, digest, { signal, onWait }, async (tree) => {
        onProgress({ image: name, text: "preparing" });
        await lendTree(tree, input.files);
        await prepare({ input, name, addresses, image: image.reference, tree }, ask);
        const closed = await closeTree(tree, MAX_ENVIRONMENT_BYTES);
        if (!closed.ok)
          throw new ImageBuildError(name, `what was installed is refused: ${closed.path} ${closed.reason}`);
        const { bytes: sizeBytes, entries } = closed;
        const seconds = ((performance.now() - started) / 1000).toFixed(1);
        onProgress({ image: name, text: `prepared, ${formatBytes(sizeBytes)} in ${entries} entries, ${seconds} s` });
        return { kind: input.kind, name, project, sizeBytes, entries };
      });
      const made = await look();
      if (made === null) throw new ImageBuildError(name, "it was removed while it was prepared; run it again");
      return made;
    },
  };
}

function environmentName({ kind, path }: Pick<EnvironmentInput, "kind" | "path">): string {
  return `${kind}:${path.replace(/^\.\//, "")}`;
}

/** An image that is there, by the Engine's name for it. */
interface ImageThere extends FoundImage {
  readonly reference: string;
}

/** One thing that is looked for, and made if it is missing. */
interface Step<Found> extends PartOfImage {
  /** Null if it is missing, or not as its files are now. Makes nothing. */
  look(): Promise<Found | null>;
  /** @throws ImageBuildError with a message for people. */
  make(ask: MakeAsk): Promise<Found>;
}

/** Where images are made, and for which project. */
export interface ImagePlace {
  readonly images: EngineImages;
  /** The folder with the images that come with Corral. */
  readonly imagesDir: string;
  readonly projectDir: string;
  /** See {@link Project.isImplied}. */
  readonly isImplied?: true;
  /** The project's mark on what is made for it. */
  readonly project: string;
  readonly stateDir: string;
  /** The directory of this process, which marks what it uses; null: it only looks. */
  readonly ownerDir: string | null;
  /** Null: nothing is prepared. */
  readonly prepare: Prepare | null;
  /** Corral's own environment, for the proxies of builds. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Fills an empty directory with the packages, in a cell. @throws ImageBuildError */
export type Prepare = (request: PrepareRequest, ask: MakeAsk) => Promise<void>;

export interface PrepareRequest {
  readonly input: EnvironmentInput;
  readonly name: string;
  /** The Engine's name of the image in which it is prepared and used. */
  readonly image: string;
  /** The only addresses at which the registries may be; empty: any that is public. */
  readonly addresses: readonly string[];
  /** The directory, with the input's files in it, which the cell may write. */
  readonly tree: string;
}
