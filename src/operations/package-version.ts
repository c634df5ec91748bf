import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PACKAGE_ROOT } from "../declarations/place/package-root.ts";

/** The folder of the images that `corral images build` builds. */
export const IMAGES_DIR = join(PACKAGE_ROOT, "images");

export function packageVersion(): string {
  return (JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8")) as { version: string }).version;
}

/** What the program contains besides its own code: how many packages, and the files that list them and have their licences. Null if it was not built. */
export function shippedPackages(): { readonly count: number; readonly list: string; readonly licences: string } | null {
  const [list, licences] = ["sbom.cdx.json", "THIRD-PARTY.txt"].map((name) => join(PACKAGE_ROOT, "dist", name));
  if (list === undefined || licences === undefined || !existsSync(list)) return null;
  const { components } = JSON.parse(readFileSync(list, "utf8")) as { components: readonly unknown[] };
  return { count: components.length, list, licences };
}
