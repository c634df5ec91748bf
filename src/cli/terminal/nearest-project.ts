import { relative } from "node:path";
import { foundProject } from "../../declarations/place/host-place.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "./arguments.ts";
import type { Terminal } from "./terminal.ts";

/**
 * The folder of the project in which the user works, relative to the working directory. `orHere`: the working directory itself
 * if there is none.
 */
export async function nearestProject({ cwd }: Pick<Terminal, "cwd">, { orHere }: { orHere: boolean }): Promise<string> {
  const project = await foundProject(cwd);
  if (project.found) return relative(cwd, project.dir) || ".";
  if (orHere) return ".";
  if (project.foreign === null)
    throw new UsageError(
      `No corral.yaml in ${printableLine(cwd, 500)} or its parents. \`corral init\` makes a project, \`corral run --ro FOLDER -- COMMAND\` needs none, and --project names the folder of one`,
    );
  throw new UsageError(
    `${printableLine(project.foreign, 500)} belongs to another user. If you trust it, name its folder with --project`,
  );
}
