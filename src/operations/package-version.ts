import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** `src/cli/` and `dist/cli/` are both two levels below the package. */
const ROOT = new URL("../../", import.meta.url);

/** The folder of the images that `corral images build` builds. */
export const IMAGES_DIR = fileURLToPath(new URL("images", ROOT));

export function packageVersion(): string {
  return (JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")) as { version: string }).version;
}
