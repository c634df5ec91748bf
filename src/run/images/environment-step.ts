import type { Environment, EnvironmentInput } from "../../declarations/images/environment-inputs.ts";
import { ImageBuildError } from "../../isolation/port/images.ts";
import { lendTree } from "../../isolation/sources/lent-tree.ts";
import { sha256 } from "../../platform/sha256.ts";
import { formatBytes } from "../../sandbox/units.ts";
import { closeTree } from "../../state/closed-tree.ts";
import { findEnvironment, prepareEnvironment } from "../../state/stored-environments.ts";
import type { ShownEnvironment } from "../model/worker-images.ts";
import type { ImagePlace, ImageThere, Step } from "./step.ts";

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

export function environmentName({ kind, path }: Pick<EnvironmentInput, "kind" | "path">): string {
  return `${kind}:${path.replace(/^\.\//, "")}`;
}
