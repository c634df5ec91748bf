import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { BASE_NAME } from "../../port/images.ts";
import { type BuildContext, readContext } from "./context.ts";

/** An image that Corral can build: a folder of `imagesDir` with a Dockerfile. */
export interface ImageSource {
  /** The folder's name, e.g. `documents`. */
  readonly name: string;
  /** e.g. `corral/documents`. */
  readonly tag: string;
  readonly context: BuildContext;
}

/**
 * The images in `imagesDir`, `base` first because the others stand on it.
 *
 * `names` chooses some of them; whatever is chosen, `base` comes along. Throws an `Error` for a name that is not there.
 */
export async function listImages(imagesDir: string, prefix: string, names?: readonly string[]): Promise<ImageSource[]> {
  const entries = await readdir(imagesDir, { withFileTypes: true });
  const known = entries
    .filter((entry) => entry.isDirectory() && /^[a-z0-9][a-z0-9._-]{0,63}$/.test(entry.name))
    .map((entry) => entry.name);
  const wanted = names?.map((name) => (name.startsWith(`${prefix}/`) ? name.slice(prefix.length + 1) : name)) ?? known;
  const unknown = wanted.filter((name) => !known.includes(name));
  if (!known.includes(BASE_NAME))
    throw new Error(`${imagesDir} holds no folder ${BASE_NAME}, on which the other images stand`);
  if (unknown.length > 0)
    throw new Error(`no such image: ${unknown.join(", ")}. There are: ${known.toSorted().join(", ")}`);
  const others = [...new Set(wanted)].filter((name) => name !== BASE_NAME).toSorted();
  return Promise.all(
    [BASE_NAME, ...others].map(async (name) => ({
      name,
      tag: `${prefix}/${name}`,
      context: await readContext(join(imagesDir, name)),
    })),
  );
}
