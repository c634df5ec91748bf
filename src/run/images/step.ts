import type { Environment, EnvironmentInput } from "../../declarations/images/environment-inputs.ts";
import { type EngineImages, type FoundImage, ImageBuildError } from "../../isolation/port/images.ts";
import { lendTree } from "../../isolation/sources/lent-tree.ts";
import { sha256 } from "../../platform/sha256.ts";
import { closeTree, findEnvironment, prepareEnvironment } from "../../state/stored-environments.ts";
import { formatBytes } from "../../text/amounts.ts";
import type { MakeAsk, PartOfImage, ShownEnvironment } from "../model/worker-images.ts";

/** Raise it if a recipe changes what an environment holds. */
const RECIPE = 1;
/** What a preparation may write, with all that it removes again. */
export const MAX_ENVIRONMENT_BYTES = 4 * 1024 ** 3;

/** The packages that one file names, prepared on an image. */
export function environmentStep(
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
export interface ImageThere extends FoundImage {
  readonly reference: string;
}

/** One thing that is looked for, and made if it is missing. */
export interface Step<Found> extends PartOfImage {
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
