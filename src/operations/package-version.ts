import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PACKAGE_ROOT } from "../declarations/place/package-root.ts";

/** The folder of the images that `corral images build` builds. */
export const IMAGES_DIR = join(PACKAGE_ROOT, "images");

export function packageVersion(): string {
  return (JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8")) as { version: string }).version;
}
