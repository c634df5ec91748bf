import { loadProject } from "../../declarations/project.ts";
import type { FleetPlace } from "../../operations/fleets.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import type { ProjectOptions } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** The fleets of the project of `--project`. */
export async function placeOf({ project }: ProjectOptions, { env }: Terminal): Promise<FleetPlace> {
  const { dir } = await loadProject(project, env);
  return { stateDir: stateDirFrom(env), projectDir: dir, engineEnv: env };
}
