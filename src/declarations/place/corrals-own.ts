import { existsSync } from "node:fs";
import { join } from "node:path";
import { PACKAGE_ROOT } from "./package-root.ts";

/**
 * The code and the policies of the Corral that runs. Where a project brings it along, in its `node_modules`, a worker
 * that could write there would write what runs next on the host. What it imports is next to it.
 */
export function corralsOwn(): string[] {
  const modules = /^.*?\/node_modules(?=\/)/.exec(PACKAGE_ROOT)?.[0];
  const inside = ["src", "dist", "policies", "images", "node_modules", "package.json"].map((name) =>
    join(PACKAGE_ROOT, name),
  );
  return [...(modules === undefined ? [] : [modules]), ...inside.filter((path) => existsSync(path))];
}
